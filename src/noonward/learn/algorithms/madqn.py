"""MADQN: a deep Q network per agent (the paper's policy S3, Zhang et al., Sec. IV)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import torch

from noonward.arrays import I8
from noonward.learn.algorithms.algorithm import Algorithm, Dimensions, Moment, PolicyArrays, Transition
from noonward.learn.core.inputs import Inputs
from noonward.learn.core.masking import best, masked, with_hold
from noonward.learn.core.nets import (
    StackedMLP,
    adam,
    arithmetic,
    dtype_of,
    follow,
    load_module_state,
    module_state,
)
from noonward.learn.core.parts import exported, load_parts, net_generator, parts_state
from noonward.learn.core.replay import Batch, Replay
from noonward.learn.train.config import Steps, at_least, between, check_steps
from noonward.seeding import stream


@dataclass(frozen=True, kw_only=True)
class MadqnConfig:
    """Settings of MADQN; the defaults are the paper's (Table I), or ours where it is silent [ours].

    Attributes:
        hidden: Widths of the hidden layers.
        batch: Transitions per agent in an update.
        rate: Adam's step (the paper's for critics).
        gamma: Discount of a decision step.
        target_rate: Share by which targets follow after each update [ours].
        double: The best next choice is taken by the net, its value from the target (double DQN).
        epsilon_first: Share of random choices at the start [ours].
        epsilon_last: Share of random choices in the end [ours].
        epsilon_updates: Updates over which the share falls, in a line: 20 epochs of the paper's 1,000 [ours].
        capacity: Decision steps kept in the replay [ours].
        span: ``joint`` (the paper) or ``own``, see ``Replay``.
        n_steps: Questions or decision steps a transition spans.
        per_slot: Discount a slot of time by ``gamma`` rather than a decision step.
        priority: Exponent of prioritised replay; 0: uniform.
        priority_correction: Exponent of the correction of its bias.
        share_parameters: One net for all agents, told which agent it is.
        reward_scale: Factor on rewards.
        advice_features: The adviser's choice is an input.
        advice_logit: Added to the value of the adviser's choice when the net acts.
        precision: ``float32``, ``bf16`` or ``float64``.
    """

    hidden: tuple[int, ...] = (256, 256)
    batch: int = 256
    rate: float = 5e-4
    gamma: float = 0.99
    target_rate: float = 0.005
    double: bool = False
    epsilon_first: float = 1.0
    epsilon_last: float = 0.05
    epsilon_updates: int = 20_000
    capacity: int = 500_000
    span: Steps = "joint"
    n_steps: int = 1
    per_slot: bool = False
    priority: float = 0.0
    priority_correction: float = 0.5
    share_parameters: bool = False
    reward_scale: float = 1.0
    advice_features: bool = False
    advice_logit: float = 0.0
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_steps(self)
        at_least(self, 0.0, "rate")
        at_least(self, 1, "epsilon_updates")
        between(self, 0.0, 1.0, "epsilon_first", "epsilon_last")


class Madqn(Algorithm):
    """Multi-agent deep Q learning.

    For agent n with net Q and target Q', over feasible choices:

    - target ``y = scale R + discount max_a Q'(s', a)``, or with ``double`` ``Q'(s', argmax_a Q(s', a))``,
    - loss ``mean 1/2 (Q(s, a_k) - y)^2``,
    - targets ``Q' <- Q' + rate (Q - Q')``.

    In training each agent that is asked takes, with probability epsilon, an even draw of its feasible choices, else the
    best one.

    An update computes, with a pass of one agent's net over the batch as the unit: target at s' 1, net at s 1 and
    backwards 2: 4 units (``double``: 5).

    Args:
        dimensions: Sizes.
        config: Settings.
        seed: Seed; streams ``learner``.
        device: Where the nets are.
    """

    name: ClassVar[str] = "madqn"
    consumes = "replay"
    lesson = "margin"

    def __init__(self, dimensions: Dimensions, config: MadqnConfig, seed: int, device: str = "cpu") -> None:
        self.config, self.dimensions = config, dimensions
        dtype, where = dtype_of(config.precision), torch.device(device)
        self.inputs = Inputs.of(dimensions, config, dtype, where)
        sizes = (self.inputs.width, *config.hidden, dimensions.choices)
        generator = net_generator(seed)
        self.net = StackedMLP(self.inputs.nets, sizes, generator, dtype).to(where)
        self.target = StackedMLP(self.inputs.nets, sizes, generator, dtype).to(where).requires_grad_(False)
        load_module_state(self.target, module_state(self.net))
        self.net_adam = adam(self.net.parameters(), config.rate)
        self.replay = Replay.of(dimensions, config)
        self.updates = 0
        self.explore_rng = stream(seed, "learner", "explore")
        self.batch_rng = stream(seed, "learner", "batch")

    @property
    def epsilon(self) -> float:
        """Share of random choices in training now."""
        config = self.config
        done = min(1.0, self.updates / config.epsilon_updates)
        return config.epsilon_first + done * (config.epsilon_last - config.epsilon_first)

    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns the best choices, or with probability epsilon random feasible ones, [B, N]."""
        with torch.no_grad():
            value_BNA = self.preferences(moment).transpose(0, 1).cpu().numpy()
        mask_BNA = with_hold(moment.mask_BNA, moment.asked_BN)
        choice_BN = best(value_BNA, mask_BNA)
        if not explore:
            return choice_BN
        random_BN = best(self.explore_rng.random(mask_BNA.shape), mask_BNA)
        return np.where(self.explore_rng.random(choice_BN.shape) < self.epsilon, random_BN, choice_BN)

    def observe(self, transition: Transition) -> None:
        """Stores a decision step."""
        self.replay.observe(transition)

    def update(self) -> dict[str, float]:
        """Makes one step of every net on a fresh batch."""
        batch = self.replay.sample(self.batch_rng, self.config.batch)
        loss, error_NB, value_NB = self.losses(batch)
        self.net_adam.zero_grad()
        loss.backward()
        self.net_adam.step()
        follow(self.target.parameters(), self.net.parameters(), self.config.target_rate)
        self.replay.reprioritise(batch.slot_NB, error_NB.double().cpu().numpy())
        self.updates += 1
        return {
            "critic_loss": loss.item() / self.dimensions.agents,
            "value": value_NB.mean().item(),
            "epsilon": self.epsilon,
        }

    def losses(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the loss of a batch, summed over agents, its errors and its values [N, B]."""
        y_NB = self._targets(batch)
        value_NBA = self._values(self.net, self.inputs.build(batch.seen_NBI, batch.advice_NB))
        taken_NB = value_NBA.gather(-1, self.inputs.tensor(batch.choice_NB)[..., None])[..., 0]
        error_NB = taken_NB - y_NB
        weight_NB = self.inputs.tensor(batch.weight_NB, self.inputs.dtype)
        return 0.5 * (weight_NB * error_NB.square()).mean(-1).sum(), error_NB.detach(), taken_NB.detach()

    def _targets(self, batch: Batch) -> torch.Tensor:
        """Returns ``y``, [N, B]."""
        with torch.no_grad():
            seen = self.inputs.build(batch.next_seen_NBI, batch.next_advice_NB)
            mask_NBA = self.inputs.tensor(batch.next_mask_NBA)
            value_NBA = masked(self._values(self.target, seen), mask_NBA)
            chooser_NBA = masked(self._values(self.net, seen), mask_NBA) if self.config.double else value_NBA
            next_NB = value_NBA.gather(-1, chooser_NBA.argmax(-1, keepdim=True))[..., 0]
            reward_NB = self.inputs.tensor(batch.reward_NB, self.inputs.dtype)
            discount_NB = self.inputs.tensor(batch.discount_NB, self.inputs.dtype)
            return self.config.reward_scale * reward_NB + discount_NB * next_NB

    def _values(self, net: StackedMLP, seen: torch.Tensor) -> torch.Tensor:
        """Returns the values of choices, [N, B, A]."""
        with arithmetic(self.config.precision, self.inputs.device):
            return self.inputs.by_agent(net(seen))

    def preferences(self, moment: Moment) -> torch.Tensor:
        """Returns the values of choices for what B runs see, [N, B, A], the advised choice lifted."""
        return self.inputs.lifted(self._values(self.net, self.inputs.of_moment(moment)), moment.advice_BN.T)

    def pupil(self) -> StackedMLP:
        """Returns the nets that are fitted to demonstrations."""
        return self.net

    def imitated(self) -> None:
        """Sets the targets to the nets that were fitted."""
        load_module_state(self.target, module_state(self.net))

    NETS: Final = ("net", "target")
    ADAMS: Final = ("net_adam",)
    STREAMS: Final = ("explore_rng", "batch_rng")

    def state(self) -> dict[str, Any]:
        """Returns nets, optimizer, random states and replay."""
        return {
            **parts_state(self),
            "updates": self.updates,
            "replay": self.replay.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""
        load_parts(self, state)
        self.updates = state["updates"]
        self.replay.load_state(state["replay"])

    def policy_arrays(self) -> PolicyArrays:
        """Returns the nets; the policy takes the choice of largest value."""
        return exported(self.name, "values", self.net, self.config)

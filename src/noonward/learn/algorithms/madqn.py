"""MADQN: a deep Q network per agent (the paper's policy S3, Zhang et al., Sec. IV)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from noonward.arrays import I8
from noonward.learn.algorithms.learner import AgentLearner
from noonward.learn.core.experience import Moment, Transition
from noonward.learn.core.masking import best, masked, with_hold
from noonward.learn.core.nets import StackedMLP, adam, follow, load_module_state, module_state
from noonward.learn.core.replay import Batch, Replay
from noonward.learn.core.settings import at_least, between, check_steps


@dataclass(frozen=True, kw_only=True)
class MadqnConfig:
    """Settings of MADQN; the defaults are the paper's (Table I), or ours where it is silent [ours].

    Attributes:
        hidden: Widths of the hidden layers.
        batch: Transitions per agent in an update.
        rate: Adam's step (the paper's for critics).
        gamma: Discount of a decision step.
        target_rate: Share by which targets follow after each update [ours].
        epsilon_first: Share of random choices at the start [ours].
        epsilon_last: Share of random choices in the end [ours].
        epsilon_updates: Updates over which the share falls, in a line: 20 epochs of the paper's 1,000 [ours].
        capacity: Decision steps kept in the replay [ours].
        precision: ``float32``, ``bf16`` or ``float64``.
    """

    hidden: tuple[int, ...] = (256, 256)
    batch: int = 256
    rate: float = 5e-4
    gamma: float = 0.99
    target_rate: float = 0.005
    epsilon_first: float = 1.0
    epsilon_last: float = 0.05
    epsilon_updates: int = 20_000
    capacity: int = 500_000
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_steps(self)
        at_least(self, 0.0, "rate")
        at_least(self, 1, "epsilon_updates")
        between(self, 0.0, 1.0, "epsilon_first", "epsilon_last")


class Madqn(AgentLearner):
    """Multi-agent deep Q learning.

    For agent n with net Q and target Q', over feasible choices:

    - target ``y = R + discount max_a Q'(s', a)``,
    - loss ``mean 1/2 (Q(s, a_k) - y)^2``,
    - targets ``Q' <- Q' + rate (Q - Q')``.

    In training each agent that is asked takes, with probability epsilon, an even draw of its feasible choices, else the
    best one.

    An update computes, with a pass of one agent's net over the batch as the unit: target at s' 1, net at s 1 and
    backwards 2: 4 units.

    Args:
        dimensions: Sizes.
        config: Settings.
        seed: Seed; streams ``learner``.
        device: Where the nets are.
    """

    name: ClassVar[str] = "madqn"
    consumes = "replay"
    head = "values"
    config: MadqnConfig
    NETS = ("net", "target")
    ADAMS = ("net_adam",)
    PARTS = ("replay",)

    def _make_nets(self, generator: torch.Generator) -> None:
        config = self.config
        self.net = self._agent_nets(generator)
        self.target = self._agent_nets(generator).requires_grad_(False)
        load_module_state(self.target, module_state(self.net))
        self.net_adam = adam(self.net.parameters(), config.rate)
        self.replay = Replay(self.dimensions, capacity=config.capacity, gamma=config.gamma)

    @property
    def deciding_net(self) -> StackedMLP:
        """The nets of values; the policy takes the choice of largest value."""
        return self.net

    @property
    def epsilon(self) -> float:
        """Share of random choices in training now."""
        config = self.config
        done = min(1.0, self.updates / config.epsilon_updates)
        return config.epsilon_first + done * (config.epsilon_last - config.epsilon_first)

    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns the best choices, or with probability epsilon random feasible ones, [B, N]."""
        choice_BN = super().act(moment, explore=False)
        if not explore:
            return choice_BN
        mask_BNA = with_hold(moment.mask_BNA, moment.asked_BN)
        random_BN = best(self.explore_rng.random(mask_BNA.shape), mask_BNA)
        return np.where(self.explore_rng.random(choice_BN.shape) < self.epsilon, random_BN, choice_BN)

    def observe(self, transition: Transition) -> None:
        """Stores a decision step."""
        self.replay.observe(transition)

    def update(self) -> dict[str, float]:
        """Makes one step of every net on a fresh batch."""
        batch = self.replay.sample(self.batch_rng, self.config.batch)
        loss, value_NB = self.losses(batch)
        self.net_adam.zero_grad()
        loss.backward()
        self.net_adam.step()
        follow(self.target.parameters(), self.net.parameters(), self.config.target_rate)
        self.updates += 1
        return {
            "critic_loss": loss.item() / self.dimensions.agents,
            "value": value_NB.mean().item(),
            "epsilon": self.epsilon,
        }

    def losses(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the loss of a batch, summed over agents, and its values [N, B]."""
        y_NB = self._targets(batch)
        value_NBA = self.evaluated(self.net, self.tensor(batch.seen_NBI, self.dtype))
        taken_NB = value_NBA.gather(-1, self.tensor(batch.choice_NB)[..., None])[..., 0]
        return 0.5 * (taken_NB - y_NB).square().mean(-1).sum(), taken_NB.detach()

    def _targets(self, batch: Batch) -> torch.Tensor:
        """Returns ``y``, [N, B]."""
        with torch.no_grad():
            value_NBA = self.evaluated(self.target, self.tensor(batch.next_seen_NBI, self.dtype))
            next_NB = masked(value_NBA, self.tensor(batch.next_mask_NBA)).amax(-1)
            return self.tensor(batch.reward_NB, self.dtype) + self.tensor(batch.discount_NB, self.dtype) * next_NB

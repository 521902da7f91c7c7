"""MASAC: discrete soft actor-critic with an actor and twin critics per agent (Zhang et al., Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import torch

from noonward.arrays import I8
from noonward.learn.algorithms.algorithm import Algorithm, Dimensions, Moment, PolicyArrays, Transition
from noonward.learn.core.inputs import Inputs
from noonward.learn.core.masking import best, entropy, log_policy, sample, with_hold
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

TWINS: Final = 2
"""Critics of an agent."""


@dataclass(frozen=True, kw_only=True)
class MasacConfig:
    """Settings of MASAC; the defaults are the paper's (Table I), or ours where it is silent [ours].

    Attributes:
        hidden: Widths of the hidden layers.
        batch: Transitions per agent in an update.
        actor_rate: Adam's step of the actors.
        critic_rate: Adam's step of the critics.
        gamma: Discount of a decision step.
        target_rate: Share by which targets follow their critics after each update [ours].
        temperature: Weight of the entropy, scaled USD per nat; where it is tuned, its first value [ours].
        tune_temperature: Adapt each agent's temperature to ``target_entropy``.
        temperature_rate: Adam's step of the logarithm of the temperature.
        target_entropy: Entropy aimed at, as a share of that of an even choice among the feasible ones.
        capacity: Decision steps kept in the replay [ours].
        span: ``joint`` (the paper) or ``own``, see ``Replay``.
        n_steps: Questions or decision steps a transition spans.
        per_slot: Discount a slot of time by ``gamma`` rather than a decision step.
        priority: Exponent of prioritised replay; 0: uniform.
        priority_correction: Exponent of the correction of its bias.
        share_parameters: One actor and one pair of critics for all agents, told which agent it is.
        reward_scale: Factor on rewards.
        critic_alone: First updates in which the critics alone learn, so that actors that were fitted to demonstrations
            are not led by critics that know nothing [ours].
        critic_first: The actors learn from critics that have made their step; costs one more pass of every critic.
        advice_features: The adviser's choice is an input.
        advice_logit: Added to the logit of the adviser's choice.
        precision: ``float32``, ``bf16`` or ``float64``.
    """

    hidden: tuple[int, ...] = (256, 256)
    batch: int = 256
    actor_rate: float = 1e-5
    critic_rate: float = 5e-4
    gamma: float = 0.99
    target_rate: float = 0.005
    temperature: float = 0.05
    tune_temperature: bool = False
    temperature_rate: float = 3e-4
    target_entropy: float = 0.3
    capacity: int = 500_000
    span: Steps = "joint"
    n_steps: int = 1
    per_slot: bool = False
    priority: float = 0.0
    priority_correction: float = 0.5
    share_parameters: bool = False
    reward_scale: float = 1.0
    critic_alone: int = 0
    critic_first: bool = False
    advice_features: bool = False
    advice_logit: float = 0.0
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_steps(self)
        at_least(self, 0, "critic_alone", "actor_rate", "critic_rate", "temperature", "temperature_rate")
        between(self, 0.0, 1.0, "target_entropy")
        if self.tune_temperature:
            at_least(self, 1e-12, "temperature")


class Losses(NamedTuple):
    """Losses of a batch, summed over agents, and what they were made of."""

    critic: torch.Tensor
    actor: torch.Tensor
    temperature: torch.Tensor
    error_NB: torch.Tensor
    """Temporal difference, mean of the twins."""
    entropy_NB: torch.Tensor
    value_NB: torch.Tensor


class Masac(Algorithm):
    """Multi-agent soft actor-critic over discrete choices.

    For agent n, with feasible choices a, its policy p, twins Q_1 and Q_2, targets Q'_i and temperature alpha:

    - target ``y = scale R + discount sum_a p(a|s') [min_i Q'_i(s', a) - alpha log p(a|s')]``,
    - critics ``sum_i mean 1/2 (Q_i(s, a_k) - y)^2``,
    - actor ``mean_asked sum_a p(a|s) [alpha log p(a|s) - min_i Q_i(s, a)]``,
    - temperature, if tuned, ``mean_asked log(alpha) (H(p) - share log(feasible choices))``,
    - targets ``Q'_i <- Q'_i + rate (Q_i - Q'_i)``.

    Infeasible choices have probability 0 in acting, targets and losses; expectations are sums over the choices.
    Under ``joint`` steps, the paper's, an agent that is not asked has one choice, to hold: its critics learn the value
    of such moments too, since those of earlier questions rest on them, and its actor has nothing to learn there.

    What an update computes: with a pass of one agent's net over the batch as the unit, actors at s' 1, target twins at
    s' 2, twins at s 2 and backwards 4, actors at s 1 and backwards 2: 12 units. The values of the twins at s serve both
    the critics' loss and, detached, the actors': all losses are taken at the same parameters and all nets step after.
    (``critic_first``, the order in which Algorithm 1 names the steps, makes the critics' step first and evaluates the
    twins at s once more: 14 units.) No gradient
    flows to inputs, into targets, or through values into critics from the actors' loss.

    Args:
        dimensions: Sizes.
        config: Settings.
        seed: Seed; streams ``learner``.
        device: Where the nets are.
    """

    name: ClassVar[str] = "masac"
    consumes = "replay"
    lesson = "cross-entropy"

    def __init__(self, dimensions: Dimensions, config: MasacConfig, seed: int, device: str = "cpu") -> None:
        self.config, self.dimensions = config, dimensions
        dtype, where = dtype_of(config.precision), torch.device(device)
        self.inputs = Inputs.of(dimensions, config, dtype, where)
        sizes = (self.inputs.width, *config.hidden, dimensions.choices)
        generator = net_generator(seed)
        self.actor = StackedMLP(self.inputs.nets, sizes, generator, dtype).to(where)
        self.critic = StackedMLP(TWINS * self.inputs.nets, sizes, generator, dtype).to(where)
        self.target = StackedMLP(TWINS * self.inputs.nets, sizes, generator, dtype).to(where).requires_grad_(False)
        load_module_state(self.target, module_state(self.critic))
        first = math.log(config.temperature) if config.tune_temperature else 0.0
        self.log_temperature_N = torch.full((dimensions.agents,), first, dtype=dtype, device=where, requires_grad=True)
        self.actor_adam = adam(self.actor.parameters(), config.actor_rate)
        self.critic_adam = adam(self.critic.parameters(), config.critic_rate)
        self.temperature_adam = adam([self.log_temperature_N], config.temperature_rate)  # type: ignore[list-item]
        self.replay = Replay.of(dimensions, config)
        self.updates = 0
        self.explore_rng = stream(seed, "learner", "explore")
        self.batch_rng = stream(seed, "learner", "batch")

    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns choices drawn from the policies, or the most probable ones, [B, N]."""
        with torch.no_grad():
            logits_BNA = self.preferences(moment).transpose(0, 1).cpu().numpy()
        mask_BNA = with_hold(moment.mask_BNA, moment.asked_BN)
        return sample(logits_BNA, mask_BNA, self.explore_rng) if explore else best(logits_BNA, mask_BNA)

    def observe(self, transition: Transition) -> None:
        """Stores a decision step."""
        self.replay.observe(transition)

    def update(self) -> dict[str, float]:
        """Makes one step of every net on a fresh batch (Algorithm 1, lines 16 to 19)."""
        batch = self.replay.sample(self.batch_rng, self.config.batch)
        self.critic_adam.zero_grad()
        self.actor_adam.zero_grad()
        losses = self.losses(batch, critics_step=self.config.critic_first)
        if self.config.critic_first:
            losses.actor.backward()
        else:
            (losses.critic + losses.actor).backward()
            self.critic_adam.step()
        if self.updates >= self.config.critic_alone:
            self.actor_adam.step()
            if self.config.tune_temperature:
                self.temperature_adam.zero_grad()
                losses.temperature.backward()
                self.temperature_adam.step()
        self.updates += 1
        follow(self.target.parameters(), self.critic.parameters(), self.config.target_rate)
        self.replay.reprioritise(batch.slot_NB, losses.error_NB.double().cpu().numpy())
        return self._figures(batch, losses)

    def losses(self, batch: Batch, *, critics_step: bool = False) -> Losses:
        """Returns the losses of a batch at the present parameters.

        Args:
            batch: Transitions.
            critics_step: The critics make their step first; the actors' loss is taken by the critics that result.
        """
        choice_NB = self.inputs.tensor(batch.choice_NB)
        weight_NB = self.inputs.tensor(batch.weight_NB, self.inputs.dtype)
        y_NB = self._targets(batch)
        seen = self.inputs.build(batch.seen_NBI, batch.advice_NB)
        value_KNBA = self._values(self.critic, seen)
        taken_KNB = value_KNBA.gather(-1, choice_NB.expand(TWINS, -1, -1)[..., None])[..., 0]
        error_KNB = taken_KNB - y_NB
        critic = 0.5 * (weight_NB * error_KNB.square()).mean(-1).sum()
        if critics_step:
            critic.backward()
            self.critic_adam.step()
            with torch.no_grad():
                value_KNBA = self._values(self.critic, seen)
        actor, entropy_NB, value_NB = self._actor_loss(batch, seen, value_KNBA.detach().amin(0))
        return Losses(
            critic=critic,
            actor=actor,
            temperature=self._temperature_loss(batch, entropy_NB),
            error_NB=error_KNB.detach().mean(0),
            entropy_NB=entropy_NB,
            value_NB=value_NB,
        )

    def _targets(self, batch: Batch) -> torch.Tensor:
        """Returns ``y``, [N, B]."""
        with torch.no_grad():
            seen = self.inputs.build(batch.next_seen_NBI, batch.next_advice_NB)
            log_p_NBA = log_policy(self._logits(seen, batch.next_advice_NB), self.inputs.tensor(batch.next_mask_NBA))
            value_NBA = self._values(self.target, seen).amin(0)
            soft_NBA = value_NBA - self.temperature_N[:, None, None] * log_p_NBA
            next_NB = (log_p_NBA.exp() * soft_NBA).sum(-1)
            reward_NB = self.inputs.tensor(batch.reward_NB, self.inputs.dtype)
            discount_NB = self.inputs.tensor(batch.discount_NB, self.inputs.dtype)
            return self.config.reward_scale * reward_NB + discount_NB * next_NB

    def _actor_loss(
        self, batch: Batch, seen: torch.Tensor, value_NBA: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the actors' loss, and entropy and expected value of their policies [N, B]."""
        mask_NBA, asked_NB = self.inputs.tensor(batch.mask_NBA), self.inputs.tensor(batch.asked_NB, self.inputs.dtype)
        log_p_NBA = log_policy(self._logits(seen, batch.advice_NB), mask_NBA)
        entropy_NB = entropy(log_p_NBA)
        expected_NB = (log_p_NBA.exp() * value_NBA).sum(-1)
        loss_NB = -expected_NB - self.temperature_N[:, None] * entropy_NB
        weight_NB = asked_NB * self.inputs.tensor(batch.weight_NB, self.inputs.dtype)
        loss = ((weight_NB * loss_NB).sum(-1) / asked_NB.sum(-1).clamp(min=1.0)).sum()
        return loss, entropy_NB.detach(), expected_NB.detach()

    def _temperature_loss(self, batch: Batch, entropy_NB: torch.Tensor) -> torch.Tensor:
        """Returns the temperatures' loss: they grow where the entropy is below its aim."""
        asked_NB = self.inputs.tensor(batch.asked_NB, self.inputs.dtype)
        feasible_NB = self.inputs.tensor(batch.mask_NBA.sum(-1), self.inputs.dtype)
        short_NB = entropy_NB - self.config.target_entropy * feasible_NB.log()
        mean_N = (asked_NB * short_NB).sum(-1) / asked_NB.sum(-1).clamp(min=1.0)
        return (self.log_temperature_N * mean_N).sum()

    @property
    def temperature_N(self) -> torch.Tensor:
        """Weight of the entropy per agent."""
        if self.config.tune_temperature:
            return self.log_temperature_N.detach().exp()
        return torch.full_like(self.log_temperature_N.detach(), self.config.temperature)

    def preferences(self, moment: Moment) -> torch.Tensor:
        """Returns the actors' logits for what B runs see, [N, B, A]."""
        return self._logits(self.inputs.of_moment(moment), moment.advice_BN.T)

    def pupil(self) -> StackedMLP:
        """Returns the nets that are fitted to demonstrations: the actors."""
        return self.actor

    def imitated(self) -> None:
        """Has nothing to follow the actors."""

    def _logits(self, seen: torch.Tensor, advice_NB: I8) -> torch.Tensor:
        """Returns the actors' logits, [N, B, A], the advised choice lifted."""
        with arithmetic(self.config.precision, self.inputs.device):
            logits_NBA = self.inputs.by_agent(self.actor(seen))
        return self.inputs.lifted(logits_NBA, advice_NB)

    def _values(self, critics: StackedMLP, seen: torch.Tensor) -> torch.Tensor:
        """Returns the values of twins, [2, N, B, A]."""
        with arithmetic(self.config.precision, self.inputs.device):
            return self.inputs.by_agent(critics(seen.repeat(TWINS, 1, 1)))

    def _figures(self, batch: Batch, losses: Losses) -> dict[str, float]:
        """Returns what the curves show of an update."""
        asked_NB = self.inputs.tensor(batch.asked_NB, self.inputs.dtype)
        asked = asked_NB.sum().clamp(min=1.0)
        figures = torch.stack(
            [
                losses.critic.detach() / (TWINS * self.dimensions.agents),
                losses.actor.detach() / self.dimensions.agents,
                (asked_NB * losses.entropy_NB).sum() / asked,
                (asked_NB * losses.value_NB).sum() / asked,
                self.temperature_N.mean(),
            ]
        )
        return dict(zip(self.FIGURES, figures.tolist(), strict=True))

    FIGURES: Final = ("critic_loss", "actor_loss", "entropy", "value", "temperature")
    NETS: Final = ("actor", "critic", "target")
    ADAMS: Final = ("actor_adam", "critic_adam", "temperature_adam")
    STREAMS: Final = ("explore_rng", "batch_rng")

    def state(self) -> dict[str, Any]:
        """Returns nets, optimizers, temperatures, random states and replay."""
        return {
            **parts_state(self),
            "log_temperature_N": self.log_temperature_N.detach(),
            "updates": self.updates,
            "replay": self.replay.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""
        load_parts(self, state)
        self.updates = state["updates"]
        with torch.no_grad():
            self.log_temperature_N.copy_(torch.as_tensor(state["log_temperature_N"]))
        self.replay.load_state(state["replay"])

    def policy_arrays(self) -> PolicyArrays:
        """Returns the actors."""
        return exported(self.name, "logits", self.actor, self.config)

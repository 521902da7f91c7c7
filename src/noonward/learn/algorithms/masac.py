"""MASAC: discrete soft actor-critic with an actor and twin critics per agent (Zhang et al., Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import torch

from noonward.learn.algorithms.learner import AgentLearner
from noonward.learn.core.experience import Transition
from noonward.learn.core.masking import entropy, log_policy
from noonward.learn.core.nets import StackedMLP, adam, follow, load_module_state, module_state
from noonward.learn.core.replay import Batch, Replay
from noonward.learn.core.settings import at_least, between, check_steps

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
        temperature: Weight of the entropy, USD per nat; where it is tuned, its first value [ours].
        tune_temperature: Adapt each agent's temperature to ``target_entropy``.
        temperature_rate: Adam's step of the logarithm of the temperature.
        target_entropy: Entropy aimed for, as a share of that of an even choice among the feasible ones.
        capacity: Decision steps kept in the replay [ours].
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
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_steps(self)
        at_least(self, 0, "actor_rate", "critic_rate", "temperature", "temperature_rate")
        between(self, 0.0, 1.0, "target_entropy")
        if self.tune_temperature:
            at_least(self, 1e-12, "temperature")


class Losses(NamedTuple):
    """Losses of a batch, summed over agents, and what they were made of."""

    critic: torch.Tensor
    actor: torch.Tensor
    temperature: torch.Tensor
    entropy_NB: torch.Tensor
    value_NB: torch.Tensor


class Masac(AgentLearner):
    """Multi-agent soft actor-critic over discrete choices.

    For agent n, with feasible choices a, its policy p, twins Q_1 and Q_2, targets Q'_i and temperature alpha:

    - target ``y = R + discount sum_a p(a|s') [min_i Q'_i(s', a) - alpha log p(a|s')]``,
    - critics ``sum_i mean 1/2 (Q_i(s, a_k) - y)^2``,
    - actor ``mean_asked sum_a p(a|s) [alpha log p(a|s) - min_i Q_i(s, a)]``,
    - temperature, if tuned, ``mean_asked log(alpha) (H(p) - share log(feasible choices))``,
    - targets ``Q'_i <- Q'_i + rate (Q_i - Q'_i)``.

    Infeasible choices have probability 0 in acting, targets and losses; expectations are sums over the choices.
    An agent that is not asked has one choice, to hold: its critics learn the value of such moments too, because those
    of earlier questions depend on them, and its actor has nothing to learn there.

    What an update computes, with a pass of one agent's net over the batch as the unit: actors at s' 1, target twins at
    s' 2, twins at s 2 and backwards 4, actors at s 1 and backwards 2: 12 units. The values of the twins at s serve both
    the critics' loss and, detached, the actors': all losses are taken at the same parameters and all nets step after.
    (Algorithm 1 names the critics' step first and so needs the twins at s once more: 14 units.) No gradient flows to
    inputs, into targets, or through values into critics from the actors' loss.

    Args:
        dimensions: Sizes.
        config: Settings.
        seed: Seed; streams ``learner``.
        device: Where the nets are.
    """

    name: ClassVar[str] = "masac"
    consumes = "replay"
    config: MasacConfig
    NETS = ("actor", "critic", "target")
    ADAMS = ("actor_adam", "critic_adam", "temperature_adam")
    TENSORS = ("log_temperature_N",)
    PARTS = ("replay",)
    FIGURES: Final = ("critic_loss", "actor_loss", "entropy", "value", "temperature")

    def _make_nets(self, generator: torch.Generator) -> None:
        config, d = self.config, self.dimensions
        self.actor = self._agent_nets(generator)
        self.critic = self._agent_nets(generator, sets=TWINS)
        self.target = self._agent_nets(generator, sets=TWINS).requires_grad_(False)
        load_module_state(self.target, module_state(self.critic))
        first = math.log(config.temperature) if config.tune_temperature else 0.0
        self.log_temperature_N = torch.full(
            (d.agents,), first, dtype=self.dtype, device=self.device, requires_grad=True
        )
        self.actor_adam = adam(self.actor.parameters(), config.actor_rate)
        self.critic_adam = adam(self.critic.parameters(), config.critic_rate)
        self.temperature_adam = adam([self.log_temperature_N], config.temperature_rate)  # type: ignore[list-item]
        self.replay = Replay(d, capacity=config.capacity, gamma=config.gamma)

    @property
    def deciding_net(self) -> StackedMLP:
        """The actors."""
        return self.actor

    def observe(self, transition: Transition) -> None:
        """Stores a decision step."""
        self.replay.observe(transition)

    def update(self) -> dict[str, float]:
        """Makes one step of every net on a fresh batch (Algorithm 1, lines 16 to 19)."""
        batch = self.replay.sample(self.batch_rng, self.config.batch)
        self.critic_adam.zero_grad()
        self.actor_adam.zero_grad()
        losses = self.losses(batch)
        (losses.critic + losses.actor).backward()
        self.critic_adam.step()
        self.actor_adam.step()
        if self.config.tune_temperature:
            self.temperature_adam.zero_grad()
            losses.temperature.backward()
            self.temperature_adam.step()
        self.updates += 1
        follow(self.target.parameters(), self.critic.parameters(), self.config.target_rate)
        return self._figures(batch, losses)

    def losses(self, batch: Batch) -> Losses:
        """Returns the losses of a batch at the present parameters."""
        choice_NB = self.tensor(batch.choice_NB)
        y_NB = self._targets(batch)
        seen = self.tensor(batch.seen_NBI, self.dtype)
        value_KNBA = self._values(self.critic, seen)
        taken_KNB = value_KNBA.gather(-1, choice_NB.expand(TWINS, -1, -1)[..., None])[..., 0]
        critic = 0.5 * (taken_KNB - y_NB).square().mean(-1).sum()
        actor, entropy_NB, value_NB = self._actor_loss(batch, seen, value_KNBA.detach().amin(0))
        return Losses(
            critic=critic,
            actor=actor,
            temperature=self._temperature_loss(batch, entropy_NB),
            entropy_NB=entropy_NB,
            value_NB=value_NB,
        )

    def _targets(self, batch: Batch) -> torch.Tensor:
        """Returns ``y``, [N, B]."""
        with torch.no_grad():
            seen = self.tensor(batch.next_seen_NBI, self.dtype)
            log_p_NBA = log_policy(self.evaluated(self.actor, seen), self.tensor(batch.next_mask_NBA))
            value_NBA = self._values(self.target, seen).amin(0)
            soft_NBA = value_NBA - self.temperature_N[:, None, None] * log_p_NBA
            next_NB = (log_p_NBA.exp() * soft_NBA).sum(-1)
            return self.tensor(batch.reward_NB, self.dtype) + self.tensor(batch.discount_NB, self.dtype) * next_NB

    def _actor_loss(
        self, batch: Batch, seen: torch.Tensor, value_NBA: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the actors' loss, and entropy and expected value of their policies [N, B]."""
        mask_NBA, asked_NB = self.tensor(batch.mask_NBA), self.tensor(batch.asked_NB, self.dtype)
        log_p_NBA = log_policy(self.evaluated(self.actor, seen), mask_NBA)
        entropy_NB = entropy(log_p_NBA)
        expected_NB = (log_p_NBA.exp() * value_NBA).sum(-1)
        loss_NB = -expected_NB - self.temperature_N[:, None] * entropy_NB
        loss = ((asked_NB * loss_NB).sum(-1) / asked_NB.sum(-1).clamp(min=1.0)).sum()
        return loss, entropy_NB.detach(), expected_NB.detach()

    def _temperature_loss(self, batch: Batch, entropy_NB: torch.Tensor) -> torch.Tensor:
        """Returns the temperatures' loss: they grow where the entropy is below its target."""
        asked_NB = self.tensor(batch.asked_NB, self.dtype)
        feasible_NB = self.tensor(batch.mask_NBA.sum(-1), self.dtype)
        short_NB = entropy_NB - self.config.target_entropy * feasible_NB.log()
        mean_N = (asked_NB * short_NB).sum(-1) / asked_NB.sum(-1).clamp(min=1.0)
        return (self.log_temperature_N * mean_N).sum()

    @property
    def temperature_N(self) -> torch.Tensor:
        """Weight of the entropy per agent."""
        if self.config.tune_temperature:
            return self.log_temperature_N.detach().exp()
        return torch.full_like(self.log_temperature_N.detach(), self.config.temperature)

    def _values(self, critics: StackedMLP, seen: torch.Tensor) -> torch.Tensor:
        """Returns the values of twins, [2, N, B, A]."""
        value = self.evaluated(critics, seen.repeat(TWINS, 1, 1))
        return value.reshape(TWINS, self.dimensions.agents, *value.shape[1:])

    def _figures(self, batch: Batch, losses: Losses) -> dict[str, float]:
        """Returns what the curves show of an update."""
        asked_NB = self.tensor(batch.asked_NB, self.dtype)
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

"""MAPPO: proximal policy optimisation with an actor per agent and one critic that sees everything (Yu et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.errors import ScenarioError
from noonward.learn.algorithms.learner import AgentLearner
from noonward.learn.core.experience import Moment, Transition
from noonward.learn.core.masking import entropy, log_policy, with_hold
from noonward.learn.core.nets import StackedMLP, adam, make_orthogonal, shorten_gradients
from noonward.learn.core.rollout import Rollout, advantages, copied, join, normalised, pick
from noonward.learn.core.settings import at_least, between, check_nets

ADAM_EPSILON: Final = 1e-5
"""Adam's epsilon in the paper (Table 7)."""
SMALLEST_VARIANCE: Final = 1e-8


@dataclass(frozen=True, kw_only=True)
class MappoConfig:
    """Settings of MAPPO. Defaults: "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games" (Yu et al.
    2022), its settings for all domains and, where they differ by domain, those of StarCraft; or ours [ours].

    Attributes:
        hidden: Widths of the hidden layers (64; no layer normalisation, which the policy's file does not know).
        rollout_steps: Decision steps of each environment between two updates (400).
        passes: Passes over a rollout in an update, the paper's epochs (5 to 15).
        minibatches: Parts of a rollout in a pass (1).
        actor_rate: Adam's step of the actors (5e-4).
        critic_rate: Adam's step of the critic (5e-4).
        gamma: Discount of a decision step (0.99).
        per_slot: Discount a slot of time by ``gamma`` rather than a decision step [ours].
        gae_lambda: Weight of longer estimates of the advantage (0.95).
        clip: Largest change of a probability that is rewarded, as a share (0.2).
        entropy_weight: Weight of the entropy (0.01).
        huber: Error of the critic beyond which its loss is linear, normalised (10).
        normalise_values: The critic learns returns less their running mean over their running deviation.
        value_memory: Share of the running moments that stays from one update to the next [ours]: returns grow with
            the policy, so the moments must follow them; the paper's code has 0.99999 per minibatch.
        gradient_norm: Longest gradient of a net (10).
        precision: ``float32``, ``bf16`` or ``float64``.
    """

    hidden: tuple[int, ...] = (64, 64)
    rollout_steps: int = 400
    passes: int = 10
    minibatches: int = 1
    actor_rate: float = 5e-4
    critic_rate: float = 5e-4
    gamma: float = 0.99
    per_slot: bool = False
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.01
    huber: float = 10.0
    normalise_values: bool = True
    value_memory: float = 0.99
    gradient_norm: float = 10.0
    precision: str = "float32"

    def __post_init__(self) -> None:
        check_nets(self)
        at_least(self, 1, "rollout_steps", "passes", "minibatches")
        at_least(self, 0, "actor_rate", "critic_rate", "entropy_weight")
        at_least(self, 1e-12, "clip", "huber", "gradient_norm")
        between(self, 0.0, 1.0, "gamma", "gae_lambda", "value_memory")


class Losses(NamedTuple):
    """Losses of some steps, and what they were made of."""

    actor: torch.Tensor
    critic: torch.Tensor
    entropy: torch.Tensor
    """Mean entropy of the policies that were asked, nats."""
    clipped: torch.Tensor
    """Share of the choices whose probability has changed by more than ``clip``."""
    divergence: torch.Tensor
    """Mean of ``r - 1 - log r``, an estimate of the divergence from the policies that chose."""


class Basis(NamedTuple):
    """What an update computes once, before its first step."""

    log_p_NB: torch.Tensor
    """Log-probabilities of the choices under the policies that made them."""
    advantage_B: torch.Tensor
    return_B: torch.Tensor
    """Returns in the critic's units."""


class Mappo(AgentLearner):
    """Multi-agent proximal policy optimisation over discrete choices.

    For decision step k with reward R, discount g, critic V of everything that all agents see, and agent n's policy p
    over its feasible choices:

    - ``d_k = R_k + g_k V(s_k+1) - V(s_k)``, ``A_k = d_k + g_k lambda A_k+1``: no value follows where the run ended,
      no later advantage follows where the episode was cut, and the rollout's last step counts as cut,
    - advantages less their mean over their deviation, weighted by how many agents were asked; return ``A_k + V(s_k)``,
    - actor n ``-mean_asked [min(r A, clip(r, 1 - c, 1 + c) A) + weight H(p)]``, ``r = p(a|s) / p_old(a|s)``; summed
      over agents,
    - critic ``mean huber(V(s) - return)``, in normalised units.

    Infeasible choices have probability 0; an agent that is not asked has no part in the losses of its step. Nets start
    orthogonal (gain sqrt 2; 0.01 for the logits, 1 for the value), and each net's gradient is shortened on its own.

    Args:
        dimensions: Sizes.
        config: Settings.
        seed: Seed; streams ``learner``.
        device: Where the nets are.
    """

    name: ClassVar[str] = "mappo"
    consumes = "rollout"
    config: MappoConfig
    NETS = ("actor", "critic")
    ADAMS = ("actor_adam", "critic_adam")
    ARRAYS = ("moments",)

    def _make_nets(self, generator: torch.Generator) -> None:
        config, d = self.config, self.dimensions
        seen = d.global_size + d.agents * (d.own_size + 1)
        actor = StackedMLP(d.agents, (self.width, *config.hidden, d.choices), generator, self.dtype)
        critic = StackedMLP(1, (seen, *config.hidden, 1), generator, self.dtype)
        make_orthogonal(actor, generator, last_gain=0.01)
        make_orthogonal(critic, generator, last_gain=1.0)
        self.actor, self.critic = actor.to(self.device), critic.to(self.device)
        self.actor_adam = adam(self.actor.parameters(), config.actor_rate, ADAM_EPSILON)
        self.critic_adam = adam(self.critic.parameters(), config.critic_rate, ADAM_EPSILON)
        self.moments = np.zeros(3)
        """Running sums of returns: weight, first and second moment."""
        self.rollout: list[Transition] = []

    @property
    def deciding_net(self) -> StackedMLP:
        """The actors."""
        return self.actor

    @property
    def rollout_steps(self) -> int:
        """Decision steps of each run between two updates."""
        return self.config.rollout_steps

    def observe(self, transition: Transition) -> None:
        """Keeps a copy of a decision step until the next update."""
        self.rollout.append(copied(transition))

    def update(self) -> dict[str, float]:
        """Learns from all steps since the last update, and forgets them."""
        if not self.rollout:
            raise ScenarioError("MAPPO has observed no step since its last update; collect before updating")
        rollout, config = join(self.rollout, self._discount), self.config
        if config.minibatches > rollout.reward_TB.size:
            raise ScenarioError(
                f"minibatches is {config.minibatches}, but a rollout has only {rollout.reward_TB.size} steps; "
                "lower it, or raise rollout_steps"
            )
        basis, explained = self._basis_of(rollout)
        sums = torch.zeros(len(Losses._fields), dtype=torch.float64)
        for _ in range(config.passes):
            order = self.batch_rng.permutation(rollout.reward_TB.size)
            for part in np.array_split(order, config.minibatches):
                losses = self.losses(rollout, basis, part)
                self._step(losses)
                sums += torch.stack([each.detach() for each in losses]).double().cpu()
        self.rollout = []
        self.updates += 1
        actor, critic, *rest = (sums / (config.passes * config.minibatches)).tolist()
        figures = dict(zip(("entropy", "clipped", "divergence"), rest, strict=True))
        return {
            "critic_loss": critic,
            "actor_loss": actor / self.dimensions.agents,
            **figures,
            "explained_variance": explained,
        }

    def losses(self, rollout: Rollout, basis: Basis, part: I8) -> Losses:
        """Returns the losses of some steps at the present parameters.

        Args:
            rollout: Steps.
            basis: Advantages, returns and the like, of all of them.
            part: Numbers of the steps that count.
        """
        moment = pick(rollout.before, part)
        which = torch.from_numpy(part).to(self.device)
        log_p_NBA = self._log_policy(moment)
        asked_NB = self.tensor(moment.asked_BN.T, self.dtype)
        choice_NB = self.tensor(rollout.choice_BN[part].T)
        change_NB = log_p_NBA.gather(-1, choice_NB[..., None])[..., 0] - basis.log_p_NB[:, which]
        ratio_NB, advantage_B = change_NB.exp(), basis.advantage_B[which]
        clipped_NB = ratio_NB.clamp(1.0 - self.config.clip, 1.0 + self.config.clip)
        gain_NB = torch.minimum(ratio_NB * advantage_B, clipped_NB * advantage_B)
        entropy_NB = entropy(log_p_NBA)
        loss_NB = -gain_NB - self.config.entropy_weight * entropy_NB
        count = asked_NB.sum().clamp(min=1.0)
        huber = torch.nn.HuberLoss(reduction="none", delta=self.config.huber)
        return Losses(
            actor=self._mean_asked(loss_NB, asked_NB),
            critic=huber(self._values(moment), basis.return_B[which]).mean(),
            entropy=(asked_NB * entropy_NB).sum() / count,
            clipped=(asked_NB * (ratio_NB != clipped_NB)).sum() / count,
            divergence=(asked_NB * (ratio_NB - 1.0 - change_NB)).sum() / count,
        )

    def _mean_asked(self, loss_NB: torch.Tensor, asked_NB: torch.Tensor) -> torch.Tensor:
        """Returns the mean over what each net was asked, summed over nets."""
        return ((asked_NB * loss_NB).sum(-1) / asked_NB.sum(-1).clamp(min=1.0)).sum()

    def _step(self, losses: Losses) -> None:
        """Makes one step of the critic and of the actors."""
        self.actor_adam.zero_grad()
        self.critic_adam.zero_grad()
        (losses.actor + losses.critic).backward()
        shorten_gradients(self.critic, self.config.gradient_norm)
        self.critic_adam.step()
        shorten_gradients(self.actor, self.config.gradient_norm)
        self.actor_adam.step()

    def _basis_of(self, rollout: Rollout) -> tuple[Basis, float]:
        """Returns what an update rests on, and the share of the returns' variance that the critic predicted."""
        with torch.no_grad():
            log_p_NBA = self._log_policy(rollout.before)
            choice_NB = self.tensor(rollout.choice_BN.T)
            log_p_NB = log_p_NBA.gather(-1, choice_NB[..., None])[..., 0]
            value_B, next_B = self._values(rollout.before), self._values(rollout.after)
        shape = rollout.reward_TB.shape
        mean, deviation = self._scale()
        value_TB, next_TB = (
            each.double().cpu().numpy().reshape(shape) * deviation + mean for each in (value_B, next_B)
        )
        advantage_TB = advantages(rollout, value_TB, next_TB, self.config.gae_lambda)
        return_TB = advantage_TB + value_TB
        spread = float(return_TB.var())
        explained = 1.0 - float(advantage_TB.var()) / spread if spread > 0 else 0.0
        if self.config.normalise_values:
            self._follow_returns(return_TB)
        mean, deviation = self._scale()
        basis = Basis(
            log_p_NB=log_p_NB,
            advantage_B=self._tensor(normalised(advantage_TB.ravel(), rollout.before.asked_BN.sum(-1))),
            return_B=self._tensor((return_TB.ravel() - mean) / deviation),
        )
        return basis, explained

    def _follow_returns(self, return_TB: F8) -> None:
        """Moves the running moments towards those of a rollout, and the critic's last layer so that its values stay.

        The last layer follows as in PopArt (van Hasselt et al. 2016): ``w <- w s / s'``, ``b <- (s b + m - m') / s'``;
        the first time it stays, so that the critic starts at the mean return.
        """
        mean, deviation = self._scale()
        memory = self.config.value_memory
        now = np.array([1.0, return_TB.mean(), np.square(return_TB).mean()])
        known = self.moments[0] > 0.0
        self.moments = memory * self.moments + (1.0 - memory) * now if memory < 1.0 else self.moments + now
        if not known:
            return
        new_mean, new_deviation = self._scale()
        with torch.no_grad():
            self.critic.weights[-1].mul_(deviation / new_deviation)
            self.critic.biases[-1].mul_(deviation / new_deviation).add_((mean - new_mean) / new_deviation)

    def _scale(self) -> tuple[float, float]:
        """Returns mean and deviation of returns so far, USD; 0 and 1 before the first."""
        weight, first, second = self.moments.tolist()
        if weight == 0.0:
            return 0.0, 1.0
        mean = first / weight
        return mean, math.sqrt(max(second / weight - mean * mean, SMALLEST_VARIANCE))

    def _discount(self, elapsed_s: F8) -> F8:
        """Returns the discounts of decision steps."""
        gamma = self.config.gamma
        if self.config.per_slot:
            return np.asarray(gamma ** (elapsed_s / self.dimensions.slot_s))
        return np.full(elapsed_s.shape, gamma)

    def _log_policy(self, moment: Moment) -> torch.Tensor:
        """Returns the log-probabilities of choices, [N, B, A]."""
        mask_BNA = with_hold(moment.mask_BNA, moment.asked_BN)
        return log_policy(self.preferences(moment), self.tensor(mask_BNA.swapaxes(0, 1)))

    def _values(self, moment: Moment) -> torch.Tensor:
        """Returns the critic's values, [B]: of what all see, what each sees, and who is asked."""
        rows = len(moment.global_BG)
        parts = (moment.global_BG, moment.own_BNO.reshape(rows, -1), moment.asked_BN.astype(np.float32))
        return self.evaluated(self.critic, self.tensor(np.concatenate(parts, -1), self.dtype)[None])[0, :, 0]

    def _tensor(self, array: NDArray[np.float64]) -> torch.Tensor:
        return self.tensor(array, self.dtype)

    def state(self) -> dict[str, Any]:
        """Returns nets, optimizers, moments of returns, random states and the steps since the last update."""
        return {
            **super().state(),
            "rollout": {
                str(t): {**each._asdict(), "before": each.before._asdict(), "after": each.after._asdict()}
                for t, each in enumerate(self.rollout)
            },
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        super().load_state(state)
        kept = [state["rollout"][str(t)] for t in range(len(state["rollout"]))]
        self.rollout = [
            Transition(**{**each, "before": Moment(**each["before"]), "after": Moment(**each["after"])})
            for each in kept
        ]

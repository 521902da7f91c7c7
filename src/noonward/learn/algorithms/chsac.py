"""CHSAC-AF: constrained hybrid soft actor-critic with the energy-optimal clock (Ma et al., Algorithm 1).

Read from top to bottom: settings; the policy and its masks (Eq. 9); the losses (Eqs. 10 to 12); the update (lines 9 to
15); the multipliers (Eq. 7). Where it departs from the paper, a comment says CORRECTION and a setting turns it off;
``PublishedConfig`` turns all of them off: the update that the authors' public code makes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import torch
from torch import nn

from noonward.arrays import F4, I8, Bools
from noonward.errors import ScenarioError
from noonward.learn.algorithms.algorithm import PolicyArrays
from noonward.learn.algorithms.learner import Learner
from noonward.learn.core.experience import Dimensions, Moment, Transition
from noonward.learn.core.masking import best, entropy, log_policy, sample
from noonward.learn.core.nets import StackedMLP, adam, follow, load_module_state, module_state
from noonward.learn.core.replay import Batch, Replay
from noonward.learn.core.settings import at_least, between, one_of
from noonward.units import WATT_SECONDS_PER_KWH

TWINS: Final = 2
HEADS: Final = (2, 3)
"""Heads of a choice: in the paper the site d and the number of GPUs n; with clocks as choices, the clock f too."""
COUNTS: Final = 2
"""Columns after the costs: the work decided on, and the number of decisions."""
MEAN_RATE: Final = 0.05
"""Share by which the running means of reward and costs follow at a dual step."""


@dataclass(frozen=True, kw_only=True)
class ChsacConfig:
    """Settings of CHSAC-AF; the defaults are the paper's (Table I, Sec. IV), or ours where it is silent [ours].

    Attributes:
        hidden: Widths of the encoder's layers (Eq. 8).
        quantiles: Quantiles of a critic, N_q.
        kappa: Errors up to this count squared in the quantile Huber loss, J per unit.
        batch: Transitions of an update.
        rate: Adam's step of encoder, actor and critics.
        gamma: Discount of a decision.
        target_rate: Share by which targets follow after each update.
        capacity: Decisions kept in the replay.
        fewer_gpus: Coefficient alpha_n of the preference for fewer GPUs, J per unit (Eq. 5).
        temperature: First weight of the entropy, J per unit per nat.
        temperature_rate: Adam's step of its logarithm.
        target_entropy: Entropy aimed at, as a share of that of an even choice among the feasible ones [ours].
        cooled_entropy: What ``target_entropy`` falls to, by equal factors, so that the policy ends nearly without
            chance; None: it stays. The steps of the multipliers fall by the same factor, because a policy that is less
            random answers to them more sharply [ours].
        cooling_from: Updates after which it begins to fall.
        cooling_until: Updates after which it has fallen.
        dual_rate: Step eta of the multipliers, J per unit per relative excess (Eq. 7).
        dual_damping: What a multiplier answers to the present excess beside the sum of past ones, J per unit per
            relative excess: policies follow their multipliers late, and without it both swing (Stooke et al. 2020,
            PID Lagrangian methods) [ours].
        average_rate: Share by which the policy that is validated and exported follows the actor's [ours].
        centre: Subtract the running mean of the effective reward per unit of work.
        actor_gradient: ``expectation`` over the choices, or ``one-hot``: through sampled ones.
        bootstrap: Targets include the value of what follows.
        gang_head: ``site``: the second head, the number of GPUs (gang), is chosen given the first, the site, with its
            mask; ``fleet``: it is one choice for all sites, with the mask of the largest.
        energy_unit: ``J`` or ``kWh`` per unit of work, in the reward.
        quantile_weights: Whose quantile weighs an error in the quantile Huber loss: ``prediction`` (Dabney et al.) or
            ``target``.
        weigh_by_size: Rewards and costs of a job count by its size (Eq. 3).
        excess: ``signed`` or ``positive``: what the effective reward subtracts (Eq. 12).
        duals_fall: Multipliers fall when their constraint holds.
        behaviour: ``averaged`` or ``latest``: the policy that decides in training. Averaged, the multipliers answer for
            the policy that is exported; the latest one differs from it by some percent of a limit [ours].
        execute: ``sample`` or ``greedy``: how the trained policy acts.
        precision: ``float32`` or ``float64``.
    """

    hidden: tuple[int, ...] = (256, 256, 256)
    quantiles: int = 32
    kappa: float = 1.0
    batch: int = 256
    rate: float = 3e-4
    gamma: float = 0.99
    target_rate: float = 0.005
    capacity: int = 200_000
    fewer_gpus: float = 0.05
    temperature: float = 0.05
    temperature_rate: float = 3e-4
    target_entropy: float = 0.1
    cooled_entropy: float | None = None
    cooling_from: int = 0
    cooling_until: int = 0
    dual_rate: float = 0.1
    dual_damping: float = 0.5
    average_rate: float = 0.005
    centre: bool = True
    actor_gradient: str = "expectation"
    bootstrap: bool = True
    gang_head: str = "site"
    energy_unit: str = "J"
    quantile_weights: str = "prediction"
    weigh_by_size: bool = True
    excess: str = "signed"
    duals_fall: bool = True
    behaviour: str = "averaged"
    execute: str = "sample"
    precision: str = "float32"

    def __post_init__(self) -> None:
        at_least(self, 1, "quantiles", "batch", "capacity")
        at_least(self, 0.0, "rate", "fewer_gpus", "temperature_rate", "dual_rate", "dual_damping")
        at_least(self, 1e-12, "kappa", "temperature")
        between(self, 0.0, 1.0, "gamma", "target_rate", "target_entropy", "average_rate")
        self._check_cooling()
        one_of(self, "actor_gradient", ("expectation", "one-hot"))
        one_of(self, "gang_head", ("site", "fleet"))
        one_of(self, "energy_unit", ("J", "kWh"))
        one_of(self, "quantile_weights", ("prediction", "target"))
        one_of(self, "excess", ("signed", "positive"))
        one_of(self, "behaviour", ("averaged", "latest"))
        one_of(self, "execute", ("sample", "greedy"))
        one_of(self, "precision", ("float32", "float64"))
        if not self.hidden or min(self.hidden) < 1:
            raise ScenarioError(f"hidden is {self.hidden}; give at least one layer of at least one unit, as [256, 256]")

    def _check_cooling(self) -> None:
        """Raises ScenarioError unless the entropy falls, within a span of updates, or stays."""
        at_least(self, 0, "cooling_from", "cooling_until")
        if self.cooled_entropy is None:
            if self.cooling_from or self.cooling_until:
                raise ScenarioError(
                    f"cooling_from is {self.cooling_from} and cooling_until {self.cooling_until}, but nothing is "
                    "cooled; set cooled_entropy too, below target_entropy, or leave both out"
                )
            return
        if not 0 < self.cooled_entropy <= self.target_entropy or self.cooling_until <= self.cooling_from:
            raise ScenarioError(
                f"target_entropy is to fall from {self.target_entropy:g} to cooled_entropy={self.cooled_entropy:g} "
                f"between the updates {self.cooling_from} and {self.cooling_until}; cooled_entropy must be above 0 and "
                "at most target_entropy, and cooling_until above cooling_from"
            )

    def cooling(self, updates: int) -> float:
        """Returns the factor that ``target_entropy`` has fallen by after some updates, above 0, at most 1.

        Example:
            >>> config = ChsacConfig(target_entropy=0.08, cooled_entropy=0.005, cooling_from=100, cooling_until=300)
            >>> [config.cooling(updates) for updates in (0, 200, 400)]
            [1.0, 0.25, 0.0625]
        """
        if self.cooled_entropy is None:
            return 1.0
        passed = (updates - self.cooling_from) / (self.cooling_until - self.cooling_from)
        return (self.cooled_entropy / self.target_entropy) ** min(max(passed, 0.0), 1.0)


@dataclass(frozen=True, kw_only=True)
class PublishedConfig(ChsacConfig):
    """The same learner as the authors' public code trains it: a control, see ``ChsacConfig``."""

    centre: bool = False
    actor_gradient: str = "one-hot"
    bootstrap: bool = False
    gang_head: str = "fleet"
    energy_unit: str = "kWh"
    quantile_weights: str = "target"
    weigh_by_size: bool = False
    excess: str = "positive"
    duals_fall: bool = False
    dual_damping: float = 0.0
    behaviour: str = "latest"


class Critics(nn.Module):
    """Twin quantile critics on the latent h: ``Q_i(h, a) = h W_i[a] + b_i[a]``, N_q numbers a choice (Eq. 10).

    A row of weights per choice is what "h and one-hot actions" come to when every feature meets every choice; the
    expectations over choices and over quantiles that the actor and the targets need are then linear layers too.
    """

    def __init__(
        self, width: int, choices: int, quantiles: int, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        reach = 1.0 / width**0.5
        shape = (TWINS, choices, quantiles, width)
        self.weight_KAQH = nn.Parameter(torch.empty(shape, dtype=dtype).uniform_(-reach, reach, generator=generator))
        self.bias_KAQ = nn.Parameter(torch.zeros(shape[:3], dtype=dtype))

    def taken(self, h_BH: torch.Tensor, choice_B: torch.Tensor) -> torch.Tensor:
        """Returns the quantiles of the choices taken, [K, B, Q]."""
        weight_KBQH = self.weight_KAQH[:, choice_B]
        return (weight_KBQH @ h_BH[None, :, :, None])[..., 0] + self.bias_KAQ[:, choice_B]

    def means(self, h_BH: torch.Tensor) -> torch.Tensor:
        """Returns the mean over quantiles of every choice, [K, B, A]."""
        return h_BH @ self.weight_KAQH.mean(2).transpose(1, 2) + self.bias_KAQ.mean(2)[:, None]

    def expected(self, h_BH: torch.Tensor, p_BA: torch.Tensor) -> torch.Tensor:
        """Returns every quantile averaged over the choices, [K, B, Q]."""
        twins, choices, quantiles, width = self.weight_KAQH.shape
        flat = self.weight_KAQH.reshape(-1, width)
        value_KBAQ = (h_BH @ flat.T).reshape(-1, twins, choices, quantiles).transpose(0, 1) + self.bias_KAQ[:, None]
        return (p_BA[None, :, None, :] @ value_KBAQ)[..., 0, :]


class Losses(NamedTuple):
    """Losses of a batch and what they were made of."""

    critic: torch.Tensor
    actor: torch.Tensor
    temperature: torch.Tensor
    entropy: torch.Tensor
    value: torch.Tensor


class Chsac(Learner):
    """Constrained hybrid soft actor-critic of the dispatcher of protocol on-arrival.

    The clock is the oracle's (Eq. 2), or where the task makes it a choice, the second head is of gang and clock.

    Args:
        dimensions: Sizes; the costs are those of a ``ServiceMeter``.
        config: Settings.
        seed: Seed; streams ``learner``.
        device: Where the nets are.

    Raises:
        ScenarioError: The setting is not of protocol on-arrival with the reward ``energy``, or clocks are choices while
            gangs are chosen for the whole fleet.
    """

    name: ClassVar[str] = "chsac-af"
    consumes = "replay"
    constrained = True
    config: ChsacConfig
    NETS = (*("encoder", "actor", "critics", "target_encoder", "target_critics", "mean_encoder", "mean_actor"),)
    ADAMS = ("nets_adam", "critics_adam", "temperature_adam")
    TENSORS = ("log_temperature",)
    ARRAYS = ("multiplier_K", "held_K", "excess_K", "fresh_X", "mean_X")
    PARTS = ("replay",)

    def __init__(self, dimensions: Dimensions, config: ChsacConfig, seed: int, device: str = "cpu") -> None:
        d = dimensions
        if d.agents != 1 or len(d.actions.heads) not in HEADS or len(d.counts) != COUNTS:
            raise ScenarioError(
                f"{self.name} learns from energy where jobs are routed at arrival; give a scenario of protocol "
                "on-arrival and set reward=energy"
            )
        (_, self.firsts), (_, gangs), *clock = d.actions.heads
        self.clocks = clock[0].size if clock else 1
        self.seconds = gangs * self.clocks
        """Options of the second head: gangs, or gangs times clocks."""
        if clock and config.gang_head == "fleet":
            raise ScenarioError("gang_head=fleet has no clocks to choose from; set gang_head=site or clocks=oracle")
        self.limits = len(d.costs)
        super().__init__(d, config, seed, device)
        self.replay = Replay(d, capacity=config.capacity, gamma=config.gamma)
        self.multiplier_K = np.zeros(self.limits)
        """Multipliers lambda_k, J per unit of work per relative excess (Algorithm 1, line 2)."""
        self.held_K = np.zeros(self.limits)
        """Their part that past excesses have summed up to (Eq. 7)."""
        self.excess_K = np.zeros(self.limits)
        """Mean relative excess over each limit in the decisions of the last collection."""
        self.fresh_X = np.zeros(1 + d.columns)
        """Sums of reward and costs over the decisions since the last dual step."""
        self.mean_X = np.zeros(1 + d.columns)
        """Running means of the same per decision."""

    def _make_nets(self, generator: torch.Generator) -> None:
        """Makes encoder (Eq. 8), actor (Eq. 9), critics (Eq. 10), targets and optimizers (Algorithm 1, line 1)."""
        config, d = self.config, self.dimensions
        width = config.hidden[-1]
        heads = self.firsts + self.seconds * (self.firsts if config.gang_head == "site" else 1)

        def encoder() -> StackedMLP:
            return StackedMLP(1, (d.global_size, *config.hidden), generator, self.dtype).to(self.device)

        def critics() -> Critics:
            return Critics(width, d.choices, config.quantiles, generator, self.dtype).to(self.device)

        def actor() -> StackedMLP:
            return StackedMLP(1, (width, heads), generator, self.dtype).to(self.device)

        self.encoder, self.actor, self.critics = encoder(), actor(), critics()
        self.target_encoder, self.target_critics = encoder(), critics()
        self.mean_encoder, self.mean_actor = encoder(), actor()
        for copy, source in self._followed():
            load_module_state(copy.requires_grad_(False), module_state(source))
        self.log_temperature = torch.full(
            (), math.log(config.temperature), dtype=self.dtype, device=self.device, requires_grad=True
        )
        self.nets_adam = adam([*self.encoder.parameters(), *self.actor.parameters()], config.rate)
        self.critics_adam = adam(self.critics.parameters(), config.rate)
        self.temperature_adam = adam([self.log_temperature], config.temperature_rate)  # type: ignore[list-item]

    def _followed(self) -> list[tuple[nn.Module, nn.Module]]:
        """Returns every net that follows another one, with that one."""
        return [
            (self.target_encoder, self.encoder),
            (self.target_critics, self.critics),
            (self.mean_encoder, self.encoder),
            (self.mean_actor, self.actor),
        ]

    # Policy (Eq. 9).

    def _latent(self, encoder: StackedMLP, seen_BI: F4) -> torch.Tensor:
        """Returns h of Eq. 8, [B, H]."""
        seen = torch.from_numpy(seen_BI).to(device=self.device, dtype=self.dtype)
        return torch.relu(encoder(seen[None])[0])

    def _log_policy(self, actor: StackedMLP, h_BH: torch.Tensor, mask_BA: Bools) -> torch.Tensor:
        """Returns ``log pi(d) + log pi(n, f)`` of every joint choice, [B, A]; -1e9 or so where infeasible."""
        logits = actor(h_BH[None])[0]
        mask_BDE = torch.from_numpy(mask_BA).to(self.device).reshape(-1, self.firsts, self.seconds)
        first_BD = log_policy(logits[:, : self.firsts], mask_BDE.any(2))
        if self.config.gang_head == "site":
            # CORRECTION (gang_head): gangs are chosen given the site, among those that fit there. The published mask is
            # that of the fleet's largest gang, so that a gang asked for may not exist at the site.
            second_BDE = log_policy(logits[:, self.firsts :].reshape(mask_BDE.shape), mask_BDE)
        else:
            second_BDE = log_policy(logits[:, self.firsts :], mask_BDE.any(1))[:, None]
        return (first_BD[:, :, None] + second_BDE).flatten(1)

    def act(self, moment: Moment, *, explore: bool) -> I8:
        """Returns choices, [B, 1], drawn from the policy (Algorithm 1, line 5).

        The averaged policy answers unless ``behaviour`` is the latest; where nothing is explored its answers are drawn
        too unless ``execute`` is greedy: the optimum of a problem with constraints mixes choices.
        """
        latest = explore and self.config.behaviour == "latest"
        encoder, actor = (self.encoder, self.actor) if latest else (self.mean_encoder, self.mean_actor)
        asked_B = moment.asked_BN[:, 0]
        mask_BA = (moment.mask_BNA[:, 0] != 0) | ~asked_B[:, None]
        with torch.no_grad():
            log_p_BA = self._log_policy(actor, self._latent(encoder, moment.global_BG), mask_BA).cpu().numpy()
        if self.config.gang_head == "site":
            allowed_BA = mask_BA
        else:
            mask_BDE = mask_BA.reshape(-1, self.firsts, self.seconds)
            allowed_BA = (mask_BDE.any(2)[:, :, None] & mask_BDE.any(1)[:, None]).reshape(mask_BA.shape)
        if explore or self.config.execute == "sample":
            choice_B = sample(log_p_BA, allowed_BA, self.explore_rng if explore else self._validation_rng(moment))
        else:
            choice_B = self._most_probable(log_p_BA, allowed_BA)
        return np.where(asked_B, self._fitting(choice_B, mask_BA), 0)[:, None]

    def _most_probable(self, log_p_BA: F4, allowed_BA: Bools) -> I8:
        """Returns the most probable second option of the most probable first, [B]."""
        shape = (-1, self.firsts, self.seconds)
        p_BDE = np.where(allowed_BA, np.exp(log_p_BA), 0.0).reshape(shape)
        first_B = p_BDE.sum(2).argmax(1)
        row_B = np.arange(len(first_B))
        second_B = best(log_p_BA.reshape(shape)[row_B, first_B], allowed_BA.reshape(shape)[row_B, first_B])
        return np.asarray(first_B * self.seconds + second_B)

    def _fitting(self, choice_B: I8, mask_BA: Bools) -> I8:
        """Returns the choices, the second option lowered to the largest that is feasible with the first, [B]."""
        first_B, second_B = choice_B // self.seconds, choice_B % self.seconds
        mask_BE = mask_BA.reshape(-1, self.firsts, self.seconds)[np.arange(len(first_B)), first_B]
        fits_BE = mask_BE & (np.arange(self.seconds) <= second_B[:, None])
        largest_B = self.seconds - 1 - fits_BE[:, ::-1].argmax(1)
        return np.where(fits_BE.any(1), first_B * self.seconds + largest_B, choice_B)

    @staticmethod
    def _validation_rng(moment: Moment) -> np.random.Generator:
        """Returns random numbers that depend on what is seen alone, so that validating changes no training."""
        return np.random.default_rng(np.frombuffer(moment.global_BG.tobytes(), np.uint32)[:64])

    # What is learned from.

    def observe(self, transition: Transition) -> None:
        """Stores decisions with the masks of s and s' (Algorithm 1, lines 7 and 8; Eq. 13)."""
        config = self.config
        reward_B, cost_BK = transition.reward_B, transition.cost_BK
        self.fresh_X += np.concatenate([[reward_B.sum()], cost_BK.sum(0)])
        size_B = cost_BK[:, self.limits]
        if config.energy_unit == "kWh":
            # CORRECTION (energy_unit) turned off: kWh per unit are 1e-6 and vanish beside alpha_n / n.
            reward_B = reward_B / WATT_SECONDS_PER_KWH
        if not config.weigh_by_size:
            # CORRECTION (weigh_by_size) turned off: Eq. 5 counts every job alike, Eq. 3 by its units.
            reward_B = reward_B / np.maximum(size_B, 1e-12)
        weight_B = size_B if config.weigh_by_size else 1.0
        gang_B = transition.choice_BN[:, 0] % self.seconds // self.clocks + 1
        reward_B = reward_B + weight_B * config.fewer_gpus / gang_B  # Eq. 5
        if config.excess == "positive":
            # CORRECTION (excess) turned off: the Lagrangian of the means of Eq. 4 is linear in the costs; the positive
            # part of Eqs. 6 and 12 prices the spread of single jobs instead.
            cost_BK = np.concatenate([np.maximum(cost_BK[:, : self.limits], 0.0), cost_BK[:, self.limits :]], 1)
        self.replay.observe(transition._replace(reward_B=reward_B, cost_BK=cost_BK))

    def _effective(self, batch: Batch) -> torch.Tensor:
        """Returns the effective reward, [B] (Eq. 12): ``r - sum_k lambda_k c_k``, less its mean per unit of size."""
        cost_BK = batch.cost_NBK[0]
        effective_B = batch.reward_NB[0] - cost_BK[:, : self.limits] @ self.multiplier_K
        if self.config.centre:
            # CORRECTION (centre): work must be done whatever is chosen, so what a unit of it costs on average is
            # subtracted. What is left is the choice's own; the sizes of later jobs are noise no more.
            column = self.limits if self.config.weigh_by_size else self.limits + 1
            effective_B = effective_B - cost_BK[:, column] * self._mean_effective(column)
        return torch.from_numpy(effective_B).to(device=self.device, dtype=self.dtype)

    def _mean_effective(self, column: int) -> float:
        """Returns the running mean of the effective reward per unit of a cost column."""
        mean = self.mean_X[0] - self.mean_X[1 : 1 + self.limits] @ self.multiplier_K
        return float(mean / max(self.mean_X[1 + column], 1e-12))

    # Losses (Eqs. 10 and 11).

    def losses(self, batch: Batch) -> Losses:
        """Returns the losses of a batch at the present parameters."""
        h_BH = self._latent(self.encoder, batch.seen_NBI[0])
        choice_B = torch.from_numpy(batch.choice_NB[0]).to(self.device)
        one_hot = self.config.actor_gradient == "one-hot"
        # In the published code the encoder follows the actor's loss alone.
        taken_KBQ = self.critics.taken(h_BH.detach() if one_hot else h_BH, choice_B)
        # CORRECTION (quantile_weights) turned off: the published code weighs an error by the target's quantile.
        by_target = self.config.quantile_weights == "target"
        critic = quantile_huber(taken_KBQ, self._targets(batch), self.config.kappa, by_target=by_target)
        log_p_BA = self._log_policy(self.actor, h_BH, batch.mask_NBA[0])
        actor_loss = self._one_hot_loss if one_hot else self._expected_loss
        actor, entropy_B, value_B = actor_loss(h_BH, log_p_BA)
        feasible_B = torch.from_numpy(batch.mask_NBA[0].sum(1)).to(device=self.device, dtype=self.dtype)
        target = self.config.target_entropy * self.config.cooling(self.updates)
        short = (entropy_B.detach() - target * feasible_B.log()).mean()
        return Losses(critic, actor, self.log_temperature * short, entropy_B.detach().mean(), value_B.detach().mean())

    def _targets(self, batch: Batch) -> torch.Tensor:
        """Returns the target quantiles, [B, Q]: ``r_eff + discount (Z(s', pi) - alpha log pi)``, the smaller twin's."""
        with torch.no_grad():
            effective_B1 = self._effective(batch)[:, None]
            if not self.config.bootstrap:
                # CORRECTION (bootstrap) turned off: the published code stores done = True with every transition.
                return effective_B1.expand(-1, self.config.quantiles)
            seen_BI, mask_BA = batch.next_seen_NBI[0], batch.next_mask_NBA[0]
            log_p_BA = self._log_policy(self.actor, self._latent(self.encoder, seen_BI), mask_BA)
            value_KBQ = self.target_critics.expected(self._latent(self.target_encoder, seen_BI), log_p_BA.exp())
            smaller_B = value_KBQ.mean(2).argmin(0)
            value_BQ = value_KBQ[smaller_B, torch.arange(len(smaller_B), device=self.device)]
            soft_BQ = value_BQ + self.temperature * entropy(log_p_BA)[:, None]
            discount_B1 = torch.from_numpy(batch.discount_NB[0]).to(device=self.device, dtype=self.dtype)[:, None]
            return effective_B1 + discount_B1 * soft_BQ

    def _expected_loss(self, h_BH: torch.Tensor, log_p_BA: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the actor's loss (Eq. 11), entropy [B] and value [B].

        CORRECTION (actor_gradient): an expectation over the choices, ``sum_a pi (alpha log pi - q)``, whose gradient
        reaches the policy through every probability.
        """
        with torch.no_grad():
            value_BA = self.critics.means(h_BH).amin(0)
        entropy_B, value_B = entropy(log_p_BA), (log_p_BA.exp() * value_BA).sum(1)
        return (-value_B - self.temperature * entropy_B).mean(), entropy_B, value_B

    def _one_hot_loss(self, h_BH: torch.Tensor, log_p_BA: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the same by sampled one-hots: ``alpha log pi(a) - q(h, a)``; no gradient passes through a.

        What is left of the gradient is ``alpha`` times that of ``log pi(a)``, whose mean is 0, and that of q by h.
        """
        generator = torch.Generator().manual_seed(int(self.batch_rng.integers(2**62)))
        choice_B = torch.multinomial(log_p_BA.detach().exp().cpu(), 1, generator=generator)[:, 0].to(self.device)
        log_p_B = log_p_BA.gather(1, choice_B[:, None])[:, 0]
        value_B = self.critics.taken(h_BH, choice_B).amin(0).mean(1)
        return (self.temperature * log_p_B - value_B).mean(), -log_p_B, value_B

    @property
    def temperature(self) -> torch.Tensor:
        """Weight of the entropy, alpha."""
        return self.log_temperature.detach().exp()

    # Update (Algorithm 1, lines 9 to 15).

    def update(self) -> dict[str, float]:
        """Makes one step of all nets, the temperature and, after new decisions, the multipliers."""
        self._dual_step()
        losses = self.losses(self.replay.sample(self.batch_rng, self.config.batch))
        self.nets_adam.zero_grad()
        if self.config.actor_gradient == "one-hot":
            losses.actor.backward()
            self.critics_adam.zero_grad()
            losses.critic.backward()
        else:
            self.critics_adam.zero_grad()
            (losses.critic + losses.actor).backward()
        self.temperature_adam.zero_grad()
        losses.temperature.backward()
        for optimizer in (self.nets_adam, self.critics_adam, self.temperature_adam):
            optimizer.step()
        self.updates += 1
        for copy, source in self._followed():
            averaged = copy in (self.mean_encoder, self.mean_actor)
            rate = self.config.average_rate if averaged else self.config.target_rate
            follow(copy.parameters(), source.parameters(), rate)
        figures = torch.stack([*(each.detach() for each in losses[:2]), *losses[3:], self.temperature])
        names = ("critic_loss", "actor_loss", "entropy", "value", "temperature")
        return {**dict(zip(names, figures.tolist(), strict=True)), **self.constraints()}

    def _dual_step(self) -> None:
        """Moves the multipliers by the decisions since the last step (Eq. 7).

        CORRECTION (duals_fall): the mean excess is signed and of fresh decisions, so that a constraint that holds
        releases its multiplier, down to 0; the published multipliers only rise.
        CORRECTION (dual_damping): the present excess counts beside the sum of past ones.
        """
        decisions = self.fresh_X[-1]
        if decisions == 0:
            return
        fresh_X, self.fresh_X = self.fresh_X / decisions, np.zeros_like(self.fresh_X)
        first = not self.mean_X.any()
        self.mean_X += (1.0 if first else MEAN_RATE) * (fresh_X - self.mean_X)
        self.excess_K = fresh_X[1 : 1 + self.limits]
        step_K = np.clip(self.excess_K, -1.0, 1.0)  # a start far from the limit is not to overshoot it
        if not self.config.duals_fall:
            step_K = np.maximum(step_K, 0.0)
        step_K = step_K * self.config.cooling(self.updates)
        self.held_K = np.maximum(self.held_K + self.config.dual_rate * step_K, 0.0)
        self.multiplier_K = np.maximum(self.held_K + self.config.dual_damping * step_K, 0.0)

    def constraints(self) -> dict[str, float]:
        """Returns multipliers and mean relative excesses by name."""
        out = {}
        for name, multiplier, excess in zip(self.dimensions.costs, self.multiplier_K, self.excess_K, strict=False):
            out[f"multiplier/{name}"] = float(multiplier)
            out[f"excess/{name}"] = float(excess)
        return out

    def policy_arrays(self) -> PolicyArrays:
        """Returns the averaged policy: encoder and heads in one net, a second head for every option of the first."""
        parts = [net.arrays() for net in (self.mean_encoder, self.mean_actor)]
        weights, biases = ([*parts[0][kind], *parts[1][kind]] for kind in (0, 1))
        if self.config.gang_head == "fleet":
            weights[-1] = self._per_first(weights[-1])
            biases[-1] = self._per_first(biases[-1])
        meta = {
            "algorithm": self.name,
            "head": "site-gang",
            "execute": self.config.execute,
            "gang_mask": self.config.gang_head,
            "constraints": self.constraints(),
        }
        return PolicyArrays(weights, biases, meta)

    def _per_first(self, head: F4) -> F4:
        """Returns a head [..., D + E] with its second part repeated for every first option, [..., D + D E]."""
        seconds = [head[..., self.firsts :]] * self.firsts
        return np.concatenate([head[..., : self.firsts], *seconds], -1)


class PublishedChsac(Chsac):
    """The same under ``PublishedConfig``: a control."""

    name: ClassVar[str] = "chsac-af-published"


def quantile_huber(
    taken_KBQ: torch.Tensor, target_BQ: torch.Tensor, kappa: float, *, by_target: bool = False
) -> torch.Tensor:
    """Returns the quantile Huber loss, summed over twins (Eq. 10; Dabney et al. 2018).

    ``mean_B sum_i mean_j |tau_i - [y_j < q_i]| L(y_j - q_i) / kappa`` with tau_i = (i + 1/2) / N_q.

    Args:
        taken_KBQ: Quantiles q_i of each twin.
        target_BQ: Target quantiles y_j.
        kappa: Errors up to this count squared.
        by_target: Weigh by tau_j of the target instead, which finds no quantiles: a control.
    """
    quantiles = taken_KBQ.shape[2]
    tau_Q = (torch.arange(quantiles, device=taken_KBQ.device, dtype=taken_KBQ.dtype) + 0.5) / quantiles
    tau_QQ = tau_Q[None, :] if by_target else tau_Q[:, None]
    error_KBQQ = target_BQ[None, :, None, :] - taken_KBQ[..., None]
    size = error_KBQQ.abs()
    huber = torch.where(size <= kappa, 0.5 * error_KBQQ.square(), kappa * (size - 0.5 * kappa)) / kappa
    return ((tau_QQ - (error_KBQQ.detach() < 0).to(huber.dtype)).abs() * huber).mean(3).sum(2).mean(1).sum()

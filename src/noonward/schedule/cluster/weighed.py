"""Routing by weighed cost: energy, money, carbon and time of every site, gang and clock that is free now."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.view import (
    ORACLE,
    POWER_W,
    SECONDS,
    Answers,
    ClusterView,
    RuleMemory,
    route_delay_s,
)
from noonward.decision.scheduler import CompiledScheduler
from noonward.units import WATT_SECONDS_PER_MWH

SecondW = Annotated[float, Field(ge=0, allow_inf_nan=False, description="J per second in system")]
GPUS, JOULE, USD, KG = range(4)
"""Positions in ``memory.number_P``: gang asked for (0: all the job can use), and the weights of a joule, a dollar and a
kilogram of CO2. ``memory.table_XY[c]``: latency target of class c, s, and weight of a second of its time in system."""
TARGET_S, SECOND = range(2)
"""Positions in a row of ``memory.table_XY``."""


@kernel(inline=True, allocates=False)
def _cost(view: ClusterView, memory: RuleMemory, job: int, s: int, gpus: int, level: int) -> float:
    """Returns what a job costs at a site: its energy beyond that of free GPUs, and its time in system.

    ``size T(n, f) ((P(n, f) - n P_free) eta v + w) + w delay``, v the value of a joule there now (the weights of a
    joule, of its price and of its carbon) and w the weight of a second.
    """
    record, site, number_P = view.job_J[job], view.site_S[s], memory.number_P
    joule = number_P[JOULE]
    if number_P[USD] != 0.0:
        joule += number_P[USD] * site.price / WATT_SECONDS_PER_MWH
    if number_P[KG] != 0.0:
        joule += number_P[KG] * site.carbon / WATT_SECONDS_PER_MWH
    extra_w = (view.speed_KSCGF[POWER_W, s, record.class_, gpus, level] - gpus * site.free_w) * site.pue
    seconds = record.work * view.speed_KSCGF[SECONDS, s, record.class_, gpus, level]
    second = memory.table_XY[record.class_, SECOND]
    return seconds * (extra_w * joule + second) + second * route_delay_s(view, job, s)


@kernel(inline=True, allocates=False)
def _late_s(view: ClusterView, memory: RuleMemory, job: int, s: int, gpus: int, level: int) -> float:
    """Returns the end-to-end latency of a job that starts when it gets to a site if it misses its target, else 0, s."""
    record = view.job_J[job]
    taken_s = record.work * view.speed_KSCGF[SECONDS, s, record.class_, gpus, level]
    taken_s += route_delay_s(view, job, s)
    return 0.0 if taken_s <= memory.table_XY[record.class_, TARGET_S] else taken_s


@kernel(inline=True, allocates=False)
def _least_crowded(view: ClusterView) -> int:
    """Returns the feasible site with the fewest waiting jobs per GPU."""
    best, least = -1, np.inf
    for s in range(view.site_S.shape[0]):
        crowd = view.site_S[s].waiting / view.site_S[s].gpus
        if view.mask_NA[0, 1 + s] and crowd < least:
            best, least = s, crowd
    return best


@kernel(inline=True, allocates=False)
def weighed_choice(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    """Answers with the site, gang and clock of least weighed cost for the job asked about."""
    job = view.asked_N[0]
    record = view.job_J[job]
    most = record.gpus_max
    if memory.number_P[GPUS] > 0:
        most = max(record.gpus_min, min(most, int(memory.number_P[GPUS])))
    best, best_gpus, best_level, least, soonest = -1, 0, ORACLE, np.inf, np.inf
    for s in range(view.site_S.shape[0]):
        if not view.mask_NA[0, 1 + s]:
            continue
        for gpus in range(record.gpus_min, min(most, view.site_S[s].free) + 1):
            for level in range(view.site_S[s].levels):
                late_s = _late_s(view, memory, job, s, gpus, level)
                cost = _cost(view, memory, job, s, gpus, level)
                if late_s < soonest or (late_s == soonest and cost < least):
                    best, best_gpus, best_level, least, soonest = s, gpus, level, cost, late_s
    answer = answers.answer_N[0]
    if best < 0:
        best, best_gpus = _least_crowded(view), most
    answer.choice, answer.gpus, answer.level = 1 + best, best_gpus, best_level


@rule
def _weighed(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    weighed_choice(view, answers, memory)


class WeighedRouter(CompiledScheduler):
    """Routes each job at its arrival to the site, gang and clock of least weighed cost among those free now.

    Cost of a job on n GPUs at clock f: the energy it takes beyond what its GPUs would draw free, valued by a weight per
    joule, plus its time in system valued per second: ``joule (P - n P_free) eta T + second (T + delay)``. That is the
    clock oracle that weighs energy against latency (CHSAC-AF, Sec. VII), taken jointly with site and gang. Where no
    GPU is free a job goes to the site with the fewest waiting per GPU, with the largest gang and the oracle's clock.

    Args:
        joule: Weight of a joule.
        second: Weight of a second of a job's time in system, in the same unit; with ``joule`` 1 it is in W.
        gpus: Largest gang, GPUs; 0 for all a job can use.
        target_s: Take only what keeps the job's time in system within this, s, and the fastest where nothing does;
            None: take any.
        use_stated_target: Where the scenario's constraints state a latency target of the job's class, use that
            instead of ``target_s``.
        use_stated_weights: Where the scenario states a weight of a second per class (``latency_weight_w``), use that
            instead of ``second``.

    Raises:
        ValueError: An argument is out of range, or all weights are 0.
    """

    needs = Needs(protocols=("on-arrival",))
    use_stated_weights = False

    def __init__(
        self,
        *,
        joule: float = 1.0,
        second: float = 0.0,
        gpus: int = 0,
        target_s: float | None = None,
        use_stated_target: bool = False,
        use_stated_weights: bool = False,
    ) -> None:
        self.use_stated_weights = use_stated_weights
        self._set({"joule": joule, "usd": 0.0, "kg": 0.0, "second": second}, gpus, target_s, use_stated_target)

    def _set(self, weights: dict[str, float], gpus: int, target_s: float | None, use_stated_target: bool) -> None:
        for name, weight in weights.items():
            if not (weight >= 0 and np.isfinite(weight)):
                raise ValueError(f"weight {name} is {weight}; it must be at least 0 and finite")
        if not any(weights.values()):
            raise ValueError("all weights are 0, so nothing tells sites apart; give at least one above 0")
        if gpus < 0:
            raise ValueError(f"gang of {gpus} GPUs; it must be at least 1, or 0 for all a job can use")
        if target_s is not None and not target_s > 0:
            raise ValueError(f"target_s is {target_s} s; it must be above 0")
        self.rule = _weighed
        self.weights = tuple(weights.values())
        self.gpus = gpus
        self.target_s = target_s
        self.use_stated_target = use_stated_target

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns gang and weights (number), and latency target and weight of a second per class (table)."""
        given_s = np.inf if self.target_s is None else self.target_s
        target_C = np.full(len(brief.fleet.classes), given_s)
        if self.use_stated_target and brief.constraints is not None:
            stated = brief.constraints.latency_target_s
            target_C[:] = [stated.get(name, given_s) for name in brief.fleet.classes]
        *weights, second = self.weights
        second_C = np.full(len(brief.fleet.classes), second)
        if self.use_stated_weights and brief.latency_weight_w:
            second_C[:] = [brief.latency_weight_w[name] for name in brief.fleet.classes]
        return RuleMemory.make(numbers=(float(self.gpus), *weights), table=np.column_stack([target_C, second_C]))


class MarketRouter(WeighedRouter):
    """A ``WeighedRouter`` that values a joule by the site's price and carbon intensity of the hour too.

    Value of a joule: ``joule + usd price / 3.6e9 + kg intensity / 3.6e9``; prices are in USD/MWh, intensities in g/kWh.

    Args:
        usd: Weight of a USD of energy cost.
        kg: Weight of a kilogram of CO2.
        joule: Weight of a joule.
        second: Weight of a second of a job's time in system, in the same unit as the others.
        gpus: Largest gang, GPUs; 0 for all a job can use.
        target_s: As ``WeighedRouter``.
        use_stated_target: As ``WeighedRouter``.

    Raises:
        ValueError: As ``WeighedRouter``.
    """

    needs = Needs(protocols=("on-arrival",), signals=True)

    def __init__(
        self,
        *,
        usd: float = 0.0,
        kg: float = 0.0,
        joule: float = 0.0,
        second: float = 0.0,
        gpus: int = 0,
        target_s: float | None = None,
        use_stated_target: bool = False,
    ) -> None:
        self._set({"joule": joule, "usd": usd, "kg": kg, "second": second}, gpus, target_s, use_stated_target)

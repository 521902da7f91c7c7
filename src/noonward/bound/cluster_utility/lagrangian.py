"""Upper bound on the utility of setting 1: Lagrangian relaxation of the GPUs' capacity (MASAC, Eqs. 2-7)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.columns import build_columns, slot_of
from noonward.bound.cluster_utility.dive import dive
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.master import Master
from noonward.bound.cluster_utility.prices import descend, descend_evenly, polish, polish_in_pieces, refine
from noonward.bound.cluster_utility.primal import BookedSchedule, book, least_gpu_hours
from noonward.bound.cluster_utility.quotas import QuotaBound, quota_bound
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.units import HOUR_S

MOST_JOBS: Final = 6000
"""Most jobs for which prices are found for all hours at once; with more, stretches of a quarter follow each other."""
EVEN_ROUNDS: Final = 80
"""Subgradient steps of a bound that may stop at a gap."""


@dataclass(frozen=True, kw_only=True)
class UtilityBound:
    """What no scheduler can exceed in an environment, knowing all signals and jobs beforehand.

    Attributes:
        upper_usd: Upper bound on the ledger's total utility, the cost of the idle fleet over the window included, USD.
        idle_usd: Utility of a fleet that runs nothing, the part no scheduler changes, USD.
        price_usd_per_gpu_hour_SH: Capacity prices lambda that give the bound, USD per GPU-hour, at least 0; with
            shorter periods than an hour, those by hour that refining began from.
        iterations: Evaluations of the dual function.
        dual_excess_usd: Most by which ``upper_usd`` may exceed the least bound of this kind, the optimum of the linear
            relaxation, USD. Where the prices were found in stretches or by subgradient steps alone, it is the distance
            from the schedule found, which the linear relaxation's optimum cannot lie below; infinite where there is no
            schedule either.
        schedule: A schedule that respects capacity, deadlines and slots, any clock level of the site used; None where
            none was looked for (see ``utility_bound``).
    """

    upper_usd: float
    idle_usd: float
    price_usd_per_gpu_hour_SH: F8
    iterations: int
    dual_excess_usd: float
    schedule: BookedSchedule | None
    cut: bool = False
    """Whether the seconds given ran out, so that steps may have been left out."""
    quotas: QuotaBound | None = None
    """Prices of the tenants' quotas, where there are tenants."""

    @property
    def lower_usd(self) -> float:
        """Utility of the schedule found, USD; NaN without one."""
        return math.nan if self.schedule is None else self.idle_usd + self.schedule.value_usd

    @property
    def gap_usd(self) -> float:
        """Duality gap: the optimum lies between ``lower_usd`` and this much above it, USD."""
        return self.upper_usd - self.lower_usd


def utility_bound(
    environment: Environment,
    *,
    iterations: int = 400,
    tolerance: float = 1e-4,
    schedule: bool = True,
    rounds: int | None = None,
    seed: int = 0,
    most_jobs: int = MOST_JOBS,
    progress: Callable[[int, int], None] | None = None,
    seconds: float | None = None,
    enough: float = 0.0,
    period_s: float = HOUR_S,
) -> UtilityBound:
    """Bounds the utility any scheduler can reach in an environment, all signals and jobs known beforehand.

    Relaxed beside integrality: capacity within an hour (GPU-hours <= R x 1 h), queues, the hour in which a migrated
    job leaves, chains of migrations (bounded by shortest paths), capacity curves (``caps``). Exact: starts on slots,
    deadlines (Eq. 7b), energy, carbon and retrieval at the hours they fall in. Quotas of tenants count as
    ``quota_bound`` says, and no schedule is made where there are any.

    Args:
        environment: Environment with economics and signals, ``end: drained``.
        iterations: Subgradient steps, at least 1.
        tolerance: Relative excess over the linear relaxation's optimum at which column generation stops; ``math.inf``
            leaves it out. The bound holds whatever the values of both.
        schedule: Whether to look for a schedule, so that the duality gap is known. None is made under ``on-arrival``,
            nor under hard capacity curves, which bookings do not know.
        rounds: Tries of the schedule's search, at least 0; by default ``primal.usual_tries``. A try books a few dozen
            jobs again, however many there are.
        seed: Seed of the schedule's search.
        most_jobs: Most jobs for which column generation takes all hours at once. With more it takes one stretch of
            hours after the other (``prices.polish_in_pieces``), so that time and memory grow in proportion to the
            jobs. The result is a bound all the same.
        progress: Called after every stretch with its number and how many there are.
        seconds: Seconds after which no further step is begun; None: none is left out. Every price gives a bound, so the
            result is one all the same, only a looser one, and it depends on the machine's speed.
        period_s: Length of the periods that capacity is priced by, s: an hour, or a divisor of it that is a whole
            number of slots. Shorter periods lower the bound, and take longer: capacity is no longer averaged over the
            hour (``prices.refine``).
        enough: Gap to a schedule, as a share of the bound, at which the search stops where there are more than
            ``most_jobs`` jobs; 0: it goes on until ``tolerance`` is reached. The schedule is then listed alone, not
            searched.

    Raises:
        ScenarioError: The environment has no economics or signals, runs end before all jobs do, or an argument is out
            of range.
    """
    if iterations < 1 or not tolerance >= 0 or (rounds is not None and rounds < 0) or most_jobs < 4:
        raise ScenarioError(
            f"iterations {iterations}, tolerance {tolerance}, rounds {rounds} and most_jobs {most_jobs} were asked; "
            "they must be at least 1, 0, 0 and 4"
        )
    slot_s = slot_of(environment)
    if not 0 < period_s <= HOUR_S or HOUR_S % period_s or (slot_s and period_s % slot_s):
        raise ScenarioError(
            f"prices by periods of {period_s:g} s were asked; a period must divide the hour (3600 s) and be a whole "
            f"number of slots ({slot_s:g} s)"
        )
    end_s = math.inf if seconds is None else time.monotonic() + seconds

    def late() -> bool:
        return time.monotonic() >= end_s

    relaxation, refined = Relaxation(environment), 0
    if environment.tenants is not None:
        return _within_quotas(environment, relaxation, iterations, tolerance, most_jobs, late, period_s)
    master: Master | None = None
    hard_caps = environment.caps is not None and environment.caps.hard
    books = schedule and environment.protocol == "each-slot" and not hard_caps

    def scheduled(rounds: int | None, orders: int) -> BookedSchedule:
        rounds = 0 if late() else rounds
        option_J = None
        if rounds != 0 and master is not None and master.optimum is not None:
            column_J = dive(master, least_gpu_hours(relaxation.options, len(environment.jobs)))
            option_J = np.where(column_J < 0, -1, relaxation.columns.option_K[column_J])
        return book(
            environment, relaxation.tables, relaxation.costs, relaxation.options, price_SH,
            relaxation.priced_usd_J(price_SH), rounds=rounds, seed=seed, orders=orders, option_J=option_J,
            most_usd=upper_usd - relaxation.costs.idle_usd, late=None if seconds is None else late,
        )  # fmt: skip

    def bound() -> UtilityBound:
        return UtilityBound(
            upper_usd=upper_usd,
            idle_usd=relaxation.costs.idle_usd,
            price_usd_per_gpu_hour_SH=price_SH,
            iterations=relaxation.evaluations + refined,
            dual_excess_usd=excess_usd,
            schedule=found,
            cut=late(),
        )

    if enough > 0 and len(environment.jobs) > most_jobs:
        upper_usd, price_SH, columns = descend_evenly(relaxation, EVEN_ROUNDS, late=late)
        found = scheduled(0, 1) if books else None
        excess_usd = math.inf if found is None else upper_usd - relaxation.costs.idle_usd - found.value_usd
        if late() or excess_usd <= enough * abs(upper_usd):
            return bound()
    else:
        upper_usd, price_SH, columns = descend(relaxation, iterations, late)
    excess_usd = math.inf
    if not len(relaxation.columns.value_K):
        excess_usd = 0.0
    elif math.isfinite(tolerance) and len(environment.jobs) <= most_jobs:
        master = Master(relaxation)
        upper_usd, price_SH, excess_usd = polish(relaxation, price_SH, columns, tolerance, late=late, master=master)
    elif math.isfinite(tolerance):
        upper_usd, price_SH = polish_in_pieces(relaxation, price_SH, columns, tolerance, most_jobs // 4, progress, late)
    if period_s < HOUR_S and len(relaxation.columns.value_K):
        shorter = build_columns(environment, relaxation.options, relaxation.costs, period_s)
        pieces = None if len(environment.jobs) <= most_jobs else most_jobs // 4
        upper_usd, excess_usd, refined = refine(
            relaxation, shorter, round(HOUR_S / period_s), price_SH, tolerance, pieces, late
        )
    found = None
    if books:
        found = scheduled(rounds, 2)
        excess_usd = min(excess_usd, upper_usd - relaxation.costs.idle_usd - found.value_usd)
    return bound()


def _within_quotas(
    environment: Environment,
    relaxation: Relaxation,
    iterations: int,
    tolerance: float,
    most_jobs: int,
    late: Callable[[], bool],
    period_s: float,
) -> UtilityBound:
    """Returns the bound where tenants have quotas."""
    if period_s < HOUR_S:
        raise ScenarioError(
            f"prices by periods of {period_s:g} s were asked, and scenario {environment.scenario!r} has tenants, whose "
            "quotas are priced by the hour; leave out period_s, or the tenants (--set tenants=null)"
        )
    assert environment.tenants is not None, "asked for where there are tenants"
    assert environment.tenant_J is not None, "tenants and those of jobs go together"
    found = quota_bound(
        relaxation, environment.tenants, environment.tenant_J, iterations=iterations, tolerance=tolerance,
        most_jobs=most_jobs, late=late,
    )  # fmt: skip
    return UtilityBound(
        upper_usd=found.upper_usd,
        idle_usd=relaxation.costs.idle_usd,
        price_usd_per_gpu_hour_SH=found.price_SH,
        iterations=found.evaluations,
        dual_excess_usd=found.excess_usd,
        schedule=None,
        cut=late(),
        quotas=found,
    )

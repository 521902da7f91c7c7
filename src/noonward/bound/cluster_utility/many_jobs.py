"""The utility bound of very many jobs: prices found with few that stand for all, then paid by every single one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from noonward.arrays import F8, I4, I8
from noonward.bound.cluster_utility.booking import Bookings, book_listed
from noonward.bound.cluster_utility.columns import (
    Columns,
    Market,
    Options,
    build_columns,
    build_options,
    capacity,
    market,
    require_bounded,
)
from noonward.bound.cluster_utility.dual import Dual
from noonward.bound.cluster_utility.merged_sites import merged_sites
from noonward.bound.cluster_utility.prices import STEP_USD, descend_evenly, never
from noonward.bound.cluster_utility.primal import PRICE_SCALES, free_gpus, guide, least_gpu_hours, slot_options
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.jobs import Jobs
from noonward.seeding import stream
from noonward.units import HOUR_S

PER_SITE_HOUR: Final = 3
"""Jobs that stand for all, per site and hour of the window, unless said otherwise."""
MOST_STARTS: Final = 20_000_000
"""Candidate starts of the jobs that stand for all, at most: some 120 bytes each."""
STARTS_AT_ONCE: Final = 2_000_000
"""Candidate starts that are listed at once; memory grows with it, and the result hardly depends on it."""
LOOKED_AT: Final = 128
"""Jobs whose candidate starts are counted, so that those of all are known about."""
EXACT_SITES: Final = 64
"""Sites up to which each has prices of its own, unless said otherwise; beyond, those of one kind are merged."""
ROUNDS: Final = 120
STEP_SHARE: Final = 0.14
"""First step of the search for prices, as a share of the revenue per GPU-hour. They are near it where room is short,
and near the price of energy, a hundredth of it, where jobs only wait for cheap hours."""
PARTS: Final = 3
"""Parts of the search, the steps of each shorter than before (``descend_evenly``)."""


@dataclass(frozen=True, kw_only=True)
class ManyJobsBound:
    """What no scheduler can exceed in an environment of very many jobs.

    Attributes:
        upper_usd: As ``UtilityBound.upper_usd``.
        idle_usd: As there.
        lower_usd: Utility of a schedule that was found, USD; NaN where none was looked for.
        price_usd_per_gpu_hour_SH: Capacity prices that give the bound; where sites were merged, by kind of sites.
        jobs: Jobs on which they were found.
        cut: Whether time ran out before the search for prices was over.
    """

    upper_usd: float
    idle_usd: float
    lower_usd: float
    price_usd_per_gpu_hour_SH: F8
    jobs: int
    cut: bool


def many_jobs_bound(
    environment: Environment,
    *,
    jobs: int | None = None,
    rounds: int = ROUNDS,
    schedule: bool = True,
    exact_sites: int = EXACT_SITES,
    seed: int = 0,
    late: Callable[[], bool] = never,
) -> ManyJobsBound:
    """Bounds the utility any scheduler can reach, in memory that does not grow with what jobs may become.

    Every price of capacity gives a bound (``Relaxation``). So the prices may be found with few jobs, each of which
    counts as often as the jobs that it stands for: they are drawn with chances in proportion to their GPU-hours, evenly
    over ingress points and time. At these prices every job of the environment then takes its best start, some jobs at
    a time. The result is a bound without any error of sampling, and is looser than ``utility_bound`` by what the prices
    lack. Where as many jobs stand for all as there are, each stands for itself.

    Of a fleet of more than ``exact_sites``, sites of one kind are merged (``merged_sites``): that is a bound too, and
    no schedule is listed beside it.

    Args:
        environment: As ``Relaxation`` takes it.
        jobs: Jobs that stand for all, at least 1; None: ``PER_SITE_HOUR``, within ``MOST_STARTS``.
        rounds: Subgradient steps, at least 2 a part.
        schedule: Whether to list a schedule beside it, for ``each-slot`` without hard capacity curves.
        exact_sites: Sites up to which each has prices of its own, at least 1.
        seed: Seed of the draw.
        late: Whether the search for prices must end; asked after every step.

    Raises:
        ScenarioError: As ``utility_bound``.
    """
    if (jobs is not None and jobs < 1) or rounds < 2 * PARTS:
        raise ScenarioError(
            f"jobs {jobs} and rounds {rounds} were asked of a bound; they must be at least 1 and {2 * PARTS}"
        )
    require_bounded(environment)
    if exact_sites < 1:
        raise ScenarioError(f"exact_sites {exact_sites} were asked of a bound; it must be at least 1")
    if len(environment.sites) > exact_sites:
        merged = merged_sites(environment)
        schedule, environment = schedule and merged is environment, merged
    sites = len(environment.sites)
    tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
    costs = market(environment, tables)
    starts = _starts_per_job(environment, tables, costs)
    usual = min(PER_SITE_HOUR * sites * math.ceil(environment.window_s / HOUR_S), max(1, int(MOST_STARTS / starts)))
    generator = stream(seed, "policy", "many-jobs-bound")
    taken, weight_J = standing_for_all(environment.jobs, tables, usual if jobs is None else jobs, generator)
    few = _with_jobs(environment, taken)
    columns = _weighted(build_columns(few, build_options(few, tables, costs), costs), weight_J)
    capacity_SH = capacity(environment, tables, _longest_s_S(environment.jobs, tables), costs.carbon_SH.shape[1])
    idle_usd = costs.idle_usd + costs.run_on_usd
    step_usd = STEP_SHARE * costs.revenue_usd_per_gpu_hour or STEP_USD
    _, price_SH, _ = descend_evenly(Dual(columns, capacity_SH, idle_usd), rounds, step_usd, late, PARTS)
    cut = late()
    del columns
    hard_caps = environment.caps is not None and environment.caps.hard
    books = schedule and environment.protocol == "each-slot" and not hard_caps
    listing = _Listing.of(environment, tables, costs, price_SH) if books else None
    upper_usd = idle_usd + float((capacity_SH * price_SH).sum())
    for part, options in _in_parts(environment, tables, costs, max(1, int(STARTS_AT_ONCE / starts))):
        dual = Dual(build_columns(part, options, costs), capacity_SH, 0.0)
        priced_usd_J = dual.priced_usd_J(price_SH)
        upper_usd += float(priced_usd_J.sum())
        if listing is not None:
            listing.add(part, options, priced_usd_J, generator)
    lower_usd = math.nan if listing is None else costs.idle_usd + max(listing.value_usd)
    return ManyJobsBound(
        upper_usd=upper_usd,
        idle_usd=costs.idle_usd,
        lower_usd=lower_usd,
        price_usd_per_gpu_hour_SH=price_SH,
        jobs=len(taken),
        cut=cut,
    )


def candidate_starts(environment: Environment) -> float:
    """Returns about how many candidate starts the jobs of an environment have: the memory of ``utility_bound``.

    They grow with sites and slack: a job that may wait for a day has some hundreds at each site.

    Raises:
        ScenarioError: As ``utility_bound``.
    """
    require_bounded(environment)
    tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
    return len(environment.jobs) * _starts_per_job(environment, tables, market(environment, tables))


def _starts_per_job(environment: Environment, tables: FleetTables, costs: Market) -> float:
    """Returns how many candidate starts a job has, mean over some jobs at even distances; at least 1."""
    rows = np.unique(np.linspace(0, len(environment.jobs) - 1, LOOKED_AT).astype(np.int64))
    some = _with_jobs(environment, rows)
    return max(1.0, len(build_columns(some, build_options(some, tables, costs), costs).value_K) / len(rows))


def standing_for_all(jobs: Jobs, tables: FleetTables, count: int, rng: np.random.Generator) -> tuple[I8, F8]:
    """Returns about so many jobs that stand for all, in their order, and how many each stands for.

    A job is taken with a chance in proportion to its GPU-hours at its largest gang, at most 1, and stands for 1 /
    chance jobs, so that weighted sums are right on average. Jobs are taken at even distances along ingress points and
    arrivals (systematic sampling; Madow 1949).

    Args:
        jobs: Jobs.
        tables: Tables of the fleet.
        count: Jobs that are to stand for all; with as many as there are, each stands for itself.
        rng: Source of randomness.
    """
    if count >= len(jobs):
        return np.arange(len(jobs)), np.ones(len(jobs))
    gang = np.minimum(jobs.gpus_max_J, tables.seconds_per_unit_SCGF.shape[2] - 1)
    least_s_CG = np.nanmin(tables.seconds_per_unit_SCGF[:, :, 1:], axis=(0, 3))
    size_J = gang * jobs.work_J * least_s_CG[jobs.class_J, gang - 1]
    chance_J, below_J = np.ones(len(jobs)), np.ones(len(jobs), dtype=bool)
    while True:
        left = count - int((~below_J).sum())
        chance_J[below_J] = left * size_J[below_J] / size_J[below_J].sum()
        over_J = below_J & (chance_J > 1.0)
        if not over_J.any():
            break
        chance_J[over_J], below_J = 1.0, below_J & ~over_J
    order = np.lexsort((jobs.arrival_s_J, jobs.origin_J))
    until_J = np.cumsum(chance_J[order]) + rng.random()
    hit_J = np.floor(until_J) > np.floor(until_J - chance_J[order])
    taken = np.sort(order[hit_J | (chance_J[order] == 1.0)])
    return taken, 1.0 / chance_J[taken]


def _with_jobs(environment: Environment, rows: I8 | slice) -> Environment:
    """Returns an environment of some of the jobs; what the bound does not read of them is left out."""
    jobs = environment.jobs
    some = Jobs(**{each.name: getattr(jobs, each.name)[rows] for each in fields(Jobs)})
    return replace(
        environment,
        jobs=some,
        knowledge=None,
        details=None,
        tenants=None,
        tenant_J=None,
        priorities=None,
        priority_J=None,
        sample_jobs=None,
        events=(),
    )


def _in_parts(
    environment: Environment, tables: FleetTables, costs: Market, jobs: int
) -> Iterator[tuple[Environment, Options]]:
    """Yields the environment's jobs by arrival, some at a time, with what they may become."""
    for first in range(0, len(environment.jobs), jobs):
        part = _with_jobs(environment, slice(first, first + jobs))
        yield part, build_options(part, tables, costs)


def _weighted(columns: Columns, weight_J: F8) -> Columns:
    """Returns columns that are worth, and take, what all the jobs take that theirs stands for."""
    weight_K = np.repeat(weight_J, np.diff(columns.first_J))
    return replace(columns, value_K=columns.value_K * weight_K, gpus_K=columns.gpus_K * weight_K)


def _longest_s_S(jobs: Jobs, tables: FleetTables) -> F8:
    """Returns what no run of any job exceeds at each site, s."""
    slowest_SC = np.nanmax(tables.seconds_per_unit_SCGF[:, :, 1:], axis=(2, 3))
    work_C = np.zeros(slowest_SC.shape[1])
    np.maximum.at(work_C, jobs.class_J, jobs.work_J)
    return np.asarray((slowest_SC * work_C).max(axis=1))


@dataclass
class _Listing:
    """Schedules under way, in several orders: jobs are booked as they come, beside those booked before.

    Attributes:
        tables: Tables of the fleet.
        costs: Prices and intensities.
        price_SH: Capacity prices.
        free_VST: Free GPUs per way of listing, site and slot instant.
        value_usd: Value of each schedule so far, USD.
    """

    tables: FleetTables
    costs: Market
    price_SH: F8
    free_VST: list[I4]
    value_usd: list[float]

    @classmethod
    def of(cls, environment: Environment, tables: FleetTables, costs: Market, price_SH: F8) -> _Listing:
        """Returns schedules of no job."""
        slots = int(np.ceil(costs.carbon_SH.shape[1] * HOUR_S / environment.slot_s)) + 2
        free_ST = free_gpus(environment, tables, slots)
        ways = 2 * len(PRICE_SCALES)
        return cls(tables, costs, price_SH, [free_ST.copy() for _ in range(ways)], [0.0] * ways)

    def add(self, part: Environment, options: Options, priced_usd_J: F8, rng: np.random.Generator) -> None:
        """Books some jobs: by value per GPU-hour and by arrival, at each of ``PRICE_SCALES``."""
        table = slot_options(part, self.tables, self.costs, options)
        count = len(part.jobs)
        gpu_hours_J = least_gpu_hours(options, count)
        known = guide(table, part, self.price_SH, priced_usd_J, gpu_hours_J)
        orders = np.argsort(-priced_usd_J / gpu_hours_J, kind="stable"), np.arange(count)
        any_J = np.full(count, -1, dtype=np.int64)
        ways = ((order_J, scale) for order_J in orders for scale in PRICE_SCALES)
        for way, (order_J, scale) in enumerate(ways):
            books = Bookings.empty(self.free_VST[way], count)
            for factor in (scale, 0.0):
                book_listed(table, known, factor, order_J, any_J, rng, books)
            self.free_VST[way] = books.free_ST
            self.value_usd[way] += float(books.value_J.sum())

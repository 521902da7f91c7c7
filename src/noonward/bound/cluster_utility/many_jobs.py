"""The utility bound of very many jobs: prices found with few that stand for all, then paid by every single one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
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
from noonward.bound.cluster_utility.likely_starts import Gathered, likely_columns
from noonward.bound.cluster_utility.many_jobs_schedule import ManyJobsSchedule, with_jobs
from noonward.bound.cluster_utility.merged_sites import fleet_parts, merged_sites
from noonward.bound.cluster_utility.prices import STEP_USD, descend_with_momentum, never
from noonward.bound.cluster_utility.primal import least_gpu_hours
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.jobs import Jobs
from noonward.seeding import stream
from noonward.units import HOUR_S

PER_SITE_HOUR: Final = 3
"""Jobs that stand for all in the first search for prices, per site and hour of the window, unless said otherwise."""
FIRST_STARTS: Final = 20_000_000
"""Candidate starts of the first search, at most, were its jobs like all: some 120 bytes each."""
MOST_OVER: Final = 1.25
"""Times so many that its jobs may have, before fewer are drawn."""
MOST_STARTS: Final = 30_000_000
"""Likely starts of the searches after it, at most, about: 72 bytes each."""
STARTS_AT_ONCE: Final = 2_000_000
"""Candidate starts that are listed at once; memory grows with it, and the result hardly depends on it."""
LOOKED_AT: Final = 128
"""Jobs whose candidate starts are counted, so that those of all are known about."""
EXACT_SITES: Final = 64
"""Sites up to which each has prices of its own, unless said otherwise; beyond, those of one kind are merged."""
ROUNDS: Final = 120
"""Steps of a search for prices."""
STEP_SHARE: Final = 0.14
"""First step of the first search, as a share of the revenue per GPU-hour."""
REFINING: Final = (0.15, 0.05)
"""First steps of the searches after it, as shares of that of the first."""
LIKELY: Final = 24
"""Starts of a job that these consider: those of most value at the prices found before."""


@dataclass(frozen=True, kw_only=True)
class ManyJobsBound:
    """What no scheduler can exceed in an environment of very many jobs.

    Attributes:
        upper_usd: As ``UtilityBound.upper_usd``.
        idle_usd: As there.
        lower_usd: Utility of a schedule that was found, USD; NaN where none was looked for.
        price_usd_per_gpu_hour_SH: Capacity prices that give the bound; where sites were merged, by kind of sites.
        jobs: Jobs on which they were found in the end.
        cut: Whether time ran out before the searches for prices and a schedule were over.
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
    over ingress points and time. Then they are refined, twice, with all jobs (or with as many as memory allows), but
    with only those starts of each that are likely at the prices found before. At the prices found last every job of
    the environment takes the best of all its starts, some jobs at a time. The result is a bound without any error of
    sampling, and is looser than ``utility_bound`` by what the prices lack.

    Of a fleet of more than ``exact_sites``, sites of one kind are merged (``merged_sites``): that is a bound too. The
    schedule beside it is one of every part of the fleet for itself (``fleet_parts``): no job leaves its part.

    Args:
        environment: As ``Relaxation`` takes it.
        jobs: Jobs that stand for all in the first search, at least 1; None: ``PER_SITE_HOUR``, within
            ``FIRST_STARTS``.
        rounds: Steps of each of the searches for prices, at least 2.
        schedule: Whether to look for a schedule (``many_jobs_schedule``), for ``each-slot`` without hard capacity
            curves.
        exact_sites: Sites up to which each has prices of its own, at least 1.
        seed: Seed of the draw.
        late: Whether the searches for prices and for a schedule must end; asked after every step.

    Raises:
        ScenarioError: As ``utility_bound``.
    """
    if (jobs is not None and jobs < 1) or rounds < 2:
        raise ScenarioError(f"jobs {jobs} and rounds {rounds} were asked of a bound; they must be at least 1 and 2")
    require_bounded(environment)
    if exact_sites < 1:
        raise ScenarioError(f"exact_sites {exact_sites} were asked of a bound; it must be at least 1")
    whole, kind_S = environment, np.arange(len(environment.sites))
    if len(kind_S) > exact_sites:
        environment, kind_S = merged_sites(environment)
    sites = len(environment.sites)
    tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
    costs = market(environment, tables)
    starts = _starts_per_job(environment, tables, costs)
    at_once = max(1, int(STARTS_AT_ONCE / starts))
    generator = stream(seed, "policy", "many-jobs-bound")
    usual = min(PER_SITE_HOUR * sites * math.ceil(environment.window_s / HOUR_S), max(1, int(FIRST_STARTS / starts)))
    capacity_SH = capacity(environment, tables, _longest_s_S(environment.jobs, tables), costs.carbon_SH.shape[1])
    base_usd = costs.idle_usd + costs.run_on_usd
    priced = _Priced(environment, tables, costs, capacity_SH, base_usd, at_once)
    step_usd = STEP_SHARE * costs.revenue_usd_per_gpu_hour or STEP_USD
    taken, weight_J = standing_for_all(environment.jobs, tables, usual if jobs is None else jobs, generator)
    few = with_jobs(environment, taken)
    listed = len(taken) * _starts_per_job(few, tables, costs)
    if jobs is None and listed > MOST_OVER * FIRST_STARTS:  # large jobs are taken more often, and have more starts
        usual = max(1, int(len(taken) * FIRST_STARTS / listed))
        taken, weight_J = standing_for_all(environment.jobs, tables, usual, generator)
        few = with_jobs(environment, taken)
    columns = _weighted(build_columns(few, build_options(few, tables, costs), costs), weight_J)
    _, price_SH = descend_with_momentum(Dual(columns, capacity_SH, base_usd), rounds, step_usd, late=late)
    counted, weight_J = standing_for_all(environment.jobs, tables, MOST_STARTS // LIKELY, generator)
    known: list[tuple[float, F8]] = []
    for share in REFINING:
        if late():
            break
        columns, value_usd = priced.likely(price_SH, counted, weight_J)
        known.append((value_usd, price_SH))
        dual = Dual(columns, capacity_SH, base_usd)
        _, price_SH = descend_with_momentum(dual, rounds, share * step_usd, price_SH, late)
        del columns, dual
    upper_usd, priced_usd_J, gpu_hours_J = priced.all(price_SH)
    for value_usd, other_SH in known:
        if value_usd < upper_usd:  # what was likely did not do
            again = priced.all(other_SH)
            if again[0] < upper_usd:
                (upper_usd, priced_usd_J, gpu_hours_J), price_SH = again, other_SH
    lower_usd = math.nan
    hard_caps = whole.caps is not None and whole.caps.hard
    if schedule and whole.protocol == "each-slot" and not hard_caps:
        lower_usd = costs.idle_usd
        for part, sites_P, rows in _parts(whole, None if whole is environment else kind_S, exact_sites):
            price_of_part_SH = price_SH[kind_S[sites_P]]
            lower_usd += _found_usd(part, price_of_part_SH, priced_usd_J[rows], gpu_hours_J[rows], generator, late)
    return ManyJobsBound(
        upper_usd=upper_usd,
        idle_usd=costs.idle_usd,
        lower_usd=lower_usd,
        price_usd_per_gpu_hour_SH=price_SH,
        jobs=len(counted),
        cut=late(),
    )


def _parts(environment: Environment, kind_S: I8 | None, most: int) -> Iterator[tuple[Environment, I8, I8]]:
    """Yields what is scheduled for itself: (environment, its sites, the rows of its jobs); without kinds, all."""
    if kind_S is None:
        yield environment, np.arange(len(environment.sites)), np.arange(len(environment.jobs))
    else:
        yield from fleet_parts(environment, kind_S, most)


def _found_usd(
    environment: Environment,
    price_SH: F8,
    priced_usd_J: F8,
    gpu_hours_J: F8,
    generator: np.random.Generator,
    late: Callable[[], bool],
) -> float:
    """Returns what the jobs of a schedule that was looked for add to the utility of an idle fleet, USD.

    Arguments as ``ManyJobsSchedule`` takes them.
    """
    tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
    costs = market(environment, tables)
    at_once = max(1, int(STARTS_AT_ONCE / _starts_per_job(environment, tables, costs)))
    found = ManyJobsSchedule(environment, tables, costs, price_SH, priced_usd_J, gpu_hours_J, generator)
    found.book(at_once)
    found.search(at_once, late)
    return found.value_usd


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
    some = with_jobs(environment, rows)
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


@dataclass(frozen=True)
class _Priced:
    """Jobs at capacity prices, some at a time.

    Attributes:
        environment: Environment.
        tables: Tables of the fleet.
        costs: Prices and intensities.
        capacity_SH: GPUs that jobs take at most.
        base_usd: What the dual function adds to jobs and capacity, USD.
        at_once: Jobs that are priced at once.
    """

    environment: Environment
    tables: FleetTables
    costs: Market
    capacity_SH: F8
    base_usd: float
    at_once: int

    def _parts(self, rows: I8) -> Iterator[tuple[Options, Columns, slice]]:
        for first in range(0, len(rows), self.at_once):
            part = slice(first, min(first + self.at_once, len(rows)))
            some = with_jobs(self.environment, rows[part])
            options = build_options(some, self.tables, self.costs)
            yield options, build_columns(some, options, self.costs), part

    def all(self, price_SH: F8) -> tuple[float, F8, F8]:
        """Returns (D in USD, the jobs' best values after capacity prices in USD, their least GPU-hours)."""
        jobs = len(self.environment.jobs)
        priced_usd_J, gpu_hours_J = np.empty(jobs), np.empty(jobs)
        for options, columns, part in self._parts(np.arange(jobs)):
            priced_usd_J[part] = Dual(columns, self.capacity_SH, 0.0).priced_usd_J(price_SH)
            gpu_hours_J[part] = least_gpu_hours(options, part.stop - part.start)
        return self._dual_usd(price_SH, priced_usd_J), priced_usd_J, gpu_hours_J

    def likely(self, price_SH: F8, rows: I8, weight_J: F8) -> tuple[Columns, float]:
        """Returns the likely starts of some jobs, each of which stands for several, and D as they say it, USD."""
        likely, priced_usd_J = Gathered(len(rows), 2 * LIKELY * len(rows)), np.empty(len(rows))
        for _, columns, part in self._parts(rows):
            dual = Dual(columns, self.capacity_SH, 0.0)
            priced_usd_J[part] = dual.priced_usd_J(price_SH)
            likely.add(_weighted(likely_columns(dual, LIKELY), weight_J[part]))
        return likely.columns(), self._dual_usd(price_SH, weight_J * priced_usd_J)

    def _dual_usd(self, price_SH: F8, priced_usd_J: F8) -> float:
        return self.base_usd + float((self.capacity_SH * price_SH).sum()) + float(priced_usd_J.sum())

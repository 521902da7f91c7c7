"""Capacity prices of very many jobs, refined stretch by stretch of the window, and what all jobs say at prices.

Stretches, and the parts in which jobs are priced, do not depend on how many processes carry them out; nor does the
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

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
)
from noonward.bound.cluster_utility.dual import Dual
from noonward.bound.cluster_utility.likely_starts import Gathered, likely_columns
from noonward.bound.cluster_utility.many_jobs_schedule import with_jobs
from noonward.bound.cluster_utility.pieces import MapPieces, cut
from noonward.bound.cluster_utility.prices import descend_with_momentum, never, piece
from noonward.bound.cluster_utility.primal import least_gpu_hours
from noonward.bound.cluster_utility.standing_for_all import Draws
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.seeding import stream
from noonward.units import HOUR_S

DAY_H: Final = 24
"""Hours of which stretches are made."""
MOST_DAYS: Final = 4
"""Days of a stretch, at most; where memory allows for all jobs of fewer, it has fewer, and at least one."""
MARGIN_H: Final = 12
"""Hours before and after it whose prices are searched with it, and then dropped: they belong to its neighbors."""
LIKELY: Final = 128
"""Starts of a job that a stretch considers: those of most value at the prices found before."""
STRETCH_STARTS: Final = 32_000_000
"""Likely starts of a stretch, at most, about: 72 bytes each."""
STARTS_AT_ONCE: Final = 2_000_000
"""Candidate starts that are listed at once; memory grows with it, and the result hardly depends on it."""
PRICED_TOGETHER: Final = 16
"""Times so many are priced by one piece of work."""
LOOKED_AT: Final = 128
"""Jobs whose candidate starts are counted, so that those of all are known about."""


def starts_per_job(environment: Environment, tables: FleetTables, costs: Market, most: float = math.inf) -> float:
    """Returns a job's candidate starts, counted up to ``most``: mean over jobs at even distances, at least 1."""
    rows = np.unique(np.linspace(0, len(environment.jobs) - 1, LOOKED_AT).astype(np.int64))
    some = with_jobs(environment, rows)
    starts_J = np.diff(build_columns(some, build_options(some, tables, costs), costs).first_J)
    return max(1.0, float(np.minimum(starts_J, most).mean()))


@dataclass(frozen=True)
class Listing:
    """Jobs whose candidate starts are listed, some jobs at a time.

    Attributes:
        environment: Environment.
        tables: Tables of the fleet.
        costs: Prices and intensities.
        capacity_SH: GPUs that jobs take at most.
        at_once: Jobs that are listed at once.
    """

    environment: Environment
    tables: FleetTables
    costs: Market
    capacity_SH: F8
    at_once: int

    @classmethod
    def of(cls, environment: Environment) -> Listing:
        """Returns the jobs of an environment that can be bounded."""
        tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
        costs = market(environment, tables)
        slowest_SC = np.nanmax(tables.seconds_per_unit_SCGF[:, :, 1:], axis=(2, 3))
        work_C = np.zeros(slowest_SC.shape[1])
        np.maximum.at(work_C, environment.jobs.class_J, environment.jobs.work_J)
        longest_s_S = np.asarray((slowest_SC * work_C).max(axis=1))
        capacity_SH = capacity(environment, tables, longest_s_S, costs.carbon_SH.shape[1])
        at_once = max(1, int(STARTS_AT_ONCE / starts_per_job(environment, tables, costs)))
        return cls(environment, tables, costs, capacity_SH, at_once)

    def starts(self, most: float = math.inf) -> float:
        """Returns about how many candidate starts the jobs have, at most ``most`` of each counted."""
        return len(self.environment.jobs) * starts_per_job(self.environment, self.tables, self.costs, most)

    @property
    def base_usd(self) -> float:
        """What the dual function adds to jobs and capacity, USD."""
        return self.costs.idle_usd + self.costs.run_on_usd

    def some(self, rows: I8 | slice) -> Listing:
        """Returns some of the jobs; nothing of the others goes with them."""
        taken = np.arange(len(self.environment.jobs))[rows] if isinstance(rows, slice) else rows
        return replace(self, environment=with_jobs(self.environment, taken))

    def hours(self) -> tuple[I8, I8]:
        """Returns the hour in which every job arrives, and the one after the last in which it can run."""
        jobs, hours = self.environment.jobs, self.capacity_SH.shape[1]
        last_s_J = np.maximum(self.environment.deadline_s_J, self.environment.late_until_s)
        end_h_J = (last_s_J + jobs.work_J * self.tables.slowest_s_C[jobs.class_J]) / HOUR_S
        return (jobs.arrival_s_J / HOUR_S).astype(np.int32), np.minimum(end_h_J + 1.0, hours).astype(np.int32)

    def dual(self, rows: I8, weight_J: F8) -> Dual:
        """Returns the dual function of some of the jobs, with all their starts, each of which stands for so many."""
        few = self.some(rows)
        options = build_options(few.environment, few.tables, few.costs)
        columns = weighted(build_columns(few.environment, options, few.costs), weight_J)
        return Dual(columns, self.capacity_SH, self.base_usd)

    def parts(self) -> Iterator[tuple[Options, Columns, slice]]:
        """Yields options and candidate starts of some jobs after others, and which jobs these are."""
        jobs = len(self.environment.jobs)
        for first in range(0, jobs, self.at_once):
            part = slice(first, min(first + self.at_once, jobs))
            some = with_jobs(self.environment, np.arange(part.start, part.stop))
            options = build_options(some, self.tables, self.costs)
            yield options, build_columns(some, options, self.costs), part

    def dual_usd(self, price_SH: F8, priced_usd: float) -> float:
        """Returns D at capacity prices, given the sum of the jobs' best values after them, USD."""
        return self.base_usd + float((self.capacity_SH * price_SH).sum()) + priced_usd


@dataclass(frozen=True)
class Pricing:
    """A piece of work: some jobs at capacity prices, each with all its starts.

    Attributes:
        jobs: Jobs.
        rows: Which of them.
        price_SH: Capacity prices, USD per GPU-hour.
    """

    jobs: Listing
    rows: slice
    price_SH: F8

    @property
    def label(self) -> str:
        """Which jobs."""
        return f"prices of jobs {self.rows.start:,} to {self.rows.stop - 1:,}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Takes along no other jobs."""
        return Pricing, (self.jobs.some(self.rows), slice(0, self.rows.stop - self.rows.start), self.price_SH)

    def found(self) -> tuple[F8, F8]:
        """Returns the jobs' best values after capacity prices, USD, and their least GPU-hours."""
        count = self.rows.stop - self.rows.start
        priced_usd_J, gpu_hours_J = np.empty(count), np.empty(count)
        for options, columns, part in self.jobs.some(self.rows).parts():
            priced_usd_J[part] = Dual(columns, self.jobs.capacity_SH, 0.0).priced_usd_J(self.price_SH)
            gpu_hours_J[part] = least_gpu_hours(options, part.stop - part.start)
        return priced_usd_J, gpu_hours_J


def priced(jobs: Listing, price_SH: F8, map_pieces: MapPieces) -> tuple[float, F8, F8]:
    """Returns D in USD, the jobs' best values after capacity prices in USD, and their least GPU-hours."""
    step, count = PRICED_TOGETHER * jobs.at_once, len(jobs.environment.jobs)
    pieces = [Pricing(jobs, slice(n, min(n + step, count)), price_SH) for n in range(0, count, step)]
    found = map_pieces(pieces)
    priced_usd_J, gpu_hours_J = (np.concatenate([each[n] for each in found]) for n in range(2))
    return jobs.dual_usd(price_SH, float(priced_usd_J.sum())), priced_usd_J, gpu_hours_J


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A piece of work: the prices of a stretch of hours, those before and after it as they were.

    Attributes:
        jobs: Jobs; those that cannot run in the stretch or its margins do not matter.
        price_SH: Capacity prices of all hours before the search, USD per GPU-hour.
        first_h: First hour of the stretch.
        until_h: Hour after its last.
        rounds: Steps of the search.
        step_usd: Its first step, USD.
        seed: Seed of the draw of jobs.
        late: Whether the search must end.
    """

    jobs: Listing
    price_SH: F8
    first_h: int
    until_h: int
    rounds: int
    step_usd: float
    seed: int
    late: Callable[[], bool] = never

    @property
    def label(self) -> str:
        """Which hours."""
        return f"prices of hours {self.first_h} to {self.until_h - 1}"

    @property
    def searched(self) -> tuple[int, int]:
        """First hour whose price is searched, and the one after the last: the stretch and its margins."""
        return max(0, self.first_h - MARGIN_H), min(self.price_SH.shape[1], self.until_h + MARGIN_H)

    def __getstate__(self) -> dict[str, Any]:
        """Takes along no jobs but those that matter."""
        touching = self.touching()
        return self.__dict__ | {"jobs": self.jobs.some(np.arange(1)) if touching is None else touching}

    def touching(self) -> Listing | None:
        """Returns the jobs that may run in the stretch or its margins; None without any."""
        low, high = self.searched
        from_h_J, to_h_J = self.jobs.hours()
        rows = np.flatnonzero((from_h_J < high) & (to_h_J > low))
        return self.jobs.some(rows) if len(rows) else None

    def found(self) -> tuple[F8, int]:
        """Searches for prices of the stretch with the likely starts of its jobs, or of some that stand for all.

        Returns:
            (prices, how many of the jobs that arrive in the stretch the search considered).
        """
        price_SX = self.price_SH[:, self.first_h : self.until_h]
        touching, generator = self.touching(), stream(self.seed, "policy", "stretch", self.first_h)
        if touching is None:
            return price_SX, 0
        jobs = touching.environment.jobs
        held = max(1, int(STRETCH_STARTS / touching.starts(LIKELY) * len(jobs)))
        few, weight_J = Draws(jobs, touching.tables, held, 1, generator).next()
        counted = touching.some(few)
        arrival_h_J = counted.hours()[0]
        low, high = self.searched
        gathered = Gathered(len(few), 2 * min(STRETCH_STARTS, LIKELY * len(few)))
        for _, columns, part in counted.parts():
            dual = Dual(columns, self.jobs.capacity_SH, 0.0)
            dual.value(self.price_SH)
            likely = Dual(weighted(likely_columns(dual, LIKELY), weight_J[part]), self.jobs.capacity_SH, 0.0)
            within = piece(likely, self.price_SH, low, high)
            if within is not None:
                gathered.add(within[0].columns)
        dual = Dual(gathered.columns(), self.jobs.capacity_SH[:, low:high], 0.0)
        if len(dual.best_J):
            begin_SX = np.ascontiguousarray(self.price_SH[:, low:high])
            _, found_SX = descend_with_momentum(dual, self.rounds, self.step_usd, begin_SX, self.late)
            price_SX = found_SX[:, self.first_h - low : self.until_h - low]
        return price_SX, int(((arrival_h_J >= self.first_h) & (arrival_h_J < self.until_h)).sum())


def days_of_stretch(jobs: Listing) -> int:
    """Returns the days of a stretch: as many as ``STRETCH_STARTS`` allows for, its margins included."""
    hours = max(1.0, jobs.environment.window_s / HOUR_S)
    held_h = STRETCH_STARTS / jobs.starts(LIKELY) * hours
    return min(max(1, int((held_h - 2 * MARGIN_H) / DAY_H)), MOST_DAYS)


def refined(
    jobs: Listing,
    price_SH: F8,
    *,
    rounds: int,
    step_usd: float,
    seed: int,
    map_pieces: MapPieces,
    late: Callable[[], bool] = never,
) -> tuple[F8, int]:
    """Refines prices in all stretches of the window, each beside the prices before of the others.

    Args:
        jobs: Jobs.
        price_SH: Prices to begin at, USD per GPU-hour.
        rounds: Steps of every search.
        step_usd: First step, USD.
        seed: Seed of the draws.
        map_pieces: Carries out the searches.
        late: Whether they must end.

    Returns:
        (prices, how many jobs the searches considered).
    """
    pieces = [
        Stretch(
            jobs=jobs, price_SH=price_SH, first_h=first_h, until_h=until_h, rounds=rounds, step_usd=step_usd,
            seed=seed, late=late,
        )
        for first_h, until_h in cut(price_SH.shape[1], DAY_H * days_of_stretch(jobs), shifted=False)
    ]  # fmt: skip
    found = map_pieces(pieces)
    return np.concatenate([price_SX for price_SX, _ in found], axis=1), sum(held for _, held in found)


def weighted(columns: Columns, weight_J: F8) -> Columns:
    """Returns columns that are worth, and take, what all the jobs take that theirs stands for."""
    weight_K = np.repeat(weight_J, np.diff(columns.first_J))
    return replace(columns, value_K=columns.value_K * weight_K, gpus_K=columns.gpus_K * weight_K)

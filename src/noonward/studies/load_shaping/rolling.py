"""Whether plans keep their promise from day to day: rolling days of every source, at several promises."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from noonward.arrays import F8
from noonward.data.jobs.load_shapes import LoadProfiles, draw_days, generate_load_shapes, load_shape_constants
from noonward.errors import DataError, InfeasiblePlanError
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.schedule.plan.baselines import perfect_forecast
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.promise import SAMPLES, PromisePlanner
from noonward.schedule.plan.result import Plan
from noonward.schedule.plan.solve import Planner
from noonward.seeding import stream
from noonward.studies.load_shaping.reproduce import class_count, open_profiles, paper_problem

PROMISES: Final = (0.6, 0.8, 0.95)
"""Shares of days promised."""
DAYS: Final = 100
"""Rolling days of a source that has enough."""
RADII: Final = (5e-2,)
"""Radii of the plans beside it, the larger one of Table II: no margin, one radius for all days."""
SMALLEST_HISTORY: Final = 0.4
"""Share of a short source's days that come before the first planned day."""
TURNS: Final = 1
"""Runs of a source of several clusters, each with another cluster for every class."""
GENERATED, DRIFTING, MIXED = "generated", "drifting", "all"
"""Sources beside those of a file: the generator, the generator with drift, and all of a file's days in random order."""
WEEKEND: Final = 0.8
"""Level of a drifting day at the weekend."""
MEMORY: Final = 0.8
"""Correlation of a drifting day's level with the day before."""
WANDER: Final = 0.06
"""Standard deviation of that level."""
TREND: Final = 1e-3
"""Growth of the drifting level in a day."""
FITS: Final = 1e-9
"""Excess up to which a day fits."""


def drifting_days(days: int, classes: int, rng: np.random.Generator) -> F8:
    """Returns generated days (N, 24, C) with weekends, a level that wanders from day to day, and growth.

    The level has mean 1 over the week, is the same for all classes, and is an AR(1) process around its growth.
    """
    load_NKC = generate_load_shapes(days, classes, rng)
    wander_N = np.empty(days)
    value = 0.0
    for day, noise in enumerate(rng.normal(size=days)):
        value = MEMORY * value + np.sqrt(1 - MEMORY**2) * WANDER * noise
        wander_N[day] = value
    day_N = np.arange(days)
    week_N = np.where(day_N % 7 >= 5, WEEKEND, 1.0) * 7 / (5 + 2 * WEEKEND)
    level_N = week_N * (1.0 + wander_N + TREND * (day_N - days / 2))
    return load_NKC * np.maximum(level_N, 0.0)[:, None, None]


def days_in_order(pool: LoadProfiles, source: str, classes: int, level: float, turn: int = 0) -> F8:
    """Returns a source's days in their order, (N, 24, C), scaled to a mean load.

    Each class takes a cluster of the source; clusters that serve several classes do so with days shifted against each
    other. A source with one cluster is cut: each class begins where the class before it is a part of the days further.

    Args:
        pool: Profiles.
        source: Source.
        classes: Classes C.
        level: Mean load of a class.
        turn: Clusters by which the assignment is turned.

    Raises:
        DataError: The source is unknown, or its clusters have no days in common.
    """
    mine = pool.of_sources([source])
    names = sorted(set(mine.cluster_P))
    by_cluster: dict[str, dict[int, F8]] = {name: {} for name in names}
    for p, load_K in enumerate(mine.load_PK):
        by_cluster[mine.cluster_P[p]][mine.day_P[p]] = load_K
    common = sorted(set.intersection(*(set(days) for days in by_cluster.values())))
    if not common:
        raise DataError(f"the clusters of source {source!r} have no day in common; give profiles of the same days")
    series = [np.stack([by_cluster[name][day] for day in common]) for name in names]
    if len(series) == 1:
        shift = len(common) // (2 * (classes + 1))
        length = len(common) - shift * (classes - 1)
        load_NKC = np.stack([series[0][c * shift : c * shift + length] for c in range(classes)], axis=2)
    else:
        rounds = -(-classes // len(series))
        columns = [
            np.roll(series[(c + turn) % len(series)], -(c // len(series)) * (len(common) // rounds), axis=0)
            for c in range(classes)
        ]
        load_NKC = np.stack(columns, axis=2)
    scaled: F8 = load_NKC * (level / load_NKC.mean())
    return scaled


def chance_range(days: int, promise: float, share: float = 0.95) -> tuple[float, float]:
    """Returns the range of held shares that days which hold independently, each as promised, show in 95 % of cases.

    The quantiles of the binomial law at (1 - share) / 2 and (1 + share) / 2, over the number of days.

    Args:
        days: Rolling days, at least 1.
        promise: Probability that a day holds.
        share: Share of cases.

    Example:
        >>> chance_range(16, 0.8)
        (0.5625, 1.0)
    """
    chance_N = [math.comb(days, n) * promise**n * (1.0 - promise) ** (days - n) for n in range(days + 1)]
    total_N = np.cumsum(chance_N)
    tail = (1.0 - share) / 2
    low, high = (int(np.searchsorted(total_N, level)) for level in (tail, 1.0 - tail))
    return low / days, high / days


@dataclass(kw_only=True)
class RollingDays:
    """What plans did on the days of one source that they were made for, day after day.

    Attributes:
        source: Source.
        plan: Which plan: ``promise-P``, ``promise-P/days`` and ``promise-P/forecast`` (one predictor alone), ``eps-E``.
        promise: Share of days promised.
        held: Per day, whether the load stayed within the curve everywhere.
        load_cost: Per day, cost f of the load that ran, above the perfect forecast's, fraction.
        reserve: Per day, cost f of the curve, above the perfect forecast's, fraction.
        failed: Days on which the samples did not fit the machines, left out of the rest.
    """

    source: str
    plan: str
    promise: float
    held: list[bool] = field(default_factory=list)
    load_cost: list[float] = field(default_factory=list)
    reserve: list[float] = field(default_factory=list)
    failed: int = 0

    def count(self, problem: PlanProblem, plan: Plan, load_KC: F8, best: float) -> None:
        """Adds a finished day."""
        self.held.append(bool(plan.excess(load_KC) <= FITS))
        self.load_cost.append(problem.cost_of(plan.fractions.load(load_KC)) / best - 1)
        self.reserve.append(problem.cost_of(plan.curve_TD) / best - 1)


@dataclass(frozen=True)
class RollingRun:
    """A spec: one source's days, planned one after the other, at one promise or one radius.

    Attributes:
        source: ``generated``, ``drifting``, ``all``, or a source of the file.
        turn: Number of the run of this source.
        promise: Share of days promised; None for plans with a radius.
        eps: Radius; None for plans with a promise.
        seed: Seed of drawn days.
        profiles: File of daily load profiles, or None.
        days: Rolling days at most.
        samples: Past days that a plan is made from.
    """

    source: str
    turn: int
    promise: float | None
    eps: float | None
    seed: int
    profiles: Path | None
    days: int
    samples: int

    portable: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """Which run."""
        what = f"promise {self.promise:g}" if self.promise is not None else f"eps {self.eps:g}"
        return f"{self.source}, run {self.turn}, {what}"

    @property
    def group(self) -> Hashable:
        """Runs share nothing that is costly."""
        return self.label

    def run(self) -> list[RollingDays]:
        """Returns what the plans did."""
        load_NKC = self._load()
        first = min(self.samples, max(2, round(SMALLEST_HISTORY * len(load_NKC))))
        last = min(len(load_NKC), first + self.days)
        if self.promise is None:
            return [self._with_radius(load_NKC, range(first, last))]
        return self._with_promise(load_NKC, range(first, last))

    def keep(self, found: list[RollingDays]) -> list[RollingDays]:
        """Returns the results: nothing is written."""
        return found

    def _load(self) -> F8:
        c = load_shape_constants()
        classes, days = class_count(), self.samples + self.days
        rng = stream(self.seed, "workload", "load-shaping", "rolling", self.source, self.turn)
        if self.source == GENERATED:
            return generate_load_shapes(days, classes, rng)
        if self.source == DRIFTING:
            return drifting_days(days, classes, rng)
        pool = open_profiles(self.profiles or Path(), ())
        if self.source == MIXED:
            return np.concatenate(draw_days(pool, self.samples, self.days, classes, rng, c.class_level))
        return days_in_order(pool, self.source, classes, c.class_level, self.turn)

    def _with_radius(self, load_NKC: F8, days: range) -> RollingDays:
        assert self.eps is not None
        out = RollingDays(source=self.source, plan=f"eps-{self.eps:g}", promise=0.8)
        planner = Planner()
        for day in days:
            problem = paper_problem(load_NKC[max(0, day - self.samples) : day], eps=self.eps)
            try:
                plan = planner.plan(problem)
            except InfeasiblePlanError:
                out.failed += 1
                continue
            out.count(problem, plan, load_NKC[day], perfect_forecast(problem, load_NKC[day]).objective)
        return out

    def _with_promise(self, load_NKC: F8, days: range) -> list[RollingDays]:
        assert self.promise is not None
        planner = PromisePlanner(self.promise, samples=self.samples)
        name = f"promise-{self.promise:g}"
        names = [name, *(f"{name}/{one}" for one in planner.predictors)]
        out = [RollingDays(source=self.source, plan=one, promise=self.promise) for one in names]
        for day in days:
            problem = paper_problem(load_NKC[max(0, day - self.samples) : day], eps=0.0)
            plan = planner.plan(problem, load_NKC[:day])
            best = perfect_forecast(problem, load_NKC[day]).objective
            out[0].count(problem, plan, load_NKC[day], best)
            for each, track in zip(out[1:], planner.tracks, strict=True):
                assert track.plan is not None
                each.count(problem, track.plan, load_NKC[day], best)
            planner.finish(load_NKC[day])
        return out


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Results of all sources and plans.

    Attributes:
        found: By source and plan, runs pooled.
    """

    found: dict[tuple[str, str], RollingDays]

    @property
    def sources(self) -> list[str]:
        """Sources, in order."""
        return list(dict.fromkeys(source for source, _ in self.found))

    @property
    def plans(self) -> list[str]:
        """Plans, in order."""
        return list(dict.fromkeys(plan for _, plan in self.found))

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``: ``PLAN/held_share@SOURCE`` and the two costs above the perfect plan."""
        out = []
        for (source, plan), days in self.found.items():
            name = plan.replace("promise-", "promise/", 1)
            held = mean([float(held) for held in days.held]).within(0.0, 1.0)
            out += [
                Metric.of(f"{name}/held_share@{source}", held, "fraction", days.promise),
                Metric.of(f"{name}/cost_above_perfect@{source}", mean(days.load_cost), "fraction"),
                Metric.of(f"{name}/reserve_above_perfect@{source}", mean(days.reserve), "fraction"),
                Metric.of(f"{name}/days@{source}", float(len(days.held)), "days"),
            ]
            if days.held:
                low, high = chance_range(len(days.held), days.promise)
                out.append(Metric.of(f"{name}/chance_low@{source}", low, "fraction"))
                out.append(Metric.of(f"{name}/chance_high@{source}", high, "fraction"))
            if days.failed:
                out.append(Metric.of(f"{name}/failed_days@{source}", float(days.failed), "days"))
        return out


def promise_runs(
    profiles: Path | None = None,
    *,
    sources: Sequence[str] = (),
    promises: Sequence[float] = PROMISES,
    seed: int = 0,
    days: int = DAYS,
    samples: int = SAMPLES,
    turns: int = TURNS,
) -> list[RollingRun]:
    """Returns the runs of ``reproduce_promises``.

    Args:
        profiles: File of real daily load profiles (``read_load_profiles``); without it, generated and drifting days.
        sources: Sources to take; by default ``generated``, ``drifting``, and with a file ``all`` and each of its own.
        promises: Shares of days promised.
        seed: Seed of drawn days.
        days: Rolling days of a source at most.
        samples: Past days that a plan is made from.
        turns: Runs of a source of several clusters.

    Raises:
        DataError: The file is not as described, or lacks a source.
        ScenarioError: A promise is out of range.
    """
    clusters = _clusters(profiles)
    known = [GENERATED, DRIFTING, *([MIXED, *clusters] if clusters else [])]
    unknown = [one for one in sources if one not in known]
    if unknown:
        raise DataError(f"there is no source {unknown[0]!r}; there are {', '.join(known)}")
    for promise in promises:
        PromisePlanner(promise)
    plans: list[tuple[float | None, float | None]] = [(promise, None) for promise in promises]
    plans += [(None, eps) for eps in RADII]
    return [
        RollingRun(source, turn, promise, eps, seed, profiles, days, samples)
        for source in (sources or known)
        for turn in range(min(turns, clusters.get(source, 1)))
        for promise, eps in plans
    ]


def reproduce_promises(
    runs: Sequence[RollingRun], *, progress: Progress | None = None, executor: Executor | None = None
) -> Promises:
    """Plans rolling days of every source: each day from the days before it, then measured on the day that came.

    Args:
        runs: Runs, of ``promise_runs``.
        progress: Called once per run.
        executor: Where runs are carried out; by default here, one after the other.

    Raises:
        DataError: The file holds too few profiles.
        InfeasiblePlanError: Past days do not fit the clusters even without a margin.
    """
    found: dict[tuple[str, str], RollingDays] = {}
    for each in map_runs(runs, executor, progress):
        for days_of in each:
            pooled = found.setdefault(
                (days_of.source, days_of.plan),
                RollingDays(source=days_of.source, plan=days_of.plan, promise=days_of.promise),
            )
            for name in ("held", "load_cost", "reserve"):
                getattr(pooled, name).extend(getattr(days_of, name))
            pooled.failed += days_of.failed
    return Promises(found=found)


def _clusters(profiles: Path | None) -> dict[str, int]:
    """Returns the number of clusters of each source of a file."""
    if profiles is None:
        return {}
    pool = open_profiles(profiles, ())
    pairs = set(zip(pool.source_P, pool.cluster_P, strict=True))
    return {source: sum(one == source for one, _ in pairs) for source in sorted(set(pool.source_P))}

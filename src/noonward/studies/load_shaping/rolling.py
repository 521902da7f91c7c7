"""Plans of rolling days: each day of a source is planned from the days before it; stored run by run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.data.jobs.load_shapes import LoadProfiles, draw_days, generate_load_shapes, load_shape_constants
from noonward.errors import DataError, InfeasiblePlanError
from noonward.files import file_name, write_text
from noonward.runtime.executor import PlainSpec
from noonward.runtime.rests_on import installed_digest
from noonward.schedule.plan.baselines import perfect_forecast
from noonward.schedule.plan.one_day import OneDayPlanner
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.promise import PromisePlanner
from noonward.schedule.plan.result import Plan
from noonward.schedule.plan.solve import Planner
from noonward.seeding import stream
from noonward.studies.load_shaping.reproduce import class_count, open_profiles, paper_problem

SMALLEST_HISTORY: Final = 0.4
"""Share of a short source's days that come before the first planned day."""
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


@dataclass(kw_only=True)
class RollingDays:
    """What plans did on the days of one source that they were made for, day after day.

    Attributes:
        source: Source.
        plan: Which plan: ``promise-P``, ``one-day-P`` or ``eps-E``.
        promise: Share of days promised.
        held: Per day, whether the load stayed within the curve everywhere.
        load_cost: Per day, cost f of the load that ran, above the perfect forecast's, fraction.
        reserve: Per day, cost f of the curve, above the perfect forecast's, fraction.
        limited: Days on which the machines held less than the margin asked for.
        failed: Days on which the samples did not fit the machines, left out of the rest.
    """

    source: str
    plan: str
    promise: float
    held: list[bool] = field(default_factory=list)
    load_cost: list[float] = field(default_factory=list)
    reserve: list[float] = field(default_factory=list)
    limited: int = 0
    failed: int = 0

    def count(self, problem: PlanProblem, plan: Plan, load_KC: F8, best: float) -> None:
        """Adds a finished day."""
        self.held.append(bool(plan.excess(load_KC) <= FITS))
        self.load_cost.append(problem.cost_of(plan.fractions.load(load_KC)) / best - 1)
        self.reserve.append(problem.cost_of(plan.curve_TD) / best - 1)


@dataclass(frozen=True, kw_only=True)
class StoredDays:
    """What a ``RollingRun`` found.

    Attributes:
        found: What the plans did.
        of: What it rests on: the run's settings, digests of the sources and of the file of profiles.
        read: Whether it was read back.
    """

    found: RollingDays
    of: dict[str, Any]
    read: bool = False


@dataclass(frozen=True)
class RollingRun(PlainSpec):
    """A spec: one source's days, planned one after the other, at one promise (by either planner) or one radius.

    What was found before is read back from its file, as long as all that it rests on is the same.

    Attributes:
        source: ``generated``, ``drifting``, ``all``, or a source of the file.
        turn: Number of the run of this source.
        promise: Share of days promised; None for plans with a radius.
        eps: Radius; None for plans with a promise.
        seed: Seed of drawn days.
        profiles: File of daily load profiles, or None.
        days: Rolling days at most.
        samples: Past days that a plan is made from.
        folder: Folder of all runs; None: nothing is read back or written.
        one_day: Plan from one predicted day (``OneDayPlanner``), the control of the promise.
    """

    source: str
    turn: int
    promise: float | None
    eps: float | None
    seed: int
    profiles: Path | None
    days: int
    samples: int
    folder: Path | None = None
    one_day: bool = False

    @property
    def method(self) -> str:
        """How days are planned."""
        if self.promise is None:
            return f"eps-{self.eps:g}"
        return f"{'one-day' if self.one_day else 'promise'}-{self.promise:g}"

    @property
    def label(self) -> str:
        """Which run."""
        return f"{self.source}, run {self.turn}, {self.method.replace('-', ' ')}"

    @property
    def place(self) -> Path | None:
        """File of what is found."""
        if self.folder is None:
            return None
        return self.folder / file_name(self.source) / f"run-{self.turn}-{self.method}.json"

    def run(self) -> StoredDays:
        """Returns what the plans did."""
        settings = {name: value for name, value in asdict(self).items() if name not in ("folder", "profiles")}
        of = {**settings, "code": installed_digest(), "profiles": _content_digest(self.profiles)}
        if self.place is not None:
            try:
                content = json.loads(self.place.read_text(encoding="utf-8"))
                if content["of"] == of:
                    return StoredDays(found=RollingDays(**content["found"]), of=of, read=True)
            except (OSError, ValueError, KeyError, TypeError):
                pass  # none there, or one of another form: it is computed again
        load_NKC = self._load()
        first = min(self.samples, max(2, round(SMALLEST_HISTORY * len(load_NKC))))
        days = range(first, min(len(load_NKC), first + self.days))
        planned = self._with_radius if self.promise is None else self._with_promise
        return StoredDays(found=planned(load_NKC, days), of=of)

    def keep(self, found: StoredDays) -> RollingDays:
        """Writes what the plans did, unless it was read back, and returns it."""
        if self.place is not None and not found.read:
            content = {"of": found.of, "found": asdict(found.found)}
            write_text(self.place, json.dumps(content, indent=1) + "\n")
        return found.found

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
        out = RollingDays(source=self.source, plan=self.method, promise=0.8)
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

    def _with_promise(self, load_NKC: F8, days: range) -> RollingDays:
        assert self.promise is not None
        planner = OneDayPlanner(self.promise) if self.one_day else PromisePlanner(self.promise, samples=self.samples)
        out = RollingDays(source=self.source, plan=self.method, promise=self.promise)
        for day in days:
            problem = paper_problem(load_NKC[max(0, day - self.samples) : day], eps=0.0)
            plan = planner.plan(problem, load_NKC[:day])
            out.count(problem, plan, load_NKC[day], perfect_forecast(problem, load_NKC[day]).objective)
            out.limited += planner.limited if isinstance(planner, OneDayPlanner) else planner.chosen.limited
            planner.finish(load_NKC[day])
        return out


def _content_digest(path: Path | None) -> str | None:
    """Returns a digest of a file; None where there is none, or it cannot be read (which ``_load`` reports)."""
    try:
        return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return None

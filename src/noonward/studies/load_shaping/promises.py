"""``reproduce load-shaping --promises``: whether day-ahead plans keep their promise on rolling days."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from noonward.errors import DataError
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean
from noonward.runtime.executor import Executor, Progress, map_runs
from noonward.schedule.plan.promise import SAMPLES, PromisePlanner
from noonward.studies.load_shaping.reproduce import open_profiles
from noonward.studies.load_shaping.rolling import DRIFTING, GENERATED, MIXED, RollingDays, RollingRun

PROMISES: Final = (0.6, 0.8, 0.95)
"""Shares of days promised."""
DAYS: Final = 100
"""Rolling days of a source that has enough."""
RADII: Final = (5e-2,)
"""Radii of the plans beside it, the larger one of Table II: no margin, one radius for all days."""
TURNS: Final = 1
"""Runs of a source of several clusters, each with another cluster for every class."""


def chance_range(days: int, promise: float, share: float = 0.95) -> tuple[float, float]:
    """Returns the range of held shares that days which hold independently, each as promised, show in 95% of cases.

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
            name = plan.replace("promise-", "promise/", 1).replace("one-day-", "one-day/", 1)
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
            if days.limited:
                out.append(Metric.of(f"{name}/limited_days@{source}", float(days.limited), "days"))
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
    folder: Path | None = None,
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
        folder: Folder in which every run is stored as soon as it is done, and from which it is read back; None: none.

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
    plans: list[tuple[float | None, float | None, bool]] = [(promise, None, False) for promise in promises]
    plans += [(promise, None, True) for promise in promises]
    plans += [(None, eps, False) for eps in RADII]
    return [
        RollingRun(source, turn, promise, eps, seed, profiles, days, samples, folder, one_day)
        for source in (sources or known)
        for turn in range(min(turns, clusters.get(source, 1)))
        for promise, eps, one_day in plans
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
    for days_of in map_runs(runs, executor, progress):
        pooled = found.setdefault(
            (days_of.source, days_of.plan),
            RollingDays(source=days_of.source, plan=days_of.plan, promise=days_of.promise),
        )
        for name in ("held", "load_cost", "reserve"):
            getattr(pooled, name).extend(getattr(days_of, name))
        pooled.limited += days_of.limited
        pooled.failed += days_of.failed
    return Promises(found=found)


def _clusters(profiles: Path | None) -> dict[str, int]:
    """Returns the number of clusters of each source of a file."""
    if profiles is None:
        return {}
    pool = open_profiles(profiles, ())
    pairs = set(zip(pool.source_P, pool.cluster_P, strict=True))
    return {source: sum(one == source for one, _ in pairs) for source in sorted(set(pool.source_P))}

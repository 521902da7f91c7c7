"""Our physics under the allocations of a field test: when power was steady, what the jobs ran on, what we compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import highspy
import numpy as np

from noonward.arrays import F8, Bools
from noonward.bound.highs import minimise
from noonward.errors import DataError, InfeasiblePlanError
from noonward.schedule.event.jobs import RunningJob
from noonward.studies.grid_events.read import Caps, Jobs, Power, caps_of, minutes_of

STEADY_SHARE: Final = 0.03
"""Share of the highest power within which power stays around a steady row."""
STEADY_MIN: Final = 2.0
"""Minutes before and after a row over which it is looked at; one row at least."""
SMOOTH_MIN: Final = 5.0
"""Minutes before and after a row over which the median is taken to find the event; one row at least."""
LEAST_DROP: Final = 0.05
"""Least drop of power, as a share, that is taken for an event where the table does not say when it was."""
TOLERATED: Final = 0.1
"""Share by which full power of all jobs may differ from the power before the event."""


@dataclass(frozen=True, kw_only=True)
class FieldTest:
    """A field test, its jobs' GPUs known and its event found.

    Attributes:
        name: Its name in figures.
        jobs: The jobs as they ran before the event; ``least`` and ``weight`` are those of the whole test.
        performance_J: Published mean throughput of each job as a share, NaN where unpublished.
        weighted: Weighted performance as published, or None.
        power: Measured power.
        event_T: Which rows lie in the event.
        steady_T: Which rows lie outside transitions.
        baseline_w: Mean measured power of the steady rows before the event, W.
    """

    name: str
    jobs: tuple[RunningJob, ...]
    performance_J: F8
    weighted: float | None
    power: Power
    event_T: Bools
    steady_T: Bools
    baseline_w: float

    @property
    def cut_T(self) -> F8:
        """Measured cut at each row, as a share of the power before the event; 0 where power was not below it."""
        return np.maximum(0.0, 1 - self.power.total_w_T / self.baseline_w)

    @property
    def event_cut(self) -> float:
        """Mean cut over the event."""
        return float(1 - self.power.total_w_T[self.event_T].mean() / self.baseline_w)


@dataclass(frozen=True, kw_only=True)
class Match:
    """Computed against measured power.

    Attributes:
        computed_w_T: Power of all jobs as computed, W; NaN in transitions.
        error_T: Computed over measured power minus 1; NaN in transitions.
        how: How the allocations were found.
    """

    computed_w_T: F8
    error_T: F8
    how: str

    @property
    def largest(self) -> float:
        """Largest error of a row outside transitions, as a share."""
        return float(np.nanmax(np.abs(self.error_T)))

    @property
    def rows(self) -> int:
        """Rows outside transitions."""
        return int(np.isfinite(self.error_T).sum())


def prepare(name: str, power: Power, jobs: Jobs | None, caps: dict[str, Caps], *, node_gpus: int = 8) -> FieldTest:
    """Returns a field test from its tables.

    A job's GPUs are stated in the table of jobs; otherwise, where power was published per job, its power before the
    event over that of a GPU at full power, in whole nodes; otherwise those its workload's caps were measured on.

    Args:
        name: Name in figures.
        power: Measured power.
        jobs: Table of jobs; None: the jobs are the columns of the power table.
        caps: Caps by workload.
        node_gpus: GPUs of a node.

    Raises:
        DataError: The tables do not fit together, no event is found, or GPUs are unknown.
    """
    wide = _windowed(power.minutes_T, STEADY_MIN)
    allowed_w = STEADY_SHARE * power.total_w_T.max()
    steady_T = np.array(
        [
            max(np.ptp(power.total_w_T[rows]), *np.ptp(power.job_w_JT[:, rows], axis=1), 0.0) <= allowed_w
            for rows in wide
        ]
    )
    event_T = _event(power, None if jobs is None else jobs.event)
    before_T = steady_T & (np.arange(len(event_T)) < int(np.argmax(event_T)))
    if not before_T.any():
        raise DataError(
            f"{name}: no steady power before the event; give a table that begins earlier, so that the full power of "
            "the jobs is seen"
        )
    names = power.names if jobs is None else tuple(job.name for job in jobs.jobs)
    if power.names and set(names) != set(power.names):
        raise DataError(
            f"{name}: the table of jobs has {', '.join(sorted(names))}; the power table has "
            f"{', '.join(sorted(power.names))}; give the same jobs in both"
        )
    if not names:
        raise DataError(f"{name}: the power table has only a total; give a table of jobs")
    running = []
    for n, job in enumerate(names):
        measured = caps_of(job, caps)
        told = None if jobs is None else jobs.jobs[n]
        gpus = None if told is None else told.gpus
        if gpus is None and power.names:
            full_w = float(power.job_w_JT[power.names.index(job), before_T].mean())
            gpus = node_gpus * round(full_w / measured.power_w[-1] / node_gpus)
        elif gpus is None:
            gpus = measured.gpus
        if gpus is None or gpus < 1:
            raise DataError(
                f"{name}: how many GPUs job {job!r} ran on is unknown; give a column GPUs in the table of jobs"
            )
        running.append(
            RunningJob(
                name=job,
                gpus=gpus,
                power_w=measured.power_w,
                throughput=measured.throughput,
                least=0.0 if told is None else told.least,
                weight=1.0,
            )
        )
    baseline_w, full_w = float(power.total_w_T[before_T].mean()), sum(job.full_w for job in running)
    if abs(full_w / baseline_w - 1) > TOLERATED:
        raise DataError(
            f"{name}: at full power the {sum(job.gpus for job in running)} GPUs of the jobs would draw "
            f"{full_w / 1000:.1f} kW, and {baseline_w / 1000:.1f} kW were measured before the event; check the column "
            "GPUs, the power per GPU and the unit of power"
        )
    shares = [None] * len(names) if jobs is None else [job.performance for job in jobs.jobs]
    return FieldTest(
        name=name,
        jobs=tuple(running),
        performance_J=np.array([np.nan if share is None else share for share in shares]),
        weighted=None if jobs is None else jobs.weighted,
        power=power,
        event_T=event_T,
        steady_T=steady_T,
        baseline_w=baseline_w,
    )


def match(test: FieldTest, *, node_gpus: int = 8, scaled: bool = True) -> Match:
    """Returns computed against measured power outside transitions.

    Args:
        test: Field test.
        node_gpus: GPUs of a node.
        scaled: Whether the power of all GPUs is scaled by one factor, so that before the event the jobs draw the mean
            that was measured then; otherwise it is that of the table of caps.

    Raises:
        DataError: Neither power nor performance was published per job, or no allocation explains the performances.
    """
    if scaled:
        factor = test.baseline_w / sum(job.full_w for job in test.jobs)
        jobs = tuple(replace(job, power_w=tuple(factor * w for w in job.power_w)) for job in test.jobs)
        test = replace(test, jobs=jobs)
    if test.power.names:
        computed_w_T = _by_job(test, node_gpus)
        how = f"GPUs of each job read from its power, in whole nodes of {node_gpus}, without caps"
    elif np.isfinite(test.performance_J).all():
        computed_w_T = _by_performance(test)
        how = "GPUs of each job at each cap, or stopped, that give its published performance"
    else:
        raise DataError(
            f"{test.name}: what the jobs ran on during the event is unknown; give power per job, or the performance of "
            "every job"
        )
    computed_w_T = np.where(test.steady_T, computed_w_T, np.nan)
    return Match(computed_w_T=computed_w_T, error_T=computed_w_T / test.power.total_w_T - 1, how=how)


def _windowed(minutes_T: F8, around: float) -> list[slice]:
    """Returns the rows around each row: those within some minutes, and one on either side at least."""
    rows = np.arange(len(minutes_T))
    first = np.minimum(np.searchsorted(minutes_T, minutes_T - around - 1e-9), np.maximum(rows - 1, 0))
    last = np.maximum(np.searchsorted(minutes_T, minutes_T + around + 1e-9), np.minimum(rows + 2, len(rows)))
    return [slice(int(a), int(b)) for a, b in zip(first, last, strict=True)]


def _event(power: Power, stated: tuple[str, str] | None) -> Bools:
    """Returns the rows of the event.

    Where the table does not say, the event is the longest run of rows whose median over the minutes around it is
    nearer to the lowest such median than to the highest.
    """
    if stated is not None:
        start, end = (minutes_of(text, power) for text in stated)
        inside: Bools = (power.minutes_T >= start) & (power.minutes_T < end)
        if not inside.any() or inside[0]:
            raise DataError(
                f"the event from {stated[0]} to {stated[1]} must begin after the first row of the power table and hold "
                "a row of it; check the days and time zones of both"
            )
        return inside
    level_T = np.array([np.median(power.total_w_T[rows]) for rows in _windowed(power.minutes_T, SMOOTH_MIN)])
    high, low = level_T.max(), level_T.min()
    if high <= 0:
        raise DataError("power is 0 in almost all rows; give the power that the jobs drew, in W")
    if high - low < LEAST_DROP * high:
        raise DataError(
            f"power falls by {1 - low / high:.1%} at most: no event is found; state it in the columns start and end of "
            "the table of jobs"
        )
    below_T = level_T < (high + low) / 2
    edges = np.flatnonzero(np.diff(np.concatenate([[0], below_T.astype(int), [0]])))
    runs = edges.reshape(-1, 2)
    first, last = runs[int(np.argmax(runs[:, 1] - runs[:, 0]))]
    found = np.zeros(len(below_T), dtype=bool)
    found[first:last] = True
    return found


def _stretches(test: FieldTest, *, merged: bool) -> list[np.ndarray]:
    """Returns the steady rows in stretches without a transition between them.

    Args:
        test: Field test.
        merged: Whether stretches of one power, which a brief dip parts, are one.
    """
    rows = np.flatnonzero(test.steady_T)
    parts = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    if not merged:
        return parts
    found: list[np.ndarray] = []
    allowed_w = STEADY_SHARE * test.power.total_w_T.max()
    begin = int(np.argmax(test.event_T))
    for part in parts:
        last = found[-1] if found else None
        level = np.median(test.power.total_w_T[part])
        if (
            last is not None
            and abs(np.median(test.power.total_w_T[last]) - level) <= allowed_w
            and (last[0] < begin) == (part[0] < begin)
        ):
            found[-1] = np.concatenate([last, part])
        else:
            found.append(part)
    return found


def _by_job(test: FieldTest, node_gpus: int) -> F8:
    """Returns computed power where power was published per job: whole nodes of each job, at full power."""
    computed_w_T = np.full(len(test.steady_T), np.nan)
    for rows in _stretches(test, merged=False):
        total_w = 0.0
        for job in test.jobs:
            level_w = np.median(test.power.job_w_JT[test.power.names.index(job.name), rows])
            total_w += node_gpus * round(level_w / job.power_w[-1] / node_gpus) * job.power_w[-1]
        computed_w_T[rows] = total_w
    return computed_w_T


def _by_performance(test: FieldTest) -> F8:
    """Returns computed power where only the total was published.

    Jobs run without a cap before the event. From then on, in each stretch k, GPUs of job j are at cap p, or stopped,
    in shares x_kjp that give the job's performance over the test. Of all such allocations the one with the least
    largest error e is taken (a linear program):

        sum_p x_kjp = 1,  sum_kp minutes_k throughput_jp x_kjp = performance_j minutes,
        (1 - e) measured <= sum_jp gpus_j watts_jp x_kjp <= (1 + e) measured at each row of stretch k.
    """
    stretches = _stretches(test, merged=True)
    begin = int(np.argmax(test.event_T))
    # Rows of a transition count for the stretch that follows; those after the last one for it.
    ends = np.array([rows[-1] for rows in stretches])
    of_T = np.minimum(np.searchsorted(ends, np.arange(len(test.steady_T))), len(stretches) - 1)
    size_T = np.gradient(test.power.minutes_T)
    minutes_K = np.array([size_T[of_T == k].sum() for k in range(len(stretches))])
    points = [((0.0, 0.0), *zip(job.power_w, job.throughput, strict=True)) for job in test.jobs]
    column: dict[tuple[int, int, int], int] = {}
    cost: list[float] = []
    for k in range(len(stretches)):
        for j, each in enumerate(points):
            for p in range(len(each)):
                column[k, j, p] = len(cost)
                cost.append(0.0)
    error = len(cost)
    cost.append(1.0)
    rows_R, lower_R, upper_R = [], [], []

    def add(terms: dict[int, float], lower: float, upper: float) -> None:
        row = np.zeros(len(cost))
        for where, value in terms.items():
            row[where] = value
        rows_R.append(row)
        lower_R.append(lower)
        upper_R.append(upper)

    for k, rows in enumerate(stretches):
        for j, each in enumerate(points):
            add({column[k, j, p]: 1.0 for p in range(len(each))}, 1.0, 1.0)
            if rows[0] < begin:
                add({column[k, j, len(each) - 1]: 1.0}, 1.0, 1.0)
        watts = {
            column[k, j, p]: test.jobs[j].gpus * w for j, each in enumerate(points) for p, (w, _) in enumerate(each)
        }
        low_w, high_w = test.power.total_w_T[rows].min(), test.power.total_w_T[rows].max()
        add({**watts, error: -float(low_w)}, -highspy.kHighsInf, float(low_w))
        add({**watts, error: float(high_w)}, float(high_w), highspy.kHighsInf)
    for j, each in enumerate(points):
        done = {
            column[k, j, p]: float(minutes_K[k]) * rate
            for k in range(len(stretches))
            for p, (_, rate) in enumerate(each)
        }
        wanted = float(test.performance_J[j] * minutes_K.sum())
        add(done, wanted, wanted)
    try:
        best = minimise(np.array(cost), np.array(rows_R), np.array(lower_R), np.array(upper_R), "allocations")
    except InfeasiblePlanError as why:
        raise DataError(
            f"{test.name}: no allocation from the event on gives the jobs' performances; they must be means over the "
            "whole power table"
        ) from why
    computed_w_T = np.full(len(test.steady_T), np.nan)
    for k, rows in enumerate(stretches):
        computed_w_T[rows] = sum(
            test.jobs[j].gpus * w * best.x[column[k, j, p]]
            for j, each in enumerate(points)
            for p, (w, _) in enumerate(each)
        )
    return computed_w_T

"""What a service tells its scheduler of run times: limits, means of the log, or what the ends of jobs say of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.data.environments import past_jobs
from noonward.data.jobs.knowledge import PastJobs, fixed_C, known_past, levels_of
from noonward.errors import DataError
from noonward.forecasts.run_times import LearnedRunTimes
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import TOLD
from noonward.model.cluster.knowledge import OVERRUN, RUNNING, Groups, JobTraits, Knowledge, class_mean_J, told_JK
from noonward.model.cluster.scenario import JobTable, Scenario


class MetJob(NamedTuple):
    """What is known of a job when it arrives."""

    class_: int
    gpus_max: int
    user: str
    """Empty: unknown."""
    name: str
    limit_s: float | None
    """Longest run time that was asked for, s; None: none."""


class StatedTimes:
    """Limits of jobs, or the means of their classes, in place of their run times: what no job changes as it ends.

    Args:
        fleet: The fleet.
        told: What schedulers are told: ``limit`` or ``class-mean``.
        past: Jobs of a log; None: there are none.

    Raises:
        DataError: Class means are told, and no job of the log has ended.
    """

    def __init__(self, fleet: Fleet, told: Knowledge, past: PastJobs | None) -> None:
        self._told, self._fixed_C = told.run_time, fixed_C(fleet)
        self._mean_C: F8 | None = None
        self.learned = 0 if past is None else int((past.cause_P != RUNNING).sum())
        """Jobs that the means rest on."""
        if past is not None and self.learned:
            class_P = np.array([fleet.classes.index(values[0]) for values in past.level_PL])
            classes = np.arange(len(fleet.classes))
            self._mean_C = class_mean_J(classes, class_P, past.work_P, past.cause_P)
        elif told.run_time == "class-mean":
            raise DataError(
                "schedulers are told class means of past jobs (run_time: class-mean), but no job is known that has "
                "ended; give a log of past jobs (history)"
            )

    def told(self, jobs: Sequence[MetJob]) -> list[tuple[float, ...]]:
        """Returns what a scheduler is told of the work of jobs that arrive (``Arrival.told``).

        Empty: neither a limit nor a past job of any class says anything, so what was stated is told.
        """
        if not jobs:
            return []
        mean_J = np.array([math.inf if self._mean_C is None else self._mean_C[one.class_] for one in jobs])
        told = told_JK(self._told, _limit_J(jobs, self._fixed_C), mean_J, len(TOLD))
        return [(row[0], *row) if math.isfinite(row[0]) else () for row in told.tolist()]

    def expected(self, job: MetJob, age: float) -> float:
        """Returns the work in all that a job of some age is expected to take, units; infinite where nothing says."""
        (told,) = self.told([job])
        if not told:
            return math.inf
        work = next((more for more in told[1:] if more > age), told[-1])
        while work <= age:
            work *= OVERRUN
        return work


class KnownJobs:
    """Jobs by rows: those of a log first, then others as they are met.

    Args:
        fleet: The fleet.
        quantile: Share of jobs that an estimate is to cover.
        past: Jobs of a log; None: there are none.
        largest_gang: Largest gang of the fleet's tables, GPUs.

    Attributes:
        model: What their ends say of run times.
    """

    def __init__(self, fleet: Fleet, quantile: float, past: PastJobs | None, largest_gang: int) -> None:
        self._fleet, self._quantile, self._groups = fleet, quantile, Groups()
        self._fixed_C = fixed_C(fleet)
        self._tables = fleet.tables(largest_gang)
        self.model = LearnedRunTimes(JobTraits(key_JL=np.zeros((0, 1), np.int64), limit_J=np.zeros(0)))
        if past is not None:
            keys = np.array([self._groups.keys(values) for values in past.level_PL], np.int64)
            self.model.meet(JobTraits(key_JL=keys, limit_J=past.limit_P))
            self.model.end(np.arange(len(keys)), past.work_P, past.cause_P)

    def meet(self, jobs: Sequence[MetJob]) -> I8:
        """Returns the rows of jobs that are met for the first time."""
        known = self.model.traits
        keys = [self._groups.keys(levels_of(self._fleet, one.class_, one.gpus_max, one.user, one.name)) for one in jobs]
        if keys:
            rows_JL = np.array(keys, np.int64)
            before_JL = known.key_JL if len(known) else np.zeros((0, rows_JL.shape[1]), np.int64)
            traits = JobTraits(
                key_JL=np.concatenate([before_JL, rows_JL]),
                limit_J=np.concatenate([known.limit_J, _limit_J(jobs, self._fixed_C)]),
            )
            self.model.meet(traits)
        return np.arange(len(known), len(known) + len(keys))

    def told(self, rows: I8) -> list[tuple[float, ...]]:
        """Returns what a scheduler is told of the work of jobs that arrive (``Arrival.told``)."""
        mean_J, estimate_JK = self.model.estimates(rows, self._quantile, len(TOLD))
        return [tuple(row) for row in np.column_stack([mean_J, estimate_JK]).tolist()]

    def expected(self, rows: I8, age_J: F8) -> F8:
        """Returns the work in all that jobs of some age are expected to take, units."""
        return self.model.quantile(rows, self._quantile, age_J)

    def unit_s(self, site: int, class_: int, gpus: int, level: int | None) -> float:
        """Returns how long a unit of work takes, s; at the clock of least energy where no level is given."""
        if level is None:
            level = int(self._tables.oracle_level_SCG[site, class_, gpus])
        return float(self._tables.seconds_per_unit_SCGF[site, class_, gpus, level])


def _limit_J(jobs: Sequence[MetJob], fixed_C: NDArray[np.bool_]) -> F8:
    """Returns the limits of jobs, units of work; infinite for none, and where work is no run time."""
    return np.array([math.inf if one.limit_s is None or not fixed_C[one.class_] else one.limit_s for one in jobs])


def known_jobs(
    scenario: Scenario, start: datetime, history: Path | None, largest_gang: int
) -> KnownJobs | StatedTimes | None:
    """Returns what says how long jobs run, at a time; None where a scenario tells schedulers what is stated.

    Args:
        scenario: Scenario, with the jobs' table.
        start: The time; only what was known before it counts.
        history: Another log; None: that of the scenario, if it has one.
        largest_gang: Largest gang, GPUs.

    Raises:
        DataError: The log cannot be read, or does not fit the fleet; class means are told, and it has no job that
            has ended.
    """
    told = scenario.jobs.knowledge
    if told.run_time == "known":
        return None
    table = scenario.jobs if isinstance(scenario.jobs, JobTable) else None
    if history is not None:
        table = (table or JobTable(source="table", path=history)).model_copy(update={"history": history})
    past = None
    if table is not None:
        past = known_past(scenario.fleet, table, past_jobs(scenario, table, start), start)
    if told.run_time != "learned":
        return StatedTimes(scenario.fleet, told, past)
    return KnownJobs(scenario.fleet, told.quantile, past, largest_gang)

"""What happened in a run, as engines emit it: power segments, transfers, loads of models, and the fate of every job."""

from __future__ import annotations

import functools
from bisect import bisect_left
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I4, I8, Bools, Records
from noonward.model.cluster.environment import Environment
from noonward.paging import column, parts

PLANNED: Final = 0
"""Status: has not arrived yet."""
TRANSIT: Final = 1
"""Status: travels to a site, or is held until its earliest start."""
WAITING: Final = 2
"""Status: waits at a site."""
RUNNING: Final = 3
"""Status: runs."""
DONE: Final = 4
"""Status: finished."""
OVERDUE: Final = 5
"""Status: could not start in time and was dropped."""
FAILED: Final = 6
"""Status: failed for good; what it ran is lost."""
STATUS_NAMES: Final = ("planned", "in transit", "waiting", "running", "done", "overdue", "failed")
"""Names of the statuses, by number."""

JOB_OUTCOME: Final = np.dtype(
    [
        ("status", "i8"),
        ("site", "i8"),  # site it is at or on its way to, or -1
        ("gpus", "i8"),  # gang: as asked for while waiting (0: largest), as started afterwards
        ("level", "i8"),  # clock level: as asked for while waiting, as started afterwards
        ("moves", "i8"),  # journeys with data
        ("reach_s", "f8"),  # time it joined the last site's queue; NaN before
        ("start_s", "f8"),  # NaN before the start
        ("finish_s", "f8"),  # end of its run, also if that lies after the run's end; NaN before the start
        ("power_w", "f8"),  # facility power while it runs; 0 before
    ]
)
"""What became of a job."""
OWN_JOURNEY: Final = 0
"""Kind of transfer: a job travels with its data from an ingress point to a site."""
RESULT: Final = 1
"""Kind of transfer: a job's result travels from the site home to its ingress point."""
TRANSFER: Final = np.dtype(
    [
        ("kind", "i4"),  # OWN_JOURNEY or RESULT
        ("job", "i4"),
        ("ingress", "i4"),  # one end of the link
        ("site", "i4"),  # the other end
        ("size_gb", "f8"),
        ("time_s", "f8"),  # when it begins
    ]
)
"""Data that travelled over a link."""


RUN, STOP, LOAD, LOST, KILL, REDO, CRASH, FAIL = 0, 1, 2, 3, 4, 5, 6, 7
"""Kinds of segments: a job runs; writes its checkpoint to be suspended; loads it to be resumed; ran, and is given up
later; is stopped without notice, which takes no time; ran, and does the same again because that was not in a
checkpoint; is stopped by a failure, or has failed for good, neither of which takes time."""
SEGMENT_NAMES: Final = ("run", "stop", "load", "lost", "kill", "redo", "crash", "fail")
"""Names of the kinds, by number."""
HALTS: Final = (STOP, KILL, CRASH)
"""Kinds that end a run before the job is done."""
WASTED: Final = (LOST, REDO)
"""Kinds of runs whose work is lost."""
SEGMENT: Final = np.dtype(
    [
        ("job", "i8"),
        ("kind", "i8"),  # RUN, STOP, LOAD, LOST, KILL, REDO, CRASH or FAIL
        ("site", "i8"),
        ("gpus", "i8"),
        ("from_s", "f8"),
        ("to_s", "f8"),  # also if that lies after the run's end
        ("watts", "f8"),  # facility power, W
        ("units", "f8"),  # work it does
        ("cap", "i8"),  # power cap of its class; 0 for full power
        ("own_gpus", "i8"),  # gang that the job started on
        ("rate", "f8"),  # throughput, over that on this gang at full power; 0 of stops and loads
        ("before", "i8"),  # the job's segment before, as they were noted, or -1
    ]
)
"""A segment of a job that has been suspended or capped."""
SEGMENT_COLUMNS: Final = {
    "gpus": "gpus",
    "from_s": "from_s",
    "to_s": "to_s",
    "power_w": "watts",
    "throughput": "rate",
    "cap": "cap",
}
"""Columns of a record's table of segments beside job, kind and site, and the fields that they hold."""


@dataclass(frozen=True, kw_only=True)
class PowerSegments:
    """Stretches of constant power that jobs drew at sites; a job may have several, side by side or one after another.

    Attributes:
        site_K: Site.
        job_K: Job the power is drawn for.
        from_s_K: Begin, seconds since the run's start.
        to_s_K: End within the run, s, later than the begin.
        watts_K: Facility power (PUE included), W.
        gpus_K: GPUs it occupies.
        rate_K: Useful share of the GPUs, by throughput under power caps and on other gangs; empty where all is useful.
    """

    site_K: I4
    job_K: I4
    from_s_K: F8
    to_s_K: F8
    watts_K: F8
    gpus_K: I4
    rate_K: F8 = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.site_K)

    @classmethod
    def none(cls) -> PowerSegments:
        """Returns an empty table."""
        ints, floats = np.zeros(0, np.int32), np.zeros(0)
        return cls(site_K=ints, job_K=ints, from_s_K=floats, to_s_K=floats, watts_K=floats, gpus_K=ints, rate_K=floats)


@dataclass(frozen=True, kw_only=True)
class Overhead(PowerSegments):
    """Power of GPUs that jobs occupy without earning. Columns: PowerSegments.

    Attributes:
        kind_K: STOP, LOAD, LOST or REDO; no other kind takes time.
    """

    kind_K: I4

    @classmethod
    def none(cls) -> Overhead:
        """Returns an empty table."""
        return cls(**vars(PowerSegments.none()), kind_K=np.zeros(0, np.int32))


class ModelLoads(PowerSegments):
    """Power drawn while a model is loaded for a job; it occupies GPUs, and earns nothing. Columns: PowerSegments."""


@dataclass(frozen=True, kw_only=True)
class Meters:
    """The engine's own integrals, kept while it ran: a second entry beside the ledger's, which tests hold together.

    Attributes:
        gpu_s_S: Use, GPU-seconds per site.
        busy_kwh_S: Facility energy of jobs, kWh.
        busy_usd_S: Its price, USD; NaN without signals.
        busy_kg_S: Its emissions, kgCO2.
        free_kwh_S: Facility energy of free GPUs within the window, kWh.
        free_usd_S: Its price, USD.
        free_kg_S: Its emissions, kgCO2.
        move_kwh: Energy of the jobs' own journeys, kWh.
        move_usd: Their price, USD.
        move_kg: Their emissions, kgCO2.
        result_kwh: Energy of the results' journeys, kWh.
        result_usd: Their price, USD.
        result_kg: Their emissions, kgCO2.
        overhead_gpu_s_S: GPU-seconds of stops and loads per site, in no use above.
        overhead_kwh_S: Their energy, kWh, within that of jobs.
        overhead_usd_S: Its price, USD.
        overhead_kg_S: Its emissions, kgCO2.
        capped_gpu_s_S: GPU-seconds of jobs that ran under a power cap, per site.
        slowed_gpu_s_S: What caps and resizes took, in no use above, GPU-seconds per site.
        lost_gpu_s: Use, within that above, by runs whose work was lost, GPU-seconds.
        late_usd: Price of late starts, USD.
        utility_usd: Utility at the last reading, USD.
        events: Events taken.
    """

    gpu_s_S: F8
    busy_kwh_S: F8
    busy_usd_S: F8
    busy_kg_S: F8
    free_kwh_S: F8
    free_usd_S: F8
    free_kg_S: F8
    move_kwh: float
    move_usd: float
    move_kg: float
    result_kwh: float
    result_usd: float
    result_kg: float
    overhead_gpu_s_S: F8
    overhead_kwh_S: F8
    overhead_usd_S: F8
    overhead_kg_S: F8
    capped_gpu_s_S: F8
    slowed_gpu_s_S: F8
    lost_gpu_s: float
    late_usd: float
    utility_usd: float
    events: int


def meter_fields(*, per_site: bool) -> list[tuple[str, str]]:
    """Returns name and type of what an engine keeps of each of its ``Meters``, per site or for the whole run.

    Args:
        per_site: Of the arrays per site, without their axis; else of the totals that are no counts.
    """
    kind = "F8" if per_site else "float"
    return [(one.name.removesuffix("_S"), "f8") for one in fields(Meters) if one.type == kind]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened in a run, and the engine's meters.

    Attributes:
        environment: What was run.
        job_J: What became of every job: JOB_OUTCOME records.
        power: Power of the jobs.
        transfer_X: Journeys of jobs and results: TRANSFER records; those of one job in the order of time.
        overhead: Stops and loads of suspended jobs, and runs whose work was lost, by job.
        segment_K: All segments of the jobs that have been suspended or capped or have failed, also beyond the run's
            end: SEGMENT records by job, then time. None where no running job could be stopped.
        over_cap_gpu_s_S: Use above the capacity curves, GPU-seconds per site; zeros without curves.
        ended_s: Time at which the run ended, s.
        steps: Questions asked.
        meters: The engine's own meters.
        rewards_K: Reward of every step, USD, if asked for.
        first: Number of the first job among those of the environment: 0, except in what ``of_jobs`` returns.
    """

    environment: Environment
    job_J: Records
    power: PowerSegments
    transfer_X: Records
    overhead: Overhead = field(default_factory=Overhead.none)
    segment_K: Records | None = None
    over_cap_gpu_s_S: F8
    ended_s: float
    steps: int
    meters: Meters
    rewards_K: F8 | None = None
    first: int = 0

    def of_jobs(self, rows: slice) -> Outcome:
        """Returns what became of some jobs that follow each other, numbered from 0, with their segments.

        Power of runs and journeys are left out, and all else is that of the whole run.

        Args:
            rows: Jobs of this outcome, from its begin (included) to its end (excluded).
        """
        segment_K, overhead = self.segment_K, self.overhead
        if segment_K is not None:
            segment_K = segment_K[_of_jobs(segment_K["job"], rows)].copy()
            segment_K["job"] -= rows.start
        mine = _of_jobs(overhead.job_K, rows)
        columns = {one.name: getattr(overhead, one.name)[mine] for one in fields(Overhead)}
        return replace(
            self,
            job_J=self.job_J[rows],
            power=PowerSegments.none(),
            transfer_X=self.transfer_X[:0],
            overhead=Overhead(**columns | {"job_K": columns["job_K"] - np.int32(rows.start)}),
            segment_K=segment_K,
            first=self.first + rows.start,
        )

    @property
    def rows(self) -> slice:
        """Where its jobs stand among those of the environment."""
        return slice(self.first, self.first + len(self.job_J))

    @functools.cached_property
    def occupied(self) -> PowerSegments:
        """Power of all GPUs that jobs occupy: of those that run, stop and load, and of runs whose work was lost."""
        if not len(self.overhead):
            return self.power
        names = [one.name for one in fields(PowerSegments)]
        parts = {name: np.concatenate([getattr(self.power, name), getattr(self.overhead, name)]) for name in names}
        return PowerSegments(**parts)

    @property
    def started_J(self) -> Bools:
        """Jobs that have started."""
        return ~np.isnan(self.job_J["start_s"])

    def count(self, status: int) -> int:
        """Returns the number of jobs with a status."""
        return sum(int((self.job_J["status"][part] == status).sum()) for part in parts(len(self.job_J)))

    @property
    def units_J(self) -> F8:
        """Units of work that were processed by the run's end; those of running jobs pro rata.

        A run so short that its end rounds to its start is done.
        """

        def unbroken(part: slice) -> F8:
            job_P, work_P = self.job_J[part], self.environment.jobs.work_J[self.rows][part]
            start_s_P, finish_s_P = job_P["start_s"], job_P["finish_s"]
            ran_s_P, whole_s_P = np.minimum(finish_s_P, self.ended_s) - start_s_P, finish_s_P - start_s_P
            share_P = np.divide(ran_s_P, whole_s_P, out=np.ones_like(ran_s_P), where=whole_s_P != 0)
            return np.asarray(np.where(np.isnan(share_P), 0.0, share_P) * work_P)

        units_J: F8 = column(len(self.job_J), unbroken)
        if self.segment_K is not None:
            noted_J = np.isin(np.arange(len(units_J)), self.segment_K["job"])
            units_J = np.where(noted_J, segment_units(self.segment_K, len(units_J), self.ended_s), units_J)
        return units_J

    @functools.cached_property
    def suspensions_J(self) -> I8:
        """How often each job has been suspended, or stopped without notice or by a failure."""
        if self.segment_K is None:
            return np.zeros(len(self.job_J), np.int64)
        stops_K = np.isin(self.segment_K["kind"], HALTS)
        return np.bincount(self.segment_K["job"][stops_K], minlength=len(self.job_J))

    def tobytes(self) -> bytes:
        """Returns all that was emitted as bytes: the same for two runs in which the same happened."""
        tables = (self.power, self.overhead, self.meters)
        columns = [getattr(table, one.name) for table in tables for one in fields(table)]
        columns += [self.job_J[name] for name in JOB_OUTCOME.names or ()]
        columns += [self.transfer_X, self.over_cap_gpu_s_S, self.ended_s, self.steps]
        return b"".join(np.asarray(column).tobytes() for column in columns)


def _of_jobs(job_K: NDArray[np.integer[Any]], rows: slice) -> slice:
    """Returns where what is sorted by job is of some jobs; copies nothing."""
    return slice(bisect_left(job_K, rows.start), bisect_left(job_K, rows.stop))


def useful_share(segment_K: Records) -> F8:
    """Returns which share of its GPUs each segment uses, by the work it does: 1 for stops and loads, [K].

    A run earns as on the gang its job started on, at full power: ``throughput x gang started on / GPUs``.
    """
    runs_K = np.isin(segment_K["kind"], (RUN, *WASTED))
    return np.where(runs_K, segment_K["rate"] * segment_K["own_gpus"] / segment_K["gpus"], 1.0)


def segment_units(segment_K: Records, jobs: int, ended_s: float) -> F8:
    """Returns the units of work that runs did up to a time, per job, [J].

    Args:
        segment_K: SEGMENT records.
        jobs: Number of jobs J.
        ended_s: Time, s; of a run that goes on then its share counts.
    """
    run_K = segment_K[segment_K["kind"] == RUN]
    goes_on = (run_K["from_s"] < ended_s) & (ended_s < run_K["to_s"])
    share_K = np.where(run_K["to_s"] <= ended_s, 1.0, 0.0)
    from_s_G, to_s_G = run_K["from_s"][goes_on], run_K["to_s"][goes_on]
    share_K[goes_on] = (ended_s - from_s_G) / (to_s_G - from_s_G)
    units_K = share_K * run_K["units"]
    return np.bincount(run_K["job"], units_K, minlength=jobs).astype(np.float64, copy=False)

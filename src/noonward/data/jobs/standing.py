"""Jobs of a log that were running or waiting when a window starts: what is there before its first job arrives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.data.jobs.dated import JobRows, job_rows
from noonward.data.jobs.load import jobs_of_table
from noonward.errors import DataError
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import JobTable, Scenario
from noonward.model.cluster.withheld import StandingJobs
from noonward.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class AtStart:
    """What a log says of a window's start.

    Attributes:
        name: Name of the log's file.
        standing: Jobs that were running, or None.
        waiting: Jobs that were waiting.
        waited_h: Hours that these had waited, on average; NaN without any.
        lost: Jobs that were running at no site that the fleet has, or at one that cannot run them: they are left out.
    """

    name: str
    standing: StandingJobs | None
    waiting: int
    waited_h: float
    lost: int


def waiting_rows(source: JobTable, start: datetime) -> NDArray[np.bool_]:
    """Returns which rows of a log were submitted before a window's start, and started at or after it.

    No row is, if the scenario begins empty.

    Raises:
        DataError: The table does not say when its jobs were submitted and started.
    """
    rows = job_rows(source)
    if source.at_start == "empty":
        return np.zeros(len(rows.table), bool)
    submit_s_J, start_s_J = _recorded(source, rows)
    zero_s = start.timestamp()
    waits: NDArray[np.bool_] = (submit_s_J < zero_s) & (start_s_J >= zero_s)
    return waits


def from_start(jobs: Jobs, rows: JobRows, start: datetime) -> Jobs:
    """Returns jobs of a log whose arrivals before a window's start are at second 0, in the order of submission.

    What they had waited by then is taken from their slack, at most all of it.
    """
    assert rows.submit_s_J is not None
    waited_s_J = np.maximum(start.timestamp() - rows.submit_s_J[jobs.row_J], 0.0)
    jobs = replace(jobs, slack_s_J=np.maximum(jobs.slack_s_J - waited_s_J, 0.0))
    order = np.lexsort((rows.submit_s_J[jobs.row_J], jobs.arrival_s_J))
    return jobs.take(order)


def at_start(scenario: Scenario, source: JobTable, start: datetime) -> AtStart | None:
    """Returns what was there at a window's start as a log says; None where the scenario begins empty.

    Schedulers that are told run times know when running jobs end. Others expect them to end at their limits, and those
    without a limit, or beyond it, to run for as long again as they have run.

    Args:
        scenario: Scenario.
        source: Its job table.
        start: Start of the window.

    Raises:
        DataError: The table does not say when its jobs were submitted and started.
    """
    if source.at_start == "empty":
        return None
    rows = job_rows(source)
    submit_s_J, start_s_J = _recorded(source, rows)
    zero_s = start.timestamp()
    waits = waiting_rows(source, start)
    waited_s = zero_s - submit_s_J[waits]
    standing, lost = _running(scenario, rows, start_s_J - zero_s)
    return AtStart(
        name=source.path.name,
        standing=standing,
        waiting=int(waits.sum()),
        waited_h=float(waited_s.mean() / HOUR_S) if waits.any() else np.nan,
        lost=lost,
    )


def _recorded(source: JobTable, rows: JobRows) -> tuple[F8, F8]:
    """Returns when the rows of a log were submitted and started, seconds since 1970-01-01 UTC."""
    if rows.submit_s_J is None or rows.start_s_J is None:
        given = {"submit_time": rows.submit_s_J, "start_time": rows.start_s_J}
        lacking = " and ".join(f"column {name!r}" for name, values in given.items() if values is None)
        raise DataError(
            f"{source.path} does not say what was running at a window's start (jobs.at_start: as-recorded): it lacks "
            f"{lacking}; give it, or set jobs.at_start=empty"
        )
    return rows.submit_s_J, rows.start_s_J


def _running(scenario: Scenario, rows: JobRows, since_s_J: F8) -> tuple[StandingJobs | None, int]:
    """Returns the jobs that were running at second 0, and how many others the fleet has no place for.

    Args:
        scenario: Scenario.
        rows: Rows of its table.
        since_s_J: When they started, seconds since the window's start, NaN for never.
    """
    began = since_s_J < 0
    if not began.any():
        return None, 0
    jobs = jobs_of_table(rows.table, scenario.fleet, np.zeros(len(since_s_J)), began, start_s_J=since_s_J)
    tables = scenario.fleet.tables(int(jobs.gpus_min_J.max()))
    fits_J = (jobs.recorded_site_J >= 0) & (tables.range_CS[jobs.class_J, jobs.recorded_site_J] == 1)
    fits_J &= jobs.gpus_min_J <= tables.gpus_S[jobs.recorded_site_J]
    site_J = np.where(fits_J, jobs.recorded_site_J, 0)
    gpus_J = np.where(fits_J, jobs.gpus_min_J, 1)
    spot = (site_J, jobs.class_J, gpus_J)
    level_J = tables.oracle_level_SCG[spot]
    run_s_J = jobs.work_J * tables.seconds_per_unit_SCGF[(*spot, level_J)]
    end_s_J = jobs.recorded_start_s_J + run_s_J
    runs = end_s_J > 0
    lost = int((runs & ~fits_J).sum())
    kept = np.flatnonzero(runs & fits_J)
    if not len(kept):
        return None, lost
    told_end_s_J = end_s_J
    if scenario.jobs.knowledge.run_time != "known":
        told_end_s_J = _expected_end_s(jobs, rows.details[jobs.row_J], scenario.fleet)
    power_w_J = tables.power_w_SCGF[(*spot, level_J)] * tables.pue_S[site_J]
    standing = StandingJobs(
        site_J=site_J[kept],
        gpus_J=gpus_J[kept],
        end_s_J=end_s_J[kept],
        told_end_s_J=told_end_s_J[kept],
        power_w_J=power_w_J[kept],
    )
    return standing, lost


def _expected_end_s(jobs: Jobs, details: pl.DataFrame, fleet: Fleet) -> F8:
    """Returns when running jobs are expected to end by those who do not know it, seconds since the window's start."""
    kinds = fleet.gpu_types.values()
    fixed_C = np.array([all(kind.classes[name].time == "duration" for kind in kinds) for name in fleet.classes])
    limit_s_J = details["limit_s"].fill_null(np.inf).to_numpy()
    at_limit_s_J = jobs.recorded_start_s_J + np.where(fixed_C[jobs.class_J], limit_s_J, np.inf)
    as_long_again_s_J: F8 = -jobs.recorded_start_s_J
    return np.where((at_limit_s_J > 0) & np.isfinite(at_limit_s_J), at_limit_s_J, as_long_again_s_J)


def words_at_start(found: AtStart, fleet: Fleet) -> list[str]:
    """Returns what must be known of a window's start.

    Args:
        found: What was there.
        fleet: Fleet.
    """
    told, name = [], found.name
    gpus_S: I8 = np.array([site.gpus for site in fleet.sites])
    busy_S = np.zeros(len(gpus_S), np.int64)
    if found.standing is not None:
        np.add.at(busy_S, found.standing.site_J, found.standing.gpus_J)
        told.append(
            f"{_were_running(len(found.standing.site_J), name)}, on {busy_S.sum():,} of {gpus_S.sum():,} GPUs: "
            "under every policy they hold these until they end; their energy is separate"
        )
    over = np.flatnonzero(busy_S > gpus_S)
    if len(over):
        s = int(over[0])
        told.append(
            f"at {fleet.sites[s].name} {busy_S[s]:,} GPUs were busy at the window's start, more than its "
            f"{gpus_S[s]:,}: all of them are taken until fewer are"
        )
    if found.waiting:
        were = "job was" if found.waiting == 1 else "jobs were"
        told.append(
            f"{found.waiting:,} {were} waiting in {name} at the window's start, for {found.waited_h:.1f} h on average: "
            "they arrive at its start, and their slack is less by what they had waited"
        )
    if found.lost:
        told.append(
            f"{_were_running(found.lost, name)} at a site that the fleet does not have, or that cannot run them: they "
            "are left out"
        )
    return told


def _were_running(count: int, name: str) -> str:
    """Returns how many jobs of a log were running when the window began, in words."""
    jobs, were = ("job", "was") if count == 1 else ("jobs", "were")
    return f"{count:,} {jobs} of {name} {were} running at the window's start"

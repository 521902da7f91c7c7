"""What a record's table of jobs says in a few numbers: delay, jobs late, not done or moved. Read once per record."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from noonward.data.jobs.details import FAILED_STATES
from noonward.ledger.record import Record
from noonward.units import HOUR_S

COLUMNS = ("arrival_s", "slack_s", "start_s", "gpus", "work", "units_per_s", "status", "origin", "site")
"""Columns of the table that are read."""


LOST = "lost_gpu_hours"
"""Column of the useful GPU-hours of jobs whose work was lost; a table has it where jobs can fail."""
GROUPS = ("class", "team", "state")
"""Columns that jobs are grouped by; a table of jobs may lack all but the first."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Figures of the jobs of one class or team, or that ended alike.

    Attributes:
        jobs: Jobs.
        started: Jobs that started.
        waited_h: Hours from arrival to start of those, h, summed.
        longest_h: The longest of these, h; 0 without any.
        late: Late jobs, as in ``JobFigures``.
        not_done: Jobs that did not finish.
        gpu_hours: GPU-hours that the jobs that finished ran, without the time for which they stood suspended, and the
            useful ones of jobs that failed as the log says (the ledger's ``failed_gpu_hours``).
    """

    jobs: int
    started: int
    waited_h: float
    longest_h: float
    late: int
    not_done: int
    gpu_hours: float


@dataclass(frozen=True, kw_only=True)
class JobFigures:
    """Figures of one run's jobs.

    Attributes:
        mean_delay_s: Mean of start - arrival over the jobs that started, s; NaN without any.
        late: Jobs that started after arrival + slack, that were dropped because they could not start by then, or that
            had not started by then when the run ended.
        late_or_not_done: Jobs that are late or did not finish, each once.
        groups: Figures of the jobs by a column of ``GROUPS`` and its values.
        trips: Started jobs by the ingress point they came from and the site they ran at.
    """

    mean_delay_s: float
    late: int
    late_or_not_done: int
    groups: dict[str, dict[str, Group]]
    trips: dict[tuple[str, str], int]

    def moved(self, homes: dict[str, str | None]) -> int:
        """Returns how many jobs ran at another site than their ingress point's home; none of a point without one."""
        return sum(count for (point, site), count in self.trips.items() if homes[point] not in (None, site))


def job_figures(record: Record) -> JobFigures:
    """Returns the figures of a record's jobs."""
    path = record.folder / "jobs.parquet"
    return _figures(path, path.stat().st_mtime_ns, float(record.manifest["ended_s"]))


@functools.lru_cache(maxsize=4096)
def _figures(path: Path, changed_ns: int, ended_s: float) -> JobFigures:
    columns = pl.read_parquet_schema(path)
    jobs = pl.read_parquet(path, columns=[*COLUMNS, *(name for name in (*GROUPS, LOST) if name in columns)])
    started = jobs["start_s"].is_finite()
    delay_s = jobs["start_s"] - jobs["arrival_s"]
    due_s = jobs["arrival_s"] + jobs["slack_s"]
    never_in_time = (jobs["status"] == "overdue") | (due_s < ended_s)
    late = (started & (delay_s > jobs["slack_s"] + 1e-6)) | (~started & never_in_time)
    ran = jobs.filter(started).select(pl.col("origin", "site").cast(pl.String))
    return JobFigures(
        mean_delay_s=float(delay_s.filter(started).to_numpy().mean()) if started.any() else math.nan,
        late=int(late.sum()),
        late_or_not_done=int((late | (jobs["status"] != "done")).sum()),
        groups={name: _groups(jobs, name, late) for name in GROUPS if name in columns},
        trips={(point, site): count for point, site, count in ran.group_by("origin", "site").len().iter_rows()},
    )


def _groups(jobs: pl.DataFrame, name: str, late: pl.Series) -> dict[str, Group]:
    """Returns the figures of jobs by the values of a column; jobs without a value stand under a dash."""
    started, done = pl.col("start_s").is_finite(), pl.col("status") == "done"
    ran_gpu_hours, lost_gpu_hours = pl.col("work") / pl.col("units_per_s") * pl.col("gpus") / HOUR_S, pl.lit(0.0)
    replayed = pl.lit(value=False)
    if {"state", LOST} <= set(jobs.columns):
        replayed = (pl.col("status") == "failed") & pl.col("state").is_in(FAILED_STATES)
        lost_gpu_hours = pl.col(LOST)
    waited_h = (pl.col("start_s") - pl.col("arrival_s")).filter(started) / HOUR_S
    table = (
        jobs.with_columns(pl.col(name).cast(pl.String).fill_null("–"), late.alias("late"))
        .group_by(name, maintain_order=True)
        .agg(
            jobs=pl.len(),
            started=started.sum(),
            waited_h=waited_h.sum(),
            longest_h=waited_h.max().fill_null(0.0),
            late=pl.col("late").sum(),
            not_done=(~done).sum(),
            gpu_hours=pl.when(done).then(ran_gpu_hours).when(replayed).then(lost_gpu_hours).sum(),
        )
    )
    return {row.pop(name): Group(**row) for row in table.iter_rows(named=True)}

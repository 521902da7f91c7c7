"""What a record's table of jobs says in a few numbers: delay, jobs late, not done or moved. Read once per record."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from noonward.ledger.record import Record

COLUMNS = ("arrival_s", "slack_s", "start_s", "status", "origin", "site")
"""Columns of the table that are read."""


@dataclass(frozen=True, kw_only=True)
class JobFigures:
    """Figures of one run's jobs.

    Attributes:
        mean_delay_s: Mean of start - arrival over the jobs that started, s; NaN without any.
        late: Jobs that started after arrival + slack, that were dropped because they could not start by then, or that
            had not started by then when the run ended.
        late_or_not_done: Jobs that are late or did not finish, each once.
        trips: Started jobs by the ingress point they came from and the site they ran at.
    """

    mean_delay_s: float
    late: int
    late_or_not_done: int
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
    jobs = pl.read_parquet(path, columns=list(COLUMNS))
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
        trips={(point, site): count for point, site, count in ran.group_by("origin", "site").len().iter_rows()},
    )

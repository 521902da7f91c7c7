"""Job tables whose jobs have dates, and job logs as they are: rows and submission times, read once per file."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.jobs.details import details_of
from noonward.data.jobs.formats import import_jobs, log_format_of
from noonward.data.jobs.load import TABLE_COLUMNS, run_times_s
from noonward.data.jobs.logs.log import LogOptions
from noonward.data.table_file import EXTENSIONS, TableFile, column_names, open_table
from noonward.data.text_table import read_head
from noonward.errors import DataError
from noonward.model.cluster.environment import largest_gang_C
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import JobTable
from noonward.units import HOUR_S


def jobs_that_fit(jobs: Jobs, fleet: Fleet, where: str) -> Jobs:
    """Returns the jobs that some site of a fleet can run.

    Raises:
        DataError: None can.
    """
    largest_J = largest_gang_C(fleet)[jobs.class_J]
    fits_J = jobs.gpus_min_J <= largest_J
    if fits_J.all():
        return jobs
    if not fits_J.any():
        raise DataError(
            f"{where}: every job of the window needs more GPUs at once than any site has ({int(largest_J.max())}); "
            "enlarge a site"
        )
    return jobs.take(fits_J)


LOGS = ("slurm", "slurm-json", "kubernetes", "swf", "philly")
"""Formats that are detected where a job table is expected; other tables are read by the rules of job tables."""


@dataclass(frozen=True, kw_only=True)
class JobRows:
    """The rows of a job table.

    Attributes:
        table: The rows, in the file's order.
        submit_s_J: Submission, seconds since 1970-01-01 UTC, of every row; None where the table has no dates.
        start_s_J: Recorded start on the same clock, NaN where a row has none; None where the table has no such column.
        due_slack_s_J: Slack that leaves a job its deadline: from its submission to the deadline, less its run time, at
            least 0 s; NaN where it has none. None where the table has no such column.
        account: What was done to a log that was read as a table; None for a job table.
        details: What it says of every row beyond what the job needs (``noonward.data.jobs.details.DETAILS``): who
            asked, under which name and limit (s), how it ended; null where it does not say. ``Jobs.row_J`` says which
            row a job is from.
    """

    table: TableFile
    submit_s_J: F8 | None
    start_s_J: F8 | None
    due_slack_s_J: F8 | None
    account: Account | None
    details: pl.DataFrame

    @property
    def days(self) -> tuple[date, date] | None:
        """UTC days of the first and the last submission, or None without dates."""
        if self.submit_s_J is None:
            return None
        first, last = (datetime.fromtimestamp(s, UTC).date() for s in (self.submit_s_J.min(), self.submit_s_J.max()))
        return first, last

    def arrivals_s(self, start: datetime, window_h: int) -> tuple[F8, NDArray[np.bool_]]:
        """Returns every row's submission in seconds since a window's start, and which rows lie in the window.

        Raises:
            DataError: None does, or the table has no dates.
        """
        if self.submit_s_J is None or self.days is None:
            raise DataError(f"{self.table.path} has no dates; give it a column 'submit_time'")
        since_s_J = self.submit_s_J - start.timestamp()
        inside_J = (since_s_J >= 0) & (since_s_J < window_h * HOUR_S)
        end = start + timedelta(hours=window_h)
        if not inside_J.any():
            raise DataError(
                f"{self.table.path}: no job is submitted between {start:%Y-%m-%d %H:%M} and "
                f"{end:%Y-%m-%d %H:%M} UTC; its "
                f"jobs are of {self.days[0]} to {self.days[1]}: choose days among these with --from and --to"
            )
        return since_s_J, inside_J

    def slack_s(self, slack_h: float | None) -> F8 | float:
        """Returns the slack of the rows, s: that of their deadlines, of others what is said for all, h.

        Args:
            slack_h: Slack of jobs for which the table says none, h; None: no limit.
        """
        otherwise_s = np.inf if slack_h is None else slack_h * HOUR_S
        if self.due_slack_s_J is None:
            return otherwise_s
        return np.where(np.isnan(self.due_slack_s_J), otherwise_s, self.due_slack_s_J)

    def starts_s(self, start: datetime) -> F8 | None:
        """Returns every row's recorded start in seconds since a window's start; None where none is recorded."""
        return None if self.start_s_J is None else self.start_s_J - start.timestamp()


def job_rows(spec: JobTable) -> JobRows:
    """Returns the rows of a scenario's job table, or of a job log as a table; a file that is unchanged is read once.

    Raises:
        DataError: The file cannot be read, or its dates are wrong; the message names file, line and remedy.
    """
    changed = spec.path.stat().st_mtime_ns if spec.path.is_file() else 0
    told = (spec.format, spec.timezone, spec.origin)
    return _cached_rows(spec.path, changed, tuple(spec.columns.items()), told)


def is_log(path: Path) -> bool:
    """Returns whether a file is a job log of a known system, by its beginning."""
    if path.suffix.lower() in (".parquet", ".pq") or not path.is_file() or not path.stat().st_size:
        return False
    found = log_format_of(read_head(path))
    return found is not None and found.name in LOGS


def is_dated(path: Path) -> bool:
    """Returns whether a file is a job log, or a job table with a column ``submit_time``."""
    return is_log(path) or "submit_time" in column_names(path)


def holds_jobs(path: Path) -> bool:
    """Returns whether a file is a job log, a job table or a trace of jobs, by its beginning; False if it is missing."""
    if is_log(path):
        return True
    if path.suffix.lower() not in EXTENSIONS or not path.is_file() or not path.stat().st_size:
        return False
    return not {"submit_time", "submit_s", "origin", "duration_s"}.isdisjoint(column_names(path))


def may_record_starts(path: Path) -> bool:
    """Returns whether a file is a job log, or a dated job table with a column ``start_time``."""
    return is_log(path) or {"submit_time", "start_time"} <= set(column_names(path))


@functools.lru_cache(maxsize=4)
def _cached_rows(
    path: Path, changed: int, columns: tuple[tuple[str, str], ...], told: tuple[str | None, str | None, str | None]
) -> JobRows:
    kind, timezone, origin = told
    clock = None if timezone is None else Clock(timezone)
    account = None
    if kind is not None or is_log(path):
        options = LogOptions(format=kind, clock=clock, origin=origin, columns=dict(columns))
        try:
            frame, account = import_jobs(path, options)
        except DataError as error:
            if "--" not in str(error):
                raise
            raise DataError(
                f"{error} (options of noonward import; in a scenario, jobs.timezone and jobs.origin)"
            ) from None
        table = TableFile(path=path, frame=frame, column_of=TABLE_COLUMNS)
    else:
        table = open_table(path, TABLE_COLUMNS, dict(columns), required=())
        if origin is not None and not table.has("origin"):
            table = TableFile(
                path=path, frame=table.frame.with_columns(origin=pl.lit(origin)), column_of=table.column_of
            )
    if table.has("submit_time") and table.has("arrival_s"):
        raise DataError(
            f"{path} has both {table.column_of['submit_time']!r} and {table.column_of['arrival_s']!r}; remove "
            "one: both "
            "say when a job arrives"
        )
    submit_s = start_s = due_slack_s = None
    if table.has("deadline"):
        _check_deadlines(table)
    if table.has("submit_time"):
        submit_s = _seconds(table, "submit_time", clock)
        if table.has("start_time"):
            start_s = _seconds(table, "start_time", clock, empty=True)
        if table.has("deadline"):
            due_s = _seconds(table, "deadline", clock, empty=True)
            due_slack_s = np.maximum(due_s - submit_s - run_times_s(table), 0.0)
    return JobRows(
        table=table,
        submit_s_J=submit_s,
        start_s_J=start_s,
        due_slack_s_J=due_slack_s,
        account=account,
        details=details_of(table),
    )


def _check_deadlines(table: TableFile) -> None:
    """Raises DataError where a table's deadlines say nothing, or another column says the same."""
    name = table.column_of["deadline"]
    if table.has("slack_s"):
        raise DataError(
            f"{table.path} has both {name!r} and {table.column_of['slack_s']!r}; remove one: both say when a job is "
            "late"
        )
    if not (table.has("submit_time") and table.has("duration_s")):
        raise DataError(
            f"{table.path} has the column {name!r}, by which jobs must have ended; it goes with 'submit_time' and "
            "'duration_s': give both, or 'slack_s' in its place"
        )


def _seconds(table: TableFile, key: str, clock: Clock | None, *, empty: bool = False) -> F8:
    """Returns the times in a column of a table, seconds since 1970-01-01 UTC; NaN where they may be empty and are."""
    name = table.column_of[key]
    series = table.frame[name]
    if isinstance(series.dtype, pl.Datetime):
        zoned = series.dtype.time_zone is not None
        if zoned:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        series = series.dt.strftime("%Y-%m-%d %H:%M:%S%.f") + ("Z" if zoned else "")
    elif series.dtype != pl.String:
        raise DataError(
            f"{table.path}: column {name!r} holds values of type {series.dtype}; give times, in UTC or with a zone"
        )
    text = replace(table, frame=pl.DataFrame({name: series.fill_null("")}))
    if not empty:
        text.refuse(text.frame[name] == "", name, "; give the time of submission")
    times = read_times(text, name, clock, missing=("",) if empty else (), series=text.lines.cast(pl.String))
    text.refuse(times.skipped, name, "does not exist on the clock of 'timezone', which skips that hour")
    return np.asarray(times.utc.dt.epoch("us").cast(pl.Float64).fill_null(np.nan).to_numpy() / 1e6)

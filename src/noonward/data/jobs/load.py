"""Job traces (when, how long, how many GPUs) and complete job tables from CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.data.jobs.details import DETAILS
from noonward.data.table_file import EXTENSIONS, TableFile, open_table
from noonward.errors import DataError
from noonward.files import write_table
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import NO_SITE, UNKNOWN_SITE, Jobs
from noonward.model.spec import LARGEST_GANG
from noonward.units import DAY_S, HOUR_S

TRACE_COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "submit_s": "submit_time_s",
        "duration_s": "duration_s",
        "gpus": "num_gpus",
        "local_hour": "est_local_hour",
        "weekday": "est_weekday",
    }
)
"""Standard columns of a trace: key, and name in the file; the last two are optional."""

TABLE_COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        key: key
        for key in (
            "arrival_s", "submit_time", "origin", "class", "gpus", "gpus_min", "gpus_max", "duration_s", "work",
            "slack_s", "deadline", "data_gb", "model_gb", "result_gb", "site", "start_time", "start_site", *DETAILS,
        )
    }
)  # fmt: skip
"""Standard columns of a complete table: key, and name in the file."""

WEEK_S: Final = 7 * DAY_S
"""Seconds in a week."""


@dataclass(frozen=True, kw_only=True)
class JobTrace:
    """What a cluster was asked: when, how long, how many GPUs. Rows are sorted by submission.

    Attributes:
        name: Where the trace comes from, for messages.
        submit_s_J: Submission, seconds on the trace's own clock.
        duration_s_J: Run time, s, above 0.
        gpus_J: GPUs, at least 1.
        clock_offset_s: What to add to ``submit_s_J`` to get the local time of the cluster's users, in seconds
            since a Monday's midnight.
    """

    name: str
    submit_s_J: F8
    duration_s_J: F8
    gpus_J: I8
    clock_offset_s: float

    def __len__(self) -> int:
        return len(self.submit_s_J)

    @property
    def local_s_J(self) -> F8:
        """Submission in the users' local time, seconds since a Monday's midnight."""
        return self.submit_s_J + self.clock_offset_s


def load_job_trace(path: Path, columns: Mapping[str, str] | None = None) -> JobTrace:
    """Reads a trace of the shape of Alibaba's PAI trace: one row a job, when it came, how long it ran, its GPUs.

    Unsorted rows are sorted by submission (stable). Where the file has both optional columns, local hour (0 to 23)
    and weekday (0 = Monday) of every submission, the trace's local clock is inferred from them; otherwise second 0
    is taken to be midnight of a Monday.

    Args:
        path: ``.csv`` or ``.parquet`` file.
        columns: Names of the columns where they differ from the standard ones (``TRACE_COLUMNS``), by the keys
            submit_s, duration_s, gpus, local_hour, weekday.

    Raises:
        DataError: The file cannot be read, lacks a column or holds a value that is not allowed; the message names
            file, row, column, value and what to do.
    """
    table = open_table(path, TRACE_COLUMNS, columns or {}, required=("submit_s", "duration_s", "gpus"))
    submit_s = table.numbers("submit_s", "give the submission in seconds since the trace's start")
    duration_s = table.numbers(
        "duration_s", "give the run time in seconds, above 0 (remove jobs that never ran)", low=0, above=True
    )
    gpus = table.integers("gpus", "give a whole number of GPUs of at least 1 (remove jobs without a GPU)", low=1)
    order = np.argsort(submit_s, kind="stable")
    return JobTrace(
        name=str(path),
        submit_s_J=submit_s[order],
        duration_s_J=duration_s[order],
        gpus_J=gpus[order],
        clock_offset_s=_clock_offset_s(table, submit_s),
    )


def _clock_offset_s(table: TableFile, submit_s: F8) -> float:
    """Returns the least offset o in s with floor((submit + o) / 1 h) = 24 weekday + hour (mod 168) in every row."""
    if not (table.has("local_hour") and table.has("weekday")):
        return 0.0
    hour = table.integers("local_hour", "give the local hour, 0 to 23", low=0)
    table.forbid("local_hour", hour > 23, "give the local hour, 0 to 23")
    weekday = table.integers("weekday", "give the weekday, 0 (Monday) to 6", low=0)
    table.forbid("weekday", weekday > 6, "give the weekday, 0 (Monday) to 6")
    low_s = weekday * DAY_S + hour * HOUR_S - submit_s
    shift_s = np.mod(low_s - low_s[0] + WEEK_S / 2, WEEK_S) - WEEK_S / 2
    least = shift_s.max()
    table.forbid(
        "local_hour",
        shift_s <= least - HOUR_S,
        "no one local clock fits this and the other rows; correct the two clock columns or remove them",
    )
    return float(np.mod(low_s[0] + least, WEEK_S))


def load_job_table(path: Path, fleet: Fleet, columns: Mapping[str, str] | None = None) -> Jobs:
    """Reads a complete table of jobs without dates; the columns and errors of ``jobs_of_table``, and of ``open_table``.

    Args:
        path: ``.csv`` or ``.parquet`` file.
        fleet: The fleet whose ingress points, classes and sites the names are.
        columns: Names of the columns where they differ from the standard ones, by the standard names.
    """
    table = open_table(path, TABLE_COLUMNS, columns or {}, required=("arrival_s",))
    return jobs_of_table(table, fleet)


def jobs_of_table(
    table: TableFile,
    fleet: Fleet,
    arrival_s_J: F8 | None = None,
    inside_J: NDArray[np.bool_] | None = None,
    slack_s: F8 | float = np.inf,
    start_s_J: F8 | None = None,
    leave_alone_s: float = 0.0,
) -> Jobs:
    """Returns the jobs of a complete table, one row a job, with names in place of indices.

    Columns (docs/data.md): ``arrival_s``; ``gpus``, or ``gpus_min`` and ``gpus_max``; ``work``, or ``duration_s`` for
    classes of fixed duration; and, each with its default where the column is absent: ``origin`` (the only ingress),
    ``class`` (the only class), ``slack_s`` (``inf``: no limit), ``data_gb``, ``model_gb``, ``result_gb`` (0), ``site``
    (none). ``start_site`` names the site where the job ran; without it, it ran where it came from. Unsorted rows are
    sorted by arrival (stable). Other columns are ignored.

    Args:
        table: The table.
        fleet: The fleet whose ingress points, classes and sites the names are.
        arrival_s_J: Arrivals of its rows, seconds since the window's start; None: its own column ``arrival_s``.
        inside_J: Rows to take; all are checked. None: all.
        slack_s: Slack of its jobs where it has no column of them, s; one for all, or one per row.
        start_s_J: Recorded starts of its rows, seconds since the window's start, NaN for none; None: none is recorded.
        leave_alone_s: Jobs that run for less than this, s, have no slack.

    Raises:
        DataError: The table lacks a column or holds a value that is not allowed; the message names file, row, column,
            value and what to do.
    """
    class_J = _names_or_only(table, "class", fleet.classes, "a class")
    gpus_min, gpus_max = _gangs(table)
    slack: F8 | float = slack_s
    if table.has("slack_s"):
        slack = table.numbers("slack_s", "give seconds, at least 0, or inf for no limit", low=0, inf=True)
    if leave_alone_s and table.has("duration_s"):
        slack = np.where(run_times_s(table) < leave_alone_s, 0.0, slack)
    if arrival_s_J is None:
        table.require("arrival_s")
        arrival_s_J = table.numbers("arrival_s", "give seconds since the window's start, at least 0", low=0)
    columns: dict[str, Any] = {
        "arrival_s": arrival_s_J,
        "origin": _names_or_only(table, "origin", [point.name for point in fleet.ingress_points], "an ingress point"),
        "class_": class_J,
        "gpus_min": gpus_min,
        "gpus_max": gpus_max,
        "work": _work(table, fleet, class_J),
        "slack_s": slack,
        "preset_site": table.names("site", fleet.site_names, "a site", empty=True) if table.has("site") else -1,
        "data_gb": _gb(table, "data_gb"),
        "model_gb": _gb(table, "model_gb"),
        "result_gb": _gb(table, "result_gb"),
        "row": np.arange(len(table)),
    }
    if start_s_J is not None:
        columns["recorded_start_s"] = start_s_J
        columns["recorded_site"] = _recorded_sites(table, fleet, columns["origin"])
    if inside_J is not None:
        columns = {name: value[inside_J] if isinstance(value, np.ndarray) else value for name, value in columns.items()}
    return Jobs.build(**columns)


def _names_or_only(table: TableFile, key: str, known: list[str] | tuple[str, ...], what: str) -> I8:
    if table.has(key):
        return table.names(key, known, what)
    if len(known) > 1:
        table.require(key)
    return np.zeros(len(table), dtype=np.int64)


def _recorded_sites(table: TableFile, fleet: Fleet, origin_J: I8) -> I8:
    """Returns where the jobs of a table ran: NO_SITE where it does not say, UNKNOWN_SITE at one the fleet lacks."""
    home_I = fleet.tables(1).home_I
    home_J = np.where(home_I < 0, NO_SITE, home_I)[origin_J]
    if not table.has("start_site"):
        return np.asarray(home_J)
    said = table.frame[table.column_of["start_site"]].cast(pl.String).str.strip_chars().fill_null("")
    index_of = {name: index for index, name in enumerate(fleet.site_names)} | {"": NO_SITE}
    return np.array([index_of.get(name, UNKNOWN_SITE) for name in said], dtype=np.int64)


def _one_of(table: TableFile, single: str, *others: str) -> bool:
    """Says whether the table has ``single`` (rather than all of ``others``); raises if it has both or neither."""
    present = [key for key in others if table.has(key)]
    if table.has(single):
        if present:
            raise DataError(
                f"{table.path} has both {table.column_of[single]!r} and {table.column_of[present[0]]!r}; "
                "remove one: they say the same thing"
            )
        return True
    if not present:
        table.require(single)
    table.require(*others)
    return False


def _gangs(table: TableFile) -> tuple[I8, I8]:
    allowed = "give a whole number of GPUs, at least 1"
    if _one_of(table, "gpus", "gpus_min", "gpus_max"):
        gpus = table.integers("gpus", allowed, low=1)
        table.forbid("gpus", gpus > LARGEST_GANG, f"a job takes at most {LARGEST_GANG:,} GPUs")
        return gpus, gpus
    low, high = table.integers("gpus_min", allowed, low=1), table.integers("gpus_max", allowed, low=1)
    table.forbid("gpus_max", high > LARGEST_GANG, f"a job takes at most {LARGEST_GANG:,} GPUs")
    table.forbid("gpus_max", high < low, "give a whole number of GPUs, at least gpus_min of the same row")
    return low, high


def _gb(table: TableFile, key: str) -> F8 | float:
    return table.numbers(key, "give GB, at least 0", low=0) if table.has(key) else 0.0


def _work(table: TableFile, fleet: Fleet, class_J: I8) -> F8:
    if not _one_of(table, "duration_s", "work"):
        return table.numbers("work", "give units of work, above 0", low=0, above=True)
    for index, name in enumerate(fleet.classes):
        if any(kind.classes[name].time != "duration" for kind in fleet.gpu_types.values()):
            table.forbid(
                "duration_s",
                class_J == index,
                f"jobs of class {name!r} have no fixed run time (it depends on gang and clock); give the column 'work' "
                "in units of work",
            )
    return run_times_s(table)


def run_times_s(table: TableFile) -> F8:
    """Returns the run times of a job table, s.

    Raises:
        DataError: A run time is none, or not above 0.
    """
    return table.numbers("duration_s", "give the run time in seconds, above 0", low=0, above=True)


def write_job_table(jobs: Jobs, fleet: Fleet, path: Path) -> None:
    """Writes jobs as a table that ``load_job_table`` reads back unchanged, bit for bit.

    What a log recorded is left out: a table without dates cannot say it.

    Args:
        jobs: The jobs.
        fleet: The fleet whose names stand for the indices.
        path: ``.csv`` or ``.parquet`` file to write; an existing one is replaced.

    Raises:
        DataError: The extension is another one.
    """
    points = [point.name for point in fleet.ingress_points]
    frame = pl.DataFrame(
        {
            "arrival_s": jobs.arrival_s_J,
            "origin": [points[index] for index in jobs.origin_J],
            "class": [fleet.classes[index] for index in jobs.class_J],
            "gpus_min": jobs.gpus_min_J,
            "gpus_max": jobs.gpus_max_J,
            "work": jobs.work_J,
            "slack_s": jobs.slack_s_J,
            "data_gb": jobs.data_gb_J,
            "model_gb": jobs.model_gb_J,
            "result_gb": jobs.result_gb_J,
            "site": [None if index < 0 else fleet.site_names[index] for index in jobs.preset_site_J],
        },
        schema_overrides={"site": pl.String},
    )
    if path.suffix not in EXTENSIONS:
        raise DataError(f"{path} has the extension {path.suffix!r}; it must be one of {', '.join(EXTENSIONS)}")
    write_table(path, frame)

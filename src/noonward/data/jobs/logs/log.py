"""What a job log says before it is cleaned, and the one cleaner: jobs that ran on GPUs, with their UTC times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, Order, read_times
from noonward.data.text_table import TextFile, TextTable
from noonward.errors import DataError, nearest

LOG_COLUMNS: Final[Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "line": pl.Int64,
    "job": pl.String,
    "submit_time": pl.Datetime("us"),
    "start_time": pl.Datetime("us"),
    "end_time": pl.Datetime("us"),
    "duration_s": pl.Float64,
    "gpus": pl.Int64,
    "origin": pl.String,
    "gpu_type": pl.String,
    "state": pl.String,
}
"""Columns of a log: times are UTC without zone; null where the log does not say."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What the user tells about a job log.

    Attributes:
        format: Name of the format; None: detected.
        encoding: Encoding of the text.
        clock: Clock of times without a zone.
        date_order: Order of day and month where the year does not come first.
        decimal: Decimal sign.
        columns: Names of columns by key, for tables that no system's format fits.
        origins: Name of the place that jobs come from, by the log's own name of it (its cluster).
        origin: Place that all jobs of the log come from.
    """

    format: str | None = None
    encoding: str | None = None
    clock: Clock | None = None
    date_order: Order | None = None
    decimal: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    origin: str | None = None


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """A format of job logs.

    Attributes:
        name: Name, as in ``--format``.
        title: What it is, in words.
        recognises: Says from its beginning whether a file is of this format.
        read: Reads a file into a frame with ``LOG_COLUMNS`` (and any of ``class``, ``slack_s``, ``data_gb``,
            ``model_gb``, ``result_gb``, ``site``, ``start_site``), and accounts for the rows that are not handed on.
    """

    name: str
    title: str
    recognises: Callable[[TextFile], bool]
    read: Callable[[TextFile, LogOptions, Account], pl.DataFrame]


def log_times(
    table: TextTable, column: str, options: LogOptions, account: Account, missing: tuple[str, ...]
) -> pl.Series:
    """Returns a column of times of a log, UTC without zone; null where they are missing.

    Jobs come in no order of time, so a time of the hour that a clock repeats in autumn is summer time.

    Args:
        table: Table.
        column: Its column.
        options: What the user told.
        account: Account of the file; what is done is added.
        missing: Lower-case words that stand for no time.

    Raises:
        DataError: A text is no time, has no zone and none was told, or the clock told skips it.
    """
    times = read_times(
        table,
        column,
        options.clock,
        order=options.date_order,
        missing=missing,
        series=table.frame["line"].cast(pl.String),
    )
    table.refuse(
        times.skipped, column, "does not exist on the clock of --timezone, which skips that hour; give the file's own"
    )
    account.add("changed", int(times.local.sum()), f"{column}: local times became UTC")
    account.add(
        "changed", int(times.guessed.sum()), f"{column}: times of the repeated autumn hour, taken as summer time"
    )
    return times.utc


def clean_log(log: pl.DataFrame, options: LogOptions, account: Account) -> pl.DataFrame:
    """Returns the jobs of a log that ran on GPUs, as a dated job table (docs/data.md), sorted by submission.

    The run time is the log's own; where it has none, the time from start to end. Jobs that failed or were cancelled
    after they had started are kept: they took their GPUs.

    Args:
        log: Frame with ``LOG_COLUMNS``.
        options: What the user told.
        account: Account of the file; what is done is added.

    Raises:
        DataError: No job is left, a job ends before it starts, or a place is unknown.
    """
    between = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6
    own = log["duration_s"].is_not_null()
    log = log.with_columns(duration_s=pl.when(own).then("duration_s").otherwise(between))
    backwards = log.filter(pl.col("duration_s") < 0)
    if backwards.height:
        raise DataError(f"{_place(account, backwards)}: the job ends before it starts; correct the row or remove it")
    for gone, why in (
        (pl.col("gpus").is_null() | (pl.col("gpus") == 0), "no GPU"),
        (pl.col("submit_time").is_null(), "no time of submission"),
        (pl.col("duration_s").is_null() & pl.col("start_time").is_null(), "never started"),
        (pl.col("duration_s").is_null(), "not ended when the log was written"),
        (pl.col("duration_s") == 0, "ran for 0 s"),
    ):
        log = _without(log, gone, account, why)
    repeats = pl.struct("job", "submit_time", "start_time", "gpus", "duration_s")
    log = _without(log, ~repeats.is_first_distinct() & (pl.col("job") != ""), account, "the same job once more")
    if not log.height:
        raise DataError(f"{account.file}: no job with GPUs that ran; " + "; ".join(map(str, account.entries)))
    log = _with_origins(log, options, account)
    account.rows_out = log.height
    failed = log.filter(pl.col("state").str.contains("(?i)fail|cancel|timeout|out_of_memory|preempt")).height
    account.add("read", failed, "jobs that failed or were stopped after they had started are kept: they took GPUs")
    times = [pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%SZ") for name in ("submit_time", "start_time", "end_time")]
    sorted_ = log.sort("submit_time", maintain_order=True).with_columns(*times).drop("line")
    return sorted_.select(name for name in sorted_.columns if not sorted_[name].is_null().all())


def _without(log: pl.DataFrame, gone: pl.Expr, account: Account, why: str) -> pl.DataFrame:
    """Returns a log without some jobs, which are accounted for."""
    dropped = log.filter(gone)
    account.add("dropped", dropped.height, why, dropped["line"][0] if dropped.height else None)
    return log.filter(~gone)


def _with_origins(log: pl.DataFrame, options: LogOptions, account: Account) -> pl.DataFrame:
    """Returns a log with the places that its jobs come from under the names that the user gave."""
    if options.origin is not None:
        account.add("read", log.height, f"all jobs come from {options.origin}")
        return log.with_columns(origin=pl.lit(options.origin))
    known = log["origin"].drop_nulls().unique().sort().to_list()
    for name in options.origins:
        if name not in known:
            raise DataError(
                f"--origin names {name!r}, where no job of {account.file} comes from; {nearest(name, known)}"
            )
    return log.with_columns(pl.col("origin").replace(dict(options.origins)))


def _place(account: Account, rows: pl.DataFrame) -> str:
    line = rows["line"][0]
    return f"{account.file}, line {line}" if line else f"{account.file}, job {rows['job'][0]!r}"

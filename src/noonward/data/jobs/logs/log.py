"""What a job log says before it is cleaned, and the one cleaner: jobs that ran on GPUs, with their UTC times."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Final

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import OLDEST, SHORT_YEARS, Clock, Order, read_times
from noonward.data.jobs.classes import RAW, ClassRule, classed
from noonward.data.jobs.details import anonymous, states_of
from noonward.data.text_table import MISSING, TextFile, TextTable, plain_name
from noonward.errors import DataError, RowError
from noonward.units import HOUR_S

LOG_COLUMNS: Final[Mapping[str, pl.DataType | type[pl.DataType]]] = {
    "line": pl.Int64,
    "job_id": pl.String,
    "submit_time": pl.Datetime("us"),
    "start_time": pl.Datetime("us"),
    "end_time": pl.Datetime("us"),
    "duration_s": pl.Float64,
    "gpus": pl.Int64,
    "origin": pl.String,
    "gpu_type": pl.String,
    "state": pl.String,
    "user": pl.String,
    "team": pl.String,
    "name": pl.String,
    "partition": pl.String,
    "limit_s": pl.Float64,
}
"""Columns of a log: times are UTC without zone, states the log's own words; null where the log does not say."""
_ELAPSED: Final = r"^(?:(\d+)-)?(?:(\d+):)?(\d{1,2}):(\d{2})(?:\.\d+)?$"
_NUMBER: Final = r"^\d+(\.\d+)?$"
_NO_LIMIT: Final = (*MISSING, "unlimited", "infinite", "partition_limit", "unknown", "invalid", "-1")
LIMITS: Final[Mapping[str, float | None]] = {"limit_s": 1.0, "limit_min": 60.0, "limit_h": 3600.0, "limit": None}
"""Seconds of a unit of the columns of limits, by key; None: the values state their unit (``[D-]HH:MM:SS``)."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What the user tells about a job log.

    Attributes:
        format: Name of the format; None: detected.
        encoding: Encoding of the text.
        clock: Time zone of times without a zone.
        clocks: The same by name of a file, above ``clock``.
        skip_bad: Most rows per file that may be left out because they are wrong.
        date_order: Order of day and month where the year does not come first.
        decimal: Decimal sign.
        columns: Names of columns by key, where a table does not have the usual ones.
        classes: Rules that give jobs their class; the first that fits.
        salt: Secret with which job ids, users, teams and names are replaced by digests; None: they stay.
        first_day: Day to whose week the first submission is moved, and all other times with it, by whole weeks; None:
            times stay.
        origins: Name of the place that jobs come from, by the log's own name of it (its cluster).
        origin: Place that all jobs of the log come from.
    """

    format: str | None = None
    encoding: str | None = None
    clock: Clock | None = None
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    skip_bad: int = 0
    date_order: Order | None = None
    decimal: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[ClassRule, ...] = ()
    salt: str | None = None
    first_day: date | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    origin: str | None = None


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """A format of job logs.

    Attributes:
        name: Name, as in ``--format``.
        title: What it is, in words.
        recognises: Says from its beginning whether a file is of this format.
        read: Reads a file into a frame with ``LOG_COLUMNS`` (and any of ``class``, ``slack_s``, ``deadline``,
            ``data_gb``, ``model_gb``, ``result_gb``, ``site``, ``start_site``, and of the file's own columns that rules
            of classes name), and accounts for the rows that are not handed on.
        keys: Keys of columns that ``LogOptions.columns`` may name; none: the file is no table.
    """

    name: str
    title: str
    recognises: Callable[[TextFile], bool]
    read: Callable[[TextFile, LogOptions, Account], pl.DataFrame]
    keys: tuple[str, ...] = ()


TIMES: Final = ("submit_time", "start_time", "end_time", "deadline")
"""Columns of times."""
SLICES: Final = (
    "jobs on slices of GPUs (MIG): a slice is as many sevenths of a GPU as its name says (3g is 3/7; A30: quarters), "
    "and a job's sum is rounded up to whole GPUs"
)
"""What is said of jobs on slices."""
_SLICE: Final = re.compile(r"(?:^|[_.:-])(\d+)g\.\d+gb", re.IGNORECASE)


def is_slice(name: str) -> bool:
    """Returns whether a GPU's name is that of a slice, such as ``a100_3g.20gb``."""
    return _SLICE.search(name) is not None


def gpus_of_slices(slices: Mapping[str, int]) -> int:
    """Returns the whole GPUs that hold some slices.

    Args:
        slices: Number of slices by name.

    Example:
        >>> gpus_of_slices({"a100_3g.20gb": 2}), gpus_of_slices({"1g.10gb": 8})
        (1, 2)
    """
    parts = Fraction(0)
    for name, count in slices.items():
        match = _SLICE.search(name)
        size = int(match[1]) if match else 7
        parts += Fraction(size * count, 4 if "a30" in name.lower() else 7)
    return math.ceil(parts)


def find_columns(
    table: TextTable, names: Mapping[str, tuple[str, ...]], options: LogOptions, account: Account
) -> dict[str, str | None]:
    """Returns the column of a table that each key stands for: the one told, else one of the usual names, else None.

    Raises:
        DataError: A column that was told is not there.
    """
    account.columns_used |= set(names) & set(options.columns)
    return {
        key: table.column(options.columns[key]) if key in options.columns else table.find(*usual)
        for key, usual in names.items()
    }


def named_columns(table: TextTable, options: LogOptions) -> dict[str, pl.Series]:
    """Returns the file's own columns that rules of classes name."""
    found = {rule.column: table.find(rule.column) for rule in options.classes}
    return {f"{RAW}{plain_name(rule)}": table.frame[name] for rule, name in found.items() if name is not None}


def texts_of(table: TextTable, column: Mapping[str, str | None], *keys: str) -> dict[str, pl.Series]:
    """Returns columns of text by key; null where a value is empty or the table has no such column."""
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, table.frame.height)
    return {key: nothing if (name := column[key]) is None else table.frame[name].replace("", None) for key in keys}


def limits_s(table: TextTable, column: Mapping[str, str | None]) -> pl.Series:
    """Returns the run times that jobs asked for at most, s; null where there is no limit or no column of limits.

    Raises:
        DataError: A value is no time, or a number without a unit.
    """
    for key, unit_s in LIMITS.items():
        name = column.get(key)
        if name is None:
            continue
        written = table.frame[name].fill_null("")
        written = written.set(written.str.to_lowercase().is_in(list(_NO_LIMIT)), "")
        number = written.str.contains(_NUMBER)
        if unit_s is None:
            table.refuse(
                number,
                name,
                "is a number without a unit; name the column by --column limit_s=, limit_min= or limit_h=",
            )
        table.refuse((written != "") & ~number & ~written.str.contains(_ELAPSED), name, "is no time limit; expected "
                     "[D-]HH:MM:SS, a number in the column's unit, or UNLIMITED")  # fmt: skip
        seconds = pl.select(
            pl.when(number).then(written.cast(pl.Float64, strict=False) * (unit_s or 1.0)).otherwise(_seconds(written))
        ).to_series()
        return seconds.set(seconds == 0, None)
    return pl.Series([None], dtype=pl.Float64).new_from_index(0, table.frame.height)


def elapsed_s(table: TextTable, column: str) -> pl.Series:
    """Returns a column of durations written ``[D-]HH:MM:SS`` or ``MM:SS``, s; null where it is empty.

    Raises:
        DataError: A value is none.
    """
    text = table.frame[column].fill_null("")
    table.refuse(
        (text != "") & ~text.str.contains(_ELAPSED), column, "is no duration; expected [D-]HH:MM:SS, or use ElapsedRaw"
    )
    return _seconds(text)


def _seconds(text: pl.Series) -> pl.Series:
    """Returns durations that are written ``[D-]HH:MM:SS`` or ``MM:SS``, s; null for other texts."""
    part = [text.str.extract(_ELAPSED, group).cast(pl.Float64).fill_null(0) for group in range(1, 5)]
    seconds = part[0] * 86400 + part[1] * 3600 + part[2] * 60 + part[3]
    return pl.select(pl.when(text.str.contains(_ELAPSED)).then(seconds)).to_series()


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
        oldest=OLDEST if options.first_day is None else None,
    )
    table.refuse(
        times.skipped, column, "does not exist on the clock of --timezone, which skips that hour; give the file's own"
    )
    clock = "" if options.clock is None else f" of {options.clock.name}"
    account.add("changed", int(times.local.sum()), f"{column}: local times{clock} became UTC")
    account.add("read", int(times.short_years.sum()), f"{column}: {SHORT_YEARS}")
    account.add(
        "changed", int(times.guessed.sum()), f"{column}: times of the repeated autumn hour, taken as summer time"
    )
    return times.utc


def _in_order(log: pl.DataFrame, earlier: str, later: str, clock: Clock | None, account: Account) -> pl.DataFrame:
    """Takes times of the repeated autumn hour as standard time where as summer time they come too early."""
    if clock is None or clock.offset is not None:
        return log
    second = pl.col(later) + timedelta(hours=1)

    def local(time: pl.Expr) -> pl.Expr:
        return time.dt.replace_time_zone("UTC").dt.convert_time_zone(clock.name).dt.replace_time_zone(None)

    repeated = local(pl.col(later)) == local(second)
    early = (pl.col(later) < pl.col(earlier)) & (second >= pl.col(earlier)) & repeated
    count = int(log.select(early.sum()).item())
    why = f"taken as standard time: as summer time they precede {earlier}"
    account.add("changed", count, f"{later}: times of the repeated autumn hour, {why}")
    return log.with_columns(pl.when(early).then(second).otherwise(later).alias(later))


def clean_log(log: pl.DataFrame, options: LogOptions, account: Account) -> pl.DataFrame:
    """Returns the jobs of a log that ran on GPUs, as a dated job table (docs/data.md), sorted by submission.

    The run time is the log's own; where it has none, the time from start to end. Jobs that failed or were stopped after
    they had started are kept with the time that they ran: they took their GPUs.

    Args:
        log: Frame with ``LOG_COLUMNS``.
        options: What the user told.
        account: Account of the file; what is done is added.

    Raises:
        DataError: No job is left, a job has a negative number of GPUs or ends before it starts, or a place is unknown.
    """
    negative = log.filter(pl.col("gpus") < 0)
    if negative.height:
        raise RowError(
            f"{_place(account, negative)}: the job has a negative number of GPUs ({negative['gpus'][0]}; "
            f"rows with such a number: {negative.height:,}); correct them or remove them",
            negative["line"].drop_nulls(),
            "a negative number of GPUs",
        )
    for earlier, later in (("submit_time", "start_time"), ("start_time", "end_time")):
        log = _in_order(log, earlier, later, options.clock, account)
    between = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6
    own = log["duration_s"].is_not_null()
    log = log.with_columns(duration_s=pl.when(own).then("duration_s").otherwise(between))
    backwards = log.filter(pl.col("duration_s") < 0)
    if backwards.height:
        raise RowError(
            f"{_place(account, backwards)}: the job ends before it starts; correct the row or remove it",
            backwards["line"].drop_nulls(),
            "the job ends before it starts",
        )
    for gone, why in (
        (pl.col("gpus").is_null() | (pl.col("gpus") == 0), "no GPU"),
        (pl.col("submit_time").is_null(), "no time of submission"),
        (pl.col("duration_s").is_null() & pl.col("start_time").is_null(), "never started"),
        (pl.col("duration_s").is_null(), "not ended when the log was written"),
        (pl.col("duration_s") == 0, "ran for 0 s"),
    ):
        log = _without(log, gone, account, why)
    repeats = pl.struct("job_id", "submit_time", "start_time", "gpus", "duration_s")
    named = pl.col("job_id").fill_null("") != ""
    log = _without(log, ~repeats.is_first_distinct() & named, account, "the same job once more")
    if not log.height:
        raise DataError(f"{account.file}: no job with GPUs that ran; " + "; ".join(map(str, account.entries)))
    log = _moved(log, options, account)
    log = _with_origins(log, options, account)
    log = _with_states(log, account)
    log, classes = classed(log, options.classes, account.file)
    account.add("read", log.height if classes else 0, "classes of jobs: " + _counts(classes))
    if options.salt is not None:
        log = anonymous(log, options.salt)
        account.add("changed", log.height, "job ids, users, teams and names became digests")
    account.rows_out = log.height
    log = log.drop(name for name in log.columns if name.startswith(RAW))
    account.add("read", log["deadline"].count() if "deadline" in log.columns else 0, "deadlines: jobs must end by them")
    times = [pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%SZ") for name in TIMES if name in log.columns]
    sorted_ = log.sort("submit_time", maintain_order=True).with_columns(*times).drop("line")
    return sorted_.select(name for name in sorted_.columns if not sorted_[name].is_null().all())


def _moved(log: pl.DataFrame, options: LogOptions, account: Account) -> pl.DataFrame:
    """Returns a log with its times moved by whole weeks, where that was asked for.

    Raises:
        DataError: A time is older than any log of today.
    """
    if options.first_day is not None:
        first = log["submit_time"].min()
        assert isinstance(first, datetime)
        weeks = round((options.first_day - first.date()).days / 7)
        begin = first + timedelta(weeks=weeks)
        account.add("changed", log.height, f"times moved by {weeks:,} weeks, to begin on {begin:%Y-%m-%d}")
        log = log.with_columns(pl.col(name) + timedelta(weeks=weeks) for name in TIMES if name in log.columns)
    earliest = pl.min_horizontal("submit_time", "start_time")
    old = log.filter(earliest < OLDEST)
    if old.height:
        raise RowError(
            f"{_place(account, old)}: its time, {old.select(earliest).item(0, 0):%Y-%m-%d %H:%M}, lies before "
            f"{OLDEST:%Y}; correct the row, or move an old log by whole weeks, e.g. --first-day 2022-01-03",
            old["line"].drop_nulls(),
            f"a time lies before {OLDEST:%Y}",
        )
    return log


def _with_states(log: pl.DataFrame, account: Account) -> pl.DataFrame:
    """Returns a log with the states of its jobs in the words of job tables; what did not finish is accounted for."""
    states = states_of(log["state"])
    other = log.filter(states.is_null() & log["state"].is_not_null() & (log["state"] != ""))
    if other.height:
        words = ", ".join(sorted(set(other["state"]))[:5])
        account.add("read", other.height, f"jobs end in an unknown state ({words}): left empty", other["line"][0])
    cut = states.filter(states != "done").value_counts().sort("count", "state", descending=[True, False])
    gpu_hours = log["gpus"] * log["duration_s"] / HOUR_S
    hours = gpu_hours.filter(states != "done").sum()
    account.add(
        "read",
        int(cut["count"].sum()),
        "jobs that did not finish are kept with the time that they ran, since they took their GPUs: "
        f"{_counts(dict(zip(*cut.get_columns(), strict=True)))}; {hours:,.0f} of the log's "
        f"{gpu_hours.sum():,.0f} GPU-hours, no useful work",
    )
    return log.with_columns(states.alias("state"))


def _counts(found: Mapping[str, int]) -> str:
    """Returns counts by name, in words."""
    return ", ".join(f"{count:,} {name}" for name, count in found.items())


def _without(log: pl.DataFrame, gone: pl.Expr, account: Account, why: str) -> pl.DataFrame:
    """Returns a log without some jobs, which are accounted for."""
    dropped = log.filter(gone)
    account.add("dropped", dropped.height, why, dropped["line"][0] if dropped.height else None)
    return log.filter(~gone)


def _with_origins(log: pl.DataFrame, options: LogOptions, account: Account) -> pl.DataFrame:
    """Returns a log with the places that its jobs come from under the names that the user gave."""
    account.places |= set(log["origin"].drop_nulls())
    if options.origin is not None:
        account.add("read", log.height, f"all jobs come from {options.origin}")
        return log.with_columns(origin=pl.lit(options.origin))
    return log.with_columns(pl.col("origin").replace(dict(options.origins)))


def _place(account: Account, rows: pl.DataFrame) -> str:
    line = rows["line"][0]
    return f"{account.file}, line {line}" if line else f"{account.file}, job {rows['job_id'][0]!r}"

"""Clock times in files: texts to UTC, with one rule for the hours that a clock repeats or skips.

The rule, in this order:

1. A time with an offset or ``Z`` is what it says.
2. A repeated local hour whose second half the file marks (a flag, ``(CET)``) is what the mark says.
3. A local time of the repeated hour that stands twice in one series, as in a file in order of time, is first summer
   time and then standard time (the other way round in a file in falling order).
4. One that stands once is taken as summer time, and the account counts it.
5. A local time that the clock skips in spring is refused where it has a value: the file's clock is another one.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import polars as pl

from noonward.data.table import Table
from noonward.data.text_table import TextTable
from noonward.errors import DataError, nearest

Order = Literal["ymd", "dmy", "mdy"]
_TIME: Final = (
    r"^(\d{1,4})[-./](\d{1,2})[-./](\d{1,4})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?)?\s*([AaPp][Mm])?"
)
_SHORT_YEAR: Final = r"^\d{1,2}[./]\d{1,2}[./]\d{2}(\D|$)"
_REST: Final = r"^(Z|UTC|GMT|[+-]\d{2}:?\d{2}|[+-]\d{2})$"


OLDEST: Final = datetime(2000, 1, 1)
"""Times before it are slips: a missing year, or seconds since 1970 that are 0."""


SHORT_YEARS: Final = "years of two digits are of this century (24 is 2024)"
"""What is said where years have two digits."""


@dataclass(frozen=True)
class Clock:
    """A clock: an IANA time zone, or a fixed offset from UTC."""

    name: str

    @functools.cached_property
    def offset(self) -> timedelta | None:
        """The fixed offset, or None for a time zone.

        Raises:
            DataError: The name is neither.
        """
        if self.name.upper() in ("UTC", "GMT", "Z"):
            return timedelta(0)
        match = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", self.name)
        if match:
            size = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
            return -size if match[1] == "-" else size
        try:
            ZoneInfo(self.name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            hint = nearest(self.name, available_timezones(), list_all=False)
            raise DataError(
                f"time zone {self.name!r} is unknown; give an IANA name such as Europe/Berlin, or an offset such as "
                "+01:00" + (f"; {hint}" if hint else "")
            ) from None
        return None


@dataclass(frozen=True, kw_only=True)
class Times:
    """Times of a table's rows.

    Attributes:
        utc: UTC times without zone; null where the text is missing or the clock skips it.
        skipped: Which rows have a time that the clock skips.
        by_order: Which times of a repeated hour were resolved by their order in the file.
        guessed: Which times of a repeated hour stand once and were taken as summer time.
        local: Which texts were on a clock other than UTC and had no offset of their own.
        short_years: Which texts had a year of two digits, taken as one of this century.
    """

    utc: pl.Series
    skipped: pl.Series
    by_order: pl.Series
    guessed: pl.Series
    local: pl.Series
    short_years: pl.Series


def read_times(
    table: Table,
    column: str,
    clock: Clock | None,
    *,
    order: Order | None = None,
    series: pl.Series | None = None,
    second: pl.Series | None = None,
    missing: tuple[str, ...] = ("",),
    text: pl.Series | None = None,
    shift: timedelta = timedelta(0),
    oldest: datetime | None = OLDEST,
) -> Times:
    """Returns the UTC times that a column's texts denote, by the rule of this module.

    Args:
        table: Table.
        column: Its column of times, for messages and, without ``text``, for the texts.
        clock: Clock of texts without an offset; None: they are refused.
        order: Order of day and month where the year does not come first; None: found in the column.
        series: What a row belongs to; a repeated hour stands twice within one series. None: all rows are one.
        second: True on rows that the file marks as the second of a repeated hour, False on its first, null on others.
        missing: Lower-case words that stand for no time.
        text: Texts to read in place of the column's.
        shift: Added to every local time before its clock is asked: minus the length of an interval whose end is stated.
        oldest: Earlier times are refused; None: none are.

    Raises:
        DataError: A text is no time or an earlier one, has no offset and there is no clock, or day and month cannot be
            found out.
    """
    raw = (table.frame[column] if text is None else text).fill_null("").str.strip_chars()
    none = raw.str.to_lowercase().is_in(list(missing))
    rest = raw.str.replace(_TIME, "").str.strip_chars().str.to_uppercase()
    shape = "such as 2024-03-31 14:00 or 2024-03-31T14:00Z"
    broken = ~none & (~raw.str.contains(_TIME) | ((rest != "") & ~rest.str.contains(_REST)))
    table.refuse(broken, column, f"is not a time; write it {shape}")
    naive = _naive(table, column, raw, none, order)
    table.refuse(naive.is_null() & ~none, column, f"is not a valid date or time; write it {shape}")
    if oldest is not None:
        table.refuse(
            naive < oldest, column, f"lies before {oldest:%Y}: a slip, or seconds since 1970 that were 0; correct it"
        )
    short_years = ~none & raw.str.contains(_SHORT_YEAR)
    local = ~none & (rest == "")
    if clock is None:
        table.refuse(local, column, "has no time zone; say whose clock it is, e.g. --timezone Europe/Berlin or UTC")
    naive = naive + shift
    utc = naive - _offsets(rest)
    nothing = pl.Series([False], dtype=pl.Boolean).new_from_index(0, raw.len())
    if clock is None or not local.any():
        return Times(utc=utc, skipped=nothing, by_order=nothing, guessed=nothing, local=local, short_years=short_years)
    if clock.offset is not None:
        moved = pl.select(pl.when(local).then(naive - clock.offset).otherwise(utc)).to_series()
        is_utc = clock.offset == timedelta(0)
        return Times(
            utc=moved,
            skipped=nothing,
            by_order=nothing,
            guessed=nothing,
            local=nothing if is_utc else local,
            short_years=short_years,
        )
    early = _in_zone(naive, clock.name, "earliest")
    late = _in_zone(naive, clock.name, "latest")
    repeated = local & (early != late).fill_null(value=False)
    skipped = local & early.is_null() & naive.is_not_null()
    is_second, by_order, guessed = _second(naive, repeated, series, second)
    taken = pl.select(pl.when(is_second).then(late).otherwise(early)).to_series()
    utc = pl.select(pl.when(local).then(taken).otherwise(utc)).to_series()
    return Times(utc=utc, skipped=skipped, by_order=by_order, guessed=guessed, local=local, short_years=short_years)


def stated_times(table: TextTable, timezone: str | None, wanted: str) -> pl.Series:
    """Returns the UTC times of a table's column ``time``, one in each row.

    Args:
        table: Table.
        timezone: Clock of texts without an offset; None: they are refused.
        wanted: What a row's time is, for the message.

    Raises:
        DataError: There is no such column, a row has no time, or one that the clock skips; or as ``read_times``.
    """
    name = table.column("time")
    times = read_times(table, name, None if timezone is None else Clock(timezone))
    table.refuse(times.skipped, name, "does not exist on the file's clock; correct it, or give UTC")
    table.refuse(times.utc.is_null(), name, f"is no time; give {wanted}")
    return times.utc


def time_of(text: str, clock: Clock | None = None) -> datetime:
    """Returns the UTC time of one text.

    Args:
        text: Time, such as ``2024-03-31T14:00Z``.
        clock: Its clock where it has no offset; a repeated hour is summer time.

    Raises:
        DataError: It is no time, has no offset and there is no clock, or the clock skips it.
    """
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise DataError(f"{text!r} is not a time; write it as in 2024-03-31T14:00Z") from None
    if time.tzinfo is not None:
        return time.astimezone(UTC)
    if clock is None:
        raise DataError(f"the time {text!r} has no time zone; end it in Z or an offset such as +01:00")
    if clock.offset is not None:
        return (time - clock.offset).replace(tzinfo=UTC)
    utc = time.replace(tzinfo=ZoneInfo(clock.name)).astimezone(UTC)
    if utc.astimezone(ZoneInfo(clock.name)).replace(tzinfo=None) != time:
        raise DataError(f"the time {text!r} does not exist in {clock.name}: its clock skips that hour")
    return utc


def _naive(table: Table, column: str, raw: pl.Series, none: pl.Series, order: Order | None) -> pl.Series:
    """Returns the times without their offsets; null where they are missing or not of the calendar."""
    part = [raw.str.extract(_TIME, group) for group in range(1, 8)]
    year_first = part[0].str.len_chars() == 4
    if order is None and not year_first.fill_null(value=True).all():
        order = _day_month_order(table, column, raw, none, part[0], part[1])
    first, second, third = part[:3]
    if order == "mdy":
        year, month, day = third, first, second
    elif order == "dmy":
        year, month, day = third, second, first
    else:
        year, month, day = first, second, third
    frame = pl.DataFrame({"first": year_first, "y": year, "m": month, "d": day, "a": first, "b": second, "c": third})
    ymd = frame.select(
        pl.when("first").then("a").otherwise("y").alias("y"),
        pl.when("first").then("b").otherwise("m").str.zfill(2).alias("m"),
        pl.when("first").then("c").otherwise("d").str.zfill(2).alias("d"),
    )
    # Years of two digits are read after a slash or a point alone: 24-06-01 may be of 2024 or of 2001.
    short = raw.str.contains(_SHORT_YEAR) & (ymd["y"].str.len_chars() == 2)
    ymd = ymd.with_columns(y=pl.when(short).then("20" + pl.col("y")).otherwise("y"))
    whole = ymd["y"].str.len_chars() == 4
    date = (ymd["y"] + "-" + ymd["m"] + "-" + ymd["d"]).str.to_datetime("%Y-%m-%d", time_unit="us", strict=False)
    hour, minute, seconds = (each.cast(pl.Int64, strict=False).fill_null(0) for each in part[3:6])
    half = part[6].str.to_lowercase()
    hour = pl.select(
        pl.when(half == "pm").then(hour % 12 + 12).when(half == "am").then(hour % 12).otherwise(hour)
    ).to_series()
    good = whole & (minute < 60) & (seconds < 60) & ((hour < 24) | ((hour == 24) & (minute == 0) & (seconds == 0)))
    time = date + ((hour * 3600 + minute * 60 + seconds) * 1_000_000).cast(pl.Duration("us"))
    return pl.select(pl.when(good & ~none).then(time)).to_series().alias(column)


def _day_month_order(
    table: Table, column: str, raw: pl.Series, none: pl.Series, first: pl.Series, second: pl.Series
) -> Order:
    """Returns whether day or month comes first."""
    if raw.filter(~none).str.contains(r"^\d{1,2}\.").all():
        return "dmy"
    if (first.cast(pl.Int64) > 12).any():
        return "dmy"
    if (second.cast(pl.Int64) > 12).any():
        return "mdy"
    example = raw.filter(~none)[0]
    raise DataError(
        f"{table.name}, column {column!r}: {example!r} may be day/month or month/day, and no row says which; give "
        "--date-order dmy or --date-order mdy"
    )


def _offsets(rest: pl.Series) -> pl.Series:
    """Returns the offsets from UTC that times end in."""
    hours = rest.str.extract(r"^[+-](\d{2})", 1).cast(pl.Int64, strict=False).fill_null(0)
    minutes = rest.str.extract(r"^[+-]\d{2}:?(\d{2})$", 1).cast(pl.Int64, strict=False).fill_null(0)
    sign = pl.select(pl.when(rest.str.starts_with("-")).then(-1).otherwise(1)).to_series()
    return (sign * (hours * 60 + minutes) * 60_000_000).cast(pl.Duration("us"))


def _in_zone(naive: pl.Series, name: str, which: Literal["earliest", "latest"]) -> pl.Series:
    """Returns the UTC times of local ones, of a repeated hour the first or the second; null where skipped."""
    zoned = naive.dt.replace_time_zone(name, ambiguous=which, non_existent="null")
    return zoned.dt.convert_time_zone("UTC").dt.replace_time_zone(None)


def _second(
    naive: pl.Series, repeated: pl.Series, series: pl.Series | None, marked: pl.Series | None
) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Returns which times are the second of a repeated hour, which by their order, and which were guessed."""
    one = pl.Series([""]).new_from_index(0, naive.len())
    frame = pl.DataFrame({"time": naive, "series": one if series is None else series, "repeated": repeated})
    frame = frame.with_columns(
        place=pl.int_range(pl.len()).over("series", "time"),
        count=pl.len().over("series", "time"),
        falls=(pl.col("time").last() < pl.col("time").first()).over("series"),
    )
    twice = frame["repeated"] & (frame["count"] >= 2)
    second = twice & ((frame["place"] == 0) == frame["falls"])
    once = frame["repeated"] & (frame["count"] == 1)
    if marked is None:
        return second, twice, once
    stated = marked.is_not_null()
    is_second = pl.select(pl.when(stated).then(marked).otherwise(second)).to_series().fill_null(value=False) & repeated
    return is_second, twice & ~stated, once & ~stated

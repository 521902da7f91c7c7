"""Rows of a signal file, checked: the reading half of :func:`noonward.data.signals.load.load_signals`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from noonward.data.clock import OLDEST
from noonward.data.table_file import TableFile, collected, column_names, scan_table
from noonward.data.text_table import separator_of
from noonward.errors import DataError, nearest

TIDY: Final = {
    "timestamp": "timestamp",
    "zone": "zone",
    "carbon": "carbon_intensity_g_per_kwh",
    "price": "price_usd_per_mwh",
}
"""Standard column names of a tidy file, by key."""

FLAGS: Final = {"real": "is_real", "estimated": "carbon_is_estimated"}
"""Optional yes/no columns: whether a price is market data, whether an intensity is the publisher's estimate."""

KIND: Final = "carbon_kind"
"""Optional column that says whether intensities are ``average`` or ``marginal``."""

_UTC_NAMES: Final = ("UTC", "Etc/UTC", "Z", "+00:00")
_STAMP: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?"
_ROW: Final = "row of the file"
_UNIT: Final = {"carbon": "gCO2/kWh", "price": "USD/MWh"}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a file keeps what.

    Attributes:
        path: The file.
        rows: Its rows, unread; all columns of a CSV file are text.
        columns: Column names by key: timestamp, zone, carbon, price, real, estimated; only those the file has.
    """

    path: Path
    rows: pl.LazyFrame
    columns: Mapping[str, str]

    @property
    def is_csv(self) -> bool:
        """Whether the file is text."""
        return self.path.suffix.lower() == ".csv"


def tidy_layout(path: Path, columns: Mapping[str, str]) -> Layout:
    """Returns the layout of a tidy file.

    Args:
        path: CSV or Parquet file.
        columns: Column names by key where they differ from the standard ones.

    Raises:
        DataError: The file cannot be read, a key is unknown or a column is missing.
    """
    for key in columns:
        if key not in TIDY:
            raise DataError(f"columns names the unknown key {key!r}; {nearest(key, TIDY)}")
    rows, present = scan_table(path), column_names(path)
    if len(present) == 1 and (separator := separator_of(present[0])) != "," and separator in present[0]:
        raise DataError(
            f"{path.name}: its fields are separated by {separator!r}, those of a tidy file by commas; turn it "
            "into one: "
            f"noonward import {path.name} --out FOLDER"
        )
    for key, name in {**TIDY, **columns}.items():
        if name not in present and key in ("timestamp", "zone"):
            raise DataError(
                f"{path.name}: the column {name!r} for {key} is missing; rename it in the file, map it by "
                f"columns, or turn the file into a tidy one (noonward import {path.name} --out FOLDER); "
                f"{nearest(name, present)}"
            )
    names = {key: name for key, name in {**TIDY, **columns, **FLAGS}.items() if name in present}
    if "carbon" not in names and "price" not in names:
        carbon, price = ({**TIDY, **columns}[key] for key in ("carbon", "price"))
        raise DataError(
            f"{path.name}: neither {carbon!r} nor {price!r} is a column of it; columns: {', '.join(present)}; "
            "give at least one of the two, or map its name by columns"
        )
    for key in ("carbon", "price"):
        near = [name for name in present if key in name.lower() and name not in {*TIDY.values(), *FLAGS.values()}]
        if key not in names and near:
            raise DataError(
                f"{path.name}: there is no column {({**TIDY, **columns})[key]!r}, but one named {near[0]!r}, which "
                "would be ignored; rename it (with its unit converted), map it by columns, or remove it"
            )
    return Layout(path=path, rows=rows, columns=names)


def known_zones(layout: Layout) -> set[str]:
    """Returns the zones that a file has rows of."""
    zones = layout.rows.select(_zone(layout).drop_nulls().unique())
    return set(collected(zones, layout.path)["zone"])


def carbon_kind(layout: Layout) -> str | None:
    """Returns ``average`` or ``marginal`` where a column ``carbon_kind`` of the file says one of them; else None."""
    if KIND not in column_names(layout.path):
        return None
    kinds = collected(layout.rows.select(pl.col(KIND).cast(pl.String).drop_nulls().unique()), layout.path)[KIND]
    return str(kinds[0]) if kinds.len() == 1 else None


def read_rows(layout: Layout, zones: tuple[str, ...]) -> pl.DataFrame:
    """Returns a file's rows of some zones, checked.

    Returns:
        Columns ``timestamp`` (UTC, on a full hour or some 5 minutes after it), ``zone``, ``carbon`` and ``price`` (NaN:
        unknown), and the flags the file has.

    Raises:
        DataError: A row breaks a rule of :mod:`noonward.data.signals.load`; the message names file, row and column.
    """
    wanted = _zone(layout).is_in(list(zones)) | _zone(layout).is_null()
    used = list(dict.fromkeys(layout.columns.values()))
    rows = collected(layout.rows.with_row_index(_ROW, offset=1).filter(wanted).select(_ROW, *used), layout.path)
    table = TableFile(path=layout.path, frame=rows.drop(_ROW), column_of=layout.columns, numbers_of_rows=rows[_ROW])
    zone = rows.select(_zone(layout))["zone"]
    table.refuse(zone.is_null(), layout.columns["zone"], "; give every row a zone")
    out = {"zone": zone, "timestamp": _times(table, zone)}
    for key in ("carbon", "price"):
        out[key] = _numbers(table, key)
    for key, name in FLAGS.items():
        if key in layout.columns:
            out[name] = table.flags(key)
    made = pl.DataFrame(out)
    _refuse_duplicates(made.with_columns(row=table.lines), table)
    if FLAGS["real"] in made.columns:
        bare = made[FLAGS["real"]].is_null() & made["price"].is_not_nan()
        table.refuse(bare, layout.columns["real"], "beside a price; say true or false")
    return made


def _zone(layout: Layout) -> pl.Expr:
    """Returns the zone of a row as text; null if it is empty."""
    text = pl.col(layout.columns["zone"]).cast(pl.String)
    if layout.is_csv:
        text = text.str.strip_chars()
    return pl.when(text != "").then(text).alias("zone")


def _times(table: TableFile, zones: pl.Series) -> pl.Series:
    """Returns the UTC times of the rows."""
    name = table.column_of["timestamp"]
    stamp = table.frame[name]
    table.refuse(stamp.is_null(), name, "; give the UTC start of the hour")
    if isinstance(stamp.dtype, pl.Datetime):
        zone = stamp.dtype.time_zone
        every = pl.Series([True]).new_from_index(0, len(table))
        if zone is None:
            why = "has no time zone; store the column with the time zone UTC (polars: dt.replace_time_zone('UTC'))"
            table.refuse(every, name, why)
        elif zone not in _UTC_NAMES:
            table.refuse(
                every, name, f"is in the non-UTC time zone {zone}; store UTC (polars: dt.convert_time_zone('UTC'))"
            )
        time = stamp
    elif stamp.dtype == pl.String:
        time = _parsed_times(table)
    else:
        raise DataError(f"{table.name}: column {name!r} is of type {stamp.dtype}; give times in UTC")
    old = f"lies before {OLDEST:%Y}: a slip, such as a year of two digits; correct it"
    table.refuse(time.dt.year() < OLDEST.year, name, old)
    whole = time.dt.truncate("1h")
    remedy = "give values of 60, 30, 20, 15, 10 or 5 minutes, each at its start"
    table.refuse(
        time != time.dt.truncate("5m"), name, f"is off the full hour, and off its parts of 5 minutes; {remedy}"
    )
    rows = pl.DataFrame({"zone": zones, "whole": whole})
    alone = rows.select(pl.len().over("zone", "whole") == 1).to_series()
    table.refuse((time != whole) & alone, name, f"is off the full hour, and alone in it; {remedy}")
    return time.dt.cast_time_unit("us").dt.convert_time_zone("UTC")


def _parsed_times(table: TableFile) -> pl.Series:
    """Returns the times that texts denote, UTC."""
    name = table.column_of["timestamp"]
    text = table.frame[name].str.strip_chars()
    shape = "such as 2022-01-01T00:00Z"
    table.refuse(~text.str.contains(_STAMP), name, f"is not a time; write UTC times {shape}")
    rest = text.str.replace(_STAMP, "")
    table.refuse(rest == "", name, f"has no time zone; write UTC times with a Z at the end, {shape}")
    offset = rest.str.contains(r"^[+-]\d{2}:?\d{2}$") & ~rest.is_in(["+00:00", "+0000"])
    table.refuse(offset, name, f"has a non-UTC offset; convert it to UTC, {shape}")
    table.refuse(~rest.is_in(["Z", "+00:00"]), name, f"does not end in Z or +00:00; write UTC times {shape}")
    plain = text.str.extract(f"({_STAMP})", 1).str.replace("T", " ")
    plain = pl.select(pl.when(plain.str.len_chars() == 16).then(plain + ":00").otherwise(plain)).to_series()
    time = plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", time_zone="UTC", strict=False)
    table.refuse(time.is_null(), name, f"is not a valid date or time; write UTC times {shape}")
    return time


def _numbers(table: TableFile, key: str) -> pl.Series:
    """Returns one variable's values; NaN where unknown."""
    if key not in table.column_of:
        return pl.Series(key, [float("nan")], dtype=pl.Float64).new_from_index(0, len(table))
    low, least = (0.0, ", at least 0") if key == "carbon" else (-np.inf, "")
    allowed = f"give a finite number of {_UNIT[key]}{least}, or leave it empty where it is unknown"
    return pl.Series(key, table.numbers(key, allowed, low=low, unknown=True))


def _refuse_duplicates(rows: pl.DataFrame, table: TableFile) -> None:
    """Raises if a zone's hour stands twice."""
    twice = rows.filter(pl.struct("zone", "timestamp").is_duplicated())
    if twice.height:
        zone, time = twice["zone"][0], twice["timestamp"][0]
        lines = twice.filter((pl.col("zone") == zone) & (pl.col("timestamp") == time))["row"]
        raise DataError(
            f"{table.name}, {table.counted}s {lines[0]} and {lines[1]}, column {table.column_of['timestamp']!r}: zone "
            f"{zone} has the hour {time:%Y-%m-%dT%H:%MZ} twice; keep one row per zone and hour"
        )

"""Rows of a signal file, checked: the reading half of :func:`noonward.data.signals.load.load_signals`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from noonward.data.clock import OLDEST
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
    rows = _scan(path)
    present = _names(rows, path)
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
    return set(_collect(zones, layout.path)["zone"])


def carbon_kind(layout: Layout) -> str | None:
    """Returns ``average`` or ``marginal`` where a column ``carbon_kind`` of the file says one of them; else None."""
    if KIND not in _names(layout.rows, layout.path):
        return None
    kinds = _collect(layout.rows.select(pl.col(KIND).cast(pl.String).drop_nulls().unique()), layout.path)[KIND]
    return str(kinds[0]) if kinds.len() == 1 else None


def read_rows(layout: Layout, zones: tuple[str, ...]) -> pl.DataFrame:
    """Returns a file's rows of some zones, checked.

    Returns:
        Columns ``timestamp`` (UTC), ``zone``, ``carbon`` and ``price`` (NaN: unknown), and the flags the file has.

    Raises:
        DataError: A row breaks a rule of :mod:`noonward.data.signals.load`; the message names file, row and column.
    """
    wanted = _zone(layout).is_in(list(zones))
    first_row = 2 if layout.is_csv else 1
    own = [pl.col(name).alias(f"{key}:raw") for key, name in layout.columns.items() if key != "zone"]
    numbered = layout.rows.with_row_index("row", offset=first_row)
    raw = _collect(numbered.filter(wanted | _zone(layout).is_null()).select("row", _zone(layout), *own), layout.path)
    _refuse(raw, pl.col("zone").is_null(), layout, "zone", "is empty; give every row a zone")
    out = {"zone": raw["zone"], "timestamp": _times(raw, layout)}
    for key in ("carbon", "price"):
        out[key] = _numbers(raw, layout, key)
    for key, name in FLAGS.items():
        if key in layout.columns:
            out[name] = _flags(raw, layout, key)
    table = pl.DataFrame(out)
    _refuse_duplicates(table.with_columns(raw["row"]), layout)
    if FLAGS["real"] in table.columns:
        bare = table[FLAGS["real"]].is_null() & table["price"].is_not_nan()
        _refuse(raw, bare, layout, "real", "is empty beside a price; say true or false")
    return table


def _scan(path: Path) -> pl.LazyFrame:
    """Returns a file's rows, unread."""
    if not path.is_file():
        raise DataError(f"signal file {path} does not exist or is not a file; check the path")
    kind = path.suffix.lower()
    if kind == ".csv":
        return pl.scan_csv(path, infer_schema=False, encoding="utf8")
    if kind in (".parquet", ".pq"):
        return pl.scan_parquet(path)
    raise DataError(f"{path.name}: files of type {kind or '(none)'!r} cannot be read; give .csv or .parquet")


def _names(rows: pl.LazyFrame, path: Path) -> list[str]:
    """Returns a file's column names."""
    try:
        return rows.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path.name}: its columns cannot be read: {error}; give a valid file") from error


def _collect(rows: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """Returns rows, read."""
    try:
        return rows.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path.name}: its rows cannot be read: {error}; give a valid file") from error


def _zone(layout: Layout) -> pl.Expr:
    """Returns the zone of a row as text; null if it is empty."""
    text = pl.col(layout.columns["zone"]).cast(pl.String)
    if layout.is_csv:
        text = text.str.strip_chars()
    return pl.when(text != "").then(text).alias("zone")


def _refuse(raw: pl.DataFrame, broken: pl.Expr | pl.Series, layout: Layout, key: str, why: str) -> None:
    """Raises at the first broken row, naming file, row, column and value."""
    bad = raw.filter(broken)
    if bad.height:
        shown = "" if key == "zone" else f" {bad[f'{key}:raw'][0]!s}"
        word = "line" if layout.is_csv else "row"
        raise DataError(
            f"{layout.path.name}, {word} {bad['row'][0]}, column {layout.columns[key]!r}: the value{shown} {why}"
        )


def _times(raw: pl.DataFrame, layout: Layout) -> pl.Series:
    """Returns the UTC hours of the rows."""
    stamp = raw["timestamp:raw"]
    _refuse(raw, stamp.is_null(), layout, "timestamp", "is empty; give the UTC start of the hour")
    if isinstance(stamp.dtype, pl.Datetime):
        zone = stamp.dtype.time_zone
        if zone is None:
            _refuse(
                raw,
                pl.lit(value=True),
                layout,
                "timestamp",
                "has no time zone; store the column with the time zone UTC (polars: dt.replace_time_zone('UTC'))",
            )
        elif zone not in _UTC_NAMES:
            _refuse(
                raw,
                pl.lit(value=True),
                layout,
                "timestamp",
                f"is in the non-UTC time zone {zone}; store UTC (polars: dt.convert_time_zone('UTC'))",
            )
        time = stamp
    elif stamp.dtype == pl.String:
        time = _parsed_times(raw, layout)
    else:
        raise DataError(
            f"{layout.path.name}: column {layout.columns['timestamp']!r} is of type {stamp.dtype}; give times in UTC"
        )
    _refuse(
        raw,
        time.dt.year() < OLDEST.year,
        layout,
        "timestamp",
        f"lies before {OLDEST:%Y}: a slip, such as a year of two digits; correct it",
    )
    whole = time.dt.truncate("1h")
    _refuse(raw, time != whole, layout, "timestamp", "is off the full hour; give hourly values, each at its start")
    return whole.dt.cast_time_unit("us").dt.convert_time_zone("UTC")


def _parsed_times(raw: pl.DataFrame, layout: Layout) -> pl.Series:
    """Returns the times that texts denote, UTC."""
    key = "timestamp"
    text = raw[f"{key}:raw"].str.strip_chars()
    shape = "such as 2022-01-01T00:00Z"
    _refuse(raw, ~text.str.contains(_STAMP), layout, key, f"is not a time; write UTC times {shape}")
    rest = text.str.replace(_STAMP, "")
    _refuse(raw, rest == "", layout, key, f"has no time zone; write UTC times with a Z at the end, {shape}")
    offset = rest.str.contains(r"^[+-]\d{2}:?\d{2}$") & ~rest.is_in(["+00:00", "+0000"])
    _refuse(raw, offset, layout, key, f"has a non-UTC offset; convert it to UTC, {shape}")
    _refuse(raw, ~rest.is_in(["Z", "+00:00"]), layout, key, f"does not end in Z or +00:00; write UTC times {shape}")
    plain = text.str.extract(f"({_STAMP})", 1).str.replace("T", " ")
    plain = pl.select(pl.when(plain.str.len_chars() == 16).then(plain + ":00").otherwise(plain)).to_series()
    time = plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", time_zone="UTC", strict=False)
    _refuse(raw, time.is_null(), layout, key, f"is not a time of the calendar; write UTC times {shape}")
    return time


def _numbers(raw: pl.DataFrame, layout: Layout, key: str) -> pl.Series:
    """Returns one variable's values; NaN where unknown."""
    if key not in layout.columns:
        return pl.Series(key, [float("nan")], dtype=pl.Float64).new_from_index(0, raw.height)
    column = raw[f"{key}:raw"]
    if column.dtype == pl.String:
        text = column.str.strip_chars()
        unknown = text.is_null() | text.str.to_lowercase().is_in(["", "nan"])
        value = text.cast(pl.Float64, strict=False)
        why = f"is not a number; give {_UNIT[key]}, or leave it empty where it is unknown"
        _refuse(raw, value.is_null() & ~unknown, layout, key, why)
    elif column.dtype.is_numeric() or column.dtype == pl.Null:
        value = column.cast(pl.Float64)
    else:
        raise DataError(
            f"{layout.path.name}: column {layout.columns[key]!r} is of type {column.dtype}; "
            f"give numbers in {_UNIT[key]}"
        )
    value = value.fill_null(float("nan"))
    why = f"is infinite; give a finite number of {_UNIT[key]}, or leave it empty where it is unknown"
    _refuse(raw, value.is_infinite(), layout, key, why)
    if key == "carbon":
        _refuse(raw, (value < 0) & value.is_not_nan(), layout, key, f"is negative; it must be at least 0 {_UNIT[key]}")
    return value.alias(key)


def _flags(raw: pl.DataFrame, layout: Layout, key: str) -> pl.Series:
    """Returns a yes/no column; null where it is empty."""
    column = raw[f"{key}:raw"]
    if column.dtype == pl.Boolean:
        return column
    if column.dtype == pl.Null:
        return column.cast(pl.Boolean)
    text = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    words = {"true": True, "1": True, "false": False, "0": False}
    flag = text.replace_strict(words, default=None, return_dtype=pl.Boolean)
    _refuse(raw, flag.is_null() & (text != ""), layout, key, "is neither true nor false; write true or false")
    return flag


def _refuse_duplicates(table: pl.DataFrame, layout: Layout) -> None:
    """Raises if a zone's hour stands twice."""
    twice = table.filter(pl.struct("zone", "timestamp").is_duplicated())
    if twice.height:
        zone, time = twice["zone"][0], twice["timestamp"][0]
        rows = twice.filter((pl.col("zone") == zone) & (pl.col("timestamp") == time))["row"]
        word = "lines" if layout.is_csv else "rows"
        raise DataError(
            f"{layout.path.name}, {word} {rows[0]} and {rows[1]}, column {layout.columns['timestamp']!r}: zone {zone} "
            f"has the hour {time:%Y-%m-%dT%H:%MZ} twice; keep one row per zone and hour"
        )

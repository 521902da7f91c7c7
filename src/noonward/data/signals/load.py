"""Hourly prices and carbon intensities from files: tidy tables and Electricity Maps exports.

Rules, the same for every format:

* A time is the UTC start of the hour its values hold for. In a CSV file it ends in ``Z`` or ``+00:00``; in a Parquet
  file its column has the time zone UTC. Times without a zone, with another offset, or off the full hour are refused.
* An empty value and ``nan`` are unknown. Hours missing inside the span of the files are unknown. Unknown values are no
  error until a run needs them.
* Negative prices are legal. Infinite values and negative carbon intensities are refused, and so is a zone's hour that
  stands twice in one file.
* A later file fills only what the earlier ones leave unknown.
* Only rows of the zones asked for are read and checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.data.signals.rows import FLAGS, Layout, electricity_maps_layout, known_zones, read_rows, tidy_layout
from noonward.errors import DataError, nearest
from noonward.files import write_table
from noonward.model.signals import Signals

_ESTIMATED_SHARE_WORTH_A_NOTE = 0.2


def load_signals(
    paths: Sequence[str | Path],
    format: Literal["tidy", "electricity-maps"] = "tidy",
    columns: Mapping[str, str] | None = None,
    zones: Sequence[str] | None = None,
) -> Signals:
    """Reads price and carbon intensity of some zones; the rules are at the top of this module.

    Args:
        paths: CSV (``.csv``) or Parquet (``.parquet``) files; a later one fills only what earlier ones leave unknown.
        format: ``"tidy"``: one row an hour and zone, columns ``timestamp``, ``zone``, ``carbon_intensity_g_per_kwh``
            (gCO2/kWh) and ``price_usd_per_mwh`` (USD/MWh), of which a file may lack one; optional flags ``is_real``
            (false: the price is a stand-in) and ``carbon_is_estimated``. ``"electricity-maps"``: that publisher's
            hourly CSV exports; life-cycle intensity, no prices, and ``Datetime (UTC)`` counts as UTC by its name.
        columns: Names in tidy files where they differ; keys ``timestamp``, ``zone``, ``carbon``, ``price``.
        zones: Zones to read, in the order of the result; none: all, by name.

    Returns:
        Signals from the first to the last hour that any zone asked for has in any file; unknown hours are NaN. The
        notes say how many price hours are a stand-in, and where over 20 % of a zone's intensities are estimates.

    Raises:
        DataError: A file cannot be read or breaks a rule (the message names file, row and column), a column or a zone
            is missing, or an argument is unknown.
    """
    files = [Path(path) for path in paths]
    if not files:
        raise DataError("no signal file was given; name at least one CSV or Parquet file")
    if format not in ("tidy", "electricity-maps"):
        raise DataError(f"signal format {format!r} is unknown; {nearest(format, ('tidy', 'electricity-maps'))}")
    if format == "electricity-maps" and columns:
        raise DataError("columns can be renamed in tidy files only; leave them out for the format 'electricity-maps'")
    layouts = [
        tidy_layout(path, columns or {}) if format == "tidy" else electricity_maps_layout(path) for path in files
    ]
    _check_columns_used(layouts, columns or {})
    wanted = _wanted_zones(layouts, zones)
    tables = [read_rows(layout, wanted) for layout in layouts]
    _check_all_found(layouts, tables, wanted)
    start, hours = _span(tables, files)
    price_ZH, carbon_ZH = np.full((2, len(wanted), hours), np.nan)
    notes: list[str] = []
    stand_ins: list[tuple[str, int, Path]] = []
    for layout, table in zip(layouts, tables, strict=True):
        row_Z, hour = _positions(table, wanted, start)
        price_new = _fill(price_ZH, row_Z, hour, table["price"])
        carbon_new = _fill(carbon_ZH, row_Z, hour, table["carbon"])
        notes += _estimate_notes(layout.path, table, carbon_new, wanted)
        stand_ins += _stand_in_hours(layout.path, table, price_new, wanted)
    for zone, count, path in stand_ins:
        known = int(np.isfinite(price_ZH[wanted.index(zone)]).sum())
        notes.append(f"{zone} price: {count} of {known} hours are a stand-in, not market data (file {path.name})")
    return Signals(
        start=start,
        zones=wanted,
        value_ZH={"price_usd_per_mwh": price_ZH, "carbon_g_per_kwh": carbon_ZH},
        notes=tuple(notes),
    )


def _check_columns_used(layouts: list[Layout], columns: Mapping[str, str]) -> None:
    """Raises if a renamed column is in none of the files."""
    for key, name in columns.items():
        if not any(key in layout.columns for layout in layouts):
            files = ", ".join(layout.path.name for layout in layouts)
            present = {column for layout in layouts for column in layout.rows.collect_schema().names()}
            raise DataError(f"the column {name!r} named for {key} is in none of {files}; {nearest(name, present)}")


def _wanted_zones(layouts: list[Layout], zones: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the zones to read."""
    if zones is None:
        return tuple(sorted(set().union(*(known_zones(layout) for layout in layouts))))
    if not zones:
        raise DataError("the list of zones to load is empty; name at least one, or leave it out to load all")
    if len(set(zones)) != len(zones):
        raise DataError(f"a zone stands twice in {tuple(zones)}; name each zone once")
    return tuple(zones)


def _check_all_found(layouts: list[Layout], tables: list[pl.DataFrame], wanted: tuple[str, ...]) -> None:
    """Raises if a zone has no row in any file."""
    found: set[str] = set().union(*(table["zone"].unique() for table in tables))
    missing = [zone for zone in wanted if zone not in found]
    if missing:
        known = set().union(*(known_zones(layout) for layout in layouts))
        names = ", ".join(layout.path.name for layout in layouts)
        raise DataError(f"zone {missing[0]!r} has no row in {names}; {nearest(missing[0], known)}")


def _span(tables: list[pl.DataFrame], files: list[Path]) -> tuple[datetime, int]:
    """Returns the first hour and the number of hours that the rows span."""
    stamps = [table["timestamp"] for table in tables if table.height]
    if not stamps:
        raise DataError(f"{', '.join(path.name for path in files)}: no row holds a signal; give files with data")
    bounds = pl.concat(stamps)
    first, last = bounds.min(), bounds.max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    return first.astimezone(UTC), (last - first) // timedelta(hours=1) + 1


def _positions(
    table: pl.DataFrame, wanted: tuple[str, ...], start: datetime
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns each row's zone index and hour index."""
    order = {zone: index for index, zone in enumerate(wanted)}
    zone = table["zone"].replace_strict(order, return_dtype=pl.Int64).to_numpy()
    hour = (table["timestamp"].dt.epoch("s") - int(start.timestamp())).to_numpy() // 3600
    return zone, hour


def _fill(value_ZH: F8, zone: NDArray[np.int64], hour: NDArray[np.int64], column: pl.Series) -> NDArray[np.bool_]:
    """Writes known values into hours still unknown, in place; returns which rows were used."""
    value = column.to_numpy()
    used = np.isnan(value_ZH[zone, hour]) & ~np.isnan(value)
    value_ZH[zone[used], hour[used]] = value[used]
    return np.asarray(used)


def _stand_in_hours(
    path: Path, table: pl.DataFrame, used: NDArray[np.bool_], wanted: tuple[str, ...]
) -> list[tuple[str, int, Path]]:
    """Returns the zones to which a file contributed prices that are not real, with their number."""
    if FLAGS["real"] not in table.columns:
        return []
    false = table.filter(pl.Series(used) & ~pl.col(FLAGS["real"]))
    counts = dict(false.group_by("zone").len().iter_rows())
    return [(zone, counts[zone], path) for zone in wanted if zone in counts]


def _estimate_notes(path: Path, table: pl.DataFrame, used: NDArray[np.bool_], wanted: tuple[str, ...]) -> list[str]:
    """Returns a note for each zone whose contributed carbon intensities are estimates beyond the stated share."""
    if FLAGS["estimated"] not in table.columns:
        return []
    share = table.filter(pl.Series(used)).group_by("zone").agg(pl.col(FLAGS["estimated"]).fill_null(value=False).mean())
    shares = dict(share.iter_rows())
    return [
        f"{zone} carbon intensity: {shares[zone]:.0%} of the hours are the publisher's estimates (file {path.name})"
        for zone in wanted
        if shares.get(zone, 0.0) > _ESTIMATED_SHARE_WORTH_A_NOTE
    ]


def write_generated_signals(signals: Signals, path: str | Path) -> None:
    """Writes generated signals as a tidy CSV file that ``load_signals`` reads back, with a note that they are not real.

    Args:
        signals: Signals; unknown values become empty cells.
        path: A ``.csv`` file; replaced if it exists.
    """
    hours = [signals.time_of(hour).strftime("%Y-%m-%dT%H:%M:%SZ") for hour in range(signals.hours)]
    frame = pl.DataFrame(
        {
            "timestamp": hours * len(signals.zones),
            "zone": np.repeat(np.array(signals.zones, dtype=object), signals.hours).tolist(),
            "carbon_intensity_g_per_kwh": signals.carbon_g_per_kwh_ZH.ravel(),
            "price_usd_per_mwh": signals.price_usd_per_mwh_ZH.ravel(),
            "is_real": np.zeros(len(signals.zones) * signals.hours, dtype=bool),
        }
    )
    write_table(Path(path), frame.fill_nan(None))

"""Hourly prices and carbon intensities from files: tidy tables, and publishers' files as they are downloaded.

Rules for tidy tables (those of publishers' files: ``noonward.data.signals.clean``):

* A time is the UTC start of what its values hold for: the hour, or where an hour has several rows, 30, 20, 15, 10 or 5
  minutes, the longest that divides the times of the zone's and quantity's known values in that hour. In a CSV file it
  ends in ``Z`` or ``+00:00``; in a Parquet file its column has the time zone UTC. Times without a zone, with another
  offset, off the 5 minutes, or off the full hour and alone in it are refused.
* Of an hour with several rows the mean and the values within are kept (``Signals.parts``); an hour of which less than
  half is known is unknown.
* An empty value and ``nan`` are unknown. Hours missing inside the span of the files are unknown. Unknown values are no
  error until a run needs them.
* Negative prices are legal. Infinite values and negative carbon intensities are refused, and so is a zone's hour that
  stands twice in one file.
* A later file fills only what the earlier ones leave unknown.
* Only rows of the zones asked for are read and checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.data.clock import Clock
from noonward.data.signals.formats import FORMATS, ImportedSignals, format_of, import_signals, is_published
from noonward.data.signals.parts import arrays_of, hours_of
from noonward.data.signals.readings import ImportOptions
from noonward.data.signals.rows import FLAGS, Layout, carbon_kind, known_zones, read_rows, tidy_layout
from noonward.data.text_table import read_head
from noonward.errors import DataError, nearest
from noonward.files import write_table
from noonward.model.cluster.scenario import SignalFile, SignalFiles
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals

_ESTIMATED_SHARE_WORTH_A_NOTE = 0.2
_TEXTS = (".csv", ".txt", ".tsv", ".xml", ".json", "")
"""Endings of files whose format is detected."""


def load_signals(
    paths: Sequence[str | Path | SignalFile],
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    zones: Sequence[str] | None = None,
) -> Signals:
    """Reads price and carbon intensity of some zones; the rules are at the top of this module.

    Args:
        paths: Files, or what their reader must be told; a later one fills only what earlier ones leave unknown.
        format: Format of files that state none: ``"tidy"`` (CSV or Parquet, one row an hour and zone, columns
            ``timestamp``, ``zone``, ``carbon_intensity_g_per_kwh`` (gCO2/kWh) and ``price_usd_per_mwh`` (USD/MWh), of
            which a file may lack one; optional flags ``is_real`` (false: the price is synthetic) and
            ``carbon_is_estimated``), or a publisher's (``noonward.data.signals.formats``). None: each file's is
            detected; a file that no publisher's format recognises is held to be tidy.
        columns: Names in tidy files where they differ; keys ``timestamp``, ``zone``, ``carbon``, ``price``.
        zones: Zones to read, in the order of the result; none: all, by name.

    Returns:
        Signals from the first to the last hour that any zone asked for has in any file, and within the hours where a
        file says more than their means; unknown hours are NaN. The notes say how many price hours are synthetic, where
        over 20 % of a zone's intensities are estimates, and what was converted, filled or dropped in publishers'
        files.

    Raises:
        DataError: A file cannot be read or breaks a rule (the message names file, row and column), a column or a zone
            is missing, or an argument is unknown.
    """
    told = [each if isinstance(each, SignalFile) else SignalFile(path=Path(each)) for each in paths]
    if not told:
        raise DataError("no signal file was given; name at least one CSV or Parquet file")
    files = [_open(each, format, columns or {}) for each in told]
    _check_columns_used(files, columns or {})
    wanted = _wanted_zones(files, zones)
    read = [file.rows(wanted) for file in files]
    tables = [hours for hours, _ in read]
    _check_all_found(files, tables, wanted)
    start, hours = _span(tables, [file.path for file in files])
    price_ZH, carbon_ZH = np.full((2, len(wanted), hours), np.nan)
    notes: list[str] = []
    stand_ins: list[tuple[str, int, Path]] = []
    finer: list[pl.DataFrame] = []
    for file, (table, parts) in zip(files, read, strict=True):
        row_Z, hour = _positions(table, wanted, start)
        price_new = _fill(price_ZH, row_Z, hour, table["price"])
        carbon_new = _fill(carbon_ZH, row_Z, hour, table["carbon"])
        for name, new in (("price", price_new), ("carbon", carbon_new)):
            taken = table.filter(pl.Series(new)).select("zone", "timestamp")
            finer.append(parts.filter(pl.col("quantity") == name).join(taken, on=["zone", "timestamp"], how="semi"))
        notes += _estimate_notes(file.path, table, carbon_new, wanted)
        notes += file.notes
        stand_ins += _stand_in_hours(file.path, table, price_new, wanted)
    notes += _kind_notes(files)
    for zone, count, path in stand_ins:
        known = int(np.isfinite(price_ZH[wanted.index(zone)]).sum())
        notes.append(f"{zone} price: {count} of {known} hours are synthetic, not market data (file {path.name})")
    value_ZH = {PRICE_NAME: price_ZH, CARBON_NAME: carbon_ZH}
    return Signals(
        start=start,
        zones=wanted,
        value_ZH=value_ZH,
        notes=tuple(notes),
        parts=arrays_of(finer, wanted, start, value_ZH),
    )


@dataclass(frozen=True, kw_only=True)
class _File:
    """A signal file that was opened: by its layout (tidy, unread as yet), or read as a publisher's."""

    path: Path
    layout: Layout | None = None
    imported: ImportedSignals | None = None

    @property
    def zones(self) -> set[str]:
        """Zones that the file has rows of."""
        if self.imported is not None:
            return set(self.imported.hours["zone"])
        assert self.layout is not None
        return known_zones(self.layout)

    @property
    def notes(self) -> list[str]:
        """What was converted, filled or dropped."""
        if self.imported is None:
            return []
        entries = self.imported.account.entries
        return [f"{self.path.name}: {each}" for each in entries if each.what in ("filled", "dropped") or each.rate]

    @property
    def kind(self) -> str | None:
        """Whether its carbon intensities are average or marginal, where it says so."""
        if self.imported is not None:
            return self.imported.kind
        assert self.layout is not None
        return carbon_kind(self.layout)

    def rows(self, zones: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Returns the hours of some zones, checked, with NaN where a value is unknown, and the parts of hours."""
        if self.imported is None:
            assert self.layout is not None
            return hours_of(read_rows(self.layout, zones))
        wanted = pl.col("zone").is_in(list(zones))
        hours = self.imported.hours.filter(wanted).with_columns(pl.col("price", "carbon").fill_null(float("nan")))
        return hours.rename({"estimated": FLAGS["estimated"]}), self.imported.parts.filter(wanted)


def _open(file: SignalFile, format: str | None, columns: Mapping[str, str]) -> _File:
    """Returns a file, opened by the format that is told or detected."""
    kind = file.format or format
    path = file.path
    if kind is not None and kind not in ("tidy", *FORMATS):
        raise DataError(f"signal format {kind!r} is unknown; {nearest(kind, ('tidy', *FORMATS))}")
    if kind is None and path.suffix.lower() in _TEXTS and path.is_file() and path.stat().st_size:
        text = read_head(path)
        head = set(text.names())
        untold = SignalFile(path=path)
        if is_published(text) or (file != untold and not {"timestamp", "zone"} <= head):
            kind = format_of(text).name
    if kind is None or kind == "tidy":
        return _File(path=path, layout=tidy_layout(path, file.columns or columns))
    if columns and not file.columns:
        raise DataError(
            f"columns can be renamed in tidy files only; leave them out for {path.name}, of format {kind!r}"
        )
    return _File(path=path, imported=import_signals(path, options_of(file, kind)))


def stated_carbon_kinds(source: SignalFiles) -> list[str]:
    """Returns which kinds of carbon intensity, ``average`` or ``marginal``, a scenario's files say they hold.

    Raises:
        DataError: A file cannot be read.
    """
    files = [each if isinstance(each, SignalFile) else SignalFile(path=each) for each in source.paths]
    kinds = {_open(file, source.format, source.columns).kind for file in files}
    return sorted(kind for kind in kinds if kind is not None)


def options_of(file: SignalFile, format: str | None) -> ImportOptions:
    """Returns what a scenario tells about a file as options of its reader."""
    return ImportOptions(
        format=format,
        clock=None if file.timezone is None else Clock(file.timezone),
        columns=file.columns,
        zones=file.zones,
        zone=file.zone,
        currency=file.currency,
        rates={code: ((date.min, rate),) for code, rate in file.usd_per.items()},
        price_unit=file.price_unit,
        carbon_unit=file.carbon_unit,
        fill_gaps_h=file.fill_gaps_h,
    )


def _kind_notes(files: list[_File]) -> list[str]:
    """Returns a note if some files hold average and others marginal carbon intensities."""
    kinds = {file.path.name: file.kind for file in files if file.kind is not None}
    if len(set(kinds.values())) < 2:
        return []
    listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    return [f"carbon intensities of two kinds are mixed ({listed}): they cannot be compared between zones"]


def _check_columns_used(files: list[_File], columns: Mapping[str, str]) -> None:
    """Raises if a renamed column is in none of the files."""
    layouts = [file.layout for file in files if file.layout is not None]
    for key, name in columns.items():
        if not any(key in layout.columns for layout in layouts):
            names = ", ".join(layout.path.name for layout in layouts)
            present = {column for layout in layouts for column in layout.rows.collect_schema().names()}
            raise DataError(f"the column {name!r} named for {key} is in none of {names}; {nearest(name, present)}")


def _wanted_zones(files: list[_File], zones: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the zones to read."""
    if zones is None:
        return tuple(sorted(set().union(*(file.zones for file in files))))
    if not zones:
        raise DataError("the list of zones to load is empty; name at least one, or leave it out to load all")
    if len(set(zones)) != len(zones):
        raise DataError(f"a zone stands twice in {tuple(zones)}; name each zone once")
    return tuple(zones)


def _check_all_found(files: list[_File], tables: list[pl.DataFrame], wanted: tuple[str, ...]) -> None:
    """Raises if a zone has no row in any file."""
    found: set[str] = set().union(*(table["zone"].unique() for table in tables))
    missing = [zone for zone in wanted if zone not in found]
    if missing:
        known = set().union(*(file.zones for file in files))
        names = ", ".join(file.path.name for file in files)
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

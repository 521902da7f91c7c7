"""What a publisher's file says before it is cleaned: readings of price or carbon with their UTC starts and units."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final, NamedTuple

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import SHORT_YEARS, Clock, Order, Times
from noonward.data.text_table import TextFile, TextTable
from noonward.errors import DataError, RowError

POUND_G: Final = 453.59237
"""Grams of a pound."""
CURRENCIES: Final = {"€": "EUR", "$": "USD", "£": "GBP", "ct": "EUR ct"}
_ENERGY: Final = {"kwh": 1.0, "mwh": 1000.0, "mwhr": 1000.0, "mwhe": 1000.0, "gwh": 1e6}
_MASS_G: Final = {
    "g": 1.0, "gco2": 1.0, "gco2eq": 1.0, "gco2e": 1.0, "kg": 1000.0, "kgco2": 1000.0, "kgco2eq": 1000.0,
    "kgco2e": 1000.0, "t": 1e6, "tco2": 1e6, "tco2eq": 1e6, "tco2e": 1e6, "lb": POUND_G, "lbs": POUND_G,
    "lbco2": POUND_G, "lbsco2": POUND_G, "lbs_co2": POUND_G,
}  # fmt: skip
_AMOUNT_PER_ENERGY: Final = re.compile(
    r"(€ct|eurct|ct|[a-z]{3}|[€$£])\s*(?:/|_per_| per )\s*(kwh|mwhr?e?|gwh)\b", re.IGNORECASE
)
_MASS_PER_ENERGY: Final = re.compile(
    r"(?:\b_?|_)((?:k?g|t|lbs?)(?:_?co2(?:eq|e)?)?)\s*(?:/|_per_| per )\s*(kwh|mwh|gwh)\b", re.IGNORECASE
)


class PriceUnit(NamedTuple):
    """Unit of a price: its currency, and what a value is multiplied by to give currency/MWh."""

    currency: str
    per_mwh: float


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What the user tells about files; what is left out is detected.

    Attributes:
        format: Name of the format.
        encoding: Encoding of the text, as Python names it.
        decimal: Decimal sign, ``.`` or ``,``.
        clock: Time zone of times that have no zone of their own.
        clocks: The same by name of a file, above ``clock``.
        skip_bad: Most rows per file that may be left out because they are wrong.
        date_order: Order of day and month where the year does not come first.
        columns: Names of columns by key, for files that no publisher's format fits.
        zones: Zone of an area or location of the file, by its name there; others are then left out. The name of a file
            stands for the one area it holds.
        zone: Zone of a file that holds one area alone.
        currency: Currency of prices where the file names none, or another one.
        rates: US dollars for a unit of a currency: from each day on, by currency.
        price_unit: Unit of prices, such as ``EUR/kWh``.
        carbon_unit: Unit of carbon intensities, such as ``kg/kWh``.
        fill_gaps_h: Gaps of at most this many hours are filled along a straight line; 0: none are.
    """

    format: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    clock: Clock | None = None
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    skip_bad: int = 0
    date_order: Order | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    currency: str | None = None
    rates: Mapping[str, tuple[tuple[date, float], ...]] = field(default_factory=dict)
    price_unit: str | None = None
    carbon_unit: str | None = None
    fill_gaps_h: int = 0


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Readings of a file.

    Attributes:
        frame: Columns ``line``, ``area`` (text), ``stamp`` (UTC start of the interval, without zone), ``price``
            (currency/MWh), ``carbon`` (g/kWh), ``currency`` (text), ``estimated`` (yes/no or null); null: unknown.
            Optional: ``minutes``, the interval's length, where the file states it.
        zone_of: Zone by area, where the publisher's names are known; an area that is missing is its own zone.
        one_zone: Zone that every location of the file lies in, for markets whose locations are nodes or hubs.
        kind: ``average`` or ``marginal`` carbon intensity; None: the file holds none, or does not say.
    """

    frame: pl.DataFrame
    zone_of: Mapping[str, str] = field(default_factory=dict)
    one_zone: str | None = None
    kind: str | None = None


@dataclass(frozen=True, kw_only=True)
class SignalFormat:
    """A format of signal files.

    Attributes:
        name: Name, as in ``--format``.
        title: What it is, in words.
        recognises: Says from its beginning whether a file is of this format.
        read: Reads a file, and accounts for the rows that are not handed on.
        keys: Keys of columns that ``ImportOptions.columns`` may name; none: the publisher's names are fixed.
    """

    name: str
    title: str
    recognises: Callable[[TextFile], bool]
    read: Callable[[TextFile, ImportOptions, Account], Readings]
    keys: tuple[str, ...] = ()


def hour_starts(table: TextTable, day: str, hour: str, named: pl.Series, pattern: str, allowed: str) -> pl.Series:
    """Returns day and start of hours that are named by their end, 1 to 24, as ``read_times`` reads them.

    Args:
        table: Rows.
        day: Column of the day.
        hour: Column of the hour.
        named: The hours as they are named.
        pattern: What a name is; its group is the number.
        allowed: What is allowed, for the message.

    Raises:
        RowError: A name is no hour.
    """
    end = named.str.extract(pattern, 1).cast(pl.Int64, strict=False)
    table.refuse(end.is_null() | (end < 1) | (end > 24), hour, f"is no hour ending; expected {allowed}")
    return table.frame[day] + " " + (end - 1).cast(pl.String).str.zfill(2) + ":00"


def make_readings(
    table: TextTable,
    times: Times,
    account: Account,
    *,
    time_column: str,
    area: pl.Series | str,
    price: pl.Series | None = None,
    carbon: pl.Series | None = None,
    currency: pl.Series | str = "USD",
    estimated: pl.Series | None = None,
    minutes: pl.Series | int | None = None,
) -> pl.DataFrame:
    """Returns the frame of ``Readings``; rows without a time are left out, rows without a value are accounted for.

    Args:
        table: Table the rows are from.
        times: Their times.
        account: Account of the file.
        time_column: Column of the times, for messages.
        area: Area per row, or one for all.
        price: Prices, currency/MWh.
        carbon: Carbon intensities, g/kWh.
        currency: Currency per row, or one for all.
        estimated: Whether a carbon intensity is an estimate.
        minutes: Length of the intervals; None: found from their spacing.

    Raises:
        DataError: A row has a value without a time or at a time that its clock skips, or a negative carbon intensity.
    """
    count = table.frame.height
    nothing = pl.Series([None], dtype=pl.Float64).new_from_index(0, count)
    price, carbon = (nothing if price is None else price), (nothing if carbon is None else carbon)
    empty = price.is_null() & carbon.is_null()
    table.refuse(
        times.skipped & ~empty,
        time_column,
        "does not exist on the file's clock, which skips that hour in spring; the clock is another one: give it by "
        "--timezone (an offset such as +01:00 for a clock without summer time)",
    )
    table.refuse(times.utc.is_null() & ~times.skipped & ~empty, time_column, "is empty beside a value; give the time")
    lines = table.frame["line"]
    account.add("changed", int(times.local.sum()), "times on a local clock became UTC")
    account.add("read", int(times.short_years.sum()), SHORT_YEARS, _first(lines, times.short_years))
    account.add(
        "changed",
        int((times.by_order & ~empty).sum()),
        "times of the hour that the clock repeats in autumn: the first is summer time, the second standard time",
        _first(lines, times.by_order & ~empty),
    )
    account.add(
        "changed",
        int((times.guessed & ~empty).sum()),
        "times of the repeated autumn hour stand once: taken as summer time, so the hour after it is unknown",
        _first(lines, times.guessed & ~empty),
    )
    account.add("read", int(empty.sum()), "rows without a value: unknown", _first(lines, empty))
    if carbon.len() and (carbon < 0).any():
        row = int((carbon < 0).arg_max() or 0)
        why = f"the carbon intensity {carbon[row]:g} g/kWh is negative"
        raise RowError(
            f"{table.file.name}, line {lines[row]}: {why}; it must be at least 0: correct the file",
            lines.filter((carbon < 0).fill_null(value=False)),
            why,
        )
    frame = pl.DataFrame({"line": lines, "stamp": times.utc, "price": price, "carbon": carbon}).with_columns(
        area=pl.lit(area) if isinstance(area, str) else area,
        currency=pl.lit(currency) if isinstance(currency, str) else currency,
        estimated=pl.lit(None, dtype=pl.Boolean) if estimated is None else estimated,
    )
    if minutes is not None:
        frame = frame.with_columns(minutes=pl.lit(minutes) if isinstance(minutes, int) else minutes)
    return frame.filter(pl.col("stamp").is_not_null())


def drop(table: TextTable, keep: pl.Series, account: Account, why: str) -> TextTable:
    """Returns a table without some rows, which are accounted for.

    Raises:
        DataError: No row is left.
    """
    keep = keep.fill_null(value=False)
    account.add("dropped", int((~keep).sum()), why, _first(table.frame["line"], ~keep))
    if not keep.any():
        raise DataError(f"{table.file.name}: no row is left after these were dropped: {why}; export other rows")
    return table.filter(keep)


def price_unit(text: str, where: str) -> PriceUnit:
    """Returns a unit of prices.

    Args:
        text: Unit, alone or within a column's name: ``EUR/MWh``, ``Price [€/kWh]``, ``usd_per_mwh``.
        where: What it is the unit of, for messages.

    Raises:
        DataError: The text names no such unit.

    Example:
        >>> price_unit("Spot (ct/kWh)", "a column")
        PriceUnit(currency='EUR', per_mwh=10.0)
    """
    match = _AMOUNT_PER_ENERGY.search(text)
    if match is None:
        raise DataError(f"{where} states no unit; give it by --price-unit, e.g. EUR/MWh, EUR/kWh or USD/MWh")
    amount, energy = match[1].lower(), match[2].lower()
    scale = 1000.0 / _ENERGY[energy]
    if amount in ("ct", "€ct", "eurct"):
        return PriceUnit("EUR", scale / 100.0)
    return PriceUnit(CURRENCIES.get(amount, amount).upper(), scale)


def carbon_unit(text: str, where: str) -> float:
    """Returns what a carbon intensity is multiplied by to give g/kWh.

    Args:
        text: Unit, alone or within a column's name: ``gCO2eq/kWh``, ``kg/MWh``, ``lbs_co2_per_mwh``.
        where: What it is the unit of, for messages.

    Raises:
        DataError: The text names no such unit.

    Example:
        >>> carbon_unit("carbon [kg/kWh]", "a column")
        1000.0
    """
    match = _MASS_PER_ENERGY.search(text.replace("₂", "2"))
    if match is None:
        raise DataError(f"{where} states no unit; give it by --carbon-unit, e.g. g/kWh, kg/kWh, kg/MWh or lb/MWh")
    mass = _MASS_G[match[1].lower().replace("_", "")]
    return mass / _ENERGY[match[2].lower()]


def _first(lines: pl.Series, marked: pl.Series) -> int | None:
    """Returns the line of the first marked row."""
    index = marked.arg_max() if marked.any() else None
    return None if index is None else int(lines[index])

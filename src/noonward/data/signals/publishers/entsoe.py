"""ENTSO-E Transparency: day-ahead prices as the platform's CSV exports and as files of its file library.

Three layouts: the old platform (until 2024: the area stands in the header alone, ``dd.mm.yyyy``), the new one
(``dd/mm/yyyy``, a column ``Area``, marks ``(CET)`` and ``(CEST)`` near a change of the clock), and the file library
(tab-separated, UTC, all areas, several series). Of several series of one area, that of the coupled auction is taken:
sequence 1, or the rows without a sequence.
"""

from __future__ import annotations

import re

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.publishers.entsoe_areas import zone_of_area
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, drop, make_readings, price_unit
from noonward.data.text_table import TextFile, TextTable
from noonward.errors import DataError

_CLOCK = Clock("Europe/Brussels")
"""Central European time, which the platform writes for every area."""


def _recognises(file: TextFile) -> bool:
    names = file.names()
    platform = bool(names) and names[0].startswith("mtu (") and any("day-ahead price" in name for name in names)
    return platform or _is_library(names)


def _is_library(names: list[str]) -> bool:
    return bool({"datetime", "datetime(utc)"} & set(names)) and "resolutioncode" in names and "mapcode" in names


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    names = file.names()
    if _is_library(names):
        return _read_library(file, options, account)
    table = file.table()
    account.rows_in = table.frame.height
    time = table.frame.columns[1]
    price = next(name for name in table.frame.columns if "day-ahead price" in name.lower())
    area = table.find("Area")
    if area is not None:
        table = _one_sequence(table, table.find("Sequence"), account)
        areas: pl.Series | str = table.frame[area].fill_null("")
    else:
        areas = next((name for name in file.header() if re.match(r"(BZN|CTA|CTY)\|", name)), options.zone or "")
        if not areas:
            raise DataError(f"{file.name} names no area; say which zone it is, e.g. --zone DE")
    parts = table.frame[time].fill_null("").str.split(" - ").list.first().str.strip_chars()
    mark = parts.str.extract(r"\((CES?T)\)", 1)
    plain = parts.str.replace(r"\s*\(CES?T\)", "")
    times = read_times(
        table,
        time,
        Clock("UTC") if "utc" in time.lower() else _CLOCK,
        order="dmy",
        series=areas if isinstance(areas, pl.Series) else None,
        second=pl.select(pl.when(mark.is_not_null()).then(mark == "CET")).to_series(),
        text=plain,
    )
    unit = price_unit(options.price_unit or price, f"{file.name}, column {price!r}")
    value = table.numbers(price, f"{unit.currency}/MWh", decimal=options.decimal) * unit.per_mwh
    code = table.find("Currency")
    currency = table.frame[code].replace("", None).fill_null(unit.currency) if code is not None else unit.currency
    account.add("read", table.frame.height, f"day-ahead prices in {unit.currency}/MWh, times in {time!r}")
    frame = make_readings(table, times, account, time_column=time, area=areas, price=value, currency=currency)
    return Readings(frame=frame, zone_of=_zones(frame))


def _one_sequence(table: TextTable, column: str | None, account: Account) -> TextTable:
    """Returns the rows of the coupled auction."""
    if column is None:
        return table
    sequence = table.frame[column].fill_null("").str.to_lowercase().str.extract(r"(\d+)", 1)
    first = sequence.is_null() | (sequence == "1")
    return (
        drop(table, first, account, "prices of a second auction (sequence 2 and above)") if not first.all() else table
    )


def _read_library(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table()
    account.rows_in = table.frame.height
    time = table.column("DateTime(UTC)", "DateTime")
    kind = table.find("ContractType")
    if kind is not None:
        day_ahead = table.frame[kind].str.to_lowercase() == "day-ahead"
        table = drop(table, day_ahead, account, "other contracts than day-ahead") if not day_ahead.all() else table
    table = _one_sequence(table, table.find("Sequence"), account)
    area_type = table.find("AreaTypeCode")
    if area_type is not None and table.frame[area_type].n_unique() > 1:
        table = drop(table, table.frame[area_type] == "BZN", account, "areas that are no bidding zones")
    code = table.column("ResolutionCode")
    minutes = table.frame[code].str.extract(r"^PT(\d+)M$", 1).cast(pl.Int64, strict=False)
    table.refuse(
        minutes.is_null() | (minutes > 60), code, "is no resolution of at most an hour, such as PT60M or PT15M"
    )
    area = table.column("MapCode", "AreaMapCode")
    table, minutes = _finest(table, time, area, minutes, account)
    price = table.column("Price[Currency/MWh]", "Price")
    account.add("read", table.frame.height, "day-ahead prices, UTC, currency by row")
    frame = make_readings(
        table,
        read_times(table, time, Clock("UTC")),
        account,
        time_column=time,
        area=table.frame[area].fill_null(""),
        price=table.numbers(price, "currency/MWh", decimal=options.decimal),
        currency=table.frame[table.column("Currency")].fill_null("EUR"),
        minutes=minutes,
    )
    return Readings(frame=frame, zone_of=_zones(frame))


def _finest(
    table: TextTable, time: str, area: str, minutes: pl.Series, account: Account
) -> tuple[TextTable, pl.Series]:
    """Returns the rows without those whose hour the same area has at a finer resolution too."""
    hour = table.frame[time].str.slice(0, 13)
    frame = pl.DataFrame({"area": table.frame[area], "hour": hour, "minutes": minutes})
    finest = frame.with_columns(least=pl.col("minutes").min().over("area", "hour"))
    keep = finest["minutes"] == finest["least"]
    if keep.all():
        return table, minutes
    return drop(table, keep, account, "hours that the file also has at a finer resolution"), minutes.filter(keep)


def _zones(frame: pl.DataFrame) -> dict[str, str]:
    return {area: zone_of_area(area) for area in frame["area"].unique()}


FORMAT = SignalFormat(
    name="entsoe", title="ENTSO-E Transparency, day-ahead prices (CSV)", recognises=_recognises, read=_read
)

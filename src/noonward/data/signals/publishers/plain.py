"""Any other table of times with prices or carbon intensities: columns and units from the header, or told."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import read_times
from noonward.data.signals.readings import (
    ImportOptions,
    Readings,
    SignalFormat,
    carbon_unit,
    make_readings,
    price_unit,
)
from noonward.data.text_table import TextFile, TextTable
from noonward.errors import DataError

KEYS: Final = ("timestamp", "zone", "price", "carbon")
"""Keys of the columns that can be told."""
_TIME_NAMES: Final = (
    "timestamp", "datetime (utc)", "datetime", "date time", "time", "date", "zeit", "datum", "datum von", "start date",
    "interval_start_utc", "interval start", "hour", "from", "start", "utc", "mtu", "delivery start (cet)",
)  # fmt: skip
_ZONE_NAMES: Final = ("zone", "zone id", "area", "region", "bidding zone", "country code", "location")


def _recognises(file: TextFile) -> bool:
    return False


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table()
    account.columns_used |= set(options.columns)
    account.rows_in = table.frame.height
    columns = {key: table.column(name) for key, name in options.columns.items()}
    time = columns.get("timestamp") or table.find(*_TIME_NAMES)
    if time is None:
        raise _unknown(file, table, "the times", "timestamp")
    zone = columns.get("zone") or table.find(*_ZONE_NAMES)
    if zone is None and options.zone is None:
        raise DataError(f"{file.name} has no column of zones; say which zone it is, e.g. --zone DE")
    price = columns.get("price") or _only(table, r"price|preis|prix|lmp|spot|rrp|[€$£]/|_usd_|_eur_", "carbon")
    carbon = columns.get("carbon") or _only(table, r"carbon|co2|co₂|intensity|emission", "price")
    if price is None and carbon is None:
        raise _unknown(file, table, "prices or carbon intensities", "price")
    area = table.frame[zone].fill_null("") if zone is not None else str(options.zone)
    values: dict[str, pl.Series | str] = {}
    if price is not None:
        unit = price_unit(options.price_unit or price, _where(file, price, "--price-unit", options.price_unit))
        values["price"] = table.numbers(price, f"{unit.currency}/MWh", decimal=options.decimal) * unit.per_mwh
        values["currency"] = unit.currency
        account.add(
            "read", table.frame.height, f"prices in column {price!r}, times {unit.per_mwh:g} {unit.currency}/MWh"
        )
    if carbon is not None:
        scale = carbon_unit(options.carbon_unit or carbon, _where(file, carbon, "--carbon-unit", options.carbon_unit))
        values["carbon"] = table.numbers(carbon, "g/kWh", decimal=options.decimal) * scale
        account.add("read", table.frame.height, f"carbon intensities in column {carbon!r}, times {scale:g} g/kWh")
        flag = table.find("carbon_is_estimated")
        if flag is not None:
            words = {"true": True, "1": True, "false": False, "0": False}
            values["estimated"] = table.frame[flag].str.to_lowercase().replace_strict(
                words, default=None, return_dtype=pl.Boolean
            )  # fmt: skip
    times = read_times(
        table,
        time,
        options.clock,
        order=options.date_order,
        series=area if isinstance(area, pl.Series) else None,
    )
    account.add("read", table.frame.height, f"times in column {time!r} as starts of intervals")
    readings = make_readings(table, times, account, time_column=time, area=area, **values)  # type: ignore[arg-type]
    return Readings(frame=readings, kind=None if carbon is None else _kind(table))


def _kind(table: TextTable) -> str | None:
    """Returns whether the carbon intensities are average or marginal, where a column says so."""
    name = table.find("carbon_kind")
    if name is None:
        return None
    kinds = table.frame[name].unique().to_list()
    table.refuse(
        ~table.frame[name].is_in(["average", "marginal", ""]), name, "is no kind of carbon; write average or marginal"
    )
    if {"average", "marginal"} <= set(kinds):
        raise DataError(
            f"{table.file.name} mixes average and marginal carbon intensities (column {name!r}), which cannot be "
            "compared; keep the rows of one kind"
        )
    return next((kind for kind in kinds if kind), None)


def _where(file: TextFile, column: str, option: str, told: str | None) -> str:
    """Returns where a unit is stated, for messages: in the option, else in a column's name."""
    return f"{file.name}, column {column!r}," if told is None else f"{option} {told!r}"


def _only(table: TextTable, pattern: str, other: str) -> str | None:
    """Returns the only column whose name says what it holds.

    Raises:
        DataError: Several do.
    """
    found = [
        name
        for name in table.frame.columns
        if re.search(pattern, name, re.IGNORECASE)
        and other not in name.lower()
        and not name.lower().endswith(("_estimated", "_kind"))
    ]
    if len(found) > 1:
        key = "carbon" if other == "price" else "price"
        raise DataError(
            f"{table.file.name} has several columns that may be the {key}: {', '.join(found)}; say which one: "
            f"--column '{key}={found[0]}'"
        )
    return found[0] if found else None


def _unknown(file: TextFile, table: TextTable, what: str, key: str) -> DataError:
    names = ", ".join(name for name in table.frame.columns if name != "line")
    return DataError(
        f"{file.name}: no known format, and no column that holds {what} by its name; columns: {names}; say which one: "
        f"--column '{key}=NAME'; if it is a table of jobs: --format jobs --column submit_time=NAME --column gpus=NAME "
        "--column duration_s=NAME"
    )


FORMAT = SignalFormat(name="plain", title="plain CSV", recognises=_recognises, read=_read, keys=KEYS)

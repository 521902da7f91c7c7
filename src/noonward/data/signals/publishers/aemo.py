"""AEMO (Australia): price and demand files, and NEMweb dispatch reports.

Times are the ends of intervals on the market's clock, UTC+10 all year in every region. Intervals last 30 minutes until
30 September 2021 and 5 minutes from 1 October 2021 on.
"""

from __future__ import annotations

import csv
import io

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, drop, make_readings
from noonward.data.text_table import TextFile, TextTable, text_table
from noonward.errors import DataError

_CLOCK = Clock("+10:00")
_ZONES = {f"{state}1": f"AU-{state}" for state in ("NSW", "QLD", "SA", "TAS", "VIC")}


def _recognises(file: TextFile) -> bool:
    names = file.names()
    return {"region", "settlementdate", "rrp"} <= set(names) or _is_report(file)


def _is_report(file: TextFile) -> bool:
    return any(line.upper().startswith("I,DISPATCH,PRICE,") for line in file.head)


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = _report(file, account) if _is_report(file) else file.table()
    if not account.rows_in:
        account.rows_in = table.frame.height
    time, region = table.column("SETTLEMENTDATE"), table.column("REGION", "REGIONID")
    pricing = table.find("INTERVENTION")
    if pricing is not None:
        market = table.frame[pricing].is_in(["0", ""])
        table = drop(table, market, account, "prices of an intervention") if not market.all() else table
    ends = read_times(table, time, _CLOCK, order=options.date_order)
    frame = make_readings(
        table,
        ends,
        account,
        time_column=time,
        area=table.frame[region],
        price=table.numbers(table.column("RRP"), "AUD/MWh", decimal=options.decimal),
        currency="AUD",
    )
    minutes = _minutes(frame)
    frame = frame.with_columns(stamp=pl.col("stamp") - pl.duration(minutes=minutes, time_unit="us"), minutes=minutes)
    account.add("read", frame.height, "prices in AUD/MWh; times are ends of intervals, UTC+10, and became their starts")
    return Readings(frame=frame, zone_of=_ZONES)


def _minutes(frame: pl.DataFrame) -> pl.Expr:
    """Returns the length of the interval that ends at a time: it changed on 1 October 2021, 00:00 market time."""
    change = pl.datetime(2021, 9, 30, 14, 0)
    return pl.when(pl.col("stamp") > change).then(5).otherwise(30).cast(pl.Int64)


def _report(file: TextFile, account: Account) -> TextTable:
    """Returns the price table of a report that holds several tables: rows I name columns, rows D hold data."""
    columns: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    other = 0
    reader = csv.reader(io.StringIO(file.text, newline=""))
    for fields in reader:
        head = [field.strip().upper() for field in fields[:3]]
        if head == ["I", "DISPATCH", "PRICE"]:
            named = [field.strip() for field in fields[4:]]
            if columns is not None and named != columns:
                raise DataError(
                    f"{file.name}, line {reader.line_num}: a second price table has other columns; split it"
                )
            columns = named
        elif head == ["D", "DISPATCH", "PRICE"] and columns is not None:
            values = [field.strip() for field in fields[4 : 4 + len(columns)]]
            rows.append(values + [""] * (len(columns) - len(values)))
            lines.append(reader.line_num)
        elif head[:1] == ["D"]:
            other += 1
    if not rows or columns is None:
        raise DataError(f"{file.name} holds no row of the table DISPATCH PRICE; download another report")
    account.rows_in = len(rows) + other
    account.add("dropped", other, "rows of other tables than DISPATCH PRICE")
    return text_table(file, columns, rows, lines)


FORMAT = SignalFormat(
    name="aemo", title="AEMO price and demand, or dispatch prices", recognises=_recognises, read=_read
)

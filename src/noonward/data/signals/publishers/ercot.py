"""ERCOT (Texas): day-ahead settlement point prices. Hours are named by their end, on the clock of Texas.

Where the hour that the clock repeats in autumn is flagged, the flag Y (or true) marks the second one, as in most
readers of these files; it decides about the order of two hours a year.
"""

from __future__ import annotations

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, hour_starts, make_readings
from noonward.data.text_table import TextFile

_CLOCK = Clock("America/Chicago")


def _recognises(file: TextFile) -> bool:
    names = {name.replace(" ", "") for name in file.names()}
    return {"deliverydate", "hourending", "settlementpoint", "settlementpointprice"} <= names


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table()
    account.rows_in = table.frame.height
    day, hour = table.column("DeliveryDate", "Delivery Date"), table.column("HourEnding", "Hour Ending")
    point = table.column("SettlementPoint", "Settlement Point")
    flag = table.find("DSTFlag", "Repeated Hour Flag")
    ends = table.frame[hour].fill_null("").str.replace(r"\*$", "")
    texts = hour_starts(table, day, hour, ends, r"^(\d{1,2})(?::00)?$", "01:00 to 24:00")
    second = None
    if flag is not None:
        said = table.frame[flag].str.to_lowercase().is_in(["y", "true"])
        paired = pl.DataFrame({"text": texts, "point": table.frame[point], "said": said})
        told = paired.select(pl.col("said").any().over("text", "point"))["said"]
        second = pl.select(pl.when(told).then(said)).to_series()
    times = read_times(table, day, _CLOCK, order="mdy", series=table.frame[point], second=second, text=texts)
    account.add("read", table.frame.height, "day-ahead prices in USD/MWh; hours named by their end became their starts")
    frame = make_readings(
        table,
        times,
        account,
        time_column=day,
        area=table.frame[point],
        price=table.numbers(
            table.column("SettlementPointPrice", "Settlement Point Price"), "USD/MWh", decimal=options.decimal
        ),
        minutes=60,
    )
    return Readings(frame=frame, one_zone="US-TEX-ERCO")


FORMAT = SignalFormat(name="ercot", title="ERCOT day-ahead settlement point prices", recognises=_recognises, read=_read)

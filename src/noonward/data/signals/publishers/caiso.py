"""CAISO (California): day-ahead prices of OASIS reports (PRC_LMP), whose price stands in a column named MW."""

from __future__ import annotations

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, drop, make_readings
from noonward.data.text_table import TextFile


def _recognises(file: TextFile) -> bool:
    return {"intervalstarttime_gmt", "lmp_type", "mw"} <= set(file.names())


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table()
    account.rows_in = table.frame.height
    kind, time = table.column("LMP_TYPE"), table.column("INTERVALSTARTTIME_GMT")
    lmp = table.frame[kind] == "LMP"
    table = drop(table, lmp, account, "components of the price (MCC, MCE, MCL, MGHG)") if not lmp.all() else table
    market = table.find("MARKET_RUN_ID")
    if market is not None and table.frame[market].n_unique() > 1:
        table = drop(table, table.frame[market] == "DAM", account, "other markets than the day-ahead one (DAM)")
    account.add("read", table.frame.height, "day-ahead prices in USD/MWh (column MW), hours that start at UTC times")
    frame = make_readings(
        table,
        read_times(table, time, Clock("UTC")),
        account,
        time_column=time,
        area=table.frame[table.column("NODE", "NODE_ID")],
        price=table.numbers(table.column("MW"), "USD/MWh", decimal=options.decimal),
        minutes=60,
    )
    return Readings(frame=frame, one_zone="US-CAL-CISO")


FORMAT = SignalFormat(name="caiso", title="CAISO OASIS day-ahead prices (PRC_LMP)", recognises=_recognises, read=_read)

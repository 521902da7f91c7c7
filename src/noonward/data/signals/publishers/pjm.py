"""PJM: hourly day-ahead prices (da_hrl_lmps)."""

from __future__ import annotations

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, drop, make_readings
from noonward.data.text_table import TextFile


def _recognises(file: TextFile) -> bool:
    return {"datetime_beginning_utc", "pnode_name", "total_lmp_da"} <= set(file.names())


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table()
    account.rows_in = table.frame.height
    time, current = table.column("datetime_beginning_utc"), table.find("row_is_current")
    if current is not None:
        now = table.frame[current].str.to_lowercase().is_in(["true", "1"])
        table = drop(table, now, account, "rows that a later version replaced") if not now.all() else table
    account.add("read", table.frame.height, "day-ahead prices in USD/MWh, hours that start at UTC times")
    frame = make_readings(
        table,
        read_times(table, time, Clock("UTC"), order="mdy"),
        account,
        time_column=time,
        area=table.frame[table.column("pnode_name")],
        price=table.numbers(table.column("total_lmp_da"), "USD/MWh", decimal=options.decimal),
        minutes=60,
    )
    return Readings(frame=frame, one_zone="US-MIDA-PJM")


FORMAT = SignalFormat(name="pjm", title="PJM hourly day-ahead prices (da_hrl_lmps)", recognises=_recognises, read=_read)

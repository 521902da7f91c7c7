"""NYISO (New York): day-ahead zonal prices (damlbmp_zone). The repeated autumn hour is told by the file's order."""

from __future__ import annotations

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, make_readings
from noonward.data.text_table import TextFile

_CLOCK = Clock("America/New_York")


def _recognises(file: TextFile) -> bool:
    names = file.names()
    return {"time stamp", "name", "ptid"} <= set(names) and any(name.startswith("lbmp") for name in names)


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table()
    account.rows_in = table.frame.height
    time, name = table.column("Time Stamp"), table.column("Name")
    price = next(column for column in table.frame.columns if column.lower().startswith("lbmp"))
    account.add("read", table.frame.height, "prices in USD/MWh, hours that start at New York times")
    times = read_times(table, time, _CLOCK, order="mdy", series=table.frame[name])
    table.refuse(
        times.utc != times.utc.dt.truncate("1h"), time, "is off the full hour; give day-ahead prices (damlbmp_zone)"
    )
    frame = make_readings(
        table,
        times,
        account,
        time_column=time,
        area=table.frame[name],
        price=table.numbers(price, "USD/MWh", decimal=options.decimal),
        minutes=60,
    )
    return Readings(frame=frame, one_zone="US-NY-NYIS")


FORMAT = SignalFormat(name="nyiso", title="NYISO day-ahead zonal prices", recognises=_recognises, read=_read)

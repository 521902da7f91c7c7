"""NYISO (New York): day-ahead zonal prices, as daily files (damlbmp_zone) and as exports of OASIS.

The repeated autumn hour is marked EDT or EST in exports of OASIS, and told by the file's order in daily files.
"""

from __future__ import annotations

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, drop, make_readings
from noonward.data.text_table import TextFile

_CLOCK = Clock("America/New_York")
_TIMES = ("Time Stamp", "Eastern Date Hour")
_PLACES = ("Name", "Zone Name")


def _recognises(file: TextFile) -> bool:
    names = set(file.names())
    daily = {"time stamp", "name", "ptid"} <= names and any(name.startswith("lbmp") for name in names)
    return daily or {"eastern date hour", "zone name", "dam zonal lbmp"} <= names


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table()
    account.rows_in = table.frame.height
    time, name = table.column(*_TIMES), table.column(*_PLACES)
    price = next(column for column in table.frame.columns if column.lower().startswith(("lbmp", "dam zonal lbmp")))
    mark, version = table.find("Eastern Date Hour Time Zone"), table.find("DAM Zonal Price Version")
    if version is not None and table.frame[version].n_unique() > 1:
        number = pl.col(version).cast(pl.Int64, strict=False)
        latest = table.frame.select(number == number.max().over([time, name, *([mark] if mark else [])]))[version]
        table = drop(table, latest, account, "prices that a later version replaced")
    account.add("read", table.frame.height, "prices in USD/MWh, hours that start at New York times")
    second = None if mark is None else table.frame[mark].str.to_uppercase() == "EST"
    times = read_times(table, time, _CLOCK, order="mdy", series=table.frame[name], second=second)
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

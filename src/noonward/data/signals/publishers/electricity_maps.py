"""Electricity Maps: yearly and hourly CSV exports of carbon intensity, of any year's column names."""

from __future__ import annotations

import re

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, make_readings
from noonward.data.text_table import TextFile, plain_name
from noonward.errors import DataError

_LIFE_CYCLE = re.compile(r"^carbon intensity .*eq/kwh \((lca|life cycle)\)$")
"""The publisher's subscript two turns into other characters where a copy was saved in another encoding."""


def _recognises(file: TextFile) -> bool:
    names = file.names()
    return "datetime (utc)" in names and "zone id" in names and any(n.startswith("carbon intensity") for n in names)


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    names = [name for name in file.header() if _LIFE_CYCLE.match(plain_name(name))]
    if not names:
        raise DataError(
            f"{file.name}: no column 'carbon intensity gco2eq/kwh (life cycle)' or '... (lca)' (in any case); columns: "
            f"{', '.join(file.header())}; give the publisher's hourly export with life-cycle intensities"
        )
    table = file.table()
    account.rows_in = table.frame.height
    time = table.column("Datetime (UTC)")
    flag = table.find("Data estimated")
    estimated = None if flag is None else table.frame[flag].str.to_lowercase().replace_strict(
        {"true": True, "false": False}, default=None, return_dtype=pl.Boolean
    )  # fmt: skip
    account.add("read", table.frame.height, "life-cycle carbon intensities, g/kWh, hours that start at UTC times")
    if estimated is not None:
        account.add("read", int(estimated.sum()), "intensities are the publisher's estimates")
    times = read_times(table, time, Clock("UTC"))
    table.refuse(
        times.utc != times.utc.dt.truncate("1h"), time, "is off the full hour; give the publisher's hourly export"
    )
    frame = make_readings(
        table,
        times,
        account,
        time_column=time,
        area=table.frame[table.column("Zone id")],
        carbon=table.numbers(names[0], "gCO2eq/kWh", decimal=options.decimal),
        estimated=estimated,
        minutes=60,
    )
    return Readings(frame=frame, kind="average")


FORMAT = SignalFormat(
    name="electricity-maps", title="Electricity Maps hourly export", recognises=_recognises, read=_read
)

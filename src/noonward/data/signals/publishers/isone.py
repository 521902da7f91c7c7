"""ISO New England: hourly prices (WW_DALMP_ISO), whose rows begin with C (comment), H (header), D (data) or T (end).

Hours are named by their end on the clock of New York; ``02X`` is the hour that the clock repeats in autumn.
"""

from __future__ import annotations

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat, hour_starts, make_readings
from noonward.data.text_table import TextFile

_CLOCK = Clock("America/New_York")


def _header_line(file: TextFile) -> int | None:
    """Returns the line of the names, from 0; None where there is none."""
    for number in range(len(file.head)):
        if file.names(number)[:3] == ["h", "date", "hour ending"]:
            return number
    return None


def _recognises(file: TextFile) -> bool:
    line = _header_line(file)
    return line is not None and "locational marginal price" in file.names(line)


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table = file.table(header_line=_header_line(file) or 0)
    kind = table.frame.columns[1]
    table = table.filter(table.frame[kind].str.to_uppercase() == "D")
    account.rows_in = table.frame.height
    day, hour, place = (table.column(name) for name in ("Date", "Hour Ending", "Location Name"))
    named = table.frame[hour].str.to_uppercase()
    again = named.str.ends_with("X")
    texts = hour_starts(table, day, hour, named, r"^(\d{1,2})X?$", "01 to 24, or 02X")
    paired = pl.DataFrame({"text": texts, "place": table.frame[place], "again": again})
    second = paired.select(pl.when(pl.col("again").any().over("text", "place")).then("again"))["again"]
    times = read_times(table, day, _CLOCK, order="mdy", series=table.frame[place], second=second, text=texts)
    account.add("read", table.frame.height, "prices in USD/MWh; hours named by their end became their starts")
    frame = make_readings(
        table,
        times,
        account,
        time_column=day,
        area=table.frame[place],
        price=table.numbers(table.column("Locational Marginal Price"), "USD/MWh", decimal=options.decimal),
        minutes=60,
    )
    return Readings(frame=frame, one_zone="US-NE-ISNE")


FORMAT = SignalFormat(name="iso-ne", title="ISO New England hourly prices", recognises=_recognises, read=_read)

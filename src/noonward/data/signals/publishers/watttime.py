"""WattTime: history of emission rates, as the replies of its interface (JSON) and as the CSV that its client saves.

The values are pounds per MWh. A CSV states neither unit nor signal: the name of the file does, such as
``CAISO_NORTH_co2_moer_2022-01-01_2022-01-07.csv``.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from noonward.data.account import Account
from noonward.data.clock import Clock, read_times
from noonward.data.signals.readings import POUND_G, ImportOptions, Readings, SignalFormat, drop, make_readings
from noonward.data.text_table import TextFile, TextTable, text_table
from noonward.errors import DataError

G_PER_KWH: Final = POUND_G / 1000.0
"""g/kWh of a pound per MWh."""
_SIGNALS: Final = ("co2_moer", "co2_aoer")
_NAME: Final = re.compile(r"^(?P<region>.+?)_(?P<signal>co2_moer|co2_aoer|health_damage)_", re.IGNORECASE)


def _recognises(file: TextFile) -> bool:
    if file.start.startswith("{"):
        return '"point_time"' in file.text[:20_000]
    return file.names()[:2] == ["point_time", "value"]


def _read(file: TextFile, options: ImportOptions, account: Account) -> Readings:
    table, region, signal = _json(file) if file.start.startswith("{") else _csv(file)
    account.rows_in = table.frame.height
    if signal not in _SIGNALS:
        raise DataError(
            f"{file.name} holds the signal {signal!r}; emission rates are read: {', '.join(_SIGNALS)} (in a CSV file "
            "the name says it: REGION_co2_moer_FROM_TO.csv)"
        )
    datatype = table.find("datatype")
    if datatype is not None and table.frame[datatype].n_unique() > 1:
        table = drop(table, table.frame[datatype] == "MOER", account, "other data than MOER")
    version = table.find("version")
    if version is not None and table.frame[version].n_unique() > 1:
        raise DataError(f"{file.name} joins several versions of the model, whose levels differ; keep one of them")
    time, value = table.column("point_time"), table.column("value")
    kind = "marginal" if signal == "co2_moer" else "average"
    account.add("changed", table.frame.height, f"{kind} emission rates in lb/MWh became g/kWh")
    frame = make_readings(
        table,
        read_times(table, time, Clock("UTC")),
        account,
        time_column=time,
        area=region,
        carbon=table.numbers(value, "lb/MWh", decimal=options.decimal) * G_PER_KWH,
    )
    zone_of = {"CAISO_NORTH": "US-CAL-CISO", "CAISO_SOUTH": "US-CAL-CISO"}
    return Readings(frame=frame, zone_of=zone_of, kind=kind)


def _csv(file: TextFile) -> tuple[TextTable, str, str]:
    """Returns the table of a saved CSV, its region and its signal."""
    match = _NAME.match(file.name)
    if match is None:
        raise DataError(
            f"{file.name}: a WattTime CSV says neither region nor signal inside; give the file its name back, such as "
            "CAISO_NORTH_co2_moer_2022-01-01_2022-01-07.csv"
        )
    return file.table(), match["region"], match["signal"].lower()


def _json(file: TextFile) -> tuple[TextTable, str, str]:
    """Returns the table of a reply, its region and its signal."""
    try:
        reply: Any = json.loads(file.text)
        meta, data = reply["meta"], reply["data"]
        rows = [[str(point["point_time"]), "" if point["value"] is None else str(point["value"])] for point in data]
        region, signal, units = str(meta["region"]), str(meta["signal_type"]), str(meta.get("units", "lbs_co2_per_mwh"))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file.name} is no reply of WattTime's history ({error!r}); download it again") from error
    if units != "lbs_co2_per_mwh":
        raise DataError(f"{file.name} is in {units!r}; replies in lbs_co2_per_mwh are read")
    return text_table(file, ["point_time", "value"], rows, [0] * len(rows)), region, signal


FORMAT = SignalFormat(name="watttime", title="WattTime history", recognises=_recognises, read=_read)

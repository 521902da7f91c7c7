"""Yield of solar cells by the hour from files: stated, or from the weather by PVWatts' formula.

Share of the rated power = G / 1000 x (1 - 0.0047 (Tc - 25)) x (1 - 0.1408), with the irradiance G in the plane of the
cells in W/m2, and Tc = Ta + 0.03125 G (cells of 45 degrees C at 800 W/m2 and 20 degrees C): temperature coefficient and
system losses are PVWatts' defaults (Dobos 2014, "PVWatts Version 5 Manual"), whose own model of Tc also reads the wind.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.clock import stated_times
from noonward.data.text_table import TextTable, read_text_file
from noonward.errors import DataError, SignalRangeError
from noonward.model.cluster.devices import SolarFile
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.solar import PlantsByHour, SolarByHour
from noonward.model.signals import PRICE_NAME, Signals
from noonward.units import HOUR_S

HOT_LOSS: Final = 0.0047
"""Share of their power that cells lose per kelvin above 25 degrees C."""
SYSTEM_LOSS: Final = 0.1408
"""Share lost to soiling, wiring, mismatch and the like."""
WARMING: Final = 0.03125
"""How much warmer than the air cells are per W/m2, K."""
SHARE_DECIMALS: Final = 6
"""Decimals of a share from the weather, so that it is the same on every machine."""


def pvwatts_share(irradiance_w_per_m2_H: F8, dry_bulb_c_H: F8) -> F8:
    """Returns the yield as a share of the rated power.

    Args:
        irradiance_w_per_m2_H: Irradiance in the plane of the cells, W/m2.
        dry_bulb_c_H: Temperature of the air, degrees C.

    Example:
        >>> pvwatts_share(np.array([0.0, 800.0, 1000.0]), np.array([10.0, 20.0, 25.0])).round(4).tolist()
        [0.0, 0.6227, 0.733]
    """
    cell_c_H = dry_bulb_c_H + WARMING * irradiance_w_per_m2_H
    share_H = irradiance_w_per_m2_H / 1000.0 * (1.0 - HOT_LOSS * (cell_c_H - 25.0)) * (1.0 - SYSTEM_LOSS)
    return np.asarray(np.round(np.maximum(share_H, 0.0), SHARE_DECIMALS))


def solar_by_hour(fleet: Fleet, start: datetime, hours: int) -> SolarByHour | None:
    """Returns the yield of a fleet's solar cells over some hours; None where no site has any; errors as ``by_hour``."""
    cells = [None if site.behind_meter is None else site.behind_meter.solar for site in fleet.sites]
    return by_hour(fleet, [None if each is None else each.profile for each in cells], "solar cells", start, hours)


def plants_by_hour(fleet: Fleet, signals: Signals | None, start: datetime, hours: int) -> SolarByHour | None:
    """Returns the output of the plants that sites have contracts for; None where no site has one.

    Where contracts are physical it holds the prices of their zones, too; errors as ``by_hour``.
    """
    contracts = [site.ppa for site in fleet.sites]
    found = by_hour(fleet, [None if each is None else each.profile for each in contracts], "ppa", start, hours)
    physical = [s for s, each in enumerate(contracts) if each is not None and each.kind == "physical"]
    if found is None or not physical or signals is None:
        return found
    window, resale_SH = signals.window(start, hours), np.full((len(contracts), hours), np.nan)
    for s in physical:
        resale_SH[s] = window.by_part(PRICE_NAME, fleet.sites[s].zone, 1)
    return PlantsByHour(share_SH=found.share_SH, resale_usd_per_mwh_SH=resale_SH)


def by_hour(
    fleet: Fleet, profiles: Sequence[SolarFile | None], what: str, start: datetime, hours: int
) -> SolarByHour | None:
    """Returns what the profiles of some sites yield over some hours; None where there is none.

    Args:
        fleet: Fleet.
        profiles: File per site, or None.
        what: Whose profile it is, for messages.
        start: UTC time of the first hour.
        hours: Number of hours.

    Raises:
        DataError: A file cannot be read, or breaks a rule of ``solar_hours``.
        SignalRangeError: A file does not cover the hours.
    """
    share_SH = np.zeros((len(fleet.sites), hours))
    found = False
    for s, site in enumerate(fleet.sites):
        file = profiles[s]
        if file is None:
            continue
        changed = file.path.stat().st_mtime_ns if file.path.is_file() else 0
        first, yield_H = _cached_hours(file.model_dump_json(), changed)
        whose, found = f"yield of the {what} of site {site.name!r}", True
        share_SH[s] = within(first, yield_H, start, hours, whose, file.path.name)
    return SolarByHour(share_SH=share_SH) if found else None


def within(first: datetime, value_H: F8, start: datetime, hours: int, what: str, file: str) -> F8:
    """Returns the values of some hours out of those of a file.

    Args:
        first: UTC time of the file's first hour.
        value_H: Its values.
        start: UTC time of the first hour wanted.
        hours: Number of hours wanted.
        what: What they are, for messages.
        file: Name of the file, for messages.

    Raises:
        SignalRangeError: The file does not cover the hours.
    """
    at = (start - first) // timedelta(hours=1)
    if at < 0 or at + hours > len(value_H):
        end = first + timedelta(hours=len(value_H))
        raise SignalRangeError(
            f"the {what} is needed from {start:%Y-%m-%d %H:%M} to {start + timedelta(hours=hours):%Y-%m-%d %H:%M} UTC, "
            f"but {file} covers {first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; give a longer file"
        )
    return value_H[at : at + hours]


@functools.lru_cache(maxsize=64)
def _cached_hours(said: str, changed: int) -> tuple[datetime, F8]:
    return solar_hours(SolarFile.model_validate_json(said))


def solar_hours(file: SolarFile) -> tuple[datetime, F8]:
    """Reads the yield of every hour of a file; each hour stands once, in order and without a gap.

    Returns:
        UTC start of the first hour, and the share of the rated power per hour, at least 0.

    Raises:
        DataError: The file cannot be read or breaks one of these rules.
    """
    table = read_text_file(file.path).table()
    first = full_hours(table, file.timezone)
    if table.find("share") is not None:
        return first, number_column(table, "share", "of the rated power", (0.0, 1.5))
    weather = (
        number_column(table, "irradiance_w_per_m2", "W/m2", (0.0, 1500.0)),
        number_column(table, "dry_bulb_c", "degrees C", (-90.0, 60.0)),
    )
    return first, pvwatts_share(*weather)


def full_hours(table: TextTable, timezone: str | None) -> datetime:
    """Returns the UTC start of the first hour of a table; each hour stands once, in order and without a gap.

    Raises:
        DataError: A time is none, or breaks one of these rules.
    """
    second_H = stated_times(table, timezone, "the start of an hour, such as 2024-03-31T14:00Z").dt.epoch("s").to_numpy()
    wrong = np.flatnonzero(np.diff(second_H) != HOUR_S)
    if second_H[0] % HOUR_S or len(wrong):
        line = table.lines[int(wrong[0]) + 1 if len(wrong) else 0]
        raise DataError(f"{table.name}, line {line}: give every full hour (UTC) once, in order and without a gap")
    return datetime.fromtimestamp(int(second_H[0]), UTC)


def number_column(table: TextTable, column: str, unit: str, allowed: tuple[float, float]) -> F8:
    """Returns a column of numbers, checked.

    Raises:
        DataError: There is no such column, or it holds a value that is not allowed.
    """
    name, (low, high) = table.column(column), allowed
    value = table.numbers(name, unit)
    table.refuse(
        value.is_null() | (value < low) | (value > high), name, f"is not allowed; give {low:g} to {high:g} {unit}"
    )
    return value.to_numpy()

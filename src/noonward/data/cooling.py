"""PUE by the hour from files: stated, or from the weather by one of three cooling systems.

PUE = 1 + overhead + share / COP. The overhead is what power distribution, fans, pumps and lights take per watt of IT;
the share is the part of the heat that chillers move, from 0 (outside air or the tower's water cools enough) to 1,
linear between two temperatures; the COP of the chillers falls by 3 % per kelvin of the temperature they reject heat to.

=================  ========  ===========================  ===========================================
system             overhead  share of the chillers        COP
=================  ========  ===========================  ===========================================
air-economizer     0.12      dry bulb 18 to 27 °C         4.0 at a dry bulb of 25 °C (air-cooled)
water-economizer   0.10      wet bulb 10 to 18 °C         7.0 at a wet bulb of 20 °C (cooling tower)
chiller            0.12      1                            4.0 at a dry bulb of 25 °C (air-cooled)
=================  ========  ===========================  ===========================================

18 to 27 °C is the range that ASHRAE TC 9.9 recommends at the inlets of IT. Below 10 °C the COP rises no more: the
condensers are kept at a least pressure. The figures are typical, and within the ranges of Lei and Masanet 2022
("Climate- and technology-specific PUE and WUE estimations for U.S. data centers"); whoever has measured PUE gives that.
The wet bulb may be left out beside the relative humidity: Stull 2011, within 0.3 K at sea level pressure between 5 and
99 % and -20 and 50 °C.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.clock import stated_times
from noonward.data.text_table import TextTable, read_text_file
from noonward.errors import DataError, SignalRangeError
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.pue import Cooling, PueByHour, PueFile
from noonward.units import HOUR_S

COLDEST_C: Final = 10.0
"""Temperature below which a COP rises no more, degrees C."""
COP_LOSS: Final = 0.03
"""Share of its COP that a chiller loses per kelvin."""
PUE_DECIMALS: Final = 4
"""Decimals that a PUE from the weather is rounded to, so that it is the same on every machine."""


@dataclass(frozen=True, kw_only=True)
class CoolingSystem:
    """A cooling system; temperatures are of the bulb that it follows, degrees C.

    Attributes:
        bulb: Column of the temperature it follows.
        overhead: Power of all but chillers per watt of IT.
        chillers_c: Temperatures at which chillers begin to help, and at which they move all heat; None: always all.
        cop: Coefficient of performance of the chillers at ``cop_c``.
        cop_c: Temperature of ``cop``.
    """

    bulb: str
    overhead: float
    chillers_c: tuple[float, float] | None
    cop: float
    cop_c: float

    def pue(self, bulb_c_H: F8) -> F8:
        """Returns the PUE at some temperatures, degrees C, rounded.

        Example:
            >>> SYSTEMS["air-economizer"].pue(np.array([5.0, 25.0, 35.0])).tolist()
            [1.12, 1.3144, 1.459]
        """
        return np.asarray(np.round(1.0 + self.overhead + self.chiller_power(bulb_c_H), PUE_DECIMALS))

    def chiller_power(self, bulb_c_H: F8) -> F8:
        """Returns the power of the chillers per watt of IT at some temperatures, degrees C."""
        share_H = np.ones_like(bulb_c_H)
        if self.chillers_c is not None:
            low, high = self.chillers_c
            share_H = np.clip((bulb_c_H - low) / (high - low), 0.0, 1.0)
        cop_H = self.cop * (1.0 - COP_LOSS) ** (np.maximum(bulb_c_H, COLDEST_C) - self.cop_c)
        return np.asarray(share_H / cop_H)


SYSTEMS: Final[dict[Cooling, CoolingSystem]] = {
    "air-economizer": CoolingSystem(bulb="dry_bulb_c", overhead=0.12, chillers_c=(18.0, 27.0), cop=4.0, cop_c=25.0),
    "water-economizer": CoolingSystem(bulb="wet_bulb_c", overhead=0.10, chillers_c=(10.0, 18.0), cop=7.0, cop_c=20.0),
    "chiller": CoolingSystem(bulb="dry_bulb_c", overhead=0.12, chillers_c=None, cop=4.0, cop_c=25.0),
}
"""Cooling systems by name; the table at the top of this module."""


def wet_bulb_c(dry_bulb_c_H: F8, humidity_pct_H: F8) -> F8:
    """Returns wet bulb temperatures, degrees C (Stull 2011, Eq. 1).

    Args:
        dry_bulb_c_H: Temperatures of the air, degrees C.
        humidity_pct_H: Relative humidity, %.

    Example:
        >>> wet_bulb_c(np.array([20.0]), np.array([50.0])).round(1).tolist()
        [13.7]
    """
    t, rh = dry_bulb_c_H, humidity_pct_H
    return np.asarray(
        t * np.arctan(0.151977 * np.sqrt(rh + 8.313659))
        + np.arctan(t + rh)
        - np.arctan(rh - 1.676331)
        + 0.00391838 * rh**1.5 * np.arctan(0.023101 * rh)
        - 4.686035
    )


def with_stated_pue(fleet: Fleet) -> Fleet:
    """Returns a fleet in which the PUE of every site with a file of hours is their median.

    Raises:
        DataError: A file cannot be read, or breaks a rule of ``pue_hours``.
    """
    if all(site.pue_by_hour is None for site in fleet.sites):
        return fleet
    sites = [
        site if site.pue_by_hour is None else site.model_copy(update={"pue": float(np.median(_hours(site)[1]))})
        for site in fleet.sites
    ]
    return fleet.model_copy(update={"sites": tuple(sites)})


def pue_by_hour(fleet: Fleet, start: datetime, hours: int | None) -> PueByHour | None:
    """Returns the PUE of a fleet's sites over some hours; None where each has one number throughout.

    Args:
        fleet: Fleet.
        start: UTC start of the first hour.
        hours: Number of hours; None: as many as the longest file has, the others continued by their last day.

    Raises:
        DataError: A file cannot be read, or breaks a rule of ``pue_hours``.
        SignalRangeError: A file does not cover the hours, or their first one.
    """
    timed = [site for site in fleet.sites if site.pue_by_hour is not None]
    if not timed:
        return None
    read = {site.name: _hours(site) for site in timed}
    wanted = hours
    if wanted is None:
        wanted = max((first - start) // timedelta(hours=1) + len(pue_H) for first, pue_H in read.values())
    factor_SH = np.ones((len(fleet.sites), max(wanted, 1)))
    for s, site in enumerate(fleet.sites):
        if site.name not in read:
            continue
        first, pue_H = read[site.name]
        end = first + timedelta(hours=len(pue_H))
        if start < first or (start + timedelta(hours=hours or 1) > end):
            raise SignalRangeError(
                f"the PUE of site {site.name!r} is needed from {start:%Y-%m-%d %H:%M} to "
                f"{start + timedelta(hours=hours or 1):%Y-%m-%d %H:%M} UTC (the day before a run included), but its "
                f"file covers {first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; give a longer file, or begin "
                "the window elsewhere: --from"
            )
        own = PueByHour(start=first, factor_SH=pue_H[None] / site.pue)
        factor_SH[s] = own.window(start, factor_SH.shape[1])[0]
    return None if (factor_SH == 1.0).all() else PueByHour(start=start, factor_SH=factor_SH)


def _hours(site: Site) -> tuple[datetime, F8]:
    """Returns the first hour and the PUE of every hour of a site's file."""
    file = site.pue_by_hour
    assert file is not None
    changed = file.path.stat().st_mtime_ns if file.path.is_file() else 0
    return _cached_hours(file.model_dump_json(), changed)


@functools.lru_cache(maxsize=64)
def _cached_hours(said: str, changed: int) -> tuple[datetime, F8]:
    return pue_hours(PueFile.model_validate_json(said))


def pue_hours(file: PueFile) -> tuple[datetime, F8]:
    """Reads the PUE of every hour of a file.

    Each hour stands once, in order and without a gap; times are the starts of hours. Without ``cooling`` the column
    ``pue`` holds facility power over IT power, at least 1. With it ``dry_bulb_c`` and ``wet_bulb_c`` hold temperatures
    in degrees C, of which the system reads one; ``relative_humidity_pct`` may stand in for the wet bulb.

    Returns:
        UTC start of the first hour, and the PUE per hour.

    Raises:
        DataError: The file cannot be read or breaks one of these rules.
    """
    first, table = weather_hours(file)
    return first, _stated(table) if file.cooling is None else _cooled(table, file.cooling)


def weather_hours(file: PueFile) -> tuple[datetime, TextTable]:
    """Returns the UTC start of the first hour of a file, and its table; errors as ``pue_hours``."""
    table = read_text_file(file.path).table()
    times = stated_times(table, file.timezone, "the start of an hour, such as 2024-03-31T14:00Z")
    second_H = times.dt.epoch("s").to_numpy()
    if second_H[0] % HOUR_S:
        raise DataError(f"{table.name}, line {table.lines[0]}: the time is off the full hour (UTC); give whole hours")
    wrong = np.flatnonzero(np.diff(second_H) != HOUR_S)
    if len(wrong):
        raise DataError(
            f"{table.name}, line {table.lines[int(wrong[0]) + 1]}: this row is "
            f"{np.diff(second_H)[wrong[0]] / HOUR_S:g} h after the one before; give every hour once, in order"
        )
    return datetime.fromtimestamp(int(second_H[0]), UTC), table


def _stated(table: TextTable) -> F8:
    """Returns the PUE that a file states."""
    name = table.column("pue")
    pue = table.numbers(name, "facility power over IT power")
    table.refuse(pue.is_null() | (pue < 1.0), name, "is no PUE; give facility power over IT power, at least 1")
    return pue.to_numpy()


def _cooled(table: TextTable, cooling: Cooling) -> F8:
    """Returns the PUE that follows from a file's weather."""
    system = SYSTEMS[cooling]
    return system.pue(bulb_c(table, system.bulb))


def bulb_c(table: TextTable, bulb: str) -> F8:
    """Returns a file's temperatures, degrees C: those of a column, or the wet bulb from those of the air.

    Args:
        table: Its table.
        bulb: ``dry_bulb_c`` or ``wet_bulb_c``.

    Raises:
        DataError: A column that is needed is missing, or holds a value that is not allowed.
    """
    if bulb == "wet_bulb_c" and table.find("wet_bulb_c") is None:
        humidity_pct_H = _weather(table, "relative_humidity_pct", "%", (0.0, 100.0))
        return wet_bulb_c(_weather(table, "dry_bulb_c", "degrees C", (-90.0, 60.0)), humidity_pct_H)
    return _weather(table, bulb, "degrees C", (-90.0, 60.0))


def _weather(table: TextTable, column: str, unit: str, allowed: tuple[float, float]) -> F8:
    """Returns a column of weather, checked."""
    name, (low, high) = table.column(column), allowed
    value = table.numbers(name, unit)
    table.refuse(
        value.is_null() | (value < low) | (value > high), name, f"is not allowed; give {low:g} to {high:g} {unit}"
    )
    return value.to_numpy()

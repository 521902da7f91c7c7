"""On-site water of sites by the hour: stated, or from the weather by the cooling system of the PUE.

A cooling tower gives off the heat Q of IT and chillers, 1 + share / COP per kWh of IT, by evaporating water:

    make-up = Q / h_fg x CC / (CC - 1),    h_fg = 2500.5 - 2.3097 T - 0.0013 T^2 kJ/kg at the wet bulb T, degrees C

Evaporation is Q / h_fg. With CC cycles of concentration, blow-down and windage are together evaporation / (CC - 1).
Formulas as in Lei and Masanet 2022. ``air-economizer`` and ``chiller`` reject heat to the air and evaporate nothing;
humidifiers, up to 0.1 L/kWh in that study, are not counted.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.cooling import SYSTEMS, bulb_c, weather_hours
from noonward.data.solar import full_hours, number_column, within
from noonward.data.text_table import read_text_file
from noonward.errors import ScenarioError
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.pue import Cooling
from noonward.model.cluster.water import WaterByHour, WaterFile
from noonward.units import HOUR_S

TOWERS: Final[tuple[Cooling, ...]] = ("water-economizer",)
"""Cooling systems that reject heat by a cooling tower."""
KJ_PER_KWH: Final = HOUR_S
WATER_DECIMALS: Final = 4
"""Decimals of water from the weather, so that it is the same on every machine."""


def water_by_hour(fleet: Fleet, start: datetime, hours: int) -> WaterByHour | None:
    """Returns the on-site water of a fleet's sites over some hours; None where no site states water.

    Args:
        fleet: Fleet.
        start: UTC time of the first hour.
        hours: Number of hours.

    Raises:
        DataError: A file cannot be read, or breaks a rule.
        SignalRangeError: A file does not cover the hours.
        ScenarioError: A site's water is to follow from weather that its PUE does not name.
    """
    if all(site.water is None for site in fleet.sites):
        return None
    l_per_kwh_SH = np.zeros((len(fleet.sites), hours))
    for s, site in enumerate(fleet.sites):
        if site.water is not None:
            l_per_kwh_SH[s] = _of_site(site, start, hours)
    return WaterByHour(l_per_kwh_SH=l_per_kwh_SH)


def _of_site(site: Site, start: datetime, hours: int) -> F8 | float:
    """Returns the on-site water of one site, L per kWh of IT."""
    assert site.water is not None, "only sites with water are asked for"
    stated, weather = site.water.l_per_kwh, site.pue_by_hour
    what = f"water of site {site.name!r}"
    if isinstance(stated, WaterFile):
        table = read_text_file(stated.path).table()
        first = full_hours(table, stated.timezone)
        l_per_kwh_H = number_column(table, "water_l_per_kwh", "L per kWh of IT", (0.0, 100.0))
        return within(first, l_per_kwh_H, start, hours, what, stated.path.name)
    if stated is not None:
        return stated
    if weather is None or weather.cooling is None:
        raise ScenarioError(
            f"the {what} has no l_per_kwh, and its pue is no file of weather with a cooling system to reckon it from; "
            "give l_per_kwh, or pue: {path: weather.csv, cooling: water-economizer}"
        )
    first, table = weather_hours(weather)
    l_per_kwh_H = (
        tower_l_per_kwh(bulb_c(table, "wet_bulb_c"), site.water.cycles)
        if weather.cooling in TOWERS
        else np.zeros(len(table.lines))
    )
    return within(first, l_per_kwh_H, start, hours, what, weather.path.name)


def tower_l_per_kwh(wet_bulb_c_H: F8, cycles: float) -> F8:
    """Returns the make-up water of a cooling tower with a water-side economizer, L per kWh of IT, rounded.

    Args:
        wet_bulb_c_H: Wet bulb temperatures, degrees C.
        cycles: Cycles of concentration.

    Example:
        >>> tower_l_per_kwh(np.array([0.0, 10.0, 25.0]), 5.0).tolist()
        [1.7996, 1.8165, 2.1494]
    """
    heat_kj_H = KJ_PER_KWH * (1.0 + SYSTEMS["water-economizer"].chiller_power(wet_bulb_c_H))
    latent_kj_per_kg_H = 2500.5 - 2.3097 * wet_bulb_c_H - 0.0013 * wet_bulb_c_H**2
    return np.asarray(np.round(heat_kj_H / latent_kj_per_kg_H * cycles / (cycles - 1.0), WATER_DECIMALS))

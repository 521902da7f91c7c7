"""Warnings about valid but implausible values of a scenario or its signals, printed with every result."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.scenario import Scenario
from noonward.model.signals import Signals

LOW_PRICE, HIGH_PRICE = 5.0, 1000.0
"""Mean prices, USD/MWh, outside of which a unit or a currency is probably wrong."""
LOW_CARBON: Final = 5.0
"""Mean carbon intensity, g/kWh, below which a unit is probably wrong."""
HIGH_PUE: Final = 3.0
"""Power usage effectiveness above which no data center is run."""
HIGH_CARBON_PRICE: Final = 1000.0
"""Carbon price, USD/t, above any that is in force."""
EPOCH_S: Final = 3.0e8
"""Arrivals, s, beyond which they are probably seconds since 1970."""


def fleet_warnings(fleet: Fleet) -> list[str]:
    """Returns what is unlikely about sites and GPU types."""
    warnings = [
        f"site {site.name!r} has a PUE of {site.pue:g}; facility power over IT power is rarely above 2: is it a "
        "percentage?"
        for site in fleet.sites
        if site.pue > HIGH_PUE
    ]
    for name, kind in fleet.gpu_types.items():
        for job_class, profile in kind.classes.items():
            active_w = float(profile.power.power_w(1, kind.clocks[-1]))
            if kind.idle_w > active_w:
                warnings.append(
                    f"GPU type {name!r} draws {kind.idle_w:g} W idle and {active_w:g} W under a job of class "
                    f"{job_class!r}: running jobs then saves energy; are the two exchanged?"
                )
    return warnings


def signal_warnings(signals: Signals) -> list[str]:
    """Returns what is unlikely about the levels of prices and carbon intensities."""
    warnings = []
    for zone, price_H, carbon_H in zip(
        signals.zones, signals.price_usd_per_mwh_ZH, signals.carbon_g_per_kwh_ZH, strict=True
    ):
        price = float(np.nanmean(price_H)) if np.isfinite(price_H).any() else None
        carbon = float(np.nanmean(carbon_H)) if np.isfinite(carbon_H).any() else None
        warnings += level_warnings(zone, price, carbon)
    return warnings


def level_warnings(zone: str, price: float | None, carbon: float | None) -> list[str]:
    """Returns what is unlikely about the levels of a zone.

    Args:
        zone: Its name.
        price: Mean price, USD/MWh, or None.
        carbon: Mean carbon intensity, g/kWh, or None.
    """
    warnings = []
    if price is not None and not LOW_PRICE <= price <= HIGH_PRICE:
        warnings.append(f"{zone}: the mean price is {price:,.4g} USD/MWh; are its unit (per kWh?) and currency right?")
    if carbon is not None and carbon < LOW_CARBON:
        warnings.append(f"{zone}: the mean carbon intensity is {carbon:,.3g} g/kWh; is it in kg/kWh?")
    return warnings


def scenario_warnings(scenario: Scenario, signals: Signals | None) -> tuple[str, ...]:
    """Returns what is unlikely about a scenario and its signals, each beginning with ``check:``.

    Args:
        scenario: Scenario.
        signals: Signals of its files; None where they are generated, or there are none.
    """
    warnings = fleet_warnings(scenario.fleet)
    if signals is not None:
        warnings += signal_warnings(signals)
    if scenario.economics is not None and scenario.economics.carbon_usd_per_t > HIGH_CARBON_PRICE:
        warnings.append(
            f"the carbon price is {scenario.economics.carbon_usd_per_t:,.4g} USD/t; is it per tonne, and in USD?"
        )
    return tuple(f"check: {each}" for each in warnings)

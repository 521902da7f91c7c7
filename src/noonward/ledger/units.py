"""Units of the figures of a ledger, by the ends of their names."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (
    ("usd_per_gpu_hour", "USD/(GPU h)"),
    ("g_per_gpu_hour", "gCO2/(GPU h)"),
    ("joules_per_image", "J/image"),
    ("usd_per_image", "USD/image"),
    ("g_per_image", "gCO2/image"),
    ("reload_rate", "fraction"),
    ("load_factor", "fraction"),
    ("joules_per_unit", "J/unit"),
    ("usd_per_unit", "USD/unit"),
    ("g_per_unit", "gCO2/unit"),
    ("gpu_hours", "GPU h"),
    ("usd_per_mwh", "USD/MWh"),
    ("_mwh", "MWh"),
    ("_kwh", "kWh"),
    ("_kw", "kW"),
    ("_usd", "USD"),
    ("_kg", "kgCO2"),
    ("_l", "L"),
    ("_s", "s"),
    ("units", "units"),
)
"""Ends of names, the longer ones first, and units."""


def unit_of(name: str) -> str:
    """Returns the unit that a figure's name ends in; ``count`` for one that states none.

    Example:
        >>> unit_of("peak_kw"), unit_of("jobs")
        ('kW', 'count')
    """
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "count")

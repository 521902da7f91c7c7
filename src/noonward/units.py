"""Constants of time, energy, money and mass, and the factors between them."""

from __future__ import annotations

from typing import Final

HOUR_S: Final = 3600.0
"""Seconds in an hour."""

DAY_S: Final = 86400.0
"""Seconds in a day."""

DAY_H: Final = 24
"""Hours in a day."""

MINUTE_S: Final = 60.0
"""Seconds in a minute."""

WATT_SECONDS_PER_KWH: Final = 3.6e6
"""J in a kWh."""

WATT_SECONDS_PER_MWH: Final = 3.6e9
"""J in a MWh: W x s x USD/MWh / this = USD, and W x s x g/kWh / this = kg."""

KG_PER_TONNE: Final = 1000.0
"""kg in a metric tonne."""

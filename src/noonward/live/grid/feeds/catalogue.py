"""The feeds by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noonward.live.grid.feeds.aemo import Aemo
from noonward.live.grid.feeds.carbon_aware import CarbonAware
from noonward.live.grid.feeds.electricity_maps import ElectricityMaps
from noonward.live.grid.feeds.entsoe import Entsoe
from noonward.live.grid.feeds.feed import Feed
from noonward.live.grid.feeds.gb import GreatBritain
from noonward.live.grid.feeds.ieso import Ieso
from noonward.live.grid.feeds.watttime import WattTime

FEEDS: Final[Mapping[str, type[Feed]]] = {
    "electricity-maps": ElectricityMaps,
    "watttime": WattTime,
    "gb-carbon-intensity": GreatBritain,
    "entsoe": Entsoe,
    "aemo": Aemo,
    "ieso": Ieso,
    "carbon-aware-sdk": CarbonAware,
}
"""Feeds by name."""

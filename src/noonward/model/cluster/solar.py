"""Yield of solar cells, or output of other plants, by the hour, as a share of their rated power."""

from __future__ import annotations

from dataclasses import dataclass

from noonward.arrays import F8


@dataclass(frozen=True, kw_only=True)
class SolarByHour:
    """What the solar cells of the sites, or the plants they have contracts for, yield in each hour of a run.

    Attributes:
        share_SH: Share of the rated power, at least 0; 0 at sites without cells.
    """

    share_SH: F8


@dataclass(frozen=True, kw_only=True)
class PlantsByHour(SolarByHour):
    """Output of plants of which some are under physical contracts.

    Attributes:
        resale_usd_per_mwh_SH: Price in the zone, at which energy that is not taken is sold, USD/MWh; NaN at sites
            without a physical contract.
    """

    resale_usd_per_mwh_SH: F8

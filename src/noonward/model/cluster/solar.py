"""Yield of solar cells by the hour, as a share of their rated power."""

from __future__ import annotations

from dataclasses import dataclass

from noonward.arrays import F8


@dataclass(frozen=True, kw_only=True)
class SolarByHour:
    """What the solar cells of the sites yield in each hour that a run may touch.

    Attributes:
        share_SH: Share of the rated power, at least 0; 0 at sites without cells.
    """

    share_SH: F8

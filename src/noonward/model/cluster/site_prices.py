"""Prices of energy at sites with tariffs: what their zone's price is multiplied by, and what is added to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.model.cluster.calendar import Calendar, site_calendar
from noonward.model.cluster.tariff import Tariff
from noonward.units import HOUR_S

if TYPE_CHECKING:
    from noonward.model.cluster.fleet import Fleet

QUARTERS: Final = 4
"""Quarters of an hour: local hours begin with one of them everywhere."""


@dataclass(frozen=True, kw_only=True)
class SitePrices:
    """How prices of energy at sites follow from those of their zones: ``scale_S x price + added``.

    ``SiteSignals`` and forecasts hold the prices of the sites, so rules, engines, ledger and bounds follow contracts,
    adders and fees by hour without knowing of them. What is not linear in energy (blocks beyond the first, peaks) is
    billed by the meter alone.

    Attributes:
        tariffs: Tariff and time zone by position of the site.
        scale_S: 0 where a contract stands in the signal's place, else 1.
    """

    tariffs: dict[int, tuple[Tariff, str]]
    scale_S: F8

    @classmethod
    def of(cls, fleet: Fleet) -> SitePrices | None:
        """Returns the prices of a fleet's sites; None where no tariff changes any.

        Raises:
            ScenarioError: A site with a tariff has no time zone.
        """
        tariffs, scale_S = {}, np.ones(len(fleet.sites))
        for s in range(len(fleet.sites)):
            tariff = fleet.tariff_of(s)
            if tariff is None or (tariff.by_signal and not tariff.adder_usd_per_mwh and not tariff.fees):
                continue
            tariffs[s] = (tariff, timezone_of(fleet, s))
            scale_S[s] = 1.0 if tariff.by_signal else 0.0
        return cls(tariffs=tariffs, scale_S=scale_S) if tariffs else None

    def added_SQ(self, start: datetime, hours: int) -> F8:
        """Returns what is added in each quarter of some hours, USD/MWh, (sites, quarters)."""
        added_SQ = np.zeros((len(self.scale_S), QUARTERS * hours))
        for s, (tariff, timezone) in self.tariffs.items():
            quarters = site_calendar(timezone, start, hours * HOUR_S, HOUR_S / QUARTERS, QUARTERS * hours)
            added_SQ[s] = tariff.added_usd_per_mwh(quarters)
        return added_SQ

    def parts(self, start: datetime, hours: int) -> int:
        """Returns the fewest parts of an hour, 1, 2 or 4, within which what is added does not change."""
        added_SHQ = self.added_SQ(start, hours).reshape(len(self.scale_S), hours, QUARTERS)
        for parts in (1, 2):
            within = added_SHQ.reshape(len(self.scale_S), hours, parts, -1)
            if (within == within[..., :1]).all():
                return parts
        return QUARTERS

    def priced(self, price_SP: F8, start: datetime, parts: int) -> F8:
        """Returns the prices of the sites, USD/MWh.

        Args:
            price_SP: Prices of their zones by part of the hours from the start on, USD/MWh.
            start: UTC start of the first hour.
            parts: Parts of an hour; what is added within one is averaged.
        """
        sites, count = price_SP.shape
        added_SQ = self.added_SQ(start, count // parts)
        if parts <= QUARTERS and QUARTERS % parts == 0:
            added_SP = added_SQ.reshape(sites, count, -1).mean(axis=2)
        else:
            quarter_P = np.arange(count) * QUARTERS // parts
            added_SP = added_SQ[:, quarter_P]
        return np.asarray(np.where(self.scale_S[:, None] == 0.0, 0.0, price_SP) + added_SP)


@dataclass(frozen=True, kw_only=True)
class StatedPrices:
    """Prices of energy at sites as a bound or a planner states them, over the hours of a run.

    Attributes:
        price_SP: Price by site and part of the hours, USD/MWh; NaN at sites whose price follows from the others.
        parts_per_hour: Parts of an hour.
        others: How the prices of the other sites follow from their zones'; None: they are the same.
    """

    price_SP: F8
    parts_per_hour: int
    others: SitePrices | None

    def parts(self, start: datetime, hours: int) -> int:
        """Returns the parts of an hour within which no price changes."""
        others = 1 if self.others is None else self.others.parts(start, hours)
        return math.lcm(others, self.parts_per_hour)

    def priced(self, price_SP: F8, start: datetime, parts: int) -> F8:
        """Returns the prices of the sites by part of the hours from the run's start on, USD/MWh."""
        follow_SP = price_SP if self.others is None else self.others.priced(price_SP, start, parts)
        stated_SP = np.repeat(self.price_SP, parts // self.parts_per_hour, axis=1)
        return np.asarray(np.where(np.isnan(stated_SP), follow_SP, stated_SP))


def timezone_of(fleet: Fleet, s: int) -> str:
    """Returns the time zone of a site, which loading a scenario states where its file does not.

    Raises:
        ScenarioError: It has none.
    """
    site = fleet.sites[s]
    if site.timezone is None:
        raise ScenarioError(
            f"site {site.name!r} has a tariff, which goes by local time, but no timezone; give an IANA time zone, e.g. "
            "timezone: Europe/Warsaw"
        )
    return site.timezone


def calendar_of(fleet: Fleet, s: int, start: datetime, window_s: float, step_s: float, hours: int) -> Calendar:
    """Returns the calendar of a site over the hours that a run may touch."""
    return site_calendar(timezone_of(fleet, s), start, window_s, step_s, round(hours * HOUR_S / step_s))

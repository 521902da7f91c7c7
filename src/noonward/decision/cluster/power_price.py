"""The price of the next kW at a site with a tariff, in the hours to come: peaks, solar left, and announced events."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.decision.brief import Brief
from noonward.model.cluster.calendar import Calendar
from noonward.model.cluster.devices import BehindMeter
from noonward.model.cluster.site_prices import calendar_of
from noonward.units import DAY_H, HOUR_S

SPREAD_H: Final = 2.0
"""Hours of a site's largest load that lie above the level from which on hours share the price of a peak."""
BLOCK_H: Final = 1000
"""Hours by which calendars grow."""
KW_PER_MW: Final = 1000.0


def peak_shares(kw_H: F8, floor_kw: float, spread_kwh: float) -> F8:
    """Returns what share of the price of a peak each hour has: the dual of a smoothed maximum (Nesterov 2005).

    The price of a month's peak, USD/kW, is shared out over its hours, as the dual of ``peak >= kw_h`` is: shares are at
    least 0 and sum to at most 1. Hours above a level have some, in proportion to what is above it. The energy above the
    level is ``spread_kwh``; the level is at least the power that is charged anyway.

    Args:
        kw_H: Expected load, kW.
        floor_kw: Power that is charged anyway: the peak so far, or what contract and ratchet say.
        spread_kwh: Energy above the level, above 0, kWh.

    Example:
        >>> peak_shares(np.array([8.0, 10.0, 9.5]), 0.0, 1.0).round(3).tolist()
        [0.0, 0.75, 0.25]
        >>> peak_shares(np.array([8.0, 10.0, 9.5]), 9.5, 1.0).round(3).tolist()
        [0.0, 0.5, 0.0]
    """
    falling = np.sort(kw_H)[::-1]
    levels = (np.cumsum(falling) - spread_kwh) / np.arange(1, len(falling) + 1)
    level = float(levels[falling > levels].max(initial=floor_kw))
    return np.asarray(np.maximum(0.0, kw_H - level) / spread_kwh)


class PowerPrices:
    """What the next kWh costs at the sites of a run with tariffs, by hour and load.

    Policies that weigh energy add it to the price they forecast. It holds what an hour's load decides: whether it sets
    a month's peak, whether the sun serves it, whether it breaks an announced event. Batteries and coincident peaks are
    left out: no policy knows how the first will be dispatched, nor when the second are. The power of an hour is its
    mean, and of blocks of energy the first counts.

    Args:
        brief: Brief of a run with tariffs and a window.
        foresight: Whether the sun of hours to come is known; else it is that of the same hour of the last day.
    """

    def __init__(self, brief: Brief, *, foresight: bool) -> None:
        self._brief, self._foresight = brief, foresight
        fleet = brief.fleet
        self.sites = tuple(s for s in range(len(fleet.sites)) if fleet.tariff_of(s) is not None)
        """Positions of the sites with a tariff."""
        self._behind = {s: fleet.sites[s].behind_meter or BehindMeter() for s in self.sites}

    @classmethod
    def of(cls, brief: Brief, *, foresight: bool) -> PowerPrices | None:
        """Returns the prices of a run's sites; None where none has a tariff, or the run has no end (live)."""
        if not brief.fleet.billed or np.isinf(brief.window_s):
            return None
        return cls(brief, foresight=foresight)

    def _calendar(self, s: int, hours: int) -> Calendar:
        """Returns the hours of a run on a site's clock, at least as many as are asked for."""
        brief, whole = self._brief, -(-hours // BLOCK_H) * BLOCK_H
        return calendar_of(brief.fleet, s, brief.start, brief.window_s, HOUR_S, whole)

    def solar_kw(self, s: int, hour: int, hours: int) -> F8:
        """Returns the power that solar cells are expected to yield from an hour of the run on, kW."""
        solar, cells = self._brief.solar, self._behind[s].solar
        if solar is None or cells is None:
            return np.zeros(hours)
        lead_H = np.arange(hours)
        at_H = hour + lead_H - (0 if self._foresight else DAY_H * -(-lead_H // DAY_H))
        known_H = (at_H >= 0) & (at_H < solar.share_SH.shape[1])
        return np.asarray(np.where(known_H, cells.kw * solar.share_SH[s, np.where(known_H, at_H, 0)], 0.0))

    def marginal_price(self, s: int, hour: int, kw_H: F8, price_H: F8, drawn_kw_H: F8, most_kw: float) -> F8:
        """Returns what the next kWh costs a site in the hours from one of the run on, USD/MWh.

        Args:
            s: Position of a site with a tariff.
            hour: First hour, counted from the run's start.
            kw_H: Expected load in these hours, kW.
            price_H: Price of energy in them, adders and fees included, USD/MWh.
            drawn_kw_H: Power drawn from the grid in the hours before, as far as the run has come, kW.
            most_kw: Largest load that the site can have, kW.
        """
        hours = len(kw_H)
        grid_H = np.maximum(0.0, kw_H - self.solar_kw(s, hour, hours))
        price_H = np.where(grid_H > 0.0, price_H, self._export_usd_per_mwh(s, price_H))
        return np.asarray(
            price_H + KW_PER_MW * self._peaks_usd_per_kwh(s, hour, grid_H, drawn_kw_H, most_kw)
            + KW_PER_MW * self._events_usd_per_kwh(s, hour, grid_H, most_kw)
        )  # fmt: skip

    def _export_usd_per_mwh(self, s: int, price_H: F8) -> F8 | float:
        """Returns what a kWh of sun that is left would bring."""
        export = self._behind[s].export
        if export is None:
            return 0.0
        # The zone's price is not forecast apart from the site's: exports never bring more than energy costs.
        return price_H if export.price == "signal" else np.minimum(price_H, float(export.price))

    def _peaks_usd_per_kwh(self, s: int, hour: int, grid_H: F8, drawn_kw_H: F8, most_kw: float) -> F8:
        """Returns each hour's share of the prices of its month's peaks, USD/kWh."""
        brief = self._brief
        tariff, meter = brief.fleet.tariff_of(s), brief.fleet.sites[s].meter
        assert tariff is not None, "only sites with a tariff have a price of power"
        assert meter is not None, "a tariff is named by a meter"
        calendar, total_H = self._calendar(s, hour + len(grid_H)), np.zeros(len(grid_H))
        for charge in tariff.demand:
            rate_M = charge.rate_M(calendar)
            floor_kw_M = charge.floors_kw(calendar, tariff.contract_kw or 0.0, meter.past_peak_kw)
            counts_N = charge.holds(calendar)
            past, ahead = slice(0, len(drawn_kw_H)), slice(hour, hour + len(grid_H))
            past_N = counts_N[past]
            np.maximum.at(floor_kw_M, calendar.month_N[past][past_N], drawn_kw_H[past_N])
            month_H, counts_H = calendar.month_N[ahead], counts_N[ahead]
            for month in np.unique(month_H[counts_H]).tolist():
                at_H = np.flatnonzero(counts_H & (month_H == month))
                shares = peak_shares(grid_H[at_H], float(floor_kw_M[month]), SPREAD_H * most_kw)
                total_H[at_H] += rate_M[month] * shares
        return total_H

    def _events_usd_per_kwh(self, s: int, hour: int, grid_H: F8, most_kw: float) -> F8:
        """Returns what a kWh costs in hours of events, announced by the first hour, whose limit is reached, USD/kWh."""
        name, total_H = self._brief.sites[s], np.zeros(len(grid_H))
        for each in self._brief.announced.events:
            known = each.event.known_s <= hour * HOUR_S < each.event.end_s
            if each.site != name or not known:
                continue
            limit_kw, slope_usd_per_kw, _ = each.event.convex(HOUR_S, hour + len(grid_H), most_kw)
            total_H += np.where(grid_H >= limit_kw[hour:], slope_usd_per_kw[hour:], 0.0)
        return total_H

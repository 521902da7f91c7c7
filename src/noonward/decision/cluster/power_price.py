"""What the next kWh costs at a site with a tariff in the hours to come: the one price of a watt for policies.

``PowerPrices.marginal_price`` holds energy, demand charges, coincident peaks as they are forecast, sun, battery, and
announced events. Planners by bid prices ask it at the load of their plan, and ``power-priced`` for any other policy at
the load of now. Its counterpart after the fact, with foresight, is ``ledger.dispatch.marginal_price``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np

from noonward.arrays import F8, I8, Bools
from noonward.decision.brief import Brief
from noonward.forecasts.system_peaks import peak_chances
from noonward.model.cluster.books import Ppa
from noonward.model.cluster.devices import Battery, BehindMeter
from noonward.model.cluster.program import Program
from noonward.model.cluster.site_prices import calendar_of
from noonward.model.cluster.solar import PlantsByHour
from noonward.units import DAY_H, HOUR_S

SPREAD_H: Final = 2.0
"""Hours of a site's largest load that lie above the level from which on hours share the price of a peak."""
BATTERY_H: Final = 48
"""Hours ahead for which a battery's dispatch is expected."""
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


class Plant(NamedTuple):
    """What is expected of the plant of a physical contract over some hours.

    Attributes:
        ppa: The contract.
        share_H: Its output, share of the rated power.
        price_H: Price of energy at the site, USD/MWh.
        resale_H: Price in the zone, USD/MWh.
    """

    ppa: Ppa
    share_H: F8
    price_H: F8
    resale_H: F8


class PowerPrices:
    """What the next kWh costs at the sites of a run with tariffs, by hour and load.

    Policies that weigh energy add it to the price they forecast. It holds what an hour's load decides: whether it sets
    a month's peak, how likely the whole system peaks (``forecasts.system_peaks``, where the site's meter names a file
    of its load), whether the sun or a plant under a physical contract serves it, whether it breaks an announced event,
    and over the next two days what a battery makes of it: the dual of the least bill at the expected load, prices and
    sun, from a battery at the energy that it starts a run with. The power of an hour is its mean, and of blocks of
    energy the first counts.

    Args:
        brief: Brief of a run with tariffs and a window.
        foresight: Whether sun, plants and their zones' prices in hours to come are known; else they are those of the
            same hour of the last day.
    """

    def __init__(self, brief: Brief, *, foresight: bool) -> None:
        self._brief, self._foresight = brief, foresight
        fleet = brief.fleet
        self.sites = tuple(s for s in range(len(fleet.sites)) if fleet.tariff_of(s) is not None)
        """Positions of the sites with a tariff."""
        self._behind = {s: fleet.sites[s].behind_meter or BehindMeter() for s in self.sites}
        self._chances: dict[int, tuple[int, int, F8]] = {}
        self._charged: dict[tuple[int, int], tuple[I8, list[tuple[F8, F8, Bools]]]] = {}

    @classmethod
    def of(cls, brief: Brief, *, foresight: bool) -> PowerPrices | None:
        """Returns the prices of a run's sites; None where none has a tariff, or the run has no end (live)."""
        if not brief.fleet.billed or np.isinf(brief.window_s):
            return None
        return cls(brief, foresight=foresight)

    def solar_kw(self, s: int, hour: int, hours: int) -> F8:
        """Returns the power that solar cells are expected to yield from an hour of the run on, kW."""
        solar, cells = self._brief.solar, self._behind[s].solar
        if solar is None or cells is None:
            return np.zeros(hours)
        return cells.kw * self._expected(solar.share_SH[s], hour, hours)

    def _expected(self, value_H: F8, hour: int, hours: int) -> F8:
        """Returns what a quantity is expected to be from an hour of the run on; 0 where nothing is known of it."""
        lead_H = np.arange(hours)
        at_H = hour + lead_H - (0 if self._foresight else DAY_H * -(-lead_H // DAY_H))
        known_H = (at_H >= 0) & (at_H < len(value_H))
        return np.asarray(np.where(known_H, value_H[np.where(known_H, at_H, 0)], 0.0))

    def _plant(self, s: int, hour: int, price_H: F8) -> Plant | None:
        """Returns what is expected of the plant of a physical contract; None without one."""
        plants, ppa = self._brief.plants, self._brief.fleet.sites[s].ppa
        if ppa is None or not isinstance(plants, PlantsByHour):
            return None
        of_site = (plants.share_SH[s], plants.resale_usd_per_mwh_SH[s])
        share_H, resale_H = (self._expected(each, hour, len(price_H)) for each in of_site)
        return Plant(ppa, share_H, price_H, resale_H)

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
        solar_H = self.solar_kw(s, hour, hours)
        grid_H = np.maximum(0.0, kw_H - solar_H)
        plant, least_H, energy_H = self._plant(s, hour, price_H), price_H, price_H
        if plant is not None:
            least_H = price_H - plant.ppa.saved_usd_per_mwh(price_H, plant.resale_H)
            energy_H = np.where(grid_H < plant.ppa.kw * plant.share_H, least_H, price_H)
        export_H = np.broadcast_to(self._export_usd_per_mwh(s, least_H), price_H.shape)
        coincident_H = self._coincident_usd_per_kwh(s, hour, hours)
        peaks = self._peaks(s, hour, hours, drawn_kw_H)
        priced_H = np.where(grid_H > 0.0, energy_H + KW_PER_MW * coincident_H, export_H)
        peak_H = np.zeros(hours)
        for at_H, rate, floor_kw in peaks:
            peak_H[at_H] += rate * peak_shares(grid_H[at_H], floor_kw, SPREAD_H * most_kw)
        priced_H = priced_H + KW_PER_MW * peak_H
        battery = self._behind[s].battery
        if battery is not None:
            near = slice(0, min(hours, BATTERY_H))
            priced_H[near] = self._with_battery(
                s, battery, kw_H[near], price_H[near] / KW_PER_MW + coincident_H[near], solar_H[near],
                export_H[near] / KW_PER_MW, peaks, plant,
            )  # fmt: skip
        return np.asarray(priced_H + KW_PER_MW * self._events_usd_per_kwh(s, hour, grid_H, most_kw))

    def _with_battery(
        self,
        s: int,
        battery: Battery,
        kw_H: F8,
        usd_per_kwh_H: F8,
        solar_H: F8,
        export_usd_per_kwh_H: F8,
        peaks: list[tuple[I8, float, float]],
        plant: Plant | None,
    ) -> F8:
        """Returns what the next kWh of load costs where a battery is, USD/MWh: the dual of the least bill's balance."""
        program, count, export = Program(), len(kw_H), self._behind[s].export
        grid_H = program.columns(count, usd_per_kwh_H)
        if plant is not None:
            share_H, price_H, resale_H = (each[:count] for each in (plant.share_H, plant.price_H, plant.resale_H))
            plant.ppa.convex(program, grid_H, share_H, price_H, resale_H, 1.0)
        charge_H, discharge_H = battery.convex(program, count, 1.0)
        sun_H = program.columns(count, upper=solar_H)
        sold_H = program.columns(count, -export_usd_per_kwh_H, upper=0.0 if export is None else export.allowed_kw)
        for at_H, rate, floor_kw in peaks:
            near_H = at_H[at_H < count]
            if len(near_H):
                peak = program.columns(1, rate, lower=floor_kw)
                program.rows(len(near_H), [(np.repeat(peak, len(near_H)), 1.0), (grid_H[near_H], -1.0)], lower=0.0)
        terms: list[tuple[I8, F8 | float]] = [
            (grid_H, 1.0), (discharge_H, 1.0), (charge_H, -1.0), (sun_H, 1.0), (sold_H, -1.0),
        ]  # fmt: skip
        rows = program.rows(count, terms, lower=kw_H, upper=kw_H)
        return np.asarray(program.solved("price of power behind a battery").dual[rows] * KW_PER_MW)

    def _export_usd_per_mwh(self, s: int, price_H: F8) -> F8 | float:
        """Returns what a kWh of sun that is left would bring."""
        export = self._behind[s].export
        if export is None:
            return 0.0
        # The zone's price is not forecast apart from the site's: exports never bring more than energy costs.
        return price_H if export.price == "signal" else np.minimum(price_H, float(export.price))

    def _peaks(self, s: int, hour: int, hours: int, drawn_kw_H: F8) -> list[tuple[I8, float, float]]:
        """Returns the leads at which each month's peak is charged, its price, USD/kW, and what is paid anyway, kW."""
        month_N, charges = self._charges(s, hour + hours)
        past, ahead, found = slice(0, len(drawn_kw_H)), slice(hour, hour + hours), []
        for rate_M, least_kw_M, counts_N in charges:
            floor_kw_M, past_N = least_kw_M.copy(), counts_N[past]
            np.maximum.at(floor_kw_M, month_N[past][past_N], drawn_kw_H[past_N])
            month_H, counts_H = month_N[ahead], counts_N[ahead]
            for month in np.unique(month_H[counts_H]).tolist():
                at_H = np.flatnonzero(counts_H & (month_H == month))
                found.append((at_H, float(rate_M[month]), float(floor_kw_M[month])))
        return found

    def _charges(self, s: int, hours: int) -> tuple[I8, list[tuple[F8, F8, Bools]]]:
        """Returns the month of each hour of a run, and of each demand charge its prices, floors and hours."""
        whole = -(-hours // BLOCK_H) * BLOCK_H
        if (s, whole) not in self._charged:
            brief = self._brief
            tariff, meter = brief.fleet.tariff_of(s), brief.fleet.sites[s].meter
            assert tariff is not None, "only sites with a tariff have a price of power"
            assert meter is not None, "a tariff is named by a meter"
            calendar = calendar_of(brief.fleet, s, brief.start, brief.window_s, HOUR_S, whole)
            contract_kw = tariff.contract_kw or 0.0
            self._charged[s, whole] = (
                calendar.month_N,
                [
                    (
                        charge.rate_M(calendar),
                        charge.floors_kw(calendar, contract_kw, meter.past_peak_kw),
                        charge.holds(calendar),
                    )
                    for charge in tariff.demand
                ],
            )
        return self._charged[s, whole]

    def _coincident_usd_per_kwh(self, s: int, hour: int, hours: int) -> F8:
        """Returns the price of a peak of the whole system times how likely each hour holds one, USD/kWh."""
        load, tariff = self._brief.system_load, self._brief.fleet.tariff_of(s)
        assert tariff is not None, "only sites with a tariff have a price of power"
        if load is None or not tariff.coincident:
            return np.zeros(hours)
        if s not in self._chances or self._chances[s][:2] != (hour, hours):
            mw_H, whole = load.until(s, hour), load.before_h + hour + hours
            start = self._brief.start - timedelta(hours=load.before_h)
            window_s = -(-whole // BLOCK_H) * BLOCK_H * HOUR_S
            calendar = calendar_of(self._brief.fleet, s, start, window_s, HOUR_S, -(-whole // BLOCK_H) * BLOCK_H)
            total_H = np.zeros(hours)
            for charge in tariff.coincident:
                total_H += charge.usd_per_kw_peak * peak_chances(mw_H, calendar, charge, len(mw_H), hours)
            self._chances[s] = (hour, hours, total_H)
        return self._chances[s][2]

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

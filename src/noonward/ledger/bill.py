"""Bills of metered sites: what a tariff makes of the power that a site drew."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.model.cluster.books import MARGINAL_NAME, RESIDUAL_NAME, CarbonBooks, Ppa
from noonward.model.cluster.calendar import Calendar
from noonward.model.cluster.devices import BehindMeter, Export
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.event import EventTotals, GridEvent
from noonward.model.cluster.meter import Meter
from noonward.model.cluster.site_prices import calendar_of
from noonward.model.cluster.tariff import Tariff
from noonward.model.signals import CARBON_NAME, PRICE_NAME
from noonward.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class MeteredSite:
    """A site with a meter and a tariff in a run; intervals N are the finest of meter and signals.

    Attributes:
        meter: Its meter.
        tariff: Its tariff.
        calendar: Its local calendar.
        price_N: Price of energy, USD/MWh: signal or contract, with adders and fees; NaN where unknown.
        behind: What is behind the meter.
        solar_share_N: Yield of solar cells, share of their rated power.
        export_price_N: What is paid for exports, USD/MWh; NaN where unknown or nothing may be exported.
        events: Grid events.
        plant: Its contract, and the plant's output by interval, share of the rated power; None without one.
        zone_price_N: Price in its zone, USD/MWh, which the contract is settled at; read with ``plant`` alone.
    """

    meter: Meter
    tariff: Tariff
    calendar: Calendar
    price_N: F8
    behind: BehindMeter
    solar_share_N: F8
    export_price_N: F8
    events: tuple[GridEvent, ...] = ()
    plant: tuple[Ppa, F8] | None = None
    zone_price_N: F8 = field(default_factory=lambda: np.zeros(0))

    def ppa_usd(self, kw_N: F8) -> float:
        """Returns what its contract costs, USD; 0 without one.

        Args:
            kw_N: Mean power drawn by interval of its calendar, kW.
        """
        if self.plant is None:
            return 0.0
        ppa, share_N = self.plant
        return ppa.settle(share_N, kw_N, self.price_N, self.zone_price_N, self.calendar.step_h)

    @property
    def contract_kw(self) -> float:
        """Power of the contract, kW; 0 without one."""
        return self.tariff.contract_kw or 0.0


def metered_site(environment: Environment, s: int) -> MeteredSite | None:
    """Returns a site with a meter and a tariff; None for one that lacks either.

    Raises:
        ScenarioError: It has no time zone.
    """
    fleet = environment.fleet
    meter, tariff = fleet.sites[s].meter, fleet.tariff_of(s)
    if meter is None or tariff is None:
        return None
    step_s = step_of(environment, meter)
    behind, price_N = fleet.sites[s].behind_meter or BehindMeter(), energy_price(environment, s, step_s)
    export_price_N = _export_price(environment, s, step_s, behind.export)
    solar, plants, ppa = environment.solar, environment.plants, fleet.sites[s].ppa
    plant, zone_price_N = None, zone_price(environment, s, step_s)
    least_N = price_N if ppa is None else price_N - ppa.saved_usd_per_mwh(price_N, zone_price_N)
    if (export_price_N > least_N + 1e-9).any():
        n = int((export_price_N > least_N + 1e-9).argmax())
        raise ScenarioError(
            f"site {fleet.sites[s].name!r} is paid {export_price_N[n]:g} USD/MWh for exports while energy costs "
            f"{least_N[n]:g}: it would buy and sell at once; give an export price that is never above that of energy"
        )
    if ppa is not None and plants is not None:
        plant = ppa, np.repeat(plants.share_SH[s, : environment.hours], round(HOUR_S / step_s))
    return MeteredSite(
        meter=meter,
        tariff=tariff,
        calendar=calendar_of(fleet, s, environment.start, environment.window_s, step_s, environment.hours),
        price_N=price_N,
        behind=behind,
        solar_share_N=np.zeros(len(price_N))
        if solar is None
        else np.repeat(solar.share_SH[s, : environment.hours], round(HOUR_S / step_s)),
        export_price_N=export_price_N,
        events=tuple(each.event for each in environment.events if each.site == fleet.sites[s].name),
        plant=plant,
        zone_price_N=zone_price_N,
    )


def _export_price(environment: Environment, s: int, step_s: float, export: Export | None) -> F8:
    """Returns what is paid for exports by interval, USD/MWh; NaN where nothing may be exported."""
    count = environment.hours * round(HOUR_S / step_s)
    if export is None:
        return np.full(count, np.nan)
    return zone_price(environment, s, step_s) if export.price == "signal" else np.full(count, float(export.price))


def step_of(environment: Environment, meter: Meter) -> float:
    """Returns the length of the intervals that a meter's power is reckoned in, s: the finest of meter and signals."""
    return float(math.gcd(round(meter.interval_s), round(environment.site_signals.part_s)))


def zone_price(environment: Environment, s: int, step_s: float) -> F8:
    """Returns the price of a MWh in a site's zone by interval, USD/MWh; NaN where unknown."""
    hours, parts = environment.hours, round(HOUR_S / step_s)
    if environment.signals is None:
        return np.full(hours * parts, np.nan)
    window = environment.signals.window(environment.start, hours)
    return window.by_part(PRICE_NAME, environment.fleet.sites[s].zone, parts)


def energy_price(environment: Environment, s: int, step_s: float) -> F8:
    """Returns the price of a MWh at a site by interval, USD/MWh: its zone's or its contract's, with adders and fees."""
    price_N, prices = zone_price(environment, s, step_s), environment.prices
    if prices is None:
        return price_N
    price_SN = np.full((len(environment.sites), len(price_N)), np.nan)
    price_SN[s] = price_N
    return prices.priced(price_SN, environment.start, round(HOUR_S / step_s))[s]


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A site's bill over a run, USD.

    Attributes:
        energy_usd: Energy at its price, dearer blocks included.
        demand_usd: Charges for the peaks of months.
        coincident_usd: Charges for power while the system peaked.
        fixed_usd: Fixed charges.
    """

    energy_usd: float
    demand_usd: float
    coincident_usd: float
    fixed_usd: float

    @property
    def total_usd(self) -> float:
        """The bill, USD."""
        return self.energy_usd + self.demand_usd + self.coincident_usd + self.fixed_usd


def bill_of(site: MeteredSite, kw_N: F8) -> Bill:
    """Returns the bill for the power drawn.

    Args:
        site: Site.
        kw_N: Mean power drawn by interval of its calendar, at least 0, kW.
    """
    tariff, calendar, meter = site.tariff, site.calendar, site.meter
    energy_usd = float((kw_N * site.price_N).sum() * calendar.step_h / 1000.0)
    peaks = meter.system_peaks or ((),) * len(tariff.coincident)
    return Bill(
        energy_usd=energy_usd + tariff.settle_blocks(kw_N, calendar),
        demand_usd=float(
            sum(charge.settle(kw_N, calendar, site.contract_kw, meter.past_peak_kw).sum() for charge in tariff.demand)
        ),
        coincident_usd=float(
            sum(charge.settle(kw_N, calendar, each) for charge, each in zip(tariff.coincident, peaks, strict=True))
        ),
        fixed_usd=float(tariff.usd_per_month * calendar.share_M.sum()),
    )


def events_of(site: MeteredSite, kw_N: F8) -> EventTotals | None:
    """Returns what a site's grid events asked, got and paid; None without any.

    Args:
        site: Site.
        kw_N: Mean power drawn by interval of its calendar, kW; it is metered over the meter's own intervals.
    """
    if not site.events:
        return None
    kw_X = site.meter.averaged(kw_N, site.calendar.step_s)
    return EventTotals.of([event.settle(kw_X, site.meter.interval_s) for event in site.events])


def books_of(environment: Environment, s: int, site: MeteredSite, kw_N: F8) -> CarbonBooks | None:
    """Returns a site's carbon books; None without a contract.

    Args:
        environment: What was run.
        s: Position of the site.
        site: Site.
        kw_N: Mean power drawn by interval of its calendar, kW.
    """
    if site.plant is None:
        return None
    ppa, share_N = site.plant
    parts, zone = round(HOUR_S / site.calendar.step_s), environment.fleet.sites[s].zone
    known = {} if environment.signals is None else environment.signals.value_ZH

    def intensity(*names: str) -> F8:
        """Returns the first of some signals that there is, g/kWh by hour and part; NaN where there is none."""
        name = next((each for each in names if each in known), None)
        if environment.signals is None or name is None:
            return np.full((len(kw_N) // parts, parts), np.nan)
        window = environment.signals.window(environment.start, environment.hours)
        return window.by_part(name, zone, parts).reshape(-1, parts)

    return CarbonBooks.of(
        kw_N.reshape(-1, parts),
        (ppa.kw * share_N).reshape(-1, parts),
        site.calendar.step_h,
        (intensity(CARBON_NAME), intensity(RESIDUAL_NAME, CARBON_NAME), intensity(MARGINAL_NAME)),
        site.ppa_usd(kw_N),
    )

"""Dispatch of what is behind a meter: the least bill for a given load, its flows, and the price of a kW more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import InfeasiblePlanError
from noonward.ledger.bill import Bill, MeteredSite, bill_of
from noonward.model.cluster.devices import TOLERANCE_KWH, Flows
from noonward.model.cluster.program import Program


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """The least cost of a site's load.

    Attributes:
        flows: Power by interval.
        cost_usd: What the site pays: bill, energy above the connection and wear, less what is paid for exports; without
            fixed charges, USD. Of grid events the convex cost, never above what they settle to.
        price_N: What a further kWh of load in an interval would cost, USD/MWh: the dual of its balance.
    """

    flows: Flows
    cost_usd: float
    price_N: F8


@dataclass(frozen=True, kw_only=True)
class SiteColumns:
    """Columns of a site in a program, kW by interval; None where it has no such device."""

    grid_N: I8
    export_N: I8 | None
    charge_N: I8 | None
    discharge_N: I8 | None
    solar_N: I8 | None

    @property
    def all(self) -> tuple[I8 | None, ...]:
        """The columns, in the order of ``Flows`` after the load."""
        return self.grid_N, self.export_N, self.charge_N, self.discharge_N, self.solar_N


def add_site(program: Program, site: MeteredSite, most_kw: float) -> SiteColumns:
    """Adds the grid, a site's tariff, its devices and events to a program: the convex face of all of them.

    Args:
        program: Program.
        site: Site.
        most_kw: Largest load that the program can have, kW.
    """
    calendar, behind, hours = site.calendar, site.behind, site.calendar.step_h
    count = len(calendar)
    grid_N = program.columns(count, site.price_N * hours / 1000.0)
    peaks = site.meter.system_peaks or ((),) * len(site.tariff.coincident)
    for charge in site.tariff.demand:
        charge.convex(program, grid_N, calendar, site.contract_kw, site.meter.past_peak_kw)
    for coincident, times in zip(site.tariff.coincident, peaks, strict=True):
        coincident.convex(program, grid_N, calendar, times)
    site.tariff.convex_blocks(program, grid_N, calendar)
    site.meter.convex(program, grid_N, calendar.start, calendar.step_s)
    if site.plant is not None:
        ppa, share_N = site.plant
        ppa.convex(program, grid_N, share_N, site.price_N, site.zone_price_N, hours)
    battery_kw = 0.0 if behind.battery is None else behind.battery.kw
    for event in site.events:
        event.add_to(program, grid_N, calendar.step_s, site.meter.interval_s, most_kw + battery_kw)
    export_N = charge_N = discharge_N = solar_N = None
    if behind.export is not None:
        export_N = behind.export.convex(program, site.export_price_N, hours)
    if behind.battery is not None:
        charge_N, discharge_N = behind.battery.convex(program, count, hours)
    if behind.solar is not None:
        solar_N = behind.solar.convex(program, site.solar_share_N)
    return SiteColumns(grid_N=grid_N, export_N=export_N, charge_N=charge_N, discharge_N=discharge_N, solar_N=solar_N)


def balance(columns: SiteColumns) -> list[tuple[I8, F8 | float]]:
    """Returns the terms of grid - export - charge + discharge + solar, which serve the load."""
    signs = (
        (columns.grid_N, 1.0), (columns.export_N, -1.0), (columns.charge_N, -1.0), (columns.discharge_N, 1.0),
        (columns.solar_N, 1.0),
    )  # fmt: skip
    return [(each, sign) for each, sign in signs if each is not None]


def dispatched(site: MeteredSite, load_kw_N: F8) -> Dispatch:
    """Returns the dispatch of least cost for a load, by linear programming: exact, with foresight.

    Args:
        site: Site.
        load_kw_N: Load by interval of its calendar, kW.

    Raises:
        InfeasiblePlanError: Prices of energy are unknown.
    """
    if np.isnan(site.price_N).any():
        raise InfeasiblePlanError("prices of energy are unknown, so devices behind a meter cannot be dispatched")
    program = Program()
    columns = add_site(program, site, float(load_kw_N.max(initial=0.0)))
    rows = program.rows(len(load_kw_N), balance(columns), lower=load_kw_N, upper=load_kw_N)
    found = program.solved("dispatch behind a meter")
    none_N = np.zeros(len(load_kw_N))

    def power(of: I8 | None) -> F8:
        return none_N if of is None else np.maximum(0.0, found.x[of])

    flows = Flows(
        load_N=load_kw_N,
        grid_N=power(columns.grid_N),
        export_N=power(columns.export_N),
        charge_N=power(columns.charge_N),
        discharge_N=power(columns.discharge_N),
        solar_N=power(columns.solar_N),
    )
    return Dispatch(flows=flows, cost_usd=found.value, price_N=found.dual[rows] * 1000.0 / site.calendar.step_h)


def marginal_price(site: MeteredSite, interval: int, load_kw_N: F8) -> float:
    """Returns what a further kWh in an interval costs at a site that has some load, USD/MWh.

    With surplus sun it is the price of export, or 0; at a peak it holds the demand charge.
    """
    return float(dispatched(site, load_kw_N).price_N[interval])


def check_flows(site: MeteredSite, flows: Flows) -> None:
    """Steps through a dispatch by the devices' physics.

    Raises:
        InfeasiblePlanError: A device cannot do its part, or power is not balanced.
    """
    behind, hours = site.behind, site.calendar.step_h
    if flows.unbalanced_kw > TOLERANCE_KWH * max(1.0, float(flows.load_N.max(initial=0.0))):
        raise InfeasiblePlanError(f"a dispatch is unbalanced by {flows.unbalanced_kw:g} kW")
    if behind.battery is not None:
        behind.battery.stored_kwh(flows.charge_N, flows.discharge_N, hours)
    if behind.solar is not None:
        for share, used_kw in zip(site.solar_share_N.tolist(), flows.solar_N.tolist(), strict=True):
            behind.solar.step(share, used_kw)
    for export_kw in flows.export_N.tolist():
        if behind.export is not None:
            behind.export.step(export_kw)


def settled(site: MeteredSite, flows: Flows) -> tuple[Bill, float, float, float]:
    """Returns what a dispatch costs: the bill, energy above the connection, wear, and what is paid for exports, USD."""
    behind, hours = site.behind, site.calendar.step_h
    wear_usd = 0.0 if behind.battery is None else behind.battery.settle(flows.discharge_N, hours)
    export_usd = 0.0 if behind.export is None else behind.export.settle(flows.export_N, site.export_price_N, hours)
    over_usd = site.meter.settle(flows.grid_N, site.calendar.start, site.calendar.step_s)
    return bill_of(site, flows.grid_N), over_usd, wear_usd, export_usd

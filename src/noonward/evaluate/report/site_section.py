"""The map of a report for a meeting: what sites pay and emit, where work goes, and a table of the same."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from noonward.arrays import F8
from noonward.data.places import site_place
from noonward.data.site_map import Flow, Spot, site_map
from noonward.evaluate.answer import spoken
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.report.charts import tint
from noonward.evaluate.report.figure_style import grid, window_hours
from noonward.evaluate.table import TextTable
from noonward.units import HOUR_S

if TYPE_CHECKING:
    from noonward.ledger.record import Record

MOST_FLOWS: Final = 8
"""Largest number of migrations on the map."""
LEAST_FLOW: Final = 0.04
"""Smaller shares of all GPU-hours are not drawn."""


@dataclass(frozen=True, kw_only=True)
class SiteFigures:
    """What happens at the sites, means over the environments; axes S sites, I ingress points.

    Attributes:
        price_S: Mean price, USD/MWh.
        carbon_S: Mean carbon intensity, gCO2/kWh.
        today_S: GPU-hours of jobs under today's policy.
        best_S: GPU-hours of jobs under the policy to adopt.
        energy_kwh_S: Energy of jobs under the policy to adopt less that under today's, kWh.
        flow_IS: GPU-hours by where jobs arrive and where they run, under the policy to adopt.
    """

    price_S: F8
    carbon_S: F8
    today_S: F8
    best_S: F8
    energy_kwh_S: F8
    flow_IS: F8


def site_figures(comparison: Comparison, best: str) -> SiteFigures:
    """Returns what happens at the sites under a policy and under today's."""
    mine, base = comparison.records[best], comparison.records[comparison.reference]

    def over_window(records: list[Record], column: str) -> F8:
        return np.asarray(np.mean([_window(record, column).mean(axis=1) for record in records], axis=0))

    def total(records: list[Record], column: str) -> F8:
        return np.asarray(np.mean([np.nansum(grid(record, column)[0], axis=1) for record in records], axis=0))

    return SiteFigures(
        price_S=over_window(base, "price_usd_per_mwh"),
        carbon_S=over_window(base, "carbon_g_per_kwh"),
        today_S=total(base, "busy_gpu_hours"),
        best_S=total(mine, "busy_gpu_hours"),
        energy_kwh_S=total(mine, "job_kwh") - total(base, "job_kwh"),
        flow_IS=np.mean([_flow_IS(record) for record in mine], axis=0),
    )


def _window(record: Record, column: str) -> F8:
    values_SH: F8 = grid(record, column)[0][:, : window_hours(record)]
    return values_SH


def _flow_IS(record: Record) -> F8:
    """Returns GPU-hours by where jobs arrive and where they run."""
    points, sites = list(record.manifest["ingress"]), [site["name"] for site in record.manifest["sites"]]
    table = record.jobs.filter(record.jobs["finish_s"].is_finite() & record.jobs["start_s"].is_finite())
    hours = (table["gpus"] * (table["finish_s"] - table["start_s"]) / HOUR_S).to_numpy()
    out = np.zeros((len(points), len(sites)))
    at_I, at_S = {name: n for n, name in enumerate(points)}, {name: n for n, name in enumerate(sites)}
    rows = [at_I[name] for name in table["origin"].cast(str).to_list()]
    columns = [at_S[name] for name in table["site"].cast(str).to_list()]
    np.add.at(out, (rows, columns), hours)
    return out


def site_section(comparison: Comparison, best: str) -> str:
    """Returns map and table as HTML; the table alone where no site has a place."""
    fleet, found = comparison.scenario.fleet, site_figures(comparison, best)
    change_S = found.best_S - found.today_S
    most = float(np.abs(change_S).max()) or 1.0
    largest = max(site.gpus for site in fleet.sites)
    spots: list[Spot] = []
    position: dict[int, int] = {}
    for s, site in enumerate(fleet.sites):
        place = site_place(site)
        if place is not None:
            position[s] = len(spots)
            tip = (
                f"{site.name}: {found.price_S[s]:,.0f} USD/MWh, {found.carbon_S[s]:,.0f} g CO2/kWh, "
                f"{site.gpus:,} GPUs, {change_S[s]:+,.0f} GPU-hours"
            )
            color = tint(change_S[s] / most)
            size = site.gpus / largest
            spots.append(Spot(name=site.name, lat=place[0], lon=place[1], size=size, color=color, tip=tip))
    flows = _flows(comparison, found, position)
    drawn = "".join(
        f"<div class='map {name}'>{site_map(spots, flows, width=width)}</div>"
        for name, width in (("wide", 920), ("narrow", 380))
        if spots
    )
    absent = [site.name for s, site in enumerate(fleet.sites) if s not in position]
    beneath = (
        f"<p class='caption'>Not on the map: {escape(', '.join(absent))}. Neither the site nor its zone has a place; "
        "lat and lon of a site give one.</p>"
        if absent
        else ""
    )
    return drawn + beneath + _table(comparison, best, found)


def site_caption(comparison: Comparison, best: str) -> str:
    """Returns how to read the map."""
    return (
        f"Points are sites, the larger the more GPUs. Orange: {best} runs more GPU-hours there than "
        f"{spoken(comparison.reference)}; blue: fewer. Arrows lead from where jobs arrive to where {best} runs "
        "them, the thicker the more GPU-hours; the largest are shown. Where sites lie close together, some names are "
        "left out; the table has them all. "
        "Means over the windows."
    )


def _flows(comparison: Comparison, found: SiteFigures, position: dict[int, int]) -> list[Flow]:
    """Returns the largest migrations between sites that lie on the map."""
    fleet = comparison.scenario.fleet
    total = float(found.flow_IS.sum()) or 1.0
    pairs = []
    for i, point in enumerate(fleet.ingress_points):
        if point.home is None:
            continue
        home = fleet.site_index(point.home)
        for s in range(len(fleet.sites)):
            hours = float(found.flow_IS[i, s])
            if s != home and hours >= LEAST_FLOW * total and home in position and s in position:
                pairs.append((hours, home, s))
    pairs.sort(reverse=True)
    names = fleet.site_names
    return [
        Flow(
            start=position[home],
            end=position[s],
            share=hours / pairs[0][0],
            tip=f"{names[home]} to {names[s]}: {hours:,.0f} GPU-hours ({hours / total:.0%})",
        )
        for hours, home, s in pairs[:MOST_FLOWS]
    ]


def _change(amount: float) -> str:
    """Returns a whole number with its sign; 0 without one."""
    whole = round(float(amount))
    return f"{whole:+,}" if whole else "0"


def _table(comparison: Comparison, best: str, found: SiteFigures) -> str:
    from noonward.evaluate.report.page import bare_table_html

    today = spoken(comparison.reference)
    rows = tuple(
        (
            site.name,
            f"{found.price_S[s]:,.0f}",
            f"{found.carbon_S[s]:,.0f}",
            f"{site.gpus:,}",
            f"{found.today_S[s]:,.0f}",
            f"{found.best_S[s]:,.0f}",
            _change(found.best_S[s] - found.today_S[s]),
            _change(found.energy_kwh_S[s]),
        )
        for s, site in enumerate(comparison.scenario.fleet.sites)
    )
    header = (
        "site",
        "price, USD/MWh",
        "carbon, g/kWh",
        "GPUs",
        f"GPU-hours, {today}",
        f"GPU-hours, {best}",
        "change",
        "energy of jobs, change in kWh",
    )
    return bare_table_html(TextTable(title="", header=header, rows=rows, caption=""))

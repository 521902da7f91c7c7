"""What meters read under every policy: a table per site, and metrics; nothing where no site has a meter."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean
from noonward.evaluate.table import TextTable, number
from noonward.ledger.meters import MeterLines
from noonward.ledger.units import unit_of

COLUMNS = {
    "peak (kW)": ("peak_kw", 1),
    "load factor": ("load_factor", 3),
    "energy (kWh)": ("energy_kwh", 0),
    "above the connection (kWh)": ("over_connection_kwh", 1),
    "bill (USD)": ("bill_usd", 2),
    "energy (USD)": ("energy_usd", 2),
    "peaks of months (USD)": ("demand_usd", 2),
    "system peaks (USD)": ("coincident_usd", 2),
}
"""Columns of the table: lines of a meter, and their decimals. Those of the bill only where a site has a tariff."""


def line_of(comparison: Comparison, policy: str, site: str, name: str) -> Estimate:
    """Returns the mean over the environments of a line of a site's meter."""
    return mean(np.array([getattr(one.ledger.meters[site], name) for one in comparison.records[policy]]))


def metered_sites(comparison: Comparison) -> tuple[str, ...]:
    """Returns the sites that have a meter."""
    return tuple(comparison.records[comparison.reference][0].ledger.meters)


def meter_table(comparison: Comparison) -> TextTable | None:
    """Returns what the meters read, a row per site and policy, or None where no site has one."""
    sites = metered_sites(comparison)
    if not sites:
        return None
    shown = {
        title: (name, digits)
        for title, (name, digits) in COLUMNS.items()
        if not all(np.isnan(line_of(comparison, comparison.reference, site, name).value) for site in sites)
    }
    rows = [
        (site, policy, *(number(line_of(comparison, policy, site, name), digits) for name, digits in shown.values()))
        for site in sites
        for policy in comparison.ranked()
    ]
    return TextTable(
        title="Meters",
        header=("site", "policy", *shown),
        rows=tuple(rows),
        caption="Means over the environments. The peak is the largest mean power of a metering interval.",
    )


def meter_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of every meter for ``--json``."""
    return [
        Metric.of(
            f"meter/{site}/{line.name}/{policy}", line_of(comparison, policy, site, line.name), unit_of(line.name)
        )
        for site in metered_sites(comparison)
        for line in fields(MeterLines)
        for policy in comparison.records
    ]

"""What meters read under every policy: a table per site, and metrics; nothing where no site has a meter."""

from __future__ import annotations

import numpy as np

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.site_lines import SiteLines
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import TextTable
from noonward.ledger.meters import MeterLines

METERS = SiteLines("meters", MeterLines, "meter")
"""Meters of the sites that have one."""
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


def meter_table(comparison: Comparison) -> TextTable | None:
    """Returns what the meters read, a row per site and policy, or None where no site has one."""
    sites = METERS.sites(comparison)
    if not sites:
        return None
    shown = {
        title: (name, digits)
        for title, (name, digits) in COLUMNS.items()
        if not all(np.isnan(mean(METERS.values(comparison, comparison.reference, s, name)).value) for s in sites)
    }
    return TextTable(
        title="Meters",
        header=("site", "policy", *shown),
        rows=tuple((site, policy, *cells) for site, policy, cells in METERS.rows(comparison, shown)),
        caption="Means over the environments. The peak is the largest mean power of a metering interval.",
    )


def meter_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of every meter for ``--json``."""
    return [
        METERS.metric(comparison, site, policy, name)
        for site in METERS.sites(comparison)
        for name in METERS.names
        for policy in comparison.records
    ]

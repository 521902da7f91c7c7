"""Carbon books under every policy: a table per site, and metrics; nothing where no site has a contract."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean, ratio
from noonward.evaluate.table import TextTable, number
from noonward.ledger.units import unit_of
from noonward.model.cluster.books import CarbonBooks

COLUMNS = {
    "drawn (kWh)": "grid_kwh",
    "matched by the hour (kWh)": "matched_kwh",
    "location-based (kg)": "location_kg",
    "market-based (kg)": "market_kg",
    "marginal (kg)": "marginal_kg",
    "contract (USD)": "ppa_usd",
}
"""Columns of the table: lines of the books."""


def values_of(comparison: Comparison, policy: str, site: str, name: str) -> F8:
    """Returns a line of a site's books in each environment."""
    return np.array([float(getattr(one.ledger.books[site], name)) for one in comparison.records[policy]])


def contracted_sites(comparison: Comparison) -> tuple[str, ...]:
    """Returns the sites that have a contract for a plant's output."""
    return tuple(comparison.records[comparison.reference][0].ledger.books)


def book_table(comparison: Comparison) -> TextTable | None:
    """Returns the books, a row per site and policy, or None where no site has a contract."""
    sites = contracted_sites(comparison)
    if not sites:
        return None
    rows = []
    for site in sites:
        for policy in comparison.ranked():
            cells = [number(mean(values_of(comparison, policy, site, name)), 1) for name in COLUMNS.values()]
            rows.append((site, policy, *cells))
    return TextTable(
        title="Carbon books",
        header=("site", "policy", *COLUMNS),
        rows=tuple(rows),
        caption="Means over the environments. Three ways to count the same energy, which are never summed. "
        "Market-based: what the plant did not deliver in the same hour, at the residual mix.",
    )


def book_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of the books of every site for ``--json``."""
    found = []
    for site in contracted_sites(comparison):
        for policy in comparison.records:
            for line in fields(CarbonBooks):
                value = mean(values_of(comparison, policy, site, line.name))
                found.append(Metric.of(f"books/{site}/{line.name}/{policy}", value, unit_of(line.name)))
            parts = (values_of(comparison, policy, site, name) for name in ("matched_kwh", "grid_kwh"))
            found.append(Metric.of(f"books/{site}/matched_share/{policy}", ratio(*parts), "fraction"))
    return found

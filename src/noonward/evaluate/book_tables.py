"""Carbon books under every policy: a table per site, and metrics; nothing where no site has a contract."""

from __future__ import annotations

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.site_lines import SiteLines
from noonward.evaluate.statistics import ratio
from noonward.evaluate.table import TextTable
from noonward.model.cluster.books import CarbonBooks

BOOKS = SiteLines("books", CarbonBooks, "books")
"""Books of the sites that have a contract for a plant's output."""
COLUMNS = {
    "drawn (kWh)": ("grid_kwh", 1),
    "matched by the hour (kWh)": ("matched_kwh", 1),
    "location-based (kg)": ("location_kg", 1),
    "market-based (kg)": ("market_kg", 1),
    "marginal (kg)": ("marginal_kg", 1),
    "contract (USD)": ("ppa_usd", 1),
}
"""Columns of the table: lines of the books, and their decimals."""


def book_table(comparison: Comparison) -> TextTable | None:
    """Returns the books, a row per site and policy, or None where no site has a contract."""
    if not BOOKS.sites(comparison):
        return None
    return TextTable(
        title="Carbon books",
        header=("site", "policy", *COLUMNS),
        rows=tuple((site, policy, *cells) for site, policy, cells in BOOKS.rows(comparison, COLUMNS)),
        caption="Means over the environments. Three ways to count the same energy, which are never summed. "
        "Market-based: what the plant did not deliver in the same hour, at the residual mix.",
    )


def book_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of the books of every site for ``--json``."""
    metrics = []
    for site in BOOKS.sites(comparison):
        for policy in comparison.records:
            parts = (BOOKS.values(comparison, policy, site, name) for name in ("matched_kwh", "grid_kwh"))
            metrics += [BOOKS.metric(comparison, site, policy, name) for name in BOOKS.names]
            metrics.append(Metric.of(f"books/{site}/matched_share/{policy}", ratio(*parts), "fraction"))
    return metrics

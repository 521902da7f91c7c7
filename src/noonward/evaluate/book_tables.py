"""Carbon books and water under every policy: a table per site, and metrics; nothing where no site states them."""

from __future__ import annotations

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.site_lines import SiteLines
from noonward.evaluate.table import TextTable
from noonward.model.cluster.books import CarbonBooks
from noonward.model.cluster.water import WaterUse

BOOKS = SiteLines("books", CarbonBooks, "books")
"""Books of the sites that have a contract for a plant's output."""
WATER = SiteLines("water", WaterUse, "water")
"""Water of the sites that state it."""


def book_table(comparison: Comparison) -> TextTable | None:
    """Returns the books, a row per site and policy, or None where no site has a contract."""
    columns = {
        "drawn (kWh)": ("grid_kwh", 1),
        "matched by the hour (kWh)": ("matched_kwh", 1),
        "location-based (kg)": ("location_kg", 1),
        "market-based (kg)": ("market_kg", 1),
        "marginal (kg)": ("marginal_kg", 1),
        "contract (USD)": ("ppa_usd", 1),
    }
    return BOOKS.table(
        comparison,
        "Carbon books",
        columns,
        "Means over the environments. Three ways to count the same energy, which are never summed. "
        "Market-based: what the plant did not deliver in the same hour, at the residual mix.",
    )


def book_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of the books of every site for ``--json``."""
    return BOOKS.metrics(comparison, {"matched_share": ("matched_kwh", "grid_kwh", "fraction")})


def water_table(comparison: Comparison) -> TextTable | None:
    """Returns the water, a row per site and policy, or None where no site states any."""
    columns = {
        "IT energy (kWh)": ("it_kwh", 1),
        "on-site (L)": ("onsite_l", 1),
        "drawn from the grid (kWh)": ("grid_kwh", 1),
        "off-site (L)": ("offsite_l", 1),
    }
    return WATER.table(
        comparison,
        "Water",
        columns,
        "Means over the environments. On-site: what cooling uses. Off-site: what generating the electricity took.",
    )


def water_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of the water of every site for ``--json``."""
    return WATER.metrics(comparison, {"wue_l_per_kwh": ("onsite_l", "it_kwh", "L/kWh")})

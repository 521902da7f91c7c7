"""What grid events asked, got and paid under every policy: a table per site, and metrics; nothing without events."""

from __future__ import annotations

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.site_lines import SiteLines
from noonward.evaluate.statistics import Estimate, ratio
from noonward.evaluate.table import TextTable
from noonward.model.cluster.event import EventTotals

EVENTS = SiteLines("events", EventTotals, "events", none=EventTotals.of([]))
"""Events by site; an environment without events has none."""
COLUMNS = {
    "events": ("events", 1),
    "asked (MWh)": ("asked_mwh", 3),
    "left out (MWh)": ("delivered_mwh", 3),
    "missed intervals": ("missed_intervals", 1),
    "payment (USD)": ("payment_usd", 2),
    "penalty (USD)": ("penalty_usd", 2),
}
"""Columns of the table: lines of the ledger, and their decimals."""


def kept_share(comparison: Comparison, policy: str, site: str) -> Estimate:
    """Returns the share of the asked energy that was left out, over all environments."""
    left_out, asked = (EVENTS.values(comparison, policy, site, name) for name in ("delivered_mwh", "asked_mwh"))
    return ratio(left_out, asked)


def event_table(comparison: Comparison) -> TextTable | None:
    """Returns what events asked and paid, a row per site and policy, or None where there were none."""
    if not EVENTS.sites(comparison):
        return None
    return TextTable(
        title="Grid events",
        header=("site", "policy", *COLUMNS, "attained"),
        rows=tuple(
            (site, policy, *cells, f"{kept_share(comparison, policy, site).value:.1%}")
            for site, policy, cells in EVENTS.rows(comparison, COLUMNS)
        ),
        caption="Means over the environments. attained: energy left out of what was asked; in each metering interval "
        "at most what was asked counts. Payments and penalties are part of the cost.",
    )


def event_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of the events of every site for ``--json``."""
    metrics = []
    for site in EVENTS.sites(comparison):
        for policy in comparison.records:
            share = kept_share(comparison, policy, site)
            metrics += [EVENTS.metric(comparison, site, policy, name) for name in EVENTS.names]
            metrics.append(Metric.of(f"events/{site}/share_attained/{policy}", share, "fraction"))
    return metrics

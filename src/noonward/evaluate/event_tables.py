"""What grid events asked, got and paid under every policy: a table per site, and metrics; nothing without events."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.table import TextTable, number
from noonward.ledger.units import unit_of
from noonward.model.cluster.event import EventTotals

COLUMNS = {
    "events": ("events", 1),
    "asked (MWh)": ("asked_mwh", 3),
    "left out (MWh)": ("delivered_mwh", 3),
    "missed intervals": ("missed_intervals", 1),
    "payment (USD)": ("payment_usd", 2),
    "penalty (USD)": ("penalty_usd", 2),
}
"""Columns of the table: lines of the ledger, and their decimals."""


def values_of(comparison: Comparison, policy: str, site: str, name: str) -> np.ndarray:
    """Returns a line of a site's events in each environment; 0 in one without events."""
    none = EventTotals.of([])
    return np.array([float(getattr(one.ledger.events.get(site, none), name)) for one in comparison.records[policy]])


def called_sites(comparison: Comparison) -> tuple[str, ...]:
    """Returns the sites that have an event in any environment."""
    records = comparison.records[comparison.reference]
    return tuple(dict.fromkeys(site for one in records for site in one.ledger.events))


def kept_share(comparison: Comparison, policy: str, site: str) -> Estimate:
    """Returns the share of the asked energy that was left out, over all environments."""
    return ratio(values_of(comparison, policy, site, "delivered_mwh"), values_of(comparison, policy, site, "asked_mwh"))


def event_table(comparison: Comparison) -> TextTable | None:
    """Returns what events asked and paid, a row per site and policy, or None where there were none."""
    sites = called_sites(comparison)
    if not sites:
        return None
    rows = []
    for site in sites:
        for policy in comparison.ranked():
            cells = [
                number(mean(values_of(comparison, policy, site, name)), digits) for name, digits in COLUMNS.values()
            ]
            rows.append((site, policy, *cells, f"{kept_share(comparison, policy, site).value:.1%}"))
    return TextTable(
        title="Grid events",
        header=("site", "policy", *COLUMNS, "attained"),
        rows=tuple(rows),
        caption="Means over the environments. attained: energy left out of what was asked; in each metering interval "
        "at most what was asked counts. Payments and penalties are part of the cost.",
    )


def event_metrics(comparison: Comparison) -> list[Metric]:
    """Returns every line of the events of every site for ``--json``."""
    found = []
    for site in called_sites(comparison):
        for policy in comparison.records:
            for line in fields(EventTotals):
                value = mean(values_of(comparison, policy, site, line.name))
                found.append(Metric.of(f"events/{site}/{line.name}/{policy}", value, unit_of(line.name)))
            found.append(
                Metric.of(f"events/{site}/share_attained/{policy}", kept_share(comparison, policy, site), "fraction")
            )
    return found

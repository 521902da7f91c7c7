"""Which planners a fleet is offered: those that read published prices, where a zone has a day-ahead market."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from noonward.model.markets import day_ahead_market

WITH_PUBLISHED: Final[Mapping[str, str]] = {
    "booked-regression": "booked-published",
    "bid-price-regression": "bid-price-published",
}
"""The same planner under published prices, by the name of the one that forecasts all of them."""


def with_published(
    names: Sequence[str], zones: Iterable[str], stated: Mapping[str, bool] | None = None
) -> tuple[str, ...]:
    """Returns names of policies, planners that read published prices in place of the others where a zone has such.

    Prices of the other zones are forecast by them as by the others.

    Args:
        names: Names.
        zones: Zones of the fleet.
        stated: What the scenario says of zones (``signals.day_ahead``).

    Example:
        >>> with_published(("local-fcfs", "bid-price-regression"), ("DE", "SG"))
        ('local-fcfs', 'bid-price-published')
        >>> with_published(("local-fcfs", "bid-price-regression"), ("SG", "AU-VIC"))
        ('local-fcfs', 'bid-price-regression')
    """
    if all(day_ahead_market(zone, stated) is None for zone in zones):
        return tuple(names)
    return tuple(WITH_PUBLISHED.get(name, name) for name in names)

"""Day-ahead markets: which zones' prices are published a day before, at what time, and for which hours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

from noonward.errors import ScenarioError

_TABLE: Final = "tables/day_ahead_markets.json"


@dataclass(frozen=True, kw_only=True)
class Market:
    """A market that publishes the prices of a whole day at once, on the day before.

    Attributes:
        name: Name.
        title: Name in words.
        clock: Clock whose midnights begin and end its days.
        published: Time of day, on that clock, from which the next day's prices are known.
        zones: Zones whose price is taken to be its price unless a scenario says otherwise.
        stated: Zones whose price is taken to be its price only where a scenario says so: their signals are often
            those of the real-time market.
        source: Where its times are stated.
    """

    name: str
    title: str
    clock: ZoneInfo
    published: time
    zones: frozenset[str]
    stated: frozenset[str]
    source: str

    def known_until(self, now: datetime) -> datetime:
        """Returns the UTC end of the last hour whose price has been published.

        Args:
            now: Time, timezone-aware.

        Example:
            >>> winter = datetime(2022, 1, 3, 11, tzinfo=UTC)  # 12:00 in Brussels
            >>> (day_ahead_market("DE").known_until(winter) - winter) / timedelta(hours=1)
            12.0
            >>> (day_ahead_market("DE").known_until(winter + timedelta(hours=1)) - winter) / timedelta(hours=1)
            36.0
        """
        local = now.astimezone(self.clock)
        day = local.date() + timedelta(days=2 if local.time() >= self.published else 1)
        return datetime.combine(day, time(), self.clock).astimezone(UTC)


@cache
def day_ahead_markets() -> tuple[Market, ...]:
    """Returns the packaged table of day-ahead markets, with their sources."""
    table = json.loads((files("noonward.model") / _TABLE).read_text(encoding="utf-8"))
    return tuple(
        Market(
            name=row["name"],
            title=row["title"],
            clock=ZoneInfo(row["clock"]),
            published=time.fromisoformat(row["published"]),
            zones=frozenset(row["zones"]),
            stated=frozenset(row["stated"]),
            source=row["source"],
        )
        for row in table["markets"]
    )


def day_ahead_market(zone: str, stated: Mapping[str, bool] | None = None) -> Market | None:
    """Returns the market whose day-ahead price a zone's signal is, or None where it is published for no hour ahead.

    Args:
        zone: Zone.
        stated: What a scenario says of zones: whether their price is that of the day-ahead market. Of the others the
            table says it.
    """
    for market in day_ahead_markets():
        if zone in (market.zones | market.stated) and (stated or {}).get(zone, zone in market.zones):
            return market
    return None


def require_markets(stated: Mapping[str, bool]) -> None:
    """Raises ScenarioError if zones are said to have day-ahead prices for which no market is known."""
    known = {zone for market in day_ahead_markets() for zone in market.zones | market.stated}
    unknown = [zone for zone, day_ahead in stated.items() if day_ahead and zone not in known]
    if unknown:
        raise ScenarioError(
            f"no day-ahead market is known for the zones {', '.join(unknown)}; known are those of "
            f"{', '.join(market.title for market in day_ahead_markets())}: leave the others out"
        )

"""Readings of a site's power: from a file, or from an address that is asked over HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from noonward.data.clock import stated_times
from noonward.data.text_table import TextFile, read_text_file
from noonward.errors import DataError, FileError
from noonward.files import version_of
from noonward.live.demand.settings import MeterFeed
from noonward.live.grid.feed_source import read_key
from noonward.live.grid.feeds.feed import Call, json_of, reply_file
from noonward.live.grid.sources import SourceError
from noonward.live.grid.web import Web
from noonward.model.cluster.meter import MOST_KW
from noonward.units import HOUR_S

HOLD_S: Final = 900.0
"""How long a reading holds at most until the next one, s."""
KEPT_S: Final = 2 * HOUR_S
"""How long readings are kept in memory, s."""


class MeterReadings:
    """The latest readings of a site's power; each holds until the next, for ``HOLD_S`` at most.

    Args:
        feed: Where they are read.
        site: Name of the site, for messages.
        start: UTC time of the service's second 0.
        now_s: The service's time, s.

    Attributes:
        problem: Why the last look failed; empty after one that did not.
    """

    def __init__(self, feed: MeterFeed, site: str, start: datetime, now_s: Callable[[], float]) -> None:
        self.feed, self.problem = feed, ""
        self._start, self._now_s = start, now_s
        self._of: dict[float, float] = {}
        self._changed: object = None
        self._web = None if feed.url is None else Web(f"meter of {site}", feed.url, now_s, feed.quota_per_hour)

    def refresh(self) -> None:
        """Looks for new readings; a failure is noted, and what was read before stays."""
        try:
            found = self._read()
            if self._web is not None:
                self._web.succeeded()
        except (DataError, FileError, SourceError) as error:
            self.problem = str(error)
            if self._web is not None and isinstance(error, DataError):
                self.problem = str(self._web.failed(str(error)))
            return
        self.problem = ""
        since_s = self._now_s() - KEPT_S
        self._of = {at_s: kw for at_s, kw in (self._of | found).items() if at_s >= since_s}

    def _read(self) -> dict[float, float]:
        """Returns readings in kW by their time, s since the service's start."""
        feed = self.feed
        if feed.path is not None:
            changed = version_of(feed.path, "check the path in meters")
            if changed == self._changed:
                return {}
            found = self._table(read_text_file(feed.path))
            self._changed = changed
            return found
        assert self._web is not None, "a feed has a path or an address"
        headers = {} if feed.key_file is None else {"Authorization": f"Bearer {read_key(feed.key_file)}"}
        if feed.query is None:
            return self._table(reply_file(self._web.get(Call(path=feed.url or "", headers=headers)), feed.title))
        call = Call(path="api/v1/query", query={"query": feed.query}, headers=headers)
        return self._value(json_of(reply_file(self._web.get(call), feed.title)))

    def _table(self, text: TextFile) -> dict[float, float]:
        table = text.table()
        times = stated_times(table, self.feed.timezone, "the time of a reading")
        kw_T = table.numbers(table.column("kw"), self.feed.unit)
        pairs = [
            ((time.replace(tzinfo=UTC) - self._start).total_seconds(), kw)
            for time, kw in zip(times, kw_T, strict=True)
            if kw is not None
        ]
        return {at_s: self._checked(value, text.name) for at_s, value in pairs}

    def _value(self, said: Any) -> dict[float, float]:
        """Returns the one value that Prometheus answers with."""
        try:
            (one,) = said["data"]["result"]
            at, value = one["value"]
            at_s = float(at) - self._start.timestamp()
            return {at_s: self._checked(float(value), self.feed.title)}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self.feed.title}: the query {self.feed.query!r} returned no single value ({str(said)[:80]}); write "
                "one that returns one, e.g. sum(...)"
            ) from error

    def _checked(self, value: float, name: str) -> float:
        """Returns a reading in kW.

        Raises:
            DataError: No site draws this.
        """
        kw = value * self.feed.kw_per_unit
        if not (math.isfinite(kw) and 0 <= kw <= MOST_KW):
            raise DataError(f"{name}: a reading of {value} {self.feed.unit}; a site draws 0 to {MOST_KW:g} kW")
        return kw

    @property
    def last(self) -> tuple[float, float] | None:
        """Time, s, and value, kW, of the last reading that still holds; None without one."""
        now_s = self._now_s()
        found = max((at_s for at_s in self._of if at_s <= now_s), default=None)
        return None if found is None or now_s - found > HOLD_S else (found, self._of[found])

    def complete(self, until_s: float) -> bool:
        """Returns whether there is a reading at or after a time: what was before is known for good."""
        return any(at_s >= until_s for at_s in self._of)

    def mean_kw(self, from_s: float, until_s: float) -> float | None:
        """Returns the mean power in a time, kW; None where readings cover less than half of it."""
        times = sorted(self._of)
        energy = covered_s = 0.0
        for at_s, next_s in zip(times, [*times[1:], math.inf], strict=True):
            held_s = min(next_s, at_s + HOLD_S, until_s) - max(at_s, from_s)
            if held_s > 0:
                energy, covered_s = energy + held_s * self._of[at_s], covered_s + held_s
        return energy / covered_s if 2 * covered_s >= until_s - from_s else None

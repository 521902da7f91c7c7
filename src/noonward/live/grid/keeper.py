"""Keeps the signals of every hour in the store: as they were known at the time, and as they turned out."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import SignalRangeError
from noonward.live.grid.sources import SignalSource, SourceError
from noonward.live.states import from_bytes, to_bytes
from noonward.live.store.database import Connection
from noonward.live.store.store import Store
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals
from noonward.units import DAY_H

HISTORY_H: Final = 48
"""Hours before the service's start that are kept, for forecasts."""
STAND_IN: Final = "stands in: the same hour of an earlier day"
"""How the source of a value begins that is not known yet and that nobody expects."""
EXPECTED: Final = "expected by its publisher"
"""How the source of a value begins that its publisher states and may still correct."""
PUBLISHED_H: Final = 2 * DAY_H
"""Hours to come whose published prices are kept with every hour: a market publishes less."""
LATE_H: Final = 7 * DAY_H
"""Hours for which the truth is waited for."""
_QUANTITIES: Final = (("price", PRICE_NAME), ("carbon", CARBON_NAME))


@dataclass(frozen=True)
class _Asked:
    """What is asked about: hours from ``begin`` to ``hour``, those from ``first_new`` on for the first time."""

    begin: int
    first_new: int
    hour: int


class SignalKeeper:
    """Reads a source hour by hour.

    An hour whose value is not known when it begins takes what its publisher expects, or else that of the same hour of
    the day before plus the mean difference between two days in a row as they turned out in the last week: not to know
    has a price, which grows by a day's difference with every day. Such a value is marked, shown, and replaced for the
    accounts once the truth is known. It is never a zero, and what was decided under it stays recorded as it was.

    Args:
        store: Store.
        source: Source.
        zones: Zones of the sites, each once.
        day_ahead: What the scenario says of zones: whether their price is that of the day-ahead market.
    """

    def __init__(
        self, store: Store, source: SignalSource, zones: tuple[str, ...], day_ahead: Mapping[str, bool] | None = None
    ) -> None:
        self.store, self.source, self.zones, self._day_ahead = store, source, zones, dict(day_ahead or {})
        self._problems = {"refresh": "", "fetch": ""}
        self._refreshing = threading.Lock()

    @property
    def problem(self) -> str:
        """What is wrong with the source; empty if nothing is."""
        return "; ".join(dict.fromkeys(each for each in self._problems.values() if each))

    def refresh(self, hour: int) -> None:
        """Lets the source ask its publishers for all that is missing up to an hour; may take long, one call at a time.

        Args:
            hour: Hour since the service's start.
        """
        with self._refreshing:
            asked = self._asked(hour)
            start = self.store.start + timedelta(hours=asked.begin)
            try:
                self.source.refresh(self.zones, start, max(0, hour - asked.begin + 1))
                self._problems["refresh"] = ""
            except SourceError as error:
                self._problems["refresh"] = str(error)

    def _asked(self, hour: int) -> _Asked:
        last = self.store.read("SELECT max(hour) AS last FROM signals")[0]["last"]
        first_new = -HISTORY_H if last is None else int(last) + 1
        query = "SELECT min(hour) AS first FROM signals WHERE (true_price IS NULL OR true_carbon IS NULL) AND hour >= ?"
        late = self.store.read(query, hour - LATE_H)[0]["first"]
        return _Asked(first_new if late is None else min(first_new, int(late)), first_new, hour)

    def update(self, hour: int) -> None:
        """Stores every hour up to one, and the truth of hours that something stood in for.

        Args:
            hour: Hour since the service's start.

        Raises:
            SignalRangeError: The source knows nothing of the hours before the start, so that nothing can stand in.
        """
        asked = self._asked(hour)
        if asked.begin > hour:
            return
        start, hours = self.store.start + timedelta(hours=asked.begin), hour - asked.begin + 1
        expected = None
        try:
            found = self.source.fetch(self.zones, start, hours)
            expected = self.source.expected(self.zones, start, hours)
            self._problems["fetch"] = ""
        except SourceError as error:
            self._problems["fetch"] = str(error)
            if asked.first_new > hour:
                return
            unknown = np.full((len(self.zones), hours), np.nan)
            found = Signals(start=start, zones=self.zones, value_ZH={PRICE_NAME: unknown, CARBON_NAME: unknown})
        self._keep(asked, found, expected, self._published_rows(asked))

    def _published_rows(self, asked: _Asked) -> list[tuple[int, bytes]]:
        """Returns a row per new hour of the service: the prices that are known ahead, up to the last of them."""
        rows = []
        for hour in range(max(asked.first_new, 0), asked.hour + 1):
            start = self.store.start + timedelta(hours=hour + 1)
            try:
                price_ZH = self.source.published(self.zones, start, PUBLISHED_H).price_usd_per_mwh_ZH
            except SourceError:
                price_ZH = np.zeros((len(self.zones), 0))
            known = np.flatnonzero(np.isfinite(price_ZH).any(axis=0))
            price_ZH = price_ZH[:, : known[-1] + 1 if len(known) else 0]
            rows.append((hour, to_bytes({"zones": list(self.zones), "price_ZH": price_ZH})))
        return rows

    def published(self, first: int, until: int) -> dict[int, F8]:
        """Returns the prices that were known ahead in some hours, by hour: those of the hours after it, (Z, H).

        Prices that were not known then are NaN.

        Args:
            first: First hour since the service's start.
            until: Hour after the last.
        """
        found = {}
        for row in self.store.read("SELECT * FROM published WHERE hour >= ? AND hour < ?", first, until):
            held = from_bytes(row["value"])
            known = dict(zip(held["zones"], held["price_ZH"], strict=True))
            unknown_H = np.full(held["price_ZH"].shape[1], np.nan)
            found[row["hour"]] = np.stack([known.get(zone, unknown_H) for zone in self.zones])
        return found

    def _keep(
        self, asked: _Asked, found: Signals, expected: Signals | None, published: list[tuple[int, bytes]]
    ) -> None:
        begin, first_new = asked.begin, asked.first_new
        used: dict[tuple[str, int], list[float]] = {}
        sources: dict[tuple[str, int], str] = {}
        true: list[tuple[float | None, float | None, str, int]] = []
        truth: dict[tuple[str, int], tuple[float | None, float | None]] = {}
        for z, zone in enumerate(self.zones):
            columns = [
                _Column(found.of(name)[z], None if expected is None else expected.of(name)[z], asked)
                for _, name in _QUANTITIES
            ]
            for (what, _), column in zip(_QUANTITIES, columns, strict=True):
                if first_new == -HISTORY_H:
                    self._require_history(column, what, zone)
                column.earlier = self._earlier(zone, what, first_new)
                column.surcharge = self._surcharge(zone, what, first_new, column)
            for h in range(begin, asked.hour + 1):
                known = [column.known(h) for column in columns]
                if h < first_new:
                    if any(value is not None for value in known):
                        true.append((known[0], known[1], zone, h))
                    continue
                told = [column.used(h) for column in columns]
                used[zone, h] = [value for value, _ in told]
                sources[zone, h] = self._said([source for _, source in told])
                truth[zone, h] = known[0], known[1]

        def change(connection: Connection, now_s: float) -> None:
            connection.executemany(
                "INSERT INTO signals (zone, hour, price, carbon, source, true_price, true_carbon, stored_s) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(*key, *used[key], sources[key], *truth[key], now_s) for key in used],
            )
            connection.executemany(
                "INSERT INTO published (hour, value) VALUES (?, ?) ON CONFLICT DO NOTHING", published
            )
            connection.executemany(
                "UPDATE signals SET true_price = coalesce(true_price, ?), true_carbon = coalesce(true_carbon, ?) "
                "WHERE zone = ? AND hour = ?",
                true,
            )

        self.store.do(change)

    def _require_history(self, column: _Column, what: str, zone: str) -> None:
        if not any(column.known(h) is not None for h in range(-HISTORY_H, 1)):
            words = {"price": "price", "carbon": "carbon intensity"}[what]
            raise SignalRangeError(
                f"no {words} of zone {zone} is known in the {HISTORY_H} hours before "
                f"{self.store.start:%Y-%m-%d %H:%M} UTC ({self.problem or self.source.name}); a service begins with "
                "known signals: give files that reach up to now, or another source"
            )

    def _said(self, sources: list[str]) -> str:
        """Returns the source of an hour's price and intensity in words."""
        if not any(sources):
            return self.source.name
        if sources[0] == sources[1]:
            return sources[0]
        return "; ".join(f"{said} ({what})" for (what, _), said in zip(_QUANTITIES, sources, strict=True) if said)

    def _earlier(self, zone: str, what: str, first_new: int) -> dict[int, float]:
        """Returns the values of a zone's day before, as they were used."""
        rows = self.store.read(
            f"SELECT hour, {what} AS value FROM signals WHERE zone = ? AND hour >= ?", zone, first_new - DAY_H
        )
        return {row["hour"]: row["value"] for row in rows}

    def _surcharge(self, zone: str, what: str, first_new: int, column: _Column) -> float:
        """Returns the mean difference between an hour and the same one a day before, of the last week's true values."""
        rows = self.store.read(
            f"SELECT hour, true_{what} AS value FROM signals WHERE zone = ? AND hour >= ? AND true_{what} IS NOT NULL",
            zone,
            first_new - LATE_H,
        )
        value = {row["hour"]: row["value"] for row in rows} | column.all_known()
        differences = [abs(value[h] - value[h - DAY_H]) for h in value if h - DAY_H in value]
        return sum(differences) / len(differences) if differences else 0.0

    def signals(self, first: int, until: int) -> Signals:
        """Returns the stored signals of the hours from one up to another, as they were known at the time."""
        return self._stored(first, until, "price", "carbon")

    def settled(self, first: int, until: int) -> Signals:
        """Returns the stored signals of some hours as they turned out, where that is known yet."""
        return self._stored(first, until, "coalesce(true_price, price)", "coalesce(true_carbon, carbon)")

    def _stored(self, first: int, until: int, price: str, carbon: str) -> Signals:
        value = np.full((2, len(self.zones), until - first), np.nan)
        rows = self.store.read(
            f"SELECT zone, hour, {price} AS price, {carbon} AS carbon FROM signals WHERE hour >= ? AND hour < ?",
            first,
            until,
        )
        for row in rows:
            if row["zone"] in self.zones:
                value[:, self.zones.index(row["zone"]), row["hour"] - first] = row["price"], row["carbon"]
        start: datetime = self.store.start + timedelta(hours=first)
        value_ZH = {PRICE_NAME: value[0], CARBON_NAME: value[1]}
        return Signals(start=start, zones=self.zones, value_ZH=value_ZH, day_ahead=self._day_ahead)

    @property
    def last_hour(self) -> int | None:
        """Last hour that is stored, or None."""
        found = self.store.read("SELECT max(hour) AS last FROM signals")[0]["last"]
        return None if found is None else int(found)

    def late_h(self) -> int:
        """Returns the number of zone-hours that something stands in for."""
        query = "SELECT count(*) AS n FROM signals WHERE true_price IS NULL OR true_carbon IS NULL"
        return int(self.store.read(query)[0]["n"])


class _Column:
    """A quantity of a zone: what is known of it, what is expected, and what stands in.

    Args:
        known_H: Known values of the hours asked about; NaN: unknown.
        expected_H: Expected ones; None: none are.
        asked: Hours asked about.
    """

    def __init__(self, known_H: F8, expected_H: F8 | None, asked: _Asked) -> None:
        self._known_H, self._expected_H, self._asked = known_H, expected_H, asked
        self.earlier: Mapping[int, float] = {}
        self.surcharge = 0.0
        self._used: dict[int, float] = {}

    def known(self, hour: int) -> float | None:
        """Returns the known value of an hour, or None."""
        value = float(self._known_H[hour - self._asked.begin])
        return None if math.isnan(value) else value

    def all_known(self) -> dict[int, float]:
        """Returns the known values by hour."""
        hours = range(self._asked.begin, self._asked.hour + 1)
        return {h: value for h in hours if (value := self.known(h)) is not None}

    def used(self, hour: int) -> tuple[float, str]:
        """Returns the value that decisions in an hour are made with, and its source; empty if it is known."""
        value, source = self.known(hour), ""
        if value is None and self._expected_H is not None:
            expected = float(self._expected_H[hour - self._asked.begin])
            value, source = (None, "") if math.isnan(expected) else (expected, EXPECTED)
        if value is None:
            value, source = self._stand_in(hour), STAND_IN
        self._used[hour] = value
        return value, source

    def _stand_in(self, hour: int) -> float:
        """Returns the value of the day before plus the surcharge; at the start of the history, the first known one."""
        before = self._used.get(hour - DAY_H, self.earlier.get(hour - DAY_H))
        if before is not None:
            return before + self.surcharge
        known = self.all_known()
        same = [h for h in known if (h - hour) % DAY_H == 0]
        return known[(same or list(known))[0]] + self.surcharge

"""Keeps the signals of every hour in the store: as they were known at the time, and as they turned out."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

import numpy as np

from noonward.errors import SignalRangeError
from noonward.live.grid.sources import SignalSource, SourceError
from noonward.live.store.store import Store
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals
from noonward.units import DAY_H

HISTORY_H = 48
"""Hours before the service's start that are kept, for forecasts."""
STAND_IN = "stands in: the same hour of an earlier day"
"""Source of a value that is not known yet."""


class SignalKeeper:
    """Reads a source hour by hour.

    An hour whose values are not known when it begins takes those of the same hour of the day before: a stand-in, which
    is marked, shown, and replaced for the accounts once the truth is known. It is never a zero, and what was decided
    under it stays recorded as it was.

    Args:
        store: Store.
        source: Source.
        zones: Zones of the sites, each once.
    """

    def __init__(self, store: Store, source: SignalSource, zones: tuple[str, ...]) -> None:
        self.store, self.source, self.zones = store, source, zones
        self.problem = ""

    def update(self, hour: int) -> None:
        """Stores every hour up to one, and the truth of hours that something stood in for.

        Args:
            hour: Hour since the service's start.

        Raises:
            SignalRangeError: The source knows nothing of the hours before the start, so that nothing can stand in.
        """
        rows = self.store.read("SELECT max(hour) AS last, min(hour) AS first FROM signals")
        last = rows[0]["last"]
        first_new = -HISTORY_H if last is None else int(last) + 1
        late = self.store.read("SELECT min(hour) AS first FROM signals WHERE true_price IS NULL")[0]["first"]
        begin = first_new if late is None else min(first_new, int(late))
        if begin > hour:
            return
        start = self.store.start + timedelta(hours=begin)
        try:
            found = self.source.fetch(self.zones, start, hour - begin + 1)
            self.problem = ""
        except SourceError as error:
            self.problem = str(error)
            if first_new > hour:
                return
            unknown = np.full((len(self.zones), hour - begin + 1), np.nan)
            found = Signals(start=start, zones=self.zones, value_ZH={PRICE_NAME: unknown, CARBON_NAME: unknown})
        self._keep(found, begin, first_new, hour)

    def _keep(self, found: Signals, begin: int, first_new: int, hour: int) -> None:
        price_ZH, carbon_ZH = found.price_usd_per_mwh_ZH, found.carbon_g_per_kwh_ZH
        known_ZH = ~np.isnan(price_ZH) & ~np.isnan(carbon_ZH)
        new, true = [], []
        value: dict[tuple[str, int], tuple[float, float]] = {
            (row["zone"], row["hour"]): (row["price"], row["carbon"])
            for row in self.store.read("SELECT * FROM signals WHERE hour >= ?", first_new - DAY_H)
        }
        for z, zone in enumerate(self.zones):
            if first_new == -HISTORY_H and not known_ZH[z, : HISTORY_H + 1].any():
                raise SignalRangeError(
                    f"no price and carbon intensity of zone {zone} is known in the {HISTORY_H} hours before "
                    f"{self.store.start:%Y-%m-%d %H:%M} UTC ({self.problem or self.source.name}); a service begins "
                    "with "
                    "known signals: give files that reach up to now, or another source"
                )
            for h in range(begin, hour + 1):
                pair = (float(price_ZH[z, h - begin]), float(carbon_ZH[z, h - begin]))
                known = bool(known_ZH[z, h - begin])
                if h < first_new:
                    if known:
                        true.append((*pair, zone, h))
                    continue
                used = pair if known else self._stand_in(value, found, z, zone, h, begin)
                value[zone, h] = used
                truth = pair if known else (None, None)
                new.append((zone, h, *used, self.source.name if known else STAND_IN, *truth))

        def change(connection: sqlite3.Connection, now_s: float) -> None:
            connection.executemany(
                "INSERT INTO signals (zone, hour, price, carbon, source, true_price, true_carbon, stored_s) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(*row, now_s) for row in new],
            )
            connection.executemany(
                "UPDATE signals SET true_price = ?, true_carbon = ? WHERE zone = ? AND hour = ? AND true_price IS NULL",
                true,
            )

        self.store.do(change)

    def _stand_in(
        self,
        value: dict[tuple[str, int], tuple[float, float]],
        found: Signals,
        z: int,
        zone: str,
        hour: int,
        begin: int,
    ) -> tuple[float, float]:
        """Returns the last known values of the same hour of the day; at the start of the history, the first known."""
        if (zone, hour - DAY_H) in value:
            return value[zone, hour - DAY_H]
        price_H, carbon_H = found.price_usd_per_mwh_ZH[z], found.carbon_g_per_kwh_ZH[z]
        known = np.flatnonzero(~np.isnan(price_H) & ~np.isnan(carbon_H))
        same = [h for h in known.tolist() if (h + begin - hour) % DAY_H == 0]
        h = (same or known.tolist())[0]
        return float(price_H[h]), float(carbon_H[h])

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
        return Signals(start=start, zones=self.zones, value_ZH={PRICE_NAME: value[0], CARBON_NAME: value[1]})

    @property
    def last_hour(self) -> int | None:
        """Last hour that is stored, or None."""
        found = self.store.read("SELECT max(hour) AS last FROM signals")[0]["last"]
        return None if found is None else int(found)

    def late_h(self) -> int:
        """Returns the number of zone-hours that something stands in for."""
        return int(self.store.read("SELECT count(*) AS n FROM signals WHERE true_price IS NULL")[0]["n"])

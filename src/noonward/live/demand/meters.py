"""Meters of a service's sites: mean power by interval, measured and by the books, held against grid events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from noonward.arrays import F8
from noonward.live.demand.events import MISSED, grid_event
from noonward.live.demand.feeds import MeterReadings
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.store.store import Store
from noonward.model.cluster.event import GridEvent, missed_intervals
from noonward.model.cluster.fleet import Fleet
from noonward.units import MINUTE_S

By = Literal["measured", "estimated"]
"""What an interval's power is: that of the meter's feed, or that of the service's books."""
DURING: Final = "SELECT * FROM grid_events WHERE site = ? AND cancelled_s IS NULL AND start_s < ? AND end_s > ?"


@dataclass
class SiteMeter:
    """A site's meter.

    Attributes:
        site: Its name.
        interval_s: Length of a metering interval, s.
        readings: Its feed; None: the books alone say what the site draws.
        modelled: Whether nothing runs there: what was decided shows in the books alone.
        estimate: Time, s, and power, kW, of the last look at the books; None before the first.
        sums: Energy, kW s, and time, s, that the books account for, by begin of the interval.
        missed: What the last interval says that missed its target; empty where the last one kept it, or had none.
    """

    site: str
    interval_s: float
    readings: MeterReadings | None
    modelled: bool
    estimate: tuple[float, float] | None = None
    sums: dict[float, tuple[float, float]] = field(default_factory=dict)
    missed: str = ""

    @property
    def by(self) -> By:
        """What targets are held against."""
        return "estimated" if self.modelled or self.readings is None else "measured"

    def account(self, now_s: float, kw: float) -> None:
        """Accounts for the time since the last look at the books, at the power of then."""
        if self.estimate is not None:
            at_s, held_kw = self.estimate
            while at_s < now_s:
                begin_s = math.floor(at_s / self.interval_s) * self.interval_s
                until_s = min(now_s, begin_s + self.interval_s)
                energy, time_s = self.sums.get(begin_s, (0.0, 0.0))
                self.sums[begin_s] = energy + held_kw * (until_s - at_s), time_s + until_s - at_s
                at_s = until_s
        self.estimate = now_s, kw

    def due(self, now_s: float) -> list[float]:
        """Returns begins of the intervals that can be closed: over, and their readings are there, or late."""
        ready = []
        for begin_s in sorted(self.sums):
            end_s = begin_s + self.interval_s
            waits = self.readings is not None and not self.readings.complete(end_s) and now_s < end_s + self.interval_s
            if end_s <= now_s and not waits:
                ready.append(begin_s)
        return ready


class Meters:
    """The meters of all sites that have one in the scenario.

    Args:
        store: Store.
        fleet: Fleet of the scenario.
        readings: Feeds by site.
        modelled_S: Sites at which nothing runs.
        time_of: UTC text of a time, s since the service's start.

    Attributes:
        of: Meters by site.
        missed: Intervals that missed the target of an event since the service was started, by site.
    """

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        readings: Mapping[str, MeterReadings],
        modelled_S: Sequence[bool],
        time_of: Callable[[float], str],
    ) -> None:
        self._store, self._time_of = store, time_of
        self._at = {site.name: s for s, site in enumerate(fleet.sites) if site.meter is not None}
        self.of = {
            site.name: SiteMeter(
                site.name, site.meter.interval_min * MINUTE_S, readings.get(site.name), bool(modelled_S[s])
            )
            for s, site in enumerate(fleet.sites)
            if site.meter is not None
        }
        self.missed: Counter[str] = Counter(dict.fromkeys(self.of, 0))

    def refresh(self) -> None:
        """Asks the feeds."""
        for meter in self.of.values():
            if meter.readings is not None:
                meter.readings.refresh()

    def step(self, kw_S: F8) -> None:
        """Accounts for the time until now, stores the intervals that are over, and holds them against their targets.

        Args:
            kw_S: Power of every site by the books, kW.
        """
        now_s = self._store.now_s()
        for name, meter in self.of.items():
            meter.account(now_s, float(kw_S[self._at[name]]))
            for begin_s in meter.due(now_s):
                self._close(meter, begin_s)

    def _close(self, meter: SiteMeter, begin_s: float) -> None:
        """Stores an interval's power; one that missed its target is an event."""
        energy, time_s = meter.sums[begin_s]
        end_s = begin_s + meter.interval_s
        estimated = energy / time_s
        measured = None if meter.readings is None else meter.readings.mean_kw(begin_s, end_s)
        by: By = "measured" if meter.by == "measured" and measured is not None else "estimated"
        kw = measured if by == "measured" and measured is not None else estimated
        missed = [
            self._missed(meter, row, begin_s, kw, by) for row in self._store.read(DURING, meter.site, end_s, begin_s)
        ]
        said = [each for each in missed if each is not None]

        def change(connection: Connection, now_s: float) -> None:
            connection.execute(
                "INSERT INTO power (site, from_s, measured_kw, estimated_kw) VALUES (?, ?, ?, ?) ON CONFLICT "
                "(site, from_s) DO UPDATE SET measured_kw = excluded.measured_kw, estimated_kw = excluded.estimated_kw",
                (meter.site, begin_s, measured, estimated),
            )
            for each in said:
                add_event(connection, now_s, None, MISSED, each)

        self._store.do(change)
        del meter.sums[begin_s]
        self.missed[meter.site] += len(said)
        meter.missed = "" if not said else (
            f"{meter.site} drew {kw:.4g} kW ({by}) in the {meter.interval_s / MINUTE_S:g} min from "
            f"{self._time_of(begin_s)}; grid event {said[0]['number']} allows {said[0]['limit_kw']:.4g} kW"
        )  # fmt: skip

    def _missed(self, meter: SiteMeter, row: Row, begin_s: float, kw: float, by: By) -> dict[str, object] | None:
        """Returns what is to be said of an interval that missed the target of an event; None where it kept it."""
        asked_kw, delivered_kw = held_against(grid_event(row), {begin_s: kw}, meter.interval_s)[1:]
        at = int(np.argmax(~np.isnan(delivered_kw)))
        if not missed_intervals(asked_kw, delivered_kw)[at]:
            return None
        limit_kw = row["baseline_kw"] - float(asked_kw[at])
        return {
            "site": meter.site, "number": row["id"], "from": self._time_of(begin_s), "kw": round(kw, 4),
            "limit_kw": round(limit_kw, 4), "counted": by,
        }  # fmt: skip

    @property
    def problems(self) -> dict[str, str]:
        """What an operator has to know, by the names of loops and meters."""
        found = {}
        for name, meter in self.of.items():
            if meter.missed:
                found[f"target of {name}"] = meter.missed
            if meter.readings is not None and meter.readings.problem:
                found[f"meter of {name}"] = meter.readings.problem
        return found


def held_against(event: GridEvent, kw_of: Mapping[float, float], interval_s: float) -> tuple[F8, F8, F8]:
    """Returns hours, asked power and power left out (kW) of the metering intervals that an event touches.

    Args:
        event: The event.
        kw_of: Power by begin of the interval, kW; the power left out of others is NaN.
        interval_s: Length of an interval, s.
    """
    first = math.floor(event.start_s / interval_s)
    count = math.ceil(event.end_s / interval_s) - first
    offset_s = first * interval_s
    kw_N = np.array([kw_of.get(offset_s + n * interval_s, np.nan) for n in range(count)])
    shifted = replace(event, start_s=event.start_s - offset_s, end_s=event.end_s - offset_s)
    return shifted.delivered(kw_N, interval_s)

"""Grid events in the store: called by operators or taken from a source, cancelled, and told to the books."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from pydantic import ValidationError

from noonward.data.clock import time_of
from noonward.errors import DataError, nearest
from noonward.live.demand.baselines import high_4_of_5_kw, last_hour_kw
from noonward.live.demand.settings import EventSettings
from noonward.live.refusals import NoSuchJobError, TooLateError
from noonward.live.store.database import Connection, Row
from noonward.live.store.events import add_event
from noonward.live.store.store import Store
from noonward.live.world.grid_events import site_event
from noonward.live.world.world import World
from noonward.model.cluster.event import GridEvent
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.stated_events import StatedEvent
from noonward.units import HOUR_S, MINUTE_S

TOLD, CANCELLED, MISSED = "grid event", "grid event cancelled", "target missed"
"""Kinds of events of the service that are about grid events."""
OF_EVENT: Final = (
    "start_s", "end_s", "known_s", "baseline_kw", "target_kw", "ramp_s", "usd_per_mwh", "penalty_usd_per_mwh",
)  # fmt: skip
"""Columns that say what is asked, in the order in which the books are told."""
_ASKED: Final = ("baseline_kw", "target_kw", "ramp_s", "usd_per_mwh", "penalty_usd_per_mwh")
OPEN: Final = "SELECT * FROM grid_events WHERE cancelled_s IS NULL AND end_s > ? ORDER BY id"
"""Grid events that have not ended at a time."""
LATEST_H: Final = 24 * 366
"""How far ahead an event may be, h."""


class EventCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A grid event that an operator calls."""

    site: str
    target_kw: float | None = None
    """Power to stay at or below, kW; give it or ``cut``."""
    cut: float | None = None
    """The same as the share of the baseline that is left out."""
    hours: float = 3.0
    notice_min: float | None = None
    """How long from now it begins, min; give it or ``start``. Neither: it begins now."""
    start: str | None = None
    """UTC time at which it begins."""
    baseline_kw: float | None = None
    """Power that would have been drawn, kW; none: that of the site's contract, or the mean of the last hour."""
    baseline: Literal["firm", "high-4-of-5"] | None = None
    """``high-4-of-5``: measured now, from the power of the five days before of the same kind without an event; none:
    that of the site's contract, or firm."""
    ramp_min: float | None = None
    """Time over which the limit falls from the baseline to the target, min; none: that of the contract, or 15 min."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """An event as a source states it.

    Attributes:
        key: What the source knows it by.
        event: The event.
    """

    key: str
    event: StatedEvent


def grid_event(row: Row) -> GridEvent:
    """Returns a stored event; times are s since the service's start."""
    return site_event(row["site"], *(row[name] for name in OF_EVENT)).event


class EventBook:
    """The grid events of a service.

    Args:
        store: Store.
        fleet: Fleet of the scenario.
        settings: What the configuration says of events; None: the service takes none.
    """

    def __init__(self, store: Store, fleet: Fleet, settings: EventSettings | None) -> None:
        self.store, self._fleet, self.settings = store, fleet, settings

    def metered(self, site: str) -> None:
        """Raises DataError unless events may be called at a site."""
        if self.settings is None:
            raise DataError("this service takes no grid events; write events: {} into its configuration, or a source")
        names = self._fleet.site_names
        if site not in names:
            raise DataError(f"unknown site {site!r}; {nearest(site, names)}")
        if self._fleet.sites[names.index(site)].meter is None:
            raise DataError(
                f"site {site} has no meter, by which an event is kept; give it one in the scenario, e.g. "
                "meter: {interval_min: 5}"
            )

    def call(self, call: EventCall, who: str) -> int:
        """Stores an event that an operator calls; returns its number.

        Args:
            call: What is asked.
            who: Who asks.

        Raises:
            DataError: Site, times or powers are wrong, or it overlaps another event at the site.
        """
        self.metered(call.site)
        if call.notice_min is not None and call.start is not None:
            raise DataError("an event has notice_min or start, and not both; leave one out")
        now_s = self.store.now_s()
        start_s = now_s + MINUTE_S * (call.notice_min or 0.0) if call.start is None else self._second(call.start)
        if start_s < now_s:
            raise DataError(
                f"the event begins at {self._time(start_s)}, which is past; it is {self._time(now_s)}: give a later "
                "start, or a notice"
            )
        terms = self._terms(call, start_s)
        try:
            stated = StatedEvent(**terms, site=call.site, start=self._utc(start_s))
        except ValidationError as error:
            raise DataError(_words(error)) from None

        def change(connection: Connection, stamp_s: float) -> int:
            number = self._add(None, stated, start_s, who, connection, stamp_s)
            self._audit(connection, stamp_s, who, f"number {number} at {call.site}")
            return number

        return self.store.do(change)

    def _terms(self, call: EventCall, start_s: float) -> dict[str, Any]:
        """Returns what an event asks, by the names of ``StatedEvent``: what was said, or else the site's contract.

        A baseline that is to be measured is.
        """
        assert self.settings is not None, "checked before"
        contract = self.settings.contract(call.site)
        terms: dict[str, Any] = {}
        if contract is not None:
            terms = contract.model_dump(exclude={"openadr_target", "site", "notice_min"})
        said = {
            "target_kw": call.target_kw, "cut": call.cut, "hours": call.hours, "baseline_kw": call.baseline_kw,
            "ramp_min": call.ramp_min,
        }  # fmt: skip
        terms |= {name: value for name, value in said.items() if value is not None}
        rule = call.baseline or ("firm" if call.baseline_kw is not None else terms.get("baseline", "firm"))
        if rule == "high-4-of-5":
            if call.baseline_kw is not None:
                raise DataError("an event has baseline_kw, or a baseline that is measured; leave one out")
            terms["baseline_kw"] = self._high_4_of_5_kw(call.site, start_s, call.hours, call.target_kw)
        if "baseline_kw" not in terms:
            terms["baseline_kw"] = last_hour_kw(self.store, call.site)
        return terms | {"baseline": "firm"}

    def _high_4_of_5_kw(self, site: str, start_s: float, hours: float, target_kw: float | None) -> float:
        """Returns the measured baseline of an event at a site, at least its target, kW."""
        return high_4_of_5_kw(self.store, self._fleet, site, start_s, hours, target_kw or 0.0)

    def _measured(self, stated: StatedEvent) -> StatedEvent:
        """Returns an event of a source with its baseline measured, where its contract says so.

        Raises:
            DataError: It cannot be measured.
        """
        if stated.baseline == "firm":
            return stated
        level_kw = self._high_4_of_5_kw(stated.site, self._begin_s(stated), stated.hours, stated.target_kw)
        return stated.model_copy(update={"baseline_kw": level_kw, "baseline": "firm"})

    def cancel(self, number: int, who: str) -> None:
        """Cancels an event that has not ended.

        Raises:
            NoSuchJobError: There is no such event.
            TooLateError: It has ended, or was cancelled before.
        """

        def change(connection: Connection, stamp_s: float) -> None:
            row = connection.execute("SELECT * FROM grid_events WHERE id = ?", (number,)).fetchone()
            if row is None:
                raise NoSuchJobError(f"there is no grid event {number}; noonward live events lists them")
            if row["cancelled_s"] is not None:
                raise TooLateError(f"grid event {number} was cancelled before; nothing is left to cancel")
            if row["end_s"] <= stamp_s:
                raise TooLateError(f"grid event {number} has ended; only one that has not can be cancelled")
            self._cancel(row, who, connection, stamp_s)
            self._audit(connection, stamp_s, who, f"number {number} cancelled")

        self.store.do(change)

    def take(self, source: str, found: Sequence[Known]) -> int:
        """Takes what a source says: new events, changed ones, and those that it does not state any more.

        Events that have ended are passed over; one that has begun counts from now on.

        Args:
            source: Its name.
            found: Its events.

        Returns:
            How many events are new, changed or cancelled.

        Raises:
            DataError: An event cannot be taken; the others are.
        """
        keyed = {f"{source} {one.key}": one.event for one in found}
        changed, refused = 0, []
        stored = {row["key"]: row for row in self.open() if row["key"] is not None}
        for key, row in stored.items():
            if key not in keyed or not self._unchanged(keyed[key], row):
                self.store.do(functools.partial(self._cancel, row, source))
                changed += 1
        still = {row["key"] for row in self.open()}
        for key, stated in keyed.items():
            start_s, end_s = self._columns(stated)[:2]
            if key in still or end_s <= self.store.now_s():
                continue
            try:
                self.metered(stated.site)
                self.store.do(functools.partial(self._add, key, self._measured(stated), start_s, source))
                changed += 1
            except DataError as error:
                refused.append(f"{key}: {error}")
        if refused:
            raise DataError("; ".join(refused))
        return changed

    def _unchanged(self, stated: StatedEvent, row: Row) -> bool:
        """Returns whether a source still states an event as it is stored; a measured baseline stays as it was."""
        if stated.baseline != "firm":
            stated = stated.model_copy(update={"baseline_kw": max(row["baseline_kw"], stated.target_kw or 0.0)})
        return self._columns(stated) == tuple(row[name] for name in ("start_s", "end_s", *_ASKED))

    def _begin_s(self, stated: StatedEvent) -> float:
        """Returns the begin of an event that has a time, s since the service's start."""
        assert stated.start is not None, "a service's events have times"
        return (stated.start - self.store.start).total_seconds()

    def _columns(self, stated: StatedEvent) -> tuple[float, ...]:
        """Returns begin, end and what is asked of an event that has a time, as they are stored."""
        event = stated.at(self._begin_s(stated)).event
        return (event.start_s, event.end_s, *(getattr(event, name) for name in _ASKED))

    def _add(
        self, key: str | None, stated: StatedEvent, start_s: float, who: str, connection: Connection, now_s: float
    ) -> int:
        """Stores an event, within a change; returns its number.

        Raises:
            DataError: It overlaps another one of the site, or is too far away.
        """
        event = stated.at(start_s).event
        if start_s - now_s > LATEST_H * HOUR_S:
            raise DataError(f"the event begins at {self._time(start_s)}; give a time within the next year")
        for row in connection.execute(OPEN, (now_s,)):
            if row["site"] == stated.site and row["start_s"] < event.end_s and event.start_s < row["end_s"]:
                raise DataError(
                    f"it overlaps grid event {row['id']} at {stated.site}, from {self._time(row['start_s'])} to "
                    f"{self._time(row['end_s'])}; cancel that one, or give another time"
                )
        columns = {**dict.fromkeys(OF_EVENT), "start_s": event.start_s, "end_s": event.end_s, "known_s": now_s}
        columns |= {name: getattr(event, name) for name in _ASKED}
        number = connection.execute(
            f"INSERT INTO grid_events (key, site, told_by, {', '.join(OF_EVENT)}) "
            f"VALUES (?, ?, ?, {', '.join('?' * len(OF_EVENT))}) RETURNING id",
            (key, stated.site, who, *(columns[name] for name in OF_EVENT)),
        ).fetchone()[0]
        said = {
            "site": stated.site, "number": number, "start": self._time(event.start_s), "end": self._time(event.end_s),
            "target_kw": event.target_kw, "baseline_kw": event.baseline_kw, "by": who,
        }  # fmt: skip
        add_event(connection, now_s, None, TOLD, said)
        return int(number)

    def _cancel(self, row: Row, who: str, connection: Connection, now_s: float) -> None:
        connection.execute(
            "UPDATE grid_events SET cancelled_s = ?, cancelled_by = ?, key = NULL WHERE id = ?", (now_s, who, row["id"])
        )
        add_event(connection, now_s, None, CANCELLED, {"site": row["site"], "number": row["id"], "by": who})

    def _audit(self, connection: Connection, now_s: float, who: str, detail: str) -> None:
        connection.execute(
            "INSERT INTO audit (at, who, action, detail) VALUES (?, ?, ?, ?)",
            (self._time(now_s), who, "grid event", detail),
        )

    def open(self) -> list[Row]:
        """Returns the events that have not ended, in the order in which they were told."""
        return self.store.read(OPEN, self.store.now_s())

    def tell(self, world: World) -> None:
        """Tells the books which events there are."""
        if self.settings is None:
            return
        names, open_ = self._fleet.site_names, {row["id"]: row for row in self.store.read(OPEN, world.now_s)}
        for number in world.grid_events.open_numbers():
            if number not in open_:
                world.call_off(number)
        for number, row in open_.items():
            if row["site"] in names:
                world.announce(number, names.index(row["site"]), *(row[name] for name in OF_EVENT))

    def _utc(self, seconds: float) -> datetime:
        return self.store.start + timedelta(seconds=seconds)

    def _second(self, text: str) -> float:
        """Returns a stated time, s since the service's start."""
        return (time_of(text) - self.store.start).total_seconds()

    def _time(self, seconds: float) -> str:
        return self._utc(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def _words(error: ValidationError) -> str:
    """Returns what is wrong with an event in one line."""
    first = error.errors()[0]
    where = f"{first['loc'][0]}: " if first["loc"] else ""
    return f"{where}{first['msg'].removeprefix('Value error, ')}"

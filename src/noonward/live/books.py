"""Between the books in memory and the store: what each decision changes, and how the books are opened again."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from noonward.arrays import F8
from noonward.live.decided import (
    LAST,
    OF_SEAT,
    Decided,
    finish_parts,
    in_parts,
    keep_parts,
    kept_part,
    packed,
    write_part,
)
from noonward.live.names import Names
from noonward.live.run_times import RunTimeLearner, RunTimeTeller
from noonward.live.running_jobs import is_dark, tell_again
from noonward.live.service_name import ServiceName
from noonward.live.states import STATE, STATES, UnreadableStateError, from_bytes, to_bytes
from noonward.live.store.database import Connection, Row, StoreError, Value
from noonward.live.store.events import as_json
from noonward.live.store.store import Store
from noonward.live.tenants import past_spending, past_use
from noonward.live.turns import give_way
from noonward.live.world.candidates import Seen
from noonward.live.world.seats import OVERDUE, STARTING, SUSPENDED, Arrival, Decision, Note, Seat
from noonward.live.world.world import World
from noonward.units import HOUR_S

OPENED: Final = "opened"
"""What a journal says where books are opened; an ``Opening`` follows, from which a replay can begin."""
ENTRY: Final = 1000
"""Most of what books are told that is in one entry of the journal."""
SHOWN: Final = "serial IS NOT NULL AND state IN ('transit', 'waiting')"
"""Jobs in sight that have not been started."""
PAGE: Final = 250
"""Rows of new jobs that are read at once."""
_NEW: Final = """
SELECT id, attempt, arrival_s, origin, class, gpus_min, gpus_max, work, max_delay_s, move_gb, result_gb, held, pinned,
    vetoed, told, run_by, priority, name, request FROM jobs
WHERE state = 'submitted' AND serial IS NULL AND arrival_s <= ? AND (arrival_s, id) > (?, ?)
ORDER BY arrival_s, id LIMIT ?
"""


def new_arrivals(
    store: Store, names: Names, until_s: float, teller: RunTimeLearner | RunTimeTeller | None = None
) -> list[Arrival]:
    """Returns the jobs that have arrived up to a time and are not in sight yet, in the order of their arrival.

    Args:
        store: Store.
        names: Names of the fleet.
        until_s: The time, s.
        teller: Who says what the scheduler is told of their work; None: it is told what was stated.
    """
    found: list[Arrival] = []
    last = -math.inf, 0
    while rows := store.read(_NEW, until_s, *last, PAGE):
        arrivals = []
        for row in rows:
            give_way()
            arrivals.append(names.arrival(row))
        found += arrivals if teller is None else teller.tell(rows, arrivals)
        last = rows[-1]["arrival_s"], rows[-1]["id"]
    return found


class Opening(msgspec.Struct, array_like=True):
    """Where a service stood when its books were opened."""

    policy: str
    anew: bool
    """Whether the scheduler begins again, instead of from the state that it had."""
    state: bytes
    """State in which the scheduler begins."""
    curves: dict[int, bytes]
    """Its capacity curves, as they are stored, by hour since the service's start."""
    serial: int
    """Number of the next arrival."""
    place: int
    """Place of the next job that joins a queue."""
    asked_s: float | None
    """Time of the last question, s since the service's start; None: there was none."""
    seats: bytes
    """Jobs in sight, a list of ``Seat`` as MessagePack."""
    fleet: str
    """Names of the fleet, as ``Names.as_text``: what the numbers in the journal from here on mean."""
    average: list[float] = []
    """GPUs that tenants have held on average, older use counting less."""
    spent: list[list[float]] = []
    """What ended jobs have used of their tenants' budgets: USD, kWh, kg by tenant."""


class Books:
    """Writes what a question changed, whole or not at all, and opens the books again after a restart.

    Args:
        store: Store.
        world: The books in memory.
        names: Names of the fleet.
        policy: Policy that decides.
        service: Name that the tokens of its jobs carry.
    """

    def __init__(self, store: Store, world: World, names: Names, policy: str, service: ServiceName) -> None:
        self.store, self.world, self.names, self.policy, self.service = store, world, names, policy, service
        self._saved_asks = 0
        self._saved_forecast_h = -1
        self._saved_state: dict[str, bytes] = {}
        self._journal: list[list[Any]] = []
        self._opened_s = 0.0
        self._begun: set[int] = set()
        self._left: list[str] = []
        self._seen: dict[str, Seen] = {}
        """What was seen, by its digest, of what the parts written last hold."""
        self._ready: set[int] = set()
        world.journal = self._journal

    def token(self, job: int, attempt: int) -> str:
        """Returns the token of an attempt of a job."""
        return self.service.token(job, attempt)

    def save(self) -> list[int]:
        """Stores all that has changed since the last call; returns the sites that have jobs to hand over.

        A job that was cancelled meanwhile is not started; its GPUs are given back.

        Raises:
            StoreError: The store cannot be written now; what has changed, or is left of it, is stored by the next call.
        """
        before = self._finish()
        seats, decisions, notes = self.world.drain_changes()
        told = any(what != OPENED for what, *_ in self._journal)
        if not (seats or decisions or notes or told or self.world.asks != self._saved_asks):
            return before
        self._ready.update(before)
        asks, curves = self.world.asks, self.world.curves
        state = self._changed_state() if asks != self._saved_asks else {}
        limits = {} if curves is None else curves.changes(int(self.world.now_s // HOUR_S))
        stored = len(self._journal)
        entries = self._entries(stored)
        opening = list(itertools.islice(entries, 1))
        ready = {seat.site for seat in seats if seat.state == STARTING and seat.freed_s is None}
        ready |= {seat.site for seat in seats if seat.serial in self._begun and seat.freed_s is None}
        self._seen = {}
        *others, last = in_parts(seats, decisions, notes)
        parts = itertools.chain(
            (Decided(self.world.now_s, journal=[entry]) for entry in entries), (self._decided(*part) for part in others)
        )

        def change(connection: Connection, now_s: float) -> list[Seat]:
            self._store_journal(connection, opening)
            missed = []
            if names:
                self.store.keep(connection, {LAST: packed(closing)})
            else:
                missed = closing.store(connection)
            self._store_meta(connection, state)
            self._store_forecast(connection)
            self._store_curves(connection, limits, now_s)
            return missed

        try:
            names = keep_parts(self.store, parts)
            closing = self._decided(*last)
            missed = self.store.do(change)
        except StoreError:
            self.world.keep_changes(seats, decisions, notes)
            raise
        for each in self._seen.values():
            each.stored = True
        self._begun |= {seat.serial for seat in seats if seat.state == STARTING}
        self._begun -= {seat.serial for seat in seats if seat.freed_s is not None or seat.state == OVERDUE}
        self._left = [*names, LAST] if names else []
        self._saved_asks = asks
        self._saved_state |= state
        for first in range(0, stored, ENTRY):
            del self._journal[: min(ENTRY, stored - first)]
            give_way()
        if curves is not None:
            curves.note_stored(limits)
        self._ready |= ready
        self._take_out(missed)
        return self._finish()

    def _finish(self) -> list[int]:
        """Writes the parts that are left of what was decided last; returns the sites that have jobs to hand over."""
        while self._left:
            name = self._left[0]
            self._take_out(write_part(self.store, name, kept_part(self.store, name)))
            del self._left[0]
            give_way()
        ready, self._ready = sorted(self._ready), set()
        return ready

    def _take_out(self, missed: Sequence[Seat]) -> None:
        """Takes jobs that were cancelled before their decision was written out of the books again."""
        for seat in missed:
            if seat.state == STARTING:
                self.world.finish(seat.serial, self.world.now_s)
            else:
                self.world.withdraw(seat.serial)

    def _decided(self, seats: Sequence[Seat], decisions: Sequence[Decision], notes: Sequence[Note]) -> Decided:
        """Returns the rows of what was decided; of what was seen, those that no part before had."""
        by_site = self.world.brief.protocol == "each-slot"
        rows = []
        for seat in seats:
            begun = seat.serial in self._begun
            starts = seat.state == STARTING and not begun and seat.freed_s is None
            token = self.token(seat.about.job, seat.about.attempt) if starts else None
            rows.append((seat, begun, self._site(seat.site), token))
        seen = []
        for one in decisions:
            for each in one.seen.unstored(self._seen):
                self._seen[each.id] = each
                seen.append((each.id, self.world.now_s, each.text, each.base.id if each.base else None))
        return Decided(
            self.world.now_s,
            rows,
            [
                (
                    one.at_s, one.job, one.attempt, one.serial, self.policy, self._site(one.asker) if by_site else None,
                    self._site(one.choice - 1), one.gpus, one.level, one.earliest_s, one.feasible,
                    one.seen.id,
                )
                for one in decisions
            ],
            [(note.at_s, note.job, note.kind, as_json(named(note, self.names).data)) for note in notes],
            seen=seen,
        )  # fmt: skip

    def _site(self, number: int) -> str | None:
        """Returns the name of a site; None for -1."""
        return self.names.sites[number] if number >= 0 else None

    def _changed_state(self) -> dict[str, bytes]:
        """Returns the parts of the scheduler's state that are not stored as they are now."""
        parts = {name: to_bytes({name: value}) for name, value in self.world.scheduler.state().items()}
        return {name: part for name, part in parts.items() if self._saved_state.get(name) != part}

    def take_over(self, connection: Connection, now_s: float) -> None:
        """Stores that this policy decides from now on, within a change; nothing of the last one's state is left."""
        connection.execute(f"DELETE FROM meta WHERE {STATES}")
        connection.execute("DELETE FROM curves WHERE hour >= ?", (int(now_s // HOUR_S),))
        self._store_meta(connection, self._changed_state())
        self._store_journal(connection, list(self._entries(len(self._journal))))

    def _entries(self, stored: int) -> Iterator[bytes]:
        """Yields what the books were told as entries of the journal."""
        for first in range(0, stored, ENTRY):
            give_way()
            yield msgspec.msgpack.encode(self._journal[first : min(first + ENTRY, stored)])

    def _store_journal(self, connection: Connection, entries: Sequence[bytes]) -> None:
        """Stores what the books were told, so that it can be replayed; before the events that came of it."""
        opened_s = after = None
        if entries and self._journal[0][0] == OPENED:
            opened_s = self._opened_s
            after = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0]
        for entry in entries:
            connection.execute(
                "INSERT INTO journal (opened_s, after_event, inputs) VALUES (?, ?, ?)", (opened_s, after, entry)
            )
            opened_s = after = None

    def _store_meta(self, connection: Connection, state: Mapping[str, bytes]) -> None:
        world = self.world
        kept: dict[str, Value] = {"serial": world.serial, "place": world.place, "asked_s": world.now_s}
        kept |= {STATE + name: part for name, part in state.items()}
        self.store.keep(connection, kept | {"policy": self.policy})

    def _store_curves(self, connection: Connection, limits: Mapping[int, F8], now_s: float) -> None:
        """Stores the capacity curves that the scheduler has set."""
        hard = self.world.curves is not None and self.world.curves.hard
        connection.executemany(
            "INSERT INTO curves (hour, value, hard, made_s) VALUES (?, ?, ?, ?) ON CONFLICT (hour) DO UPDATE SET "
            "value = excluded.value, hard = excluded.hard, made_s = excluded.made_s",
            [(hour, to_bytes({"gpus_S": gpus_S}), hard, now_s) for hour, gpus_S in limits.items()],
        )

    def _store_forecast(self, connection: Connection) -> None:
        """Stores the forecast that this hour's questions were asked with."""
        if self.world.hours is None or self.world.hours.issued is None:
            return
        hour, value_KSL = self.world.hours.issued
        if hour != self._saved_forecast_h:
            value = to_bytes({"value_KSL": value_KSL.astype(np.float32)})
            connection.execute(
                "INSERT INTO forecasts (hour, value) VALUES (?, ?) ON CONFLICT (hour) DO UPDATE SET "
                "value = excluded.value",
                (hour, value),
            )
            self._saved_forecast_h = hour

    def open(self, *, without_state: bool = False) -> None:
        """Puts the jobs in sight back, and the scheduler's state and curves if they are of the same policy.

        Args:
            without_state: Whether the scheduler starts without its saved state.

        Raises:
            UnreadableStateError: The scheduler cannot read it; the books are not opened.
        """
        store, world = self.store, self.world
        finish_parts(store)
        curves = {}
        if not without_state and store.value("policy") == self.policy:
            curves = self._open_scheduler()
        self._opened_s = store.now_s()
        asked_s = store.value("asked_s")
        seats = [_seat(row, self.names) for row in store.read(f"SELECT * FROM jobs WHERE {SHOWN}")]
        taken = store.read("SELECT * FROM jobs WHERE start_s IS NOT NULL AND freed_s IS NULL AND serial IS NOT NULL")
        seats += [_seat(row, self.names) for row in taken]
        opening = Opening(
            policy=self.policy,
            anew=not self._saved_state,
            state=to_bytes(world.scheduler.state()),
            curves=curves,
            serial=int(store.value("serial") or 0),
            place=int(store.value("place") or 0),
            asked_s=asked_s,
            seats=msgspec.msgpack.encode(seats),
            fleet=self.names.as_text(),
            average=past_use(store, self.names, float(asked_s or 0.0)),
            spent=past_spending(store, self.names, world, float(asked_s or 0.0)),
        )
        self._journal.append([OPENED, opening])
        restore(world, opening, seats)
        self._begun = {row["serial"] for row in taken}
        for row in taken:
            if row["state"] not in ("starting", "running", "suspended"):
                world.finish(row["serial"], store.now_s())
            elif row["life"]:
                tell_again(store, world, row)

    def _open_scheduler(self) -> dict[int, bytes]:
        """Puts the scheduler's state and the capacity curves from the current hour on back; returns the curves."""
        store, world = self.store, self.world
        unpacked: Callable[[Any], Any] = store.database.unpacked
        rows = store.read(f"SELECT name, value FROM meta WHERE {STATES}")
        self._saved_state = {row["name"].removeprefix(STATE): unpacked(row["value"]) for row in rows}
        if rows:
            try:
                parts = [from_bytes(part) for part in self._saved_state.values()]
                world.scheduler.load_state({name: value for part in parts for name, value in part.items()})
            except Exception as error:  # of a policy's own code, about a state that another build has stored
                raise UnreadableStateError(
                    f"the policy {self.policy} cannot read the state that it stored, since another build stored it or "
                    f"its settings have changed ({type(error).__name__}: {error})"
                ) from error
        if world.curves is None:
            return {}
        hour = int((store.value("asked_s") or 0.0) // HOUR_S)
        rows = store.read("SELECT hour, value FROM curves WHERE hour >= ?", hour)
        curves = {row["hour"]: bytes(row["value"]) for row in rows}
        restore_curves(world, curves)
        return curves


def restore_curves(world: World, curves: Mapping[int, bytes]) -> None:
    """Puts capacity curves back as they are stored, by hour since the service's start."""
    if world.curves is not None:
        world.curves.restore({hour: from_bytes(value)["gpus_S"] for hour, value in curves.items()})


def restore(world: World, opening: Opening, seats: Sequence[Seat]) -> None:
    """Puts a service's jobs in sight back as they stood where its books were opened."""
    world.restore(
        seats,
        serial=opening.serial,
        place=opening.place,
        now_s=opening.asked_s,
        average_T=opening.average,
        spent_TA=opening.spent,
    )


def named(note: Note, names: Names) -> Note:
    """Returns a note whose sites are named; None is where it says -1."""
    sites = {what: note.data[what] for what in ("from", "site") if isinstance(note.data.get(what), int)}
    found = {what: names.sites[int(str(s))] if int(str(s)) >= 0 else None for what, s in sites.items()}
    return note._replace(data=note.data | found)


def _seat(row: Row, names: Names) -> Seat:
    """Returns a stored job in sight."""
    return Seat.of(
        names.arrival(row),
        state=row["state"] if row["start_s"] is None else SUSPENDED if is_dark(row) else STARTING,
        life=json.loads(row["life"]) if row["life"] else None,
        site=names.site(row["site"]),
        **{name: row[name] for name in OF_SEAT},
    )

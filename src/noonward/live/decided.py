"""What was decided, as rows of the store: written in one change, or in parts that other changes get between.

A decision about many jobs takes seconds to write, and nothing else is written meanwhile. So more than ``PART`` rows
are written in parts, and so is a journal of more than one entry. All parts are first kept in the table ``meta``, some
by each change. The change that holds the scheduler's state keeps the last one, ``LAST``: from then on the decision
is made. Then each part has another change, which writes it and deletes it there. After a crash ``finish_parts`` writes
what is left of a decision, before anything reads the jobs, or forgets the parts of one that was not made.

Parts are kept in the form that the program's own objects have. So a program of another form (``FORM``) does not read
them: it says which version has to write them first.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from noonward import __version__
from noonward.errors import FileError
from noonward.live.running_jobs import store_running
from noonward.live.store.database import Change, Connection, Value
from noonward.live.store.schema import LAST_PART, unfinished
from noonward.live.store.store import Store
from noonward.live.turns import give_way
from noonward.live.world.candidates import changed_rows
from noonward.live.world.seats import OVERDUE, Arrival, Seat

PART: Final = 400
"""Rows of decisions or events that one change writes, at most: a few ms."""
ROWS_OF_JOB: Final = 4
"""Such rows that take as long to write as what changes of one job."""
KEPT_BYTES: Final = 2**16
"""Bytes of parts from which on a change keeps them."""
OF_SEAT: Final = (
    "serial", "slot", "place", "gpus", "level", "earliest_s", "reach_s", "start_s", "run_s", "power_w", "moves",
    "resumed_s", "finish_s", "running_place", "cap",
)  # fmt: skip
"""Columns of the table ``jobs`` that a seat has under the same names."""
LAST: Final = LAST_PART
"""Name of the last part in the table ``meta``; it comes after all others."""
_KEPT: Final = f"name >= 'part.' AND name <= '{LAST}'"
T = TypeVar("T")
J = TypeVar("J")
D = TypeVar("D")
E = TypeVar("E")
_of_seat = operator.attrgetter(*OF_SEAT)
_UPDATE: Final = f"""
UPDATE jobs SET state = ?, ended_s = ?, token = ?, site = ?, told = ?, life = ?, {" = ?, ".join(OF_SEAT)} = ?
WHERE id = ? AND attempt = ?
"""
_SHOWN: Final = "SELECT id, attempt FROM jobs WHERE state IN ('submitted', 'transit', 'waiting') AND id IN"
_START: Final = "INSERT INTO outbox (token, job, site, stage, gpus, cap_wanted) VALUES (?, ?, ?, ?, ?, ?)"
_DECISION: Final = """
INSERT INTO decisions (at_s, job, attempt, serial, policy, asker, choice, gpus, level, earliest_s, candidates, seen)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SEEN: Final = """
INSERT INTO seen (id, at_s, sites, base) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET at_s = excluded.at_s
"""
_SEEN_AND_BASES: Final = """
WITH RECURSIVE named (id, base, sites) AS (
    SELECT id, base, sites FROM seen WHERE id IN ({})
    UNION SELECT seen.id, seen.base, seen.sites FROM seen JOIN named ON seen.id = named.base
)
SELECT id, base, sites FROM named
"""


class Decided(msgspec.Struct, array_like=True):
    """What decisions leave in the store; sites are named, since a fleet may change before it is written."""

    now_s: float
    """Time of the books, s."""
    jobs: list[tuple[Seat, bool, str | None, str | None]] = []
    """Jobs that have changed, whether each had been started before, its site, and the token of one that starts."""
    decisions: list[tuple[Any, ...]] = []
    """Rows of the table ``decisions``."""
    events: list[tuple[float, int | None, str, str]] = []
    """Rows of the table ``events``."""
    journal: list[bytes] = []
    """Entries of the journal."""
    seen: list[tuple[str, float, str, str | None]] = []
    """Rows of the table ``seen`` that decisions here are the first to name."""

    def store(self, connection: Connection) -> list[Seat]:
        """Writes the rows, within a change; returns the jobs that are no longer what the books think.

        A job that was cancelled meanwhile is not started.
        """
        missed = self._store_jobs(connection)
        connection.insert("INSERT INTO journal (inputs) VALUES (?)", [(entry,) for entry in self.journal])
        connection.insert(_SEEN, self.seen)
        connection.insert(_DECISION, self.decisions)
        connection.insert("INSERT INTO events (at_s, job, kind, data) VALUES (?, ?, ?, ?)", self.events)
        return missed

    def _store_jobs(self, connection: Connection) -> list[Seat]:
        freed = [
            (seat.freed_s, seat.about.job, seat.about.attempt) for seat, *_ in self.jobs if seat.freed_s is not None
        ]
        connection.update("UPDATE jobs SET freed_s = ? WHERE id = ? AND attempt = ?", freed)
        there = [row for row in self.jobs if row[0].freed_s is None]
        ran = [seat for seat, begun, *_ in there if begun]
        missed = [seat for seat in ran if not store_running(connection, seat, self.now_s)]
        new = [(seat, site, token) for seat, begun, site, token in there if not begun]
        if not new:
            return missed
        marks = ", ".join("?" * len(new))
        found = connection.execute(f"{_SHOWN} ({marks})", [seat.about.job for seat, *_ in new])
        shown = {(row["id"], row["attempt"]) for row in found}
        missed += [seat for seat, *_ in new if _key(seat) not in shown and seat.state != OVERDUE]
        new = [row for row in new if _key(row[0]) in shown]
        connection.update(_UPDATE, [_row(seat, site, token, self.now_s) for seat, site, token in new])
        connection.insert(
            _START, [(token, seat.about.job, site, "queued", seat.gpus, seat.cap) for seat, site, token in new if token]
        )
        return missed


def seen_sites(store: Store, ids: Iterable[str | None]) -> dict[str, list[dict[str, Any]]]:
    """Returns what decisions saw of the sites, a row per site, by digest.

    Args:
        store: Store.
        ids: Digests that decisions name; None of those that name none.

    Raises:
        StoreError: The store cannot be read now.
    """
    wanted = {each for each in ids if each is not None}
    if not wanted:
        return {}
    stored = {row["id"]: row for row in store.read(_SEEN_AND_BASES.format(", ".join("?" * len(wanted))), *wanted)}

    @functools.cache
    def rows(each: str) -> list[dict[str, Any]]:
        row = stored[each]
        return changed_rows([] if row["base"] is None else rows(row["base"]), row["sites"])

    return {each: rows(each) for each in wanted}


FORM: Final = hashlib.sha256(
    repr([Decided.__struct_fields__, Seat.__struct_encode_fields__, Arrival._fields, _SEEN, _DECISION]).encode()
).hexdigest()[:16]
"""Form of the parts that are kept: the names of all that is in them, in their order."""


class _Kept(msgspec.Struct, array_like=True):
    """A part as it is kept."""

    form: str
    release: str
    """Version of the program."""
    part: msgspec.Raw


def packed(part: Decided) -> bytes:
    """Returns a part as it is kept."""
    return msgspec.msgpack.encode((FORM, __version__, part))


def in_parts(jobs: list[J], decisions: list[D], events: list[E]) -> list[tuple[list[J], list[D], list[E]]]:
    """Returns what was decided in parts, at least one; events and decisions come before the jobs that they are of."""
    at_once = max(1, PART // ROWS_OF_JOB)
    if len(jobs) <= at_once and max(len(decisions), len(events)) <= PART:
        return [(jobs, decisions, events)]
    return [
        *(([], [], some) for some in _some(events, PART)),
        *(([], some, []) for some in _some(decisions, PART)),
        *((some, [], []) for some in _some(jobs, at_once)),
    ]


def keep_parts(store: Store, parts: Iterable[Decided]) -> list[str]:
    """Keeps all parts of a decision but the last, some by each change; returns their names in the table ``meta``.

    Raises:
        StoreError: The store cannot be written now; the decision is not made.
    """
    names: list[str] = []
    waiting: dict[str, Value] = {}
    size = 0
    for number, part in enumerate(parts):
        name, content = f"part.{number:06d}", packed(part)
        waiting[name], size = content, size + len(content)
        if size >= KEPT_BYTES:
            store.do(_keeping(store, waiting, first=not names))
            names, waiting, size = [*names, *waiting], {}, 0
        give_way()
    if waiting:
        store.do(_keeping(store, waiting, first=not names))
    return [*names, *waiting]


def _keeping(store: Store, parts: Mapping[str, Value], *, first: bool) -> Change[None]:
    """Returns a change that keeps parts; the first one forgets those of a decision that was not made."""

    def change(connection: Connection, now_s: float) -> None:
        if first:
            _forget(connection, now_s)
        store.keep(connection, parts)

    return change


def _forget(connection: Connection, now_s: float) -> None:
    """Forgets the parts of a decision that was not made, within a change."""
    connection.execute(f"DELETE FROM meta WHERE {_KEPT}")


def kept_part(store: Store, name: str) -> Decided:
    """Returns a part that was kept.

    Raises:
        FileError: A program of another form kept it.
    """
    content: Any = store.value(name)
    by = "an older build of noonward"
    try:
        kept = msgspec.msgpack.decode(content, type=_Kept)
        if kept.form == FORM:
            return msgspec.msgpack.decode(kept.part, type=Decided)
        by = f"another build of noonward, of version {kept.release},"
    except msgspec.ValidationError:
        pass  # it is as builds kept it that did not note their form
    raise FileError(unfinished(store.database.title, by))


def write_part(store: Store, name: str, part: Decided) -> list[Seat]:
    """Writes a part that was kept, once; returns the jobs that are no longer what the books think.

    Raises:
        StoreError: The store cannot be written now; the part is still kept.
    """

    def change(connection: Connection, now_s: float) -> list[Seat]:
        kept = connection.execute("DELETE FROM meta WHERE name = ?", (name,)).rowcount
        return part.store(connection) if kept else []

    return store.do(change)


def finish_parts(store: Store) -> None:
    """Writes what a crash has left of a decision, or forgets the parts of one that was not made.

    Raises:
        StoreError: The store cannot be written now.
        FileError: A program of another form kept them; nothing is changed.
    """
    names = [row["name"] for row in store.read(f"SELECT name FROM meta WHERE {_KEPT} ORDER BY name")]
    if LAST in names:
        for name in names:
            write_part(store, name, kept_part(store, name))
    elif names:
        store.do(_forget)


def _some(rows: list[T], count: int) -> Iterator[list[T]]:
    """Yields rows, so many at a time."""
    return (rows[n : n + count] for n in range(0, len(rows), count))


def _key(seat: Seat) -> tuple[int, int]:
    about = seat.about
    return about.job, about.attempt


def _row(seat: Seat, site: str | None, token: str | None, now_s: float) -> tuple[Any, ...]:
    """Returns the values of ``_UPDATE`` of a job that had not been started before."""
    about = seat.about
    return (
        seat.state,
        now_s if seat.state == OVERDUE else None,
        token,
        site,
        json.dumps(about.told) if about.told else None,
        None if seat.life is None else json.dumps(seat.life),
        *_of_seat(seat),
        about.job,
        about.attempt,
    )

"""Retention: what ended long ago is deleted, together with all that was kept of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

from noonward.live.store.database import Connection
from noonward.live.store.store import Store
from noonward.units import HOUR_S

AT_ONCE: Final = 500
"""Rows that one change deletes, so that submissions do not wait long."""
_BEGIN: Final = "SELECT id, after_event FROM journal WHERE opened_s <= ? ORDER BY id DESC LIMIT 1"
_ENDED: Final = """
SELECT id FROM jobs WHERE ended_s < ? AND id < (SELECT max(id) FROM jobs)
    AND NOT EXISTS (SELECT 1 FROM events WHERE events.job = jobs.id AND events.id > ?)
ORDER BY ended_s LIMIT ?
"""
"""Jobs that a replay from the place in the journal no longer names; the newest job keeps the numbers going."""
_OF_JOBS: Final = ("events", "decisions", "outbox", "watched", "needs")
"""Tables that say more of a job."""


def retire(store: Store, before_s: float) -> int:
    """Deletes what ended before a time: jobs with all that is kept of them, the journal, forecasts, capacity curves.

    The journal is kept from the last time on at which the service's books were opened before that, since a replay can
    begin there alone; jobs that were decided about later are kept too. Without such a time nothing is deleted. Signals
    and the audit log are kept.

    Args:
        store: Store.
        before_s: Time, s since the service's start.

    Returns:
        How many jobs were deleted.

    Raises:
        StoreError: The store cannot be written now; what was deleted stays so.
    """
    begin = store.read(_BEGIN, before_s)
    if not begin:
        return 0
    deleted = 0
    while rows := store.read(_ENDED, before_s, begin[0]["after_event"], AT_ONCE):
        store.do(_deletion([row["id"] for row in rows]))
        deleted += len(rows)
    _delete(store, "journal", "id < ?", begin[0]["id"])
    _delete(store, "events", "job IS NULL AND at_s < ? AND id < (SELECT max(id) FROM events)", before_s)
    _delete_unnamed(store, before_s)
    store.do(_rest(before_s))
    return deleted


def _deletion(jobs: Sequence[int]) -> Callable[[Connection, float], None]:
    """Returns the change that deletes jobs; the newest decision keeps the numbers going."""
    marks = ", ".join("?" * len(jobs))

    def change(connection: Connection, now_s: float) -> None:
        for table in _OF_JOBS:
            newest = " AND id < (SELECT max(id) FROM decisions)" if table == "decisions" else ""
            connection.execute(f"DELETE FROM {table} WHERE job IN ({marks}){newest}", jobs)
        connection.execute(f"DELETE FROM jobs WHERE id IN ({marks})", jobs)

    return change


def _delete(store: Store, table: str, where: str, value: float) -> None:
    """Deletes rows that are numbered, some at a time."""
    query = f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {where} ORDER BY id LIMIT ?)"
    while store.do(lambda connection, now_s: connection.execute(query, (value, AT_ONCE)).rowcount):
        pass


def _delete_unnamed(store: Store, before_s: float) -> None:
    """Deletes what decisions before a time saw that no decision names any more and nothing named rests on."""
    named = {row["seen"] for row in store.read("SELECT DISTINCT seen FROM decisions")}
    base_of = {row["id"]: row["base"] for row in store.read("SELECT id, base FROM seen WHERE base IS NOT NULL")}
    for each in list(named):
        while (each := base_of.get(each)) is not None and each not in named:
            named.add(each)
    old = [row["id"] for row in store.read("SELECT id FROM seen WHERE at_s < ?", before_s) if row["id"] not in named]
    query = "DELETE FROM seen WHERE id = ? AND at_s < ?"  # one that was seen again meanwhile is named again
    for first in range(0, len(old), AT_ONCE):
        some = [(each, before_s) for each in old[first : first + AT_ONCE]]
        store.do(functools.partial(_carry_out, query, some))


def _carry_out(query: str, rows: Sequence[tuple[object, ...]], connection: Connection, now_s: float) -> None:
    """Carries out a statement for every row, within a change."""
    connection.executemany(query, rows)


def _rest(before_s: float) -> Callable[[Connection, float], None]:
    """Returns the change that deletes old forecasts, curves, readings, grid events, and watched jobs left alone."""

    def change(connection: Connection, now_s: float) -> None:
        for table in ("forecasts", "published", "curves"):
            connection.execute(f"DELETE FROM {table} WHERE hour < ?", (int(before_s // HOUR_S),))
        connection.execute("DELETE FROM power WHERE from_s < ?", (before_s,))
        newest = "id < (SELECT max(id) FROM grid_events)"
        connection.execute(f"DELETE FROM grid_events WHERE end_s < ? AND {newest}", (before_s,))
        connection.execute("DELETE FROM watched WHERE job < 0 AND end_s < ?", (before_s,))

    return change

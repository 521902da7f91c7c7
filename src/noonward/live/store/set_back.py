"""A clock that ran ahead and was set right: times that have not come yet are taken back to now."""

from __future__ import annotations

from typing import Final

from noonward.live.states import STATES
from noonward.live.store.database import Connection
from noonward.live.store.events import add_event
from noonward.live.store.store import Store
from noonward.units import HOUR_S

JUMP_S: Final = 120.0
"""How far stamps may be ahead of the clock, real s; within it they stand still until the clock has caught up."""
_TIMES: Final = ("submitted_s", "arrival_s", "earliest_s", "reach_s", "start_s", "began_s", "ended_s", "freed_s")
"""Columns of the table ``jobs`` that are times."""


def set_back(store: Store) -> float:
    """Goes on with the clock where the stamps of a store are far ahead of it, which stops all decisions else.

    A time of a job that has not come yet becomes now, one beyond the last stamp keeps its distance from it. Hours of
    signals, forecasts and capacity curves that have not begun are forgotten, and so is the state of the scheduler,
    which may rest on such times. Events, decisions and the journal stay as they were written.

    Args:
        store: Store. Its books in memory must be opened again afterwards.

    Returns:
        How far the stamps were ahead, s; 0 where they were not, or not far.

    Raises:
        StoreError: The store cannot be written now.
    """
    if store.ahead_s <= JUMP_S * store.clock.speed:
        return 0.0
    before_s = store.stamp_s

    def change(connection: Connection, stamp_s: float) -> float:
        now_s = store.now_s()
        if stamp_s <= now_s:
            return 0.0
        said = {"old": stamp_s, "ahead": stamp_s - now_s, "now": now_s}
        columns = ", ".join(
            f"{name} = CASE WHEN {name} >= :old THEN {name} - :ahead WHEN {name} > :now THEN :now ELSE {name} END"
            for name in _TIMES
        )
        future = " OR ".join(f"{name} > :now" for name in _TIMES)
        connection.execute(f"UPDATE jobs SET {columns} WHERE {future}", said)
        connection.execute("UPDATE sites SET seen_s = ? WHERE seen_s > ?", (now_s, now_s))
        for table in ("signals", "forecasts", "published", "curves"):
            connection.execute(f"DELETE FROM {table} WHERE hour > ?", (int(now_s // HOUR_S),))
        connection.execute("UPDATE grid_events SET known_s = ? WHERE known_s > ?", (now_s, now_s))
        connection.execute("DELETE FROM power WHERE from_s > ?", (now_s,))
        connection.execute(f"DELETE FROM meta WHERE {STATES}")
        store.keep(connection, {"asked_s": now_s})
        add_event(connection, now_s, None, "clock set back", {"by_s": round(stamp_s - now_s, 1)})
        store.stamp_s = now_s  # in the writer's thread: what is written from here on has the new stamp
        return stamp_s - now_s

    try:
        return store.do(change)
    except BaseException:
        store.stamp_s = before_s
        raise

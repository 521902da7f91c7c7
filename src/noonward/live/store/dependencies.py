"""Jobs that come after others: they arrive once all of those are done, and are cancelled if one of them is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonward.errors import DataError
from noonward.live.store.database import Connection
from noonward.live.store.events import add_event
from noonward.live.store.schema import IS_OPEN
from noonward.live.store.store import Store

NEVER_S: Final = 1e15
"""Arrival of a job that comes after others, s since the service's start: it has not arrived yet."""
_FAR_S: Final = 1e14
"""Arrivals beyond this are such, also where the clock was set back and all times with it, s."""
_BROKEN: Final = """
SELECT n.job, n.needed, p.state FROM needs n JOIN jobs p ON p.id = n.needed JOIN jobs j ON j.id = n.job
WHERE p.state IN ('failed', 'cancelled', 'overdue', 'lost') AND j.state = 'submitted' ORDER BY n.job, n.needed
"""
_MET: Final = f"""
DELETE FROM needs WHERE NOT EXISTS (
    SELECT 1 FROM jobs p WHERE p.id = needs.needed AND {IS_OPEN}
) OR EXISTS (SELECT 1 FROM jobs j WHERE j.id = needs.job AND j.state <> 'submitted')
"""
_READY: Final = """
SELECT id FROM jobs WHERE state = 'submitted' AND serial IS NULL AND arrival_s >= ?
    AND NOT EXISTS (SELECT 1 FROM needs WHERE needs.job = jobs.id)
"""
"""Found by the index of new jobs, whose first column is the arrival. A database that does not know yet how few have not
arrived reads all jobs instead, unless it is asked for them in the order of that index."""


def store_needs(connection: Connection, needed: Sequence[tuple[int, tuple[int, ...]]]) -> None:
    """Stores which jobs come after which.

    Args:
        connection: Connection of the change that has stored them.
        needed: Number of each job that comes after others, and the numbers of these.

    Raises:
        DataError: A job is unknown.
    """
    for job, others in needed:
        if connection.execute("SELECT 1 FROM jobs WHERE id = ?", (job,)).fetchone() is None:
            continue  # it was stored before, by the same key
        for other in dict.fromkeys(others):
            if other >= job or connection.execute("SELECT 1 FROM jobs WHERE id = ?", (other,)).fetchone() is None:
                raise DataError(
                    f"a job comes after job {other}, which there is not; submit that one first and give its number"
                )
            connection.execute("INSERT INTO needs (job, needed) VALUES (?, ?)", (job, other))


def let_arrive(store: Store) -> None:
    """Lets the jobs arrive whose others are all done, and cancels those of which another has ended otherwise.

    Delays are counted from the arrival. What is cancelled cancels what comes after it.

    Raises:
        StoreError: The store cannot be written now; the next call does the same.
    """
    if store.read("SELECT 1 FROM needs LIMIT 1") or store.read(_READY + " ORDER BY arrival_s LIMIT 1", _FAR_S):
        store.do(_change)


def _change(connection: Connection, now_s: float) -> None:
    while broken := list(connection.execute(_BROKEN)):
        for row in broken:
            reason = f"it comes after job {row['needed']}, which is {row['state']}"
            ended = connection.execute(
                "UPDATE jobs SET state = 'cancelled', arrival_s = ?, ended_s = ?, reason = ? WHERE id = ? AND "
                "state = 'submitted'",
                (now_s, now_s, reason, row["job"]),
            )
            if ended.rowcount:
                add_event(connection, now_s, row["job"], "cancelled", {"ended_s": now_s, "reason": reason})
    connection.execute(_MET)
    for row in list(connection.execute(_READY, (_FAR_S,))):
        connection.execute("UPDATE jobs SET arrival_s = ? WHERE id = ?", (now_s, row["id"]))
        add_event(connection, now_s, row["id"], "what it comes after is done", {})


def waits_for(store: Store, job: int) -> str:
    """Returns what a job comes after, in words; empty where it has arrived."""
    rows = store.read("SELECT needed FROM needs WHERE job = ? ORDER BY needed", job)
    numbers = [str(row["needed"]) for row in rows]
    shown = ", ".join(numbers[:10]) + (" and others" if len(numbers) > 10 else "")
    return f"the end of job{'s' * (len(numbers) > 1)} {shown}" if numbers else ""

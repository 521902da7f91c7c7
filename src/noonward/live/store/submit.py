"""Submission: checked jobs into the store, each once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from noonward.errors import DataError
from noonward.live.requests import JobRow
from noonward.live.store.database import Change, Connection
from noonward.live.store.dependencies import NEVER_S, store_needs

_INSERT = """
INSERT INTO jobs (id, key, digest, name, request, held, pinned, vetoed, owner, run_by, origin, class, gpus_min,
                  gpus_max, work, max_delay_s, move_gb, result_gb, retries, priority, submitted_s, arrival_s)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING
"""
_EVENT = """
INSERT INTO events (at_s, job, kind, data) SELECT submitted_s, id, 'submitted', ? FROM jobs WHERE id >= ? AND id < ?
"""


class KeyConflictError(DataError):
    """An idempotency key was used before, for another job."""


def submission(
    rows: Sequence[JobRow], owner: str = "", check: Callable[[Connection, int], None] | None = None
) -> Change[tuple[list[int], int]]:
    """Returns a change that stores jobs, all or none.

    Args:
        rows: Checked jobs.
        owner: Name of who submits them: with its token they can be changed; empty: nobody's but administrators'.
        check: Called with the connection and the number of new jobs once they are stored; what it raises undoes it.

    Returns:
        A change that returns the number of each job, and how many are new: a job whose key is known already keeps its
        first number. It raises KeyConflictError where a known key comes with another job, and DataError
        where a job comes after one that there is not.
    """

    def change(connection: Connection, now_s: float) -> tuple[list[int], int]:
        first = (connection.execute("SELECT max(id) FROM jobs").fetchone()[0] or 0) + 1
        stored = connection.executemany(
            _INSERT,
            [
                (
                    first + i, row.key, row.digest, row.name, row.request, row.held, row.pinned, row.vetoed, owner,
                    row.run_by or owner,
                    row.origin, row.class_, row.gpus_min, row.gpus_max, row.work, row.max_delay_s, row.move_gb,
                    row.result_gb, row.retries, row.priority, now_s,
                    NEVER_S if row.after else now_s,
                )
                for i, row in enumerate(rows)
            ],
        )  # fmt: skip
        new = stored.rowcount
        if check is not None:
            check(connection, new)
        store_needs(connection, [(first + i, row.after) for i, row in enumerate(rows) if row.after])
        connection.execute(_EVENT, (json.dumps({"by": owner} if owner else {}), first, first + len(rows)))
        if new == len(rows):
            return list(range(first, first + len(rows))), new
        return [_known(connection, row, first + i) for i, row in enumerate(rows)], new

    return change


def _known(connection: Connection, row: JobRow, number: int) -> int:
    """Returns the number of a job of which some were known by their keys."""
    if row.key is None:
        return number
    found = connection.execute("SELECT id, digest FROM jobs WHERE key = ?", (row.key,)).fetchone()
    if found["digest"] != row.digest:
        raise KeyConflictError(
            f"the idempotency key {row.key!r} was used for another job (number {found['id']}); use a new key"
        )
    return int(found["id"])

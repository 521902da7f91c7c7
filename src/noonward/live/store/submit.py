"""Submission: checked jobs into the store, each once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from noonward.errors import DataError
from noonward.live.requests import JobRow
from noonward.live.store.database import Change, Connection
from noonward.live.store.dependencies import NEVER_S, store_needs

_FILLED: Final = [name.rstrip("_") for name in JobRow._fields[:-2]]
_INSERT: Final = f"""
INSERT INTO jobs (id, owner, run_by, submitted_s, arrival_s, {", ".join(_FILLED)})
VALUES ({", ".join("?" * (5 + len(_FILLED)))}) ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING
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
                (first + i, owner, row.run_by or owner, now_s, NEVER_S if row.after else now_s, *row[:-2])
                for i, row in enumerate(rows)
            ],
        )
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

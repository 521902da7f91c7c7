"""Submission: checked jobs into the store, each once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from noonward.errors import DataError
from noonward.live.requests import JobRow
from noonward.live.store.database import Change, Connection, JointChange
from noonward.live.store.dependencies import NEVER_S, store_needs

Check = Callable[[Connection, int], None]
"""Raises where jobs may not be submitted: is given the connection, and how many of those just stored are new."""
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


def submission(rows: Sequence[JobRow], owner: str = "", check: Check | None = None) -> Change[tuple[list[int], int]]:
    """Returns a change that stores jobs, all or none.

    Args:
        rows: Checked jobs.
        owner: Name of who submits them: with its token they can be changed; empty: nobody's but administrators'.
        check: Called once the jobs are stored; what it raises undoes it. Submissions that are stored together may share
            a check, which is then called once.

    Returns:
        A change that returns the number of each job, and how many are new: a job whose key is known already keeps its
        first number. It raises KeyConflictError where a known key comes with another job, and DataError
        where a job comes after one that there is not.
    """
    return _Submission(rows, owner, check)


@dataclass(eq=False)
class _Submission(JointChange[tuple[list[int], int]]):
    rows: Sequence[JobRow]
    owner: str
    check: Check | None

    @classmethod
    def together(cls, changes: Sequence[Self], connection: Connection, now_s: float) -> list[tuple[list[int], int]]:
        """Stores the jobs of several submissions by one statement, as if each came after the one before."""
        first = (connection.execute("SELECT max(id) FROM jobs").fetchone()[0] or 0) + 1
        numbers = list(itertools.accumulate((len(one.rows) for one in changes), initial=first))
        spans = list(zip(changes, itertools.pairwise(numbers), strict=True))
        values = (value for one, (begin, _) in spans for value in one._values(begin, now_s))
        stored = connection.insert(_INSERT, values)
        ids: Collection[int] = range(first, numbers[-1])
        if stored < len(ids):
            ids = {row[0] for row in connection.execute("SELECT id FROM jobs WHERE id >= ?", (first,))}
        new = [sum(number in ids for number in range(*span)) for _, span in spans]
        for check, count in _by_check(changes, new).items():
            check(connection, count)
        done = [one._finished(connection, begin, n) for (one, (begin, _)), n in zip(spans, new, strict=True)]
        for owner, some in itertools.groupby(spans, lambda each: each[0].owner):
            ends = [end for _, pair in some for end in pair]
            connection.execute(_EVENT, (json.dumps({"by": owner} if owner else {}), ends[0], ends[-1]))
        return done

    def _values(self, first: int, now_s: float) -> Iterator[tuple[Any, ...]]:
        """Yields the values of ``_INSERT`` of jobs that are numbered from a number on."""
        for number, row in enumerate(self.rows, first):
            yield number, self.owner, row.run_by or self.owner, now_s, NEVER_S if row.after else now_s, *row[:-2]

    def _finished(self, connection: Connection, first: int, new: int) -> tuple[list[int], int]:
        """Stores what the jobs come after; returns what the change returns.

        Args:
            connection: Connection of the change.
            first: Number that the first job was given.
            new: How many are new.
        """
        numbers = range(first, first + len(self.rows))
        store_needs(
            connection, [(number, row.after) for number, row in zip(numbers, self.rows, strict=True) if row.after]
        )
        if new == len(numbers):
            return list(numbers), new
        return [_known(connection, row, number) for number, row in zip(numbers, self.rows, strict=True)], new


def _by_check(changes: Sequence[_Submission], new: Sequence[int]) -> dict[Check, int]:
    """Returns how many new jobs each check is called with: one that several submissions share, once."""
    found: dict[Check, int] = {}
    for one, count in zip(changes, new, strict=True):
        if one.check is not None:
            found[one.check] = found.get(one.check, 0) + count
    return found


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

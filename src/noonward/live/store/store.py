"""The store: one thread writes, many changes a commit, on the disk before it answers; every thread reads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from noonward.errors import ScenarioError
from noonward.live.clock import Clock
from noonward.live.store.database import (
    Change,
    Connection,
    Database,
    JointChange,
    LeadershipLostError,
    Row,
    StoreError,
    Value,
)
from noonward.live.store.sqlite import SqliteFile

BEAT_S: Final = 5.0
"""How long a leader with nothing to write waits until it makes an empty transaction, real s. The transaction shows the
others that this instance runs, and shows this instance whether it still leads."""
MOST_CHANGES: Final = 512
"""Changes that share a commit, at most."""
GATHER_S: Final = 0.005
"""How long after the begin of a commit that submissions shared the next one begins, at least, real s. A commit of five
submissions takes little longer than one of two, and leaves the interpreter to those who answer requests."""
MOST_READERS: Final = 8
"""Connections that read, at most; a read waits where all of them are in use."""
T = TypeVar("T")


class _Asked(NamedTuple):
    change: Change[Any]
    answer: Future[Any] | asyncio.Future[Any]


_Result = tuple[Future[Any] | asyncio.Future[Any], Any, BaseException | None]
"""Who waits for a change, what it returned, and what it raised."""


class Store:
    """Jobs and all that became of them.

    A change is stamped with the service's time when it is written. Stamps never fall, and whatever was stamped before
    a change is committed before it: a reader that asks after its own change sees everything stamped up to then.

    Args:
        where: Folder of a SQLite file, or another database.
        clock: Clock of the service.

    Attributes:
        database: The database.
        start: UTC time of the service's second 0: the full hour in which the store was made.
        stamp_s: The last stamp, s since the start; the writer's thread alone sets it.
        lost: Called once, in the writer's thread, when another instance leads; None: nobody is told.

    Raises:
        FileError: The file cannot be opened, is of another version, or is no store.
        StoreError: The database does not answer.
    """

    def __init__(self, where: Path | Database, clock: Clock) -> None:
        self.database: Database = SqliteFile(where) if isinstance(where, Path) else where
        self.clock = clock
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self.stamp_s = 0.0
        self.commits = 0
        self.lost: Callable[[], None] | None = None
        self._writer = self.database.writer()
        try:
            self.start = self._first_start()
        except BaseException:
            self._writer.close()
            raise
        self._idle: list[Connection] = []
        self._places = threading.BoundedSemaphore(MOST_READERS)
        self._closed = False
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file of a store in a SQLite file."""
        assert isinstance(self.database, SqliteFile), "asked of stores in files alone"
        return self.database.path

    def _first_start(self) -> datetime:
        found = self._writer.execute("SELECT value FROM meta WHERE name = 'start'").fetchone()
        if found is not None:
            last = self._writer.execute("SELECT at_s FROM events ORDER BY id DESC LIMIT 1").fetchone()
            self.stamp_s = 0.0 if last is None else float(last[0])
            return datetime.fromisoformat(str(self.database.unpacked(found[0])))
        start = self.clock.now().replace(minute=0, second=0, microsecond=0)
        self.keep(self._writer, {"start": start.isoformat()})
        return start

    def now_s(self) -> float:
        """Returns the service's time, s since its start."""
        return self.clock.since(self.start)

    @property
    def ahead_s(self) -> float:
        """How far the last stamp is ahead of the clock, s: 0 unless the clock was set back."""
        return max(0.0, self.stamp_s - self.now_s())

    def second_of(self, posix_s: float) -> float:
        """Returns the service's time at a time of the machine (s since 1970), s since the service's start."""
        return (self.clock.of_machine(posix_s) - self.start).total_seconds()

    def write(self, change: Change[T]) -> Future[T]:
        """Queues a change.

        Args:
            change: Runs in the writer's thread, in a transaction it shares with others; if it raises, it alone is
                undone. Those of one ``JointChange`` that follow each other are carried out together.

        Returns:
            What the change returned, once it is on the disk. It raises what the change raised, or StoreError.
        """
        answer: Future[T] = Future()
        try:
            self._ask(_Asked(change, answer))
        except StoreError as error:
            answer.set_exception(error)
        return answer

    async def written(self, change: Change[T]) -> T:
        """Carries out a change as ``do`` does, while the event loop goes on; a commit wakes it once for all of them."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._ask(_Asked(change, answer))
        return await answer

    def _ask(self, asked: _Asked) -> None:
        with self._guard:
            if self._closed:
                raise StoreError(f"the store {self.database.title} is closed; nothing was changed")
            self._asked.put(asked)

    def do(self, change: Change[T]) -> T:
        """Carries out a change and returns what it returned, once that is on the disk.

        Raises:
            StoreError: The store cannot be written now.
        """
        return self.write(change).result()

    def read(self, query: str, *values: object) -> list[Row]:
        """Returns the rows of a query over what has been committed.

        Raises:
            StoreError: The store cannot be read now.
        """
        try:
            with self._reader() as connection:
                return list(connection.execute(query, values))
        except self.database.failures as error:
            raise StoreError(f"the store cannot be read now: {error}; try again") from error

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Connection]:
        """Yields a connection that reads, and keeps it for the next read: threads come and go, connections stay."""
        with self._places:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self.database.reader()
            try:
                yield connection
            finally:
                with self._guard:
                    kept = not self._closed and self.database.usable(connection)
                    if kept:
                        self._idle.append(connection)
                if not kept:
                    connection.close()

    def keep(self, connection: Connection, values: Mapping[str, Value]) -> None:
        """Sets values of the table ``meta``, within a change."""
        connection.executemany(
            "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [(name, self.database.packed(value)) for name, value in values.items()],
        )

    def value(self, name: str) -> Any:
        """Returns a value of the table ``meta``, or None."""
        rows = self.read("SELECT value FROM meta WHERE name = ?", name)
        return self.database.unpacked(rows[0][0]) if rows else None

    def require_mode(self, mode: str) -> None:
        """Notes what kind of service a store is of: ``live``, ``shadow`` or ``images``.

        Jobs of a watched cluster, and those that ran only in the books, must not be handed to clusters, and conversely.

        Raises:
            ScenarioError: It is of another kind.
        """
        known = self.value("mode")
        if known is None:
            self.do(lambda connection, now_s: self.keep(connection, {"mode": mode}))
        elif known != mode:
            raise ScenarioError(
                f"the store {self.database.title} is of a service of kind {known}, whose work one of kind {mode} must "
                "not take over; give another folder or database (--folder)"
            )

    def close(self) -> None:
        """Writes what was asked for, then ends all connections; later changes are refused."""
        with self._guard:
            self._closed = True
            self._asked.put(None)
        self._thread.join()
        with self._guard:
            for reader in self._idle:
                reader.close()
            self._idle.clear()
        self._writer.close()

    def _run(self) -> None:
        shared_s = -math.inf
        while True:
            try:
                first = self._asked.get(timeout=BEAT_S if self.database.leads else None)
            except queue.Empty:
                self._commit([])
                continue
            if (early_s := shared_s + GATHER_S - time.monotonic()) > 0 and first is not None:
                time.sleep(early_s)
            batch = [] if first is None else [first]
            with contextlib.suppress(queue.Empty):
                while batch and len(batch) < MOST_CHANGES:
                    more = self._asked.get_nowait()
                    if more is None:
                        first = None
                        break
                    batch.append(more)
            if batch:
                shared_s = time.monotonic() if _are_shared(batch) else -math.inf
                self._commit(batch)
            if first is None:
                return

    def _commit(self, batch: list[_Asked]) -> None:
        """Carries out changes in one transaction and answers each."""
        results: list[_Result] = []
        try:
            self._begin()
            kinds = [list(some) for _, some in itertools.groupby(batch, lambda asked: type(asked.change))]
            for some in kinds:
                results += self._carry_out(some, alone=len(kinds) == 1)
            self._end(self._writer)
            self.commits += 1
        except LeadershipLostError as error:
            results = [(asked.answer, None, error) for asked in batch]
            if self.lost is not None:
                self.lost()
        except (self.database.errors, StoreError) as error:
            with contextlib.suppress(self.database.errors):
                self._writer.execute("ROLLBACK")
            reason = StoreError(
                f"the store {self.database.title} cannot be written: {error}; nothing was changed; "
                f"{self.database.advice}"
            )
            results = [(asked.answer, None, reason) for asked in batch]
        _answer(results)

    def _begin(self) -> None:
        """Begins a transaction, with a stamp."""
        self._writer = self.database.begin(self._writer)
        self.stamp_s = max(self.stamp_s, self.now_s())

    def _end(self, connection: Connection) -> None:
        """Commits.

        Raises:
            LeadershipLostError: The connection broke, so that nobody knows whether the changes are stored: what is in
                memory may be behind the store.
        """
        try:
            connection.execute("COMMIT")
        except self.database.errors as error:
            if self.database.usable(connection):
                raise
            raise LeadershipLostError(
                f"the connection to {self.database.title} broke in a commit: {error}; start this instance again, so "
                "that it reads what is stored"
            ) from error

    def _carry_out(self, batch: list[_Asked], *, alone: bool) -> list[_Result]:
        """Carries out changes of a kind, together where it can; undoes each that raises, and no other.

        A database that cannot be written ends the transaction.

        Args:
            batch: Changes, and who waits for each.
            alone: Whether they are all of the transaction.
        """
        kind, alone_each = type(batch[0].change), alone and len(batch) == 1
        if len(batch) > 1 and issubclass(kind, JointChange):
            changes: list[Any] = [one.change for one in batch]
            values, failed = self._tried(functools.partial(kind.together, changes), alone)
            if failed is None:
                return [(one.answer, value, None) for one, value in zip(batch, values, strict=True)]
        return [(one.answer, *self._tried(one.change, alone_each)) for one in batch]

    def _tried(self, step: Change[Any], alone: bool) -> tuple[Any, BaseException | None]:
        """Takes a step of a transaction, or the only one; returns what it returned, or what it raised once undone."""
        if not alone:
            self._writer.execute("SAVEPOINT one")
        try:
            value = step(self._writer, self.stamp_s)
        except self.database.failures:
            raise
        except Exception as error:
            if alone:
                self._writer.execute("ROLLBACK")
                self._begin()
            else:
                self._writer.execute("ROLLBACK TO one")
                self._writer.execute("RELEASE one")
            return None, error
        if not alone:
            self._writer.execute("RELEASE one")
        return value, None


def _are_shared(batch: Sequence[_Asked]) -> bool:
    """Returns whether changes are asked for by several at once, so that more are to come."""
    return sum(isinstance(asked.change, JointChange) for asked in batch) > 1


def _answer(results: Iterable[_Result]) -> None:
    """Tells those who wait; those in an event loop by waking it once."""
    in_loop: dict[asyncio.AbstractEventLoop, list[_Result]] = {}
    for result in results:
        answer = result[0]
        if isinstance(answer, asyncio.Future):
            in_loop.setdefault(answer.get_loop(), []).append(result)
        elif answer.set_running_or_notify_cancel():
            _settle(result)
    for loop, some in in_loop.items():
        with contextlib.suppress(RuntimeError):  # a loop that has ended
            loop.call_soon_threadsafe(_settle_all, some)


def _settle_all(results: Iterable[_Result]) -> None:
    for result in results:
        if not result[0].done():
            _settle(result)


def _settle(result: _Result) -> None:
    answer, value, failed = result
    if failed is None:
        answer.set_result(value)
    else:
        answer.set_exception(failed)

"""The store: a SQLite file in WAL mode; one thread writes, many changes a commit, on the disk before it answers."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from noonward.errors import FileError, NoonwardError
from noonward.live.clock import Clock
from noonward.live.store.schema import migrate

NAME: Final = "noonward.sqlite"
"""Name of the store's file in its folder."""
MOST_CHANGES: Final = 512
"""Changes that share a commit, at most."""
LOCKED_S: Final = 10.0
"""How long a writer waits for another program that holds the file, s."""
T = TypeVar("T")
Change = Callable[[sqlite3.Connection, float], T]
"""A change: is given the connection and the stamp, s since the service's start; runs whole or not at all."""


class StoreError(NoonwardError):
    """The store cannot be written now: the disk is full, or another program holds the file. Nothing was changed."""


@dataclass(frozen=True)
class _Asked:
    change: Change[Any]
    answer: Future[Any]


class Store:
    """Jobs and all that became of them.

    A change is stamped with the service's time when it is written. Stamps never fall, and whatever was stamped before
    a change is committed before it: a reader that asks after its own change sees everything stamped up to then.

    Args:
        folder: Folder of the file; made if it is missing.
        clock: Clock of the service.

    Attributes:
        path: The file.
        start: UTC time of the service's second 0: the full hour in which the store was made.

    Raises:
        FileError: The file cannot be opened, is newer than this program, or is no store.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self.clock = clock
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._stamp_s = 0.0
        self.commits = 0
        with _explained(self.path):
            self._writer = connect(self.path)
            migrate(self._writer)
            self.start = self._first_start()
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def _first_start(self) -> datetime:
        found = self._writer.execute("SELECT value FROM meta WHERE name = 'start'").fetchone()
        if found is not None:
            last = self._writer.execute("SELECT max(at_s) FROM events").fetchone()[0]
            self._stamp_s = float(last or 0.0)
            return datetime.fromisoformat(found[0])
        start = self.clock.now().replace(minute=0, second=0, microsecond=0)
        self._writer.execute("INSERT INTO meta VALUES ('start', ?)", (start.isoformat(),))
        return start

    def now_s(self) -> float:
        """Returns the service's time, s since its start."""
        return self.clock.since(self.start)

    def second_of(self, posix_s: float) -> float:
        """Returns the service's time at a time of the machine (s since 1970), s since the service's start."""
        return (self.clock.of_machine(posix_s) - self.start).total_seconds()

    def write(self, change: Change[T]) -> Future[T]:
        """Queues a change.

        Args:
            change: Runs in the writer's thread, in a transaction it shares with others; if it raises, it alone is
                undone.

        Returns:
            What the change returned, once it is on the disk. It raises what the change raised, or StoreError.
        """
        answer: Future[T] = Future()
        self._asked.put(_Asked(change, answer))
        return answer

    def do(self, change: Change[T]) -> T:
        """Carries out a change and returns what it returned, once that is on the disk.

        Raises:
            StoreError: The store cannot be written now.
        """
        return self.write(change).result()

    def read(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Returns the rows of a query over what has been committed."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self.path)
            connection.execute("PRAGMA query_only = 1")
            with self._guard:
                self._readers.append(connection)
        return list(connection.execute(query, values))

    def value(self, name: str) -> Any:
        """Returns a value of the table ``meta``, or None."""
        rows = self.read("SELECT value FROM meta WHERE name = ?", name)
        return rows[0][0] if rows else None

    def close(self) -> None:
        """Writes what was asked for, then closes the file."""
        self._asked.put(None)
        self._thread.join()
        with self._guard:
            for reader in self._readers:
                reader.close()
        self._writer.close()

    def _run(self) -> None:
        while True:
            first = self._asked.get()
            batch = [] if first is None else [first]
            with contextlib.suppress(queue.Empty):
                while batch and len(batch) < MOST_CHANGES:
                    more = self._asked.get_nowait()
                    if more is None:
                        first = None
                        break
                    batch.append(more)
            if batch:
                self._commit(batch)
            if first is None:
                return

    def _commit(self, batch: list[_Asked]) -> None:
        """Carries out changes in one transaction and answers each."""
        connection = self._writer
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._stamp_s = max(self._stamp_s, self.now_s())
            for asked in batch:
                results.append(self._carry_out(connection, asked))
            connection.execute("COMMIT")
            self.commits += 1
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            reason = StoreError(
                f"the store {self.path} cannot be written: {error}; nothing was changed. Free disk space, or end the "
                "program that holds the file, and try again"
            )
            results = [(asked.answer, None, reason) for asked in batch]
        for answer, value, failed in results:
            if not answer.set_running_or_notify_cancel():
                continue
            if failed is None:
                answer.set_result(value)
            else:
                answer.set_exception(failed)

    def _carry_out(
        self, connection: sqlite3.Connection, asked: _Asked
    ) -> tuple[Future[Any], Any, BaseException | None]:
        """Carries out one change; undoes it if it raises. A database that cannot be written ends the transaction."""
        connection.execute("SAVEPOINT one")
        try:
            value = asked.change(connection, self._stamp_s)
        except sqlite3.OperationalError:
            raise
        except Exception as error:
            connection.execute("ROLLBACK TO one")
            connection.execute("RELEASE one")
            return asked.answer, None, error
        connection.execute("RELEASE one")
        return asked.answer, value, None


def connect(path: Path) -> sqlite3.Connection:
    """Returns a connection to a store's file: WAL, synchronous=FULL, transactions by hand."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=LOCKED_S, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -65536")
    return connection


def backup(folder: Path, to: Path) -> None:
    """Copies a store to a file while it may be in use; the copy appears whole or not at all.

    Raises:
        FileError: There is no store in the folder, or the copy cannot be written.
    """
    path = require_store(folder)
    part = to.with_name(f".{to.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)
    with _explained(to):
        try:
            with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(part)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            part.replace(to)
        finally:
            part.unlink(missing_ok=True)


def restore(copy: Path, folder: Path) -> None:
    """Puts a backup in the place of a store that no service uses.

    Raises:
        FileError: The backup is damaged or no store, or the folder holds a store already.
    """
    if not copy.is_file():
        raise FileError(f"there is no backup {copy}; name a file that 'noonward live backup' wrote")
    target = folder / NAME
    if target.exists():
        raise FileError(f"{target} exists already; restore into another folder, or move that file away first")
    with _explained(copy), contextlib.closing(sqlite3.connect(copy)) as source:
        state = source.execute("PRAGMA integrity_check").fetchone()[0]
        tables = {row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if state != "ok" or not {"jobs", "events", "meta"} <= tables:
        raise FileError(f"{copy} is damaged or no backup of a store ({state}); use another backup")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{NAME}.part"
    part.unlink(missing_ok=True)
    with (
        _explained(target),
        contextlib.closing(sqlite3.connect(copy)) as source,
        contextlib.closing(sqlite3.connect(part)) as new,
    ):
        source.backup(new)
    part.replace(target)


def vacuum(folder: Path) -> tuple[int, int]:
    """Returns the size of a store's file before and after giving unused room back to the disk, bytes.

    Raises:
        FileError: There is no store, or it is in use.
    """
    path = require_store(folder)
    before = path.stat().st_size
    with _explained(path), contextlib.closing(connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return before, path.stat().st_size


def last_time(folder: Path) -> datetime | None:
    """Returns the UTC time of the last event in a folder's store, or None."""
    with contextlib.closing(connect(require_store(folder))) as connection:
        start = connection.execute("SELECT value FROM meta WHERE name = 'start'").fetchone()
        last = connection.execute("SELECT max(at_s) FROM events").fetchone()[0]
    return None if start is None or last is None else datetime.fromisoformat(start[0]) + timedelta(seconds=last)


def require_store(folder: Path) -> Path:
    """Returns the path of a folder's store.

    Raises:
        FileError: There is none.
    """
    path = folder / NAME
    if not path.is_file():
        raise FileError(f"{folder} holds no store ({NAME}); name the folder that 'noonward serve' works in")
    return path


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns what SQLite says of a file into a FileError."""
    try:
        yield
    except sqlite3.Error as error:
        raise FileError(
            f"{path} cannot be used as a store: {error}; name another folder or restore a backup"
        ) from error

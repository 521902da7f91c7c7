"""A store in a SQLite file: WAL mode, every commit on the disk; how it is copied, restored and made smaller."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from noonward.errors import FileError
from noonward.live.store.database import Connection, Value
from noonward.live.store.many_rows import insertion, renewal
from noonward.live.store.schema import VERSION, make_tables, require_written, version_of

NAME: Final = "noonward.sqlite"
"""Name of the store's file in its folder."""
WRITER_KIB, READER_KIB = 65_536, 4_096
"""Memory for pages of the file, KiB: of the writer, and of each connection that reads."""
OWNER_ALONE: Final = 0o600
"""Mode of the file and of its backups: they hold the commands of jobs."""
SYNCHRONOUS = "FULL"
"""When SQLite waits for the disk: at every commit, so that what was acknowledged outlives a power cut."""
ROWS_AT_ONCE: Final = 64
"""Rows that one statement inserts or updates, at most."""
STATEMENTS: Final = 512
"""Statements that a connection keeps, as SQLite has read them: one for each number of rows."""
LOCKED_S: Final = 10.0
"""How long a writer waits for another program that holds the file, s."""
C = TypeVar("C", bound=sqlite3.Connection)


class SqliteFile:
    """The SQLite file in a folder.

    Args:
        folder: Folder of the file; made if it is missing.
    """

    leads = False
    errors = sqlite3.Error
    failures = sqlite3.OperationalError
    advice = "free disk space, or end the program that holds the file, and try again"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self.title = str(self.path)

    def writer(self) -> Connection:
        """Returns a connection that writes. A file of an older version is copied, then brought up to date.

        Raises:
            FileError: The file cannot be opened, is of another version, or is no store.
        """
        with explained(self.path), closed_on_error(connect(self.path)) as connection:
            self.path.chmod(OWNER_ALONE)
            version = version_of(connection, self.title)
            require_written(cast(Connection, connection), version, self.title)
            if 0 < version < VERSION:
                backup(self.path.parent, self.path.with_name(f"{NAME}.v{version}"))
            make_tables(connection, self.title)
        return cast(Connection, connection)

    def reader(self) -> Connection:
        """Returns a connection that reads."""
        connection = connect(self.path, READER_KIB)
        connection.execute("PRAGMA query_only = 1")
        return cast(Connection, connection)

    def usable(self, connection: Connection) -> bool:
        """Returns True: a file does not go away."""
        return True

    def begin(self, writer: Connection) -> Connection:
        """Begins a transaction; what an earlier one left open is undone."""
        if cast(sqlite3.Connection, writer).in_transaction:
            writer.execute("ROLLBACK")
        writer.execute("BEGIN IMMEDIATE")
        return writer

    def packed(self, value: Value) -> Any:
        """Returns a value as it is."""
        return value

    def unpacked(self, held: Any) -> Value:
        """Returns a value as it is held."""
        value: Value = held
        return value


class _Connection(sqlite3.Connection):
    """A connection that inserts and updates many rows by few calls.

    Each call of SQLite, for each row, lets other threads compute, and waits until one of them gives the interpreter
    back.
    """

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Carries out ``INSERT ... VALUES (?, ...)`` for every row, some at a time; returns how many rows are new."""
        return self._some_at_once(insertion(sql).of, rows)

    def update(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Carries out ``UPDATE ... SET a = ?, ... WHERE b = ? AND ...`` for every row, some at a time."""
        return self._some_at_once(lambda values: renewal(sql).of(f"({values}) AS told"), rows)

    def _some_at_once(self, sql_of: Callable[[str], str], rows: Iterable[Sequence[Any]]) -> int:
        """Carries out a statement over rows, some at a time; returns how many rows it changed.

        Args:
            sql_of: Returns the statement for rows that are written as ``VALUES (?, ...), ...``.
            rows: The rows.
        """
        every, changed = iter(rows), 0
        while some := list(itertools.islice(every, ROWS_AT_ONCE)):
            one = f"({', '.join('?' * len(some[0]))})"
            values = list(itertools.chain.from_iterable(some))
            changed += self.execute(sql_of(f"VALUES {', '.join([one] * len(some))}"), values).rowcount
        return changed


def connect(path: Path, cache_kib: int = WRITER_KIB) -> _Connection:
    """Returns a connection to a store's file: WAL, synchronous=FULL, transactions by hand."""
    with closed_on_error(
        sqlite3.connect(
            path,
            isolation_level=None,
            timeout=LOCKED_S,
            check_same_thread=False,
            factory=_Connection,
            cached_statements=STATEMENTS,
        )
    ) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    return connection


@contextlib.contextmanager
def closed_on_error(connection: C) -> Iterator[C]:
    """Yields a connection, and closes it if its setting up fails."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def backup(folder: Path, to: Path) -> None:
    """Copies a store to a file while it may be in use; the copy appears whole or not at all.

    Raises:
        FileError: There is no store in the folder, or the copy cannot be written.
    """
    path = require_store(folder)
    part = to.with_name(f".{to.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)
    with explained(to):
        try:
            with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(part)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            part.chmod(OWNER_ALONE)
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
    with explained(copy), contextlib.closing(sqlite3.connect(copy)) as source:
        state = source.execute("PRAGMA integrity_check").fetchone()[0]
        tables = {row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if state != "ok" or not {"jobs", "events", "meta"} <= tables:
        raise FileError(f"{copy} is damaged or no backup of a store ({state}); use another backup")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{NAME}.part"
    part.unlink(missing_ok=True)
    with (
        explained(target),
        contextlib.closing(sqlite3.connect(copy)) as source,
        contextlib.closing(sqlite3.connect(part)) as new,
    ):
        source.backup(new)
    part.chmod(OWNER_ALONE)
    part.replace(target)


def vacuum(folder: Path) -> tuple[int, int]:
    """Returns the size of a store's file before and after giving unused room back to the disk, bytes.

    Raises:
        FileError: There is no store, or it is in use.
    """
    path = require_store(folder)
    before = path.stat().st_size
    with explained(path), contextlib.closing(connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return before, path.stat().st_size


def last_time(folder: Path) -> datetime | None:
    """Returns the UTC time of the last event in a folder's store, or None."""
    with contextlib.closing(connect(require_store(folder))) as connection:
        start = connection.execute("SELECT value FROM meta WHERE name = 'start'").fetchone()
        last = connection.execute("SELECT at_s FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return None if start is None or last is None else datetime.fromisoformat(start[0]) + timedelta(seconds=last[0])


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
def explained(path: Path) -> Iterator[None]:
    """Turns what SQLite says of a file into a FileError."""
    try:
        yield
    except sqlite3.Error as error:
        raise FileError(
            f"{path} cannot be used as a store: {error}; name another folder or restore a backup"
        ) from error

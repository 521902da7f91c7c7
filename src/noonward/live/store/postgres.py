"""A store in PostgreSQL, for more than one instance: one leads and writes, the others stand by.

A leader holds an advisory lock in the session that writes, so that the lock goes with the session. Who takes the lock
raises the epoch in the table ``leader``; every transaction of a leader begins by reading the epoch with a shared lock
on its row. So a former leader, whatever it still believes, cannot write once another one leads: the new one's first
change waits for transactions that have begun, and later ones find another epoch.

SQL is written once, for SQLite, and translated here rather than by SQLAlchemy: a few dozen statements differ in their
placeholders and types alone, and the service then needs no further library in either store.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import msgspec

from noonward.errors import MissingExtraError
from noonward.live.store.database import Connection, Cursor, LeadershipLostError, StoreError, Value
from noonward.live.store.many_rows import insertion, renewal
from noonward.live.store.schema import VERSION, require_version, require_written, statements

LOCK: Final = 0x4E4F4F4E
"""First number of the advisory lock ("NOON"); the second is a hash of the schema's name."""
LOOK_S: Final = 0.5
"""How often an instance that stands by tries to lead, s."""
HUNG_S: Final = 20.0
"""A leader whose session has waited for it for so long has stopped: it writes every ``store.BEAT_S`` at least, s."""
REGAIN_S: Final = 5.0
"""How long a leader that has lost its connection tries to have the lock again, s."""
KEEPALIVE: Final = "-c tcp_keepalives_idle=3 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
"""Settings by which the server ends the session of a leader whose machine is gone, after about nine seconds."""
_END_HUNG: Final = """
SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.classid = ? AND l.objid::bigint & 4294967295 =
    hashtext(current_schema())::bigint & 4294967295 AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (a.state LIKE 'idle%' OR a.wait_event_type = 'Client')
    AND a.state_change < clock_timestamp() - make_interval(secs => ?)
"""
"""Ends the session of a leader that has stopped: it is idle, or in the midst of statements and waits for its client."""
_COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_TYPES: Final = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA"}
_NUMBERED: Final = ("events", "decisions", "audit", "journal", "grid_events")
"""Tables whose rows are numbered by the database."""


class PostgresDatabase:
    """Tables in the first schema of a connection's search path.

    Args:
        url: ``postgresql://USER@HOST/NAME``, as libpq takes it; the password comes from PGPASSFILE or PGPASSWORD.
        leads: Whether it writes as the leader: only while no other instance does.

    Raises:
        MissingExtraError: The extra ``postgres`` is not installed.
    """

    advice = "once PostgreSQL answers, the next attempt succeeds"

    def __init__(self, url: str, *, leads: bool = True) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError(error.name or "psycopg", "postgres") from error
        self._psycopg = psycopg
        self.errors, self.failures = psycopg.Error, psycopg.OperationalError
        self.url, self.leads = url, leads
        self.title = re.sub(r":[^:@/]*@", ":...@", url)
        self._epoch = 0
        self._waited: _Connection | None = None

    def wait_to_lead(self, stop: threading.Event) -> bool:
        """Waits until no other instance leads; ends the session of one that has stopped and cannot give its lock back.

        The session that has the lock becomes the one in which ``writer`` writes.

        Args:
            stop: Ends the waiting.

        Returns:
            Whether it may lead; False: it was told to stop.
        """
        connection = None
        while not stop.is_set():
            try:
                connection = connection or self._connected()
                if self._locked(connection):
                    self._waited = connection
                    return True
                connection.execute(_END_HUNG, (LOCK, HUNG_S))
            except (StoreError, self.failures):  # the database does not answer: as if another one led
                if connection is not None:
                    connection.close()
                connection = None
            stop.wait(LOOK_S)
        if connection is not None:
            connection.close()
        return False

    def writer(self) -> Connection:
        """Returns a connection that writes; a leader's raises the epoch.

        Raises:
            FileError: The tables are of another version.
            StoreError: The database does not answer.
            LeadershipLostError: Another instance leads.
        """
        connection, self._waited = self._waited or self._connected(), None
        try:
            if self.leads and not self._locked(connection):
                raise LeadershipLostError(f"another instance leads over {self.title}")
            self._make_tables(connection)
            connection.execute("SET enable_seqscan = off")  # a plan that was made while a table was small stays
            if self.leads:
                raised = "UPDATE leader SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch"
                self._epoch = int(connection.execute(raised).fetchone()[0])
        except BaseException:
            connection.close()
            raise
        return cast(Connection, connection)

    def reader(self) -> Connection:
        """Returns a connection that reads.

        Raises:
            StoreError: The database does not answer.
        """
        connection = self._connected()
        connection.execute("SET default_transaction_read_only = on")
        return cast(Connection, connection)

    def usable(self, connection: Connection) -> bool:
        """Returns whether a connection is not known to be broken."""
        return not cast(_Connection, connection).broken

    def begin(self, writer: Connection) -> Connection:
        """Begins a transaction; a lost connection is made again, if nobody has led meanwhile.

        Raises:
            LeadershipLostError: Another instance leads, or has led.
            StoreError: The database does not answer.
        """
        connection = cast(_Connection, writer)
        if connection.broken:
            connection = self._regained()
        if not self.leads:
            connection.execute("BEGIN")
            return cast(Connection, connection)
        epoch = connection.begun("BEGIN; SELECT epoch FROM leader WHERE id = 1 FOR SHARE")
        if epoch != self._epoch:
            connection.close()
            raise LeadershipLostError(
                f"another instance has taken the lead over {self.title}; this one wrote nothing and ends"
            )
        return cast(Connection, connection)

    def packed(self, value: Value) -> Any:
        """Returns a value as bytes: the column has one type."""
        return msgspec.msgpack.encode(value)

    def unpacked(self, held: Any) -> Value:
        """Returns a value from bytes."""
        value: Value = msgspec.msgpack.decode(held)
        return value

    def _connected(self) -> _Connection:
        try:
            inner = self._psycopg.connect(
                self.url, autocommit=True, connect_timeout=5, options=KEEPALIVE, row_factory=_rows
            )
        except self._psycopg.Error as error:
            raise StoreError(f"{self.title} does not answer: {error}".strip()) from error
        inner.adapters.register_dumper(bool, _number())
        return _Connection(inner)

    def _locked(self, connection: _Connection) -> bool:
        """Takes the lock of leaders; returns whether it was free, or this session's own."""
        query = "SELECT pg_try_advisory_lock(?, hashtext(current_schema()))"
        return bool(connection.execute(query, (LOCK,)).fetchone()[0])

    def _regained(self) -> _Connection:
        """Returns a new connection of a leader that lost its own: the server may notice the loss after it."""
        connection = self._connected()
        tries, pause = int(REGAIN_S / LOOK_S), threading.Event()
        while self.leads and not self._locked(connection):
            tries -= 1
            if tries < 0:
                connection.close()
                raise LeadershipLostError(f"the connection was lost, and another instance leads over {self.title}")
            pause.wait(LOOK_S)
        return connection

    def _make_tables(self, connection: _Connection) -> None:
        """Makes the tables where there are none, or brings older ones up to date, all or none of them.

        Raises:
            FileError: There are tables of a version that cannot be brought up to date.
        """
        connection.execute("SELECT pg_advisory_lock(?, hashtext(current_schema()))", (LOCK + 1,))
        try:
            connection.execute("CREATE TABLE IF NOT EXISTS leader (id INT PRIMARY KEY, epoch BIGINT, version INT)")
            connection.execute("INSERT INTO leader VALUES (1, 0, 0) ON CONFLICT (id) DO NOTHING")
            version = int(connection.execute("SELECT version FROM leader").fetchone()[0])
            require_version(version, self.title)
            require_written(connection, version, self.title)
            if needed := statements(version):
                connection.execute(f"BEGIN; {translated_tables(needed)}; UPDATE leader SET version = {VERSION}; COMMIT")
        finally:
            connection.execute("SELECT pg_advisory_unlock(?, hashtext(current_schema()))", (LOCK + 1,))


class _Connection:
    """A connection of psycopg that takes the store's statements."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._types: dict[str, Mapping[str, str]] = {}

    @property
    def broken(self) -> bool:
        """Whether the connection was lost."""
        return bool(self._inner.closed)

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Cursor:
        """Carries out a statement."""
        cursor: Cursor = self._inner.execute(translated(sql) if values else sql, values or None)
        return cursor

    def executemany(self, sql: str, rows: Iterable[Any]) -> Cursor:
        """Carries out a statement for every row, in one round trip."""
        every = list(rows)
        if len(every) == 1:  # a pipeline of one takes twice as long
            return self.execute(sql, every[0])
        cursor = self._inner.cursor()
        cursor.executemany(translated(sql), every)
        found: Cursor = cursor
        return found

    def insert(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Carries out ``INSERT ... VALUES (?, ...)`` for all rows at once; returns how many are new."""
        one = insertion(sql)
        return self._at_once(lambda arrays: one.of(f"SELECT * FROM {arrays}"), one.table, one.columns, rows)

    def update(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Carries out ``UPDATE ... SET a = ?, ... WHERE b = ? AND ...`` for all rows at once, each for another row."""
        one = renewal(sql)
        names = ", ".join(f"column{n}" for n in range(1, len(one.columns) + 1))
        return self._at_once(lambda arrays: one.of(f"{arrays} AS told ({names})"), one.table, one.columns, rows)

    def _at_once(
        self, sql_of: Callable[[str], str], table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> int:
        """Carries out a statement over rows that are sent as arrays, one per column; returns how many rows it changed.

        The server reads, plans and answers it once, and text is quicker to make than a message for every row: 60 jobs
        are stored in 3.6 ms instead of 8.7 ms.

        Args:
            sql_of: Returns the statement for the rows as the server is to make them from the arrays.
            table: Table that it changes.
            columns: Column of each value of a row.
            rows: The rows.
        """
        arrays = [_array(values) for values in zip(*rows, strict=True)]
        if not arrays:
            return 0
        types = self._types_of(table)
        places = ", ".join(f"%s::{types[name]}[]" for name in columns)
        return int(self._inner.execute(sql_of(f"unnest({places})"), arrays).rowcount)

    def _types_of(self, table: str) -> Mapping[str, str]:
        """Returns the types of a table's columns."""
        if table not in self._types:
            self._types[table] = dict(self._inner.execute(_COLUMNS, (table,)).fetchall())
        return self._types[table]

    def begun(self, sql: str) -> int:
        """Carries out two statements in one round trip; returns the second one's number."""
        cursor = self._inner.execute(sql)
        cursor.nextset()
        return int(cursor.fetchone()[0])

    def close(self) -> None:
        """Ends the connection."""
        self._inner.close()


class _Row(tuple[Any, ...]):
    """A row whose values are found by name and by place."""

    names: Mapping[str, int]

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(self.names[place] if isinstance(place, str) else place)

    def keys(self) -> Any:
        """Returns the names of the columns."""
        return self.names.keys()


def _rows(cursor: Any) -> Any:
    """Makes rows of a cursor's results."""
    return _kind_of_row(tuple([column.name for column in cursor.description or ()]))


@cache
def _kind_of_row(names: tuple[str, ...]) -> type[_Row]:
    """Returns rows of some columns; they are few, and a class takes longer to make than a row to read."""
    return type("_Row", (_Row,), {"names": {name: place for place, name in enumerate(names)}})


def _array(values: Iterable[Any]) -> str:
    r"""Returns the values of a column as PostgreSQL writes an array.

    Example:
        >>> print(_array([1, None, 0.5, True, 'a "b"', b"\x01"]))
        {1,NULL,0.5,1,"a \"b\"","\\x01"}
    """
    return f"{{{','.join([_element(value) for value in values])}}}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    return str(value + 0)  # columns hold truth values as 0 and 1


@cache
def _number() -> Any:
    """Returns what sends truth values as numbers: columns hold 0 and 1."""
    from psycopg.types.numeric import Int2Dumper

    class Truth(Int2Dumper):
        def dump(self, obj: Any) -> Any:
            return super().dump(int(obj))

    return Truth


@cache
def translated(sql: str) -> str:
    """Returns a statement with the places of values as psycopg takes them.

    Example:
        >>> translated("SELECT a FROM b WHERE c = ? AND d LIKE '10%' AND e = :name")
        "SELECT a FROM b WHERE c = %s AND d LIKE '10%%' AND e = %(name)s"
    """
    return re.sub(r"(?<!:):([a-z_]+)\b", r"%(\1)s", sql.replace("%", "%%").replace("?", "%s"))


def translated_tables(script: str) -> str:
    """Returns the statements that make tables as PostgreSQL takes them.

    Example:
        >>> translated_tables("CREATE TABLE a (id INTEGER PRIMARY KEY, b REAL, c BLOB) WITHOUT ROWID;")
        'CREATE TABLE a (id BIGINT PRIMARY KEY, b DOUBLE PRECISION, c BYTEA) ;'
        >>> translated_tables("CREATE TABLE events (id INTEGER PRIMARY KEY, at_s REAL NOT NULL)")
        'CREATE TABLE events (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, at_s DOUBLE PRECISION NOT NULL)'
    """
    script = script.replace("WITHOUT ROWID", "")
    script = re.sub(r"\b(INTEGER|REAL|BLOB)\b", lambda found: _TYPES[found[1]], script)
    for table in _NUMBERED:
        numbered = r"\1BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
        script = re.sub(rf"(CREATE TABLE {table} \(\s*id )BIGINT PRIMARY KEY", numbered, script)
    return script

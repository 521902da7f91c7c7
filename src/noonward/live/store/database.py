"""What the store asks of a database: connections that speak a common SQL, and transactions that only a leader has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from noonward.errors import NoonwardError

T = TypeVar("T")
Value = str | int | float | bytes
"""What a row of the table ``meta`` holds."""


class StoreError(NoonwardError):
    """The store cannot be read or written now: the disk is full, or the database does not answer."""


class LeadershipLostError(StoreError):
    """Another instance of the service leads now; this one may not write any more."""


class Row(Protocol):
    """A row of a result: values by their names, and by their places."""

    def __getitem__(self, place: Any, /) -> Any: ...

    def keys(self) -> Any:
        """Returns the names of the columns."""


class Cursor(Protocol):
    """What a statement brought."""

    @property
    def rowcount(self) -> int:
        """Rows that the statement changed."""

    def fetchone(self) -> Any:
        """Returns the next row, or None."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection whose statements take ``?`` and ``:name`` as places of values; transactions are made by hand."""

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ..., /) -> Cursor:
        """Carries out a statement."""

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Cursor:
        """Carries out a statement for every row."""

    def insert(self, sql: str, rows: Iterable[Any], /) -> int:
        """Carries out ``INSERT ... VALUES (?, ...)`` for every row, by few calls; returns how many rows are new."""

    def update(self, sql: str, rows: Iterable[Any], /) -> int:
        """Carries out ``UPDATE ... SET a = ?, ... WHERE b = ? AND ...`` for every row, by few calls.

        Each is for another row of the table. Returns how many rows have changed.
        """

    def close(self) -> None:
        """Ends the connection."""


Change = Callable[[Connection, float], T]
"""A change: is given the connection and the stamp, s since the service's start; runs whole or not at all."""


class JointChange(ABC, Generic[T]):
    """A change (``Change``) of a kind of which many are asked for at once: several take fewer statements than each."""

    def __call__(self, connection: Connection, now_s: float) -> T:
        """Carries out this change."""
        return self.together([self], connection, now_s)[0]

    @classmethod
    @abstractmethod
    def together(cls, changes: Sequence[Self], connection: Connection, now_s: float) -> list[T]:
        """Carries out changes; the store undoes them and carries out each for itself if it raises.

        Args:
            changes: Changes of this kind, in the order in which they were asked for.
            connection: Connection that writes.
            now_s: Their stamp, s since the service's start.

        Returns:
            What each of them returns.
        """


class Database(Protocol):
    """A kind of database. One connection writes; others read."""

    title: str
    """What messages call it."""
    leads: bool
    """Whether it is written by one instance of several, the leader."""

    @property
    def errors(self) -> type[Exception]:
        """Its errors."""

    @property
    def failures(self) -> type[Exception]:
        """Those which say that it cannot be read or written now, whatever the statement."""

    @property
    def advice(self) -> str:
        """What to do about them."""

    def writer(self) -> Connection:
        """Returns the connection that writes; the tables are there."""

    def reader(self) -> Connection:
        """Returns a connection that reads."""

    def usable(self, connection: Connection) -> bool:
        """Returns whether a connection is still there."""

    def begin(self, writer: Connection) -> Connection:
        """Begins a transaction.

        Args:
            writer: The connection that writes.

        Returns:
            The connection that writes from now on: a new one where the old one was lost.

        Raises:
            LeadershipLostError: Another instance leads now.
        """

    def packed(self, value: Value) -> Any:
        """Returns a value as the table ``meta`` holds it."""

    def unpacked(self, held: Any) -> Value:
        """Returns a value from what the table ``meta`` holds."""

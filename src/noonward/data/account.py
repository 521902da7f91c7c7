"""The account of an import: what a file held, what became of it, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from noonward.errors import DataError, nearest

What = Literal["read", "changed", "filled", "dropped"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that was done to a file's rows.

    Attributes:
        what: ``read``: how they were understood; ``changed``, ``filled`` or ``dropped``: what was done to them.
        count: Rows (or hours, where ``why`` says so) that it was done to.
        why: What was done and why, as a phrase.
        line: Line of the first such row, counted from 1; None where there is none.
        rate: Whether values were converted at a rate of exchange.
    """

    what: What
    count: int
    why: str
    line: int | None = None
    rate: bool = False

    def __str__(self) -> str:
        where = "" if self.line is None else f" (first in line {self.line})"
        return f"{self.what} {self.count:,}: {self.why}{where}"


@dataclass(kw_only=True)
class Account:
    """What was done to a file.

    Attributes:
        file: Name of the file.
        format: Name of the format it was read as.
        rows_in: Rows of data in the file.
        rows_out: Rows that were handed on: hours of a zone, or jobs.
        entries: What was done, in order.
        columns_used: Keys of the columns that the user named and the file's reader took; not part of what is printed.
    """

    file: str
    format: str
    rows_in: int = 0
    rows_out: int = 0
    entries: list[Entry] = field(default_factory=list)
    columns_used: set[str] = field(default_factory=set)

    def add(self, what: What, count: int, why: str, line: int | None = None, *, rate: bool = False) -> None:
        """Adds an entry, unless nothing was done."""
        if count:
            self.entries.append(Entry(what=what, count=int(count), why=why, line=line, rate=rate))

    def count(self, what: What) -> int:
        """Returns how many rows something was done to."""
        return sum(entry.count for entry in self.entries if entry.what == what)

    def lines(self) -> list[str]:
        """Returns the account as text, a line an entry."""
        head = f"{self.file} ({self.format}): {self.rows_in:,} rows in, {self.rows_out:,} rows out"
        return [head, *(f"  {entry}" for entry in self.entries)]

    def to_json(self) -> dict[str, Any]:
        """Returns the account as JSON content."""
        return {
            "file": self.file,
            "format": self.format,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "entries": [vars(entry) for entry in self.entries],
        }


def check_columns_told(columns: Mapping[str, str], keys: Sequence[str], file: str, title: str) -> None:
    """Raises DataError if a column was named by a key that a file's format does not take.

    Args:
        columns: Names of columns by key, as the user told them.
        keys: Keys that the format takes; none: it has fixed names.
        file: Name of the file.
        title: What the format is, in words.
    """
    for key, name in columns.items():
        if not keys:
            raise DataError(
                f"--column {key}={name}: {file} was read as {title}, whose columns have fixed names; leave it out, or "
                "have the file read as another table by --format jobs or --format plain"
            )
        if key not in keys:
            raise DataError(f"--column {key}={name}: {title} takes no key {key!r}; {nearest(key, keys, list_all=True)}")

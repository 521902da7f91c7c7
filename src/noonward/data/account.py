"""The account of an import: what a file held, what became of it, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from noonward.data.text_table import TextFile
from noonward.errors import DataError, RowError, nearest

T = TypeVar("T")
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
        places: Names of the places that a log's jobs come from; not part of what is printed.
    """

    file: str
    format: str
    rows_in: int = 0
    rows_out: int = 0
    entries: list[Entry] = field(default_factory=list)
    columns_used: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)

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


def read_with_account(
    file: TextFile, title: str, skip_bad: int, read: Callable[[TextFile, Account], T]
) -> tuple[T, Account]:
    """Returns what a reader makes of a file, and the account of it; bad rows are left out, up to a number.

    A line that repeats the header, as in dumps that were put together, is left out and counted.

    Args:
        file: The file.
        title: Its format, in words.
        skip_bad: Most rows that may be left out because they are wrong.
        read: Reads the file, adding to the account what it does.

    Raises:
        DataError: The file cannot be read, or has more bad rows.
    """
    headers = file.repeated_headers()
    file = file.without(headers) if headers else file
    bad: list[Entry] = []
    while True:
        account = Account(file=file.name, format=title)
        account.add("dropped", len(headers), "the header once more", headers[0] if headers else None)
        account.entries += bad
        try:
            content = read(file, account)
        except RowError as error:
            lines = sorted({line for line in error.lines if line})
            left_out = sum(entry.count for entry in bad) + len(lines)
            if not lines or not skip_bad:
                raise
            if left_out > skip_bad:
                raise DataError(
                    f"{error} ({left_out:,} rows are bad so far; --skip-bad {skip_bad} leaves out at most {skip_bad})"
                ) from error
            file = file.without(lines)
            bad.append(
                Entry(what="dropped", count=len(lines), why=f"bad rows: {error.why.split('; ')[0]}", line=lines[0])
            )
            continue
        account.rows_in += len(headers) + sum(entry.count for entry in bad)
        return content, account

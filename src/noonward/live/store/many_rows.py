"""Statements over many rows: what is written for one row, as it is carried out for all of them at once."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple


class Insertion(NamedTuple):
    """An ``INSERT ... VALUES (?, ...)``."""

    table: str
    columns: Sequence[str]
    """Column of each value of a row."""
    rest: str
    """What is after the values."""

    def of(self, rows: str) -> str:
        """Returns the statement for rows that are written as a query."""
        return f"INSERT INTO {self.table} ({', '.join(self.columns)}) {rows} {self.rest}"


class Renewal(NamedTuple):
    """An ``UPDATE ... SET a = ?, ... WHERE b = ? AND ...``."""

    table: str
    columns: Sequence[str]
    """Column of each value of a row."""
    begin: str
    """What is before the rows that tell it."""
    end: str
    """What is after them."""

    def of(self, rows: str) -> str:
        """Returns the statement for rows that are written as a table ``told``, whose columns are called column1, ..."""
        return f"{self.begin} FROM {rows} {self.end}"


@functools.cache
def insertion(sql: str) -> Insertion:
    """Takes a statement that inserts a row apart.

    Example:
        >>> insertion("INSERT INTO a (b, c) VALUES (?, ?) ON CONFLICT DO NOTHING").of("SELECT 1, 2")
        'INSERT INTO a (b, c) SELECT 1, 2 ON CONFLICT DO NOTHING'
    """
    found = re.fullmatch(r"\s*INSERT INTO (\w+) \(([^()]*)\)\s+VALUES \([?, ]*\)\s*(.*?)\s*", sql, re.DOTALL)
    assert found is not None, sql
    return Insertion(found[1], re.findall(r"\w+", found[2]), found[3])


@functools.cache
def renewal(sql: str) -> Renewal:
    """Takes a statement that updates a row apart.

    Example:
        >>> renewal("UPDATE a SET b = ?, c = ? WHERE d = ?").of("x AS told")
        'UPDATE a SET b = told.column1, c = told.column2 FROM x AS told WHERE a.d = told.column3'
    """
    found = re.fullmatch(r"\s*UPDATE (\w+) SET (.*?)\s+WHERE (.*?)\s*", sql, re.DOTALL)
    assert found is not None, sql
    table, columns = found[1], re.findall(r"(\w+) = \?", sql)
    begin, end = f"UPDATE {table} SET {found[2]}", "WHERE " + re.sub(r"(?=\b\w+ = \?)", f"{table}.", found[3])
    for n in range(1, len(columns) + 1):
        if "?" in begin:
            begin = begin.replace("?", f"told.column{n}", 1)
        else:
            end = end.replace("?", f"told.column{n}", 1)
    return Renewal(table, columns, begin, end)

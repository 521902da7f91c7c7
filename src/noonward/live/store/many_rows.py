"""Turns a statement for one row into one for many rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple


class ManyRows(NamedTuple):
    """An ``INSERT`` or ``UPDATE`` for one row, split where a query for many rows belongs."""

    table: str
    columns: Sequence[str]
    """Column of each value of a row."""
    before: str
    """Text before the rows."""
    after: str
    """Text after the rows."""

    def of(self, rows: str) -> str:
        """Returns the statement for many rows.

        Args:
            rows: The rows as SQL: a query for an insertion; for an update a table ``told`` with columns column1, ...
        """
        return f"{self.before} {rows} {self.after}"


@functools.cache
def insertion(sql: str) -> ManyRows:
    """Splits an ``INSERT INTO ... VALUES (?, ...)``.

    Example:
        >>> insertion("INSERT INTO a (b, c) VALUES (?, ?) ON CONFLICT DO NOTHING").of("SELECT 1, 2")
        'INSERT INTO a (b, c) SELECT 1, 2 ON CONFLICT DO NOTHING'
    """
    found = re.fullmatch(r"\s*INSERT INTO (\w+) \(([^()]*)\)\s+VALUES \([?, ]*\)\s*(.*?)\s*", sql, re.DOTALL)
    assert found is not None, sql
    table, columns = found[1], re.findall(r"\w+", found[2])
    return ManyRows(table, columns, f"INSERT INTO {table} ({', '.join(columns)})", found[3])


@functools.cache
def renewal(sql: str) -> ManyRows:
    """Splits an ``UPDATE ... SET a = ?, ... WHERE b = ? AND ...``.

    Example:
        >>> renewal("UPDATE a SET b = ?, c = ? WHERE d = ?").of("x AS told")
        'UPDATE a SET b = told.column1, c = told.column2 FROM x AS told WHERE a.d = told.column3'
    """
    found = re.fullmatch(r"\s*UPDATE (\w+) SET (.*?)\s+WHERE (.*?)\s*", sql, re.DOTALL)
    assert found is not None, sql
    table, columns = found[1], re.findall(r"(\w+) = \?", sql)
    before, after = f"UPDATE {table} SET {found[2]} FROM", "WHERE " + re.sub(r"(?=\b\w+ = \?)", f"{table}.", found[3])
    for n in range(1, len(columns) + 1):
        if "?" in before:
            before = before.replace("?", f"told.column{n}", 1)
        else:
            after = after.replace("?", f"told.column{n}", 1)
    return ManyRows(table, columns, before, after)

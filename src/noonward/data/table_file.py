"""CSV and Parquet tables with standard columns: every refused value is named by file, line, column and remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from noonward.arrays import F8, I8
from noonward.data.table import Table
from noonward.errors import DataError, nearest

LARGEST_WHOLE: Final = 1e9
"""Largest whole number accepted; a larger count is a slip."""


_CSV: Final = (".csv",)
_PARQUET: Final = (".parquet", ".pq")
EXTENSIONS: Final = (".csv", ".parquet")
"""Endings of the files that are read and written."""


@dataclass(frozen=True, kw_only=True)
class TableFile(Table):
    """A table in memory, with the name of each standard column in the file.

    Attributes:
        path: The file.
        frame: Its content; of a CSV file everything as text.
        column_of: Name in the file of every standard column, present or not.
        numbers_of_rows: Where each row stands in the file, from 1 for the first row of data; None: rows follow another.
    """

    path: Path
    column_of: Mapping[str, str]
    numbers_of_rows: pl.Series | None = None

    @property
    def name(self) -> str:
        """Name of the file, for messages."""
        return self.path.name

    @property
    def counted(self) -> str:
        """What ``lines`` counts."""
        return "line" if self.path.suffix.lower() in _CSV else "row"

    @property
    def lines(self) -> pl.Series:
        """Line of each row in a CSV file, whose header is line 1; its row, from 1, in another one."""
        rows = self.numbers_of_rows
        rows = pl.int_range(1, len(self) + 1, eager=True) if rows is None else rows.cast(pl.Int64)
        return rows + 1 if self.counted == "line" else rows

    def __len__(self) -> int:
        return self.frame.height

    def has(self, key: str) -> bool:
        """Says whether the file has a standard column."""
        return self.column_of[key] in self.frame.columns

    def require(self, *keys: str) -> None:
        """Raises DataError if one of some standard columns is missing."""
        for key in keys:
            if not self.has(key):
                name = self.column_of[key]
                raise DataError(
                    f"{self.name} has no column {name!r}; add or rename it, or name the file's own by columns: "
                    f"{{{key}: ...}}; {nearest(name, self.frame.columns)}"
                )

    def forbid(self, key: str, bad_J: NDArray[np.bool_], allowed: str) -> None:
        """Raises RowError on the first row that is marked bad.

        Args:
            key: Standard column.
            bad_J: Which rows are refused.
            allowed: What is allowed and what to do, as the end of the sentence.
        """
        self._forbid(key, bad_J, "is not allowed", allowed)

    def _forbid(self, key: str, bad_J: NDArray[np.bool_], why: str, allowed: str) -> None:
        """Raises RowError on the first row that is marked bad, saying why, unless it is empty."""
        name = self.column_of[key]
        if bad_J.any():
            value = self.frame[name][int(bad_J.argmax())]
            empty = value is None or value == ""
            self.refuse(pl.Series(bad_J), name, f"; {allowed}" if empty else f"{why}; {allowed}")

    def numbers(
        self,
        key: str,
        allowed: str,
        *,
        low: float = -np.inf,
        above: bool = False,
        inf: bool = False,
        unknown: bool = False,
    ) -> F8:
        """Returns a column as numbers.

        Args:
            key: Standard column, present in the file.
            allowed: What is allowed and what to do, as the end of the sentence.
            low: Smallest value allowed.
            above: Whether ``low`` itself is refused.
            inf: Whether ``inf`` is allowed.
            unknown: Whether a value may be empty or ``nan``; it is NaN then.

        Raises:
            DataError: A value is empty, not a number or out of range, or the column is of another type.
        """
        series = self.frame[self.column_of[key]]
        empty = series.is_null()
        if series.dtype == pl.String:
            series = series.str.strip_chars()
            empty |= series.str.to_lowercase().is_in(["", "nan"])
        elif not series.dtype.is_numeric() and series.dtype != pl.Null:
            raise DataError(
                f"{self.name}: column {self.column_of[key]!r} holds values of type {series.dtype}, "
                f"not numbers; {allowed}"
            )
        values: F8 = series.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().astype(np.float64)
        nan_J = np.isnan(values)
        if unknown:
            nan_J &= ~empty.to_numpy() & (series.dtype == pl.String)
        self._forbid(key, nan_J, "is not a number", allowed)
        if not inf:
            self._forbid(key, np.isinf(values), "is infinite", allowed)
        if above:
            self._forbid(key, values <= low, f"is not above {low:g}", allowed)
        else:
            self._forbid(key, values < low, "is negative" if low == 0 else f"is below {low:g}", allowed)
        return values

    def flags(self, key: str) -> pl.Series:
        """Returns a column of yes and no; null where it is empty.

        Raises:
            DataError: A value is neither true nor false.
        """
        column = self.frame[self.column_of[key]]
        if column.dtype in (pl.Boolean, pl.Null):
            return column.cast(pl.Boolean)
        text = column.cast(pl.String).str.strip_chars().str.to_lowercase()
        words = {"true": True, "1": True, "false": False, "0": False}
        flag = text.replace_strict(words, default=None, return_dtype=pl.Boolean)
        self.refuse(
            flag.is_null() & (text != ""), self.column_of[key], "is neither true nor false; write true or false"
        )
        return flag

    def integers(self, key: str, allowed: str, *, low: int) -> I8:
        """Returns a column as whole numbers of at least ``low``; the arguments and errors of ``numbers``."""
        values = self.numbers(key, allowed, low=low)
        self.forbid(key, (values != np.floor(values)) | (values > LARGEST_WHOLE), allowed)
        return values.astype(np.int64)

    def names(self, key: str, known: Sequence[str], what: str, *, empty: bool = False) -> I8:
        """Returns the index of each name of a column among the known ones.

        Args:
            key: Standard column, present in the file.
            known: Names in the order of their index.
            what: What the names name, for messages.
            empty: Whether an empty value is allowed; its index is -1.

        Raises:
            DataError: A value is empty or unknown; the message gives the nearest known name.
        """
        series = self.frame[self.column_of[key]].cast(pl.String).str.strip_chars().fill_null("")
        index_of = {name: index for index, name in enumerate(known)}
        if empty:
            index_of[""] = -1
        indices = [index_of.get(name) for name in series]
        if None in indices:
            row = indices.index(None)
            hint = nearest(series[row], known)
            bad = np.arange(len(indices)) == row
            self.forbid(key, bad, f"give the name of {what} of the fleet: {hint}")
        return np.array(indices, dtype=np.int64)


def open_table(
    path: Path, standard: Mapping[str, str], columns: Mapping[str, str], required: Sequence[str]
) -> TableFile:
    """Reads a table.

    Args:
        path: A ``.csv`` file (comma-separated, UTF-8, one header line) or a ``.parquet`` file.
        standard: Name in a standard file of each standard column.
        columns: Names where this file differs, by the same keys. Columns that are not standard are ignored.
        required: Keys of the columns that must be there.

    Raises:
        DataError: The file does not exist, is of another kind, cannot be read or holds no row; a key of
            ``columns`` is unknown, or the column it names or a required one is not in the file; or a column stands
            twice, or one that would be ignored is spelt almost like a standard one that is absent.
    """
    for key in columns:
        if key not in standard:
            raise DataError(f"columns names the unknown key {key!r}; {nearest(key, standard)}")
    frame = collected(scan_table(path), path)
    table = TableFile(path=path, frame=frame, column_of={**standard, **columns})
    table.require(*columns, *required)
    if not len(table):
        raise DataError(f"{path} holds no row of data; give a file with at least one job")
    _refuse_repeats(table)
    _refuse_near_misses(table)
    return table


def _refuse_repeats(table: TableFile) -> None:
    """Raises DataError if a CSV header names a column twice; the reader marks the second as such."""
    for name in table.frame.columns:
        original = re.sub(r"_duplicated_\d+$", "", name)
        if original != name and original in table.frame.columns:
            raise DataError(f"{table.path} has the column {original!r} twice; remove or rename one")


def _refuse_near_misses(table: TableFile) -> None:
    absent = [name for key, name in table.column_of.items() if not table.has(key)]
    for name in set(table.frame.columns) - set(table.column_of.values()):
        close = difflib.get_close_matches(name, absent, n=1, cutoff=0.8)
        if close:
            raise DataError(
                f"{table.path} has the unknown column {name!r}, which would be ignored; did you mean {close[0]!r}? "
                "Rename the column or remove it"
            )


def scan_table(path: Path) -> pl.LazyFrame:
    """Returns a file's rows, unread; of a CSV file everything is text.

    Args:
        path: A ``.csv`` file (comma-separated, UTF-8, one header line) or a ``.parquet`` file.

    Raises:
        DataError: There is no such file, or it is of another kind.
    """
    kind = path.suffix.lower()
    if kind not in (*_CSV, *_PARQUET):
        raise DataError(
            f"{path} has the extension {path.suffix!r}; it must be one of {', '.join(EXTENSIONS)}: "
            "convert the file or rename it"
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}: it does not exist or is a folder; give the path of an existing file")
    return pl.scan_csv(path, infer_schema=False, encoding="utf8") if kind in _CSV else pl.scan_parquet(path)


def column_names(path: Path) -> tuple[str, ...]:
    """Returns the names of a file's columns without reading its rows.

    Raises:
        DataError: As ``scan_table``, or the columns cannot be read.
    """
    try:
        return tuple(scan_table(path).collect_schema().names())
    except (PolarsError, OSError) as error:
        raise _unreadable(path, "columns", error) from error


def collected(rows: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """Returns rows, read.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        return rows.collect()
    except (PolarsError, OSError) as error:
        raise _unreadable(path, "rows", error) from error


def _unreadable(path: Path, what: str, error: Exception) -> DataError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"{path}: its {what} cannot be read: {reason}; repair the file or export it again")

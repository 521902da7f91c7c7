"""A CSV or Parquet table of jobs, read so that every refused value is named by file, row, column and remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from noonward.arrays import F8, I8
from noonward.errors import DataError, nearest

LARGEST_WHOLE: Final = 1e9
"""Largest whole number accepted; a larger count is a slip."""


def _scan_csv(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema=False)


_READERS: Mapping[str, Callable[[Path], pl.DataFrame]] = {".csv": _scan_csv, ".parquet": pl.read_parquet}
EXTENSIONS: Final = tuple(_READERS)
"""Endings of the files that are read and written."""


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """A table in memory, with the name of each standard column in the file.

    Attributes:
        path: The file.
        frame: Its content; of a CSV file everything as text.
        column_of: Name in the file of every standard column, present or not.
    """

    path: Path
    frame: pl.DataFrame
    column_of: Mapping[str, str]

    def __len__(self) -> int:
        return self.frame.height

    def has(self, key: str) -> bool:
        """Says whether the file has a standard column."""
        return self.column_of[key] in self.frame.columns

    def place(self, row: int) -> str:
        """Returns a row (from 0) as messages show it: data rows count from 1, CSV lines from the header."""
        line = f" (line {row + 2})" if self.path.suffix == ".csv" else ""
        return f"{self.path}, row {row + 1}{line}"

    def require(self, *keys: str) -> None:
        """Raises DataError if one of some standard columns is missing."""
        for key in keys:
            if not self.has(key):
                name = self.column_of[key]
                raise DataError(
                    f"{self.path} has no column {name!r}; add or rename it, or name the file's own by columns: "
                    f"{{{key}: ...}}; {nearest(name, self.frame.columns)}"
                )

    def refuse(self, key: str, bad_J: NDArray[np.bool_], allowed: str) -> None:
        """Raises DataError on the first row that is marked bad.

        Args:
            key: Standard column.
            bad_J: Which rows are refused.
            allowed: What is allowed and what to do, as the end of the sentence.
        """
        if bad_J.any():
            row = int(bad_J.argmax())
            name = self.column_of[key]
            value = self.frame[name][row]
            shown = "is empty" if value is None or value == "" else f"has the value {value!r}"
            raise DataError(f"{self.place(row)}: column {name!r} {shown}; {allowed}")

    def numbers(self, key: str, allowed: str, *, low: float = -np.inf, above: bool = False, inf: bool = False) -> F8:
        """Returns a column as numbers.

        Args:
            key: Standard column, present in the file.
            allowed: What is allowed and what to do, as the end of the sentence.
            low: Smallest value allowed.
            above: Whether ``low`` itself is refused.
            inf: Whether ``inf`` is allowed.

        Raises:
            DataError: A value is empty, not a number or out of range, or the column is of another type.
        """
        series = self.frame[self.column_of[key]]
        if series.dtype == pl.String:
            series = series.str.strip_chars()
        elif not series.dtype.is_numeric() and series.dtype != pl.Null:
            raise DataError(
                f"{self.path}: column {self.column_of[key]!r} holds values of type {series.dtype}, "
                f"not numbers; {allowed}"
            )
        values: F8 = series.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().astype(np.float64)
        bad = np.isnan(values) | ((values <= low) if above else (values < low))
        self.refuse(key, bad if inf else bad | np.isinf(values), allowed)
        return values

    def integers(self, key: str, allowed: str, *, low: int) -> I8:
        """Returns a column as whole numbers of at least ``low``; the arguments and errors of ``numbers``."""
        values = self.numbers(key, allowed, low=low)
        self.refuse(key, (values != np.floor(values)) | (values > LARGEST_WHOLE), allowed)
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
            self.refuse(key, bad, f"give the name of {what} of the fleet: {hint}")
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
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise DataError(
            f"{path} has the extension {path.suffix!r}; it must be one of {', '.join(EXTENSIONS)}: "
            "convert the file or rename it"
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}; give the path of an existing file")
    try:
        frame = reader(path)
    except (PolarsError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} cannot be read as {path.suffix[1:]}: {reason}; repair the file or export it again"
        ) from error
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


def column_names(path: Path) -> tuple[str, ...]:
    """Returns the names of a file's columns without reading its rows.

    Raises:
        DataError: The file is of another kind or cannot be read.
    """
    scanners: Mapping[str, Callable[[Path], pl.LazyFrame]] = {".csv": pl.scan_csv, ".parquet": pl.scan_parquet}
    reader = scanners.get(path.suffix)
    if reader is None:
        raise DataError(f"{path} has the extension {path.suffix!r}; it must be one of {', '.join(EXTENSIONS)}")
    try:
        return tuple(reader(path).collect_schema().names())
    except (PolarsError, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}; repair the file or export it again") from error

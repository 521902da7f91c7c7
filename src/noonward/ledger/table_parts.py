"""Tables in parts: which jobs a part holds, and one Parquet file of several parts, written one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from noonward.arrays import F8
from noonward.files import table_bytes
from noonward.ledger.folder import Content
from noonward.paging import leave_memory
from noonward.units import DAY_S

if TYPE_CHECKING:
    import polars as pl

LEAST_ROWS: Final = 200_000
"""Rows from which on a part may end, with its day."""
MOST_ROWS: Final = 400_000
"""Most rows of a part; a day of more is cut."""


def day_parts(time_s_K: F8) -> list[slice]:
    """Returns parts of rows in the order of time: as few whole days each as have ``LEAST_ROWS``; the last may be small.

    Parts follow each other and hold all rows; a part has at most ``MOST_ROWS``, and one that has reached it ends within
    its day.

    Args:
        time_s_K: Time of each row, s, ascending.

    Example:
        >>> day_parts(np.repeat([0.0, 90_000.0, 180_000.0], 150_000))
        [slice(0, 300000, None), slice(300000, 450000, None)]
    """
    count = len(time_s_K)
    days = int(time_s_K[-1] // DAY_S) + 1 if count else 0
    ends = np.searchsorted(time_s_K, DAY_S * np.arange(1, days + 1)).tolist()
    parts, first = [], 0
    for end in ends:
        while end - first > MOST_ROWS:
            parts.append(slice(first, first + MOST_ROWS))
            first += MOST_ROWS
        if end - first >= LEAST_ROWS:
            parts.append(slice(first, end))
            first = end
    if first < count or not parts:
        parts.append(slice(first, count))
    return parts


def parquet_content(parts: Sequence[slice], table_of: Callable[[slice], pl.DataFrame]) -> Content:
    """Returns the content of a Parquet file of all parts of a table; of a single part at once, else when written.

    Args:
        parts: Parts.
        table_of: Makes the table of a part; the parts have the same columns.
    """
    if len(parts) == 1:
        return table_bytes(table_of(parts[0]), ".parquet", "lz4")

    def write(file: BinaryIO) -> None:
        write_parts(file, (table_of(part) for part in parts))

    return write


def write_parts(file: BinaryIO, tables: Iterator[pl.DataFrame]) -> None:
    """Writes tables as one Parquet file, which reads as the tables one below the other: a row group per table.

    No more than one of them is in memory at a time.

    Args:
        file: Receives the content.
        tables: Tables with the same columns, at least one.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    def arrow(table: pl.DataFrame) -> pa.Table:
        return table.to_arrow(compat_level=pl.CompatLevel.oldest())

    part = arrow(next(tables))
    texts = [column.name for column in part.schema if pa.types.is_dictionary(column.type)]
    with pq.ParquetWriter(file, part.schema, compression="lz4", use_dictionary=texts) as writer:
        writer.write_table(part)
        del part
        for table in tables:
            writer.write_table(arrow(table))
            leave_memory()

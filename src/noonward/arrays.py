"""Array types of the whole package; the letters that end an array's name are its axes (``price_SH``: sites, hours)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

F8 = NDArray[np.float64]
F4 = NDArray[np.float32]
I8 = NDArray[np.int64]
I4 = NDArray[np.int32]
U1 = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Records = NDArray[np.void]
"""Structured arrays, one record with named fields an element."""


RESERVE: Final = 16
"""How many times the rows asked for a table that grows reserves; rows that are not used take no memory yet."""


class _Reserve(np.ndarray):
    """Rows of a table that ``resized`` made longer; marks its memory, so that rows of other arrays are never taken."""


def resized(records: Records, count: int) -> Records:
    """Returns a table of records with another number of rows: the first ones of it, or zeros behind them.

    It is a copy, but for a table that was made longer by this function before and has rows in reserve: then both lie
    in the same memory.
    """
    # A table of this function is a plain view of the first rows of its reserve; a slice of one has that view as base.
    reserve = records.base.base if type(records.base) is _Reserve else None
    if reserve is not None and len(records) < count <= len(reserve):
        return reserve[:count].view(np.ndarray)  # nobody has used the rows behind
    kept = min(count, len(records))
    out = np.zeros(count if count <= len(records) else RESERVE * count, records.dtype).view(_Reserve)
    as_bytes = np.dtype((np.void, records.dtype.itemsize))  # a record is copied as one, not field by field
    out.view(as_bytes)[:kept] = records.view(as_bytes)[:kept]
    return out[:count].view(np.ndarray)

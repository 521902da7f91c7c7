"""Array types of the whole package; the letters that end an array's name are its axes (``price_SH``: sites, hours)."""

from __future__ import annotations

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


def resized(records: Records, count: int) -> Records:
    """Returns a copy of a table of records with another number of rows: the first ones of it, or zeros behind them."""
    out, kept = np.zeros(count, records.dtype), min(count, len(records))
    as_bytes = np.dtype((np.void, records.dtype.itemsize))  # a record is copied as one, not field by field
    out.view(as_bytes)[:kept] = records.view(as_bytes)[:kept]
    return out

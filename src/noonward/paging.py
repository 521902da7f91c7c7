"""Arrays of very many rows: they lie in temporary files, so that only the rows at hand take memory."""

from __future__ import annotations

import functools
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from noonward.notices import tell

MOST_ROWS: Final = 1_000_000
"""Rows up to which an array lies in memory."""
PART_ROWS: Final = 250_000
"""Rows that are worked on before others leave memory."""
MAPPED: Final = hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")
"""Whether this system can have arrays in files and let go of their memory; Linux can."""

_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def zero_rows(count: int, dtype: DTypeLike, columns: int | None = None) -> NDArray[Any]:
    """Returns an array of zeros, one row an entry; beyond ``MOST_ROWS`` it lies in a temporary file (``TMPDIR``).

    The file has no name, and is gone with the array. Where there is no room for it, the array is in memory.

    Args:
        count: Number of rows.
        dtype: Type of an entry.
        columns: Entries of a row, for an array of two axes; None: one axis.
    """
    shape = (count,) if columns is None else (count, columns)
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if count <= MOST_ROWS or not MAPPED or not size:
        return np.zeros(shape, kind)
    try:
        with tempfile.TemporaryFile(prefix="noonward-") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # else a full disk would end the process when a row is written
            place = mmap.mmap(file.fileno(), size)
    except OSError as error:
        _tell_once(tempfile.gettempdir(), error.strerror)
        return np.zeros(shape, kind)
    _maps.add(place)
    return np.frombuffer(place, kind).reshape(shape)


@functools.cache
def _tell_once(folder: str, why: str) -> None:
    """Tells that there is no room for files; once is enough."""
    tell(
        "memory",
        f"the arrays of very many jobs are taken in memory, since there is no room in {folder} ({why}); set TMPDIR to "
        "a folder on a disk with room",
    )


def in_file(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array of one axis, or a copy of it as ``zero_rows`` makes one; one that takes no memory stays."""
    if len(array) <= MOST_ROWS or not MAPPED or array.strides == (0,):
        return array
    out = zero_rows(len(array), array.dtype)
    out[:] = array
    leave_memory()
    return out


def parts(count: int) -> Iterator[slice]:
    """Returns the rows of an array part by part; after each, what lies in files leaves memory.

    An array of up to ``MOST_ROWS`` is one part.
    """
    if count <= MOST_ROWS:
        yield slice(0, count)
        return
    for first in range(0, count, PART_ROWS):
        yield slice(first, min(first + PART_ROWS, count))
        leave_memory()


def summed(array: NDArray[Any], axis: int | None = None) -> Any:
    """Returns the sum of an array; then what lies in files leaves memory."""
    out = array.sum(axis=axis)
    leave_memory()
    return out


def leave_memory() -> None:
    """Has all arrays in files leave this process's memory; their rows come back as they are read."""
    for place in list(_maps):
        place.madvise(mmap.MADV_DONTNEED)


def column(count: int, of: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
    """Returns a column that is made part by part, as ``zero_rows`` makes one; up to ``MOST_ROWS`` it is made at once.

    Args:
        count: Number of rows.
        of: Returns the values of some rows; of some of these rows alone where the column leaves out others.
    """
    if count <= MOST_ROWS:
        return of(slice(0, count))
    out, used = zero_rows(count, of(slice(0, 0)).dtype), 0
    for part in parts(count):
        value = of(part)
        out[used : used + len(value)] = value
        used += len(value)
    return out[:used]

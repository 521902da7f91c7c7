"""Threads of NumPy's linear algebra: one where many small products are computed.

OpenBLAS, which NumPy's packages bring, starts a thread per core for products that take well under a millisecond. The
threads wait for one another, and use more CPU time than they save.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

_SUFFIXES: Final = ("64_", "")
_PREFIXES: Final = ("scipy_openblas", "openblas")


@cache
def _threads() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Returns what reads and what sets OpenBLAS's number of threads; None where NumPy uses another library."""
    folder = Path(np.__file__).parent
    for file in sorted([*(folder.parent / "numpy.libs").glob("*openblas*"), *(folder / ".dylibs").glob("*openblas*")]):
        library = ctypes.CDLL(str(file))
        for prefix in _PREFIXES:
            for suffix in _SUFFIXES:
                try:
                    read = getattr(library, f"{prefix}_get_num_threads{suffix}")
                    write = getattr(library, f"{prefix}_set_num_threads{suffix}")
                except AttributeError:
                    continue
                read.restype, write.argtypes, write.restype = ctypes.c_int, (ctypes.c_int,), None
                return read, write
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets OpenBLAS compute in one thread for a while; does nothing where NumPy uses another library.

    Example:
        >>> with one_thread():
        ...     float((np.ones((2, 2)) @ np.ones((2, 2))).sum())
        8.0
    """
    found = _threads()
    if found is None:
        yield
        return
    read, write = found
    before = read()
    write(1)
    try:
        yield
    finally:
        write(before)

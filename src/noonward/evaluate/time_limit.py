"""A time limit on calls of foreign code: one that does not come back is interrupted, wherever it is."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOOKS: Final = 20
"""How often the limit is looked at within it."""


class TooLongError(BaseException):
    """A call took longer than its limit. No ``Exception``, so that code that catches all of those lets it pass."""


class TimeLimit:
    """Interrupts the thread that made it where one call takes too long; pure Python alone can be interrupted.

    Args:
        seconds: Longest a call may take, s.

    Example:
        >>> with TimeLimit(0.05).watching() as limit:
        ...     limit.begin()
        ...     try:
        ...         while True:
        ...             pass
        ...     except TooLongError:
        ...         print("interrupted")
        interrupted
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: float | None = None
        self._caller = threading.get_ident()
        self._over = threading.Event()

    def begin(self) -> None:
        """Starts the time of a call."""
        self._since = time.monotonic()

    def end(self) -> None:
        """Ends it."""
        self._since = None

    @contextmanager
    def watching(self) -> Iterator[TimeLimit]:
        """Watches the calls made within a block of the thread that made the limit."""
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        try:
            yield self
        finally:
            self._over.set()
            watcher.join()

    def _watch(self) -> None:
        while not self._over.wait(self.seconds / LOOKS):
            since = self._since
            if since is not None and time.monotonic() - since > self.seconds:
                self._since = None
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._caller), ctypes.py_object(TooLongError))

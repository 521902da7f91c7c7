"""Turns: a thread that computes for long leaves the interpreter to the others again and again.

Python runs one thread at a time. A thread that never waits is interrupted every 5 ms; one that answers requests gives
the interpreter up many times per request, for each read, write and row, and would then wait 5 ms each time. So long
computations of the service rest by themselves: ``give_way`` in their loops, within ``in_turns``.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from typing import Final

WORK_S: Final = 0.002
"""How long a thread computes until it rests, real s."""
REST_S: Final = 0.002
"""How long it rests, real s."""
_USUAL: Final = gc.get_threshold()
_NEVER: Final = 2**31 - 1
_turn: Final = threading.local()


@contextlib.contextmanager
def in_turns() -> Iterator[None]:
    """Has this thread rest wherever it calls ``give_way``.

    Garbage collection passes over old objects meanwhile: a look at all jobs that are being decided about would stop
    every thread for seconds.
    """
    gc.set_threshold(*_USUAL[:2], _NEVER)
    _turn.began = time.perf_counter()
    try:
        yield
    finally:
        del _turn.began
        gc.set_threshold(*_USUAL)


def give_way() -> None:
    """Rests, if this thread works in turns and its turn is over."""
    began: float | None = getattr(_turn, "began", None)
    if began is not None and time.perf_counter() - began >= WORK_S:
        time.sleep(REST_S)
        _turn.began = time.perf_counter()

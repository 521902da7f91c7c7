"""Turns: a thread that computes for long leaves the interpreter to the others again and again.

Python runs one thread at a time. A thread that never waits is interrupted every 5 ms; one that answers requests gives
the interpreter up many times per request, for each read, write and row, and would then wait 5 ms each time. So long
computations of the service rest by themselves: ``give_way`` in their loops, within ``in_turns``. They rest for longer
while the others compute: two threads that take half of the interpreter each would leave too little to those requests.
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
"""How long a rest takes, real s."""
MOST_RESTS: Final = 4
"""Rests that follow each other, at most, while other threads compute."""
BUSY: Final = 0.25
"""Share of a rest from which on the others compute: CPU time of the whole process over the time of the rest."""
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
    """Rests, if this thread works in turns and its turn is over: until the others compute little, but not for ever."""
    began: float | None = getattr(_turn, "began", None)
    if began is not None and time.perf_counter() - began >= WORK_S:
        for _ in range(MOST_RESTS):
            if not _rested_among_others():
                break
        _turn.began = time.perf_counter()


def _rested_among_others() -> bool:
    """Rests once; returns whether other threads computed meanwhile."""
    used_s, began = time.process_time(), time.perf_counter()
    time.sleep(REST_S)
    return time.process_time() - used_s > BUSY * (time.perf_counter() - began)

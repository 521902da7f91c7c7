"""What the package tells whoever runs it while it works: what is compiled, damaged files, progress of long work.

Nobody receives it unless the program asks; the command line shows it on the error stream. The other way round, whoever
runs it may ask work that can be stopped to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[str, str], None]] = []
_stoppable: list[Callable[[], None]] = []


def listen(listener: Callable[[str, str], None]) -> None:
    """Has a function called with every notice.

    Args:
        listener: Called with the kind (``compile``: a function is about to be compiled; ``part``: one that is pasted
            into it; ``damaged``: a file of the cache was damaged; ``record``: a run's record was damaged, so the run is
            carried out again; ``checkpoint``: a run continues from its checkpoint, cannot, or stopped and left one;
            ``memory``: large arrays are taken in memory, for want of room in the folder of temporary files;
            ``renamed``: a policy was asked for by a former name; ``progress``: what is computed, or how far that is;
            ``within``: how far the run under way is; ``runs``: how many runs there will be) and what it is about.
    """
    _listeners.append(listener)


@contextmanager
def listening(listener: Callable[[str, str], None]) -> Iterator[None]:
    """Has a function called with every notice for a while."""
    listen(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(kind: str, about: str) -> None:
    """Tells all who listen."""
    for listener in _listeners:
        listener(kind, about)


@contextmanager
def stoppable(stop: Callable[[], None]) -> Iterator[None]:
    """Says that what is done within can be stopped.

    Args:
        stop: Asks for that, from any thread; the work then stores what it needs to continue and raises
            KeyboardInterrupt.
    """
    _stoppable.append(stop)
    try:
        yield
    finally:
        _stoppable.remove(stop)


def ask_to_stop() -> bool:
    """Asks all work that can be stopped to stop; returns whether there is any."""
    for stop in list(_stoppable):
        stop()
    return bool(_stoppable)

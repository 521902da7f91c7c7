"""What specs of one group share and is costly to build: the last ones are kept, until ``map_runs`` is done."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

KEPT: Final = 2
"""Things that are kept."""
_kept: dict[Hashable, Any] = {}
_call: str = ""
"""Call of ``map_runs`` that it was made for, in a worker."""
_built_s: dict[str, float] = {}


class Shared(Protocol):
    """What specs share.

    Attributes:
        key: What it stands for: equal for equal ones.
    """

    @property
    def key(self) -> Hashable:
        """What it stands for."""

    def make(self) -> Any:
        """Builds it."""


def shared(key: Hashable, make: Callable[[], Any]) -> Any:
    """Returns what a key stands for: the thing kept, else a new one, which is kept in place of the oldest."""
    if key not in _kept:
        while len(_kept) >= KEPT:
            del _kept[next(iter(_kept))]
        within_s, began_s = sum(_built_s.values()), time.process_time()
        _kept[key] = make()
        name = hashlib.sha256(repr(key).encode()).hexdigest()
        _built_s[name] = time.process_time() - began_s - (sum(_built_s.values()) - within_s)
    return _kept[key]


def kept(key: Hashable) -> Any:
    """Returns what is kept of a key, or None."""
    return _kept.get(key)


def taken_to_build() -> dict[str, float]:
    """Returns the CPU time of what was built since the last call, s, by a name of each thing."""
    found = dict(_built_s)
    _built_s.clear()
    return found


def forget() -> None:
    """Drops what is kept: the files it was read from may change."""
    _kept.clear()


def kept_for(call: str) -> None:
    """Drops, in a worker, what was made for another call of ``map_runs`` than this one."""
    global _call
    if call != _call:
        forget()
        _call = call

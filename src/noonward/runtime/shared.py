"""What specs of one group share and is costly to build: the last ones are kept, until ``map_runs`` is done."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

KEPT: Final = 2
"""Things that are kept."""
_kept: dict[Hashable, Any] = {}
_call: str = ""
"""Call of ``map_runs`` that it was made for, in a worker."""


def shared(key: Hashable, make: Callable[[], Any]) -> Any:
    """Returns what a key stands for: the thing kept, else a new one, which is kept in place of the oldest."""
    if key not in _kept:
        while len(_kept) >= KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = make()
    return _kept[key]


def forget() -> None:
    """Drops what is kept: the files it was read from may change."""
    _kept.clear()


def kept_for(call: str) -> None:
    """Drops, in a worker, what was made for another call of ``map_runs`` than this one."""
    global _call
    if call != _call:
        forget()
        _call = call

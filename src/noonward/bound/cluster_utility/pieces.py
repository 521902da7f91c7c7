"""Pieces of the bound of very many jobs: each can be carried out by another process, and all give the same result."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Piece(Protocol):
    """One piece of work. What it finds depends on its fields alone, and it is pickled with no more than it reads."""

    @property
    def label(self) -> str:
        """What it is."""

    def found(self) -> Any:
        """Returns what it finds, which can be pickled."""


MapPieces = Callable[[Sequence[Piece]], list[Any]]
"""Carries out pieces, wherever that is, and returns what they found, in their order."""


def cut(end: int, length: int, shifted: bool) -> list[tuple[int, int]]:
    """Cuts hours or slots, numbered from 0, into stretches; returns the first of each and the one after its last.

    The last stretch may be shorter.

    Args:
        end: How many hours or slots there are.
        length: Length of a stretch.
        shifted: Whether the stretches begin half a length earlier, so that their edges lie in the middle of others.

    Example:
        >>> cut(50, 24, shifted=False)
        [(0, 24), (24, 48), (48, 50)]
        >>> cut(50, 24, shifted=True)
        [(0, 12), (12, 36), (36, 50)]
    """
    return list(itertools.pairwise([0, *range(length // 2 if shifted else length, end, length), end]))


def in_turn(pieces: Sequence[Piece]) -> list[Any]:
    """Carries out pieces in this process, one after the other."""
    return [piece.found() for piece in pieces]


@dataclass(frozen=True)
class Deadline:
    """Whether a time has passed; every process that it is sent to says the same.

    Attributes:
        end_s: The time, s since 1970 (``time.time``).
    """

    end_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Returns the deadline so many seconds from now."""
        return cls(time.time() + seconds)

    def __call__(self) -> bool:
        """Returns whether the time has passed."""
        return time.time() >= self.end_s

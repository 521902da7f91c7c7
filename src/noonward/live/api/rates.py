"""How often each caller may ask: buckets that fill at a steady rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

BURST_S: Final = 10.0
"""A bucket holds what a caller may have in so many seconds."""
MOST_NAMES: Final = 10_000
"""Buckets that are remembered; those that are full again are forgotten."""


class Rate:
    """A rate for each of many callers.

    Something may be had as long as its caller's bucket is not empty, however much it is: what is more than the bucket
    holds is owed, and the caller waits for it afterwards. So a batch is never too large to be taken at all.

    Args:
        per_s: What flows into a bucket, per second; None: everything may be had.
        now_s: A clock that never falls, s.

    Example:
        >>> at = [0.0]
        >>> rate = Rate(2.0, lambda: at[0])
        >>> rate.take("ci", 30.0), rate.take("ci", 1.0), rate.take("other", 1.0)
        (0.0, 5.0, 0.0)
        >>> at[0] = 6.0
        >>> rate.take("ci", 1.0)
        0.0
    """

    def __init__(self, per_s: float | None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.per_s, self._now_s = per_s, now_s
        self._level: dict[str, tuple[float, float]] = {}

    def take(self, name: str, amount: float) -> float:
        """Takes an amount of a caller's bucket if it is not empty.

        Args:
            name: The caller.
            amount: What is taken.

        Returns:
            0 if it was taken, or the time after which the caller may try again, s.
        """
        if self.per_s is None:
            return 0.0
        now_s, most = self._now_s(), self.per_s * BURST_S
        level, at_s = self._level.get(name, (most, now_s))
        level = min(most, level + (now_s - at_s) * self.per_s)
        if level <= 0.0:
            self._level[name] = level, now_s
            return -level / self.per_s
        if name not in self._level and len(self._level) >= MOST_NAMES:
            self._forget(now_s, most)
        self._level[name] = level - amount, now_s
        return 0.0

    def _forget(self, now_s: float, most: float) -> None:
        """Forgets the buckets that are full again."""
        assert self.per_s is not None, "there are buckets"
        filled = {name: level + (now_s - at_s) * self.per_s for name, (level, at_s) in self._level.items()}
        self._level = {name: self._level[name] for name, level in filled.items() if level < most}

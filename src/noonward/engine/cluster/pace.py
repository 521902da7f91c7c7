"""How far a run is, told while it works: of long runs an estimate that moves."""

from __future__ import annotations

import time
from typing import Final

from noonward.notices import tell

EVERY_S: Final = 5.0
"""Real seconds between two notices."""


class Pace:
    """Tells how many of a run's jobs have arrived, and how long the rest takes at the pace since it was first told.

    What comes before (compilation, the first plan) says nothing of the pace, so the first notice has no estimate.

    Args:
        jobs: Jobs of the run.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._told = time.monotonic()
        self._since: tuple[float, int] | None = None

    def note(self, arrived: int) -> None:
        """Tells it, not more often than every ``EVERY_S``.

        Args:
            arrived: Jobs that have arrived.
        """
        now = time.monotonic()
        if now - self._told < EVERY_S or not arrived:
            return
        self._told = now
        said = f"{arrived:,} of {self._jobs:,} jobs"
        if self._since is None:
            self._since = now, arrived
        elif arrived > self._since[1]:
            left_s = (now - self._since[0]) * (self._jobs - arrived) / (arrived - self._since[1])
            left = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
            said += f", about {left} left"
        tell("within", said)

"""How far a run is, told while it works."""

from __future__ import annotations

import time
from typing import Final

from noonward.notices import tell

EVERY_S: Final = 5.0
"""Real seconds between two notices."""


class Pace:
    """Tells how many of a run's jobs have arrived.

    Args:
        jobs: Jobs of the run.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._told = time.monotonic()

    def note(self, arrived: int) -> None:
        """Tells it, not more often than every ``EVERY_S``.

        Args:
            arrived: Jobs that have arrived.
        """
        now = time.monotonic()
        if now - self._told < EVERY_S or not arrived:
            return
        self._told = now
        tell("within", f"{arrived:,} of {self._jobs:,} jobs")

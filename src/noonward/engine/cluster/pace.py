"""How far a run is, told while it works; and who looks at it now and then."""

from __future__ import annotations

import time
from typing import Final, Protocol

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


class Pauses(Protocol):
    """Looks at a run now and then: between a question and its answer, when nothing is under way."""

    def look(self) -> None:
        """Looks at the run: a question waits for its answer. What it raises ends the run."""

    def until_s(self, now_s: float) -> float:
        """Returns the time of the run until which a compiled loop need not pause, s.

        Args:
            now_s: Time of the question, s.
        """

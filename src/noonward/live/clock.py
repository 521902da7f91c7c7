"""Clocks: what time it is for the service, passed in, so that a day can be replayed in seconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What tells the time of a service."""

    speed: float
    """Seconds of the service per real second."""

    def now(self) -> datetime:
        """Returns the current UTC time of the service."""

    def since(self, start: datetime) -> float:
        """Returns the seconds that have passed since a UTC time."""

    def of_machine(self, posix_s: float) -> datetime:
        """Returns the UTC time of the service at a time of the machine, s since 1970."""


class SystemClock:
    """The machine's clock, or one that runs faster from the moment it is made.

    Args:
        speed: Seconds of the service per real second, above 0.
        start: UTC time of the service when the clock is made; none: the machine's time.

    Raises:
        ValueError: The speed is not above 0.
    """

    def __init__(self, speed: float = 1.0, start: datetime | None = None) -> None:
        if not speed > 0:
            raise ValueError(f"a clock of speed {speed} stands still; give a speed above 0")
        self.speed = speed
        self._real = time.time()
        self._start = datetime.fromtimestamp(self._real, UTC) if start is None else start

    def now(self) -> datetime:
        """Returns the current UTC time of the service."""
        return self.of_machine(time.time())

    def since(self, start: datetime) -> float:
        """Returns the seconds that have passed since a UTC time."""
        return (self.now() - start).total_seconds()

    def of_machine(self, posix_s: float) -> datetime:
        """Returns the UTC time of the service at a time of the machine, s since 1970."""
        return self._start + timedelta(seconds=(posix_s - self._real) * self.speed)


class ManualClock:
    """A clock that stands still until it is set: exact to the last digit, for replays and tests.

    Args:
        start: UTC time of its second 0.

    Attributes:
        seconds: Seconds since then.
    """

    speed = 1.0

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.seconds = 0.0

    def now(self) -> datetime:
        """Returns the time it was set to, to the microsecond."""
        return self.start + timedelta(seconds=self.seconds)

    def since(self, start: datetime) -> float:
        """Returns the seconds since a UTC time; those since its own second 0 are exact."""
        return (self.start - start).total_seconds() + self.seconds

    def of_machine(self, posix_s: float) -> datetime:
        """Returns the time it was set to."""
        return self.now()

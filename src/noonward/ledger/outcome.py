"""What engines emit: what became of every job (one power segment each), and the meters they kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noonward.model.cluster.environment import Environment

PLANNED: Final = 0
"""Status: has not arrived yet."""
TRANSIT: Final = 1
"""Status: travels to a site, or is held until its earliest start."""
WAITING: Final = 2
"""Status: waits at a site."""
RUNNING: Final = 3
"""Status: runs."""
DONE: Final = 4
"""Status: finished."""
OVERDUE: Final = 5
"""Status: could not start in time and was dropped."""
STATUS_NAMES: Final = ("planned", "in transit", "waiting", "running", "done", "overdue")
"""Names of the statuses, by number."""

TRACK: Final = np.dtype(
    [
        ("status", "i8"),
        ("site", "i8"),  # site it is at or on its way to, or -1
        ("gpus", "i8"),  # gang: as asked for while waiting (0: largest), as started afterwards
        ("level", "i8"),  # clock level: as asked for while waiting, as started afterwards
        ("next", "i8"),  # waiting job behind, or -1
        ("moves", "i8"),  # journeys with data
        ("earliest_s", "f8"),  # earliest start asked for
        ("reach_s", "f8"),  # time it joined the last site's queue; NaN before
        ("start_s", "f8"),  # NaN before the start
        ("finish_s", "f8"),  # end of its run, also if that lies after the run's end; NaN before the start
        ("power_w", "f8"),  # facility power while it runs; 0 before
        ("move_kwh", "f8"),  # its own journeys
        ("move_usd", "f8"),
        ("move_kg", "f8"),
    ]
)
"""What becomes of a job."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of every job, and the engine's meters.

    Attributes:
        environment: What was run.
        track_J: TRACK records: status, site, gang, clock, times, power, moves of every job.
        yard_S: The engine's own meters per site (an independent integral of the same energy).
        engine: The engine's counters and totals: steps, events, transfers, utility.
        ended_s: Time at which the run ended, s.
        rewards_K: Reward of every step, USD, if asked for.
    """

    environment: Environment
    track_J: NDArray[np.void]
    yard_S: NDArray[np.void]
    engine: np.void
    ended_s: float
    rewards_K: NDArray[np.float64] | None = None

    @property
    def started_J(self) -> NDArray[np.bool_]:
        """Jobs that have started."""
        return ~np.isnan(self.track_J["start_s"])

    def count(self, status: int) -> int:
        """Returns the number of jobs with a status."""
        return int((self.track_J["status"] == status).sum())

    def queue_length(self, time_s: float) -> int:
        """Returns how many jobs wait at all sites after all events up to a time, without those that end overdue."""
        track_J = self.track_J
        joined = track_J["reach_s"] <= time_s
        left = (track_J["start_s"] <= time_s) | np.isin(track_J["status"], (OVERDUE, TRANSIT))
        return int((joined & ~left).sum())

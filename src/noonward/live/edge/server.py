"""A server as the controller knows it: its worker's process, health and work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from noonward.live.edge.gang_run import GangRun
from noonward.live.edge.orders import Beat, Facts


@dataclass(kw_only=True)
class Server:
    """A server and its worker.

    Attributes:
        state: ``waiting`` while no worker can be started, ``starting``, ``ready``, or ``lost`` after too many starts
            that failed.
        facts: What its worker is, once it is ready.
        life: Number of its worker's process, counted from 1: answers of earlier ones are ignored.
        failed_starts: Starts that failed since it was last ready.
        since_s: Start of its worker, s since second 0.
        heard_s: Last answer to a health check.
        asked_s: Last health check sent; of a worker that starts, its start or when it was last seen at work.
        beat_due: Whether a health check is unanswered.
        beat: Last answer.
        cpu_s: CPU seconds that its process had used when an answer was last overdue.
        group: Number of the process group that it is in; 0 if none.
        run: What it works at.
        reason: Why it is lost.
    """

    state: Literal["waiting", "starting", "ready", "lost"] = "starting"
    facts: Facts | None = None
    life: int = 0
    failed_starts: int = 0
    since_s: float = 0.0
    heard_s: float = 0.0
    asked_s: float = 0.0
    beat_due: bool = False
    beat: Beat | None = None
    cpu_s: float | None = None
    group: int = 0
    run: GangRun | None = None
    reason: str | None = None

"""One launch on its way: which members are still at work, what they have returned, why it failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from noonward.live.edge.orders import Part
from noonward.live.edge.tasks import Attempt, ImageTask

Phase = Literal["loading", "meeting", "running"]


@dataclass(kw_only=True)
class GangRun:
    """A launch.

    Attributes:
        number: Number of the attempt, counted over the service's life.
        task: What is generated.
        attempt: Its record.
        members: Servers, the first member first.
        phase: ``loading`` the model, ``meeting`` (forming the process group) or ``running``.
        launched_s: Launch, s since second 0.
        loaded_s: When all members had the model, s since second 0.
        until_s: Members that are still at work then are killed, s since second 0.
        at_work: Members whose call has not returned.
        parts: What members have returned.
        failure: Why it failed.
    """

    number: int
    task: ImageTask
    attempt: Attempt
    members: tuple[int, ...]
    launched_s: float
    until_s: float
    phase: Phase = "loading"
    loaded_s: float = 0.0
    at_work: set[int] = field(default_factory=set)
    parts: dict[int, Part] = field(default_factory=dict)
    failure: str | None = None

    @property
    def rest_s(self) -> float:
        """Seconds of the attempt after its load."""
        ended = self.attempt.ended_unix_s
        return 0.0 if ended is None else ended - self.attempt.launched_unix_s - (self.loaded_s - self.launched_s)

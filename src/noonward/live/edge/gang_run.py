"""One launch on its way: which members are still at work, what they have returned, why it failed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from noonward.live.edge.energy import energy_j
from noonward.live.edge.orders import Order, Part, Picture
from noonward.live.edge.plan import Plan
from noonward.live.edge.tasks import Attempt, Fault, ImageTask
from noonward.model.edge.scenario import EdgeServers

Phase = Literal["loading", "meeting", "running"]


@dataclass(kw_only=True)
class GangRun:
    """A launch.

    Attributes:
        number: Number of the attempt, counted over the service's life.
        tasks: What is generated, all of it at once; all are like the first.
        attempt: Its record, the same for all.
        members: Servers, the first member first.
        group: Number of the gang's process group.
        loads: Whether a member is expected to load the model.
        phase: ``loading`` the model, ``meeting`` (forming the process group) or ``running``.
        launched_s: Launch, s since second 0.
        loaded_s: When all members had the model, s since second 0.
        until_s: Members that are still at work then are killed, s since second 0.
        patience_s: Seconds without a new step that end it.
        step: Steps done, as members have told.
        at_work: Members whose call has not returned.
        parts: What members have returned.
        failure: Why it failed.
        open: Whether it is still to be found out whose fault that was: a member that lost the others says no more than
            that; which one was lost is heard later.
    """

    number: int
    tasks: list[ImageTask]
    attempt: Attempt
    members: tuple[int, ...]
    launched_s: float
    until_s: float
    group: int
    loads: bool
    patience_s: float = 0.0
    step: int = 0
    phase: Phase = "loading"
    loaded_s: float = 0.0
    at_work: set[int] = field(default_factory=set)
    parts: dict[int, Part] = field(default_factory=dict)
    failure: str | None = None
    open: bool = False

    @property
    def first(self) -> ImageTask:
        """The task that the scheduler chose."""
        return self.tasks[0]

    @property
    def wanted(self) -> list[ImageTask]:
        """Tasks that this launch is still to generate: none that was canceled or waits again."""
        return [task for task in self.tasks if task.state == "running" and task.attempts[-1] is self.attempt]

    @property
    def own_fault(self) -> Fault:
        """Whose fault it is if the launch fails and no worker was lost."""
        return "task" if len(self.tasks) == 1 else "batch"

    @property
    def rest_s(self) -> float:
        """Seconds of the attempt after its load."""
        ended = self.attempt.ended_unix_s
        return 0.0 if ended is None else ended - self.attempt.launched_unix_s - (self.loaded_s - self.launched_s)

    def order(self, plan: Plan, address: tuple[str, int] | None, group_s: float) -> Order:
        """Returns what the members are told to generate.

        Args:
            plan: What the service runs.
            address: Where the gang meets.
            group_s: Time-out of an exchange, s.
        """
        task, drawing = self.first, plan.drawing
        if task.guidance is not None:
            drawing = replace(drawing, guidance=task.guidance)
        return Order(
            attempt=self.number,
            group=self.group,
            pictures=tuple(
                Picture(task=each.id, prompt=each.prompt, negative=each.negative, seed=each.seed) for each in self.tasks
            ),
            steps=self.attempt.steps,
            drawing=drawing,
            sides_px=None if task.width is None or task.height is None else (task.width, task.height),
            size=task.gang,
            address=address,
            join_s=plan.limits.join_s,
            group_s=group_s,
        )

    def end(self, now_s: float, unix_s: float, servers: EdgeServers, error: str | None) -> None:
        """Writes the end of the launch into its record.

        Args:
            now_s: Now, s since second 0.
            unix_s: Now, Unix seconds.
            servers: Powers of a server.
            error: Why it failed; None if it did not.
        """
        attempt, parts = self.attempt, list(self.parts.values())
        attempt.ended_unix_s, attempt.error = unix_s, error
        load_s = (now_s if self.phase == "loading" else self.loaded_s) - self.launched_s
        energy = energy_j(servers, self.first.gang, load_s, now_s - self.launched_s - load_s)
        attempt.energy_j = energy / attempt.images
        if parts:
            attempt.join_s = max(part.join_s for part in parts)
            attempt.prompt_s, attempt.decode_s = (max(p.prompt_s for p in parts), max(p.decode_s for p in parts))
            attempt.run_s = max(part.run_s for part in parts)
            attempt.sent_mb = sum(part.sent_bytes for part in parts) / 1e6

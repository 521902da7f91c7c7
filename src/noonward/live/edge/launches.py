"""The launches of a service: gangs load, meet and draw; workers that are lost, and tasks that are tried again.

When a worker dies, or hangs and is killed (``noonward.live.edge.health``), the other members of its gang are told to
leave it, which frees them at once. A member that does not come back from that within half a lease is killed too, so a
gang that runs is free within a lease of the last sign of life of a member that hangs. Its tasks are queued again in
their old places, or fail with a reason. Only launches that failed by the task itself count as its tries; if several
images were drawn at once, each is drawn alone the next time, and that launch is no try of any.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from noonward.decision.edge.view import NOBODY
from noonward.errors import FileError, NoonwardError
from noonward.live.edge.gang_run import GangRun
from noonward.live.edge.health import WorkerHealth
from noonward.live.edge.notes import Notes
from noonward.live.edge.orders import Beat, Part
from noonward.live.edge.plan import Plan
from noonward.live.edge.predictor import Predictor
from noonward.live.edge.question import Launch, Question
from noonward.live.edge.server import Server
from noonward.live.edge.task_list import TaskList
from noonward.live.edge.tasks import Attempt, Fault, ImageTask, TaskStore
from noonward.live.edge.workers import WorkerDiedError, Workers
from noonward.live.store.database import StoreError
from noonward.model.edge.quality import LAWS, quality

SLACK: Final = 10.0
"""A load, run or exchange may take so many times what is expected."""
LATE: Final = "the deadline passed while it was generated"
"""Why a task failed whose deadline passed after its launch."""


class Launches:
    """Carries launches out on workers.

    Args:
        plan: What the service runs.
        workers: The workers' processes.
        tasks: The service's tasks.
        store: Where images and measured times are kept.
        question: Servers as the scheduler sees them.
        clock: Returns the seconds since second 0.
        start: UTC time of second 0.
        notes: Where what goes wrong is noted.

    Attributes:
        servers: Servers and their workers.
        runs: Launches on their way, by number.
        predictor: Expected times.
    """

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        tasks: TaskList,
        store: TaskStore,
        question: Question,
        predictor: Predictor,
        clock: Callable[[], float],
        start: datetime,
        notes: Notes,
    ) -> None:
        self._plan, self._workers, self._tasks, self._store = plan, workers, tasks, store
        self._question, self.predictor, self._notes = question, predictor, notes
        self._clock, self._start_unix_s = clock, start.timestamp()
        self.servers = [Server() for _ in range(plan.setting.servers.count)]
        self.runs: dict[int, GangRun] = {}
        self._models = {model.name: i for i, model in enumerate(plan.models)}
        self._attempts, self._groups = 0, 0
        self._health = WorkerHealth(
            self.servers, workers, plan.limits, clock, self._starting, self._ready, self._died, self._heard
        )
        self._read_times()

    def start_workers(self) -> None:
        """Starts the worker of every server."""
        for n in range(len(self.servers)):
            self._health.start(n)

    def check(self, now_s: float) -> float:
        """Does what is due for workers and launches; returns when workers are to be looked at again, s."""
        due_s = self._health.check(now_s)
        for run in list(self.runs.values()):
            self._check_run(run, now_s)
        return due_s

    def cancel(self, task: ImageTask, reason: str) -> None:
        """Ends a task that has been launched as failed, and its launch if nothing else is drawn by it."""
        run = next((run for run in self.runs.values() if any(each is task for each in run.wanted)), None)
        if run is None or run.failure is not None or len(run.wanted) > 1:
            self._tasks.close(task, "failed", reason)
        else:
            self._fail(run, reason, retry=False)

    def stop(self, reason: str) -> None:
        """Ends all launches; their tasks are queued again."""
        for run in self.runs.values():
            if run.wanted:
                self._end_attempt(run, run.failure or reason, "service")
                self._wait(run)
        self.runs.clear()
        self._workers.close()

    def suspend(self, reason: str) -> None:
        """Puts running tasks back in the queue when all workers are gone and none can be started."""
        self._health.suspend()
        self._question.held_N[:] = NOBODY
        for run in self.runs.values():
            self._question.dissolve(run.members[0])
            if run.failure is None or run.open:
                self._end_attempt(run, run.failure or reason, "service")
                self._wait(run)
        self.runs.clear()

    # Launches

    def begin(self, tasks: Sequence[ImageTask], launch: Launch, now_s: float) -> None:
        """Begins a launch: every member loads the model, if it has not got it.

        Args:
            tasks: What is drawn, all of it at once: first the task that the scheduler chose, then others like it.
            launch: The scheduler's decision.
            now_s: Now, s since second 0.
        """
        self._attempts += 1
        first = tasks[0]
        attempt = Attempt(
            servers=list(launch.members),
            steps=launch.steps,
            formed=launch.formed,
            launched_unix_s=self._unix(now_s),
            images=len(tasks),
        )
        expected_s = self.predictor.expect_s(first.gang, 0, loads=True)
        run = GangRun(
            number=self._attempts,
            tasks=list(tasks),
            attempt=attempt,
            members=launch.members,
            launched_s=now_s,
            until_s=now_s + max(self._plan.limits.load_s, SLACK * expected_s),
            group=self._standing_group(launch.members),
            loads=launch.loads,
        )
        self.runs[run.number] = run
        model = self._models[first.model]
        for n in run.members:
            self.servers[n].run = run
            if self._question.held_N[n] != model:
                self._question.held_N[n] = NOBODY
            if len(tasks) > 1:
                all_s = self.predictor.expect_s(first.gang, launch.steps * len(tasks), launch.loads)
                self._question.expect(n, now_s + all_s)
        for task in tasks:
            task.state = "running"
            task.attempts.append(attempt)
            self._tasks.keep(task)
        self._notes.changed = True
        again = launch.formed and self._plan.load_policy == "reload-on-regroup"
        folder = self._plan.models[model].path
        self._call_all(run, "load", [(folder, again)] * len(run.members), self._loaded)

    def _standing_group(self, members: tuple[int, ...]) -> int:
        """Returns the process group in which exactly these servers are, or 0."""
        group = self.servers[members[0]].group
        inside = tuple(n for n, server in enumerate(self.servers) if group and server.group == group)
        return group if inside == members else 0

    def _call_all(
        self, run: GangRun, name: str, arguments: Sequence[tuple[Any, ...]], then: Callable[[GangRun, int, Any], None]
    ) -> None:
        """Calls the first members of a run, one for each tuple of arguments; every answer goes to ``then``."""
        called = run.members[: len(arguments)]
        run.at_work = set(called)
        for n, given in zip(called, arguments, strict=True):
            reply = functools.partial(self._returned, run, n, self.servers[n].life, then)
            self._workers.call(n, name, *given, reply=reply)

    def _returned(
        self, run: GangRun, n: int, life: int, then: Callable[[GangRun, int, Any], None], answer: Any
    ) -> None:
        """Takes in a member's answer; one that comes after its worker's death says nothing new."""
        if isinstance(answer, WorkerDiedError):
            self._health.died(n, life, str(answer))
            return
        if self.servers[n].life != life or self.servers[n].run is not run:
            return
        run.at_work.discard(n)
        if isinstance(answer, Exception):
            if run.failure is None:
                own = isinstance(answer, NoonwardError)
                what = str(answer).strip().splitlines()[-1] if str(answer).strip() else repr(answer)
                reason = what if own else f"server {n}: {type(answer).__name__}: {what}"
                self._fail(
                    run,
                    reason,
                    fault=run.own_fault,
                    retry=not own or len(run.tasks) > 1,
                    lost_others=not own and len(run.members) > 1,
                )
        elif run.failure is None:
            then(run, n, answer)
        if run.failure is not None:
            self._free(run)

    def _loaded(self, run: GangRun, n: int, load_s: float) -> None:
        """Goes on once all members have the model: the gang meets at its first member."""
        run.attempt.load_s = max(run.attempt.load_s, load_s)
        self._question.held_N[n] = self._models[run.first.model]
        if run.at_work:
            return
        now_s, limits, size = self._clock(), self._plan.limits, run.first.gang
        run.loaded_s = now_s
        if size == 1 or run.group:
            self._met(run, n, None)
            return
        run.phase, run.until_s = "meeting", now_s + limits.join_s
        self._call_all(run, "meet", [(run.number,)], self._met)

    def _met(self, run: GangRun, n: int, address: tuple[str, int] | None) -> None:
        """Has all members generate."""
        now_s, limits, size = self._clock(), self._plan.limits, run.first.gang
        step_s = self.predictor.expect_s(size, 1, loads=False) * len(run.tasks)
        run.phase = "running"
        run.patience_s = max(limits.task_s, SLACK * step_s * run.attempt.steps)
        run.until_s = now_s + limits.join_s + run.patience_s
        if not run.group:
            self._groups += 1
            run.group = self._groups
        order = run.order(self._plan, address, group_s=max(limits.group_s, SLACK * step_s))
        self._call_all(run, "generate", [(order, rank) for rank in range(size)], self._generated)

    def _generated(self, run: GangRun, n: int, part: Part) -> None:
        """Keeps the images once all members are done."""
        run.parts[n] = part
        if run.at_work:
            return
        for member in run.members:
            self.servers[member].group = run.group
        self._end_attempt(run, None)
        if len(run.tasks) == 1:  # the scheduler is told the times of single images
            self.predictor.measured(
                run.first.gang,
                load_s=run.loaded_s - run.launched_s if run.loads else None,
                rest_s=run.rest_s,
                steps=run.attempt.steps,
            )
            self._keep_times()
        law = LAWS.index(self._plan.setting.quality)
        for task, png in zip(run.tasks, run.parts[run.members[0]].pngs, strict=True):
            if task.state != "running":  # canceled or late meanwhile
                continue
            try:
                self._store.keep_image(task, png)
            except FileError as error:
                self._tasks.close(task, "failed", str(error))
                continue
            task.quality = float(quality(float(run.attempt.steps), law))
            self._tasks.close(task, "done", None)
        self._free(run)

    def _check_run(self, run: GangRun, now_s: float) -> None:
        """Ends a run that takes too long, kills members that do not come back, keeps the tasks' deadlines."""
        if run.failure is None:
            for task in run.wanted:
                if task.deadline_unix_s is not None and self._unix(now_s) > task.deadline_unix_s:
                    self.cancel(task, LATE)
        if now_s < run.until_s:
            return
        late = f"was still {run.phase} {now_s - run.launched_s:.0f} s after the launch"
        if run.failure is None:
            members = ", ".join(map(str, sorted(run.at_work)))
            self._fail(run, f"server {members} {late}", fault=run.own_fault)
        else:
            for n in sorted(run.at_work):
                self._health.kill(n, f"{late} and did not leave its gang")

    # Failures

    def _fail(
        self, run: GangRun, reason: str, *, retry: bool = True, fault: Fault = "task", lost_others: bool = False
    ) -> None:
        """Gives up a run: its gang is dissolved, members still at work are told to leave, its tasks are tried again.

        Args:
            run: The run.
            reason: Why.
            retry: Whether another launch may do better.
            fault: Whose fault it was.
            lost_others: Whether a member said so that may only have lost another one: then all members are waited for
                before the tasks are queued again or fail.
        """
        run.failure = reason
        self._end_attempt(run, reason, fault)
        self._question.dissolve(run.members[0])
        for n in run.members:
            self.servers[n].group = 0
        if run.phase != "loading":
            run.until_s = self._clock() + self._plan.limits.lease_s / 2
        for n in sorted(run.at_work):
            self._workers.call(n, "leave", run.number, reply=functools.partial(self._left, n, self.servers[n].life))
        run.open = lost_others
        if not lost_others:
            self._settle(run, retry)
        self._free(run)

    def _settle(self, run: GangRun, retry: bool = True) -> None:
        """Queues the tasks of a run that failed again, or ends them."""
        run.open = False
        for task in run.wanted:
            self._settle_task(task, run.attempt.error, retry)

    def _settle_task(self, task: ImageTask, reason: str | None, retry: bool) -> None:
        """Queues a task whose launch failed again, or ends it."""
        faults = [attempt.fault for attempt in task.attempts if attempt.error is not None]
        tries, losses = faults.count("task"), faults.count("worker")
        if not retry:
            self._tasks.close(task, "failed", reason)
        elif losses >= self._plan.losses:
            reason = f"{reason}; {losses} launches of it lost a worker: it may be what ends them"
            self._tasks.close(task, "failed", reason)
        elif tries < self._plan.tries:
            self._tasks.wait(task)
        else:
            more = "" if tries == 1 else f" (attempt {tries} of {self._plan.tries})"
            self._tasks.close(task, "failed", f"{reason}{more}")

    def _left(self, n: int, life: int, answer: Any) -> None:
        """Takes in the answer to ``leave``: that of the run itself says when the member is free."""
        if isinstance(answer, WorkerDiedError):
            self._health.died(n, life, str(answer))

    def _free(self, run: GangRun) -> None:
        """Frees the members of a run that are no longer at work."""
        for n in run.members:
            if self.servers[n].run is run and n not in run.at_work:
                self.servers[n].run = None
        if not run.at_work:
            self.runs.pop(run.number, None)
            if run.open:
                self._settle(run)
        self._notes.changed = True

    def _end_attempt(self, run: GangRun, error: str | None, fault: Fault = "task") -> None:
        """Writes the end of a launch into its record."""
        now_s = self._clock()
        run.attempt.fault = fault
        run.end(now_s, self._unix(now_s), self._plan.setting.servers, error)

    def _wait(self, run: GangRun) -> None:
        """Queues the tasks of a run again."""
        for task in run.wanted:
            self._tasks.wait(task)

    # Workers

    def _starting(self, n: int, ready_s: float) -> None:
        """Records that the worker of a server starts."""
        self._question.expect(n, ready_s)
        self._question.held_N[n] = NOBODY
        self._notes.changed = True

    def _ready(self) -> None:
        """Records that a worker is ready."""
        self._notes.changed = True

    def _died(self, n: int, run: GangRun | None, reason: str) -> None:
        """Frees the gang of a worker that is gone."""
        self._notes.add(reason)
        self._question.dissolve(n)
        if run is None:
            return
        run.at_work.discard(n)
        if run.failure is None:
            self._fail(run, reason, fault="worker")
            return
        if run.open:
            run.attempt.fault, run.attempt.error = "worker", f"{run.failure}; {reason}"
        self._free(run)

    def _heard(self, n: int, beat: Beat) -> None:
        """Gives a run more time for every step that it has done."""
        run = self.servers[n].run
        if run is None or run.failure is not None or run.phase != "running" or beat.attempt != run.number:
            return
        if beat.step > run.step:
            run.step, run.until_s = beat.step, max(run.until_s, self._clock() + run.patience_s)

    # Measured times

    def _read_times(self) -> None:
        """Takes in what the last service measured, if it ran the same."""
        content = self._store.read_times()
        if isinstance(content, dict) and content.get("of") == self._plan.measured_for():
            try:
                self.predictor.load_state(content.get("times"))
            except ValueError as error:
                self._notes.add(f"times are measured again: {error}")

    def _keep_times(self) -> None:
        """Writes what has been measured, for the next service."""
        try:
            self._store.keep_times({"of": self._plan.measured_for(), "times": self.predictor.state()})
        except StoreError as error:
            self._notes.add(f"measured times are not kept: {error}")

    def _unix(self, now_s: float) -> float:
        return self._start_unix_s + now_s

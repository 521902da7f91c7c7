"""The controller of a service: asks the scheduler, launches gangs, watches workers, retries tasks or fails them.

It runs in one thread and never blocks: calls to workers return at once, their answers come as calls of its methods,
and ``tick`` does what is due. Nothing in it knows Ray or torch.

When a worker dies, or hangs and is killed (``noonward.live.edge.health``), the other members of its gang are told to
leave it, which frees them at once. A member that does not come back from that within half a lease is killed too, so a
gang that runs is free within a lease of the last sign of life of a member that hangs. Its task is queued again in its
old place, or fails with a reason. Only launches that failed by the task itself count as its tries. When all that runs
the workers is gone (``Workers.outage``), it is started again; tasks wait meanwhile.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import numpy as np

from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.edge.view import NOBODY
from noonward.errors import FileError, NoonwardError
from noonward.live.edge.gang_run import GangRun
from noonward.live.edge.health import WorkerHealth
from noonward.live.edge.orders import Beat, Part
from noonward.live.edge.plan import Plan, gang_sizes, new_task
from noonward.live.edge.predictor import Predictor
from noonward.live.edge.question import Launch, Question, Waiting
from noonward.live.edge.server import Server
from noonward.live.edge.tasks import Attempt, Fault, ImageTask, TaskStore, number_of
from noonward.live.edge.workers import WorkerDiedError, Workers
from noonward.model.edge.quality import LAWS, quality
from noonward.model.edge.tasks import NO_DEADLINE_S

SLACK: Final = 10.0
"""A load, run or exchange may take so many times what is expected."""
CANCELED: Final = "it was canceled"
"""Why a task failed that nobody wanted any longer."""
STOPPED, KILLED = "the service was stopped", "the service was killed"
"""Why a launch ended that is no fault of its own."""
RESTART_S: Final = 10.0
"""Seconds between two attempts to restart what runs the workers."""
NOTES: Final = 100
"""Notes that are kept, the newest; one that is among them already is not repeated."""
TIDY_S: Final = 60.0
"""Seconds between two looks for tasks that are old enough to be forgotten."""


class Controller:
    """Decides and carries out.

    Args:
        plan: What it runs.
        scheduler: Who decides; reset here.
        workers: The workers' processes.
        store: Where tasks and measured times are kept; tasks that were queued or running when the last service ended
            are queued.
        clock: Returns the seconds since second 0.
        start: UTC time of second 0, a full hour.
        rng: Random stream of the scheduler.
    """

    def __init__(
        self,
        plan: Plan,
        scheduler: EdgeScheduler,
        workers: Workers,
        store: TaskStore,
        clock: Callable[[], float],
        start: datetime,
        rng: np.random.Generator,
    ) -> None:
        self.plan, self.scheduler, self._workers, self._store = plan, scheduler, workers, store
        self._clock, self._start_unix_s = clock, start.timestamp()
        setting = plan.setting
        scheduler.reset(EdgeBrief(scenario=setting.name, start=start, setting=setting, signals=False), rng)
        self.predictor = Predictor(setting)
        self._question = Question(setting, self.predictor, keeps=plan.load_policy == "keep")
        self.tasks, unreadable = store.read()
        """All tasks by id."""
        self._next = store.first_free()
        self.queue: list[ImageTask] = []
        """Tasks that wait, oldest first."""
        self.servers = [Server() for _ in range(setting.servers.count)]
        self.runs: dict[int, GangRun] = {}
        self.notes: list[str] = unreadable
        """What whoever runs the service must know: wrong answers of the scheduler, workers that were killed, records
        that could not be read."""
        self.changed = True
        """Whether a task or server has changed since this was last set to False."""
        self._models = {model.name: i for i, model in enumerate(plan.models)}
        self.on_end: Callable[[ImageTask], None] = lambda task: None
        """Called when a task is done or failed."""
        self._attempts, self._groups, self._ask_again_s = 0, 0, math.inf
        self._restart_s: float | None = None
        """When what runs the workers is started again, s since second 0; infinite while it is; None while it runs."""
        self._tidy_s = -math.inf
        self._health = WorkerHealth(
            self.servers, workers, plan.limits, clock, self._starting, self._ready, self._died, self._heard
        )
        self._read_times()
        for task in self.tasks.values():
            if task.state in ("queued", "running"):
                self._resume(task)
        for n in range(len(self.servers)):
            self._health.start(n)

    @property
    def now_unix_s(self) -> float:
        """Now, Unix seconds."""
        return self._unix(self._clock())

    # Tasks

    def submit(
        self,
        *,
        prompt: str,
        gang: int,
        seed: int | None = None,
        model: str | None = None,
        steps_max: float | None = None,
        deadline_s: float | None = None,
        negative: str | None = None,
        guidance: float | None = None,
        size: str | None = None,
    ) -> ImageTask:
        """Queues a task.

        Args:
            prompt: What to draw.
            gang: Servers it needs at once.
            seed: Seed of the first noise; by default the task's number.
            model: Name of the model; by default the first.
            steps_max: Most inference steps; by default the scenario's.
            deadline_s: Latest end, seconds from now; none: whenever it is done.
            negative: What not to draw, with guidance.
            guidance: Scale of classifier-free guidance, 1 for none; by default the service's.
            size: ``WIDTHxHEIGHT`` in pixels; by default the model's own.

        Raises:
            ScenarioError: The service cannot carry it out; the message says what is allowed.
            FileError: Its record cannot be written; it is not queued.
        """
        more = (negative, guidance, size)
        task = new_task(self.plan, self._next, prompt, gang, seed, model, steps_max, self.now_unix_s, deadline_s, *more)
        self._store.keep(task)
        self._next += 1
        self.tasks[task.id] = task
        self.queue.append(task)
        self.changed = True
        return task

    def cancel(self, name: str) -> ImageTask:
        """Ends a task that is queued or running as failed; one that has ended stays as it is. Returns it.

        Raises:
            NoonwardError: There is no such task.
        """
        task = self.tasks.get(name)
        if task is None:
            raise NoonwardError(f"there is no task {name!r}; 'noonward edge status' lists them")
        run = next((run for run in self.runs.values() if run.task is task), None)
        if task.state == "queued" or (task.state == "running" and (run is None or run.failure is not None)):
            self._close(task, "failed", CANCELED)
        elif task.state == "running" and run is not None:
            self._fail(run, CANCELED, retry=False)
        return task

    # What is due

    def tick(self) -> float:
        """Does what is due now; returns when it is to be called again if nothing happens before, s since second 0."""
        now_s = self._clock()
        if self._restart_s is None and (outage := self._workers.outage()):
            self._suspend(outage, now_s)
        if self._restart_s is not None and now_s >= self._restart_s:
            self._restart_s = math.inf
            self._workers.restart(self._restarted)
        if now_s - self._tidy_s >= TIDY_S:
            self._tidy_s = now_s
            self._forget_old()
        due = [self._health.check(now_s), *([] if self._restart_s is None else [self._restart_s])]
        for run in list(self.runs.values()):
            self._check_run(run, now_s)
        for task in list(self.queue):
            self._check_waiting(task, now_s)
        self._decide(now_s)
        due.append(self._ask_again_s)
        due += [run.until_s for run in self.runs.values()]
        due += [t.deadline_unix_s - self._start_unix_s for t in self.queue if t.deadline_unix_s is not None]
        return min(due)

    def stop(self) -> None:
        """Ends all that runs; the tasks are queued again, for the next service in this folder."""
        for run in self.runs.values():
            if run.task.state == "running":
                self._end_attempt(run, run.failure or STOPPED, "service")
                self._wait(run.task)
        self.runs.clear()
        self._workers.close()

    def _check_run(self, run: GangRun, now_s: float) -> None:
        """Ends a run that takes too long, kills members that do not come back, keeps the task's deadline."""
        deadline = run.task.deadline_unix_s
        if run.failure is None and deadline is not None and self._unix(now_s) > deadline:
            self._fail(run, "the deadline passed while it was generated", retry=False)
        if now_s < run.until_s:
            return
        late = f"was still {run.phase} {now_s - run.launched_s:.0f} s after the launch"
        if run.failure is None:
            members = ", ".join(map(str, sorted(run.at_work)))
            self._fail(run, f"server {members} {late}")
        else:
            for n in sorted(run.at_work):
                self._health.kill(n, f"{late} and did not leave its gang")

    def _check_waiting(self, task: ImageTask, now_s: float) -> None:
        """Fails a waiting task that has become impossible."""
        usable = sum(server.state != "lost" for server in self.servers)
        if task.deadline_unix_s is not None and self._unix(now_s) > task.deadline_unix_s:
            self._close(task, "failed", "the deadline passed while it waited")
        elif task.gang > usable:
            self._close(task, "failed", f"it needs {task.gang} servers, and {usable} can be started")

    # Decisions

    def _decide(self, now_s: float) -> None:
        """Asks the scheduler until it waits or nothing fits."""
        self._ask_again_s = math.inf
        while True:
            waiting = [self._as_waiting(task) for task in self.queue]
            busy = [server.state != "ready" or server.run is not None for server in self.servers]
            event = bool(self.runs) or any(server.state in ("starting", "waiting") for server in self.servers)
            if not self._question.fill(now_s, waiting, busy, event):
                return
            try:
                answer = self._question.ask(self.scheduler)
            except Exception as error:  # a user's scheduler may raise anything; images are generated all the same
                self.note(f"the scheduler failed, the oldest task that fits was launched: {error!r}")
                answer = self._question.first_fit()
            if not isinstance(answer, Launch):
                self._ask_again_s = max(answer, now_s + self.plan.setting.tick_s)
                return
            self._launch(self.queue.pop(answer.place), answer, now_s)

    def _as_waiting(self, task: ImageTask) -> Waiting:
        deadline = task.deadline_unix_s
        return Waiting(
            number=number_of(task.id) or 0,
            stamp_s=task.submitted_unix_s - self._start_unix_s,
            gang=task.gang,
            model=self._models[task.model],
            steps_max=task.steps_max,
            deadline_s=NO_DEADLINE_S if deadline is None else deadline - self._start_unix_s,
        )

    # Launches

    def _launch(self, task: ImageTask, launch: Launch, now_s: float) -> None:
        """Begins a launch: every member loads the model, if it has not got it."""
        self._attempts += 1
        attempt = Attempt(
            servers=list(launch.members), steps=launch.steps, formed=launch.formed, launched_unix_s=self._unix(now_s)
        )
        expected_s = self.predictor.expect_s(task.gang, 0, loads=True)
        run = GangRun(
            number=self._attempts,
            task=task,
            attempt=attempt,
            members=launch.members,
            launched_s=now_s,
            until_s=now_s + max(self.plan.limits.load_s, SLACK * expected_s),
            group=self._standing_group(launch.members),
            loads=launch.loads,
        )
        task.state = "running"
        task.attempts.append(attempt)
        self.runs[run.number] = run
        model = self._models[task.model]
        for n in run.members:
            self.servers[n].run = run
            if self._question.held_N[n] != model:
                self._question.held_N[n] = NOBODY
        self._keep(task)
        self.changed = True
        again = launch.formed and self.plan.load_policy == "reload-on-regroup"
        folder = self.plan.models[model].path
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
                self._fail(run, reason, retry=not own, lost_others=not own and len(run.members) > 1)
        elif run.failure is None:
            then(run, n, answer)
        if run.failure is not None:
            self._free(run)

    def _loaded(self, run: GangRun, n: int, load_s: float) -> None:
        """Goes on once all members have the model: the gang meets at its first member."""
        run.attempt.load_s = max(run.attempt.load_s, load_s)
        self._question.held_N[n] = self._models[run.task.model]
        if run.at_work:
            return
        now_s, limits, size = self._clock(), self.plan.limits, run.task.gang
        run.loaded_s = now_s
        if size == 1 or run.group:
            self._met(run, n, None)
            return
        run.phase, run.until_s = "meeting", now_s + limits.join_s
        self._call_all(run, "meet", [(run.number,)], self._met)

    def _met(self, run: GangRun, n: int, address: tuple[str, int] | None) -> None:
        """Has all members generate."""
        now_s, limits, task = self._clock(), self.plan.limits, run.task
        step_s = self.predictor.expect_s(task.gang, 1, loads=False)
        run.phase = "running"
        run.patience_s = max(limits.task_s, SLACK * step_s * run.attempt.steps)
        run.until_s = now_s + limits.join_s + run.patience_s
        if not run.group:
            self._groups += 1
            run.group = self._groups
        order = run.order(self.plan, address, group_s=max(limits.group_s, SLACK * step_s))
        self._call_all(run, "generate", [(order, rank) for rank in range(task.gang)], self._generated)

    def _generated(self, run: GangRun, n: int, part: Part) -> None:
        """Keeps the image once all members are done."""
        run.parts[n] = part
        if run.at_work:
            return
        task, first = run.task, run.parts[run.members[0]]
        assert first.png is not None
        try:
            self._store.keep_image(task, first.png)
        except FileError as error:
            self._fail(run, str(error), retry=False)
            return
        for member in run.members:
            self.servers[member].group = run.group
        self._end_attempt(run, None)
        self.predictor.measured(
            task.gang,
            load_s=run.loaded_s - run.launched_s if run.loads else None,
            rest_s=run.rest_s,
            steps=run.attempt.steps,
        )
        self._keep_times()
        task.quality = float(quality(float(run.attempt.steps), LAWS.index(self.plan.setting.quality)))
        self._close(task, "done", None)
        self._free(run)

    # Failures

    def _fail(
        self, run: GangRun, reason: str, *, retry: bool = True, fault: Fault = "task", lost_others: bool = False
    ) -> None:
        """Gives up a run: its gang is dissolved, members still at work are told to leave, the task is tried again.

        Args:
            run: The run.
            reason: Why.
            retry: Whether another launch may do better.
            fault: Whose fault it was.
            lost_others: Whether a member said so that may only have lost another one: then all members are waited for
                before the task is queued again or fails.
        """
        run.failure = reason
        self._end_attempt(run, reason, fault)
        self._question.dissolve(run.members[0])
        for n in run.members:
            self.servers[n].group = 0
        if run.phase != "loading":
            run.until_s = self._clock() + self.plan.limits.lease_s / 2
        for n in sorted(run.at_work):
            self._workers.call(n, "leave", run.number, reply=functools.partial(self._left, n, self.servers[n].life))
        run.open = lost_others
        if not lost_others:
            self._settle(run, retry)
        self._free(run)

    def _settle(self, run: GangRun, retry: bool = True) -> None:
        """Queues the task of a run that failed again, or ends it."""
        run.open = False
        task, reason = run.task, run.attempt.error
        if task.state != "running":  # canceled meanwhile
            return
        faults = [attempt.fault for attempt in task.attempts if attempt.error is not None]
        tries, losses = faults.count("task"), faults.count("worker")
        if not retry:
            self._close(task, "failed", reason)
        elif losses >= self.plan.losses:
            self._close(task, "failed", f"{reason}; {losses} launches of it lost a worker: it may be what ends them")
        elif tries < self.plan.tries:
            self._wait(task)
        else:
            self._close(task, "failed", reason if tries == 1 else f"{reason} (attempt {tries} of {self.plan.tries})")

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
        self.changed = True

    def _end_attempt(self, run: GangRun, error: str | None, fault: Fault = "task") -> None:
        """Writes the end of a launch into its record."""
        now_s = self._clock()
        run.attempt.fault = fault
        run.end(now_s, self._unix(now_s), self.plan.setting.servers, error)

    def _close(self, task: ImageTask, state: Literal["done", "failed"], reason: str | None) -> None:
        """Ends a task."""
        task.state, task.reason = state, reason
        task.ended_unix_s = self._unix(self._clock())
        if state == "done":
            task.response_s = task.ended_unix_s - task.submitted_unix_s
        if task in self.queue:
            self.queue.remove(task)
        self._keep(task)
        self.changed = True
        self.on_end(task)

    # Workers

    def _starting(self, n: int, ready_s: float) -> None:
        """Takes in that the worker of a server starts."""
        self._question.expect(n, ready_s)
        self._question.held_N[n] = NOBODY
        self.changed = True

    def _ready(self) -> None:
        """Takes in that a worker is ready."""
        self.changed = True

    def _died(self, n: int, run: GangRun | None, reason: str) -> None:
        """Frees the gang of a worker that is gone."""
        self.note(reason)
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

    def _suspend(self, reason: str, now_s: float) -> None:
        """Takes in that all that runs the workers is gone: tasks that ran wait again, and it is restarted."""
        self.note(f"{reason}; it is started again, tasks wait meanwhile")
        self._health.suspend()
        self._question.held_N[:] = NOBODY
        for run in self.runs.values():
            self._question.dissolve(run.members[0])
            if run.failure is None or run.open:
                self._end_attempt(run, run.failure or reason, "service")
                self._wait(run.task)
        self.runs.clear()
        self._restart_s = now_s

    def _restarted(self, answer: Any) -> None:
        """Starts the workers once they can be started again; else tries again later."""
        if isinstance(answer, Exception):
            self.note(f"no worker can be started yet: {answer}; next attempt in {RESTART_S:g} s")
            self._restart_s = self._clock() + RESTART_S
            return
        self._restart_s = None
        for n in range(len(self.servers)):
            self._health.start(n)

    def note(self, text: str) -> None:
        """Notes what whoever runs the service must know."""
        if text not in self.notes[-NOTES:]:
            self.notes.append(text)
            del self.notes[:-NOTES]
        self.changed = True

    def _resume(self, task: ImageTask) -> None:
        """Queues a task of an earlier service again, if this one can carry it out."""
        if task.model not in self._models or task.gang not in gang_sizes(self.plan.setting):
            self._close(task, "failed", "the service was started again without its model or its gang size")
            return
        for attempt in task.attempts:
            if attempt.ended_unix_s is None:
                attempt.ended_unix_s, attempt.error = attempt.launched_unix_s, KILLED
                attempt.fault = "service"
        self._wait(task)

    def _forget_old(self) -> None:
        """Deletes tasks that ended longer ago than they are kept."""
        oldest_unix_s = self.now_unix_s - self.plan.retain_s
        for task in [t for t in self.tasks.values() if t.ended_unix_s is not None and t.ended_unix_s < oldest_unix_s]:
            try:
                self._store.forget(task)
            except OSError as error:
                self.note(f"{task.id} cannot be deleted: {error}")
            else:
                del self.tasks[task.id]
                self.changed = True

    def _read_times(self) -> None:
        """Takes in what the last service measured, if it ran the same."""
        content = self._store.read_times()
        if isinstance(content, dict) and content.get("of") == self.plan.measured_for():
            try:
                self.predictor.load_state(content.get("times"))
            except ValueError as error:
                self.note(f"times are measured again: {error}")

    def _keep_times(self) -> None:
        """Writes what has been measured, for the next service."""
        try:
            self._store.keep_times({"of": self.plan.measured_for(), "times": self.predictor.state()})
        except FileError as error:
            self.note(f"measured times are not kept: {error}")

    def _wait(self, task: ImageTask) -> None:
        """Queues a task by its submission."""
        task.state = "queued"
        bisect.insort(self.queue, task, key=lambda each: (each.submitted_unix_s, each.id))
        self._keep(task)

    def _keep(self, task: ImageTask) -> None:
        """Writes a task's record; a disk that is full stops no service."""
        try:
            self._store.keep(task)
        except FileError as error:
            self.note(f"the record of {task.id} is not up to date: {error}")

    def _unix(self, now_s: float) -> float:
        return self._start_unix_s + now_s

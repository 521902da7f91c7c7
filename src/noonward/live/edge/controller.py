"""The controller of a service: asks the scheduler, has its launches carried out, restarts what runs the workers.

It runs in one thread and never blocks: calls to workers return at once, their answers come as calls of its methods,
and ``tick`` does what is due. Nothing in it knows Ray or torch. Tasks are kept by ``noonward.live.edge.task_list``,
launches carried out by ``noonward.live.edge.launches``. When all that runs the workers is gone (``Workers.outage``), it
is started again; tasks wait meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import numpy as np

from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.live.edge.gang_run import GangRun
from noonward.live.edge.launches import Launches
from noonward.live.edge.notes import Notes
from noonward.live.edge.plan import Plan, new_task
from noonward.live.edge.predictor import Predictor
from noonward.live.edge.question import Launch, Question, Waiting
from noonward.live.edge.server import Server
from noonward.live.edge.task_list import TaskList
from noonward.live.edge.tasks import ImageTask, TaskStore, number_of
from noonward.live.edge.workers import Workers
from noonward.live.refusals import NoSuchJobError, NotYoursError
from noonward.model.edge.tasks import NO_DEADLINE_S

CANCELED: Final = "it was canceled"
"""Why a task failed that nobody wanted any longer."""
STOPPED: Final = "the service was stopped"
"""Why a launch ended that is no fault of its own."""
RESTART_S: Final = 10.0
"""Seconds between two attempts to restart what runs the workers."""
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

    Attributes:
        notes: What whoever runs the service must know.
        task_list: Its tasks.
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
        self.plan, self.scheduler, self._workers = plan, scheduler, workers
        self._clock, self._start_unix_s = clock, start.timestamp()
        setting = plan.setting
        scheduler.reset(EdgeBrief(scenario=setting.name, start=start, setting=setting, signals=False), rng)
        self.notes = Notes()
        self.predictor = Predictor(setting)
        self._question = Question(setting, self.predictor, keeps=plan.load_policy == "keep")
        self.task_list = TaskList(plan, store, lambda: self.now_unix_s, self.notes)
        self._launches = Launches(
            plan, workers, self.task_list, store, self._question, self.predictor, clock, start, self.notes
        )
        self._models = {model.name: i for i, model in enumerate(plan.models)}
        self._ask_again_s = math.inf
        self._restart_s: float | None = None
        """When what runs the workers is started again, s since second 0; infinite while it is; None while it runs."""
        self._tidy_s = -math.inf
        self.task_list.resume()
        self._launches.start_workers()

    @property
    def now_unix_s(self) -> float:
        """Now, Unix seconds."""
        return self._unix(self._clock())

    @property
    def tasks(self) -> dict[str, ImageTask]:
        """All tasks by id."""
        return self.task_list.by_id

    @property
    def queue(self) -> list[ImageTask]:
        """Tasks that wait, oldest first."""
        return self.task_list.queue

    @property
    def servers(self) -> list[Server]:
        """Servers and their workers."""
        return self._launches.servers

    @property
    def runs(self) -> dict[int, GangRun]:
        """Launches on their way, by number."""
        return self._launches.runs

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
        owner: str = "",
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
            owner: Name of the token that submits it.

        Raises:
            ScenarioError: The service cannot carry it out; the message says what is allowed.
            StoreError: Its record cannot be written; it is not queued.
        """
        number, more = self.task_list.next_number, (negative, guidance, size)
        task = new_task(self.plan, number, prompt, gang, seed, model, steps_max, self.now_unix_s, deadline_s, *more)
        task.owner = owner
        self.task_list.add(task)
        return task

    def cancel(self, name: str, *, only_of: str | None = None) -> ImageTask:
        """Ends a task that is queued or running as failed; one that has ended stays as it is. Returns it.

        Args:
            name: Its id.
            only_of: Owner whose tasks alone may be canceled; None: all may.

        Raises:
            NoSuchJobError: There is no such task.
            NotYoursError: It is another owner's.
        """
        task = self.task(name)
        if only_of is not None and task.owner != only_of:
            raise NotYoursError(f"{name} was submitted by {task.owner}; only its owner and administrators cancel it")
        if task.state == "queued":
            self.task_list.close(task, "failed", CANCELED)
        elif task.state == "running":
            self._launches.cancel(task, CANCELED)
        return task

    def task(self, name: str) -> ImageTask:
        """Returns a task.

        Raises:
            NoSuchJobError: There is none of that id.
        """
        task = self.tasks.get(name)
        if task is None:
            raise NoSuchJobError(f"there is no task {name!r}; 'noonward edge status' lists them")
        return task

    # What is due

    def tick(self) -> float:
        """Does what is due now; returns when it is to be called again if nothing happens before, s since second 0."""
        now_s = self._clock()
        if self._restart_s is None and (outage := self._workers.outage()):
            self.notes.add(f"{outage}; it is started again, tasks wait meanwhile")
            self._launches.suspend(outage)
            self._restart_s = now_s
        if self._restart_s is not None and now_s >= self._restart_s:
            self._restart_s = math.inf
            self._workers.restart(self._restarted)
        if now_s - self._tidy_s >= TIDY_S:
            self._tidy_s = now_s
            self.task_list.forget_old()
        due = [self._launches.check(now_s)]
        for task in list(self.queue):
            self._check_waiting(task, now_s)
        self._decide(now_s)
        due += [self._ask_again_s, *([] if self._restart_s is None else [self._restart_s])]
        due += [run.until_s for run in self.runs.values()]
        due += [t.deadline_unix_s - self._start_unix_s for t in self.queue if t.deadline_unix_s is not None]
        return min(due)

    def stop(self) -> None:
        """Ends all that runs; the tasks are queued again, for the next service in this folder."""
        self._launches.stop(STOPPED)

    def _check_waiting(self, task: ImageTask, now_s: float) -> None:
        """Fails a waiting task that has become impossible."""
        usable = sum(server.state != "lost" for server in self.servers)
        if task.deadline_unix_s is not None and self._unix(now_s) > task.deadline_unix_s:
            self.task_list.close(task, "failed", "the deadline passed while it waited")
        elif task.gang > usable:
            self.task_list.close(task, "failed", f"it needs {task.gang} servers, and {usable} can be started")

    def _restarted(self, answer: Any) -> None:
        """Starts the workers once they can be started again; else tries again later."""
        if isinstance(answer, Exception):
            self.notes.add(f"no worker can be started yet: {answer}; next attempt in {RESTART_S:g} s")
            self._restart_s = self._clock() + RESTART_S
            return
        self._restart_s = None
        self._launches.start_workers()

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
                self.notes.add(f"the scheduler failed, the oldest task that fits was launched: {error!r}")
                answer = self._question.first_fit()
            if not isinstance(answer, Launch):
                self._ask_again_s = max(answer, now_s + self.plan.setting.tick_s)
                return
            self._launches.begin(self._batch(answer.place), answer, now_s)

    def _batch(self, place: int) -> list[ImageTask]:
        """Takes a task from the queue, with the oldest that can be drawn in the same run.

        They ask for the same model, gang, size, steps and guidance, and were in no launch of several that failed.
        """
        first = self.queue.pop(place)
        most = 1 if first.alone else self.plan.batch
        others = [task for task in self.queue if task.like == first.like and not task.alone][: most - 1]
        for task in others:
            self.queue.remove(task)
        return [first, *others]

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

    def _unix(self, now_s: float) -> float:
        return self._start_unix_s + now_s

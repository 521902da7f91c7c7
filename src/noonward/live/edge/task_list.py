"""The tasks of a service: those that wait in order, those that have ended, and their records on the disk."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Final, Literal

from noonward.live.edge.notes import Notes
from noonward.live.edge.plan import Plan, gang_sizes
from noonward.live.edge.tasks import ImageTask, TaskStore
from noonward.live.store.database import StoreError

KILLED: Final = "the service was killed"
"""Why a launch ended of which the record says nothing more."""


class TaskList:
    """Tasks in memory, each written to its record as it changes.

    Args:
        plan: What the service runs.
        store: Where the records are.
        now_unix_s: Returns the time, Unix seconds.
        notes: Where what goes wrong is noted.

    Attributes:
        by_id: All tasks by id.
        queue: Tasks that wait, oldest first.
        on_end: Called when a task is done or failed.
    """

    def __init__(self, plan: Plan, store: TaskStore, now_unix_s: Callable[[], float], notes: Notes) -> None:
        self._plan, self._store, self._now_unix_s, self._notes = plan, store, now_unix_s, notes
        self.by_id, unreadable = store.read()
        for note in unreadable:
            notes.add(note)
        self.next_number = store.first_free()
        self.queue: list[ImageTask] = []
        self.on_end: Callable[[ImageTask], None] = lambda task: None

    def add(self, task: ImageTask) -> None:
        """Queues a new task of the next number.

        Raises:
            StoreError: Its record cannot be written; it is not queued.
        """
        self._store.keep(task)
        self.next_number += 1
        self.by_id[task.id] = task
        self.queue.append(task)
        self._notes.changed = True

    def resume(self) -> None:
        """Queues the tasks of an earlier service again that had not ended, if this one can carry them out."""
        models, sizes = {model.name for model in self._plan.models}, gang_sizes(self._plan.setting)
        for task in [task for task in self.by_id.values() if task.state in ("queued", "running")]:
            if task.model not in models or task.gang not in sizes:
                self.close(task, "failed", "the service was started again without its model or its gang size")
                continue
            for attempt in task.attempts:
                if attempt.ended_unix_s is None:
                    attempt.ended_unix_s, attempt.error = attempt.launched_unix_s, KILLED
                    attempt.fault = "service"
            self.wait(task)

    def wait(self, task: ImageTask) -> None:
        """Queues a task by its submission."""
        task.state = "queued"
        bisect.insort(self.queue, task, key=lambda each: (each.submitted_unix_s, each.id))
        self.keep(task)

    def close(self, task: ImageTask, state: Literal["done", "failed"], reason: str | None) -> None:
        """Ends a task."""
        task.state, task.reason = state, reason
        task.ended_unix_s = self._now_unix_s()
        if state == "done":
            task.response_s = task.ended_unix_s - task.submitted_unix_s
        if task in self.queue:
            self.queue.remove(task)
        self.keep(task)
        self._notes.changed = True
        self.on_end(task)

    def keep(self, task: ImageTask) -> None:
        """Writes a task's record; a disk that is full stops no service."""
        try:
            self._store.keep(task)
        except StoreError as error:
            self._notes.add(f"the record of {task.id} is not up to date: {error}")

    def forget_old(self) -> None:
        """Deletes tasks that ended longer ago than they are kept."""
        oldest_unix_s = self._now_unix_s() - self._plan.retain_s
        for task in [t for t in self.by_id.values() if t.ended_unix_s is not None and t.ended_unix_s < oldest_unix_s]:
            try:
                self._store.forget(task)
            except (OSError, StoreError) as error:
                self._notes.add(f"{task.id} cannot be deleted: {error}")
            else:
                del self.by_id[task.id]
                self._notes.changed = True

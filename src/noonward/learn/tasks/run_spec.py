"""Runs that a learner plays, as specs: any executor carries them out, with the results of one process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from noonward.learn.tasks.task import Plays

CarryOut = Callable[[Sequence[Any], Callable[[str], None]], list[Any]]
"""Carries out specs, calls a function after each, and returns their results in order: ``map_runs`` of an executor."""


@dataclass(frozen=True, eq=False)
class RunSpec:
    """One run of a task's whole runs (``Plays``).

    Attributes:
        task: What is trained in, a ``TaskConfig``.
        seed: Number of its draw of training environments.
        what: Method of ``Plays``.
        number: Number of the window.
        more: Its other arguments.
    """

    portable: ClassVar[bool] = True

    task: Any
    seed: int
    what: Literal["study", "play", "worth"]
    number: int
    more: tuple[Any, ...]

    @property
    def label(self) -> str:
        """What is done in which window."""
        return f"{self.what}, window {self.number}"

    @property
    def group(self) -> Hashable:
        """A worker that has drawn a window keeps it."""
        return self.what == "worth", self.number

    def run(self) -> Any:
        """Returns what the method returns."""
        return getattr(_plays_of(self.task, self.seed), self.what)(self.number, *self.more)

    def keep(self, found: Any) -> Any:
        """Returns the result: nothing is written."""
        return found


@functools.lru_cache(maxsize=1)
def _plays_of(task: Any, seed: int) -> Plays:
    """Returns a task's whole runs, opened once in a process."""
    plays: Plays | None = task.open(seed).plays
    assert plays is not None  # the program that made the spec has seen to it
    return plays

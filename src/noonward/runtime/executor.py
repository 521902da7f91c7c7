"""The seam for running many: specs say what to do, an executor says where, ``map_runs`` puts both together.

Every loop over runs goes through here. A spec is pure: what it returns depends on its fields alone. So every executor
gives the same results, byte for byte, and a spec whose worker dies can run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar, Protocol

from noonward.notices import tell
from noonward.runtime.shared import Shared, forget
from noonward.runtime.work import Work, measured

Progress = Callable[[str], None]
"""Called once per spec that is done, with its label."""


class Spec(Protocol):
    """One piece of work: a small, frozen, picklable object.

    Attributes:
        label: What progress says when it is done.
        group: Specs of a group share what is costly to build (an environment); a worker stays with a group if it can.
        portable: Whether another process can carry it out; False for policies that only this process knows.
    """

    @property
    def label(self) -> str:
        """What progress says when it is done."""

    @property
    def group(self) -> Hashable:
        """Specs of a group share what is costly to build."""

    @property
    def portable(self) -> bool:
        """Whether another process can carry it out."""

    def run(self) -> Any:
        """Returns the result, which must be picklable. Writes nothing that lasts but checkpoints that ``keep`` removes.

        It may run more than once.
        """

    def keep(self, found: Any) -> Any:
        """Writes what ``run`` found, in the process that called ``map_runs``, as soon as it is there; returns it."""


class PlainSpec(ABC):
    """A spec that any process can carry out, that shares nothing with others, and whose result is not written."""

    portable: ClassVar[bool] = True

    @property
    @abstractmethod
    def label(self) -> str:
        """What progress says when it is done."""

    @property
    def group(self) -> Hashable:
        """Each is a group of its own."""
        return self.label

    @abstractmethod
    def run(self) -> Any:
        """Returns the result."""

    def keep(self, found: Any) -> Any:
        """Returns the result: nothing is written."""
        return found


def comes_last(spec: Any) -> bool:
    """Returns whether a spec begins only when every other one has begun: one with a field ``last`` that is true."""
    return bool(getattr(spec, "last", False))


def shares_of(spec: Any) -> Shared | None:
    """Returns what a spec shares with others, if it has a field ``shares`` that says so."""
    common: Shared | None = getattr(spec, "shares", None)
    return common


class Executor(Protocol):
    """Carries out specs.

    Attributes:
        work: What it has carried out so far.
    """

    work: Work

    def each(self, specs: Sequence[Spec]) -> Iterator[tuple[int, Any]]:
        """Yields (position, what ``run`` found) of every spec, in the order they finish.

        Raises:
            BaseException: What a spec raised: of several, that of the first in order, after all before it are done.
        """

    def close(self) -> None:
        """Ends workers; the executor starts new ones if it is used again."""


class Serial:
    """Carries out one spec after the other, in this process."""

    def __init__(self) -> None:
        self.work = Work()

    def each(self, specs: Sequence[Spec]) -> Iterator[tuple[int, Any]]:
        """Yields every spec's result, in order."""
        with self.work.under_way():
            for place, spec in enumerate(specs):
                tell("progress", spec.label)
                found, cost = measured(spec.run)
                self.work.add(cost)
                yield place, found

    def close(self) -> None:
        """Does nothing: there are no workers."""


def map_runs(
    specs: Sequence[Spec],
    executor: Executor | None = None,
    progress: Progress | None = None,
    kept_one: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Carries out specs and returns what they kept, in their order.

    What is done is kept at once, so that an interrupt or an error loses only what was under way.

    Args:
        specs: What to do.
        executor: Where; by default in this process, one after the other.
        progress: Called once per spec that is done.
        kept_one: Called with position and result of every spec that is done, in the order they finish.

    Raises:
        BaseException: What a spec raised: of several, that of the first in order.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Square:
        ...     n: int
        ...     portable = True
        ...     group = None
        ...     label = "square"
        ...     def run(self):
        ...         return self.n**2
        ...     def keep(self, found):
        ...         return found
        >>> map_runs([Square(2), Square(3)])
        [4, 9]
    """
    kept: list[Any] = [None] * len(specs)
    try:
        with closing((executor or Serial()).each(specs)) as results:  # type: ignore[type-var]
            for place, found in results:
                kept[place] = specs[place].keep(found)
                if kept_one is not None:
                    kept_one(place, kept[place])
                if progress is not None:
                    progress(specs[place].label)
    finally:
        forget()
    return kept

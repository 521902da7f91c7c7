"""How work was shared: the CPU time of every spec, the time that all took together, and who carried them out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from noonward.runtime.shared import taken_to_build


@dataclass(frozen=True)
class Cost:
    """What carrying out a spec took.

    Attributes:
        cpu_s: CPU time without ``built_s``, s.
        built_s: CPU time of building what the spec shares with others, s, by a name of that.
        worker: Process that did it.
        node: Node that it ran on; empty: this machine.
    """

    cpu_s: float
    built_s: dict[str, float]
    worker: int
    node: str


def measured(run: Callable[[], Any], node: str = "") -> tuple[Any, Cost]:
    """Calls a function; returns what it returns, and what it took in this process, all threads together."""
    taken_to_build()
    began_s = time.process_time()
    found = run()
    spent_s = time.process_time() - began_s
    built_s = taken_to_build()
    return found, Cost(spent_s - sum(built_s.values()), built_s, os.getpid(), node)


@dataclass
class Work:
    """What an executor has carried out so far.

    CPU time is what specs themselves took, wherever they ran: without the start of workers and without the program that
    writes their results. What specs share (an environment) counts once, however many workers built it. So it is close
    to what one core would have needed alone, and ``speedup`` is how many times as fast as that the work was done. It
    still counts what every worker does for itself, such as loading compiled functions, and cores that
    wait for each other's memory take longer for the same: both make it larger.

    Attributes:
        runs: Specs that were carried out.
        wall_s: Time in which they were, the start of workers and the writing of results included, s.
        offered: Cores that were there, at most.
    """

    runs: int = 0
    wall_s: float = 0.0
    offered: int = 1
    _cpu_s: float = 0.0
    _built_s: dict[str, float] = field(default_factory=dict)
    _workers: set[tuple[str, int]] = field(default_factory=set)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Counts the time of carrying out specs."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.wall_s += time.monotonic() - began_s

    def add(self, cost: Cost, runs: int = 1) -> None:
        """Adds what some specs took."""
        self.runs += runs
        self._cpu_s += cost.cpu_s
        for name, spent_s in cost.built_s.items():
            self._built_s[name] = max(self._built_s.get(name, 0.0), spent_s)
        self._workers.add((cost.node, cost.worker))

    @property
    def cpu_s(self) -> float:
        """CPU time of all specs, s."""
        return self._cpu_s + sum(self._built_s.values())

    @property
    def cores(self) -> int:
        """Cores that carried out specs: one per worker, but no more than there were (a dead worker is replaced)."""
        return min(len(self._workers), self.offered)

    @property
    def nodes(self) -> int:
        """Nodes that carried out specs."""
        return len({node for node, _ in self._workers})

    @property
    def speedup(self) -> float:
        """How many times as fast as one core: CPU time per wall-clock time."""
        return self.cpu_s / self.wall_s if self.wall_s else 1.0

    def as_dict(self) -> dict[str, float]:
        """Returns the figures by name."""
        names = ("runs", "cpu_s", "wall_s", "cores", "nodes", "speedup")
        return {name: getattr(self, name) for name in names}

    def told(self, unit: str = "runs") -> str:
        """Returns it in a sentence.

        Args:
            unit: What specs are, in the plural.

        Example:
            >>> work = Work(wall_s=118.0, offered=4)
            >>> for worker in range(4):
            ...     work.add(Cost(103.0, {}, worker, node="ab"[worker // 2]), runs=6)
            >>> work.told()
            '24 runs, 412 CPU-s in 118 s on 4 cores of 2 nodes: 3.5 times as fast as one core'
        """
        of_nodes = f" of {self.nodes} nodes" if self.nodes > 1 else ""
        return (
            f"{self.runs:,} {unit}, {_seconds(self.cpu_s)} CPU-s in {_seconds(self.wall_s)} s on {self.cores} "
            f"cores{of_nodes}: {self.speedup:.1f} times as fast as one core"
        )


def _seconds(seconds: float) -> str:
    """Returns seconds in whole ones, few of them with a decimal."""
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"

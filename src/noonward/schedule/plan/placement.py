"""Real-time placement: every job goes where its class lags furthest behind the plan (Hall et al., Eq. 15)."""

from __future__ import annotations

from typing import Any

import numpy as np

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.errors import ScenarioError
from noonward.schedule.plan.result import Fractions

VALUE, PLACED = 0, 1
"""Positions in ``cell_X2``: fraction Y, volume placed this hour."""


@kernel(inline=True, allocates=False)
def _furthest(first_L: I8, cell_X2: F8, total_L: F8, row: int, volume: float) -> int:
    """Returns the position where a job goes and books it: ``argmax Y - placed / total``, Eq. (15).

    Compared as ``Y total - placed``, which has the same order without a division; with nothing placed as Y.
    """
    total = total_L[row]
    scale = total if total > 0.0 else 1.0
    best = first_L[row]
    most = cell_X2[best, 0] * scale - cell_X2[best, 1]
    for x in range(best + 1, first_L[row + 1]):
        lag = cell_X2[x, 0] * scale - cell_X2[x, 1]
        if lag > most:
            best, most = x, lag
    cell_X2[best, 1] += volume
    total_L[row] = total + volume
    return best


@kernel(inline=True, allocates=False)
def _turn(first_L: I8, cell_X2: F8, total_L: F8, clock_1: I8, hour: int, classes: int) -> None:
    """Sets the counters of an hour to zero when it begins."""
    clock_1[0] = hour
    for row in range(hour * classes, (hour + 1) * classes):
        total_L[row] = 0.0
        for x in range(first_L[row], first_L[row + 1]):
            cell_X2[x, 1] = 0.0


@kernel(allocates=False)
def _place(
    first_L: I8, cell_X2: F8, total_L: F8, clock_1: I8, classes: int, hour: int, load_class: int, volume: float
) -> int:
    """Places one job; returns its position."""
    if clock_1[0] != hour:
        _turn(first_L, cell_X2, total_L, clock_1, hour, classes)
    return _furthest(first_L, cell_X2, total_L, hour * classes + load_class, volume)


@kernel(allocates=False)
def _place_hour(
    first_L: I8,
    cell_X2: F8,
    total_L: F8,
    clock_1: I8,
    classes: int,
    hour: int,
    class_J: I8,
    volume_J: F8,
    position_J: I8,
) -> None:
    """Places the jobs of one hour in order."""
    if clock_1[0] != hour:
        _turn(first_L, cell_X2, total_L, clock_1, hour, classes)
    row = hour * classes
    for j in range(class_J.shape[0]):
        position_J[j] = _furthest(first_L, cell_X2, total_L, row + class_J[j], volume_J[j])


class Tracker:
    """Places jobs so that the shares placed follow a plan's fractions.

    The job of class c submitted in hour k with some volume goes to ``argmax_(d,t) Y_kctd - placed_kctd / total_kc``
    over the support of Y, where ``placed`` and ``total`` are the volumes of its class placed before it in this hour;
    of equals the earliest hour, then the first cluster. Counters start from zero in every hour. A job costs as many
    steps as its class has places in this hour, 1 to 7 in plans.

    Args:
        fractions: What to follow.

    Example:
        >>> half = Fractions(hours=1, classes=1, span=1, clusters=2, first_L=np.array([0, 2]),
        ...     run_hour_X=np.array([0, 0]), cluster_X=np.array([0, 1]), value_X=np.array([0.5, 0.5]))
        >>> tracker = Tracker(half)
        >>> [tracker.place(0, 0, 1.0) for _ in range(4)]
        [(0, 0), (0, 1), (0, 0), (0, 1)]
    """

    def __init__(self, fractions: Fractions) -> None:
        self.fractions = fractions
        self._first_L = np.ascontiguousarray(fractions.first_L, dtype=np.int64)
        self._cell_X2 = np.zeros((len(fractions.value_X), 2))
        self._cell_X2[:, VALUE] = fractions.value_X
        self._total_L = np.zeros(len(self._first_L) - 1)
        self._clock_1 = np.array([-1], dtype=np.int64)
        self._state: tuple[Any, ...] = (self._first_L, self._cell_X2, self._total_L, self._clock_1, fractions.classes)
        self._where = list(zip(fractions.run_hour_X.tolist(), fractions.cluster_X.tolist(), strict=True))

    def reset(self) -> None:
        """Forgets what was placed, as before the first job."""
        self._clock_1[0] = -1

    def state(self) -> dict[str, Any]:
        """Returns the fractions followed and what was placed this hour as plain data, for ``of_state``."""
        fractions = self.fractions
        sizes = [fractions.hours, fractions.classes, fractions.span, fractions.clusters]
        arrays = {name: getattr(fractions, name).copy() for name in ("first_L", "run_hour_X", "cluster_X", "value_X")}
        placed = {"cell_X2": self._cell_X2.copy(), "total_L": self._total_L.copy(), "clock_1": self._clock_1.copy()}
        return {"sizes": sizes, **arrays, **placed}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Tracker:
        """Returns the tracker of a ``state``; it knows of the fractions only what placement needs."""
        hours, classes, span, clusters = state["sizes"]
        fractions = Fractions(
            hours=hours,
            classes=classes,
            span=span,
            clusters=clusters,
            first_L=np.array(state["first_L"]),
            run_hour_X=np.array(state["run_hour_X"]),
            cluster_X=np.array(state["cluster_X"]),
            value_X=np.array(state["value_X"]),
        )
        tracker = cls(fractions)
        for name in ("cell_X2", "total_L", "clock_1"):
            getattr(tracker, f"_{name}")[:] = state[name]
        return tracker

    def place(self, hour: int, load_class: int, volume: float) -> tuple[int, int]:
        """Places one job.

        Args:
            hour: Submission hour k; a change of hour resets the counters.
            load_class: Class c.
            volume: Volume, at least 0.

        Returns:
            Execution hour t and cluster d.

        Raises:
            ScenarioError: Hour or class is not in the plan.
        """
        if not (0 <= hour < self.fractions.hours and 0 <= load_class < self.fractions.classes):
            raise self._unknown(hour, load_class)
        return self._where[_place(*self._state, hour, load_class, volume)]

    def place_hour(self, hour: int, class_J: I8, volume_J: F8) -> tuple[I8, I8]:
        """Places jobs of one hour in the order they come.

        Args:
            hour: Submission hour k; a change of hour resets the counters.
            class_J: Classes.
            volume_J: Volumes, at least 0.

        Returns:
            Execution hours t and clusters d.

        Raises:
            ScenarioError: The hour or a class is not in the plan, or the arrays' lengths differ.
        """
        position_J = self.positions(hour, class_J, volume_J)
        return self.fractions.run_hour_X[position_J], self.fractions.cluster_X[position_J]

    def positions(self, hour: int, class_J: I8, volume_J: F8) -> I8:
        """Returns the positions in the fractions' support where jobs of one hour go; arguments as in ``place_hour``."""
        classes = np.ascontiguousarray(class_J, dtype=np.int64)
        volumes = np.ascontiguousarray(volume_J, dtype=np.float64)
        if classes.shape != volumes.shape or classes.ndim != 1:
            raise ScenarioError(
                f"{classes.shape} classes and {volumes.shape} volumes are given; give one of each a job"
            )
        if not 0 <= hour < self.fractions.hours:
            raise self._unknown(hour, 0)
        if len(classes) and not (classes.min() >= 0 and classes.max() < self.fractions.classes):
            raise self._unknown(hour, int(classes.min() if classes.min() < 0 else classes.max()))
        out = np.empty(len(classes), dtype=np.int64)
        _place_hour(*self._state, hour, classes, volumes, out)
        return out

    def _unknown(self, hour: int, load_class: int) -> ScenarioError:
        return ScenarioError(
            f"a job of hour {hour} and class {load_class} is not in the plan, which has hours 0 to "
            f"{self.fractions.hours - 1} and classes 0 to {self.fractions.classes - 1}"
        )

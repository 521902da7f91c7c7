"""A day-ahead plan: virtual capacity curves, fractions, prices, and the certificate that it is the optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import GpuCaps
from noonward.schedule.plan.classes import places_of
from noonward.schedule.plan.problem import PlanProblem

SMALLEST = 1e-9
"""Fractions below it are left out of the support."""


@dataclass(frozen=True, kw_only=True)
class Fractions:
    """Fractions Y of the load of each submission hour and class by place, as compressed rows over their support.

    Row L = k C + c holds positions ``first_L[L]`` to ``first_L[L + 1]``; rows K C + i are those of queued load i.

    Attributes:
        hours: Submission hours K.
        classes: Classes C.
        span: Execution hours T.
        clusters: Clusters D.
        first_L: First position of each row, and the end: K C + Q + 1 values.
        run_hour_X: Hour t in which each position's load starts.
        cluster_X: Cluster d.
        value_X: Fraction, above 0; each row sums to 1.
        run_hours_C: Hours a unit of every class runs; None: one each.
        queued_class_Q: Classes of the queued loads.
    """

    hours: int
    classes: int
    span: int
    clusters: int
    first_L: I8
    run_hour_X: I8
    cluster_X: I8
    value_X: F8
    run_hours_C: I8 | None = None
    queued_class_Q: tuple[int, ...] = ()

    @classmethod
    def of(cls, problem: PlanProblem, y_M: F8) -> Fractions:
        """Returns the fractions of a solution, every row scaled to sum to 1.

        Args:
            problem: What was planned.
            y_M: Values of the problem's entries; the sum over a row is at least 1 up to the solver's tolerance.
        """
        _, hours, classes, span, clusters = problem.shape
        entries = problem.entries
        loads = hours * classes + len(problem.queued)
        kept = y_M > SMALLEST
        row_X, value_X = entries.load_M[kept], y_M[kept]
        total_L = np.bincount(row_X, value_X, minlength=loads)
        return cls(
            hours=hours,
            classes=classes,
            span=span,
            clusters=clusters,
            first_L=np.searchsorted(row_X, np.arange(loads + 1)),
            run_hour_X=entries.run_hour_M[kept],
            cluster_X=entries.cluster_M[kept],
            value_X=value_X / total_L[row_X],
            run_hours_C=problem.run_hours_C,
            queued_class_Q=tuple(wait.load_class for wait in problem.queued),
        )

    @property
    def row_X(self) -> I8:
        """Row k C + c of each position."""
        return np.repeat(np.arange(len(self.first_L) - 1), np.diff(self.first_L))

    def dense(self) -> F8:
        """Returns Y of the load to come as an array (K, C, T, D), t the hour of the start."""
        y = np.zeros((len(self.first_L) - 1, self.span, self.clusters))
        y[self.row_X, self.run_hour_X, self.cluster_X] = self.value_X
        return y[: self.hours * self.classes].reshape(self.hours, self.classes, self.span, self.clusters)

    def _at_places(self) -> F8:
        """Returns what a unit of every row's load takes of every place, (L, places)."""
        class_L = np.concatenate([np.tile(np.arange(self.classes), self.hours), self.queued_class_Q]).astype(np.int64)
        row_X = self.row_X
        run_hours_C = np.ones(self.classes, dtype=np.int64) if self.run_hours_C is None else self.run_hours_C
        index, place = places_of(run_hours_C, class_L[row_X], self.run_hour_X, self.cluster_X, self.clusters)
        out = np.zeros((len(class_L), self.span * self.clusters))
        np.add.at(out, (row_X[index], place), self.value_X[index])
        return out

    def load(self, load_NKC: F8) -> F8:
        """Returns the load at every place if the fractions are followed exactly, (N, T, D) (or (T, D) for one day).

        Queued load is not in it (``queued_load``).

        Raises:
            ScenarioError: The load has another shape.
        """
        load = np.asarray(load_NKC, dtype=np.float64)
        if load.shape[-2:] != (self.hours, self.classes):
            raise ScenarioError(f"load has shape {load.shape}; expected (..., {self.hours}, {self.classes})")
        out = load.reshape(*load.shape[:-2], -1) @ self._at_places()[: self.hours * self.classes]
        return self._grid(out)

    def queued_load(self, load_Q: F8) -> F8:
        """Returns the load of queued loads at every place, (T, D)."""
        return self._grid(np.asarray(load_Q, dtype=np.float64) @ self._at_places()[self.hours * self.classes :])

    def _grid(self, load_P: F8) -> F8:
        return load_P.reshape(*load_P.shape[:-1], self.span, self.clusters)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Proof that a plan is the optimum of the whole LP, generated rows or not.

    Attributes:
        violation: Largest amount, in units of load, by which any row of the whole LP is violated, generated or not.
        gap: Objective less dual bound, over the objective's size.
        rows: Sample rows that were generated.
        rows_whole: Sample rows of the whole LP, N T D.
        slopes: Rows ``x <= lambda`` that were generated.
        rounds: Times an LP was solved.
        iterations: Simplex and interior-point iterations.
        cpu_s: CPU time of building and solving, s.
    """

    violation: float
    gap: float
    rows: int
    rows_whole: int
    slopes: int
    rounds: int
    iterations: int
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Duals of a plan, in the objective's money.

    Attributes:
        capacity_TD: What one unit more of machine capacity would save, at least 0.
        place_TD: What one unit more of load at a place would cost: running cost, share of the peak and of scarcity.
        service_KC: What one more share of the load of a class and hour would cost: its load at the best place.
        queued_Q: The same for queued loads.
    """

    capacity_TD: F8
    place_TD: F8
    service_KC: F8
    queued_Q: F8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A day-ahead plan.

    Attributes:
        problem: What was planned.
        curve_TD: Virtual capacity curves v, load placed before included.
        fractions: Fractions Y.
        objective: f(v), Eq. (7).
        slope: Lambda: the largest slope of the worst load in any one sample's load; 0 without a radius.
        prices: Duals.
        certificate: Proof of optimality.
    """

    problem: PlanProblem
    curve_TD: F8
    fractions: Fractions
    objective: float
    slope: float
    prices: Prices
    certificate: Certificate

    def known_load(self) -> F8:
        """Returns the load that is certain: placed before, and queued load where the plan starts it."""
        known = self.fractions.queued_load(np.array([wait.load for wait in self.problem.queued]))
        return known if self.problem.placed_TD is None else known + self.problem.placed_TD

    def excess(self, load_NKC: F8) -> F8:
        """Returns per day the largest load above the curve at any place, Eq. (9); negative where all fits."""
        over = self.fractions.load(load_NKC) + self.known_load() - self.curve_TD
        out: F8 = over.max(axis=(-2, -1))
        return out

    def caps(self, *, hard: bool = True, unit: float = 1.0) -> GpuCaps:
        """Returns the curves as the cluster engine's capacity curves.

        Args:
            hard: Whether the engine refuses starts beyond a curve, or only counts the excess.
            unit: GPUs per unit of load.
        """
        return GpuCaps(gpus_SH=np.ascontiguousarray(self.curve_TD.T) * unit, hard=hard)


def tail_mean(excess_N: F8, beta: float) -> float:
    """Returns the CVaR of equally likely values: the mean of the worst share ``beta``, Definition 1.

    Args:
        excess_N: Values.
        beta: Tail, in (0, 1]; a value that straddles the tail's end counts with the part inside.

    Raises:
        ScenarioError: There is no value, or beta is out of range.

    Example:
        >>> tail_mean(np.array([4.0, 1.0, 2.0, 3.0]), 0.5), tail_mean(np.array([4.0, 1.0]), 0.75)
        (3.5, 3.0)
    """
    values = np.sort(np.asarray(excess_N, dtype=np.float64))[::-1]
    if len(values) == 0:
        raise ScenarioError("there is no day to take a tail of; give at least one")
    if not 0 < beta <= 1:
        raise ScenarioError(f"beta is {beta}; it must be above 0 and at most 1")
    share_N = np.clip(beta * len(values) - np.arange(len(values)), 0.0, 1.0)
    return float(share_N @ values / share_N.sum())

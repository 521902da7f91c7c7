"""A day-ahead plan: virtual capacity curves, fractions, prices, and the certificate that it is the optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noonward.errors import ScenarioError
from noonward.model.environment import GpuCaps
from noonward.schedule.plan.problem import Entries, PlanProblem

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]

SMALLEST = 1e-9
"""Fractions below it are left out of the support."""


@dataclass(frozen=True, kw_only=True)
class Fractions:
    """Fractions Y of the load of each submission hour and class by place, as compressed rows over their support.

    Row L = k C + c holds positions ``first_L[L]`` to ``first_L[L + 1]``.

    Attributes:
        hours: Submission hours K.
        classes: Classes C.
        span: Execution hours T.
        clusters: Clusters D.
        first_L: First position of each row, and the end: K C + 1 values.
        run_hour_X: Execution hour t of each position.
        cluster_X: Cluster d.
        value_X: Fraction, above 0; each row sums to 1.
    """

    hours: int
    classes: int
    span: int
    clusters: int
    first_L: I8
    run_hour_X: I8
    cluster_X: I8
    value_X: F8

    @classmethod
    def of(cls, entries: Entries, y_M: F8, shape: tuple[int, int, int, int]) -> Fractions:
        """Returns the fractions of a solution, every row scaled to sum to 1.

        Args:
            entries: Entries that are allowed.
            y_M: Their values; the sum over a row is at least 1 up to the solver's tolerance.
            shape: K, C, T, D.
        """
        hours, classes, span, clusters = shape
        kept = y_M > SMALLEST
        row_X, value_X = entries.load_M[kept], y_M[kept]
        total_L = np.bincount(row_X, value_X, minlength=hours * classes)
        return cls(
            hours=hours,
            classes=classes,
            span=span,
            clusters=clusters,
            first_L=np.searchsorted(row_X, np.arange(hours * classes + 1)),
            run_hour_X=entries.run_hour_M[kept],
            cluster_X=entries.cluster_M[kept],
            value_X=value_X / total_L[row_X],
        )

    @property
    def row_X(self) -> I8:
        """Row k C + c of each position."""
        return np.repeat(np.arange(len(self.first_L) - 1), np.diff(self.first_L))

    def dense(self) -> F8:
        """Returns Y as an array (K, C, T, D)."""
        y = np.zeros((self.hours * self.classes, self.span, self.clusters))
        y[self.row_X, self.run_hour_X, self.cluster_X] = self.value_X
        return y.reshape(self.hours, self.classes, self.span, self.clusters)

    def load(self, load_NKC: F8) -> F8:
        """Returns the load at every place if the fractions are followed exactly, (N, T, D) (or (T, D) for one day).

        Raises:
            ScenarioError: The load has another shape.
        """
        load = np.asarray(load_NKC, dtype=np.float64)
        if load.shape[-2:] != (self.hours, self.classes):
            raise ScenarioError(f"load has shape {load.shape}; expected (..., {self.hours}, {self.classes})")
        y_LP = self.dense().reshape(self.hours * self.classes, -1)
        out: F8 = load.reshape(*load.shape[:-2], -1) @ y_LP
        return out.reshape(*load.shape[:-2], self.span, self.clusters)


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
    """

    capacity_TD: F8
    place_TD: F8
    service_KC: F8


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

    def excess(self, load_NKC: F8) -> F8:
        """Returns per day the largest load above the curve at any place, Eq. (9); negative where all fits."""
        load_NTD = self.fractions.load(load_NKC)
        if self.problem.placed_TD is not None:
            load_NTD = load_NTD + self.problem.placed_TD
        out: F8 = (load_NTD - self.curve_TD).max(axis=(-2, -1))
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

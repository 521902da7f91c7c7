"""The planning LP in HiGHS: columns, rows that are always there, and rows that are generated when they are violated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import highspy
import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import InfeasiblePlanError
from noonward.schedule.plan.problem import PlanProblem
from noonward.solver import quiet_solver

Goal = Literal["cost", "stretch", "tail"]
"""What is minimised: f(v), the capacity needed, or the guarantee's left side less its right side."""
Method = Literal["interior", "crossover", "simplex", "choose"]
"""Interior point without a vertex, interior point with one, dual simplex from the last basis, or HiGHS' own choice."""

ROUGH: Final = 1e-4
"""Optimality tolerance of an interior-point run whose only use is to say which rows matter."""

MOST_DENSE: Final = 2**23
"""Loads x places up to which what loads weigh at places is multiplied out in full."""
NEAR_FIT: Final = 0.01
"""Room, in units of the largest load, up to which a sample row is kept for the next interior-point run."""
NEAR_SLOPE: Final = 0.02
"""Room up to which a slope row is kept for the next interior-point run."""
NEAR_FIRST: Final = 0.5
"""The same after the first LP, as a share of its lambda, which is only a guess."""

_OPTIONS: Final[dict[Method, dict[str, str | float]]] = {
    "interior": {"solver": "ipx", "run_crossover": "off", "ipm_optimality_tolerance": ROUGH},
    "crossover": {"solver": "ipx", "run_crossover": "on", "ipm_optimality_tolerance": 1e-8},
    "simplex": {"solver": "simplex"},
    "choose": {"solver": "choose"},
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A solution of the program as it stands, in the program's own units.

    Attributes:
        value: Objective.
        x: Columns.
        dual: Rows' duals.
        reduced: Columns' reduced costs.
        iterations: Simplex and interior-point iterations.
    """

    value: float
    x: F8
    dual: F8
    reduced: F8
    iterations: int


@dataclass(frozen=True, kw_only=True)
class Links:
    """What links the parts of a plan, in the problem's units.

    Attributes:
        tail_N: p of the guarantee, the excess of every sample.
        excess: q of the guarantee.
        slope: lambda.
        share_WB: Share of each load that several parts may take, by part.
    """

    tail_N: F8
    excess: float
    slope: float
    share_WB: F8


@dataclass(frozen=True, kw_only=True)
class Active:
    """Rows that (nearly) bind and columns in use: what a program of the same shape starts from.

    Attributes:
        fit_RX: Samples and places of the fit rows, (2, rows).
        slope_R: Pairs of the slope rows.
        raised_R: Pairs whose e has a column.
        links: What linked the parts of a very large plan; None otherwise.
    """

    fit_RX: I8
    slope_R: I8
    raised_R: I8
    links: Links | None = None

    @property
    def size(self) -> int:
        """Rows and columns in all."""
        return int(self.fit_RX.shape[1]) + len(self.slope_R) + len(self.raised_R)


def _units_of(problem: PlanProblem) -> tuple[float, float]:
    """Returns the largest load and the largest cost."""
    queued = max((wait.load for wait in problem.queued), default=0.0)
    largest = problem.largest_KC.max() if problem.support else 0.0
    unit = float(max(problem.load_NKC.max(), largest, queued)) or 1.0
    return unit, float(np.abs(problem.cost_TD).max() + problem.peak_cost_D.max()) or 1.0


class Program:
    """The LP of one problem, with loads in units of ``unit`` and costs in units of ``money``.

    Columns: y_M, v_P, w_P, peak_D, p_N, q, lambda, stretch, then e of the pairs raised so far. Axis
    P: places (t, d), row-major; axis G: pairs of an uncertain load and a place it may use.

    Args:
        problem: What to plan.
        goal: ``cost``: f(v), Eq. (7), at the capacity given. ``stretch``: the least g with which capacities of
            (1 + g) x ``capacity_TD`` would do. ``tail``: the least left side less right side of the guarantee.
        units: ``unit`` and ``money``; by default the problem's own.
    """

    def __init__(self, problem: PlanProblem, goal: Goal = "cost", units: tuple[float, float] | None = None) -> None:
        self.problem, self.goal = problem, goal
        self.samples, self.hours, self.classes, self.span, self.clusters = problem.shape
        self.entries = problem.entries
        self.uncertain = self.hours * self.classes
        self.loads = self.uncertain + len(problem.queued)
        self.places = problem.capacity_TD.size
        self.pairs = int(np.searchsorted(self.entries.load_G, self.uncertain))
        self.uses = int(self.entries.first_G[self.pairs])
        self.unit, self.money = units or _units_of(problem)
        self.load_NL = problem.load_NKC.reshape(self.samples, -1) / self.unit
        self.largest_L = problem.largest_KC.ravel() / self.unit
        self.queued_Q = np.array([wait.load for wait in problem.queued]) / self.unit
        self.capacity_P = problem.capacity_TD.ravel() / self.unit
        placed = np.zeros(self.places) if problem.placed_TD is None else problem.placed_TD.ravel()
        self.placed_P = placed / self.unit
        before = np.zeros(self.clusters) if problem.peak_before_D is None else problem.peak_before_D.ravel()
        self.before = before / self.unit
        self.v = len(self.entries)
        self.w = self.v + self.places
        self.peak = self.w + self.places
        self.p = self.peak + self.clusters
        self.q = self.p + self.samples
        self.lam, self.stretch = self.q + 1, self.q + 2
        self.fit_NP: I8 = np.full((self.samples, self.places), -1, dtype=np.int64)
        self.slope_G: I8 = np.full(self.pairs, -1, dtype=np.int64)
        self.raised_G: I8 = np.full(self.pairs, -1, dtype=np.int64)
        self.solver = quiet_solver()
        self._add_columns(goal)

    def _add_columns(self, goal: Goal) -> None:
        count = self.stretch + 1
        cost, lower, upper = np.zeros(count), np.zeros(count), np.full(count, np.inf)
        upper[self.v : self.w] = self.capacity_P
        lower[self.w : self.peak] = -np.inf
        lower[self.q] = -np.inf
        lower[self.peak : self.p] = self.before
        upper[self.lam] = np.inf if self.problem.robust else 0.0
        upper[self.stretch] = np.inf if goal == "stretch" else 0.0
        if goal == "cost":
            cost[self.v : self.w] = self.problem.cost_TD.ravel() / self.money
            cost[self.peak : self.p] = self.problem.peak_cost_D.ravel() / self.money
        elif goal == "stretch":
            cost[self.stretch] = 1.0
        else:
            # -q is the value at risk of an excess, which is at least minus the largest curve.
            upper[self.q] = self.capacity_P.max()
            cost[self.p : self.q] = 1.0 / self.samples
            cost[self.q], cost[self.lam] = -self.problem.beta, self.problem.eps / self.unit
        none = np.empty(0, dtype=np.int32)
        self.solver.addCols(count, cost, lower, upper, 0, none, none, np.empty(0))

    @property
    def rows(self) -> int:
        """Rows so far."""
        return int(self.solver.getNumRow())

    @cached_property
    def uses_by_place(self) -> tuple[I8, I8]:
        """Uses of uncertain loads ordered by place, and the first of each place in that order."""
        place_Z = self.entries.place_Z[: self.uses]
        order = np.argsort(place_Z, kind="stable")
        return order, np.searchsorted(place_Z[order], np.arange(self.places + 1))

    @cached_property
    def even_Z(self) -> F8:
        """Fraction of each use of uncertain loads, if every load is spread evenly over its entries."""
        count_L = np.bincount(self.entries.load_M, minlength=self.loads)
        even_Z: F8 = 1.0 / count_L[self.entries.load_M[self.entries.entry_Z[: self.uses]]]
        return even_Z

    @property
    def even_slope(self) -> float:
        """Largest fraction of an entry, if every load is spread evenly."""
        return float(self.even_Z.max())

    def even_load_NP(self) -> F8:
        """Returns what every sample loads every place with, if every load is spread evenly."""
        even_G = np.bincount(self.entries.pair_Z[: self.uses], self.even_Z, self.pairs)
        return self.load_at_NP(even_G.astype(np.float64, copy=False))

    def add_rows(self, row: I8, column: I8, value: F8, lower: F8, upper: F8) -> None:
        """Adds rows from triplets (row from 0 within this call, column, value)."""
        count = len(lower)
        order = np.argsort(row, kind="stable")
        first = np.searchsorted(row[order], np.arange(count)).astype(np.int32)
        self.solver.addRows(
            count, lower, upper, len(row), first, column[order].astype(np.int32), np.ascontiguousarray(value[order])
        )

    def add_columns(self, column: I8, row: I8, value: F8, count: int) -> None:
        """Adds columns of no cost, at least 0, from triplets (column from 0 within this call, row, value)."""
        order = np.argsort(column, kind="stable")
        first = np.searchsorted(column[order], np.arange(count)).astype(np.int32)
        self.solver.addCols(
            count,
            np.zeros(count),
            np.zeros(count),
            np.full(count, np.inf),
            len(column),
            first,
            row[order].astype(np.int32),
            np.ascontiguousarray(value[order]),
        )

    def fix_slope(self, spread: float) -> I8:
        """Fixes lambda and bounds entries by it; returns the pairs of several uses, whose slope still needs a row.

        Args:
            spread: Lambda over that of every load spread evenly over its entries.
        """
        entries = self.entries
        most_M = np.zeros(self.v)
        most_M[entries.entry_Z[: self.uses]] = 1.0
        slope = spread * self.even_slope
        upper_M = np.divide(slope, most_M, out=np.full(self.v, np.inf), where=most_M > 0)
        self.solver.changeColsBounds(self.v, np.arange(self.v, dtype=np.int32), np.zeros(self.v), upper_M)
        self.solver.changeColBounds(self.lam, slope, slope)
        several: I8 = np.flatnonzero(np.diff(entries.first_G[: self.pairs + 1]) > 1)
        return several

    def run(self, method: Method) -> Point | None:
        """Solves the program as it stands; None where it has no solution.

        Raises:
            InfeasiblePlanError: HiGHS gave up without an answer.
        """
        for name, value in _OPTIONS[method].items():
            self.solver.setOptionValue(name, value)
        self.solver.run()
        status = self.solver.getModelStatus()
        solution, info = self.solver.getSolution(), self.solver.getInfo()
        # Interior point without a vertex may miss HiGHS' own tolerances; its point is good enough to look for rows.
        rough = method == "interior" and status == highspy.HighsModelStatus.kUnknown and solution.value_valid
        if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
            return None
        if status != highspy.HighsModelStatus.kOptimal and not rough:
            if method != "simplex":
                self.solver.clearSolver()
                return self.run("simplex")
            reason = self.solver.modelStatusToString(status).lower()
            raise InfeasiblePlanError(f"the planning LP was not solved: {reason}")
        return Point(
            value=float(info.objective_function_value),
            x=np.array(solution.col_value),
            dual=np.array(solution.row_dual),
            reduced=np.array(solution.col_dual),
            iterations=max(0, info.simplex_iteration_count) + max(0, info.ipm_iteration_count),
        )

    def slope_of(self, x: F8) -> F8:
        """Returns the slope left to every pair, ``sum_m A y - e``: what its load weighs at its place."""
        entries, uses = self.entries, self.uses
        weight_Z = x[entries.entry_Z[:uses]]
        slope: F8 = np.bincount(entries.pair_Z[:uses], weight_Z, minlength=self.pairs).astype(np.float64)
        raised = np.flatnonzero(self.raised_G >= 0)
        slope[raised] -= x[self.raised_G[raised]]
        return slope

    def excess_NP(self, x: F8) -> F8:
        """Returns left side less right side of every fit row, generated or not."""
        rest_N = x[self.p : self.q] - x[self.q]
        excess: F8 = self.load_at_NP(self.slope_of(x)) - x[self.w : self.peak] - rest_N[:, None]
        return excess

    def load_at_NP(self, weight_G: F8) -> F8:
        """Returns what every sample loads every place with, if each pair's load weighs so much at its place."""
        load_G, place_G = self.entries.load_G[: self.pairs], self.entries.place_G[: self.pairs]
        if self.uncertain * self.places <= MOST_DENSE:
            weight_LP = np.zeros((self.uncertain, self.places))
            weight_LP[load_G, place_G] = weight_G
            dense: F8 = self.load_NL @ weight_LP
            return dense
        load_NP = np.zeros((self.samples, self.places))
        order = np.argsort(place_G, kind="stable")
        first_X = np.flatnonzero(np.diff(place_G[order], prepend=-1))
        used, load_X, weight_X = place_G[order[first_X]], load_G[order], weight_G[order]
        for load_L, out_P in zip(self.load_NL, load_NP, strict=True):
            out_P[used] = np.add.reduceat(load_L[load_X] * weight_X, first_X)
        return load_NP

    def over_G(self, x: F8) -> F8:
        """Returns slope less lambda of every pair; minus infinity without a radius, where there is no such row."""
        if not self.problem.robust:
            return np.full(self.pairs, -np.inf)
        over: F8 = self.slope_of(x) - x[self.lam]
        return over

    def reduced_G(self, point: Point) -> F8:
        """Returns the reduced cost that every pair's e has or, without a column, would have.

        Its column has -s_max in the place's curve row, -s^i in its fit rows, and -1 in its slope row.
        """
        dual_NP = np.zeros(self.fit_NP.shape)
        built = self.fit_NP >= 0
        dual_NP[built] = point.dual[self.fit_NP[built]]
        load, place = self.entries.load_G[: self.pairs], self.entries.place_G[: self.pairs]
        curve_P = point.dual[self.loads : self.loads + self.places]
        reduced: F8 = self.largest_L[load] * curve_P[place] + (self.load_NL.T @ dual_NP)[load, place]
        sloped = self.slope_G >= 0
        reduced[sloped] += point.dual[self.slope_G[sloped]]
        return reduced

    def bound(self, point: Point) -> float:
        """Returns the dual value of an optimum, in units of its value: no plan costs less.

        A place's capacity and a station's peak before hour 0 are bounds of columns, whose duals count.
        """
        places = slice(self.loads, self.loads + self.places)
        short_P = np.minimum(point.reduced[self.v : self.w], 0.0)
        peak_D = np.maximum(point.reduced[self.peak : self.p], 0.0)
        return (
            float(peak_D @ self.before)
            + float(point.dual[: self.loads].sum())
            + float(point.dual[places] @ self.placed_P)
            + float(short_P @ self.capacity_P)
        )

    def active(self, point: Point, *, guessed: bool = False) -> Active:
        """Returns the rows generated so far that a solution satisfies with little room.

        Args:
            point: The solution.
            guessed: Whether lambda was fixed: then slope rows count, generated or not, and with more room.
        """
        room = NEAR_FIRST * point.x[self.lam] if guessed else NEAR_SLOPE
        near_NP = (self.fit_NP >= 0) & (self.excess_NP(point.x) > -NEAR_FIT)
        near_G = ((self.slope_G >= 0) | guessed) & (self.over_G(point.x) > -room)
        return Active(
            fit_RX=np.stack(np.nonzero(near_NP)),
            slope_R=np.flatnonzero(near_G),
            raised_R=np.flatnonzero(self.raised_G >= 0),
        )

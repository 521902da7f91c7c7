"""The planning LP in HiGHS: columns, rows that are always there, and rows that are generated when they are violated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import highspy
import numpy as np
from numpy.typing import NDArray

from noonward.errors import InfeasiblePlanError
from noonward.schedule.plan.problem import PlanProblem

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
B1 = NDArray[np.bool_]

Goal = Literal["cost", "stretch", "tail"]
"""What is minimised: f(v), the capacity needed, or the guarantee's left side less its right side."""
Method = Literal["interior", "crossover", "simplex", "choose"]
"""Interior point without a vertex, interior point with one, dual simplex from the last basis, or HiGHS' own choice."""

ROUGH: Final = 1e-4
"""Optimality tolerance of an interior-point run whose only use is to say which rows matter."""

NEAR_FIT: Final = 0.01
"""Room, in units of the largest load, up to which a sample row is kept for the next interior-point run."""
NEAR_SLOPE: Final = 0.02
"""Room up to which a slope row is kept for the next interior-point run."""

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
        vertex: Whether there is a basis.
        iterations: Simplex and interior-point iterations.
    """

    value: float
    x: F8
    dual: F8
    reduced: F8
    vertex: bool
    iterations: int


@dataclass(frozen=True, kw_only=True)
class Active:
    """Rows that (nearly) bind and columns in use: what a program of the same shape starts from.

    Attributes:
        fit_RX: Samples and places of the rows ``q - w + sum x s <= p``, (2, rows).
        slope_R: Entries of the rows ``x <= lambda``.
        raised_M: Entries whose e may be above 0.
    """

    fit_RX: I8
    slope_R: I8
    raised_M: B1

    @property
    def size(self) -> int:
        """Rows and columns in all."""
        return int(self.fit_RX.shape[1]) + len(self.slope_R) + int(self.raised_M.sum())


class Program:
    """The LP of one problem, with loads in units of ``unit`` and costs in units of ``money``.

    Columns: x_M, e_M (y = x + e), v_TD, w_TD, peak_D, p_N, q, lambda, stretch. Axis P: places (t, d), row-major.

    Args:
        problem: What to plan.
        goal: ``cost``: f(v), Eq. (7), at the capacity given. ``stretch``: the least g with which capacities of
            (1 + g) x ``capacity_TD`` would do. ``tail``: the least left side less right side of the guarantee.
    """

    def __init__(self, problem: PlanProblem, goal: Goal = "cost") -> None:
        self.problem = problem
        self.samples, self.hours, self.classes, self.span, self.clusters = problem.shape
        self.places = self.span * self.clusters
        entries = problem.entries
        self.entries = entries
        self.unit = float(max(problem.load_NKC.max(), problem.largest_KC.max() if problem.support else 0.0)) or 1.0
        self.money = float(np.abs(problem.cost_TD).max() + problem.peak_cost_D.max()) or 1.0
        self.load_NL = problem.load_NKC.reshape(self.samples, -1) / self.unit
        self.largest_L = problem.largest_KC.ravel() / self.unit
        self.capacity_P = problem.capacity_TD.ravel() / self.unit
        placed = np.zeros(self.places) if problem.placed_TD is None else problem.placed_TD.ravel()
        self.placed_P = placed / self.unit
        count = len(entries)
        self.x, self.e, self.v = 0, count, 2 * count
        self.w = self.v + self.places
        self.peak = self.w + self.places
        self.p = self.peak + self.clusters
        self.q = self.p + self.samples
        self.lam, self.stretch = self.q + 1, self.q + 2
        self.has_NP: B1 = np.zeros((self.samples, self.places), dtype=bool)
        self.bounded_M: B1 = np.zeros(count, dtype=bool)
        self.raised_M: B1 = np.zeros(count, dtype=bool)
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        self._add_columns(goal)

    def _add_columns(self, goal: Goal) -> None:
        count = self.stretch + 1
        cost, lower, upper = np.zeros(count), np.zeros(count), np.full(count, np.inf)
        upper[self.e : self.v] = 0.0
        upper[self.v : self.w] = self.capacity_P
        lower[self.w : self.peak] = -np.inf
        lower[self.q] = -np.inf
        lower[self.peak : self.p] = -np.inf if (self.problem.cost_TD < 0).any() else 0.0
        upper[self.lam] = np.inf if self.problem.robust else 0.0
        upper[self.stretch] = np.inf if goal == "stretch" else 0.0
        if goal == "cost":
            cost[self.v : self.w] = self.problem.cost_TD.ravel() / self.money
            cost[self.peak : self.p] = self.problem.peak_cost_D / self.money
        elif goal == "stretch":
            cost[self.stretch] = 1.0
        else:
            # -q is the value at risk of an excess, which is at least minus the largest curve.
            upper[self.q] = self.capacity_P.max()
            cost[self.p : self.q] = 1.0 / self.samples
            cost[self.q], cost[self.lam] = -self.problem.beta, self.problem.eps / self.unit
        none = np.empty(0, dtype=np.int32)
        self.solver.addCols(count, cost, lower, upper, 0, none, none, np.empty(0))

    def add_rows(self, row: I8, column: I8, value: F8, lower: F8, upper: F8) -> None:
        """Adds rows from triplets (row from 0 within this call, column, value)."""
        count = len(lower)
        order = np.argsort(row, kind="stable")
        first = np.searchsorted(row[order], np.arange(count)).astype(np.int32)
        self.solver.addRows(
            count, lower, upper, len(row), first, column[order].astype(np.int32), np.ascontiguousarray(value[order])
        )

    def raise_entries(self, which_M: B1) -> None:
        """Frees e of some entries, which was fixed at 0."""
        self.raised_M |= which_M
        entries = (self.e + np.flatnonzero(self.raised_M)).astype(np.int32)
        if len(entries):
            self.solver.changeColsBounds(len(entries), entries, np.zeros(len(entries)), np.full(len(entries), np.inf))

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
            vertex=method != "interior",
            iterations=max(0, info.simplex_iteration_count) + max(0, info.ipm_iteration_count),
        )

    def excess_NP(self, x: F8) -> F8:
        """Returns left side less right side of every row ``q - w + sum x s <= p``, generated or not."""
        share_LP = np.zeros((self.load_NL.shape[1], self.places))
        share_LP[self.entries.load_M, self.entries.place_M] = x[: self.e]
        rest_N = x[self.p : self.q] - x[self.q]
        excess: F8 = self.load_NL @ share_LP - x[self.w : self.peak] - rest_N[:, None]
        return excess

    def over_M(self, x: F8) -> F8:
        """Returns ``x - lambda`` of every entry; minus infinity without a radius, where there is no such row."""
        if not self.problem.robust:
            return np.full(self.e, -np.inf)
        over: F8 = x[: self.e] - x[self.lam]
        return over

    def active(self, point: Point) -> Active:
        """Returns the rows generated so far that a solution satisfies with little room."""
        near_NP = self.has_NP & (self.excess_NP(point.x) > -NEAR_FIT)
        near_M = self.bounded_M & (self.over_M(point.x) > -NEAR_SLOPE)
        return Active(
            fit_RX=np.stack(np.nonzero(near_NP)), slope_R=np.flatnonzero(near_M), raised_M=self.raised_M.copy()
        )

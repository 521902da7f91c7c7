"""Linear programs by HiGHS: one call from arrays to an optimum."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from noonward.arrays import F8
from noonward.errors import InfeasiblePlanError
from noonward.solver import quiet_solver


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Optimum of a linear program.

    Attributes:
        value: Objective.
        x: Variables.
        dual: Rows' duals: change of the objective per unit of a row's bound.
    """

    value: float
    x: F8
    dual: F8


def solved(solver: highspy.Highs, what: str) -> Optimum:
    """Runs a solver and returns the optimum.

    Raises:
        InfeasiblePlanError: There is none; the message names ``what`` and HiGHS' status.
    """
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise InfeasiblePlanError(f"{what}: {solver.modelStatusToString(status).lower()}")
    solution = solver.getSolution()
    return Optimum(
        value=float(solver.getInfo().objective_function_value),
        x=np.array(solution.col_value),
        dual=np.array(solution.row_dual),
    )


def minimise(cost_X: F8, rows_RX: F8, lower_R: F8, upper_R: F8, what: str, lower_X: F8 | None = None) -> Optimum:
    """Minimises ``cost x`` subject to ``lower <= rows x <= upper`` and ``x >= lower_X``, for a small dense matrix.

    Args:
        cost_X: Objective.
        rows_RX: Rows.
        lower_R: Lower bounds of the rows, -inf for none.
        upper_R: Upper bounds of the rows, inf for none.
        what: Name of the program, for the message.
        lower_X: Lower bounds of the variables; 0 if left out.

    Raises:
        InfeasiblePlanError: There is no optimum.

    Example:
        >>> minimise(np.ones(2), np.array([[1.0, 2.0]]), np.array([4.0]), np.array([np.inf]), "demo").value
        2.0
    """
    solver = quiet_solver()
    count = len(cost_X)
    lower_X = np.zeros(count) if lower_X is None else lower_X
    none = np.empty(0, dtype=np.int32)
    solver.addCols(count, cost_X, lower_X, np.full(count, np.inf), 0, none, none, np.empty(0))
    row_R, column_R = np.nonzero(rows_RX)
    first_R = np.searchsorted(row_R, np.arange(len(rows_RX))).astype(np.int32)
    values = rows_RX[row_R, column_R]
    solver.addRows(len(rows_RX), lower_R, upper_R, len(values), first_R, column_R.astype(np.int32), values)
    return solved(solver, what)

"""A linear program that devices and tariffs add their columns and rows to, solved by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import InfeasiblePlanError
from noonward.solver import quiet_solver


@dataclass(kw_only=True)
class Program:
    """Minimises cost over columns between bounds, with rows between bounds.

    Example:
        >>> program = Program()
        >>> x = program.columns(2, cost=np.array([1.0, 3.0]), upper=1.5)
        >>> program.rows(1, [(x[None], 1.0)], lower=2.0)
        array([0])
        >>> found = program.solved("demo")
        >>> found.value, found.x.tolist(), found.dual.tolist()
        (3.0, [1.5, 0.5], [3.0])
    """

    constant: float = 0.0
    _cost: list[F8] = field(default_factory=list)
    _lower: list[F8] = field(default_factory=list)
    _upper: list[F8] = field(default_factory=list)
    _row: list[I8] = field(default_factory=list)
    _column: list[I8] = field(default_factory=list)
    _value: list[F8] = field(default_factory=list)
    _row_lower: list[F8] = field(default_factory=list)
    _row_upper: list[F8] = field(default_factory=list)
    _counts: list[int] = field(default_factory=lambda: [0, 0])

    def columns(self, count: int, cost: F8 | float = 0.0, lower: F8 | float = 0.0, upper: F8 | float = np.inf) -> I8:
        """Adds columns and returns their positions."""
        first = self._counts[0]
        self._counts[0] += count
        for kept, value in ((self._cost, cost), (self._lower, lower), (self._upper, upper)):
            kept.append(np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)))
        return np.arange(first, first + count)

    def add_cost(self, columns: I8, cost: F8 | float) -> None:
        """Adds to the cost of columns that stand already."""
        whole = np.concatenate(self._cost)
        np.add.at(whole, columns, cost)
        self._cost = [whole]

    def rows(
        self,
        count: int,
        terms: list[tuple[I8, F8 | float]],
        lower: F8 | float = -np.inf,
        upper: F8 | float = np.inf,
    ) -> I8:
        """Adds rows ``lower <= sum of terms <= upper`` and returns their positions.

        Args:
            count: Number of rows R.
            terms: Columns with their coefficients: positions of shape (R,) or (R, n), or (1, n) for one row; a position
                of -1 is left out.
            lower: Lower bounds.
            upper: Upper bounds.
        """
        first = self._counts[1]
        self._counts[1] += count
        for columns, value in terms if count else ():
            wide = np.asarray(columns).reshape(count, -1)
            values = np.broadcast_to(np.asarray(value, dtype=np.float64).reshape(-1, 1) if np.ndim(value) == 1
                                     else np.asarray(value, dtype=np.float64), wide.shape)  # fmt: skip
            kept = wide >= 0
            row = np.broadcast_to(np.arange(first, first + count)[:, None], wide.shape)
            self._row.append(row[kept])
            self._column.append(wide[kept])
            self._value.append(values[kept])
        for rows, bound in ((self._row_lower, lower), (self._row_upper, upper)):
            rows.append(np.broadcast_to(np.asarray(bound, dtype=np.float64), (count,)))
        return np.arange(first, first + count)

    def solved(self, what: str) -> Solution:
        """Returns the optimum.

        Args:
            what: Name of the program, for the message.

        Raises:
            InfeasiblePlanError: There is none.
        """
        columns, rows = self._counts
        solver, none = quiet_solver(), np.empty(0, dtype=np.int32)
        cost, lower, upper = (np.concatenate(each) for each in (self._cost, self._lower, self._upper))
        solver.addCols(columns, cost, lower, upper, 0, none, none, np.empty(0))
        if rows:
            row, column = np.concatenate(self._row), np.concatenate(self._column)
            order = np.lexsort((column, row))
            first = np.searchsorted(row[order], np.arange(rows)).astype(np.int32)
            solver.addRows(
                rows, np.concatenate(self._row_lower), np.concatenate(self._row_upper), len(order), first,
                column[order].astype(np.int32), np.concatenate(self._value)[order],
            )  # fmt: skip
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise InfeasiblePlanError(f"{what}: {solver.modelStatusToString(solver.getModelStatus()).lower()}")
        found = solver.getSolution()
        return Solution(
            value=float(solver.getInfo().objective_function_value) + self.constant,
            x=np.array(found.col_value),
            dual=np.array(found.row_dual),
        )


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Optimum of a program.

    Attributes:
        value: Least cost.
        x: Columns.
        dual: Rows' duals: change of the cost per unit of a row's bound.
    """

    value: float
    x: F8
    dual: F8

"""Master of the utility bound's column generation: the linear relaxation over the columns generated so far."""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.dual import Dual
from noonward.bound.highs import Optimum, solved
from noonward.solver import quiet_solver


class Master:
    """The linear relaxation over some columns: ``max sum_k v_k x_k``, every job once at most, within capacity.

    ``sum_(k of j) x_k <= 1`` for every job, and the GPU-hours that the columns use are at most R in every hour (period)
    of every site; ``x >= 0``. HiGHS solves it, from the last optimum on.

    Args:
        dual: The dual function whose columns it takes.

    Attributes:
        columns: The columns added, in order.
        known_K: Whether a column of the dual function was added.
        optimum: The last optimum, or None; rows are jobs, then sites times hours.
    """

    def __init__(self, dual: Dual) -> None:
        self.dual = dual
        self.columns: I8 = np.empty(0, dtype=np.int64)
        self.known_K: NDArray[np.bool_] = np.zeros(len(dual.columns.value_K), dtype=bool)
        self.optimum: Optimum | None = None
        self._solver = quiet_solver()
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        upper_R = np.concatenate([np.ones(len(dual.best_J)), dual.capacity_SH.ravel()])
        none = np.empty(0, dtype=np.int32)
        self._solver.addRows(len(upper_R), np.full(len(upper_R), -np.inf), upper_R, 0, none, none, np.empty(0))

    def add(self, columns: I8) -> int:
        """Adds those of the columns that are not known yet, -1 apart; returns how many there were."""
        fresh = np.unique(columns)
        fresh = fresh[fresh >= 0]
        fresh = fresh[~self.known_K[fresh]]
        if len(fresh):
            self.known_K[fresh] = True
            self.columns = np.concatenate([self.columns, fresh])
            first_K, position, used = self.use(fresh)
            rows = len(self.dual.best_J) + position
            rows[first_K[:-1]] = self.job_of(fresh)
            used[first_K[:-1]] = 1.0
            count, value_K = len(fresh), self.dual.columns.value_K[fresh]
            self._solver.addCols(
                count, value_K, np.zeros(count), np.full(count, np.inf), len(rows), first_K[:-1].astype(np.int32),
                rows.astype(np.int32), used,
            )  # fmt: skip
        return len(fresh)

    def job_of(self, columns: I8) -> I8:
        """Returns the columns' jobs."""
        return np.asarray(np.searchsorted(self.dual.columns.first_J, columns, side="right") - 1)

    def use(self, columns: I8) -> tuple[I8, I8, F8]:
        """Returns the GPU-hours that columns use.

        Returns:
            (first entry of every column, one more than there are columns; position site x hours + hour of every entry;
            GPU-hours of every entry). The first entry of a column is left free: its position and value mean nothing.
        """
        c, hours = self.dual.columns, self.dual.shape[1]
        from_K, to_K, gpus_K = c.from_K[columns], c.to_K[columns], c.gpus_K[columns]
        length_K = to_K - from_K + 2
        first_K = np.concatenate([[0], np.cumsum(length_K)])
        at = np.arange(first_K[-1]) - np.repeat(first_K[:-1], length_K) - 1 + np.repeat(from_K, length_K)
        position = at // (hours + 1) * hours + at % (hours + 1)
        used = np.repeat(gpus_K, length_K)
        used[first_K[:-1] + 1] -= gpus_K * c.from_share_K[columns]
        used[first_K[1:] - 1] -= gpus_K * (1.0 - c.to_share_K[columns])
        return first_K, position, used

    def solve(self) -> Optimum:
        """Solves the master and returns its optimum."""
        self.optimum = solved(self._solver, "master of the utility bound")
        return self.optimum

    def prices(self) -> F8:
        """Returns the duals of capacity at the last optimum, at least 0, shape (sites, hours); 0 before the first."""
        if self.optimum is None:
            return np.zeros(self.dual.shape)
        return np.maximum(0.0, self.optimum.dual[len(self.dual.best_J) :].reshape(self.dual.shape))

    def fix(self, position: int, share: float) -> None:
        """Fixes how much of the column at a position of ``columns`` is taken, 0 to 1."""
        self._solver.changeColBounds(position, share, share)

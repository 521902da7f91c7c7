"""The dual function of the utility bound: capacity priced, every job on its own."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import (
    Columns,
    Market,
    Options,
    build_columns,
    build_options,
    capacity,
    market,
    require_bounded,
)
from noonward.bound.cluster_utility.kernels import dual_step
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables


class Dual:
    """The dual function of some jobs over some hours: capacity priced, every job on its own.

    ``D(lambda) = idle + sum_j max(0, max_(n,t) v_j(n,t) - g_j integral_[t, t+d] lambda_n) + sum_(n,h) lambda R_nh``

    Args:
        columns: What the jobs may become.
        capacity_SH: GPUs that jobs take at most, R, by site and period: hours, unless the columns are of shorter ones.
        idle_usd: Utility of a fleet that runs nothing, USD.

    Attributes:
        shape: Sites and periods.
        gpus_S: Most GPUs of any period, at least 1, per site.
        evaluations: How often D was evaluated.
        best_J: Column that every job took at the last evaluation, or -1.
    """

    def __init__(self, columns: Columns, capacity_SH: F8, idle_usd: float) -> None:
        self.columns, self.capacity_SH, self.idle_usd = columns, capacity_SH, idle_usd
        self.gpus_S: F8 = np.maximum(capacity_SH.max(axis=1, initial=1.0), 1.0)
        self.shape: tuple[int, int] = capacity_SH.shape
        self._constant = bool((capacity_SH == self.gpus_S[:, None]).all())
        hours = self.shape[1]
        self.evaluations = 0
        self.best_J: I8 = np.empty(len(columns.first_J) - 1, dtype=np.int64)
        self._cumulative_SH = np.zeros((self.shape[0], hours + 1))
        self._usage_SH = np.zeros_like(self._cumulative_SH)

    def value(self, price_SH: F8) -> tuple[float, F8]:
        """Evaluates the dual function.

        Args:
            price_SH: Capacity prices lambda, USD per GPU and period, shape (sites, periods).

        Returns:
            (D in USD, a subgradient: GPUs times periods left free by the jobs' choices, negative where they ask for too
            many).

        Raises:
            ScenarioError: Prices have another shape, are negative or not finite.
        """
        self.require(price_SH)
        self.evaluations += 1
        np.cumsum(price_SH, axis=1, out=self._cumulative_SH[:, 1:])
        c = self.columns
        taken_usd = dual_step(
            self._cumulative_SH.ravel(), c.first_J, c.value_K, c.gpus_K, c.from_K, c.from_share_K, c.to_K, c.to_share_K,
            self.best_J, self._usage_SH.ravel(),
        )  # fmt: skip
        free_SH: F8 = self.capacity_SH - self._usage_SH[:, :-1]
        # Where capacity is constant, prices are summed first: bounds keep the digits that they were published with.
        paid_SH = None if self._constant else self.capacity_SH * price_SH
        capacity_usd = float(self.gpus_S @ price_SH.sum(axis=1) if paid_SH is None else paid_SH.sum())
        return self.idle_usd + taken_usd + capacity_usd, free_SH

    def require(self, price_SH: F8) -> None:
        """Raises ScenarioError where prices have another shape, are negative or not finite."""
        if price_SH.shape != self.shape or not (np.isfinite(price_SH) & (price_SH >= 0)).all():
            raise ScenarioError(
                f"capacity prices of shape {price_SH.shape} with values from {np.min(price_SH, initial=np.inf)} USD "
                f"per GPU and period; expected shape {self.shape} (sites, periods) and finite values of at least 0"
            )

    def priced_usd_J(self, price_SH: F8) -> F8:
        """Returns every job's best value after capacity prices, USD, at least 0."""
        self.value(price_SH)
        out_J = np.zeros(len(self.best_J))
        out_J[self.best_J >= 0] = self.priced_usd_K(self.best_J[self.best_J >= 0])
        return out_J

    def priced_usd_K(self, rows_K: I8 | slice) -> F8:
        """Returns values of some columns after the capacity prices of the last evaluation, USD."""
        c, total_P = self.columns, self._cumulative_SH.ravel()

        def paid_until(hour_K: I8, share_K: F8) -> F8:
            return np.asarray(total_P[hour_K] + share_K * (total_P[hour_K + 1] - total_P[hour_K]))

        paid_K = paid_until(c.to_K[rows_K], c.to_share_K[rows_K])
        paid_K -= paid_until(c.from_K[rows_K], c.from_share_K[rows_K])
        return np.asarray(c.value_K[rows_K] - c.gpus_K[rows_K] * paid_K)


class Relaxation(Dual):
    """The dual function of an environment.

    For every ``lambda >= 0``, D is at least the utility of every schedule: a job's use over an hour is at most its
    GPU-hours, so a schedule within capacity pays no more for capacity than ``sum lambda R``. Where GPUs are withheld
    for a time, R is what ``columns.capacity`` states.

    Args:
        environment: Environment with economics and signals whose runs last until drained. Under ``each-slot`` starts
            lie on slots, under ``on-arrival`` they are free. Gangs run at any clock level of their site.

    Raises:
        ScenarioError: As ``utility_bound`` states.
    """

    def __init__(self, environment: Environment) -> None:
        require_bounded(environment)
        self.tables: FleetTables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
        self.costs: Market = market(environment, self.tables)
        self.options: Options = build_options(environment, self.tables, self.costs)
        columns = build_columns(environment, self.options, self.costs)
        longest_s_S = np.zeros(len(environment.sites))
        np.maximum.at(longest_s_S, self.options.site_O, self.options.run_s_O)
        capacity_SH = capacity(environment, self.tables, longest_s_S, self.costs.carbon_SH.shape[1])
        super().__init__(columns, capacity_SH, self.costs.idle_usd + self.costs.run_on_usd)

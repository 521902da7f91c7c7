"""Quotas of tenants in the utility bound: GPUs of a tenant priced by the hour, beside those of a site.

A tenant t that keeps ``kept_t`` GPUs of its guarantee for itself and lends the rest to its cohort c may hold
``u_t <= kept_t + b_t`` with ``0 <= b_t <= B_t`` and ``sum_(t of c) b_t <= P_c``, where ``P_c`` is what the cohort lends
and ``B_t`` what the tenant may borrow, its own lendable part included (``Tenant``). So for prices ``mu_th >= 0``,

    D(lambda, mu) = idle + sum_j max(0, max_(n,t) v_j - g_j integral (lambda_n + mu_t(j))) + sum lambda R
                    + sum_h [sum_t mu_th kept_t + sum_c max {sum mu_th b_t : b_t <= B_t, sum b_t <= P_c}]

is at least the utility of every schedule within the quotas. The inner maximum is a fractional knapsack: the dearest
tenants borrow first (Dantzig 1957).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.dual import Dual
from noonward.bound.cluster_utility.kernels import dual_step
from noonward.bound.cluster_utility.master import Master
from noonward.bound.cluster_utility.prices import descend, descend_evenly, never, polish
from noonward.model.cluster.tenant import Tenants

EVEN_ROUNDS: Final = 80
"""Subgradient steps where there are too many jobs for column generation."""


@dataclass(frozen=True)
class Pools:
    """What tenants keep, borrow and lend.

    Attributes:
        kept_T: GPUs that no one else may take.
        most_T: Most GPUs that a tenant may hold beyond them.
        cohort_T: Cohort, from 0 on.
        pool_C: GPUs that the tenants of a cohort lend.
    """

    kept_T: F8
    most_T: F8
    cohort_T: I8
    pool_C: F8

    @classmethod
    def of(cls, tenants: Tenants) -> Pools:
        """Returns the pools of some tenants."""
        records = tenants.records()
        _, cohort_T = np.unique(records["cohort"], return_inverse=True)
        lends_T = (records["gpus"] - records["kept"]).astype(np.float64)
        pool_C = np.bincount(cohort_T, lends_T).astype(np.float64)
        return cls(
            kept_T=records["kept"].astype(np.float64),
            most_T=np.minimum(lends_T + records["borrow"], pool_C[cohort_T]),
            cohort_T=cohort_T.astype(np.int64),
            pool_C=pool_C,
        )

    def dearest(self, price_TH: F8) -> F8:
        """Returns what tenants may hold at most where the dearest borrow first, GPUs by hour.

        Example:
            >>> two = Pools(np.array([1.0, 0.0]), np.array([4.0, 4.0]), np.array([0, 0]), np.array([5.0]))
            >>> two.dearest(np.array([[2.0], [3.0]])).ravel().tolist()
            [2.0, 4.0]
        """
        held_TH = np.zeros_like(price_TH)
        left_CH = np.repeat(self.pool_C[:, None], price_TH.shape[1], axis=1)
        hours = np.arange(price_TH.shape[1])
        for turn_H in np.argsort(-price_TH, axis=0, kind="stable"):
            borrowed_H = np.minimum(self.most_T[turn_H], left_CH[self.cohort_T[turn_H], hours])
            held_TH[turn_H, hours] = borrowed_H
            left_CH[self.cohort_T[turn_H], hours] -= borrowed_H
        return held_TH + self.kept_T[:, None]

    def cost_usd(self, price_TH: F8) -> float:
        """Returns the most that prices make of the quotas, USD: the last line of D."""
        return float((self.dearest(price_TH) * price_TH).sum())


class QuotaDual(Dual):
    """The dual function with quotas; its prices are those of sites, then those of tenants, by hour.

    Args:
        free: The dual function without quotas.
        tenants: Tenants.
        tenant_J: Tenant of every job.

    Attributes:
        pools: What tenants keep, borrow and lend.
    """

    def __init__(self, free: Dual, tenants: Tenants, tenant_J: I8) -> None:
        sites, hours = free.shape
        count = len(tenants.names)
        c = free.columns
        tenant_K = np.repeat(tenant_J, np.diff(c.first_J))

        def beside(position_K: I8) -> I8:
            """Returns positions in sums of prices that are kept by site and tenant."""
            site_K, hour_K = np.divmod(position_K, hours + 1)
            return np.asarray((site_K * count + tenant_K) * (hours + 1) + hour_K)

        super().__init__(replace(c, from_K=beside(c.from_K), to_K=beside(c.to_K)), free.capacity_SH, free.idle_usd)
        self.pools = Pools.of(tenants)
        self.shape = (sites + count, hours)
        self.gpus_S = np.concatenate([self.gpus_S, np.maximum(self.pools.kept_T + self.pools.most_T, 1.0)])
        self._sums_PH = np.zeros((sites * count, hours + 1))
        self._used_PH = np.zeros_like(self._sums_PH)

    def value(self, price_SH: F8) -> tuple[float, F8]:
        """Evaluates the dual function.

        Args:
            price_SH: Prices lambda of sites, then mu of tenants, USD per GPU and hour.

        Returns:
            (D in USD, a subgradient).

        Raises:
            ScenarioError: As ``Dual.value``.
        """
        self.require(price_SH)
        self.evaluations += 1
        sites = len(self.capacity_SH)
        of_sites_SH, of_tenants_TH = price_SH[:sites], price_SH[sites:]
        paid_PH = (of_sites_SH[:, None] + of_tenants_TH[None]).reshape(len(self._sums_PH), -1)
        np.cumsum(paid_PH, axis=1, out=self._sums_PH[:, 1:])
        c = self.columns
        taken_usd = dual_step(
            self._sums_PH.ravel(), c.first_J, c.value_K, c.gpus_K, c.from_K, c.from_share_K, c.to_K, c.to_share_K,
            self.best_J, self._used_PH.ravel(),
        )  # fmt: skip
        used_STH = self._used_PH[:, :-1].reshape(sites, len(of_tenants_TH), -1)
        held_TH = self.pools.dearest(of_tenants_TH)
        free_SH = np.concatenate([self.capacity_SH - used_STH.sum(axis=1), held_TH - used_STH.sum(axis=0)])
        priced_usd = float((self.capacity_SH * of_sites_SH).sum() + (held_TH * of_tenants_TH).sum())
        return self.idle_usd + taken_usd + priced_usd, free_SH


class QuotaMaster(Master):
    """The linear relaxation over some columns, within capacity and quotas.

    Rows beside those of ``Master``: ``sum_k of t use_kh x_k - b_th <= kept_t`` for every tenant and hour, and
    ``sum_(t of c) b_th <= P_c`` for every cohort and hour, with ``0 <= b_th <= B_t``.
    """

    def __init__(self, dual: QuotaDual) -> None:
        super().__init__(dual)
        pools, hours = dual.pools, dual.shape[1]
        first = len(dual.best_J) + dual.capacity_SH.size
        upper_R = np.repeat(np.concatenate([pools.kept_T, pools.pool_C]), hours)
        none = np.empty(0, dtype=np.int32)
        self._solver.addRows(len(upper_R), np.full(len(upper_R), -np.inf), upper_R, 0, none, none, np.empty(0))
        count = len(pools.kept_T)
        hour_B, tenant_B = np.tile(np.arange(hours), count), np.repeat(np.arange(count), hours)
        own_B = first + tenant_B * hours + hour_B
        pool_B = first + (count + pools.cohort_T[tenant_B]) * hours + hour_B
        rows = np.stack([own_B, pool_B], axis=1).ravel().astype(np.int32)
        self._solver.addCols(
            len(own_B), np.zeros(len(own_B)), np.zeros(len(own_B)), pools.most_T[tenant_B], len(rows),
            np.arange(0, len(rows), 2, dtype=np.int32), rows, np.tile([-1.0, 1.0], len(own_B)),
        )  # fmt: skip

    def use(self, columns: I8) -> tuple[I8, I8, F8]:
        """Returns the GPU-hours that columns use, of a site and of a tenant (as ``Master.use``)."""
        first_K, position, used = super().use(columns)
        times = np.full(len(position), 2)
        times[first_K[:-1]] = 1
        until = np.cumsum(times)
        assert isinstance(self.dual, QuotaDual)
        sites, hours = len(self.dual.capacity_SH), self.dual.shape[1]
        count = self.dual.shape[0] - sites
        row, hour = np.divmod(np.repeat(position, times), hours)
        place = row // count
        of_tenant = until[times == 2] - 1
        place[of_tenant] = sites + row[of_tenant] % count
        return np.concatenate([[0], until])[first_K], place * hours + hour, np.repeat(used, times)

    def prices(self) -> F8:
        """Returns the duals of capacity and quotas at the last optimum, at least 0; 0 before the first."""
        if self.optimum is None:
            return np.zeros(self.dual.shape)
        jobs, rows = len(self.dual.best_J), self.dual.shape[0] * self.dual.shape[1]
        return np.maximum(0.0, self.optimum.dual[jobs : jobs + rows].reshape(self.dual.shape))


@dataclass(frozen=True, kw_only=True)
class QuotaBound:
    """What no scheduler can exceed within quotas.

    Attributes:
        upper_usd: Upper bound on the utility, USD.
        excess_usd: Most by which it may exceed the linear relaxation's optimum, USD; infinite where that is not known.
        price_SH: Prices of a site's GPUs that give it, USD per GPU-hour.
        price_TH: Prices of a tenant's GPUs: what its quota costs by the hour.
        one_more_usd_T: What one more guaranteed GPU for a tenant is worth at most, over the whole window: the bound
            with it is at most ``upper_usd`` and this much, USD.
        evaluations: Evaluations of the dual function.
    """

    upper_usd: float
    excess_usd: float
    price_SH: F8
    price_TH: F8
    one_more_usd_T: F8
    evaluations: int


def quota_bound(
    free: Dual,
    tenants: Tenants,
    tenant_J: I8,
    *,
    iterations: int,
    tolerance: float,
    most_jobs: int,
    late: Callable[[], bool] = never,
) -> QuotaBound:
    """Bounds the utility within the quotas of tenants.

    Relaxed beside what ``utility_bound`` relaxes: quotas within an hour, and that a GPU which was lent is back only
    when the job that borrowed it ends.

    Args:
        free: The dual function without quotas.
        tenants: Tenants.
        tenant_J: Tenant of every job.
        iterations: Subgradient steps, at least 1.
        tolerance: As ``utility_bound``.
        most_jobs: Most jobs for which column generation is used; more make the bound looser.
        late: Whether no further step may begin.
    """
    dual = QuotaDual(free, tenants, tenant_J)
    excess_usd = math.inf
    if len(tenant_J) > most_jobs:
        upper_usd, price_SH, columns = descend_evenly(dual, EVEN_ROUNDS, late=late)
    else:
        upper_usd, price_SH, columns = descend(dual, iterations, late)
        if math.isfinite(tolerance) and len(dual.columns.value_K):
            upper_usd, price_SH, excess_usd = polish(
                dual, price_SH, columns, tolerance, late=late, master=QuotaMaster(dual)
            )
    price_TH = price_SH[len(dual.capacity_SH) :]
    costs_usd = dual.pools.cost_usd(price_TH)
    return QuotaBound(
        upper_usd=upper_usd,
        excess_usd=excess_usd,
        price_SH=price_SH[: len(dual.capacity_SH)],
        price_TH=price_TH,
        one_more_usd_T=np.array(
            [Pools.of(tenants.with_one_more(name)).cost_usd(price_TH) - costs_usd for name in tenants.names]
        ),
        evaluations=dual.evaluations,
    )

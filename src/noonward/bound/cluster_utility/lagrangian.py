"""Upper bound on the utility of setting 1: Lagrangian relaxation of the GPUs' capacity (MASAC, Eqs. 2-7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import (
    Columns,
    Market,
    Options,
    build_columns,
    build_options,
    market,
    require_bounded,
)
from noonward.bound.cluster_utility.kernels import dual_step
from noonward.bound.cluster_utility.primal import BookedSchedule, book
from noonward.bound.highs import quiet_solver, solved
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables

FIRST_TARGET_SHARE = 0.1
TARGET_SHRINK = 0.7
PATIENCE = 15
MASTER_ROUNDS = 40


@dataclass(frozen=True, kw_only=True)
class UtilityBound:
    """What no scheduler can exceed in an environment, knowing all signals and jobs beforehand.

    Attributes:
        upper_usd: Upper bound on the ledger's total utility, the cost of the idle fleet over the window included, USD.
        idle_usd: Utility of a fleet that runs nothing, the part no scheduler changes, USD.
        price_usd_per_gpu_hour_SH: Capacity prices lambda that give the bound, USD per GPU-hour, at least 0.
        iterations: Evaluations of the dual function.
        dual_excess_usd: Most by which ``upper_usd`` may exceed the least bound of this kind, the optimum of the linear
            relaxation, USD; infinite where it was not computed (``tolerance`` infinite).
        schedule: A schedule that respects capacity, deadlines and slots, any clock level of the site used; None where
            none was looked for (see ``utility_bound``).
    """

    upper_usd: float
    idle_usd: float
    price_usd_per_gpu_hour_SH: F8
    iterations: int
    dual_excess_usd: float
    schedule: BookedSchedule | None

    @property
    def lower_usd(self) -> float:
        """Utility of the schedule found, USD; NaN without one."""
        return math.nan if self.schedule is None else self.idle_usd + self.schedule.value_usd

    @property
    def gap_usd(self) -> float:
        """Duality gap: the optimum lies between ``lower_usd`` and this much above it, USD."""
        return self.upper_usd - self.lower_usd

    @property
    def gap_share(self) -> float:
        """Duality gap over what the jobs add to an idle fleet at most."""
        added_usd = self.upper_usd - self.idle_usd
        return self.gap_usd / added_usd if added_usd > 0 else 0.0


class Relaxation:
    """The dual function of an environment: capacity priced, every job on its own.

    ``D(lambda) = idle + sum_j max(0, max_(n,t) v_j(n,t) - g_j integral_[t, t+d] lambda_n) + sum_(n,h) lambda R_n``

    For every ``lambda >= 0``, D is at least the utility of every schedule: a job's use over an hour is at most its
    GPU-hours, so a schedule within capacity pays no more for capacity than ``sum lambda R``.

    Args:
        environment: Environment with economics and signals whose runs last until drained. Under ``each-slot`` starts
            lie on slots, under ``on-arrival`` they are free. Gangs run at any clock level of their site.

    Raises:
        ScenarioError: As ``utility_bound`` states.
    """

    def __init__(self, environment: Environment) -> None:
        require_bounded(environment)
        self.environment = environment
        self.tables: FleetTables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
        self.costs: Market = market(environment, self.tables)
        self.options: Options = build_options(environment, self.tables, self.costs)
        self.columns: Columns = build_columns(environment, self.options, self.costs)
        self.shape = self.costs.carbon_SH.shape
        self.evaluations = 0
        self.best_J: I8 = np.empty(len(environment.jobs), dtype=np.int64)
        self._cumulative_SH = np.zeros((self.shape[0], self.shape[1] + 1))
        self._usage_SH = np.zeros_like(self._cumulative_SH)

    def value(self, price_SH: F8) -> tuple[float, F8]:
        """Evaluates the dual function.

        Args:
            price_SH: Capacity prices lambda, USD per GPU-hour, shape (sites, hours).

        Returns:
            (D in USD, a subgradient: GPU-hours left free by the jobs' choices, negative where they ask for too many).

        Raises:
            ScenarioError: Prices have another shape, are negative or not finite.
        """
        if price_SH.shape != self.shape or not (np.isfinite(price_SH) & (price_SH >= 0)).all():
            raise ScenarioError(
                f"capacity prices of shape {price_SH.shape} with values from {np.min(price_SH, initial=np.inf)} USD "
                f"per GPU-hour; expected shape {self.shape} (sites, hours) and finite values of at least 0"
            )
        self.evaluations += 1
        np.cumsum(price_SH, axis=1, out=self._cumulative_SH[:, 1:])
        c = self.columns
        taken_usd = dual_step(
            self._cumulative_SH.ravel(), c.first_J, c.value_K, c.gpus_K, c.from_K, c.from_share_K, c.to_K, c.to_share_K,
            self.best_J, self._usage_SH.ravel(),
        )  # fmt: skip
        free_SH: F8 = self.tables.gpus_S[:, None].astype(np.float64) - self._usage_SH[:, :-1]
        capacity_usd = float(self.tables.gpus_S @ price_SH.sum(axis=1))
        return self.costs.idle_usd + taken_usd + capacity_usd, free_SH

    def priced_usd_J(self, price_SH: F8) -> F8:
        """Returns every job's best value after capacity prices, USD, at least 0."""
        self.value(price_SH)
        c, total_P = self.columns, self._cumulative_SH.ravel()
        best_K = self.best_J[self.best_J >= 0]

        def paid_until(hour_K: I8, share_K: F8) -> F8:
            return np.asarray(total_P[hour_K] + share_K * (total_P[hour_K + 1] - total_P[hour_K]))

        paid_K = paid_until(c.to_K[best_K], c.to_share_K[best_K])
        paid_K -= paid_until(c.from_K[best_K], c.from_share_K[best_K])
        out_J = np.zeros(len(self.best_J))
        out_J[self.best_J >= 0] = c.value_K[best_K] - c.gpus_K[best_K] * paid_K
        return out_J


def descend(relaxation: Relaxation, iterations: int) -> tuple[float, F8, I8]:
    """Lowers the dual function by projected subgradient steps of Polyak's length towards a moving target.

    ``lambda <- max(0, lambda - (D - D_best + delta) / |g|^2 g)``; after 15 steps without a lower D, delta shrinks by
    0.7 and the search restarts from the best prices (Bertsekas 1999, Nonlinear Programming, Sec. 6.3.1).

    Args:
        relaxation: The dual function.
        iterations: Most evaluations, at least 1.

    Returns:
        (least D in USD, its prices, the columns jobs chose in the later half of the search).
    """
    price_SH = np.zeros(relaxation.shape)
    best_usd, best_SH = math.inf, price_SH
    delta_usd, fails = 0.0, 0
    seen: list[I8] = []
    for step in range(iterations):
        value_usd, free_SH = relaxation.value(price_SH)
        if step == 0:
            delta_usd = FIRST_TARGET_SHARE * (value_usd - relaxation.costs.idle_usd)
        if value_usd < best_usd:
            best_usd, best_SH, fails = value_usd, price_SH, 0
        else:
            fails += 1
        if (2 * step >= iterations and step % 4 == 0) or step == iterations - 1:
            seen.append(relaxation.best_J.copy())
        if fails > PATIENCE:
            delta_usd, fails, price_SH = TARGET_SHRINK * delta_usd, 0, best_SH
            _, free_SH = relaxation.value(price_SH)
            value_usd = best_usd
        slope_SH = np.where((price_SH <= 0) & (free_SH > 0), 0.0, free_SH)
        norm = float((slope_SH**2).sum())
        if norm == 0.0:
            seen.append(relaxation.best_J.copy())
            break
        price_SH = np.maximum(0.0, price_SH - (value_usd - best_usd + delta_usd) / norm * slope_SH)
    columns = np.unique(np.concatenate(seen))
    return best_usd, best_SH, columns[columns >= 0]


def _add_columns(relaxation: Relaxation, solver: highspy.Highs, columns: I8) -> None:
    """Adds columns to the master: 1 in the job's row, GPU-hours in the rows of the hours they touch."""
    c, hours = relaxation.columns, relaxation.shape[1]
    jobs, count = len(relaxation.environment.jobs), len(columns)
    from_K, to_K, gpus_K = c.from_K[columns], c.to_K[columns], c.gpus_K[columns]
    length_K = to_K - from_K + 2
    first_K = np.concatenate([[0], np.cumsum(length_K)])
    position = np.arange(first_K[-1]) - np.repeat(first_K[:-1], length_K) - 1 + np.repeat(from_K, length_K)
    rows = jobs + position // (hours + 1) * hours + position % (hours + 1)
    rows[first_K[:-1]] = relaxation.options.job_O[c.option_K[columns]]
    used = np.repeat(gpus_K, length_K)
    used[first_K[:-1]] = 1.0
    used[first_K[:-1] + 1] -= gpus_K * c.from_share_K[columns]
    used[first_K[1:] - 1] -= gpus_K * (1.0 - c.to_share_K[columns])
    solver.addCols(
        count, c.value_K[columns], np.zeros(count), np.full(count, np.inf), len(rows), first_K[:-1].astype(np.int32),
        rows.astype(np.int32), used,
    )  # fmt: skip


def polish(
    relaxation: Relaxation, price_SH: F8, columns: I8, tolerance: float, rounds: int = MASTER_ROUNDS
) -> tuple[float, F8, float]:
    """Lowers the dual function to its minimum by column generation (Dantzig-Wolfe; HiGHS solves the masters).

    Master: ``max sum_k v_k x_k`` s.t. ``sum_(k of j) x_k <= 1`` and GPU-hours <= R in every hour. Its optimum is at
    most the linear relaxation's, D at its duals at least; columns best at the duals (and at points between them
    and the best prices so far, against swings) enter until both meet.

    Args:
        relaxation: The dual function.
        price_SH: Prices to begin at.
        columns: Columns to begin with.
        tolerance: Relative excess of D over the master at which to stop.
        rounds: Most masters solved.

    Returns:
        (least D in USD, its prices, excess over the last master in USD).
    """
    jobs, (sites, hours) = len(relaxation.environment.jobs), relaxation.shape
    idle_usd = relaxation.costs.idle_usd
    solver = quiet_solver()
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    upper_R = np.concatenate([np.ones(jobs), np.repeat(relaxation.tables.gpus_S, hours).astype(np.float64)])
    none = np.empty(0, dtype=np.int32)
    solver.addRows(len(upper_R), np.full(len(upper_R), -np.inf), upper_R, 0, none, none, np.empty(0))
    best_usd, best_SH = relaxation.value(price_SH)[0], price_SH
    known = np.zeros(len(relaxation.columns.value_K), dtype=bool)
    wanted = [columns, relaxation.best_J]
    excess_usd = math.inf
    for _ in range(rounds):
        fresh = np.unique(np.concatenate(wanted))
        fresh = fresh[fresh >= 0]
        fresh = fresh[~known[fresh]]
        if len(fresh) == 0 and math.isfinite(excess_usd):
            break
        known[fresh] = True
        master_usd, dual_SH = 0.0, np.zeros(relaxation.shape)
        if known.any():
            _add_columns(relaxation, solver, fresh)
            master = solved(solver, "master of the utility bound")
            master_usd, dual_SH = master.value, np.maximum(0.0, master.dual[jobs:].reshape(sites, hours))
        wanted = []
        for share in (0.0, 0.5, 0.8):
            trial_SH = share * best_SH + (1 - share) * dual_SH
            value_usd, _ = relaxation.value(trial_SH)
            wanted.append(relaxation.best_J.copy())
            if value_usd < best_usd:
                best_usd, best_SH = value_usd, trial_SH
        excess_usd = max(0.0, best_usd - idle_usd - master_usd)
        if excess_usd <= tolerance * max(abs(best_usd - idle_usd), 1e-12):
            break
    return best_usd, best_SH, excess_usd


def utility_bound(
    environment: Environment,
    *,
    iterations: int = 400,
    tolerance: float = 1e-4,
    schedule: bool = True,
    rounds: int = 2000,
    seed: int = 0,
) -> UtilityBound:
    """Bounds the utility any scheduler can reach in an environment, all signals and jobs known beforehand.

    Relaxed beside integrality: capacity within an hour (GPU-hours <= R x 1 h), queues, the hour in which a migrated
    job leaves, chains of migrations (bounded by shortest paths), capacity curves (``caps``). Exact: starts on slots,
    deadlines (Eq. 7b), energy, carbon and retrieval at the hours they fall in.

    Args:
        environment: Environment with economics and signals, ``end: drained``.
        iterations: Subgradient steps, at least 1.
        tolerance: Relative excess over the linear relaxation's optimum at which column generation stops; ``math.inf``
            leaves it out. The bound holds whatever the values of both.
        schedule: Whether to look for a schedule, so that the duality gap is known. None is made under ``on-arrival``,
            nor under hard capacity curves, which bookings do not heed.
        rounds: Tries of ruin and recreate for the schedule, at least 0.
        seed: Seed of the schedule's search.

    Raises:
        ScenarioError: The environment has no economics or signals, runs end before all jobs do, or an argument is out
            of range.
    """
    if iterations < 1 or not tolerance >= 0 or rounds < 0:
        raise ScenarioError(
            f"iterations {iterations}, tolerance {tolerance} and rounds {rounds} were asked; they must be at least 1, "
            "0 and 0"
        )
    relaxation = Relaxation(environment)
    upper_usd, price_SH, columns = descend(relaxation, iterations)
    excess_usd = math.inf
    if math.isfinite(tolerance) and len(relaxation.columns.value_K):
        upper_usd, price_SH, excess_usd = polish(relaxation, price_SH, columns, tolerance)
    elif not len(relaxation.columns.value_K):
        excess_usd = 0.0
    found = None
    hard_caps = environment.caps is not None and environment.caps.hard
    if schedule and environment.protocol == "each-slot" and not hard_caps:
        priced_usd_J = relaxation.priced_usd_J(price_SH)
        found = book(
            environment, relaxation.tables, relaxation.costs, relaxation.options, price_SH, priced_usd_J,
            rounds=rounds, seed=seed,
        )  # fmt: skip
    return UtilityBound(
        upper_usd=upper_usd,
        idle_usd=relaxation.costs.idle_usd,
        price_usd_per_gpu_hour_SH=price_SH,
        iterations=relaxation.evaluations,
        dual_excess_usd=excess_usd,
        schedule=found,
    )

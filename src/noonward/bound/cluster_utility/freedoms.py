"""Upper bound on the utility where jobs may be stopped, resized or capped: what each freedom can be worth at most."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import highspy
import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.kernels_freedoms import (
    CAPPED,
    RESIZED,
    SUSPENDED,
    FreeOptions,
    LifePlan,
    Lives,
    Prices,
    choose_lives,
    take_use,
)
from noonward.bound.cluster_utility.life_moved import moved_gains
from noonward.bound.cluster_utility.prices import descend
from noonward.bound.highs import Optimum, solved
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.freedom import Freedom
from noonward.solver import quiet_solver
from noonward.units import HOUR_S

FREEDOMS: Final = ("suspend", "elastic", "caps", "move")
"""Names of the freedoms."""
STEPS: Final = 80
"""Subgradient steps towards each of the targets."""
TARGET_SHARES: Final = (0.03, 0.003)
"""First distances of their targets, as shares of what jobs add: the prices to begin at may be near."""
MASTER_ROUNDS: Final = 12
"""Most masters of the column generation."""
TOLERANCE: Final = 5e-4
"""Excess over the linear relaxation at which the search for prices stops, over what all jobs add."""


def allowed(freedom: Freedom, asked: Collection[str]) -> Freedom:
    """Returns a class' freedoms without those that are not asked for.

    Example:
        >>> allowed(Freedom(interruptible=True, caps="zeus-v100-bert"), ["caps"]).interruptible
        False
    """
    stopped = ("suspend" in asked or "move" in asked) and freedom.interruptible and freedom.most_suspensions != 0
    elastic = freedom.elastic if "elastic" in asked else None
    return freedom.model_copy(
        update={
            "interruptible": stopped,
            "elastic": elastic,
            "moves": "move" in asked and freedom.moves and (stopped or elastic is not None),
            "caps": freedom.caps if "caps" in asked else None,
        }
    )


def stated(environment: Environment) -> tuple[str, ...]:
    """Returns the freedoms that some class of an environment's fleet states."""
    classes = environment.fleet.freedoms.values()
    has = (any(each.interruptible for each in classes), any(each.elastic for each in classes))
    told = (*has, any(each.caps is not None for each in classes), any(each.moves for each in classes))
    return tuple(name for name, one in zip(FREEDOMS, told, strict=True) if one)


def free_options(environment: Environment, relaxation: Relaxation, asked: Collection[str]) -> FreeOptions:
    """Lists the options of jobs whose class has one of some freedoms, and the modes that each may run in.

    A job keeps its site and clock. It ends by the end of an unbroken run that starts as late as it may, and earns the
    revenue of that run (``Freedom``). Starts that are late are left to unbroken runs.

    Args:
        environment: Environment.
        relaxation: Its dual function without freedoms.
        asked: Freedoms that count.
    """
    fleet, jobs, options = environment.fleet, environment.jobs, relaxation.options
    freedoms = {fleet.classes.index(name): allowed(freedom, asked) for name, freedom in fleet.freedoms.items()}
    largest = max([1, *(max(each.elastic.gpus) for each in freedoms.values() if each.elastic is not None)])
    tables = fleet.tables(min(max(largest, int(jobs.gpus_max_J.max())), max(site.gpus for site in fleet.sites)))
    rows: dict[str, list[float]] = {name: [] for name in FreeOptions._fields}
    rows["mode_O"].append(0)
    job_O: list[int] = []
    class_O = jobs.class_J[options.job_O]
    bent_O = np.isin(class_O, [c for c, each in freedoms.items() if each.interruptible or each.elastic or each.caps])
    for o in np.flatnonzero(bent_O & ~options.late_O).tolist():
        c, site, job = int(class_O[o]), int(options.site_O[o]), int(options.job_O[o])
        freedom, own, level = freedoms[c], int(options.gpus_O[o]), int(options.level_O[o])
        gangs = {own: 1.0}
        scaling = freedom.elastic
        if scaling is not None and own in scaling.gpus and jobs.gpus_min_J[job] == jobs.gpus_max_J[job]:
            base = scaling.speedup[scaling.gpus.index(own)]
            pairs = zip(scaling.gpus, scaling.speedup, strict=True)
            gangs = {n: speedup / base for n, speedup in pairs if n <= fleet.sites[site].gpus}
        curve = freedom.cap_curve
        caps = [(1.0, 1.0)] if curve is None else list(zip(curve.power, curve.throughput, strict=True))
        if len(gangs) * len(caps) == 1 and not freedom.interruptible:
            continue
        job_O.append(job)
        resized = len(gangs) > 1 or (freedom.interruptible and len(caps) > 1)
        rows["search_O"].append(RESIZED if resized else SUSPENDED if freedom.interruptible else CAPPED)
        for name, value in (
            ("site_O", site),
            ("home_O", options.home_O[o]),
            ("earliest_s_O", options.earliest_s_O[o]),
            ("latest_s_O", options.latest_s_O[o]),
            ("end_s_O", options.latest_s_O[o] + options.run_s_O[o]),
            ("run_s_O", options.run_s_O[o]),
            ("own_O", own),
            ("level_O", level),
            ("moves_O", freedom.moves),
            ("move_usd_O", options.move_usd_O[o]),
            ("return_usd_O", options.return_usd_O[o]),
            ("worth_usd_O", options.revenue_usd_O[o] - options.return_usd_O[o] - options.move_usd_O[o]),
            ("return_kwh_O", options.return_kwh_O[o]),
            ("load_s_O", freedom.checkpoint.load_s),
            ("stop_s_O", freedom.checkpoint.stop_s),
        ):
            rows[name].append(value)
        pue = tables.pue_S[site]
        for lane, (gpus, speed) in enumerate(gangs.items()):
            full_w = pue * tables.power_w_SCGF[site, c, gpus, level]
            for power, throughput in caps:
                for name, value in (
                    ("rate_X", speed * throughput),
                    ("power_w_X", full_w * power),
                    ("saved_w_X", pue * tables.free_w_S[site] * gpus),
                    ("gpus_X", gpus),
                    ("lane_X", lane),
                    ("load_w_X", full_w * freedom.checkpoint.load_power),
                    ("stop_w_X", full_w * freedom.checkpoint.stop_power),
                ):
                    rows[name].append(value)
        rows["mode_O"].append(len(rows["rate_X"]))
    whole = ("search_O", "site_O", "home_O", "own_O", "level_O", "moves_O", "mode_O", "lane_X")
    arrays: dict[str, Any] = {
        name: np.array(row, np.int64 if name in whole else np.float64) for name, row in rows.items()
    }
    arrays["first_J"] = np.searchsorted(np.array(job_O, np.int64), np.arange(len(jobs) + 1)).astype(np.int64)
    return FreeOptions(**arrays)


def life_plan(options: FreeOptions, part_s: float) -> LifePlan:
    """Returns room for one life of any option."""
    most = int(np.ceil((options.end_s_O - options.earliest_s_O) / part_s).max(initial=0.0)) + 2
    flags = (np.zeros(most, np.uint8), np.zeros(most, np.uint8))
    return LifePlan(np.zeros(most), np.zeros(most), *flags, np.full(most, -1))


def energy_prices(environment: Environment, relaxation: Relaxation) -> Prices:
    """Returns the prices that lives are reckoned at, those of capacity 0."""
    costs = relaxation.costs
    return Prices(
        weight_SP=np.diff(costs.weight_cumulative_SP, axis=1),
        window_parts=round(environment.window_s / costs.part_s),
        part_s=costs.part_s,
        carbon_SH=costs.carbon_SH,
        usd_per_g=costs.usd_per_g,
        capacity_SH=np.zeros(relaxation.shape),
        room_SH=np.full(relaxation.shape, np.inf),
    )


class FreedomDual:
    """The dual function where jobs may be stopped, resized or capped: capacity priced, every job on its own.

    ``D(lambda) = idle + sum_j max(0, unbroken run, best life) + sum lambda R``. For every ``lambda >= 0``, D is at
    least the utility of every schedule: a life costs at most what the engine's cost (``life_suspended``), and every
    unbroken run is one of the choices, so D is also at least the dual function without freedoms.

    Args:
        environment: Environment with economics and signals whose runs last until drained.
        relaxation: Its dual function without freedoms.
        asked: Freedoms that count, of those that the fleet's classes state.

    Attributes:
        options: Options that have a freedom.
        lives: What the jobs chose at the last evaluation.
        evaluations: How often D was evaluated.
    """

    def __init__(self, environment: Environment, relaxation: Relaxation, asked: Collection[str]) -> None:
        self.relaxation, self.evaluations = relaxation, 0
        self.options = free_options(environment, relaxation, asked)
        options, jobs = relaxation.options, len(environment.jobs)
        last_hour = relaxation.shape[1] - 1
        from_J, to_J = np.full(jobs, last_hour), np.zeros(jobs, np.int64)
        np.minimum.at(from_J, options.job_O, (options.earliest_s_O / HOUR_S).astype(np.int64))
        end_s_O = options.latest_s_O + options.run_s_O
        np.maximum.at(to_J, options.job_O, np.minimum((end_s_O / HOUR_S).astype(np.int64), last_hour))
        first_J = np.concatenate([[0], np.cumsum(np.maximum(0, to_J - from_J + 1))]).astype(np.int64)
        self.lives = Lives(
            value_J=np.zeros(jobs),
            priced_J=np.zeros(jobs),
            option_J=np.full(jobs, -1),
            site_J=np.full(jobs, -1),
            hour_J=from_J.astype(np.int64),
            first_J=first_J,
            use_U=np.zeros(first_J[-1]),
        )
        self.plan = life_plan(self.options, relaxation.costs.part_s)
        self.idle_usd, self.best_J = relaxation.idle_usd, self.lives.option_J
        self._guess = np.zeros(len(self.options.site_O))
        self._prices = energy_prices(environment, relaxation)

    @property
    def shape(self) -> tuple[int, int]:
        """Sites and hours."""
        return self.relaxation.shape

    def value(self, price_SH: F8) -> tuple[float, F8]:
        """Evaluates the dual function.

        Args:
            price_SH: Capacity prices lambda, USD per GPU-hour, shape (sites, hours).

        Returns:
            (D in USD, a subgradient: GPU-hours left free by the jobs' choices).
        """
        self.evaluations += 1
        self.relaxation.value(price_SH)
        c, prices = self.relaxation.columns, self._prices._replace(capacity_SH=price_SH)
        choose_lives(
            self.options, prices, self.relaxation.best_J, c.value_K, c.gpus_K, c.from_K, c.from_share_K, c.to_K,
            c.to_share_K, self._guess, self.lives, self.plan,
        )  # fmt: skip
        self.best_J = self.lives.option_J
        gpus_S = self.relaxation.gpus_S
        free_SH = np.repeat(gpus_S[:, None].astype(np.float64), self.shape[1], axis=1)
        take_use(self.lives, free_SH)
        capacity_usd = float(gpus_S @ price_SH.sum(axis=1))
        return self.idle_usd + float(self.lives.priced_J.sum()) + capacity_usd, free_SH

    def moved_value(self, price_SH: F8) -> float:
        """Evaluates the dual function where suspended jobs may also move to other sites, USD (``life_moved``)."""
        value_usd, _ = self.value(price_SH)
        prices = self._prices._replace(capacity_SH=price_SH)
        return value_usd + float(moved_gains(self.options, prices, self._guess, self.lives.priced_J))


class LifeMaster:
    """The linear relaxation over some lives: ``max sum_k v_k x_k``, every job once at most, within capacity.

    Args:
        dual: The dual function whose lives it takes.

    Attributes:
        columns: Number of lives added.
        optimum: The last optimum, or None.
    """

    def __init__(self, dual: FreedomDual) -> None:
        self.dual = dual
        self.optimum: Optimum | None = None
        self.columns = 0
        self._solver = quiet_solver()
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        self._jobs = len(dual.lives.value_J)
        upper_R = np.concatenate([np.ones(self._jobs), np.repeat(dual.relaxation.gpus_S, dual.shape[1])])
        none = np.empty(0, dtype=np.int32)
        self._solver.addRows(
            len(upper_R), np.full(len(upper_R), -np.inf), upper_R.astype(np.float64), 0, none, none, np.empty(0)
        )

    def add(self) -> int:
        """Adds the lives of the last evaluation that are worth more than the last optimum pays; returns how many."""
        lives, hours = self.dual.lives, self.dual.shape[1]
        price_SH, paid_J = self.prices(), np.zeros(self._jobs)
        if self.optimum is not None:
            paid_J = self.optimum.dual[: self._jobs]
        rows: list[Any] = []
        used: list[Any] = []
        values: list[float] = []
        firsts = [0]
        for j in np.flatnonzero(lives.site_J >= 0).tolist():
            use = lives.use_U[lives.first_J[j] : lives.first_J[j + 1]]
            at = np.flatnonzero(use > 0)
            hour, site = lives.hour_J[j] + at, lives.site_J[j]
            gain_usd = lives.value_J[j] - price_SH[site, hour] @ use[at] - paid_J[j]
            if gain_usd <= 1e-9 * max(1.0, abs(lives.value_J[j])):
                continue
            rows += [[j], self._jobs + site * hours + hour]
            used += [[1.0], use[at]]
            values.append(lives.value_J[j])
            firsts.append(firsts[-1] + 1 + len(at))
        if values:
            count = len(values)
            self._solver.addCols(
                count, np.array(values), np.zeros(count), np.full(count, np.inf), firsts[-1],
                np.array(firsts[:-1], np.int32), np.concatenate(rows).astype(np.int32), np.concatenate(used),
            )  # fmt: skip
        self.columns += len(values)
        return len(values)

    def solve(self) -> float:
        """Solves the master and returns its optimum, USD; 0 without columns."""
        if not self.columns:
            return 0.0
        self.optimum = solved(self._solver, "master of the bound of freedoms")
        return self.optimum.value

    def prices(self) -> F8:
        """Returns the duals of capacity at the last optimum, at least 0, shape (sites, hours); 0 before the first."""
        if self.optimum is None:
            return np.zeros(self.dual.shape)
        return np.maximum(0.0, self.optimum.dual[self._jobs :].reshape(self.dual.shape))


@dataclass(frozen=True, kw_only=True)
class FreedomBound:
    """What no scheduler can exceed where jobs have some freedoms.

    Attributes:
        upper_usd: Upper bound on the total utility, USD.
        excess_usd: Most by which it may exceed the least bound of this kind, USD.
        price_SH: Capacity prices that give it, USD per GPU-hour.
        evaluations: Evaluations of the dual function.
    """

    upper_usd: float
    excess_usd: float
    price_SH: F8
    evaluations: int


def lower(
    dual: FreedomDual,
    price_SH: F8,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
    rounds: int = MASTER_ROUNDS,
) -> FreedomBound:
    """Lowers the dual function by subgradient steps, then by column generation, as without freedoms.

    Args:
        dual: The dual function.
        price_SH: Prices to begin at, USD per GPU-hour.
        tolerance: Excess over the master, as a share of what all jobs add, at which to stop.
        steps: Subgradient steps towards each of two targets.
        rounds: Most masters solved.
    """
    master = LifeMaster(dual)
    best_usd, best_SH = math.inf, price_SH
    for target_share in TARGET_SHARES:
        collected = _Collected(dual, master, steps // 2)
        found_usd, found_SH, _ = descend(collected, steps, price_SH=best_SH, target_share=target_share)
        if found_usd < best_usd:
            best_usd, best_SH = found_usd, found_SH
    excess_usd = math.inf
    for _ in range(rounds):
        master_usd = master.solve()
        duals_SH, added = master.prices(), 0
        for share in (0.9, 0.7, 0.0):
            trial_SH = share * best_SH + (1 - share) * duals_SH
            value_usd, _ = dual.value(trial_SH)
            added += master.add()
            if value_usd < best_usd:
                best_usd, best_SH = value_usd, trial_SH
        excess_usd = max(0.0, best_usd - dual.idle_usd - master_usd)
        if not added or excess_usd <= tolerance * max(abs(best_usd - dual.idle_usd), 1e-12):
            break
    return FreedomBound(upper_usd=best_usd, excess_usd=excess_usd, price_SH=best_SH, evaluations=dual.evaluations)


class _Collected:
    """A dual function of whose later evaluations every third one's lives go to a master."""

    def __init__(self, dual: FreedomDual, master: LifeMaster, begin: int) -> None:
        self._dual, self._master, self._begin, self._count = dual, master, begin, 0
        self.idle_usd, self.best_J, self.shape = dual.idle_usd, dual.best_J, dual.shape

    def value(self, price_SH: F8) -> tuple[float, F8]:
        """Evaluates the dual function."""
        found = self._dual.value(price_SH)
        self._count += 1
        if self._count == 1 or (self._count > self._begin and self._count % 3 == 0):
            self._master.add()
        return found

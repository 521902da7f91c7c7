"""The experiment of Hall et al., Sec. V: plans with a guarantee, greedy and perfect forecast on held-out days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.jobs.load_shapes import (
    LoadProfiles,
    daily_costs,
    draw_days,
    generate_load_shapes,
    load_shape_constants,
    read_load_profiles,
)
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean
from noonward.notices import tell
from noonward.runtime.executor import Executor, PlainSpec, Progress, map_runs
from noonward.runtime.shared import shared
from noonward.schedule.plan.baselines import greedy, perfect_forecast
from noonward.schedule.plan.classes import LoadClass
from noonward.schedule.plan.placement import Tracker
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.result import Plan, tail_mean
from noonward.schedule.plan.robustness import Robustness, choose_robustness
from noonward.schedule.plan.solve import make_plan
from noonward.seeding import stream

TRAINING, VALIDATION = 60, 15
"""Days the paper plans on, and days it holds out (Sec. V.B)."""
BETA, EPS = 0.2, 8e-3
"""The paper's tail and radius (Sec. V.B)."""
BETAS: Final = (0.02, 0.1, 0.5)
"""Tails of Fig. 7."""
RADII: Final = (0.0, 1e-3, 8e-3, 1e-2, 2e-2, 5e-2)
"""Radii of Table II and of Figs. 8 and 9."""
TABLE_RADII: Final = (8e-3, 5e-2)
"""Radii of Table II."""
FOLDS: Final = 5
"""Blocks of training days that the radius is cross-validated on."""
JOBS_PER_HOUR: Final = 20
"""Jobs a class and hour of the discrete days (the paper does not say)."""
VOLUME_SPREAD: Final = 0.1
"""Standard deviation of a job's volume over its mean (Sec. V.G)."""
QUEUE_CLUSTER: Final = 2
"""Cluster of Fig. 9 (d = 3, counted from 1)."""
PAPER_COST: Final = {"dro-0.008": 0.0257, "dro-0.05": 0.0886, "greedy": 0.1405}
"""Cost above the perfect forecast, Table II."""
PAPER_COST_SPREAD: Final = {"dro-0.008": 0.0105, "dro-0.05": 0.0100, "greedy": 0.0063}
"""Standard deviation of it over validation days, Table II."""
PAPER_VIOLATIONS: Final = {0.02: 0.0, 0.1: 4.0, 0.5: 33.0}
"""Hours and clusters above the curve on one day, Fig. 7."""


@dataclass(kw_only=True)
class LoadShaping:
    """Results, pooled over draws of days.

    Attributes:
        source: Where the load shapes come from.
        cost: Per policy, cost above the perfect forecast per validation day, fractions.
        violations: Per tail, hours and clusters above the curve per validation day, discrete jobs.
        excess: Per radius, largest load above the curve per validation day (negative: it fits).
        queue: Per radius, mean queue at ``QUEUE_CLUSTER`` by hour under hard curves, (draws x days, T).
        tail: Per draw, CVaR of the validation days' excess.
        planned: Per draw, objective of the paper's plan over the mean perfect-forecast cost, less 1.
        late: Per validation day, share of the load that greedy had to delay.
        chosen: Per draw, the radius chosen by cross-validation on its training days.
        plans: Plans of the first draw, by label.
        training_NKC: Training days of the first draw.
        validation_NKC: Validation days of the first draw.
        greedy_TD: Greedy's load on the first validation day.
    """

    source: str
    cost: dict[str, list[float]] = field(default_factory=dict)
    violations: dict[float, list[float]] = field(default_factory=dict)
    excess: dict[float, list[float]] = field(default_factory=dict)
    queue: dict[float, list[F8]] = field(default_factory=dict)
    tail: list[float] = field(default_factory=list)
    planned: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    chosen: list[Robustness] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    training_NKC: F8 = field(default_factory=lambda: np.empty(0))
    validation_NKC: F8 = field(default_factory=lambda: np.empty(0))
    greedy_TD: F8 = field(default_factory=lambda: np.empty(0))

    def held_share(self, eps: float = EPS) -> Estimate:
        """Returns the share of held-out days whose load stayed within the curve everywhere; 1 - beta is promised."""
        return mean([float(excess <= 1e-9) for excess in self.excess[eps]]).within(0.0, 1.0)

    def chosen_excess(self) -> list[float]:
        """Returns the held-out days' excess under the plan of each draw's chosen radius."""
        days = len(self.excess[EPS]) // len(self.chosen)
        return [
            excess
            for draw, found in enumerate(self.chosen)
            for excess in self.excess[found.chosen.eps][draw * days : (draw + 1) * days]
        ]

    def metrics(self) -> list[Metric]:
        """Returns the metrics for ``--json``."""
        out = [
            Metric.of(f"cost_above_perfect_forecast/{name}", mean(values), "fraction", PAPER_COST.get(name))
            for name, values in self.cost.items()
        ]
        out += [
            Metric.of(f"cost_spread/{name}", float(np.std(values, ddof=1)), "fraction", PAPER_COST_SPREAD.get(name))
            for name, values in self.cost.items()
            if len(values) > 1
        ]
        out += [
            Metric.of(f"violations_per_day/beta-{beta:g}", mean(values), "hours x clusters", PAPER_VIOLATIONS.get(beta))
            for beta, values in self.violations.items()
        ]
        out.append(Metric.of("guarantee_held_share", self.held_share(), "fraction", 1 - BETA))
        out.append(Metric.of("guarantee_cvar_held_share", float(np.mean([t <= 1e-9 for t in self.tail])), "fraction"))
        for eps in self.excess:
            over = np.maximum(self.excess[eps], 0.0)
            out.append(Metric.of(f"guarantee_held_share/eps-{eps:g}", self.held_share(eps), "fraction", 1 - BETA))
            out.append(Metric.of(f"largest_excess/eps-{eps:g}", mean(over), "cluster capacity"))
            peaks = mean([queue_T.max() for queue_T in self.queue[eps]])
            out.append(Metric.of(f"queue_peak/eps-{eps:g}", peaks, "cluster capacity"))
        excess = self.chosen_excess()
        held = mean([float(value <= 1e-9) for value in excess]).within(0.0, 1.0)
        out.append(Metric.of("cross_validated/eps", mean([found.chosen.eps for found in self.chosen]), "load"))
        out.append(Metric.of("cross_validated/guarantee_held_share", held, "fraction", 1 - BETA))
        within = mean([found.chosen.held_share for found in self.chosen]).within(0.0, 1.0)
        out.append(Metric.of("cross_validated/held_share_in_training", within, "fraction", 1 - BETA))
        kept = float(np.mean([found.kept for found in self.chosen]))
        out.append(Metric.of("cross_validated/promise_kept_share", kept, "fraction"))
        out.append(Metric.of("cross_validated/largest_excess", mean(np.maximum(excess, 0.0)), "cluster capacity"))
        out.append(Metric.of("greedy_late_share", mean(self.late).within(0.0, 1.0), "fraction"))
        out.append(Metric.of("planned_cost_above_perfect_forecast", mean(self.planned), "fraction"))
        return out

    @classmethod
    def pooled(cls, draws: Sequence[LoadShaping]) -> LoadShaping:
        """Returns the results of several draws in one; plans and days are those of the first."""
        first = draws[0]
        out = cls(
            source=first.source,
            plans=first.plans,
            training_NKC=first.training_NKC,
            validation_NKC=first.validation_NKC,
            greedy_TD=first.greedy_TD,
        )
        for draw in draws:
            for name in _POOLED:
                getattr(out, name).extend(getattr(draw, name))
            for name in _POOLED_BY_KEY:
                for key, values in getattr(draw, name).items():
                    getattr(out, name).setdefault(key, []).extend(values)
        return out


_POOLED: Final = ("tail", "planned", "late", "chosen")
_POOLED_BY_KEY: Final = ("cost", "violations", "excess", "queue")
"""Fields of ``LoadShaping`` that hold values of all draws: lists, and lists by key."""


def paper_problem(load_NKC: F8, *, beta: float = BETA, eps: float = EPS) -> PlanProblem:
    """Returns the paper's setting: two data centers of two clusters, seven classes, 10 h of delay (Sec. V.B).

    Four classes are bound to one cluster, two to one data center, one is global. The support's upper end is
    ``problem.HEADROOM`` x the largest training load.
    """
    c = load_shape_constants()
    clusters = c.centers * c.clusters_per_center
    per = c.clusters_per_center
    ranges: list[tuple[int, ...]] = [(d,) for d in range(clusters)]
    ranges += [tuple(range(j * per, (j + 1) * per)) for j in range(c.centers)]
    ranges.append(tuple(range(clusters)))
    classes = tuple(LoadClass(name=_name(r, clusters), clusters=r, flexibility_h=c.delay_h) for r in ranges)
    span = load_NKC.shape[1] + c.delay_h
    return PlanProblem(
        classes=classes,
        load_NKC=load_NKC,
        capacity_TD=np.full((span, clusters), c.capacity),
        cost_TD=daily_costs(span),
        peak_cost_D=np.full(clusters, c.peak_weight),
        beta=beta,
        eps=eps,
    )


def _name(clusters: tuple[int, ...], count: int) -> str:
    if len(clusters) == count:
        return "global"
    return "clusters " + "+".join(str(d + 1) for d in clusters) if len(clusters) > 1 else f"cluster {clusters[0] + 1}"


def reproduce_load_shaping(
    profiles: Path | None = None,
    *,
    sources: tuple[str, ...] = (),
    draws: int = 3,
    seed: int = 0,
    training: int = TRAINING,
    validation: int = VALIDATION,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> LoadShaping:
    """Runs the experiment.

    Args:
        profiles: File of real daily load profiles (``read_load_profiles``); the packaged generator if left out.
        sources: Sources of the file to use; all if empty.
        draws: Draws of training and validation days.
        seed: Seed of the draws.
        training: Training days of a draw.
        validation: Validation days of a draw.
        progress: Called once per draw. The steps of a draw are told as notices (``noonward.notices``).
        executor: Where draws are carried out; by default here, one after the other.

    Raises:
        DataError: The file is not as described or holds too few profiles.
        InfeasiblePlanError: A draw's loads do not fit the clusters.
    """
    specs = [DrawRun(draw, seed, profiles, sources, training, validation) for draw in range(draws)]
    return LoadShaping.pooled(map_runs(specs, executor, progress))


@dataclass(frozen=True)
class DrawRun(PlainSpec):
    """A spec: one draw of training and validation days, its plans, and what they are worth.

    Attributes:
        draw: Number of the draw.
        seed: Seed of the draws.
        profiles: File of daily load profiles, or None for the packaged generator.
        sources: Sources of the file to use; all if empty.
        training: Training days.
        validation: Validation days.
    """

    draw: int
    seed: int
    profiles: Path | None
    sources: tuple[str, ...]
    training: int
    validation: int

    @property
    def label(self) -> str:
        """Name of the draw in tables."""
        return f"draw {self.draw}"

    def run(self) -> LoadShaping:
        """Returns the results of the draw."""
        pool = None if self.profiles is None else open_profiles(self.profiles, self.sources)
        rng = stream(self.seed, "workload", "load-shaping", self.draw)
        train_NKC, held_NKC = _days(pool, self.training, self.validation, rng)
        result = LoadShaping(source="generator" if self.profiles is None else str(self.profiles))
        _one_draw(result, self.draw, train_NKC, held_NKC, rng)
        return result


def open_profiles(path: Path, sources: tuple[str, ...]) -> LoadProfiles:
    """Returns the profiles of a file, of some sources or all; read once for all runs of a process."""

    def read() -> LoadProfiles:
        pool = read_load_profiles(path)
        return pool.of_sources(sources) if sources else pool

    found: LoadProfiles = shared(("load profiles", path, sources), read)
    return found


def class_count() -> int:
    """Returns the classes of the paper's setting: one a cluster, one a data center, one global."""
    c = load_shape_constants()
    return c.centers * (c.clusters_per_center + 1) + 1


def _days(pool: LoadProfiles | None, training: int, validation: int, rng: np.random.Generator) -> tuple[F8, F8]:
    classes = class_count()
    if pool is None:
        load_NKC = generate_load_shapes(training + validation, classes, rng)
        return load_NKC[:training], load_NKC[training:]
    return draw_days(pool, training, validation, classes, rng, load_shape_constants().class_level)


def _one_draw(result: LoadShaping, draw: int, train_NKC: F8, held_NKC: F8, rng: np.random.Generator) -> None:
    def progress(step: str) -> None:
        tell("progress", f"draw {draw}, {step}")

    problem = paper_problem(train_NKC)
    best = []
    for day, load_KC in enumerate(held_NKC):
        best.append(perfect_forecast(problem, load_KC).objective)
        placed = greedy(problem, load_KC)
        result.cost.setdefault("greedy", []).append(problem.cost_of(placed.load_TD) / best[-1] - 1)
        result.late.append(placed.late / float(load_KC.sum()))
        if draw == 0 and day == 0:
            result.greedy_TD = placed.load_TD
        progress(f"perfect forecast of day {day}")
    if draw == 0:
        result.training_NKC, result.validation_NKC = train_NKC, held_NKC
    found = choose_robustness(problem, RADII, folds=min(FOLDS, len(train_NKC)), progress=progress)
    result.chosen.append(found)
    for eps in RADII:
        plan = make_plan(replace(problem, eps=eps))
        above = _score_radius(result, plan, held_NKC, best)
        if eps == found.chosen.eps:
            result.cost.setdefault("dro-cross-validated", []).extend(above)
        if draw == 0:
            result.plans[f"eps {eps:g}"] = plan
        progress(f"plan with eps {eps:g}")
    for beta in BETAS:
        plan = make_plan(replace(problem, beta=beta))
        over = [float((job_load(plan, day, rng) > plan.curve_TD + 1e-9).sum()) for day in held_NKC]
        result.violations.setdefault(beta, []).extend(over)
        if draw == 0:
            result.plans[f"beta {beta:g}"] = plan
        progress(f"plan with beta {beta:g}")


def _score_radius(result: LoadShaping, plan: Plan, held_NKC: F8, best: list[float]) -> list[float]:
    """Books what a plan with the paper's tail does on held-out days; returns its cost above the perfect forecast."""
    eps, problem = plan.problem.eps, plan.problem
    load_NTD = plan.fractions.load(held_NKC)
    excess = plan.excess(held_NKC)
    result.excess.setdefault(eps, []).extend(excess.tolist())
    queue_NT = np.zeros(load_NTD.shape[:2])
    room_TD = plan.curve_TD[:, QUEUE_CLUSTER]
    behind = np.zeros(len(held_NKC))
    for t in range(load_NTD.shape[1]):
        behind = np.maximum(behind + load_NTD[:, t, QUEUE_CLUSTER] - room_TD[t], 0.0)
        queue_NT[:, t] = behind
    result.queue.setdefault(eps, []).extend(list(queue_NT))
    above = [problem.cost_of(load) / cost - 1 for load, cost in zip(load_NTD, best, strict=True)]
    if eps in TABLE_RADII:
        result.cost.setdefault(f"dro-{eps:g}", []).extend(above)
    if eps == EPS:
        result.tail.append(tail_mean(excess, problem.beta))
        result.planned.append(plan.objective / float(np.mean(best)) - 1)
    return above


def job_load(plan: Plan, load_KC: F8, rng: np.random.Generator) -> F8:
    """Returns a day's load at every place when it comes as discrete jobs that Eq. (15) places, (T, D).

    Each class and hour has ``JOBS_PER_HOUR`` jobs of one hour, of volume Normal(1, ``VOLUME_SPREAD``) x their mean (at
    least a tenth of it), scaled to the hour's load; the classes' jobs come in turn.

    Args:
        plan: What to follow.
        load_KC: Load of the day.
        rng: Source of the volumes.
    """
    tracker = Tracker(plan.fractions)
    hours, classes = load_KC.shape
    load_TD = np.zeros(plan.curve_TD.shape)
    class_J = np.tile(np.arange(classes), JOBS_PER_HOUR)
    for k in range(hours):
        volume_JC = np.maximum(rng.normal(1.0, VOLUME_SPREAD, (JOBS_PER_HOUR, classes)), 0.1)
        volume_J = (volume_JC * (load_KC[k] / volume_JC.sum(axis=0))).ravel()
        run_hour_J, cluster_J = tracker.place_hour(k, class_J, volume_J)
        np.add.at(load_TD, (run_hour_J, cluster_J), volume_J)
    return load_TD

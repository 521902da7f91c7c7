"""What a plan is held against: greedy, perfect forecast, run at once, spread evenly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.schedule.plan.classes import LoadClass
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.result import Fractions, Plan
from noonward.schedule.plan.solve import make_plan


@dataclass(frozen=True, kw_only=True)
class Placed:
    """What became of a day's load.

    Attributes:
        load_TD: Load at every hour and cluster.
        late: Load that found no capacity in its submission hour and ran in a later one.
        left: Load that found none by the end of the horizon.
    """

    load_TD: F8
    late: float
    left: float


def greedy(problem: PlanProblem, load_KC: F8, jobs: int = 10) -> Placed:
    """Places each job at once at the cheapest cluster of its range with machine capacity left (Hall et al., Sec. V.D).

    The load of a class in an hour is ``jobs`` equal jobs, which come in turn with those of the other classes; a job is
    split where a cluster fills up. What finds no room in its hour waits for the next, before new jobs.

    Args:
        problem: Costs, capacity and classes; samples and guarantee are not read.
        load_KC: Load of the day.
        jobs: Jobs per class and hour.

    Raises:
        ScenarioError: The load has another shape.
    """
    load_KC = _day(problem, load_KC)
    _, hours, classes, span, _ = problem.shape
    room_TD = problem.capacity_TD.copy()
    if problem.placed_TD is not None:
        room_TD -= problem.placed_TD
    load_TD = np.zeros(room_TD.shape)
    waiting = [(wait.load_class, wait.load) for wait in problem.queued]
    late = 0.0
    for t in range(span):
        ranges = [_cheapest(one, problem.cost_TD[t : t + one.run_hours]) for one in problem.classes]
        still: list[tuple[int, float]] = []
        new = [(c, load_KC[t, c] / jobs) for _ in range(jobs) for c in range(classes)] if t < hours else []
        for index, (c, volume) in enumerate([*waiting, *new]):
            rest, end = volume, t + problem.classes[c].run_hours
            for d in ranges[c] if end <= span else ():
                part = min(rest, float(room_TD[t:end, d].min()))
                if part > 0:
                    load_TD[t:end, d] += part
                    room_TD[t:end, d] -= part
                    rest -= part
            late += volume - rest if index < len(waiting) else 0.0
            if rest > 0:
                still.append((c, rest))
        waiting = still
    return Placed(load_TD=load_TD, late=float(late), left=float(sum(rest for _, rest in waiting)))


def _cheapest(one: LoadClass, cost_TD: F8) -> list[int]:
    """Returns a class's clusters, cheapest for its whole run first."""
    order = np.argsort(cost_TD.sum(axis=0), kind="stable").tolist()
    return [d for d in order if d in one.clusters]


def perfect_forecast(problem: PlanProblem, load_KC: F8) -> Plan:
    """Returns the cheapest plan for a day that is known: the same LP with the day as the only sample, without radius.

    Args:
        problem: Costs, capacity and classes.
        load_KC: Load of the day.

    Raises:
        ScenarioError: The load has another shape.
        InfeasiblePlanError: The day does not fit the capacity.
    """
    day = _day(problem, load_KC)[None]
    return make_plan(replace(problem, load_NKC=day, beta=1.0, eps=0.0, load_max_KC=None))


def run_at_once(problem: PlanProblem) -> Fractions:
    """Returns the fractions that run every load in its submission hour, evenly over its range."""
    return _even(problem, problem.entries.run_hour_M == problem.entries.hour_M)


def spread_evenly(problem: PlanProblem) -> Fractions:
    """Returns the fractions that spread every load evenly over its range and its flexibility."""
    return _even(problem, np.ones(len(problem.entries), dtype=bool))


def _even(problem: PlanProblem, used_M: NDArray[np.bool_]) -> Fractions:
    load_M = problem.entries.load_M
    count_L = np.bincount(load_M[used_M])
    return Fractions.of(problem, np.where(used_M, 1.0 / count_L[load_M], 0.0))


def _day(problem: PlanProblem, load_KC: F8) -> F8:
    day: F8 = np.asarray(load_KC, dtype=np.float64)
    if day.shape != problem.load_NKC.shape[1:]:
        raise ScenarioError(f"the day's load has shape {day.shape}; expected {problem.load_NKC.shape[1:]}")
    return day

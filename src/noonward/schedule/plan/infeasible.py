"""Why there is no plan: what cannot be served where, and the smallest capacity or beta that would do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from noonward.errors import InfeasiblePlanError
from noonward.schedule.plan.generate import generate
from noonward.schedule.plan.problem import PlanProblem

MOST_STEPS: Final = 30
"""Newton steps to the smallest beta; five are usual."""


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """What is short, and how much.

    Attributes:
        scale: Smallest factor on all capacities with which there is a plan.
        load: Load that presses most on what is short, as in ``Entries``.
        run_hour: Execution hour in which capacity is shortest for it.
        cluster: The cluster there.
    """

    scale: float
    load: int
    run_hour: int
    cluster: int


def shortage(problem: PlanProblem) -> Shortage | None:
    """Returns what is short: least g with capacities (1 + g) x ``capacity_TD``, and what its duals point at.

    A service row's dual is how much g grows with the load's share; a place's dual times its capacity is its part in
    what is short (these parts sum to 1). None where no factor would do.
    """
    solved = generate(problem, goal="stretch")
    if solved is None:
        return None
    program, dual, entries = solved.program, solved.point.dual, solved.program.entries
    load = int(dual[: program.loads].argmax())
    part_P = np.abs(dual[program.loads : program.loads + program.places]) * program.capacity_P
    mine = np.flatnonzero(entries.load_G == load)
    place = int(entries.place_G[mine[part_P[entries.place_G[mine]].argmax()]])
    run_hour, cluster = divmod(place, problem.shape[4])
    return Shortage(scale=1.0 + solved.point.value, load=load, run_hour=run_hour, cluster=cluster)


def smallest_beta(problem: PlanProblem) -> float | None:
    """Returns the smallest beta with which there is a plan, or None if there is none up to 1.

    With F(beta) the least of ``lambda eps + (1/N) sum_i p_i - q beta``, there is a plan where F <= 0. F is concave, a
    minimum of lines of slope -q: Newton's steps from beta = 1 fall to its root from above, each one solve.
    """
    beta, active = 1.0, None
    for _ in range(MOST_STEPS):
        solved = generate(replace(problem, beta=beta), active, goal="tail")
        if solved is None or solved.point.value > 1e-9:
            return None if beta == 1.0 else beta
        program, x = solved.program, solved.point.x
        slope = float(x[program.q])
        if slope <= 0:
            return beta
        lower = beta + solved.point.value / slope
        if beta - lower < 1e-6:
            return beta
        beta, active = max(lower, 1e-9), program.active(solved.point)
    return beta


def why_infeasible(problem: PlanProblem) -> InfeasiblePlanError:
    """Returns the error that says what cannot be served, and the smallest capacity or beta that would do."""
    short = shortage(problem)
    if short is None:
        return InfeasiblePlanError("no plan satisfies the constraints, whatever the capacity; check placed_TD")
    starts = problem.entries.run_hour_M[problem.entries.load_M == short.load]
    one = problem.classes[problem.entries.class_M[np.searchsorted(problem.entries.load_M, short.load)]]
    beta = smallest_beta(problem)
    remedy = f"multiply all capacities by at least {_up(short.scale):.6g}"
    if beta is not None:
        remedy += f", or raise beta from {problem.beta:g} to at least {_up(beta):.6g}"
    else:
        remedy += " (no beta would do)"
    room = problem.capacity_TD[short.run_hour, short.cluster]
    return InfeasiblePlanError(
        f"class {one.name!r} {problem.origin(short.load)} cannot be served within hours {starts[0]} to "
        f"{starts[-1] + one.run_hours - 1} at clusters {list(one.clusters)}; capacity is shortest at cluster "
        f"{short.cluster} in hour {short.run_hour} ({room:g}). To get a plan, {remedy}"
    )


def _up(value: float) -> float:
    """Returns a value rounded up at the fifth significant digit, so that the rounded value would do."""
    size = 10.0 ** (math.floor(math.log10(value)) - 4)
    return math.ceil(value / size + 1e-3) * size

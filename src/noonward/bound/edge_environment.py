"""Bounds of an edge environment: of the response at equal steps and at a quality, and the best schedule known."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from noonward.arrays import I8
from noonward.bound.edge import response_bound
from noonward.bound.edge_models import models_bound
from noonward.bound.edge_quality import least_more_seconds
from noonward.bound.edge_search import best_schedule
from noonward.engine.edge.engine import edge_world
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.quality import LAWS, steps_least

MOST_TASKS: Final = 128
"""Bounds are computed for at most so many tasks: their time grows with the product of the tasks per gang size."""
MOST_CHAINS: Final = 10_000_000
"""The bound over chains of periods is left out beyond so many pairs of states (``chains``)."""


def bounds_of(environment: EdgeEnvironment) -> dict[str, float]:
    """Returns ``response_s``, a lower bound, and ``best_known_s``, that of a schedule found with foresight, s.

    Both are for tasks of the scenario's steps. ``at_goal_s`` is a lower bound at the scenario's goal of quality,
    however the steps are spread (left out where no steps reach it). Empty where runs are cut off or have more than
    ``MOST_TASKS`` tasks.

    Args:
        environment: Environment.
    """
    setting = environment.setting
    if setting.end != "drained" or len(environment.tasks) > MOST_TASKS:
        return {}
    found = best_schedule(edge_world(environment), setting.steps)
    out = {"response_s": edge_response_bound(environment, setting.steps), "best_known_s": found.response_s}
    at_goal_s = edge_quality_bound(environment, setting.quality_goal)
    return out | ({"at_goal_s": at_goal_s} if math.isfinite(at_goal_s) else {})


def edge_response_bound(environment: EdgeEnvironment, steps: float) -> float:
    """Returns a lower bound on the mean response of all tasks under every scheduler that gives so many steps, s.

    A task that may have fewer steps gets its most.

    The larger of two: one counts the loads of every model and the servers' work (``bound.edge_models``). The other
    counts how gangs of different sizes keep each other from the servers; it takes all models for one, which can only be
    served sooner, and is left out where it would take too long.
    """
    setting, tasks = environment.setting, environment.tasks
    record_K, ready_s_K = tasks.record_K, tasks.record_K["ready_t"] * setting.tick_s
    servers, stamp_s_K, gang_K = setting.servers.count, tasks.stamp_s_K, tasks.gang_K
    run_s_K = np.minimum(steps, record_K["steps_max"]) * record_K["step_s"]
    run_s_G = np.full(len(environment.step_s_G), np.nan)
    for size in np.unique(gang_K).tolist():
        run_s_G[size] = run_s_K[gang_K == size].min()
    of_models_s = models_bound(
        servers,
        stamp_s_K,
        ready_s_K,
        gang_K,
        record_K["model"],
        record_K["load_s"],
        run_s_K,
        setting.first_s,
    )
    if chains(gang_K) > MOST_CHAINS:
        return of_models_s
    of_gangs_s = response_bound(
        servers,
        stamp_s_K,
        ready_s_K,
        gang_K,
        environment.least_load_s_G,
        run_s_G,
        setting.first_s,
    )
    return max(of_models_s, of_gangs_s)


def edge_quality_bound(environment: EdgeEnvironment, goal: float) -> float:
    """Returns a lower bound on the mean response of every scheduler whose mean quality reaches a goal, s.

    Its steps may be spread among the images as one likes (``bound.edge_quality``). It holds for schedulers that give no
    image fewer steps than the scenario's least quality needs.

    Args:
        environment: Environment.
        goal: Mean quality, 0 to 0.284.

    Returns:
        The bound; infinite where no steps reach the goal.
    """
    setting, record_K = environment.setting, environment.tasks.record_K
    fewest, law = steps_least(setting.steps_min, setting.quality_min), LAWS.index(setting.quality)
    most_K = record_K["steps_max"].astype(float)
    more_s = least_more_seconds(record_K["step_s"].astype(float), np.minimum(fewest, most_K), most_K, goal, law)
    return edge_response_bound(environment, fewest) + more_s / len(record_K)


def chains(gang_K: I8) -> int:
    """Returns how many pairs of states the search over chains of periods visits, at most; its time grows with them.

    Example:
        >>> chains(np.array([1, 1, 4]))  # 0, 1 or 2 tasks of one size, then as many or more: 6 pairs; of the other: 3
        18
    """
    _, count_C = np.unique(gang_K, return_counts=True)
    return math.prod((int(count) + 1) * (int(count) + 2) // 2 for count in count_C)

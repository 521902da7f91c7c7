"""The bound at a mean quality: by hand, and against exhaustive search over schedules and steps on tiny worlds."""

import itertools

import numpy as np
import pytest

from bound.test_edge import bound_of, least_response
from engine.edge.worlds import random_tasks
from noonward.bound.edge_environment import edge_quality_bound, edge_response_bound
from noonward.bound.edge_quality import least_more_seconds
from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.edge.engine import run_edge_environment
from noonward.model.edge.quality import quality, steps_for
from noonward.schedule.policies import make_scheduler
from reference import edge as reference

GOAL = 0.26


def more_s(step_s, fewest=12.0, most=30.0, goal=GOAL):
    step_s_K = np.array(step_s, float)
    return least_more_seconds(step_s_K, np.full(len(step_s), fewest), np.full(len(step_s), most), goal, 0)


def test_equal_tasks_get_equal_steps():
    assert more_s([0.5] * 3) == pytest.approx(3 * 0.5 * (steps_for(GOAL) - 12), abs=1e-6)
    assert more_s([0.5] * 3, goal=0.2) == 0.0


def test_quality_is_bought_where_steps_are_short():
    """Inside the limits ``s_k t_k`` is the same: 0.25 and 0.5 s a step give 2 to 1 steps at the same mean logarithm."""
    steps = steps_for(0.24)
    found = more_s([0.25, 0.5], fewest=5.0, goal=0.24)
    assert found == pytest.approx(0.25 * (steps * 2**0.5 - 5) + 0.5 * (steps / 2**0.5 - 5), abs=1e-6)
    assert found < 0.75 * (steps - 5)


def test_steps_below_the_first_of_any_worth_are_allowed():
    """Half of the tasks may be worthless if the others make up for it: the bound stays below every mixture."""
    every = [1.0, 5.0, 12.0, 20.0, 30.0]
    step_s = [0.3, 0.7, 0.5]
    least = min(
        sum((s - 1) * t for s, t in zip(steps, step_s, strict=True))
        for steps in itertools.product(every, repeat=3)
        if np.mean([quality(s, 0) for s in steps]) >= 0.15
    )
    assert 0 < more_s(step_s, fewest=1.0, goal=0.15) <= least


def test_a_goal_out_of_reach_takes_for_ever():
    assert more_s([0.5], most=20.0) == np.inf


@pytest.mark.parametrize("servers", [2, 4])
def test_no_schedule_at_the_goal_is_better_than_the_bound(servers):
    """Three tasks, every mixture of 12, 18, 24 and 30 steps whose mean quality reaches the goal, every schedule."""
    rng = np.random.default_rng(servers)
    for number in range(5):
        tasks = random_tasks(rng, 3, servers, 1, 400)
        least = np.inf
        for steps in itertools.product((12, 18, 24, 30), repeat=3):
            if np.mean([quality(float(s), 0) for s in steps]) < GOAL:
                continue
            # The plain world gives all tasks the same steps: others are steps of another length.
            scaled = [{**task, "step_s": task["step_s"] * s / 24} for task, s in zip(tasks, steps, strict=True)]
            world = reference.World(servers, scaled, 24.0, fragmenting=number % 2 == 0)
            world.take_arrivals()
            least = min(least, least_response(world) / 3)
        found = bound_of(servers, tasks, 12.0) + more_s([task["step_s"] for task in tasks]) / 3
        assert found <= least + 1e-9
        assert found > bound_of(servers, tasks, 12.0)


@pytest.mark.parametrize("name", ["edge-inference", "edge-inference-reference"])
def test_policies_that_reach_the_goal_are_above_the_bound(name):
    environment = build_edge_environment(load_scenario(name), 3, 4)
    found = edge_quality_bound(environment, GOAL)
    assert edge_response_bound(environment, 12.0) < found < edge_response_bound(environment, 30.0)
    outcome = run_edge_environment(environment, make_scheduler("lookahead", "edge"))
    track_K, stamp_s_K = outcome.task_K, environment.tasks.stamp_s_K
    response_s = np.mean(track_K["start_t"] * environment.setting.tick_s + track_K["duration_s"] - stamp_s_K)
    assert found < response_s

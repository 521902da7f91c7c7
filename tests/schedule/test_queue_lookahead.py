"""The lookahead with steps by the queue: the rule by hand, the goal on tasks it was not found on, outside the cells."""

import numpy as np
import pytest

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.view import EdgeAnswers, blank_view
from noonward.engine.edge.engine import run_edge_environment
from noonward.engine.edge.episodes import LAUNCHED, QUALITY, RESPONSE_S, sum_episodes
from noonward.ledger.edge import settle_edge
from noonward.model.edge.quality import steps_for
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.queue_lookahead import QueueLookahead, fewer_of, memory_at, queue_rule
from noonward.schedule.policies import make_scheduler

REFERENCE = "edge-inference-reference"


def means(setting, scheduler, episodes=400):
    """Mean response and quality over fresh episodes."""
    total = sum_episodes(setting, scheduler, episodes, seed=11).sum(axis=0)
    return total[RESPONSE_S] / total[LAUNCHED], total[QUALITY] / total[LAUNCHED]


@pytest.mark.parametrize(
    ("waiting", "fewer", "most", "expected"),
    [(1, 3.0, 32.0, 30.0), (2, 3.0, 32.0, 27.0), (3, 2.3, 32.0, 25.0), (9, 3.0, 32.0, 12.0), (2, 3.0, 20.0, 20.0)],
)
def test_steps_fall_with_the_other_tasks_that_wait(waiting, fewer, most, expected):
    view = blank_view(4, 10, 5)
    answers = EdgeAnswers(np.zeros(1, [("choice", "i8"), ("steps", "f8"), ("until_s", "f8")]))
    view.load_s_G[[1, 2, 4]], view.step_s_G[[1, 2, 4]] = 24.0, 0.315
    view.run_1["tick_s"], view.run_1["now_t"], view.run_1["waiting"] = 0.1, 10, waiting
    view.task_Q[0] = (0, 0.0, 1, 0, most, 1e18)
    view.mask_A[1] = 1
    queue_rule(view, answers, memory_at(fewer, load_scenario(REFERENCE)))
    assert answers.answer_1[0].item()[:2] == (1, expected)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (REFERENCE, []),
        (REFERENCE, ["tasks.rate_per_s=0.2"]),
        (REFERENCE, ["gang_times.1.load_s=90", "gang_times.2.load_s=90", "gang_times.4.load_s=90"]),
        ("edge-inference", ["servers.count=10", "tasks.sizes=[1,2,4]", "tasks.rate_per_s=0.1"]),
    ],
)
def test_it_responds_sooner_than_the_lookahead_at_the_goal_also_outside_the_papers_cells(name, more):
    setting = load_scenario(name, more)
    queue_s, reached = means(setting, QueueLookahead())
    fixed_s, _ = means(setting, Lookahead(steps_for(setting.quality_goal)))
    assert setting.quality_goal <= reached < setting.quality_goal + 0.003
    assert queue_s < fixed_s - 0.3


def test_no_image_falls_below_the_least_quality():
    setting = load_scenario("edge-inference", ["tasks.rate_per_s=0.09"])
    runs = [run_edge_environment(build_edge_environment(setting, n, 3), QueueLookahead(9.0)) for n in range(3)]
    assert sum(settle_edge(run).below_quality_min for run in runs) == 0
    assert {float(run.task_K["steps"].min()) for run in runs} == {12.0}


def test_the_number_follows_the_goal():
    found = [fewer_of(load_scenario(REFERENCE, [f"quality_goal={goal}"])) for goal in (0.24, 0.26, 0.28)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[2]


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="fewer is -1"):
        QueueLookahead(-1.0)
    assert isinstance(make_scheduler("queue-lookahead", "edge"), QueueLookahead)

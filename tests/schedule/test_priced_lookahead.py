"""The lookahead with priced steps: what a price buys, that the goal is held on tasks it was not found on, errors."""

import math

import numpy as np
import pytest

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.view import NOBODY, EdgeAnswers, blank_view
from noonward.engine.edge.engine import run_edge_environment
from noonward.engine.edge.episodes import LAUNCHED, QUALITY, RESPONSE_S, sum_episodes
from noonward.errors import ScenarioError
from noonward.ledger.edge import settle_edge
from noonward.model.edge.quality import quality, steps_for
from noonward.schedule.edge.goal import goal_of
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.priced_lookahead import PricedLookahead, memory_at, price_of, priced_rule
from noonward.schedule.policies import make_scheduler

REFERENCE = "edge-inference-reference"


def means(setting, scheduler, episodes=400):
    """Mean response and quality over fresh episodes."""
    total = sum_episodes(setting, scheduler, episodes, seed=11).sum(axis=0)
    return total[RESPONSE_S] / total[LAUNCHED], total[QUALITY] / total[LAUNCHED]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (REFERENCE, ["tasks.rate_per_s=0.01"]),
        (REFERENCE, ["tasks.rate_per_s=0.09"]),
        ("edge-inference", ["servers.count=8", "tasks.sizes=[1,2,4,8]", "tasks.rate_per_s=0.1"]),
    ],
)
def test_it_responds_sooner_than_the_lookahead_at_the_goal(name, more):
    setting = load_scenario(name, more)
    priced, quality_reached = means(setting, PricedLookahead())
    fixed, _ = means(setting, Lookahead(steps_for(setting.quality_goal)))
    assert quality_reached >= setting.quality_goal
    assert priced < fixed - 0.5


def test_no_image_falls_below_the_least_quality():
    setting = load_scenario("edge-inference", ["tasks.rate_per_s=0.09"])
    runs = [run_edge_environment(build_edge_environment(setting, n, 3), PricedLookahead(20.0)) for n in range(5)]
    assert sum(settle_edge(run).below_quality_min for run in runs) == 0
    assert {float(run.task_K["steps"].min()) for run in runs} == {math.ceil(steps_for(0.2))}


def test_a_task_alone_gets_the_steps_that_are_worth_their_time():
    """The least of ``24 + 0.315 s - price q(s)`` over whole steps, by hand."""
    view, answers = (
        blank_view(4, 10, 5),
        EdgeAnswers(np.zeros(1, [("choice", "i8"), ("steps", "f8"), ("until_s", "f8")])),
    )
    view.load_s_G[[1, 2, 4]], view.step_s_G[[1, 2, 4]] = 24.0, 0.315
    view.run_1["tick_s"], view.run_1["now_t"] = 0.1, 10
    view.task_Q[0] = (0, 0.0, 1, 0, 28.0, 1e18)
    view.mask_A[1] = 1
    setting = load_scenario(REFERENCE)
    for price_s in (20.0, 50.0, 75.0, 80.0, 95.0, 200.0):
        best = min(range(5, 31), key=lambda steps: 0.315 * steps - price_s * quality(float(steps), 1))
        priced_rule(view, answers, memory_at(price_s, setting))
        assert answers.answer_1[0].item()[:2] == (1, min(best, 28.0)), price_s
    assert view.task_Q[0]["task"] != NOBODY  # the question itself stays as it is


def test_the_price_follows_the_goal_and_is_the_least_that_holds_it():
    prices = [price_of(load_scenario(REFERENCE, [f"quality_goal={goal}"])) for goal in (0.24, 0.26, 0.27)]
    assert prices == sorted(prices)
    assert prices[0] < 0.8 * prices[1]
    setting = load_scenario(REFERENCE)
    below = means(setting, PricedLookahead(0.9 * price_of(setting)))
    assert below[1] < setting.quality_goal
    assert price_of(setting) == price_of(load_scenario(REFERENCE))


def test_without_a_goal_it_holds_the_quality_of_the_usual_steps():
    setting = load_scenario(REFERENCE, ["quality_goal=0", "steps=20"])
    assert goal_of(setting) == quality(20.0, 1)
    assert goal_of(load_scenario(REFERENCE)) == 0.26


def test_tasks_of_a_file_are_priced_by_the_law_of_a_real_trace():
    law = load_scenario("edge-inference-real")
    tasks = {"source": "trace", "path": "requests.csv", "sizes": [1, 2, 4]}
    given = type(law).model_validate({**law.model_dump(mode="json"), "tasks": tasks})
    assert price_of(given) == price_of(law)


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="price_s is -1"):
        PricedLookahead(-1.0)
    with pytest.raises(ScenarioError, match=r"quality_goal is 0.29; 32 steps .* reach 0.284"):
        load_scenario(REFERENCE, ["quality_goal=0.29"])
    assert isinstance(make_scheduler("priced-lookahead", "edge"), PricedLookahead)

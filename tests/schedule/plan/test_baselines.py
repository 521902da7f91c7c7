import numpy as np
import pytest

from noonward.errors import ScenarioError
from noonward.schedule.plan import LoadClass, PlanProblem, make_plan
from noonward.schedule.plan.baselines import greedy, perfect_forecast, run_at_once, spread_evenly
from schedule.plan.problems import paper_like


def two_by_two(**changes):
    values = {
        "classes": (LoadClass(name="batch", clusters=(0, 1), flexibility_h=1),),
        "load_NKC": np.ones((1, 1, 1)),
        "capacity_TD": np.array([[0.7, 0.2], [1.0, 1.0]]),
        "cost_TD": np.array([[2.0, 3.0], [4.0, 1.0]]),
        "peak_cost_D": np.zeros(2),
        "eps": 0.0,
    }
    return PlanProblem(**(values | changes))


def test_greedy_fills_the_cheapest_cluster_first_and_the_rest_waits():
    day = greedy(two_by_two(), np.ones((1, 1)))
    assert day.load_TD == pytest.approx(np.array([[0.7, 0.2], [0.0, 0.1]]))
    assert day.late == pytest.approx(0.1)
    assert day.left == 0


def test_greedy_says_what_found_no_room():
    assert greedy(two_by_two(), np.full((1, 1), 4.0)).left == pytest.approx(4 - 0.7 - 0.2 - 1 - 1)


def test_greedy_runs_at_once_where_there_is_room():
    problem = paper_like(samples=2, capacity_TD=np.full((16, 4), 3.0))
    day = greedy(problem, problem.load_NKC[0])
    assert day.late == 0
    assert day.load_TD[:12].sum(axis=1) == pytest.approx(problem.load_NKC[0].sum(axis=1))


def test_perfect_forecast_is_never_dearer_than_any_other():
    problem = paper_like(samples=4)
    day = problem.load_NKC[0]
    best = perfect_forecast(problem, day).objective
    plan = make_plan(problem)
    for load_TD in (
        greedy(problem, day).load_TD,
        plan.fractions.load(day),
        run_at_once(problem).load(day),
        spread_evenly(problem).load(day),
    ):
        assert best <= problem.cost_of(load_TD) + 1e-9


def test_run_at_once_and_spread_evenly_are_what_they_say():
    problem = two_by_two()
    assert run_at_once(problem).dense()[0, 0].tolist() == [[0.5, 0.5], [0.0, 0.0]]
    assert spread_evenly(problem).dense()[0, 0].tolist() == [[0.25, 0.25], [0.25, 0.25]]


def test_a_day_of_another_shape_is_refused():
    with pytest.raises(ScenarioError, match="the day's load has shape"):
        greedy(two_by_two(), np.ones((2, 2)))
    with pytest.raises(ScenarioError, match="load has shape"):
        run_at_once(two_by_two()).load(np.ones((3, 3)))

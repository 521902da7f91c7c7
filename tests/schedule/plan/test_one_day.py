"""Plans from one predicted day times a rolling quantile of needs: margins by hand, first needs, resumption."""

import numpy as np
import pytest

from noonward.errors import ScenarioError
from noonward.schedule.plan import LoadClass, OneDayPlanner, PlanProblem


def one_place(capacity=10.0):
    """One class, one hour, one cluster: the curve is the predicted load times 1 + margin."""
    return PlanProblem(
        classes=(LoadClass(name="a", clusters=(0,), flexibility_h=0),),
        load_NKC=np.ones((1, 1, 1)),
        capacity_TD=np.array([[capacity]]),
        cost_TD=np.ones((1, 1)),
        peak_cost_D=np.zeros(1),
        eps=0.0,
    )


def days(*loads):
    return np.array(loads, dtype=float).reshape(-1, 1, 1)


def test_the_margin_is_the_quantile_of_what_the_last_days_needed():
    planner = OneDayPlanner(0.6, window=4)
    planner.needs = [0.9, 0.1, 0.4, 0.2, 0.3]  # of the last four, the third smallest: ceil(0.6 x 5)
    assert planner.margin == 0.3
    assert OneDayPlanner(0.95, window=4).window == 4
    planner.promise = 0.95
    assert planner.margin == 0.4


def test_a_plan_is_one_predicted_day_times_the_margin_and_a_day_needs_what_it_came_to():
    planner = OneDayPlanner(0.8, window=5)
    plan = planner.plan(one_place(), days(2, 2, 2, 2, 3))  # with few days a forecast is their mean
    assert len(planner.needs) == 4  # the first day has no forecast
    assert planner.needs == pytest.approx([0.0, 0.0, 0.0, 0.5])  # the last: 3 after a forecast of 2
    assert plan.curve_TD[0, 0] == pytest.approx(11 / 5 * 1.5)
    planner.finish(np.array([[4.4]]))
    assert planner.needs[-1] == pytest.approx(1.0)
    assert not planner.limited


def test_machines_limit_the_margin_and_this_is_said():
    planner = OneDayPlanner(0.8)
    planner.plan(one_place(2.5), days(2, 2, 2, 2, 3))
    assert planner.limited


def test_a_planner_resumes_from_its_state():
    past = days(*np.random.default_rng(0).uniform(1, 2, 40))
    first, second = OneDayPlanner(0.8), OneDayPlanner(0.8)
    first.plan(one_place(), past[:30])
    first.finish(past[30])
    second.load_state(first.state())
    plans = [planner.plan(one_place(), past[:31]).curve_TD for planner in (first, second)]
    np.testing.assert_array_equal(*plans)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OneDayPlanner(1.0), "the promise is 1.0"),
        (lambda: OneDayPlanner(window=1), "a margin from 1 days"),
        (lambda: OneDayPlanner().finish(np.ones((1, 1))), "no day has been planned"),
        (lambda: OneDayPlanner().plan(one_place(), days(1, 2)), "at least 2 past days with a forecast"),
    ],
)
def test_what_cannot_be_is_explained(make, message):
    with pytest.raises(ScenarioError, match=message):
        make()

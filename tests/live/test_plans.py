"""Policies that plan capacity curves, in a service that knows no more than its own past."""

import pytest

from live.callers import local_client
from noonward.errors import ScenarioError
from noonward.live.requests import JobRequest
from noonward.live.setup import Setup
from noonward.live.why import plans, why
from noonward.units import DAY_S, HOUR_S

NOW_S = 3 * DAY_S + 3 * HOUR_S + 600.0


@pytest.fixture
def planned(service):
    """A service on arrival whose own past of three days spans what its plans are made from."""
    live = service("most-free(gpus=1)", "signals.amplitude=0.4", "window_h=96", scenario="load-shaping")
    live.controller.setup.__class__ = Setup
    for day in range(3):
        for hour in (3, 20):
            live.set_time(day * DAY_S + hour * HOUR_S)
            live.submit(*[request() for _ in range(5)])
            live.steps()
    live.set_time(NOW_S)
    live.steps()
    return live


def request(**more):
    asked = {"name": "a", "work": HOUR_S, "class_": "global", "origin": "users", "gpus_min": 40, "max_delay_s": 36000.0}
    return JobRequest(**asked | more)


@pytest.mark.parametrize(("policy", "kind"), [("plan-advisory", "advisory"), ("plan-hard", "hard")])
def test_a_plan_is_made_from_the_past_of_the_service_shown_and_kept_over_a_restart(planned, policy, kind):
    assert {plan.curve for plan in plans(planned.controller)} == {None}
    planned.controller.use_policy(policy)
    planned.submit(request())
    planned.steps()
    shown = plans(planned.controller)
    assert {plan.curve for plan in shown} == {kind}
    assert all(len(plan.curve_gpus) == 24 for plan in shown)
    assert min(min(plan.curve_gpus) for plan in shown) < 100
    assert max(max(plan.curve_gpus) for plan in shown) >= 40
    with local_client(planned) as browser:
        page = browser.get("/plan").text
        assert "capacity curve of the plan" in page
        assert ("a limit" in page) == (kind == "hard")
        assert browser.get("/v1/plans").json()[0]["curve"] == kind
    planned.policy = policy
    planned.restart()
    assert [plan.curve_gpus for plan in plans(planned.controller)] == [plan.curve_gpus for plan in shown]


def test_curves_of_another_policy_are_left_from_the_current_hour_on(planned):
    planned.controller.use_policy("plan-hard")
    planned.submit(request())
    planned.steps()
    planned.controller.use_policy("most-free(gpus=1)")
    assert planned.store.read("SELECT hour FROM curves WHERE hour >= ?", int(NOW_S // HOUR_S)) == []
    planned.controller.use_policy("plan-hard")
    assert {tuple(set(plan.curve_gpus)) for plan in plans(planned.controller)} == {(1000.0,)}


def test_why_names_the_planned_start_and_the_curve(planned):
    planned.controller.use_policy("plan-hard")
    jobs = planned.submit(*[request() for _ in range(6)])
    planned.steps()
    said = {why(planned.controller, job).waits_for for job in jobs}
    assert any(each.startswith("the start that the policy plan-hard has planned at") for each in said), said
    world = planned.controller.world
    world.curves.limit_SH[:] = 0.0
    late = [seat for seat in world.seat_of.values() if seat.earliest_s > NOW_S]
    planned.set_time(max(seat.earliest_s for seat in late))
    planned.steps()
    assert why(planned.controller, late[0].about.job).waits_for.startswith("the capacity curve of ")


def test_a_policy_that_knows_the_future_is_refused(planned):
    with pytest.raises(ScenarioError, match="reads the future"):
        planned.controller.use_policy("plan-perfect")

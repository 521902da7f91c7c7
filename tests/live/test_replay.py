"""What a service recorded, played again in the engine: the same decisions, job by job."""

import pytest

from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.live.operator import steer_job
from noonward.live.replay import differences, recording
from noonward.schedule.registry import make_scheduler

FEWER = ("jobs.classes.inference.rate_per_s=0.002", "jobs.classes.training.rate_per_s=0.002")


def replayed(live, policy):
    recorded = recording(live.controller.setup, live.store)
    assert recorded.policies == (policy,)
    return recorded, run(recorded.environment, make_scheduler(policy)).job_J


@pytest.mark.parametrize(("policy", "scenario", "settings"), [
    ("booked-persistence", "tiny", ()), ("random", "tiny", ()), ("ucb1", "dvfs-mixed", ("window_h=1", *FEWER)),
])  # fmt: skip
def test_a_recorded_day_gives_the_same_decisions(service, policy, scenario, settings):
    live = service(policy, *settings, scenario=scenario)
    live.play()
    recorded, job_J = replayed(live, policy)
    compared, found = differences(recorded, job_J)
    assert found == []
    assert compared > len(recorded.jobs) / 3


def test_a_day_that_is_not_over_is_compared_as_far_as_it_got(service):
    live = service("local-fcfs")
    for j in range(10):
        live.set_time(float(live.environment.jobs.arrival_s_J[j]))
        live.submit(live.request(j))
    slot_s = live.scenario.slot_s
    live.set_time((live.environment.jobs.arrival_s_J[9] // slot_s + 1) * slot_s)
    live.controller.decide()
    recorded, job_J = replayed(live, "local-fcfs")
    compared, found = differences(recorded, job_J)
    assert 0 < compared <= 10
    assert {one.what for one in found} <= {"start_s", "state"}  # all were asked about at once, at the last slot


def test_another_policy_decides_differently_and_steered_jobs_are_left_out(service):
    live = service("local-fcfs")
    live.play()
    recorded, job_J = replayed(live, "local-fcfs")
    other = run(recorded.environment, make_scheduler("cheapest-feasible")).job_J
    assert differences(recorded, job_J)[1] == []
    assert differences(recorded, other)[1] != []
    second = service("local-fcfs")
    ids = second.submit(*[second.request(j) for j in range(3)])
    steer_job(second.controller, ids[1], "me", pin="south")
    second.set_time(second.scenario.slot_s)
    second.controller.decide()
    assert recording(second.controller.setup, second.store).steered == {ids[1]}


def test_an_empty_store_is_said(service):
    live = service("local-fcfs")
    with pytest.raises(ScenarioError, match="nothing to replay"):
        recording(live.controller.setup, live.store)

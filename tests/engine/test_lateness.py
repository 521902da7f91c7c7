"""Jobs that may be late: masks, starts, what they pay, when they are given up, and what planners do with them."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_settings
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.ledger.ledger import settle
from noonward.ledger.record import environment_digest
from noonward.ledger.segments import DONE, OVERDUE
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain

PRICE = [[50.0]]
FIRST_COME = {"each-slot": "local-fcfs", "on-arrival": "dp-max-clock"}
THREE = [{"work": 7200.0, "slack_s": 0.0}, {"work": 3600.0, "slack_s": 600.0}, {"gpus": 1, "slack_s": 9000.0}]
"""One GPU: the second job could start after two hours at the earliest, the third after three."""


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_late_jobs_wait_and_pay_for_their_delay(protocol):
    world = plain([1], THREE, price=PRICE, protocol=protocol, late_until_s=86400.0, late_usd=0.5)
    outcome = run(world.environment(), make_scheduler(FIRST_COME[protocol]))
    assert outcome.job_J["start_s"].tolist() == [0.0, 7200.0, 10800.0]
    assert outcome.count(DONE) == 3
    ledger = settle(outcome)
    late_h = (7200 - 600) / 3600 + (10800 - 9000) / 3600
    assert ledger.late_gpu_hours == pytest.approx(late_h)
    assert ledger.late_usd == pytest.approx(0.5 * late_h)
    assert outcome.meters.late_usd == pytest.approx(0.5 * late_h)
    free = settle(run(replace(world.environment(), late_usd_per_gpu_hour=0.0), make_scheduler(FIRST_COME[protocol])))
    assert ledger.utility_usd == pytest.approx(free.utility_usd - 0.5 * late_h)


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_without_the_rule_late_jobs_are_dropped(protocol):
    environment = plain([1], THREE, price=PRICE, protocol=protocol).environment()
    outcome = run(environment, make_scheduler(FIRST_COME[protocol]))
    assert outcome.job_J["status"].tolist() == [DONE, OVERDUE, DONE]
    assert settle(outcome).late_gpu_hours == 0.0


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_no_job_starts_after_the_overtime(protocol):
    world = plain([1], THREE, price=PRICE, protocol=protocol, late_until_s=9000.0)
    outcome = run(world.environment(), make_scheduler(FIRST_COME[protocol]))
    assert outcome.job_J["status"].tolist() == [DONE, DONE, OVERDUE]


@pytest.mark.parametrize("policy", ["cheapest-feasible", "patient"])
@pytest.mark.parametrize(
    ("slack_s", "gpus", "site"),
    [(0.0, [1, 1], 0), (3600.0, [1, 1], 1), (0.0, [0, 1], 1)],
    ids=["would be late elsewhere", "in time at both", "in time at neither"],
)
def test_a_job_is_not_moved_to_a_cheaper_site_where_it_would_be_late(policy, slack_s, gpus, site):
    """A move takes a slot, so a job that must start at once starts where it is, if there is room."""
    blocker = [{"origin": 0, "work": 86400.0, "slack_s": 0.0}] if gpus[0] == 0 else []
    jobs = [*blocker, {"origin": 0, "slack_s": slack_s}]
    world = plain([1, 1], jobs, price=[[50.0], [10.0]], late_until_s=86400.0)
    outcome = run(world.environment(), make_scheduler(policy))
    assert outcome.job_J["site"][-1] == site
    assert (outcome.job_J["start_s"][-1] > 0) == (site == 1)


def test_a_late_job_may_start_and_move():
    jobs = [{"work": 1200.0, "slack_s": 0.0}, {"slack_s": 0.0}]
    engine = ClusterEngine(plain([1, 1], jobs, late_until_s=86400.0).environment(), make_scheduler("local-fcfs"))
    engine.step()
    while engine.view.serial_N[0] == 0 or engine.view.now_s < 600.0:
        for site, job in engine.view.asked():
            if engine.view.job_J["serial"][job] == 0:
                engine.answers.send(site, site)
        engine.step()
    assert engine.view.mask_NA[0].tolist() == [1, 0, 1]  # hold; no room here; to the other site, late as it is


@pytest.mark.parametrize("policy", ["booked-perfect", "bid-price-perfect", "cheapest-feasible", "what-happened"])
def test_planners_start_late_jobs_as_soon_as_there_is_room(policy):
    scenario = load_scenario("tiny", [
        "lateness={rule: wait}", "jobs.demand=1.2", "jobs.count=80", "jobs.slack_ratio=0.2", "jobs.gpus_cap=4",
    ])  # fmt: skip
    environment = build_environment(scenario)
    if policy == "what-happened":
        jobs = replace(environment.jobs, recorded_start_s_J=environment.jobs.arrival_s_J + 9000.0)
        environment = replace(environment, jobs=jobs)
    waits = settle(run(environment, make_scheduler(policy)))
    drops = settle(run(replace(environment, late_until_s=-np.inf), make_scheduler(policy)))
    assert drops.overdue > 10
    assert waits.overdue < drops.overdue
    assert waits.done > drops.done
    assert waits.late_gpu_hours > 0


def test_a_scenario_states_the_rule():
    scenario = load_scenario("tiny", ["lateness={rule: wait, usd_per_gpu_hour: 0.25, overtime_h: 6}"])
    environment = build_environment(scenario)
    assert environment.late_until_s == environment.window_s + 6 * 3600
    assert environment.late_usd_per_gpu_hour == 0.25
    until = build_environment(with_settings(scenario, ["lateness={rule: wait}"])).late_until_s
    assert until == (environment.jobs.arrival_s_J + environment.jobs.slack_s_J).max()
    dropped = with_settings(scenario, ["lateness={rule: drop}"])
    assert build_environment(dropped).late_until_s == -np.inf
    digests = {
        environment_digest(build_environment(with_settings(scenario, [f"lateness={text}"])))
        for text in ("{rule: drop}", "{rule: wait}", "{rule: wait, usd_per_gpu_hour: 1}", "{rule: wait, overtime_h: 9}")
    }
    assert len(digests) == 4
    with pytest.raises(ScenarioError, match="go with rule wait"):
        with_settings(scenario, ["lateness={rule: drop, usd_per_gpu_hour: 1}"])


def test_a_job_without_a_latest_start_that_never_runs_does_not_keep_the_run_going():
    # The first job does not fit its own site, where local-fcfs keeps it.
    world = plain([1, 4], [{"gpus": 4, "slack_s": np.inf}], price=[[50.0], [50.0]], late_until_s=90000.0)
    outcome = run(world.environment(), make_scheduler("local-fcfs"))
    assert outcome.job_J["status"].tolist() == [OVERDUE]
    assert outcome.ended_s <= 90000.0 + 60.0


def test_an_infinite_slack_is_legal_where_jobs_may_be_late():
    jobs = [{"work": 3600.0, "slack_s": np.inf}, {"slack_s": np.inf}]
    world = plain([1], jobs, price=PRICE, late_until_s=86400.0)
    assert run(world.environment(), make_scheduler("local-fcfs")).job_J["start_s"].tolist() == [0.0, 3600.0]
    with pytest.raises(ScenarioError, match="lateness"):
        replace(world.environment(), late_until_s=-np.inf)

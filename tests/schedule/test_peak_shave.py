"""PeakShave: starts wait below the target and while slack is left; without a demand charge nothing changes."""

from dataclasses import replace

import numpy as np
import pytest

from ledger.two_jobs import START
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.decision.brief import Brief
from noonward.decision.cluster.view import ANSWER, Answers, no_answer
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.ledger.ledger import settle
from noonward.model.cluster.fleet import Fleet
from noonward.schedule.cluster.peak_shave import PeakShave, mean_added_w
from noonward.schedule.policies import find_policy, make_scheduler
from reference.small_worlds import plain


def world(jobs, *, gpus=4, tariff=None, meter=None, mean_jobs=24):
    """Jobs of an hour (unless said) on a site of 100 W per GPU; ``mean_jobs`` such are expected in 24 hours.

    So the forecast of mean power is ``mean_jobs / 24 x 100 W``.
    """
    made = plain([gpus], [{"work": 3600.0, "slack_s": 7200.0} | job for job in jobs])
    made.another = lambda rng: [made.rows[0] | {"work": 3600.0, "gpus_min": 1, "gpus_max": 1}] * mean_jobs
    environment = made.environment()
    said = environment.fleet.model_dump(mode="json", by_alias=True)
    said["tariffs"] = {"t": {"demand": [{"usd_per_kw_month": 10.0}]} if tariff is None else tariff}
    said["sites"][0] |= {"timezone": "UTC", "meter": {"tariff": "t"} | (meter or {})}
    return replace(environment, fleet=Fleet.model_validate(said))


def starts_min(environment, **options):
    outcome = run(environment, PeakShave(make_scheduler("local-fcfs"), **options))
    return (outcome.job_J["start_s"] / 60).tolist()


def test_the_forecast_is_the_mean_power_of_the_jobs_to_come():
    environment = world([{}], mean_jobs=36)
    brief = Brief.of(environment, make_scheduler("local-fcfs").needs)
    jobs = environment.sample_jobs(np.random.default_rng(0))
    assert mean_added_w(brief, jobs).tolist() == pytest.approx([150.0])


def test_starts_wait_below_the_target_and_while_slack_is_left():
    # target 1.15 x 100 W: one job at a time; slack of two hours, of which .3 stay: forced after 84 minutes
    assert starts_min(world([{}, {}, {}])) == [0, 60, 84]
    assert starts_min(world([{}, {}, {}]), kept=0.5) == [0, 60, 60]
    assert starts_min(world([{}, {}, {}]), headroom=1.0) == [0, 0, 60]


def test_a_peak_that_is_paid_for_is_used():
    # the job of two GPUs has no slack: it sets the peak, up to which others then start
    jobs = [{"gpus": 2, "slack_s": 0.0}, {"arrival_s": 3600.0}, {"arrival_s": 3600.0}, {"arrival_s": 3600.0}]
    assert starts_min(world(jobs)) == [0, 60, 60, 120]
    contract = {"demand": [{"usd_per_kw_month": 10.0, "least_share": 0.5}], "contract_kw": 0.6}
    assert starts_min(world([{}] * 4, tariff=contract)) == [0, 0, 0, 60]
    ratchet = {"demand": [{"usd_per_kw_month": 10.0, "ratchet": 0.8}]}
    assert starts_min(world([{}] * 3, tariff=ratchet, meter={"past_peak_kw": 0.25})) == [0, 0, 60]


def test_base_load_is_below_the_target_as_below_the_power():
    assert starts_min(world([{}, {}, {}], meter={"base_kw": 3.0})) == [0, 60, 84]


def test_starts_wait_only_at_times_and_in_months_that_are_charged():
    night = {"demand": [{"usd_per_kw_month": 10.0, "hours": [1, 2]}]}
    jobs = [{"arrival_s": minutes * 60.0} for minutes in (0, 0, 61, 61, 180)]
    # at 1:01 two jobs that began before 1:00 draw 200 W until 1:00 alone; from 1:00 to 3:00 one at a time
    assert starts_min(world(jobs, tariff=night)) == [0, 0, 61, 121, 180]
    other = {"demand": [{"usd_per_kw_month": 10.0, "months": [START.month % 12 + 1]}]}
    assert starts_min(world([{}] * 3, tariff=other)) == [0, 0, 0]


def test_without_a_demand_charge_nothing_changes():
    environment = world([{}] * 6, tariff={})
    shaved = run(environment, PeakShave(make_scheduler("local-fcfs")))
    assert shaved.job_J.tobytes() == run(environment, make_scheduler("local-fcfs")).job_J.tobytes()


def metered_tiny():
    content = load_scenario("tiny", ["jobs.slack_ratio=4", "jobs.demand=0.5"]).model_dump(mode="json")
    content["fleet"]["tariffs"] = {"t": {"demand": [{"usd_per_kw_month": 20.0}]}}
    for site in content["fleet"]["sites"]:
        site["meter"] = {"tariff": "t"}
    return scenario_from(content)


def test_peaks_are_lower():
    scenario, usd = metered_tiny(), {}
    for policy in ("local-fcfs", "peak-shave", "peak-shave(base=local-fcfs, headroom=10)"):
        ledgers = [settle(run(build_environment(scenario, index, 0), make_scheduler(policy))) for index in range(4)]
        usd[policy] = sum(meter.demand_usd for ledger in ledgers for meter in ledger.meters.values())
    plain_usd, shaved_usd, free_usd = usd.values()
    assert shaved_usd < 0.96 * plain_usd
    assert free_usd == plain_usd


def test_a_run_goes_on_from_its_state():
    environment, schedulers = build_environment(metered_tiny(), 0, 0), []
    engine = ClusterEngine(environment, make_scheduler("peak-shave(headroom=0)"))
    for seed in (1, 2):  # the second one draws other jobs, and takes over the forecast of the first
        schedulers.append(make_scheduler("peak-shave(headroom=0)"))
        schedulers[-1].reset(engine.brief, np.random.default_rng(seed))
    first, second = schedulers
    asked = 0
    while engine.step():
        asked += 1
        if asked == 150:
            second.load_state(first.state())
            for name in ("targets", "months", "peaks", "runs"):
                assert np.array_equal(second.state()[name], first.state()[name])
            assert len(first.state()["peaks"])
            assert len(first.state()["runs"])
        if asked >= 150:
            second.decide(engine.view, engine.answers)
            found = engine.answers.answer_N.copy()
            engine.answers.answer_N[:] = blank_answers(len(found))
            first.decide(engine.view, engine.answers)
            assert engine.answers.answer_N.tobytes() == found.tobytes()
        else:
            first.decide(engine.view, engine.answers)
    assert asked > 200
    with pytest.raises(ScenarioError, match="restore the state of a scheduler"):
        second.load_state({})


def blank_answers(askers):
    """Answers before anybody answers."""
    answers = Answers(np.zeros(askers, ANSWER), np.zeros((askers, 0)))
    for asker in range(askers):
        no_answer(answers, asker)
    return answers.answer_N


def test_its_name_gives_what_it_rests_on():
    assert "peak-shave" in find_policy("peak-shave").name
    with pytest.raises(ScenarioError, match="base=greedy-price"):
        find_policy("peak-shave(base=greedy-price)")

"""The bound of schedules that are as late as a log at most."""

import math
from dataclasses import replace

import numpy as np
import pytest

from noonward.bound.cluster_utility.lateness import late_gpu_hours_recorded, late_usd_in_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.evaluate.utility_objective import UtilityObjective
from noonward.ledger.ledger import settle
from noonward.schedule.policies import make_scheduler

POLICIES = ("local-fcfs", "local-backfill", "cheapest-feasible", "patient", "bid-price-perfect")


WAIT = ("lateness.rule=wait", "lateness.overtime_h=48", "lateness.usd_per_gpu_hour=0")


def environment(seed, *settings, lateness=WAIT):
    small = ("jobs.slack_ratio=0.5", "jobs.count=60", "window_h=24")
    return build_environment(load_scenario("fine-tuning", [*lateness, *small, *settings]), 0, seed)


def with_log_of(environment, outcome):
    """Returns the environment with a run's starts as the record of its log."""
    return replace(environment, jobs=replace(environment.jobs, recorded_start_s_J=outcome.job_J["start_s"].copy()))


@pytest.mark.parametrize("seed", range(3))
def test_no_policy_that_is_as_late_as_the_log_at_most_exceeds_the_bound(seed):
    plain = environment(seed)
    ledgers = {policy: settle(run(plain, make_scheduler(policy), seed=0)) for policy in POLICIES}
    log = with_log_of(plain, run(plain, make_scheduler("local-fcfs"), seed=0))
    late_h = late_gpu_hours_recorded(log)
    assert late_h == pytest.approx(ledgers["local-fcfs"].late_gpu_hours, rel=1e-12)
    objective = UtilityObjective()
    found, unlimited = objective.compute_bound(log), objective.compute_bound(plain)
    assert found["late_gpu_hours"] == late_h
    assert "late_gpu_hours" not in unlimited
    allowed = [each for each in ledgers.values() if each.late_gpu_hours <= late_h]
    assert len(allowed) >= 2
    assert max(each.utility_usd for each in allowed) <= found["utility_usd"] + 1e-9
    assert "as late as the log at most" in objective.describe_bound(found)


def test_the_bound_is_far_below_that_of_jobs_which_may_wait_for_ever():
    plain = environment(1, "jobs.count=200")
    log = with_log_of(plain, run(plain, make_scheduler("local-fcfs"), seed=0))
    found, unlimited = (UtilityObjective().compute_bound(each) for each in (log, plain))
    gaps = [bound["utility_usd"] - bound["best_known_usd"] for bound in (found, unlimited)]
    assert gaps[0] < 0.05 * gaps[1]


def test_each_gpu_hour_that_the_log_is_late_raises_the_bound_by_the_price():
    plain = environment(0)
    outcome = run(plain, make_scheduler("local-fcfs"), seed=0)
    on_time = with_log_of(plain, outcome)
    start_s_J, jobs = outcome.job_J["start_s"].copy(), plain.jobs
    start_s_J[:3] = (jobs.arrival_s_J + jobs.slack_s_J)[:3] + 7200.0
    late = replace(plain, jobs=replace(jobs, recorded_start_s_J=start_s_J))
    more_h = 2.0 * jobs.gpus_min_J[:3].sum()
    assert late_gpu_hours_recorded(late) == pytest.approx(late_gpu_hours_recorded(on_time) + more_h)
    found = [UtilityObjective().compute_bound(each)["utility_usd"] for each in (on_time, late)]
    assert found[1] - found[0] == pytest.approx(more_h * late_usd_in_bound(plain))


@pytest.mark.parametrize("lateness", [(*WAIT[:2], "lateness.usd_per_gpu_hour=1"), ("lateness.rule=drop",)])
def test_where_lateness_costs_or_drops_jobs_there_is_no_limit(lateness):
    other = environment(0, lateness=lateness)
    assert math.isnan(late_gpu_hours_recorded(with_log_of(other, run(other, make_scheduler("local-fcfs"), seed=0))))


def test_the_price_in_the_bound_is_that_of_energy():
    plain = environment(0)
    tables, signals = plain.fleet.tables(1), plain.site_signals
    usd_per_mwh_S = signals.price_SP.mean(axis=1) + plain.economics.carbon_usd_per_t / 1000 * signals.carbon_SP.mean(
        axis=1
    )
    power_w_S = tables.pue_S * np.nanmax(tables.power_w_SCGF[:, :, 1], axis=(1, 2))
    assert late_usd_in_bound(plain) == pytest.approx(float((usd_per_mwh_S * power_w_S).mean() / 1e6))

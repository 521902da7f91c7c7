"""Suspension by a threshold where the dispatcher is asked when jobs arrive: exact worlds by hand."""

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.evaluate.conformance import check_scheduler
from noonward.ledger.segments import DONE
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S
from reference import small_worlds, suspension

POLICY = "suspend-threshold(forecast=perfect, quantile=0.1, kept=0)"
DEAR, CHEAP = 90.0, 10.0
FREE = suspension.Freedom(
    stop_s=0.0, dark_s=0.0, load_s=0.0, stop_power=0.0, load_power=0.0, min_run_s=0.0, most_suspensions=None
)


def prices(*cheap):
    """A day's prices by hour: cheap in some hours, dear in all others and after it."""
    return [CHEAP if hour in cheap else DEAR for hour in range(24)] + [DEAR]


def played(gpus, jobs, price, policy=POLICY, freedom=FREE, **options):
    world = small_worlds.plain(gpus, jobs, protocol="on-arrival", price=price, freedoms={0: freedom}, **options)
    outcome = run(world.environment(), make_scheduler(policy))
    assert (outcome.job_J["status"] == DONE).all()
    return outcome


def runs(outcome):
    """Begin and end of every run, h, and its site."""
    power = outcome.power
    order = np.lexsort((power.from_s_K, power.job_K))
    return [
        (power.job_K[k], power.from_s_K[k] / HOUR_S, power.to_s_K[k] / HOUR_S, power.site_K[k]) for k in order.tolist()
    ]


def test_a_job_runs_in_the_cheap_hours_only():
    price = [prices(0, 1, 4, 5, 9, 10, 11, 12)]
    outcome = played([4], [{"gpus": 4, "work": 5.0 * HOUR_S, "slack_s": 20 * HOUR_S}], price)
    assert runs(outcome) == [(0, 0.0, 2.0, 0), (0, 4.0, 6.0, 0), (0, 9.0, 10.0, 0)]
    assert outcome.suspensions_J.tolist() == [2]


def test_one_that_comes_in_a_dear_hour_starts_in_the_next_cheap_one():
    job = {"work": 0.5 * HOUR_S, "slack_s": 20 * HOUR_S, "arrival_s": 0.25 * HOUR_S}
    outcome = played([4], [job], [prices(*range(6, 14))])
    assert runs(outcome) == [(0, 6.0, 6.5, 0)]
    assert outcome.suspensions_J.tolist() == [0]


def test_it_does_not_wait_beyond_its_slack():
    job = {"work": 5.0 * HOUR_S, "slack_s": 3.5 * HOUR_S}
    outcome = played([4], [job], [prices(0, 1, *range(10, 16))])
    assert runs(outcome) == [(0, 0.0, 2.0, 0), (0, 5.5, 8.5, 0)]
    kept = played(
        [4], [job], [prices(0, 1, *range(10, 16))], "suspend-threshold(forecast=perfect, quantile=0.1, kept=0.4)"
    )
    assert runs(kept) == [(0, 0.0, 2.0, 0), (0, pytest.approx(4.1), pytest.approx(7.1), 0)]


def test_overheads_count_against_its_slack():
    slow = suspension.Freedom(
        stop_s=600.0, dark_s=0.0, load_s=300.0, stop_power=0.0, load_power=0.0, min_run_s=0.0, most_suspensions=None
    )
    price = [prices(0, 1, *range(10, 16))]
    outcome = played([4], [{"work": 5.0 * HOUR_S, "slack_s": 3.5 * HOUR_S}], price, freedom=slow)
    assert runs(outcome) == [(0, 0.0, 2.0, 0), (0, pytest.approx(5.5), pytest.approx(8.5), 0)]
    short = played([4], [{"work": 5.0 * HOUR_S, "slack_s": 0.2 * HOUR_S}], price, freedom=slow)
    assert runs(short) == [(0, 0.0, 5.0, 0)]


def test_a_job_without_a_deadline_runs_at_once():
    outcome = played([4], [{"work": 3.0 * HOUR_S, "slack_s": np.inf}], [prices(*range(6, 14))], drained=False)
    assert runs(outcome) == [(0, 0.0, 3.0, 0)]


def test_it_goes_where_the_hour_of_its_start_costs_least():
    now_cheap, later_cheaper = prices(*range(8)), [0.1 * each for each in prices(*range(6, 14))]
    job = {"work": HOUR_S, "slack_s": 20 * HOUR_S}
    assert runs(played([4, 4], [job], [now_cheap, later_cheaper])) == [(0, 6.0, 7.0, 1)]
    assert runs(played([4, 4], [job | {"slack_s": 0.0}], [now_cheap, later_cheaper]))[0][3] == 1
    assert runs(played([4, 4], [job], [now_cheap, prices(*range(6, 14))]))[0][3] == 0


def test_its_journey_counts():
    network = {"usd_per_gb": ((0.0, 1.0), (1.0, 0.0))}
    cheaper = [0.1 * each for each in prices(*range(8))]
    job = {"work": HOUR_S, "slack_s": 20 * HOUR_S, "origin": 0}
    for data_gb, site in ((0.0, 1), (10.0, 0)):
        outcome = played([4, 4], [job | {"move_gb": data_gb}], [prices(*range(8)), cheaper], network=network)
        assert runs(outcome)[0][3] == site


def test_without_room_it_queues_where_the_least_waits():
    full = {"work": 2.0 * HOUR_S, "slack_s": 20 * HOUR_S, "gpus": 4}
    flat = [[CHEAP] * 25, [2 * CHEAP] * 25]
    sites = [site for _, _, _, site in runs(played([4, 4], [full] * 4, flat))]
    assert sites == [0, 1, 0, 1]


def test_a_stepped_run_equals_a_compiled_one_and_conforms():
    settings = [
        "protocol=on-arrival", "fleet.freedoms={fine-tuning: {interruptible: true}}", "jobs.slack_ratio=8",
        "window_h=48", "jobs.count=200",
    ]  # fmt: skip
    environment = build_environment(load_scenario("tiny", settings))
    compiled = run(environment, make_scheduler("suspend-threshold"))
    assert compiled.tobytes() == run(environment, make_scheduler("suspend-threshold"), compiled=False).tobytes()
    assert compiled.suspensions_J.sum() > 20
    check_scheduler("suspend-threshold", seeds=[0])

"""The price of time that follows a limit: a step by hand, where it stops, and the limit kept on unlike loads."""

import math

import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.schedule.cluster.adaptive import RANGE, START_W, AdaptiveRouter
from noonward.schedule.cluster.weighed import SECOND
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain


def price_after(limit_s, *works):
    jobs = [{"work": work, "slack_s": 1e6} for work in works]
    router = AdaptiveRouter(limit_s=limit_s)
    run(plain([9], jobs, protocol="on-arrival").environment(), router)
    return router.memory.table_XY[0, SECOND]


def test_a_finished_job_moves_the_price_by_its_excess():
    assert price_after(300.0, 600.0) == pytest.approx(START_W * math.exp(1 / 100))  # twice the limit
    assert price_after(1200.0, 600.0) == pytest.approx(START_W * math.exp(-0.5 / 100))
    assert price_after(300.0, 600.0, 150.0) == pytest.approx(START_W * math.exp((1 - 0.5) / 100))


def test_the_price_stops_where_no_price_keeps_the_limit():
    assert price_after(0.1, *[6000.0] * 9) == START_W * RANGE


@pytest.mark.parametrize("settings", [["jobs.rate_per_s=0.014"], ["jobs.rate_per_s=0.026"], ["jobs.median_work=60000"]])
def test_the_mean_latency_comes_to_the_limit_whatever_the_load_is(settings):
    environment = build_environment(load_scenario("dvfs-training", ["window_h=48", *settings]))
    outcome = run(environment, make_scheduler("adaptive-tradeoff(limit_s=3600)"))
    assert settle(outcome).mean_time_in_system_s == pytest.approx(3600.0, rel=0.01)


def test_a_shorter_limit_takes_more_energy():
    environment = build_environment(load_scenario("dvfs-training", ["window_h=24"]))
    ledgers = [settle(run(environment, AdaptiveRouter(limit_s=limit_s))) for limit_s in (1200.0, 3600.0)]
    assert ledgers[0].joules_per_unit > ledgers[1].joules_per_unit
    assert ledgers[0].mean_time_in_system_s < ledgers[1].mean_time_in_system_s

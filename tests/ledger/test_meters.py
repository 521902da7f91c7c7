"""Meters: mean power by interval and the lines of a meter by hand, and against the ledger's energy."""

from dataclasses import replace

import numpy as np
import pytest

from ledger.test_pue_by_hour import PUE
from ledger.two_jobs import FLEET, HOUR_S, environment, played
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.ledger import Ledger, settle
from noonward.ledger.meters import interval_joules, interval_kw
from noonward.ledger.record import environment_digest
from noonward.ledger.segments import PowerSegments
from noonward.ledger.service import power_totals
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.withheld import Withheld
from noonward.schedule.policies import make_scheduler


def metered(**meter):
    """The fleet of the two jobs, site a with a meter."""
    said = FLEET.model_dump()
    said["sites"][0]["meter"] = {"interval_min": 30, **meter}
    return Fleet.model_validate(said)


def test_power_by_half_hour_by_hand():
    # a: 0.3 kW free, 1.35 kW more from 0:30 to 1:30; b: 0.2 kW free until 2:00, 2 kW from 1:30 to 2:30
    kw_SN = interval_kw(played(), 1800.0)
    assert kw_SN[0, :6] == pytest.approx([0.3, 1.65, 1.65, 0.3, 0.0, 0.0], abs=1e-12)
    assert kw_SN[1, :6] == pytest.approx([0.2, 0.2, 0.2, 2.0, 2.0, 0.0], abs=1e-12)
    assert interval_kw(played(), 3600.0)[0, :3] == pytest.approx([0.975, 0.975, 0.0], abs=1e-12)


def test_power_counts_the_pue_of_its_hour():
    kw_SN = interval_kw(played(pue=PUE), 1800.0)
    assert kw_SN[0, :4] == pytest.approx([0.3, 1.65, 1.98, 0.36])
    assert kw_SN[1, 2:5] == pytest.approx([0.18, 1.8, 2.2])


def test_withheld_gpus_draw_nothing():
    kw_SN = interval_kw(played(withheld=Withheld.of([(HOUR_S, 0, 2)], np.array([2, 1]))), 1800.0)
    assert kw_SN[0, :4] == pytest.approx([0.3, 1.65, 1.5, 0.0], abs=1e-12)


def test_the_lines_of_a_meter_by_hand():
    fleet = metered(base_kw=0.7, connection_kw=2.0, over_connection_usd_per_kwh=3.0)
    lines = settle(played(fleet=fleet)).meters
    assert list(lines) == ["a"]
    # half hours: 1.0, 2.35, 2.35, 1.0 kW
    assert lines["a"].energy_kwh == pytest.approx(3.35)
    assert lines["a"].base_kwh == pytest.approx(1.4)
    assert lines["a"].peak_kw == pytest.approx(2.35)
    assert lines["a"].load_factor == pytest.approx(3.35 / 2 / 2.35)
    assert lines["a"].over_connection_kwh == pytest.approx(0.35)
    assert lines["a"].over_connection_usd == pytest.approx(1.05)


def test_power_that_follows_the_window_counts_in_the_load_factor():
    said = FLEET.model_dump()
    said["sites"][1]["meter"] = {"interval_min": 60}
    lines = settle(played(fleet=Fleet.model_validate(said))).meters["b"]
    # hours: 0.2, 1.1, 1.0 kW
    assert (lines.peak_kw, lines.load_factor) == pytest.approx((1.1, 2.3 / 3 / 1.1))


def test_a_meter_changes_no_other_figure_and_no_bytes_where_there_is_none():
    with_meter, without = settle(played(fleet=metered(base_kw=5.0))), settle(played())
    assert replace(with_meter, meters={}) == without
    assert "meters" not in without.as_dict()
    assert "meter" not in FLEET.model_dump_json()
    assert environment_digest(environment(fleet=metered())) != environment_digest(environment())


def test_a_ledger_with_meters_is_read_back_and_averaged():
    one, other = settle(played(fleet=metered())), settle(played(fleet=metered(base_kw=1.0)))
    assert Ledger.from_dict(one.as_dict()).as_dict() == one.as_dict()
    assert Ledger.mean([one, other]).meters["a"].peak_kw == pytest.approx(one.meters["a"].peak_kw + 0.5)


@pytest.mark.parametrize("name", ["tiny", "training-days"])
def test_the_sum_of_intervals_is_the_ledgers_energy(name):
    found = build_environment(load_scenario(name), 0, 1)
    policy = {"tiny": "local-fcfs", "training-days": "local-fcfs"}[name]
    outcome = run(found, make_scheduler(policy))
    ledger = settle(outcome)
    for interval_s in (300.0, 3600.0):
        kw_SN = interval_kw(outcome, interval_s)
        assert kw_SN.min() >= 0
        assert kw_SN.sum() * interval_s / HOUR_S == pytest.approx(ledger.energy_kwh, rel=1e-9)
    within = round(min(found.window_s, outcome.ended_s) / 300.0)
    joules_S = interval_kw(outcome, 300.0)[:, :within].sum(axis=1) * 1000 * 300
    totals_S4 = power_totals(outcome, np.full(len(found.sites), np.inf))
    assert joules_S == pytest.approx(totals_S4[:, 0], rel=1e-9)
    assert (interval_kw(outcome, 300.0).max(axis=1) * 1000 <= totals_S4[:, 1] * (1 + 1e-9)).all()


def test_segments_by_interval_equal_a_plain_sum():
    rng = np.random.default_rng(3)
    for _ in range(50):
        count = int(rng.integers(1, 30))
        begin = rng.uniform(0, 900, count).round(int(rng.integers(-2, 3)))
        end = np.minimum(begin + rng.exponential(300, count), 1000.0)
        site = rng.integers(0, 3, count).astype(np.int32)
        watts = rng.uniform(0, 5, count)
        one = PowerSegments(site_K=site, job_K=site, from_s_K=begin, to_s_K=end, watts_K=watts, gpus_K=site)
        plain = np.zeros((3, 10))
        for s, t0, t1, w in zip(site, begin, end, watts, strict=True):
            for n in range(10):
                plain[s, n] += w * max(0.0, min(t1, 100.0 * (n + 1)) - max(t0, 100.0 * n))
        assert interval_joules(one, 3, 100.0, 10) == pytest.approx(plain, abs=1e-9)

"""Grid events in a run: what they ask, pay and charge, by hand; a battery that follows one; bounds that know them."""

from dataclasses import replace

import numpy as np
import pytest

from bound.test_metered import world
from ledger.test_devices import equipped
from ledger.test_tariffs import billed
from ledger.two_jobs import played
from model.test_three_faces import random_events
from noonward.bound.cluster_utility.metered import metered_bound
from noonward.engine.run import run
from noonward.ledger.ledger import Ledger, settle
from noonward.model.cluster.event import GridEvent, SiteEvent
from noonward.schedule.policies import make_scheduler

ASKED = SiteEvent(
    site="a",
    event=GridEvent(
        start_s=1800, end_s=5400, baseline_kw=2.0, target_kw=1.0, usd_per_mwh=1000, penalty_usd_per_mwh=2000
    ),
)


def test_an_event_by_hand():
    # a draws 0.3, 1.65, 1.65, 0.3 kW by half hours; the event asks for 1 kW less in the second and third
    fleet = billed({})
    with_it, without = settle(played(fleet=fleet, events=(ASKED,))), settle(played(fleet=fleet))
    lines = with_it.events["a"]
    assert (lines.events, lines.missed_intervals) == (1, 2)
    assert lines.asked_mwh == pytest.approx(0.001)
    assert lines.delivered_mwh == pytest.approx(0.00035)
    assert lines.payment_usd == pytest.approx(0.35)
    assert lines.penalty_usd == pytest.approx(1.30)
    assert with_it.utility_usd == pytest.approx(without.utility_usd - 1.30 + 0.35)
    assert with_it.total_usd == pytest.approx(without.total_usd + 1.30 - 0.35)
    assert str(with_it.meters) == str(without.meters)
    assert without.events == {}
    assert "events" not in without.as_dict()
    assert Ledger.from_dict(with_it.as_dict()).as_dict() == with_it.as_dict()
    assert Ledger.mean([with_it, with_it]).events["a"] == lines


def test_a_battery_follows_an_event_that_pays():
    battery = {"battery": {"kw": 1.0, "kwh": 0.65, "round_trip": 1.0, "start": 1.0}}
    lines = settle(played(fleet=equipped(battery), events=(ASKED,))).events["a"]
    assert lines.delivered_mwh == pytest.approx(0.001)
    assert (lines.missed_intervals, lines.penalty_usd) == (0, pytest.approx(0.0))


def test_no_policy_is_above_the_bound_with_events_in_60_worlds():
    rng = np.random.default_rng(12)
    worst = np.inf
    for number in range(60):
        made = world(rng, jobs=int(rng.integers(1, 7)))
        events = tuple(SiteEvent(site="a", event=each) for each in random_events(rng, 4 * 3600.0, 3.0))
        made = replace(made, events=events)
        bound = metered_bound(made, steps=3, iterations=40, rounds=0)
        for policy in ("local-fcfs", "random"):
            ledger = settle(run(made, make_scheduler(policy), seed=number))
            worst = min(worst, bound.upper_usd - ledger.utility_usd)
            assert ledger.events["a"].asked_mwh > 0
        if not np.isnan(bound.lower_usd):
            assert bound.lower_usd <= bound.upper_usd + 1e-6
    assert worst >= -1e-6

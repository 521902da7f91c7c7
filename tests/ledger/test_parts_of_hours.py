"""Prices and intensities that change within the hour: settled by their parts, seen as they are now, bounded."""

from dataclasses import replace

import numpy as np
import pytest

from ledger.two_jobs import HOUR_S, SIGNALS, Script, environment, played
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.model.cluster.pue import PueByHour
from noonward.model.signals import CARBON_NAME, PRICE_NAME, SiteSignals
from noonward.schedule.policies import make_scheduler
from reference.cluster_utility import Replay, earned

PRICE_HP = np.array([[40.0, 80.0, 120.0, 160.0], [200.0] * 4, [300.0] * 4, [300.0] * 4])
CARBON_HP = np.array([[100.0, 300.0], [100.0, 300.0], [300.0, 500.0], [400.0, 400.0]])
FINE = replace(SIGNALS, parts={(PRICE_NAME, "A"): PRICE_HP, (CARBON_NAME, "B"): CARBON_HP})
"""Quarters of the price at a, of the same means as the hours of ``SIGNALS``, and halves of the intensity at b."""


def test_a_run_is_settled_by_the_parts_it_touches():
    ledger, hourly = settle(played(signals=FINE)), settle(played())
    # job 0, 1.5 kW at a: quarters of 120 and 160, then half an hour of 200; job 1, 2 kW at b: -50, then 10
    assert ledger.job_energy_usd == pytest.approx(1.5 * (0.03 + 0.04 + 0.1) + 2.0 * (-0.025 + 0.005))
    # intensity at b: the second half of hour 1, the first of hour 2
    assert ledger.job_kg == pytest.approx(1.5 * (0.2 + 0.3) + 2.0 * (0.15 + 0.15))
    assert ledger.free_energy_usd == pytest.approx(
        hourly.free_energy_usd + 0.15 * (0.5 * 100.0 - 0.25 * (120.0 + 160.0)) / 1000.0
    )
    assert ledger.job_kwh == hourly.job_kwh


def test_the_ledger_equals_the_engines_own_meters():
    outcome = run(environment(signals=FINE), Script({0: (0, 0.4 * HOUR_S), 1: (1, 1.6 * HOUR_S)}), rewards=True)
    ledger, meters = settle(outcome), outcome.meters
    assert ledger.job_energy_usd == pytest.approx(meters.busy_usd_S.sum(), rel=1e-12)
    assert ledger.free_energy_usd == pytest.approx(meters.free_usd_S.sum(), rel=1e-12)
    assert ledger.job_kg == pytest.approx(meters.busy_kg_S.sum(), rel=1e-12)
    assert (ledger.move_kg, ledger.result_kg) == pytest.approx((meters.move_kg, meters.result_kg))
    assert ledger.utility_usd == pytest.approx(meters.utility_usd, rel=1e-12)
    assert sum(outcome.rewards_K) == pytest.approx(ledger.utility_usd)


def test_journeys_count_the_mean_of_the_hour():
    means = replace(
        SIGNALS, value_ZH=SIGNALS.value_ZH | {CARBON_NAME: np.array([SIGNALS.of(CARBON_NAME)[0], CARBON_HP.mean(1)])}
    )
    coarse, fine = settle(played(signals=means)), settle(played(signals=FINE))
    assert fine.move_kg == pytest.approx(coarse.move_kg)
    assert fine.result_kg == pytest.approx(coarse.result_kg)


class Watcher(Script):
    """Notes the prices it is shown."""

    def __init__(self, plan):
        super().__init__(plan)
        self.seen = {}

    def decide(self, view, answers):
        self.seen[view.now_s] = view.price_S.tolist()
        super().decide(view, answers)


def test_a_scheduler_sees_the_price_of_now():
    watcher = Watcher({0: (0, 0.9 * HOUR_S), 1: (1, 1.5 * HOUR_S)})
    run(environment(signals=FINE), watcher)
    minutes = {0: 40.0, 14: 40.0, 15: 80.0, 29: 80.0, 30: 120.0, 45: 160.0, 53: 160.0}
    assert {minute: watcher.seen[60.0 * minute][0] for minute in minutes} == minutes
    assert watcher.seen[60.0 * 60][0] == 200.0
    assert {seen[1] for time_s, seen in watcher.seen.items() if time_s < HOUR_S} == {50.0}


def test_a_part_is_what_the_zones_of_the_run_have_in_common():
    start = SIGNALS.start
    assert SiteSignals.of(FINE, ["A", "B"], start, 4).part_s == 900.0
    assert SiteSignals.of(FINE, ["B"], start, 4).part_s == 1800.0
    only = replace(FINE, parts={(PRICE_NAME, "A"): PRICE_HP})
    assert SiteSignals.of(only, ["B"], start, 4).part_s == HOUR_S
    assert SiteSignals.of(FINE, ["A"], start, 4).price_SH == pytest.approx(PRICE_HP.mean(axis=1)[None])


def test_a_pue_by_the_hour_counts_within_it():
    pue = PueByHour(start=SIGNALS.start, factor_SH=np.array([[1.0, 1.2, 1.0, 1.0], [1.0, 0.9, 1.1, 1.0]]))
    outcome = played(signals=FINE, pue=pue)
    ledger = settle(outcome)
    assert ledger.job_energy_usd == pytest.approx(1.5 * (0.03 + 0.04 + 0.12) + 2.0 * (-0.0225 + 0.0055))
    assert ledger.job_kwh == pytest.approx(1.5 * (0.5 + 0.6) + 2.0 * (0.45 + 0.55))
    assert ledger.job_kwh == pytest.approx(outcome.meters.busy_kwh_S.sum())


def within(signals, parts, spread):
    """Signals whose hours swing by a share around their means."""
    swing_P = np.linspace(-spread, spread, parts)
    kept = {
        (name, zone): signals.of(name)[z][:, None] * (1.0 + swing_P)
        for name in (PRICE_NAME, CARBON_NAME)
        for z, zone in enumerate(signals.zones)
    }
    return replace(signals, parts=kept)


@pytest.mark.parametrize("slot_s", [60, 1800])
def test_no_policy_earns_more_than_the_bound(slot_s):
    hourly = build_environment(load_scenario("tiny", [f"slot_s={slot_s}"]))
    fine = replace(hourly, signals=within(hourly.signals, 4, 0.9))
    bound = utility_bound(fine)
    for policy in ("booked-perfect", "cheapest-feasible", "random"):
        assert settle(run(fine, make_scheduler(policy))).utility_usd <= bound.upper_usd + 1e-9
    assert bound.lower_usd <= bound.upper_usd + 1e-9
    assert earned(fine, Replay(bound.schedule)) == pytest.approx(bound.lower_usd, abs=1e-9)
    coarse = utility_bound(hourly)
    assert bound.upper_usd != pytest.approx(coarse.upper_usd, rel=1e-3)
    flat = utility_bound(replace(hourly, signals=within(hourly.signals, 4, 0.0)))
    assert flat.upper_usd == pytest.approx(coarse.upper_usd, rel=1e-3)

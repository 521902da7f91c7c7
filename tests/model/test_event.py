"""A grid event: its limit, its lines in the ledger and its convex cost hold together."""

import numpy as np
import pytest

from noonward.errors import ScenarioError
from noonward.model.cluster.event import GridEvent


def event(**more):
    """Three hours from the first hour on, 100 kW to 75 kW, within a quarter of an hour."""
    return GridEvent(
        **{
            "start_s": 3600.0, "end_s": 14400.0, "baseline_kw": 100.0, "target_kw": 75.0, "ramp_s": 900.0,
            "usd_per_mwh": 2000.0, "penalty_usd_per_mwh": 4000.0, **more,
        }
    )  # fmt: skip


def test_what_was_asked_delivered_and_paid_by_hand():
    kw_N = np.array([100.0, 75.0, 90.0, 75.0])
    lines = event(ramp_s=0.0).settle(kw_N, 3600.0)
    assert lines.asked_mwh == pytest.approx(0.075)
    assert lines.delivered_mwh == pytest.approx(0.060)
    assert lines.compliance == pytest.approx(0.8)
    assert lines.least_compliance == pytest.approx(0.4)
    assert lines.payment_usd == pytest.approx(120.0)
    assert lines.penalty_usd == pytest.approx(60.0)


def test_less_power_than_asked_is_not_paid_and_more_than_the_baseline_is_not_charged_twice():
    kw_N = np.array([100.0, 20.0, 75.0, 300.0])
    lines = event(ramp_s=0.0).settle(kw_N, 3600.0)
    assert lines.delivered_mwh == pytest.approx(0.050)
    assert lines.penalty_usd == pytest.approx(100.0)


def test_the_ramp_asks_for_half():
    lines = event().settle(np.full(16, 75.0), 900.0)
    assert lines.asked_mwh == pytest.approx(0.025 * (3 - 0.125))
    hours, asked_kw = event().intervals(900.0, 16)
    assert asked_kw[4:6].tolist() == [12.5, 25.0]
    assert hours.sum() == pytest.approx(3.0)


def test_what_is_asked_is_the_integral_of_the_limit():
    one = event()
    time_s = np.arange(3600.0, 14400.0, 1.0) + 0.5
    asked_kwh = float((100.0 - one.step(time_s)).sum() / 3600.0)
    assert one.settle(np.full(4, 0.0), 3600.0).asked_mwh == pytest.approx(asked_kwh / 1000.0)


@pytest.mark.parametrize("seed", range(200))
def test_no_dispatch_settles_below_its_convex_cost(seed):
    rng = np.random.default_rng(seed)
    baseline = rng.uniform(10, 1000)
    start = rng.uniform(0, 7200)
    one = GridEvent(
        start_s=start,
        end_s=start + rng.uniform(1800, 20000),
        baseline_kw=baseline,
        target_kw=baseline * rng.uniform(0, 1),
        ramp_s=rng.choice([0.0, 900.0, 1500.0]),
        usd_per_mwh=rng.uniform(0, 3000),
        penalty_usd_per_mwh=rng.uniform(0, 6000),
    )
    most_kw, interval_s = baseline * rng.uniform(0.8, 2), float(rng.choice([300, 900, 3600]))
    count = int(np.ceil(one.end_s / interval_s)) + 2
    kw_N = rng.uniform(0, max(most_kw, baseline), count)
    lines = one.settle(kw_N, interval_s)
    limit_kw, slope, constant = one.convex(interval_s, count, most_kw)
    settled = lines.penalty_usd - lines.payment_usd
    above = np.maximum(0.0, kw_N - limit_kw)
    assert settled >= constant + slope @ above - 1e-9
    kept_kw = np.minimum(kw_N, limit_kw)
    kept = one.settle(kept_kw, interval_s)
    assert kept.compliance == pytest.approx(1.0)
    assert -kept.payment_usd == pytest.approx(constant)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target_kw": 120.0}, "from 0 to its baseline"),
        ({"end_s": 4000.0}, "asks for nothing"),
        ({"penalty_usd_per_mwh": -1.0}, "give 0 or more"),
    ],
)
def test_events_that_cannot_be_are_refused(change, said):
    with pytest.raises(ScenarioError, match=said):
        event(**change)


def test_readings_must_reach_the_end():
    with pytest.raises(ScenarioError, match="readings"):
        event().settle(np.full(3, 75.0), 3600.0)

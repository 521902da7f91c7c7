"""Settlement of segments and transfers: numbers by hand, additivity, and a sum over seconds' hours done slowly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonward.ledger.settle import integral, settle_segment, settle_transfer
from noonward.model.signals import cumulative
from reference.ledger import hourly

PRICE_SH = np.array([[100.0, 200.0, 300.0], [10.0, -10.0, -40.0]])
CARBON_SH = np.array([[500.0, 100.0, 0.0], [0.0, 0.0, 1000.0]])
SUMS = (cumulative(PRICE_SH), cumulative(CARBON_SH))
HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("site", "start_h", "end_h", "power_w", "settled"),
    [
        (0, 0, 1, 1000.0, (1.0, 0.1, 0.5)),  # 1 kWh at 100 USD/MWh and 500 g/kWh
        (0, 0, 3, 1000.0, (3.0, 0.6, 0.6)),
        (0, 0.5, 1.5, 2000.0, (2.0, 0.3, 0.6)),  # half an hour at 100, half at 200: 1 kWh each
        (0, 1.25, 1.75, 4000.0, (2.0, 0.4, 0.2)),
        (0, 2, 3, 1000.0, (1.0, 0.3, 0.0)),  # up to the end of the last hour
        (0, 2.5, 3, 1000.0, (0.5, 0.15, 0.0)),
        (1, 1, 3, 1000.0, (2.0, -0.05, 1.0)),  # negative prices are paid out
        (1, 0, 2, 1000.0, (2.0, 0.0, 0.0)),
        (1, 1, 1, 1000.0, (0.0, 0.0, 0.0)),
        (1, 0, 3, 0.0, (0.0, 0.0, 0.0)),
    ],
)
def test_constant_power_over_hours(site, start_h, end_h, power_w, settled):
    got = settle_segment(*SUMS, site, start_h * HOUR_S, end_h * HOUR_S, power_w, HOUR_S)
    assert got == pytest.approx(settled, abs=1e-15)


def test_the_integral_is_exact_at_the_turn_of_every_hour():
    for hour, sum_h in enumerate((0.0, 100.0, 300.0, 600.0)):
        assert integral(SUMS[0][0], hour * HOUR_S, HOUR_S) == sum_h * HOUR_S


values = st.lists(st.floats(-500, 500), min_size=6, max_size=6)
times = st.lists(st.floats(0, 6 * HOUR_S), min_size=3, max_size=3).map(sorted)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(values, values, times, st.floats(0, 1e6))
def test_a_segment_is_the_sum_of_its_parts(price, carbon, times, power_w):
    sums = (cumulative(np.array([price])), cumulative(np.abs(np.array([carbon]))))
    start, middle, end = times
    parts = np.add(
        settle_segment(*sums, 0, start, middle, power_w, HOUR_S), settle_segment(*sums, 0, middle, end, power_w, HOUR_S)
    )
    assert settle_segment(*sums, 0, start, end, power_w, HOUR_S) == pytest.approx(tuple(parts), rel=1e-9, abs=1e-9)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(values, values, times, st.floats(0, 1e6))
def test_a_segment_equals_its_sum_over_hours(price, carbon, times, power_w):
    sums = (cumulative(np.array([price])), cumulative(np.array([carbon])))
    start, _, end = times
    kwh, usd, kg = settle_segment(*sums, 0, start, end, power_w, HOUR_S)
    assert kwh == pytest.approx(power_w * (end - start) / 3.6e6)
    assert usd == pytest.approx(power_w * hourly(price, start, end) / 3.6e9, rel=1e-9, abs=1e-9)
    assert kg == pytest.approx(power_w * hourly(carbon, start, end) / 3.6e9, rel=1e-9, abs=1e-9)


def test_a_transfer_pays_its_price_and_emits_at_the_mean_of_both_ends():
    # 10 GB at 0.02 USD and 0.5 kWh a GB, between 100 and 300 g/kWh: 5 kWh at 200 g
    assert settle_transfer(10.0, 0.02, 0.5, 100.0, 300.0) == pytest.approx((5.0, 0.2, 1.0))
    assert settle_transfer(0.0, 0.02, 0.5, 100.0, 300.0) == (0.0, 0.0, 0.0)


def test_unknown_hours_settle_to_nothing_known():
    sums = (cumulative(np.full((1, 2), np.nan)), SUMS[1])
    kwh, usd, kg = settle_segment(*sums, 0, 0.0, HOUR_S, 1000.0, HOUR_S)
    assert (kwh, kg) == (1.0, 0.5)
    assert np.isnan(usd)

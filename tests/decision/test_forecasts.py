"""Issuing of forecasts: in a backtest, which knows all hours, and live, as hours become known."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from noonward.data.signals.generate import generate_signals
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.errors import SignalRangeError
from noonward.forecasts.forecast import Forecast

RNG = np.random.default_rng
FIRST = datetime(2022, 4, 1, tzinfo=UTC)
HISTORY_H, RUN_H, LEADS = 48, 40, 30
START = FIRST + timedelta(hours=HISTORY_H)
SITES = ("PL", "SG", "PL")
SIGNALS = generate_signals(("CA-ON", "SG", "PL"), FIRST, HISTORY_H + RUN_H, RNG(3))
KINDS = ("perfect", "persistence", "regression", "learned", "noisy")


def issuer(kind, hours=HISTORY_H + RUN_H, sites=SITES):
    """An issuer that knows some hours."""
    return ForecastIssuer(Forecast(kind), SIGNALS.window(FIRST, hours), START, sites, RNG(1))


def all_hours(kind):
    """Forecasts of all hours of the run, (2, hours, sites, leads + 1)."""
    out = np.empty((2, RUN_H, len(SITES), LEADS + 1))
    assert issuer(kind).issue(0, out) == RUN_H
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_forecasts_are_running_integrals_of_the_forecasters_values(kind):
    found = all_hours(kind)
    of_zones = SIGNALS.select(("PL", "SG"))
    value_KZH = np.stack([of_zones.price_usd_per_mwh_ZH, of_zones.carbon_g_per_kwh_ZH])
    right = Forecast(kind).forecaster(of_zones, HISTORY_H, RNG(1))
    right = right.values(value_KZH, np.arange(HISTORY_H, HISTORY_H + RUN_H), LEADS)[:, :, [0, 1, 0]]
    assert (found[..., 0] == 0.0).all()
    np.testing.assert_array_equal(found[..., 1], 3600.0 * right[..., 0])
    np.testing.assert_allclose(np.diff(found) / 3600.0, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [1, 7, 100])
def test_a_buffer_of_any_size_gets_the_same_bytes(kind, room):
    right, one = all_hours(kind), issuer(kind)
    for hour in range(0, RUN_H, 5):
        buffer = np.full((2, room, len(SITES), LEADS + 1), -1.0)
        written = one.issue(hour, buffer)
        assert written == min(room, RUN_H - hour)
        np.testing.assert_array_equal(buffer[:, :written], right[:, hour : hour + written])
        assert (buffer[:, written:] == -1.0).all()


@pytest.mark.parametrize("kind", ["persistence", "regression", "learned"])
def test_live_the_same_forecasts_are_issued_as_hours_become_known(kind):
    right, live = all_hours(kind), issuer(kind, HISTORY_H + 1)
    shown_KSL = np.empty((2, len(SITES), LEADS + 1))
    for hour in range(RUN_H):
        if hour:
            live.append(SIGNALS.window(START + timedelta(hours=hour), 1))
        assert live.known_h == hour + 1
        assert live.issue(hour, shown_KSL[:, None]) == 1
        np.testing.assert_array_equal(shown_KSL, right[:, hour])


def test_an_hour_that_is_not_known_yet_is_refused():
    live = issuer("regression", HISTORY_H + 2)
    buffer = np.empty((2, 5, len(SITES), LEADS + 1))
    assert live.issue(1, buffer) == 1
    for hour in (2, -1):
        with pytest.raises(SignalRangeError, match=f"asked for in hour {hour} of the run, .* hours 0 to 1 are known"):
            live.issue(hour, buffer)


@pytest.mark.parametrize("hour", [1, 3])
def test_hours_are_added_once_and_in_order(hour):
    live = issuer("regression", HISTORY_H + 2)
    with pytest.raises(SignalRangeError, match="end at 2022-04-03 02:00 UTC; add every hour once, in order"):
        live.append(SIGNALS.window(START + timedelta(hours=hour), 1))

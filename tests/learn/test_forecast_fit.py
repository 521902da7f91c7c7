"""Forecasts of one's own zones: what is learned, what is held out, and how the result is used by its name."""

from datetime import UTC, datetime

import numpy as np
import pytest

from noonward.decision.scheduler import forecast_remarks
from noonward.errors import DataError, ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.forecaster import price_and_carbon
from noonward.forecasts.learned import find_net, write_net
from noonward.model.signals import Signals
from noonward.schedule.policies import find_policy, make_scheduler

torch = pytest.importorskip("torch")
fit = pytest.importorskip("noonward.learn.forecast_fit")

START = datetime(2021, 1, 1, tzinfo=UTC)
SMALL = fit.FitSettings(passes=6, every_h=5, hidden=(64,), batch=64)


@pytest.fixture
def short(monkeypatch):
    """Sixty days suffice."""
    monkeypatch.setattr(fit, "LEAST_DAYS", 60)


def waves(days=100, zones=("DE", "XX-OWN"), hole=None):
    """Signals with a rhythm of 33 hours, which the regression knows nothing of."""
    hour = np.arange(24 * days)
    price = 50.0 + 20.0 * (hour % 33 < 11) + np.arange(len(zones))[:, None]
    carbon = np.full((len(zones), len(hour)), 300.0) + (hour % 24)
    if hole is not None:
        price[1, hole] = np.nan
    return Signals(start=START, zones=zones, value_ZH={"price_usd_per_mwh": price, "carbon_g_per_kwh": carbon})


def test_the_net_learns_what_the_regression_misses(short):
    found = fit.fit_forecast(waves(), SMALL)
    learned, regression, persistence = found.error_KFZL[0].mean(axis=(1, 2))
    assert learned < 0.8 * regression
    assert learned < 0.8 * persistence
    assert found.net.zones == ("DE", "XX-OWN")
    assert found.net.record["fitted_until"] == "2021-03-22T00:00:00+00:00"  # 80 of 100 days


def test_the_held_out_hours_change_nothing_but_the_errors(short):
    signals = waves()
    later = price_and_carbon(signals).copy()
    later[:, :, 24 * 80 :] *= 3.0
    other = Signals(start=START, zones=signals.zones, value_ZH=dict(zip(signals.value_ZH, later, strict=True)))
    one, two = (fit.fit_forecast(each, SMALL) for each in (signals, other))
    for a, b in zip(one.net.weights, two.net.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.allclose(one.error_KFZL, two.error_KFZL)


def test_holes_are_left_out(short):
    assert np.isfinite(fit.fit_forecast(waves(hole=slice(300, 330)), SMALL).error_KFZL).all()
    with pytest.raises(DataError, match="price of XX-OWN is known in 70%"):
        fit.fit_forecast(waves(hole=slice(0, 24 * 30)), SMALL)


def test_two_years_are_needed():
    with pytest.raises(DataError, match="needs 730 days of hours; the files hold 100 days"):
        fit.fit_forecast(waves(), SMALL)


def test_a_forecast_is_used_by_its_name(short, tmp_path, monkeypatch):
    monkeypatch.setenv("NOONWARD_FORECASTS", str(tmp_path))
    found = fit.fit_forecast(waves(), SMALL)
    write_net(found.net, tmp_path / "mine.npz")
    again = find_net("mine")
    assert again.zones == found.net.zones
    for a, b in zip(again.weights, found.net.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    scheduler = make_scheduler("bid-price(forecast=learned, net=mine)")
    assert scheduler.needs.forecast == Forecast("learned", net="mine")
    assert find_policy("booked( forecast=learned, net=mine )").name == "booked(forecast=learned, net=mine)"
    with pytest.raises(ScenarioError, match=r"no forecast named 'other'.*there are: mine"):
        find_net("other")
    with pytest.raises(ScenarioError, match="a whole number from 0 to 2 or a name"):
        Forecast("learned", net=3)
    with pytest.raises(ScenarioError, match="whole number from 0 to 2"):
        make_scheduler("bid-price(forecast=learned, net=7)")
    (tmp_path / "mine.npz").write_bytes(b"no net")
    with pytest.raises(DataError, match="holds no forecast"):
        find_net("mine")


def test_windows_within_the_fitted_hours_are_said(short, tmp_path, monkeypatch):
    monkeypatch.setenv("NOONWARD_FORECASTS", str(tmp_path))
    write_net(fit.fit_forecast(waves(), SMALL).net, tmp_path / "mine.npz")

    class Window:
        signals = True
        start = START

    (note,) = forecast_remarks(Forecast("learned", net="mine"), Window)
    assert "fitted on hours up to 2021-03-22" in note
    Window.start = datetime(2021, 3, 22, tzinfo=UTC)
    assert forecast_remarks(Forecast("learned", net="mine"), Window) == ()

"""Published prices: read once they are published, never before; what follows is forecast from them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from noonward.data.signals.generate import generate_signals
from noonward.forecasts.forecast import BEYOND, Forecast
from noonward.forecasts.forecaster import price_and_carbon
from noonward.model.markets import day_ahead_market
from noonward.model.signals import Signals

RNG = np.random.default_rng
START = datetime(2022, 3, 20, tzinfo=UTC)
ZONES = ("DE", "SG", "US-NY-NYIS")
HISTORY_H, HOURS, LEADS = 72, 72 + 8 * 24, 60
"""The days from 23 to 30 March: Europe's clocks change on the 27th."""
PUBLISHED = tuple(BEYOND)
SIGNALS = generate_signals(ZONES, START, HOURS, RNG(5))


def values(kind, signals=SIGNALS, issue_I=None, leads=LEADS, cut=None):
    """Forecasts, (2, hours of issue, zones, leads), of signals that end at an hour."""
    forecaster = Forecast(kind).forecaster(signals, HISTORY_H, RNG(0))
    issue_I = np.arange(HISTORY_H, HOURS - 48) if issue_I is None else np.asarray(issue_I)
    return forecaster.values(price_and_carbon(signals)[..., :cut], issue_I, leads)


def known_h(zone, issue):
    """Hours from an hour of issue on whose price has been published by its start; 1 without a market."""
    market, now = day_ahead_market(zone), START + timedelta(hours=issue)
    return 1 if market is None else round((market.known_until(now) - now) / timedelta(hours=1))


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_prices_are_the_truth_and_carbon_is_the_others(kind):
    seen, rest = values(kind), values(BEYOND[kind])
    np.testing.assert_array_equal(seen[1], rest[1])
    np.testing.assert_array_equal(seen[0][:, 1], rest[0][:, 1])  # Singapore has no market
    for i, issue in enumerate(range(HISTORY_H, HOURS - 48)):
        for z in (0, 2):
            known = known_h(ZONES[z], issue)
            truth = SIGNALS.price_usd_per_mwh_ZH[z, issue : issue + known]
            np.testing.assert_array_equal(seen[0, i, z, :known], truth)
            assert seen[0, i, z, known] != SIGNALS.price_usd_per_mwh_ZH[z, issue + known]


@pytest.mark.parametrize("kind", PUBLISHED)
def test_nothing_published_is_read_before_its_hour(kind):
    for issue in range(HISTORY_H + 24 * 3, HISTORY_H + 24 * 5):  # with the days around the change of the clock
        later = {name: value_ZH.copy() for name, value_ZH in SIGNALS.value_ZH.items()}
        for z, zone in enumerate(ZONES):
            later["price_usd_per_mwh"][z, issue + known_h(zone, issue) :] += 100.0
        later["carbon_g_per_kwh"][:, issue + 1 :] += 100.0
        changed = replace(SIGNALS, value_ZH=later)
        np.testing.assert_array_equal(values(kind, issue_I=[issue]), values(kind, changed, [issue]))
        later["price_usd_per_mwh"][0, issue + known_h("DE", issue) - 1] += 100.0
        assert not np.array_equal(
            values(kind, issue_I=[issue]), values(kind, replace(SIGNALS, value_ZH=later), [issue])
        )


@pytest.mark.parametrize("kind", PUBLISHED)
def test_hours_beyond_are_forecast_as_at_the_last_published_hour(kind):
    issue = HISTORY_H + 40
    last = issue + known_h("DE", issue) - 1
    seen = values(kind, issue_I=[issue])
    filled = price_and_carbon(SIGNALS)[..., : last + 1].copy()
    filled[:, :, issue + 1 :] = seen[:, 0, :, 1 : last - issue + 1]
    rest = Forecast(BEYOND[kind]).forecaster(SIGNALS, HISTORY_H, RNG(0)).values(filled, np.array([last]), LEADS)
    np.testing.assert_array_equal(seen[0, 0, 0, last - issue :], rest[0, 0, 0, : LEADS - (last - issue)])


@pytest.mark.parametrize("kind", PUBLISHED)
def test_an_hours_forecast_does_not_depend_on_others_nor_on_the_number_of_leads(kind):
    together = values(kind)
    for issue in (HISTORY_H + 13, HISTORY_H, HISTORY_H + 100):
        for leads in (1, 2, 13, 36, LEADS):
            alone = values(kind, issue_I=[issue], leads=leads)
            np.testing.assert_array_equal(alone[:, 0], together[:, issue - HISTORY_H, :, :leads])


@pytest.mark.parametrize("kind", PUBLISHED)
def test_only_the_last_weeks_count(kind):
    long = generate_signals(ZONES, START, 24 * 40, RNG(6))
    cut = long.window(START + timedelta(days=21), 24 * 19)
    whole, part = (
        Forecast(kind).forecaster(each, 200, RNG(0)).values(price_and_carbon(each), np.array([issue]), LEADS)
        for each, issue in ((long, 24 * 21 + 250), (cut, 250))
    )
    np.testing.assert_array_equal(whole, part)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_an_unknown_price_ends_what_is_published(kind):
    issue = HISTORY_H + 40
    price_ZH = SIGNALS.price_usd_per_mwh_ZH.copy()
    price_ZH[0, issue + 3] = np.nan
    signals = replace(SIGNALS, value_ZH={**SIGNALS.value_ZH, "price_usd_per_mwh": price_ZH})
    seen, rest = values(kind, signals, [issue]), values(BEYOND[kind], issue_I=[issue])
    np.testing.assert_array_equal(seen[0, 0, 0, :3], price_ZH[0, issue : issue + 3])
    assert np.isfinite(seen).all()
    whole = values(kind, issue_I=[issue])
    assert not np.array_equal(seen[0, 0, 0, 3:], whole[0, 0, 0, 3:])
    nothing = values(kind, issue_I=[issue], cut=issue + 1)
    np.testing.assert_array_equal(nothing, rest)


def test_a_scenario_says_whether_a_zones_price_is_the_day_ahead_one():
    told = replace(SIGNALS, day_ahead={"DE": False})
    seen = values("published+regression", told)
    np.testing.assert_array_equal(seen[0][:, 0], values("regression")[0][:, 0])
    assert not np.array_equal(seen[0][:, 2], values("regression")[0][:, 2])
    assert told.window(START, 24).select(("DE",)).day_ahead == {"DE": False}


def test_zones_without_a_market_get_the_other_forecast():
    signals = Signals(start=START, zones=("a", "b", "c"), value_ZH=SIGNALS.value_ZH)
    np.testing.assert_array_equal(values("published+regression", signals), values("regression", signals))


def test_kinds_say_what_they_read():
    assert [Forecast(kind).published for kind in ("perfect", "regression", *PUBLISHED)] == [False] * 2 + [True] * 3
    assert not any(Forecast(kind).foresight for kind in PUBLISHED)
    assert Forecast("published+learned", net=2).rest == Forecast("learned", net=2)
    assert Forecast("noisy", 0.1).rest == Forecast("noisy", 0.1)

"""Forecasts of a system's peaks: nothing of the future is read, chances add up, and they beat the base rate."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from noonward.evaluate.peak_forecast import scored_peaks
from noonward.forecasts.system_peaks import LEAST_H, load_forecast, peak_chances, usual_mw
from noonward.model.cluster.calendar import site_calendar
from noonward.model.cluster.meter import SystemLoadFile
from noonward.model.cluster.tariff import Coincident

AEMO = Path(__file__).parents[3] / "shared" / "data" / "flexible" / "aemo_5min_2022h1.parquet"
HOURS = 24 * 120
CHARGE = Coincident(usd_per_kw_year=1, peaks=5)


def calendar(hours=HOURS, start=datetime(2022, 5, 2, tzinfo=UTC)):
    return site_calendar("UTC", start, hours * 3600.0, 3600.0, hours)


def load(seed=0, hours=HOURS):
    """Load whose level and daily shape follow a random walk, highest at 17 h."""
    rng = np.random.default_rng(seed)
    hour = np.arange(hours)
    walk = np.zeros(hours // 24)
    for day in range(1, len(walk)):
        walk[day] = 0.7 * walk[day - 1] + rng.normal()
    shape = np.exp(-0.5 * ((hour % 24 - 17) / 2.5) ** 2)
    return 100 + 3 * walk[hour // 24] + (20 + 5 * walk[hour // 24]) * shape + rng.normal(0, 0.3, hours)


def test_what_comes_after_the_hour_is_not_read():
    mw_H, now = load(), 24 * 70 + 9
    changed = mw_H.copy()
    changed[now:] = 1e6
    cut = mw_H[:now]
    found = [peak_chances(each, calendar(), CHARGE, now, 240) for each in (mw_H, changed, cut)]
    assert found[0].max() > 0
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_what_comes_before_the_hour_counts():
    mw_H, now = load(), 24 * 70 + 9
    hot = mw_H.copy()
    hot[now - 6 : now] += 15
    low, high = (peak_chances(each, calendar(), CHARGE, now, 24) for each in (mw_H, hot))
    assert high.sum() > low.sum()
    assert high.argmax() == 17 - 9


def test_chances_are_chances_and_a_day_has_one_peak_at_most():
    mw_H = load(3)
    for now in range(LEAST_H, HOURS - 240, 24 * 11 + 7):
        chance_L = peak_chances(mw_H, calendar(), CHARGE, now, 200)
        assert chance_L.min() >= 0
        day_L = calendar().day_N[now : now + 200]
        assert all(chance_L[day_L == day].sum() <= 1 + 1e-9 for day in np.unique(day_L))


def test_hours_of_other_months_have_no_chance_and_without_load_none_has():
    charge = CHARGE.model_copy(update={"months": (1, 2)})
    assert not peak_chances(load(), calendar(), charge, 24 * 70, 48).any()
    assert not peak_chances(load(), calendar(), CHARGE, LEAST_H - 1, 48).any()
    unknown = load()
    unknown[24 * 40 : 24 * 60] = np.nan
    assert not peak_chances(unknown, calendar(), CHARGE, 24 * 70, 48).any()


def test_the_charge_of_a_month_counts_its_own_days():
    """At the end of a month the highest days have passed; the next month starts from zero."""
    mw_H, last = load(), 24 * 90  # 31 July
    mw_H[24 * 62 : 24 * 80] += 40
    one = Coincident(usd_per_kw_year=1, peaks=1, per="month")
    chance_L = peak_chances(mw_H, calendar(), one, last, 48)
    assert chance_L[:24].sum() < 0.05
    assert chance_L[24:].sum() < 0.5


def test_the_usual_load_is_that_of_days_of_the_same_kind():
    """A week of 1 on weekdays and 2 on weekends is forecast exactly."""
    weekend_H = calendar().weekend_N
    mw_H = 1.0 + weekend_H
    now = 24 * 60 + 5
    assert np.array_equal(usual_mw(mw_H, weekend_H, now, 96), mw_H[now : now + 96])
    found = load_forecast(mw_H, weekend_H, now)
    assert found.mean_L == pytest.approx(mw_H[now : now + 48])
    assert found.mw_DL == pytest.approx(np.broadcast_to(found.mean_L, found.mw_DL.shape))


@pytest.mark.skipif(not AEMO.is_file(), reason="the data beside the repository are not there")
@pytest.mark.parametrize("region", ["SA1", "TAS1"])
def test_peaks_of_systems_that_nothing_was_fitted_to_are_forecast_better_than_by_the_base_rate(region):
    columns = {"time": "interval_end_nem_time", "load": "demand_mw", "zone": "region"}
    file = SystemLoadFile(path=AEMO, columns=columns, zone=region, timezone="+10:00", times="end")
    charge = Coincident(usd_per_kw_year=100, peaks=1, per="month", interval_min=30)
    _, score = scored_peaks(file, charge, "Australia/Brisbane")
    assert score.skill > 0
    assert score.watched < 0.1

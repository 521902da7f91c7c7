import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from noonward.data.signals.calibration import load_calibration
from noonward.data.signals.generate import (
    generate_signals,
    innovation_correlation,
    positive_semidefinite,
    sinusoidal_signals,
)
from noonward.errors import DataError
from noonward.model.cluster.scenario import SinusoidalSignals

PAPER = ("AU-SA", "AU-WA", "CA-ON", "PL", "SG")
START = datetime(2022, 1, 1, tzinfo=UTC)
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "signals.parquet"


def draw(seed=0, zones=PAPER, start=START, hours=240, calibration="w2022"):
    return generate_signals(zones, start, hours, np.random.default_rng(seed), calibration)


@pytest.fixture(scope="module")
def years():
    zones = tuple(load_calibration("w2022").zones)
    return [draw(seed, zones, hours=8760) for seed in range(4)]


def both(signals):
    return np.vstack([signals.price_usd_per_mwh_ZH, signals.carbon_g_per_kwh_ZH])


def autocorrelation(x_SH, lag):
    x_SH = x_SH - x_SH.mean(axis=1, keepdims=True)
    return (x_SH[:, lag:] * x_SH[:, :-lag]).mean(axis=1) / (x_SH**2).mean(axis=1)


def all_series():
    zones = load_calibration("w2022").zones.values()
    return [zone.price for zone in zones] + [zone.carbon for zone in zones]


def test_same_state_gives_the_same_bytes_and_another_seed_does_not():
    one, two, other = draw(1), draw(1), draw(2)
    assert both(one).tobytes() == both(two).tobytes()
    assert not np.array_equal(both(one), both(other))


def test_a_longer_draw_begins_with_the_shorter_one():
    np.testing.assert_allclose(both(draw(hours=500))[:, :100], both(draw(hours=100)), rtol=1e-9)


def test_shape_order_and_completeness():
    signals = draw(zones=("SG", "PL"), hours=30, start=START + timedelta(days=40))
    assert signals.zones == ("SG", "PL")
    assert signals.start == START + timedelta(days=40)
    assert signals.hours == 30
    assert np.isfinite(both(signals)).all()
    assert signals.carbon_g_per_kwh_ZH[0].mean() == pytest.approx(491, rel=0.05)
    assert draw(hours=1).hours == 1


def test_mean_and_spread_follow_the_calibration(years):
    series = all_series()
    mean = np.mean([both(year).mean(axis=1) for year in years], axis=0)
    std = np.mean([both(year).std(axis=1) for year in years], axis=0)
    np.testing.assert_allclose(mean, [one.mean for one in series], rtol=0.10)
    deviation = std / np.array([one.std for one in series]) - 1
    assert np.abs(deviation[15:]).max() < 0.12
    assert np.abs(np.median(deviation[:15])) < 0.08
    assert np.abs(deviation[:15]).max() < 0.40


def test_persistence_follows_the_calibration(years):
    for lag, name, worst, typical in ((1, "autocorrelation_1h", 0.25, 0.04), (24, "autocorrelation_24h", 0.25, 0.06)):
        seen = np.mean([autocorrelation(both(year), lag) for year in years], axis=0)
        off = np.abs(seen - [getattr(one, name) for one in all_series()])
        assert off.max() < worst
        assert np.median(off) < typical


def test_share_of_negative_prices_follows_the_calibration(years):
    seen = np.mean([(year.price_usd_per_mwh_ZH < 0).mean(axis=1) for year in years], axis=0)
    np.testing.assert_allclose(seen, [one.negative_share for one in all_series()[:15]], atol=0.06)
    assert seen[0] > 0.10


def test_correlations_follow_the_calibration(years):
    table = load_calibration("w2022")
    month = (np.datetime64("2022-01-01T00") + np.arange(8760)).astype("datetime64[M]").astype(int) % 12
    hour = np.arange(8760) % 24
    mean_SH = np.mean([both(year) for year in years], axis=0)
    for m, h in np.ndindex(12, 24):
        here = (month == m) & (hour == h)
        mean_SH[:, here] = mean_SH[:, here].mean(axis=1, keepdims=True)
    seen_SS = np.zeros((30, 30))
    for year in years:
        rest = both(year) - mean_SH
        low, high = np.quantile(rest, [0.005, 0.995], axis=1)
        seen_SS += np.corrcoef(np.clip(rest, low[:, None], high[:, None])) / len(years)
    off = (seen_SS - table.residual_correlation_SS)[np.triu_indices(30, 1)]
    assert np.sqrt(np.mean(off**2)) < 0.05
    assert np.abs(off).max() < 0.2


def test_values_stay_within_the_published_range(years):
    for row, one in enumerate(all_series()):
        values = np.array([both(year)[row] for year in years])
        assert values.min() >= one.minimum
        assert values.max() <= one.maximum


def test_weekends_are_cheaper_where_the_calibration_says_so(years):
    weekday = (np.arange(8760) // 24 + 5) % 7
    prices = np.mean([year.price_usd_per_mwh_ZH[3] for year in years], axis=0)
    step = load_calibration("w2022").zones["PL"].price.weekend_step
    assert step < -10
    assert prices[weekday >= 5].mean() - prices[weekday < 5].mean() == pytest.approx(step, abs=12)


def test_months_come_from_the_calendar_of_any_year():
    profile_MH = load_calibration("w2022").zones["US-CAL-CISO"].carbon.profile_MH
    for month in (4, 10):
        start = datetime(2031, month + 1, 1, tzinfo=UTC)
        drawn = [draw(seed, ("US-CAL-CISO",), start, 720).carbon_g_per_kwh_ZH.mean() for seed in range(6)]
        assert np.mean(drawn) == pytest.approx(profile_MH[month].mean(), rel=0.08)
    assert profile_MH[10].mean() > 1.5 * profile_MH[4].mean()


def test_the_calibration_changes_the_result():
    assert draw(calibration="train").price_usd_per_mwh_ZH[3].mean() != draw().price_usd_per_mwh_ZH[3].mean()


def test_the_stand_in_is_noted_only_where_it_is_used():
    assert draw().notes == ("AU-WA price: synthetic, from the statistics of a proxy, not of the market",)
    assert draw(zones=("PL",)).notes == ()


def test_projection_leaves_valid_matrices_and_repairs_others():
    good = np.array([[1.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(positive_semidefinite(good), good)
    bad = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    fixed = positive_semidefinite(bad)
    assert np.linalg.eigvalsh(bad).min() < 0 <= np.linalg.eigvalsh(fixed).min() + 1e-12
    np.testing.assert_allclose(np.diag(fixed), 1.0)


def test_innovations_make_up_for_unlike_memories():
    root = np.sqrt(np.array([[0.5, 0.5], [0.9, 0.1]]))
    wanted = np.array([[1.0, 0.4], [0.4, 1.0]])
    got = innovation_correlation(root, wanted)
    assert got[0, 1] * (root[0] @ root[1]) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"zones": ("PL", "GB")}, r"zone 'GB' has no packaged statistics.*AU-SA.*give signal files"),
        ({"zones": ("PL", "PL")}, "stands twice"),
        ({"zones": ()}, "no zone"),
        ({"hours": 0}, "0 hours"),
        ({"start": datetime(2022, 1, 1)}, "not UTC"),
        ({"start": datetime(2022, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, "not UTC"),
        ({"start": datetime(2022, 1, 1, 0, 30, tzinfo=UTC)}, "full hour"),
        ({"calibration": "w2023"}, "did you mean 'w2022'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        draw(**arguments)


def test_a_year_of_five_zones_takes_well_under_a_second():
    draw()
    before = time.process_time()
    draw(hours=8760)
    assert time.process_time() - before < 1.0


@pytest.mark.skipif(not SHARED.exists(), reason="the real traces are not beside this checkout")
def test_quantiles_and_daily_spread_are_those_of_the_real_year(years):
    rows = pl.scan_parquet(SHARED).with_columns(pl.col("zone").cast(pl.String))
    rows = rows.filter(pl.col("timestamp").dt.year() == 2022, pl.col("zone").is_in(["PL", "DE", "CA-ON"]))
    frame = rows.sort("zone", "timestamp").collect()
    order = tuple(load_calibration("w2022").zones)
    for zone in ("PL", "DE", "CA-ON"):
        real = frame.filter(pl.col("zone") == zone)["carbon_intensity_g_per_kwh"].to_numpy().astype(float)
        made = np.array([year.carbon_g_per_kwh_ZH[order.index(zone)] for year in years])
        for share in (0.05, 0.25, 0.5, 0.75, 0.95):
            assert np.quantile(made, share) == pytest.approx(np.quantile(real, share), abs=0.15 * real.std())
        assert np.ptp(made.reshape(-1, 24), axis=1).mean() == pytest.approx(
            np.ptp(real.reshape(-1, 24), axis=1).mean(), rel=0.2
        )


def test_sinusoidal_signals_peak_at_their_hour_every_day():
    spec = SinusoidalSignals(
        source="sinusoidal", price_usd_per_mwh=50, carbon_g_per_kwh=300, amplitude=0.2, peak_hours={"A": 6, "B": 18}
    )
    signals = sinusoidal_signals(spec, ("B", "A"), datetime(2022, 1, 1, 3, tzinfo=UTC), 48)
    assert signals.price_usd_per_mwh_ZH[1, 3] == pytest.approx(60.0)
    assert signals.price_usd_per_mwh_ZH[0, 3] == pytest.approx(40.0)
    assert signals.carbon_g_per_kwh_ZH[1, 3] == pytest.approx(360.0)
    np.testing.assert_allclose(signals.price_usd_per_mwh_ZH[:, :24], signals.price_usd_per_mwh_ZH[:, 24:])

"""Forecasts: what each kind knows at the hour of issue, and how it errs."""

from datetime import UTC, datetime

import numpy as np
import pytest

from noonward.errors import ScenarioError, SignalRangeError
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.forecaster import integrate, price_and_carbon
from noonward.model.signals import Signals

START = datetime(2022, 4, 1, tzinfo=UTC)
RNG = np.random.default_rng


def both(price_ZH, carbon_ZH=None):
    """Signals of zones named by number; without carbon intensities they are 0."""
    price_ZH = np.asarray(price_ZH, float)
    carbon_ZH = np.zeros_like(price_ZH) if carbon_ZH is None else np.asarray(carbon_ZH, float)
    zones = tuple(map(str, range(len(price_ZH))))
    return Signals(start=START, zones=zones, value_ZH={"price_usd_per_mwh": price_ZH, "carbon_g_per_kwh": carbon_ZH})


def issued(kind, signals, history_h, leads, *, noise=0.5, seed=0):
    """Forecast values per signal, hour of issue, zone and lead."""
    forecaster = Forecast(kind, noise).forecaster(signals, history_h, RNG(seed))
    return forecaster.values(price_and_carbon(signals), np.arange(history_h, signals.hours), leads)


def values(kind, value_ZH, history_h, leads, **options):
    """Forecast prices per hour of issue, zone and lead."""
    return issued(kind, both(value_ZH), history_h, leads, **options)[0]


def test_perfect_forecast_is_the_truth():
    truth = RNG(1).normal(50.0, 20.0, (3, 40))
    seen = values("perfect", truth, 10, 6)
    assert seen.shape == (30, 3, 6)
    for issue in range(30):
        known = min(6, 30 - issue)
        np.testing.assert_allclose(seen[issue, :, :known], truth[:, 10 + issue : 10 + issue + known], rtol=1e-9)


def integrals(value_KIZL, row_S):
    """Their running integrals at some sites."""
    kinds, issues, _, leads = value_KIZL.shape
    out = np.full((kinds, issues, len(row_S), leads + 1), -1.0)
    integrate(value_KIZL, np.array(row_S), out)
    return out


def test_hours_after_the_last_known_one_are_unknown():
    of_hours = integrals(values("perfect", [[1.0, 2.0, 3.0]], 1, 3)[None], [0])[0, :, 0]
    assert of_hours[0].tolist() == pytest.approx([0.0, 7200.0, 18000.0, np.nan], nan_ok=True)
    assert of_hours[1].tolist() == pytest.approx([0.0, 10800.0, np.nan, np.nan], nan_ok=True)


def test_integrals_add_up_from_the_hour_of_issue_at_every_site_with_the_values_of_its_zone():
    value_KIZL = RNG(0).normal(size=(2, 3, 4, 7))
    row_S = [3, 0, 3]
    expected = np.cumsum(value_KIZL[:, :, row_S] * 3600.0, axis=-1)
    out = integrals(value_KIZL, row_S)
    assert np.array_equal(out[..., 1:], expected)
    assert (out[..., 0] == 0).all()


def test_perfect_forecast_needs_no_history():
    assert values("perfect", [[4.0, 5.0]], 0, 1).tolist() == [[[4.0]], [[5.0]]]


def test_persistence_repeats_the_last_24_hours():
    truth = np.arange(100.0)[None]  # value = hour
    seen = values("persistence", truth, 30, 60)[0, 0].tolist()  # issued in hour 30
    expected = [30.0, *range(7, 31), *range(7, 31), *range(7, 18)]
    assert seen == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["persistence", "regression"])
def test_a_forecast_never_reads_after_the_hour_of_issue(kind):
    truth = RNG(2).normal(size=(1, 80))
    changed = truth.copy()
    changed[0, 31:] += 100.0
    for issue in range(2):
        seen, other = (values(kind, rows, 30, 40)[issue] for rows in (truth, changed))
        assert np.array_equal(seen, other) == (issue == 0)


@pytest.mark.parametrize("kind", ["persistence", "regression"])
@pytest.mark.parametrize("history_h", [0, 22])
def test_a_forecast_without_a_day_of_history_is_refused(kind, history_h):
    with pytest.raises(
        SignalRangeError, match=f"a {kind} forecast needs 23 hours of signals .* window, but there are {history_h}"
    ):
        values(kind, np.ones((1, 50)), history_h, 5)
    assert values(kind, np.ones((1, 50)), 23, 5).shape == (27, 1, 5)


def test_a_regression_reads_nothing_before_the_last_week():
    truth = RNG(10).normal(size=(1, 250))
    changed = truth.copy()
    changed[0, : 200 - 7 * 24 + 1] += 100.0
    np.testing.assert_array_equal(values("regression", truth, 200, 60)[0], values("regression", changed, 200, 60)[0])
    changed[0, 200 - 7 * 24 + 1] += 100.0
    assert not np.array_equal(values("regression", truth, 200, 60)[0], values("regression", changed, 200, 60)[0])


def test_a_regression_needs_the_last_day_known_and_no_more():
    truth = RNG(11).normal(size=(2, 100))
    truth[1, :27] = np.nan
    assert np.isfinite(values("regression", truth, 50, 60)).all()
    truth[1, 27] = np.nan
    with pytest.raises(SignalRangeError, match="needs 23 hours of signals before the window, but there are 22"):
        values("regression", truth, 50, 60)


def test_a_regression_has_other_weights_for_prices_than_for_carbon():
    truth = RNG(12).normal(50.0, 1.0, (1, 60))
    price, carbon = issued("regression", both(truth, truth), 24, 30)
    assert not np.allclose(price[..., 1:], carbon[..., 1:])
    np.testing.assert_array_equal(price[..., 0], carbon[..., 0])


@pytest.mark.parametrize("kind", ["regression", "noisy"])
def test_computed_values_are_rounded_and_known_ones_are_not(kind):
    truth = RNG(13).normal(50.0, 9.0, (2, 2, 60))
    price, carbon = issued(kind, both(*truth), 24, 30)
    for found, value_ZH, decimals in ((price, truth[0], 2), (carbon, truth[1], 1)):
        np.testing.assert_array_equal(found[..., 0], value_ZH[:, 24:].T)
        np.testing.assert_array_equal(found[..., 1:], np.round(found[..., 1:], decimals))
        assert not np.array_equal(found[..., 1:], np.round(found[..., 1:], decimals - 1), equal_nan=True)


@pytest.mark.parametrize("kind", ["perfect", "persistence"])
def test_copied_values_are_not_rounded(kind):
    truth = RNG(14).normal(50.0, 9.0, (2, 60))
    seen = values(kind, truth, 24, 30)
    assert np.isin(seen[np.isfinite(seen)], truth).all()


@pytest.mark.parametrize("kind", ["perfect", "persistence", "regression", "noisy"])
def test_each_signal_is_forecast_on_its_own(kind):
    rng = RNG(15)
    price, carbon, others = rng.normal(50.0, 9.0, (3, 2, 100))
    seen = issued(kind, both(price, carbon), 60, 30)
    np.testing.assert_array_equal(seen[0], issued(kind, both(price, others), 60, 30)[0])
    np.testing.assert_array_equal(seen[1], issued(kind, both(others, carbon), 60, 30)[1])


@pytest.mark.parametrize("kind", ["perfect", "persistence", "regression", "noisy"])
def test_an_hours_forecast_does_not_depend_on_the_hours_asked_for_with_it(kind):
    signals = both(*RNG(16).normal(50.0, 9.0, (2, 3, 100)))
    together = issued(kind, signals, 40, 30)
    forecaster = Forecast(kind).forecaster(signals, 40, RNG(0))
    for issue in (52, 40, 99, 41):  # in any order
        alone = forecaster.values(price_and_carbon(signals), np.array([issue]), 30)
        np.testing.assert_array_equal(alone[:, 0], together[:, issue - 40])


def errors_of(truth, history_h, lookahead_h, **options):
    """Errors of a noisy forecast, (hours of issue, zones, leads)."""
    seen, right = (values(kind, truth, history_h, lookahead_h, **options) for kind in ("noisy", "perfect"))
    return seen - right


@pytest.fixture(scope="module")
def errors():
    """Errors of a noisy forecast, (hours of issue, zones, leads), and the signals' deviation before the run."""
    truth = RNG(3).normal([[50.0], [400.0]], [[5.0], [100.0]], (2, 4100))
    return errors_of(truth, 100, 36, noise=0.5)[:-36], truth[:, :100].std(axis=1)


def test_noisy_forecast_knows_the_current_hour(errors):
    np.testing.assert_allclose(errors[0][..., 0], 0.0, atol=1e-9)


def test_noise_grows_with_the_root_of_the_lead_up_to_a_day(errors):
    spread = errors[0].std(axis=0) / errors[1][:, None]
    for lead, share in ((1, (1 / 24) ** 0.5), (6, 0.5), (24, 1.0), (35, 1.0)):
        np.testing.assert_allclose(spread[:, lead], 0.5 * share, rtol=0.06)
    np.testing.assert_allclose(errors[0].mean(axis=0) / errors[1][:, None], 0.0, atol=0.05)


def test_noise_persists_from_lead_to_lead_but_not_between_issues_or_zones(errors):
    error = errors[0]
    assert np.corrcoef(error[:, 0, 20], error[:, 0, 21])[0, 1] == pytest.approx(0.9, abs=0.02)
    assert np.corrcoef(error[:-1, 0, 20], error[1:, 0, 20])[0, 1] == pytest.approx(0.0, abs=0.06)
    assert np.corrcoef(error[:, 0, 20], error[:, 1, 20])[0, 1] == pytest.approx(0.0, abs=0.06)


def test_noise_is_a_knob_and_depends_on_the_generator_alone():
    truth = np.round(RNG(4).normal(size=(1, 84)), 2)
    assert np.array_equal(values("noisy", truth, 24, 9, seed=1), values("noisy", truth, 24, 9, seed=1), equal_nan=True)
    assert not np.array_equal(
        values("noisy", truth, 24, 9, seed=1), values("noisy", truth, 24, 9, seed=2), equal_nan=True
    )
    np.testing.assert_array_equal(values("noisy", truth, 24, 9, noise=0.0), values("perfect", truth, 24, 9))


@pytest.mark.parametrize(("hours", "leads"), [(30, 12), (60, 5), (60, 12), (1, 1)])
def test_other_hours_or_leads_leave_the_errors_as_they_were(hours, leads):
    """Both follow from the table of jobs, most of which lie in the future."""
    truth = RNG(5).normal(size=(2, 24 + 60))
    first = errors_of(truth[:, :54], 24, 5)
    other = errors_of(truth[:, : 24 + hours], 24, leads)
    hours, leads = min(hours, 30), min(leads, 5)
    first, other = (error[:hours, :, :leads] for error in (first, other))
    known = np.isfinite(first) & np.isfinite(other)
    assert known.sum() >= first.size - 2 * 10  # the last four hours of issue end in the unknown
    np.testing.assert_allclose(other[known], first[known], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("hours", "leads"), [(30, 12), (60, 5)])
def test_a_second_signals_errors_do_not_depend_on_the_sizes_of_the_first(hours, leads):
    """Prices and carbon intensities are forecast from one generator."""
    price, carbon = RNG(6).normal(50.0, 1.0, (2, 1, 24 + 60))

    def second(hours, leads):
        found = issued("noisy", both(price[:, : 24 + hours], carbon[:, : 24 + hours]), 24, leads)[1]
        return found[:30, :, :5]

    given, first = second(hours, leads), second(30, 5)
    known = np.isfinite(given) & np.isfinite(first)
    np.testing.assert_array_equal(given[known], first[known])
    one, two = issued("noisy", both(price, price), 24, 5)
    assert not np.array_equal(one, two, equal_nan=True)


def test_the_size_of_errors_is_known_before_the_run():
    truth = np.round(RNG(7).normal(0.0, 1000.0, (1, 80)), 2)
    wilder = truth.copy()
    wilder[:, 30:] *= 100.0
    np.testing.assert_allclose(errors_of(wilder, 30, 6), errors_of(truth, 30, 6), rtol=0, atol=0.01)
    wilder = truth.copy()
    wilder[:, :30] *= 100.0
    np.testing.assert_allclose(errors_of(wilder, 30, 6), 100.0 * errors_of(truth, 30, 6), rtol=0, atol=0.6)


@pytest.mark.parametrize(("history_h", "unknown", "known"), [(0, 0, 0), (23, 0, 23), (40, 17, 23)])
def test_noise_without_a_day_of_known_history_is_refused(history_h, unknown, known):
    truth = RNG(8).normal(size=(2, 60))
    truth[1, :unknown] = np.nan
    with pytest.raises(
        SignalRangeError, match=f"a noisy forecast needs 24 hours of signals before the window, but there are {known};"
    ):
        values("noisy", truth, history_h, 5)


def test_nobody_gets_the_future_without_asking():
    with pytest.raises(TypeError, match="kind"):
        Forecast()


@pytest.mark.parametrize(
    ("kind", "noise", "message"),
    [
        ("oracle", 0.5, "unknown forecast 'oracle'; known: perfect, persistence, regression, learned, noisy"),
        ("noisy", -0.1, r"forecast noise is -0\.1; allowed: a number of at least 0"),
        ("noisy", float("nan"), "forecast noise is nan"),
    ],
)
def test_wrong_forecast_is_refused(kind, noise, message):
    with pytest.raises(ValueError if kind == "oracle" else ScenarioError, match=message):
        Forecast(kind, noise)

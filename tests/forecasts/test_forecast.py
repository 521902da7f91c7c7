"""Forecasts: what each kind knows at the hour of issue, and how it errs."""

import numpy as np
import pytest

from noonward.errors import SignalRangeError
from noonward.forecasts.forecast import Forecast

HOUR_S = 3600.0
RNG = np.random.default_rng


def values(kind, value_ZH, history_h, lookahead_h, *, noise=0.5, seed=0, signal="price"):
    """Forecast values per hour of issue, zone and lead."""
    forecast = Forecast(kind, noise)
    integrals = forecast.integrals(np.asarray(value_ZH, float), history_h, lookahead_h, RNG(seed), signal=signal)
    assert (integrals[..., 0] == 0.0).all()
    return np.diff(integrals, axis=2) / HOUR_S


def test_perfect_forecast_is_the_truth():
    truth = RNG(1).normal(50.0, 20.0, (3, 40))
    seen = values("perfect", truth, 10, 6)
    assert seen.shape == (30, 3, 6)
    for issue in range(30):
        known = min(6, 30 - issue)
        np.testing.assert_allclose(seen[issue, :, :known], truth[:, 10 + issue : 10 + issue + known], rtol=1e-9)


def test_hours_after_the_last_known_one_are_unknown():
    integrals = Forecast("perfect").integrals(np.array([[1.0, 2.0, 3.0]]), 1, 3, RNG(0))
    assert integrals[0, 0].tolist() == pytest.approx([0.0, 7200.0, 18000.0, np.nan], nan_ok=True)
    assert integrals[1, 0].tolist() == pytest.approx([0.0, 10800.0, np.nan, np.nan], nan_ok=True)


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


def test_a_regression_is_told_which_signal_it_forecasts():
    truth = RNG(12).normal(size=(1, 60))
    price, carbon = (values("regression", truth, 24, 30, signal=signal) for signal in ("price", "carbon"))
    assert not np.allclose(price[..., 1:], carbon[..., 1:])
    np.testing.assert_allclose(price[..., 0], carbon[..., 0], rtol=1e-12)
    with pytest.raises(ValueError, match="must be told its signal; give signal='price' or 'carbon'"):
        values("regression", truth, 24, 30, signal=None)


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
    truth = RNG(4).normal(size=(1, 84))
    assert np.array_equal(values("noisy", truth, 24, 9, seed=1), values("noisy", truth, 24, 9, seed=1), equal_nan=True)
    assert not np.array_equal(
        values("noisy", truth, 24, 9, seed=1), values("noisy", truth, 24, 9, seed=2), equal_nan=True
    )
    np.testing.assert_array_equal(values("noisy", truth, 24, 9, noise=0.0), values("perfect", truth, 24, 9))


@pytest.mark.parametrize(("hours", "lookahead_h"), [(30, 12), (60, 5), (60, 12), (1, 1)])
def test_other_hours_or_leads_leave_the_errors_as_they_were(hours, lookahead_h):
    """Both follow from the table of jobs, most of which lie in the future."""
    truth = RNG(5).normal(size=(2, 24 + 60))
    first = errors_of(truth[:, :54], 24, 5)
    other = errors_of(truth[:, : 24 + hours], 24, lookahead_h)
    hours, lookahead_h = min(hours, 30), min(lookahead_h, 5)
    first, other = (error[:hours, :, :lookahead_h] for error in (first, other))
    known = np.isfinite(first) & np.isfinite(other)
    assert known.sum() >= first.size - 2 * 10  # the last four hours of issue end in the unknown
    np.testing.assert_allclose(other[known], first[known], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("hours", "lookahead_h"), [(30, 12), (60, 5)])
def test_a_second_signals_errors_do_not_depend_on_the_sizes_of_the_first(hours, lookahead_h):
    """Price and carbon are forecast from one generator, one after the other."""
    price, carbon = RNG(6).normal(size=(2, 1, 24 + 60))

    def second(hours, lookahead_h):
        rng = RNG(0)
        first = Forecast("noisy").integrals(price[:, : 24 + hours], 24, lookahead_h, rng)
        return first, Forecast("noisy").integrals(carbon, 24, 5, rng)

    np.testing.assert_array_equal(second(hours, lookahead_h)[1], second(30, 5)[1])
    same = RNG(0)
    one, two = (Forecast("noisy").integrals(price, 24, 5, same) for _ in range(2))
    assert not np.array_equal(one, two, equal_nan=True)


def test_the_size_of_errors_is_known_before_the_run():
    truth = RNG(7).normal(size=(1, 80))
    wilder = truth.copy()
    wilder[:, 30:] *= 100.0
    np.testing.assert_allclose(errors_of(wilder, 30, 6), errors_of(truth, 30, 6), rtol=0, atol=1e-9)
    wilder = truth.copy()
    wilder[:, :30] *= 100.0
    np.testing.assert_allclose(errors_of(wilder, 30, 6), 100.0 * errors_of(truth, 30, 6), rtol=0, atol=1e-9)


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
        ("noisy", -0.1, r"forecast noise is -0\.1; it must be at least 0"),
        ("noisy", float("nan"), "forecast noise is nan"),
    ],
)
def test_wrong_forecast_is_refused(kind, noise, message):
    with pytest.raises(ValueError, match=message):
        Forecast(kind, noise)

"""Regression forecasts: sums anyone can check by hand, and a table that is what its record says."""

import importlib.util
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from noonward.forecasts.regression import FEATURES, features, packaged_table, packaged_weights, weighted

REPOSITORY = Path(__file__).parents[2]
SHARED = REPOSITORY.parent / "shared"
SIGNALS = ("price", "carbon")


def feature(name, value_H, issue):
    """One feature of one zone at one hour of issue, per hour of the day from there on."""
    return features(np.asarray(value_H, float)[None], np.array([issue]))[0, 0, :, FEATURES.index(name)]


def only(name, leads=24):
    """Weights that take one feature as the forecast."""
    weight_LF = np.zeros((leads, len(FEATURES)))
    weight_LF[:, FEATURES.index(name)] = 1.0
    return weight_LF


def tool():
    """The tool that makes the table."""
    spec = importlib.util.spec_from_file_location("fit_forecasts", REPOSITORY / "tools/fit_forecasts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- features and weights by hand


def test_features_of_a_signal_that_counts_its_hours():
    hours = np.arange(60.0)  # issued in hour 50; two days and a bit are known
    assert (feature("now", hours, 50) == 50).all()
    assert (feature("before", hours, 50) == 49).all()
    assert (feature("recent", hours, 50) == np.mean([44, 45, 46, 47, 48, 49])).all()
    assert (feature("mean", hours, 50) == np.mean(np.arange(27, 51))).all()
    assert feature("day", hours, 50).tolist() == [50, *range(27, 50)]
    usual = [np.mean([50, 26, 2]), np.mean([27, 3]), *(np.mean([h, h - 24]) for h in range(28, 48)), 36.0, 37.0]
    usual[-2:] = [np.mean([48, 24, 0]), np.mean([49, 25, 1])]
    assert feature("usual", hours, 50).tolist() == usual
    assert (feature("usual_now", hours, 50) == usual[0]).all()
    assert feature("near", hours, 50)[1] == np.mean([usual[0], usual[2]])
    assert feature("near", hours, 50)[0] == np.mean([usual[23], usual[1]])


def test_what_is_usual_leaves_out_hours_nobody_knows():
    hours = np.arange(60.0)
    hours[:20] = np.nan
    assert feature("usual", hours, 50)[0] == np.mean([50, 26])  # hour 2 is unknown
    assert feature("usual", hours, 50)[-1] == np.mean([49, 25])


def test_weights_add_features():
    """Half the value now, half that of a day before: 0.5 * 30 + 0.5 * (30 + lead - 24)."""
    weight_LF = 0.5 * only("now") + 0.5 * only("day")
    seen = weighted(np.arange(40.0)[None], np.array([30]), 4, weight_LF)
    assert seen.tolist() == [[[30.0, 18.5, 19.0, 19.5]]]


def test_leads_beyond_the_weights_repeat_those_of_the_last_day():
    weight_LF = only("now", 48)
    weight_LF[24:] = only("mean")  # leads 25 to 48
    weight_LF[24 + 5] = only("before")[0]  # lead 30
    hours = np.arange(40.0)
    seen = weighted(hours[None], np.array([30]), 80, weight_LF)[0, 0]
    mean = np.mean(hours[7:31])
    assert (seen[:25] == 30).all()
    for lead in (25, 48, 49, 72, 73):
        assert seen[lead] == mean
    for lead in (30, 54, 78):
        assert seen[lead] == 29


@pytest.mark.parametrize("signal", SIGNALS)
def test_the_forecast_follows_level_and_unit(signal):
    value_ZH = np.random.default_rng(0).normal(50.0, 30.0, (2, 90))
    issue_I = np.array([60, 80])
    plain = weighted(value_ZH, issue_I, 60, packaged_weights(signal))
    other = weighted(-3.0 * value_ZH + 700.0, issue_I, 60, packaged_weights(signal))
    np.testing.assert_allclose(other, -3.0 * plain + 700.0, rtol=1e-9)
    assert weighted(np.full((1, 90), 7.25), issue_I, 60, packaged_weights(signal)) == pytest.approx(7.25)


def test_a_spike_fades():
    """An hour at 15,000 USD/MWh among hours at 50: half gone in six hours, and half comes back at most a day later."""
    value_H = np.full(80, 50.0)
    value_H[60] = 15000.0
    seen = weighted(value_H[None], np.array([60]), 30, packaged_weights("price"))[0, 0]
    assert seen[0] == 15000.0
    assert (np.abs(seen[6:] - 50) < 0.51 * 14950).all()
    assert (np.abs(seen[8:20] - 50) < 0.3 * 14950).all()


# ---------------------------------------------------------------- the packaged table


@pytest.mark.parametrize("signal", SIGNALS)
def test_the_table_is_whole(signal):
    weight_LF = packaged_weights(signal)
    assert tuple(packaged_table()["features"]) == FEATURES
    assert weight_LF.shape == (48, len(FEATURES))
    np.testing.assert_allclose(weight_LF.sum(axis=1), 1.0, atol=1e-9)
    assert (np.abs(weight_LF) < 2).all()
    with pytest.raises(ValueError, match="read-only"):
        weight_LF[0, 0] = 0.0


def test_the_record_names_no_month_of_the_test():
    made = packaged_table()["made"]
    assert not set(made["months"]["train"]) & {3, 4, 6, 9, 10, 12}
    assert made["months"]["validation"] == [4, 10]


@pytest.mark.parametrize("signal", SIGNALS)
def test_the_regression_beats_persistence_on_generated_validation_draws(signal):
    fit = tool()
    found = fit.samples(fit.generated(fit.OWN_ZONES, "validation"), signal, SIGNALS.index(signal))
    errors = fit.errors(found, packaged_weights(signal))
    assert errors == packaged_table()["signals"][signal]["validation_error"]["generated"]
    for pair in errors.values():
        assert np.mean(pair["regression"]) < 0.97 * np.mean(pair["persistence"])


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real series in ../shared")
def test_the_tool_makes_the_packaged_table_again(tmp_path, monkeypatch):
    data = SHARED / "data"
    out = tmp_path / "table.json"
    paths = [str(data / "signals.parquet"), str(data / "standin_auwa_price_2022.parquet"), str(out)]
    monkeypatch.setattr("sys.argv", ["fit_forecasts.py", *paths])
    tool().main()
    made = json.loads(out.read_text())
    packaged = json.loads((files("noonward.forecasts") / "tables/forecast_regression.json").read_text())
    for signal in SIGNALS:
        np.testing.assert_allclose(
            made["signals"][signal].pop("weights"), packaged["signals"][signal].pop("weights"), rtol=0, atol=2e-4
        )
    for table in (made, packaged):
        for signal in SIGNALS:
            del table["signals"][signal]["validation_error"]
    assert made == packaged


# ---------------------------------------------------------------- the fit


def test_the_fit_finds_weights_that_made_the_values_whatever_the_spikes():
    fit = tool()
    rng = np.random.default_rng(1)
    value_ZH = rng.normal(50.0, 10.0, (1, 3000))
    issue_I = np.arange(200, 2900)
    feature_NPF = features(value_ZH, issue_I)[:, 0]
    weight_F = np.array([0.3, 0.0, 0.2, 0.0, 0.4, 0.0, 0.0, 0.1])
    ahead_NL = np.stack([feature_NPF[:, lead % 24] @ weight_F for lead in (1, 2)], axis=1)
    ahead_NL += rng.normal(0.0, 0.5, ahead_NL.shape)
    ahead_NL[rng.integers(0, len(ahead_NL), 27)] += 15000.0  # one hour in a hundred
    found = fit.fit(feature_NPF, ahead_NL, np.full(len(ahead_NL), 8.0))
    assert found.sum(axis=1) == pytest.approx([1.0, 1.0])
    np.testing.assert_allclose(found @ [1, 0, 0, 0, 0, 0, 0, 0], 0.3, atol=0.03)
    np.testing.assert_allclose(found[:, FEATURES.index("day")], 0.4, atol=0.03)


def test_training_stretches_stay_within_their_months():
    fit = tool()
    for part, months in (("train", {1, 2, 5, 7, 8, 11}), ("validation", {4, 10})):
        hours = 0
        for start, length in fit.stretches(part, (2021, 2022)):
            stamps = np.datetime64(start.replace(tzinfo=None), "h") + np.arange(length)
            assert set((stamps.astype("datetime64[M]").astype(int) % 12 + 1).tolist()) <= months
            hours += length
        days = {"train": 31 + 28 + 31 + 31 + 31 + 30, "validation": 30 + 31}[part]
        assert hours == 2 * 24 * days

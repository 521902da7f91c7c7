"""Expectations of generated signals: exact on curves, unbiased over draws, equal to what was drawn once it is known."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.data.signals.calibration import load_calibration
from noonward.data.signals.expected import _cut, _scores_given, expected_signals, mean_on_curve
from noonward.data.signals.generate import draw_scores, generate_signals
from noonward.errors import ScenarioError

ZONES = ("PL", "SG")


def test_the_mean_on_a_curve_is_the_integral_over_the_normal_law():
    knot_K, value_K = np.array([-2.0, -0.5, 0.3, 1.7]), np.array([-5.0, 0.0, 0.0, 9.0])
    grid = np.linspace(-9, 9, 400_001)
    for mean, spread in ((0.0, 1.0), (-1.2, 0.4), (3.0, 0.7), (0.1, 1e-6)):
        law = np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi) * (grid[1] - grid[0])
        exact = float(np.interp(mean + spread * grid, knot_K, value_K) @ law)
        found = mean_on_curve(np.array([mean]), np.array([spread]), knot_K, value_K)
        assert found[0] == pytest.approx(exact, abs=1e-6)


def test_a_cut_curve_has_knots_where_it_enters_and_leaves_the_range():
    knot_K, value_K = _cut(np.array([0.0, 1.0, 2.0]), np.array([0.0, 4.0, 8.0]), 1.0, 6.0)
    assert knot_K.tolist() == [0.0, 0.25, 1.0, 1.5, 2.0]
    assert value_K.tolist() == [1.0, 1.0, 4.0, 6.0, 6.0]


def test_scores_given_the_hidden_parts_are_normal_with_the_stated_mean_and_spread():
    """Over 3,000 stretches of a draw, what comes less its mean has the stated spread and nothing left to explain."""
    table = load_calibration("w2022")
    parts = [table.zone(zone) for zone in ZONES]
    series = [part.price for part in parts] + [part.carbon for part in parts]
    paths = draw_scores(table, ZONES, series, 30_000, np.random.default_rng(0))
    score_RH = paths.scores()
    off_NRH, mean_NRH = [], []
    for first in range(0, 30_000 - 30, 10):
        mean_RTH, spread_RTH = _scores_given(paths, first, 25)
        assert np.allclose(mean_RTH[:, 0, 0], score_RH[:, first])
        off_NRH.append((score_RH[:, first + 1 : first + 25] - mean_RTH[:, 0, 1:]) / spread_RTH[:, 0, 1:])
        mean_NRH.append(mean_RTH[:, 0, 1:])
    off, mean = np.array(off_NRH), np.array(mean_NRH)
    assert np.abs(off.mean(axis=0)).max() < 0.25
    assert np.abs(off.std(axis=0) - 1).max() < 0.1
    assert np.abs((off * mean).mean(axis=0)).max() < 0.12


def test_what_is_known_is_what_was_drawn_and_expectations_move_by_nothing_on_average():
    """What an hour was expected to be, 6 hours later less before: mean 0 over 60 environments, within 4 errors."""
    scenario = load_scenario("fine-tuning", ["jobs.count=20", "jobs.demand=0.01", "window_h=12"])
    moved = []
    for index in range(60):
        env = build_environment(scenario, index, 0)
        expected = expected_signals(env, scenario.signals)
        assert np.array_equal(expected[0, 11, :, :12], env.site_signals.price_SH[:, :12])
        assert np.array_equal(expected[1, 11, :, :12], env.site_signals.carbon_SH[:, :12])
        moved.append(expected[:, 8, :, 8:12] - expected[:, 2, :, 8:12])
    moved = np.array(moved)
    error = moved.std(axis=0) / np.sqrt(len(moved))
    assert (np.abs(moved.mean(axis=0)) < 4 * error).all()
    assert (error > 0).all()


def test_signals_that_were_not_drawn_for_the_environment_are_refused():
    scenario = load_scenario("fine-tuning", ["jobs.count=20", "jobs.demand=0.01", "window_h=12"])
    env = build_environment(scenario, 0, 0)
    hours, zones = env.signals.hours, env.signals.zones
    other = generate_signals(zones, env.signals.start, hours, np.random.default_rng(0))
    earlier = generate_signals(zones, env.signals.start - timedelta(hours=1), hours + 1, np.random.default_rng(0))
    for signals in (other, earlier):
        with pytest.raises(ScenarioError, match="build it from its scenario"):
            expected_signals(replace(env, signals=signals), scenario.signals)

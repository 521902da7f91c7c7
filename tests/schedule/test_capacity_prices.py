"""Prices of capacity: which jobs to come stand for all, which sites are passed over, and one step of the prices."""

import numpy as np
import pytest

from noonward.decision.cluster.layout import VIEW_PARTS
from noonward.schedule.cluster.capacity_prices import (
    COMING,
    GOLDEN,
    OPTION,
    ROOT_3,
    THINNING_H,
    Ahead,
    Prices,
    _see,
    _step,
    best_at,
    best_start,
)
from noonward.schedule.cluster.kinds import KIND, Kinds

SITE = next(part.dtype for part in VIEW_PARTS if part.name == "site_S")


def coming(rng, jobs, stretch_h, size):
    """Jobs of a stretch by arrival, whose GPU-hours over the fleet's GPUs are about of a size."""
    coming_C = np.zeros(jobs, COMING)
    coming_C["arrival_h"] = np.sort(rng.uniform(0.0, stretch_h, jobs))
    size_C = rng.exponential(size, jobs)
    coming_C["until"] = np.cumsum(size_C)
    coming_C["before"] = coming_C["until"] - size_C
    return coming_C


@pytest.mark.parametrize(("size", "rounds"), [(1e-4, 8), (3e-3, 62), (0.1, 1)])
def test_jobs_stand_for_all_where_a_tooth_of_the_round_lies_in_their_share(size, rounds):
    rng, stretch_h, end_h, per_hour, hour_h, first_round = np.random.default_rng(1), 24.0, 60.0, 64.0, 5.0, 3
    coming_C = coming(rng, 3000, stretch_h, size)
    ahead = Ahead.of(len(coming_C), end_h, stretch_h, 1)
    first = int(np.searchsorted(coming_C["arrival_h"], hour_h, "right"))
    noted = _see(coming_C, ahead, first, hour_h, stretch_h, end_h, per_hour, first_round, rounds)
    seen = {(ahead.job_M[m], ahead.shift_h_M[m]): ahead.rounds_M[m] for m in range(noted)}
    expected = {}
    for repeat in range(3):
        shift_h = repeat * stretch_h - hour_h
        for job in range(first if repeat == 0 else 0, len(coming_C)):
            lead_h = coming_C["arrival_h"][job] + shift_h
            unit = (1.0 + lead_h / THINNING_H) / per_hour
            before, until = coming_C["before"][job] / unit, coming_C["until"][job] / unit
            turns = [(GOLDEN * (first_round + r) + ROOT_3 * hour_h) % 1.0 for r in range(rounds)]
            taken = sum(int(np.floor(until + t) > np.floor(before + t)) << r for r, t in enumerate(turns))
            if taken and lead_h < end_h:
                expected[job, shift_h] = taken
    assert seen == expected
    assert len(expected) > 20


@pytest.mark.parametrize("seed", range(20))
def test_no_option_that_is_passed_over_would_have_been_the_best(seed):
    rng, sites, hours = np.random.default_rng(seed), 8, 48
    site_S = np.zeros(sites, SITE)
    site_S["carbon"] = rng.uniform(0.0, 600.0, sites)
    spread = seed % 2  # where hours cost the same, an option earns the most that it can
    paid_SR, energy_SR = (
        np.cumsum(mean * (1.0 + spread * rng.normal(0.0, 1.0, (sites, 99))), axis=1)
        for mean in (rng.uniform(0.0, 0.02, (sites, 1)), np.full((sites, 1), 5e-5))
    )
    least_2S = np.array([np.diff(rows).min(axis=1) for rows in (paid_SR, energy_SR)])
    for _ in range(50):
        option_X = np.zeros(sites, OPTION)
        option_X["site"], option_X["gpus"] = np.arange(sites), rng.integers(1, 9)
        option_X["run_h"] = rng.exponential(6.0, sites)
        option_X["earliest_h"] = rng.uniform(0.0, 5.0, sites)
        option_X["latest_h"] = option_X["earliest_h"] + rng.uniform(-1.0, 20.0, sites)
        option_X["power_w"] = rng.uniform(-50.0, 300.0, sites)
        option_X["net_usd"] = 0.01 * option_X["gpus"] * option_X["run_h"] + rng.normal(0.0, 0.05, sites)
        option_X["usd_per_intensity"] = rng.uniform(0.0, 1e-5, sites)
        best, best_x, best_h = 0.0, -1, 0.0
        for x in range(sites):
            value, start_h = best_at(site_S, hours, paid_SR, energy_SR, option_X[x], 2, 0.5, best)
            if value > best:
                best, best_x, best_h = value, x, start_h
        found = best_start(site_S, hours, paid_SR, energy_SR, least_2S, option_X, 2, 0.5)
        assert found == (best, best_x, best_h)


def test_a_step_moves_the_prices_of_a_kind_by_its_free_share():
    """Two sites of 4 GPUs: 6 of 8 GPU-hours are taken in the first hour, 10 in the second, 8 in the third."""
    site_S = np.zeros(2, SITE)
    site_S["gpus"] = 4
    kinds = Kinds(np.array([(0, 2)], KIND), np.array([0, 1]), np.array([0, 0]))
    price_SH, square_SH, mean_SH = np.full((2, 3), 0.5), np.zeros((2, 3)), np.zeros((2, 3))
    capacity_SH, use_SH = np.full((2, 3), 4.0), np.array([[2.0, 6.0, 4.0], [4.0, 4.0, 4.0]])
    prices = Prices(price_SH, square_SH, mean_SH, capacity_SH, use_SH, np.zeros((2, 0)), np.zeros((2, 0)))
    _step(site_S, kinds, 0, prices, 0.125, 2)
    assert price_SH.tolist() == [[0.375, 0.625, 0.5]] * 2
    assert square_SH.tolist() == [[0.0625, 0.0625, 0.0]] * 2
    assert mean_SH.tolist() == [[0.1875, 0.3125, 0.25]] * 2

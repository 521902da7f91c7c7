"""The searches for one job's cheapest life, held to plain dynamic programs, linear programs and each other."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from noonward.bound.cluster_utility.life_capped import capped_life
from noonward.bound.cluster_utility.life_resized import resized_life
from noonward.bound.highs import minimise
from noonward.errors import InfeasiblePlanError
from noonward.schedule.cluster.life_suspended import suspended_life

SIGNALS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "signals.parquet"


def suspended(cost_P, resume_P, units, *, stop_P=None, end_P=None, share_P=None):
    """(cost, use, resumes, stops) of the cheapest life."""
    zero_P = np.zeros(len(cost_P))
    used_P, resumed_P, stopped_P = zero_P.copy(), np.zeros(len(cost_P), np.uint8), np.zeros(len(cost_P), np.uint8)
    stop_P, end_P = (zero_P if given is None else given for given in (stop_P, end_P))
    share_P = np.ones(len(cost_P)) if share_P is None else share_P
    asked = cost_P, resume_P, stop_P, zero_P, end_P, share_P, float(units)
    usd = suspended_life(*asked, np.inf, used_P, resumed_P, stopped_P)
    return usd, used_P, resumed_P, stopped_P


def plain(price_H, length, overhead):
    """Least cost of ``length`` hours, a resume costing ``overhead`` hours at the price of its hour: a plain program."""
    off, on = np.full(length + 1, np.inf), np.full(length + 1, np.inf)
    off[0] = 0.0
    later = np.arange(length) > 0
    for price in price_H:
        running = np.full(length + 1, np.inf)
        running[1:] = np.minimum(on[:-1] + price, off[:-1] + price + max(overhead * price, 0.0) * later)
        off, on = np.minimum(off, on), running
    return min(off[length], on[length])


@pytest.mark.parametrize("overhead", [0.0, 0.25, 1.0])
@pytest.mark.parametrize(("length", "window"), [(4, 28), (12, 36), (24, 48), (24, 96), (72, 120)])
def test_whole_hours_at_given_prices_cost_what_a_plain_program_says(length, window, overhead):
    rng = np.random.default_rng(length + window)
    for _ in range(20):
        price_H = 60 + 40 * np.sin(np.arange(window) * np.pi / 12) + 25 * rng.normal(size=window)
        resume_P = np.maximum(overhead * price_H, 0.0)
        usd, used_P, resumed_P, _ = suspended(price_H, resume_P, length)
        assert usd == pytest.approx(plain(price_H, length, overhead))
        assert usd == pytest.approx(used_P @ price_H + resumed_P @ resume_P)
        assert used_P.sum() == pytest.approx(length)


def test_a_dear_hour_is_left_out_where_a_resume_costs_less():
    price_H = np.array([1.0, 9.0, 1.0, 5.0])
    usd, used_P, resumed_P, stopped_P = suspended(price_H, np.full(4, 2.0), 2)
    assert (usd, used_P.tolist(), resumed_P.tolist()) == (4.0, [1, 0, 1, 0], [0, 0, 1, 0])
    assert stopped_P.tolist() == [1, 0, 0, 0]
    assert suspended(price_H, np.full(4, 5.0), 2)[0] == 6.0  # hours 2 and 3 at once
    assert suspended(price_H, np.full(4, 2.0), 2, end_P=np.array([0, 0, 3.0, 0]))[0] == 6.0
    assert suspended(price_H, np.full(4, 2.0), 1.5)[0] == 3.5  # 1 + half an hour at 1, and a resume: 2
    assert suspended(price_H, np.full(4, 2.0), 5)[0] == np.inf


@pytest.mark.parametrize("seed", range(40))
def test_no_life_on_a_grid_of_ten_minutes_costs_less(seed):
    rng = np.random.default_rng(seed)
    hours, parts = int(rng.integers(1, 7)), 6
    cut, tail = rng.integers(0, parts, 2)
    steps = hours * parts - cut - tail
    if steps < 1:
        return
    share_P = np.ones(hours)
    if hours == 1:
        share_P[0] = steps / parts
    else:
        share_P[0], share_P[-1] = 1 - cut / parts, 1 - tail / parts
    work = int(rng.integers(1, steps + 1))
    price_P, resume_P, stop_P = rng.normal(50, 40, hours), rng.uniform(0, 40, hours), rng.uniform(0, 10, hours)
    hour_T = np.repeat(np.arange(hours), parts)[cut : hours * parts - tail]
    off, on, best = np.full(work + 1, np.inf), np.full(work + 1, np.inf), np.inf
    for t, hour in enumerate(hour_T):
        resting = off if t == 0 else np.minimum(off, on + stop_P[hour_T[t - 1]])
        running = np.full(work + 1, np.inf)
        running[1:] = np.minimum(on[:-1], off[:-1] + resume_P[hour]) + price_P[hour] / parts
        running[1] = min(running[1], price_P[hour] / parts)
        off, on = resting, running
        best = min(best, on[work])
    # A run may begin or end just at the end of an hour, so that either hour's price of a stop or a resume counts.
    resume_P = np.minimum(resume_P, np.concatenate([resume_P[:1], resume_P[:-1]]))
    stop_P = np.minimum(stop_P, np.concatenate([stop_P[1:], stop_P[-1:]]))
    usd, used_P, resumed_P, stopped_P = suspended(price_P, resume_P, work / parts, stop_P=stop_P, share_P=share_P)
    assert usd <= best + 1e-9
    assert usd == pytest.approx(used_P @ price_P + resumed_P @ resume_P + stopped_P @ stop_P)
    assert used_P.sum() == pytest.approx(work / parts)
    assert (used_P <= share_P + 1e-9).all()


@pytest.mark.parametrize("seed", range(40))
def test_a_capped_life_costs_what_linear_programs_over_its_first_and_last_hour_say(seed):
    rng = np.random.default_rng(seed)
    hours, count = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    rate_M = np.sort(rng.uniform(0.2, 1, count))
    rate_M[-1] = 1.0
    cost_PM = np.sort(rng.uniform(5, 50, (hours, count)), axis=1) * rng.choice([1, 1, 1, -1], (hours, 1))
    share_P, end_P = np.ones(hours), rng.uniform(0, 3, hours)
    share_P[0], share_P[-1] = rng.uniform(0.1, 1, 2)
    units = rng.uniform(0.1, share_P.sum())
    used_P, work_P = np.zeros(hours), np.zeros(hours)
    usd = capped_life(rate_M, cost_PM, end_P, share_P, units, used_P, work_P)
    best = np.inf
    for a in range(hours):
        for b in range(a, hours):
            best = min(best, unbroken(rate_M, cost_PM[a : b + 1], share_P[a : b + 1], units) + end_P[b])
    assert usd == pytest.approx(best)
    assert work_P.sum() == pytest.approx(units)
    assert (used_P <= share_P + 1e-9).all()


def unbroken(rate_M, cost_PM, share_P, units):
    """Least cost between two hours, throughout the hours between; infinite where it is too short or too long."""
    hours, count = cost_PM.shape
    rows, low, high = [np.tile(rate_M, hours)], [units], [units]
    for p in range(hours):
        row = np.zeros(hours * count)
        row[p * count : (p + 1) * count] = 1.0
        rows.append(row)
        low.append(share_P[p] if 0 < p < hours - 1 else 0.0)
        high.append(share_P[p])
    try:
        return minimise(cost_PM.ravel(), np.array(rows), np.array(low), np.array(high), "test").value
    except InfeasiblePlanError:
        return np.inf


@pytest.mark.parametrize("seed", range(30))
def test_a_priced_life_on_one_gang_is_at_most_the_exact_one_and_free_resumes_make_them_equal(seed):
    rng = np.random.default_rng(seed)
    hours = int(rng.integers(2, 14))
    price_P, resume_P = rng.normal(60, 40, hours), rng.uniform(0, 30, hours)
    work = int(rng.integers(1, hours + 1))
    for resume in (resume_P, 0 * resume_P):
        exact = suspended(price_P, resume, work)[0]
        modes, others, weight = np.full(hours, -1), np.full(hours, -1), np.ones(1)
        usd, _ = resized_life(
            np.ones(1), np.zeros(1, np.int64), price_P[:, None].copy(), resume[:, None].copy(), np.zeros((hours, 1)),
            np.zeros(hours), np.zeros(hours), np.ones(hours), hours, float(work), 0.0, modes, weight, others,
        )  # fmt: skip
        assert usd <= exact + 1e-7
        done = weight[0] * (modes >= 0).sum() + (1 - weight[0]) * (others >= 0).sum()
        assert done == pytest.approx(work)
    assert usd == pytest.approx(exact)


def test_a_gang_that_scales_worse_is_taken_in_cheap_hours_alone():
    price_P = np.array([10.0, 10.0, 100.0, 100.0])
    rate_X, lane_X = np.array([1.0, 1.8]), np.array([0, 1])
    cost_PX = np.stack([price_P, 2 * price_P], axis=1)
    modes, others, weight = np.full(4, -1), np.full(4, -1), np.ones(1)
    usd, _ = resized_life(
        rate_X, lane_X, cost_PX, np.zeros((4, 2)), np.zeros((4, 2)), np.zeros(4), np.zeros(4), np.ones(4), 4, 3.6, 0.0,
        modes, weight, others,
    )  # fmt: skip
    assert usd == pytest.approx(40.0)  # two cheap hours on two GPUs
    assert weight[0] * (modes == 1).sum() + (1 - weight[0]) * (others == 1).sum() == pytest.approx(2)


ZONES = (
    "DE", "FR", "PL", "ES", "NL", "AU-SA", "AU-NSW", "AU-VIC", "US-CAL-CISO", "US-TEX-ERCO", "US-NY-NYIS",
    "US-MIDA-PJM", "CA-ON", "SG", "GB", "SE-SE3", "JP-TK", "CL-SEN",
)  # fmt: skip


@pytest.mark.skipif(not SIGNALS.exists(), reason="needs the recorded signals of 2022")
def test_a_day_of_work_in_two_days_saves_a_quarter_of_the_price_in_2022_with_stops_and_an_eighth_without():
    """Medians over 17 zones, free capacity: 11.8% unbroken; 27.4, 25.0, 21.2% with resumes of 0, 15, 60 minutes."""
    rows = pl.read_parquet(SIGNALS).filter(pl.col("timestamp").dt.year() == 2022, pl.col("zone").is_in(ZONES))
    rng, saved = np.random.default_rng(0), []
    for _, zone in sorted(rows.group_by("zone"), key=lambda pair: pair[0]):
        price_H = zone.sort("timestamp")["price_usd_per_mwh"].to_numpy().astype(float)
        if np.isnan(price_H).mean() > 0.05:
            continue
        known = np.flatnonzero(~np.isnan(price_H))
        price_H = np.interp(np.arange(len(price_H)), known, price_H[known])
        at_once, cost = 0.0, np.zeros(4)
        for hour in rng.choice(len(price_H) - 48, 100, replace=False):
            window_H = price_H[hour : hour + 48]
            at_once += window_H[:24].sum()
            cost[0] += np.convolve(window_H, np.ones(24), "valid").min()
            for n, overhead in enumerate((0.0, 0.25, 1.0), 1):
                cost[n] += suspended(window_H, np.maximum(overhead * window_H, 0.0), 24)[0]
        saved.append(1 - cost / at_once)
    assert len(saved) == 17
    assert np.median(saved, axis=0) == pytest.approx([0.118, 0.274, 0.250, 0.212], abs=0.02)

"""Compiled: the cost of one job that may be stopped, resumed on another gang and capped, bounded at given prices.

Periods and overhead are reckoned as in ``life_suspended``. Axes: P periods of one job from its earliest start to its
latest end, L lanes (gangs), X modes (a gang under a cap).
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.schedule.cluster.life_suspended import NEAR

STEPS = 60
"""Most prices of work that are tried."""


@kernel()
def _path(
    profit_PL: F8, resume_PL: F8, stop_PL: F8, bonus_P: F8, end_P: F8, begin_until: int, step: I8, lane_P: I8
) -> float:
    """Finds the path of most profit through (period, off or lane), and writes its lanes, -1 where it is off.

    Args:
        profit_PL: Profit of running through a period's open share, USD.
        resume_PL: Cost of a resume into a lane before a period, USD.
        stop_PL: Cost of a stop after a period, USD.
        bonus_P: What overhead can earn at most in a period, USD.
        end_P: Cost of an end in a period, USD.
        begin_until: Periods in which it may begin.
        step: Room, shape (P, L + 1).
        lane_P: Receives the lanes.

    Returns:
        Profit, USD; 0 for the path that never runs.
    """
    periods, lanes = profit_PL.shape
    old, new = np.full(lanes + 1, -np.inf), np.empty(lanes + 1)
    best, best_p, best_lane = 0.0, -1, -1
    for p in range(periods):
        for to in range(lanes + 1):  # the last one is off
            value, by = old[to], to
            if to == lanes:
                for lane in range(lanes):
                    if p > 0 and old[lane] - stop_PL[p - 1, lane] > value:
                        value, by = old[lane] - stop_PL[p - 1, lane], lane
            else:
                if old[lanes] - resume_PL[p, to] > value:
                    value, by = old[lanes] - resume_PL[p, to], lanes
                for lane in range(lanes):
                    if lane != to and p > 0 and old[lane] - stop_PL[p - 1, lane] - resume_PL[p, to] > value:
                        value, by = old[lane] - stop_PL[p - 1, lane] - resume_PL[p, to], lane
                if p < begin_until and value < 0.0:
                    value, by = 0.0, -1
                value += profit_PL[p, to]
            new[to] = value + bonus_P[p]
            step[p, to] = by
            if to < lanes and new[to] - end_P[p] > best:
                best, best_p, best_lane = new[to] - end_P[p], p, to
        old, new = new, old
    lane_P[:] = -1
    at, p = best_lane, best_p
    while p >= 0 and at >= 0:
        lane_P[p] = at if at < lanes else -1
        at = step[p, at]
        p -= 1
    return best


@kernel(allocates=False)
def _priced(
    rate_X: F8,
    lane_X: I8,
    cost_PX: F8,
    share_P: F8,
    price: float,
    profit_PL: F8,
    mode_PL: I8,
) -> None:
    """Writes for every period and lane the mode of most profit at a price of work, and that profit, USD."""
    profit_PL[:] = -np.inf
    for p in range(len(share_P)):
        for x in range(len(rate_X)):
            profit = share_P[p] * (price * rate_X[x] - cost_PX[p, x])
            if profit > profit_PL[p, lane_X[x]]:
                profit_PL[p, lane_X[x]], mode_PL[p, lane_X[x]] = profit, x


@kernel(apart=True)
def resized_life(
    rate_X: F8,
    lane_X: I8,
    cost_PX: F8,
    resume_PL: F8,
    stop_PL: F8,
    bonus_P: F8,
    end_P: F8,
    share_P: F8,
    begin_until: int,
    units: float,
    price: float,
    mode_P: I8,
    weight_P: F8,
    other_P: I8,
) -> tuple[float, float]:
    """Bounds the cost of a job that may be stopped, resumed on another gang, and capped.

    The work is priced: ``max over mu of mu units + min over lives (cost - mu work)``. For each mu the lives are paths
    over (period, off or gang), each period under the cap that is best at mu; so work is met on average over two lives,
    not by each. The maximum is found by steps to the price at which the two lives' costs cross.

    Args:
        rate_X: Rates of the modes, over that of the job's own gang at full power.
        lane_X: Gang of each mode, by number.
        cost_PX: Cost of a full period in each mode, USD.
        resume_PL: Cost of a resume on a gang before a period, USD.
        stop_PL: Cost of a stop after a period, USD.
        bonus_P: What overhead can earn at most in a period, USD.
        end_P: Cost of an end in a period, USD.
        share_P: Share of each period that is open.
        begin_until: Periods in which it may begin.
        units: Work, periods at rate 1.
        price: Price of work to begin at, USD a period.
        mode_P: Receives the modes of the life that does at least the work, -1 where it is off.
        weight_P: Receives, in position 0, the weight of that life; the other one's is the rest.
        other_P: Receives the modes of the life that does at most the work.

    Returns:
        (cost in USD, price of work); an infinite cost where the open time is too short.
    """
    periods, lanes, fastest = len(share_P), resume_PL.shape[1], 0.0
    for rate in rate_X:
        fastest = max(fastest, rate)
    if units > share_P.sum() * fastest + NEAR:
        return np.inf, price
    profit_PL, mode_PL = np.empty((periods, lanes)), np.zeros((periods, lanes), dtype=np.int64)
    step, lane_P = np.empty((periods, lanes + 1), dtype=np.int64), np.empty(periods, dtype=np.int64)
    low_work, low_usd, high_work, high_usd = -1.0, 0.0, -1.0, 0.0
    stride = max(1e-6, 0.5 * abs(price))
    best = -np.inf
    for _ in range(STEPS):
        _priced(rate_X, lane_X, cost_PX, share_P, price, profit_PL, mode_PL)
        profit = _path(profit_PL, resume_PL, stop_PL, bonus_P, end_P, begin_until, step, lane_P)
        best = max(best, price * units - profit)
        work = 0.0
        for p in range(periods):
            if lane_P[p] >= 0:
                work += share_P[p] * rate_X[mode_PL[p, lane_P[p]]]
        usd = price * work - profit
        if work >= units - NEAR:
            high_work, high_usd = work, usd
            for p in range(periods):
                mode_P[p] = mode_PL[p, lane_P[p]] if lane_P[p] >= 0 else -1
        if work <= units + NEAR:
            low_work, low_usd = work, usd
            for p in range(periods):
                other_P[p] = mode_PL[p, lane_P[p]] if lane_P[p] >= 0 else -1
        if low_work < 0.0 or high_work < 0.0:
            price += stride if high_work < 0.0 else -stride
            stride *= 2.0
            continue
        if high_work - low_work <= NEAR:
            break
        crossing = (high_usd - low_usd) / (high_work - low_work)
        at_crossing = low_usd + crossing * (units - low_work)
        if at_crossing <= best + 1e-9 * max(1.0, abs(best)):
            break
        price = crossing
    if high_work < 0.0 or low_work < 0.0:
        return np.inf if high_work < 0.0 else best, price
    weight_P[0] = 1.0 if high_work - low_work <= NEAR else (units - low_work) / (high_work - low_work)
    return best, price

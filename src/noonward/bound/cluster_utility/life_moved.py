"""Compiled: what the best life of a job that may move while it is suspended is worth at most at given prices.

A life is a path as in ``life_resized`` whose lanes are gangs at sites: a change of site is a stop and a resume. What
the checkpoint's journey costs, and how long it takes, is left out, and the job pays the least of its sites' costs of
moving there and of its result's return, whichever sites these are. So no life that an engine can give it is worth
more.
Axes as in ``kernels_freedoms``.
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.kernels_freedoms import (
    BLOCKED_USD,
    FreeOptions,
    Prices,
    overhead_bonus,
    overhead_costs,
    part_cost,
)
from noonward.bound.cluster_utility.life_resized import resized_life
from noonward.compiled import kernel


@kernel(allocates=False)
def _alike(options: FreeOptions, o: int, other: int) -> bool:
    """Returns whether a job that runs in one option may be resumed in another: as fast, at its clock and gang."""
    same = options.own_O[o] == options.own_O[other] and options.level_O[o] == options.level_O[other]
    return bool(same and options.run_s_O[o] == options.run_s_O[other] and options.moves_O[other] == 1)


@kernel()
def _moved_life(options: FreeOptions, group_G: I8, prices: Prices, guess: F8) -> float:
    """Returns what a job's best life over some options is worth after capacity prices at most, USD."""
    part_s, o = prices.part_s, group_G[0]
    earliest_s, end_s, latest_s = options.earliest_s_O[o], options.end_s_O[o], options.latest_s_O[o]
    revenue_usd, move_usd, return_usd, modes = -np.inf, np.inf, np.inf, 0
    for o in group_G:
        earliest_s, end_s = min(earliest_s, options.earliest_s_O[o]), max(end_s, options.end_s_O[o])
        latest_s = max(latest_s, options.latest_s_O[o])
        move_usd, return_usd = min(move_usd, options.move_usd_O[o]), min(return_usd, options.return_usd_O[o])
        revenue = options.worth_usd_O[o] + options.move_usd_O[o] + options.return_usd_O[o]
        revenue_usd = max(revenue_usd, revenue)
        modes += options.mode_O[o + 1] - options.mode_O[o]
    first = int(earliest_s / part_s)
    until = max(first + 1, int(np.ceil(end_s / part_s - 1e-9)))
    periods = until - first
    share_P = np.ones(periods)
    if periods == 1:
        share_P[0] = (end_s - earliest_s) / part_s
    else:
        share_P[0] = first + 1 - earliest_s / part_s
        share_P[-1] = min(1.0, end_s / part_s - (until - 1))
    cost_PX, rate_X, lane_X = np.empty((periods, modes)), np.empty(modes), np.empty(modes, dtype=np.int64)
    resume_PL, stop_PL = np.empty((periods, modes)), np.empty((periods, modes))
    at_PL = np.empty((2, periods, modes), dtype=np.int64)
    bonus_P, x, lanes = np.zeros(periods), 0, 0
    for o in group_G:
        site, here = options.site_O[o], lanes
        own_first, own_until = int(options.earliest_s_O[o] / part_s), int(np.ceil(options.end_s_O[o] / part_s - 1e-9))
        for mode in range(options.mode_O[o], options.mode_O[o + 1]):
            rate_X[x], lane_X[x] = options.rate_X[mode], here + options.lane_X[mode]
            if lane_X[x] >= lanes:
                lanes = lane_X[x] + 1
                overhead_costs(options, o, mode, prices, first, lane_X[x], resume_PL, stop_PL, at_PL[0], at_PL[1])
                overhead_bonus(options, o, mode, prices, first, bonus_P)
            for p in range(periods):
                cost_PX[p, x] = part_cost(
                    prices, site, first + p, options.power_w_X[mode], options.saved_w_X[mode], options.gpus_X[mode]
                )
                if first + p < own_first or first + p >= own_until:
                    cost_PX[p, x] += BLOCKED_USD
            x += 1
    begin_until = min(periods, int(latest_s / part_s) - first + 2)
    mode_P, other_P = np.full(periods, -1, dtype=np.int64), np.full(periods, -1, dtype=np.int64)
    o = group_G[0]
    usd, guess[o] = resized_life(
        rate_X, lane_X, cost_PX, resume_PL[:, :lanes].copy(), stop_PL[:, :lanes].copy(), bonus_P, np.zeros(periods),
        share_P, begin_until, options.run_s_O[o] / part_s, guess[o], mode_P, np.ones(1), other_P,
    )  # fmt: skip
    return float(revenue_usd - move_usd - return_usd - usd)


@kernel()
def moved_gains(options: FreeOptions, prices: Prices, guess: F8, priced_J: F8) -> float:
    """Returns what lives that move are worth in all at most beyond what the jobs chose without moves, USD.

    Args:
        options: Options with a freedom.
        prices: Prices.
        guess: Per option the price of work to begin at, USD a part; renewed.
        priced_J: Values after capacity prices of what the jobs chose without moves, USD.
    """
    gains_usd = 0.0
    for j in range(len(priced_J)):
        best = priced_J[j]
        for o in range(options.first_J[j], options.first_J[j + 1]):
            seen = options.moves_O[o] == 0
            for before in range(options.first_J[j], o):
                seen = seen or _alike(options, before, o)
            if seen:
                continue
            group = [o]
            for other in range(o + 1, options.first_J[j + 1]):
                if _alike(options, o, other):
                    group.append(other)
            if len(group) > 1:
                best = max(best, _moved_life(options, np.array(group), prices, guess))
        gains_usd += best - priced_J[j]
    return gains_usd

"""Compiled: the cheapest life of one unbroken job whose power may be capped, at given prices.

Axes: P periods of one job from its earliest start to its latest end, M modes (shares of full power), Y and R steps of
the periods' convex hulls, as listed and by rank.
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8, U1
from noonward.compiled import kernel
from noonward.schedule.cluster.life_suspended import NEAR


@kernel(allocates=False)
def _lower_hull(rate_M: F8, cost_M: F8, from_nothing: bool, vertex: I8) -> int:
    """Writes the modes on the lower convex hull of (rate, cost), lowest rate first; -1 stands for not running.

    Args:
        rate_M: Rates, ascending.
        cost_M: Costs, USD.
        from_nothing: Whether not running (0, 0) is a point too.
        vertex: Receives the modes.

    Returns:
        Number of vertices.
    """
    count = 0
    for m in range(-1 if from_nothing else 0, len(rate_M)):
        x, y = (rate_M[m], cost_M[m]) if m >= 0 else (0.0, 0.0)
        while count > 0:
            last = vertex[count - 1]
            lx, ly = (rate_M[last], cost_M[last]) if last >= 0 else (0.0, 0.0)
            if x - lx <= 1e-12:
                if y > ly:
                    break
                count -= 1
                continue
            if count == 1:
                break
            under = vertex[count - 2]
            ux, uy = (rate_M[under], cost_M[under]) if under >= 0 else (0.0, 0.0)
            if (ly - uy) * (x - lx) < (y - ly) * (lx - ux):
                break
            count -= 1
        last_x = -1.0
        if count > 0:
            last = vertex[count - 1]
            last_x = rate_M[last] if last >= 0 else 0.0
        if count == 0 or x - last_x > 1e-12:
            vertex[count] = m
            count += 1
    return count


@kernel()
def _items(
    rate_M: F8, cost_PM: F8, share_P: F8, slope_Y: F8, gain_Y: F8, period_Y: I8, inner_Y: U1, width_P: F8
) -> int:
    """Lists the steps of the periods' hulls: rate gained, and cost per rate; of inner and of end periods.

    Args:
        rate_M: Rates, ascending.
        cost_PM: Costs of full periods, USD.
        share_P: Open shares.
        slope_Y: Receives the cost per rate.
        gain_Y: Receives the work gained, periods at rate 1.
        period_Y: Receives the period.
        inner_Y: Receives 1 for an inner period, in which the job runs throughout, 0 for the first and last it touches.
        width_P: Receives the work of the first step of an end period: up to it a part of the period is used.

    Returns:
        Number of steps.
    """
    vertex, count = np.empty(len(rate_M) + 1, dtype=np.int64), 0
    for p in range(len(share_P)):
        for inner in range(2):
            known = _lower_hull(rate_M, cost_PM[p], inner == 0, vertex)
            for v in range(1, known):
                a, b = vertex[v - 1], vertex[v]
                ax, ay = (rate_M[a], cost_PM[p, a]) if a >= 0 else (0.0, 0.0)
                slope_Y[count] = (cost_PM[p, b] - ay) / (rate_M[b] - ax)
                gain_Y[count] = (rate_M[b] - ax) * share_P[p]
                period_Y[count], inner_Y[count] = p, inner
                if inner == 0 and v == 1:
                    width_P[p] = gain_Y[count]
                count += 1
    return count


@kernel(apart=True)
def capped_life(rate_M: F8, cost_PM: F8, end_P: F8, share_P: F8, units: float, used_P: F8, work_P: F8) -> float:
    """Finds the cheapest life of an unbroken job whose power may be capped: a knapsack over (period, power and rate).

    Between its first and its last period the job runs throughout, at least at its lowest rate. For each pair of these
    the rest of the work goes to the cheapest steps of the periods' convex hulls of (rate, cost), which is exact where
    the job may change its cap at any time. In the first and the last period it may also run for a part of the time.

    Args:
        rate_M: Rates over that at full power, ascending.
        cost_PM: Cost of a full period in each mode, USD.
        end_P: Cost of an end in a period, USD.
        share_P: Share of each period that is open.
        units: Work, periods at rate 1.
        used_P: Receives the share of each period in which it runs.
        work_P: Receives the work done in each period.

    Returns:
        The cost, USD; infinite where the open time is too short.
    """
    periods, modes = len(share_P), len(rate_M)
    most = periods * (2 * modes + 1)
    slope_Y, gain_Y = np.empty(most), np.empty(most)
    period_Y, inner_Y = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.uint8)
    width_P = np.zeros(periods)
    count = _items(rate_M, cost_PM, share_P, slope_Y, gain_Y, period_Y, inner_Y, width_P)
    order_Y = np.argsort(slope_Y[:count])
    first_YP = np.zeros(2 * periods + 1, dtype=np.int64)  # ranks of the steps of each (period, inner)
    for y in range(count):
        first_YP[2 * period_Y[y] + inner_Y[y] + 1] += 1
    for i in range(2 * periods):
        first_YP[i + 1] += first_YP[i]
    fill, ranks = first_YP[:-1].copy(), np.empty(count, dtype=np.int64)
    gain_R, slope_R = np.empty(count), np.empty(count)
    for r in range(count):
        y = order_Y[r]
        i = 2 * period_Y[y] + inner_Y[y]
        ranks[fill[i]] = r
        fill[i] += 1
        gain_R[r], slope_R[r] = gain_Y[y], slope_Y[y]
    best, best_a, best_b = np.inf, -1, -1
    active_R = np.zeros(count, dtype=np.uint8)
    for a in range(periods):
        active_R[:] = 0
        below, paid, until, base_work, base_usd = 0.0, 0.0, 0, 0.0, 0.0
        for b in range(a, periods):
            # The period before b becomes an inner one, b an end.
            for change in range(3):
                if change < 2 and b - 1 <= a:
                    continue
                i = 2 * (b - 1) + change if change < 2 else 2 * b
                for n in range(first_YP[i], first_YP[i + 1]):
                    r = ranks[n]
                    sign = -1.0 if change == 0 else 1.0
                    active_R[r] = 0 if change == 0 else 1
                    if r < until:
                        below += sign * gain_R[r]
                        paid += sign * gain_R[r] * slope_R[r]
            if b - 1 > a:
                base_work += rate_M[0] * share_P[b - 1]
                base_usd += cost_PM[b - 1, 0] * share_P[b - 1]
            need = units - base_work
            if need < -NEAR:
                break
            while until > 0 and below > need:
                until -= 1
                if active_R[until] == 1:
                    below -= gain_R[until]
                    paid -= gain_R[until] * slope_R[until]
            while until < count and (active_R[until] == 0 or below + gain_R[until] <= need):
                if active_R[until] == 1:
                    below += gain_R[until]
                    paid += gain_R[until] * slope_R[until]
                until += 1
            rest = need - below
            if until == count and rest > NEAR:
                continue
            usd = base_usd + paid + end_P[b]
            if until < count and rest > 0.0:
                usd += rest * slope_R[until]
            if usd < best:
                best, best_a, best_b = usd, a, b
    if best_a >= 0:
        _fill_capped(
            rate_M, share_P, units, best_a, best_b, order_Y[:count], gain_Y, period_Y, inner_Y, width_P, used_P, work_P
        )
    return best


@kernel(allocates=False)
def _fill_capped(
    rate_M: F8,
    share_P: F8,
    units: float,
    a: int,
    b: int,
    order_Y: I8,
    gain_Y: F8,
    period_Y: I8,
    inner_Y: U1,
    width_P: F8,
    used_P: F8,
    work_P: F8,
) -> None:
    """Writes use and work of the periods of a life from period ``a`` to ``b``."""
    used_P[:], work_P[:] = 0.0, 0.0
    rest = units
    for p in range(a + 1, b):
        used_P[p], work_P[p] = share_P[p], rate_M[0] * share_P[p]
        rest -= work_P[p]
    for y in order_Y:
        p = period_Y[y]
        if p < a or p > b or (inner_Y[y] == 1) != (a < p < b):
            continue
        took = min(gain_Y[y], max(0.0, rest))
        work_P[p] += took
        rest -= took
    for p in (a, b):
        if work_P[p] > 0.0:
            used_P[p] = share_P[p] * min(1.0, work_P[p] / width_P[p])

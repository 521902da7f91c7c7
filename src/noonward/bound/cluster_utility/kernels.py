"""Compiled parts of the utility bound: candidate starts of every job, their values, and the dual function.

Axes: J jobs, O options (a job at a site on a gang and clock level), K candidate columns (an option and a start),
S sites, H hours. All times are seconds since the environment's start.
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.ledger.settle import integral, integral_between
from noonward.units import HOUR_S, WATT_SECONDS_PER_MWH

TIME_TOLERANCE_S = 1e-6
"""Times nearer than this count as equal; the bound then takes the better of both readings, s."""


@kernel(allocates=False)
def least_intensity(carbon_SH: F8, first: int, second: int, from_s: float, to_s: float) -> float:
    """Returns the least of the mean intensity of two ends over the hours touched by ``[from_s, to_s]``, g/kWh.

    An end of -1 (an ingress that belongs to no site) counts as 0 g/kWh.
    """
    least = np.inf
    last = int(min(to_s / HOUR_S, carbon_SH.shape[1] - 1.0))
    for hour in range(int(from_s / HOUR_S), last + 1):
        mean = 0.5 * carbon_SH[second, hour]
        if first >= 0:
            mean += 0.5 * carbon_SH[first, hour]
        least = min(least, mean)
    return least


@kernel()
def least_moves(
    arrival_s_J: F8,
    until_s_JS: F8,
    moved_gb_J: F8,
    origin_J: I8,
    home_J: I8,
    usd_per_gb_IS: F8,
    kwh_per_gb_IS: F8,
    relay_usd_per_gb_IS: F8,
    usd_per_g: float,
    carbon_SH: F8,
) -> F8:
    """Returns the least USD of travelling from the ingress to each site, leaving between arrival and ``until_s_JS``.

    ``GB min(psi + mu eps min_t (I_i(t) + I_n(t)) / 2, cheapest longer chain)`` (MASAC, Eq. 5, at the best departure).
    """
    usd_JS = np.zeros(until_s_JS.shape)
    for j in range(len(arrival_s_J)):
        i = origin_J[j]
        for s in range(carbon_SH.shape[0]):
            if home_J[j] == s or until_s_JS[j, s] < arrival_s_J[j] - TIME_TOLERANCE_S:
                continue
            until_s = max(until_s_JS[j, s], arrival_s_J[j])
            usd = usd_per_gb_IS[i, s]
            if kwh_per_gb_IS[i, s] > 0:
                intensity = least_intensity(carbon_SH, home_J[j], s, arrival_s_J[j], until_s)
                usd += usd_per_g * kwh_per_gb_IS[i, s] * intensity
            usd_JS[j, s] = moved_gb_J[j] * min(usd, relay_usd_per_gb_IS[i, s])
    return usd_JS


@kernel(allocates=False)
def run_value(
    weight_cumulative_P: F8,
    start_s: float,
    end_s: float,
    window_s: float,
    revenue_usd: float,
    power_w: float,
    saved_w: float,
    part_s: float,
) -> float:
    """Returns the value of running a job, migration and retrieval apart, USD (MASAC, Eqs. 2-4).

    ``revenue - P integral_[t, t+d] w + P_free integral_([t, t+d] and [0, window]) w`` with
    ``w = price + mu carbon``, which holds for ``part_s`` at a time: a busy GPU draws no free power, which is charged
    inside the window alone.
    """
    weight_P = weight_cumulative_P
    drawn = integral_between(weight_P, start_s, end_s, part_s)
    inside = integral(weight_P, min(end_s, window_s), part_s)
    inside -= integral(weight_P, min(start_s, window_s), part_s)
    return float(revenue_usd + (saved_w * inside - power_w * drawn) / WATT_SECONDS_PER_MWH)


@kernel()
def _push_start(starts: F8, hours: I8, count: int, start_s: float, hour: int) -> int:
    starts[count] = start_s
    hours[count] = hour
    return count + 1


@kernel()
def _hour_of_end(end_s: float) -> int:
    """Returns the hour in which a run that ends is settled; -1 within the tolerance of a full hour."""
    if abs(end_s - HOUR_S * np.rint(end_s / HOUR_S)) < TIME_TOLERANCE_S:
        return -1
    return int(end_s / HOUR_S)


@kernel()
def candidate_starts(
    earliest_s: float,
    latest_s: float,
    run_s: float,
    slot_s: float,
    period_s: float,
    starts: F8,
    hours: I8,
    fill: bool,
) -> int:
    """Lists the starts of an option among which one is best, whatever the prices of capacity by period.

    Between two of them the priced value is linear in the start: neither the start nor the end crosses a period (of
    which hours are made) and the retrieval is settled in one hour. On a slot grid (``slot_s`` above 0) they are the
    grid's points next to each kink; without a grid, the kinks themselves, once for either side of the step in the
    retrieval's intensity.

    Args:
        earliest_s: First start, on the grid.
        latest_s: Last start, on the grid.
        run_s: Run time, s.
        slot_s: Slot, a divisor of the hour, or 0 for starts at any time.
        period_s: Length of the periods of one price, a divisor of the hour and a multiple of the slot, s.
        starts: Receives the starts.
        hours: Receives the hour in which each run ends, as settled for the retrieval; -1 where an end falls
            on a full hour within the tolerance, so that either side counts.
        fill: Whether to write, or only to count.

    Returns:
        Number of candidates (a start may stand twice).
    """
    count = 0
    for start_s in (earliest_s, latest_s):
        if fill:
            _push_start(starts, hours, count, start_s, _hour_of_end(start_s + run_s))
        count += 1
    for period in range(int(earliest_s / period_s) + 1, int(np.ceil(latest_s / period_s))):
        if fill:
            _push_start(starts, hours, count, period * period_s, _hour_of_end(period * period_s + run_s))
        count += 1
    for period in range(int((earliest_s + run_s) / period_s) + 1, int(np.ceil((latest_s + run_s) / period_s))):
        kink_s = period * period_s - run_s
        full_hour = period * period_s % HOUR_S == 0.0
        hour = int(period * period_s / HOUR_S)
        before_s, after_s = kink_s, kink_s
        on_grid = False
        if slot_s > 0:
            after_s = np.ceil((kink_s - TIME_TOLERANCE_S) / slot_s) * slot_s
            before_s = after_s - slot_s
            on_grid = abs(after_s - kink_s) < TIME_TOLERANCE_S
        if before_s > earliest_s:
            if fill:
                _push_start(starts, hours, count, before_s, hour - 1 if full_hour else _hour_of_end(before_s + run_s))
            count += 1
        if after_s < latest_s:
            if fill:
                after_hour = (-1 if on_grid else hour) if full_hour else _hour_of_end(after_s + run_s)
                _push_start(starts, hours, count, after_s, after_hour)
            count += 1
    return count


@kernel()
def count_candidates(earliest_s_O: F8, latest_s_O: F8, run_s_O: F8, slot_s: float, period_s: float) -> I8:
    """Returns the number of candidate starts of every option."""
    none_f = np.empty(0)
    none_i = np.empty(0, dtype=np.int64)
    count_O = np.empty(len(run_s_O), dtype=np.int64)
    for o in range(len(run_s_O)):
        count_O[o] = candidate_starts(
            earliest_s_O[o], latest_s_O[o], run_s_O[o], slot_s, period_s, none_f, none_i, False
        )
    return count_O


@kernel()
def return_intensity(carbon_SH: F8, first: int, second: int, end_s: float, hour: int) -> float:
    """Returns the mean intensity of both ends in an hour, g/kWh; for hour -1 the lower one around the full hour."""
    from_hour, to_hour = hour, hour
    if hour < 0:
        to_hour = int(np.rint(end_s / HOUR_S))
        from_hour = to_hour - 1
    return float(least_intensity(carbon_SH, first, second, from_hour * HOUR_S, to_hour * HOUR_S))


@kernel()
def fill_columns(
    first_O: I8,
    earliest_s_O: F8,
    latest_s_O: F8,
    run_s_O: F8,
    revenue_usd_O: F8,
    power_w_O: F8,
    saved_w_O: F8,
    fixed_usd_O: F8,
    return_kwh_O: F8,
    home_O: I8,
    site_O: I8,
    most_starts: int,
    slot_s: float,
    period_s: float,
    window_s: float,
    usd_per_g: float,
    part_s: float,
    weight_cumulative_SP: F8,
    carbon_SH: F8,
    due_s_O: F8,
    late_usd_per_s_O: F8,
    start_s_K: F8,
    value_K: F8,
    option_K: I8,
) -> None:
    """Writes the candidate columns of all options: start, value in USD before capacity prices, option.

    ``most_starts`` is the largest number of candidates of one option.
    Value = running value - fixed costs (migration, retrieval in USD) - retrieval's carbon at the end of the run - price
    of lateness.
    """
    hours = np.empty(most_starts, dtype=np.int64)
    for o in range(len(run_s_O)):
        begin = first_O[o]
        starts = start_s_K[begin:]
        count = candidate_starts(earliest_s_O[o], latest_s_O[o], run_s_O[o], slot_s, period_s, starts, hours, True)
        for k in range(count):
            end_s = starts[k] + run_s_O[o]
            weight_P = weight_cumulative_SP[site_O[o]]
            usd = run_value(weight_P, starts[k], end_s, window_s, revenue_usd_O[o], power_w_O[o], saved_w_O[o], part_s)
            if return_kwh_O[o] > 0:
                grams = return_kwh_O[o] * return_intensity(carbon_SH, home_O[o], site_O[o], end_s, hours[k])
                usd -= usd_per_g * grams
            usd -= late_usd_per_s_O[o] * max(0.0, starts[k] - due_s_O[o])
            value_K[begin + k] = usd - fixed_usd_O[o]
            option_K[begin + k] = o


@kernel()
def dual_step(
    price_cumulative_P: F8,
    first_J: I8,
    value_K: F8,
    gpus_K: F8,
    from_K: I8,
    from_share_K: F8,
    to_K: I8,
    to_share_K: F8,
    best_J: I8,
    usage_P: F8,
) -> float:
    """Lets every job take its best column at given capacity prices.

    ``sum_j max(0, max_k value_k - gpus_k integral_[t, t+d] lambda)``, the first part of the dual function.

    Args:
        price_cumulative_P: Running sums of lambda per site, USD per GPU: positions ``site (H + 1) + hour``.
        first_J: First column of every job, one more than there are jobs.
        value_K: Value, USD.
        gpus_K: Gang.
        from_K: Position of the start's hour.
        from_share_K: Share of that hour gone at the start.
        to_K: Position of the end's hour.
        to_share_K: Share of that hour gone at the end.
        best_J: Receives the column taken, or -1.
        usage_P: Receives GPU-hours used at ``site (H + 1) + hour``.

    Returns:
        Sum of the jobs' priced values, USD.
    """
    usage_P[:] = 0.0
    total = 0.0
    for j in range(len(first_J) - 1):
        best = 0.0
        chosen = -1
        for k in range(first_J[j], first_J[j + 1]):
            a = from_K[k]
            b = to_K[k]
            low = price_cumulative_P[a]
            high = price_cumulative_P[b]
            low += from_share_K[k] * (price_cumulative_P[a + 1] - low)
            high += to_share_K[k] * (price_cumulative_P[b + 1] - high)
            priced = value_K[k] - gpus_K[k] * (high - low)
            if priced > best:
                best = priced
                chosen = k
        total += best
        best_J[j] = chosen
        if chosen >= 0:
            gpus = gpus_K[chosen]
            for p in range(from_K[chosen], to_K[chosen] + 1):
                usage_P[p] += gpus
            usage_P[from_K[chosen]] -= gpus * from_share_K[chosen]
            usage_P[to_K[chosen]] -= gpus * (1.0 - to_share_K[chosen])
    return total

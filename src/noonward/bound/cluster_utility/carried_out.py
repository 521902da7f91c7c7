"""Compiled: lives of jobs carried out on whole slots, with all that stopping, resuming and resizing take."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.kernels import least_intensity, run_value
from noonward.bound.cluster_utility.kernels_freedoms import FreeOptions, LifePlan, Prices
from noonward.compiled import kernel
from noonward.units import HOUR_S, WATT_SECONDS_PER_MWH


@kernel(allocates=False)
def carried_out(
    options: FreeOptions,
    o: int,
    prices: Prices,
    weight_cumulative_P: F8,
    window_s: float,
    slot_s: float,
    limits: F8,
    plan: LifePlan,
    from_N: I8,
    until_N: I8,
) -> tuple[float, int]:
    """Carries out the life of a job that is stopped and resumed, on whole slots, with all that both take.

    A checkpoint is written after useful time, a load ends where useful time begins, and the last run ends when the work
    is done.

    Args:
        options: Options with a freedom.
        o: Option.
        prices: Prices; those of capacity are not read.
        weight_cumulative_P: Running integral of price + mu carbon at its site, USD/MWh x s.
        window_s: Window over which free GPUs are charged, s.
        slot_s: Slot, s.
        limits: Least seconds without GPUs between a stop and a load, least seconds of a run before a stop, most stops.
        plan: The life.
        from_N: Receives the first slot of each segment that holds the GPUs.
        until_N: Receives the slot after its last.

    Returns:
        (value in USD, -inf where it cannot be carried out; number of segments).
    """
    part_s, mode = prices.part_s, options.mode_O[o]
    first = int(options.earliest_s_O[o] / part_s)
    periods = int(np.ceil(options.end_s_O[o] / part_s - 1e-9)) - first
    saved_w = options.saved_w_X[mode]
    usd, count, left_s, p, stopped_s = options.worth_usd_O[o], 0, options.run_s_O[o], 0, -np.inf
    for _ in range(periods):
        while p < periods and plan.used_P[p] <= 0.0:
            p += 1
        if p >= periods or count + 3 > len(from_N):
            break
        q = p  # a run: from the end of part p, or within it, to part q
        while q + 1 < periods and plan.used_P[q + 1] > 0.0 and plan.stopped_P[q] == 0 and plan.resumed_P[q + 1] == 0:
            q += 1
        begin_s = max(options.earliest_s_O[o], (first + p) * part_s)
        if q > p:
            begin_s = max(begin_s, np.floor((first + p + 1 - plan.used_P[p]) * part_s / slot_s + 1e-9) * slot_s)
            end_s = (first + q + plan.used_P[q]) * part_s
        else:
            end_s = begin_s + plan.used_P[p] * part_s
        end_s = np.ceil(end_s / slot_s - 1e-9) * slot_s
        last = end_s - begin_s >= left_s - 1e-6
        if last:
            end_s = begin_s + left_s
        if count > 0:
            load_from_s = begin_s - options.load_s_O[o]
            if load_from_s < stopped_s + limits[0]:
                return -np.inf, 0
            usd += run_value(
                weight_cumulative_P, load_from_s, begin_s, window_s, 0.0, options.load_w_X[mode], saved_w, part_s
            )
            from_N[count], until_N[count] = int(np.floor(load_from_s / slot_s)), int(np.rint(begin_s / slot_s))
            count += 1
        usd += run_value(weight_cumulative_P, begin_s, end_s, window_s, 0.0, options.power_w_X[mode], saved_w, part_s)
        from_N[count], until_N[count] = int(np.rint(begin_s / slot_s)), int(np.ceil(end_s / slot_s - 1e-9))
        count += 1
        left_s -= end_s - begin_s
        if last:
            if end_s > options.end_s_O[o] + 1e-6:
                return -np.inf, 0
            return usd - ended_usd(options, o, prices, end_s), count
        if end_s - begin_s < limits[1] or limits[2] < 1:
            return -np.inf, 0
        limits[2] -= 1
        stopped_s = end_s + options.stop_s_O[o]
        usd += run_value(weight_cumulative_P, end_s, stopped_s, window_s, 0.0, options.stop_w_X[mode], saved_w, part_s)
        from_N[count], until_N[count] = int(np.rint(end_s / slot_s)), int(np.ceil(stopped_s / slot_s - 1e-9))
        count += 1
        p = q + 1
    return -np.inf, 0


@kernel(allocates=False)
def ended_usd(options: FreeOptions, o: int, prices: Prices, end_s: float) -> float:
    """Returns what the emissions of a result's return cost after an end, USD."""
    if options.return_kwh_O[o] <= 0.0:
        return 0.0
    hour_s = np.floor(end_s / HOUR_S) * HOUR_S
    grams = options.return_kwh_O[o] * least_intensity(
        prices.carbon_SH, options.home_O[o], options.site_O[o], hour_s, hour_s
    )
    return float(prices.usd_per_g * grams)


@kernel(allocates=False)
def carried_capped(
    options: FreeOptions,
    o: int,
    prices: Prices,
    slot_s: float,
    plan: LifePlan,
    from_N: I8,
    until_N: I8,
) -> float:
    """Carries out the life of an unbroken job under caps, from the slot at or before its begin.

    Returns:
        What begins earlier by a part of a slot cost at most, USD; infinite for a life of no part.
    """
    part_s = prices.part_s
    first = int(options.earliest_s_O[o] / part_s)
    periods = int(np.ceil(options.end_s_O[o] / part_s - 1e-9)) - first
    a, b = 0, periods - 1
    while a < periods and plan.used_P[a] <= 0.0:
        a += 1
    if a == periods:
        return np.inf
    while plan.used_P[b] <= 0.0:
        b -= 1
    begin_s = max(options.earliest_s_O[o], (first + a) * part_s)
    if b > a:
        begin_s = max(begin_s, (first + a + 1 - plan.used_P[a]) * part_s)
    end_s = (first + b + plan.used_P[b]) * part_s if b > a else begin_s + plan.used_P[a] * part_s
    slot = int(np.floor(begin_s / slot_s + 1e-9))
    from_N[0], until_N[0] = slot, int(np.ceil(end_s / slot_s - 1e-9))
    most = 0.0
    for x in range(options.mode_O[o], options.mode_O[o + 1]):
        hour_usd = options.power_w_X[x] * prices.weight_SP[options.site_O[o], first + a] / WATT_SECONDS_PER_MWH
        most = max(most, abs(hour_usd))
    return float((begin_s - slot * slot_s) / part_s * most)


@kernel(allocates=False)
def carried_resized(
    options: FreeOptions,
    o: int,
    prices: Prices,
    weight_cumulative_P: F8,
    window_s: float,
    slot_s: float,
    limits: F8,
    plan: LifePlan,
    from_N: I8,
    until_N: I8,
    gpus_N: I8,
) -> tuple[float, int]:
    """Carries out the life of a job that is stopped, resized and capped, with all that this takes.

    A run begins as soon as the plan says and the GPUs are loaded, on a slot, and ends on the slot at or after the end
    of its last part. What overhead takes of the work is done at the end of the last run.

    Args:
        options: Options with a freedom.
        o: Option of search RESIZED.
        prices: Prices; those of capacity are not read.
        weight_cumulative_P: Running integral of price + mu carbon at its site, USD/MWh x s.
        window_s: Window over which free GPUs are charged, s.
        slot_s: Slot, s.
        limits: Least seconds without GPUs between a stop and a load, least seconds of a run before a stop, most stops.
        plan: The life.
        from_N: Receives the first slot of each segment that holds GPUs.
        until_N: Receives the slot after its last.
        gpus_N: Receives its GPUs.

    Returns:
        (value in USD, -inf where it cannot be carried out; number of segments).
    """
    part_s, one = prices.part_s, options.mode_O[o]
    first = int(options.earliest_s_O[o] / part_s)
    periods = int(np.ceil(options.end_s_O[o] / part_s - 1e-9)) - first
    usd, count, left_s, p, stopped_s = options.worth_usd_O[o], 0, options.run_s_O[o], 0, -np.inf
    while True:
        while p < periods and plan.mode_P[p] < 0:
            p += 1
        if p >= periods or count + 3 > len(from_N):
            return -np.inf, 0
        x = one + plan.mode_P[p]
        lane, gpus = options.lane_X[x], int(options.gpus_X[x])
        q = p  # a run: from part p to part q
        while q + 1 < periods and plan.mode_P[q + 1] >= 0 and options.lane_X[one + plan.mode_P[q + 1]] == lane:
            q += 1
        later = q + 1
        while later < periods and plan.mode_P[later] < 0:
            later += 1
        begin_s = max(options.earliest_s_O[o], (first + p) * part_s)
        if count == 0:
            begin_s = np.ceil(begin_s / slot_s - 1e-9) * slot_s
            if begin_s > options.latest_s_O[o] + 1e-6:
                return -np.inf, 0
        else:
            load_s = options.load_s_O[o]
            load_from_s = np.ceil(max(begin_s - load_s, stopped_s + limits[0]) / slot_s - 1e-9) * slot_s
            begin_s = load_from_s + load_s
            usd += run_value(
                weight_cumulative_P, load_from_s, begin_s, window_s, 0.0, options.load_w_X[x], options.saved_w_X[x],
                part_s,
            )  # fmt: skip
            from_N[count], until_N[count] = int(np.rint(load_from_s / slot_s)), int(np.ceil(begin_s / slot_s - 1e-9))
            gpus_N[count] = gpus
            count += 1
        run_until_s = np.ceil((first + q + 1) * part_s / slot_s - 1e-9) * slot_s if later < periods else np.inf
        run_from_s, end_s = begin_s, begin_s
        while left_s > 1e-6 and end_s < run_until_s - 1e-6:
            at = min(max(int((end_s + 1e-6) / part_s) - first, p), q)
            part_end_s = min((int((end_s + 1e-6) / part_s) + 1) * part_s, run_until_s)
            x = one + plan.mode_P[at]
            span_s = min(part_end_s - end_s, left_s / options.rate_X[x])
            usd += run_value(
                weight_cumulative_P, end_s, end_s + span_s, window_s, 0.0, options.power_w_X[x], options.saved_w_X[x],
                part_s,
            )  # fmt: skip
            left_s -= span_s * options.rate_X[x]
            end_s += span_s
            if end_s > options.end_s_O[o] + 1e-6:
                return -np.inf, 0
        if end_s > run_from_s:
            from_N[count], until_N[count] = (
                int(np.floor(run_from_s / slot_s + 1e-9)),
                int(np.ceil(end_s / slot_s - 1e-9)),
            )
            gpus_N[count] = gpus
            count += 1
        if left_s <= 1e-6:
            return usd - ended_usd(options, o, prices, end_s), count
        if end_s - run_from_s < max(limits[1], 1e-6) or limits[2] < 1:
            return -np.inf, 0
        limits[2] -= 1
        stopped_s = end_s + options.stop_s_O[o]
        usd += run_value(
            weight_cumulative_P, end_s, stopped_s, window_s, 0.0, options.stop_w_X[x], options.saved_w_X[x], part_s
        )
        from_N[count], until_N[count] = int(np.rint(end_s / slot_s)), int(np.ceil(stopped_s / slot_s - 1e-9))
        gpus_N[count] = gpus
        count += 1
        p = q + 1

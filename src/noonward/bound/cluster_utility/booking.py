"""Compiled booking of jobs on whole slots: the primal side of the utility bound.

A booking holds a gang at the slot instants its run covers, so that integer GPUs never exceed a site's at any instant
(starts, the only moments at which use rises, are slot instants). Axes as in ``kernels``; T slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.kernels import least_intensity, run_value
from noonward.compiled import kernel
from noonward.ledger.settle import integral
from noonward.units import HOUR_S


class SlotOptions(NamedTuple):
    """What a booking needs to know of the options, on whole slots and over direct links.

    Attributes:
        first_J: First option of every job, one more than there are jobs.
        site_O: Site.
        gpus_O: Gang, GPUs.
        home_O: Site of the job's ingress, or -1.
        run_s_O: Run time, s.
        slots_O: Slot instants a run covers.
        low_O: First start, slot.
        high_O: Last start, slot; below ``low_O`` where there is none.
        ready_O: First slot at or after the arrival.
        travel_O: Slots between departure and earliest start, 0 at home.
        revenue_usd_O: Revenue, USD.
        power_w_O: Facility power of the gang, W.
        saved_w_O: Facility power of its GPUs when free, W.
        fixed_usd_O: USD of migration and retrieval that no hour changes.
        move_kwh_O: kWh of the migration.
        return_kwh_O: kWh of the retrieval.
        weight_cumulative_SH: Running integral of price + mu carbon, USD/MWh x s.
        carbon_SH: Carbon intensity, g/kWh.
        usd_per_g: Carbon price, USD per gram.
        slot_s: Slot, s.
        window_s: Window over which free GPUs are charged, s.
    """

    first_J: I8
    site_O: I8
    gpus_O: I8
    home_O: I8
    run_s_O: F8
    slots_O: I8
    low_O: I8
    high_O: I8
    ready_O: I8
    travel_O: I8
    revenue_usd_O: F8
    power_w_O: F8
    saved_w_O: F8
    fixed_usd_O: F8
    move_kwh_O: F8
    return_kwh_O: F8
    weight_cumulative_SH: F8
    carbon_SH: F8
    usd_per_g: float
    slot_s: float
    window_s: float


@kernel()
def start_value(table: SlotOptions, option: int, slot: int, leaving_g_per_kwh: float) -> float:
    """Returns what a start earns, USD: running value - migration at its best departure - retrieval at its end.

    Args:
        table: Options.
        option: Option.
        slot: Slot of the start.
        leaving_g_per_kwh: Mean intensity of both ends at the best departure; not read where nothing migrates.
    """
    start_s = slot * table.slot_s
    end_s = start_s + table.run_s_O[option]
    site = table.site_O[option]
    usd = run_value(
        table.weight_cumulative_SH[site],
        start_s,
        end_s,
        table.window_s,
        table.revenue_usd_O[option],
        table.power_w_O[option],
        table.saved_w_O[option],
    )
    grams = 0.0
    if table.move_kwh_O[option] > 0:
        grams += table.move_kwh_O[option] * leaving_g_per_kwh
    if table.return_kwh_O[option] > 0:
        grams += table.return_kwh_O[option] * least_intensity(table.carbon_SH, table.home_O[option], site, end_s, end_s)
    return float(usd - table.fixed_usd_O[option] - table.usd_per_g * grams)


@kernel()
def best_booking(
    table: SlotOptions, price_cumulative_SH: F8, scale: float, free_ST: I8, job: int
) -> tuple[int, int, float]:
    """Finds a job's best start that fits the free GPUs, capacity priced at ``scale x lambda``.

    Within a run of starts that fit, the priced value is linear between the starts next to which the start or the end
    crosses an hour; only those and the run's ends are valued.

    Args:
        table: Options.
        price_cumulative_SH: Running integral of lambda, USD per GPU-hour x s.
        scale: Factor on lambda.
        free_ST: Free GPUs per site and slot instant.
        job: Job.

    Returns:
        (option, slot, value before prices in USD), option -1 where nothing fits at a priced value above 0.
    """
    chosen, at, usd, best = -1, 0, 0.0, 0.0
    for o in range(table.first_J[job], table.first_J[job + 1]):
        site, gpus, length = table.site_O[o], table.gpus_O[o], table.slots_O[o]
        run_s, low, high = table.run_s_O[o], table.low_O[o], table.high_O[o]
        fitting, leaving, looked_s = 0, np.inf, table.ready_O[o] * table.slot_s
        free_T = free_ST[site]
        for t in range(low, high + length):
            fitting = fitting + 1 if free_T[t] >= gpus else 0
            if fitting < length:
                continue
            slot = t - length + 1
            start_s = slot * table.slot_s
            first = fitting == length
            last = slot == high or free_T[t + 1] < gpus
            if not (first or last or start_s % HOUR_S == 0.0):
                hour = int((start_s + run_s) / HOUR_S)
                before = int((start_s - table.slot_s + run_s) / HOUR_S)
                after = int((start_s + table.slot_s + run_s) / HOUR_S)
                if hour == before and hour == after:
                    continue
            if table.move_kwh_O[o] > 0:  # later starts may leave at every time that earlier ones may
                leave_s = (slot - table.travel_O[o]) * table.slot_s
                later = least_intensity(table.carbon_SH, table.home_O[o], site, looked_s, leave_s)
                leaving, looked_s = min(leaving, later), leave_s
            value = start_value(table, o, slot, leaving)
            held = integral(price_cumulative_SH[site], start_s + run_s) - integral(price_cumulative_SH[site], start_s)
            priced = value - scale * gpus * held / HOUR_S
            if priced > best:
                chosen, at, usd, best = o, slot, value, priced
    return chosen, at, usd


@kernel()
def hold(table: SlotOptions, free_ST: I8, option: int, slot: int, sign: int) -> None:
    """Takes (``sign`` 1) or gives back (-1) the GPUs of a booking."""
    free_T = free_ST[table.site_O[option]]
    for t in range(slot, slot + table.slots_O[option]):
        free_T[t] -= sign * table.gpus_O[option]


@kernel()
def book_in_order(
    table: SlotOptions,
    price_cumulative_SH: F8,
    scale: float,
    order_J: I8,
    free_ST: I8,
    option_J: I8,
    slot_J: I8,
    value_J: F8,
) -> None:
    """Books the jobs of ``order_J`` that are not booked yet, one after the other, each at its best."""
    for j in order_J:
        if option_J[j] < 0:
            option_J[j], slot_J[j], value_J[j] = best_booking(table, price_cumulative_SH, scale, free_ST, j)
            if option_J[j] >= 0:
                hold(table, free_ST, option_J[j], slot_J[j], 1)


@kernel()
def departures(table: SlotOptions, option_J: I8, slot_J: I8) -> F8:
    """Returns the first departure of least carbon of every migrated job, s; NaN for jobs that stay at home."""
    depart_s_J = np.full(len(option_J), np.nan)
    for j in range(len(option_J)):
        o = option_J[j]
        if o < 0 or table.home_O[o] == table.site_O[o]:
            continue
        best = np.inf
        for slot in range(table.ready_O[o], slot_J[j] - table.travel_O[o] + 1):
            time_s = slot * table.slot_s
            intensity = least_intensity(table.carbon_SH, table.home_O[o], table.site_O[o], time_s, time_s)
            if intensity < best:
                best = intensity
                depart_s_J[j] = time_s
    return depart_s_J


@kernel()
def _unbook(table: SlotOptions, picked: I8, free_ST: I8, option_J: I8, slot_J: I8, value_J: F8) -> tuple[I8, I8, F8]:
    """Takes bookings out and returns them: (options, slots, values)."""
    options, slots, values = option_J[picked], slot_J[picked], value_J[picked]
    for i in range(len(picked)):
        if options[i] >= 0:
            hold(table, free_ST, options[i], slots[i], -1)
            option_J[picked[i]], value_J[picked[i]] = -1, 0.0
    return options, slots, values


@kernel()
def _insert(jobs: I8, keys: F8, count: int, job: int, key: float) -> None:
    """Inserts a job into the first ``count``, which descend by key."""
    i = count
    while i > 0 and keys[i - 1] < key:
        keys[i], jobs[i] = keys[i - 1], jobs[i - 1]
        i -= 1
    keys[i], jobs[i] = key, job


@kernel()
def improve(
    table: SlotOptions,
    price_cumulative_SH: F8,
    urgency_J: F8,
    rounds: int,
    temperature_usd: float,
    generator: np.random.Generator,
    free_ST: I8,
    option_J: I8,
    slot_J: I8,
    value_J: F8,
) -> None:
    """Ruins and recreates: unbooks some jobs that arrive near each other, books them anew, keeps the better.

    A loss is kept with the probability of simulated annealing at a temperature that falls linearly to 0. About two
    dozen jobs are drawn out of 9 to 127 neighbours in arrival, all unbooked ones among these with them.
    Source: Schrimpf et al. 2000, "Record breaking optimization results using the ruin and recreate principle".

    Args:
        table: Options.
        price_cumulative_SH: Running integral of lambda, USD per GPU-hour x s.
        urgency_J: Jobs of more urgency tend to be booked first; above 0.
        rounds: Number of tries.
        temperature_usd: Temperature at the first try, USD.
        generator: Random numbers.
        free_ST: Free GPUs, updated.
        option_J: Booked option or -1, updated.
        slot_J: Booked slot, updated.
        value_J: Value of the booking, USD, updated.
    """
    jobs = len(option_J)
    drawn, keys = np.empty(jobs, dtype=np.int64), np.empty(jobs)
    for trial in range(rounds):
        centre = int(generator.random() * jobs)
        reach = 4 + int(generator.random() * 60)
        scale = 1.1 * generator.random()
        count = 0
        for j in range(max(0, centre - reach), min(jobs, centre + reach + 1)):
            if generator.random() * reach < 12.0 or option_J[j] < 0:
                _insert(drawn, keys, count, j, urgency_J[j] * (0.3 + generator.random()))
                count += 1
        picked = drawn[:count]
        options, slots, values = _unbook(table, picked, free_ST, option_J, slot_J, value_J)
        book_in_order(table, price_cumulative_SH, scale, picked, free_ST, option_J, slot_J, value_J)
        allowed = temperature_usd * (1.0 - trial / rounds) * np.log(1.0 - generator.random())
        if value_J[picked].sum() >= values.sum() + allowed:
            continue
        _unbook(table, picked, free_ST, option_J, slot_J, value_J)
        for i in range(len(picked)):
            if options[i] >= 0:
                hold(table, free_ST, options[i], slots[i], 1)
                option_J[picked[i]], slot_J[picked[i]], value_J[picked[i]] = options[i], slots[i], values[i]

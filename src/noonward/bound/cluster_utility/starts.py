"""Compiled: the starts of an option that can be best, listed and valued, and the best one that fits the free GPUs.

Axes as in ``kernels``; T slots, X the listed starts of all options, M ways of ordering jobs.
"""

from __future__ import annotations

from typing import NamedTuple

from noonward.arrays import F8, I4, I8
from noonward.bound.cluster_utility.kernels import least_intensity
from noonward.bound.cluster_utility.slots import SlotOptions, start_value
from noonward.compiled import kernel
from noonward.ledger.settle import integral_between
from noonward.units import HOUR_S

CHUNK = 32
"""Slots that are compared at once."""


class Starts(NamedTuple):
    """The starts of every option next to which its priced value bends, its first and its last among them.

    Attributes:
        first_O: First listed start of every option, one more than there are options.
        slot_X: Slot.
        value_X: Value before capacity prices, USD.
        rent_X: Capacity price of the run, USD.
    """

    first_O: I8
    slot_X: I8
    value_X: F8
    rent_X: F8


class Guide(NamedTuple):
    """What the search reads of options and jobs.

    Attributes:
        starts: Listed starts.
        price_cumulative_SH: Running integral of lambda, USD per GPU-hour x s.
        most_usd_O: Largest value of a listed start, USD; -inf without one.
        rent_usd_O: Least capacity price of a listed start, USD.
        most_usd_J: Largest value of the job, USD, at least 0.
        priced_usd_J: Best value after capacity prices, USD, at least 0.
        weight_MJ: Weights by which jobs are ordered, a row a way of ordering; above 0.
        ready_J: First slot at or after the arrival; ascending.
        reach_J: Slot by which this job and all before it have ended, wherever they start; ascending.
    """

    starts: Starts
    price_cumulative_SH: F8
    most_usd_O: F8
    rent_usd_O: F8
    most_usd_J: F8
    priced_usd_J: F8
    weight_MJ: F8
    ready_J: I8
    reach_J: I8


@kernel(allocates=False)
def _leaving(table: SlotOptions, option: int, slot: int) -> float:
    """Returns the mean intensity of both ends at the best departure for a start; 0 where nothing migrates."""
    if table.move_kwh_O[option] <= 0:
        return 0.0
    from_s = table.ready_O[option] * table.slot_s
    to_s = (slot - table.travel_O[option]) * table.slot_s
    return float(least_intensity(table.carbon_SH, table.home_O[option], table.site_O[option], from_s, to_s))


@kernel(allocates=False)
def value_and_rent(table: SlotOptions, price_cumulative_SH: F8, option: int, slot: int) -> tuple[float, float]:
    """Returns what a start earns before capacity prices, and its capacity price, USD."""
    value = start_value(table, option, slot, _leaving(table, option, slot))
    start_s = slot * table.slot_s
    price_H = price_cumulative_SH[table.site_O[option]]
    held = integral_between(price_H, start_s, start_s + table.run_s_O[option], HOUR_S)
    return value, table.gpus_O[option] * held / HOUR_S


@kernel(allocates=False)
def _bends(table: SlotOptions, option: int, slot: int) -> bool:
    """Returns whether a start is an option's first or last, or lies next to one at which start or end crosses an hour.

    So does one at which the last departure crosses an hour.
    """
    if slot == table.low_O[option] or slot == table.high_O[option]:
        return True
    start_s, run_s, slot_s = slot * table.slot_s, table.run_s_O[option], table.slot_s
    if int(start_s / HOUR_S) != int((start_s - slot_s) / HOUR_S):
        return True
    leave_s = (slot - table.travel_O[option]) * slot_s
    if int(leave_s / HOUR_S) != int((leave_s - slot_s) / HOUR_S):
        return True
    hour = int((start_s + run_s) / HOUR_S)
    return hour != int((start_s - slot_s + run_s) / HOUR_S) or hour != int((start_s + slot_s + run_s) / HOUR_S)


@kernel(allocates=False)
def count_starts(table: SlotOptions, count_O: I8) -> None:
    """Counts the starts to be listed of every option."""
    for o in range(len(count_O)):
        count_O[o] = 0
        for slot in range(table.low_O[o], table.high_O[o] + 1):
            if _bends(table, o, slot):
                count_O[o] += 1


@kernel(allocates=False)
def fill_starts(table: SlotOptions, price_cumulative_SH: F8, starts: Starts) -> None:
    """Lists the starts, ascending within an option, and values them."""
    for o in range(len(table.low_O)):
        at = starts.first_O[o]
        for slot in range(table.low_O[o], table.high_O[o] + 1):
            if _bends(table, o, slot):
                starts.slot_X[at] = slot
                starts.value_X[at], starts.rent_X[at] = value_and_rent(table, price_cumulative_SH, o, slot)
                at += 1


@kernel(allocates=False)
def first_taken(free_T: I4, from_slot: int, until: int, gpus: int) -> int:
    """Returns the first slot in ``[from_slot, until)`` with fewer free GPUs, or ``until``."""
    t = from_slot
    while t + CHUNK <= until:
        taken = False
        for u in range(t, t + CHUNK):  # without a break, so that it compares several at once
            taken |= free_T[u] < gpus
        if taken:
            break
        t += CHUNK
    while t < until and free_T[t] >= gpus:
        t += 1
    return t


@kernel(allocates=False)
def last_taken(free_T: I4, from_slot: int, until: int, gpus: int) -> int:
    """Returns the last slot in ``[from_slot, until)`` with fewer free GPUs, or the slot before ``from_slot``."""
    t = until
    while t - CHUNK >= from_slot:
        taken = False
        for u in range(t - CHUNK, t):
            taken |= free_T[u] < gpus
        if taken:
            break
        t -= CHUNK
    while t > from_slot and free_T[t - 1] >= gpus:
        t -= 1
    return t - 1


@kernel(allocates=False)
def fitting(free_T: I4, gpus: int, length: int, begin: int, high: int) -> tuple[int, int]:
    """Returns the next stretch of starts of a run that fits the free GPUs, (first, last).

    Args:
        free_T: Free GPUs per slot instant.
        gpus: Gang.
        length: Slot instants the run covers.
        begin: First start to look at.
        high: Last start.

    Returns:
        The stretch; a first start above ``high`` where there is none.
    """
    known = begin  # the slots from begin to here are free
    while begin <= high:
        taken = last_taken(free_T, known, begin + length, gpus)
        if taken < known:
            return begin, first_taken(free_T, begin + length, high + length, gpus) - length
        known, begin = begin + length, taken + 1
    return begin, begin


@kernel(allocates=False)
def best_start(
    table: SlotOptions, guide: Guide, scale: float, free_T: I4, option: int, above_usd: float
) -> tuple[int, float, float]:
    """Finds an option's best start that fits the free GPUs, capacity priced at ``scale x lambda``.

    Valued are the listed starts and both ends of every stretch of starts that fit.

    Args:
        table: Options.
        guide: What is known of them.
        scale: Factor on lambda.
        free_T: Free GPUs of the option's site.
        option: Option.
        above_usd: Priced value that it must exceed, USD.

    Returns:
        (slot, value before prices in USD, priced value in USD), slot -1 where there is none.
    """
    starts = guide.starts
    gpus, length, high = table.gpus_O[option], table.slots_O[option], table.high_O[option]
    x, end_x = starts.first_O[option], starts.first_O[option + 1]
    chosen, usd, best = -1, 0.0, above_usd
    begin, last = fitting(free_T, gpus, length, table.low_O[option], high)
    while begin <= high:
        while x < end_x and starts.slot_X[x] < begin:
            x += 1
        if x == end_x or starts.slot_X[x] > begin:
            value, rent = value_and_rent(table, guide.price_cumulative_SH, option, begin)
            if value - scale * rent > best:
                chosen, usd, best = begin, value, value - scale * rent
        at_last = False
        while x < end_x and starts.slot_X[x] <= last:
            priced = starts.value_X[x] - scale * starts.rent_X[x]
            if priced > best:
                chosen, usd, best = starts.slot_X[x], starts.value_X[x], priced
            at_last = starts.slot_X[x] == last
            x += 1
        if last > begin and not at_last:
            value, rent = value_and_rent(table, guide.price_cumulative_SH, option, last)
            if value - scale * rent > best:
                chosen, usd, best = last, value, value - scale * rent
        begin, last = fitting(free_T, gpus, length, last + length + 1, high)
    return chosen, usd, best

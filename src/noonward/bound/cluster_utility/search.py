"""Compiled search for a schedule of more value: jobs made room for by ejecting others, and ruin and recreate.

Sources: Glover 1996, "Ejection chains, reference structures and alternating path methods"; Christiaens and Vanden
Berghe 2020, "Slack induction by string removals". Axes as in ``starts``; I the picked jobs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.booking import Bookings, book_best, change, put, take_out
from noonward.bound.cluster_utility.slots import SlotOptions
from noonward.bound.cluster_utility.starts import Guide, first_taken, value_and_rent
from noonward.compiled import kernel
from noonward.units import HOUR_S

REWEIGHED = 256
"""Tries after which the jobs' losses are read again."""
MOST_EJECTED = 120
"""Most jobs that make room for one."""
KEPT_PLACE = 0.3
"""Probability with which a job may also be moved within the option that it has."""
EJECTION = 0.7
"""Share of the tries that make room for one job; the others ruin the neighbours in time of a job."""
RUINED = 6.0
"""Mean number of jobs that such a try unbooks."""
BLINK = 0.01
"""Probability of passing over an option when a job is booked again."""
LEAST_LOSS_USD = 1e-6
"""What every job's booking counts as lacking at least, so that each may be drawn, USD."""
LEAST_GAIN_USD = 1e-9
"""Gain from which bookings count as better than the best, USD."""
LARGEST_SCALE = 1.1
"""Capacity is priced at a factor on lambda between 0 and this."""


class Room(NamedTuple):
    """Arrays that the search works in, an entry a job.

    Attributes:
        picked: Jobs of a try.
        near: Jobs that may be picked.
        keys: Keys that jobs are ordered by.
        loss_J: Running sums of what the jobs' bookings lack of their best priced values, USD.
        option_I: Options of the picked jobs before the try, or -1.
        slot_I: Their slots.
        value_I: Their values, USD.
    """

    picked: I8
    near: I8
    keys: F8
    loss_J: F8
    option_I: I8
    slot_I: I8
    value_I: F8

    @classmethod
    def of(cls, jobs: int) -> Room:
        """Returns room for a number of jobs."""
        whole, real = np.empty((4, jobs), dtype=np.int64), np.empty((3, jobs))
        return cls(whole[0], whole[1], real[0], real[1], whole[2], whole[3], real[2])


@kernel(allocates=False)
def _losses(table: SlotOptions, guide: Guide, books: Bookings, total_J: F8) -> None:
    """Writes running sums of what the jobs' bookings lack of their best priced values, USD."""
    sum_usd = 0.0
    for j in range(len(total_J)):
        priced, o = 0.0, books.option_J[j]
        if o >= 0:
            _, rent = value_and_rent(table, guide.price_cumulative_SH, o, books.slot_J[j])
            priced = books.value_J[j] - rent
        sum_usd += max(0.0, guide.priced_usd_J[j] - priced) + LEAST_LOSS_USD
        total_J[j] = sum_usd


@kernel(allocates=False)
def _place(
    table: SlotOptions, guide: Guide, books: Bookings, job: int, generator: np.random.Generator
) -> tuple[int, int]:
    """Draws a place for a job, whether it is free or not: one of the best after capacity prices, (option, slot).

    The best of a random half of the listed starts, and of one random start an option; the options' values are taken at
    random factors near 1. Returns option -1 where the job has none worth running.
    """
    chosen, at, best, usd = -1, 0, -np.inf, 0.0
    starts = guide.starts
    for o in range(table.first_J[job], table.first_J[job + 1]):
        low, high = table.low_O[o], table.high_O[o]
        if high < low or (o == books.option_J[job] and generator.random() >= KEPT_PLACE):
            continue
        factor = 0.9 + 0.2 * generator.random()
        slot = low + int(generator.random() * (high - low + 1))
        value, rent = value_and_rent(table, guide.price_cumulative_SH, o, slot)
        if generator.random() < 0.5 and factor * value - rent > best:
            chosen, at, best, usd = o, slot, factor * value - rent, value
        for x in range(starts.first_O[o], starts.first_O[o + 1]):
            priced = factor * starts.value_X[x] - starts.rent_X[x]
            if priced > best and generator.random() < 0.5:
                chosen, at, best, usd = o, starts.slot_X[x], priced, starts.value_X[x]
    if usd <= 0.0:
        chosen = -1
    return chosen, at


@kernel(allocates=False)
def _make_room(
    table: SlotOptions,
    guide: Guide,
    books: Bookings,
    option: int,
    slot: int,
    generator: np.random.Generator,
    room: Room,
) -> int:
    """Picks jobs that make room for a run, small ones rather than large ones, at random.

    Args:
        table: Options.
        guide: What is known of them.
        books: Bookings; as they were, on return.
        option: Option of the run.
        slot: Its start.
        generator: Random numbers.
        room: Its ``picked`` holds the run's job at position 0, which counts as unbooked; the jobs picked are written
            behind it.

    Returns:
        How many jobs were picked, with the run's own; 0 where ``MOST_EJECTED``, or all in the way, do not suffice.
    """
    picked, near, keys = room.picked, room.near, room.keys
    site, end = table.site_O[option], slot + table.slots_O[option]
    free_T, gpus = books.free_ST[site], table.gpus_O[option]
    own = books.option_J[picked[0]]
    if own >= 0:
        change(table, books.free_ST, own, books.slot_J[picked[0]], table.gpus_O[own])
    close = 0
    first, until = np.searchsorted(guide.reach_J, slot), np.searchsorted(guide.ready_J, end)
    for j in range(first, until):
        if books.site_J[j] == site and books.slot_J[j] < end and books.end_J[j] > slot and j != picked[0]:
            o = books.option_J[j]
            near[close], keys[close] = j, table.gpus_O[o] * table.slots_O[o] * generator.random()
            close += 1
    count, t = 1, first_taken(free_T, slot, end, gpus)
    while t < end and count <= MOST_EJECTED:
        least, which = np.inf, -1
        for i in range(close):
            if keys[i] < least and books.slot_J[near[i]] <= t and books.end_J[near[i]] > t:
                least, which = keys[i], i
        if which < 0:  # no job is in the way: the GPUs are withheld
            break
        j = near[which]
        keys[which] = np.inf
        change(table, books.free_ST, books.option_J[j], books.slot_J[j], table.gpus_O[books.option_J[j]])
        picked[count] = j
        count += 1
        t = first_taken(free_T, t, end, gpus)
    for i in range(count):
        o = books.option_J[picked[i]]
        if o >= 0:
            change(table, books.free_ST, o, books.slot_J[picked[i]], -table.gpus_O[o])
    return count if t >= end else 0


@kernel(allocates=False)
def _neighbours(
    table: SlotOptions, guide: Guide, books: Bookings, generator: np.random.Generator, picked: I8, near: I8
) -> int:
    """Picks a few jobs that run near a time at which a random job runs; returns how many."""
    jobs = len(books.option_J)
    centre = int(generator.random() * jobs)
    o = books.option_J[centre]
    slot = guide.ready_J[centre]
    if o >= 0:
        slot = books.slot_J[centre] + int(generator.random() * table.slots_O[o])
    width = int((600.0 + 4800.0 * generator.random()) / table.slot_s)
    close = 0
    first, until = np.searchsorted(guide.reach_J, slot - width), np.searchsorted(guide.ready_J, slot + width)
    for j in range(first, until):
        if books.site_J[j] >= 0 and books.slot_J[j] < slot + width and books.end_J[j] > slot - width:
            near[close] = j
            close += 1
    share = 2.0 * RUINED * generator.random() / max(close, 1)
    count = 0
    for i in range(close):
        if generator.random() < share:
            picked[count] = near[i]
            count += 1
    return count


@kernel(allocates=False)
def _add_unbooked(guide: Guide, books: Bookings, slot: int, end: int, picked: I8, count: int) -> int:
    """Adds the jobs that are not booked and could run in some slots; returns how many are picked then."""
    first, until = np.searchsorted(guide.reach_J, slot), np.searchsorted(guide.ready_J, end)
    for j in range(first, until):
        if books.option_J[j] < 0 and guide.priced_usd_J[j] > 0.0 and j != picked[0]:
            picked[count] = j
            count += 1
    return count


@kernel(allocates=False)
def _order(weight_J: F8, generator: np.random.Generator, picked: I8, from_position: int, count: int, keys: F8) -> None:
    """Orders picked jobs by weight x a random factor, largest first."""
    for i in range(from_position, count):
        job, key, k = picked[i], weight_J[picked[i]] * (0.3 + generator.random()), i
        while k > from_position and keys[k - 1] < key:
            keys[k], picked[k] = keys[k - 1], picked[k - 1]
            k -= 1
        keys[k], picked[k] = key, job


@kernel(allocates=False)
def _rebook(
    table: SlotOptions,
    guide: Guide,
    generator: np.random.Generator,
    books: Bookings,
    picked: I8,
    from_position: int,
    count: int,
    scale: float,
    least_usd: float,
) -> bool:
    """Books picked jobs again, and returns whether their value reaches ``least_usd``; stops once it cannot any more."""
    hope_usd = 0.0
    for i in range(count):
        j = picked[i]
        hope_usd += books.value_J[j] if i < from_position else guide.most_usd_J[j]
    for i in range(from_position, count):
        if hope_usd < least_usd:
            return False
        j = picked[i]
        book_best(table, guide, scale, BLINK, generator, books, j, -1)
        hope_usd += books.value_J[j] - guide.most_usd_J[j]
    return hope_usd >= least_usd


@kernel(allocates=False)
def _pick(
    table: SlotOptions, guide: Guide, generator: np.random.Generator, books: Bookings, room: Room
) -> tuple[int, int, int]:
    """Picks the jobs of a try.

    Args:
        table: Options.
        guide: What is known of them.
        generator: Random numbers.
        books: Bookings.
        room: Its ``picked`` receives the jobs; its ``loss_J`` holds running sums of losses.

    Returns:
        (how many jobs, option and slot that the first of them is to be booked at; option -1 where it is booked again
        like the others). No jobs where there is nothing to try.
    """
    picked = room.picked
    if generator.random() < EJECTION:
        drawn = np.searchsorted(room.loss_J, generator.random() * room.loss_J[-1])
        picked[0] = min(drawn, len(books.option_J) - 1)
        option, slot = _place(table, guide, books, picked[0], generator)
        count = _make_room(table, guide, books, option, slot, generator, room) if option >= 0 else 0
        if count > 0:
            count = _add_unbooked(guide, books, slot, slot + table.slots_O[option], picked, count)
        return count, option, slot
    count = _neighbours(table, guide, books, generator, picked, room.near)
    if count > 0:
        slot = books.slot_J[picked[0]]
        count = _add_unbooked(guide, books, slot, slot + int(HOUR_S / table.slot_s), picked, count)
    return count, -1, 0


@kernel(allocates=False)
def _remember(books: Bookings, best: Bookings) -> None:
    """Copies the bookings, their free GPUs apart."""
    for j in range(len(books.option_J)):
        best.option_J[j], best.slot_J[j], best.value_J[j] = books.option_J[j], books.slot_J[j], books.value_J[j]


@kernel(allocates=False)
def improve(
    table: SlotOptions,
    guide: Guide,
    first: int,
    last: int,
    tries: int,
    tolerance_usd: float,
    enough_usd: float,
    generator: np.random.Generator,
    books: Bookings,
    best: Bookings,
    room: Room,
) -> None:
    """Searches for bookings of more value, try by try, from the first to before the last of them.

    Most tries draw a job by what its booking lacks of its best priced value, book it at a place that is good at the
    capacity prices, unbook the jobs in the way and book these again. The others unbook some jobs that run near each
    other and book them again. A loss up to a random part of a tolerance is kept; the tolerance falls to 0.

    Args:
        table: Options.
        guide: What is known of them.
        first: First try of this call.
        last: Try before which this call ends, at most ``tries``.
        tries: Number of tries in all.
        tolerance_usd: Tolerance at the first try of all, USD.
        enough_usd: Value at which the search ends, USD.
        generator: Random numbers.
        books: Bookings, updated.
        best: The best bookings so far, at first the same ones; options, slots and values are replaced by better ones.
        room: Room to work in.
    """
    picked, weight_MJ = room.picked, guide.weight_MJ
    total_usd, best_usd = books.value_J.sum(), best.value_J.sum()
    for trial in range(first, last):
        if best_usd >= enough_usd:
            break
        if trial == first or trial % REWEIGHED == 0:
            _losses(table, guide, books, room.loss_J)
        count, option, slot = _pick(table, guide, generator, books, room)
        placed = 1 if option >= 0 else 0
        _order(weight_MJ[int(generator.random() * len(weight_MJ))], generator, picked, placed, count, room.keys)
        old_usd = 0.0
        for i in range(count):
            j = picked[i]
            room.option_I[i], room.slot_I[i], room.value_I[i] = books.option_J[j], books.slot_J[j], books.value_J[j]
            old_usd += books.value_J[j]
            take_out(table, books, j)
        if count > 0 and placed == 1:
            value, _ = value_and_rent(table, guide.price_cumulative_SH, option, slot)
            put(table, books, picked[0], option, slot, value)
        least_usd = old_usd - tolerance_usd * (1.0 - trial / tries) * generator.random()
        scale = LARGEST_SCALE * generator.random()
        if _rebook(table, guide, generator, books, picked, placed, count, scale, least_usd):
            total_usd -= old_usd
            for i in range(count):
                total_usd += books.value_J[picked[i]]
            if total_usd > best_usd + LEAST_GAIN_USD:
                best_usd = total_usd
                _remember(books, best)
        else:
            for i in range(count):
                take_out(table, books, picked[i])
            for i in range(count):
                if room.option_I[i] >= 0:
                    put(table, books, picked[i], room.option_I[i], room.slot_I[i], room.value_I[i])

"""Compiled booking of jobs one after the other, each at the best start that fits.

A booking holds a gang at the slot instants its run covers, so that integer GPUs never exceed a site's at any instant
(starts, the only moments at which use rises, are slot instants). Axes as in ``starts``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noonward.arrays import F8, I4, I8
from noonward.bound.cluster_utility.slots import SlotOptions
from noonward.bound.cluster_utility.starts import Guide, best_start
from noonward.compiled import kernel


class Bookings(NamedTuple):
    """Bookings under way.

    Attributes:
        free_ST: Free GPUs per site and slot instant.
        option_J: Booked option, or -1.
        slot_J: Slot of the start.
        value_J: Value of the booking, USD; 0 without one.
        site_J: Site, or -1.
        end_J: Slot after the last that the run covers.
    """

    free_ST: I4
    option_J: I8
    slot_J: I8
    value_J: F8
    site_J: I8
    end_J: I8

    @classmethod
    def empty(cls, free_ST: I4, jobs: int) -> Bookings:
        """Returns bookings of no job."""
        return cls(
            free_ST=free_ST.copy(),
            option_J=np.full(jobs, -1, dtype=np.int64),
            slot_J=np.zeros(jobs, dtype=np.int64),
            value_J=np.zeros(jobs),
            site_J=np.full(jobs, -1, dtype=np.int64),
            end_J=np.zeros(jobs, dtype=np.int64),
        )

    def copied(self) -> Bookings:
        """Returns the same bookings in arrays of their own."""
        return Bookings(
            self.free_ST.copy(), self.option_J.copy(), self.slot_J.copy(), self.value_J.copy(), self.site_J.copy(),
            self.end_J.copy(),
        )  # fmt: skip


@kernel(allocates=False)
def change(table: SlotOptions, free_ST: I4, option: int, slot: int, gpus: int) -> None:
    """Adds GPUs to the free ones while a booking would run."""
    free_T = free_ST[table.site_O[option]]
    for t in range(slot, slot + table.slots_O[option]):
        free_T[t] += gpus


@kernel(allocates=False)
def put(table: SlotOptions, books: Bookings, job: int, option: int, slot: int, value: float) -> None:
    """Books a job."""
    books.option_J[job], books.slot_J[job], books.value_J[job] = option, slot, value
    books.site_J[job], books.end_J[job] = table.site_O[option], slot + table.slots_O[option]
    change(table, books.free_ST, option, slot, -table.gpus_O[option])


@kernel(allocates=False)
def take_out(table: SlotOptions, books: Bookings, job: int) -> None:
    """Unbooks a job, if it is booked."""
    option = books.option_J[job]
    if option >= 0:
        change(table, books.free_ST, option, books.slot_J[job], table.gpus_O[option])
        books.option_J[job], books.value_J[job], books.site_J[job] = -1, 0.0, -1


@kernel(allocates=False)
def book_best(
    table: SlotOptions,
    guide: Guide,
    scale: float,
    blink: float,
    generator: np.random.Generator,
    books: Bookings,
    job: int,
    only: int,
) -> None:
    """Books a job at its best, if it has a start that fits at a priced value above 0.

    Args:
        table: Options.
        guide: What is known of them.
        scale: Factor on lambda.
        blink: Probability of passing over an option.
        generator: Random numbers; not drawn from where ``blink`` is 0.
        books: Bookings, updated.
        job: Job, not booked.
        only: The one option to look at, whatever its priced value; -1: all.
    """
    chosen, at, usd, best = -1, 0, 0.0, 0.0
    if only >= 0:
        best = -np.inf
    for o in range(table.first_J[job], table.first_J[job + 1]):
        if (only >= 0 and o != only) or guide.most_usd_O[o] - scale * guide.rent_usd_O[o] <= best:
            continue
        if blink > 0.0 and generator.random() < blink:
            continue
        slot, value, priced = best_start(table, guide, scale, books.free_ST[table.site_O[o]], o, best)
        if slot >= 0:
            chosen, at, usd, best = o, slot, value, priced
    if chosen >= 0:
        put(table, books, job, chosen, at, usd)


@kernel(allocates=False)
def book_listed(
    table: SlotOptions,
    guide: Guide,
    scale: float,
    order_J: I8,
    only_J: I8,
    generator: np.random.Generator,
    books: Bookings,
) -> None:
    """Books the jobs of ``order_J`` that are not booked yet, one after the other, each at its best.

    ``only_J`` holds the one option to look at, or -1 for all.
    """
    for j in order_J:
        if books.option_J[j] < 0:
            book_best(table, guide, scale, 0.0, generator, books, j, only_J[j])

"""Starts with room in the bookings of bid prices: the best of a job, and the first of one that is due.

Slots and columns count as in ``bookings``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.arrays import I8, Records
from noonward.compiled import kernel
from noonward.decision.cluster.value import run_seconds, travel_cost_usd
from noonward.decision.cluster.view import ClusterView
from noonward.schedule.cluster.booking import first_slot
from noonward.schedule.cluster.capacity_prices import (
    LONGEST_H,
    Prices,
    best_at,
    end_of_starts_s,
    start_range_s,
    start_usd,
)
from noonward.schedule.cluster.kinds import Kinds, member, sites_of
from noonward.units import HOUR_S

REFUSED: Final = -1
"""Booked site of a job that does not pay at these prices."""
SAME_USD: Final = 1e-9
"""Values nearer than this may be equal but for rounding, USD."""


@kernel(inline=True, allocates=False)
def run_slots(view: ClusterView, job: int, site: int) -> int:
    """Returns the slots of a run."""
    return int(np.ceil(min(run_seconds(view, job, site), LONGEST_H * HOUR_S) / view.run_1[0].slot_s))


@kernel(inline=True, allocates=False)
def free_slots(booked_ST: I8, site: int, slot: int, most: int, room: int) -> int:
    """Returns how many slots on end, from a column of the books on and up to a number, have so few GPUs booked."""
    until, last = slot, min(slot + most, booked_ST.shape[1])
    while until < last and booked_ST[site, until] <= room:
        until += 1
    return until - slot


@kernel(inline=True, allocates=False)
def _best_room_at(
    view: ClusterView,
    prices: Prices,
    option: Any,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    reserve: float,
    job: int,
    s: int,
    d: int,
    least: float,
) -> tuple[float, int]:
    """Returns (value USD, slot) of a job's best start at a site with room in the bookings, as in ``bookings``.

    Among the starts with room, the value is linear between hours' turns of start or end, so it is reckoned next to
    those and where room begins and ends. Where no value exceeds ``least``, that is the value.
    """
    slot_s = view.run_1[0].slot_s
    per_hour = int(np.round(HOUR_S / slot_s))
    best, best_slot = least, 0
    _, latest_s = start_range_s(view, job, s, d, view.run_1[0].now_s, last_s, reserve)
    first, slots = first_slot(view, job, s, d) - slot_0, run_slots(view, job, d)
    last = int(np.floor(min(latest_s / slot_s - slot_0, float(prices.price_SH.shape[1] * per_hour))))
    room = view.site_S[d].gpus - option.gpus
    until_turn = (1.0 - option.run_h % 1.0) * per_hour  # starts so long after the turn of an hour end at one
    turn = int(until_turn) % per_hour
    full, seen = first - 1, first
    for slot in range(first, last + 1):
        if full >= slot:
            continue
        while seen < slot + slots:
            if booked_ST[d, seen] > room:
                full = seen
            seen += 1
        if full >= slot:
            continue
        within = slot % per_hour
        kink = within == 0 or within == turn or within == (turn + 1) % per_hour
        edge = slot == full + 1 or slot == last or booked_ST[d, slot + slots] > room
        if not (kink or edge):
            continue
        value = start_usd(option, prices.paid_SR, prices.energy_SR, d, slot / per_hour)
        if value > best:
            best, best_slot = value, slot_0 + slot
    return best, best_slot


@kernel(inline=True, allocates=False)
def _roomiest(sites: Records, kinds: Kinds, booked_ST: I8, column: int, x: int, begin: int, s: int, home: int) -> int:
    """Returns the number, among the sites of an option, of the one with most GPUs not booked in a column of the books.

    Of several the first counts, beginning with a number.
    """
    most, number = -1, begin
    for k in range(begin, begin + sites_of(kinds, x)):
        d = member(kinds, x, k, -1, s, home)
        if d >= 0 and sites[d].gpus - booked_ST[d, column] > most:
            most, number = sites[d].gpus - booked_ST[d, column], k
    return number


@kernel(allocates=False)
def best_room(
    view: ClusterView,
    kinds: Kinds,
    prices: Prices,
    option_X: Records,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    reserve: float,
    job: int,
    s: int,
) -> tuple[float, int, int]:
    """Returns (value USD, site, slot) of a job's best start with room in the bookings, at some prices.

    The option that is worth most whatever the room comes first; of the others, in their order, only those that may be
    worth as much as what was found are looked at. Of equal values the first option's counts. The sites of one kind
    are looked at one after the other, beginning with the one that has most room at the best start, until one has room
    for the whole run.
    """
    hours, sites, home = prices.price_SH.shape[1], view.site_S, view.home_I[view.job_J[job].origin]
    promising, most = -1, 0.0
    for x in range(option_X.shape[0]):
        option_X[x].most_usd = -np.inf
        if option_X[x].earliest_h > option_X[x].latest_h:
            continue
        value, _ = best_at(sites, hours, prices.paid_SR, prices.energy_SR, option_X[x], 0, 0.0, 0.0)
        if value > 0.0:
            option_X[x].most_usd = value
        if value > most:
            promising, most = x, value
    best, best_x, best_site, best_slot = 0.0, option_X.shape[0], REFUSED, 0
    for i in range(-1, option_X.shape[0] if promising >= 0 else -1):
        x = promising if i < 0 else i
        option = option_X[x]
        if option.most_usd < best - SAME_USD or (i == promising):
            continue
        first = 0
        if sites_of(kinds, x) > 1:
            _, start_h = best_at(sites, hours, prices.paid_SR, prices.energy_SR, option, 0, 0.0, 0.0)
            slot = int(np.ceil(start_h * np.round(HOUR_S / view.run_1[0].slot_s)))
            column = max(slot, first_slot(view, job, s, option.site) - slot_0)
            first = _roomiest(sites, kinds, booked_ST, column, x, view.job_J[job].serial, s, home)
        for k in range(sites_of(kinds, x)):
            d = member(kinds, x, first + k, option.site, s, home)
            if d < 0:
                continue
            value, slot = _best_room_at(view, prices, option, booked_ST, slot_0, last_s, reserve, job, s, d, 0.0)
            if value > best or (value == best and value > 0.0 and x < best_x):
                best, best_x, best_site, best_slot = value, x, d, slot
            if best >= option.most_usd - SAME_USD:
                break
    return best, best_site, best_slot


@kernel(inline=True, allocates=False)
def pays_to_move(view: ClusterView, job: int, s: int, d: int) -> bool:
    """Returns whether a journey is to be weighed: it costs something, and jobs may be late.

    Where late jobs are dropped, jobs leave as soon as they are booked elsewhere (docs/lab/fine-tuning.md).
    """
    if view.run_1[0].late_until_s == -np.inf:
        return False
    return travel_cost_usd(view, job, s, d) > travel_cost_usd(view, job, d, d)


@kernel(inline=True, allocates=False)
def _first_room_at(
    view: ClusterView, option: Any, booked_ST: I8, slot_0: int, until_s: float, reach: int, job: int, s: int, d: int
) -> int:
    """Returns the first start with room at a site, late or not, from ``slot_0`` on; -1 if it has none until a time."""
    latest = int(min(np.floor(until_s / view.run_1[0].slot_s) - slot_0, float(reach)))
    slots, room = run_slots(view, job, d), view.site_S[d].gpus - option.gpus
    start = first_slot(view, job, s, d) - slot_0
    seen = start
    while start <= latest and seen < start + slots:
        if booked_ST[d, seen] > room:
            start = seen + 1
        seen += 1
    return start if start <= latest else -1


@kernel(inline=True, allocates=False)
def _late_h(view: ClusterView, job: int, slot: int) -> float:
    """Returns how late a start is, h."""
    return max(0.0, slot * view.run_1[0].slot_s - view.job_J[job].deadline_s) / HOUR_S


@kernel(inline=True, allocates=False)
def first_room(
    view: ClusterView,
    kinds: Kinds,
    prices: Prices,
    option_X: Records,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    job: int,
    s: int,
) -> tuple[int, int]:
    """Returns (site, slot) of the first start with room of a job, late or not; the site of most value among equals.

    A journey must be worth what it costs, also for a job that has made one before: where the job can start at the site
    at which it waits, another one is taken only if the start there is worth more, the price of the time that the job
    would be late included, or if it is in time there alone.
    """
    slot_s, home = view.run_1[0].slot_s, view.home_I[view.job_J[job].origin]
    per_hour = int(np.round(HOUR_S / slot_s))
    reach = prices.price_SH.shape[1] * per_hour
    late_usd = view.run_1[0].late_usd_per_gpu_hour * view.job_J[job].gpus_min
    here, here_usd, here_late_h = -1, 0.0, 0.0
    for x in range(option_X.shape[0]):
        if option_X[x].site == s and option_X[x].earliest_h <= option_X[x].latest_h:
            until_s = end_of_starts_s(view, job, s, last_s)
            here = _first_room_at(view, option_X[x], booked_ST, slot_0, until_s, reach, job, s, s)
            if here >= 0:
                here_usd = start_usd(option_X[x], prices.paid_SR, prices.energy_SR, s, here / per_hour)
                here_late_h = _late_h(view, job, slot_0 + here)
    most, best_site, best_slot = -np.inf, REFUSED, reach + 1
    for x in range(option_X.shape[0]):
        option = option_X[x]
        if option.earliest_h > option.latest_h:
            continue
        for k in range(sites_of(kinds, x)):
            d = member(kinds, x, k, option.site, s, home)
            if d < 0:
                continue
            until_s = end_of_starts_s(view, job, d, last_s)
            start = _first_room_at(view, option, booked_ST, slot_0, until_s, min(reach, best_slot), job, s, d)
            if start < 0:
                continue
            value = start_usd(option, prices.paid_SR, prices.energy_SR, d, start / per_hour)
            if here >= 0 and pays_to_move(view, job, s, d):
                late_h = _late_h(view, job, slot_0 + start)
                in_time = late_h == 0.0 and here_late_h > 0.0 and value > 0.0
                if not in_time and value - here_usd <= late_usd * (late_h - here_late_h):
                    continue
            if start < best_slot or value > most:
                most, best_site, best_slot = value, d, start
    return best_site, slot_0 + best_slot

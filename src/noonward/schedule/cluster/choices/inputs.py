"""What the scoring net is shown of each choice of a question: values, plans, room, cost, and the state of the fleet."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F4, F8
from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import first_start_s
from noonward.decision.cluster.value import gang_at, revenue_usd, run_seconds, travel_cost_usd
from noonward.decision.cluster.view import POWER_W, ClusterView, RuleMemory, fits, latest_start_s
from noonward.schedule.cluster.choices.books import entries_of, taken
from noonward.schedule.cluster.choices.layout import (
    COST,
    ENERGY,
    ENTRIES,
    ENTRY_S,
    LAST_START_S,
    PAID,
    PRICE,
    START_H,
    WINDOW_S,
)
from noonward.schedule.cluster.choices.prices import mean_of_row
from noonward.units import DAY_H, DAY_S, HOUR_S

STRIDE = 3
"""After the first hour, every so many entries of the books one is looked at as a start, and where room begins."""
NOTHING = -2.0
"""Value of a start that there is not, share of the revenue."""

TAKEN = 1.0
"""What a start that takes GPUs of others' plans is worth less before the net has learned what, share of the revenue."""

(
    EARLIEST_S,  # earliest start at the site
    LATEST_S,  # latest
    NOW,  # value of the earliest start, share of the revenue
    UNPRICED,  # the same without prices
    ANY,  # best value of a start, whatever the room
    PLANNED,  # best value of a start with room by the books
    PLANNED_S,  # that start
    LATER,  # best value of a later start with room by the books
    LATER_S,  # that start
    ROOM,  # GPUs that the books leave at the earliest start less the gang, share of the site
    KEEPS,  # 1 where the earliest start takes no GPU that others plan with
    OPTION,
) = range(12)
"""Numbers of a site in a question."""


@kernel(inline=True, allocates=False)
def _at(table_XY: F8, row: int, lead_h: float) -> float:
    """Returns a running integral at a lead."""
    hour = min(int(lead_h), table_XY.shape[1] - 2)
    below = table_XY[row, hour]
    return below + (table_XY[row, hour + 1] - below) * (lead_h - hour)


@kernel(inline=True, allocates=False)
def _watts(view: ClusterView, job: int, d: int) -> tuple[float, float]:
    """Returns the facility power of a job's run at a site, and that of its GPUs when free, W."""
    gpus, class_ = gang_at(view, job, d), view.job_J[job].class_
    level = view.oracle_SCG[d, class_, gpus]
    site = view.site_S[d]
    return site.pue * view.speed_KSCGF[POWER_W, d, class_, gpus, level], site.pue * gpus * site.free_w


@kernel(inline=True, allocates=False)
def look_at_site(view: ClusterView, memory: RuleMemory, job: int, s: int, d: int, option_X: F8) -> None:
    """Writes what a job that waits at site s can earn at site d, shares of its revenue (``OPTION`` numbers)."""
    sites, table_XY, number_P = view.site_S.shape[0], memory.table_XY, memory.number_P
    option_X[NOW] = option_X[UNPRICED] = option_X[ANY] = option_X[PLANNED] = option_X[LATER] = NOTHING
    option_X[EARLIEST_S], option_X[LATEST_S], option_X[PLANNED_S], option_X[LATER_S] = 0.0, -1.0, 0.0, 0.0
    option_X[ROOM], option_X[KEEPS] = -1.0, 0.0
    if not fits(view, job, d):
        return
    zero_s = view.run_1[0].now_s // HOUR_S * HOUR_S
    run_s = run_seconds(view, job, d)
    known_s = zero_s + (table_XY.shape[1] - 1) * HOUR_S
    earliest_s = first_start_s(view, job, s, d)
    latest_s = min(latest_start_s(view, job, d), number_P[LAST_START_S], known_s - run_s)
    if not earliest_s <= latest_s:
        return
    option_X[EARLIEST_S], option_X[LATEST_S] = earliest_s, latest_s
    gpus = gang_at(view, job, d)
    busy_w, free_w = _watts(view, job, d)
    revenue = revenue_usd(view, job, d)
    travel = travel_cost_usd(view, job, s, d)
    window_h = min((number_P[WINDOW_S] - zero_s) / HOUR_S, table_XY.shape[1] - 1.0)
    energy, paid = ENERGY * sites + d, PAID * sites + d
    charged_until = _at(table_XY, energy, max(0.0, window_h))
    length, room = entries_of(run_s), view.site_S[d].gpus - gpus
    first, last = int(earliest_s // ENTRY_S), int(latest_s // ENTRY_S)
    full, seen = first - 1, first
    option_X[ROOM] = (room - taken(view, memory, d, first)) / view.site_S[d].gpus
    reach = memory.index_XY.shape[0] + int(view.run_1[0].now_s // ENTRY_S)
    entry = first
    while entry <= last:
        while seen < min(entry + length, reach):
            if taken(view, memory, d, seen) > room:
                full = seen
            seen += 1
        if entry - first < ENTRIES or entry % STRIDE == 0 or entry == full + 1:
            start_s = max(earliest_s, entry * ENTRY_S)
            begin_h = (start_s - zero_s) / HOUR_S
            end_h = begin_h + run_s / HOUR_S
            energy_0, energy_1 = _at(table_XY, energy, begin_h), _at(table_XY, energy, end_h)
            displaced = 0.0
            if begin_h < window_h:
                displaced = (energy_1 if end_h < window_h else charged_until) - energy_0
            value = revenue - busy_w * (energy_1 - energy_0) + free_w * displaced - travel
            priced = (value - gpus * (_at(table_XY, paid, end_h) - _at(table_XY, paid, begin_h))) / revenue
            if entry == first:
                option_X[NOW], option_X[UNPRICED] = priced, value / revenue
                option_X[KEEPS] = 1.0 if full < entry else 0.0
            option_X[ANY] = max(option_X[ANY], priced)
            if full < entry:
                if priced > option_X[PLANNED]:
                    option_X[PLANNED], option_X[PLANNED_S] = priced, start_s
                if entry > first and priced > option_X[LATER]:
                    option_X[LATER], option_X[LATER_S] = priced, start_s
        entry += 1


@kernel(inline=True, allocates=False)
def _time(seconds: float) -> float:
    return np.sqrt(max(0.0, seconds) * (1.0 / DAY_S))


@kernel(inline=True, allocates=False)
def _free_ahead(view: ClusterView, memory: RuleMemory, d: int, hours: int) -> float:
    """Returns the share of a site's GPUs that the runs that have started leave some hours ahead."""
    entry = int(view.run_1[0].now_s // ENTRY_S) + hours * ENTRIES
    busy = memory.index_XY[entry % memory.index_XY.shape[0], d]
    return 1.0 - busy / view.site_S[d].gpus


@kernel(inline=True, allocates=False)
def write_question(view: ClusterView, memory: RuleMemory, job: int, s: int, option_SX: F8, x_I: F4) -> None:
    """Writes the inputs that all choices of a question share, from position 22 on."""
    record, now_s, sites = view.job_J[job], view.run_1[0].now_s, view.site_S.shape[0]
    run_s = run_seconds(view, job, s)
    left_s = memory.number_P[WINDOW_S] - now_s
    gpus, free, queue, busy_ahead, planned = 0.0, 0.0, 0.0, 0.0, 0.0
    now, planned_value, any_value, second = NOTHING, NOTHING, NOTHING, NOTHING
    row = (int(now_s // ENTRY_S) + 4) % memory.index_XY.shape[0]
    for d in range(sites):
        site = view.site_S[d]
        gpus += site.gpus
        free += site.free
        queue += site.waiting_gpus
        busy_ahead += (1.0 - _free_ahead(view, memory, d, 6)) * site.gpus
        planned += memory.index_XY[row, sites + d]
        if view.mask_NA[s, 1 + d]:
            now = max(now, option_SX[d, NOW])
        if option_SX[d, PLANNED] > planned_value:
            second, planned_value = planned_value, option_SX[d, PLANNED]
        else:
            second = max(second, option_SX[d, PLANNED])
        any_value = max(any_value, option_SX[d, ANY])
    angle = 2.0 * np.pi * (memory.number_P[START_H] + now_s / HOUR_S) / DAY_H
    x_I[22] = record.gpus_min / 16.0
    x_I[23] = _time(run_s)
    x_I[24] = _time(latest_start_s(view, job, s) - now_s)
    x_I[25] = min(2.0, max(-1.0, left_s / (2.0 * DAY_S)))
    x_I[26] = min(1.0, max(0.0, 1.0 - left_s / max(run_s, 1.0)))
    x_I[27], x_I[28] = np.sin(angle), np.cos(angle)
    x_I[29] = free / gpus
    x_I[30] = np.sqrt(queue / gpus)
    x_I[31] = np.sqrt(view.site_S[s].waiting_gpus / view.site_S[s].gpus)
    x_I[32] = now
    x_I[33] = planned_value
    x_I[34] = any_value
    x_I[35] = option_SX[s, LATER]
    x_I[36] = planned_value - second
    x_I[37] = busy_ahead / gpus
    x_I[38] = planned / gpus
    x_I[39] = mean_of_row(memory.table_XY, 4 * sites, 0, 1)
    x_I[40] = x_I[39] - mean_of_row(memory.table_XY, 4 * sites, 0, 24)
    x_I[41] = 1.0 if view.mask_NA[s, 1 + s] else 0.0


@kernel(inline=True, allocates=False)
def write_choice(view: ClusterView, memory: RuleMemory, s: int, choice: int, option_SX: F8, x_I: F4) -> float:
    """Writes the inputs of a choice, positions 0 to 21, and returns its planned value, share of the revenue.

    The planned value: of holding, that of the best start that is still to come anywhere, or 0, since a job need not
    run; of starting, that of the start; of a move, that of the best start there with room by the books.
    """
    sites, table_XY = view.site_S.shape[0], memory.table_XY
    d = s if choice == 0 else choice - 1
    option_X, site, now_s = option_SX[d], view.site_S[d], view.run_1[0].now_s
    own = choice == 1 + s
    value = option_X[NOW] - TAKEN * (1.0 - option_X[KEEPS]) if own else option_X[PLANNED]
    start_s = option_X[EARLIEST_S] if own else option_X[PLANNED_S]
    if choice == 0:
        value, start_s = option_SX[s, LATER], option_SX[s, LATER_S]
        for each in range(sites):
            if each != s and option_SX[each, LATER] > value:
                value, start_s = option_SX[each, LATER], option_SX[each, LATER_S]
        value = max(value, 0.0)
    for i in range(3):
        x_I[i] = 0.0
    x_I[0 if choice == 0 else (1 if own else 2)] = 1.0
    x_I[3] = value
    x_I[4] = option_X[NOW]
    x_I[5] = option_X[ANY]
    x_I[6] = option_X[PLANNED]
    x_I[7] = option_X[ROOM]
    x_I[8] = option_X[KEEPS]
    x_I[9] = site.free / site.gpus
    x_I[10] = np.sqrt(site.waiting_gpus / site.gpus)
    x_I[11] = _time(start_s - now_s)
    x_I[12] = _time(option_X[LATEST_S] - option_X[EARLIEST_S])
    x_I[13] = _time(option_X[EARLIEST_S] - now_s)
    x_I[14] = table_XY[COST * sites + d, 0]
    x_I[15] = x_I[14] - mean_of_row(table_XY, COST * sites + d, 0, 6)
    x_I[16] = x_I[14] - mean_of_row(table_XY, COST * sites + d, 0, 24)
    x_I[17] = _free_ahead(view, memory, d, 3)
    x_I[18] = _free_ahead(view, memory, d, 8)
    entry = int(now_s // ENTRY_S) + 1
    x_I[19] = memory.index_XY[entry % memory.index_XY.shape[0], sites + d] / site.gpus
    x_I[20] = option_X[UNPRICED]
    x_I[21] = table_XY[PRICE * sites + d, 0]
    return value


@kernel(inline=True, allocates=False)
def hide_foresight(x_I: F4) -> None:
    """Sets to zero all that the paper's state does not hold: forecasts, plans, learned prices and books."""
    x_I[3:9] = 0.0
    x_I[11] = 0.0
    x_I[15:22] = 0.0
    x_I[32:39] = 0.0
    x_I[40] = 0.0

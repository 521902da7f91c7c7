"""Compiled: the cheapest life of one job that may be stopped and resumed, at given prices.

A life is reckoned in periods, in which prices hold. Its useful time in them is charged at their prices; what stopping
and resuming takes is charged in addition, at the least price of the periods that it can touch, and fills no time. So
every life that an engine can give the job costs at least as much. Axes: P periods of one job from its earliest start to
its latest end; K numbers of full periods done; X a table of the least costs, by period, whether the part of a period is
used, state, and K.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8, U1
from noonward.compiled import kernel

NEAR = 1e-9
"""Periods of work below which two amounts count as equal."""
WAYS: Final = 4
"""Whether the open pieces of the first and the last period are used: neither, the first, the last, both."""
OFF, ON = 0, 1
STAYED, STOPPED, HEAD = 0, 1, 2
FROM_ON, FROM_OFF, FIRST, TAIL_FROM_OFF, TAIL_FROM_ON, TAIL_FIRST = 0, 1, 2, 3, 4, 5


@kernel(inline=True, allocates=False)
def _run_or_rest(
    off_K: F8,
    on_K: F8,
    off_before_K: F8,
    on_before_K: F8,
    usd: tuple[float, float, float, float],
    new_off_K: F8,
    new_on_K: F8,
) -> None:
    """Takes a period's step for some numbers of periods done: the job rests in it, or runs through it.

    Written without branches, so that several numbers are reckoned at once.

    Args:
        off_K: Least cost so far of a job that rests.
        on_K: The same of one that runs.
        off_before_K: As ``off_K``, before the period is done.
        on_before_K: As ``on_K``, before the period is done.
        usd: Cost of a stop after the period before, of a resume, and of the period; what overhead can earn in it.
        new_off_K: Written.
        new_on_K: Written.
    """
    stop, resume, cost, bonus = usd
    for k in range(len(new_off_K)):
        rests, stops = off_K[k], on_K[k] + stop
        new_off_K[k] = (stops if stops < rests else rests) - bonus
        runs_on, resumes = on_before_K[k] + cost, off_before_K[k] + resume + cost
        new_on_K[k] = (resumes if resumes < runs_on else runs_on) - bonus


@kernel(inline=True, allocates=False)
def _add_part(
    off_K: F8, on_K: F8, usd: tuple[float, float, float, float], stop: float, new_off_K: F8, new_on_K: F8
) -> None:
    """Improves a period's step by lives that use only a part of it, its beginning or its end.

    Args:
        off_K: Least cost so far of a job that rests and has not used the part.
        on_K: The same of one that runs.
        usd: Cost of a stop after the period before, of a resume, and of the part; what overhead can earn in it.
        stop: Cost of a stop after this period.
        new_off_K: Improved; what overhead can earn is taken off here.
        new_on_K: The same.
    """
    stop_before, resume, used, bonus = usd
    for k in range(len(new_off_K)):
        rests, head = new_off_K[k], on_K[k] + used + stop
        new_off_K[k] = (head if head < rests else rests) - bonus
        runs, tail = new_on_K[k], off_K[k] + resume + used
        runs = tail if tail < runs else runs
        tail = on_K[k] + stop_before + resume + used
        new_on_K[k] = (tail if tail < runs else runs) - bonus


@kernel(allocates=False)
def _split(share_P: F8, units: float, way: int) -> tuple[bool, bool, bool, int, float]:
    """Returns whether a way can make up a life: the pieces that it uses, and the full periods and the part they leave.

    Returns:
        (whether it can, first piece, last piece, full periods, part of one further period; 0 for none).
    """
    first_piece, last_piece = way % 2 == 1, way >= 2
    rest = units - first_piece * share_P[0] - last_piece * share_P[-1]
    whole = int(rest + NEAR)
    part = max(0.0, rest - whole)
    taken = (first_piece and share_P[0] >= 1.0) or (last_piece and share_P[-1] >= 1.0)  # full periods hold them
    return rest >= -NEAR and not taken, first_piece, last_piece, whole, part if part > NEAR else 0.0


@kernel(allocates=False)
def _whole_periods(
    cost_P: F8,
    resume_P: F8,
    stop_P: F8,
    bonus_P: F8,
    end_P: F8,
    share_P: F8,
    first_piece: bool,
    last_piece: bool,
    whole: int,
    part: float,
    usd_X: F8,
) -> tuple[float, int, int]:
    """Finds the least cost of ``whole`` full periods, a part of one, and the given pieces of the first and the last.

    Args:
        cost_P: Cost of running through a full period, USD.
        resume_P: Cost of a resume before the useful time of a period, USD.
        stop_P: Cost of a stop after the useful time of a period, USD.
        bonus_P: What overhead can earn at most in a period, USD, at least 0.
        end_P: Cost of an end in a period, USD.
        share_P: Share of each period that is open; below 1 only in the first and last.
        first_piece: Whether the open share of the first period is used in addition to the full periods.
        last_piece: The same of the last period; the life then ends there.
        whole: Number of full periods.
        part: Share of one further period, below 1; 0 for none.
        usd_X: Receives the least cost of each state after each period, in row p + 1 for period p. Column k + 1 is of k
            periods done.

    Returns:
        (cost in USD, last period, 1 if its use is the part at its beginning); infinite cost where there is none.
    """
    periods, need = len(cost_P), 1 if part > 0.0 else 0
    usd_X[0, :, :, :] = np.inf
    for row in range(1, len(usd_X)):
        for flag in range(need + 1):
            usd_X[row, flag, OFF, 0] = usd_X[row, flag, ON, 0] = np.inf
    best, best_p, best_head = np.inf, -1, 0
    for p in range(periods):
        old, new = usd_X[p], usd_X[p + 1]
        cost, resume, stop, bonus = share_P[p] * cost_P[p], resume_P[p], stop_P[p], bonus_P[p]
        stop_before = stop_P[p - 1] if p > 0 else 0.0
        piece = (first_piece and p == 0) or (last_piece and p == periods - 1)
        runs = piece or share_P[p] >= 1.0
        parted = need == 1 and not piece and part <= share_P[p] + NEAR
        may_begin = p == 0 or not first_piece
        least, most = max(0, whole - (periods - 1 - p)), min(whole, p + 1)
        one, other, before = least + 1, most + 2, 0 if piece else 1
        low, high = one - before, other - before
        for flag in range(need + 1):
            bonus_usd = 0.0 if flag == 1 and parted else bonus
            usd = stop_before, resume, cost if runs else np.inf, bonus_usd
            off_K, on_K, new_off_K, new_on_K = old[flag, OFF], old[flag, ON], new[flag, OFF], new[flag, ON]
            _run_or_rest(
                off_K[one:other], on_K[one:other], off_K[low:high], on_K[low:high], usd, new_off_K[one:other],
                new_on_K[one:other],
            )  # fmt: skip
            if most < whole:
                new_off_K[other] = new_on_K[other] = np.inf
        if runs and may_begin and least <= before <= most:
            new[0, ON, before + 1] = min(new[0, ON, before + 1], cost - bonus)
        if parted:
            used = part * cost_P[p]
            _add_part(
                old[0, OFF, one:other], old[0, ON, one:other], (stop_before, resume, used, bonus), stop,
                new[1, OFF, one:other], new[1, ON, one:other],
            )  # fmt: skip
            if may_begin and least == 0:
                new[1, ON, 1] = min(new[1, ON, 1], used - bonus)
            if most == whole and not last_piece and old[0, ON, whole + 1] + used + end_P[p] - bonus < best:
                best, best_p, best_head = old[0, ON, whole + 1] + used + end_P[p] - bonus, p, 1
        if (not last_piece or p == periods - 1) and most == whole and new[need, ON, whole + 1] + end_P[p] < best:
            best, best_p, best_head = new[need, ON, whole + 1] + end_P[p], p, 0
    return best, best_p, best_head


@kernel(allocates=False)
def _step_off(old: F8, flag: int, k: int, head_usd: float, stop_before: float, stop: float) -> int:
    """Returns the step by which a life came to rest in a period, having done k full ones.

    Args:
        old: Least costs before the period.
        flag: Whether it has used the part.
        k: Full periods done.
        head_usd: Cost of the part at the beginning of this period; infinite where it cannot be there.
        stop_before: Cost of a stop after the period before, USD.
        stop: Cost of a stop after this one, USD.
    """
    off, by = old[flag, OFF, k + 1], STAYED
    if old[flag, ON, k + 1] + stop_before < off:
        off, by = old[flag, ON, k + 1] + stop_before, STOPPED
    return HEAD if flag == 1 and old[0, ON, k + 1] + head_usd + stop < off else by


@kernel(allocates=False)
def _step_on(old: F8, flag: int, k: int, before: int, usd: tuple[float, float, float, float], may_begin: bool) -> int:
    """Returns the step by which a life came to run in a period, having done k full ones.

    Args:
        old: Least costs before the period.
        flag: Whether it has used the part.
        k: Full periods done.
        before: Those done before the period, if it runs through it.
        usd: Cost of a stop after the period before, of a resume, of the period, and of the part at its end; infinite
            where it cannot run through it, or the part cannot be there.
        may_begin: Whether the life may begin in it.
    """
    stop_before, resume, cost, used = usd
    on, by = old[flag, ON, before + 1] + cost, FROM_ON
    if old[flag, OFF, before + 1] + resume + cost < on:
        on, by = old[flag, OFF, before + 1] + resume + cost, FROM_OFF
    if may_begin and flag == 0 and before == 0 and cost < on:
        on, by = cost, FIRST
    if flag == 1:
        if old[0, OFF, k + 1] + resume + used < on:
            on, by = old[0, OFF, k + 1] + resume + used, TAIL_FROM_OFF
        if old[0, ON, k + 1] + stop_before + resume + used < on:
            on, by = old[0, ON, k + 1] + stop_before + resume + used, TAIL_FROM_ON
        if may_begin and k == 0 and used < on:
            by = TAIL_FIRST
    return by


@kernel(allocates=False)
def _trace(
    cost_P: F8,
    resume_P: F8,
    stop_P: F8,
    share_P: F8,
    first_piece: bool,
    last_piece: bool,
    whole: int,
    part: float,
    usd_X: F8,
    at: int,
    head: int,
    used_P: F8,
    resumed_P: U1,
    stopped_P: U1,
) -> None:
    """Writes use, resumes and stops of the life that ``_whole_periods`` found: how each least cost came about."""
    periods = len(used_P)
    state, flag, k, p = ON, 1 if part > 0.0 else 0, whole, at
    if head == 1:
        used_P[p] = part
        flag, p = 0, p - 1
    while p >= 0:
        piece = (first_piece and p == 0) or (last_piece and p == periods - 1)
        stop_before = stop_P[p - 1] if p > 0 else 0.0
        part_usd = part * cost_P[p] if not piece and part <= share_P[p] + NEAR else np.inf
        if state == OFF:
            by = _step_off(usd_X[p], flag, k, part_usd, stop_before, stop_P[p])
            if by == HEAD:
                used_P[p] = part
                stopped_P[p] = 1
                flag, state = 0, ON
            elif by == STOPPED:
                stopped_P[p - 1] = 1
                state = ON
            p -= 1
            continue
        before = k if piece else k - 1
        usd = stop_before, resume_P[p], share_P[p] * cost_P[p] if piece or share_P[p] >= 1.0 else np.inf, part_usd
        by = _step_on(usd_X[p], flag, k, before, usd, p == 0 or not first_piece)
        if by >= TAIL_FROM_OFF:
            used_P[p] = part
            flag = 0
        else:
            used_P[p] = share_P[p]
            k = before
        if by in (FIRST, TAIL_FIRST):
            return
        if by == TAIL_FROM_ON:
            stopped_P[p - 1] = 1
        elif by != FROM_ON:
            state = OFF
        resumed_P[p] = by != FROM_ON
        p -= 1


@kernel()
def least_usd(cost_P: F8, share_P: F8, units: float) -> float:
    """Returns what a life costs at least, USD: its useful time in the cheapest periods, with no stop and no resume."""
    usd, left = 0.0, units
    for p in np.argsort(cost_P):
        if left <= 0.0:
            break
        used = min(left, share_P[p])
        usd += used * cost_P[p]
        left -= used
    return usd


@kernel(apart=True)
def suspended_life(
    cost_P: F8,
    resume_P: F8,
    stop_P: F8,
    bonus_P: F8,
    end_P: F8,
    share_P: F8,
    units: float,
    below_usd: float,
    used_P: F8,
    resumed_P: U1,
    stopped_P: U1,
) -> float:
    """Finds the cheapest life of a job that may be stopped and resumed: a shortest path over (period, on or off, done).

    ``min sum_p c_p x_p + resumes + stops + end`` over unions of intervals of total length ``units``. The cost is linear
    in the intervals' ends as long as none passes a period's, so a cheapest life has all its ends at ends of periods, at
    the first or last open moment, or at one further place. Hence it is made of full periods, of the open pieces of the
    first and the last period or not, and of one part of a period whose length the others leave.

    Args:
        cost_P: Cost of running through a full period, USD.
        resume_P: Cost of a resume before the useful time of a period, USD.
        stop_P: Cost of a stop after the useful time of a period, USD.
        bonus_P: What overhead can earn at most in a period, USD, at least 0.
        end_P: Cost of an end in a period, USD.
        share_P: Share of each period that is open.
        units: Useful time needed, periods.
        below_usd: Sum that the life is to cost less than, USD.
        used_P: Receives the useful time in each period.
        resumed_P: Receives 1 where a resume comes before the useful time of a period.
        stopped_P: Receives 1 where a stop follows it.

    Returns:
        The cost, USD; infinite where it is not below the sum, or the open time is too short, and nothing is used then.
    """
    used_P[:], resumed_P[:], stopped_P[:] = 0.0, 0, 0
    periods = len(cost_P)
    if units > share_P.sum() + NEAR:
        return np.inf
    if periods == 1:
        usd = cost_P[0] * units + end_P[0] - bonus_P[0]
        used_P[0] = units if usd < below_usd else 0.0
        return float(usd if usd < below_usd else np.inf)
    columns = int(units + NEAR) + 2
    usd_WX = np.empty((2, periods + 1, 2, 2, columns))  # of the best way so far, and of the one that is tried
    best, chosen, chosen_at, chosen_head, mine = below_usd, -1, -1, 0, 0
    for way in range(WAYS):
        can, first_piece, last_piece, whole, part = _split(share_P, units, way)
        if can:
            usd, at, head = _whole_periods(
                cost_P, resume_P, stop_P, bonus_P, end_P, share_P, first_piece, last_piece, whole, part, usd_WX[mine]
            )
            if usd < best:
                best, chosen, chosen_at, chosen_head, mine = usd, way, at, head, 1 - mine
    if chosen < 0:
        return np.inf
    _, first_piece, last_piece, whole, part = _split(share_P, units, chosen)
    _trace(
        cost_P, resume_P, stop_P, share_P, first_piece, last_piece, whole, part, usd_WX[1 - mine], chosen_at,
        chosen_head, used_P, resumed_P, stopped_P,
    )  # fmt: skip
    return best

"""Compiled: the cheapest life of one job that may be stopped and resumed, at given prices.

A life is reckoned in periods, in which prices hold. Its useful time in them is charged at their prices; what stopping
and resuming takes is charged in addition, at the least price of the periods that it can touch, and fills no time. So
every life that an engine can give the job costs at least as much. Axes: P periods of one job from its earliest start to
its latest end.
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, U1
from noonward.compiled import kernel

NEAR = 1e-9
"""Periods of work below which two amounts count as equal."""
OFF, ON = 0, 1
STAYED, STOPPED, HEAD = 0, 1, 2
FROM_ON, FROM_OFF, FIRST, TAIL_FROM_OFF, TAIL_FROM_ON, TAIL_FIRST = 0, 1, 2, 3, 4, 5


@kernel()
def _run_or_rest(
    off_K: F8, on_K: F8, usd: tuple[float, float, float, float], least: int, most: int, new_off_K: F8, new_on_K: F8,
    off_by_K: U1, on_by_K: U1,
) -> None:  # fmt: skip
    """Takes a full period's step for some numbers of periods done, K: the job rests in it, or runs through it.

    Written without branches, so that several numbers are reckoned at once.

    Args:
        off_K: Least cost so far of a job that rests.
        on_K: The same of one that runs.
        usd: Cost of a stop after the period before, of a resume, and of the period; what overhead can earn in it.
        least: Least number of periods done, at least 2.
        most: Largest one.
        new_off_K: Written.
        new_on_K: Written.
        off_by_K: Written, the step that led there.
        on_by_K: Written.
    """
    stop, resume, cost, bonus = usd
    for k in range(least, most + 1):
        rests, stops = off_K[k], on_K[k] + stop
        stopped = stops < rests
        new_off_K[k] = (stops if stopped else rests) - bonus
        off_by_K[k] = STOPPED if stopped else STAYED
        runs_on, resumes = on_K[k - 1] + cost, off_K[k - 1] + resume + cost
        resumed = resumes < runs_on
        new_on_K[k] = (resumes if resumed else runs_on) - bonus
        on_by_K[k] = FROM_OFF if resumed else FROM_ON


@kernel()
def _add_part(
    off_K: F8, on_K: F8, usd: tuple[float, float, float, float], stop: float, least: int, most: int, new_off_K: F8,
    new_on_K: F8, off_by_K: U1, on_by_K: U1,
) -> None:  # fmt: skip
    """Improves a full period's step by lives that use only a part of it, its beginning or its end.

    Args:
        off_K: Least cost so far of a job that rests and has not used the part.
        on_K: The same of one that runs.
        usd: Cost of a stop after the period before, of a resume, and of the part; what overhead can earn in it.
        stop: Cost of a stop after this period.
        least: Least number of periods done.
        most: Largest one.
        new_off_K: Improved; what overhead can earn is taken off here.
        new_on_K: The same.
        off_by_K: Rewritten where it is.
        on_by_K: Rewritten where it is.
    """
    stop_before, resume, used, bonus = usd
    for k in range(least, most + 1):
        rests, head = new_off_K[k], on_K[k] + used + stop
        better = head < rests
        new_off_K[k] = (head if better else rests) - bonus
        off_by_K[k] = HEAD if better else off_by_K[k]
        runs, tail, by = new_on_K[k], off_K[k] + resume + used, on_by_K[k]
        better = tail < runs
        runs, by = (tail if better else runs), (TAIL_FROM_OFF if better else by)
        tail = on_K[k] + stop_before + resume + used
        better = tail < runs
        new_on_K[k] = (tail if better else runs) - bonus
        on_by_K[k] = TAIL_FROM_ON if better else by


@kernel()
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
    choice: U1,
) -> tuple[float, int, int]:
    """Finds the cheapest life of ``whole`` full periods, a part of one, and the given pieces of the first and the last.

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
        choice: Receives the step that led to each state, shape (P, 2, 2, whole + 1): state, whether the part is used.

    Returns:
        (cost in USD, last period, 1 if its use is the part at its beginning); infinite cost where there is none.
    """
    periods, need = len(cost_P), 1 if part > 0.0 else 0
    old = np.full((2, 2, whole + 1), np.inf)
    new = np.full((2, 2, whole + 1), np.inf)
    best, best_p, best_head = np.inf, -1, 0
    for p in range(periods):
        share, cost = share_P[p], cost_P[p]
        piece = (first_piece and p == 0) or (last_piece and p == periods - 1)
        full = not piece and share >= 1.0
        parted = need == 1 and not piece and part <= share + NEAR
        may_begin = p == 0 or not first_piece
        least, most = max(0, whole - (periods - 1 - p)), min(whole, p + 1)
        fast = p > 0 and full  # most periods; nothing begins in them that has done two or more
        for flag in range(need + 1):
            for k in range(least, (min(most, 1) if fast else most) + 1):
                off, off_by = old[OFF, flag, k], STAYED
                if p > 0 and old[ON, flag, k] + stop_P[p - 1] < off:
                    off, off_by = old[ON, flag, k] + stop_P[p - 1], STOPPED
                on, on_by = np.inf, FROM_ON
                before = k if piece else k - 1
                if (piece or full) and before >= 0:
                    used = share * cost
                    on = old[ON, flag, before] + used
                    if old[OFF, flag, before] + resume_P[p] + used < on:
                        on, on_by = old[OFF, flag, before] + resume_P[p] + used, FROM_OFF
                    if may_begin and flag == 0 and before == 0 and used < on:
                        on, on_by = used, FIRST
                if flag == 1 and parted:
                    used = part * cost
                    head = old[ON, 0, k] + used
                    if k == whole and not last_piece and head + end_P[p] - bonus_P[p] < best:
                        best, best_p, best_head = head + end_P[p] - bonus_P[p], p, 1
                    if head + stop_P[p] < off:
                        off, off_by = head + stop_P[p], HEAD
                    if old[OFF, 0, k] + resume_P[p] + used < on:
                        on, on_by = old[OFF, 0, k] + resume_P[p] + used, TAIL_FROM_OFF
                    if p > 0 and old[ON, 0, k] + stop_P[p - 1] + resume_P[p] + used < on:
                        on, on_by = old[ON, 0, k] + stop_P[p - 1] + resume_P[p] + used, TAIL_FROM_ON
                    if may_begin and k == 0 and used < on:
                        on, on_by = used, TAIL_FIRST
                new[OFF, flag, k], new[ON, flag, k] = off - bonus_P[p], on - bonus_P[p]
                choice[p, OFF, flag, k], choice[p, ON, flag, k] = off_by, on_by
        if fast and most > 1:
            off_FK, on_FK, by_FK, used, first = old[OFF], old[ON], choice[p], part * cost, max(least, 2)
            if parted and most == whole and not last_piece and on_FK[0, whole] + used + end_P[p] - bonus_P[p] < best:
                best, best_p, best_head = on_FK[0, whole] + used + end_P[p] - bonus_P[p], p, 1
            for flag in range(need + 1):
                later = 0.0 if flag == 1 and parted else bonus_P[p]
                usd = stop_P[p - 1], resume_P[p], cost, later
                _run_or_rest(
                    off_FK[flag], on_FK[flag], usd, first, most, new[OFF, flag], new[ON, flag], by_FK[OFF, flag],
                    by_FK[ON, flag],
                )  # fmt: skip
            if parted:
                usd = stop_P[p - 1], resume_P[p], used, bonus_P[p]
                _add_part(
                    off_FK[0], on_FK[0], usd, stop_P[p], first, most, new[OFF, 1], new[ON, 1], by_FK[OFF, 1],
                    by_FK[ON, 1],
                )  # fmt: skip
        if (not last_piece or p == periods - 1) and new[ON, need, whole] + end_P[p] < best:
            best, best_p, best_head = new[ON, need, whole] + end_P[p], p, 0
        old, new = new, old
    return best, best_p, best_head


@kernel()
def _trace(
    choice: U1,
    share_P: F8,
    first_piece: bool,
    last_piece: bool,
    whole: int,
    part: float,
    at: int,
    head: int,
    used_P: F8,
    resumed_P: U1,
    stopped_P: U1,
) -> None:
    """Writes use, resumes and stops of the life that ``_whole_periods`` found."""
    periods = len(used_P)
    state, flag, k, p = ON, 1 if part > 0.0 else 0, whole, at
    if head == 1:
        used_P[p] = part
        flag, p = 0, p - 1
    while p >= 0:
        by = choice[p, state, flag, k]
        if state == OFF:
            if by == HEAD:
                used_P[p] = part
                stopped_P[p] = 1
                flag, state = 0, ON
            elif by == STOPPED:
                stopped_P[p - 1] = 1
                state = ON
        elif by >= TAIL_FROM_OFF:
            used_P[p] = part
            if by == TAIL_FIRST:
                return
            resumed_P[p] = 1
            flag = 0
            if by == TAIL_FROM_ON:
                stopped_P[p - 1] = 1
            else:
                state = OFF
        else:
            used_P[p] = share_P[p]
            if not ((first_piece and p == 0) or (last_piece and p == periods - 1)):
                k -= 1
            if by == FIRST:
                return
            if by == FROM_OFF:
                resumed_P[p] = 1
                state = OFF
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


@kernel()
def suspended_life(
    cost_P: F8,
    resume_P: F8,
    stop_P: F8,
    bonus_P: F8,
    end_P: F8,
    share_P: F8,
    units: float,
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
        used_P: Receives the useful time in each period.
        resumed_P: Receives 1 where a resume comes before the useful time of a period.
        stopped_P: Receives 1 where a stop follows it.

    Returns:
        The cost, USD; infinite where the open time is too short.
    """
    periods = len(cost_P)
    used_P[:], resumed_P[:], stopped_P[:] = 0.0, 0, 0
    if periods == 1:
        if units > share_P[0] + NEAR:
            return np.inf
        used_P[0] = units
        return float(cost_P[0] * units + end_P[0] - bonus_P[0])
    if units > share_P.sum() + NEAR:
        return np.inf
    choice = np.empty((periods, 2, 2, int(units + NEAR) + 1), dtype=np.uint8)
    best, chosen, tried, at, head = np.inf, -1, -1, 0, 0
    for way in range(4):
        first_piece, last_piece = way % 2 == 1, way >= 2
        if (first_piece and share_P[0] >= 1.0) or (last_piece and share_P[-1] >= 1.0):
            continue
        rest = units - first_piece * share_P[0] - last_piece * share_P[-1]
        if rest < -NEAR:
            continue
        whole = int(rest + NEAR)
        part = max(0.0, rest - whole)
        part = part if part > NEAR else 0.0
        tried = way
        found, p, by = _whole_periods(
            cost_P, resume_P, stop_P, bonus_P, end_P, share_P, first_piece, last_piece, whole, part, choice
        )
        if found < best:
            best, chosen, at, head = found, way, p, by
    if chosen < 0:
        return np.inf
    first_piece, last_piece = chosen % 2 == 1, chosen >= 2
    rest = units - first_piece * share_P[0] - last_piece * share_P[-1]
    whole = int(rest + NEAR)
    part = max(0.0, rest - whole)
    part = part if part > NEAR else 0.0
    if chosen < tried:  # the table holds the steps of the last way that was tried
        _whole_periods(cost_P, resume_P, stop_P, bonus_P, end_P, share_P, first_piece, last_piece, whole, part, choice)
    _trace(choice, share_P, first_piece, last_piece, whole, part, at, head, used_P, resumed_P, stopped_P)
    return best

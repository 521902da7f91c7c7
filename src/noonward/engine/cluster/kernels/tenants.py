"""Tenants in the engine: what a job's tenant may still take and spend, and whose turn it is in a queue.

Compiled once, as calls: pasted into every loop they would slow the runs in which no tenants are stated.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.compiled import kernel
from noonward.engine.cluster.kernels.world import World
from noonward.model.cluster.tenant import PERIODS
from noonward.units import DAY_S

SHARE_GRID: Final = 1e-6
"""Grid of fair shares, GPUs."""
BUDGET_GRID: Final = 1e-6
"""Grid on which what is used is compared with a budget, USD, kWh and kg: the order of a sum decides no start."""
NO_BUDGET, DAY, WEEK, MONTH = 0, *(1 + PERIODS.index(name) for name in ("day", "week", "month"))
"""Values of TENANT's field ``period``; any other is the whole run."""


@kernel(allocates=False)
def first_of_month(day: int) -> int:
    """Returns the first day of the month that a day lies in, both counted from 1 January 1970.

    In years that begin in March each month begins ``floor((153 m + 2) / 5)`` days after the first (H. Hinnant,
    *chrono-compatible low-level date algorithms*, ``civil_from_days``).
    """
    of_era = (day + 719_468) % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return int(day - (of_year - (153 * month + 2) // 5))


@kernel(allocates=False)
def period_of(kind: int, epoch_s: float, time_s: float) -> tuple[float, float]:
    """Returns when the period of a budget that a time lies in begins and ends, s.

    Args:
        kind: TENANT's field ``period``.
        epoch_s: Second 0 in seconds since 1970.
        time_s: Time, s.
    """
    day = int(np.floor((epoch_s + time_s) / DAY_S))
    if kind == DAY:
        first, after = day, day + 1
    elif kind == WEEK:
        first = day - (day + 3) % 7  # 1 January 1970 was a Thursday
        after = first + 7
    elif kind == MONTH:
        first = first_of_month(day)
        after = first_of_month(first + 31)
    else:
        return -np.inf, np.inf
    return first * DAY_S - epoch_s, after * DAY_S - epoch_s


@kernel(allocates=False)
def renew_budget(w: World, t: int) -> None:
    """Begins the period that now lies in, if the last one has ended: nothing has been used in it."""
    if w.shown.run_1[0].now_s < w.tenant_T[t].until_s:
        return
    from_s, until_s = period_of(w.tenant_T[t].period, w.engine_1[0].epoch_s, w.shown.run_1[0].now_s)
    w.tenant_T[t].from_s, w.tenant_T[t].until_s = from_s, until_s
    w.tenant_T[t].spent_usd = w.tenant_T[t].spent_kwh = w.tenant_T[t].spent_kg = 0.0
    w.tenant_T[t].due_usd = w.tenant_T[t].due_kwh = w.tenant_T[t].due_kg = 0.0


@kernel(allocates=False)
def add_due(w: World, t: int, start_s: float, kwh: float, usd: float, kg: float) -> None:
    """Counts what a job that started at a time is expected to use (negative: no longer), if it is of this period."""
    renew_budget(w, t)
    if start_s >= w.tenant_T[t].from_s:
        w.tenant_T[t].due_kwh += kwh
        w.tenant_T[t].due_usd += usd
        w.tenant_T[t].due_kg += kg


@kernel(allocates=False)
def add_spent(w: World, t: int, start_s: float, kwh: float, usd: float, kg: float) -> None:
    """Counts what a job that started at a time and ends now has used, if it is of this period."""
    renew_budget(w, t)
    if start_s >= w.tenant_T[t].from_s:
        w.tenant_T[t].spent_kwh += kwh
        w.tenant_T[t].spent_usd += usd
        w.tenant_T[t].spent_kg += kg


@kernel(allocates=False)
def is_used_up(w: World, t: int) -> bool:
    """Returns whether a tenant's budget is used up: what has been spent and is due reaches one of its amounts."""
    if w.tenant_T[t].period == NO_BUDGET:
        return False
    renew_budget(w, t)
    tenant = w.tenant_T[t]
    return bool(
        reaches(tenant.spent_usd + tenant.due_usd, tenant.most_usd)
        or reaches(tenant.spent_kwh + tenant.due_kwh, tenant.most_kwh)
        or reaches(tenant.spent_kg + tenant.due_kg, tenant.most_kg)
    )


@kernel(allocates=False)
def reaches(used: float, most: float) -> bool:
    """Returns whether an amount reaches a budget; never where none is stated (infinite)."""
    return bool(most < np.inf and np.round(used / BUDGET_GRID) >= np.round(most / BUDGET_GRID))


@kernel(allocates=False)
def is_refused(w: World, job: int) -> bool:
    """Returns whether a job that arrives now is refused. Where the engine is told, it was stored: never."""
    t = w.track_J[job].tenant
    return bool(w.tenant_T[t].refuses and not w.engine_1[0].told and is_used_up(w, t))


@kernel(allocates=False)
def next_budget_s(w: World) -> float:
    """Returns when the next period of a budget begins, s; infinite: never."""
    time = np.inf
    for t in range(w.tenant_T.shape[0]):
        if w.tenant_T[t].period != NO_BUDGET:
            renew_budget(w, t)
            time = min(time, w.tenant_T[t].until_s)
    return time


@kernel(allocates=False)
def quota_room(w: World, t: int) -> int:
    """Returns how many GPUs a tenant may take now (``Tenant``); those planned in this step count as taken.

    None where its budget is used up.
    """
    if w.engine_1[0].budgets and is_used_up(w, t):
        return 0
    tenant = w.tenant_T[t]
    used = tenant.used + tenant.planned
    left = 0
    for other in range(w.tenant_T.shape[0]):
        if w.tenant_T[other].cohort == tenant.cohort:
            lends = w.tenant_T[other].gpus - w.tenant_T[other].kept
            held = w.tenant_T[other].used + w.tenant_T[other].planned
            left += lends - max(0, held - w.tenant_T[other].kept)
    own = tenant.gpus - tenant.kept + tenant.borrow - max(0, used - tenant.kept)
    return int(max(0, max(0, tenant.kept - used) + min(left, own)))


@kernel(allocates=False)
def hold_quota(w: World, job: int, gpus: int) -> None:
    """Counts GPUs that a job's tenant holds from now on (fewer: negative)."""
    t = w.track_J[job].tenant
    read_use(w, t)
    w.tenant_T[t].used += gpus


@kernel(allocates=False)
def read_use(w: World, t: int) -> None:
    """Brings a tenant's average of GPUs held to now: ``a <- used + (a - used) 2^(-dt / half-life)``."""
    now, tenant = w.shown.run_1[0].now_s, w.tenant_T[t]
    if now > tenant.average_s:
        share = left_of(w, now - tenant.average_s)
        w.tenant_T[t].average = tenant.used + (tenant.average - tenant.used) * share
        w.tenant_T[t].average_s = now


@kernel(allocates=False)
def left_of(w: World, seconds: float) -> float:
    """Returns what is left of past use after some seconds, as a share; 0 where it does not count at all."""
    half_life_s = w.engine_1[0].half_life_s
    return float(0.5 ** (seconds / half_life_s)) if half_life_s > 0.0 else 0.0


@kernel(allocates=False)
def fair_share(w: World, t: int) -> float:
    """Returns what a tenant will have held on average in a slot from now, with what is charged to it, over its weight.

    The tenant with the least comes first. Charging what it holds now for a slot to come is what Kueue's Admission
    Fair Sharing does by its entry penalty: of two tenants that are equal, the one that was just served comes second.
    Rounded to ``SHARE_GRID``, so that no machine's power function decides a schedule.
    """
    read_use(w, t)
    tenant, left = w.tenant_T[t], left_of(w, w.shown.run_1[0].slot_s)
    share = (left * tenant.average + (1.0 - left) * (tenant.used + tenant.charged)) / tenant.weight
    return float(np.round(share / SHARE_GRID) * SHARE_GRID)


@kernel(allocates=False)
def would_borrow(w: World, job: int) -> bool:
    """Returns whether a job's smallest gang, and what is charged to its tenant before, exceed the guarantee."""
    tenant = w.tenant_T[w.track_J[job].tenant]
    return bool(tenant.used + tenant.charged + w.shown.job_J[job].gpus_min > tenant.gpus)


@kernel(allocates=False)
def sort_by_tenant(w: World, s: int) -> None:
    """Notes each tenant's first and last job in a site's queue; ``TRACK.next`` then leads to its own next one.

    Those of a higher priority come first; it takes a walk through the queue per priority in it.
    """
    for t in range(w.tenant_T.shape[0]):
        w.tenant_T[t].charged = 0
        w.tenant_T[t].first = w.tenant_T[t].last = -1
    left = w.state_S[s].head
    while left >= 0:
        priority, job = w.track_J[left].priority, w.track_J[left].next
        while job >= 0:
            priority, job = max(priority, w.track_J[job].priority), w.track_J[job].next
        job, left, last = left, -1, -1
        while job >= 0:
            behind, t = w.track_J[job].next, w.track_J[job].tenant
            w.track_J[job].next = -1
            if w.track_J[job].priority < priority:
                if last < 0:
                    left = job
                else:
                    w.track_J[last].next = job
                last = job
            else:
                if w.tenant_T[t].last < 0:
                    w.tenant_T[t].first = job
                else:
                    w.track_J[w.tenant_T[t].last].next = job
                w.tenant_T[t].last = job
            job = behind


@kernel(allocates=False)
def order_queue(w: World, s: int) -> None:
    """Puts a site's queue into the order of turns (``comes_before``), as if each job were started on its smallest gang.

    Jobs of one tenant and priority stay in their order.
    """
    if w.state_S[s].head < 0:
        return
    sort_by_tenant(w, s)
    last = -1
    while True:
        turn = -1
        for t in range(w.tenant_T.shape[0]):
            if w.tenant_T[t].first >= 0 and comes_before(w, w.tenant_T[t].first, turn):
                turn = w.tenant_T[t].first
        if turn < 0:
            break
        job, t = turn, w.track_J[turn].tenant
        w.tenant_T[t].first = w.track_J[job].next
        if not w.track_J[job].held and w.track_J[job].earliest_s <= w.shown.run_1[0].now_s:
            w.tenant_T[t].charged += w.shown.job_J[job].gpus_min
        w.track_J[job].before = last
        if last < 0:
            w.state_S[s].head = job
        else:
            w.track_J[last].next = job
        last = job
    w.track_J[last].next = -1
    w.state_S[s].tail = last
    for t in range(w.tenant_T.shape[0]):
        w.tenant_T[t].charged = 0


@kernel(allocates=False)
def comes_before(w: World, job: int, other: int) -> bool:
    """Returns whether it is a waiting job's turn before another one's (-1: there is no other).

    First come jobs whose tenants need not borrow for them, then, where there are fair shares, those of the tenant with
    the least (``fair_share``), then those of the higher priority, then those that joined the queue first, then those
    that arrived first.
    """
    if other < 0:
        return True
    borrows, borrows_too = would_borrow(w, job), would_borrow(w, other)
    if borrows != borrows_too:
        return not borrows
    if not np.isnan(w.engine_1[0].half_life_s):
        share, other_share = fair_share(w, w.track_J[job].tenant), fair_share(w, w.track_J[other].tenant)
        if share != other_share:
            return bool(share < other_share)
    if w.track_J[job].priority != w.track_J[other].priority:
        return bool(w.track_J[job].priority > w.track_J[other].priority)
    joined_s, other_s = w.outcome_R[w.track_J[job].row].reach_s, w.outcome_R[w.track_J[other].row].reach_s
    if joined_s != other_s:
        return bool(joined_s < other_s)
    return bool(w.shown.job_J[job].serial < w.shown.job_J[other].serial)


@kernel(allocates=False)
def first_in_turn(w: World, job: int) -> int:
    """Returns the job of a queue, from its head on, whose turn it is (protocol on-arrival); -1 for none.

    Jobs that are held, or whose tenant may not take as many GPUs as they need, are passed over.
    """
    turn = -1
    while job >= 0:
        fits = not w.track_J[job].held and quota_room(w, w.track_J[job].tenant) >= w.shown.job_J[job].gpus_min
        if fits and comes_before(w, job, turn):
            turn = job
        job = w.track_J[job].next
    return turn


@kernel(allocates=False)
def waits_for_turn(w: World, job: int) -> bool:
    """Returns whether a site is asked about a job in the next step instead of this one (protocol each-slot).

    Sites asked in one step decide side by side: what the earlier of them may start must not take the quota of a later
    one that was shown it, nor use up its budget.
    """
    t = w.track_J[job].tenant
    if w.tenant_T[t].period != NO_BUDGET and w.tenant_T[t].planned > 0:
        return True
    if quota_room(w, t) >= w.shown.job_J[job].gpus_max:
        return False
    some = False
    for other in range(w.tenant_T.shape[0]):
        some = some or (w.tenant_T[other].cohort == w.tenant_T[t].cohort and w.tenant_T[other].planned > 0)
    return some


@kernel(allocates=False)
def plan_quota(w: World, job: int, gpus: int) -> None:
    """Counts what a job that is asked about in this step may take."""
    w.tenant_T[w.track_J[job].tenant].planned += gpus


@kernel(allocates=False)
def end_plans(w: World) -> None:
    """Forgets what was planned in a step."""
    for t in range(w.tenant_T.shape[0]):
        w.tenant_T[t].planned = 0

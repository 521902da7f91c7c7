"""Tenants in the engine: how many GPUs a job's tenant may still take, and whose turn it is in a queue.

Compiled once, as calls: pasted into every loop they would slow the runs in which no tenants are stated.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.compiled import kernel
from noonward.engine.cluster.kernels.world import World

SHARE_GRID: Final = 1e-6
"""Grid of fair shares, GPUs."""


@kernel(allocates=False)
def quota_room(w: World, t: int) -> int:
    """Returns how many GPUs a tenant may take now (``Tenant``); those planned in this step count as taken."""
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
    """Notes each tenant's first and last job in a site's queue; ``TRACK.next`` then leads to its own next one."""
    for t in range(w.tenant_T.shape[0]):
        w.tenant_T[t].charged = 0
        w.tenant_T[t].first = w.tenant_T[t].last = -1
    job = w.state_S[s].head
    while job >= 0:
        behind, t = w.track_J[job].next, w.track_J[job].tenant
        if w.tenant_T[t].last < 0:
            w.tenant_T[t].first = job
        else:
            w.track_J[w.tenant_T[t].last].next = job
        w.track_J[job].next = -1
        w.tenant_T[t].last = job
        job = behind


@kernel(allocates=False)
def order_queue(w: World, s: int) -> None:
    """Puts a site's queue into the order of turns (``comes_before``), as if each job were started on its smallest gang.

    Jobs of one tenant stay in their order.
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
    the least (``fair_share``), then those that joined the queue first, then those that arrived first.
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
    one that was shown it.
    """
    t = w.track_J[job].tenant
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

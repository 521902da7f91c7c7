"""Feasibility: where and when a job may start, and the masks that engines and live services ask with."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.decision.cluster.view import (
    HOLD,
    SECONDS,
    ClusterView,
    delay_s,
    departure_s,
    fits,
    last_start_before_s,
    last_start_s,
    longest_delay_s,
    shortest_delay_s,
)
from noonward.units import HOUR_S


@kernel(inline=True, allocates=False)
def slot_at(slot_s: float, time: float) -> float:
    """Returns the first slot boundary at or after a time, s; the time itself where there are no slots (0)."""
    return np.ceil(time / slot_s) * slot_s if slot_s > 0.0 else time


@kernel(inline=True, allocates=False)
def joins_at(view: ClusterView, job: int, s: int, d: int) -> float:
    """Returns when a job that leaves site s now joins the queue of site d: a slot boundary, not before the next."""
    return joins_after(view, delay_s(view, job, view.site_S[s].ingress, d))


@kernel(inline=True, allocates=False)
def joins_after(view: ClusterView, delay: float) -> float:
    """Returns when a job that leaves a site now and travels so long, s, joins the queue of another."""
    slot_s = view.run_1[0].slot_s
    return max(slot_at(slot_s, view.run_1[0].now_s + delay), view.run_1[0].now_s + slot_s)


@kernel(inline=True, allocates=False)
def first_start_s(view: ClusterView, job: int, s: int, d: int) -> float:
    """Returns when a job at site s could start at site d at the earliest, s: now if it is there already."""
    return view.run_1[0].now_s if s == d else joins_at(view, job, s, d)


@kernel(inline=True, allocates=False)
def is_suspended(view: ClusterView, job: int) -> bool:
    """Returns whether a job that waits has run before: it is resumed at the clock it had."""
    return view.life_J.shape[0] > 1 and view.life_J[job].suspensions > 0


@kernel(inline=True, allocates=False)
def can_move(view: ClusterView, job: int, s: int, d: int) -> bool:
    """Returns whether a job at site s fits into site d and can be there before its last start (MASAC, Eq. 7b)."""
    return d != s and fits(view, job, d) and joins_at(view, job, s, d) <= last_start_s(view, job, d)


@kernel(inline=True, allocates=False)
def can_move_anywhere(view: ClusterView, job: int, s: int) -> bool:
    """Returns whether a job at site s surely ``can_move`` to all other sites of its range: also over the slowest links.

    It may be able to where this says that it is not sure.
    """
    record = view.job_J[job]
    home = view.home_I[record.origin]
    if home < 0 or record.gpus_min > view.run_1[0].least_gpus:
        return False
    return_s = longest_delay_s(view, record.result_gb, home) if record.result_gb > 0.0 else 0.0
    return joins_after(view, longest_delay_s(view, record.move_gb, s)) <= last_start_before_s(view, job, return_s)


@kernel(inline=True, allocates=False)
def can_move_home_at_most(view: ClusterView, job: int, s: int) -> bool:
    """Returns whether a job at site s surely cannot move to any site but its home: not over the fastest links either.

    It may be unable to where this says that it is not sure.
    """
    record = view.job_J[job]
    home = view.home_I[record.origin]
    return_s = shortest_delay_s(view, record.result_gb, home) if home >= 0 and record.result_gb > 0.0 else 0.0
    return joins_after(view, shortest_delay_s(view, record.move_gb, s)) > last_start_before_s(view, job, return_s)


@kernel(inline=True, allocates=False)
def runs_alike(view: ClusterView, job: int, d: int) -> bool:
    """Returns whether a suspended job may be resumed at another site: it moves, and is as fast there at its clock."""
    life, c = view.life_J[job], view.job_J[job].class_
    if view.freedom_C[c].moves == 0 or life.level >= view.site_S[d].levels:
        return False
    here_s = view.speed_KSCGF[SECONDS, life.site, c, life.own_gpus, life.level]
    return bool(view.speed_KSCGF[SECONDS, d, c, life.own_gpus, life.level] == here_s)


@kernel(inline=True, allocates=False)
def is_overdue(view: ClusterView, job: int, s: int) -> bool:
    """Returns whether a job at site s can no longer start anywhere: not in time nor, where jobs may be, late."""
    if fits(view, job, s) and view.run_1[0].now_s <= last_start_s(view, job, s):
        return False
    suspended = is_suspended(view, job)
    for d in range(view.site_S.shape[0]):
        if can_move(view, job, s, d) and (not suspended or runs_alike(view, job, d)):
            return False
    return True


@kernel(inline=True, allocates=False)
def room(view: ClusterView, s: int, limit_SH: F8, hard: bool) -> int:
    """Returns how many GPUs may start at a site now: its free ones, within a hard capacity curve.

    Args:
        view: View.
        s: Site.
        limit_SH: Capacity curves, GPUs; hours after the last have none.
        hard: Whether the curves are limits; else the free GPUs count alone.
    """
    free = view.site_S[s].free
    if hard:
        hour = view.run_1[0].now_s / HOUR_S
        if hour < limit_SH.shape[1]:
            busy = view.site_S[s].gpus - free
            free = min(free, int(np.floor(limit_SH[s, int(hour)])) - busy)
    return free


@kernel(inline=True, allocates=False)
def fill_mask(view: ClusterView, job: int, s: int, room_here: int) -> None:
    """Marks what a site may do with a job (protocol each-slot).

    Hold always; start with room and before the last start; move where it is there before that. Where a suspended
    job may move says ``fill_mask_of_suspended``.

    Args:
        view: View; row s of ``mask_NA`` is filled.
        job: Job that waits at the site.
        s: Site.
        room_here: GPUs that may start there (``room``).
    """
    view.mask_NA[s, HOLD] = 1
    if can_move_anywhere(view, job, s):
        c = view.job_J[job].class_
        for d in range(view.site_S.shape[0]):
            view.mask_NA[s, 1 + d] = view.range_CS[c, d]
    elif can_move_home_at_most(view, job, s):
        view.mask_NA[s, 1:] = 0
        home = view.home_I[view.job_J[job].origin]
        if home >= 0:
            view.mask_NA[s, 1 + home] = can_move(view, job, s, home)
    else:
        for d in range(view.site_S.shape[0]):
            view.mask_NA[s, 1 + d] = can_move(view, job, s, d)
    view.mask_NA[s, 1 + s] = (
        fits(view, job, s)
        and room_here >= view.job_J[job].gpus_min
        and view.run_1[0].now_s <= last_start_s(view, job, s)
    )


@kernel(inline=True, allocates=False)
def fill_mask_of_suspended(view: ClusterView, job: int, s: int) -> None:
    """Takes the moves that it may not make from the mask of a suspended job that waits at a site."""
    for d in range(view.site_S.shape[0]):
        if d != s and not runs_alike(view, job, d):
            view.mask_NA[s, 1 + d] = 0


@kernel(inline=True, allocates=False)
def fill_route_mask(view: ClusterView, job: int) -> bool:
    """Marks sites that a job fits into and reaches before its last start (on-arrival); returns whether there is one."""
    ingress = view.job_J[job].origin
    unlimited = np.isinf(view.job_J[job].deadline_s)
    some = False
    view.mask_NA[0, HOLD] = 0
    for s in range(view.site_S.shape[0]):
        reach_s = departure_s(view, job, s) + delay_s(view, job, ingress, s)
        good = fits(view, job, s) and (unlimited or reach_s <= last_start_s(view, job, s))
        view.mask_NA[0, 1 + s] = good
        some = some or good
    return some

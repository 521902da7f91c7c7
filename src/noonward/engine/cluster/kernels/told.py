"""What is told from outside: events of clusters and operators, under the rules and in the state of a simulation."""

from __future__ import annotations

from typing import Final

from numba import float64, int64

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import fill_mask, fill_route_mask
from noonward.decision.cluster.view import ASK_ROUTE
from noonward.engine.cluster.kernels.kept_room import owe
from noonward.engine.cluster.kernels.on_arrival import ask, await_hour, next_in_queue
from noonward.engine.cluster.kernels.physics import (
    count_due,
    drop_top,
    enqueue,
    give_slot_back,
    give_up,
    leave_queue,
    most_gpu_w,
    push,
    room_for,
    room_now,
    show_free,
    take_gpus,
)
from noonward.engine.cluster.kernels.segments import began, let_go, outlive, stand
from noonward.engine.cluster.kernels.tenants import quota_room, renew_budget
from noonward.engine.cluster.kernels.world import CAPPED, RUNNING, WAITING, World, world_at

EVENT_AT: Final = 32
"""Adds EVENT_AT + an event's kind: a finish, a reach or a deadline of the job, at a time."""
WITHDRAW, ROUTE, SHOW_FREE, QUEUE, TAKE, ROOM, HEAD_FITS, MASK, AWAIT_HOUR, NO_HOUR = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
QUOTA, BEGAN, SET_CAP, OUTLIVE, STAND, ROOM_FOR, COUNT_DUE = 11, 12, 13, 14, 15, 16, 17
"""Other things that ``tell`` does."""


@kernel(allocates=False)
def count_all_due(w: World) -> None:
    """Counts again what the running jobs of each tenant are expected to use, by the signals that are known now."""
    for t in range(w.tenant_T.shape[0]):
        renew_budget(w, t)
        w.tenant_T[t].due_usd = w.tenant_T[t].due_kwh = w.tenant_T[t].due_kg = 0.0
    for job in range(w.track_J.shape[0]):
        if w.shown.job_J[job].serial >= 0 and w.outcome_R[w.track_J[job].row].status == RUNNING:
            count_due(w, job, 1.0)


@kernel(int64(int64, int64, int64, int64, float64), allocates=False)
def tell(place: int, what: int, job: int, s: int, time: float) -> int:
    """Tells a world something, or asks it something; it changes nothing else.

    Args:
        place: Address of the PLACE record of a world.
        what: EVENT_AT + kind of an event of the job. WITHDRAW: the job leaves. ROUTE: the dispatcher is asked about it
            again. SHOW_FREE: GPUs were taken, withheld or given back at the site. QUEUE: the job waits there. TAKE: it
            runs there. ROOM, ROOM_FOR: how many GPUs may start there, or the job may start on. HEAD_FITS: whether the
            first job of the queue could start.
            MASK: shows what the asker may do. AWAIT_HOUR: looks at the queue when the next hour begins, if it must.
            NO_HOUR: takes the turn of the hour, which comes next, back. QUOTA: how many GPUs the job's tenant may take.
            BEGAN: the job, which is to be resumed, began to load at the time. SET_CAP: its cluster put it under power
            cap ``s`` at the time. OUTLIVE: it runs longer than was expected, if it does. STAND: it stands there as its
            records say. COUNT_DUE: what running jobs are expected to use of budgets is counted again.
        job: Slot of the job.
        s: Site, or asker of MASK (-1: the dispatcher).
        time: Time of an event, s.

    Returns:
        ROUTE: kind of the question, or 0 where the job was given up. ROOM, ROOM_FOR, QUOTA: GPUs. HEAD_FITS: 0 or 1.
        Else 0.
    """
    w = world_at(place)
    if what >= EVENT_AT:
        push(w, time, what - EVENT_AT, w.shown.job_J[job].serial, job)
    elif what == WITHDRAW:
        if w.outcome_R[w.track_J[job].row].status == WAITING:
            leave_queue(w, job, w.outcome_R[w.track_J[job].row].site)
        if w.engine_1[0].bends:
            owe(w, job, w.outcome_R[w.track_J[job].row].site, -1)
            let_go(w, job, w.outcome_R[w.track_J[job].row].site)
        give_slot_back(w, job)
    elif what == ROUTE:
        w.shown.run_1[0].now_s = max(w.shown.run_1[0].now_s, time)
        if fill_route_mask(w.shown, job):
            return ask(w, ASK_ROUTE, job, -1)
        give_up(w, job)
    elif what == SHOW_FREE:
        show_free(w, s)
    elif what == QUEUE:
        enqueue(w, job, s)
    elif what == TAKE:
        outcome = w.outcome_R[w.track_J[job].row]
        take_gpus(w, job, s, outcome.gpus)
        power_w = outcome.gpus * most_gpu_w(w, job, s) * w.shown.site_S[s].pue
        w.outcome_R[w.track_J[job].row].power_w = power_w
        w.state_S[s].busy_w += power_w
    elif what == ROOM:
        return room_now(w, s)
    elif what == ROOM_FOR:
        return room_for(w, job, s)
    elif what == HEAD_FITS:
        first = next_in_queue(w, s)
        return int(first >= 0 and room_for(w, first, s) >= w.shown.job_J[first].gpus_min)
    elif what == MASK:
        if s < 0:
            fill_route_mask(w.shown, job)
        else:
            fill_mask(w.shown, job, s, room_for(w, job, s))
    elif what == QUOTA:
        return quota_room(w, w.track_J[job].tenant)
    elif what == BEGAN:
        began(w, job, time)
    elif what == SET_CAP:
        w.bent_J[job].wants = s
        push(w, time, CAPPED, w.shown.job_J[job].serial, job)
    elif what == OUTLIVE:
        outlive(w, job)
    elif what == STAND:
        stand(w, job, s)
    elif what == COUNT_DUE:
        count_all_due(w)
    elif what == AWAIT_HOUR:
        await_hour(w, s)
    else:
        drop_top(w)
        w.engine_1[0].hour_waits = 0
    return 0

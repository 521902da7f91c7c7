"""Protocol each-slot: once a slot every site decides about its pending jobs, all at once (MASAC, Sec. II)."""

from __future__ import annotations

import numpy as np

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import (
    fill_mask,
    fill_mask_of_suspended,
    is_overdue,
    is_suspended,
    joins_at,
    slot_at,
)
from noonward.decision.cluster.lives import may_cap, may_preempt, may_start_capped, resume_gang
from noonward.decision.cluster.view import ASK_RUNNING, ASK_SLOT, HOLD, KEEP, ORACLE, last_start_s, no_answer
from noonward.engine.cluster.infeasible import FAILED_GPUS, FAILED_LEVEL, FAILED_MASK
from noonward.engine.cluster.kernels.asking import (
    may_suspend_here,
    next_change_s,
    next_to_ask,
    show_claims,
    something_changed,
)
from noonward.engine.cluster.kernels.lateness import pay_lateness
from noonward.engine.cluster.kernels.physics import (
    drop_top,
    enqueue,
    event_of,
    give_slot_back,
    give_up,
    leave_queue,
    missing,
    move,
    not_held,
    note,
    push,
    read_meters,
    read_reward,
    room_for,
    runs_on,
    show_hour,
    withhold,
)
from noonward.engine.cluster.kernels.segments import (
    RECORDS,
    ask_cap,
    check_cap,
    end_run,
    leave_site,
    let_go,
    lose_work,
    start_or_resume,
    suspend,
    take_bent,
    take_job,
)
from noonward.engine.cluster.kernels.tenants import (
    end_plans,
    is_refused,
    is_used_up,
    order_queue,
    plan_quota,
    waits_for_turn,
)
from noonward.engine.cluster.kernels.world import (
    ARRIVAL,
    FINISH,
    FULL,
    INGRESS_SHIFT,
    LIFT,
    NO_SEGMENT,
    OF_QUEUES,
    OF_RUNNING,
    REACH,
    SENT,
    SITE_SHIFT,
    TRANSIT,
    WITHHOLD,
    World,
)


@kernel(inline=True, allocates=False)
def check_slot_action(w: World, job: int, s: int) -> int:
    """Returns 0 if a site's answer is possible, else what is wrong."""
    choice, gpus, level = w.answers.answer_N[s].choice, w.answers.answer_N[s].gpus, w.answers.answer_N[s].level
    if choice < 0 or choice > w.shown.site_S.shape[0] or not w.shown.mask_NA[s, choice]:
        return FAILED_MASK
    if gpus != 0 and (gpus < w.shown.job_J[job].gpus_min or gpus > w.shown.job_J[job].gpus_max):
        return FAILED_GPUS
    if level != ORACLE and (level < 0 or level >= w.shown.site_S[s].levels):
        return FAILED_LEVEL
    if w.engine_1[0].bends or w.answers.answer_N[s].cap > 0 or w.answers.answer_N[s].cap < KEEP:
        return check_bent(w, job, s)
    return 0


@kernel(allocates=False)
def check_bent(w: World, job: int, s: int) -> int:
    """Returns 0 if gang and power cap of a job that a site starts, resumes, holds or moves are possible."""
    choice, gpus, cap = w.answers.answer_N[s].choice, w.answers.answer_N[s].gpus, w.answers.answer_N[s].cap
    capped, suspended = cap != KEEP and cap != 0, is_suspended(w.shown, job)
    if choice != 1 + s or not (capped or suspended):
        return check_cap(w, job, False, cap) if capped else 0
    most = min(gpus if gpus > 0 else w.shown.job_J[job].gpus_max, room_for(w, job, s))
    if suspended and resume_gang(w.shown, job, most) == 0:
        return FAILED_GPUS
    return check_cap(w, job, may_start_capped(w.shown, job, s, most), cap) if capped else 0


@kernel(inline=True, allocates=False)
def journeys_fit(w: World) -> bool:
    """Returns whether a journey from every site can still be noted."""
    jobs, sites = w.submitted_R.shape[0], w.shown.site_S.shape[0]
    events = jobs + w.engine_1[0].steps_left  # at most: of a job the heap holds one
    return events + w.engine_1[0].journeys + sites <= w.heap_E.shape[0]


@kernel(inline=True, allocates=False)
def lacks_segments(w: World) -> bool:
    """Returns whether what every site may answer about a job takes more segments than can still be noted."""
    return bool(w.engine_1[0].segments + RECORDS * w.shown.site_S.shape[0] > w.segment_K.shape[0])


@kernel(inline=True, allocates=False)
def note_journey(w: World, job: int, ingress: int, s: int) -> None:
    """Notes a journey that begins now, for the ledger."""
    w.engine_1[0].journeys += 1
    x = w.heap_E.shape[0] - w.engine_1[0].journeys
    w.heap_E[x].time = w.shown.run_1[0].now_s
    w.heap_E[x].item = (ingress << INGRESS_SHIFT) | (s << SITE_SHIFT) | w.shown.job_J[job].serial


@kernel(inline=True, allocates=False)
def carry_out(w: World, job: int, s: int) -> None:
    """Holds, starts or moves a site's job and turns to the job behind it."""
    view = w.shown
    choice = w.answers.answer_N[s].choice
    behind = w.track_J[job].next
    w.state_S[s].cursor = behind
    w.track_J[job].earliest_s = 0.0
    if choice == HOLD:
        if w.answers.answer_N[s].earliest_s > 0.0:
            w.track_J[job].earliest_s = min(w.answers.answer_N[s].earliest_s, last_start_s(view, job, s))
        return
    leave_queue(w, job, s)
    d = choice - 1
    if d == s:
        most = view.job_J[job].gpus_max
        if w.answers.answer_N[s].gpus > 0:
            most = min(most, w.answers.answer_N[s].gpus)
        most = min(most, room_for(w, job, s))
        start_or_resume(w, job, s, most, w.answers.answer_N[s].level, w.answers.answer_N[s].cap)
        pay_lateness(w, job, s)
        return
    row = w.track_J[job].row
    w.outcome_R[row].status = TRANSIT
    w.outcome_R[row].site = d
    w.track_J[job].reach_s = joins_at(view, job, s, d)
    push(w, w.track_J[job].reach_s, REACH, view.job_J[job].serial, job)
    if w.engine_1[0].bends and is_suspended(view, job):
        leave_site(w, job, d)
    if view.job_J[job].move_gb > 0.0 and not w.engine_1[0].told:
        note_journey(w, job, view.site_S[s].ingress, d)
    move(w, job, view.site_S[s].ingress, d, view.run_1[0].now_s)
    note(w, SENT, job)


@kernel(inline=True, allocates=False)
def check_running(w: World, job: int, s: int) -> int:
    """Returns 0 if a site's answer about its running job is possible, else what is wrong."""
    choice, cap = w.answers.answer_N[s].choice, w.answers.answer_N[s].cap
    if choice < 0 or choice > w.shown.site_S.shape[0] or not w.shown.mask_NA[s, choice]:
        return FAILED_MASK
    return check_cap(w, job, choice == HOLD and may_cap(w.shown, job), cap) if cap != KEEP else 0


@kernel(allocates=False)
def apply_running(w: World) -> int:
    """Suspends and caps the running jobs that are to be; returns 0, NO_SEGMENT, or what is wrong (without a change)."""
    view, sites = w.shown, w.shown.site_S.shape[0]
    if lacks_segments(w):
        return NO_SEGMENT
    for s in range(sites):
        failed = check_running(w, view.asked_N[s], s) if view.asked_N[s] >= 0 else 0
        if failed:
            view.run_1[0].site = s
            return failed
    for s in range(sites):
        job, cap = view.asked_N[s], w.answers.answer_N[s].cap
        if job < 0:
            continue
        w.state_S[s].cursor = w.track_J[job].next
        if w.answers.answer_N[s].choice != HOLD:
            suspend(w, job, s, w.answers.answer_N[s].earliest_s)
        elif cap != KEEP and cap != view.life_J[job].cap:
            ask_cap(w, job, s, cap)
    return 0


@kernel(inline=True, allocates=False)
def apply_each_slot(w: World) -> int:
    """Carries out all sites' answers; returns 0, FULL, NO_SEGMENT, or what is wrong with one, without a change then."""
    view = w.shown
    if view.run_1[0].kind == ASK_RUNNING:
        return apply_running(w)
    if not journeys_fit(w):
        return FULL
    if w.engine_1[0].bends and lacks_segments(w):
        return NO_SEGMENT
    s = w.engine_1[0].first_to_ask
    while s >= 0:
        failed = check_slot_action(w, view.asked_N[s], s) if view.asked_N[s] >= 0 else 0
        if failed:
            view.run_1[0].site = s
            return failed
        s = w.state_S[s].next_to_ask
    bends = w.engine_1[0].bends  # what starts goes first then: a suspended job that leaves is owed GPUs where it goes
    for leaving in range(2 if bends else 1):
        s = w.engine_1[0].first_to_ask
        while s >= 0:
            leaves = w.answers.answer_N[s].choice != 1 + s
            if view.asked_N[s] >= 0 and (not bends or leaves == leaving):
                carry_out(w, view.asked_N[s], s)
            s = w.state_S[s].next_to_ask
    return 0


@kernel(allocates=False)
def ask_running(w: World) -> int:
    """Asks every site about its next running job that something may be done with; returns ASK_RUNNING, or 0 at last."""
    view = w.shown
    some = False
    for s in range(view.site_S.shape[0]):
        job = next_to_ask(w, w.state_S[s].cursor, s)
        ask_about(w, job, s)
        if job >= 0:
            some = True
            view.mask_NA[s, :] = 0
            view.mask_NA[s, HOLD] = 1
            view.mask_NA[s, 1 + s] = may_suspend_here(w, job, s) or may_preempt(view, job, s)
    return pause(w, ASK_RUNNING) if some else 0


@kernel(inline=True, allocates=False)
def rests(w: World, job: int) -> bool:
    """Returns whether a site holds a job until a later time; where the engine is told, it is asked all the same."""
    return w.track_J[job].earliest_s > w.shown.run_1[0].now_s and not w.engine_1[0].told


@kernel(inline=True, allocates=False)
def next_asked(w: World, job: int) -> int:
    """Returns a waiting job, or the first behind it that its site is asked about now; -1 for none.

    Jobs of a tenant whose budget is used up are passed over: they hold up nobody else.
    """
    job = not_held(w, job)
    while job >= 0 and (rests(w, job) or (w.engine_1[0].budgets and is_used_up(w, w.track_J[job].tenant))):
        job = not_held(w, w.track_J[job].next)
    return job


@kernel(inline=True, allocates=False)
def ask_slot(w: World) -> int:
    """Asks every site about its next job of this slot; returns ASK_SLOT, or 0 when all have been asked about.

    It looks at the sites from ``first_to_ask`` on, and leaves those out from then on that have no further job.
    """
    view = w.shown
    some, last = False, -1
    s = w.engine_1[0].first_to_ask
    while s >= 0:
        job = w.state_S[s].cursor = next_asked(w, w.state_S[s].cursor)
        if job >= 0:
            last = append_to_ask(w, last, s)
        if job >= 0 and w.engine_1[0].tenants and waits_for_turn(w, job):
            job = -1
        ask_about(w, job, s)
        if job >= 0:
            some = True
            most = room_for(w, job, s)
            fill_mask(view, job, s, most)
            if w.engine_1[0].bends and is_suspended(view, job):
                fill_mask_of_suspended(view, job, s)
                if resume_gang(view, job, most) == 0:
                    view.mask_NA[s, 1 + s] = 0
            if w.engine_1[0].tenants and view.mask_NA[s, 1 + s]:
                plan_quota(w, job, min(view.job_J[job].gpus_max, most))
        s = w.state_S[s].next_to_ask
    end_to_ask(w, last)
    if w.engine_1[0].tenants:
        end_plans(w)
    return pause(w, ASK_SLOT) if some else 0


@kernel(inline=True, allocates=False)
def ask_about(w: World, job: int, s: int) -> None:
    """Asks a site about a job, or about none (-1), for which nothing is feasible; it has not answered."""
    no_answer(w.answers, s)
    w.shown.asked_N[s] = job
    if w.engine_1[0].bends:
        show_claims(w, job, s)
    if job < 0 and w.shown.mask_NA[s, HOLD]:  # no row of a question is without it
        w.shown.mask_NA[s, :] = 0


@kernel(inline=True, allocates=False)
def append_to_ask(w: World, last: int, s: int) -> int:
    """Puts a site behind the last (or -1) of those that are asked about further jobs of this slot; returns it."""
    if last < 0:
        w.engine_1[0].first_to_ask = s
    else:
        w.state_S[last].next_to_ask = s
    return s


@kernel(inline=True, allocates=False)
def end_to_ask(w: World, last: int) -> None:
    """Ends the list of the sites that are asked about further jobs of this slot with its last, or empties it (-1)."""
    if last < 0:
        w.engine_1[0].first_to_ask = -1
    else:
        w.state_S[last].next_to_ask = -1


@kernel(inline=True, allocates=False)
def pause(w: World, kind: int) -> int:
    """Prepares a question to all sites and returns its kind."""
    w.shown.run_1[0].kind = kind
    w.shown.run_1[0].site = -1
    show_hour(w)
    w.engine_1[0].steps += 1
    if w.engine_1[0].rewards:
        read_reward(w)
    return kind


@kernel(inline=True, allocates=False)
def next_slot_s(w: World) -> float:
    """Returns the next slot with something to ask or to do, s; infinite when nothing is left."""
    view = w.shown
    slot_s = view.run_1[0].slot_s
    time = np.inf
    for s in range(view.site_S.shape[0]):
        job = w.state_S[s].head
        while job >= 0:
            if not rests(w, job):
                return view.run_1[0].now_s + slot_s
            time = min(time, w.track_J[job].earliest_s)
            job = w.track_J[job].next
    if w.engine_1[0].heap_size > w.engine_1[0].steps_left:
        time = min(time, w.heap_E[0].time)
    if w.engine_1[0].next_arrival < w.submitted_R.shape[0]:
        time = min(time, w.submitted_R[w.engine_1[0].next_arrival].arrival_s)
    if w.engine_1[0].bends:
        time = min(time, next_change_s(w))
        if time <= view.run_1[0].now_s and w.engine_1[0].events > 0:  # a job that stops and is dark for no time
            return view.run_1[0].now_s + slot_s
    return slot_at(slot_s, time) if not np.isinf(time) else np.inf


@kernel(inline=True, allocates=False)
def take_events(w: World, until: float) -> int:
    """Takes all finishes, joins and arrivals up to a time, each at its own; returns 0, or what is missing."""
    view = w.shown
    while True:
        arrival = (
            w.submitted_R[w.engine_1[0].next_arrival].arrival_s
            if w.engine_1[0].next_arrival < w.submitted_R.shape[0]
            else np.inf
        )
        time, kind, serial, job = np.inf, ARRIVAL + 1, 0, 0
        if w.engine_1[0].heap_size > 0:
            time = w.heap_E[0].time
            kind, serial, job = event_of(w.heap_E[0].item)
        if min(time, arrival) > until:
            return 0
        arrives = arrival < time or (arrival == time and kind > ARRIVAL)
        lacks = missing(w) if arrives else 0
        if kind >= LIFT and not arrives and w.engine_1[0].segments + RECORDS > w.segment_K.shape[0]:
            lacks = NO_SEGMENT
        if lacks:
            return lacks
        w.engine_1[0].events += 1
        if arrives:
            view.run_1[0].now_s = max(view.run_1[0].now_s, arrival)
            job = take_job(w)
            if w.engine_1[0].budgets and is_refused(w, job):
                give_up(w, job)
            else:
                enqueue(w, job, view.home_I[view.job_J[job].origin])
            continue
        drop_top(w)
        if kind == WITHHOLD:
            withhold(w, time, serial, job)
            continue
        if view.job_J[job].serial != serial:
            continue  # it was withdrawn
        view.run_1[0].now_s = max(view.run_1[0].now_s, time)
        if kind == FINISH:
            if not runs_on(w, job):
                end_run(w, job)
                give_slot_back(w, job)
        else:
            take_bent(w, kind, job)


@kernel(inline=True, allocates=False)
def drop_overdue(w: World) -> None:
    """Drops every pending job that can no longer start in time."""
    for s in range(w.state_S.shape[0]):
        job = w.state_S[s].head
        while job >= 0:
            behind = w.track_J[job].next
            if is_overdue(w.shown, job, s):
                leave_queue(w, job, s)
                if w.engine_1[0].bends:
                    lose_work(w, job)
                    let_go(w, job, s)
                give_up(w, job)
            job = behind


@kernel(inline=True, allocates=False)
def begin_queues(w: World) -> None:
    """Points each site at the first job of its queue, to be asked about in this slot; lists those that have one."""
    last = -1
    for s in range(w.state_S.shape[0]):
        if w.engine_1[0].tenants:
            order_queue(w, s)
        w.state_S[s].cursor = w.state_S[s].head
        ask_about(w, -1, s)
        if w.state_S[s].cursor >= 0:
            last = append_to_ask(w, last, s)
    end_to_ask(w, last)
    w.engine_1[0].in_slot = OF_QUEUES


@kernel(inline=True, allocates=False)
def close_run(w: World) -> int:
    """Ends the run at the window's end, or after it where jobs ran longer; returns 0."""
    end = max(w.shown.run_1[0].now_s, w.shown.run_1[0].window_s)
    for s in range(w.shown.site_S.shape[0]):
        read_meters(w, s, end)
    w.shown.run_1[0].now_s = end
    read_reward(w)
    w.engine_1[0].ended = 1
    return 0


@kernel(inline=True, allocates=False)
def advance_each_slot(w: World) -> int:
    """Runs until the next decision step; returns ASK_SLOT, 0 at the run's end, or what is missing (NO_SLOT, ...).

    Where it is told from outside, 0 says that the slot it was told to take (``until_s``) is over.
    """
    view = w.shown
    if w.engine_1[0].ended:
        return 0
    while True:
        if w.engine_1[0].in_slot == OF_RUNNING:
            code = ask_running(w)
            if code:
                return code
            if w.engine_1[0].told:
                w.engine_1[0].part_shown = int(view.run_1[0].now_s / w.engine_1[0].part_s)
            begin_queues(w)
        if w.engine_1[0].in_slot:
            code = ask_slot(w)
            if code:
                return code
            w.engine_1[0].in_slot = 0
        if np.isnan(w.engine_1[0].until_s):
            if w.engine_1[0].told:
                view.run_1[0].kind = 0
                return 0
            # The first slot begins at second 0, the others one slot after the last or when something happens.
            w.engine_1[0].until_s = next_slot_s(w)
        time = w.engine_1[0].until_s
        last = np.isinf(time) or (not w.engine_1[0].drained and time >= view.run_1[0].window_s)
        if last and w.engine_1[0].drained:
            return close_run(w)
        lacks = take_events(w, view.run_1[0].window_s if last else time)
        if lacks:
            view.run_1[0].kind = 0  # the last answers have been carried out
            return lacks
        if last:
            view.run_1[0].now_s = view.run_1[0].window_s
            if time == view.run_1[0].window_s:
                drop_overdue(w)
            return close_run(w)
        w.engine_1[0].until_s = np.nan
        view.run_1[0].now_s = time
        drop_overdue(w)
        if w.engine_1[0].bends and something_changed(w):
            w.engine_1[0].in_slot = OF_RUNNING
            continue
        begin_queues(w)

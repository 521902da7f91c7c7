"""Protocol on-arrival: the dispatcher is asked once per job; the job travels, queues in order, starts.

A running job may be suspended: it leaves its site's GPUs, and joins the queue again before all jobs that have not run.
"""

from __future__ import annotations

import numpy as np

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import fill_route_mask, is_suspended
from noonward.decision.cluster.lives import may_cap, resume_gang
from noonward.decision.cluster.view import (
    ASK_ALLOCATE,
    ASK_FINISHED,
    ASK_ROUTE,
    ASK_RUNNING,
    HOLD,
    KEEP,
    ORACLE,
    delay_s,
    departure_s,
    last_start_s,
    latest_start_s,
)
from noonward.engine.cluster.infeasible import FAILED_CAP, FAILED_EARLIEST, FAILED_GPUS, FAILED_LEVEL, FAILED_MASK
from noonward.engine.cluster.kernels.asking import may_suspend_here, next_to_ask
from noonward.engine.cluster.kernels.lateness import pay_lateness
from noonward.engine.cluster.kernels.physics import (
    drop_top,
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
    set_defaults,
    show_hour,
    withhold,
)
from noonward.engine.cluster.kernels.segments import (
    RECORDS,
    ask_cap,
    check_cap,
    end_run,
    join_queue,
    lose_work,
    start_or_resume,
    suspend,
    take_bent,
    take_job,
)
from noonward.engine.cluster.kernels.tenants import first_in_turn, is_refused, next_budget_s
from noonward.engine.cluster.kernels.world import (
    ARRIVAL,
    DEADLINE,
    FINISH,
    FULL,
    HARD_CAPS,
    HOUR,
    KIND_SHIFT,
    LIFT,
    NO_SEGMENT,
    PART,
    REACH,
    SENT,
    TRANSIT,
    WAITING,
    WITHHOLD,
    World,
)
from noonward.units import HOUR_S


@kernel(inline=True, allocates=False)
def ask(w: World, kind: int, job: int, s: int) -> int:
    """Prepares a question and returns its kind."""
    w.shown.run_1[0].kind = kind
    w.shown.run_1[0].site = s
    w.shown.asked_N[0] = job
    show_hour(w)
    set_defaults(w)
    w.engine_1[0].steps += 1
    if w.engine_1[0].rewards:
        read_reward(w)
    return kind


@kernel(inline=True, allocates=False)
def await_hour(w: World, s: int) -> None:
    """Makes an hour an event if a queue is left: the next one, or that in which a budget's next period begins.

    The next one under a hard capacity curve, where the engine is told; a simulation looks at every hour of a curve.
    """
    engine, time = w.engine_1[0], np.inf
    if engine.hour_waits or w.state_S[s].head < 0:
        return
    if engine.caps == HARD_CAPS:
        if engine.told:
            time = (np.floor(w.shown.run_1[0].now_s / HOUR_S) + 1) * HOUR_S
    elif engine.budgets:
        time = next_budget_s(w)
    if time < np.inf:
        w.engine_1[0].hour_waits = 1
        push(w, time, HOUR, 0, 0)


@kernel(inline=True, allocates=False)
def next_in_queue(w: World, s: int) -> int:
    """Returns the job of a site's queue that starts next; -1 for none."""
    head = w.state_S[s].head
    return first_in_turn(w, head) if w.engine_1[0].tenants else not_held(w, head)


@kernel(inline=True, allocates=False)
def dispatch(w: World, s: int) -> int:
    """Starts what the head of a site's queue allows; returns ASK_ALLOCATE to pause, else 0."""
    view = w.shown
    while True:
        job = next_in_queue(w, s)
        if job < 0 or w.state_S[s].drained:
            await_hour(w, s)
            return 0
        if view.run_1[0].now_s > last_start_s(view, job, s):
            drop(w, job, s)
            continue
        if not has_room(w, job, s):
            await_hour(w, s)
            return 0
        if w.engine_1[0].wants_allocate:
            ask(w, ASK_ALLOCATE, job, s)
            row = w.track_J[job].row
            if not is_suspended(view, job):
                w.answers.answer_N[0].gpus = w.outcome_R[row].gpus
                w.answers.answer_N[0].level = w.outcome_R[row].level
            return ASK_ALLOCATE
        if is_suspended(view, job):
            start_queued(w, job, s, 0, ORACLE)
        else:
            row = w.track_J[job].row
            start_queued(w, job, s, w.outcome_R[row].gpus, w.outcome_R[row].level)


@kernel(inline=True, allocates=False)
def drop(w: World, job: int, s: int) -> None:
    """Drops a job of a site's queue that can no longer start or be resumed in time."""
    leave_queue(w, job, s)
    if w.engine_1[0].bends:
        lose_work(w, job)
    give_up(w, job)


@kernel(inline=True, allocates=False)
def has_room(w: World, job: int, s: int) -> bool:
    """Returns whether a job of a site's queue finds the GPUs to start or be resumed now."""
    room = room_for(w, job, s)
    if w.engine_1[0].bends and is_suspended(w.shown, job):
        return resume_gang(w.shown, job, room) > 0
    return room >= w.shown.job_J[job].gpus_min


@kernel(inline=True, allocates=False)
def start_queued(w: World, job: int, s: int, gpus: int, level: int) -> None:
    """Starts a job of a site's queue with the gang (0: the largest that fits) and the clock it was given."""
    leave_queue(w, job, s)
    most = w.shown.job_J[job].gpus_max
    if gpus > 0:
        most = min(most, gpus)
    start_or_resume(w, job, s, min(most, room_for(w, job, s)), level, KEEP)
    pay_lateness(w, job, s)


@kernel(inline=True, allocates=False)
def check_gang(w: World, job: int, s: int) -> int:
    """Returns 0 if the action's gang and clock are possible for a job at a site, else what is wrong."""
    gpus, level = w.answers.answer_N[0].gpus, w.answers.answer_N[0].level
    if gpus != 0 and (gpus < w.shown.job_J[job].gpus_min or gpus > w.shown.job_J[job].gpus_max):
        return FAILED_GPUS
    if level != ORACLE and (level < 0 or level >= w.shown.site_S[s].levels):
        return FAILED_LEVEL
    return FAILED_CAP if w.answers.answer_N[0].cap > 0 else 0


@kernel(inline=True, allocates=False)
def apply_route(w: World) -> int:
    """Sends the job asked about on its way; returns 0, or what is wrong with the action (nothing is then changed)."""
    view = w.shown
    job, choice, earliest = view.asked_N[0], w.answers.answer_N[0].choice, w.answers.answer_N[0].earliest_s
    if choice < 1 or choice > view.site_S.shape[0] or not view.mask_NA[0, choice]:
        return FAILED_MASK
    s = choice - 1
    failed = check_gang(w, job, s)
    if failed:
        return failed
    if np.isnan(earliest) or earliest > last_start_s(view, job, s):
        return FAILED_EARLIEST
    row = w.track_J[job].row
    w.outcome_R[row].gpus = w.answers.answer_N[0].gpus
    w.outcome_R[row].level = w.answers.answer_N[0].level
    w.track_J[job].earliest_s = earliest
    w.outcome_R[row].status = TRANSIT
    w.outcome_R[row].site = s
    begin_s = departure_s(view, job, s)
    if w.engine_1[0].told or w.engine_1[0].drained or begin_s <= view.run_1[0].window_s:
        move(w, job, view.job_J[job].origin, s, begin_s)
    w.track_J[job].reach_s = send(w, job, s)
    push(w, w.track_J[job].reach_s, REACH, view.job_J[job].serial, job)
    note(w, SENT, job)
    return 0


@kernel(inline=True, allocates=False)
def send(w: World, job: int, s: int) -> float:
    """Puts a job on its link; returns when it reaches its site, s.

    A link that queues begins with a job's data when it is through with those before: ``begin = max(now, free)``,
    ``free = begin + GB x s/GB``; the job is there after ``begin + latency + GB x s/GB``. The journey is settled at
    ``begin``; one that would begin after a run that is cut off at its window costs nothing.
    """
    ingress, size_gb = w.shown.job_J[job].origin, w.shown.job_J[job].move_gb
    begin_s = departure_s(w.shown, job, s)
    if w.shown.link_IS[ingress, s].queued and size_gb > 0.0:
        w.shown.link_free_IS[ingress, s] = begin_s + size_gb * w.shown.link_IS[ingress, s].seconds_per_gb
    return begin_s + delay_s(w.shown, job, ingress, s)


@kernel(inline=True, allocates=False)
def apply_allocate(w: World) -> int:
    """Starts the job asked about with the gang and clock answered; returns 0, or what is wrong with the action."""
    s, job = w.shown.run_1[0].site, w.shown.asked_N[0]
    failed = check_gang(w, job, s)
    if failed:
        return failed
    gpus = w.answers.answer_N[0].gpus
    if is_suspended(w.shown, job):
        most = min(gpus if gpus > 0 else w.shown.job_J[job].gpus_max, room_for(w, job, s))
        if resume_gang(w.shown, job, most) == 0:
            return FAILED_GPUS
    start_queued(w, job, s, gpus, w.answers.answer_N[0].level)
    return 0


@kernel(allocates=False)
def ask_running(w: World) -> int:
    """Asks the dispatcher about the next running job of the sites where something has changed.

    Sites in their order, and their jobs in the order in which they began to run; again where an answer has freed GPUs.

    Returns:
        ASK_RUNNING, or 0 when all have been asked about.
    """
    s = 0
    while s < w.state_S.shape[0]:
        if not w.state_S[s].asks and w.state_S[s].changed:
            w.state_S[s].asks, w.state_S[s].changed = 1, 0
            w.state_S[s].cursor = w.state_S[s].running
        if not w.state_S[s].asks:
            s += 1
            continue
        job = next_to_ask(w, w.state_S[s].cursor, s)
        while job >= 0 and w.shown.life_J[job].since_s == w.shown.run_1[0].now_s:  # it has just begun to run
            job = next_to_ask(w, w.track_J[job].next, s)
        if job >= 0:
            w.shown.mask_NA[0, :] = 0
            w.shown.mask_NA[0, HOLD] = 1
            w.shown.mask_NA[0, 1] = may_suspend_here(w, job, s)
            return ask(w, ASK_RUNNING, job, s)
        w.state_S[s].asks = 0
    return 0


@kernel(allocates=False)
def apply_running(w: World) -> int:
    """Suspends or caps the running job asked about if it is to be; returns 0, what is missing, or what is wrong."""
    s, job, answer = w.shown.run_1[0].site, w.shown.asked_N[0], w.answers.answer_N[0]
    if w.engine_1[0].segments + RECORDS > w.segment_K.shape[0]:
        return NO_SEGMENT
    coming = w.submitted_R.shape[0] - w.engine_1[0].next_arrival
    if w.engine_1[0].heap_size + 2 * (coming + w.track_J.shape[0]) + 1 > w.heap_E.shape[0]:
        return FULL  # void deadlines stay in the heap, one for every time that a job has waited
    if answer.choice < 0 or answer.choice > 1 or not w.shown.mask_NA[0, answer.choice]:
        return FAILED_MASK
    if answer.cap != KEEP:
        failed = check_cap(w, job, answer.choice == HOLD and may_cap(w.shown, job), answer.cap)
        if failed:
            return failed
    choice, cap, until_s = answer.choice, answer.cap, answer.earliest_s
    w.state_S[s].cursor = w.track_J[job].next
    if choice != HOLD:
        suspend(w, job, s, until_s)
        w.engine_1[0].dispatch = w.engine_1[0].dispatch_last = s
    elif cap != KEEP and cap != w.shown.life_J[job].cap:
        ask_cap(w, job, s, cap)
    return 0


@kernel(inline=True, allocates=False)
def apply_on_arrival(w: World) -> int:
    """Carries out the answer to the last question; returns 0, or what is wrong with the action."""
    kind = w.shown.run_1[0].kind
    if kind == ASK_ROUTE:
        return apply_route(w)
    if kind == ASK_ALLOCATE:
        return apply_allocate(w)
    if kind == ASK_RUNNING:
        return apply_running(w)
    if kind == ASK_FINISHED:
        give_slot_back(w, w.shown.asked_N[0])
    return 0


@kernel(inline=True, allocates=False)
def reach(w: World, job: int) -> None:
    """Lets a job join its site's queue, or wait for the earliest start it was given."""
    now, serial = w.shown.run_1[0].now_s, w.shown.job_J[job].serial
    s = w.outcome_R[w.track_J[job].row].site
    if w.track_J[job].earliest_s > now:
        push(w, w.track_J[job].earliest_s, REACH, serial, job)
        return
    join_queue(w, job)
    if is_suspended(w.shown, job):
        go_first(w, job, s)
    latest = last_start_s(w.shown, job, s)
    if not np.isinf(latest):
        push(w, latest, DEADLINE, serial, job)
    w.engine_1[0].dispatch = s
    w.engine_1[0].dispatch_last = s


@kernel(allocates=False)
def go_first(w: World, job: int, s: int) -> None:
    """Lets a suspended job, the last of a site's queue, go before all that have not run, in order of due time."""
    place, due_s = w.state_S[s].head, latest_start_s(w.shown, job, s)
    while place != job and is_suspended(w.shown, place) and latest_start_s(w.shown, place, s) <= due_s:
        place = w.track_J[place].next
    if place == job:
        return
    last, before = w.track_J[job].before, w.track_J[place].before
    w.track_J[last].next = -1
    w.state_S[s].tail = last
    w.track_J[job].before, w.track_J[job].next = before, place
    w.track_J[place].before = job
    if before < 0:
        w.state_S[s].head = job
    else:
        w.track_J[before].next = job


@kernel(inline=True, allocates=False)
def lapses(w: World, job: int, time: float) -> bool:
    """Returns whether a job whose deadline was set for a time waits, and may start no later than that."""
    if w.outcome_R[w.track_J[job].row].status != WAITING or w.track_J[job].held:
        return False
    # One that has been suspended may start later than it might when it first waited.
    return not is_suspended(w.shown, job) or time >= last_start_s(w.shown, job, w.shown.life_J[job].site)


@kernel(inline=True, allocates=False)
def lapse(w: World, job: int) -> None:
    """Drops a job that still waits after its latest start, and looks at the queue behind it."""
    s = w.outcome_R[w.track_J[job].row].site
    drop(w, job, s)
    w.engine_1[0].dispatch = s
    w.engine_1[0].dispatch_last = s


@kernel(inline=True, allocates=False)
def close_run(w: World, time: float) -> int:
    """Ends the run at a time; returns 0."""
    w.shown.run_1[0].now_s = time
    for s in range(w.shown.site_S.shape[0]):
        read_meters(w, s, time)
    read_reward(w)
    w.engine_1[0].ended = 1
    return 0


@kernel(inline=True, allocates=False)
def next_arrival(w: World) -> int:
    """Takes the next arrival: asks about it, or drops it if no site can serve it in time."""
    job = take_job(w)
    w.shown.run_1[0].now_s = max(w.shown.run_1[0].now_s, w.shown.job_J[job].arrival_s)
    if (w.engine_1[0].budgets and is_refused(w, job)) or not fill_route_mask(w.shown, job):
        give_up(w, job)
        return 0
    return ask(w, ASK_ROUTE, job, -1)


@kernel(inline=True, allocates=False)
def next_hour(w: World) -> None:
    """Looks at every queue under the new hour's capacity curve."""
    w.engine_1[0].dispatch = 0
    w.engine_1[0].dispatch_last = w.shown.site_S.shape[0] - 1
    w.engine_1[0].hour_waits = 0
    hour = int(np.round(w.shown.run_1[0].now_s / HOUR_S))
    if not w.engine_1[0].told and hour + 1 < w.caps_SH.shape[1]:
        push(w, (hour + 1) * HOUR_S, HOUR, 0, 0)


@kernel(allocates=False)
def next_part(w: World) -> None:
    """Notes that prices and intensities have changed, and when they do next."""
    for s in range(w.state_S.shape[0]):
        w.state_S[s].changed = 1
    part_s = w.engine_1[0].part_s
    part = int(np.round(w.shown.run_1[0].now_s / part_s)) + 1
    if part + 1 < w.signal_KSH.shape[2]:
        push(w, part * part_s, PART, 0, 0)


@kernel(inline=True, allocates=False)
def continue_dispatch(w: World) -> int:
    """Continues with the queues that are to be looked at, then with the questions about running jobs.

    Returns:
        ASK_ALLOCATE or ASK_RUNNING to pause, else 0.
    """
    while w.engine_1[0].dispatch >= 0:
        code = dispatch(w, w.engine_1[0].dispatch)
        if code:
            return code
        w.engine_1[0].dispatch += 1
        if w.engine_1[0].dispatch > w.engine_1[0].dispatch_last:
            w.engine_1[0].dispatch = -1
    return ask_running(w) if w.engine_1[0].bends else 0


@kernel(inline=True, allocates=False)
def advance_on_arrival(w: World) -> int:
    """Runs until the next question; returns its kind, 0 at the run's end, or what is missing.

    Where it is told from outside, 0 says that all that was told (``told_s``) is taken.
    """
    view = w.shown
    if w.engine_1[0].ended:
        return 0
    first_events = w.engine_1[0].events == 0 and not w.engine_1[0].told
    if first_events and w.engine_1[0].caps == HARD_CAPS and w.caps_SH.shape[1] > 1:
        push(w, HOUR_S, HOUR, 0, 0)
    if first_events and w.engine_1[0].bends and w.engine_1[0].has_signals and w.signal_KSH.shape[2] > 2:
        push(w, w.engine_1[0].part_s, PART, 0, 0)
    while True:
        code = continue_dispatch(w)
        if code:
            return code
        arrival = (
            w.submitted_R[w.engine_1[0].next_arrival].arrival_s
            if w.engine_1[0].next_arrival < w.submitted_R.shape[0]
            else np.inf
        )
        time, kind, serial, job = np.inf, DEADLINE, 0, 0
        if w.engine_1[0].heap_size > 0:
            time = w.heap_E[0].time
            kind, serial, job = event_of(w.heap_E[0].item)
        first = min(time, arrival)
        if w.engine_1[0].told:
            if first > w.engine_1[0].told_s:
                view.run_1[0].kind = 0
                return 0
        elif not w.engine_1[0].drained and first > view.run_1[0].window_s:
            return close_run(w, view.run_1[0].window_s)
        elif np.isinf(first) or (w.engine_1[0].drained and np.isinf(arrival) and idle(w, kind)):
            return close_run(w, max(view.run_1[0].now_s, view.run_1[0].window_s))
        arrives = arrival < time or (arrival == time and kind > ARRIVAL)
        lacks = missing(w) if arrives else 0
        if kind >= LIFT and not arrives and w.engine_1[0].segments + RECORDS > w.segment_K.shape[0]:
            lacks = NO_SEGMENT
        if lacks:
            view.run_1[0].kind = 0  # the last answers have been carried out
            return lacks
        w.engine_1[0].events += 1
        if arrives:
            code = next_arrival(w)
            if code:
                return code
            continue
        drop_top(w)
        if kind == WITHHOLD:
            s = withhold(w, time, serial, job)
            w.engine_1[0].dispatch = s
            w.engine_1[0].dispatch_last = s
            continue
        if kind != HOUR and kind != PART and view.job_J[job].serial != serial:
            continue  # it has ended or was withdrawn
        row = w.track_J[job].row
        if kind == DEADLINE:
            if lapses(w, job, time):
                view.run_1[0].now_s = max(view.run_1[0].now_s, time)
                lapse(w, job)
            continue
        view.run_1[0].now_s = max(view.run_1[0].now_s, time)
        if kind == FINISH:
            if runs_on(w, job):
                continue
            s = w.outcome_R[row].site
            end_run(w, job)
            w.engine_1[0].dispatch = s
            w.engine_1[0].dispatch_last = s
            if w.engine_1[0].tenants:  # what its tenant gives back may be taken at any site
                w.engine_1[0].dispatch = 0
                w.engine_1[0].dispatch_last = view.site_S.shape[0] - 1
            if w.engine_1[0].wants_finished:
                view.run_1[0].gpus = w.outcome_R[row].gpus
                view.run_1[0].level = w.outcome_R[row].level
                return ask(w, ASK_FINISHED, job, s)
            give_slot_back(w, job)
        elif kind == REACH:
            reach(w, job)
        elif kind == HOUR:
            next_hour(w)
        elif kind == PART:
            next_part(w)
        else:
            take_bent(w, kind, job)
            w.engine_1[0].dispatch = w.engine_1[0].dispatch_last = w.outcome_R[row].site


@kernel(inline=True, allocates=False)
def idle(w: World, kind: int) -> bool:
    """Returns whether only turns of the hour, steps of what is withheld and void deadlines are left.

    Nothing then runs, waits or travels.
    """
    if kind != HOUR and kind != PART and kind != WITHHOLD and kind != DEADLINE:
        return False
    for s in range(w.shown.site_S.shape[0]):
        if w.shown.site_S[s].waiting > 0 or w.state_S[s].taken > 0:
            return False
    for i in range(w.engine_1[0].heap_size):
        if w.heap_E[i].item >> KIND_SHIFT == REACH:
            return False
    return True

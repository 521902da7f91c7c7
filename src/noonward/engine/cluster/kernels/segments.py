"""Jobs that are suspended, resized and capped, or fail: run, stop, dark, wait, load, run; each noted apart.

A suspended job holds its GPUs at ``stop_power`` for ``stop_s``, none for ``dark_s``, and then waits at its site as a
job with less work left. One that fails or is stopped without notice gives its GPUs back at once, and does again what
it did since its last checkpoint. When it is started again, maybe on another gang or at another site, it holds its GPUs
at ``load_power`` for ``load_s`` before it runs on.
A job under a power cap draws less and runs slower, until its cap is changed, or lifted because its slack is used up.
The heap never holds more than one event of a job: the end of a run that is cut short is taken out of it. What
happens seldom is compiled once, as calls: pasted into every loop it slows runs in which nothing is suspended.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import is_suspended
from noonward.decision.cluster.lives import (
    progress_s,
    resume_gang,
    run_end_s,
    saved_s,
    slack_left_s,
    speed_on,
    unit_s,
    unsaved_s,
)
from noonward.decision.cluster.view import DARK, LOADS, POWER_W, RUNS, STOPS, WAITS, last_start_s
from noonward.engine.cluster.infeasible import FAILED_CAP
from noonward.engine.cluster.kernels.kept_room import owe
from noonward.engine.cluster.kernels.physics import (
    crash_s,
    drop_top,
    enqueue,
    fault_s,
    finish,
    give_slot_back,
    note,
    push,
    push_end,
    read_meters,
    start,
    take_gpus,
    take_slot,
)
from noonward.engine.cluster.kernels.world import (
    A_CAP,
    A_RUN,
    A_STOP,
    BREAK,
    CAPPED,
    CAPS,
    FINISH,
    HALTED,
    KEPT,
    KIND_SHIFT,
    LIFT,
    LOADED,
    NOTHING,
    RAN_ON,
    REACH,
    RESUMED,
    RUNNING,
    SERIAL_SHIFT,
    STOPPED,
    STOPPING,
    TRANSIT,
    World,
)
from noonward.ledger.segments import CRASH, FAIL, FAILED, KILL, LOAD, LOST, REDO, RUN, STOP
from noonward.model.cluster.knowledge import OVERRUN

RECORDS: Final = 5
"""Segments that one stop notes, at most: the run that ends, the part of it that is done again, the stop, and room for
the load and the next run. A change of the power cap notes two at most: the run that ends and the next one."""


@kernel(inline=True, allocates=False)
def take_job(w: World) -> int:
    """Takes the next arrival into sight, as a job that has not run; returns its slot."""
    job = take_slot(w)
    if w.engine_1[0].bends:
        open_life(w, job, w.engine_1[0].next_arrival - 1)
    return job


@kernel(allocates=False)
def open_life(w: World, job: int, record: int) -> None:
    """Notes that a job, submitted by a record of ``submitted_R``, has not run."""
    w.shown.life_J[job].state = WAITS
    w.shown.life_J[job].site = -1
    w.shown.life_J[job].gpus = 0
    w.shown.life_J[job].level = -1
    w.shown.life_J[job].since_s = w.submitted_R[record].arrival_s
    w.shown.life_J[job].until_s = np.inf
    w.shown.life_J[job].suspensions = 0
    w.shown.life_J[job].failures = 0
    w.shown.life_J[job].own_gpus = 0
    w.shown.life_J[job].speed = 1.0
    run_at_full_rate(w, job)
    w.bent_J[job].left = w.submitted_R[record].work
    w.bent_J[job].late_s = 0.0
    w.bent_J[job].noted = -1
    w.bent_J[job].awaits = NOTHING
    w.bent_J[job].wants = 0
    w.bent_J[job].kept = 0
    w.bent_J[job].fails_gpu_s = np.inf
    if w.failure_RX.shape[0] > 0:
        w.bent_J[job].fails_gpu_s = w.failure_RX[w.track_J[job].row, 1]


@kernel(inline=True, allocates=False)
def run_at_full_rate(w: World, job: int) -> None:
    """Notes that a job runs at full power from now on, on the gang it has."""
    w.shown.life_J[job].cap = 0
    w.shown.life_J[job].rate = w.shown.life_J[job].speed
    w.shown.life_J[job].rate_since_s = w.shown.run_1[0].now_s
    w.shown.life_J[job].lift_s = np.inf
    w.shown.life_J[job].unsaved_s = 0.0


@kernel(inline=True, allocates=False)
def start_or_resume(w: World, job: int, s: int, gpus: int, level: int, cap: int) -> None:
    """Starts a job now, or resumes it, at the clock that it had; arguments as in ``start``.

    The last one is a power cap of its class, or KEEP.
    """
    if w.engine_1[0].bends and is_suspended(w.shown, job):
        resume(w, job, s, resume_gang(w.shown, job, gpus), cap)
        return
    start(w, job, s, gpus, level)
    if w.engine_1[0].bends:
        begin_life(w, job, s, cap)


@kernel(allocates=False)
def begin_life(w: World, job: int, s: int, cap: int) -> None:
    """Notes where and on what a job that starts now runs, and under which power cap."""
    outcome = w.outcome_R[w.track_J[job].row]
    w.shown.life_J[job].site = s
    w.shown.life_J[job].gpus = w.shown.life_J[job].own_gpus = outcome.gpus
    w.shown.life_J[job].level = outcome.level
    run_on(w, job, s)
    if w.failure_RX.shape[0] > 0:
        drop_end(w, job)
        push_end(w, job, min(outcome.finish_s, w.shown.life_J[job].until_s))
    if cap > 0:
        change_cap(w, job, s, cap)


@kernel(inline=True, allocates=False)
def is_listed(w: World, job: int) -> bool:
    """Returns whether a job stands in its site's list of running jobs while it runs: something may be done with it."""
    freedom = w.shown.freedom_C[w.shown.job_J[job].class_]
    return bool(freedom.interruptible or freedom.preempted or freedom.caps > 0)


@kernel(inline=True, allocates=False)
def run_on(w: World, job: int, s: int) -> None:
    """Notes that a job begins to run now, at full power."""
    now = w.shown.run_1[0].now_s
    run_at_full_rate(w, job)
    w.shown.life_J[job].state = RUNS
    w.shown.life_J[job].since_s = now
    w.shown.life_J[job].until_s = run_end_s(w.shown, job, w.shown.job_J[job].work)
    list_running(w, job, s)


@kernel(inline=True, allocates=False)
def list_running(w: World, job: int, s: int) -> None:
    """Appends a job to its site's list of running jobs, if something may be done with it."""
    if is_listed(w, job):
        last = w.state_S[s].last_running
        w.track_J[job].before, w.track_J[job].next = last, -1
        if last < 0:
            w.state_S[s].running = job
        else:
            w.track_J[last].next = job
        w.state_S[s].last_running = job


@kernel(allocates=False)
def leave_running(w: World, job: int, s: int) -> None:
    """Takes a job out of the list of a site's running jobs, if it is in it."""
    if not is_listed(w, job):
        return
    before, behind = w.track_J[job].before, w.track_J[job].next
    if before < 0:
        w.state_S[s].running = behind
    else:
        w.track_J[before].next = behind
    if behind < 0:
        w.state_S[s].last_running = before
    else:
        w.track_J[behind].before = before
    w.track_J[job].next = w.track_J[job].before = -1


@kernel(inline=True, allocates=False)
def end_run(w: World, job: int) -> None:
    """Ends a job now: it has done its work."""
    if w.engine_1[0].bends:
        s = w.outcome_R[w.track_J[job].row].site
        if w.shown.life_J[job].state == RUNS:
            if w.engine_1[0].told:
                drop_end(w, job)
            leave_running(w, job, s)
            read_meters(w, s, w.shown.run_1[0].now_s)
            hold_bent(w, job, s, -1)
        else:
            run_through(w, job, s)
    finish(w, job)


@kernel(allocates=False)
def run_through(w: World, job: int, s: int) -> None:
    """Lets a job that stops or loads draw what it draws when it runs: its cluster says that it has ended (told)."""
    outcome, freedom = w.outcome_R[w.track_J[job].row], w.shown.freedom_C[w.shown.job_J[job].class_]
    share = freedom.load_power
    if w.shown.life_J[job].state == STOPS:
        share = freedom.stop_power
        w.state_S[s].stopping -= outcome.gpus
        owe(w, job, s, -1)
    hold_overhead(w, s, -outcome.gpus, -share * outcome.power_w)
    w.state_S[s].busy_w += outcome.power_w


@kernel(inline=True, allocates=False)
def note_segment(w: World, job: int, kind: int, from_s: float, to_s: float, watts: float, units: float) -> None:
    """Notes a segment of a job, at full power; one that begins at NaN is not known yet.

    An engine that is told from outside notes none: whoever tells it keeps them.
    """
    if w.engine_1[0].told:
        return
    x = w.engine_1[0].segments
    w.engine_1[0].segments = x + 1
    outcome = w.outcome_R[w.track_J[job].row]
    w.segment_K[x].job = w.shown.job_J[job].serial
    w.segment_K[x].kind = kind
    w.segment_K[x].site = outcome.site
    w.segment_K[x].gpus = outcome.gpus
    w.segment_K[x].own_gpus = w.shown.life_J[job].own_gpus
    w.segment_K[x].from_s = from_s
    w.segment_K[x].to_s = to_s
    w.segment_K[x].watts = watts
    w.segment_K[x].units = units
    w.segment_K[x].cap = 0
    w.segment_K[x].rate = w.shown.life_J[job].speed if kind == RUN else 0.0
    w.segment_K[x].before = w.bent_J[job].noted
    w.bent_J[job].noted = x


@kernel(inline=True, allocates=False)
def hold_overhead(w: World, s: int, gpus: int, watts: float) -> None:
    """Lets some GPUs of a site (fewer: negative) begin to stop or load now, at some power; meters have been read."""
    w.state_S[s].overhead_gpus += gpus
    w.state_S[s].busy_w += watts
    w.state_S[s].overhead_w += watts
    if w.state_S[s].overhead_gpus == 0:
        w.state_S[s].overhead_w = 0.0


@kernel(inline=True, allocates=False)
def hold_bent(w: World, job: int, s: int, sign: int) -> None:
    """Counts a job's power cap and other gang at its site from now on (-1: no more); meters have been read.

    A job without a cap draws its full power, which this does not touch.
    """
    life, outcome = w.shown.life_J[job], w.outcome_R[w.track_J[job].row]
    if life.cap == 0 and life.gpus == life.own_gpus:
        return
    w.state_S[s].bent_gpus += sign * outcome.gpus
    w.state_S[s].slowed_gpus += sign * (outcome.gpus - life.rate * life.own_gpus)
    if life.cap > 0:
        power = w.shown.freedom_C[w.shown.job_J[job].class_].cap_power[life.cap]
        w.state_S[s].busy_w -= sign * (1.0 - power) * outcome.power_w
        w.state_S[s].capped_gpus += sign * outcome.gpus
    if w.state_S[s].bent_gpus == 0:
        w.state_S[s].slowed_gpus = 0.0


@kernel(inline=True, allocates=False)
def end_stretch(w: World, job: int) -> None:
    """Books what a running job has done at its present rate, up to now: its work, its latest start, its segment."""
    view, life = w.shown, w.shown.life_J[job]
    now, ran_s = view.run_1[0].now_s, progress_s(view, job)
    done = ran_s / unit_s(view, job)
    if w.bent_J[job].noted < 0:
        note_segment(w, job, RUN, life.rate_since_s, now, w.outcome_R[w.track_J[job].row].power_w, done)
    else:
        w.segment_K[w.bent_J[job].noted].to_s = now
        w.segment_K[w.bent_J[job].noted].units = done
    w.bent_J[job].left = max(0.0, w.bent_J[job].left - done)  # rounding alone takes it below 0
    w.bent_J[job].fails_gpu_s -= w.outcome_R[w.track_J[job].row].gpus * (now - life.rate_since_s)
    view.job_J[job].work -= done
    view.job_J[job].expected = min(view.job_J[job].expected, view.job_J[job].work)
    view.job_J[job].deadline_s += ran_s


@kernel(allocates=False)
def change_cap(w: World, job: int, s: int, cap: int) -> None:
    """Lets a running job run under another power cap from now on; 0 for full power."""
    life, now, unsaved = w.shown.life_J[job], w.shown.run_1[0].now_s, unsaved_s(w.shown, job)
    drop_end(w, job)
    read_meters(w, s, now)
    hold_bent(w, job, s, -1)
    if now > life.rate_since_s:
        end_stretch(w, job)
    begin_stretch(w, job, s, cap)
    w.shown.life_J[job].unsaved_s = unsaved
    note(w, CAPS, job)


@kernel(allocates=False)
def check_cap(w: World, job: int, allowed: bool, cap: int) -> int:
    """Returns 0 if a power cap other than full power is one of a job's class and allowed now, else FAILED_CAP."""
    good = allowed and 0 <= cap <= w.shown.freedom_C[w.shown.job_J[job].class_].caps
    return 0 if good else FAILED_CAP


@kernel(allocates=False)
def ask_cap(w: World, job: int, s: int, cap: int) -> None:
    """Changes a running job's power cap now, or asks its cluster to."""
    if w.engine_1[0].told and not w.state_S[s].modelled:
        w.bent_J[job].awaits = A_CAP
        w.bent_J[job].wants = cap
        note(w, CAPS, job)
    else:
        change_cap(w, job, s, cap)


@kernel(allocates=False)
def capped(w: World, job: int) -> None:
    """Takes over the power cap that a job's cluster has put it under."""
    if w.shown.life_J[job].state != RUNS:
        return
    w.bent_J[job].awaits = NOTHING
    if w.bent_J[job].wants != w.shown.life_J[job].cap:
        change_cap(w, job, w.outcome_R[w.track_J[job].row].site, w.bent_J[job].wants)


@kernel(allocates=False)
def lift_cap(w: World, job: int) -> None:
    """Lets a capped job run at full power from now on: its slack is used up."""
    s, now, unsaved = w.outcome_R[w.track_J[job].row].site, w.shown.run_1[0].now_s, unsaved_s(w.shown, job)
    if w.engine_1[0].told and not w.state_S[s].modelled:
        w.shown.life_J[job].lift_s = np.inf
        ask_cap(w, job, s, 0)
        return
    read_meters(w, s, now)
    hold_bent(w, job, s, -1)
    end_stretch(w, job)
    begin_stretch(w, job, s, 0)
    w.shown.life_J[job].unsaved_s = unsaved
    note(w, CAPS, job)


@kernel(allocates=False)
def begin_stretch(w: World, job: int, s: int, cap: int) -> None:
    """Lets a job that holds its GPUs run under a power cap from now on; notes its segment and schedules its end.

    The cap stays until it is changed, or until the job's slack is used up (``slack_left_s``), so that it ends no later
    than an unbroken run from its latest start.
    """
    view, row, now = w.shown, w.track_J[job].row, w.shown.run_1[0].now_s
    freedom = view.freedom_C[view.job_J[job].class_]
    rate, left = freedom.cap_rate[cap] * view.life_J[job].speed, w.bent_J[job].left
    run_at_full_rate(w, job)
    view.life_J[job].cap = cap
    view.life_J[job].rate = rate
    if freedom.cap_rate[cap] < 1.0:
        view.life_J[job].lift_s = now + slack_left_s(view, job) / (1.0 - freedom.cap_rate[cap])
    w.outcome_R[row].finish_s = run_end_s(view, job, left)
    view.life_J[job].until_s = run_end_s(view, job, view.job_J[job].work)
    if not w.engine_1[0].told:
        note_stretch(w, job, cap, left)
    hold_bent(w, job, s, 1)
    push_end(w, job, min(w.outcome_R[row].finish_s, view.life_J[job].until_s))


@kernel(inline=True, allocates=False)
def note_stretch(w: World, job: int, cap: int, left: float) -> None:
    """Notes the segment of a job that runs under a power cap from now on, with so much work left."""
    view, row, now, x = w.shown, w.track_J[job].row, w.shown.run_1[0].now_s, w.bent_J[job].noted
    rate, freedom = view.life_J[job].rate, view.freedom_C[view.job_J[job].class_]
    if x < 0 or w.segment_K[x].from_s < now:
        note_segment(w, job, RUN, now, now, 0.0, 0.0)
        x = w.bent_J[job].noted
    w.segment_K[x].to_s = min(w.outcome_R[row].finish_s, view.life_J[job].lift_s)
    w.segment_K[x].watts = freedom.cap_power[cap] * w.outcome_R[row].power_w
    w.segment_K[x].units = left
    if view.life_J[job].lift_s < w.outcome_R[row].finish_s:
        w.segment_K[x].units = rate * (view.life_J[job].lift_s - now) / unit_s(view, job)
    w.segment_K[x].cap = cap
    w.segment_K[x].rate = rate


@kernel(allocates=False)
def suspend(w: World, job: int, s: int, until_s: float) -> None:
    """Stops a running job now: it writes its checkpoint and gives its GPUs back, or does so at once (``requeue``).

    Args:
        w: World.
        job: Job.
        s: Its site.
        until_s: Time before which it is not to be resumed, s; 0 for none.
    """
    freedom = w.shown.freedom_C[w.shown.job_J[job].class_]
    drop_end(w, job)
    halt(w, job, s, KILL if freedom.requeue else STOP, freedom.stop_s)
    w.track_J[job].earliest_s = 0.0
    if until_s > 0.0:
        w.track_J[job].earliest_s = min(until_s, last_start_s(w.shown, job, s))


@kernel(allocates=False)
def halt(w: World, job: int, s: int, kind: int, stop_s: float) -> None:
    """Stops a job that runs, and whose end is no event any more, to be resumed later.

    Args:
        w: World.
        job: Job.
        s: Its site.
        kind: STOP: it writes its checkpoint first; KILL or CRASH: it gives its GPUs back at once, without one.
        stop_s: How long it takes to write its checkpoint, s; 0 without one.
    """
    view, row = w.shown, w.track_J[job].row
    now = view.run_1[0].now_s
    outcome, freedom = w.outcome_R[row], view.freedom_C[view.job_J[job].class_]
    gpus, power_w, first = outcome.gpus, outcome.power_w, view.life_J[job].suspensions == 0
    at_s, unsaved = saved_s(view, job), unsaved_s(view, job)
    read_meters(w, s, now)
    hold_bent(w, job, s, -1)
    end_stretch(w, job)
    if kind != STOP:
        do_again(w, job, at_s, unsaved)
    run_at_full_rate(w, job)
    note_segment(w, job, kind, now, now + stop_s, freedom.stop_power * power_w if kind == STOP else 0.0, 0.0)
    note_segment(w, job, LOAD, np.nan, np.nan, freedom.load_power * power_w, 0.0)
    note_segment(w, job, RUN, np.nan, np.nan, power_w, 0.0)
    if first:
        view.job_J[job].deadline_s -= freedom.load_s
        set_gangs(w, job, s)
        if freedom.moves:
            view.job_J[job].move_gb += freedom.checkpoint_gb
    view.life_J[job].suspensions += 1
    w.outcome_R[row].status = TRANSIT
    w.outcome_R[row].finish_s = np.nan
    leave_running(w, job, s)
    w.state_S[s].busy_w -= power_w
    asks = w.engine_1[0].told and not w.state_S[s].modelled
    note(w, STOPPING, job)
    if stop_s > 0.0 or asks:
        w.state_S[s].stopping += gpus
        w.state_S[s].stops_until_s = max(w.state_S[s].stops_until_s, now + stop_s)
        hold_overhead(w, s, gpus, freedom.stop_power * power_w)
        view.life_J[job].state = STOPS
        view.life_J[job].since_s = now
        view.life_J[job].until_s = now + stop_s
        if asks:
            w.bent_J[job].awaits = A_STOP
        else:
            push(w, now + stop_s, STOPPED, view.job_J[job].serial, job)
    else:
        darken(w, job, s)
    owe(w, job, s, 1)


@kernel(allocates=False)
def fail(w: World, job: int) -> None:
    """Lets a running job fail now: it is to be resumed from its last checkpoint, or has failed for good.

    The latter by its own fault, or where its hardware has failed more often than it is begun again.
    """
    row, s = w.track_J[job].row, w.outcome_R[w.track_J[job].row].site
    failed = w.shown.life_J[job].failures + 1
    for_good = fault_s(w, job) <= crash_s(w, job) or failed >= w.failure_RX.shape[1] - 1
    w.shown.life_J[job].failures = failed
    if not for_good:
        halt(w, job, s, CRASH, 0.0)
        w.bent_J[job].fails_gpu_s = w.failure_RX[row, 1 + failed]
        return
    now, gpus, power_w = w.shown.run_1[0].now_s, w.outcome_R[row].gpus, w.outcome_R[row].power_w
    read_meters(w, s, now)
    hold_bent(w, job, s, -1)
    end_stretch(w, job)
    lose_work(w, job)
    note_segment(w, job, FAIL, now, now, 0.0, 0.0)
    leave_running(w, job, s)
    take_gpus(w, job, s, -gpus)
    w.state_S[s].busy_w -= power_w
    if w.state_S[s].taken == 0:
        w.state_S[s].busy_w = 0.0
    w.outcome_R[row].status = FAILED
    w.outcome_R[row].finish_s = now
    give_slot_back(w, job)


@kernel(allocates=False)
def do_again(w: World, job: int, at_s: float, unsaved: float) -> None:
    """Counts what a job has done since a checkpoint as not done.

    Args:
        w: World; the job's run has ended now.
        job: Job.
        at_s: Time of the checkpoint, s.
        unsaved: How long what it has done since then takes on its first gang, at full power, s.
    """
    view, units, x = w.shown, unsaved / unit_s(w.shown, job), w.bent_J[job].noted
    w.bent_J[job].left += units
    view.job_J[job].work += units
    view.job_J[job].expected += units
    view.job_J[job].deadline_s -= unsaved
    own = view.life_J[job].own_gpus
    while x >= 0 and w.segment_K[x].kind == RUN and w.segment_K[x].to_s > at_s:
        from_s, to_s, rate = w.segment_K[x].from_s, w.segment_K[x].to_s, w.segment_K[x].rate
        w.engine_1[0].lost_gpu_s += own * rate * (to_s - max(from_s, at_s))
        if from_s >= at_s:
            w.segment_K[x].kind = REDO
            x = w.segment_K[x].before
            continue
        done = w.segment_K[x].units * (at_s - from_s) / (to_s - from_s)
        note_segment(w, job, REDO, at_s, to_s, w.segment_K[x].watts, w.segment_K[x].units - done)
        again = w.bent_J[job].noted
        w.segment_K[again].cap, w.segment_K[again].rate = w.segment_K[x].cap, rate
        w.segment_K[x].to_s, w.segment_K[x].units = at_s, done
        return


@kernel(allocates=False)
def set_gangs(w: World, job: int, s: int) -> None:
    """Says on which gangs a job that is suspended at a site may be resumed: on its own, or where it may be resized.

    It may where it takes that gang alone, and its class lists it.
    """
    own, freedom = w.shown.life_J[job].own_gpus, w.shown.freedom_C[w.shown.job_J[job].class_]
    least, most = w.shown.job_J[job].gpus_min, w.shown.job_J[job].gpus_max
    if not w.engine_1[0].told:  # where a job may move, this is not the first time
        least, most = w.submitted_R[w.track_J[job].row].gpus_min, w.submitted_R[w.track_J[job].row].gpus_max
    listed = False
    for k in range(freedom.gangs):
        listed = listed or freedom.gang_gpus[k] == own
    if not listed or least != most:
        w.shown.job_J[job].gpus_min = w.shown.job_J[job].gpus_max = own
        return
    w.shown.job_J[job].gpus_min = freedom.gang_gpus[0]
    for k in range(freedom.gangs):
        if freedom.gang_gpus[k] <= w.shown.site_S[s].gpus:
            w.shown.job_J[job].gpus_max = freedom.gang_gpus[k]


@kernel(allocates=False)
def stopped(w: World, job: int) -> None:
    """Ends a job's stop: its checkpoint is written, and its GPUs are free."""
    outcome = w.outcome_R[w.track_J[job].row]
    if w.shown.life_J[job].state != STOPS:
        return
    w.bent_J[job].awaits = NOTHING
    w.state_S[outcome.site].stopping -= outcome.gpus
    read_meters(w, outcome.site, w.shown.run_1[0].now_s)
    stop_w = w.shown.freedom_C[w.shown.job_J[job].class_].stop_power * outcome.power_w
    hold_overhead(w, outcome.site, -outcome.gpus, -stop_w)
    darken(w, job, outcome.site)


@kernel(allocates=False)
def keep_running(w: World, job: int) -> None:
    """Lets a job that was to stop run on from now on: its cluster does not stop it."""
    outcome, row = w.outcome_R[w.track_J[job].row], w.track_J[job].row
    if w.shown.life_J[job].state != STOPS:
        return
    w.bent_J[job].awaits = NOTHING
    w.state_S[outcome.site].stopping -= outcome.gpus
    owe(w, job, outcome.site, -1)
    stop_w = w.shown.freedom_C[w.shown.job_J[job].class_].stop_power * outcome.power_w
    hold_overhead(w, outcome.site, -outcome.gpus, -stop_w)
    seconds = w.bent_J[job].left * unit_s(w.shown, job) / w.shown.life_J[job].speed
    w.outcome_R[row].status = RUNNING
    w.outcome_R[row].finish_s = w.shown.run_1[0].now_s + seconds
    run_again(w, job, outcome.site, outcome.power_w)


@kernel(inline=True, allocates=False)
def darken(w: World, job: int, s: int) -> None:
    """Frees a job's GPUs now; it may be resumed once it has been dark for as long as its class says."""
    now = w.shown.run_1[0].now_s
    until = now + w.shown.freedom_C[w.shown.job_J[job].class_].dark_s
    if w.state_S[s].keeps:
        w.bent_J[job].kept = w.outcome_R[w.track_J[job].row].gpus
    else:
        take_gpus(w, job, s, -w.outcome_R[w.track_J[job].row].gpus)
    if w.state_S[s].taken == 0:
        w.state_S[s].busy_w = 0.0
    note(w, HALTED, job)
    w.shown.life_J[job].state = DARK
    w.shown.life_J[job].since_s = now
    w.shown.life_J[job].until_s = until
    push(w, until, REACH, w.shown.job_J[job].serial, job)


@kernel(allocates=False)
def let_go(w: World, job: int, s: int) -> None:
    """Frees the GPUs that a stopped job has kept."""
    if w.bent_J[job].kept > 0:
        take_gpus(w, job, s, -w.bent_J[job].kept)
        w.bent_J[job].kept = 0
        if w.state_S[s].taken == 0:
            w.state_S[s].busy_w = 0.0


@kernel(inline=True, allocates=False)
def join_queue(w: World, job: int) -> None:
    """Lets a job join the queue of its site; a suspended one keeps the time at which it first joined it."""
    row = w.track_J[job].row
    reached_s = w.outcome_R[row].reach_s
    enqueue(w, job, w.outcome_R[row].site)
    if is_suspended(w.shown, job):
        w.outcome_R[row].reach_s = reached_s
        w.shown.life_J[job].state = WAITS
        w.shown.life_J[job].since_s = w.shown.run_1[0].now_s
        w.shown.life_J[job].until_s = np.inf


@kernel(allocates=False)
def leave_site(w: World, job: int, d: int) -> None:
    """Notes that a suspended job leaves for another site now, with its data and its checkpoint."""
    set_gangs(w, job, d)
    owe(w, job, w.shown.life_J[job].site, -1)
    w.shown.life_J[job].state = DARK
    w.shown.life_J[job].site = d
    owe(w, job, d, 1)
    w.shown.life_J[job].since_s = w.shown.run_1[0].now_s
    w.shown.life_J[job].until_s = w.track_J[job].reach_s


@kernel(allocates=False)
def resume(w: World, job: int, s: int, gpus: int, cap: int) -> None:
    """Starts a suspended job again now: it takes its GPUs, loads its checkpoint, and runs on, maybe under a cap."""
    view, row, x = w.shown, w.track_J[job].row, w.bent_J[job].noted
    now, freedom = view.run_1[0].now_s, view.freedom_C[view.job_J[job].class_]
    w.outcome_R[row].gpus = gpus
    if w.engine_1[0].told or gpus != view.life_J[job].gpus or s != w.segment_K[x].site:
        level = view.life_J[job].level
        view.life_J[job].gpus = gpus
        view.life_J[job].speed = speed_on(view, job, gpus)
        w.outcome_R[row].power_w = (
            view.speed_KSCGF[POWER_W, s, view.job_J[job].class_, gpus, level] * view.site_S[s].pue
        )
    power_w = w.outcome_R[row].power_w
    read_meters(w, s, now)
    owe(w, job, s, -1)
    if w.bent_J[job].kept > 0:
        w.bent_J[job].kept = 0
    else:
        take_gpus(w, job, s, gpus)
    begin_s = now + freedom.load_s
    w.outcome_R[row].status = RUNNING
    w.outcome_R[row].finish_s = begin_s + w.bent_J[job].left * unit_s(view, job) / view.life_J[job].speed
    if not w.engine_1[0].told:
        w.segment_K[x - 1].gpus = w.segment_K[x].gpus = gpus
        w.segment_K[x - 1].site = w.segment_K[x].site = s
        w.segment_K[x - 1].watts = freedom.load_power * power_w
        w.segment_K[x].watts = power_w
        w.segment_K[x].rate = view.life_J[job].speed
        w.segment_K[x - 1].from_s = now
        w.segment_K[x - 1].to_s = w.segment_K[x].from_s = begin_s
        w.segment_K[x].to_s = w.outcome_R[row].finish_s
        w.segment_K[x].units = w.bent_J[job].left
    view.life_J[job].cap = max(cap, 0)
    asks = w.engine_1[0].told and not w.state_S[s].modelled
    note(w, RESUMED, job)
    if freedom.load_s > 0.0 or asks:
        hold_overhead(w, s, gpus, freedom.load_power * power_w)
        view.life_J[job].state = LOADS
        view.life_J[job].since_s = now
        view.life_J[job].until_s = begin_s
        if asks:
            w.bent_J[job].awaits = A_RUN
        else:
            push(w, begin_s, LOADED, view.job_J[job].serial, job)
    else:
        run_again(w, job, s, power_w)


@kernel(allocates=False)
def loaded(w: World, job: int) -> None:
    """Ends a job's load: it runs on."""
    outcome, now = w.outcome_R[w.track_J[job].row], w.shown.run_1[0].now_s
    if w.shown.life_J[job].state != LOADS:
        return
    if w.engine_1[0].told:  # maybe later than was expected
        seconds = w.bent_J[job].left * unit_s(w.shown, job) / w.shown.life_J[job].speed
        w.outcome_R[w.track_J[job].row].finish_s = now + seconds
    read_meters(w, outcome.site, now)
    load_w = w.shown.freedom_C[w.shown.job_J[job].class_].load_power * outcome.power_w
    hold_overhead(w, outcome.site, -outcome.gpus, -load_w)
    run_again(w, job, outcome.site, outcome.power_w)


@kernel(allocates=False)
def began(w: World, job: int, time: float) -> None:
    """Takes from a job's cluster that it has begun to load, at a time: it runs on once it has loaded."""
    if w.shown.life_J[job].state != LOADS or w.bent_J[job].awaits != A_RUN:
        return
    w.bent_J[job].awaits = NOTHING
    until_s = max(time + w.shown.freedom_C[w.shown.job_J[job].class_].load_s, w.shown.run_1[0].now_s)
    w.shown.life_J[job].until_s = until_s
    push(w, until_s, LOADED, w.shown.job_J[job].serial, job)


@kernel(allocates=False)
def outlive(w: World, job: int) -> None:
    """Expects a running job to take longer: it runs on though it was expected to have ended by now (told)."""
    now, unit = w.shown.run_1[0].now_s, unit_s(w.shown, job)
    if w.shown.life_J[job].state != RUNS or w.shown.life_J[job].until_s > now:
        return
    done = progress_s(w.shown, job) / unit
    longer = max(w.shown.job_J[job].work, done) * OVERRUN
    w.shown.job_J[job].work = w.shown.job_J[job].expected = w.bent_J[job].left = longer
    w.shown.life_J[job].until_s = w.outcome_R[w.track_J[job].row].finish_s = run_end_s(w.shown, job, longer)


@kernel(allocates=False)
def stand(w: World, job: int, s: int) -> None:
    """Puts a job that has run back where it stood, as its records say; one that waits has joined its queue (told)."""
    life, outcome = w.shown.life_J[job], w.outcome_R[w.track_J[job].row]
    freedom, bent, serial = w.shown.freedom_C[w.shown.job_J[job].class_], w.bent_J[job], w.shown.job_J[job].serial
    owe(w, job, s, 1)
    if bent.kept > 0:
        take_gpus(w, job, s, bent.kept)
    if life.state == DARK:
        push(w, life.until_s, REACH, serial, job)
    if life.state == DARK or life.state == WAITS:
        return
    take_gpus(w, job, s, outcome.gpus)
    if life.state == RUNS:
        w.state_S[s].busy_w += outcome.power_w
        list_running(w, job, s)
        hold_bent(w, job, s, 1)
        push_end(w, job, life.until_s)
    elif life.state == STOPS:
        w.state_S[s].stopping += outcome.gpus
        w.state_S[s].stops_until_s = max(w.state_S[s].stops_until_s, life.until_s)
        hold_overhead(w, s, outcome.gpus, freedom.stop_power * outcome.power_w)
        if bent.awaits == NOTHING:
            push(w, life.until_s, STOPPED, serial, job)
    else:
        hold_overhead(w, s, outcome.gpus, freedom.load_power * outcome.power_w)
        if bent.awaits == NOTHING:
            push(w, life.until_s, LOADED, serial, job)


@kernel(inline=True, allocates=False)
def run_again(w: World, job: int, s: int, power_w: float) -> None:
    """Lets a job that has its GPUs run what is left of it from now on; schedules its finish."""
    cap = w.shown.life_J[job].cap
    w.state_S[s].busy_w += power_w
    run_on(w, job, s)
    note(w, RAN_ON, job)
    if cap > 0:
        begin_stretch(w, job, s, cap)
        return
    hold_bent(w, job, s, 1)
    push_end(w, job, min(w.outcome_R[w.track_J[job].row].finish_s, w.shown.life_J[job].until_s))


@kernel(allocates=False)
def lose_work(w: World, job: int) -> None:
    """Counts the work of a suspended job that is given up as lost: it earns nothing."""
    owe(w, job, w.shown.life_J[job].site, -1)
    x = w.bent_J[job].noted
    while x >= 0:
        segment = w.segment_K[x]
        if segment.kind == RUN:
            w.segment_K[x].kind = LOST
            if not np.isnan(segment.from_s):
                w.engine_1[0].lost_gpu_s += segment.own_gpus * segment.rate * (segment.to_s - segment.from_s)
        x = segment.before


@kernel(inline=True, allocates=False)
def drop_end(w: World, job: int) -> None:
    """Takes the end of a running job, the lift of its cap, or its failure, out of the heap."""
    if w.engine_1[0].told and w.shown.life_J[job].lift_s == np.inf:
        return
    finish_item = (FINISH << KIND_SHIFT) | (w.shown.job_J[job].serial << SERIAL_SHIFT) | job
    lift_item = finish_item + ((LIFT - FINISH) << KIND_SHIFT)
    break_item = finish_item + ((BREAK - FINISH) << KIND_SHIFT)
    i = 0
    while w.heap_E[i].item != finish_item and w.heap_E[i].item != lift_item and w.heap_E[i].item != break_item:
        i += 1
    while i > 0:  # lift it to the top
        parent = (i - 1) >> 1
        w.heap_E[i].time, w.heap_E[i].item = w.heap_E[parent].time, w.heap_E[parent].item
        i = parent
    drop_top(w)


@kernel(inline=True, allocates=False)
def take_bent(w: World, kind: int, job: int) -> None:
    """Takes an event of a job that is stopped, resumed or capped, or fails, now."""
    if kind == STOPPED:
        stopped(w, job)
    elif kind == LOADED:
        loaded(w, job)
    elif kind == LIFT:
        lift_cap(w, job)
    elif kind == BREAK:
        fail(w, job)
    elif kind == CAPPED:
        capped(w, job)
    elif kind == KEPT:
        keep_running(w, job)
    else:
        join_queue(w, job)

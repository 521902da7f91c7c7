"""Running jobs that may be suspended, resized, preempted or capped: which, what slack they have, when they end."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import is_suspended, slot_at
from noonward.decision.cluster.view import DARK, RUNS, SECONDS, STOPS, WAITS, ClusterView, return_delay_s

LEAST_REST_S: Final = 1.0
"""A job that is expected to end within so many seconds is neither suspended nor capped; one with less slack is not
capped."""


@kernel(inline=True, allocates=False)
def unit_s(view: ClusterView, job: int) -> float:
    """Returns a job's seconds per unit of work where it runs or last ran, on the gang it started on, at full power."""
    life = view.life_J[job]
    return view.speed_KSCGF[SECONDS, life.site, view.job_J[job].class_, life.own_gpus, life.level]


@kernel(inline=True, allocates=False)
def progress_s(view: ClusterView, job: int) -> float:
    """Returns how long what a running job has done at its present rate takes on its first gang, at full power, s."""
    life = view.life_J[job]
    return life.rate * (view.run_1[0].now_s - life.rate_since_s)


@kernel(inline=True, allocates=False)
def saved_s(view: ClusterView, job: int) -> float:
    """Returns when a running job wrote its last periodic checkpoint, or began to run if it has written none since, s.

    One is written whenever it has run for ``every_s`` since it started or was resumed.
    """
    life, every_s = view.life_J[job], view.freedom_C[view.job_J[job].class_].every_s
    if every_s <= 0.0:
        return life.since_s
    return life.since_s + np.floor((view.run_1[0].now_s - life.since_s) / every_s) * every_s


@kernel(inline=True, allocates=False)
def unsaved_s(view: ClusterView, job: int) -> float:
    """Returns how long what a running job did since its last checkpoint takes on its first gang, at full power, s."""
    life, at_s = view.life_J[job], saved_s(view, job)
    if at_s >= life.rate_since_s:
        return life.rate * (view.run_1[0].now_s - at_s)
    return life.unsaved_s + progress_s(view, job)


@kernel(inline=True, allocates=False)
def bound_elsewhere(view: ClusterView, job: int, site: int) -> bool:
    """Returns whether a job has failed at another site: it is resumed there alone, as all that have run."""
    return is_suspended(view, job) and view.life_J[job].failures > 0 and view.life_J[job].site != site


@kernel(inline=True, allocates=False)
def is_down(view: ClusterView, job: int) -> bool:
    """Returns whether a job has failed and holds no GPUs now: it has to be started again."""
    if not is_suspended(view, job) or view.life_J[job].failures == 0:
        return False
    return bool(view.life_J[job].state == DARK or view.life_J[job].state == WAITS)


@kernel(inline=True, allocates=False)
def back_s(view: ClusterView, job: int) -> float:
    """Returns when a job that is suspended now could be resumed at its site at the earliest, s.

    The first slot boundary at or after the checkpoint has been written and its GPUs have been dark, and not in the
    slot in which it was suspended.
    """
    now, slot_s = view.run_1[0].now_s, view.run_1[0].slot_s
    freedom = view.freedom_C[view.job_J[job].class_]
    return max(slot_at(slot_s, now + freedom.stop_s + freedom.dark_s), now + slot_s)


@kernel(inline=True, allocates=False)
def resume_until_s(view: ClusterView, job: int) -> float:
    """Returns until when a running job would have to be resumed at its site if it were suspended now, s.

    A job may stand still for its slack in all: while it waits, stops, is dark, waits again and loads, and for the time
    that power caps take from it. So its latest start moves on by the time that it would have run at full power, and a
    resumption leaves room for its load: ``arrival + slack + time run - load - return of the result``, or later where
    jobs may be late. Where it is stopped without notice, what it does again counts as standing still.
    """
    life, record = view.life_J[job], view.job_J[job]
    load_s = view.freedom_C[record.class_].load_s if life.suspensions == 0 else 0.0
    latest_s = record.deadline_s + progress_s(view, job) - load_s - return_delay_s(view, job, life.site)
    if view.freedom_C[record.class_].requeue:
        latest_s -= unsaved_s(view, job)
    return max(latest_s, view.run_1[0].late_until_s)


@kernel(inline=True, allocates=False)
def slack_left_s(view: ClusterView, job: int) -> float:
    """Returns how long a running job could still stand still, s: ``arrival + slack + time run - return - now``.

    On another gang than the one it started on, what it gains or loses in running what is left counts. Power caps use it
    up, by ``1 - throughput`` seconds a second. Lateness gives none: a late job is not capped.
    """
    life, record = view.life_J[job], view.job_J[job]
    load_s = view.freedom_C[record.class_].load_s if life.suspensions > 0 else 0.0  # kept for one more resumption
    latest_s = record.deadline_s + load_s + progress_s(view, job) - return_delay_s(view, job, life.site)
    if life.speed != 1.0:
        left_s = record.work * unit_s(view, job) - progress_s(view, job)
        latest_s += left_s * (1.0 - 1.0 / life.speed)
    return latest_s - view.run_1[0].now_s


@kernel(inline=True, allocates=False)
def run_end_s(view: ClusterView, job: int, work: float) -> float:
    """Returns when a running job ends, s, if its cap stays until it is lifted.

    Args:
        view: View.
        job: Job that runs.
        work: Units of work that were left when it began to run at its present rate.
    """
    life = view.life_J[job]
    seconds = work * unit_s(view, job)
    capped_s = life.lift_s - life.rate_since_s
    if seconds <= life.rate * capped_s:
        return life.rate_since_s + seconds / life.rate
    return life.lift_s + (seconds - life.rate * capped_s) / life.speed


@kernel(inline=True, allocates=False)
def speed_on(view: ClusterView, job: int, gpus: int) -> float:
    """Returns a job's throughput on a gang of its class, over that on the gang it started on."""
    life, freedom = view.life_J[job], view.freedom_C[view.job_J[job].class_]
    speed = own = 1.0
    for k in range(freedom.gangs):
        if freedom.gang_gpus[k] == gpus:
            speed = freedom.gang_speed[k]
        if freedom.gang_gpus[k] == life.own_gpus:
            own = freedom.gang_speed[k]
    return speed / own if gpus != life.own_gpus else 1.0


@kernel(inline=True, allocates=False)
def resume_slack_s(view: ClusterView, job: int, gpus: int) -> float:
    """Returns how long a suspended job could still stand still, s, if it were resumed on a gang of its class now."""
    record, speed = view.job_J[job], speed_on(view, job, gpus)
    slack_s = record.deadline_s - return_delay_s(view, job, view.life_J[job].site) - view.run_1[0].now_s
    return slack_s + record.work * unit_s(view, job) * (1.0 - 1.0 / speed)


@kernel(inline=True, allocates=False)
def resume_gang(view: ClusterView, job: int, most: int) -> int:
    """Returns the gang that a suspended job would be resumed on where it may take so many GPUs at most; 0 for none.

    The one it started on, or where it may be resized the largest gang of its class that is not larger, and on which it
    ends in time, by the run time that is told.
    """
    life, record, freedom = view.life_J[job], view.job_J[job], view.freedom_C[view.job_J[job].class_]
    if record.gpus_min == record.gpus_max and record.gpus_min == life.own_gpus:
        return life.own_gpus if life.own_gpus <= most else 0
    gpus = 0
    for k in range(freedom.gangs):
        if freedom.gang_gpus[k] <= min(most, record.gpus_max):
            gpus = freedom.gang_gpus[k]
    if gpus > 0 and gpus < life.own_gpus and resume_slack_s(view, job, gpus) < 0.0:
        return 0
    return gpus


@kernel(inline=True, allocates=False)
def may_suspend(view: ClusterView, job: int) -> bool:
    """Returns whether a running job may be suspended now: its class is interruptible, and it may be stopped."""
    return bool(view.freedom_C[view.job_J[job].class_].interruptible) and may_stop(view, job)


@kernel(inline=True, allocates=False)
def may_preempt(view: ClusterView, job: int, s: int) -> bool:
    """Returns whether a running job may be stopped now for jobs that wait at its site.

    These lack GPUs (``lacking``) and may displace jobs of its class, and it may be stopped.
    """
    victim = view.freedom_C[view.job_J[job].class_].preempted
    return bool(victim) and view.site_S[s].claimed > 0 and may_stop(view, job) and lacking(view, s) > 0


@kernel(inline=True, allocates=False)
def lacking(view: ClusterView, s: int) -> int:
    """Returns how many GPUs are lacking at a site: claimed ones less free ones and those of jobs that stop.

    Claims are those of the jobs that may displace the job that the site is asked about (``SITE.claimed``).
    """
    gpus = view.site_S[s].claimed - view.site_S[s].free
    for job in range(view.life_J.shape[0]):
        life = view.life_J[job]
        if life.state == STOPS and life.site == s and view.job_J[job].serial >= 0:
            gpus -= life.gpus
    return max(0, gpus)


@kernel(inline=True, allocates=False)
def may_stop(view: ClusterView, job: int) -> bool:
    """Returns whether a running job may be stopped now, if its class allows it at all.

    It has run for the class' shortest run since it started or was resumed, has not been stopped as often as its class
    allows, does not end at once, and could be resumed in time at its site.
    """
    life, freedom = view.life_J[job], view.freedom_C[view.job_J[job].class_]
    if life.state != RUNS or life.suspensions >= freedom.most_suspensions:
        return False
    now = view.run_1[0].now_s
    if now - life.since_s < freedom.min_run_s or life.until_s - now < LEAST_REST_S:
        return False
    return bool(back_s(view, job) <= resume_until_s(view, job))


@kernel(inline=True, allocates=False)
def may_cap(view: ClusterView, job: int) -> bool:
    """Returns whether the power cap of a running job may be changed now: it has caps and slack, or runs under one."""
    life, freedom = view.life_J[job], view.freedom_C[view.job_J[job].class_]
    if life.state != RUNS or freedom.caps == 0 or life.until_s - view.run_1[0].now_s < LEAST_REST_S:
        return False
    return bool(life.cap > 0 or slack_left_s(view, job) >= LEAST_REST_S)


@kernel(inline=True, allocates=False)
def may_start_capped(view: ClusterView, job: int, s: int, gpus: int) -> bool:
    """Returns whether a job that waits at a site may start, or be resumed, under a power cap there now on some GPUs.

    Its class has caps, and it has slack, which a resumption's load does not use up.
    """
    if view.freedom_C[view.job_J[job].class_].caps == 0:
        return False
    if is_suspended(view, job):
        return bool(resume_slack_s(view, job, resume_gang(view, job, gpus)) >= LEAST_REST_S)
    latest_s = view.job_J[job].deadline_s - return_delay_s(view, job, s)
    return bool(latest_s - view.run_1[0].now_s >= LEAST_REST_S)

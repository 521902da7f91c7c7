"""Running jobs that may be suspended or capped: which, what slack they have, and when they end."""

from __future__ import annotations

from typing import Final

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import slot_at
from noonward.decision.cluster.view import RUNS, SECONDS, ClusterView, return_delay_s

LEAST_REST_S: Final = 1.0
"""A job that is expected to end within so many seconds is neither suspended nor capped; one with less slack is not
capped."""


@kernel(inline=True, allocates=False)
def unit_s(view: ClusterView, job: int) -> float:
    """Returns the seconds per unit of work of a job at full power where it runs or last ran."""
    life = view.life_J[job]
    return view.speed_KSCGF[SECONDS, life.site, view.job_J[job].class_, life.gpus, life.level]


@kernel(inline=True, allocates=False)
def progress_s(view: ClusterView, job: int) -> float:
    """Returns how long a running job would have taken at full power for what it has done at its present rate, s."""
    life = view.life_J[job]
    return life.rate * (view.run_1[0].now_s - life.rate_since_s)


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
    jobs may be late.
    """
    life, record = view.life_J[job], view.job_J[job]
    load_s = view.freedom_C[record.class_].load_s if life.suspensions == 0 else 0.0
    latest_s = record.deadline_s + progress_s(view, job) - load_s - return_delay_s(view, job, life.site)
    return max(latest_s, view.run_1[0].late_until_s)


@kernel(inline=True, allocates=False)
def slack_left_s(view: ClusterView, job: int) -> float:
    """Returns how long a running job could still stand still, s: ``arrival + slack + time run - return - now``.

    Power caps use it up, by ``1 - rate`` seconds a second. Lateness gives none: a late job is not capped.
    """
    life, record = view.life_J[job], view.job_J[job]
    load_s = view.freedom_C[record.class_].load_s if life.suspensions > 0 else 0.0  # kept for one more resumption
    latest_s = record.deadline_s + load_s + progress_s(view, job) - return_delay_s(view, job, life.site)
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
    if life.rate == 1.0:
        return life.rate_since_s + seconds
    capped_s = life.lift_s - life.rate_since_s
    if seconds <= life.rate * capped_s:
        return life.rate_since_s + seconds / life.rate
    return life.lift_s + (seconds - life.rate * capped_s)


@kernel(inline=True, allocates=False)
def may_suspend(view: ClusterView, job: int) -> bool:
    """Returns whether a running job may be suspended now.

    Its class is interruptible, it has run for the class' shortest run since it started or was resumed, has not been
    suspended as often as its class allows, does not end at once, and could be resumed in time at its site.
    """
    life, freedom = view.life_J[job], view.freedom_C[view.job_J[job].class_]
    if life.state != RUNS or not freedom.interruptible or life.suspensions >= freedom.most_suspensions:
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
def may_start_capped(view: ClusterView, job: int, s: int) -> bool:
    """Returns whether a job that waits at a site may start, or be resumed, under a power cap there now.

    Its class has caps, and it has slack, which a resumption's load does not use up.
    """
    if view.freedom_C[view.job_J[job].class_].caps == 0:
        return False
    latest_s = view.job_J[job].deadline_s - return_delay_s(view, job, s)
    return bool(latest_s - view.run_1[0].now_s >= LEAST_REST_S)

"""Running jobs that may be suspended: which, when they could be resumed, and until when they must be."""

from __future__ import annotations

from typing import Final

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import slot_at
from noonward.decision.cluster.view import RUNS, ClusterView, return_delay_s

LEAST_REST_S: Final = 1.0
"""A job that is expected to end within so many seconds is not suspended."""


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

    A job may stand still for its slack in all: while it waits, stops, is dark, waits again and loads. So its latest
    start moves on by the time it has run, and a resumption leaves room for its load: ``arrival + slack + time run -
    load - return of the result``, or later where jobs may be late.
    """
    life, record = view.life_J[job], view.job_J[job]
    ran_s = view.run_1[0].now_s - life.since_s
    load_s = view.freedom_C[record.class_].load_s if life.suspensions == 0 else 0.0
    latest_s = record.deadline_s + ran_s - load_s - return_delay_s(view, job, life.site)
    return max(latest_s, view.run_1[0].late_until_s)


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

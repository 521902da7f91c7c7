"""Which running jobs sites are asked about, and when: what has changed, and who claims or is owed GPUs."""

from __future__ import annotations

import numpy as np

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import slot_at
from noonward.decision.cluster.lives import back_s, may_cap, may_preempt, may_suspend
from noonward.decision.cluster.view import fits, last_start_s
from noonward.engine.cluster.kernels.kept_room import may_pause
from noonward.engine.cluster.kernels.physics import current_part, not_held
from noonward.engine.cluster.kernels.tenants import quota_room
from noonward.engine.cluster.kernels.world import NOTHING, World


@kernel(allocates=False)
def next_to_ask(w: World, job: int, s: int) -> int:
    """Returns a running job, or the first behind it in its site's list that is asked about now; -1 for none."""
    while job >= 0:
        if w.bent_J[job].awaits != NOTHING:
            job = w.track_J[job].next
            continue
        if w.state_S[s].asks and (may_suspend_here(w, job, s) or may_cap(w.shown, job)):
            break
        show_claims(w, job, s)
        if may_preempt(w.shown, job, s):
            break
        job = w.track_J[job].next
    return job


@kernel(allocates=False)
def may_suspend_here(w: World, job: int, s: int) -> bool:
    """Returns whether a running job may be suspended now, and gets its GPUs back in time (``kept_room``).

    It surely does where all that is owed is free or will be by then, and it runs on the gang it started on.
    """
    life, state = w.shown.life_J[job], w.state_S[s]
    surely = w.shown.site_S[s].free + state.stopping >= state.owed and life.gpus >= life.own_gpus
    if state.keeps or (surely and state.stops_until_s <= back_s(w.shown, job)):
        return may_suspend(w.shown, job)
    return may_pause(w, job, s)


@kernel(allocates=False)
def show_claims(w: World, asked: int, s: int) -> None:
    """Shows how many GPUs the jobs that wait at a site and may displace the job asked about claim in all.

    Nobody claims any where the site is asked about no job (-1).
    """
    w.shown.site_S[s].claimed = 0
    if asked >= 0 and w.shown.freedom_C[w.shown.job_J[asked].class_].preempted:
        job = not_held(w, w.state_S[s].head)
        while job >= 0:
            if claims(w, job, s) & (1 << w.shown.job_J[asked].class_):
                w.shown.site_S[s].claimed += w.shown.job_J[job].gpus_min
            job = not_held(w, w.track_J[job].next)


@kernel(allocates=False)
def claims(w: World, job: int, s: int) -> int:
    """Returns which classes a job that waits at a site may displace now, as bits: those of its class, if it may start.

    It fits into the site and its tenant's quota, its last start there has not passed, and its scheduler does not hold
    it until later.
    """
    if w.track_J[job].earliest_s > w.shown.run_1[0].now_s or not fits(w.shown, job, s):
        return 0
    if w.shown.run_1[0].now_s > last_start_s(w.shown, job, s):
        return 0
    if w.engine_1[0].tenants and quota_room(w, w.track_J[job].tenant) < w.shown.job_J[job].gpus_min:
        return 0
    return w.shown.freedom_C[w.shown.job_J[job].class_].preempts


@kernel(allocates=False)
def something_changed(w: World) -> bool:
    """Returns whether this is a slot in which sites are asked about running jobs; notes which are.

    Prices change, jobs lack GPUs, an event of the grid begins or ends, or GPUs have become free (``wants_freed``).
    """
    turned, some = prices_changed(w), False
    for s in range(w.state_S.shape[0]):
        w.state_S[s].asks = turned or w.state_S[s].changed > 0
        some = some or w.state_S[s].asks > 0
        w.state_S[s].changed = 0
        w.state_S[s].cursor = w.state_S[s].running
    return some or some_claim(w)


@kernel(allocates=False)
def some_claim(w: World) -> bool:
    """Returns whether a job waits at a site and may displace others that run there."""
    preempts = False
    for c in range(w.shown.freedom_C.shape[0]):
        preempts = preempts or w.shown.freedom_C[c].preempts > 0
    if not preempts:
        return False
    for s in range(w.state_S.shape[0]):
        job = not_held(w, w.state_S[s].head) if w.state_S[s].running >= 0 else -1
        while job >= 0:
            if claims(w, job, s):
                return True
            job = not_held(w, w.track_J[job].next)
    return False


@kernel(allocates=False)
def prices_changed(w: World) -> bool:
    """Returns whether this is the first slot of an hour, or part of one, of prices and intensities.

    One that is told from outside may have been away in that slot: there it is the first that it asks about.
    """
    now = w.shown.run_1[0].now_s
    if w.engine_1[0].told:
        return bool(w.engine_1[0].has_signals and int(now / w.engine_1[0].part_s) != w.engine_1[0].part_shown)
    begins_s = current_part(w, now) * w.engine_1[0].part_s
    return bool(w.engine_1[0].has_signals and now == slot_at(w.shown.run_1[0].slot_s, begins_s))


@kernel(allocates=False)
def next_change_s(w: World) -> float:
    """Returns when prices and intensities change next while a job runs that may be asked about, s; infinite: never.

    Now where something has changed since the running jobs of a site were asked about.
    """
    now, time = w.shown.run_1[0].now_s, np.inf
    changes_s = (current_part(w, now) + 1) * w.engine_1[0].part_s
    for s in range(w.state_S.shape[0]):
        if w.state_S[s].running >= 0 and w.state_S[s].changed:
            return now
        if w.state_S[s].running >= 0 and w.engine_1[0].has_signals and changes_s > now:
            time = changes_s
    return time

"""Room kept for suspended jobs: nothing starts that would keep one of them from being resumed within its slack.

As backfilling keeps a reservation for the first job of a queue (EASY), a site keeps one for every job that is suspended
there: its own gang, from the last moment at which it uses no more than its slack until it would then end. What holds
GPUs at a time follows from the run times that are told.
"""

from __future__ import annotations

import numpy as np

from noonward.compiled import kernel
from noonward.decision.cluster.lives import back_s, may_suspend, progress_s, slack_left_s, unit_s, unsaved_s
from noonward.decision.cluster.view import (
    DARK,
    LOADS,
    RUNS,
    SECONDS,
    STOPS,
    WAITS,
    ClusterView,
    fits,
    latest_start_s,
    return_delay_s,
)
from noonward.engine.cluster.kernels.world import World


@kernel(inline=True, allocates=False)
def is_owed(view: ClusterView, job: int) -> bool:
    """Returns whether a job in sight was stopped, may be suspended, and is to be given GPUs again."""
    life, record = view.life_J[job], view.job_J[job]
    if record.serial < 0 or life.suspensions == 0 or view.freedom_C[record.class_].interruptible == 0:
        return False
    return bool(life.state == STOPS or life.state == DARK or life.state == WAITS)


@kernel(inline=True, allocates=False)
def owe(w: World, job: int, s: int, sign: int) -> None:
    """Notes that a suspended job is to be given GPUs again at its site (-1: no more).

    Nothing that decides how many, by when and for how long changes until it is: these are noted, and the jobs of a site
    are listed in the order in which they are due.
    """
    if not is_owed(w.shown, job):
        return
    w.state_S[s].owed += sign * w.shown.life_J[job].own_gpus
    if sign > 0:
        w.bent_J[job].latest_s = latest_start_s(w.shown, job, w.shown.life_J[job].site)
        w.bent_J[job].needs_s = _needs_s(w.shown, job)
        w.bent_J[job].owed_gpus = w.shown.life_J[job].own_gpus
    before, other = -1, w.state_S[s].first_owed
    while other >= 0 and (other != job if sign < 0 else _goes_first(w, other, job)):
        before, other = other, w.bent_J[other].next_owed
    behind = job
    if sign > 0:
        w.bent_J[job].next_owed = other
    elif other < 0:
        return
    else:
        behind = w.bent_J[job].next_owed
    if before < 0:
        w.state_S[s].first_owed = behind
    else:
        w.bent_J[before].next_owed = behind


@kernel(inline=True, allocates=False)
def _goes_first(w: World, job: int, other: int) -> bool:
    """Returns whether of two suspended jobs of a site the first is due before the second."""
    mine_s, its_s = w.bent_J[job].latest_s, w.bent_J[other].latest_s
    return bool(mine_s < its_s or (mine_s == its_s and w.shown.job_J[job].serial < w.shown.job_J[other].serial))


@kernel(inline=True, allocates=False)
def _on_slot(view: ClusterView, time: float) -> float:
    """Returns the last time at or before a time at which a job can be resumed, s: a slot boundary, if there are such.

    Not before now: a job that is late is resumed as soon as it can be.
    """
    slot_s = view.run_1[0].slot_s
    if slot_s > 0.0 and np.isfinite(time):
        time = np.floor(time / slot_s) * slot_s
    return max(time, view.run_1[0].now_s)


@kernel(inline=True, allocates=False)
def _due_s(w: World, job: int) -> float:
    """Returns by when a suspended job is to be resumed at its site on the gang that it started on, s."""
    return _on_slot(w.shown, w.bent_J[job].latest_s)


@kernel(inline=True, allocates=False)
def _needs_s(view: ClusterView, job: int) -> float:
    """Returns how long a suspended job then holds that gang, s: it loads its checkpoint and runs what is left."""
    return view.freedom_C[view.job_J[job].class_].load_s + view.job_J[job].work * unit_s(view, job)


@kernel(inline=True, allocates=False)
def _holds_until_s(view: ClusterView, job: int) -> float:
    """Returns until when a job that runs, loads or stops may hold its GPUs, s: one that may be capped for longest."""
    life, freedom = view.life_J[job], view.freedom_C[view.job_J[job].class_]
    if life.state == STOPS or (life.state == RUNS and freedom.caps == 0):
        return life.until_s
    if life.state == LOADS:
        begin_s, left_s = life.until_s, view.job_J[job].work * unit_s(view, job) / life.speed
        if freedom.caps == 0:
            return begin_s + left_s
        slack_s = latest_start_s(view, job, life.site) + freedom.load_s - begin_s
    else:
        begin_s = view.run_1[0].now_s
        left_s = (view.job_J[job].work * unit_s(view, job) - progress_s(view, job)) / life.speed
        slack_s = slack_left_s(view, job)
    return begin_s + min(left_s + max(0.0, slack_s), left_s / freedom.cap_rate[freedom.caps])


@kernel(inline=True, allocates=False)
def _would_end_s(w: World, job: int, s: int) -> float:
    """Returns until when a job that waits at a site would hold GPUs at the latest if it were given some now, s."""
    view = w.shown
    if is_owed(view, job):
        return _due_s(w, job) + w.bent_J[job].needs_s
    record, seconds = view.job_J[job], 0.0
    for level in range(view.site_S[s].levels):
        seconds = max(seconds, record.work * view.speed_KSCGF[SECONDS, s, record.class_, record.gpus_min, level])
    now, freedom = view.run_1[0].now_s, view.freedom_C[record.class_]
    if freedom.caps == 0:
        return now + seconds
    slack_s = max(0.0, latest_start_s(view, job, s) - now)
    return now + min(seconds + slack_s, seconds / freedom.cap_rate[freedom.caps])


@kernel(inline=True, allocates=False)
def _keeps_for(view: ClusterView, job: int, other: int) -> bool:
    """Returns whether a job must leave room for another one, suspended and due before it: it may not displace it."""
    preempts = view.freedom_C[view.job_J[job].class_].preempts
    return other != job and (preempts == 0 or not preempts & (1 << view.job_J[other].class_))


@kernel(inline=True, allocates=False)
def _next_first(w: World, job: int, other: int, owed: bool) -> int:
    """Returns a suspended job of a site, or the first behind it that a job must leave room for; -1 for none.

    All of them, but for those that it may displace; one that is owed GPUs itself only for those that are due before it.
    """
    while other >= 0 and not _keeps_for(w.shown, job, other):
        other = w.bent_J[other].next_owed
    if other >= 0 and owed and not _goes_first(w, other, job):
        return -1
    return other


@kernel(allocates=False)
def _due_gpus(w: World, job: int, s: int, from_s: float, until_s: float) -> int:
    """Returns how many GPUs in all a job must leave suspended ones of a site that may hold some between two times."""
    gpus, owed = 0, is_owed(w.shown, job)
    other = _next_first(w, job, w.state_S[s].first_owed, owed)
    while other >= 0:
        due = _due_s(w, other)
        if due > until_s:
            break
        if from_s < due + w.bent_J[other].needs_s:
            gpus += w.bent_J[other].owed_gpus
        other = _next_first(w, job, w.bent_J[other].next_owed, owed)
    return gpus


@kernel(allocates=False)
def _room_beside(w: World, job: int, s: int, time: float, most: int) -> int:
    """Returns how many GPUs of a site a job could hold at a time, beside those that hold some then or are due.

    Where they are as many as a largest number or more, some such number.
    """
    view = w.shown
    gpus = view.site_S[s].free - _due_gpus(w, job, s, time, time)
    for other in range(view.life_J.shape[0]):
        if gpus >= most:
            break
        life = view.life_J[other]
        if view.job_J[other].serial < 0 or life.site != s:
            continue
        holds = life.state == RUNS or life.state == LOADS or life.state == STOPS
        if holds and (other == job or _holds_until_s(view, other) <= time):
            gpus += life.gpus
    return gpus


@kernel(allocates=False)
def _room_between(w: World, job: int, s: int, from_s: float, until_s: float, least: int, most: int) -> int:
    """Returns how many GPUs of a site, so many at most, a job could hold all the time between two times.

    Where they are fewer than a least number, some number below it (``_room_beside``).
    """
    gpus, owed = min(most, _room_beside(w, job, s, from_s, most)), is_owed(w.shown, job)
    other = _next_first(w, job, w.state_S[s].first_owed, owed)
    while other >= 0 and gpus >= least:
        due = _due_s(w, other)
        if due >= until_s:
            break
        if from_s < due:
            gpus = min(gpus, _room_beside(w, job, s, due, gpus))
        other = _next_first(w, job, w.bent_J[other].next_owed, owed)
    return gpus


@kernel(allocates=False)
def spare_gpus(w: World, job: int, s: int) -> int:
    """Returns how many GPUs of a site a job that waits there may take now without keeping suspended ones waiting.

    At every time until it would end, it leaves enough for those that are then due. Run times are those that are told,
    at its slowest clock. Where they are fewer than its smallest gang, some number below that; where they are as many as
    its largest or more, some such number.

    Args:
        w: World.
        job: Job that waits at the site, or is suspended there.
        s: Site.
    """
    view, free = w.shown, w.shown.site_S[s].free
    if not fits(view, job, s):
        return free
    now, until_s = view.run_1[0].now_s, _would_end_s(w, job, s)
    least, most = view.job_J[job].gpus_min, view.job_J[job].gpus_max
    surely = free - _due_gpus(w, job, s, now, until_s)
    if surely >= most:
        return surely
    return max(0, _room_between(w, job, s, now, until_s, least, most))


@kernel(allocates=False)
def may_pause(w: World, job: int, s: int) -> bool:
    """Returns whether a running job may be suspended now (``may_suspend``), and its site has room for it in time.

    It is to find its gang free when it is due, beside what runs and other suspended jobs.
    """
    view = w.shown
    if not may_suspend(view, job):
        return False
    life, record = view.life_J[job], view.job_J[job]
    load_s, ran_s = view.freedom_C[record.class_].load_s, progress_s(view, job)
    if view.freedom_C[record.class_].requeue:
        ran_s -= unsaved_s(view, job)
    latest_s = record.deadline_s + ran_s - (load_s if life.suspensions == 0 else 0.0)
    due = max(_on_slot(view, latest_s - return_delay_s(view, job, s)), back_s(view, job))
    if np.isinf(due):
        return True
    needs_s = load_s + record.work * unit_s(view, job) - ran_s
    return _room_between(w, job, s, due, due + needs_s, life.own_gpus, life.own_gpus) >= life.own_gpus

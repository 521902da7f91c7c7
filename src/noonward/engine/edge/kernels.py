"""Compiled edge engine: arrivals, launches on gangs, completions; one question at a time.

Time is counted in ticks. A launch takes no time, so several can happen at one instant; every wait moves time. Empty
time is skipped, which is exact for schedulers whose answers depend on servers and queue alone; others name the time at
which they want to be asked again.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import int64, typeof, types

from noonward.arrays import Records
from noonward.compiled import kernel
from noonward.decision.edge.gangs import idle_gang, idle_servers, next_idle_t, occupy
from noonward.decision.edge.rule import ANSWERS, MEMORY, RULE, VIEW
from noonward.decision.edge.view import ANSWER, NEVER, NOBODY, WAIT, EdgeAnswers, EdgeMemory, EdgeView, blank_view
from noonward.ledger.edge import TASK_OUTCOME
from noonward.model.edge.quality import quality
from noonward.model.edge.tasks import TASK

ASK: Final = 1
"""Kind of the only question: what to launch now."""
FAILED_CHOICE, FAILED_STEPS, FAILED_UNTIL = -1, -2, -3
"""What carrying out an infeasible answer returns; 0 when all went well."""

ENGINE: Final = np.dtype(
    [
        ("arrived", "i8"),  # tasks that can be seen or wait behind the visible queue
        ("shown", "i8"),  # tasks that have been put into the visible queue so far
        ("places", "i8"),  # tasks in the visible queue
        ("launched", "i8"),
        ("asked", "i8"),  # 1 while an answer is due
        ("questions", "i8"),
        ("limit_t", "i8"),  # last tick at which a task is launched; NEVER without a limit
        ("every_tick", "i8"),  # move one tick at a time instead of from event to event
        ("law", "i8"),  # law of the quality
        ("ended", "i8"),
    ]
)
"""Counters and switches of a run."""


class EdgeWorld(NamedTuple):
    """All arrays of one run."""

    shown: EdgeView
    """What the scheduler sees."""
    answers: EdgeAnswers
    """What it answers."""
    engine_1: Records
    """One ENGINE record."""
    task_K: Records
    """TASK records in order of arrival."""
    track_K: Records
    """TASK_OUTCOME records."""


@kernel(inline=True, allocates=False)
def ticks_up(seconds: float, tick_s: float) -> int:
    """Returns the fewest whole ticks that last at least as long; a rounding error of 1e-9 ticks is forgiven."""
    return np.int64(np.ceil(seconds / tick_s - 1e-9))  # type: ignore[return-value]


@kernel(inline=True, allocates=False)
def _admit(w: EdgeWorld) -> None:
    """Takes in the tasks that have arrived and fills the visible queue."""
    e, view = w.engine_1[0], w.shown
    now_t = view.run_1[0].now_t
    while e.arrived < w.task_K.shape[0] and w.task_K[e.arrived].ready_t <= now_t:
        w.engine_1[0].arrived += 1
        w.shown.run_1[0].waiting += 1
    while e.places < view.task_Q.shape[0] and e.shown < e.arrived:
        task = w.task_K[e.shown]
        q = e.places
        view.task_Q[q].task = e.shown
        view.task_Q[q].stamp_s = task.stamp_s
        view.task_Q[q].gang = task.gang
        view.task_Q[q].model = task.model
        view.task_Q[q].steps_max = task.steps_max
        view.task_Q[q].deadline_s = task.deadline_s
        w.engine_1[0].places += 1
        w.engine_1[0].shown += 1


@kernel(inline=True, allocates=False)
def _next_event_t(w: EdgeWorld) -> int:
    """Returns the tick of the next arrival or completion, NEVER if there is none."""
    e = w.engine_1[0]
    next_t = next_idle_t(w.shown.server_N, w.shown.run_1[0].now_t)
    if next_t < 0:
        next_t = NEVER
    if e.arrived < w.task_K.shape[0]:
        next_t = min(next_t, w.task_K[e.arrived].ready_t)
    return next_t


@kernel(inline=True, allocates=False)
def _fill_mask(w: EdgeWorld) -> bool:
    """Marks the launches that are possible now, and whether there is something to wait for; returns if one fits."""
    view = w.shown
    idle = idle_servers(view.server_N, view.run_1[0].now_t)
    some = False
    for q in range(view.task_Q.shape[0]):
        fits = q < w.engine_1[0].places and view.task_Q[q].gang <= idle
        view.mask_A[1 + q] = fits
        some = some or fits
    return some


@kernel(inline=True, allocates=False)
def _launch(w: EdgeWorld, q: int, steps: float) -> None:
    """Launches the task in a place of the visible queue."""
    view = w.shown
    k = view.task_Q[q].task
    task, run = w.task_K[k], view.run_1[0]
    gang = idle_gang(view.server_N, run.now_t, task.gang, task.model)
    loads = gang == NOBODY
    duration_s = steps * task.step_s + (task.load_s if loads else 0.0)
    until_t = run.now_t + ticks_up(duration_s, run.tick_s)
    gang = occupy(view.server_N, run.now_t, gang, task.gang, task.model, until_t, run.choice)
    track = w.track_K[k]
    track.start_t = run.now_t
    track.steps = steps
    track.loaded = loads
    track.duration_s = duration_s
    track.quality = quality(steps, w.engine_1[0].law)
    servers = 0
    for n in range(view.server_N.shape[0]):
        if view.server_N[n].gang == gang:
            servers |= 1 << n
    track.servers = servers
    last = w.engine_1[0].places - 1
    for p in range(q, last):
        view.task_Q[p] = view.task_Q[p + 1]
    view.task_Q[last].task = NOBODY
    w.engine_1[0].places = last
    w.engine_1[0].launched += 1
    view.run_1[0].waiting -= 1


@kernel(inline=True, allocates=False)
def carry_out(w: EdgeWorld) -> int:
    """Carries out the answer; returns 0, or what is wrong with it (nothing is then changed)."""
    a, view = w.answers.answer_1[0], w.shown
    now_t = view.run_1[0].now_t
    if a.choice < 0 or a.choice > view.task_Q.shape[0]:
        return FAILED_CHOICE
    if a.choice != WAIT:
        if not view.mask_A[a.choice]:
            return FAILED_CHOICE
        most = view.task_Q[a.choice - 1].steps_max
        if not (a.steps >= min(view.run_1[0].steps_min, most) and a.steps <= most):
            return FAILED_STEPS
        _launch(w, a.choice - 1, a.steps)
        return 0
    next_t = _next_event_t(w)
    if not np.isinf(a.until_s):
        latest_t = view.run_1[0].latest_t
        if not (now_t < latest_t and a.until_s <= latest_t * view.run_1[0].tick_s):
            return FAILED_UNTIL
        next_t = min(next_t, max(now_t + 1, ticks_up(a.until_s, view.run_1[0].tick_s)))
    elif not view.mask_A[WAIT]:
        return FAILED_CHOICE
    view.run_1[0].now_t = now_t + 1 if w.engine_1[0].every_tick else next_t
    return 0


@kernel(inline=True, allocates=False)
def advance(w: EdgeWorld) -> int:
    """Runs until the next question; returns ASK, or 0 at the run's end."""
    view = w.shown
    while True:
        e = w.engine_1[0]
        if view.run_1[0].now_t > e.limit_t or e.launched == w.task_K.shape[0]:
            w.engine_1[0].ended = 1
            return 0
        _admit(w)
        some = _fill_mask(w)
        event_t = _next_event_t(w)
        if some:
            view.run_1[0].event = event_t < NEVER
            view.mask_A[WAIT] = event_t < NEVER
            w.answers.answer_1[0].choice = WAIT
            w.answers.answer_1[0].steps = 0.0
            w.answers.answer_1[0].until_s = np.inf
            w.engine_1[0].questions += 1
            return ASK
        if event_t == NEVER:
            w.engine_1[0].ended = 1
            return 0
        view.run_1[0].now_t = view.run_1[0].now_t + 1 if e.every_tick else event_t


@kernel(inline=True, allocates=False)
def begin(w: EdgeWorld, first_t: int) -> None:
    """Empties servers, queue and records: the state at the first tick."""
    for n in range(w.shown.server_N.shape[0]):
        w.shown.server_N[n].free_t = 0
        w.shown.server_N[n].gang = NOBODY
        w.shown.server_N[n].size = 0
        w.shown.server_N[n].model = NOBODY
    for q in range(w.shown.task_Q.shape[0]):
        w.shown.task_Q[q].task = NOBODY
    for k in range(w.task_K.shape[0]):
        w.track_K[k].start_t = -1
    w.shown.run_1[0].now_t = first_t
    w.shown.run_1[0].waiting = 0
    w.engine_1[0].arrived = w.engine_1[0].shown = w.engine_1[0].places = w.engine_1[0].launched = 0
    w.engine_1[0].asked = w.engine_1[0].questions = w.engine_1[0].ended = 0


def blank_world(servers: int = 1, places: int = 1, sizes: int = 2, tasks: int = 1) -> EdgeWorld:
    """Returns the arrays of a run, empty.

    Args:
        servers: Servers N.
        places: Places Q of the visible queue.
        sizes: Gang sizes G, 0 included.
        tasks: Tasks K.
    """
    return EdgeWorld(
        shown=blank_view(servers, places, sizes),
        answers=EdgeAnswers(np.zeros(1, ANSWER)),
        engine_1=np.zeros(1, ENGINE),
        task_K=np.zeros(tasks, TASK),
        track_K=np.zeros(tasks, TASK_OUTCOME),
    )


WORLD = typeof(blank_world())
"""numba type of the world."""


@kernel(int64(WORLD), allocates=False)
def step_edge(w: EdgeWorld) -> int:
    """Carries out the answer that is due and runs to the next question; returns ASK, 0 at the end, or an error."""
    if w.engine_1[0].asked:
        failed = carry_out(w)
        if failed:
            return failed
    kind = advance(w)
    w.engine_1[0].asked = kind
    return kind


@kernel(int64(WORLD, types.FunctionType(RULE), MEMORY), allocates=False)
def run_edge(w: EdgeWorld, rule: Any, memory: EdgeMemory) -> int:
    """Runs to the end under a compiled rule; returns 0, or what is wrong with an answer."""
    while advance(w):
        rule(w.shown, w.answers, memory)
        failed = carry_out(w)
        if failed:
            w.engine_1[0].asked = 1
            return failed
    w.engine_1[0].asked = 0
    return 0


@kernel(types.void(WORLD, int64), allocates=False)
def begin_edge(w: EdgeWorld, first_t: int) -> None:
    """Sets the state at the first tick; tasks, limits and switches stay."""
    begin(w, first_t)


__all__ = [
    "ANSWERS",
    "ASK",
    "VIEW",
    "EdgeWorld",
    "advance",
    "begin",
    "begin_edge",
    "blank_world",
    "carry_out",
    "run_edge",
    "step_edge",
]

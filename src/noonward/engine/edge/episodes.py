"""Many episodes under a compiled rule in one compiled loop: tasks drawn, run, and summed up."""

from __future__ import annotations

from typing import Any

from numba import types

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.data.edge.generate import draw_paper_tasks
from noonward.decision.edge.rule import MEMORY, RULE
from noonward.decision.edge.view import EdgeMemory
from noonward.engine.edge.kernels import WORLD, EdgeWorld, advance, begin, carry_out

LAUNCHED, RESPONSE_S, LOADED, QUALITY, TASKS, QUESTIONS, END_S = range(7)
"""Columns of what an episode sums up to: tasks launched, their responses, loads, qualities; tasks; questions; end."""


@kernel(
    types.void(
        WORLD,
        types.FunctionType(RULE),
        MEMORY,
        types.uint64[::1],
        types.int64,
        types.float64,
        types.float64,
        types.int64,
        types.int64[::1],
        types.float64,
        types.float64[::1],
        types.float64,
        types.float64,
        types.float64[:, ::1],
    ),
    allocates=False,
)
def run_episodes(
    w: EdgeWorld,
    rule: Any,
    memory: EdgeMemory,
    seed_E: Any,
    first: int,
    rate_per_s: float,
    until_s: float,
    first_t: int,
    size_C: Any,
    steps_max: float,
    share_M: F8,
    load_sigma: float,
    deadline_s: float,
    sum_EX: F8,
) -> None:
    """Draws and runs episodes of the paper's arrivals, one a seed; writes their sums."""
    room = w.task_K
    state = memory.random_1
    for e in range(seed_E.shape[0]):
        state[0] = seed_E[e]
        count = draw_paper_tasks(
            room,
            first,
            rate_per_s,
            until_s,
            w.shown.run_1[0].tick_s,
            first_t,
            size_C,
            w.shown.load_s_G,
            w.shown.step_s_G,
            steps_max,
            share_M,
            load_sigma,
            deadline_s,
            state,
        )
        v = EdgeWorld(w.shown, w.answers, w.engine_1, room[:count], w.track_K)
        begin(v, first_t)
        while advance(v):
            rule(v.shown, v.answers, memory)
            if carry_out(v):
                break
        for x in range(7):
            sum_EX[e, x] = 0.0
        sum_EX[e, TASKS] = count
        sum_EX[e, QUESTIONS] = w.engine_1[0].questions
        sum_EX[e, END_S] = w.shown.run_1[0].now_t * w.shown.run_1[0].tick_s
        for k in range(count):
            if w.track_K[k].start_t >= 0:
                track = w.track_K[k]
                sum_EX[e, LAUNCHED] += 1
                sum_EX[e, RESPONSE_S] += track.start_t * w.shown.run_1[0].tick_s + track.duration_s - room[k].stamp_s
                sum_EX[e, LOADED] += track.loaded
                sum_EX[e, QUALITY] += track.quality

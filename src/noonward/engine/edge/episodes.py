"""Many episodes under a compiled rule in one compiled loop: tasks drawn, run, and summed up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
from numba import types

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.data.edge.generate import draw_paper_tasks, model_shares
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.rule import MEMORY, RULE
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import EdgeMemory
from noonward.engine.edge.engine import world_of
from noonward.engine.edge.kernels import WORLD, EdgeWorld, advance, begin, carry_out
from noonward.errors import ScenarioError
from noonward.model.edge.scenario import EdgeScenario, PaperTasks
from noonward.model.edge.tasks import NO_DEADLINE_S
from noonward.seeding import stream

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


def sum_episodes(setting: EdgeScenario, scheduler: CompiledEdgeScheduler, count: int, seed: int = 0) -> F8:
    """Draws and runs many episodes of the paper's arrivals; returns their sums, one row an episode.

    Args:
        setting: Scenario with the paper's arrivals.
        scheduler: Scheduler with a compiled rule.
        count: Number of episodes.
        seed: Seed of the episodes; they are not those of ``build_edge_environment``.

    Raises:
        ScenarioError: The tasks are not the paper's.
    """
    tasks = setting.tasks
    if not isinstance(tasks, PaperTasks):
        raise ScenarioError(f"scenario {setting.name!r} has tasks of source {tasks.source}; this needs source paper")
    world = world_of(setting, tasks.count)
    brief = EdgeBrief(scenario=setting.name, start=datetime(2022, 1, 1, tzinfo=UTC), setting=setting, signals=False)
    scheduler.reset(brief, stream(seed, "policy"))
    sum_EX = np.zeros((count, 7))
    run_episodes(
        world,
        scheduler.rule,
        scheduler.memory,
        stream(seed, "workload").integers(2**64, size=count, dtype=np.uint64),
        tasks.first,
        tasks.rate_per_s,
        tasks.until_s,
        round(setting.first_s / setting.tick_s),
        np.array(tasks.sizes, dtype=np.int64),
        setting.steps_max,
        model_shares(tasks.models.count, tasks.models.exponent, tasks.models.shift),
        tasks.load_sigma,
        NO_DEADLINE_S if tasks.deadline_s is None else tasks.deadline_s,
        sum_EX,
    )
    return sum_EX

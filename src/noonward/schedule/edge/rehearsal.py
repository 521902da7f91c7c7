"""A compiled rule played on sampled tasks before a run: what it yields, for rules that set their numbers by it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import from_dtype, int64, types

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.data.edge.environments import draw_tasks
from noonward.decision.edge.gangs import idle_gang, idle_servers, next_idle_t, occupy
from noonward.decision.edge.rule import ANSWERS, MEMORY, RULE, VIEW
from noonward.decision.edge.view import (
    ANSWER,
    LEAST_FRAGMENTATION,
    LOWEST,
    NEVER,
    NOBODY,
    WAIT,
    EdgeAnswers,
    EdgeMemory,
    EdgeView,
    blank_view,
)
from noonward.model.edge.quality import LAWS, quality
from noonward.model.edge.scenario import EdgeScenario, SessionTasks, TraceTasks
from noonward.model.edge.tasks import TASK

SEED: Final = 7919_0001
"""Seed of the sampled tasks and of searches: none of an environment's."""
LAUNCHED, RESPONSE_S, QUALITY = range(3)
"""Sums over all sampled tasks: launches, their responses, their qualities."""


class Sample(NamedTuple):
    """Sampled episodes of a scenario's law; E episodes, K tasks at most."""

    task_EK: Records
    """TASK records in order of arrival."""
    count_E: I8
    """Tasks of each episode."""


def law_of(setting: EdgeScenario) -> EdgeScenario:
    """Returns a scenario whose tasks have a law: its own; for tasks from a file, that of a real trace's busy hours."""
    tasks = setting.tasks
    if not isinstance(tasks, TraceTasks):
        return setting
    law = SessionTasks(source="sessions", start_hour=21.0, hours=0.5, sizes=tasks.sizes, loads=tasks.loads)
    return setting.model_copy(update={"tasks": law})


def sample_tasks(setting: EdgeScenario, *, episodes: int, tasks: int | None = None) -> Sample:
    """Returns episodes drawn from a scenario's law, which are none of its environments.

    Args:
        setting: Scenario with a law of its tasks.
        episodes: Most episodes.
        tasks: Draw no more episodes once there are so many tasks; None: draw them all.
    """
    drawn: list[Records] = []
    while len(drawn) < episodes and (tasks is None or sum(map(len, drawn)) < tasks):
        drawn.append(draw_tasks(setting, len(drawn), SEED).record_K)
    task_EK = np.zeros((len(drawn), max(map(len, drawn))), TASK)
    for e, record_K in enumerate(drawn):
        task_EK[e, : len(record_K)] = record_K
    return Sample(task_EK, np.array([len(record_K) for record_K in drawn], dtype=np.int64))


@kernel(inline=True, allocates=False)
def _clear(view: EdgeView, first_t: int) -> None:
    """Empties servers and queue."""
    for n in range(view.server_N.shape[0]):
        view.server_N[n].free_t = 0
        view.server_N[n].gang = view.server_N[n].model = NOBODY
        view.server_N[n].size = 0
    for q in range(view.task_Q.shape[0]):
        view.task_Q[q].task = NOBODY
    view.run_1[0].now_t, view.run_1[0].waiting = first_t, 0


@kernel(inline=True, allocates=False)
def _show(view: EdgeView, place: int, k: int, task: Any) -> None:
    """Puts a task into a place of the visible queue."""
    view.task_Q[place].task = k
    view.task_Q[place].stamp_s = task.stamp_s
    view.task_Q[place].gang = task.gang
    view.task_Q[place].model = task.model
    view.task_Q[place].steps_max = task.steps_max
    view.task_Q[place].deadline_s = task.deadline_s


@kernel(
    types.void(
        VIEW,
        ANSWERS,
        types.FunctionType(RULE),
        MEMORY,
        types.Array(from_dtype(TASK), 2, "C"),
        int64[::1],
        int64,
        int64,
        types.float64[::1],
    ),
    allocates=False,
)
def _rehearse(
    view: EdgeView,
    answers: EdgeAnswers,
    rule: Any,
    memory: EdgeMemory,
    task_EK: Records,
    count_E: I8,
    first_t: int,
    law: int,
    sum_X: F8,
) -> None:
    """Plays a rule on every episode to its end and writes the sums; a wait ends at the next arrival or completion."""
    run = view.run_1
    for e in range(task_EK.shape[0]):
        _clear(view, first_t)
        count, arrived, shown, places, launched = count_E[e], 0, 0, 0, 0
        while launched < count:
            now_t = run[0].now_t
            while arrived < count and task_EK[e, arrived].ready_t <= now_t:
                arrived += 1
            while places < view.task_Q.shape[0] and shown < arrived:
                _show(view, places, shown, task_EK[e, shown])
                places, shown = places + 1, shown + 1
            idle = idle_servers(view.server_N, now_t)
            some = False
            for q in range(view.task_Q.shape[0]):
                fits = q < places and view.task_Q[q].gang <= idle
                view.mask_A[1 + q] = fits
                some = some or fits
            next_t = next_idle_t(view.server_N, now_t)
            if arrived < count and (next_t < 0 or task_EK[e, arrived].ready_t < next_t):
                next_t = task_EK[e, arrived].ready_t
            choice = WAIT
            if some:
                run[0].waiting = arrived - launched
                view.mask_A[WAIT] = run[0].event = next_t >= 0
                answers.answer_1[0].choice = WAIT
                rule(view, answers, memory)
                choice = answers.answer_1[0].choice
            if choice == WAIT:
                if next_t < 0:
                    break
                run[0].now_t = next_t
                continue
            task, steps = task_EK[e, view.task_Q[choice - 1].task], answers.answer_1[0].steps
            gang = idle_gang(view.server_N, now_t, task.gang, task.model)
            duration_s = steps * task.step_s + (task.load_s if gang == NOBODY else 0.0)
            until_t = now_t + np.int64(np.ceil(duration_s / run[0].tick_s - 1e-9))
            occupy(view.server_N, now_t, gang, task.gang, task.model, until_t, run[0].choice)
            places -= 1
            for p in range(choice - 1, places):
                view.task_Q[p] = view.task_Q[p + 1]
            view.task_Q[places].task = NOBODY
            launched += 1
            sum_X[LAUNCHED] += 1.0
            sum_X[RESPONSE_S] += now_t * run[0].tick_s + duration_s - task.stamp_s
            sum_X[QUALITY] += quality(steps, law)


def rehearse(setting: EdgeScenario, rule: Any, memory: EdgeMemory, sample: Sample) -> F8:
    """Returns the sums that a rule yields on sampled episodes: launches, their responses, s, and their qualities.

    The engine runs an environment of the same tasks to the same figures (tests/schedule/test_rehearsal.py).

    Args:
        setting: Scenario.
        rule: Compiled rule that waits for events alone.
        memory: Its memory; the rule may write it.
        sample: Episodes.
    """
    view = blank_view(setting.servers.count, setting.visible, max(setting.gang_times) + 1)
    for size, time in setting.gang_times.items():
        view.load_s_G[size], view.step_s_G[size] = time.load_s, time.step_s
    view.run_1["tick_s"], view.run_1["steps_min"], view.run_1["latest_t"] = setting.tick_s, setting.steps_min, NEVER
    view.run_1["choice"] = LOWEST if setting.choice == "lowest" else LEAST_FRAGMENTATION
    sum_X = np.zeros(3)
    first_t = round(setting.first_s / setting.tick_s)
    answers = EdgeAnswers(np.zeros(1, ANSWER))
    _rehearse(view, answers, rule, memory, *sample, first_t, LAWS.index(setting.quality), sum_X)
    return sum_X

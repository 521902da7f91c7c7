"""Futures of a question: tasks that may come, drawn from the scenario's law, and the known queue played on with them.

A rule draws one long list of tasks before a run, from its own random stream, and takes the tasks of the next
``HORIZON_S`` seconds from a random place of it as one future. It knows the law of the arrivals, not when they end: a
future has tasks even where the run has no more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from noonward.arrays import Records
from noonward.compiled import kernel
from noonward.data.edge.environments import draw_tasks
from noonward.decision.edge.gangs import next_idle_t
from noonward.decision.edge.view import NEVER, NOBODY, QUEUED, EdgeMemory, EdgeView
from noonward.draws import random_below, uniform
from noonward.model.edge.scenario import EdgeScenario, PaperTasks, SessionTasks
from noonward.schedule.edge.lookahead import play_launch
from noonward.schedule.edge.rehearsal import law_of
from noonward.schedule.edge.rules import patient_choice
from noonward.units import HOUR_S

HORIZON_S: Final = 60.0
"""How far a future reaches, s. Later tasks add more noise than knowledge to the difference between two choices."""
TASKS: Final = 2_000
"""Tasks of the list where the arrival rate is constant."""
PERIODS: Final = 33
"""Draws of the law that make up the list where the rate varies over the scenario's hours."""
POOL, COMING = 0, 1
"""Rows of the memory's room for copies of the queue: the tasks that wait in a play-out; the list of tasks to come."""
STEPS, FUTURES, COUNT, LENGTH_S, PERIOD_S = range(5)
"""Numbers of the memory: steps that play-outs give, futures of a question, tasks of the list, its length, and after how
many seconds the law repeats itself (0: the rate is constant)."""
_UNDECIDED: Final = -2
"""Place of a play-out that is patient reuse's to choose."""


class Coming(NamedTuple):
    """List of tasks to come; P tasks."""

    task_P: Records
    """QUEUED records in order of their stamps."""
    length_s: float
    period_s: float
    """After how many seconds the law repeats itself; 0: the rate is constant."""


def draw_coming(setting: EdgeScenario, rng: np.random.Generator) -> Coming:
    """Draws a list of tasks to come from a scenario's law.

    The paper's arrivals have a constant rate, so any place of the list is as good as another. Sessions follow the hours
    of the day: the list is several draws of the scenario's hours, one after the other.

    Args:
        setting: Scenario; tasks from a file have no law, those of a real trace stand in (``law_of``).
        rng: Random numbers.
    """
    setting = law_of(setting)
    tasks, seed = setting.tasks, int(rng.integers(2**32))
    if isinstance(tasks, PaperTasks):
        endless = tasks.model_copy(update={"count": TASKS, "first": 0, "until_s": np.inf})
        drawn = [draw_tasks(setting.model_copy(update={"tasks": endless}), 0, seed).record_K]
        period_s, length_s = 0.0, float(drawn[0]["stamp_s"][-1])
    else:
        assert isinstance(tasks, SessionTasks)
        drawn, period_s = [draw_tasks(setting, n, seed).record_K for n in range(PERIODS)], tasks.hours * HOUR_S
        length_s = PERIODS * period_s
    task_P = np.zeros(sum(map(len, drawn)), QUEUED)
    for name in ("stamp_s", "gang", "model", "steps_max", "deadline_s"):
        task_P[name] = np.concatenate([record_K[name] for record_K in drawn])
    task_P["task"] = np.arange(len(task_P))
    task_P["stamp_s"] += np.repeat(period_s * np.arange(len(drawn)), [len(record_K) for record_K in drawn])
    return Coming(task_P, length_s, period_s)


def numbers_for(steps: float, futures: int, coming: Coming | None) -> tuple[float, ...]:
    """Returns the first numbers of a memory (``STEPS`` and so on).

    Args:
        steps: Steps that play-outs give.
        futures: Futures of a question.
        coming: List of tasks to come; None without futures.
    """
    return (steps, futures, *((0, 0.0, 0.0) if coming is None else (len(coming.task_P), *coming[1:])))


def memory_for(
    numbers: tuple[float, ...], setting: EdgeScenario, coming: Coming | None, random_state: int
) -> EdgeMemory:
    """Returns the memory of a rule that looks ahead.

    Args:
        numbers: Numbers, the first of them ``numbers_for``.
        setting: Scenario.
        coming: List of tasks to come; None without futures.
        random_state: Seed of the futures that are drawn.
    """
    servers, places = setting.servers.count, setting.visible
    if coming is None:
        return EdgeMemory.make(numbers=numbers, random_state=random_state, copies=(1, servers, places))
    count = len(coming.task_P)
    memory = EdgeMemory.make(
        numbers=numbers,
        random_state=random_state,
        copies=(2, servers, places + count + 1),
        scratch=np.zeros((2, 1 + places)),
    )
    memory.task_RQ["task"] = NOBODY
    memory.task_RQ[COMING, :count] = coming.task_P
    return memory


@kernel(inline=True, allocates=False)
def draw_time(memory: EdgeMemory, now_s: float) -> float:
    """Returns the time of the list at which a future begins, s: any, or the same time of another period."""
    number = memory.number_P
    if number[PERIOD_S] == 0.0:
        return uniform(memory.random_1) * max(number[LENGTH_S] - HORIZON_S, 0.0)
    periods = np.int64(round(number[LENGTH_S] / number[PERIOD_S]))
    return random_below(memory.random_1, periods - 1) * number[PERIOD_S] + now_s % number[PERIOD_S]


@kernel(inline=True, allocates=False)
def first_from(task_P: Records, count: int, at_s: float) -> int:
    """Returns the first of ``count`` tasks that is stamped at a time or later, s."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if task_P[middle].stamp_s < at_s:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(inline=True, allocates=False)
def _ready_t(stamp_s: float, tick_s: float) -> int:
    """Returns the tick from which a task can be launched: the next one after its stamp."""
    return int(np.floor(stamp_s / tick_s + 1e-9)) + 1


@kernel(allocates=False)
def play_future(view: EdgeView, memory: EdgeMemory, place: int, first: int, until: int, shift_s: float) -> float:
    """Takes a choice in a copy of a question and plays patient reuse on with tasks to come; returns the responses, s.

    Args:
        view: Question.
        memory: Room, steps and list.
        place: Place that is launched, or NOBODY to wait for the next event.
        first: First task of the list that comes.
        until: Task after the last one that comes.
        shift_s: Time of the run at the list's second 0; tasks stamped before now are in the queue behind the visible.
    """
    run, places, steps = view.run_1[0], view.task_Q.shape[0], memory.number_P[STEPS]
    server_N, pool_P, coming_P = memory.server_RN[0], memory.task_RQ[POOL], memory.task_RQ[COMING]
    for n in range(server_N.shape[0]):
        server_N[n] = view.server_N[n]
    count = 0
    while count < places and view.task_Q[count].task != NOBODY:
        pool_P[count] = view.task_Q[count]
        count += 1
    pool_P[count].task = NOBODY
    now_t, total = run.now_t, 0.0
    while True:
        while first < until and _ready_t(coming_P[first].stamp_s + shift_s, run.tick_s) <= now_t:
            pool_P[count] = coming_P[first]
            pool_P[count].stamp_s += shift_s
            pool_P[count + 1].task = NOBODY
            count, first = count + 1, first + 1
        if place == _UNDECIDED and count > 0:
            place = patient_choice(server_N, pool_P[:places], view.load_s_G, view.step_s_G, now_t, run.tick_s, steps)
        if place >= 0:
            total += play_launch(
                server_N, pool_P, place, view.load_s_G, view.step_s_G, now_t, run.tick_s, steps, run.choice
            )
            count -= 1
        else:
            if count == 0 and first == until:
                return total
            next_t = next_idle_t(server_N, now_t)
            if next_t < 0:
                next_t = NEVER
            if first < until:
                next_t = min(next_t, _ready_t(coming_P[first].stamp_s + shift_s, run.tick_s))
            now_t = next_t
        place = _UNDECIDED

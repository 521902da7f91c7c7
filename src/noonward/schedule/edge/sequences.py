"""Open-loop sequences of actions: how one is played, what it earns on sampled episodes, and the rule that plays it.

A sequence holds one action a decision step: whether to launch, how many steps, which place of the queue. It knows
nothing of servers and tasks. As in EAT's public simulator a launch takes no time, and any other action one tick: one
that waits, picks an empty place, or picks a task whose gang is not idle. After its end it begins again.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.decision.edge.gangs import idle_gang, idle_servers, next_idle_t, occupy
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.view import NOBODY, SERVER, EdgeAnswers, EdgeMemory, EdgeView
from noonward.model.edge.quality import LAWS, quality
from noonward.model.edge.reward import launch_reward
from noonward.model.edge.scenario import EdgeScenario

LENGTH: Final = 2048
"""Actions of a sequence (EAT, Sec. VI.A.2)."""
LAUNCHES, STEPS, PLACE = range(3)
"""Genes of an action, each from 0 to 1: launch if at least one half; share of the most steps; share of the places."""
(FIRST_T, TICK_S, PLACES, STEPS_MIN, STEPS_MAX, CHOICE, LAW, QUALITY, RESPONSE, QUEUE, PENALTY, LEAST, DONE) = range(13)
"""Numbers of a setting that playing needs; the last one counts the launches of a run."""


def numbers_of(setting: EdgeScenario) -> F8:
    """Returns the numbers of a setting that playing needs."""
    weights = setting.utility
    return np.array(
        [
            round(setting.first_s / setting.tick_s),
            setting.tick_s,
            setting.visible,
            setting.steps_min,
            setting.steps_max,
            int(setting.choice == "least-fragmentation"),
            LAWS.index(setting.quality),
            weights.quality,
            weights.response_per_s,
            weights.queue_per_s,
            weights.penalty,
            setting.quality_min,
            0.0,
        ]
    )


@kernel(inline=True, allocates=False)
def _place(action_3: F8, places: int) -> int:
    """Returns the place of the queue that an action picks, NOBODY for one that waits."""
    if action_3[LAUNCHES] < 0.5:
        return NOBODY
    return min(int(action_3[PLACE] * places), places - 1)


@kernel(allocates=False)
def play_sequence(
    sequence_X3: F8, task_K: Records, server_N: Records, waiting_K: Records, number_P: F8, most_t: int
) -> float:
    """Plays a sequence on known tasks; returns the sum of the rewards.

    Args:
        sequence_X3: Actions.
        task_K: TASK records in order of arrival.
        server_N: Room for the servers.
        waiting_K: Room for the numbers of the tasks that wait, a record array with the field ``task``.
        number_P: Numbers of the setting.
        most_t: Last tick; what is not launched until then earns nothing.
    """
    for n in range(server_N.shape[0]):
        server_N[n].free_t, server_N[n].gang, server_N[n].size, server_N[n].model = 0, NOBODY, 0, NOBODY
    tick_s, places = number_P[TICK_S], int(number_P[PLACES])
    first_t = int(number_P[FIRST_T])
    t, launched, arrived, waiting, total = first_t, 0, 0, 0, 0.0
    while launched < task_K.shape[0] and t <= most_t:
        while arrived < task_K.shape[0] and task_K[arrived].ready_t <= t:
            waiting_K[waiting].task = arrived
            waiting += 1
            arrived += 1
        idle, seen, some = idle_servers(server_N, t), min(waiting, places), False
        for q in range(seen):
            if task_K[waiting_K[q].task].gang <= idle:
                some = True
                break
        if some:
            q = _place(sequence_X3[(t - first_t + launched) % sequence_X3.shape[0]], places)
            if q == NOBODY or q >= seen or task_K[waiting_K[q].task].gang > idle:
                t += 1
                continue
            task = task_K[waiting_K[q].task]
            share = sequence_X3[(t - first_t + launched) % sequence_X3.shape[0], STEPS]
            steps = min(number_P[STEPS_MIN] + (number_P[STEPS_MAX] - number_P[STEPS_MIN]) * share, task.steps_max)
            gang = idle_gang(server_N, t, task.gang, task.model)
            duration_s = steps * task.step_s + (task.load_s if gang == NOBODY else 0.0)
            until_t = t + np.int64(np.ceil(duration_s / tick_s - 1e-9))
            occupy(server_N, t, gang, task.gang, task.model, until_t, int(number_P[CHOICE]))
            for p in range(q, waiting - 1):
                waiting_K[p].task = waiting_K[p + 1].task
            waiting -= 1
            launched += 1
            left, wait_s = min(waiting, places), 0.0
            for p in range(left):
                wait_s += t * tick_s - task_K[waiting_K[p].task].stamp_s
            total += launch_reward(
                quality(steps, int(number_P[LAW])),
                t * tick_s - task.stamp_s + duration_s,
                wait_s / left if left else 0.0,
                number_P[QUALITY],
                number_P[RESPONSE],
                number_P[QUEUE],
                number_P[PENALTY],
                number_P[LEAST],
            )
            continue
        next_t = next_idle_t(server_N, t)
        if arrived < task_K.shape[0] and (next_t < 0 or task_K[arrived].ready_t < next_t):
            next_t = task_K[arrived].ready_t
        if next_t < 0:
            break
        t = next_t
    return total


@kernel(allocates=False)
def rewards_of(
    sequence_BX3: F8,
    task_EK: Records,
    count_E: I8,
    server_N: Records,
    waiting_K: Records,
    number_P: F8,
    most_t: int,
    sum_B: F8,
) -> None:
    """Writes the sum of the rewards of some sequences over some episodes.

    Args:
        sequence_BX3: Sequences.
        task_EK: Tasks of every episode, TASK records.
        count_E: Tasks of each episode.
        server_N: Room for the servers.
        waiting_K: Room for the tasks that wait.
        number_P: Numbers of the setting.
        most_t: Last tick.
        sum_B: Where the sums are written.
    """
    for b in range(sequence_BX3.shape[0]):
        sum_B[b] = 0.0
        for e in range(task_EK.shape[0]):
            tasks = task_EK[e, : count_E[e]]
            sum_B[b] += play_sequence(sequence_BX3[b], tasks, server_N, waiting_K, number_P, most_t)


@edge_rule
def sequence_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Answers with the action of this decision step: ticks since the first one, and launches."""
    run, number_P = view.run_1[0], memory.number_P
    step = run.now_t - int(number_P[FIRST_T]) + int(number_P[DONE])
    action = memory.scratch_XY[step % memory.scratch_XY.shape[0]]
    q = _place(action, view.task_Q.shape[0])
    if q != NOBODY and view.mask_A[1 + q]:
        steps = number_P[STEPS_MIN] + (number_P[STEPS_MAX] - number_P[STEPS_MIN]) * action[STEPS]
        answers.answer_1[0].choice = 1 + q
        answers.answer_1[0].steps = min(steps, view.task_Q[q].steps_max)
        memory.number_P[DONE] += 1.0
    elif run.now_t < run.latest_t:
        answers.answer_1[0].until_s = (run.now_t + 1) * run.tick_s


def blank_servers(count: int) -> Records:
    """Returns room for servers."""
    return np.zeros(count, SERVER)

"""Known-queue lookahead: every launch and the wait are tried, and patient reuse played on with the tasks known now.

It is a rollout policy (Bertsekas, Tsitsiklis and Wu 1997) whose base policy is patient reuse.
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, Records
from noonward.compiled import kernel
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.gangs import idle_gang, next_idle_t, occupy
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.view import NOBODY, EdgeAnswers, EdgeMemory, EdgeView
from noonward.schedule.edge.rules import EdgeRule, patient_choice


@kernel(inline=True, allocates=False)
def play_launch(
    server_N: Records,
    task_Q: Records,
    q: int,
    load_s_G: F8,
    step_s_G: F8,
    now_t: int,
    tick_s: float,
    steps: float,
    choice: int,
) -> float:
    """Launches the task in a place of copies of servers and queue; returns its response, s."""
    size, model = task_Q[q].gang, task_Q[q].model
    gang = idle_gang(server_N, now_t, size, model)
    duration_s = min(steps, task_Q[q].steps_max) * step_s_G[size]
    if gang == NOBODY:
        duration_s += load_s_G[size]
    occupy(server_N, now_t, gang, size, model, now_t + np.int64(np.ceil(duration_s / tick_s - 1e-9)), choice)
    response_s = now_t * tick_s + duration_s - task_Q[q].stamp_s
    for p in range(q, task_Q.shape[0] - 1):
        task_Q[p] = task_Q[p + 1]
        if task_Q[p].task == NOBODY:
            break
    task_Q[task_Q.shape[0] - 1].task = NOBODY
    return response_s


@kernel(allocates=False)
def play_patient(
    server_N: Records,
    task_Q: Records,
    load_s_G: F8,
    step_s_G: F8,
    now_t: int,
    tick_s: float,
    steps: float,
    choice: int,
    most: float,
) -> float:
    """Plays patient reuse until a copy of the queue is empty; returns the sum of the responses, s.

    Args:
        server_N: Copy of the servers; changed.
        task_Q: Copy of the queue; emptied.
        load_s_G: Seconds to load, by gang size.
        step_s_G: Seconds a step, by gang size.
        now_t: Now.
        tick_s: Length of a tick, s.
        steps: Steps that tasks are given.
        choice: How servers are chosen.
        most: Stop once the sum is above this, s.
    """
    total = 0.0
    while task_Q[0].task != NOBODY and total <= most:
        q = patient_choice(server_N, task_Q, load_s_G, step_s_G, now_t, tick_s, steps)
        if q == NOBODY:
            now_t = next_idle_t(server_N, now_t)
        else:
            total += play_launch(server_N, task_Q, q, load_s_G, step_s_G, now_t, tick_s, steps, choice)
    return total


@kernel(inline=True, allocates=False)
def copy_state(view: EdgeView, server_N: Records, task_Q: Records) -> None:
    """Copies servers and visible queue."""
    for n in range(server_N.shape[0]):
        server_N[n] = view.server_N[n]
    for q in range(task_Q.shape[0]):
        task_Q[q] = view.task_Q[q]


@kernel(allocates=False)
def lookahead_choice(view: EdgeView, memory: EdgeMemory, steps: float) -> int:
    """Returns the place whose launch leads to the least sum of responses of the tasks known now, or NOBODY to wait.

    Args:
        view: The question.
        memory: Room for a copy of servers and queue.
        steps: Steps that tasks are given.
    """
    run = view.run_1[0]
    server_N, task_Q = memory.server_RN[0], memory.task_RQ[0][: view.task_Q.shape[0]]
    best, least = NOBODY, np.inf
    for q in range(view.task_Q.shape[0]):
        if view.task_Q[q].task == NOBODY:
            break
        if not view.mask_A[1 + q]:
            continue
        seen = False
        for p in range(q):
            if view.task_Q[p].gang == view.task_Q[q].gang and view.task_Q[p].model == view.task_Q[q].model:
                seen = True
                break
        if seen:
            continue
        copy_state(view, server_N, task_Q)
        total = play_launch(server_N, task_Q, q, view.load_s_G, view.step_s_G, run.now_t, run.tick_s, steps, run.choice)
        total += play_patient(
            server_N, task_Q, view.load_s_G, view.step_s_G, run.now_t, run.tick_s, steps, run.choice, least
        )
        if total < least:
            best, least = q, total
    next_t = next_idle_t(view.server_N, run.now_t)
    if next_t > 0:
        copy_state(view, server_N, task_Q)
        total = play_patient(
            server_N, task_Q, view.load_s_G, view.step_s_G, next_t, run.tick_s, steps, run.choice, least
        )
        if total < least:
            best = NOBODY
    return best


@edge_rule
def lookahead_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches what leads to the least sum of responses of the tasks known now, or waits for the next completion."""
    steps = memory.number_P[0]
    best = lookahead_choice(view, memory, steps)
    if best != NOBODY:
        answers.answer_1[0].choice = 1 + best
        answers.answer_1[0].steps = min(steps, view.task_Q[best].steps_max)


class Lookahead(EdgeRule):
    """Tries every launch and the wait, plays patient reuse to the end on the tasks known now, takes the best."""

    rule = staticmethod(lookahead_rule)

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory with room for a copy of servers and queue."""
        return EdgeMemory.make(
            numbers=(self.steps_in(brief),), copies=(1, brief.setting.servers.count, brief.setting.visible)
        )

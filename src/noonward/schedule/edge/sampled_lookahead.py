"""Lookahead over sampled futures: every launch and the wait are also tried with tasks that may come."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.compiled import kernel
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.gangs import next_idle_t
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.view import NOBODY, WAIT, EdgeAnswers, EdgeMemory, EdgeView
from noonward.schedule.edge.futures import (
    COMING,
    COUNT,
    FUTURES,
    HORIZON_S,
    STEPS,
    draw_coming,
    draw_time,
    first_from,
    memory_for,
    numbers_for,
    play_future,
)
from noonward.schedule.edge.lookahead import lookahead_choice
from noonward.schedule.edge.rules import EdgeRule

USUAL: Final = 64
"""Futures of a question, unless told otherwise."""
SUM, SQUARES = range(2)
"""Rows of the scratch room, by choice: what a choice costs more than the known-queue lookahead's, over all futures so
far, and the squares of that."""


@kernel(inline=True, allocates=False)
def _is_tried(view: EdgeView, a: int) -> bool:
    """Returns whether a choice is feasible, and the oldest of its class; a wait needs a server that becomes idle."""
    if not view.mask_A[a]:
        return False
    if a == WAIT:
        return next_idle_t(view.server_N, view.run_1[0].now_t) > 0
    for p in range(a - 1):
        if view.task_Q[p].gang == view.task_Q[a - 1].gang and view.task_Q[p].model == view.task_Q[a - 1].model:
            return False
    return True


@kernel(inline=True, allocates=False)
def _hidden(view: EdgeView) -> int:
    """Returns how many tasks wait behind the visible ones."""
    hidden = view.run_1[0].waiting
    for q in range(view.task_Q.shape[0]):
        if view.task_Q[q].task != NOBODY:
            hidden -= 1
    return hidden


@kernel(allocates=False)
def sampled_choice(view: EdgeView, memory: EdgeMemory) -> int:
    """Returns the place to launch, or NOBODY to wait, by the tasks known now and those of sampled futures.

    All choices are played on with the same futures. Taken is the choice of the known-queue lookahead, unless another
    one's mean cost over the futures lies below that one's by more than its standard error; then the one that lies
    furthest below. Tasks behind the visible ones, of which only the number is known, are sampled too.

    Args:
        view: The question.
        memory: Memory of ``futures.memory_for``; without futures the answer is the lookahead's.
    """
    number, now_s = memory.number_P, view.run_1[0].now_t * view.run_1[0].tick_s
    known = 1 + lookahead_choice(view, memory, number[STEPS])
    futures, rivals = np.int64(number[FUTURES]), 0
    if futures == 0:
        return known - 1
    sum_XA = memory.scratch_XY
    for a in range(view.mask_A.shape[0]):
        sum_XA[SUM, a] = sum_XA[SQUARES, a] = 0.0
        if a != known and _is_tried(view, a):
            rivals += 1
    if rivals == 0:
        return known - 1
    coming_P, count, hidden = memory.task_RQ[COMING], np.int64(number[COUNT]), _hidden(view)
    for _ in range(futures):
        at_s = draw_time(memory, now_s)
        first, until = first_from(coming_P, count, at_s), first_from(coming_P, count, at_s + HORIZON_S)
        first = max(first - hidden, 0)
        base = play_future(view, memory, known - 1, first, until, now_s - at_s)
        for a in range(view.mask_A.shape[0]):
            if a != known and _is_tried(view, a):
                more = play_future(view, memory, a - 1, first, until, now_s - at_s) - base
                sum_XA[SUM, a] += more
                sum_XA[SQUARES, a] += more * more
    best, least = known, 0.0
    for a in range(view.mask_A.shape[0]):
        mean = sum_XA[SUM, a] / futures
        error = np.sqrt(max(sum_XA[SQUARES, a] / futures - mean * mean, 0.0) / futures)
        if mean + error < least:
            best, least = a, mean + error
    return best - 1


@edge_rule
def sampled_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches what leads to the least sum of responses over sampled futures, or waits for the next completion."""
    steps = memory.number_P[STEPS]
    best = sampled_choice(view, memory)
    if best != NOBODY:
        answers.answer_1[0].choice = 1 + best
        answers.answer_1[0].steps = min(steps, view.task_Q[best].steps_max)


class SampledLookahead(EdgeRule):
    """The lookahead, which also plays each choice on with tasks that may come, sampled from the scenario's law.

    It departs from the known-queue lookahead's choice only where the futures speak for another one beyond their
    standard error.

    Args:
        futures: Futures of a question; 0: the known-queue lookahead.
        steps: Inference steps of every task; a task that may have fewer gets its most. None: the scenario's.

    Raises:
        ValueError: A value is out of range.
    """

    rule = staticmethod(sampled_rule)

    def __init__(self, futures: int = USUAL, steps: float | None = None) -> None:
        super().__init__(steps)
        self.futures = checked_futures(futures)

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the steps and a list of tasks to come, with room for play-outs."""
        coming = draw_coming(brief.setting, rng) if self.futures else None
        numbers = numbers_for(self.steps_in(brief), self.futures, coming)
        return memory_for(numbers, brief.setting, coming, int(rng.integers(2**63)))


def checked_futures(futures: int) -> int:
    """Returns a number of futures.

    Raises:
        ValueError: It is below 0.
    """
    if futures < 0:
        raise ValueError(f"futures is {futures}; give a whole number of at least 0")
    return futures

"""Lookahead that also chooses the number of inference steps, by the length of the queue alone."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import NOBODY, EdgeAnswers, EdgeMemory, EdgeView
from noonward.model.edge.quality import STEPS_HIGH, steps_for, steps_least
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.edge.futures import STEPS, memory_for, numbers_for
from noonward.schedule.edge.goal import goal_of, rehearsed
from noonward.schedule.edge.lookahead import lookahead_choice
from noonward.schedule.edge.rehearsal import law_of

FEWER, LOW, HIGH = range(5, 8)
"""Numbers of the memory behind those of ``futures.numbers_for``: steps fewer per task that waits, fewest and most
steps."""
LEAST: Final = 12.0
"""Fewest steps of an image, however many tasks wait."""
MOST_FEWER: Final = 30.0
"""Most steps fewer per waiting task: one task that waits then takes all steps but the fewest."""
HALVINGS: Final = 12
"""How often the range of the numbers is halved: to 0.01 steps."""
_FOUND: dict[str, float] = {}
"""Numbers found so far in this process, by scenario."""


@edge_rule
def queue_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches what the lookahead launches, with fewer steps the more other tasks wait."""
    run, number = view.run_1[0], memory.number_P
    best = lookahead_choice(view, memory, number[STEPS])
    if best != NOBODY:
        steps = max(np.floor(number[HIGH] - number[FEWER] * (run.waiting - 1) + 0.5), number[LOW])
        answers.answer_1[0].choice = 1 + best
        answers.answer_1[0].steps = min(steps, view.task_Q[best].steps_max)


class QueueLookahead(CompiledEdgeScheduler):
    """The lookahead, which gives an image 30 steps and fewer for each other task that waits.

    ``steps = max(12, round(30 - k x other tasks waiting))``, with the largest k at which the mean quality of sampled
    tasks, which no run sees, reaches the scenario's ``quality_goal``, or without a goal the quality of ``steps``. The
    simplest control of policies that choose the steps: one number, no net and no price. No image that may have enough
    steps falls below ``quality_min``. Tasks from a file have no law to sample: those of a real trace stand in.

    Args:
        fewer: k, steps fewer per waiting task; None: found for the scenario, once in a process.

    Raises:
        ValueError: ``fewer`` is negative or not a number.
    """

    rule = staticmethod(queue_rule)

    def __init__(self, fewer: float | None = None) -> None:
        if fewer is not None and not 0 <= fewer < np.inf:
            raise ValueError(f"fewer is {fewer}; give a number of at least 0, in steps per waiting task")
        self.fewer = fewer

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the steps, with room for play-outs."""
        setting = brief.setting
        return memory_at(fewer_of(setting) if self.fewer is None else self.fewer, setting)


def memory_at(fewer: float, setting: EdgeScenario) -> EdgeMemory:
    """Returns the rule's memory for a number of steps fewer per waiting task."""
    high = min(STEPS_HIGH, setting.steps_max)
    low = min(max(steps_least(setting.steps_min, setting.quality_min), LEAST), high)
    usual = min(max(steps_for(goal_of(setting)), setting.steps_min), high)
    return memory_for((*numbers_for(usual, 0, None), fewer, low, high), setting, None, 0)


def fewer_of(setting: EdgeScenario) -> float:
    """Returns the most steps fewer per waiting task at which sampled tasks reach the goal of quality and a margin.

    Where none reaches it, 0 is returned: every image gets its most steps.
    """
    if setting.digest not in _FOUND:
        law = law_of(setting)
        _FOUND[setting.digest] = rehearsed(
            law, queue_rule, lambda number: memory_at(number, law), MOST_FEWER, 0.0, HALVINGS
        )
    return _FOUND[setting.digest]

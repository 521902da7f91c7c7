"""Lookahead that also chooses the number of inference steps, by a price of quality."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from noonward.compiled import kernel
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.rule import edge_rule
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import NOBODY, EdgeAnswers, EdgeMemory, EdgeView
from noonward.model.edge.quality import LAWS, STEPS_HIGH, STEPS_LOW, quality, steps_for, steps_least
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.edge.futures import STEPS, Coming, draw_coming, memory_for, numbers_for
from noonward.schedule.edge.goal import goal_of, rehearsed
from noonward.schedule.edge.lookahead import copy_state, play_launch, play_patient
from noonward.schedule.edge.rehearsal import law_of
from noonward.schedule.edge.sampled_lookahead import checked_futures, sampled_choice

LAW, PRICE_S, LOW, HIGH = range(5, 9)
"""Numbers of the memory behind those of ``futures.numbers_for``: law of quality, price of quality, fewest and most
steps."""
PRICES_S: Final = (1.0, 1e4)
"""Prices of quality among which the one of a scenario is looked for, s per unit."""
HALVINGS: Final = 11
"""How often the range of the prices, on a logarithmic scale, is halved: to 0.5 %."""
_FOUND: dict[str, float] = {}
"""Prices found so far in this process, by scenario."""


@kernel(inline=True, allocates=False)
def launch_priced(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory, best: int) -> None:
    """Launches a place of the queue with the steps of the least sum of responses less quality at its price."""
    run, number = view.run_1[0], memory.number_P
    server_N, task_Q = memory.server_RN[0], memory.task_RQ[0][: view.task_Q.shape[0]]
    most = view.task_Q[best].steps_max
    least, chosen, level = np.inf, most, number[LOW]
    while level <= number[HIGH]:
        steps = min(level, most)
        worth_s = number[PRICE_S] * quality(steps, int(number[LAW]))
        copy_state(view, server_N, task_Q)
        total = play_launch(
            server_N, task_Q, best, view.load_s_G, view.step_s_G, run.now_t, run.tick_s, steps, run.choice
        )
        total += play_patient(
            server_N,
            task_Q,
            view.load_s_G,
            view.step_s_G,
            run.now_t,
            run.tick_s,
            number[STEPS],
            run.choice,
            least + worth_s,
        )
        if total - worth_s < least:
            least, chosen = total - worth_s, steps
        level += 1.0
    answers.answer_1[0].choice = 1 + best
    answers.answer_1[0].steps = chosen


@edge_rule
def priced_rule(view: EdgeView, answers: EdgeAnswers, memory: EdgeMemory) -> None:
    """Launches what the lookahead launches, with the steps that ``launch_priced`` weighs."""
    best = sampled_choice(view, memory)
    if best != NOBODY:
        launch_priced(view, answers, memory, best)


class PricedLookahead(CompiledEdgeScheduler):
    """The lookahead, which also chooses the steps: few where tasks wait, by a price that holds the quality's goal.

    The price is the Lagrange multiplier of the goal: the least at which the mean quality of sampled tasks, which no run
    sees, reaches the scenario's ``quality_goal``, or without a goal the quality of ``steps``. No image that may have
    enough steps falls below ``quality_min``. Tasks from a file have no law to sample: those of a real trace stand in.

    With ``futures`` the launches are those of the lookahead over sampled futures (``sampled_lookahead``). The price is
    that of the lookahead without them, and the steps are weighed by the tasks known now.

    Args:
        price_s: Price of quality, s of response per unit; None: found for the scenario, once in a process.
        futures: Sampled futures of a question; 0: none.

    Raises:
        ValueError: The price is negative or not a number, or the number of futures is negative.
    """

    rule = staticmethod(priced_rule)

    def __init__(self, price_s: float | None = None, futures: int = 0) -> None:
        if price_s is not None and not 0 <= price_s < np.inf:
            raise ValueError(f"price_s is {price_s}; give a number of at least 0, in s per unit of quality")
        self.price_s, self.futures = price_s, checked_futures(futures)

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the price and the steps, and with futures of tasks to come, with room for play-outs."""
        setting = brief.setting
        price_s = price_of(setting) if self.price_s is None else self.price_s
        if not self.futures:
            return memory_at(price_s, setting)
        coming = draw_coming(setting, rng)
        return memory_at(price_s, setting, self.futures, coming, int(rng.integers(2**63)))


def memory_at(
    price_s: float, setting: EdgeScenario, futures: int = 0, coming: Coming | None = None, random_state: int = 0
) -> EdgeMemory:
    """Returns the rule's memory for a price.

    Args:
        price_s: Price of quality, s per unit.
        setting: Scenario.
        futures: Futures of a question.
        coming: List of tasks to come; None without futures.
        random_state: Seed of the futures that are drawn.
    """
    high = min(STEPS_HIGH, setting.steps_max)
    low = min(max(steps_least(setting.steps_min, setting.quality_min), STEPS_LOW), high)
    usual = min(max(steps_for(goal_of(setting)), setting.steps_min), high)
    numbers = (*numbers_for(usual, futures, coming), LAWS.index(setting.quality), price_s, low, high)
    return memory_for(numbers, setting, coming, random_state)


def price_of(setting: EdgeScenario) -> float:
    """Returns the least price at which the mean quality of sampled tasks is the goal and a margin, s per unit.

    Where no price reaches that, the highest is returned, at which tasks get their most steps.
    """
    if setting.digest not in _FOUND:
        _FOUND[setting.digest] = _search(setting)
    return _FOUND[setting.digest]


def _search(setting: EdgeScenario) -> float:
    """Looks for the price of a scenario on a logarithmic scale."""
    low, high = (math.log(each) for each in PRICES_S)
    law = law_of(setting)
    return math.exp(rehearsed(law, priced_rule, lambda number: memory_at(math.exp(number), law), low, high, HALVINGS))

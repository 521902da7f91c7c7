"""The mean quality that a scenario wants, and numbers of rules that hold it: found by rehearsal on sampled tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noonward.decision.edge.view import EdgeMemory
from noonward.model.edge.quality import LAWS, quality
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.edge.rehearsal import LAUNCHED, QUALITY, law_of, rehearse, sample_tasks

EPISODES, TASKS = 600, 19_200
"""Most sampled episodes and tasks that a number is found on."""
MARGIN: Final = 0.0015
"""How far the mean quality of the sampled tasks is above the goal. Its standard error is 0.0002 to 0.0003, and that of
a comparison of 40 episodes 0.0008 to 0.0012."""


def goal_of(setting: EdgeScenario) -> float:
    """Returns the mean quality that a number is to hold: the scenario's goal, else the quality of its usual steps."""
    return setting.quality_goal or quality(setting.steps, LAWS.index(setting.quality))


def rehearsed(
    setting: EdgeScenario,
    rule: Any,
    memory_at: Callable[[float], EdgeMemory],
    low: float,
    high: float,
    halvings: int,
    *,
    episodes: int = EPISODES,
    tasks: int = TASKS,
    margin: float = MARGIN,
) -> float:
    """Returns the number nearest to ``low`` at which the mean quality of sampled tasks is the goal and a margin.

    The range is halved again and again. Where no number reaches the goal, ``high`` is returned.

    Args:
        setting: Scenario; tasks from a file have no law to sample, those of a real trace stand in (``law_of``).
        rule: Compiled rule that waits for events alone.
        memory_at: Returns the rule's memory at a number.
        low: Number of the least quality.
        high: Number of the highest quality; it may be below ``low``.
        halvings: How often the range is halved.
        episodes: Most sampled episodes.
        tasks: Most sampled tasks.
        margin: How far above the goal the mean quality is to be.
    """
    setting = law_of(setting)
    sample = sample_tasks(setting, episodes=episodes, tasks=tasks)
    wanted = goal_of(setting) + margin
    for _ in range(halvings):
        middle = (low + high) / 2
        sum_X = rehearse(setting, rule, memory_at(middle), sample)
        low, high = (low, middle) if sum_X[QUALITY] >= wanted * sum_X[LAUNCHED] else (middle, high)
    return high

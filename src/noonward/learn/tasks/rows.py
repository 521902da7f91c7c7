"""Rows: runs side by side that an algorithm learns in, and what it sees and earns there."""

from __future__ import annotations

from typing import Any

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import ScenarioError
from noonward.learn.core.experience import Moment, Transition
from noonward.learn.tasks.task import Engine, Task


def moment_of(engine: Engine) -> Moment:
    """Returns a copy of what the agents of an engine's rows see now."""
    return Moment(
        global_BG=engine.global_BG.copy(),
        own_BNO=engine.own_BNO.copy(),
        mask_BNA=engine.mask_BNA.copy(),
        asked_BN=engine.asked_BN.copy(),
    )


class Rows:
    """Runs side by side that never end: a row whose run has ended, or whose episode is cut, starts the next draw.

    Args:
        task: Where draws and engine come from.
        rows: Number of rows.
        episode_steps: Decision steps after which an episode is cut.
        numbers: Draws the rows start with; by default the first ones.
    """

    def __init__(self, task: Task, rows: int, episode_steps: int, numbers: I8 | None = None) -> None:
        self.task, self.episode_steps = task, episode_steps
        self.number_B = np.arange(rows) if numbers is None else np.array(numbers)
        self.age_B = np.zeros(rows, np.int64)
        self.next_number = rows
        self.ended = dict.fromkeys(task.figures, 0.0)
        """Sums of the task's figures over the runs that have ended or were cut, since the trainer last read them."""
        drawn = [task.training(int(number)) for number in self.number_B]
        self.engine = task.engine([each for each, _ in drawn], [seed for _, seed in drawn])
        self.meter = None if task.meter is None else task.meter(self.engine)
        self.moment = moment_of(self.engine)

    def step(self, choice_BN: I8) -> Transition:
        """Executes choices; returns the decision step."""
        engine, before = self.engine, self.moment
        engine.step(choice_BN)
        reward_B, cost_BK = measured(engine, self.meter)
        self.age_B += 1
        ended_B = engine.done_B.copy()
        cut_B = ~ended_B & (self.age_B >= self.episode_steps)
        elapsed_B = engine.elapsed_s_B.copy()
        after = moment_of(engine)
        over = np.flatnonzero(ended_B | cut_B)
        self.moment = after
        if len(over):
            for row in over.tolist():
                self._begin(row)
            self.moment = moment_of(engine)
        return Transition(before, choice_BN, reward_B, elapsed_B, cost_BK, ended_B, cut_B, after)

    def _begin(self, row: int) -> None:
        """Starts a row's next draw."""
        for name, read in self.task.figures.items():
            self.ended[name] += float(read(self.engine)[row])
        self.number_B[row], self.age_B[row] = self.next_number, 0
        self.next_number += 1
        self.engine.reset(row, *self.task.training(int(self.number_B[row])))
        if self.meter is not None:
            self.meter.begin(row)

    def figures(self) -> dict[str, float]:
        """Returns the task's figures, summed over the runs under way since their start, by name."""
        return {name: float(read(self.engine).sum()) for name, read in self.task.figures.items()}

    def state(self) -> dict[str, Any]:
        """Returns where the rows are."""
        return {
            "number_B": self.number_B.copy(),
            "age_B": self.age_B.copy(),
            "next_number": self.next_number,
            "engine": self.engine.state(),
            "meter": {} if self.meter is None else self.meter.state(),
            "moment": self.moment._asdict(),
        }

    @classmethod
    def resumed(cls, task: Task, episode_steps: int, state: dict[str, Any]) -> Rows:
        """Returns rows restored from ``state()``."""
        rows = cls(task, len(state["number_B"]), episode_steps, state["number_B"])
        rows.age_B[:], rows.next_number = state["age_B"], state["next_number"]
        rows.engine.load_state(state["engine"])
        if rows.meter is not None:
            rows.meter.load_state(state["meter"])
        rows.moment = Moment(**state["moment"])
        return rows


def measured(engine: Engine, meter: Any) -> tuple[F8, F8]:
    """Returns rewards and constraint costs of the last step: the engine's rewards and no costs, or a meter's."""
    if meter is not None:
        reward_B, cost_BK = meter.read()
        return reward_B.copy(), cost_BK.copy()
    if not np.isfinite(engine.reward_B).all():
        raise ScenarioError("a step's reward is not finite: the runs have no utility; give signals and economics")
    return engine.reward_B.copy(), np.zeros((len(engine.reward_B), 0))

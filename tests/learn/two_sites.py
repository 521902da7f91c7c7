"""A toy with the attributes of the batch engine: two sites, two choices of where to run, one right answer each.

Every step draws a price per site; each site that is asked (probability 0.7) holds for nothing, or runs its job here
(earns 1 - price here) or there (1 - price there - 0.2). Site 1 is shut in a third of the steps. The best policy takes
the best feasible choice and holds where all are negative. A run ends after ``LENGTH`` steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from learn.toy_rows import ToyRows
from noonward.learn.core.experience import ActionSpec
from noonward.learn.tasks.task import Task

LENGTH = 20
AGENTS, CHOICES, TRAVEL = 2, 3, 0.2


@dataclass(frozen=True)
class ToyEnvironment:
    """Number of the draw."""

    number: int


class TwoSites(ToyRows):
    """The toy, B rows."""

    agents, choices = AGENTS, CHOICES
    SHOWN = ("global_BG", "own_BNO", "mask_BNA", "asked_BN", "reward_B", "elapsed_s_B", "done_B", "age_B")

    def __init__(self, environments: Any, seeds: Any) -> None:
        super().__init__(environments, seeds)
        rows = self.rows
        self.global_BG = np.zeros((rows, 2), np.float32)
        self.own_BNO = np.zeros((rows, AGENTS, 1), np.float32)
        self.mask_BNA = np.zeros((rows, AGENTS, CHOICES), np.uint8)
        self.asked_BN = np.zeros((rows, AGENTS), np.bool_)
        for row in range(rows):
            self._ask(row)

    def values(self, row: int) -> np.ndarray:
        """Returns what each choice earns, [N, A]."""
        gain_S = 1.0 - self.global_BG[row].astype(float)
        out = np.zeros((AGENTS, CHOICES))
        for agent in range(AGENTS):
            for site in range(2):
                out[agent, 1 + site] = gain_S[site] - TRAVEL * (site != agent)
        return out

    def _ask(self, row: int) -> None:
        rng = self.rng_B[row]
        self.global_BG[row] = rng.uniform(0.0, 2.0, 2)
        asked = rng.random(AGENTS) < 0.7
        if not asked.any():
            asked[:] = True
        self.asked_BN[row] = asked
        shut = rng.random() < 1 / 3
        self.own_BNO[row, :, 0] = shut
        self.mask_BNA[row] = asked[:, None]
        if shut:
            self.mask_BNA[row, :, 2] = 0

    def step(self, choice_BN: Any) -> None:
        """Pays what was chosen and asks again."""
        for row in range(self.rows):
            self.reward_B[row] = self.elapsed_s_B[row] = 0.0
            if self.done_B[row]:
                continue
            for agent in range(AGENTS):
                if self.asked_BN[row, agent]:
                    choice = choice_BN[row, agent]
                    assert self.mask_BNA[row, agent, choice], "an infeasible choice"
                    self.reward_B[row] += self.values(row)[agent, choice]
            self.elapsed_s_B[row] = 60.0 * (self.age_B[row] % 3)
            self.age_B[row] += 1
            if self.age_B[row] == LENGTH:
                self.done_B[row] = True
                self.asked_BN[row] = False
                self.mask_BNA[row] = 0
                self.global_BG[row] = self.own_BNO[row] = 0
            else:
                self._ask(row)


def best_choices(engine: TwoSites, row: int) -> Any:
    """Returns the best choices in a row, [N]; -1 where an agent is not asked."""
    best = np.where(engine.mask_BNA[row] != 0, engine.values(row), -np.inf).argmax(-1)
    return np.where(engine.asked_BN[row], best, -1)


def best_reward(draws: Any) -> float:
    """Returns the mean reward of the best policy over draws (environment, seed)."""
    engine = TwoSites([each for each, _ in draws], [seed for _, seed in draws])
    total = 0.0
    while not engine.done_B.all():
        engine.step(np.stack([best_choices(engine, row) for row in range(engine.rows)]).clip(0))
        total += engine.reward_B.sum()
    return total / engine.rows


def toy_task() -> Task:
    """Returns the toy as a setting of training."""
    return Task(
        training=lambda number: (ToyEnvironment(number), 1),
        validation=lambda number: (ToyEnvironment(number), 2),
        engine=TwoSites,
        actions=ActionSpec.of(site=CHOICES),
        about={"scenario": "two-sites", "protocol": "each-slot", "sites": ["a", "b"], "observation": {}},
    )

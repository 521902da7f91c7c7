"""A toy that consists of tokens: three places with a value each, a level of steps, one right answer.

Every step draws the values of three places, of which one may be empty and some may not fit, and the right level. A
place earns its value less 0.4 times the distance of the level from the right one (levels lie from 0 to 1); to wait
earns nothing, and is not possible in a third of the steps. A run ends after ``LENGTH`` steps of 2 s.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from learn.toy_rows import ToyRows
from noonward.learn.core.experience import ActionSpec, Tokens
from noonward.learn.tasks.task import Task

LENGTH, PLACES, LEVELS, WIDTH = 10, 3, 5, 4
TOKENS = Tokens((1, 2, PLACES), WIDTH)
ADVICE = 2 * (1 + PLACES + LEVELS)


@dataclass(frozen=True)
class TokenEnvironment:
    """Number of the draw."""

    number: int


class TokenToy(ToyRows):
    """The toy, B rows, with the attributes of a batch engine."""

    agents, choices = 1, (1 + PLACES) * LEVELS
    SHOWN = ("token_BTW", "own_BNO", "mask_BNA", "asked_BN", "reward_B", "elapsed_s_B", "done_B", "age_B")

    def __init__(self, environments: Any, seeds: Any) -> None:
        super().__init__(environments, seeds)
        rows = self.rows
        self.token_BTW = np.zeros((rows, sum(TOKENS.counts), WIDTH), np.float32)
        self.global_BG = self.token_BTW.reshape(rows, -1)
        self.own_BNO = np.zeros((rows, 1, ADVICE), np.float32)
        self.mask_BNA = np.zeros((rows, 1, self.choices), np.uint8)
        self.asked_BN = np.zeros((rows, 1), np.bool_)
        for row in range(rows):
            self._ask(row)

    def gains(self, row: int) -> np.ndarray:
        """Returns what every place earns with every level, [places + 1, levels]; the wait comes first."""
        value_Q, right = self.token_BTW[row, -PLACES:, 1].astype(float), float(self.token_BTW[row, 0, 1])
        far_L = 0.4 * np.abs(np.linspace(0.0, 1.0, LEVELS) - right)
        return np.concatenate([np.zeros((1, LEVELS)), value_Q[:, None] - far_L])

    def best(self, row: int) -> int:
        """Returns the best feasible choice."""
        return int(np.where(self.mask_BNA[row, 0], self.gains(row).ravel(), -np.inf).argmax())

    def _ask(self, row: int) -> None:
        rng, tokens = self.rng_B[row], self.token_BTW[row]
        tokens[:] = 0.0
        tokens[0] = (1.0, rng.integers(LEVELS) / (LEVELS - 1), 0.0, 0.0)
        tokens[1, :2] = (1.0, rng.random())
        tokens[-PLACES:, 1] = rng.uniform(-1.0, 1.0, PLACES)
        fits_Q = rng.random(PLACES) < 0.8
        fits_Q[0] = True
        tokens[-PLACES:, 0], tokens[-PLACES:, 2] = 1.0, fits_Q
        if rng.random() < 0.3:
            tokens[-1], fits_Q[-1] = 0.0, False
        mask = np.zeros((1 + PLACES, LEVELS), np.uint8)
        mask[1:][fits_Q], mask[0, 0] = 1, rng.random() < 2 / 3
        self.mask_BNA[row, 0], self.asked_BN[row] = mask.ravel(), True
        gain = np.where(mask != 0, self.gains(row), -np.inf)
        cost_P = np.where(np.isfinite(gain.max(-1)), gain.max() - gain.max(-1), 0.0)
        launch = 1 + int(np.where(fits_Q, tokens[-PLACES:, 1], -np.inf).argmax())
        cost_L = gain[launch].max() - gain[launch]
        self.own_BNO[row, 0] = np.concatenate([cost_P, cost_L, cost_P, cost_L])

    def step(self, choice_BN: Any) -> None:
        """Pays what was chosen and asks again."""
        for row in np.flatnonzero(~self.done_B):
            assert self.mask_BNA[row, 0, choice_BN[row, 0]], "an infeasible choice"
            self.reward_B[row] = self.gains(row).ravel()[choice_BN[row, 0]]
            self.elapsed_s_B[row] = 2.0
            self.age_B[row] += 1
            if self.age_B[row] == LENGTH:
                self.done_B[row] = True
                for array in (self.token_BTW, self.own_BNO, self.mask_BNA, self.asked_BN):
                    array[row] = 0
            else:
                self._ask(row)


def token_task() -> Task:
    """Returns the toy as a task."""
    return Task(
        training=lambda number: (TokenEnvironment(number), 1),
        validation=lambda number: (TokenEnvironment(number), 2),
        engine=TokenToy,
        actions=ActionSpec.of(place=1 + PLACES, level=LEVELS),
        slot_s=1.0,
        tokens=TOKENS,
        advised=True,
        about={"scenario": "toy"},
    )


def best_reward(runs: int) -> float:
    """Returns the mean reward of whole validation runs under the best choices."""
    toy, total = TokenToy([TokenEnvironment(number) for number in range(runs)], [2] * runs), 0.0
    while not toy.done_B.all():
        toy.step(np.array([[toy.best(row) if not toy.done_B[row] else 0] for row in range(runs)]))
        total += toy.reward_B.sum()
    return total / runs

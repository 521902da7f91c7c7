"""What toys that stand in for a batch engine have in common: rows with random numbers of their own, and their state."""

from typing import Any, ClassVar

import numpy as np

from noonward.seeding import stream


class ToyRows:
    """Rows of a toy, each of an environment with a number.

    A subclass makes the arrays named in ``SHOWN`` and asks each row by ``_ask(row)``.
    """

    SHOWN: ClassVar[tuple[str, ...]] = ()

    def __init__(self, environments: Any, seeds: Any) -> None:
        self.environments, self.rows = list(environments), len(environments)
        self.reward_B, self.elapsed_s_B = np.zeros(self.rows), np.zeros(self.rows)
        self.done_B, self.age_B = np.zeros(self.rows, np.bool_), np.zeros(self.rows, np.int64)
        self.rng_B = [stream(seed, "world", each.number) for each, seed in zip(environments, seeds, strict=True)]

    def _ask(self, row: int) -> None:
        """Draws the next question of a row."""
        raise NotImplementedError

    def reset(self, row: int, environment: Any, seed: int) -> None:
        """Starts a row again."""
        self.environments[row], self.rng_B[row] = environment, stream(seed, "world", environment.number)
        self.done_B[row], self.age_B[row] = False, 0
        self.reward_B[row] = self.elapsed_s_B[row] = 0.0
        self._ask(row)

    def state(self) -> dict[str, Any]:
        """Returns all that changes."""
        out = {name: getattr(self, name).copy() for name in self.SHOWN}
        return out | {f"rng/{row}": rng.bit_generator.state for row, rng in enumerate(self.rng_B)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        for name in self.SHOWN:
            getattr(self, name)[:] = state[name]
        for row, rng in enumerate(self.rng_B):
            rng.bit_generator.state = state[f"rng/{row}"]

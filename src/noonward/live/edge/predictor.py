"""What the service expects of gangs by their size: load and step times, measured as it runs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.model.edge.scenario import EdgeScenario

WEIGHT: Final = 0.3
"""Weight of the newest measurement in the running means; the first one replaces the scenario's value."""


class Predictor:
    """Expected times by gang size G from 0: the scenario's until a gang of a size has been measured.

    Args:
        setting: Scenario whose ``gang_times`` hold until then.
    """

    def __init__(self, setting: EdgeScenario) -> None:
        sizes = max(setting.gang_times) + 1
        self.load_s_G: F8 = np.full(sizes, np.nan)
        """Seconds from a launch until all members have loaded the model."""
        self.step_s_G: F8 = np.full(sizes, np.nan)
        """Seconds a step, all that comes once a run divided among its steps."""
        for size, time in setting.gang_times.items():
            self.load_s_G[size], self.step_s_G[size] = time.load_s, time.step_s
        self.loads_G: I8 = np.zeros(sizes, np.int64)
        """Loads measured."""
        self.runs_G: I8 = np.zeros(sizes, np.int64)
        """Runs measured."""

    def expect_s(self, size: int, steps: float, loads: bool) -> float:
        """Returns the seconds that a launch is expected to take, which loads a model or finds it loaded."""
        return float(steps * self.step_s_G[size] + (self.load_s_G[size] if loads else 0.0))

    def state(self) -> dict[str, list[list[float]]]:
        """Returns what was measured, for the next service: ``[size, mean s, measurements]`` of loads and of steps."""
        return {
            name: [[int(g), float(mean_G[g]), int(count_G[g])] for g in np.flatnonzero(count_G)]
            for name, mean_G, count_G in self._kept()
        }

    def load_state(self, state: Any) -> None:
        """Restores from ``state()``; sizes that the scenario does not have are left out.

        Raises:
            ValueError: It is no such state; nothing is changed.
        """
        try:
            rows = [
                (mean_G, count_G, int(g), float(mean_s), int(count))
                for name, mean_G, count_G in self._kept()
                for g, mean_s, count in state[name]
            ]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"no measured times: {error!r}") from error
        if not all(0 <= mean_s < np.inf and count > 0 for _, _, _, mean_s, count in rows):
            raise ValueError("measured times that are no times")
        for mean_G, count_G, g, mean_s, count in rows:
            if 0 < g < len(mean_G) and np.isfinite(mean_G[g]):
                mean_G[g], count_G[g] = mean_s, count

    def _kept(self) -> tuple[tuple[str, F8, I8], ...]:
        return ("loads", self.load_s_G, self.loads_G), ("steps", self.step_s_G, self.runs_G)

    def measured(self, size: int, *, load_s: float | None, rest_s: float, steps: int) -> None:
        """Takes in a finished run.

        Args:
            size: Gang size.
            load_s: Seconds of the first part of the run; None if no member loaded the model.
            rest_s: Seconds of all that followed.
            steps: Inference steps.
        """
        if load_s is not None:
            _mix(self.load_s_G, self.loads_G, size, load_s)
        _mix(self.step_s_G, self.runs_G, size, rest_s / steps)


def _mix(mean_G: F8, count_G: I8, size: int, value: float) -> None:
    """Moves a running mean towards a new value."""
    mean_G[size] = value if count_G[size] == 0 else (1 - WEIGHT) * mean_G[size] + WEIGHT * value
    count_G[size] += 1

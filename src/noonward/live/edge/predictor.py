"""What the service expects of gangs by their size: load and step times, measured as it runs."""

from __future__ import annotations

from typing import Final

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
        """Seconds from a launch on a new gang until its members have the model."""
        self.step_s_G: F8 = np.full(sizes, np.nan)
        """Seconds a step, all that comes once a run divided among its steps."""
        for size, time in setting.gang_times.items():
            self.load_s_G[size], self.step_s_G[size] = time.load_s, time.step_s
        self.loads_G: I8 = np.zeros(sizes, np.int64)
        """Loads measured."""
        self.runs_G: I8 = np.zeros(sizes, np.int64)
        """Runs measured."""

    def expect_s(self, size: int, steps: float, formed: bool) -> float:
        """Returns the seconds that a launch is expected to take."""
        return float(steps * self.step_s_G[size] + (self.load_s_G[size] if formed else 0.0))

    def measured(self, size: int, *, load_s: float | None, rest_s: float, steps: int) -> None:
        """Takes in a finished run.

        Args:
            size: Gang size.
            load_s: Seconds of the first part of the run on a new gang; None if the gang was reused.
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

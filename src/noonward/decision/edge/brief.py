"""What an edge scheduler is told before the first task: servers, gang times and rules, nothing of the tasks to come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.scenario import EdgeScenario


@dataclass(frozen=True, kw_only=True)
class EdgeBrief:
    """What is known before the first task.

    Attributes:
        scenario: Name of what is run, for messages.
        start: UTC time of second 0.
        setting: Servers, gang times, visible queue, quality, and the laws of the tasks.
        signals: Whether prices and carbon intensities are known.
    """

    scenario: str
    start: datetime
    setting: EdgeScenario
    signals: bool

    @classmethod
    def of(cls, environment: EdgeEnvironment) -> EdgeBrief:
        """Returns the brief of an environment."""
        return cls(
            scenario=environment.scenario,
            start=environment.start,
            setting=environment.setting,
            signals=environment.signals is not None,
        )

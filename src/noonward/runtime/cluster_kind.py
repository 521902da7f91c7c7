"""Parts of the kind ``cluster`` that join rooms: whether a scheduler fits an environment, and what it remarks."""

from __future__ import annotations

from noonward.decision import brief
from noonward.decision.brief import Brief
from noonward.decision.scheduler import Scheduler
from noonward.model.cluster.environment import Environment


def check_fit(environment: Environment, scheduler: Scheduler, name: str) -> None:
    """Raises ScenarioError unless a scheduler can answer what an environment asks."""
    brief.check_fit(Brief.of(environment, scheduler.needs), scheduler.needs, name)


def remarks(environment: Environment, scheduler: Scheduler) -> tuple[str, ...]:
    """Returns what a reader of a scheduler's results in an environment must know."""
    return scheduler.remarks(Brief.of(environment, scheduler.needs))

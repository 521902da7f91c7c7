"""Parts of the kind ``edge`` that join rooms: whether a scheduler fits an environment, and what files it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.errors import ScenarioError
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.scenario import EdgeScenario, SessionTasks, TraceTasks


def check_fit(environment: EdgeEnvironment, scheduler: object, name: str) -> None:
    """Raises ScenarioError unless a scheduler answers an edge environment's questions."""
    if not isinstance(scheduler, EdgeScheduler):
        raise ScenarioError(
            f"scheduler {name} is none for edge scenarios, but scenario {environment.scenario!r} is of kind edge; "
            "choose a policy derived from noonward.decision.edge.scheduler.EdgeScheduler"
        )


def remarks(environment: EdgeEnvironment, scheduler: EdgeScheduler) -> tuple[str, ...]:
    """Returns what a reader of a scheduler's results must know: nothing beyond the environment's notes."""
    return ()


def content_with_files(scenario: EdgeScenario, signals: Sequence[Path], jobs: Path | None) -> dict[str, Any]:
    """Returns the content of an edge scenario whose tasks are the requests of a file.

    Raises:
        ScenarioError: Files of signals are given: edge scenarios generate theirs.
    """
    if signals:
        raise ScenarioError(
            f"scenario {scenario.name!r} is of kind edge, which takes no files of signals; leave out --signals"
        )
    content: dict[str, Any] = scenario.model_dump(mode="json")
    tasks = scenario.tasks
    content["tasks"] = {
        "source": "trace",
        "path": str(jobs),
        "sizes": list(tasks.sizes),
        "deadline_s": tasks.deadline_s,
    }
    if isinstance(tasks, SessionTasks | TraceTasks):
        content["tasks"] |= {"hours": tasks.hours, "loads": tasks.loads}
    return content

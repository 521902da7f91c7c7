"""Files of trained policies, of any kind, as schedulers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noonward.schedule import net_file
from noonward.schedule.cluster.choices.file import HEAD as CHOICES
from noonward.schedule.cluster.choices.policy import ChoicePolicy
from noonward.schedule.cluster.trained_policy import TrainedPolicy
from noonward.schedule.edge.trained_policy import EdgePolicy


def load_policy(path: str | Path) -> Any:
    """Returns the scheduler of a trained policy's file: a ``Scheduler``, or an ``EdgeScheduler`` for edge scenarios.

    Raises:
        DataError: There is no such file, or it holds no trained policy.
    """
    meta = net_file.read_meta(Path(path))
    if meta.get("kind") == "edge":
        return EdgePolicy(path)
    return ChoicePolicy.of_file(path) if meta.get("head") == CHOICES else TrainedPolicy(path)

"""Tasks by kind of scenario; each is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any, Final

from noonward.errors import ScenarioError, nearest

TASKS: Final = {
    "cluster": ("noonward.learn.tasks.cluster", "ClusterTask"),
    "edge": ("noonward.learn.tasks.edge", "EdgeTask"),
}
"""Module and class of the settings by kind."""
DEFAULTS: Final = {"cluster": "masac", "edge": "eat"}
"""Algorithm that is trained where none is named."""


def task_kind(kind: str) -> Any:
    """Returns the settings' class of the tasks of a kind.

    Raises:
        ScenarioError: There is no such kind.
    """
    if kind not in TASKS:
        raise ScenarioError(f"unknown kind of task {kind!r}; {nearest(kind, TASKS)}")
    module, name = TASKS[kind]
    return getattr(importlib.import_module(module), name)

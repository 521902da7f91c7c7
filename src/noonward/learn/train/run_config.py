"""The config of a training run: algorithm, task, sizes and seeds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from noonward.errors import ScenarioError, nearest
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.core.settings import at_least, build, parse_setting, typed
from noonward.learn.tasks.kinds import task_kind
from noonward.learn.tasks.source import Source
from noonward.learn.tasks.task import Task, TaskConfig


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A training run; the defaults are the paper's (MASAC, Table I and Sec. IV.A), or an [assumption].

    Attributes:
        algorithm: Name of the algorithm.
        task: What is trained in.
        settings: Settings of the algorithm that differ from its defaults, by name.
        seed: Seed of nets, exploration and batches, and number of the draw of training environments.
        epochs: Epochs of collecting, updating and validating.
        environments: Environments side by side.
        steps: Decision steps of each environment in an epoch; episodes continue over epochs.
        episode_steps: Decision steps after which an episode is cut, K_max.
        updates: Updates after each epoch's collection, G.
        validation_environments: Validation environments, the same in every epoch.
        validate_every: Epochs from one validation to the next; the last epoch is validated in any case.
        checkpoint_every: Epochs from one checkpoint to the next; the last epoch has one in any case.
        device: Where the nets are: ``cpu`` or ``cuda``.
    """

    algorithm: str
    task: TaskConfig
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    epochs: int = 100
    environments: int = 10
    steps: int = 12_000
    episode_steps: int = 12_000
    updates: int = 1_000
    validation_environments: int = 1
    validate_every: int = 1
    checkpoint_every: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        counts = ("epochs", "environments", "steps", "episode_steps", "updates", "validation_environments")
        at_least(self, 1, *counts, "validate_every", "checkpoint_every")
        at_least(self, 0, "seed")
        self.algorithm_config()

    def algorithm_config(self) -> Any:
        """Returns the algorithm's settings.

        Raises:
            ScenarioError: The algorithm or a setting is unknown or out of range.
        """
        return build(algorithm_named(self.algorithm).config, self.settings)

    def open(self) -> Task:
        """Returns the task.

        Raises:
            ScenarioError: It does not fit the algorithm, or its parts do not fit each other.
            DataError: A file's content is wrong.
        """
        task = self.task.open(self.seed)
        if algorithm_named(self.algorithm).make.consumes == "runs" and task.plays is None:
            raise ScenarioError(
                f"{self.algorithm} plays whole runs of scenarios that ask each-slot and earn utility, which "
                f"{task.about['scenario']!r} is not; train another algorithm"
            )
        if task.costs and not algorithm_named(self.algorithm).make.constrained:
            raise ScenarioError(
                f"{task.about['scenario']!r} limits {', '.join(task.costs)}, but {self.algorithm} learns from rewards "
                "alone and would ignore a limit; train chsac-af, or leave the constraints out"
            )
        return task

    def content(self) -> dict[str, Any]:
        """Returns all settings by name, those of the task beside those of the run, the algorithm's written out."""
        own = dataclasses.asdict(self)
        return {**own.pop("task"), **own, "settings": dataclasses.asdict(self.algorithm_config())}

    def digest(self) -> str:
        """Returns a short digest of everything but the number of epochs; folders are named by it."""
        return hashlib.sha256(json.dumps({**self.content(), "epochs": None}, sort_keys=True).encode()).hexdigest()[:10]

    def to_json(self) -> str:
        """Returns the run as JSON."""
        return json.dumps(self.content(), indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Returns the run that ``to_json`` wrote.

        Raises:
            ScenarioError: A name or value is wrong.
        """
        content = json.loads(text)
        sources = tuple(
            Source(**{**each, "settings": tuple(each["settings"]), "signals": tuple(each["signals"])})
            for each in content.pop("sources")
        )
        made = task_kind(content.get("kind", "cluster"))
        of_task = {name: content.pop(name) for name in _names(made) if name in content}
        return cls(task=made(sources=sources, **of_task), **content)


_NOT_SET: Final = {"algorithm", "task", "settings", "sources", "kind"}
"""Fields of a run and its task that no setting changes."""


def _names(kind: type) -> set[str]:
    """Returns the names of a dataclass's fields."""
    return {each.name for each in dataclasses.fields(kind)}


def setting_names(algorithm: str, task: type) -> set[str]:
    """Returns the names that ``with_settings`` takes: of a run, its task and its algorithm.

    Raises:
        ScenarioError: There is no such algorithm.
    """
    return (_names(RunConfig) | _names(task)) - _NOT_SET | _names(algorithm_named(algorithm).config)


def with_settings(algorithm: str, task: Any, settings: Iterable[str], **fields: Any) -> RunConfig:
    """Returns a run from settings ``name=value`` of the run, its task or its algorithm.

    Args:
        algorithm: Name of the algorithm.
        task: What is trained in, a ``TaskConfig`` whose own fields may be changed.
        settings: ``name=value`` each.
        fields: Fields of the run.

    Raises:
        ScenarioError: A name is unknown, or a value has the wrong type or is out of range.
    """
    own = _names(RunConfig) - _NOT_SET
    of_task = _names(type(task)) - _NOT_SET
    known = _names(algorithm_named(algorithm).config)
    chosen: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    for text in settings:
        name, value = parse_setting(text)
        if name in fields or name in chosen or name in changed:
            raise ScenarioError(f"{name} is given twice; give it once")
        if name in own:
            fields[name] = value
        elif name in of_task:
            changed[name] = value
        elif name in known:
            chosen[name] = value
        elif "." in name:
            raise ScenarioError(f"{name!r} is no setting of the run; values of the scenario are set by --set")
        else:
            near = nearest(name, own | of_task | known)
            raise ScenarioError(f"unknown setting {name!r} of {algorithm} or of the run; {near}")
    consumes = algorithm_named(algorithm).make.consumes
    unread = [name for name in ("steps", "episode_steps", "updates", "device") if name in fields]
    if unread and consumes == "runs":
        raise ScenarioError(f"{algorithm} plays whole runs and knows no {', '.join(unread)}; leave that out")
    if "updates" in fields and consumes == "rollout":
        raise ScenarioError(f"{algorithm} learns from each rollout and knows no updates an epoch; leave out updates")
    task = dataclasses.replace(task, **_typed(changed, type(task)))
    return RunConfig(algorithm=algorithm, task=task, settings=chosen, **_typed(fields, RunConfig))


def _typed(values: dict[str, Any], kind: type) -> dict[str, Any]:
    """Returns values as the fields of a dataclass want them."""
    hints = get_type_hints(kind)
    return {name: typed(name, value, hints[name]) for name, value in values.items()}

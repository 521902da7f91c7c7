"""The trainer: epochs of collecting, updating and validating; checkpoints; the best policy kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch

from noonward.errors import DataError, ScenarioError
from noonward.files import locked_folder, write_text
from noonward.learn.algorithms.algorithm import PolicyArrays
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.core.checkpoint import load_checkpoint, save_checkpoint
from noonward.learn.tasks.rows import Rows, measured, moment_of
from noonward.learn.tasks.task import Engine, Task, dimensions_of
from noonward.learn.train.curves import Events, Row, write_curves
from noonward.learn.train.run_config import RunConfig

CONFIG: Final = "config.json"
CHECKPOINT: Final = "checkpoint.npz"
CURVES: Final = "curves.csv"
EVENTS: Final = "events"
PHASES: Final = ("collect", "update", "validate")


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """What an epoch brought.

    Attributes:
        epoch: Its number, from 1.
        epochs: Epochs of the run.
        figures: What the curves hold of it.
        seconds: Wall time of collect, update and validate.
        improved: Whether its policy is the best so far in validation.
        eta_s: Wall time the remaining epochs will take, at the mean of those of this session; None before the first.
    """

    epoch: int
    epochs: int
    figures: Row
    seconds: dict[str, float]
    improved: bool
    eta_s: float | None


class Reporter(Protocol):
    """Receives the progress of a run."""

    def phase(self, name: str, done: int, total: int) -> None:
        """Receives that ``done`` of ``total`` parts of a phase are over."""

    def epoch(self, report: EpochReport) -> None:
        """Receives the report of an epoch that is over."""


class Silence:
    """A reporter that does nothing."""

    def phase(self, name: str, done: int, total: int) -> None:
        """Does nothing."""

    def epoch(self, report: EpochReport) -> None:
        """Does nothing."""


class Trainer:
    """Trains an algorithm, epoch by epoch, in a folder of its own.

    An epoch: ``steps`` decision steps of all rows, then the algorithm's updates (or both by turns, rollout by rollout,
    for an algorithm that consumes them); then the greedy policy over the
    validation environments, whole runs without a limit of steps. The policy of highest mean validation reward is kept.

    The folder holds ``config.json`` (the run), ``checkpoint.npz`` (everything, after every ``checkpoint_every`` epochs;
    a run that is killed resumes from it, bit for bit), ``curves.csv`` (an epoch a row) and
    ``events`` (TensorBoard).

    Args:
        config: The run.
        task: What it learns in.
        folder: Where it writes. A run of the same config that lies there is resumed.
        reporter: Receives the progress.

    Attributes:
        epoch: Epochs that are over.
        kept_epoch: Epochs that the checkpoint holds.
        curves: Figures of every epoch.
        best_epoch: Epoch of the best policy in validation, and ``best_reward`` its reward.
        best: That policy, or None before the first validation.

    Raises:
        ScenarioError: The folder holds another run, or the device cannot be used.
        DataError: Its checkpoint is damaged.
    """

    def __init__(self, config: RunConfig, task: Task, folder: Path, reporter: Reporter | None = None) -> None:
        torch.set_num_threads(1)
        require_device(config.device)
        self.config, self.task, self.folder = config, task, folder
        self.reporter: Reporter = reporter or Silence()
        self.epoch = 0
        self.kept_epoch = 0
        self.curves: list[Row] = []
        self.best_reward = -np.inf
        self.best_epoch = 0
        self.best: PolicyArrays | None = None
        kept = self._kept()
        self._open(kept)
        if kept is not None:
            self._load(kept)
        write_text(folder / CONFIG, config.to_json())

    def _open(self, kept: dict[str, Any] | None) -> None:
        """Makes rows, algorithm and the engine of validation, at first or from a checkpoint."""
        config, task = self.config, self.task
        self.rows = (
            Rows(task, config.environments, config.episode_steps)
            if kept is None
            else Rows.resumed(task, config.episode_steps, kept["rows"])
        )
        entry = algorithm_named(config.algorithm)
        dimensions = dimensions_of(self.rows.engine, task)
        self.algorithm: Any = entry.make(dimensions, config.algorithm_config(), config.seed, config.device)
        self._validation = self._validation_engine()

    def _rows_state(self) -> dict[str, Any]:
        """Returns what a resumed run needs of the runs in progress."""
        return self.rows.state()

    def run(self) -> None:
        """Trains until the last epoch.

        Raises:
            FileError: Another process is training in the folder, or it cannot be written.
        """
        if self.epoch < self.config.epochs:
            with locked_folder(self.folder, "training"):
                self._run()

    def _run(self) -> None:
        """Trains the epochs that are left."""
        began, first = time.monotonic(), self.epoch
        events = Events(self.folder / EVENTS, self.epoch + 1 if self.curves else 0)
        try:
            while self.epoch < self.config.epochs:
                row, seconds, improved = self._run_epoch()
                spent = time.monotonic() - began
                left = spent / (self.epoch - first) * (self.config.epochs - self.epoch)
                self._tell(events, row, seconds, improved, left)
        finally:
            events.close()

    def _tell(self, events: Events, row: Row, seconds: dict[str, float], improved: bool, eta_s: float | None) -> None:
        """Reports an epoch."""
        events.write(self.epoch, {"train": row, "seconds": seconds})
        self.reporter.epoch(
            EpochReport(
                epoch=self.epoch,
                epochs=self.config.epochs,
                figures=row,
                seconds=seconds,
                improved=improved,
                eta_s=eta_s,
            )
        )

    def _run_epoch(self) -> tuple[Row, dict[str, float], bool]:
        """Makes one epoch; returns its figures, the wall time of its phases and whether its policy is the best."""
        row, seconds = self._learn()
        due = (self.epoch + 1) % self.config.validate_every == 0 or self.epoch + 1 == self.config.epochs
        began = time.monotonic()
        reward = self.validate() if due else None
        seconds["validate"] = time.monotonic() - began
        self.epoch += 1
        improved = self._keep(row, reward)
        if self.epoch % self.config.checkpoint_every == 0 or self.epoch == self.config.epochs:
            self.save()
        return row, seconds, improved

    def _keep(self, row: Row, reward: float | None) -> bool:
        """Adds an epoch to the curves and keeps its policy if it is the best; returns whether it is."""
        improved = reward is not None and reward > self.best_reward
        if improved and reward is not None:
            self.best_reward, self.best_epoch, self.best = reward, self.epoch, self.algorithm.policy_arrays()
        row["validation_reward"], row["best_epoch"] = reward, self.best_epoch
        self._add_figures(row, reward)
        self.curves.append(row)
        return improved

    def _add_figures(self, row: Row, reward: float | None) -> None:
        """Adds the task's figures of the validation runs to an epoch's row."""
        for name, read in self.task.figures.items():
            row[f"validation_{name}"] = None if reward is None else float(read(self._validation).mean())

    def _learn(self) -> tuple[Row, dict[str, float]]:
        """Collects and updates, in one go (replay) or rollout by rollout; returns figures and wall times."""
        steps = self.config.steps
        part = steps if self.algorithm.rollout_steps is None else self.algorithm.rollout_steps
        seconds = dict.fromkeys(PHASES, 0.0)
        totals: dict[str, float] = {}
        learned: list[Row] = []
        for first in range(0, steps, part):
            began = time.monotonic()
            self._collect(first, min(first + part, steps), totals)
            collected = time.monotonic()
            learned.append(self._update())
            seconds["collect"] += collected - began
            seconds["update"] += time.monotonic() - collected
        made = steps * len(self.rows.number_B)
        before = self.curves[-1]["environment_steps"] if self.curves else 0
        row: Row = {
            "epoch": self.epoch + 1,
            "environment_steps": int(before or 0) + made,
            "episodes": int(totals["episodes"]),
            "questions_per_step": totals["questions"] / made,
            "reward_per_step": totals["reward"] / made,
        }
        for name in self.task.figures:
            row[f"{name}_per_step"] = totals[name] / made
        return {**row, **mean_of(learned)}, seconds

    def _collect(self, first: int, until: int, totals: dict[str, float]) -> None:
        """Makes some of the epoch's decision steps; adds reward, questions and episodes to the totals."""
        rows, algorithm, steps = self.rows, self.algorithm, self.config.steps
        reward, questions, episodes = 0.0, 0, 0
        before, rows.ended = rows.figures(), dict.fromkeys(self.task.figures, 0.0)
        for step in range(first, until):
            choice_BN = np.where(rows.moment.asked_BN, algorithm.act(rows.moment, explore=True), 0)
            transition = rows.step(choice_BN)
            algorithm.observe(transition)
            reward += float(transition.reward_B.sum())
            questions += int(transition.before.asked_BN.sum())
            episodes += int(transition.ended_B.sum() + transition.cut_B.sum())
            if (step + 1) % 100 == 0 or step + 1 == until:
                self.reporter.phase("collect", step + 1, steps)
        grown = {name: -before[name] + (rows.ended[name] + value) for name, value in rows.figures().items()}
        for name, value in {"reward": reward, "questions": questions, "episodes": episodes, **grown}.items():
            totals[name] = totals.get(name, 0.0) + value

    def _update(self) -> Row:
        """Updates once, or as often as a replay is for; returns the means of what the updates tell."""
        updates = self.config.updates if self.algorithm.consumes == "replay" else 1
        learned: list[Row] = []
        for number in range(updates):
            learned.append(dict(self.algorithm.update()))
            if (number + 1) % 10 == 0 or number + 1 == updates:
                self.reporter.phase("update", number + 1, updates)
        return mean_of(learned)

    def _validation_engine(self) -> Engine:
        """Returns the engine of the validation environments."""
        drawn = [self.task.validation(number) for number in range(self.config.validation_environments)]
        self._validation_draws = drawn
        return self.task.engine([each for each, _ in drawn], [seed for _, seed in drawn])

    def validate(self) -> float:
        """Returns the mean worth of whole validation runs under the policy as it will run: reward, USD for a utility,
        or the task's score.
        """
        engine = self._validation
        for row, (environment, seed) in enumerate(self._validation_draws):
            engine.reset(row, environment, seed)
        meter = None if self.task.meter is None else self.task.meter(engine)
        # What was earned before the first question is the same for every policy, and part of the run's utility.
        reward_B = np.zeros(len(engine.done_B)) if meter is not None else engine.reward_B.copy()
        cost_BK = np.zeros((len(engine.done_B), self.task.columns))
        while not engine.done_B.all():
            live_B = ~engine.done_B
            moment = moment_of(engine)
            choice_BN = np.where(moment.asked_BN, self.algorithm.act(moment, explore=False), 0)
            engine.step(choice_BN)
            step_B, step_BK = measured(engine, meter)
            reward_B += np.where(live_B, step_B, 0.0)
            cost_BK += np.where(live_B[:, None], step_BK, 0.0)
        self.reporter.phase("validate", 1, 1)
        return float(reward_B.mean()) if self.task.score is None else self.task.score(reward_B, cost_BK)

    def save(self) -> None:
        """Writes curves and checkpoint."""
        best = None
        if self.best is not None:
            best = {
                "weights": {str(n): each for n, each in enumerate(self.best.weights)},
                "biases": {str(n): each for n, each in enumerate(self.best.biases)},
                "meta": list(self.best.meta.items()),
            }
        save_checkpoint(
            self.folder / CHECKPOINT,
            {
                "epoch": self.epoch,
                "curves": self.curves,
                "best_reward": None if self.best is None else self.best_reward,
                "best_epoch": self.best_epoch,
                "best": best or {},
                "rows": self._rows_state(),
                "algorithm": self.algorithm.state(),
            },
        )
        self.kept_epoch = self.epoch
        write_curves(self.folder / CURVES, self.curves)

    def _kept(self) -> dict[str, Any] | None:
        """Returns the checkpoint of the same run in the folder, or None if there is none."""
        if not (self.folder / CONFIG).is_file():
            return None
        kept = read_config(self.folder)
        if kept.digest() != self.config.digest():
            raise ScenarioError(
                f"{self.folder} holds another training run; resume that one as it is, or choose another folder"
            )
        if not (self.folder / CHECKPOINT).is_file():
            return None  # it was stopped within its first epoch
        return load_checkpoint(self.folder / CHECKPOINT)

    def _load(self, kept: dict[str, Any]) -> None:
        """Restores from a checkpoint."""
        self.epoch, self.curves = kept["epoch"], kept["curves"]
        self.kept_epoch = self.epoch
        self.best_epoch = kept["best_epoch"]
        if kept["best"]:
            self.best_reward = kept["best_reward"]
            self.best = best_of(kept)
        self.algorithm.load_state(kept["algorithm"])
        write_curves(self.folder / CURVES, self.curves)


def mean_of(rows: Sequence[Row]) -> Row:
    """Returns the mean of each figure over the rows that have it; None if all that have it say None.

    Example:
        >>> mean_of([{"loss": 4.0}, {"loss": 2.0, "value": 1.0}, {"value": None}])
        {'loss': 3.0, 'value': 1.0}
    """
    known: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            known.setdefault(name, []).extend([] if value is None else [float(value)])
    return {name: sum(values) / len(values) if values else None for name, values in known.items()}


def require_device(device: str) -> None:
    """Raises ScenarioError unless nets can be put on a device."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ScenarioError(
            f"device is {device!r}, which cannot be used here ({str(error).splitlines()[0]}); set device=cpu, or "
            "device=cuda where torch sees a GPU"
        ) from error


def read_config(folder: Path) -> RunConfig:
    """Returns the run of a folder.

    Raises:
        DataError: The folder holds no run, or its config is damaged.
    """
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} holds no training run ({CONFIG} is missing); give the folder that 'train' named")
    try:
        return RunConfig.from_json((folder / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / CONFIG} is damaged: {error}; train again in another folder") from error


def best_of(kept: dict[str, Any]) -> PolicyArrays:
    """Returns the best policy of a checkpoint.

    Raises:
        DataError: No epoch has been validated yet.
    """
    if not kept["best"]:
        raise DataError("no epoch of this run has been validated yet; train on")
    best = kept["best"]
    weights, biases = ([best[name][str(n)] for n in range(len(best[name]))] for name in ("weights", "biases"))
    return PolicyArrays(weights, biases, dict(best["meta"]))

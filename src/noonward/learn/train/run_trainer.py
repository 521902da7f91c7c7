"""Training of algorithms that play whole runs: windows are drawn, played in the compiled loop, and learned from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from noonward.learn.algorithms.algorithm import RunAlgorithm
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.core.experience import Studied
from noonward.learn.tasks.task import Plays, Task
from noonward.learn.train.curves import Row
from noonward.learn.train.run_config import RunConfig
from noonward.learn.train.trainer import PHASES, Reporter, Trainer
from noonward.seeding import stream

DRAWS: Final = 10_000
"""Seeds of a policy's stream that runs are given."""


class RunTrainer(Trainer):
    """Trains an algorithm that plays whole runs (``RunAlgorithm``), epoch by epoch, in a folder of its own.

    Before the first epoch the training windows are studied; what comes of that is epoch 0. An epoch: ``environments``
    of them, drawn without repetition, are played by the exploring policy; the algorithm learns from them; then the
    greedy policy plays the validation windows. Folder, checkpoints and arguments are those of ``Trainer``.
    """

    def _open(self, kept: dict[str, Any] | None) -> None:
        """Makes the algorithm, and lets it study the training windows unless a checkpoint holds what it learned."""
        config = self.config
        self.algorithm: RunAlgorithm = algorithm_named(config.algorithm).make(config.algorithm_config(), config.seed)
        self.rng = stream(config.seed, "learner", "windows")
        if kept is not None:
            self.rng.bit_generator.state = kept["rows"]["rng"]

    def _run(self) -> None:
        """Studies the training windows before the first epoch, then trains the epochs that are left."""
        if not self.curves:
            self._study()
        super()._run()

    def _study(self) -> None:
        """Lets the algorithm study the training windows, validates and keeps that: epoch 0 of the curves."""
        windows, shown = self.algorithm.windows, self.algorithm.scheduler(explore=False)
        studied: Studied = self.plays.study(windows, shown, lambda done, of: self.reporter.phase("study", done, of))
        learned = self.algorithm.study(studied)
        self._keep({"epoch": 0, "environment_steps": 0, "episodes": 0, **learned}, self.validate())
        self.save()

    @property
    def plays(self) -> Plays:
        """The task's whole runs."""
        assert self.task.plays is not None  # RunConfig.open has seen to it
        return self.task.plays

    def _rows_state(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state}

    def _learn(self) -> tuple[Row, dict[str, float]]:
        """Plays and learns; returns figures and wall times."""
        algorithm, runs = self.algorithm, min(self.config.environments, self.algorithm.windows)
        seconds = dict.fromkeys(PHASES, 0.0)
        began = time.monotonic()
        questions, utility_usd = 0, 0.0
        scheduler = algorithm.scheduler(explore=True)
        for done, number in enumerate(self.rng.choice(algorithm.windows, runs, replace=False).tolist()):
            played = self.plays.play(number, scheduler, algorithm.credit, int(self.rng.integers(DRAWS)))
            algorithm.observe(played)
            questions, utility_usd = questions + played.questions, utility_usd + played.utility_usd
            self.reporter.phase("collect", done + 1, runs)
        seconds["collect"] = time.monotonic() - began
        began = time.monotonic()
        learned = algorithm.update()
        seconds["update"] = time.monotonic() - began
        before = self.curves[-1]["environment_steps"] if self.curves else 0
        row: Row = {
            "epoch": self.epoch + 1,
            "environment_steps": int(before or 0) + questions,
            "episodes": runs,
            "questions_per_step": 1.0,
            "reward_per_step": utility_usd / max(1, questions),
            "run_utility_usd": utility_usd / runs,
            **learned,
        }
        return row, seconds

    def _add_figures(self, row: Row, reward: float | None) -> None:
        """Adds nothing: the figures of a task are read from engines of many rows."""

    def validate(self) -> float:
        """Returns the mean utility of whole validation runs under the greedy policy, USD."""
        reward = self.plays.worth(self.algorithm.scheduler(explore=False), self.config.validation_environments)
        self.reporter.phase("validate", 1, 1)
        return reward


def trainer_for(config: RunConfig, task: Task, folder: Path, reporter: Reporter | None = None) -> Trainer:
    """Returns the trainer of a run's algorithm; arguments as in ``Trainer``."""
    runs = algorithm_named(config.algorithm).make.consumes == "runs"
    return (RunTrainer if runs else Trainer)(config, task, folder, reporter)

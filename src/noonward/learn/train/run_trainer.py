"""Training of algorithms that play whole runs: windows are drawn, played in the compiled loop, and learned from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from noonward.arrays import F8
from noonward.learn.algorithms.algorithm import RunAlgorithm
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.core.experience import Studied
from noonward.learn.tasks.run_spec import CarryOut, RunSpec
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

    The policy stays as it is while the windows of an epoch are played, so that they do not depend on each other:
    ``carry_out`` may have several workers play them, and what is learned is the same, bit for bit.
    """

    def _open(self, kept: dict[str, Any] | None) -> None:
        """Makes the algorithm, and lets it study the training windows unless a checkpoint holds what it learned."""
        config = self.config
        self.algorithm: RunAlgorithm = algorithm_named(config.algorithm).make(config.algorithm_config(), config.seed)
        self.carry_out: CarryOut | None = None
        self._price_SH: dict[int, F8] = {}
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
        shown = self.algorithm.scheduler(explore=False)
        found = self._each("study", [(number, shown) for number in range(self.algorithm.windows)], "study")
        self._price_SH = {number: price_SH for number, (_, price_SH) in enumerate(found)}
        known = [studied for studied, _ in found]
        learned = self.algorithm.study(Studied(*(np.concatenate(parts) for parts in zip(*known, strict=True))))
        self._keep({"epoch": 0, "environment_steps": 0, "episodes": 0, **learned}, self.validate())
        self.save()

    def _each(self, what: Literal["study", "play", "worth"], runs: list[tuple[Any, ...]], phase: str) -> list[Any]:
        """Calls a method of the task's whole runs for each tuple of arguments: here, or by the given executor."""
        done = 0

        def step(_: str = "") -> None:
            nonlocal done
            done += 1
            self.reporter.phase(phase, done, len(runs))

        if self.carry_out is not None:
            config = self.config
            specs = [RunSpec(config.task, config.seed, what, number, tuple(more)) for number, *more in runs]
            return self.carry_out(specs, step)
        found = []
        for arguments in runs:
            found.append(getattr(self.plays, what)(*arguments))
            step()
        return found

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
        drawn = self.rng.choice(algorithm.windows, runs, replace=False).tolist()
        asked = [
            (number, scheduler, algorithm.credit, int(self.rng.integers(DRAWS)), self._price_SH.get(number))
            for number in drawn
        ]
        for played in self._each("play", asked, "collect"):
            algorithm.observe(played)
            questions, utility_usd = questions + played.questions, utility_usd + played.utility_usd
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
        shown = self.algorithm.scheduler(explore=False)
        runs = [(number, shown) for number in range(self.config.validation_environments)]
        return float(np.mean(self._each("worth", runs, "validate")))


def trainer_for(
    config: RunConfig,
    task: Task,
    folder: Path,
    reporter: Reporter | None = None,
    carry_out: CarryOut | None = None,
) -> Trainer:
    """Returns the trainer of a run's algorithm; arguments as in ``Trainer``.

    Args:
        config: See there.
        task: See there.
        folder: See there.
        reporter: See there.
        carry_out: Carries out whole runs, for an algorithm that plays them (``plays_runs``); None: this process does.
            What is learned is the same. Other algorithms step their environments side by side in this process.
    """
    if not plays_runs(config):
        return Trainer(config, task, folder, reporter)
    trainer = RunTrainer(config, task, folder, reporter)
    trainer.carry_out = carry_out
    return trainer


def plays_runs(config: RunConfig) -> bool:
    """Returns whether a run's algorithm plays whole runs, which can be carried out by several workers."""
    return algorithm_named(config.algorithm).make.consumes == "runs"

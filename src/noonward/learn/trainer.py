"""The trainer: epochs of collecting, updating and validating; checkpoints; the best policy kept."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch

from noonward.errors import DataError, ScenarioError
from noonward.learn.algorithm import F8, I8, Algorithm, Moment, PolicyArrays, Transition
from noonward.learn.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from noonward.learn.curves import Events, Row, write_curves
from noonward.learn.registry import algorithm_named
from noonward.learn.run_config import RunConfig
from noonward.learn.setting import Adviser, Engine, Setting, dimensions_of

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
        eta_s: Wall time the remaining epochs will take, at the mean of those of this session.
    """

    epoch: int
    epochs: int
    figures: Row
    seconds: dict[str, float]
    improved: bool
    eta_s: float


class Reporter(Protocol):
    """Hears how a run goes."""

    def phase(self, name: str, done: int, total: int) -> None:
        """Hears that ``done`` of ``total`` parts of a phase are over."""

    def epoch(self, report: EpochReport) -> None:
        """Hears that an epoch is over."""


class Silence:
    """A reporter that tells nobody."""

    def phase(self, name: str, done: int, total: int) -> None:
        """Hears nothing."""

    def epoch(self, report: EpochReport) -> None:
        """Hears nothing."""


def moment_of(engine: Engine, advice_BN: I8) -> Moment:
    """Returns a copy of what the agents of an engine's rows see now."""
    return Moment(
        global_BG=engine.global_BG.copy(),
        own_BNO=engine.own_BNO.copy(),
        mask_BNA=engine.mask_BNA.copy(),
        asked_BN=engine.asked_BN.copy(),
        advice_BN=advice_BN,
    )


class Rows:
    """Runs side by side that never end: a row whose run has ended, or whose episode is cut, starts the next draw.

    Args:
        setting: Where draws, engine and adviser come from.
        rows: Number of rows.
        episode_steps: Decision steps after which an episode is cut.
        numbers: Draws the rows start with; by default the first ones.
    """

    def __init__(self, setting: Setting, rows: int, episode_steps: int, numbers: I8 | None = None) -> None:
        self.setting, self.episode_steps = setting, episode_steps
        self.number_B = np.arange(rows) if numbers is None else np.array(numbers)
        self.age_B = np.zeros(rows, np.int64)
        self.next_number = rows
        self.ended_migration_usd = 0.0
        drawn = [setting.training(int(number)) for number in self.number_B]
        self.engine = setting.engine([each for each, _ in drawn], [seed for _, seed in drawn])
        self.meter = None if setting.meter is None else setting.meter(self.engine)
        self.adviser = None if setting.adviser is None else setting.adviser(self.engine)
        self.moment = moment_of(self.engine, advice_of(self.engine, self.adviser))

    def step(self, choice_BN: I8, *, cut: bool = False) -> Transition:
        """Carries out choices; returns the decision step.

        Args:
            choice_BN: Choices.
            cut: Break off all episodes after this step.
        """
        engine, before = self.engine, self.moment
        if self.adviser is not None:
            self.adviser.heed(choice_BN)
        engine.step(choice_BN)
        reward_B, cost_BK = measured(engine, self.meter)
        self.age_B += 1
        ended_B = engine.done_B.copy()
        cut_B = ~ended_B & ((self.age_B >= self.episode_steps) | cut)
        advice_BN = advice_of(engine, self.adviser)
        elapsed_B = engine.elapsed_s_B.copy()
        after = moment_of(engine, advice_BN)
        over = np.flatnonzero(ended_B | cut_B)
        self.moment = after
        if len(over):
            for row in over.tolist():
                self._begin(row)
            again_BN = advice_BN.copy()
            again_BN[over] = advice_of(engine, self.adviser, over)
            self.moment = moment_of(engine, again_BN)
        return Transition(before, choice_BN, reward_B, elapsed_B, cost_BK, ended_B, cut_B, after)

    def _begin(self, row: int) -> None:
        """Starts a row's next draw."""
        if self.setting.migration_usd is not None:
            self.ended_migration_usd += float(self.setting.migration_usd(self.engine)[row])
        self.number_B[row], self.age_B[row] = self.next_number, 0
        self.next_number += 1
        self.engine.reset(row, *self.setting.training(int(self.number_B[row])))
        if self.meter is not None:
            self.meter.begin(row)
        if self.adviser is not None:
            self.adviser.begin(row)

    def migration_usd(self) -> float:
        """Returns what the runs under way have paid for migrations since their start, USD; 0 where it is not read."""
        read = self.setting.migration_usd
        return 0.0 if read is None else float(read(self.engine).sum())

    def state(self) -> dict[str, Any]:
        """Returns where the rows are."""
        return {
            "number_B": self.number_B.copy(),
            "age_B": self.age_B.copy(),
            "next_number": self.next_number,
            "engine": self.engine.state(),
            "meter": {} if self.meter is None else self.meter.state(),
            "moment": self.moment._asdict(),
        }

    @classmethod
    def resumed(cls, setting: Setting, episode_steps: int, state: dict[str, Any]) -> Rows:
        """Returns rows that go on from a state."""
        rows = cls(setting, len(state["number_B"]), episode_steps, state["number_B"])
        rows.age_B[:], rows.next_number = state["age_B"], state["next_number"]
        rows.engine.load_state(state["engine"])
        if rows.meter is not None:
            rows.meter.load_state(state["meter"])
        rows.moment = Moment(**state["moment"])
        return rows


def advice_of(engine: Engine, adviser: Adviser | None, rows: I8 | None = None) -> I8:
    """Returns the adviser's choices in some rows (all), [rows, N]; -1 without one."""
    asked = np.arange(len(engine.done_B)) if rows is None else rows
    return np.full((len(asked), engine.agents), -1) if adviser is None else adviser.advise(asked)


def measured(engine: Engine, meter: Any) -> tuple[F8, F8]:
    """Returns rewards and constraint costs of the last step: the engine's rewards and no costs, or a meter's."""
    if meter is not None:
        reward_B, cost_BK = meter.read()
        return reward_B.copy(), cost_BK.copy()
    if not np.isfinite(engine.reward_B).all():
        raise ScenarioError("a step's reward is not finite: the runs have no utility; give signals and economics")
    return engine.reward_B.copy(), np.zeros((len(engine.reward_B), 0))


class Trainer:
    """Trains an algorithm, epoch by epoch, in a folder of its own.

    An epoch: ``steps`` decision steps of all rows; then the algorithm's updates; then the greedy policy over the
    validation environments, whole runs without a limit of steps. The policy of highest mean validation reward is kept.

    The folder holds ``config.json`` (the run), ``checkpoint.npz`` (everything, after every epoch; a run that is killed
    goes on from it, bit for bit as if it had never stopped), ``curves.csv`` (an epoch a row) and ``events``
    (TensorBoard).

    Args:
        config: The run.
        setting: What it learns in.
        folder: Where it writes. What a run of the same config left there is gone on from.
        reporter: Hears how it goes.

    Raises:
        ScenarioError: The folder holds another run.
        DataError: Its checkpoint is damaged.
    """

    def __init__(self, config: RunConfig, setting: Setting, folder: Path, reporter: Reporter | None = None) -> None:
        torch.set_num_threads(1)
        self.config, self.setting, self.folder = config, setting, folder
        self.reporter: Reporter = reporter or Silence()
        self.epoch = 0
        self.curves: list[Row] = []
        self.best_reward = -np.inf
        self.best_epoch = 0
        self.best: PolicyArrays | None = None
        kept = self._kept()
        self.rows = (
            Rows(setting, config.environments, config.episode_steps)
            if kept is None
            else Rows.resumed(setting, config.episode_steps, kept["rows"])
        )
        entry = algorithm_named(config.algorithm)
        dimensions = dimensions_of(self.rows.engine, setting)
        self.algorithm: Algorithm = entry.make(dimensions, config.algorithm_config(), config.seed, config.device)
        self._validation = self._validation_engine()
        if kept is not None:
            self._load(kept)
        else:
            write_atomically(folder / CONFIG, lambda file: file.write(config.to_json().encode()))

    def run(self) -> None:
        """Trains until the last epoch."""
        began, first = time.monotonic(), self.epoch
        if self.epoch >= self.config.epochs:
            return
        events = Events(self.folder / EVENTS, self.epoch)
        try:
            while self.epoch < self.config.epochs:
                row, seconds, improved = self._run_epoch()
                spent = time.monotonic() - began
                left = spent / (self.epoch - first) * (self.config.epochs - self.epoch)
                events.write(self.epoch, {"train": row, "seconds": seconds})
                self.reporter.epoch(
                    EpochReport(
                        epoch=self.epoch,
                        epochs=self.config.epochs,
                        figures=row,
                        seconds=seconds,
                        improved=improved,
                        eta_s=left,
                    )
                )
        finally:
            events.close()

    def _run_epoch(self) -> tuple[Row, dict[str, float], bool]:
        """Makes one epoch; returns its figures, the wall time of its phases and whether its policy is the best."""
        marks = [time.monotonic()]
        row: Row = {"epoch": self.epoch + 1, **self._collect()}
        marks.append(time.monotonic())
        row |= self._update()
        marks.append(time.monotonic())
        due = (self.epoch + 1) % self.config.validate_every == 0 or self.epoch + 1 == self.config.epochs
        reward = self.validate() if due else None
        marks.append(time.monotonic())
        self.epoch += 1
        improved = reward is not None and reward > self.best_reward
        if improved and reward is not None:
            self.best_reward, self.best_epoch, self.best = reward, self.epoch, self.algorithm.policy_arrays()
        row["validation_reward"], row["best_epoch"] = reward, self.best_epoch
        if self.setting.migration_usd is not None:
            moved_B = self.setting.migration_usd(self._validation)
            row["validation_migration_usd"] = None if reward is None else float(moved_B.mean())
        self.curves.append(row)
        if self.epoch % self.config.checkpoint_every == 0 or self.epoch == self.config.epochs:
            self.save()
        return row, dict(zip(PHASES, np.diff(marks).tolist(), strict=True)), improved

    def _collect(self) -> Row:
        """Makes the epoch's decision steps; returns their figures."""
        rows, algorithm, steps = self.rows, self.algorithm, self.config.steps
        reward, questions, episodes = 0.0, 0, 0
        migration_usd, rows.ended_migration_usd = -rows.migration_usd(), 0.0
        for step in range(steps):
            choice_BN = np.where(rows.moment.asked_BN, algorithm.act(rows.moment, explore=True), 0)
            # An adviser's memory is not in a checkpoint: with one, episodes end with the epoch.
            last = rows.adviser is not None and step == steps - 1
            transition = rows.step(choice_BN, cut=last)
            algorithm.observe(transition)
            reward += float(transition.reward_B.sum())
            questions += int(transition.before.asked_BN.sum())
            episodes += int(transition.ended_B.sum() + transition.cut_B.sum())
            if (step + 1) % 100 == 0 or step + 1 == steps:
                self.reporter.phase("collect", step + 1, steps)
        made = steps * len(rows.number_B)
        migration_usd += rows.ended_migration_usd + rows.migration_usd()
        before = self.curves[-1]["environment_steps"] if self.curves else 0
        paid = {} if self.setting.migration_usd is None else {"migration_usd_per_step": migration_usd / made}
        return {
            "environment_steps": int(before or 0) + made,
            "episodes": episodes,
            "questions_per_step": questions / made,
            "reward_per_step": reward / made,
            **paid,
        }

    def _update(self) -> Row:
        """Makes the epoch's updates; returns the means of what they tell."""
        updates = self.config.updates if self.algorithm.consumes == "replay" else 1
        sums: dict[str, float] = {}
        for number in range(updates):
            for name, value in self.algorithm.update().items():
                sums[name] = sums.get(name, 0.0) + value
            if (number + 1) % 10 == 0 or number + 1 == updates:
                self.reporter.phase("update", number + 1, updates)
        return {name: value / updates for name, value in sums.items()}

    def _validation_engine(self) -> Engine:
        """Returns the engine of the validation environments."""
        drawn = [self.setting.validation(number) for number in range(self.config.validation_environments)]
        self._validation_draws = drawn
        return self.setting.engine([each for each, _ in drawn], [seed for _, seed in drawn])

    def validate(self) -> float:
        """Returns the mean worth of whole validation runs under the policy as it will run: reward, USD for a utility,
        or the setting's score.
        """
        engine = self._validation
        for row, (environment, seed) in enumerate(self._validation_draws):
            engine.reset(row, environment, seed)
        meter = None if self.setting.meter is None else self.setting.meter(engine)
        adviser = None if self.setting.adviser is None else self.setting.adviser(engine)
        # What was earned before the first question is the same for every policy, and part of the run's utility.
        reward_B = np.zeros(len(engine.done_B)) if meter is not None else engine.reward_B.copy()
        cost_BK = np.zeros((len(engine.done_B), len(self.setting.costs)))
        while not engine.done_B.all():
            live_B = ~engine.done_B
            moment = moment_of(engine, advice_of(engine, adviser))
            choice_BN = np.where(moment.asked_BN, self.algorithm.act(moment, explore=False), 0)
            if adviser is not None:
                adviser.heed(choice_BN)
            engine.step(choice_BN)
            step_B, step_BK = measured(engine, meter)
            reward_B += np.where(live_B, step_B, 0.0)
            cost_BK += np.where(live_B[:, None], step_BK, 0.0)
        self.reporter.phase("validate", 1, 1)
        worth_B = reward_B if self.setting.score is None else self.setting.score(reward_B, cost_BK)
        return float(worth_B.mean())

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
                "rows": self.rows.state(),
                "algorithm": self.algorithm.state(),
            },
        )
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
        """Goes on from a checkpoint."""
        self.epoch, self.curves = kept["epoch"], kept["curves"]
        self.best_epoch = kept["best_epoch"]
        if kept["best"]:
            self.best_reward = kept["best_reward"]
            self.best = best_of(kept)
        self.algorithm.load_state(kept["algorithm"])
        write_curves(self.folder / CURVES, self.curves)


def read_config(folder: Path) -> RunConfig:
    """Returns the run of a folder.

    Raises:
        DataError: The folder holds no run.
    """
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} holds no training run ({CONFIG} is missing); give the folder that 'train' named")
    return RunConfig.from_json((folder / CONFIG).read_text(encoding="utf-8"))


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

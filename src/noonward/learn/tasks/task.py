"""What a run learns in: draws of environments, the engine that runs them, a meter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from noonward.arrays import F4, F8, I8, Bools
from noonward.learn.core.experience import ActionSpec, Credit, Dimensions, Played, Studied, Tokens


class Engine(Protocol):
    """What the trainer needs of an engine of many rows; see ``engine.cluster.batch.BatchEngine``."""

    agents: int
    choices: int
    global_BG: F4
    own_BNO: F4
    mask_BNA: Any
    asked_BN: Bools
    reward_B: F8
    elapsed_s_B: F8
    done_B: Bools

    def step(self, choice_BN: I8) -> None:
        """Executes choices."""

    def reset(self, row: int, environment: Any, seed: int) -> None:
        """Restarts a row."""

    def state(self) -> dict[str, Any]:
        """Returns all that changes."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""


class Meter(Protocol):
    """Reads rewards, constraint costs and counts of an engine's rows."""

    def begin(self, row: int) -> None:
        """Forgets a row, which has been started again."""

    def read(self) -> tuple[F8, F8]:
        """Returns those of the last step: rewards [B], and costs and counts [B, K]."""

    def state(self) -> dict[str, Any]:
        """Returns all that changes."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""


class Plays(Protocol):
    """Whole runs that a scheduler plays, each by itself; see ``tasks.cluster_runs.ClusterRuns``."""

    def study(self, number: int, scheduler: Any) -> tuple[Studied, F8]:
        """Returns what is known of a training window beforehand, and its capacity duals."""

    def play(self, number: int, scheduler: Any, credit: Credit, draw: int, price_SH: F8 | None = None) -> Played:
        """Runs a training window."""

    def worth(self, number: int, scheduler: Any) -> float:
        """Returns the utility of a validation run, USD."""


Draw = Callable[[int], tuple[Any, int]]
"""Environment and seed of a draw's number."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a run learns in; it describes itself to the trainer, which knows nothing else of it.

    Attributes:
        training: Draws of training environments.
        validation: Draws of validation environments; no window is also a training one.
        engine: Makes an engine of rows.
        actions: What an agent chooses.
        meter: Makes what reads rewards and constraint costs of an engine, or None: the engine's rewards, no costs.
        costs: Names of the constraint costs that the meter reads.
        counts: Names of the columns that the meter reads after them (``Dimensions``).
        score: What whole validation runs are worth, from each run's sums of rewards and costs; None: the mean of the
            sums of rewards.
        figures: Further figures for the curves: a reader of each row's sum since its run's start, by name. The curves
            hold their growth per decision step (``NAME_per_step``) and their mean in validation (``validation_NAME``).
        slot_s: Length of a slot, s.
        tokens: How what all agents see is laid out, where it consists of tokens (``Dimensions``).
        advised: Whether an agent's own part is advice for losses (``Dimensions``).
        reward_name: What its record calls the reward of the best epoch in validation.
        about: What an exported policy says of where it fits.
        record: What its record says of the data it was trained on.
        write: Writes an exported policy (file, nets, what it says of itself, whether weights are float16), or None.
        plays: Whole runs, for algorithms that play them, or None.
        judged: Figures of a written policy over so many validation environments, by name, for its record, or None.
    """

    training: Draw
    validation: Draw
    engine: Callable[[Sequence[Any], Sequence[int]], Engine]
    actions: ActionSpec
    meter: Callable[[Any], Meter] | None = None
    costs: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    score: Callable[[F8, F8], float] | None = None
    figures: Mapping[str, Callable[[Any], F8]] = field(default_factory=dict)
    slot_s: float = 60.0
    tokens: Tokens | None = None
    advised: bool = False
    reward_name: str = "validation_reward_usd"
    about: dict[str, Any]
    record: dict[str, Any] = field(default_factory=dict)
    write: Callable[..., None] | None = None
    judged: Callable[[Path, int], dict[str, float]] | None = None
    plays: Plays | None = None

    @property
    def columns(self) -> int:
        """Columns of a step's costs: constraint costs, then counts."""
        return len(self.costs) + len(self.counts)


class TaskConfig(Protocol):
    """Settings of a task: a frozen dataclass of values that JSON can hold."""

    def open(self, seed: int) -> Task:
        """Returns the task.

        Args:
            seed: Number of the draw of training environments.
        """


def dimensions_of(engine: Engine, task: Task) -> Dimensions:
    """Returns the sizes an algorithm for an engine is built for."""
    return Dimensions(
        agents=engine.agents,
        actions=task.actions,
        global_size=engine.global_BG.shape[1],
        own_size=engine.own_BNO.shape[2],
        costs=task.costs,
        counts=task.counts,
        slot_s=task.slot_s,
        tokens=task.tokens,
        advised=task.advised,
    )

"""What a run learns in: draws of environments, the engine that runs them, a demonstrator, a meter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from noonward.arrays import F4, F8, I8, Bools
from noonward.learn.algorithms.algorithm import Dimensions


class Engine(Protocol):
    """What the trainer needs of a batch engine; see ``engine.batch.BatchEngine``."""

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
        """Carries out choices."""

    def reset(self, row: int, environment: Any, seed: int) -> None:
        """Starts a row anew."""

    def state(self) -> dict[str, Any]:
        """Returns all that changes."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""


class Demonstrator(Protocol):
    """Says what a policy does in the only row of an engine."""

    def begin(self) -> None:
        """Prepares for the run that has just started."""

    def choices(self) -> I8:
        """Returns the policy's choices, [N]; -1 where an agent is not asked or could not choose so. Once a question."""


class Meter(Protocol):
    """Reads rewards and constraint costs of an engine's rows."""

    def begin(self, row: int) -> None:
        """Forgets a row, which has been started anew."""

    def read(self) -> tuple[F8, F8]:
        """Returns those of the last step: rewards [B] and costs [B, K]."""

    def state(self) -> dict[str, Any]:
        """Returns all that changes."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""


Draw = Callable[[int], tuple[Any, int]]
"""Environment and seed of a draw's number."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a run learns in.

    Attributes:
        training: Draws of training environments.
        validation: Draws of validation environments; no window is also a training one.
        engine: Makes an engine of rows.
        demonstrator: Makes what a warm start imitates, for an engine of one row, or None.
        meter: Makes what reads rewards and constraint costs of an engine, or None: the engine's rewards, no costs.
        costs: Names of the constraint costs that the meter reads.
        score: What whole validation runs are worth, from each run's sums of rewards and costs; None: the mean of the
            sums of rewards.
        gangs: Gangs G of a choice (``on-arrival``); 1 elsewhere.
        migration_usd: Reads what each row of an engine has paid for migrations since its start, USD, for the curves;
            None: the curves do without.
        slot_s: Length of a slot, s.
        about: What an exported policy says of where it fits: scenario, protocol, sites, observation.
    """

    training: Draw
    validation: Draw
    engine: Callable[[Sequence[Any], Sequence[int]], Engine]
    demonstrator: Callable[[Any], Demonstrator] | None = None
    meter: Callable[[Any], Meter] | None = None
    costs: tuple[str, ...] = ()
    score: Callable[[F8, F8], float] | None = None
    gangs: int = 1
    migration_usd: Callable[[Any], F8] | None = None
    slot_s: float = 60.0
    about: dict[str, Any]


def dimensions_of(engine: Engine, setting: Setting) -> Dimensions:
    """Returns the sizes an algorithm for an engine is built for."""
    return Dimensions(
        agents=engine.agents,
        choices=engine.choices,
        global_size=engine.global_BG.shape[1],
        own_size=engine.own_BNO.shape[2],
        costs=setting.costs,
        gangs=setting.gangs,
        slot_s=setting.slot_s,
    )

"""What the environments for outside libraries share: episodes drawn from a part of the data, in a batch engine."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.data.environments import build_environment
from noonward.data.splits import MONTHS, SEEDS, Split, split_scenario, split_seed
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine, Reward
from noonward.errors import MissingExtraError, ScenarioError, nearest
from noonward.forecasts.forecast import Forecast
from noonward.ledger.meters import read_meters
from noonward.model.cluster.scenario import Scenario

try:
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "gymnasium", "train") from error

Infeasible = Literal["replace", "raise"]
"""What becomes of an infeasible action: another one is taken in its place, or InfeasibleActionError is raised."""
LARGEST: Final = float(np.finfo(np.float32).max)
"""Limit of the observation spaces: entries are of order 1, but most have no bound."""


def require_infeasible(infeasible: str) -> None:
    """Raises ValueError unless the word says what becomes of an infeasible action."""
    if infeasible not in get_args(Infeasible):
        raise ValueError(f"infeasible is {infeasible!r}; {nearest(str(infeasible), get_args(Infeasible))}")


def feasible_instead(mask_A: NDArray[Any], action: int) -> int:
    """Returns a feasible action as it is; for another, the feasible one of next lower number, or else the lowest.

    A number outside the space stays as it is.

    Args:
        mask_A: Nonzero where an action is feasible.
        action: Action.

    Example:
        >>> [feasible_instead(np.array([0, 1, 0, 0, 1]), action) for action in range(6)]
        [1, 1, 1, 1, 4, 5]
    """
    feasible = np.flatnonzero(mask_A)
    if not 0 <= action < len(mask_A) or not len(feasible):
        return action
    lower = int(np.searchsorted(feasible, action, "right"))
    return int(feasible[max(lower - 1, 0)])


def shown_mask(mask_A: NDArray[Any], ended: bool) -> NDArray[np.int8]:
    """Returns a mask as it is shown, int8: when the episode has ended, action 0 is left as the only one.

    Nothing is done any more then, but libraries draw from the last observation's mask too.
    """
    shown_A = mask_A.astype(np.int8)
    if ended:
        shown_A[0] = 1
    return shown_A


class FeasibleChoice(spaces.Discrete):
    """Discrete choices of which ``sample`` draws a feasible one.

    Args:
        count: Number of choices.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.feasible_A = np.zeros(count, np.int8)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Returns a random choice under a mask or probabilities; by default under the question's mask."""
        if mask is None and probability is None and self.feasible_A.any():
            mask = self.feasible_A
        return super().sample(mask=mask, probability=probability)


class Episodes:
    """The episodes of one environment: a batch engine of one row, started again with the next draw of the scenario.

    Args:
        scenario: What is drawn from.
        observation: What agents are shown.
        part: Part of the data: ``train``, ``validation`` or ``test``.
        reward: Reward of the batch engine.
        forecast: Forecast that is shown, or None.

    Raises:
        ScenarioError: The part is unknown, the observation is none, or the scenario is of another protocol.
    """

    def __init__(
        self, scenario: Scenario, observation: Observation, part: Split, reward: Reward, forecast: Forecast | None
    ) -> None:
        if part not in MONTHS:
            raise ScenarioError(f"part is {part!r}; {nearest(str(part), MONTHS)}")
        if not isinstance(observation, Observation):
            raise ScenarioError(f"observation is {observation!r}; give an Observation, as Observation(kind='extended')")
        if scenario.protocol != observation.protocol:
            wanted = "SitesEnv" if observation.protocol == "each-slot" else "DispatcherEnv"
            raise ScenarioError(
                f"scenario {scenario.name!r} has the protocol {scenario.protocol}, but {wanted} is for "
                f"{observation.protocol}; take another scenario, or the other environment (SitesEnv for each-slot, "
                "DispatcherEnv for on-arrival)"
            )
        self.scenario, self.observation, self.part = split_scenario(scenario, part), observation, part
        self.reward, self.forecast = reward, forecast
        self.seed, self.index = 0, -1
        self._engine: BatchEngine | None = None
        self._metered_usd_S = np.zeros(len(scenario.fleet.sites))

    @property
    def engine(self) -> BatchEngine:
        """The batch engine.

        Raises:
            RuntimeError: No episode has begun.
        """
        if self._engine is None:
            raise RuntimeError("no episode has begun; call reset first")
        return self._engine

    @property
    def running(self) -> bool:
        """Whether an episode has begun and not ended."""
        return self._engine is not None and not self._engine.done_B[0]

    def begin(self, seed: int | None) -> None:
        """Begins the first episode of a seed, or the next one without a seed."""
        self.seed, self.index = (self.seed, self.index + 1) if seed is None else (seed % SEEDS, 0)
        environment = build_environment(self.scenario, self.index, split_seed(self.part, self.seed))
        if self._engine is None:
            self._engine = BatchEngine(
                [environment], self.observation, seeds=[self.seed], reward=self.reward, forecast=self.forecast
            )
        else:
            self._engine.reset(0, environment, self.seed)
        self._metered_usd_S = np.zeros(len(environment.sites))

    def metered_usd_S(self) -> F8:
        """Returns what the sites' meters have added to the cost since the last call of the episode, USD, (S,).

        That is what the ledger settles beyond the energy of GPUs for what has happened so far (``Reading.added_usd``):
        bills with their peaks, energy above a connection, devices, grid events. Base load and free GPUs of the whole
        window count in the first call. The engine's rewards do not hold it; less it they sum to the ledger's utility.
        """
        names = self.engine.environments[0].sites
        if all(site.meter is None for site in self.scenario.fleet.sites):
            return np.zeros(len(names))
        readings = read_meters(self.engine.outcome(0))
        before_S = self._metered_usd_S
        self._metered_usd_S = np.array([readings[name].added_usd if name in readings else 0.0 for name in names])
        return self._metered_usd_S - before_S

    def step(self, choice_N: NDArray[np.int64]) -> None:
        """Executes the choices.

        Raises:
            RuntimeError: No episode runs.
            InfeasibleActionError: A choice is infeasible.
        """
        if not self.running:
            raise RuntimeError("the episode has ended or not begun; call reset first")
        self.engine.step(choice_N[None])

    def ended(self) -> tuple[bool, bool]:
        """Returns (terminated: every job is done or overdue; truncated: the window's end cut the run off)."""
        done, drained = bool(self.engine.done_B[0]), self.engine.environments[0].drained
        return done and drained, done and not drained

    def info(self) -> dict[str, Any]:
        """Returns time of the question and time since the last one, s."""
        return {"now_s": float(self.engine.now_s_B[0]), "elapsed_s": float(self.engine.elapsed_s_B[0])}

"""Settings with one dispatcher as Gymnasium environments: where an arriving job goes, on how many GPUs, how fast."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import Split
from noonward.decision.cluster.observation import Observation
from noonward.decision.cluster.view import ORACLE, POWER_W, SECONDS
from noonward.errors import MissingExtraError, ScenarioError, nearest
from noonward.forecasts.forecast import Forecast
from noonward.learn.envs.common import (
    LARGEST,
    Episodes,
    FeasibleChoice,
    Infeasible,
    feasible_instead,
    require_infeasible,
    shown_mask,
)
from noonward.model.cluster.scenario import Scenario

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "gymnasium", "train") from error

JOULES_PER_UNIT: Final = 10.0
"""E_unit that counts as 1 in the reward ``energy``."""
GANG_WEIGHT: Final = 0.05
"""alpha_n of the reward ``energy`` (CHSAC-AF, Table I)."""
REWARDS: Final = ("energy", "utility", "at-start")


class DispatcherEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """One dispatcher that is asked about every job when it arrives (protocol on-arrival; CHSAC-AF, Sec. IV).

    Observation: Box, float32, (global entries,): table "on-arrival" of
    ``noonward.decision.cluster.observation.Observation``.

    Action: Discrete(sites x G) with G = ``observation.gpus_max``, or Discrete(sites x G x F) where clocks are chosen
    too, with F = ``observation.levels``.

    | action | what |
    |---|---|
    | s G + n - 1 | send the job to site s with at most n GPUs, clock of least energy per unit |
    | (s G + n - 1) F + level | where clocks are chosen: the same at a clock level, the lowest clock first |

    ``info["action_mask"]`` (int8) and ``action_masks()`` (bool) mark what is feasible: sites with room, with gangs that
    are free; where no site has room, every site the job can reach in time, with every gang it can use.
    ``action_space.sample()`` draws a feasible action. In place of an infeasible one, the feasible action of next lower
    number is taken (a lower clock, fewer GPUs at the same site, or an earlier site), or else the lowest.
    ``info["infeasible"]`` says whether that happened, ``info["action"]`` what was taken. Under ``infeasible="raise"``
    it raises InfeasibleActionError and changes nothing, as a number outside the space always does.

    Reward:

    | ``reward`` | value |
    |---|---|
    | ``energy`` | - E_unit / 10 J + 0.05 / n, E_unit of the site and gang chosen (CHSAC-AF, Eq. 5) |
    | ``utility`` | growth of the utility since the last question, USD |
    | ``at-start`` | the same, with each job counted whole when it starts |

    What the run earned before its first question is in ``info["before_usd"]`` of ``reset``; with it the rewards
    ``utility`` and ``at-start`` sum to the ledger's utility; what meters add to the cost (tariffs, peaks, devices,
    events) counts as it arises.

    End: ``terminated`` when every job is done or overdue, ``truncated`` where the scenario ends with its window. The
    last observation is zero, and its mask leaves action 0.

    Seeding: ``reset(seed=k)`` begins the first environment of draw k modulo 10,000 of the part of the data; ``reset()``
    the next one of the same draw. Same seed, same episode.

    Version 0. Nothing is rendered.

    Args:
        scenario: Scenario of protocol on-arrival, or the name of one.
        settings: Changes ``KEY=VALUE`` of a scenario given by name.
        observation: What the dispatcher is shown.
        part: Part of the data that episodes are drawn from.
        reward: See above.
        forecast: Forecast that is shown, where the observation shows one.
        infeasible: What becomes of an infeasible action, ``replace`` or ``raise``; see above.

    Raises:
        ScenarioError: The scenario is of another protocol, does not fit the observation, or has no utility but is to
            be rewarded by it.
        ValueError: The reward is unknown, or ``infeasible`` is.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        scenario: Scenario | str = "dvfs-training",
        observation: Observation | None = None,
        *,
        settings: tuple[str, ...] = (),
        part: Split = "train",
        reward: Literal["energy", "utility", "at-start"] = "energy",
        forecast: Forecast | None = None,
        infeasible: Infeasible = "replace",
    ) -> None:
        require_infeasible(infeasible)
        if reward not in REWARDS:
            raise ValueError(f"unknown reward {reward!r}; {nearest(reward, REWARDS)}")
        if isinstance(settings, str):
            raise ScenarioError(f"settings is {settings!r}; give a tuple of KEY=VALUE, as ({settings!r},)")
        drawn = load_scenario(scenario, list(settings)) if isinstance(scenario, str) else scenario
        if reward != "energy" and (drawn.economics is None or drawn.signals is None):
            raise ScenarioError(
                f"reward {reward!r} is the utility, which scenario {drawn.name!r} has not (signals and economics); "
                "use reward='energy' or add them"
            )
        shown = Observation(kind="paper", protocol="on-arrival") if observation is None else observation
        self.reward, self.infeasible = reward, infeasible
        self._episodes = Episodes(drawn, shown, part, "utility" if reward == "energy" else reward, forecast)
        sites, points = len(drawn.fleet.sites), len(drawn.fleet.ingress_points)
        self.observation_space = spaces.Box(-LARGEST, LARGEST, (shown.global_size(sites, points),), np.float32)
        self._choice = FeasibleChoice(shown.choices(sites))
        self.action_space = self._choice

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns which actions are feasible now."""
        return np.asarray(self._mask_A(), np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode; options are not read."""
        super().reset(seed=seed)
        self._episodes.begin(seed)
        observation, info = self._shown()
        if self.reward != "energy":
            info["before_usd"] = self._earned_usd()
        return observation, info

    def step(self, action: int | np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Executes an action.

        Raises:
            InfeasibleActionError: The action is outside the space, or infeasible under ``infeasible="raise"``.
            RuntimeError: No episode runs.
        """
        taken = int(action)
        if self.infeasible == "replace" and self._episodes.running:
            taken = feasible_instead(self._mask_A(), taken)
        energy = self._energy(taken) if self._episodes.running and self.action_space.contains(taken) else 0.0
        self._episodes.step(np.array([taken], np.int64))
        reward = energy if self.reward == "energy" else self._earned_usd()
        observation, info = self._shown()
        info |= {"action": taken, "infeasible": taken != int(action)}
        return observation, reward, *self._episodes.ended(), info

    def _earned_usd(self) -> float:
        """Returns the growth of the utility since the last call, what meters add to the cost included, USD."""
        return float(self._episodes.engine.reward_B[0] - self._episodes.metered_usd_S().sum())

    def _mask_A(self) -> NDArray[np.int8]:
        """Returns the mask of the question, or that of the end."""
        engine = self._episodes.engine
        return shown_mask(engine.mask_BNA[0, 0], bool(engine.done_B[0]))

    def _energy(self, action: int) -> float:
        """Returns - E_unit / 10 J + 0.05 / n of an action (CHSAC-AF, Eq. 5), 0 for a gang the job cannot have."""
        view = self._episodes.engine.row_view(0)
        site, gpus, level = self._episodes.observation.parts(action)
        class_ = int(view.job_J["class_"][view.job])
        if gpus >= view.oracle_SCG.shape[2]:
            return 0.0
        at = (site, class_, gpus, int(view.oracle_SCG[site, class_, gpus]) if level == ORACLE else level)
        joules = view.speed_KSCGF[(POWER_W, *at)] * view.speed_KSCGF[(SECONDS, *at)] * view.site_S["pue"][site]
        return float(-joules / JOULES_PER_UNIT + GANG_WEIGHT / gpus)

    def _shown(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        engine = self._episodes.engine
        self._choice.feasible_A = self._mask_A()
        return engine.global_BG[0].copy(), self._episodes.info() | {"action_mask": self._choice.feasible_A.copy()}

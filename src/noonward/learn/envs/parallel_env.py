"""The fine-tuning setting as a PettingZoo environment: the agents are the sites, all answer at once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import Split
from noonward.decision.cluster.observation import Observation
from noonward.decision.cluster.view import HOLD
from noonward.engine.cluster.batch import Reward
from noonward.errors import MissingExtraError
from noonward.forecasts.forecast import Forecast
from noonward.learn.envs.common import LARGEST, Episodes, Infeasible, require_infeasible
from noonward.model.cluster.scenario import Scenario

try:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "pettingzoo", "train") from error


class SitesEnv(ParallelEnv):  # type: ignore[misc]
    """Sites that each decide about the job at the head of their queue, all at once (MASAC, Secs. II and III).

    Agents: the names of the scenario's sites, all of them from the first step to the last.

    Observation of an agent: a dict of

    | key | space | value |
    |---|---|---|
    | ``observation`` | Box, float32, (global + own entries,) | ``noonward.decision.cluster.observation.Observation`` |
    | ``action_mask`` | Box, int8, (1 + sites,) | 1 where an action is feasible; hold alone where nothing is asked |

    Under ``flat=True`` it is one Box of both, the mask last, for libraries that take no dicts; ``infos`` then hold
    ``action_mask`` too.

    Action of an agent: Discrete(1 + sites).

    | action | what |
    |---|---|
    | 0 | hold the job until the next slot |
    | 1 + s | start it now if s is the agent's own site, else move it to site s |

    With ``Observation(running=True)`` an agent is also asked about its site's running jobs that may be suspended, once
    an hour and where an event begins or ends; ``running`` in the observation says so. Then 0 lets the job run on, and
    1 + s of its own site suspends it. Rewards are then ``utility`` only.

    An infeasible action counts as hold. ``infos[agent]["infeasible"]`` says whether that happened,
    ``infos[agent]["action"]`` what was taken. Under ``infeasible="raise"`` it raises InfeasibleActionError and changes
    nothing, as a number outside the space always does. What an agent answers that is not asked changes nothing.

    Reward, shared: growth of the utility since the last step, USD (``reward="at-start"``: jobs counted whole when they
    start, ``BatchEngine``). What the run earned before its first question is in ``infos[agent]["before_usd"]`` of
    ``reset``; with it the rewards sum to the ledger's utility. Under ``reward="own"`` an agent earns what its own
    decisions brought: the whole value of the jobs it starts, over leaving their GPUs free, less the cost of the
    journeys it begins. Summed over the agents, that is what the utility exceeds that of an idle fleet by. What meters
    add to the cost (tariffs, peaks, devices, events) counts as it arises, under ``own`` at its site.

    End: all agents terminate when every job is done or overdue, or are truncated where the scenario ends with its
    window. The last observation is zero, and its mask leaves hold.

    Seeding: ``reset(seed=k)`` begins the first environment of draw k modulo 10,000 of the part of the data; ``reset()``
    the next one of the same draw. Same seed, same episode.

    Infos: ``now_s``, ``elapsed_s`` (seconds; steps take 0 s within a slot), ``asked``, ``action``, ``infeasible``.

    Version 0. Nothing is rendered.

    Args:
        scenario: Scenario of protocol each-slot, or the name of one.
        observation: What agents are shown.
        part: Part of the data that episodes are drawn from.
        reward: ``utility``, ``at-start`` or ``own``.
        forecast: Forecast that is shown, where the observation shows one.
        infeasible: What becomes of an infeasible action, ``replace`` or ``raise``; see above.
        flat: Whether an observation is one Box; see above.

    Raises:
        ScenarioError: The scenario is of another protocol, or does not fit the observation.
        ValueError: ``infeasible`` is neither.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "noonward_sites_v0", "render_modes": [], "is_parallelizable": True}
    render_mode = None

    def __init__(
        self,
        scenario: Scenario | str = "fine-tuning",
        observation: Observation | None = None,
        *,
        part: Split = "train",
        reward: Reward = "utility",
        forecast: Forecast | None = None,
        infeasible: Infeasible = "replace",
        flat: bool = False,
    ) -> None:
        require_infeasible(infeasible)
        drawn = load_scenario(scenario) if isinstance(scenario, str) else scenario
        shown = Observation(kind="paper") if observation is None else observation
        self._episodes = Episodes(drawn, shown, part, reward, forecast)
        self.infeasible, self.flat = infeasible, flat
        self.possible_agents = list(drawn.fleet.site_names)
        self.agents: list[str] = []
        sites = len(self.possible_agents)
        size = shown.global_size(sites) + shown.own_size(sites)
        parts: dict[str, spaces.Space[Any]] = {
            "observation": spaces.Box(-LARGEST, LARGEST, (size,), np.float32),
            "action_mask": spaces.Box(0, 1, (1 + sites,), np.int8),
        }
        flat_space = spaces.Box(-LARGEST, LARGEST, (size + 1 + sites,), np.float32)
        space = flat_space if flat else spaces.Dict(parts)
        self.observation_spaces = dict.fromkeys(self.possible_agents, space)
        self.action_spaces = {agent: spaces.Discrete(1 + sites) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        """Returns an agent's observation space."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Returns an agent's action space."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode; options are not read."""
        self._episodes.begin(seed)
        self.agents = list(self.possible_agents)
        before = {"before_usd": float(self._episodes.engine.reward_B[0] - self._episodes.metered_usd_S().sum())}
        nothing_N = np.zeros(len(self.agents), np.int64)
        infos = self._infos(nothing_N, nothing_N > 0)
        return self._observations(), {agent: info | before for agent, info in infos.items()}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Executes all agents' actions.

        Raises:
            InfeasibleActionError: An action is outside the space, or infeasible under ``infeasible="raise"``.
            RuntimeError: No episode runs.
        """
        chosen_N = np.array([actions.get(agent, 0) for agent in self.possible_agents], np.int64)
        taken_N = chosen_N.copy()
        if self.infeasible == "replace" and self._episodes.running:
            mask_NA = self._mask_NA()
            for n, choice in enumerate(chosen_N):
                if 0 <= choice < mask_NA.shape[1] and not mask_NA[n, choice]:
                    taken_N[n] = HOLD
        self._episodes.step(taken_N)
        metered_usd_S = self._episodes.metered_usd_S()
        own = self._episodes.reward == "own"
        reward_N = self._episodes.engine.reward_BN[0] - (metered_usd_S if own else metered_usd_S.sum())
        agents = self.agents
        terminated, truncated = self._episodes.ended()
        out = (
            self._observations(),
            dict(zip(agents, reward_N.tolist(), strict=True)),
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            self._infos(taken_N, taken_N != chosen_N),
        )
        if terminated or truncated:
            self.agents = []
        return out

    def _mask_NA(self) -> NDArray[np.int8]:
        """Returns the masks of all agents; hold alone where nothing is asked."""
        engine = self._episodes.engine
        mask_NA = engine.mask_BNA[0].astype(np.int8)
        mask_NA[~engine.asked_BN[0], 0] = 1
        return mask_NA

    def _observations(self) -> dict[str, Any]:
        engine, mask_NA = self._episodes.engine, self._mask_NA()
        seen = [np.concatenate([engine.global_BG[0], own_O]) for own_O in engine.own_BNO[0]]
        if self.flat:
            return {
                agent: np.concatenate([seen[n], mask_NA[n].astype(np.float32)])
                for n, agent in enumerate(self.possible_agents)
            }
        return {
            agent: {"observation": seen[n], "action_mask": mask_NA[n]} for n, agent in enumerate(self.possible_agents)
        }

    def _infos(self, taken_N: NDArray[np.int64], infeasible_N: NDArray[np.bool_]) -> dict[str, Any]:
        asked_N, mask_NA = self._episodes.engine.asked_BN[0], self._mask_NA()
        infos = {}
        for n, agent in enumerate(self.possible_agents):
            said = {"asked": bool(asked_N[n]), "action": int(taken_N[n]), "infeasible": bool(infeasible_N[n])}
            infos[agent] = self._episodes.info() | said | ({"action_mask": mask_NA[n]} if self.flat else {})
        return infos

    def render(self) -> None:
        """Renders nothing."""

    def close(self) -> None:
        """Closes nothing."""

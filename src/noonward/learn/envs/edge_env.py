"""Image generation on edge servers as a Gymnasium environment: what to launch now, with how many steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import MONTHS, SEEDS, Split, split_seed
from noonward.engine.edge.batch import EdgeBatch
from noonward.errors import MissingExtraError, ScenarioError, nearest
from noonward.learn.envs.common import (
    LARGEST,
    FeasibleChoice,
    Infeasible,
    feasible_instead,
    require_infeasible,
    shown_mask,
)
from noonward.model.edge.scenario import EdgeScenario

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "gymnasium", "train") from error


class EdgeEnv(gymnasium.Env[NDArray[np.float32], np.int64]):
    """One scheduler of edge servers, asked whenever a waiting task's gang is idle (EAT, Sec. V.A, event by event).

    Observation: Box, float32, (tokens x 18,): table of ``noonward.decision.edge.observation.EdgeObservation``, flat.

    Action: Discrete((1 + visible) x L), L = ``most - least + 1`` inference steps.

    | action | what |
    |---|---|
    | 0 | wait for the next arrival or completion |
    | (1 + q) L + l | launch the task in place q of the visible queue with ``least + l`` steps, at most its own |

    ``info["action_mask"]`` (int8) and ``action_masks()`` (bool) mark what is feasible: tasks whose gang is idle, and a
    wait where something is to come. ``action_space.sample()`` draws a feasible action. In place of an infeasible one,
    the feasible action of next lower number is taken (an earlier task, or a wait), or else the lowest.
    ``info["infeasible"]`` says whether that happened, ``info["action"]`` what was taken. Under ``infeasible="raise"``
    it raises InfeasibleActionError and changes nothing, as a number outside the space always does.

    Reward: ``[price (quality - target) - growth of the responses] / 100 s`` since the last question. What passed before
    the first question is in ``info["before"]`` of ``reset``; with it the rewards of an episode sum to
    ``sum [price (quality - target) - response] / 100 s`` over its images.

    End: ``terminated`` when every task is launched, ``truncated`` where the scenario's limit cut the run off. The last
    observation is zero. ``info["elapsed_s"]`` is the time since the last question, for a discount by seconds.

    Seeding: ``reset(seed=k)`` begins the first environment of draw k modulo 10,000 of the part of the data; ``reset()``
    the next one of the same draw. Same seed, same episode.

    Version 0. Nothing is rendered.

    Args:
        scenario: Edge scenario, or the name of one.
        settings: Changes ``KEY=VALUE`` of a scenario given by name.
        part: Part of the data that episodes are drawn from.
        steps: Least and most inference steps of a launch.
        price_s: Price of quality, s per unit, which the observation shows.
        target: Quality above which it is paid.
        infeasible: What becomes of an infeasible action, ``replace`` or ``raise``; see above.

    Raises:
        ScenarioError: The scenario is of another kind, or the part is unknown.
        ValueError: ``infeasible`` is neither.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        scenario: EdgeScenario | str = "edge-inference",
        *,
        settings: tuple[str, ...] = (),
        part: Split = "train",
        steps: tuple[int, int] = (5, 30),
        price_s: float = 100.0,
        target: float = 0.26,
        infeasible: Infeasible = "replace",
    ) -> None:
        require_infeasible(infeasible)
        if isinstance(settings, str):
            raise ScenarioError(f"settings is {settings!r}; give a tuple of KEY=VALUE, as ({settings!r},)")
        if part not in MONTHS:
            raise ScenarioError(f"part is {part!r}; {nearest(str(part), MONTHS)}")
        if not 1 <= steps[0] <= steps[1]:
            raise ScenarioError(f"steps is {steps}; give least and most, at least 1, as (5, 30)")
        drawn = load_scenario(scenario, list(settings)) if isinstance(scenario, str) else scenario
        if not isinstance(drawn, EdgeScenario):
            raise ScenarioError(f"scenario {drawn.name!r} is of kind {drawn.kind}; EdgeEnv is for kind edge")
        self.scenario, self.part, self.price_s, self.target = drawn, part, price_s, target
        self.steps = tuple(float(each) for each in range(steps[0], steps[1] + 1))
        self.infeasible = infeasible
        self._seed, self._index = 0, -1
        self._batch = self._begun()
        self.observation_space = spaces.Box(-LARGEST, LARGEST, self._batch.global_BG.shape[1:], np.float32)
        self._choice = FeasibleChoice(self._batch.choices)
        self.action_space = self._choice
        self._running = False

    def _begun(self) -> EdgeBatch:
        """Returns an engine of the environment that is due."""
        environment = build_edge_environment(self.scenario, max(self._index, 0), split_seed(self.part, self._seed))
        return EdgeBatch(
            [environment],
            seeds=[self._seed],
            steps=self.steps,
            price_of=lambda _: self.price_s,
            target=self.target,
            servers=self.scenario.servers.count,
        )

    @property
    def batch(self) -> EdgeBatch:
        """The engine, of one row."""
        return self._batch

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns which actions are feasible now."""
        return np.asarray(self._mask_A(), np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode; options are not read."""
        super().reset(seed=seed)
        self._seed, self._index = (self._seed, self._index + 1) if seed is None else (seed % SEEDS, 0)
        self._batch = self._begun()
        self._running = True
        observation, info = self._shown()
        return observation, info | {"before": float(self._batch.reward_B[0])}

    def step(self, action: int | np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Executes an action.

        Raises:
            InfeasibleActionError: The action is outside the space, or infeasible under ``infeasible="raise"``.
            RuntimeError: No episode runs.
        """
        if not self._running or self._batch.done_B[0]:
            raise RuntimeError("the episode has ended or not begun; call reset first")
        taken = feasible_instead(self._mask_A(), int(action)) if self.infeasible == "replace" else int(action)
        self._batch.step(np.array([[taken]], np.int64))
        done = bool(self._batch.done_B[0])
        complete = int(self._batch.total("launched")[0]) == len(self._batch.environments[0].tasks)
        observation, info = self._shown()
        info |= {"action": taken, "infeasible": taken != int(action)}
        return observation, float(self._batch.reward_B[0]), done and complete, done and not complete, info

    def _mask_A(self) -> NDArray[np.int8]:
        """Returns the mask of the question, or that of the end."""
        return shown_mask(self._batch.mask_BNA[0, 0], bool(self._batch.done_B[0]))

    def _shown(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        batch = self._batch
        self._choice.feasible_A = self._mask_A()
        info = {"now_s": float(batch.now_s_B[0]), "elapsed_s": float(batch.elapsed_s_B[0])}
        return batch.global_BG[0].copy(), info | {"action_mask": self._choice.feasible_A.copy()}

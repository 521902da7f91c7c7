"""Carbon-aware launching: tasks with a deadline wait for a cleaner hour, as long as their deadline allows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from noonward.arrays import F8
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.edge.view import NOBODY, EdgeAnswers, EdgeView
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast, ForecastKind
from noonward.model.edge.tasks import NO_DEADLINE_S
from noonward.schedule.edge.rules import patient_choice
from noonward.units import HOUR_S

SAVING = 0.05
"""A cleaner hour is waited for if it is cleaner by this share at least."""


class CarbonAware(EdgeScheduler):
    """Patient reuse over the tasks that no cleaner hour within their deadline is forecast for; the others wait.

    A task may wait until its deadline, less its own load and run, less what all visible tasks need of the servers. A
    task without a deadline never waits for an hour.

    Args:
        forecast: Forecast of the carbon intensity.
        steps: Inference steps of every task; a task that may have fewer gets its most. None: the scenario's.
    """

    def __init__(self, forecast: ForecastKind = "regression", steps: float | None = None) -> None:
        self.forecast, self.steps = Forecast(forecast), steps

    def reset(self, brief: EdgeBrief, rng: np.random.Generator) -> None:
        """Prepares for a run.

        Raises:
            ScenarioError: The scenario has no signals.
        """
        if brief.issue is None:
            raise ScenarioError(
                f"'carbon-aware' needs carbon intensities, but scenario {brief.scenario!r} has no signals; give it "
                "signals, or choose another policy"
            )
        self._issue = brief.issue
        self._steps = brief.setting.steps if self.steps is None else self.steps
        self._hour, self._carbon_L = -1, np.empty(0)

    def decide(self, view: EdgeView, answers: EdgeAnswers) -> None:
        """Launches what patient reuse chooses among the tasks that need not wait, or waits for the hour of the next."""
        now_s, run = view.now_s, view.run_1[0]
        carbon_L = self._forecast(now_s)
        begin_s_Q = self._begins(view, carbon_L)
        free_Q = np.flatnonzero(begin_s_Q <= now_s)
        task_Q = view.task_Q.copy()
        task_Q["task"] = NOBODY
        task_Q[: len(free_Q)] = view.task_Q[free_Q]
        choice = patient_choice(
            view.server_N, task_Q, view.load_s_G, view.step_s_G, int(run["now_t"]), float(run["tick_s"]), self._steps
        )
        if choice != NOBODY:
            place = int(free_Q[choice])
            answers.launch(place, min(self._steps, float(view.task_Q["steps_max"][place])))
            return
        held_s = begin_s_Q[(begin_s_Q > now_s) & (begin_s_Q < np.inf)]
        if len(held_s):
            hour_s = (np.floor(now_s / HOUR_S) + 1) * HOUR_S  # when the next forecast is issued
            latest_s = float(run["latest_t"] * run["tick_s"])
            answers.wait(min(float(held_s.min()), hour_s, latest_s))

    def _forecast(self, now_s: float) -> F8:
        """Returns the carbon intensities that this hour forecasts, this hour's first."""
        hour = int(now_s // HOUR_S)
        if hour != self._hour:
            self._hour, self._carbon_L = hour, self._issue(hour)[1]
        return self._carbon_L

    def _begins(self, view: EdgeView, carbon_L: F8) -> F8:
        """Returns when the task of each place should begin, s: now, or in the cleanest hour within its deadline."""
        now_s, some = view.now_s, view.task_Q["task"] != NOBODY
        gang_Q = np.where(some, view.task_Q["gang"], 0)
        steps_Q = np.minimum(self._steps, view.task_Q["steps_max"])
        need_s_Q = np.where(some, view.load_s_G[gang_Q] + steps_Q * view.step_s_G[gang_Q], 0.0)
        ahead_s = float((need_s_Q * gang_Q).sum()) / len(view.server_N)
        begin_s_Q = np.where(some, now_s, np.inf)
        for q in np.flatnonzero(some).tolist():
            deadline_s = float(view.task_Q["deadline_s"][q])
            latest_s = deadline_s - need_s_Q[q] - ahead_s
            if deadline_s >= NO_DEADLINE_S or latest_s <= now_s:
                continue
            leads = min(int(latest_s // HOUR_S) - self._hour + 1, len(carbon_L))
            within_L = np.where(np.isnan(carbon_L[:leads]), np.inf, carbon_L[:leads])
            cleanest = int(within_L.argmin())
            if cleanest > 0 and within_L[cleanest] < (1 - SAVING) * within_L[0]:
                begin_s_Q[q] = (self._hour + cleanest) * HOUR_S
        return begin_s_Q

    def state(self) -> dict[str, Any]:
        """Returns the forecast in use."""
        return {"hour": self._hour, "carbon": self._carbon_L.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores the forecast in use."""
        self._hour, self._carbon_L = int(state["hour"]), np.array(state["carbon"])

"""Plans day after day from one predicted day, times a margin: the quantile of what the last days needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan.predict import day_ahead_forecasts, usable_days
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.promise import (
    FIRST_MARGIN,
    PROMISE,
    need_of,
    plan_with_margin,
    promised_need,
    require_promise,
)
from noonward.schedule.plan.result import Plan
from noonward.schedule.plan.solve import Planner

WINDOW: Final = 28
"""Finished days whose needs the margin is a quantile of."""


class OneDayPlanner:
    """Control of ``PromisePlanner``: one predicted day in place of many samples.

    The plan of a day is that of its forecast (``day_ahead_forecasts``) times ``1 + margin``, as the only sample. The
    margin is the ``promised_need`` of the last ``window`` finished days' needs (``need_of``). Nothing promises that the
    share of days holds: needs follow each other, and the plan of a day decides what it needs.

    Args:
        promise: Share of days, above 0 and below 1.
        window: Finished days, at least 2.

    Raises:
        ScenarioError: A value is out of range.
    """

    def __init__(self, promise: float = PROMISE, *, window: int = WINDOW) -> None:
        require_promise(promise)
        if window < 2:
            raise ScenarioError(f"a margin from {window} days was asked for; give at least 2")
        self.promise, self.window = promise, window
        self.needs: list[float] = []
        self.limited = False
        """Whether the machines held less than the margin of the last plan."""
        self._last: tuple[Plan, float] | None = None
        self._planner = Planner()

    @property
    def margin(self) -> float:
        """The margin of the next plan."""
        return promised_need(self.needs[-self.window :], self.promise)

    def plan(self, problem: PlanProblem, past_NKC: F8) -> Plan:
        """Returns the plan of the day that follows the past days.

        Args:
            problem: Classes, capacity, costs and tail of the day; its own samples are not read.
            past_NKC: Loads of all past days in order, the last one yesterday; NaN where unknown. The first call plans
                the last of them, each from its forecast, for the first margin.

        Raises:
            ScenarioError: Fewer than two past days have a forecast.
            InfeasiblePlanError: The forecast does not fit the machines even without a margin.
        """
        past_NKC = np.asarray(past_NKC, dtype=np.float64)
        usable_N = usable_days(past_NKC)
        forecast_NKC = day_ahead_forecasts(past_NKC, usable_N)
        if not self.needs:
            known_N = usable_N & np.isfinite(forecast_NKC[:-1]).all(axis=(1, 2))
            self.needs = self._first_needs(problem, past_NKC, forecast_NKC, np.flatnonzero(known_N)[-self.window :])
        plan, used = plan_with_margin(_of_day(problem, forecast_NKC[-1]), self.margin, self._planner)
        self.limited = used < self.margin
        self._last = plan, used
        return plan

    def finish(self, load_KC: F8) -> None:
        """Records what the day that was planned last needed.

        Raises:
            ScenarioError: No day has been planned.
        """
        if self._last is None:
            raise ScenarioError("no day has been planned; call plan before finish")
        plan, used = self._last
        self.needs = [*self.needs, need_of(plan, load_KC, used)][-self.window :]

    def state(self) -> dict[str, Any]:
        """Returns the needs as plain data, for ``load_state``; the plan of an unfinished day is not in it."""
        return {"needs": list(self.needs), "planner": self._planner.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores the needs and what the next plan starts from."""
        self.needs, self._planner = list(state["needs"]), Planner.of_state(state["planner"])

    def _first_needs(
        self, problem: PlanProblem, past_NKC: F8, forecast_NKC: F8, days: Sequence[int] | np.ndarray
    ) -> list[float]:
        """Returns the needs of past days, each planned from its forecast with a first margin.

        Raises:
            ScenarioError: There are fewer than two days.
        """
        if len(days) < 2:
            raise ScenarioError(
                f"a first margin needs at least 2 past days with a forecast, but {len(past_NKC)} days give "
                f"{len(days)}; give more days"
            )
        needs = []
        for day in days:
            try:
                plan, used = plan_with_margin(_of_day(problem, forecast_NKC[day]), FIRST_MARGIN, self._planner)
            except InfeasiblePlanError:  # a forecast beyond the machines says nothing about margins
                continue
            needs.append(need_of(plan, past_NKC[day], used))
        if len(needs) < 2:
            raise ScenarioError("the forecasts of past days do not fit the machines; give larger machines")
        return needs


def _of_day(problem: PlanProblem, load_KC: F8) -> PlanProblem:
    """Returns a problem with one day as its only sample, without a radius."""
    return replace(problem, load_NKC=load_KC[None], load_max_KC=None, eps=0.0)

"""Plans day after day that keep their promise: a share of days within the curve, by a margin learned from past days."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan.infeasible import shortage, why_infeasible
from noonward.schedule.plan.predict import PREDICTORS, Predictor, samples_of, usable_days
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.result import Plan
from noonward.schedule.plan.solve import Planner, sample_key

PROMISE: Final = 0.8
"""Share of days that stay within the curve everywhere."""
SAMPLES: Final = 60
"""Past days that a plan is made from."""
FIRST_MARGIN: Final = 0.15
"""Margin of the plans that the first margin is found with."""
STEP: Final = 0.05
"""Size of a day's correction of the margin, in the long run."""
FIRST_STEP: Final = 0.2
"""Size of the first day's correction; that of day n is ``FIRST_STEP`` / sqrt(n) as long as this is above ``STEP``."""
BLOCKS: Final = 5
"""Blocks of days that are held out in turn to find the first margin."""
COMPARED_DAYS: Final = 30
"""Finished days over which predictors are compared."""
ROUNDING: Final = 1e-5
"""Margin within which the samples' own size still counts as fitting."""
CURVE_FLOOR: Final = 1e-3
"""Least curve that a load is divided by, over the largest capacity."""


def need_of(plan: Plan, load_KC: F8, margin: float) -> float:
    """Returns the margin that a finished day would have needed: ``(1 + margin) max load / curve - 1`` over places.

    At most ``margin`` where the day fits. Load that was known beforehand (placed, queued) is taken off both.

    Args:
        plan: Plan of the day, made with ``margin``.
        load_KC: Load that came, by submission hour and class.
        margin: Margin of the plan's samples.
    """
    known_TD = plan.known_load()
    floor = CURVE_FLOOR * float(plan.problem.capacity_TD.max())
    room_TD = np.maximum(plan.curve_TD - known_TD, floor)
    return (1.0 + margin) * float((plan.fractions.load(load_KC) / room_TD).max()) - 1.0


def plan_with_margin(
    problem: PlanProblem, margin: float, planner: Planner | None = None, names: Sequence[str] | None = None
) -> tuple[Plan, float]:
    """Returns the plan of samples times ``1 + margin``, and the margin used: the largest that fits, if this does not.

    Args:
        problem: What to plan. A radius grows with its samples; with a margin it is best 0 (docs/load-shaping.md).
        margin: Share by which every sample is inflated, above -1.
        planner: Planner to start from; a new one if left out.
        names: What its samples are known again by (``Planner.plan``).

    Raises:
        ScenarioError: The margin is -1 or less.
        InfeasiblePlanError: Not even the samples' own size fits.
    """
    if not margin > -1.0:
        raise ScenarioError(f"the margin is {margin}; it must be above -1 (0 leaves the samples as they are)")
    planner = planner or Planner()
    try:
        return planner.plan(inflated(problem, margin), names), margin
    except InfeasiblePlanError:
        if problem.placed_TD is not None or problem.queued:
            raise
    # Without known load, loads and capacities scale alike: what is short says exactly how much fits.
    short = shortage(inflated(problem, margin))
    used = -1.0 if short is None else (1.0 + margin) / short.scale * (1.0 - 1e-6) - 1.0
    if used < min(margin, 0.0) - ROUNDING:
        raise why_infeasible(inflated(problem, min(margin, 0.0)))
    return planner.plan(inflated(problem, used), names), used


def inflated(problem: PlanProblem, margin: float) -> PlanProblem:
    """Returns a problem whose samples and radius are ``1 + margin`` times as large."""
    return replace(
        problem, load_NKC=problem.load_NKC * (1.0 + margin), load_max_KC=None, eps=problem.eps * (1.0 + margin)
    )


def first_margin(problem: PlanProblem, promise: float, *, start: float = FIRST_MARGIN, blocks: int = BLOCKS) -> float:
    """Returns the margin that the promised share of held-out days would have needed.

    The samples are split into contiguous blocks. Each is held out once from a plan with the margin ``start``. The
    result is the ``promised_need`` of the held-out days, as in split conformal prediction.

    Args:
        problem: What to plan; its samples are in the order of days.
        promise: Share of days, above 0 and below 1.
        start: Margin of these plans.
        blocks: Blocks, at most as many as samples.

    Raises:
        ScenarioError: There are fewer than two samples.
        InfeasiblePlanError: As in ``plan_with_margin``.
    """
    samples = problem.shape[0]
    if samples < 2:
        raise ScenarioError("a first margin needs at least 2 past days, of which some are held out; give more days")
    needs = []
    for block in np.array_split(np.arange(samples), min(blocks, samples)):
        plan, used = plan_with_margin(
            replace(problem, load_NKC=np.delete(problem.load_NKC, block, axis=0), load_max_KC=None), start
        )
        needs += [need_of(plan, problem.load_NKC[day], used) for day in block]
    return promised_need(needs, promise)


def promised_need(needs: Sequence[float], promise: float) -> float:
    """Returns the ``ceil(promise (n + 1))``-th smallest of n needs; the largest, where that exceeds n."""
    return sorted(needs)[min(math.ceil(promise * (len(needs) + 1)), len(needs)) - 1]


def require_promise(promise: float) -> None:
    """Raises ScenarioError unless a promise is a share of days above 0 and below 1."""
    if not 0 < promise < 1:
        raise ScenarioError(f"the promise is {promise}; give the share of days, above 0 and below 1")


@dataclass(kw_only=True)
class Track:
    """Plans by one predictor, and what its finished days needed.

    Attributes:
        predictor: Where its samples come from.
        margin: Margin of the next plan.
        used: Margin of the last plan; less than asked for where the machines hold no more.
        plan: The last plan.
        curve_cost: For each finished day the cost f of its plan's curve.
        stretch: For each finished day the factor on its plan's curve with which the day would just have fitted.
        misses: Finished days that were not within the curve everywhere.
    """

    predictor: Predictor
    margin: float
    used: float = 0.0
    plan: Plan | None = None
    curve_cost: list[float] = field(default_factory=list)
    stretch: list[float] = field(default_factory=list)
    misses: int = 0
    _planner: Planner = field(default_factory=Planner, repr=False)

    def plan_day(self, problem: PlanProblem, names: Sequence[str]) -> Plan:
        """Plans a day from samples of it.

        Args:
            problem: What to plan.
            names: What the days behind the samples are known again by. A new forecast changes every sample, but the
                days whose samples bound the last plan are likely to bind again.
        """
        self.plan, self.used = plan_with_margin(problem, self.margin, self._planner, names)
        return self.plan

    @property
    def limited(self) -> bool:
        """Whether the machines held less than the margin of the last plan."""
        return self.used < self.margin

    def finish_day(self, load_KC: F8) -> bool:
        """Records what a day needed of the last plan; returns whether it was not within the curve everywhere."""
        assert self.plan is not None
        need = need_of(self.plan, load_KC, self.used)
        missed = need > self.used + 1e-9
        self.misses += missed
        self.curve_cost.append(self.plan.problem.cost_of(self.plan.curve_TD))
        self.stretch.append((1.0 + need) / (1.0 + self.used))
        return missed

    def state(self) -> dict[str, Any]:
        """Returns margin, records and what the next plan starts from as plain data, for ``of_state``."""
        return {
            "predictor": self.predictor,
            "margin": self.margin,
            "curve_cost": list(self.curve_cost),
            "stretch": list(self.stretch),
            "misses": self.misses,
            "planner": self._planner.state(),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Track:
        """Returns the track of a ``state``."""
        return cls(
            predictor=state["predictor"],
            margin=state["margin"],
            curve_cost=list(state["curve_cost"]),
            stretch=list(state["stretch"]),
            misses=state["misses"],
            _planner=Planner.of_state(state["planner"]),
        )

    def reserve(self, days: int, promise: float) -> float:
        """Returns the mean cost of the last days' curves, scaled so that the promised share of them had fitted."""
        factor = float(np.quantile(self.stretch[-days:], promise, method="higher"))
        return factor * float(np.mean(self.curve_cost[-days:]))


class PromisePlanner:
    """Plans day after day so that the promised share of days stays within the curve at every hour and cluster.

    A plan that is the optimum for its samples is optimistic on the next day. So the samples are inflated by a margin,
    which is corrected after every finished day (adaptive conformal inference, Gibbs and Candes 2021):
    ``margin += step (miss - (1 - promise))``. With a constant step the share of T days that held differs from the
    promise by at most ``|margin_T - margin_1| / (step T)``, whatever the days are, as long as the machines do not limit
    the margin. Steps of the first days are larger (``FIRST_STEP``): few past days leave the first margin uncertain.

    Each predictor makes samples of the next day (Hall et al., Sec. V-A 4: past days, or a calibrated predictor) and has
    a first margin of its own. The plan followed is that of the predictor whose curves, scaled by the one factor with
    which they had kept the promise, would have cost least over the last ``COMPARED_DAYS`` finished days; the first at
    first. The plan followed alone decides on the correction, and all margins take it. Were each margin corrected by
    its own misses, each predictor would keep the promise, and the plans followed would not: a predictor is chosen
    after days on which it needed little. Missing and absurd days are no samples (``usable_days``, Sec. V-A 5).

    Args:
        promise: Share of days, above 0 and below 1.
        samples: Days that a plan is made from, the last usable ones.
        step: Size of a day's correction in the long run, at least 0; 0 keeps the first margin.
        predictors: Predictors to compare.

    Raises:
        ScenarioError: A value is out of range.

    Example:
        >>> from noonward.schedule.plan.classes import LoadClass
        >>> rng = np.random.default_rng(0)
        >>> past_NKC = rng.uniform(0.5, 1.0, (20, 2, 1))
        >>> day = PlanProblem(
        ...     classes=(LoadClass(name="batch", clusters=(0,), flexibility_h=1),), load_NKC=past_NKC,
        ...     capacity_TD=np.full((3, 1), 9.0), cost_TD=np.ones((3, 1)), peak_cost_D=np.zeros(1),
        ... )
        >>> planner = PromisePlanner(promise=0.8, predictors=("days",))
        >>> plan = planner.plan(day, past_NKC)
        >>> planner.finish(rng.uniform(0.5, 1.0, (2, 1)))
    """

    def __init__(
        self,
        promise: float = PROMISE,
        *,
        samples: int = SAMPLES,
        step: float = STEP,
        predictors: Sequence[Predictor] = PREDICTORS,
    ) -> None:
        require_promise(promise)
        if samples < 2:
            raise ScenarioError(f"a plan from {samples} days was asked for; give at least 2")
        if not 0 <= step < math.inf:
            raise ScenarioError(f"the step is {step}; it must be finite and at least 0 (0: the first margin stays)")
        unknown = [one for one in predictors if one not in PREDICTORS]
        if unknown or not predictors:
            raise ScenarioError(f"predictors are {list(predictors)}; give some of {list(PREDICTORS)}")
        self.promise, self.samples, self.step = promise, samples, step
        self.predictors = tuple(dict.fromkeys(predictors))
        self.tracks: list[Track] = []
        self.left_out = 0
        """Past days that the last plan left out as missing or absurd."""

    @property
    def chosen(self) -> Track:
        """The track whose plan is followed."""
        days = min(len(self.tracks[0].stretch), COMPARED_DAYS)
        return min(self.tracks, key=lambda track: track.reserve(days, self.promise)) if days else self.tracks[0]

    def plan(self, problem: PlanProblem, past_NKC: F8) -> Plan:
        """Returns the plan of the day that follows the past days.

        Args:
            problem: Classes, capacity, costs, tail and radius of the day; its own samples are not read.
            past_NKC: Loads of all past days in order, the last one yesterday; NaN where unknown. The first call finds
                the first margins from them.

        Raises:
            ScenarioError: Too few days can be used.
            InfeasiblePlanError: The samples do not fit the machines even without a margin.
        """
        past_NKC = np.asarray(past_NKC, dtype=np.float64)
        usable_N = usable_days(past_NKC)
        self.left_out = int((~usable_N).sum())
        made = [samples_of(one, past_NKC, usable_N, self.samples) for one in self.predictors]
        problems = [replace(problem, load_NKC=load_NKC, load_max_KC=None) for load_NKC, _ in made]
        names = [[sample_key(past_NKC[day]) for day in day_N] for _, day_N in made]
        if not self.tracks:
            self.tracks = [
                Track(predictor=one, margin=first_margin(day, self.promise))
                for one, day in zip(self.predictors, problems, strict=True)
            ]
        plans = [track.plan_day(day, known) for track, day, known in zip(self.tracks, problems, names, strict=True)]
        return plans[self.tracks.index(self.chosen)]

    def finish(self, load_KC: F8) -> None:
        """Corrects the margins by the load of the day that was planned last.

        Raises:
            ScenarioError: No day has been planned, or the load has another shape.
        """
        if not self.tracks:
            raise ScenarioError("no day has been planned; call plan before finish")
        followed, days = self.chosen, len(self.tracks[0].stretch)
        missed = [track.finish_day(load_KC) for track in self.tracks][self.tracks.index(followed)]
        if missed and followed.limited:  # a larger margin would not have been planned with
            return
        step = max(self.step, FIRST_STEP / math.sqrt(days + 1)) if self.step else 0.0
        for track in self.tracks:
            track.margin += step * (missed - (1.0 - self.promise))

    def state(self) -> dict[str, Any]:
        """Returns margins and records as plain data, for ``load_state``; the plan of an unfinished day is not in it."""
        return {"tracks": [one.state() for one in self.tracks]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores margins and records."""
        self.tracks = [Track.of_state(one) for one in state["tracks"]]

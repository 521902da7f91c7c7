"""Day-ahead plans followed by discrete jobs: every arriving job goes where its class lags furthest behind the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from noonward.arguments import checked
from noonward.arrays import F8
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.view import CARBON, PRICE, SECONDS, Answers, ClusterView, latest_start_s
from noonward.decision.scheduler import Scheduler, State, checked_state
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.jobs import Jobs
from noonward.schedule.plan.baselines import run_at_once, spread_evenly
from noonward.schedule.plan.placement import Tracker
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.promise import PROMISE, first_margin, inflated
from noonward.schedule.plan.result import Fractions, Plan
from noonward.schedule.plan.solve import Planner
from noonward.schedule.plan.workload import DAY_H, Workload
from noonward.units import HOUR_S, KG_PER_TONNE, WATT_SECONDS_PER_MWH

Promise = Annotated[float, Field(ge=0, lt=1, description="share of days within the curve")]
Tail = Annotated[float, Field(gt=0, le=1, description="tail of the guarantee")]
Radius = Annotated[float, Field(ge=0, allow_inf_nan=False, description="radius, share of the mean site's GPUs")]
Days = Annotated[int, Field(ge=1, description="sampled days")]
SMALLER: Final = 0.8
"""Factor by which expected load shrinks while no plan fits the machines."""
LEAST_SHARE: Final = 0.1
"""Share of the expected load below which load placed already is left out of account, and at last no plan is made."""
ROUNDING_GPUS: Final = 1e-6
"""Added to curves, so that the LP's rounding keeps no whole GPU back."""


class Fractional(Scheduler):
    """Places each job, at its arrival, so that the shares placed of its class and hour follow given fractions (Eq. 15).

    Classes are the fleet's job classes with their ranges; their flexibility is the whole hours that every sampled job
    may be delayed. One whose jobs run for different numbers of hours is planned in parts (``Workload``). A job that
    cannot be in time where it belongs goes to the feasible site of the largest share.

    Args:
        spread: Evenly over range and flexibility; else evenly over the range, in the hour of arrival.
        samples: Sampled days.

    Raises:
        ScenarioError: There is no sample.
    """

    needs = Needs(protocols=("on-arrival",), samples=True)
    hourly = False

    @checked
    def __init__(self, *, spread: bool = False, samples: Days = 10) -> None:
        self.spread = spread
        self.samples = samples

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Samples the workload; fractions are made at the first question of a day."""
        self.workload = Workload.of(brief, self.draw(brief, rng))
        self.hours = int(min(DAY_H, brief.window_s / HOUR_S))
        self.gpus_S = np.array([site.gpus for site in brief.fleet.sites], dtype=np.float64)
        self._withheld = brief.withheld
        self.hour = self.first = self.end = -1
        self.booked_HS = np.zeros((0, len(self.gpus_S)))
        self.tracker: Tracker | None = None

    def draw(self, brief: Brief, rng: np.random.Generator) -> list[Jobs]:
        """Returns the tables of jobs that the workload is taken from."""
        if brief.sample_jobs is None:
            raise ScenarioError(f"the jobs of scenario {brief.scenario!r} cannot be sampled")
        return [brief.sample_jobs(each) for each in rng.spawn(self.samples)]

    def state(self) -> State:
        """Returns a copy of the sampled workload, the fractions followed, and what has been placed."""
        return {
            "workload": self.workload.state(),
            "hours": [self.hour, self.first, self.end],
            "booked_HS": self.booked_HS.copy(),
            "tracker": None if self.tracker is None else self.tracker.state(),
        }

    def load_state(self, state: State) -> None:
        """Restores workload, fractions and what has been placed.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        checked_state(self, state, self.state(), grows=("booked_HS",))
        self.workload = Workload.of_state(state["workload"])
        self.hour, self.first, self.end = (int(hour) for hour in state["hours"])
        self.booked_HS = np.array(state["booked_HS"])
        self.tracker = None if state["tracker"] is None else Tracker.of_state(state["tracker"])
        if self.tracker is not None:
            self.share_KCD = self.tracker.fractions.dense().sum(axis=2)

    def problem(self) -> PlanProblem:
        """Returns the planning problem of the hours ``first`` to ``end``, without costs and what is placed."""
        span = self.end - self.first + self.workload.reach_h
        sites = len(self.gpus_S)
        return PlanProblem(
            classes=self.workload.classes,
            load_NKC=self.workload.days(self.first, self.end - self.first),
            capacity_TD=self._capacity(span),
            cost_TD=np.zeros((span, sites)),
            peak_cost_D=np.zeros(sites),
        )

    def _capacity(self, span: int) -> F8:
        """Returns the GPUs that jobs may take in the hours from ``first`` on, (hours, sites)."""
        if self._withheld is None:
            return np.tile(self.gpus_S, (span, 1))
        return np.ascontiguousarray((self.gpus_S[:, None] - self._withheld.mean_SH(self.first, span)).T)

    def fractions(self, view: ClusterView, answers: Answers) -> Fractions:
        """Returns the fractions to follow in the hours ``first`` to ``end``."""
        problem = self.problem()
        return spread_evenly(problem) if self.spread else run_at_once(problem)

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Places a job."""
        now_s = view.now_s
        hour = int(now_s / HOUR_S)
        if hour != self.hour:
            self.booked_HS = self.booked_HS[hour - self.hour :]
        if hour != self.hour and (hour >= self.end or self.hourly):
            self.first, self.end = hour, (hour // self.hours + 1) * self.hours
            fractions = self.fractions(view, answers)
            self.tracker = Tracker(fractions)
            self.share_KCD = fractions.dense().sum(axis=2)
        assert self.tracker is not None  # the first question has made one
        self.hour = hour
        job = view.job
        record = view.job_J[job]
        load_class, k = self._planned_as(view, job), hour - self.first
        t, site = self.tracker.place(k, load_class, float(record["gpus_max"] * record["work"]))
        earliest_s = 0.0 if t == k else (self.first + t) * HOUR_S
        if not view.allowed(0, site):
            site = int(np.argmax(np.where(view.mask_NA[0, 1:] == 1, self.share_KCD[k, load_class], -1.0)))
        earliest_s = min(earliest_s, float(latest_start_s(view, job, site)))
        self._book(view, job, site, max(hour, int(earliest_s / HOUR_S)))
        answers.send(0, site, earliest_s=earliest_s)

    def _planned_as(self, view: ClusterView, job: int) -> int:
        """Returns the planned class of a job, its run time taken as ``Workload.of`` takes it."""
        record = view.job_J[job]
        load_class = int(record["class_"])
        parts = np.flatnonzero(self.workload.fleet_class_C == load_class)
        if len(parts) == 1:
            return int(parts[0])
        sites = np.array(self.workload.classes[parts[0]].clusters)
        sites = sites[self.gpus_S[sites] >= record["gpus_min"]]
        gang_X = np.minimum(record["gpus_max"], self.gpus_S[sites]).astype(np.int64)
        level_X = view.oracle_SCG[sites, load_class, gang_X]
        run_h = float(record["work"] * view.speed_KSCGF[SECONDS, sites, load_class, gang_X, level_X].mean()) / HOUR_S
        slack_h = float(record["deadline_s"] - record["arrival_s"]) / HOUR_S
        return int(self.workload.planned_as(*(np.array([each]) for each in (load_class, run_h, slack_h)))[0])

    def _book(self, view: ClusterView, job: int, site: int, hour: int) -> None:
        """Notes the GPUs that a job will take, hour by hour; the first row of the books is the current hour."""
        record = view.job_J[job]
        gpus = min(int(record["gpus_max"]), int(self.gpus_S[site]))
        level = view.oracle_SCG[site, record["class_"], gpus]
        left_h = float(record["work"] * view.speed_KSCGF[SECONDS, site, record["class_"], gpus, level]) / HOUR_S
        first = hour - self.hour
        more = first + max(1, int(np.ceil(left_h))) - len(self.booked_HS)
        if more > 0:
            self.booked_HS = np.concatenate([self.booked_HS, np.zeros((more, len(self.gpus_S)))])
        for t in range(first, len(self.booked_HS)):
            self.booked_HS[t, site] += gpus * min(1.0, left_h)
            left_h -= 1.0
            if left_h <= 0:
                return


class FollowPlan(Fractional):
    """Plans each day at its first arrival from sampled days and the forecast in force, and follows the plan.

    The plan has the day's submission hours (24, or the window's), and as many execution hours more as the longest
    flexibility and run take. Its load is GPUs for the whole hours that a class runs, from the hour a job starts in:
    exact for jobs of so many hours that come at full hours. Its cost is that of the power a GPU at work adds, at
    forecast price and carbon (at the economics' carbon price); hours beyond the forecast take its last value. GPUs
    that run, wait or are promised to jobs of the day before take their part of the curves. Where no plan fits the
    machines, less load is expected, in steps of a fifth, until one does, and the curves are left at the machines'
    capacity.

    Args:
        curves: Whether the plan's curves are advisory or hard limits of the run.
        hourly: Plan again at every hour's first arrival, with what has been placed by then (receding horizon). Jobs
            stay where they were sent; what changes is where later ones go.
        promise: Share of days whose load stays within the curves: the sampled days are inflated by the margin that
            this share of them needed when they were held out in turn (``promise.first_margin``); 0 for no margin.
        beta: Tail of the guarantee.
        eps: Radius, as a share of the mean site's GPUs; the paper's plan has no margin and a radius of 0.008.
        peak_usd: Cost of a GPU of a site's highest hour, USD; a wish, which no ledger settles.
        samples: Sampled days.
        forecast: Forecast to plan by.

    Raises:
        ScenarioError: There is no sample, a single one to keep a promise by, or the promise is out of range.

    Attributes:
        plan: Plan in force.
        margin: Share by which the day's samples are inflated; 0 where the machines hold no margin.
        whole: Whether it is of all the load expected.
    """

    plan: Plan
    whole: bool
    margin: float

    @checked
    def __init__(
        self,
        curves: Literal["advisory", "hard"] = "advisory",
        *,
        hourly: bool = False,
        promise: Promise = PROMISE,
        beta: Tail = 0.2,
        eps: Radius = 0.0,
        peak_usd: float = 0.0,
        samples: Days = 60,
        forecast: Forecast | None = None,
    ) -> None:
        super().__init__(samples=samples)
        self.needs = Needs(
            protocols=("on-arrival",),
            signals=True,
            samples=True,
            forecast=Forecast("persistence") if forecast is None else forecast,
            lookahead_h=2 * DAY_H + 1,
            curves=curves,
        )
        if promise and samples < 2:
            raise ScenarioError(
                "a promise needs at least 2 sampled days, of which some are held out; give more samples"
            )
        self.hourly = hourly
        self.promise, self.beta, self.eps, self.peak_usd = promise, beta, eps, peak_usd

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Samples the workload; the plan is made at the first question of a day."""
        super().reset(brief, rng)
        self.planner = Planner()
        self.margin, self.margin_until = 0.0, -1

    def state(self) -> State:
        """Returns what ``Fractional.state`` does, the day's margin, and what the next plan starts from."""
        margin = [self.margin, float(self.margin_until)]
        return {**super().state(), "margin": margin, "planner": self.planner.state()}

    def load_state(self, state: State) -> None:
        """Restores what ``Fractional.load_state`` does, and what the next plan starts from; ``plan`` stays unset.

        Raises:
            ScenarioError: The state is of another scheduler.
        """
        super().load_state(state)
        self.planner = Planner.of_state(state["planner"])
        self.margin, self.margin_until = float(state["margin"][0]), int(state["margin"][1])

    def problem(self) -> PlanProblem:
        """Returns the planning problem of the hours ``first`` to ``end``, without costs and what is placed."""
        return replace(
            super().problem(),
            beta=self.beta,
            eps=self.eps * float(self.gpus_S.mean()),
            peak_cost_D=np.full(len(self.gpus_S), self.peak_usd),
        )

    def fractions(self, view: ClusterView, answers: Answers) -> Fractions:
        """Plans from now to the day's end; sets the curves and returns the plan's fractions."""
        base = self.problem()
        placed_TD = self._placed(view, base.capacity_TD)
        costly = replace(base, cost_TD=self._costs(view, base))
        if self.promise and self.end > self.margin_until:
            self.margin, self.margin_until = self._margin(costly), self.end
        self.plan, self.whole = self._fitting(replace(costly, placed_TD=placed_TD))
        curve_SH = self.plan.caps().gpus_SH if self.whole else np.ascontiguousarray(base.capacity_TD.T)
        answers.limit(self.first, curve_SH + ROUNDING_GPUS)
        return self.plan.fractions

    def _costs(self, view: ClusterView, problem: PlanProblem) -> F8:
        """Returns the expected cost of a GPU at work per hour and site, USD."""
        span = len(problem.capacity_TD)
        usd_per_kg = float(view.run_1["carbon_usd_per_t"][0]) / KG_PER_TONNE
        mean_KSL = np.diff(view.forecast_KSL, axis=2)[:, :, :span] / HOUR_S
        value_SL = mean_KSL[PRICE] + usd_per_kg * mean_KSL[CARBON]
        known = int(np.isfinite(value_SL).all(axis=0).sum())
        lead_T = np.minimum(np.arange(span), known - 1)
        usd_TS: F8 = (value_SL[:, lead_T].T * self.workload.watts_S) * HOUR_S / WATT_SECONDS_PER_MWH
        return usd_TS

    def _placed(self, view: ClusterView, capacity_TD: F8) -> F8:
        """Returns the GPUs taken already per hour of the plan; what finds no room in an hour waits for the next."""
        placed_TD = np.zeros_like(capacity_TD)
        known_HS = self.booked_HS[: len(placed_TD)]
        placed_TD[: len(known_HS)] = known_HS
        site = view.site_S
        placed_TD[0] = np.maximum(placed_TD[0], site["gpus"] - site["free"] + site["waiting_gpus"])
        for t in range(len(placed_TD)):
            over_D = np.maximum(placed_TD[t] - capacity_TD[t], 0.0)
            placed_TD[t] -= over_D
            if t + 1 < len(placed_TD):
                placed_TD[t + 1] += over_D
        return placed_TD

    def _margin(self, problem: PlanProblem) -> float:
        """Returns the margin of the day that begins; none where not even the sampled days fit the machines."""
        try:
            return first_margin(problem, self.promise)
        except InfeasiblePlanError:
            return 0.0

    def _fitting(self, problem: PlanProblem) -> tuple[Plan, bool]:
        """Returns the plan of a problem, of less load where none fits, and whether it is of the whole load."""
        if self.margin:
            try:
                found = self.planner.plan(inflated(problem, self.margin))
            except InfeasiblePlanError:
                self.margin = 0.0
            else:
                return replace(found, problem=problem), True
        for placed_TD in (problem.placed_TD, None):
            share = 1.0
            while share >= LEAST_SHARE:
                try:
                    less_NKC, most_KC = share * problem.load_NKC, share * problem.largest_KC
                    changed = replace(
                        problem, load_NKC=less_NKC, load_max_KC=most_KC, eps=share * problem.eps, placed_TD=placed_TD
                    )
                    found = self.planner.plan(changed)
                except InfeasiblePlanError:
                    share *= SMALLER
                else:
                    whole = share == 1.0 and placed_TD is not None
                    return (found if whole else replace(found, problem=problem)), whole
        raise InfeasiblePlanError(
            f"not even {LEAST_SHARE:.0%} of the expected load fits the machines; give more GPUs, wider ranges or slack"
        )


class PerfectPlan(FollowPlan):
    """Benchmark with foresight: plans each day from its own jobs and the true prices, without a margin."""

    def __init__(self) -> None:
        super().__init__(promise=0.0, beta=1.0, eps=0.0, samples=1, forecast=Forecast("perfect"))
        self.needs = replace(self.needs, foresight=True)

    def draw(self, brief: Brief, rng: np.random.Generator) -> list[Jobs]:
        """Returns the jobs that will come."""
        assert brief.future is not None  # needs.foresight
        return [brief.future]

"""Plays events on a fleet: the run that rides through, the same run with events, and the least loss at the same cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.events import INTERVAL_S, check_parts, in_parts
from noonward.engine.run import run
from noonward.errors import ScenarioError, nearest
from noonward.ledger.interruptions import late_s_of
from noonward.ledger.ledger import Ledger, settle
from noonward.ledger.meters import interval_kw
from noonward.ledger.segments import DONE, Outcome, PowerSegments
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.event import EventLines, GridEvent, SiteEvent
from noonward.model.cluster.scenario import Scenario
from noonward.runtime.by_kind import check_fit
from noonward.runtime.executor import PlainSpec
from noonward.runtime.runs import environment_of
from noonward.runtime.shared import shared
from noonward.schedule.cluster.event_orders import Order
from noonward.schedule.cluster.event_response import LEVERS, EventResponse, Lever
from noonward.schedule.event.cap_optimal import cap_optimal
from noonward.schedule.event.jobs import RunningJob
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from noonward.units import DAY_H, HOUR_S

RAMP_S: Final = 900.0
"""Time after an event's begin over which the limit falls, s."""


@dataclass(frozen=True)
class Case:
    """An event's depth, length and notice.

    Attributes:
        cut: Share of the power that the fleet would have drawn, 0 to 1.
        hours: Length, h.
        notice_min: Notice, min.
    """

    cut: float
    hours: float
    notice_min: float

    @property
    def label(self) -> str:
        """The case in names of metrics: cut in percent, hours, notice in minutes."""
        return f"{100 * self.cut:g}/{self.hours:g}/{self.notice_min:g}"


@dataclass(frozen=True, kw_only=True)
class Played:
    """A run with events beside the same run without.

    Attributes:
        case: The case.
        asked_mwh: Energy that was asked to be left out, over all sites and events, MWh.
        delivered_mwh: Energy left out, in each interval at most what was asked, MWh.
        least_compliance: Least compliance of all sites, events and intervals after the ramp.
        cut_mwh: Energy that the sites asked drew less than without events during them, MWh.
        lost_gpu_hours: GPU-hours of work that were done during the events without them, and not with them.
        least_gpu_hours: Least GPU-hours of work that the jobs which ran without events could lose at the cut asked.
        least_cut_mwh: Energy that they draw less at that.
        usd_per_gpu_hour: What a GPU-hour is worth, USD (``worth_of_gpu_hour``).
        utility_lost_usd: Utility without events minus utility with them, over the whole run, USD; with the goal of
            least cost the total with events minus the total without.
        late_jobs: Jobs that are late or not done, beyond those without events.
    """

    case: Case
    asked_mwh: float
    delivered_mwh: float
    least_compliance: float
    cut_mwh: float
    lost_gpu_hours: float
    least_gpu_hours: float
    least_cut_mwh: float
    usd_per_gpu_hour: float
    utility_lost_usd: float
    late_jobs: int


MOMENT_S: Final = 1e-3
"""Lateness below which a job counts as in time, s: rounding."""


@dataclass(frozen=True, kw_only=True)
class Ride:
    """A run without events.

    Attributes:
        environment: What was run, its signals in parts of hours.
        outcome: What happened.
        ledger: Its ledger.
        kw_SN: Power of each site by interval, kW.
    """

    environment: Environment
    outcome: Outcome
    ledger: Ledger
    kw_SN: F8


def policy_of(scenario: Scenario, policy: str | None) -> str:
    """Returns the policy that runs a fleet: the one that is named, else the scenario's baseline.

    Raises:
        ScenarioError: There is neither.
    """
    chosen = scenario.baseline if policy is None else policy
    if chosen is None:
        raise ScenarioError(
            f"scenario {scenario.name!r} states no baseline; name the policy that runs the fleet, e.g. "
            "--policy cheapest-feasible"
        )
    return chosen


def playable(environment: Environment) -> Environment:
    """Returns an environment in which running jobs are asked about every five minutes, without its own events.

    Raises:
        ScenarioError: It has no signals, or not the protocol each-slot.
    """
    signals = environment.signals
    if environment.protocol != "each-slot" or signals is None or environment.economics is None:
        raise ScenarioError(
            f"scenario {environment.scenario!r} has protocol {environment.protocol}, "
            f"{'no' if signals is None else 'its'} signals and {'no' if environment.economics is None else 'its'} "
            "economics; events are played with protocol each-slot, signals and economics"
        )
    check_parts(environment.slot_s)
    return replace(environment, signals=in_parts(signals), events=())


def ride_through(scenario: Scenario, index: int, seed: int, policy: str) -> Ride:
    """Returns the run of a policy without events; the last ones are kept."""

    def make() -> Ride:
        environment = playable(environment_of(scenario, index, seed))
        scheduler = make_scheduler(policy, "cluster")
        check_fit(environment, scheduler, policy)
        outcome = run(environment, EventResponse(scheduler), seed=seed)
        return Ride(
            environment=environment,
            outcome=outcome,
            ledger=settle(outcome),
            kw_SN=interval_kw(outcome, INTERVAL_S),
        )

    ride: Ride = shared(("ride-through", scenario.model_dump_json(), index, seed, policy), make)
    return ride


def starts_of(environment: Environment, longest_h: float, notice_h: float = 0.0) -> tuple[float, ...]:
    """Returns when events begin, s: one on each whole day of the window, at an hour drawn evenly.

    Days lie wholly within the window, after the longest notice. A window without such a day has one event, in the
    middle of what is left.

    Args:
        environment: What is run.
        longest_h: Longest event, h; every case begins at the same times.
        notice_h: Longest notice, h.

    Raises:
        ScenarioError: The window is too short, or an event longer than a day.
    """
    window_h = environment.window_s / HOUR_S
    if longest_h >= DAY_H:
        raise ScenarioError(f"an event lasts {longest_h:g} h; it must be shorter than a day")
    rng = stream(environment.seed, "world", "events", environment.index)
    first_day = int(np.ceil(max(notice_h, 1.0) / DAY_H))
    days = range(first_day, int(window_h // DAY_H))
    if len(days):
        return tuple(HOUR_S * (DAY_H * day + int(rng.integers(0, int(DAY_H - np.ceil(longest_h)) + 1))) for day in days)
    first_h = (window_h - longest_h) // 2
    if first_h < 1:
        raise ScenarioError(
            f"the window lasts {window_h:g} h, too short for an event of {longest_h:g} h; lengthen it "
            "(--set window_h=48) or shorten the event"
        )
    return (float(first_h * HOUR_S),)


def events_of(ride: Ride, case: Case, starts_s: Sequence[float], only: str | None = None) -> list[SiteEvent]:
    """Returns the events of a case: a target below the mean power that each site drew without events.

    Args:
        ride: The run without events.
        case: The case.
        starts_s: When events begin, s.
        only: Site that is asked; None: all are.

    Raises:
        ScenarioError: The fleet has no such site.
    """
    found = []
    if only is not None and only not in ride.environment.sites:
        raise ScenarioError(f"an event asks the unknown site {only!r}; {nearest(only, ride.environment.sites)}")
    for s, site in enumerate(ride.environment.sites):
        if only not in (None, site):
            continue
        for start_s in starts_s:
            end_s = start_s + case.hours * HOUR_S
            rows = slice(round(start_s / INTERVAL_S), round(end_s / INTERVAL_S))
            baseline_kw = float(ride.kw_SN[s, rows].mean())
            event = GridEvent(
                start_s=start_s,
                end_s=end_s,
                baseline_kw=baseline_kw,
                target_kw=(1 - case.cut) * baseline_kw,
                notice_s=60 * case.notice_min,
                ramp_s=min(RAMP_S, case.hours * HOUR_S / 2),
            )
            found.append(SiteEvent(site=site, event=event))
    return found


@dataclass(frozen=True)
class PlayedRun(PlainSpec):
    """A spec: one case played in one environment.

    Attributes:
        scenario: Scenario of kind ``cluster``.
        index: Number of the environment.
        seed: Seed.
        policy: Policy that decides what no event asks.
        case: The case.
        starts_s: When events begin, s.
        levers: What may be done.
        order: How running jobs are bent.
        site: Site that is asked; None: all are, each for the same share of its power.
    """

    scenario: Scenario
    index: int
    seed: int
    policy: str
    case: Case
    starts_s: tuple[float, ...]
    levers: tuple[Lever, ...] = LEVERS
    order: Order = "least-loss"
    site: str | None = None

    @property
    def label(self) -> str:
        """Which case."""
        return f"{self.case.label}, environment {self.index}, {self.order}, {','.join(self.levers)}"

    def run(self) -> Played:
        """Returns what came of it."""
        return self.play()[0]

    def play(self) -> tuple[Played, Ride, F8]:
        """Returns what came of it, the run without events, and the sites' power with them, kW."""
        ride = ride_through(self.scenario, self.index, self.seed, self.policy)
        events = events_of(ride, self.case, self.starts_s, self.site)
        scheduler = EventResponse(make_scheduler(self.policy, "cluster"), self.levers, self.order)
        outcome = run(replace(ride.environment, events=tuple(events)), scheduler, seed=self.seed)
        kw_SN = interval_kw(outcome, INTERVAL_S)
        ledger = settle(outcome)
        at = {site: s for s, site in enumerate(ride.environment.sites)}
        lines = [each.event.settle(kw_SN[at[each.site]], INTERVAL_S) for each in events]
        spans = [(start_s, start_s + self.case.hours * HOUR_S) for start_s in self.starts_s]
        rows, asked = np.zeros(kw_SN.shape[1], dtype=bool), sorted({at[each.site] for each in events})
        for begin_s, end_s in spans:
            rows[round(begin_s / INTERVAL_S) : round(end_s / INTERVAL_S)] = True
        least_gpu_hours, least_mwh = least_loss(ride, events)
        played = Played(
            case=self.case,
            asked_mwh=sum(line.asked_mwh for line in lines),
            delivered_mwh=sum(line.delivered_mwh for line in lines),
            least_compliance=least_after_ramp(events, lines, kw_SN, at),
            cut_mwh=float((ride.kw_SN - kw_SN)[asked][:, rows].sum() * INTERVAL_S / HOUR_S / 1000),
            lost_gpu_hours=work_gpu_hours(ride.outcome, spans) - work_gpu_hours(outcome, spans),
            least_gpu_hours=least_gpu_hours,
            least_cut_mwh=least_mwh,
            usd_per_gpu_hour=worth_of_gpu_hour(self.scenario),
            utility_lost_usd=ledger.total_usd - ride.ledger.total_usd
            if self.scenario.goal == "least-cost"
            else ride.ledger.utility_usd - ledger.utility_usd,
            late_jobs=late_or_not_done(outcome) - late_or_not_done(ride.outcome),
        )
        return played, ride, kw_SN


def late_or_not_done(outcome: Outcome) -> int:
    """Returns the number of jobs that were dropped, are not done, or stood still for longer than their slack."""
    jobs, start_s_J = outcome.environment.jobs, outcome.job_J["start_s"]
    late_J = late_s_of(outcome, start_s_J - jobs.deadline_s_J) > MOMENT_S
    return int(((outcome.job_J["status"] != DONE) | late_J).sum())


def worth_of_gpu_hour(scenario: Scenario) -> float:
    """Returns what a GPU-hour of work is worth, USD: its revenue; with the goal of least cost what the GPU costs.

    There the revenue only makes policies serve every job and stands in no figure; NaN where the cost is not stated.
    """
    economics = scenario.economics
    if economics is None:
        return 0.0
    if scenario.goal == "least-cost":
        return economics.gpu_usd_per_hour or math.nan
    return economics.revenue_usd_per_gpu_hour


def least_after_ramp(events: Sequence[SiteEvent], lines: Sequence[EventLines], kw_SN: F8, at: dict[str, int]) -> float:
    """Returns the least share of what was asked that was delivered in an interval after the ramp."""
    found = [1.0]
    for each, line in zip(events, lines, strict=True):
        if line.asked_mwh > 0:
            event = each.event
            rows = slice(int(np.ceil((event.start_s + event.ramp_s) / INTERVAL_S)), round(event.end_s / INTERVAL_S))
            asked_kw = event.baseline_kw - event.target_kw
            found.append(float(np.clip((event.baseline_kw - kw_SN[at[each.site], rows]) / asked_kw, 0, 1).min()))
    return min(found)


def inside_s(power: PowerSegments, begin_s: float, end_s: float) -> F8:
    """Returns how long each segment of power lies within a span of time, s."""
    return np.asarray(np.clip(power.to_s_K, begin_s, end_s) - np.clip(power.from_s_K, begin_s, end_s))


def work_gpu_hours(outcome: Outcome, spans: Sequence[tuple[float, float]]) -> float:
    """Returns the GPU-hours of work that jobs did in some spans of time: a capped GPU counts by its throughput.

    Args:
        outcome: A run.
        spans: Begin and end of each span, s.
    """
    power, environment = outcome.power, outcome.environment
    share_K = power.watts_K / outcome.job_J["power_w"][power.job_K]
    rate_K = np.ones(len(power))
    for c, name in enumerate(environment.fleet.classes):
        freedom = environment.fleet.freedoms.get(name)
        curve = None if freedom is None else freedom.cap_curve
        if curve is not None:
            mine = environment.jobs.class_J[power.job_K] == c
            rate_K[mine] = np.interp(share_K[mine], curve.power, curve.throughput)
    total = 0.0
    for begin_s, end_s in spans:
        total += float((rate_K * power.gpus_K) @ inside_s(power, begin_s, end_s)) / HOUR_S
    return total


def least_loss(ride: Ride, events: Sequence[SiteEvent]) -> tuple[float, float]:
    """Returns the least GPU-hours of work that jobs lose where sites stay within the limits of events, and the MWh cut.

    In each interval the jobs that run without events share the site's power by ``cap_optimal``: any mix of full power,
    the caps of their classes, and a stop (of any class) at which a GPU draws what a
    free one does, without overhead, delay or end of slack. What is held or has not started is not looked at.
    """
    environment, power = ride.environment, ride.outcome.power
    tables = environment.fleet.tables(1)
    at = {site: s for s, site in enumerate(environment.sites)}
    free_w_S = tables.free_w_S * tables.pue_S
    lost = cut_kwh = 0.0
    for each in events:
        s = at[each.site]
        here = (power.site_K == s) & (power.from_s_K < each.event.end_s) & (power.to_s_K > each.event.start_s)
        rows = np.flatnonzero(here)
        for n in range(round(each.event.start_s / INTERVAL_S), round(each.event.end_s / INTERVAL_S)):
            middle_s = (n + 0.5) * INTERVAL_S
            limit_kw = float(each.event.step(np.array(middle_s)))
            above_w = 1000 * (ride.kw_SN[s, n] - limit_kw)
            if above_w <= 0:
                continue
            jobs = [
                _as_running(environment, ride.outcome, int(k), float(free_w_S[s]))
                for k in rows
                if power.from_s_K[k] <= middle_s < power.to_s_K[k]
            ]
            if not jobs:
                continue
            full_w = sum(job.full_w for job in jobs)
            plan = cap_optimal(jobs, np.array([full_w - above_w]), stopped_w=float(free_w_S[s]))
            gpus_J = np.array([job.gpus for job in jobs])
            lost += float(gpus_J @ (1 - plan.throughput_JT[:, 0])) * INTERVAL_S / HOUR_S
            cut_kwh += (full_w - float(plan.power_w_T[0])) / 1000 * INTERVAL_S / HOUR_S
    return lost, cut_kwh / 1000


def _as_running(environment: Environment, outcome: Outcome, k: int, free_w: float) -> RunningJob:
    """Returns the job of a power segment as an event planner sees it, at facility power."""
    row, gpus = int(outcome.power.job_K[k]), int(outcome.power.gpus_K[k])
    full_w = float(outcome.power.watts_K[k]) / gpus
    freedom = environment.fleet.freedoms.get(environment.fleet.classes[int(environment.jobs.class_J[row])])
    curve = None if freedom is None else freedom.cap_curve
    points = [(1.0, 1.0)] if curve is None else list(zip(curve.power, curve.throughput, strict=True))
    above = [(share, rate) for share, rate in points if share * full_w > free_w]
    return RunningJob(
        name=str(row),
        gpus=gpus,
        power_w=tuple(share * full_w for share, _ in above),
        throughput=tuple(rate for _, rate in above),
    )

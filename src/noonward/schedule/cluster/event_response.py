"""Follows grid events on top of another scheduler: holds starts, caps and suspends running jobs (each-slot)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np

from noonward.decision.announced import Announced
from noonward.decision.brief import Brief
from noonward.decision.cluster.lives import back_s, may_cap, may_start_capped, may_suspend, resume_until_s, slack_left_s
from noonward.decision.cluster.view import (
    ASK_RUNNING,
    ASK_SLOT,
    HOLD,
    LOADS,
    POWER_W,
    RUNS,
    STOPS,
    Answers,
    ClusterView,
)
from noonward.decision.scheduler import Scheduler, State
from noonward.errors import ScenarioError
from noonward.model.cluster.event import GridEvent
from noonward.schedule.event.cap_optimal import concave_hull

Lever = Literal["hold", "cap", "suspend"]
LEVERS: Final[tuple[Lever, ...]] = ("hold", "cap", "suspend")
"""What may be done: start jobs later, cap running jobs, suspend running jobs."""
Order = Literal["least-loss", "dvfs-fair", "pause-greedy"]
"""Which running jobs are bent first: those that lose least throughput per watt; all by the same share of the power
that they can shed; those with most slack. The last two are rules of Emerald's published code."""
SUSPEND: Final = -1
"""Choice of a running job that is suspended; others are caps, 0 for full power."""
GUARD: Final = 1e-6
"""Share of the limit that is left unused, so that rounding does not exceed it."""


Points = dict[int, list[tuple[float, float, int]]]
"""What running jobs may do, by slot: power, W, throughput, GPUs, and choice, by falling power."""


@dataclass(frozen=True)
class _Edge:
    """One way down for a running job: from one of its points to the next one on its hull.

    Attributes:
        lost_per_w: Throughput lost, GPUs per W saved.
        job: Slot of the job.
        place: Which of its points comes next.
    """

    lost_per_w: float
    job: int
    place: int

    def __lt__(self, other: _Edge) -> bool:
        return (self.lost_per_w, self.job) < (other.lost_per_w, other.job)


class EventResponse(Scheduler):
    """Answers as another scheduler does, and keeps sites within the limits of events.

    In an event, in every part of an hour in which running jobs are asked about, each site's power is brought to the
    limit with the least loss of throughput now: caps and suspensions of the running jobs are taken in the order of
    throughput lost per watt saved, along the concave hull of each job's points. A cap is used only if the job's slack
    outlasts the event under it; a job is suspended only if it can be resumed after the event. After the event caps are
    lifted. A start or resumption that would exceed the limit is held while the job's slack allows it, or made under a
    cap; so is one in the time of notice that would run into the event, at most one length of the event ahead. A job
    whose slack ends is started all the same, and made up for when running jobs are asked about next.

    The levers differ in what they need: ``hold`` nothing, ``cap`` classes with ``caps``, ``suspend`` classes with
    ``interruptible``.

    Args:
        base: Scheduler that decides everything else, of protocol each-slot.
        levers: What may be done, of ``LEVERS``.
        order: Which running jobs are bent first. ``dvfs-fair`` caps and never suspends, ``pause-greedy`` suspends and
            never caps, whatever the levers say of the other.

    Raises:
        ScenarioError: The base caps jobs itself, or a lever is unknown.
    """

    def __init__(self, base: Scheduler, levers: Sequence[Lever] = LEVERS, order: Order = "least-loss") -> None:
        if "each-slot" not in base.needs.protocols or "cap" in base.needs.levers:
            raise ScenarioError(
                "events are followed on top of a scheduler of protocol each-slot that does not cap jobs itself; choose "
                "another one"
            )
        if order not in get_args(Order):
            raise ScenarioError(f"unknown order {order!r}; known: {', '.join(get_args(Order))}")
        unknown = sorted(set(levers) - set(LEVERS))
        if unknown:
            raise ScenarioError(f"unknown lever {unknown[0]!r}; known: {', '.join(LEVERS)}")
        without = {"least-loss": "", "dvfs-fair": "suspend", "pause-greedy": "cap"}[order]
        self._base, self._levers = base, frozenset(levers) - {without}
        self._reduce = {"least-loss": _least_loss, "dvfs-fair": _same_share, "pause-greedy": _most_slack}[order]
        own = [lever for lever in ("suspend", "cap") if lever in self._levers]
        bends = dict.fromkeys((*base.needs.levers, *own))
        self.needs = replace(base.needs, protocols=("each-slot",), levers=tuple(bends))
        self._at: dict[str, int] = {}
        self._base_w_S: list[float] = []
        self._announced = Announced()
        self._planned_s = -np.inf
        self._plan: dict[int, int] = {}

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Prepares both for a run."""
        self._at = {name: s for s, name in enumerate(brief.fleet.site_names)}
        self._base_w_S = [1000.0 * (0.0 if site.meter is None else site.meter.base_kw) for site in brief.fleet.sites]
        self._announced = brief.announced
        self._planned_s, self._plan = -np.inf, {}
        self._base.reset(brief, rng)

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns those of the scheduler below."""
        return self._base.remarks(brief)

    def state(self) -> State:
        """Returns the plan of this part of an hour and the state of the scheduler below."""
        return {
            "planned_s": float(self._planned_s),
            "serials": np.array(list(self._plan), dtype=np.int64),
            "choices": np.array(list(self._plan.values()), dtype=np.int64),
            "base": self._base.state(),
        }

    def load_state(self, state: State) -> None:
        """Restores both from ``state()``."""
        if set(state) != {"planned_s", "serials", "choices", "base"}:
            raise ScenarioError(
                f"the state holds {', '.join(sorted(state)) or 'nothing'}; restore the state of a scheduler that was "
                "made in the same way"
            )
        self._planned_s = float(state["planned_s"])
        self._plan = dict(zip(state["serials"].tolist(), state["choices"].tolist(), strict=True))
        self._base.load_state(state["base"])

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers as the scheduler below, then changes what an event needs."""
        if view.kind == ASK_RUNNING:
            self._decide_running(view, answers)
            return
        self._base.decide(view, answers)
        if view.kind == ASK_SLOT and self._announced.events:
            self._decide_starts(view, answers)

    def _decide_running(self, view: ClusterView, answers: Answers) -> None:
        """Caps and suspends running jobs in events, lifts the caps of the last one, and leaves the rest to the base."""
        if "suspend" in self._base.needs.levers:
            self._base.decide(view, answers)
        if self._planned_s != view.now_s:
            self._planned_s, self._plan = view.now_s, {}
            for s, event in self._active(view.now_s).items():
                self._plan |= self._brought_down(view, s, event)
        for site, job in view.asked():
            choice = self._plan.get(int(view.job_J["serial"][job]))
            if choice == SUSPEND and view.allowed(site, site):
                answers.suspend(site)
            elif answers.answer_N["choice"][site] == HOLD and may_cap(view, job):
                answers.cap(site, choice if choice is not None and choice > 0 else 0)

    def _decide_starts(self, view: ClusterView, answers: Answers) -> None:
        """Holds starts at sites in an event that would exceed its limit, or makes them under a cap."""
        for s, event in self._active(view.now_s, ahead=True).items():
            if view.asked_N[s] < 0 or answers.answer_N["choice"][s] != 1 + s:
                continue
            job, left_s = int(view.asked_N[s]), self._left_s(view, s)
            if view.now_s < event.start_s:
                if (
                    "hold" in self._levers
                    and left_s > event.end_s - view.now_s
                    and self._runs_into(view, job, s, event)
                ):
                    answers.hold(s)
                continue
            room_w = self._limit_w(view, s, event) - self._site_w(view, s)
            gpus = max(int(view.job_J["gpus_max"][job]), 1)
            most = min(gpus, int(view.free_S[s]))
            full_w = float(view.speed_KSCGF[POWER_W, s, view.job_J["class_"][job], most, -1])
            idle_w = most * float(view.site_S["free_w"][s])
            if full_w - idle_w <= room_w:
                continue
            cap = self._cap_that_fits(view, s, most, full_w, idle_w + room_w, event)
            if cap is not None:
                answers.answer_N["cap"][s] = cap
            elif "hold" in self._levers and left_s > float(view.run_1["slot_s"][0]):
                answers.hold(s)

    def _cap_that_fits(
        self, view: ClusterView, s: int, gpus: int, full_w: float, most_w: float, event: GridEvent
    ) -> int | None:
        """Returns the highest cap at which a site's waiting job fits and that its slack outlasts, or None."""
        job = int(view.asked_N[s])
        if "cap" not in self._levers or not may_start_capped(view, job, s, gpus):
            return None
        freedom = view.freedom_C[view.job_J["class_"][job]]
        for cap in range(1, int(freedom["caps"]) + 1):
            lost_s = (1 - freedom["cap_rate"][cap]) * (event.end_s - view.now_s)
            if freedom["cap_power"][cap] * full_w <= most_w and lost_s <= self._left_s(view, s):
                return cap
        return None

    def _left_s(self, view: ClusterView, s: int) -> float:
        """Returns how long the job that a site is asked about may still wait, s."""
        return float(view.job_J["deadline_s"][view.asked_N[s]] - view.now_s)

    @staticmethod
    def _runs_into(view: ClusterView, job: int, s: int, event: GridEvent) -> bool:
        """Returns whether a job that starts now is expected to run when an event begins, and that begins soon."""
        record = view.job_J[job]
        unit_s = view.speed_KSCGF[1, s, record["class_"], max(int(record["gpus_max"]), 1), -1]
        soon = event.start_s - view.now_s <= event.end_s - event.start_s
        return bool(soon and view.now_s + record["work"] * unit_s > event.start_s)

    def _active(self, now_s: float, *, ahead: bool = False) -> dict[int, GridEvent]:
        """Returns the event of each site that has one now, or the next one that it has been told of (``ahead``)."""
        known = sorted(self._announced.events, key=lambda each: -each.event.start_s)
        return {
            self._at[each.site]: each.event
            for each in known
            if now_s < each.event.end_s and (ahead or each.event.start_s <= now_s)
        }

    def _limit_w(self, view: ClusterView, s: int, event: GridEvent) -> float:
        """Returns the IT power that a site may draw at the end of its event's ramp beside its base load, W."""
        return (1000.0 * event.target_kw * (1 - GUARD) - self._base_w_S[s]) / float(view.site_S["pue"][s])

    @staticmethod
    def _power_w(view: ClusterView, job: int) -> float:
        """Returns the IT power of a running job without a cap, W."""
        life = view.life_J[job]
        return float(view.speed_KSCGF[POWER_W, life["site"], view.job_J["class_"][job], life["gpus"], life["level"]])

    def _site_w(self, view: ClusterView, s: int) -> float:
        """Returns the IT power of a site now, W: jobs that run, stop or load, and free GPUs."""
        total_w = float(view.free_S[s] * view.site_S["free_w"][s])
        for job in _of_site(view, s):
            life, freedom = view.life_J[job], view.freedom_C[view.job_J["class_"][job]]
            share = {
                RUNS: freedom["cap_power"][life["cap"]],
                STOPS: freedom["stop_power"],
                LOADS: freedom["load_power"],
            }[int(life["state"])]
            total_w += float(share) * self._power_w(view, job)
        return total_w

    def _brought_down(self, view: ClusterView, s: int, event: GridEvent) -> dict[int, int]:
        """Returns the caps and suspensions that bring a site to its limit, by the jobs' serials.

        Every job begins at full power.
        """
        power_w = float(view.free_S[s] * view.site_S["free_w"][s])
        points: Points = {}
        slack_s: dict[int, float] = {}
        for job in _of_site(view, s):
            state, full_w = int(view.life_J["state"][job]), self._power_w(view, job)
            freedom = view.freedom_C[view.job_J["class_"][job]]
            if state != RUNS:
                power_w += full_w * float(freedom["stop_power" if state == STOPS else "load_power"])
                continue
            if not may_cap(view, job):
                full_w *= float(freedom["cap_power"][view.life_J["cap"][job]])
            power_w += full_w
            points[job] = self._points(view, s, job, full_w, event)
            slack_s[job] = slack_left_s(view, job)
        place = self._reduce(points, power_w - self._limit_w(view, s, event), slack_s)
        return {int(view.job_J["serial"][job]): points[job][at][2] for job, at in place.items() if at}

    def _points(
        self, view: ClusterView, s: int, job: int, full_w: float, event: GridEvent
    ) -> list[tuple[float, float, int]]:
        """Returns what a running job may do, by falling power: W, throughput in GPUs, choice; hull points only."""
        life, freedom = view.life_J[job], view.freedom_C[view.job_J["class_"][job]]
        gpus, left_s = int(life["gpus"]), event.end_s - view.now_s
        found = {(full_w, float(gpus)): 0}
        if "cap" in self._levers and may_cap(view, job):
            slack_s = slack_left_s(view, job)
            for cap in range(1, int(freedom["caps"]) + 1):
                rate = float(freedom["cap_rate"][cap])
                if (1 - rate) * left_s <= slack_s:
                    found[float(freedom["cap_power"][cap]) * full_w, rate * gpus] = cap
        if "suspend" in self._levers and may_suspend(view, job):
            back = max(back_s(view, job), event.end_s)
            if back + float(view.run_1["slot_s"][0]) <= resume_until_s(view, job):
                found[gpus * float(view.site_S["free_w"][s]), 0.0] = SUSPEND
        return [(w, t, found[w, t]) for w, t in reversed(concave_hull(list(found))) if w <= full_w]


def _least_loss(points: Points, excess_w: float, slack_s: dict[int, float]) -> dict[int, int]:
    """Returns which point each job comes to: the next step down is always that which loses least throughput per watt.

    Args:
        points: What each job may do, by falling power.
        excess_w: Power to shed, W.
        slack_s: Slack of each job, s; not read.
    """
    place = dict.fromkeys(points, 0)
    heap = [_edge(points[job], job, 0) for job in points if len(points[job]) > 1]
    heapq.heapify(heap)
    while excess_w > 0 and heap:
        edge = heapq.heappop(heap)
        here = points[edge.job]
        excess_w -= here[edge.place - 1][0] - here[edge.place][0]
        place[edge.job] = edge.place
        if edge.place + 1 < len(here):
            heapq.heappush(heap, _edge(here, edge.job, edge.place))
    return place


def _same_share(points: Points, excess_w: float, slack_s: dict[int, float]) -> dict[int, int]:
    """Returns the points of Emerald's *DVFS, fair*: every job sheds the same share of what it can, at least.

    Caps are measured points, so each job comes to the highest one that sheds its share.
    """
    can_w = {job: here[0][0] - here[-1][0] for job, here in points.items()}
    total_w = sum(can_w.values())
    if excess_w <= 0 or total_w <= 0:
        return dict.fromkeys(points, 0)
    share = min(excess_w / total_w, 1.0)
    return {
        job: next(at for at, (w, _, _) in enumerate(here) if here[0][0] - w >= share * can_w[job] * (1 - GUARD))
        for job, here in points.items()
    }


def _most_slack(points: Points, excess_w: float, slack_s: dict[int, float]) -> dict[int, int]:
    """Returns the points of Emerald's *pausing, greedy*: the jobs with most slack are stopped, until all is shed."""
    place = dict.fromkeys(points, 0)
    for job in sorted(points, key=lambda job: (-slack_s[job], job)):
        if excess_w <= 0:
            break
        place[job] = len(points[job]) - 1
        excess_w -= points[job][0][0] - points[job][-1][0]
    return place


def _edge(points: Sequence[tuple[float, float, int]], job: int, at: int) -> _Edge:
    """Returns the way down from one of a job's points to the next."""
    (high_w, high, _), (low_w, low, _) = points[at], points[at + 1]
    return _Edge((high - low) / (high_w - low_w), job, at + 1)


def _of_site(view: ClusterView, s: int) -> list[int]:
    """Returns the jobs that hold GPUs of a site."""
    life_J = view.life_J
    holds = (life_J["site"] == s) & np.isin(life_J["state"], (RUNS, STOPS, LOADS)) & (view.job_J["serial"] >= 0)
    return [int(job) for job in np.flatnonzero(holds)]

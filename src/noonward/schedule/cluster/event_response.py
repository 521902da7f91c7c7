"""Follows grid events on top of another scheduler: holds starts, caps and suspends running jobs (each-slot)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, get_args

import numpy as np

from noonward.arrays import Records
from noonward.data.events import INTERVAL_S
from noonward.decision.announced import Announced
from noonward.decision.brief import Brief
from noonward.decision.cluster.feasibility import is_suspended
from noonward.decision.cluster.lives import (
    may_cap,
    may_start_capped,
    may_suspend,
    resume_gang,
)
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
from noonward.decision.partly_compiled import OnTop, PartlyCompiledScheduler
from noonward.decision.scheduler import CompiledScheduler, Scheduler, State
from noonward.errors import ScenarioError
from noonward.model.cluster.event import GridEvent
from noonward.schedule.cluster.event_moves import elsewhere, movable, room_at
from noonward.schedule.cluster.event_orders import (
    GUARD,
    Bendable,
    Order,
    Turn,
    Way,
    capped_fairly,
    least_loss,
    paused_by_slack,
    paused_in_turn,
    resized_fairly,
)
from noonward.schedule.cluster.event_ways import Freed, bendable, of_site, power_w, site_w, standing, stands
from noonward.units import HOUR_S

Lever = Literal["hold", "cap", "suspend", "move"]
LEVERS: Final[tuple[Lever, ...]] = ("hold", "cap", "suspend")
"""What is done unless more is named: start jobs later, cap running jobs, suspend running jobs. ``move`` also sends jobs
to other sites."""
TAKES: Final[dict[Order, frozenset[str]]] = {
    "least-loss": frozenset({"cap", "suspend", "move"}),
    "dvfs-fair": frozenset({"cap"}),
    "dvfs-pause-fair": frozenset({"cap", "suspend"}),
    "pause-greedy": frozenset({"suspend"}),
    "pause-resize-fair": frozenset({"suspend", "resize"}),
}
"""What each order does with running jobs; a resize is a stop and a resumption."""
RESERVE: Final = ("dvfs-pause-fair", "pause-resize-fair")
"""Orders in which jobs come back during an event: they keep power for those that load and for those still to come."""


class EventResponse(OnTop):
    """Answers as another scheduler does, and keeps sites within the limits of events.

    In an event, in every part of an hour in which running jobs are asked about, each site's power is brought to the
    limit by an order (``event_orders``): with ``least-loss`` caps and suspensions of the running jobs are taken in the
    order of throughput lost per watt saved, along the concave hull of what each job may do. A cap is used only if the
    job's slack outlasts the event under it; a job is suspended only if it can be resumed after the event, or after its
    turn. After the event caps are lifted, and jobs that lost GPUs take them back where these are free and what is left
    of the job is worth the stop. A start or resumption that would exceed the limit is held while the job's slack allows
    it, or made under a cap; so is one in the time of notice that would run into the event, at most one length of the
    event ahead. A job whose slack ends is started all the same, and made up for when running jobs are asked about next.

    With ``move``, a running job may also be suspended and resumed at another site, where no event is or is announced
    and GPUs are free that no job waits for: this too is taken in the order of throughput lost per watt, its journey
    counted. What would be held goes to such a site instead, if the journey costs less than its GPUs earn until the
    event ends; and no job is sent to a site in an event.

    The levers differ in what they need: ``hold`` nothing, ``cap`` classes with ``caps``, ``suspend`` classes with
    ``interruptible``; ``move`` for running jobs ``moves``; resizing, which ``pause-resize-fair`` does, ``elastic``.

    Args:
        base: Scheduler that decides everything else, of protocol each-slot.
        levers: What may be done: ``LEVERS``, and ``move``, which goes with ``suspend``.
        order: How running jobs are bent (``Order``); what an order does not take (``TAKES``) is left out of the levers.

    Raises:
        ScenarioError: The base caps jobs itself, or a lever or an order is unknown.
    """

    def __init__(self, base: Scheduler, levers: Sequence[Lever] = LEVERS, order: Order = "least-loss") -> None:
        if "each-slot" not in base.needs.protocols or "cap" in base.needs.levers:
            raise ScenarioError(
                "events are followed on top of a scheduler of protocol each-slot that does not cap jobs itself; choose "
                "another one"
            )
        if order not in get_args(Order):
            raise ScenarioError(f"unknown order {order!r}; known: {', '.join(get_args(Order))}")
        unknown = sorted(set(levers) - set(get_args(Lever)))
        if unknown:
            raise ScenarioError(f"unknown lever {unknown[0]!r}; known: {', '.join(get_args(Lever))}")
        self._base, self._order, self._holds = base, order, "hold" in levers
        may = set(levers) | ({"resize"} if "suspend" in levers else set())
        self._own: frozenset[str] = TAKES[order] & may
        self._resizes = "resize" in self._own and "resize" not in base.needs.levers
        self._may = Freed(
            caps="cap" in self._own,
            stops="suspend" in self._own,
            turns=order == "dvfs-pause-fair",
            resizes=self._resizes,
        )
        self._moves = {"move", "suspend"} <= self._own
        own = [lever for lever in ("suspend", "resize", "cap", "move") if lever in self._own]
        bends = dict.fromkeys((*base.needs.levers, *own))
        self.needs = replace(base.needs, protocols=("each-slot",), levers=tuple(bends))
        self._at: dict[str, int] = {}
        self._base_w_S: list[float] = []
        self._announced = Announced()
        self._freedom_C: Records | None = None
        self._seen: ClusterView | None = None
        self._shown: ClusterView | None = None
        self._forget_all()

    def _forget_all(self) -> None:
        self._planned_s = -np.inf
        self._plan: dict[int, Way] = {}
        self._turns: dict[int, tuple[Turn, ...]] = {}
        self._gang: dict[int, int] = {}
        self._going: dict[int, int] = {}

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Prepares both for a run."""
        self._at = {name: s for s, name in enumerate(brief.fleet.site_names)}
        self._base_w_S = [1000.0 * (0.0 if site.meter is None else site.meter.base_kw) for site in brief.fleet.sites]
        self._announced, self._freedom_C = brief.announced, None
        self._seen = self._shown = None
        self._forget_all()
        self._base.reset(brief, rng)

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns those of the scheduler below."""
        return self._base.remarks(brief)

    def state(self) -> State:
        """Returns the plan of this part of an hour, turns, gangs, journeys, and the state of the scheduler below."""
        turns = [(s, *turn) for s, each in self._turns.items() for turn in each]
        return {
            "planned_s": float(self._planned_s),
            "plan": np.array([(serial, *way) for serial, way in self._plan.items()], dtype=float).reshape(-1, 7),
            "turns": np.array(turns, dtype=float).reshape(-1, 3),
            "gangs": np.array(list(self._gang.items()), dtype=np.int64).reshape(-1, 2),
            "going": np.array(list(self._going.items()), dtype=np.int64).reshape(-1, 2),
            "base": self._base.state(),
        }

    def load_state(self, state: State) -> None:
        """Restores both from ``state()``."""
        if set(state) != {"planned_s", "plan", "turns", "gangs", "going", "base"}:
            raise ScenarioError(
                f"the state holds {', '.join(sorted(state)) or 'nothing'}; restore the state of a scheduler that was "
                "made in the same way"
            )
        self._forget_all()
        self._planned_s = float(state["planned_s"])
        for serial, watts, throughput, cap, stops, gpus, site in state["plan"].tolist():
            self._plan[int(serial)] = Way(watts, throughput, int(cap), bool(stops), int(gpus), int(site))
        for s, serial, until_s in state["turns"].tolist():
            self._turns[int(s)] = (*self._turns.get(int(s), ()), Turn(int(serial), until_s))
        self._gang, self._going = dict(state["gangs"].tolist()), dict(state["going"].tolist())
        self._base.load_state(state["base"])

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers as the scheduler below, then changes what an event needs."""
        if view.kind == ASK_RUNNING:
            self._decide_running(view, answers)
            return
        self._base.decide(self.shown_below(view), answers)
        if view.kind == ASK_SLOT and self._announced.events:
            self._decide_starts(view, answers)

    @property
    def bends_below(self) -> bool:
        """Whether the base suspends jobs itself."""
        return "suspend" in self._base.needs.levers

    def resting_on(self, view: ClusterView) -> CompiledScheduler | PartlyCompiledScheduler | None:
        """Returns the base while no event is known that has not ended, and what the last one took is given back.

        Resizing also decides on which gangs jobs are resumed; then there is no rest.
        """
        base = self._base
        if view.kind != ASK_SLOT or not isinstance(base, CompiledScheduler | PartlyCompiledScheduler) or self._resizes:
            return None
        bends = len(view.life_J) == len(view.job_J)  # else one unused record
        capped = bends and view.life_J["cap"][view.job_J["serial"] >= 0].any()
        kept = capped or self._turns or self._gang or self._going
        return None if kept or self._active(view.now_s, ahead=True) else base

    def shown_below(self, view: ClusterView) -> ClusterView:
        """Returns the view as the base sees it, which caps no job."""
        if self._seen is not view or self._shown is None:
            if self._freedom_C is None:
                self._freedom_C = view.freedom_C.copy()
                self._freedom_C["caps"] = 0
            self._seen, self._shown = view, view._replace(freedom_C=self._freedom_C)
        return self._shown

    def _decide_running(self, view: ClusterView, answers: Answers) -> None:
        """Bends running jobs in events, undoes what the last one took, and leaves the rest to the base."""
        if self.bends_below:
            self._base.decide(self.shown_below(view), answers)
        if self._planned_s != view.now_s:
            self._planned_s, self._plan = view.now_s, {}
            active = self._active(view.now_s)
            self._turns = {s: turns for s, turns in self._turns.items() if s in active}
            self._gang = {serial: gpus for serial, gpus in self._gang.items() if serial in standing(view)}
            for s, event in active.items():
                self._plan |= self._brought_down(view, s, event)
            if self._resizes:
                self._plan |= self._grown_back(view, active)
        for site, job in view.asked():
            serial = int(view.job_J["serial"][job])
            way = self._plan.get(serial)
            if way is not None and way.stops and view.allowed(site, site):
                answers.suspend(site)
                if way.gpus:
                    self._gang[serial] = way.gpus
                if way.site >= 0:
                    self._going[serial] = way.site
            elif answers.answer_N["choice"][site] == HOLD and may_cap(view, job):
                answers.cap(site, 0 if way is None else way.cap)

    def _decide_starts(self, view: ClusterView, answers: Answers) -> None:
        """Holds starts at sites in an event that would exceed its limit, or makes them under a cap."""
        slot_s = float(view.run_1["slot_s"][0])
        told = self._active(view.now_s, ahead=True)
        if self._resizes:
            self._resume_on_gangs(view, answers)
        if self._moves:
            self._move_on(view, answers, told)
        for s, event in told.items():
            if view.asked_N[s] < 0 or answers.answer_N["choice"][s] != 1 + s:
                continue
            job, left_s = int(view.asked_N[s]), self._left_s(view, s)
            if view.now_s < event.start_s:
                outlasts = self._holds and left_s > event.end_s - view.now_s
                into = self._runs_into(view, job, s, event)
                if into and not self._sent_elsewhere(view, answers, s, told) and outlasts:
                    answers.hold(s)
                continue
            if left_s > slot_s and self._paused_now(view, s) == int(view.job_J["serial"][job]):
                answers.hold(s)
                continue
            room_w = self._limit_w(view, s, event) - site_w(view, s)
            gpus = int(answers.answer_N["gpus"][s]) or max(int(view.job_J["gpus_max"][job]), 1)
            most = min(gpus, int(view.free_S[s]))
            full_w = float(view.speed_KSCGF[POWER_W, s, view.job_J["class_"][job], most, -1])
            idle_w = most * float(view.site_S["free_w"][s])
            if full_w - idle_w <= room_w:
                continue
            cap = self._cap_that_fits(view, s, most, full_w, idle_w + room_w, event)
            if cap is not None:
                answers.answer_N["cap"][s] = cap
            elif not self._sent_elsewhere(view, answers, s, told) and self._holds and left_s > slot_s:
                answers.hold(s)

    def _move_on(self, view: ClusterView, answers: Answers, told: dict[int, GridEvent]) -> None:
        """Sends jobs on to where they are going, starts them there, and sends none to a site in an event."""
        for s, job in view.asked():
            serial, d = int(view.job_J["serial"][job]), int(answers.answer_N["choice"][s]) - 1
            goal = self._going.get(serial, -1)
            if goal >= 0 and view.allowed(s, goal):
                answers.send(s, goal)
                if goal == s:
                    del self._going[serial]
            elif goal >= 0 and goal != s:
                del self._going[serial]
            elif d in told and d != s and (view.now_s >= told[d].start_s or self._runs_into(view, job, d, told[d])):
                if view.allowed(s, s):
                    answers.send(s, s)
                elif self._left_s(view, s) > float(view.run_1["slot_s"][0]):
                    answers.hold(s)

    def _sent_elsewhere(self, view: ClusterView, answers: Answers, s: int, told: dict[int, GridEvent]) -> bool:
        """Sends a site's job elsewhere rather than hold it until the event's end; returns whether it does."""
        if not self._moves:
            return False
        job, hours = int(view.asked_N[s]), (told[s].end_s - view.now_s) / HOUR_S
        d = elsewhere(view, s, job, hours, room_at(view, told, self._going))
        if d >= 0:
            answers.send(s, d)
            self._going[int(view.job_J["serial"][job])] = d
        return d >= 0

    def _resume_on_gangs(self, view: ClusterView, answers: Answers) -> None:
        """Resumes suspended jobs on the gangs that they were stopped for, and all others on their own."""
        for s, job in view.asked():
            if not is_suspended(view, job) or not view.freedom_C["gangs"][view.job_J["class_"][job]]:
                continue
            serial, own = int(view.job_J["serial"][job]), int(view.life_J["own_gpus"][job])
            gpus = self._gang.get(serial, own)
            gpus = gpus if resume_gang(view, job, gpus) == gpus else own
            starts = answers.answer_N["choice"][s] == 1 + s
            if (serial in self._gang or starts) and view.allowed(s, s) and view.free_S[s] >= gpus:
                answers.send(s, s, gpus=gpus)
            elif starts:
                answers.hold(s)

    def _paused_now(self, view: ClusterView, s: int) -> int:
        """Returns the serial of the job of a site whose turn it is to be paused, or -1."""
        return next((turn.serial for turn in self._turns.get(s, ()) if turn.until_s > view.now_s), -1)

    def _cap_that_fits(
        self, view: ClusterView, s: int, gpus: int, full_w: float, most_w: float, event: GridEvent
    ) -> int | None:
        """Returns the highest cap at which a site's waiting job fits and that its slack outlasts, or None."""
        job = int(view.asked_N[s])
        if "cap" not in self._own or not may_start_capped(view, job, s, gpus):
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

    def _brought_down(self, view: ClusterView, s: int, event: GridEvent) -> dict[int, Way]:
        """Returns the caps, suspensions and gangs that bring a site to its limit, by the jobs' serials.

        Every job begins at full power.
        """
        free_w = float(view.site_S["free_w"][s])
        budget_w = self._limit_w(view, s, event) - float(view.free_S[s]) * free_w
        jobs = {}
        for job in of_site(view, s):
            state, full_w = int(view.life_J["state"][job]), power_w(view, job)
            freedom = view.freedom_C[view.job_J["class_"][job]]
            if state == LOADS and self._order in RESERVE:
                budget_w -= full_w
            elif state != RUNS:
                budget_w -= full_w * float(freedom["stop_power" if state == STOPS else "load_power"])
            else:
                if not may_cap(view, job):
                    full_w *= float(freedom["cap_power"][view.life_J["cap"][job]])
                jobs[job] = bendable(view, s, job, full_w, event.end_s, self._may)
        if self._moves:
            told = self._active(view.now_s, ahead=True)
            return least_loss(movable(view, s, jobs, event.end_s, room_at(view, told, self._going)), budget_w)
        return self._bent(view, s, list(jobs.values()), budget_w, free_w, event)

    def _bent(
        self, view: ClusterView, s: int, jobs: list[Bendable], budget_w: float, free_w: float, event: GridEvent
    ) -> dict[int, Way]:
        """Returns what the running jobs of a site do by the order, where they stay there."""
        if self._order == "least-loss":
            return least_loss(jobs, budget_w)
        if self._order == "dvfs-fair":
            return capped_fairly(jobs, budget_w)
        if self._order == "pause-greedy":
            return paused_by_slack(jobs, budget_w, free_w)
        back_w = self._back_w(view, s)
        if self._order == "pause-resize-fair":
            return resized_fairly(jobs, budget_w - sum(back_w[each] for each in back_w if each in self._gang), free_w)
        now_s, turns = view.now_s, self._turns.get(s, ())
        ways, self._turns[s] = paused_in_turn(jobs, budget_w, free_w, now_s, INTERVAL_S, event.end_s, turns, back_w)
        return ways

    def _back_w(self, view: ClusterView, s: int) -> dict[int, float]:
        """Returns what jobs that stand still at a site add once they are back, W, by serial."""
        free_w = float(view.site_S["free_w"][s])
        found: dict[int, float] = {}
        for job in np.flatnonzero((view.life_J["site"] == s) & stands(view)).tolist():
            life, serial = view.life_J[job], int(view.job_J["serial"][job])
            gpus = self._gang.get(serial, int(life["own_gpus"]))
            full_w = float(view.speed_KSCGF[POWER_W, s, view.job_J["class_"][job], gpus, life["level"]])
            found[serial] = full_w - gpus * free_w
        return found

    def _grown_back(self, view: ClusterView, active: dict[int, GridEvent]) -> dict[int, Way]:
        """Returns the jobs that lost GPUs in an event that is over, and take them back now."""
        found: dict[int, Way] = {}
        free_S = view.free_S.copy()
        for job in np.flatnonzero((view.life_J["state"] == RUNS) & (view.job_J["serial"] >= 0)).tolist():
            life, freedom = view.life_J[job], view.freedom_C[view.job_J["class_"][job]]
            s, more = int(life["site"]), int(life["own_gpus"] - life["gpus"])
            if more <= 0 or s in active or free_S[s] < more or not may_suspend(view, job):
                continue
            gained_s = (1 - float(life["speed"])) * (float(life["until_s"]) - view.now_s)
            if gained_s > freedom["stop_s"] + freedom["dark_s"] + freedom["load_s"]:
                free_S[s] -= more
                found[int(view.job_J["serial"][job])] = Way(0.0, 0.0, stops=True, gpus=int(life["own_gpus"]))
        return found

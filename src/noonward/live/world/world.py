"""The state of a live service's decisions: jobs in sight, and the engine that is told what happens to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from noonward.arrays import F8
from noonward.decision.brief import Brief, check_fit
from noonward.decision.cluster.view import (
    ASK_ALLOCATE,
    ASK_FINISHED,
    ASK_RUNNING,
    ASK_SLOT,
    HOLD,
    KEEP,
    ORACLE,
    SECONDS,
    STOPS,
    ClusterView,
)
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.kernels.world import (
    CAPS,
    DROPPED,
    FREED,
    HALTED,
    JOINED,
    RAN_ON,
    RESUMED,
    SENT,
    STOPPING,
    TAKEN,
)
from noonward.engine.cluster.told import Happening, Standing, ToldEngine
from noonward.ledger.segments import PLANNED, RUNNING
from noonward.ledger.segments import TRANSIT as TRAVELS
from noonward.ledger.segments import WAITING as QUEUED
from noonward.live.turns import give_way
from noonward.live.world.bending import RunningJobs
from noonward.live.world.candidates import CandidateTexts, Seen
from noonward.live.world.curves import Curves
from noonward.live.world.grid_events import ToldEvents
from noonward.live.world.held import HeldJobs, can_hold
from noonward.live.world.hours import Hours
from noonward.live.world.kernels import latest_s
from noonward.live.world.seats import (
    OVERDUE,
    STARTING,
    SUSPENDED,
    TRANSIT,
    WAITING,
    Arrival,
    Decision,
    Note,
    Seat,
    Seats,
)
from noonward.model.cluster.knowledge import OVERRUN
from noonward.model.signals import SiteSignals
from noonward.units import HOUR_S


class World:
    """Jobs in sight, and the scheduler that is asked about them by the engine (``ToldEngine``).

    The engine keeps queues and free GPUs and asks by its rules; what it computes in a simulation is told here: a job
    ends when its cluster says so. An operator may hold, pin and veto jobs, drain sites, and withhold GPUs. A drained
    site is masked; its waiting jobs may be moved away, and none of them is dropped because of it.

    Args:
        brief: Brief of the service.
        scheduler: Who is asked; it is reset.
        hours: Prices, intensities and forecasts, hour by hour; None where there are none.
        rng: Stream ``policy``.
        modelled_S: Sites at which running jobs do at once what the model says; None: all. At the others their clusters
            confirm what they are asked to do.
        keeps_S: Sites at which suspended jobs keep their GPUs; None: none.
        part_s: How often running jobs are asked about, s, a divisor of the hour.

    Raises:
        ScenarioError: The scheduler does not fit.

    Attributes:
        seat_of: Jobs in sight by the number of their arrival.
        unrouted: Jobs that no site may take now (protocol on-arrival), by that number.
        drained: Sites at which nothing starts.
        serial: Number of the next arrival.
        place: Next place in the order of joining queues.
        asked_s: Slot boundary that was asked about last.
        asks: Questions asked.
        decisions: Decisions since ``drain_changes``.
        notes: What has happened to jobs since ``drain_changes``.
        ended: Started jobs that have ended and whose GPUs are not free in the books yet, by number of arrival.
        changed: Jobs that have changed since ``drain_changes``.
        curves: Capacity curves that the scheduler sets; None where it sets none.
        journal: What was told from outside, in order (``again`` repeats it); None: it is not kept.
    """

    def __init__(
        self,
        brief: Brief,
        scheduler: Scheduler,
        hours: Hours | None,
        rng: np.random.Generator,
        modelled_S: Sequence[bool] | None = None,
        keeps_S: Sequence[bool] | None = None,
        part_s: float = HOUR_S,
    ) -> None:
        check_fit(brief, scheduler.needs, type(scheduler).__name__)
        self.grid_events = ToldEvents(lambda: self.now_s)
        self.brief, self.scheduler, self.hours = replace(brief, announced=self.grid_events), scheduler, hours
        self.engine = ToldEngine(brief, scheduler.needs, modelled_S, keeps_S)
        self.engine.world.engine_1["part_s"] = part_s
        self.running = RunningJobs(self)
        self.unrouted: dict[int, None] = {}
        self.drained: set[int] = set()
        self.serial = self.place = self.asks = 0
        self.asked_s = self._grid_s = -np.inf
        self.decisions: list[Decision] = []
        self.notes: list[Note] = []
        self.changed: dict[int, Seat] = {}
        kind = scheduler.needs.curves
        self.curves = None if kind is None else Curves(self.view.site_S["gpus"], hard=kind == "hard")
        self.journal: list[list[Any]] | None = None
        self._each_slot = brief.protocol == "each-slot"
        self._coming: dict[int, Arrival] = {}
        self._texts = CandidateTexts(brief.sites)
        self._looked = 0
        self.ended: set[int] = set()
        self._opened: set[int] = set()
        self._settled_h = 0
        self._held = HeldJobs(self.engine, scheduler) if can_hold(scheduler, self.engine) else None
        self.seat_of = Seats(packs=self._held is not None)
        self._show_curves(0)
        scheduler.reset(self.brief, rng)

    @property
    def view(self) -> ClusterView:
        """What the scheduler is shown."""
        return self.engine.view

    @property
    def now_s(self) -> float:
        """Time up to which events were taken, s since the service's start."""
        return self.engine.now_s

    def _show_curves(self, hour: int) -> None:
        """Lets the scheduler set curves from an hour on."""
        if self.curves is not None:
            self.curves.cover(hour)
            self.engine.use_curves(self.curves.limit_SH)

    def signals_at_sites(self) -> SiteSignals:
        """Returns the signals at the sites from the service's start on, as far as they are known."""
        if self.hours is not None:
            return self.hours.at_sites()
        hours = int(max(self.now_s, 0.0) // HOUR_S) + 1
        factor_SH = None if self.brief.pue is None else self.brief.pue.window(self.brief.start, hours)
        zones = [site.zone for site in self.brief.fleet.sites]
        return SiteSignals.of(None, zones, self.brief.start, hours, factor_SH)

    def _show_spending(self) -> None:
        """Lets the engine settle budgets by all hours that are known."""
        known_h = int(max(self.now_s, 0.0) // HOUR_S) + 1 if self.hours is None else self.hours.known_h
        if self.engine.budgets and known_h > self._settled_h:
            self._settled_h = known_h
            self.engine.use_signals(self.signals_at_sites())

    # What happens outside.

    def arrive(self, arrivals: Iterable[Arrival]) -> None:
        """Adds jobs that have arrived, in the order of their arrival; one that was added and not yet taken, once."""
        added = {(one.job, one.attempt) for one in self._coming.values()}
        for one in arrivals:
            give_way()
            if (one.job, one.attempt) in added:
                continue
            self.note_told("arrive", *one[:-4], sorted(one.vetoed), list(one.told), one.tenant, one.priority)
            serial, self.serial = self.serial, self.serial + 1
            self._coming[serial] = one
            self.engine.arrive(serial, held=one.held, tenant=one.tenant, priority=one.priority, **one.columns())

    def finish(self, serial: int, time_s: float) -> None:
        """Notes that a started job has given its GPUs back, not before the last question."""
        seat = self.seat_of.get(serial)
        if seat is not None and seat.state == SUSPENDED:
            self.withdraw(serial)
        elif seat is not None and serial not in self.ended:
            self.note_told("finish", serial, max(time_s, self.now_s))
            self.ended.add(serial)
            self.engine.finish(seat.slot, time_s)

    def withdraw(self, serial: int) -> None:
        """Takes a job that has not started, or is suspended, out of the books at once."""
        self.note_told("withdraw", serial)
        if self._coming.pop(serial, None) is not None:
            self.engine.recall(serial)
        seat = self.seat_of.get(serial)
        if seat is None or seat.state == STARTING:
            return
        self.engine.withdraw(seat.slot)
        self._forget(seat)

    # What clusters say of running jobs; what is not awaited is passed over.

    def stopped(self, serial: int, time_s: float) -> None:
        """Notes that a job which was to be suspended has stopped."""
        self.running.told("stopped", serial, time_s)

    def runs_on(self, serial: int, time_s: float) -> None:
        """Notes that a job which was to be suspended runs on: its cluster does not stop it."""
        self.running.told("runs_on", serial, time_s)

    def began(self, serial: int, time_s: float) -> None:
        """Notes that a job which was to be resumed has begun to."""
        self.running.told("began", serial, time_s)

    def capped(self, serial: int, time_s: float, cap: int) -> None:
        """Notes under which power cap a job runs."""
        self.running.told("capped", serial, time_s, cap)

    def drain(self, site: int, drained: bool) -> None:
        """Stops or resumes starts and moves at a site."""
        if (site in self.drained) == drained:
            return
        self.note_told("drain", site, drained)
        if not drained:
            self._opened.add(site)
        (self.drained.add if drained else self.drained.discard)(site)
        self.engine.drain(site, drained)

    def withhold(self, site: int, gpus: int) -> None:
        """Sets how many GPUs of a site are not for the service: of nodes that are down, or held by jobs of others."""
        before = int(self.engine.world.state_S["withheld"][site])
        if gpus == before:
            return
        self.note_told("withhold", site, gpus)
        if gpus < before:
            self._opened.add(site)
        self.engine.withhold(site, gpus)

    def announce(self, number: int, site: int, *told: float) -> None:
        """Tells of a grid event, once.

        Args:
            number: Its number.
            site: Site that it is for.
            told: Its begin, end and the time at which it became known, s since the service's start; baseline and
                target, kW; length of the ramp, s; payment and penalty, USD per MWh.
        """
        if number not in self.grid_events:
            self.note_told("announce", number, site, *told)
            self._note_grid(self.now_s)
            self.grid_events.add(number, self.brief.sites[site], *told)
            if told[0] <= self.now_s:  # it has begun
                self.engine.ask_about_running(site)

    def call_off(self, number: int) -> None:
        """Takes a grid event back."""
        if number in self.grid_events:
            self.note_told("call_off", number)
            self.grid_events.remove(number)
            for site in range(len(self.brief.sites)):
                self.engine.ask_about_running(site)

    def _note_grid(self, time_s: float) -> None:
        """Notes where grid events begin or end up to a time: running jobs are asked about there."""
        for name in self.grid_events.turned(self._grid_s, time_s):
            self.engine.ask_about_running(self.brief.sites.index(name))
        self._grid_s = max(self._grid_s, time_s)

    def steer(self, serial: int, held: bool, pinned: int, vetoed: Iterable[int]) -> None:
        """Holds, pins and vetoes a job in sight as its operator wants."""
        self.note_told("steer", serial, held, pinned, sorted(vetoed))
        seat = self.seat_of[serial]
        seat.held, seat.pinned, seat.vetoed = held, pinned, frozenset(vetoed)
        self.engine.hold(seat.slot, held)
        self._note_plain(seat)
        self._opened.add(seat.site)

    def note_told(self, *what: Any) -> None:
        """Notes in the journal what was told from outside."""
        if self.journal is not None:
            self.journal.append(list(what))

    def again(self, what: str, *how: Any) -> None:
        """Repeats what a journal says was told."""
        if what == "arrive":
            since = Arrival._fields[len(how) :]  # fields that journals of then have not
            one = Arrival._make([*how, *(Arrival._field_defaults[name] for name in since)])
            self.arrive([one._replace(vetoed=frozenset(one.vetoed), told=tuple(one.told))])
        else:
            getattr(self, {"run": "run_to"}.get(what, what))(*how)

    def forget_outside(self) -> None:
        """Forgets which sites are drained, what is withheld and which grid events there are, as after a restart."""
        self.grid_events.clear()
        for s in range(len(self.brief.sites)):
            self.drain(s, False)
            self.withhold(s, 0)
        self._opened.clear()

    def site_kw(self, utc: datetime) -> F8:
        """Returns the power that each site draws now by the engine's account of running jobs and free GPUs, kW.

        It is the power that ``model.cluster.meter`` describes. GPUs that are withheld draw nothing, those of others'
        jobs among them.

        Args:
            utc: The time, at which PUEs by the hour are taken.
        """
        site_S, brief = self.view.site_S, self.brief
        watts_S = self.engine.world.state_S["busy_w"] + site_S["free"] * site_S["free_w"] * site_S["pue"]
        if brief.pue is not None:
            watts_S = watts_S * brief.pue.window(utc.replace(minute=0, second=0, microsecond=0), 1)[:, 0]
        base_S = [0.0 if site.meter is None else site.meter.base_kw for site in brief.fleet.sites]
        return np.asarray(np.maximum(watts_S, 0.0) / 1000.0 + base_S)

    # Time passes.

    def next_event_s(self) -> float:
        """Returns the time of the next event that is known, s; infinite for none."""
        return self.engine.next_event_s()

    def next_slot_s(self) -> float:
        """Returns the next slot boundary with something to ask or to do, s; infinite where nothing is left."""
        slot_s = self.brief.slot_s
        if self.engine.waiting:
            return float((np.floor(self.now_s / slot_s) + 1) * slot_s)
        time_s = min(self.next_event_s(), self.running.next_question_s())
        return float(np.ceil(time_s / slot_s) * slot_s) if np.isfinite(time_s) else np.inf

    def run_to(self, time_s: float) -> None:
        """Takes what has happened up to a time and asks about it.

        Args:
            time_s: s since the service's start; for protocol each-slot a slot boundary. Boundaries in between are
                skipped; one that was asked about before is not asked about again.
        """
        asks = self.asks
        self.note_told("run", time_s)
        try:
            self._run_to(time_s)
        finally:
            if self.journal and self.asks == asks and not (self.changed or self.notes):
                self.journal.pop()  # nothing came of it

    def _run_to(self, time_s: float) -> None:
        if self._each_slot and time_s <= self.asked_s:
            return
        self._renew(time_s)
        self._note_grid(time_s)
        self._show_spending()
        self.engine.begin(time_s)
        if self._each_slot:
            self.asked_s = time_s
            self._answer_all()
            return
        self._answer_all()
        for serial in list(self.unrouted):
            seat = self.seat_of[serial]
            if not seat.held:
                self._answer_all(self.engine.route(seat.slot, time_s))
        # An operator or the cluster may have made room; a curve that is raised counts from the next hour or event on.
        for s in self._opened if self.engine.hard else range(len(self.brief.sites)):
            if s >= 0 and self.engine.look_at(s, time_s):
                self._answer_all()
        self._opened.clear()

    def _renew(self, time_s: float) -> None:
        """Tells the scheduler a longer run time of each job that has run for longer than what it was told."""
        view = self.view
        if self.engine.bends:
            self.running.renew(time_s)
            return
        for seat in self.seat_of.begun():
            if seat.serial in self.ended or not (about := seat.about).told:
                continue
            begin_s, expected = float(seat.start_s or 0.0), float(view.job_J["work"][seat.slot])
            unit_s = float(view.speed_KSCGF[SECONDS, seat.site, about.class_, seat.gpus, seat.level])
            while begin_s + expected * unit_s <= time_s:
                expected = next((more for more in about.told[1:] if more > expected), expected * OVERRUN)
            if expected > view.job_J["work"][seat.slot]:
                view.job_J["work"][seat.slot] = view.job_J["expected"][seat.slot] = expected
            seat.run_s = expected * unit_s

    # Questions.

    def _answer_all(self, kind: int = 0) -> None:
        """Answers a question, if there is one, and those that follow until all that was told has been taken."""
        while True:
            give_way()
            self._take_happenings()
            if kind:
                self._answer(kind)
            kind = self._step(kind)
            if not kind:
                self._take_happenings()
                return

    def _step(self, answered: int) -> int:
        """Runs to the next question; under a compiled rule, past those at which all is held that nobody limits."""
        if self._held is None or answered != ASK_SLOT or self.drained:
            return self.engine.step()
        kind, passed = self._held.step()
        self.asks += passed
        for first in self._held.take_firsts():
            give_way()
            seat = self.seat_of[first.serial]
            seat.asked = True
            self._note_decision(first.at_s, seat, first.asker, HOLD, 0, ORACLE, 0.0, *self._texts.last(first.asker))
        return kind

    def _note_plain(self, seat: Seat) -> None:
        """Notes whether a job may wait on without a question in Python."""
        if self._held is not None:
            self._held.note(seat.slot, seat.asked, limited=seat.pinned >= 0 or bool(seat.vetoed))

    def _answer(self, kind: int) -> None:
        """Answers a question; one that the scheduler fails at, or that nothing comes of, is passed over.

        Raises:
            NoonwardError: The scheduler failed, e.g. no plan fits; the job is asked about again later.
        """
        carried_out = False
        try:
            if kind == ASK_SLOT:
                carried_out = self._answer_slot()
            elif kind == ASK_RUNNING:
                self._ask()
                self.running.check_answers()
                carried_out = True
            elif kind == ASK_FINISHED:
                self._ask()
                carried_out = True
            else:
                seat = self.seat_of[int(self.view.serial_N[0])]
                carried_out = self._answer_allocate(seat) if kind == ASK_ALLOCATE else self._answer_route(seat)
        finally:
            if not carried_out and kind != ASK_FINISHED:
                self.engine.skip()

    def _ask(self) -> None:
        """Shows the hour and asks the scheduler."""
        hour = int(self.now_s // HOUR_S)
        self._show_curves(hour)
        if self.hours is not None:
            self.hours.show(self.view, hour)
        self.asks += 1
        if self._held is None or not self._held.take_answered():
            self.scheduler.decide(self.view, self.engine.answers)

    def _answer_slot(self) -> bool:
        """Answers what every site does with its next job (protocol each-slot)."""
        asked = [(s, self.seat_of[int(self.view.job_J["serial"][slot])]) for s, slot in self.view.asked()]
        for s, seat in asked:
            self.restrict(seat, s)
        self._ask()
        answer_N = self.engine.answers.answer_N
        for s, seat in asked:
            cap = int(answer_N["cap"][s])
            choice, gpus, level = self._checked(seat, s, *answer_N[s].item()[:3])
            if choice == 1 + s:
                choice, gpus, cap = self.running.checked_start(seat, s, gpus, cap)
            self._decided(seat, s, choice, gpus, level, 0.0)
            self.engine.answers.send(s, choice - 1, gpus=gpus, level=level, cap=cap if choice == 1 + s else KEEP)
        return True

    def _answer_allocate(self, seat: Seat) -> bool:
        """Answers with which gang and clock a job starts (protocol on-arrival)."""
        self._ask()
        self.view.mask_NA[0] = 1
        answer = self.engine.answers.answer_N[0]
        _, gpus, level = self._checked(seat, 0, 1 + seat.site, *answer.item()[1:3])
        answer["gpus"], answer["level"] = gpus, level
        return True

    def _answer_route(self, seat: Seat) -> bool:
        """Answers where a job is sent (protocol on-arrival); returns False where it stays."""
        self.restrict(seat, 0)
        seat.state, seat.site = WAITING, -1
        self.unrouted[seat.serial] = None
        self._change(seat)
        if seat.held or not self.view.mask_NA[0].any():
            return False
        self._ask()
        answer = self.engine.answers.answer_N[0]
        earliest_s = float(answer["earliest_s"])
        choice, gpus, level = self._checked(seat, 0, *answer.item()[:3])
        if choice == HOLD or not earliest_s <= latest_s(self.view, seat.slot, choice - 1):
            return False
        self.unrouted.pop(seat.serial)
        self._decided(seat, 0, choice, gpus, level, earliest_s)
        seat.gpus, seat.level, seat.earliest_s = gpus, level, earliest_s
        self.engine.answers.send(0, choice - 1, gpus=gpus, level=level, earliest_s=earliest_s)
        return True

    def restrict(self, seat: Seat, asker: int) -> None:
        """Takes what the operator forbids out of a mask."""
        mask_A = self.view.mask_NA[asker]
        for d in self.drained | seat.vetoed:
            mask_A[1 + d] = 0
        if seat.state == SUSPENDED:
            here = mask_A[1 + seat.site]
            mask_A[1:] = 0
            mask_A[1 + seat.site] = here
        elif seat.pinned >= 0:
            kept = mask_A[1 + seat.pinned]
            mask_A[1:] = 0
            mask_A[1 + seat.pinned] = kept

    def _checked(self, seat: Seat, asker: int, choice: int, gpus: int, level: int) -> tuple[int, int, int]:
        """Returns an answer, or "hold" in place of one that is not feasible; a pin takes precedence."""
        about, mask_A = seat.about, self.view.mask_NA[asker]
        least, most = about.gpus_min, about.gpus_max
        if seat.pinned >= 0 and seat.state != SUSPENDED:
            choice = 1 + seat.pinned if mask_A[1 + seat.pinned] else HOLD
        site = choice - 1 if choice else seat.site
        if seat.state == SUSPENDED:
            least, most = (int(self.view.job_J[name][seat.slot]) for name in ("gpus_min", "gpus_max"))
        good = (
            0 <= choice < len(mask_A)
            and (choice == HOLD or mask_A[choice])
            and (gpus == 0 or least <= gpus <= most)
            and (level == ORACLE or 0 <= level < int(self.view.site_S["levels"][max(site, 0)]))
        )
        if good:
            return choice, gpus, level
        self.note_infeasible(seat, {"choice": choice, "gpus": gpus, "level": level})
        return HOLD, 0, ORACLE

    def note_infeasible(self, seat: Seat, said: dict[str, object]) -> None:
        """Notes an answer that is not possible: the job stays as it is."""
        self.notes.append(Note(self.now_s, seat.about.job, "infeasible answer", said))

    def _decided(self, seat: Seat, asker: int, choice: int, gpus: int, level: int, earliest_s: float) -> None:
        """Notes a decision; of several times that a job is held in a row, the first."""
        if choice == HOLD and seat.asked:
            return
        seat.asked = True
        self._note_plain(seat)
        texts = self._candidate_texts(asker)
        self._note_decision(self.now_s, seat, asker, choice, gpus, level, earliest_s, *texts)

    def _note_decision(self, at_s: float, seat: Seat, *decided: Any) -> None:
        """Notes a decision about a job: fields of ``Decision`` from ``asker`` on."""
        about = seat.about
        self.decisions.append(Decision(at_s, about.job, about.attempt, seat.serial, *decided))

    def _candidate_texts(self, asker: int) -> tuple[Seen, str]:
        """Returns what is noted of every site for an asker's job."""
        if self._looked != self.asks:
            self._looked = self.asks
            self._texts.look(self.view.site_S, self.now_s)
        texts = self._texts.of(asker, self.view.mask_NA[asker])
        if self._held is not None:
            self._held.see(asker, self._texts.seen_SX)
        return texts

    # What became of jobs.

    def _take_happenings(self) -> None:
        """Brings the jobs in sight to where the engine has them."""
        for happening in self.engine.happened():
            give_way()
            if happening.what == TAKEN:
                about = self._coming.pop(happening.serial)
                seat = self.seat_of[happening.serial] = Seat.of(about, happening.serial, happening.slot)
                self._note_plain(seat)
                continue
            seat = self.seat_of[happening.serial]
            self._change(seat)
            if happening.what in (STOPPING, HALTED, RESUMED, RAN_ON, CAPS):
                self.running.happened(seat, happening)
            elif happening.what == JOINED and seat.state == SUSPENDED:
                seat.place = self.place
                self.place += 1
            elif happening.what == JOINED:
                self._joined(seat, happening)
            elif happening.what == SENT:
                self._sent(seat, happening)
            elif happening.what == FREED:
                seat.freed_s = happening.at_s
                self._forget(seat)
            elif happening.what == DROPPED:
                seat.state = OVERDUE
                self.notes.append(Note(happening.at_s, seat.about.job, OVERDUE, {"serial": seat.serial}))
                self._forget(seat)
            else:
                self._started(seat, happening)
        if not self._coming:
            self._coming = {}  # one that many have left keeps the room that they took

    def _joined(self, seat: Seat, happening: Happening) -> None:
        """Notes that a job has joined a site's queue."""
        seat.state, seat.site = WAITING, int(self.engine.world.outcome_R["site"][seat.slot])
        seat.reach_s, seat.place = happening.at_s, self.place
        self.place += 1

    def _sent(self, seat: Seat, happening: Happening) -> None:
        """Notes that a job travels to a site."""
        outcome, reach_s = self.engine.world.outcome_R[seat.slot], self.engine.world.track_J["reach_s"][seat.slot]
        said: dict[str, object] = {
            "serial": seat.serial, "from": seat.site, "site": int(outcome["site"]), "arrives_s": float(reach_s)
        }  # fmt: skip
        self.notes.append(Note(happening.at_s, seat.about.job, "sent", said))
        seat.state, seat.site, seat.reach_s = TRANSIT, int(outcome["site"]), float(reach_s)
        seat.moves = int(outcome["moves"])

    def _started(self, seat: Seat, happening: Happening) -> None:
        """Notes that a job starts, with what gang, clock, power and expected run time."""
        outcome = self.engine.world.outcome_R[seat.slot]
        seat.state, seat.site = STARTING, int(outcome["site"])
        seat.gpus, seat.level = int(outcome["gpus"]), int(outcome["level"])
        seat.start_s, seat.power_w = float(outcome["start_s"]), float(outcome["power_w"])
        about, work = seat.about, self.view.job_J["work"][seat.slot]
        seat.run_s = float(work * self.view.speed_KSCGF[SECONDS, seat.site, about.class_, seat.gpus, seat.level])
        said: dict[str, object] = {
            "serial": seat.serial, "site": seat.site, "gpus": seat.gpus, "level": seat.level,
            "arrival_s": about.arrival_s,
        }  # fmt: skip
        self.notes.append(Note(happening.at_s, about.job, "start decided", said))
        self.running.place(seat)

    def _forget(self, seat: Seat) -> None:
        del self.seat_of[seat.serial]
        self.unrouted.pop(seat.serial, None)
        self.ended.discard(seat.serial)

    def _change(self, seat: Seat) -> None:
        self.changed[seat.serial] = seat

    def drain_changes(self) -> tuple[list[Seat], list[Decision], list[Note]]:
        """Returns what has changed since the last call: jobs, decisions and notes."""
        self.running.keep_lives(self.changed.values())
        out = list(self.changed.values()), self.decisions, self.notes
        self.changed, self.decisions, self.notes = {}, [], []
        self._texts.forget()
        self.seat_of.pack()
        return out

    def keep_changes(self, seats: Iterable[Seat], decisions: Iterable[Decision], notes: Iterable[Note]) -> None:
        """Takes back what ``drain_changes`` returned and could not be stored; it comes before later changes."""
        self.changed = {seat.serial: seat for seat in seats} | self.changed
        self.decisions[:0] = decisions
        self.notes[:0] = notes

    # Restart.

    def restore(
        self,
        seats: Iterable[Seat],
        *,
        serial: int,
        place: int,
        now_s: float | None,
        average_T: Sequence[float] = (),
        spent_TA: Sequence[Sequence[float]] = (),
    ) -> None:
        """Puts jobs in sight back as they were stored.

        Args:
            seats: Jobs in sight, each with its slot.
            serial: Next number of an arrival.
            place: Next place in the order of joining queues.
            now_s: Time up to which events were taken, s; None if the service is new.
            average_T: GPUs that tenants have held on average, older use counting less; empty: without fair shares.
            spent_TA: What ended jobs have used of their tenants' budgets (``ToldEngine.remember_spent``); empty:
                without budgets.
        """
        self.serial, self.place = serial, place
        if now_s is not None:
            self.engine.set_now(now_s)
            self.asked_s = now_s
        standing, queued = [], []
        for seat in sorted(seats, key=lambda seat: seat.order):
            self.running.places = max(self.running.places, seat.running_place + 1)
            lives = seat.life is not None and self.engine.bends
            self.seat_of[seat.serial] = seat
            seat.asked = True
            states = {TRANSIT: TRAVELS, STARTING: RUNNING, SUSPENDED: TRAVELS}
            status = states.get(seat.state, QUEUED if seat.site >= 0 else PLANNED)
            if lives and seat.life is not None and seat.life["state"] == STOPS:
                status = TRAVELS
            outcome: dict[str, float] = {
                "status": status, "site": seat.site, "gpus": seat.gpus, "level": seat.level, "moves": seat.moves,
                "reach_s": seat.reach_s or 0.0, "start_s": np.nan if seat.start_s is None else seat.start_s,
            }  # fmt: skip
            about = seat.about
            standing.append(
                Standing(
                    seat.serial,
                    seat.slot,
                    about.columns(),
                    outcome,
                    seat.earliest_s,
                    seat.held,
                    about.tenant,
                    seat.life if lives else None,
                    seat.run_s or 0.0,
                    about.priority,
                )
            )
            if status == PLANNED:
                self.unrouted[seat.serial] = None
            elif status == QUEUED and not self._each_slot:
                queued.append(seat)
        self.engine.resume(standing)
        for seat in self.seat_of.each():
            self._note_plain(seat)
        if average_T:
            self.engine.remember_use(np.array(average_T))
        self._show_spending()
        if spent_TA:
            self.engine.remember_spent(np.array(spent_TA))
        for seat in queued:
            latest = latest_s(self.view, seat.slot, seat.site)
            if np.isfinite(latest):
                self.engine.lapse(seat.slot, latest)

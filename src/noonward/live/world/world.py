"""The books of a live service: an event-driven copy of the engine's world whose finishes are observed, not computed."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from noonward.arrays import I8
from noonward.decision.brief import Brief, check_fit
from noonward.decision.cluster.layout import ANSWER_PARTS, blank
from noonward.decision.cluster.view import (
    ASK_ALLOCATE,
    ASK_FINISHED,
    ASK_ROUTE,
    ASK_SLOT,
    HOLD,
    ORACLE,
    Answers,
)
from noonward.decision.scheduler import Scheduler
from noonward.live.world.curves import Curves
from noonward.live.world.hours import Hours
from noonward.live.world.kernels import fill_masks, fill_route, join_time, latest_s, room_at, travel_s
from noonward.live.world.seats import STARTING, TRANSIT, WAITING, Arrival, Decision, Note, Seat
from noonward.live.world.sight import ARRIVAL, DEADLINE, FINISH, HOUR, REACH, Sight
from noonward.units import HOUR_S


class World(Sight):
    """Jobs in sight, their queues and the free GPUs of every site, and the scheduler that is asked about them.

    It follows the rules of the engine (``noonward.engine.cluster.engine.ClusterEngine``): protocol each-slot asks every
    site about its waiting jobs at slot boundaries, protocol on-arrival asks the dispatcher at each arrival. What the
    engine computes is observed here: a job ends when its cluster says so.

    Beside the engine's rules, an operator may hold, pin and veto jobs, drain sites, and withhold GPUs. A drained site
    is masked; its waiting jobs may be moved away, and none of them is dropped because of it.

    Args:
        brief: Brief of the service.
        scheduler: Who is asked; it is reset.
        hours: Prices, intensities and forecasts, hour by hour; None where there are none.
        rng: Stream ``policy``.

    Raises:
        ScenarioError: The scheduler does not fit.

    Attributes:
        curves: Capacity curves that the scheduler sets; None where it sets none.
        journal: What was told from outside, in order (``again`` repeats it); None: it is not kept.
    """

    def __init__(self, brief: Brief, scheduler: Scheduler, hours: Hours | None, rng: np.random.Generator) -> None:
        check_fit(brief, scheduler.needs, type(scheduler).__name__)
        super().__init__(brief)
        self.scheduler, self.hours = scheduler, hours
        sites, kind = len(brief.sites), scheduler.needs.curves
        self.curves = None if kind is None else Curves(self.view.site_S["gpus"], hard=kind == "hard")
        self.journal: list[list[Any]] | None = None
        self._hour_waits = False
        self._opened: set[int] = set()
        self.answers = Answers(**blank(ANSWER_PARTS, askers=len(self.view.asked_N), sites=sites, limit_hours=0))
        self.drained: set[int] = set()
        self.asks = 0
        self._show_curves(0)
        scheduler.reset(brief, rng)

    @property
    def _hard(self) -> bool:
        """Whether curves limit what may start."""
        return self.curves is not None and self.curves.hard

    def _show_curves(self, hour: int) -> None:
        """Lets the scheduler set curves from an hour on."""
        if self.curves is not None:
            self.curves.cover(hour)
            if self.answers.limit_SH is not self.curves.limit_SH:
                self.answers = self.answers._replace(limit_SH=self.curves.limit_SH)

    def room(self, s: int) -> int:
        """Returns how many GPUs may start at a site now: its free ones, within a hard capacity curve."""
        if self.curves is None:
            return int(self.view.site_S["free"][s])
        return int(room_at(self.view, s, self.curves.limit_SH, self.curves.hard))

    def room_S(self) -> I8:
        """Returns ``room`` of every site."""
        return np.array([self.room(s) for s in range(len(self.queue_S))], np.int64)

    def restore(self, seats: Iterable[Seat], *, serial: int, place: int, now_s: float | None) -> None:
        """Puts jobs in sight back; queues under a hard curve are looked at again when the next hour begins."""
        super().restore(seats, serial=serial, place=place, now_s=now_s)
        for s in range(len(self.queue_S)):
            self._await_hour(s)

    # What happens outside.

    def arrive(self, arrivals: Iterable[Arrival]) -> None:
        """Adds jobs that have arrived, in the order of their arrival; one that was added and not yet taken, once."""
        added = {(one.job, one.attempt) for one in self._coming.values()}
        for one in arrivals:
            if (one.job, one.attempt) in added:
                continue
            self._told("arrive", *one[:-1], sorted(one.vetoed))
            serial, self.serial = self.serial, self.serial + 1
            self._coming[serial] = one
            heapq.heappush(self._events, (one.arrival_s, ARRIVAL, serial))

    def finish(self, serial: int, time_s: float) -> None:
        """Notes that a started job has given its GPUs back, not before the last question."""
        if serial in self.seat_of:
            self._told("finish", serial, max(time_s, self.now_s))
            heapq.heappush(self._events, (max(time_s, self.now_s), FINISH, serial))

    def withdraw(self, serial: int) -> None:
        """Takes a job that has not started out of the books at once."""
        self._told("withdraw", serial)
        self._coming.pop(serial, None)
        seat = self.seat_of.get(serial)
        if seat is None or seat.state == STARTING:
            return
        if seat.state == WAITING and seat.site >= 0:
            self._leave_queue(seat)
        self.unrouted.pop(serial, None)
        self._forget(seat)

    def drain(self, site: int, drained: bool) -> None:
        """Stops or resumes starts and moves at a site."""
        if (site in self.drained) == drained:
            return
        self._told("drain", site, drained)
        if not drained:
            self._opened.add(site)
        (self.drained.add if drained else self.drained.discard)(site)

    def withhold(self, site: int, gpus: int) -> None:
        """Sets how many GPUs of a site are not for the service: of nodes that are down, or held by jobs of others."""
        if gpus == self.withheld_S[site]:
            return
        self._told("withhold", site, gpus)
        if gpus < self.withheld_S[site]:
            self._opened.add(site)
        self.withheld_S[site] = gpus
        self._show_free(site)

    def steer(self, serial: int, held: bool, pinned: int, vetoed: Iterable[int]) -> None:
        """Holds, pins and vetoes a job in sight as its operator wants."""
        self._told("steer", serial, held, pinned, sorted(vetoed))
        seat = self.seat_of[serial]
        seat.held, seat.pinned, seat.vetoed = held, pinned, frozenset(vetoed)
        self._opened.add(seat.site)

    def _told(self, *what: Any) -> None:
        if self.journal is not None:
            self.journal.append(list(what))

    def again(self, what: str, *how: Any) -> None:
        """Repeats what a journal says was told."""
        if what == "arrive":
            self.arrive([Arrival._make([*how[:-1], frozenset(how[-1])])])
        else:
            getattr(self, {"run": "run_to"}.get(what, what))(*how)

    def forget_outside(self) -> None:
        """Forgets which sites are drained and what is withheld, as after a restart."""
        for s in range(len(self.queue_S)):
            self.drain(s, False)
            self.withhold(s, 0)
        self._opened.clear()

    # Time passes.

    def next_event_s(self) -> float:
        """Returns the time of the next event that is known, s; infinite for none."""
        if self._events and self._events[0][1] == HOUR and not any(self.queue_S):  # nothing is left to look at
            self._hour_waits = False
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else np.inf

    def next_slot_s(self) -> float:
        """Returns the next slot boundary with something to ask or to do, s; infinite where nothing is left."""
        slot_s = self.brief.slot_s
        if any(self.queue_S):
            return (np.floor(self.now_s / slot_s) + 1) * slot_s
        time_s = self.next_event_s()
        return float(np.ceil(time_s / slot_s) * slot_s) if np.isfinite(time_s) else np.inf

    def run_to(self, time_s: float) -> None:
        """Takes what has happened up to a time and asks about it.

        Args:
            time_s: s since the service's start; for protocol each-slot a slot boundary. Boundaries in between are
                skipped; one that was asked about before is not asked about again.
        """
        asks = self.asks
        self._told("run", time_s)
        try:
            self._run_to(time_s)
        finally:
            if self.journal and self.asks == asks and not (self.changed or self.notes):
                self.journal.pop()  # nothing came of it

    def _run_to(self, time_s: float) -> None:
        if self._each_slot:
            if time_s <= self.asked_s:
                return
            self.asked_s = time_s
            self._take_events(time_s)
            self._set_now(time_s)
            self._drop_overdue()
            self._ask_slot()
            return
        while self._events and self._events[0][0] <= time_s:
            self._take_next()
        if self.unrouted:
            self._set_now(time_s)
            for serial in list(self.unrouted):
                self._route(self.seat_of[serial])
        # An operator or the cluster may have made room; a curve that is raised counts from the next hour or event on.
        for s in self._opened if self._hard else range(len(self.queue_S)):
            if self.queue_S[s] and s not in self.drained and self._head_fits(s):
                self._set_now(time_s)
                self._dispatch(s)
        self._opened.clear()

    def _head_fits(self, s: int) -> bool:
        """Returns whether the first job of a queue that is not held could start now."""
        head = next(self._line(self.queue_S[s]), None)
        return head is not None and self.room(s) >= head.about.gpus_min

    def _take_events(self, until_s: float) -> None:
        """Takes all finishes, joins and arrivals up to a time (protocol each-slot)."""
        while self._events and self._events[0][0] <= until_s:
            time_s, kind, serial = heapq.heappop(self._events)
            self._set_now(time_s)
            if kind == ARRIVAL:
                if serial in self._coming:
                    seat = self._seat(serial)
                    self._join(seat, int(self.view.home_I[seat.about.origin]))
            elif serial in self.seat_of:
                seat = self.seat_of[serial]
                if kind == FINISH:
                    self._free(seat)
                else:
                    self._join(seat, seat.site)

    def _take_next(self) -> None:
        """Takes the next event (protocol on-arrival)."""
        time_s, kind, serial = heapq.heappop(self._events)
        if kind == ARRIVAL:
            if serial in self._coming:
                self._set_now(time_s)
                self._route(self._seat(serial))
            return
        if kind == HOUR:
            self._hour_waits = False
            self._set_now(time_s)
            for s in range(len(self.queue_S)):
                self._dispatch(s)
            return
        seat = self.seat_of.get(serial)
        if seat is None:
            return
        if kind == DEADLINE:
            if seat.state == WAITING and seat.site >= 0 and not seat.held:
                self._set_now(time_s)
                self._leave_queue(seat)
                self._give_up(seat)
                self._dispatch(seat.site)
            return
        self._set_now(time_s)
        if kind == FINISH:
            self._finished(seat)
            return
        if seat.earliest_s > self.now_s:
            heapq.heappush(self._events, (seat.earliest_s, REACH, serial))
            return
        self._join(seat, seat.site)
        latest = latest_s(self.view, seat.slot, seat.site)
        if np.isfinite(latest):
            heapq.heappush(self._events, (latest, DEADLINE, serial))
        self._dispatch(seat.site)

    def _finished(self, seat: Seat) -> None:
        """Frees the GPUs of a job, tells a scheduler that wants to know, and looks at the queue (on-arrival)."""
        self._give_back(seat)
        if self.scheduler.needs.finished:
            self.view.run_1["gpus"], self.view.run_1["level"] = seat.gpus, seat.level
            self._ask(ASK_FINISHED, seat.slot, seat.site)
        self._forget(seat)
        self._dispatch(seat.site)

    # Questions.

    def _ask(self, kind: int, slot: int = -1, site: int = -1) -> None:
        """Shows the hour, sets the defaults and asks the scheduler."""
        run = self.view.run_1
        run["kind"], run["site"] = kind, site
        if slot >= 0:
            self.view.asked_N[0] = slot
        self._show_curves(int(self.now_s // HOUR_S))
        if self.hours is not None:
            self.hours.show(self.view, int(self.now_s // HOUR_S))
        self.answers.answer_N[:] = (HOLD, 0, ORACLE, 0.0)
        if kind == ASK_ALLOCATE:
            seat = self.seat_of[int(self.view.job_J["serial"][slot])]
            self.answers.answer_N["gpus"], self.answers.answer_N["level"] = seat.gpus, seat.level
        self.asks += 1
        self.scheduler.decide(self.view, self.answers)

    def _ask_slot(self) -> None:
        """Asks every site about each of its waiting jobs, all sites at once (protocol each-slot)."""
        lines = [self._line(queue) for queue in self.queue_S]
        sites = range(len(lines))
        while True:
            asked = [next(line, None) for line in lines]
            if not any(asked):
                return
            self.view.asked_N[:] = [-1 if seat is None else seat.slot for seat in asked]
            fill_masks(self.view, self.room_S())
            for s, seat in enumerate(asked):
                if seat is not None:
                    self.restrict(seat, s)
            self._ask(ASK_SLOT)
            answers = [self.answers.answer_N[s].item() for s in sites]
            for s, seat in enumerate(asked):
                if seat is not None:
                    self._carry_out(seat, s, *answers[s])

    def _line(self, queue: dict[int, None]) -> Iterator[Seat]:
        """Yields the jobs of a queue that are not held."""
        seats = [self.seat_of[serial] for serial in queue]
        return iter([seat for seat in seats if not seat.held])

    def restrict(self, seat: Seat, asker: int) -> None:
        """Takes what the operator forbids out of a mask."""
        mask_A = self.view.mask_NA[asker]
        for d in self.drained | seat.vetoed:
            mask_A[1 + d] = 0
        if seat.pinned >= 0:
            kept = mask_A[1 + seat.pinned]
            mask_A[1:] = 0
            mask_A[1 + seat.pinned] = kept

    def _checked(self, seat: Seat, asker: int, choice: int, gpus: int, level: int) -> tuple[int, int, int]:
        """Returns an answer, or "hold" in place of one that is not feasible; a pin takes precedence."""
        mask_A, about = self.view.mask_NA[asker], seat.about
        if seat.pinned >= 0:
            choice = 1 + seat.pinned if mask_A[1 + seat.pinned] else HOLD
        site = choice - 1 if choice else seat.site
        good = (
            0 <= choice < len(mask_A)
            and (choice == HOLD or mask_A[choice])
            and (gpus == 0 or about.gpus_min <= gpus <= about.gpus_max)
            and (level == ORACLE or 0 <= level < int(self.view.site_S["levels"][max(site, 0)]))
        )
        if good:
            return choice, gpus, level
        said: dict[str, object] = {"choice": choice, "gpus": gpus, "level": level}
        self.notes.append(Note(self.now_s, about.job, "infeasible answer", said))
        return HOLD, 0, ORACLE

    def _carry_out(self, seat: Seat, s: int, choice: int, gpus: int, level: int, earliest_s: float) -> None:
        """Holds, starts or moves a site's job (protocol each-slot)."""
        choice, gpus, level = self._checked(seat, s, choice, gpus, level)
        self._decided(seat, s, choice, gpus, level, 0.0)
        if choice == HOLD:
            return
        self._leave_queue(seat)
        d = choice - 1
        if d == s:
            most = min(seat.about.gpus_max, gpus) if gpus > 0 else seat.about.gpus_max
            self._start(seat, s, min(most, self.room(s)), level)
            return
        joins_s = float(join_time(self.view, seat.slot, s, d))
        self._send(seat, d, joins_s)

    def _send(self, seat: Seat, site: int, at_s: float) -> None:
        """Lets a job travel to a site, where it arrives at a time."""
        if seat.about.move_gb > 0 and (self._each_slot or int(self.view.home_I[seat.about.origin]) != site):
            seat.moves += 1
        self.notes.append(
            Note(
                self.now_s, seat.about.job, "sent",
                {"serial": seat.serial, "from": seat.site, "site": site, "arrives_s": at_s},
            )
        )  # fmt: skip
        seat.state, seat.site, seat.reach_s = TRANSIT, site, at_s
        heapq.heappush(self._events, (at_s, REACH, seat.serial))
        self._change(seat)

    def _decided(self, seat: Seat, asker: int, choice: int, gpus: int, level: int, earliest_s: float) -> None:
        """Notes a decision; of several times that a job is held in a row, the first."""
        if choice == HOLD and seat.serial in self._asked_before:
            return
        self._asked_before.add(seat.serial)
        self.decisions.append(
            Decision(
                self.now_s, seat.about.job, seat.about.attempt, seat.serial, asker, choice, gpus, level, earliest_s,
                self.candidates(asker),
            )
        )  # fmt: skip

    def candidates(self, asker: int) -> list[dict[str, object]]:
        """Returns a row per site: whether it is feasible for an asker's job, its free GPUs, queue, price, intensity."""
        mask_A, site_S = self.view.mask_NA[asker], self.view.site_S
        return [
            {
                "site": name,
                "feasible": bool(mask_A[1 + s]),
                "free": int(site_S["free"][s]),
                "waiting": int(site_S["waiting"][s]),
                "price_usd_per_mwh": _known(site_S["price"][s]),
                "carbon_g_per_kwh": _known(site_S["carbon"][s]),
            }
            for s, name in enumerate(self.brief.sites)
        ]

    def _route(self, seat: Seat) -> None:
        """Asks the dispatcher where a job goes (protocol on-arrival).

        Raises:
            NoonwardError: The scheduler failed, e.g. no plan fits; the job is asked about again later.
        """
        if seat.held:
            self._leave_unrouted(seat)
            return
        if not fill_route(self.view, seat.slot):
            self.unrouted.pop(seat.serial, None)
            self._give_up(seat)
            return
        self.restrict(seat, 0)
        if not self.view.mask_NA[0].any():
            self._leave_unrouted(seat)
            return
        self._leave_unrouted(seat)
        self._ask(ASK_ROUTE, seat.slot)
        choice, gpus, level, earliest_s = self.answers.answer_N[0].item()
        choice, gpus, level = self._checked(seat, 0, choice, gpus, level)
        if choice == HOLD or not earliest_s <= latest_s(self.view, seat.slot, choice - 1):
            return
        self.unrouted.pop(seat.serial)
        self._decided(seat, 0, choice, gpus, level, earliest_s)
        seat.gpus, seat.level, seat.earliest_s = gpus, level, earliest_s
        origin = seat.about.origin
        self._send(seat, choice - 1, self.now_s + float(travel_s(self.view, seat.slot, origin, choice - 1)))

    def _leave_unrouted(self, seat: Seat) -> None:
        """Keeps a job that no site may take now; it is asked about again."""
        seat.state, seat.site = WAITING, -1
        self.unrouted[seat.serial] = None
        self._change(seat)

    def _dispatch(self, s: int) -> None:
        """Starts what the head of a site's queue allows (protocol on-arrival)."""
        if s not in self.drained:
            self._start_heads(s)
        self._await_hour(s)

    def _await_hour(self, s: int) -> None:
        """Has queues looked at again when the next hour begins, if one is left under a hard curve (on-arrival)."""
        if self._hard and self.queue_S[s] and not self._each_slot and not self._hour_waits:
            self._hour_waits = True
            heapq.heappush(self._events, ((self.now_s // HOUR_S + 1) * HOUR_S, HOUR, 0))

    def _start_heads(self, s: int) -> None:
        """Starts jobs from the head of a site's queue on, as long as there is room."""
        for serial in list(self.queue_S[s]):
            seat = self.seat_of[serial]
            if seat.held:
                continue
            if self.now_s > latest_s(self.view, seat.slot, s):
                self._leave_queue(seat)
                self._give_up(seat)
                continue
            if self.room(s) < seat.about.gpus_min:
                return
            gpus, level = seat.gpus, seat.level
            if self.scheduler.needs.allocate:
                self._ask(ASK_ALLOCATE, seat.slot, s)
                self.view.mask_NA[0] = 1
                _, gpus, level, _ = self.answers.answer_N[0].item()
                _, gpus, level = self._checked(seat, 0, 1 + s, gpus, level)
            self._leave_queue(seat)
            most = min(seat.about.gpus_max, gpus) if gpus > 0 else seat.about.gpus_max
            self._start(seat, s, min(most, self.room(s)), level)


def _known(value: float) -> float | None:
    """Returns a value, or None where it is unknown."""
    return None if np.isnan(value) else float(value)

"""The state of a live service's decisions: jobs in sight, their queues, free GPUs, and what has changed of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

import numpy as np

from noonward.decision.brief import Brief
from noonward.decision.cluster.assembly import make_view, with_slots
from noonward.decision.cluster.view import ORACLE, POWER_W, SECONDS
from noonward.live.world.kernels import latest_s, mark_overdue
from noonward.live.world.seats import OVERDUE, STARTING, TRANSIT, WAITING, Arrival, Decision, Note, Seat

FINISH, HOUR, REACH, ARRIVAL, DEADLINE = 0, 1, 2, 3, 4
"""Kinds of events; at one time they are taken in this order, then by the number of the arrival (as in the engine)."""
SLOTS: Final = 64
"""Rows of the view's table of jobs at first."""


class Sight:
    """Jobs in sight and where they stand, as the view shows them; asks nobody.

    Args:
        brief: Brief of the service.

    Attributes:
        view: What a scheduler is shown.
        seat_of: Jobs in sight by the number of their arrival.
        queue_S: Waiting jobs of each site, in their order.
        unrouted: Jobs that no site may take now (protocol on-arrival).
        taken_S: GPUs of started jobs.
        withheld_S: GPUs that are not for the service.
        serial: Number of the next arrival.
        place: Next place in the order of joining queues.
        now_s: Time up to which events were taken, s since the service's start.
        asked_s: Slot boundary that was asked about last.
        changed: Jobs that have changed since ``drain_changes``.
    """

    def __init__(self, brief: Brief) -> None:
        self.brief = brief
        self.view = make_view(brief, SLOTS)
        sites = len(brief.sites)
        self.seat_of: dict[int, Seat] = {}
        self.queue_S: list[dict[int, None]] = [{} for _ in range(sites)]
        self.unrouted: dict[int, None] = {}
        self.taken_S = np.zeros(sites, np.int64)
        self.withheld_S = np.zeros(sites, np.int64)
        self.serial = 0
        self.place = 0
        self.now_s = 0.0
        self.asked_s = -np.inf
        self.decisions: list[Decision] = []
        self.notes: list[Note] = []
        self.changed: dict[int, Seat] = {}
        self._each_slot = brief.protocol == "each-slot"
        self._free_slots = list(range(SLOTS - 1, -1, -1))
        self._events: list[tuple[float, int, int]] = []
        self._coming: dict[int, Arrival] = {}
        self._asked_before: set[int] = set()

    def _set_now(self, time_s: float) -> None:
        self.now_s = max(self.now_s, time_s)
        self.view.run_1["now_s"] = self.now_s

    def _seat(self, serial: int) -> Seat:
        """Gives an arriving job a slot of the view."""
        about = self._coming.pop(serial)
        seat = Seat(
            about=about, serial=serial, slot=self._take_slot(), held=about.held, pinned=about.pinned,
            vetoed=about.vetoed,
        )  # fmt: skip
        self._show(seat)
        self.seat_of[serial] = seat
        self._change(seat)
        return seat

    def _take_slot(self) -> int:
        if not self._free_slots:
            slots = len(self.view.job_J)
            self.view = with_slots(self.view, 2 * slots)
            self._free_slots = list(range(2 * slots - 1, slots - 1, -1))
        return self._free_slots.pop()

    def _show(self, seat: Seat) -> None:
        """Writes a job into its slot of the view."""
        row, about = self.view.job_J[seat.slot], seat.about
        row["arrival_s"], row["work"] = about.arrival_s, about.work
        row["deadline_s"] = about.arrival_s + about.max_delay_s
        row["move_gb"], row["result_gb"] = about.move_gb, about.result_gb
        row["origin"], row["class_"] = about.origin, about.class_
        row["gpus_min"], row["gpus_max"] = about.gpus_min, about.gpus_max
        row["preset_site"], row["serial"] = -1, seat.serial

    def _forget(self, seat: Seat) -> None:
        self.view.job_J[seat.slot]["serial"] = -1
        self._free_slots.append(seat.slot)
        del self.seat_of[seat.serial]
        self._asked_before.discard(seat.serial)

    def _change(self, seat: Seat) -> None:
        self.changed[seat.serial] = seat

    def _join(self, seat: Seat, site: int) -> None:
        """Appends a job to a site's queue."""
        seat.state, seat.site, seat.reach_s = WAITING, site, self.now_s
        seat.place, self.place = self.place, self.place + 1
        self._enter_queue(seat)
        self._change(seat)

    def _enter_queue(self, seat: Seat) -> None:
        self.queue_S[seat.site][seat.serial] = None
        self.view.site_S["waiting"][seat.site] += 1
        self.view.site_S["waiting_gpus"][seat.site] += seat.about.gpus_min

    def _leave_queue(self, seat: Seat) -> None:
        del self.queue_S[seat.site][seat.serial]
        self.view.site_S["waiting"][seat.site] -= 1
        self.view.site_S["waiting_gpus"][seat.site] -= seat.about.gpus_min

    def _give_up(self, seat: Seat) -> None:
        """Drops a job that can no longer start in time."""
        seat.state = OVERDUE
        self._change(seat)
        self.notes.append(Note(self.now_s, seat.about.job, OVERDUE, {"serial": seat.serial}))
        self._forget(seat)

    def _show_free(self, site: int) -> None:
        gpus = int(self.view.site_S["gpus"][site])
        self.view.site_S["free"][site] = max(0, gpus - int(self.taken_S[site]) - int(self.withheld_S[site]))

    def _free(self, seat: Seat) -> None:
        """Takes a job that has ended out of the books."""
        self._give_back(seat)
        self._forget(seat)

    def _give_back(self, seat: Seat) -> None:
        """Gives the GPUs of a job that has ended back."""
        seat.freed_s = self.now_s
        self.taken_S[seat.site] -= seat.gpus
        self._show_free(seat.site)
        self._change(seat)

    def _start(self, seat: Seat, site: int, gpus: int, level: int) -> None:
        """Starts a job now: takes GPUs, fixes clock, power and expected run time."""
        about = seat.about
        if level == ORACLE:
            level = int(self.view.oracle_SCG[site, about.class_, gpus])
        speed = self.view.speed_KSCGF[:, site, about.class_, gpus, level]
        seat.state, seat.site, seat.gpus, seat.level, seat.start_s = STARTING, site, gpus, level, self.now_s
        seat.run_s = float(about.work * speed[SECONDS])
        seat.power_w = float(speed[POWER_W] * self.view.site_S["pue"][site])
        self.taken_S[site] += gpus
        self._show_free(site)
        self._change(seat)
        self.notes.append(Note(self.now_s, about.job, "start decided", self._said(seat)))

    def _said(self, seat: Seat) -> dict[str, object]:
        return {
            "serial": seat.serial, "site": seat.site, "gpus": seat.gpus, "level": seat.level,
            "arrival_s": seat.about.arrival_s,
        }  # fmt: skip

    def _drop_overdue(self) -> None:
        """Drops every waiting job that can no longer start in time; sites that are drained count as open."""
        seats = [self.seat_of[serial] for queue in self.queue_S for serial in queue]
        if not seats:
            return
        slot_Q = np.array([seat.slot for seat in seats], np.int64)
        site_Q = np.array([seat.site for seat in seats], np.int64)
        late_Q = np.zeros(len(seats), np.uint8)
        mark_overdue(self.view, slot_Q, site_Q, late_Q)
        for q in np.flatnonzero(late_Q).tolist():
            self._leave_queue(seats[q])
            self._give_up(seats[q])

    # Restart.

    def restore(self, seats: Iterable[Seat], *, serial: int, place: int, now_s: float | None) -> None:
        """Puts jobs in sight back as they were stored.

        Args:
            seats: Jobs in sight, each with its slot.
            serial: Next number of an arrival.
            place: Next place in the order of joining queues.
            now_s: Time up to which events were taken, s; None if the service is new.
        """
        seats = sorted(seats, key=lambda seat: seat.place)
        slots = len(self.view.job_J)
        while slots <= max((seat.slot for seat in seats), default=0):
            slots *= 2
        self.view = with_slots(self.view, slots)
        taken = {seat.slot for seat in seats}
        self._free_slots = [slot for slot in range(slots - 1, -1, -1) if slot not in taken]
        self.serial, self.place = serial, place
        if now_s is not None:
            self._set_now(now_s)
            self.asked_s = now_s
        for seat in seats:
            self.seat_of[seat.serial] = seat
            self._asked_before.add(seat.serial)
            self._show(seat)
            self._resume(seat)

    def _resume(self, seat: Seat) -> None:
        """Puts a job back where it stood."""
        if seat.state == TRANSIT:
            heapq.heappush(self._events, (max(float(seat.reach_s or 0.0), seat.earliest_s), REACH, seat.serial))
        elif seat.state == WAITING and seat.site >= 0:
            self._enter_queue(seat)
            latest = latest_s(self.view, seat.slot, seat.site)
            if not self._each_slot and np.isfinite(latest):
                heapq.heappush(self._events, (latest, DEADLINE, seat.serial))
        elif seat.state == WAITING:
            self.unrouted[seat.serial] = None
        else:
            self.taken_S[seat.site] += seat.gpus
            self._show_free(seat.site)

    def drain_changes(self) -> tuple[list[Seat], list[Decision], list[Note]]:
        """Returns what has changed since the last call: jobs, decisions and notes."""
        out = list(self.changed.values()), self.decisions, self.notes
        self.changed, self.decisions, self.notes = {}, [], []
        return out

    def keep_changes(self, seats: Iterable[Seat], decisions: Iterable[Decision], notes: Iterable[Note]) -> None:
        """Takes back what ``drain_changes`` returned and could not be stored; it comes before later changes."""
        self.changed = {seat.serial: seat for seat in seats} | self.changed
        self.decisions[:0] = decisions
        self.notes[:0] = notes

"""Running jobs in a service's books: what is asked about them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import numpy as np

from noonward.decision.brief import Brief
from noonward.decision.cluster.feasibility import is_suspended
from noonward.decision.cluster.lives import may_cap, may_start_capped, resume_gang
from noonward.decision.cluster.view import HOLD, KEEP, RUNS, ClusterView
from noonward.engine.cluster.kernels.world import A_CAP, HALTED, RAN_ON, RESUMED, STOPPING
from noonward.engine.cluster.told import Happening, ToldEngine
from noonward.live.world.seats import STARTING, SUSPENDED, Note, Seat, Seats

SUSPEND_DECIDED, RESUME_DECIDED, CAP_DECIDED = "suspend decided", "resume decided", "cap decided"
"""Events of what a scheduler decided about running jobs."""
DECIDED: Final = (SUSPEND_DECIDED, RESUME_DECIDED, CAP_DECIDED)


class OfBooks(Protocol):
    """What is needed of a service's books (``World``)."""

    engine: ToldEngine
    brief: Brief
    seat_of: Seats
    drained: set[int]
    ended: set[int]
    notes: list[Note]
    changed: dict[int, Seat]

    @property
    def view(self) -> ClusterView:
        """What the scheduler is shown."""

    @property
    def now_s(self) -> float:
        """Time up to which events were taken, s."""

    def note_told(self, *what: Any) -> None:
        """Notes in the journal what was told from outside."""

    def note_infeasible(self, seat: Seat, said: dict[str, object]) -> None:
        """Notes an answer that is not possible."""


class RunningJobs:
    """The part of a service's books that is about running jobs which may be suspended, resized or capped.

    Args:
        world: The books.

    Attributes:
        places: Next place in the order in which jobs begin to run.
    """

    def __init__(self, world: OfBooks) -> None:
        self._world, self.places = world, 0

    def place(self, seat: Seat) -> None:
        """Gives a job that begins to run, or to run on, its place among those that run."""
        seat.running_place, self.places = self.places, self.places + 1

    def next_question_s(self) -> float:
        """Returns when running jobs are asked about next, s; infinite: there are none, or never."""
        world = self._world
        if not (world.engine.bends and world.brief.signals and (world.engine.world.state_S["running"] >= 0).any()):
            return np.inf
        part_s = float(world.engine.world.engine_1["part_s"][0])
        return float((np.floor(world.now_s / part_s) + 1) * part_s)

    def told(self, what: str, serial: int, time_s: float, *more: int) -> None:
        """Takes what a cluster says of a running job, and passes over what is not awaited.

        Args:
            what: ``stopped``, ``runs_on``, ``began`` or ``capped``.
            serial: Number of its arrival.
            time_s: When that was, s; not before the last question.
            more: The power cap of ``capped``.
        """
        world = self._world
        seat = world.seat_of.get(serial)
        if seat is None or not world.engine.bends or serial in world.ended:
            return
        if seat.site >= 0 and world.engine.world.state_S["modelled"][seat.site]:
            return
        world.note_told(what, serial, time_s, *more)
        if what == "capped":
            world.engine.capped(seat.slot, more[0], time_s)
            seat.cap = more[0]
        else:
            getattr(world.engine, what)(seat.slot, time_s)
        world.changed[serial] = seat

    def renew(self, time_s: float) -> None:
        """Expects jobs to run longer that run though they were expected to have ended by now."""
        world = self._world
        for seat in world.seat_of.begun():
            if seat.serial in world.ended:
                continue
            life = world.view.life_J[seat.slot]
            if life["state"] == RUNS and life["until_s"] <= world.now_s:
                world.engine.outlive(seat.slot)
                world.changed[seat.serial] = seat

    def check_answers(self) -> None:
        """Replaces answers about running jobs that are not possible: these run on."""
        world, answers = self._world, self._world.engine.answers
        for s, slot in world.view.asked():
            seat = world.seat_of[int(world.view.job_J["serial"][slot])]
            choice, cap = int(answers.answer_N["choice"][s]), int(answers.answer_N["cap"][s])
            mask_A = world.view.mask_NA[s]
            if choice == 1 + s and s in world.drained:
                answers.hold(s)  # nothing is resumed there
                continue
            good = choice in (HOLD, 1 + s) and bool(mask_A[choice])
            if cap != KEEP:
                good = good and choice == HOLD and self._has_cap(seat, cap) and bool(may_cap(world.view, slot))
            if not good:
                world.note_infeasible(seat, {"choice": choice, "cap": cap})
                answers.hold(s)

    def _has_cap(self, seat: Seat, cap: int) -> bool:
        return 0 <= cap <= int(self._world.view.freedom_C["caps"][seat.about.class_])

    def checked_start(self, seat: Seat, s: int, gpus: int, cap: int) -> tuple[int, int, int]:
        """Returns choice, largest gang and power cap of a start; hold in place of one that is not possible."""
        world, slot = self._world, seat.slot
        if not world.engine.bends and cap in (KEEP, 0):
            return 1 + s, gpus, KEEP
        most = min(gpus or int(world.view.job_J["gpus_max"][slot]), world.engine.room_for(slot, s))
        good = not is_suspended(world.view, slot) or resume_gang(world.view, slot, most) > 0
        if cap not in (KEEP, 0):
            good = good and self._has_cap(seat, cap) and bool(may_start_capped(world.view, slot, s, most))
        if good:
            return 1 + s, gpus, cap
        world.note_infeasible(seat, {"choice": 1 + s, "gpus": gpus, "cap": cap})
        return HOLD, 0, KEEP

    def happened(self, seat: Seat, happening: Happening) -> None:
        """Takes what has become of a running job."""
        world, said = self._world, {"serial": seat.serial, "site": seat.site}
        if happening.what == STOPPING:
            seat.cap = 0
            self._note(happening.at_s, seat, SUSPEND_DECIDED, said)
        elif happening.what == HALTED:
            seat.state = SUSPENDED
        elif happening.what == RESUMED:
            outcome, life = world.engine.world.outcome_R[seat.slot], world.view.life_J[seat.slot]
            seat.state, seat.gpus, seat.power_w = STARTING, int(outcome["gpus"]), float(outcome["power_w"])
            seat.resumed_s, seat.cap = happening.at_s, int(life["cap"])
            self._note(happening.at_s, seat, RESUME_DECIDED, {**said, "gpus": seat.gpus, "cap": seat.cap})
        elif happening.what == RAN_ON:
            self.place(seat)
        else:
            self._cap_changed(seat, happening.at_s)

    def _cap_changed(self, seat: Seat, at_s: float) -> None:
        """Notes a power cap that was decided."""
        world = self._world
        bent = world.engine.world.bent_J[seat.slot]
        cap = int(bent["wants"] if bent["awaits"] == A_CAP else world.view.life_J["cap"][seat.slot])
        if cap != seat.cap:
            seat.cap = cap
            share = float(world.view.freedom_C["cap_power"][seat.about.class_, cap])
            self._note(at_s, seat, CAP_DECIDED, {"serial": seat.serial, "site": seat.site, "cap": cap, "power": share})

    def _note(self, at_s: float, seat: Seat, kind: str, said: dict[str, int] | dict[str, float]) -> None:
        self._world.notes.append(Note(at_s, seat.about.job, kind, dict(said)))

    def keep_lives(self, seats: Iterable[Seat]) -> None:
        """Notes beside jobs what they have lived through, so that they can be put back after a restart."""
        world = self._world
        if not world.engine.bends:
            return
        for seat in seats:
            if seat.state in (STARTING, SUSPENDED) and seat.freed_s is None:
                seat.life = world.engine.life(seat.slot)
                seat.finish_s = seat.life["outcome.finish_s"] if seat.state == STARTING else None
                if seat.finish_s is not None and np.isfinite(seat.finish_s):
                    seat.run_s = seat.finish_s - float(seat.resumed_s or seat.start_s or 0.0)
                else:
                    seat.finish_s = None

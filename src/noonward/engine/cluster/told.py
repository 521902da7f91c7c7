"""The engine told from outside: a live service's clusters say what arrives and ends, the rules are a simulation's."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from noonward.arrays import F8, I8
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.view import LIFE, WAITS
from noonward.engine.cluster.build import signal_table, told_world, with_more_journeys, with_more_slots
from noonward.engine.cluster.kernels import loops
from noonward.engine.cluster.kernels.told import (
    AWAIT_HOUR,
    BEGAN,
    COUNT_DUE,
    EVENT_AT,
    HEAD_FITS,
    MASK,
    NO_HOUR,
    OUTLIVE,
    QUEUE,
    QUOTA,
    ROOM,
    ROOM_FOR,
    ROUTE,
    SET_CAP,
    SHOW_FREE,
    STAND,
    TAKE,
    WITHDRAW,
    tell,
)
from noonward.engine.cluster.kernels.world import (
    DEADLINE,
    FINISH,
    HARD_CAPS,
    HOUR,
    KEPT,
    KIND_SHIFT,
    PLANNED,
    REACH,
    RUNNING,
    SERIAL_SHIFT,
    STOPPED,
    TRANSIT,
)
from noonward.engine.cluster.stepped import SteppedEngine
from noonward.model.cluster.jobs import SUBMITTED
from noonward.model.cluster.power_limit import limit_w
from noonward.model.cluster.setting import Setting
from noonward.model.cluster.tenant import AMOUNTS
from noonward.model.signals import SiteSignals

EVENTS_A_JOB: Final = 8
"""Events and happenings that a job in sight adds to a world between two questions, at most."""
AT_ONCE: Final = 1000
"""Happenings that are made objects at once: other threads get their turn in between."""
OF_JOB: Final = ("work", "expected", "deadline_s", "gpus_min", "gpus_max")
"""Fields of a JOB record that change as a job is suspended, resized and capped."""
OF_OUTCOME: Final = ("start_s", "finish_s", "power_w")
"""Fields of its JOB_OUTCOME record that are kept with them."""


class Happening(NamedTuple):
    """What has happened to a job."""

    what: int
    """TAKEN, JOINED, SENT, STARTED, FREED, DROPPED, STOPPING, HALTED, RESUMED, RAN_ON or CAPS."""
    at_s: float
    serial: int
    slot: int


class Standing(NamedTuple):
    """A job in sight, as it stood when a service ended."""

    serial: int
    """Number of its arrival."""
    slot: int
    columns: dict[str, float]
    """Fields of its JOB record; of all jobs the same."""
    outcome: dict[str, float]
    """Fields of its JOB_OUTCOME record: status, site, gpus, level, moves, reach_s; status PLANNED is a job that
    waits for a site to be sent to."""
    earliest_s: float
    """Earliest start that was asked for, s."""
    held: bool
    """Whether an operator holds it."""
    tenant: int = 0
    """Whose it is, where tenants are stated."""
    life: dict[str, float] | None = None
    """What it had lived through (``ToldEngine.life``), of a job that has run and may be suspended or capped."""
    run_s: float = 0.0
    """Expected run time of a running job, s."""
    priority: int = 0
    """Jobs of a higher one come first, where priorities are stated."""


class ToldEngine(SteppedEngine):
    """The cluster engine without an environment: arrivals, finishes and withheld GPUs are told from outside.

    Rules and masks are those of ``ClusterEngine``: the same compiled functions run. ``begin`` says up to which time all
    is told; ``step`` then runs to the next question, which its caller answers in ``answers`` (or passes over with
    ``skip``), until it returns 0. ``happened`` tells what became of jobs meanwhile. Signals and forecasts are written
    into the view by the caller before it answers.

    Args:
        brief: Brief of the service.
        needs: What the scheduler needs.
        modelled_S: Sites at which running jobs do at once what the model says; at the others their clusters confirm
            what they are asked to do. None: all sites.
        keeps_S: Sites at which stopped jobs keep their GPUs; None: none.
    """

    def __init__(
        self,
        brief: Brief,
        needs: Needs,
        modelled_S: Sequence[bool] | None = None,
        keeps_S: Sequence[bool] | None = None,
    ) -> None:
        super().__init__(told_world(brief, needs), brief.protocol)
        self.world.state_S["modelled"] = True if modelled_S is None else modelled_S
        self.world.state_S["keeps"] = False if keeps_S is None else keeps_S
        self._setting: Setting = brief
        self._coming: list[tuple[float, int, bytes]] = []
        self._submitted = True

    @property
    def now_s(self) -> float:
        """Time of the last event or question, s."""
        return float(self.view.run_1["now_s"][0])

    @property
    def taken_S(self) -> I8:
        """GPUs of started jobs, per site."""
        return self.world.state_S["taken"]

    @property
    def waiting(self) -> bool:
        """Whether a job waits in a queue."""
        return bool(self.view.site_S["waiting"].any())

    def set_now(self, time_s: float) -> None:
        """Lets time pass, never back."""
        self.view.run_1["now_s"] = max(self.now_s, time_s)

    def ask_about_running(self, site: int) -> None:
        """Has the scheduler asked about a site's running jobs in the next slot: something has changed for them."""
        self.world.state_S["changed"][site] = 1

    def use_curves(self, limit_SH: F8) -> None:
        """Takes an array of capacity curves, which the scheduler sets, in the place of the last one."""
        if self.world.caps_SH is not limit_SH:
            self.world = self.world._replace(caps_SH=limit_SH, answers=self.answers._replace(limit_SH=limit_SH))

    def remember_use(self, average_T: F8) -> None:
        """Sets what each tenant has held on average up to now, older use counting less (``Tenants.half_life_h``)."""
        self.world.tenant_T["average"], self.world.tenant_T["average_s"] = average_T, self.now_s

    @property
    def budgets(self) -> bool:
        """Whether a tenant has a budget."""
        return bool(self.world.engine_1["budgets"][0])

    def use_signals(self, signals: SiteSignals) -> None:
        """Sets the signals from the service's start up to now that budgets are settled by, and counts running jobs."""
        table_KSP = signal_table(signals)
        parts = round(signals.part_s / float(self.world.engine_1["part_s"][0]))
        if parts > 1:
            edges = np.arange((table_KSP.shape[2] - 1) * parts + 1) / parts
            fine_KSP = table_KSP[:, :, np.floor(edges).astype(np.int64)]
            whole = np.arange(table_KSP.shape[2])
            for k, s in np.ndindex(len(table_KSP) - 2, table_KSP.shape[1]):
                fine_KSP[2 + k, s] = np.interp(edges, whole, table_KSP[2 + k, s])
            table_KSP = fine_KSP
        self.world = self.world._replace(signal_KSH=table_KSP)
        self.count_due()

    def count_due(self) -> None:
        """Counts again what running jobs are expected to use of their tenants' budgets."""
        self._tell(COUNT_DUE)

    def remember_spent(self, spent_TA: F8) -> None:
        """Sets what the jobs of each tenant that began in the present period and have ended have used: AMOUNTS."""
        self.count_due()
        for amount, spent_T in zip(AMOUNTS, spent_TA.T, strict=True):
            self.world.tenant_T[f"spent_{amount}"] = spent_T

    def quota_room(self, slot: int) -> int:
        """Returns how many GPUs the tenant of a job in sight may take now; GPUs of all sites where none is stated."""
        if not self.world.engine_1["tenants"][0]:
            return int(self.view.site_S["gpus"].sum())
        return self._tell(QUOTA, job=slot)

    # What is told.

    def arrive(self, serial: int, **columns: float) -> None:
        """Tells of a job that arrives.

        Args:
            serial: Its number, above those of all jobs told of before.
            columns: Fields of its SUBMITTED record.
        """
        work = columns["work"]
        known = {"preset_site": -1, "expected": work, "told": work, **columns, "serial": serial}
        record = np.array(tuple(known.get(name, 0) for name in SUBMITTED.names or ()), SUBMITTED)
        bisect.insort(self._coming, (columns["arrival_s"], serial, record.tobytes()))
        self._submitted = False

    def recall(self, serial: int) -> None:
        """Takes back a job that has not come in sight."""
        self._coming = [one for one in self._coming if one[1] != serial]
        self._submitted = False

    def finish(self, slot: int, time_s: float) -> None:
        """Tells that a started job gives its GPUs back."""
        self._tell(EVENT_AT + FINISH, job=slot, time=max(time_s, self.now_s))

    @property
    def bends(self) -> bool:
        """Whether running jobs may be suspended or capped."""
        return bool(self.world.engine_1["bends"][0])

    def stopped(self, slot: int, time_s: float) -> None:
        """Tells that a job which was to be suspended has stopped."""
        self._tell(EVENT_AT + STOPPED, job=slot, time=max(time_s, self.now_s))

    def runs_on(self, slot: int, time_s: float) -> None:
        """Tells that a job which was to be suspended is not: its cluster does not stop it."""
        self._tell(EVENT_AT + KEPT, job=slot, time=max(time_s, self.now_s))

    def began(self, slot: int, time_s: float) -> None:
        """Tells that a job which was to be resumed began to load its checkpoint."""
        self._tell(BEGAN, job=slot, time=time_s)

    def capped(self, slot: int, cap: int, time_s: float) -> None:
        """Tells under which power cap a cluster has put a running job."""
        self._tell(SET_CAP, job=slot, s=cap, time=max(time_s, self.now_s))

    def outlive(self, slot: int) -> None:
        """Expects a job to run longer, if it was expected to have ended by now."""
        self._tell(OUTLIVE, job=slot)

    def life(self, slot: int) -> dict[str, float]:
        """Returns what a job has lived through, so that it can be put back (``Standing.life``).

        Fields of its LIFE and BENT records, and those of its JOB and JOB_OUTCOME records that change with them; times
        in s since the service's start.
        """
        world = self.world
        record = world.shown.life_J[slot], world.bent_J[slot]
        found = {name: part[name].item() for part in record for name in part.dtype.names}
        found |= {f"job.{name}": world.shown.job_J[slot][name].item() for name in OF_JOB}
        return found | {f"outcome.{name}": world.outcome_R[slot][name].item() for name in OF_OUTCOME}

    def _put_back(self, slot: int, life: dict[str, float]) -> None:
        """Puts back what a job has lived through."""
        world = self.world
        parts = {"job": world.shown.job_J, "outcome": world.outcome_R}
        for name, value in life.items():
            where, _, field = name.rpartition(".")
            if where:
                parts[where][field][slot] = value
            else:
                (world.shown.life_J if name in (LIFE.names or ()) else world.bent_J)[name][slot] = value

    def withdraw(self, slot: int) -> None:
        """Takes a job that has not started, or is suspended, out of sight at once."""
        self._tell(WITHDRAW, job=slot)

    def hold(self, slot: int, held: bool) -> None:
        """Holds a job in sight, or releases it."""
        self.world.track_J["held"][slot] = held

    def drain(self, site: int, drained: bool) -> None:
        """Stops or resumes starts from a site's queue (protocol on-arrival; each-slot: mask them)."""
        self.world.state_S["drained"][site] = drained

    def withhold(self, site: int, gpus: int) -> None:
        """Sets how many GPUs of a site no job may take."""
        self.world.state_S["withheld"][site] = gpus
        self._tell(SHOW_FREE, s=site)

    def lapse(self, slot: int, time_s: float) -> None:
        """Drops a job if it still waits at a time (protocol on-arrival)."""
        self._tell(EVENT_AT + DEADLINE, job=slot, time=time_s)

    def resume(self, standing: Sequence[Standing]) -> None:
        """Puts jobs back in sight as they stood when a service ended; nothing is reported of them.

        Args:
            standing: Jobs in sight, in the order in which they joined queues.
        """
        most = max((one.slot for one in standing), default=-1)
        while most >= len(self.world.track_J):
            self.world = with_more_slots(self.world)
        slot_K = np.array([one.slot for one in standing], np.int64)
        job_J, outcome_J, track_J = self.view.job_J, self.world.outcome_R, self.world.track_J
        job_J["preset_site"][slot_K] = -1
        job_J["serial"][slot_K] = [one.serial for one in standing]
        columns_K, outcome_K = [one.columns for one in standing], [one.outcome for one in standing]
        for records_J, told_K in ((job_J, columns_K), (outcome_J, outcome_K)):
            for name in told_K[0] if told_K else ():
                records_J[name][slot_K] = [told[name] for told in told_K]
        track_J["next"][slot_K] = track_J["before"][slot_K] = -1
        track_J["row"][slot_K] = slot_K
        track_J["earliest_s"][slot_K] = [one.earliest_s for one in standing]
        track_J["held"][slot_K] = [one.held for one in standing]
        track_J["tenant"][slot_K] = [one.tenant for one in standing]
        track_J["priority"][slot_K] = [one.priority for one in standing]
        self._make_room()
        for one in standing:
            status, site = one.outcome["status"], int(one.outcome["site"])
            if self.bends:
                self._live_again(one)
            if one.life is not None:
                if one.life["state"] == WAITS:
                    self._tell(QUEUE, job=one.slot, s=site)
                    self.world.outcome_R["reach_s"][one.slot] = one.outcome["reach_s"]
                self._tell(STAND, job=one.slot, s=site)
            elif status == TRANSIT:
                track_J["reach_s"][one.slot] = one.outcome["reach_s"]
                tell(self._address(), EVENT_AT + REACH, one.slot, 0, max(one.outcome["reach_s"], one.earliest_s))
            elif status == RUNNING:
                track_J["reach_s"][one.slot] = one.run_s
                tell(self._address(), TAKE, one.slot, site, 0.0)
            elif status != PLANNED:
                tell(self._address(), QUEUE, one.slot, site, 0.0)
        self._free_slots()
        for s in range(len(self.world.state_S)):
            self._tell(AWAIT_HOUR, s=s)
        self.world.engine_1["journeys"] = 0
        self.world.engine_1["part_shown"] = int(max(self.now_s, 0.0) / self.world.engine_1["part_s"][0])

    def _live_again(self, one: Standing) -> None:
        """Puts back what a job has lived through; one that has not run has lived through nothing."""
        slot = one.slot
        self.world.shown.life_J[slot] = np.zeros(1, LIFE)[0]
        self.world.bent_J[slot] = np.zeros(1, self.world.bent_J.dtype)[0]
        nothing = {"site": -1, "level": -1, "until_s": np.inf, "speed": 1.0, "rate": 1.0, "lift_s": np.inf}
        of_bent = {"left": one.columns["work"], "noted": -1, "fails_gpu_s": np.inf}
        self._put_back(slot, {**nothing, **of_bent, **(one.life or {})})

    def _free_slots(self) -> None:
        """Makes the slots without a job free."""
        engine, serial_J = self.world.engine_1, self.view.job_J["serial"]
        used = int(np.flatnonzero(serial_J >= 0).max(initial=-1)) + 1
        engine["new_slot"], engine["free_slot"] = used, -1
        for slot in np.flatnonzero(serial_J[:used] < 0)[::-1].tolist():
            self.world.track_J["next"][slot] = engine["free_slot"][0]
            engine["free_slot"] = slot

    # Time passes.

    def next_event_s(self) -> float:
        """Returns the time of the next event that is known, s; infinite for none."""
        heap_E, engine = self.world.heap_E, self.world.engine_1
        if engine["heap_size"][0] and heap_E["item"][0] >> KIND_SHIFT == HOUR and not self.waiting:
            self._tell(NO_HOUR)
        events_s = [float(heap_E["time"][0])] if engine["heap_size"][0] else []
        return min([*events_s, *(time_s for time_s, *_ in self._coming[:1])], default=np.inf)

    def begin(self, time_s: float) -> None:
        """Says up to which time all is told, s; under each-slot the slot boundary that is asked about."""
        engine = self.world.engine_1
        engine["told_s"], engine["in_slot"] = time_s, 0
        self.world.state_S["limit_w"] = limit_w(self._setting, np.array([max(time_s, 0.0)]))[0]
        if self.each_slot:
            engine["until_s"] = time_s
        self.skip()

    def step(self) -> int:
        """Carries out the answers to the last question and runs to the next.

        Returns:
            Kind of the next question (ASK_...), or 0 when all that was told has been taken.
        """
        self._make_room()
        kind = self._step()
        self._pass_arrivals()
        assert kind >= 0, "answers are checked before they are carried out"
        return kind

    def step_under(self, rule: int, asked: Callable[[], int]) -> tuple[int, int]:
        """Does what ``step`` does under a compiled rule that answers some questions (protocol each-slot).

        Args:
            rule: Its address.
            asked: Returns the address that it is called with, for the arrays as they are.

        Returns:
            Kind of the first question that it leaves, or 0 when all that was told has been taken; how many it answered.
        """
        self._make_room()
        steps = int(self.world.engine_1["steps"][0])
        code = self._provided(lambda: int(loops.run_each_slot(self._address(), rule, asked(), np.inf, 1)))
        assert code >= 0, "answers are checked before they are carried out"
        self._pass_arrivals()
        kind = int(self.view.run_1["kind"][0]) if code else 0
        return kind, int(self.world.engine_1["steps"][0]) - steps - bool(kind)

    def skip(self) -> None:
        """Passes over the last question: its answers are not carried out."""
        self.view.run_1["kind"] = 0

    def route(self, slot: int, time_s: float) -> int:
        """Asks the dispatcher again about a job it has not sent; returns the question's kind, or 0 if it is dropped."""
        return self._tell(ROUTE, job=slot, time=time_s)

    def look_at(self, site: int, time_s: float) -> bool:
        """Has ``step`` look at a site's queue, if its first job could start now; returns whether it could."""
        if self.world.state_S["drained"][site] or not self._tell(HEAD_FITS, s=site):
            return False
        self.set_now(time_s)
        self.world.engine_1["dispatch"] = self.world.engine_1["dispatch_last"] = site
        return True

    def room(self, site: int) -> int:
        """Returns how many GPUs may start at a site now: its free ones, within a hard capacity curve."""
        return self._tell(ROOM, s=site)

    def room_for(self, slot: int, site: int) -> int:
        """Returns on how many GPUs a job that waits at a site may start there now."""
        return self._tell(ROOM_FOR, job=slot, s=site)

    def show_mask(self, slot: int, asker: int) -> None:
        """Shows in ``mask_NA`` what an asker (each-slot: a site, else -1) may do with a job now."""
        self._tell(MASK, job=slot, s=asker)

    def happened(self) -> Iterator[Happening]:
        """Returns what has happened to jobs since the last call, in order."""
        engine, heap_E = self.world.engine_1, self.world.heap_E
        noted_E = heap_E[len(heap_E) - int(engine["journeys"][0]) :][::-1].copy()
        engine["journeys"] = 0
        slots, serials = (1 << SERIAL_SHIFT) - 1, (1 << (KIND_SHIFT - SERIAL_SHIFT)) - 1
        return (
            Happening(item >> KIND_SHIFT, time_s, (item >> SERIAL_SHIFT) & serials, item & slots)
            for first in range(0, len(noted_E), AT_ONCE)
            for time_s, item in noted_E[first : first + AT_ONCE].tolist()
        )

    @property
    def hard(self) -> bool:
        """Whether capacity curves limit what may start."""
        return int(self.world.engine_1["caps"][0]) == HARD_CAPS

    def _tell(self, what: int, *, job: int = 0, s: int = 0, time: float = 0.0) -> int:
        self._make_room()
        return int(tell(self._address(), what, job, s, time))

    def _provide(self, what: int) -> None:
        super()._provide(what)
        self._make_room()

    def _make_room(self) -> None:
        """Provides the jobs that arrive, and room for what may happen to all in sight."""
        engine = self.world.engine_1[0]
        if not self._submitted:
            records = bytearray().join(record for *_, record in self._coming)
            self.world = self.world._replace(submitted_R=np.frombuffer(records, SUBMITTED))
            self._submitted = True
        jobs = len(self.world.track_J) + len(self._coming)
        while engine["heap_size"] + engine["journeys"] + EVENTS_A_JOB * jobs > len(self.world.heap_E):
            self.world = with_more_journeys(self.world)

    def _pass_arrivals(self) -> None:
        """Forgets the arrivals that have been taken."""
        taken = int(self.world.engine_1["next_arrival"][0])
        if taken:
            del self._coming[:taken]
            self.world.engine_1["next_arrival"] = 0
            left_R = self.world.submitted_R[taken:]
            # A part, even an empty one, would keep the records of all that arrived with it.
            self.world = self.world._replace(submitted_R=left_R if len(left_R) else left_R.copy())

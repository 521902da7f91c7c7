"""Booking: at a job's arrival, the best (site, start) under a forecast and the capacity not yet booked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.feasibility import first_start_s
from noonward.decision.cluster.lives import is_down
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.value import forecast_value_usd, gang_at, run_seconds, travel_cost_usd
from noonward.decision.cluster.view import (
    Answers,
    ClusterView,
    RuleMemory,
    first_seen,
    fits,
    latest_start_s,
)
from noonward.decision.scheduler import CompiledScheduler, forecast_remarks
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.knowledge import OVERRUN
from noonward.units import HOUR_S

NEVER = 2.0**62
"""A slot that no run reaches; later ones do not fit into an integer."""
REFUSED = -1
"""Booked site of a job that pays nowhere."""
SITE, SLOT, END, GPUS, STARTED = range(5)
"""Positions in ``memory.job_index_JP``: a job's booked site, its first slot there and the one after its last, its GPUs,
and 1 once it has been told to start."""
FREED, LAST_START_S, GIVEN_BACK, STEP = range(4)
"""Positions in ``memory.number_P``: the first slot whose row of ``memory.index_XY`` counts; the latest start, s; the
last slot in which a job that had gone gave room back, or -1; the step of ``memory.table_XY`` that holds in the slot
whose row was opened last."""


@kernel(inline=True, allocates=False)
def slot_now(view: ClusterView) -> int:
    """Returns the number of the current slot."""
    return int(np.round(view.run_1[0].now_s / view.run_1[0].slot_s))


@kernel(inline=True, allocates=False)
def first_slot(view: ClusterView, job: int, s: int, d: int) -> int:
    """Returns the first slot in which a job at site s can start at site d."""
    return int(np.round(min(first_start_s(view, job, s, d) / view.run_1[0].slot_s, NEVER)))


@kernel(inline=True, allocates=False)
def overrun_slots(expected: int, taken: int) -> int:
    """Returns the slots that a run that goes on is expected to take in all.

    Args:
        expected: Slots it is expected to take by what is known of it now.
        taken: Slots it has taken.
    """
    return expected if expected > taken else max(taken + 1, int(np.ceil(OVERRUN * taken)))


@kernel(inline=True, allocates=False)
def _row(memory: RuleMemory, slot: int) -> int:
    """Returns the row of ``memory.index_XY`` that a slot takes: ``slot mod rows``, the rows being a power of two."""
    return slot & (memory.index_XY.shape[0] - 1)


@kernel(inline=True, allocates=False)
def _best_start(
    view: ClusterView, memory: RuleMemory, job: int, d: int, first: int, until_s: float, at_once: bool
) -> tuple[float, int]:
    """Returns (value USD, slot) of the best start at a site with booked capacity until a time, or (-inf, -1).

    One pass over the slots: a start is free if no slot of the run has less room than the gang asks. Within free
    starts the value is evaluated at every slot; or the first is taken (``at_once``).
    """
    slot_s = view.run_1[0].slot_s
    gpus = gang_at(view, job, d)
    run_s = run_seconds(view, job, d)
    length = min(_slots(view, job, d), memory.index_XY.shape[0])
    hours = view.forecast_KSL.shape[2] - 1
    known_s = (view.run_1[0].now_s // HOUR_S + hours) * HOUR_S
    last_s = min(until_s, memory.number_P[LAST_START_S], known_s - run_s)
    if run_s > (hours - 1) * HOUR_S:  # no forecast reaches so far: the job starts as soon as it can
        last_s = min(until_s, memory.number_P[LAST_START_S], first * slot_s)
    last = int(max(last_s // slot_s, -1.0))
    best, most = -1, -np.inf
    if not fits(view, job, d):
        return most, best
    full = first - 1
    seen = first
    for slot in range(first, last + 1):
        if full >= slot:
            continue
        while seen < slot + length:
            if memory.index_XY[_row(memory, seen), d] + gpus > view.site_S[d].gpus:
                full = seen
            seen += 1
        if full >= slot:
            continue
        value = forecast_value_usd(view, job, d, slot * slot_s)
        if value > most:
            best, most = slot, value
        if at_once:
            break
    return most, best


@kernel(inline=True, allocates=False)
def _book(view: ClusterView, memory: RuleMemory, job: int, s: int) -> None:
    """Books the best (site, start) of a job that site s is asked about, or refuses it where nothing pays.

    One that can no longer start in time, and may be late, is booked at the first start with room instead.
    """
    best_site, best_slot, most = REFUSED, 0, 0.0
    in_time = False
    for d in range(view.site_S.shape[0]):
        if d != s and not view.mask_NA[s, 1 + d]:
            continue
        first = first_slot(view, job, s, d)
        value, slot = _best_start(view, memory, job, d, first, latest_start_s(view, job, d), False)
        in_time = in_time or slot >= 0
        value -= travel_cost_usd(view, job, s, d)
        if slot >= 0 and value > most:
            best_site, best_slot, most = d, slot, value
    if not in_time and view.run_1[0].late_until_s > -np.inf:
        for d in range(view.site_S.shape[0]):
            if d != s and not view.mask_NA[s, 1 + d]:
                continue
            _, slot = _best_start(view, memory, job, d, first_slot(view, job, s, d), view.run_1[0].late_until_s, True)
            if slot >= 0 and (best_site == REFUSED or slot < best_slot):
                best_site, best_slot = d, slot
    memory.job_index_JP[job, SITE] = best_site
    memory.job_index_JP[job, SLOT] = best_slot
    if best_site == REFUSED:
        return
    slots = min(_slots(view, job, best_site), memory.index_XY.shape[0])
    memory.job_index_JP[job, END] = best_slot + slots
    memory.job_index_JP[job, GPUS] = gang_at(view, job, best_site)
    _mark(memory, best_site, best_slot, memory.job_index_JP[job, END], memory.job_index_JP[job, GPUS])


@kernel(inline=True, allocates=False)
def _slots(view: ClusterView, job: int, site: int) -> int:
    """Returns the slots of a run."""
    return int(min(np.ceil(run_seconds(view, job, site) / view.run_1[0].slot_s), NEVER))


@kernel(inline=True, allocates=False)
def _mark(memory: RuleMemory, site: int, slot: int, end: int, gpus: int) -> None:
    """Books GPUs from a slot up to another; gives them back where the GPUs are negative."""
    for t in range(slot, end):
        memory.index_XY[_row(memory, t), site] += gpus


@kernel(inline=True, allocates=False)
def _free_past(memory: RuleMemory, slot: int) -> None:
    """Opens the rows of past slots for later ones, in which nothing is booked but the GPUs that are withheld."""
    rows = memory.index_XY.shape[0]
    for past in range(max(int(memory.number_P[FREED]), slot - rows), slot):
        row = _row(memory, past)
        memory.index_XY[row, :] = 0
        if memory.table_XY.shape[1] > 1:
            _withhold(memory, past + rows, row)
    memory.number_P[FREED] = slot


@kernel(inline=True, allocates=False)
def _withhold(memory: RuleMemory, slot: int, row: int) -> None:
    """Books the GPUs that are withheld at any time of a slot; slots are opened in their order."""
    step, steps = int(memory.number_P[STEP]), memory.table_XY.shape[0]
    while step + 1 < steps and memory.table_XY[step + 1, 0] <= slot:
        step += 1
    memory.number_P[STEP] = step
    while True:
        for s in range(memory.index_XY.shape[1]):
            memory.index_XY[row, s] = max(memory.index_XY[row, s], int(memory.table_XY[step, 1 + s]))
        step += 1
        if step >= steps or memory.table_XY[step, 0] >= slot + 1:
            return


@kernel(inline=True, allocates=False)
def _follow_jobs(view: ClusterView, memory: RuleMemory, slot: int) -> None:
    """Lets the books follow the jobs: those out of sight or failed give their bookings back, longer runs extend theirs.

    Where room is given back, refused jobs may be booked in this slot.
    """
    for job in range(view.job_J.shape[0]):
        booking = memory.job_index_JP[job]
        if memory.serial_J[job] < 0 or booking[SITE] == REFUSED:
            continue
        if memory.serial_J[job] != view.job_J[job].serial:
            if booking[END] > slot:
                _mark(memory, booking[SITE], max(booking[SLOT], slot), booking[END], -booking[GPUS])
                memory.number_P[GIVEN_BACK] = slot
            memory.serial_J[job] = -1
        elif booking[STARTED] == 1 and is_down(view, job):
            if booking[END] > slot:
                _mark(memory, booking[SITE], slot, booking[END], -booking[GPUS])
                memory.number_P[GIVEN_BACK] = slot
            memory.serial_J[job] = -1
        elif booking[STARTED] == 1 and booking[END] <= slot:
            slots = overrun_slots(_slots(view, job, booking[SITE]), slot - booking[SLOT])
            booking[END] = min(booking[SLOT] + slots, slot + memory.index_XY.shape[0])
            _mark(memory, booking[SITE], slot, booking[END], booking[GPUS])


@kernel(inline=True, allocates=False)
def _start(memory: RuleMemory, job: int, slot: int) -> None:
    """Notes that a job starts at its booked site, and moves its booking there if it starts later than booked."""
    booking = memory.job_index_JP[job]
    end = min(booking[END] + slot - booking[SLOT], slot + memory.index_XY.shape[0])
    _mark(memory, booking[SITE], max(booking[END], slot), end, booking[GPUS])
    booking[SLOT], booking[END], booking[STARTED] = slot, end, 1


@rule
def _booked(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    now_s, slot_s = view.run_1[0].now_s, view.run_1[0].slot_s
    slot = slot_now(view)
    if slot != memory.number_P[FREED]:
        _follow_jobs(view, memory, slot)
    _free_past(memory, slot)
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        refused = memory.job_index_JP[job, SITE] == REFUSED
        late = (
            now_s > view.job_J[job].deadline_s and now_s % HOUR_S < slot_s
        )  # the forecast may not have reached so far
        if first_seen(view, memory, job) or (refused and (late or memory.number_P[GIVEN_BACK] == slot)):
            _book(view, memory, job, s)
        site = memory.job_index_JP[job, SITE]
        if site >= 0 and view.mask_NA[s, 1 + site] and (site != s or slot >= memory.job_index_JP[job, SLOT]):
            answers.answer_N[s].choice = 1 + site
            if site == s:
                _start(memory, job, slot)


class Booked(CompiledScheduler):
    """Books each job, when first asked about it, at the (site, start) of highest forecast value with room.

    The value is the job's utility over leaving its GPUs free, under the forecast issued in the hour of its arrival.
    A job that would lose money everywhere, or finds no room, is refused (held until it is overdue, or until another
    gives room back). GPUs that are announced to be withheld are booked from the start. The books follow the jobs: what
    is left of a booking is given back when its job ends early, and a run that goes on gets a longer one. Where all run
    times are as expected, a booked start is always feasible; only a hard capacity curve, which the rule does not know,
    can keep a job waiting beyond it.

    Args:
        forecast: Forecast to plan by.
    """

    rule = staticmethod(_booked)

    def __init__(self, forecast: Forecast) -> None:
        self.needs = Needs(protocols=("each-slot",), signals=True, economics=True, forecast=forecast)

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns a note where the run lies in months or hours that a learned forecast was trained on."""
        return forecast_remarks(self.needs.forecast, brief)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns the latest start (number), the GPUs booked per slot and site (index), and each job's booking.

        Slots take turns in the rows of the index. A booked run ends within the hours that are forecast, so as many
        rows suffice as those hours have slots; the next power of two makes a slot's row cheap to find.
        """
        slots = int(np.ceil((brief.lookahead_h + 1) * HOUR_S / brief.slot_s)) + 1
        rows = 1 << (slots - 1).bit_length()
        last_start_s = np.inf if brief.drained else brief.window_s
        index_XY, table = np.zeros((rows, len(brief.sites)), np.int64), np.zeros((1, 1))
        if brief.withheld is not None:  # a step per row: its slot, not rounded, and the GPUs that sites withhold
            index_XY[:] = brief.withheld.most(0.0, brief.slot_s, rows).T
            table = np.column_stack([brief.withheld.from_s_K / brief.slot_s, brief.withheld.gpus_KS])
        return RuleMemory.make(
            numbers=(0.0, last_start_s, -1.0, 0.0), table=table, index=index_XY, job_index=(REFUSED, 0, 0, 0, 0)
        )

    def intended_start(self, view: ClusterView, job: int) -> tuple[int, float] | None:
        """Returns where and when it has booked a waiting job to start, for people who ask.

        Args:
            view: View.
            job: Position of the job in ``view.job_J``.

        Returns:
            Site, and s since the start of the run; site -1 and infinity for a job that is refused; None for one that it
            has not been asked about.
        """
        if job >= len(self.memory.serial_J) or self.memory.serial_J[job] != view.job_J["serial"][job]:
            return None
        site, slot = self.memory.job_index_JP[job, :END].tolist()
        return (REFUSED, np.inf) if site == REFUSED else (site, slot * float(view.run_1["slot_s"][0]))


def in_time(jobs: Jobs, brief: Brief) -> Jobs:
    """Returns jobs with the slack they really have: nothing starts after the window of a run that is cut off there."""
    if brief.drained:
        return jobs
    return replace(jobs, slack_s_J=np.minimum(jobs.slack_s_J, np.maximum(brief.window_s - jobs.arrival_s_J, 0.0)))

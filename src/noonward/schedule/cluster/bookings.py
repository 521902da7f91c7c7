"""Bookings of bid prices: which slots of which site are taken, and the plan of every job in sight.

Slots count from the start of the run; columns of the books from the first slot of the current hour.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.decision.cluster.lives import is_down, may_cap, may_start_capped, progress_s, slack_left_s, unit_s
from noonward.decision.cluster.value import expected_share, extra_power_w, gang_at, run_seconds
from noonward.decision.cluster.view import ASK_RUNNING, HOLD, Answers, ClusterView, fits
from noonward.schedule.cluster.booking import first_slot, overrun_slots, slot_now
from noonward.schedule.cluster.capacity_prices import LONGEST_H, Prices, describe, is_due, start_range_s
from noonward.schedule.cluster.caps import best_cap, run_usd
from noonward.schedule.cluster.kinds import Kinds
from noonward.schedule.cluster.rooms import REFUSED, best_room, first_room, free_slots, pays_to_move, run_slots
from noonward.units import HOUR_S

NOWHERE: Final = -3
"""Site of a job that has not been asked about, or that travels; booked site of one that is to be booked."""
STARTED: Final = -2
"""Site of a job that has been told to start; its booking is that of its run."""
LIFE: Final = -4
"""Site of a job that has started and may be suspended, once the turn of an hour has planned its life (``lives``): its
stretches are booked beside the plan, whose own run has no length; ``slot`` is when it is to be resumed."""
NOTED: Final = np.dtype([("hour", "i8"), ("per_hour", "i8"), ("last_s", "f8"), ("reserve", "f8"), ("followed_s", "f8")])
"""The hour that was planned last, slots per hour, the latest start of any job, s, the share of slack in reserve, and
when the books last followed the jobs, s."""
PLAN: Final = np.dtype(
    [
        ("serial", "i8"),  # of the job that the row is about, or -1
        ("at", "i8"),  # site it waits at
        ("deadline_s", "f8"),  # until when it may start at all
        ("site", "i8"),  # booked site
        ("slot", "i8"),  # booked start
        ("slots", "i8"),  # booked run
        ("gpus", "i8"),
        ("stop", "i8"),  # 1 where it is to be suspended when it is asked about
        ("outlasts", "i8"),  # 1 where it has run for longer than was booked at first
        ("due", "i8"),  # 1 where it is booked at the first start with room
        ("again", "i8"),  # 1 where room has been given back since: it may start sooner
        ("cap", "i8"),  # power cap of its class under which it is to start or to run on; 0: full power
        ("urgent", "i8"),  # 1 once it has been late while a run outlasted its booking: it is booked before others
    ]
)
"""The plan of a job."""


def blank_plans(jobs: int) -> Records:
    """Returns plans of jobs that nobody has asked about."""
    out = np.zeros(jobs, PLAN)
    out["serial"], out["at"], out["site"] = -1, NOWHERE, NOWHERE
    return out


def as_plans(plan_J: Records) -> Records:
    """Returns plans as PLAN: kept ones of an older version lack fields, which are 0."""
    if plan_J.dtype == PLAN or not {"serial", "at", "site"} <= set(plan_J.dtype.names or ()):
        return plan_J
    out = np.zeros(plan_J.shape, PLAN)
    for name in set(plan_J.dtype.names or ()) & set(PLAN.names or ()):
        out[name] = plan_J[name]
    return out


@kernel(allocates=False)
def mark(booked_ST: I8, site: int, slot: int, slots: int, gpus: int) -> None:
    """Takes GPUs in some slots, past ones aside; gives them back where the GPUs are negative."""
    for t in range(max(0, slot), min(slot + slots, booked_ST.shape[1])):
        booked_ST[site, t] += gpus


@kernel(inline=True, allocates=False)
def give_back(booked_ST: I8, slot_0: int, plan: Any, slot: int) -> None:
    """Takes what is left of a job's booking from a slot on out of the books."""
    left = plan.slot + plan.slots - max(plan.slot, slot)
    mark(booked_ST, plan.site, max(plan.slot, slot) - slot_0, left, -plan.gpus)


@kernel(allocates=False)
def release(booked_ST: I8, slot_0: int, plan_J: Records, jobs: I8) -> None:
    """Takes the bookings of some jobs out of the books; their plans stand."""
    for i in range(jobs.shape[0]):
        plan = plan_J[jobs[i]]
        if plan.site >= 0:
            mark(booked_ST, plan.site, plan.slot - slot_0, plan.slots, -plan.gpus)


@kernel(allocates=False)
def move_books(booked_ST: I8, past: int) -> None:
    """Moves the books on by some slots; the last ones are free."""
    left = booked_ST.shape[1] - past
    for s in range(booked_ST.shape[0]):
        for begin in range(0, left, past):  # as much at once as does not overlap
            to_T, from_T = booked_ST[s, begin : min(begin + past, left)], booked_ST[s, begin + past :]
            for t in range(len(to_T)):
                to_T[t] = from_T[t]
        booked_ST[s, left:] = 0


@kernel(allocates=False)
def left_to_plan(
    site_S: Records, booked_ST: I8, slot_0: int, plan_J: Records, waiting_W: I8, per_hour: int, capacity_SH: F8
) -> None:
    """Writes the GPU-hours per site and priced hour that jobs leave which do not wait: those that run or travel.

    Args:
        site_S: Sites.
        booked_ST: GPUs that are booked per site and slot from ``slot_0`` on.
        slot_0: First slot of the current hour.
        plan_J: Plans.
        waiting_W: Jobs that wait.
        per_hour: Slots per hour.
        capacity_SH: Written.
    """
    for s in range(capacity_SH.shape[0]):
        for hour in range(capacity_SH.shape[1]):
            booked = 0
            for gpus in booked_ST[s, hour * per_hour : (hour + 1) * per_hour]:  # several at once
                booked += gpus
            capacity_SH[s, hour] = booked
    for w in range(waiting_W.shape[0]):
        plan = plan_J[waiting_W[w]]
        if plan.site >= 0:
            begin = max(0, plan.slot - slot_0)
            until = min(plan.slot + plan.slots - slot_0, capacity_SH.shape[1] * per_hour)
            while begin < until:
                hour = begin // per_hour
                end = min(until, (hour + 1) * per_hour)
                capacity_SH[plan.site, hour] -= plan.gpus * (end - begin)
                begin = end
    for s in range(capacity_SH.shape[0]):
        for hour in range(capacity_SH.shape[1]):
            capacity_SH[s, hour] = site_S[s].gpus - capacity_SH[s, hour] / per_hour


@kernel(allocates=False)
def _book(
    view: ClusterView,
    kinds: Kinds,
    prices: Prices,
    option_X: Records,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    reserve: float,
    plan_J: Records,
    job: int,
) -> None:
    """Books one job that waits at a site.

    Args:
        view: View.
        kinds: Kinds of the sites.
        prices: Prices.
        option_X: What the job takes and earns.
        booked_ST: GPUs that are booked per site and slot from ``slot_0`` on.
        slot_0: First slot of the current hour.
        last_s: Latest start of any job, s.
        reserve: Share of the job's slack that is not planned with.
        plan_J: Plans; the job's own is written.
        job: Job.
    """
    plan = plan_J[job]
    plan.due, plan.again = int(is_due(view, job, plan.at, view.run_1[0].now_s, last_s, reserve)), 0
    if plan.due == 1:
        plan.site, plan.slot = first_room(view, kinds, prices, option_X, booked_ST, slot_0, last_s, job, plan.at)
    else:
        _, plan.site, plan.slot = best_room(
            view, kinds, prices, option_X, booked_ST, slot_0, last_s, reserve, job, plan.at
        )
    if plan.site >= 0:
        plan.slots, plan.gpus, plan.cap = run_slots(view, job, plan.site), gang_at(view, job, plan.site), 0
        mark(booked_ST, plan.site, plan.slot - slot_0, plan.slots, plan.gpus)


@kernel(inline=True, allocates=False)
def choose_cap(
    view: ClusterView,
    prices: Prices,
    option: Any,
    booked_ST: I8,
    slot_0: int,
    site: int,
    gpus: int,
    job: int,
    left_s: float,
    slack_s: float,
) -> tuple[int, float, int]:
    """Chooses under which power cap a job runs from now on.

    Slack must do for the longer run, and the bookings of others must leave room. The cap is chosen again at the next
    turn of an hour, so only until then it is to be booked for: others may be given the room behind a run at full power.

    Args:
        view: View.
        prices: Prices.
        option: Room for an option of the job.
        booked_ST: Books, without the rest of the job's run.
        slot_0: First slot of the books.
        site: Site of the job.
        gpus: GPUs it runs on.
        job: Job.
        left_s: What is left of its run at full power, s.
        slack_s: How much later than at full power it may end, s.

    Returns:
        (cap, what it saves against full power in USD, slots to book for from now on).
    """
    slot_s, freedom = view.run_1[0].slot_s, view.freedom_C[view.job_J[job].class_]
    slot, per_hour = slot_now(view), int(np.round(HOUR_S / slot_s))
    expected = expected_share(view, job)
    option.run_h, option.gpus, option.class_ = left_s * expected / HOUR_S, gpus, view.job_J[job].class_
    option.power_w = extra_power_w(view, job, site)
    most, room = int(min(np.ceil((left_s + slack_s) / slot_s), booked_ST.shape[1])), view.site_S[site].gpus - gpus
    free_s = free_slots(booked_ST, site, slot - slot_0, most, room) * slot_s
    most_h = min(left_s + slack_s, free_s) * expected / HOUR_S
    start_h = (slot - slot_0) / per_hour
    cap, saved_usd = best_cap(view, prices.paid_SR, prices.energy_SR, option, site, start_h, most_h), 0.0
    if cap > 0:
        full_usd = run_usd(view, prices.paid_SR, prices.energy_SR, option, site, start_h, 0)
        saved_usd = full_usd - run_usd(view, prices.paid_SR, prices.energy_SR, option, site, start_h, cap)
    rate, capped = freedom.cap_rate[cap], per_hour - slot % per_hour
    slots = int(np.ceil(left_s / rate / slot_s))
    if slots > capped:
        slots = capped + int(np.ceil(left_s / slot_s - rate * capped))
    return cap, saved_usd, slots


@kernel(inline=True, allocates=False)
def _cap(
    view: ClusterView,
    prices: Prices,
    option: Any,
    booked_ST: I8,
    slot_0: int,
    plan: Any,
    job: int,
    left_s: float,
    slack_s: float,
) -> None:
    """Chooses under which power cap a job runs from now on (``choose_cap``), and books what it takes for sure."""
    slot = slot_now(view)
    plan.cap, _, slots = choose_cap(view, prices, option, booked_ST, slot_0, plan.site, plan.gpus, job, left_s, slack_s)
    plan.slots = slot + slots - plan.slot
    mark(booked_ST, plan.site, slot - slot_0, slots, plan.gpus)


@kernel(allocates=False)
def lift_running(view: ClusterView, booked_ST: I8, slot_0: int, plan_J: Records) -> None:
    """Books the rest of every run whose power cap may be changed as at full power: that is all that it needs.

    Args:
        view: View.
        booked_ST: Books.
        slot_0: First slot of the books.
        plan_J: Plans.
    """
    slot_s = view.run_1[0].slot_s
    slot = slot_now(view)
    for job in range(plan_J.shape[0]):
        plan = plan_J[job]
        if plan.at != STARTED or plan.site < 0 or plan.serial != view.job_J[job].serial or not may_cap(view, job):
            continue
        give_back(booked_ST, slot_0, plan, slot)
        slots = int(np.ceil((view.job_J[job].work * unit_s(view, job) - progress_s(view, job)) / slot_s))
        plan.slots = slot + slots - plan.slot
        mark(booked_ST, plan.site, slot - slot_0, slots, plan.gpus)


@kernel(allocates=False)
def cap_running(
    view: ClusterView, prices: Prices, option_X: Records, booked_ST: I8, slot_0: int, plan_J: Records
) -> None:
    """Chooses again under which power cap each run that may be capped goes on (``_cap``).

    Args:
        view: View.
        prices: Prices.
        option_X: Room for the options of a job.
        booked_ST: Books.
        slot_0: First slot of the books.
        plan_J: Plans.
    """
    slot = slot_now(view)
    for job in range(plan_J.shape[0]):
        plan, record = plan_J[job], view.job_J[job]
        if plan.at != STARTED or plan.site < 0 or plan.serial != record.serial or not may_cap(view, job):
            continue
        give_back(booked_ST, slot_0, plan, slot)
        left_s = record.work * unit_s(view, job) - progress_s(view, job)
        _cap(view, prices, option_X[0], booked_ST, slot_0, plan, job, left_s, slack_left_s(view, job))


@kernel(allocates=False)
def rebook(
    view: ClusterView,
    kinds: Kinds,
    prices: Prices,
    option_WX: Records,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    reserve: float,
    plan_J: Records,
    waiting_W: I8,
) -> None:
    """Books every waiting job again, one at a time beside the bookings of the others.

    Jobs that are due while a run outlasts its booking are urgent: they come first, in the order of their arrival, and
    the bookings of the others give way to them. Else a large one could wait for ever: each time that a run takes its
    room it would be booked behind all others. Where runs end as told, the bookings of late jobs hold.
    """
    outlasting, urgent = _outlasting(plan_J), False
    for w in range(waiting_W.shape[0]):
        plan = plan_J[waiting_W[w]]
        if outlasting and is_due(view, waiting_W[w], plan.at, view.run_1[0].now_s, last_s, reserve):
            plan.urgent = 1
        urgent = urgent or plan.urgent == 1
    if urgent:
        release(booked_ST, slot_0, plan_J, waiting_W)
        for w in range(waiting_W.shape[0]):
            if plan_J[waiting_W[w]].urgent == 1:
                _book(view, kinds, prices, option_WX[w], booked_ST, slot_0, last_s, reserve, plan_J, waiting_W[w])
    for w in range(waiting_W.shape[0]):
        if not urgent:
            release(booked_ST, slot_0, plan_J, waiting_W[w : w + 1])
        if plan_J[waiting_W[w]].urgent == 0:
            _book(view, kinds, prices, option_WX[w], booked_ST, slot_0, last_s, reserve, plan_J, waiting_W[w])


@kernel(inline=True, allocates=False)
def _outlasting(plan_J: Records) -> bool:
    """Returns whether a run goes on beyond what was booked for it at first."""
    for job in range(plan_J.shape[0]):
        if plan_J[job].at == STARTED and plan_J[job].outlasts == 1:
            return True
    return False


@kernel(inline=True, allocates=False)
def _longest_run_h(view: ClusterView, kinds: Kinds, plan_J: Records) -> float:
    """Returns the longest run of the jobs that are asked about for the first time, h; 0 if there is none."""
    out = 0.0
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job >= 0 and plan_J[job].serial != view.job_J[job].serial:
            for x in range(kinds.kind_X.shape[0]):
                d = kinds.site_M[kinds.kind_X[x].begin]
                if fits(view, job, d):
                    out = max(out, min(run_seconds(view, job, d) / HOUR_S, float(LONGEST_H)))
    return out


@kernel(inline=True, allocates=False)
def follow_jobs(view: ClusterView, booked_ST: I8, slot_0: int, plan_J: Records, slot: int) -> None:
    """Lets the books follow the jobs: those out of sight give their bookings back, runs beyond theirs get longer ones.

    A job that has ended or failed gives back what is left of its booking; one that has gone without a start, all of it.
    One that has failed is booked again when it is next asked about. Then
    refused jobs, and due ones that wait for room, are booked again when they are next asked about.
    """
    room = False
    for job in range(view.job_J.shape[0]):
        plan = plan_J[job]
        if plan.serial < 0:
            continue
        if plan.serial != view.job_J[job].serial:
            if plan.site >= 0 and plan.slot + plan.slots > slot:
                give_back(booked_ST, slot_0, plan, slot if plan.at == STARTED else plan.slot)
                room = True
            plan.serial, plan.at, plan.site = -1, NOWHERE, NOWHERE
        elif plan.at == STARTED and is_down(view, job):
            if plan.slot + plan.slots > slot:
                give_back(booked_ST, slot_0, plan, slot)
                room = True
            plan.at, plan.site, plan.outlasts = NOWHERE, NOWHERE, 0
        elif plan.at == STARTED and plan.slot + plan.slots <= slot:
            end = plan.slot + overrun_slots(run_slots(view, job, plan.site), slot - plan.slot)
            end = min(end, slot_0 + booked_ST.shape[1])
            mark(booked_ST, plan.site, slot - slot_0, end - slot, plan.gpus)
            plan.slots, plan.outlasts = end - plan.slot, 1
    if room:
        for job in range(view.job_J.shape[0]):
            if plan_J[job].at >= 0 and plan_J[job].site == REFUSED:
                plan_J[job].site = NOWHERE
            elif plan_J[job].at >= 0 and plan_J[job].due == 1:
                plan_J[job].again = 1


@kernel(inline=True, allocates=False)
def _leaves_later(view: ClusterView, job: int, s: int, plan: Any) -> bool:
    """Returns whether a job that is booked elsewhere stays for now: its journey costs something, and can still wait.

    What a journey costs is gone once it begins, and until then the plan may change: a job that left as soon as it was
    booked elsewhere would pay again for every change.
    """
    return first_slot(view, job, s, plan.site) < plan.slot and pays_to_move(view, job, s, plan.site)


@kernel(inline=True, allocates=False)
def _is_taken(view: ClusterView, booked_ST: I8, slot_0: int, plan: Any) -> bool:
    """Returns whether runs beyond their bookings have taken the room of a booking."""
    for t in range(max(0, plan.slot - slot_0), min(plan.slot + plan.slots - slot_0, booked_ST.shape[1])):
        if booked_ST[plan.site, t] > view.site_S[plan.site].gpus:
            return True
    return False


@kernel(inline=True, allocates=False)
def _note(view: ClusterView, answers: Answers, booked_ST: I8, slot_0: int, plan_J: Records) -> None:
    """Enters answers into the books: starts and departures."""
    slot = slot_now(view)
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0 or answers.answer_N[s].choice == HOLD:
            continue
        plan, site = plan_J[job], answers.answer_N[s].choice - 1
        if plan.at == LIFE:
            continue
        if plan.site >= 0 and (plan.site != site or (site == s and plan.slot != slot)):
            mark(booked_ST, plan.site, plan.slot - slot_0, plan.slots, -plan.gpus)
            plan.site = NOWHERE
        if site == s:
            if plan.site < 0:
                plan.site, plan.slot, plan.gpus, plan.slots = s, slot, gang_at(view, job, s), run_slots(view, job, s)
                plan.cap = 0
                mark(booked_ST, s, slot - slot_0, plan.slots, plan.gpus)
            plan.at = STARTED
        else:
            plan.at = NOWHERE  # on its way: a booking there stands until it is asked about there


@kernel(allocates=False)
def answer(
    view: ClusterView,
    answers: Answers,
    kinds: Kinds,
    prices: Prices,
    option_X: Records,
    booked_ST: I8,
    plan_J: Records,
    noted_1: Records,
) -> float:
    """Answers one decision step by the plan and enters the answers into the books; new jobs are booked first.

    The books follow the jobs once for all questions of an instant: no job ends or fails between them.
    Asked about running jobs, it suspends those whose life says so, and caps the others as planned; suspended ones move
    where their life says.

    Returns:
        0; or, where a new job may run beyond what the books reach, the length of its run, h, and nothing has changed.
    """
    longest_h = _longest_run_h(view, kinds, plan_J)
    if prices.price_SH.shape[1] + int(np.ceil(longest_h)) + 2 > prices.paid_SR.shape[1]:
        return longest_h
    now_s, slot_s, noted = view.run_1[0].now_s, view.run_1[0].slot_s, noted_1[0]
    slot, slot_0 = slot_now(view), noted.hour * noted.per_hour
    last_s, reserve = noted.last_s, noted.reserve
    if noted.followed_s != now_s:
        follow_jobs(view, booked_ST, slot_0, plan_J, slot)
        noted.followed_s = now_s
    running = view.run_1[0].kind == ASK_RUNNING
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        plan = plan_J[job]
        if plan.at == LIFE and plan.serial == view.job_J[job].serial:
            due = plan.stop == 1 if running else slot >= plan.slot
            if not running and plan.site != s and plan.site >= 0 and view.mask_NA[s, 1 + plan.site]:
                answers.answer_N[s].choice = 1 + plan.site
            elif due and view.mask_NA[s, 1 + s]:
                answers.answer_N[s].choice = 1 + s
            elif running and may_cap(view, job):
                answers.answer_N[s].cap = plan.cap
            continue
        if running:
            if plan.at == STARTED and plan.serial == view.job_J[job].serial and may_cap(view, job):
                answers.answer_N[s].cap = plan.cap
            continue
        if plan.serial != view.job_J[job].serial:
            if plan.serial >= 0:  # its row was another job's at the last question of this instant
                follow_jobs(view, booked_ST, slot_0, plan_J, slot)
            plan.serial, plan.site = view.job_J[job].serial, NOWHERE
            plan.outlasts, plan.urgent = 0, 0
            plan.deadline_s = min(max(view.job_J[job].deadline_s, view.run_1[0].late_until_s), last_s)
        plan.at = s
        full = booked_ST[s, slot - slot_0] > view.site_S[s].gpus  # runs beyond their bookings have taken the room
        if full and plan.site == s and slot >= plan.slot and not view.mask_NA[s, 1 + s]:
            mark(booked_ST, s, plan.slot - slot_0, plan.slots, -plan.gpus)
            plan.site = NOWHERE
        if plan.again == 1 and plan.site >= 0 and (plan.site != s or plan.slot > slot):
            mark(booked_ST, plan.site, plan.slot - slot_0, plan.slots, -plan.gpus)
            plan.site = NOWHERE
        leaves = plan.site >= 0 and plan.site != s and not _leaves_later(view, job, s, plan)
        if leaves and pays_to_move(view, job, s, plan.site) and _is_taken(view, booked_ST, slot_0, plan):
            mark(booked_ST, plan.site, plan.slot - slot_0, plan.slots, -plan.gpus)
            plan.site = NOWHERE
        if plan.site == NOWHERE:
            describe(view, kinds, job, s, now_s, slot_0 * slot_s, last_s, reserve, False, option_X)
            _book(view, kinds, prices, option_X, booked_ST, slot_0, last_s, reserve, plan_J, job)
        if plan.site < 0 or not view.mask_NA[s, 1 + plan.site]:
            continue  # refused, or kept waiting by a hard capacity curve, which the plan does not know
        if slot >= plan.slot if plan.site == s else not _leaves_later(view, job, s, plan):
            answers.answer_N[s].choice = 1 + plan.site
            if plan.site == s and may_start_capped(view, job, s, view.job_J[job].gpus_max):
                mark(booked_ST, s, plan.slot - slot_0, plan.slots, -plan.gpus)
                plan.slot = slot
                _, latest_s = start_range_s(view, job, s, s, now_s, last_s, reserve)
                run_s, slack_s = run_seconds(view, job, s), max(0.0, latest_s - now_s)
                _cap(view, prices, option_X[0], booked_ST, slot_0, plan, job, run_s, slack_s)
                answers.answer_N[s].cap = plan.cap
    _note(view, answers, booked_ST, slot_0, plan_J)
    return 0.0

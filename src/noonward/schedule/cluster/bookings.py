"""Bookings of bid prices: which slots of which site are taken, and the plan of every job in sight.

Slots count from the start of the run; columns of the books from the first slot of the current hour.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.arrays import I8, Records
from noonward.compiled import kernel
from noonward.decision.cluster.lives import is_down
from noonward.decision.cluster.value import gang_at, run_seconds, travel_cost_usd
from noonward.decision.cluster.view import ASK_RUNNING, HOLD, Answers, ClusterView, fits
from noonward.schedule.cluster.booking import first_slot, overrun_slots
from noonward.schedule.cluster.capacity_prices import (
    LONGEST_H,
    Prices,
    best_at,
    describe,
    end_of_starts_s,
    is_due,
    start_range_s,
    start_usd,
)
from noonward.schedule.cluster.kinds import Kinds, member, sites_of
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
REFUSED: Final = -1
"""Booked site of a job that does not pay at these prices."""
SAME_USD: Final = 1e-9
"""Values nearer than this may be equal but for rounding, USD."""
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


@kernel(inline=True, allocates=False)
def _slots(view: ClusterView, job: int, site: int) -> int:
    """Returns the slots of a run."""
    return int(np.ceil(min(run_seconds(view, job, site), LONGEST_H * HOUR_S) / view.run_1[0].slot_s))


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


@kernel(inline=True, allocates=False)
def _best_room_at(
    view: ClusterView,
    prices: Prices,
    option: Any,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    reserve: float,
    job: int,
    s: int,
    d: int,
    least: float,
) -> tuple[float, int]:
    """Returns (value USD, slot) of a job's best start at a site with room in the bookings; arguments as in ``_book``.

    Among the starts with room, the value is linear between hours' turns of start or end, so it is reckoned next to
    those and where room begins and ends. Where no value exceeds ``least``, that is the value.
    """
    slot_s = view.run_1[0].slot_s
    per_hour = int(np.round(HOUR_S / slot_s))
    best, best_slot = least, 0
    _, latest_s = start_range_s(view, job, s, d, view.run_1[0].now_s, last_s, reserve)
    first, slots = first_slot(view, job, s, d) - slot_0, _slots(view, job, d)
    last = int(np.floor(min(latest_s / slot_s - slot_0, float(prices.price_SH.shape[1] * per_hour))))
    room = view.site_S[d].gpus - option.gpus
    until_turn = (1.0 - option.run_h % 1.0) * per_hour  # starts so long after the turn of an hour end at one
    turn = int(until_turn) % per_hour
    full, seen = first - 1, first
    for slot in range(first, last + 1):
        if full >= slot:
            continue
        while seen < slot + slots:
            if booked_ST[d, seen] > room:
                full = seen
            seen += 1
        if full >= slot:
            continue
        within = slot % per_hour
        kink = within == 0 or within == turn or within == (turn + 1) % per_hour
        edge = slot == full + 1 or slot == last or booked_ST[d, slot + slots] > room
        if not (kink or edge):
            continue
        value = start_usd(option, prices.paid_SR, prices.energy_SR, d, slot / per_hour)
        if value > best:
            best, best_slot = value, slot_0 + slot
    return best, best_slot


@kernel(allocates=False)
def _best_room(
    view: ClusterView,
    kinds: Kinds,
    prices: Prices,
    option_X: Records,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    reserve: float,
    job: int,
    s: int,
) -> tuple[float, int, int]:
    """Returns (value USD, site, slot) of a job's best start with room in the bookings, at some prices.

    The option that is worth most whatever the room comes first; of the others, in their order, only those that may be
    worth as much as what was found are looked at. Of equal values the first option's counts. The sites of one kind
    are looked at one after the other, beginning with another one for every job, until one has room for the best start.
    """
    hours, sites, home = prices.price_SH.shape[1], view.site_S, view.home_I[view.job_J[job].origin]
    promising, most = -1, 0.0
    for x in range(option_X.shape[0]):
        option_X[x].most_usd = -np.inf
        if option_X[x].earliest_h > option_X[x].latest_h:
            continue
        value, _ = best_at(sites, hours, prices.paid_SR, prices.energy_SR, option_X[x], 0, 0.0, 0.0)
        if value > 0.0:
            option_X[x].most_usd = value
        if value > most:
            promising, most = x, value
    best, best_x, best_site, best_slot = 0.0, option_X.shape[0], REFUSED, 0
    for i in range(-1, option_X.shape[0] if promising >= 0 else -1):
        x = promising if i < 0 else i
        option = option_X[x]
        if option.most_usd < best - SAME_USD or (i == promising):
            continue
        for k in range(sites_of(kinds, x)):
            d = member(kinds, x, view.job_J[job].serial + k, option.site, s, home)
            if d < 0:
                continue
            value, slot = _best_room_at(view, prices, option, booked_ST, slot_0, last_s, reserve, job, s, d, 0.0)
            if value > best or (value == best and value > 0.0 and x < best_x):
                best, best_x, best_site, best_slot = value, x, d, slot
            if best >= option.most_usd - SAME_USD:
                break
    return best, best_site, best_slot


@kernel(inline=True, allocates=False)
def _pays(view: ClusterView, job: int, s: int, d: int) -> bool:
    """Returns whether the journey from a site to another costs something, where jobs may be late.

    Where late jobs are dropped, every journey counts as free here (docs/lab/fine-tuning.md).
    """
    if view.run_1[0].late_until_s == -np.inf:
        return False
    return travel_cost_usd(view, job, s, d) > travel_cost_usd(view, job, d, d)


@kernel(inline=True, allocates=False)
def _first_room_at(
    view: ClusterView, option: Any, booked_ST: I8, slot_0: int, until_s: float, reach: int, job: int, s: int, d: int
) -> int:
    """Returns the first start with room at a site, late or not, from ``slot_0`` on; -1 if it has none until a time."""
    latest = int(min(np.floor(until_s / view.run_1[0].slot_s) - slot_0, float(reach)))
    slots, room = _slots(view, job, d), view.site_S[d].gpus - option.gpus
    start = first_slot(view, job, s, d) - slot_0
    seen = start
    while start <= latest and seen < start + slots:
        if booked_ST[d, seen] > room:
            start = seen + 1
        seen += 1
    return start if start <= latest else -1


@kernel(inline=True, allocates=False)
def _late_h(view: ClusterView, job: int, slot: int) -> float:
    """Returns how late a start is, h."""
    return max(0.0, slot * view.run_1[0].slot_s - view.job_J[job].deadline_s) / HOUR_S


@kernel(inline=True, allocates=False)
def _first_room(
    view: ClusterView,
    kinds: Kinds,
    prices: Prices,
    option_X: Records,
    booked_ST: I8,
    slot_0: int,
    last_s: float,
    job: int,
    s: int,
) -> tuple[int, int]:
    """Returns (site, slot) of the first start with room of a job, late or not; the site of most value among equals.

    A journey must be worth what it costs, also for a job that has made one before: where the job can start at the site
    at which it waits, another one is taken only if the start there is worth more, the price of the time that the job
    would be late included, or if it is in time there alone.
    """
    slot_s, home = view.run_1[0].slot_s, view.home_I[view.job_J[job].origin]
    per_hour = int(np.round(HOUR_S / slot_s))
    reach = prices.price_SH.shape[1] * per_hour
    late_usd = view.run_1[0].late_usd_per_gpu_hour * view.job_J[job].gpus_min
    here, here_usd, here_late_h = -1, 0.0, 0.0
    for x in range(option_X.shape[0]):
        if option_X[x].site == s and option_X[x].earliest_h <= option_X[x].latest_h:
            until_s = end_of_starts_s(view, job, s, last_s)
            here = _first_room_at(view, option_X[x], booked_ST, slot_0, until_s, reach, job, s, s)
            if here >= 0:
                here_usd = start_usd(option_X[x], prices.paid_SR, prices.energy_SR, s, here / per_hour)
                here_late_h = _late_h(view, job, slot_0 + here)
    most, best_site, best_slot = -np.inf, REFUSED, reach + 1
    for x in range(option_X.shape[0]):
        option = option_X[x]
        if option.earliest_h > option.latest_h:
            continue
        for k in range(sites_of(kinds, x)):
            d = member(kinds, x, k, option.site, s, home)
            if d < 0:
                continue
            until_s = end_of_starts_s(view, job, d, last_s)
            start = _first_room_at(view, option, booked_ST, slot_0, until_s, min(reach, best_slot), job, s, d)
            if start < 0:
                continue
            value = start_usd(option, prices.paid_SR, prices.energy_SR, d, start / per_hour)
            if here >= 0 and _pays(view, job, s, d):
                late_h = _late_h(view, job, slot_0 + start)
                in_time = late_h == 0.0 and here_late_h > 0.0 and value > 0.0
                if not in_time and value - here_usd <= late_usd * (late_h - here_late_h):
                    continue
            if start < best_slot or value > most:
                most, best_site, best_slot = value, d, start
    return best_site, slot_0 + best_slot


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
        plan.site, plan.slot = _first_room(view, kinds, prices, option_X, booked_ST, slot_0, last_s, job, plan.at)
    else:
        _, plan.site, plan.slot = _best_room(
            view, kinds, prices, option_X, booked_ST, slot_0, last_s, reserve, job, plan.at
        )
    if plan.site >= 0:
        plan.slots, plan.gpus = _slots(view, job, plan.site), gang_at(view, job, plan.site)
        mark(booked_ST, plan.site, plan.slot - slot_0, plan.slots, plan.gpus)


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
            end = plan.slot + overrun_slots(_slots(view, job, plan.site), slot - plan.slot)
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
    return first_slot(view, job, s, plan.site) < plan.slot and _pays(view, job, s, plan.site)


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
    slot = int(np.round(view.run_1[0].now_s / view.run_1[0].slot_s))
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
                plan.site, plan.slot, plan.gpus, plan.slots = s, slot, gang_at(view, job, s), _slots(view, job, s)
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
    Asked about running jobs, it suspends those whose life says so; suspended ones move where it says.

    Returns:
        0; or, where a new job may run beyond what the books reach, the length of its run, h, and nothing has changed.
    """
    longest_h = _longest_run_h(view, kinds, plan_J)
    if prices.price_SH.shape[1] + int(np.ceil(longest_h)) + 2 > prices.paid_SR.shape[1]:
        return longest_h
    now_s, slot_s, noted = view.run_1[0].now_s, view.run_1[0].slot_s, noted_1[0]
    slot, slot_0 = int(np.round(now_s / slot_s)), noted.hour * noted.per_hour
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
            continue
        if running:
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
        if leaves and _pays(view, job, s, plan.site) and _is_taken(view, booked_ST, slot_0, plan):
            mark(booked_ST, plan.site, plan.slot - slot_0, plan.slots, -plan.gpus)
            plan.site = NOWHERE
        if plan.site == NOWHERE:
            describe(view, kinds, job, s, now_s, slot_0 * slot_s, last_s, reserve, False, option_X)
            _book(view, kinds, prices, option_X, booked_ST, slot_0, last_s, reserve, plan_J, job)
        if plan.site < 0 or not view.mask_NA[s, 1 + plan.site]:
            continue  # refused, or kept waiting by a hard capacity curve, which the plan does not know
        if slot >= plan.slot if plan.site == s else not _leaves_later(view, job, s, plan):
            answers.answer_N[s].choice = 1 + plan.site
    _note(view, answers, booked_ST, slot_0, plan_J)
    return 0.0

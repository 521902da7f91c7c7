"""Lives of jobs that may be suspended, as bid prices plan them: in which hours each runs, booked stretch by stretch.

At the turn of an hour every such job that has started takes the cheapest life for the rest of its work, at the prices
of capacity and energy: the shortest path over (hour, runs or not, work done) with the cost of every stop and resume, as
in unit commitment. It is the search of the bound (``life_suspended``), over the hours that the bookings of the others
leave free. Where it may move, the rest of its work goes to the site at which it is cheapest, the
journey included. Where and when a job starts is planned as for one that runs unbroken.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import runs_alike, slot_at
from noonward.decision.cluster.lives import (
    back_s,
    may_cap,
    may_suspend,
    progress_s,
    resume_until_s,
    slack_left_s,
    unit_s,
)
from noonward.decision.cluster.value import travel_cost_usd
from noonward.decision.cluster.view import (
    LOADS,
    POWER_W,
    RUNS,
    SECONDS,
    WAITS,
    ClusterView,
    fits,
    latest_start_s,
    return_delay_s,
)
from noonward.schedule.cluster.booking import slot_now
from noonward.schedule.cluster.bookings import LIFE, STARTED, choose_cap, give_back, mark
from noonward.schedule.cluster.capacity_prices import Prices
from noonward.schedule.cluster.caps import at
from noonward.schedule.cluster.life_suspended import least_usd, suspended_life
from noonward.units import HOUR_S

STRETCHES: Final = 32
"""Stretches of a life that are booked; those behind them are booked as time passes."""
BLOCKED_USD: Final = 1e7
"""Cost of an hour in which others leave no room, USD: above that of any job's run."""
NEAR_USD: Final = 1e-6
"""What a life may cost more than the given sum and is found all the same, USD: sums are rounded."""
KEPT: Final = 0.5
"""Share of what is left of a job's slack that its life leaves unused: GPUs may come free later than booked, and a
suspended job that comes too late has run in vain."""
PAID_BACK: Final = 3.0
"""How many times what it costs, together with the resume, a stop must save: forecasts and prices change."""
BOOKED_LIFE: Final = np.dtype(
    [
        ("serial", "i8"),  # of the job that it is of, or -1
        ("site", "i8"),
        ("gpus", "i8"),
        ("begin", "i8", (STRETCHES,)),  # slots, from the start of the run
        ("until", "i8", (STRETCHES,)),  # not above begin where it is none
    ]
)
"""The stretches that are booked for a job."""


def no_lives(jobs: int) -> Records:
    """Returns the booked lives of jobs that have none."""
    out = np.zeros(jobs, BOOKED_LIFE)
    out["serial"] = -1
    return out


@kernel(allocates=False)
def _give_life_back(booked_ST: I8, slot_0: int, life_J: Records, job: int) -> None:
    """Takes a job's stretches out of the books."""
    life = life_J[job]
    if life.serial < 0:
        return
    for x in range(STRETCHES):
        if life.until[x] > life.begin[x]:
            mark(booked_ST, life.site, life.begin[x] - slot_0, life.until[x] - life.begin[x], -life.gpus)
            life.begin[x] = life.until[x] = 0
    life.serial = -1


@kernel(allocates=False)
def drop_lives(view: ClusterView, booked_ST: I8, slot_0: int, plan_J: Records, life_J: Records) -> None:
    """Takes the stretches of jobs that are out of sight out of the books."""
    for job in range(life_J.shape[0]):
        serial = life_J[job].serial
        if serial >= 0 and (serial != plan_J[job].serial or serial != view.job_J[job].serial):
            _give_life_back(booked_ST, slot_0, life_J, job)


@kernel(allocates=False)
def _hours(
    view: ClusterView,
    prices: Prices,
    booked_ST: I8,
    slot_0: int,
    job: int,
    site: int,
    gpus: int,
    power_w: float,
    from_h: float,
    until_h: float,
    cost_P: F8,
    resume_P: F8,
    stop_P: F8,
    share_P: F8,
) -> None:
    """Writes what running, resuming and stopping cost in each hour from a lead to another, USD.

    Args:
        view: View.
        prices: Prices.
        booked_ST: Books, without the job's own bookings.
        slot_0: First slot of the books.
        job: Job.
        site: Site.
        gpus: GPUs it runs on.
        power_w: Facility power that it adds.
        from_h: First open moment, h from the start of the current hour.
        until_h: Last one.
        cost_P: Written, one entry per hour that is touched.
        resume_P: Written.
        stop_P: Written.
        share_P: Written, open share of each hour.
    """
    per_hour = int(np.round(HOUR_S / view.run_1[0].slot_s))
    freedom = view.freedom_C[view.job_J[job].class_]
    idle_w = view.site_S[site].pue * gpus * view.site_S[site].free_w
    full_w = power_w + idle_w
    load_w, stop_w = freedom.load_power * full_w - idle_w, freedom.stop_power * full_w - idle_w
    first, room, slot_end = int(from_h), view.site_S[site].gpus - gpus, int(np.ceil(until_h * per_hour))
    for p in range(cost_P.shape[0]):
        hour = first + p
        energy = prices.energy_SR[site, hour + 1] - prices.energy_SR[site, hour]
        paid = gpus * (prices.paid_SR[site, hour + 1] - prices.paid_SR[site, hour])
        cost_P[p] = power_w * energy + paid
        resume_P[p] = max(0.0, (load_w * energy + paid) * freedom.load_s / HOUR_S)
        stop_P[p] = max(0.0, (stop_w * energy + paid) * freedom.stop_s / HOUR_S)
        share_P[p] = min(until_h, hour + 1.0) - max(from_h, float(hour))
        begin, end = max(int(from_h * per_hour), hour * per_hour), min(slot_end, (hour + 1) * per_hour)
        most = room
        for booked in booked_ST[site, begin:end]:  # to the end, several at once
            most = max(most, booked)
        if most > room:
            cost_P[p] = BLOCKED_USD


@kernel()
def _cheapest(
    view: ClusterView,
    prices: Prices,
    booked_ST: I8,
    slot_0: int,
    job: int,
    site: int,
    gpus: int,
    power_w: float,
    from_h: float,
    until_h: float,
    units: float,
    runs_now: bool,
    below_usd: float,
    used_P: F8,
) -> tuple[float, float]:
    """Finds a job's cheapest life between two leads, if it costs less than a given sum.

    Args:
        view: View.
        prices: Prices.
        booked_ST: Books, without the job's own bookings.
        slot_0: First slot of the books.
        job: Job.
        site: Site.
        gpus: GPUs it runs on.
        power_w: Facility power that it adds.
        from_h: First open moment, h from the start of the current hour.
        until_h: Last one.
        units: Hours that it must run.
        runs_now: Whether the life begins with a run through the rest of the current hour.
        below_usd: Sum, USD; infinite: it is always found. What surely costs as much is seen fast.
        used_P: Written, hours in use from the hour of ``from_h`` on; it has room for all.

    Returns:
        (cost in USD, cost of a resume where it begins); infinite cost where there is no life with room.
    """
    first = int(from_h)
    periods = int(np.ceil(until_h)) - first
    if periods < 1 or units > until_h - from_h + 1e-9:
        return np.inf, 0.0
    cost_P, resume_P, stop_P, share_P = np.empty(periods), np.empty(periods), np.empty(periods), np.empty(periods)
    _hours(
        view, prices, booked_ST, slot_0, job, site, gpus, power_w, from_h, until_h, cost_P, resume_P, stop_P, share_P
    )
    if runs_now:
        if cost_P[0] >= BLOCKED_USD:  # others count on its GPUs
            return np.inf, 0.0
        cost_P[0] -= 100.0 * BLOCKED_USD
    limit_usd = below_usd + NEAR_USD
    if np.isfinite(below_usd) and least_usd(cost_P, share_P, units) > limit_usd:
        return np.inf, 0.0
    nothing_P = np.zeros(periods)
    resumed_P, stopped_P = np.zeros(periods, np.uint8), np.zeros(periods, np.uint8)
    found = suspended_life(
        cost_P, resume_P, stop_P, nothing_P, nothing_P, share_P, units, limit_usd, used_P[:periods], resumed_P,
        stopped_P,
    )  # fmt: skip
    used_P[periods:] = 0.0
    if runs_now:
        found += 100.0 * BLOCKED_USD * used_P[0]
    if not found < 0.5 * BLOCKED_USD * min(1.0, units):
        return np.inf, 0.0
    for p in range(periods):
        if used_P[p] > 0.0:
            return found, resume_P[p]
    return found, 0.0


@kernel(allocates=False)
def _added_w(view: ClusterView, job: int, site: int, gpus: int) -> float:
    """Returns the facility power that a job on so many GPUs adds at a site, at its clock, W."""
    at_site, life = view.site_S[site], view.life_J[job]
    power_w = view.speed_KSCGF[POWER_W, site, view.job_J[job].class_, gpus, life.level]
    return at_site.pue * (power_w - gpus * at_site.free_w)


@kernel(allocates=False)
def travel_h(view: ClusterView, job: int, site: int, d: int) -> float:
    """Returns how long a job travels with its checkpoint from the site where it is suspended, or will be, h."""
    slot_s, record = view.run_1[0].slot_s, view.job_J[job]
    link, size_gb = view.link_IS[view.site_S[site].ingress, d], record.move_gb
    if view.life_J[job].suspensions == 0:
        size_gb += view.freedom_C[record.class_].checkpoint_gb
    return max(slot_at(slot_s, link.latency_s + size_gb * link.seconds_per_gb), slot_s) / HOUR_S


@kernel()
def _cheapest_anywhere(
    view: ClusterView,
    prices: Prices,
    booked_ST: I8,
    slot_0: int,
    job: int,
    gpus: int,
    from_h: float,
    until_h: float,
    units: float,
    below_usd: float,
    used_P: F8,
) -> tuple[float, float, int, float, float]:
    """Finds the cheapest life for the rest of a job at its site, or where it may move, its journey included.

    It is found if it costs less than a given sum.

    Args:
        view: View.
        prices: Prices.
        booked_ST: Books, without the job's own bookings.
        slot_0: First slot of the books.
        job: Job that is suspended, or would be now.
        gpus: GPUs it runs on.
        from_h: First moment at which it could be resumed where it is, h from the start of the current hour.
        until_h: Last open moment there.
        units: Hours that it must run.
        below_usd: Sum, USD; infinite: it is always found.
        used_P: Written, hours in use from the hour of the first open moment on.

    Returns:
        (cost in USD, cost of a resume, site, first open moment, last one); infinite cost where there is no life.
    """
    site, room_P = view.life_J[job].site, np.zeros(len(used_P))
    best, resume_usd = _cheapest(
        view, prices, booked_ST, slot_0, job, site, gpus, _added_w(view, job, site, gpus), from_h, until_h, units,
        False, below_usd, used_P,
    )  # fmt: skip
    at, best_from_h, best_until_h = site, from_h, until_h
    for d in range(view.site_S.shape[0]):
        if d == site or not runs_alike(view, job, d) or not fits(view, job, d) or gpus > view.site_S[d].gpus:
            continue
        away_h = from_h + travel_h(view, job, site, d)
        last_h = until_h - (return_delay_s(view, job, d) - return_delay_s(view, job, site)) / HOUR_S
        travel_usd = travel_cost_usd(view, job, site, d) - travel_cost_usd(view, job, site, site)
        usd, resumed_usd = _cheapest(
            view, prices, booked_ST, slot_0, job, d, gpus, _added_w(view, job, d, gpus), away_h, last_h, units, False,
            min(best, below_usd) - travel_usd, room_P,
        )  # fmt: skip
        usd += travel_usd
        if usd < best:
            best, resume_usd, at, best_from_h, best_until_h = usd, resumed_usd, d, away_h, last_h
            for p in range(len(used_P)):  # a copy as a whole would compile messages about shapes for two seconds
                used_P[p] = room_P[p]
    return best, resume_usd, at, best_from_h, best_until_h


@kernel(allocates=False)
def _open_life(view: ClusterView, life_J: Records, job: int, site: int, gpus: int) -> None:
    """Notes that a job's life goes on at a site, on some GPUs; no stretch of it is booked."""
    life = life_J[job]
    life.serial, life.site, life.gpus = view.job_J[job].serial, site, gpus
    life.begin[:] = 0
    life.until[:] = 0


@kernel(allocates=False)
def _book_life(
    view: ClusterView,
    booked_ST: I8,
    slot_0: int,
    life_J: Records,
    job: int,
    site: int,
    gpus: int,
    from_h: float,
    until_h: float,
    used_P: F8,
    stops: bool,
) -> int:
    """Books the stretches of a life, and returns the slot in which it begins.

    A part of an hour that is followed by a run is the last of the hour, another one its first. Where the life pauses,
    its GPUs are booked until the checkpoint is written; after a pause, until the time lost by the load is made up.

    Args:
        view: View.
        booked_ST: Books.
        slot_0: First slot of the books.
        life_J: Booked lives.
        job: Job.
        site: Site.
        gpus: GPUs.
        from_h: First open moment, h from the start of the current hour.
        until_h: Last one.
        used_P: Hours in use from the hour of ``from_h`` on.
        stops: Whether the job is stopped now.
    """
    per_hour = HOUR_S / view.run_1[0].slot_s
    freedom = view.freedom_C[view.job_J[job].class_]
    stop_slots = int(np.ceil(freedom.stop_s / view.run_1[0].slot_s))
    load_slots = int(np.ceil(freedom.load_s / view.run_1[0].slot_s))
    life = life_J[job]
    _open_life(view, life_J, job, site, gpus)
    first, x, begins = int(from_h), -1, -1
    if stops and stop_slots > 0:
        x = 0
        life.begin[0] = slot_now(view)
        life.until[0] = life.begin[0] + stop_slots
    for p in range(used_P.shape[0]):
        if used_P[p] <= 0.0:
            continue
        low, high = max(from_h, float(first + p)), min(until_h, first + p + 1.0)
        if used_P[p] < high - low - 1e-9:
            if p + 1 < used_P.shape[0] and used_P[p + 1] > 0.0 and (p == 0 or used_P[p - 1] <= 0.0):
                low = high - used_P[p]
            else:
                high = low + used_P[p]
        begin, until = slot_0 + int(np.floor(low * per_hour + 1e-6)), slot_0 + int(np.ceil(high * per_hour - 1e-6))
        if begins < 0:
            begins = begin
        if x >= 0 and begin <= life.until[x]:
            life.until[x] = max(life.until[x], until)
        elif x + 1 < STRETCHES:
            x += 1
            life.begin[x], life.until[x] = begin, until
    for y in range(x + 1):
        if y > 0 and life.begin[y] >= begins:
            life.until[y] += load_slots
        if y < x and life.begin[y] >= begins:
            life.until[y] = min(life.until[y] + stop_slots, life.begin[y + 1])
        mark(booked_ST, site, life.begin[y] - slot_0, life.until[y] - life.begin[y], gpus)
    return begins


@kernel(allocates=False)
def _book_run(
    view: ClusterView, booked_ST: I8, slot_0: int, life_J: Records, job: int, site: int, gpus: int, slots: int
) -> int:
    """Books some slots from now on for a job that runs on without a stop, and returns the first."""
    life, slot = life_J[job], slot_now(view)
    _open_life(view, life_J, job, site, gpus)
    life.begin[0], life.until[0] = slot, slot + slots
    mark(booked_ST, site, slot - slot_0, slots, gpus)
    return slot


@kernel(allocates=False)
def _reach_h(prices: Prices, booked_ST: I8, per_hour: int) -> float:
    """Returns up to which lead lives are planned, h."""
    return float(min(prices.paid_SR.shape[1] - 1, booked_ST.shape[1] // per_hour))


@kernel()
def _plan_started(
    view: ClusterView, prices: Prices, option: Any, booked_ST: I8, slot_0: int, plan_J: Records, life_J: Records,
    job: int, reach_h: float, kept_P: F8, later_P: F8,
) -> None:  # fmt: skip
    """Plans what is left of a job that has started: to run on, maybe capped, to be suspended, or when to be resumed."""
    per_hour = int(np.round(HOUR_S / view.run_1[0].slot_s))
    plan, life, record = plan_J[job], view.life_J[job], view.job_J[job]
    zero_s = slot_0 * view.run_1[0].slot_s
    now_h, site, gpus, level = (view.run_1[0].now_s - zero_s) / HOUR_S, life.site, life.gpus, life.level
    at_site = view.site_S[site]
    power_w = _added_w(view, job, site, gpus)
    work_h = record.work * view.speed_KSCGF[SECONDS, site, record.class_, gpus, level] / HOUR_S
    plan.stop, plan.cap, plan.site, to = 0, 0, site, site
    if life.state == RUNS or life.state == LOADS:
        left_h = max(0.0, (life.until_s - zero_s) / HOUR_S - now_h)
        if life.state == RUNS and life.cap > 0:
            left_h = (record.work * unit_s(view, job) - progress_s(view, job)) / life.speed / HOUR_S
        if life.state == LOADS:
            left_h += work_h
        slack_h = (resume_until_s(view, job) - view.run_1[0].now_s) / HOUR_S
        until_h = min(now_h + left_h + (1.0 - KEPT) * slack_h, reach_h)
        may = life.state == RUNS and may_suspend(view, job)
        keep_usd, keep_h = np.inf, until_h
        for used in (1.0 - KEPT, 1.0):
            if may and keep_usd == np.inf:
                keep_h = min(now_h + left_h + used * slack_h, reach_h)
                keep_usd, _ = _cheapest(
                    view, prices, booked_ST, slot_0, job, site, gpus, power_w, now_h, keep_h, left_h, True, np.inf,
                    kept_P,
                )  # fmt: skip
        from_h = (back_s(view, job) - zero_s) / HOUR_S
        later_usd, to_from_h, to_until_h = np.inf, from_h, until_h
        if may:
            freedom = view.freedom_C[record.class_]
            energy = prices.energy_SR[site, int(now_h) + 1] - prices.energy_SR[site, int(now_h)]
            paid = prices.paid_SR[site, int(now_h) + 1] - prices.paid_SR[site, int(now_h)]
            idle_w = at_site.pue * gpus * at_site.free_w
            stop_w = freedom.stop_power * (power_w + idle_w) - idle_w
            stop_usd = max(0.0, (stop_w * energy + gpus * paid) * freedom.stop_s / HOUR_S)
            usd, resume_usd, to, to_from_h, to_until_h = _cheapest_anywhere(
                view, prices, booked_ST, slot_0, job, gpus, from_h, until_h, left_h, keep_usd - PAID_BACK * stop_usd,
                later_P,
            )  # fmt: skip
            later_usd = usd + PAID_BACK * (stop_usd + resume_usd)
        if may_cap(view, job):
            slack_s, end_h = slack_left_s(view, job), min(now_h + left_h, reach_h - 1.0)
            cap, saved_usd, slots = choose_cap(
                view, prices, option, booked_ST, slot_0, site, gpus, job, left_h * HOUR_S, slack_s
            )
            full_usd = power_w * (at(prices.energy_SR, site, end_h) - at(prices.energy_SR, site, now_h))
            full_usd += gpus * (at(prices.paid_SR, site, end_h) - at(prices.paid_SR, site, now_h))
            if cap > 0 and saved_usd > full_usd - min(keep_usd, later_usd):
                plan.cap = cap
                plan.slot = _book_run(view, booked_ST, slot_0, life_J, job, site, gpus, slots)
                return
        if later_usd < keep_usd:
            plan.stop, plan.site = 1, to
            plan.slot = _book_life(
                view, booked_ST, slot_0, life_J, job, to, gpus, to_from_h, to_until_h, later_P, to == site
            )
            return
        if keep_usd == np.inf:  # it runs on, come what may
            kept_P[:] = 0.0
            keep_h = min(now_h + left_h, reach_h)
            for p in range(int(np.ceil(keep_h)) - int(now_h)):
                kept_P[p] = min(keep_h, int(now_h) + p + 1.0) - max(now_h, float(int(now_h) + p))
        _book_life(view, booked_ST, slot_0, life_J, job, site, gpus, now_h, keep_h, kept_P, False)
        plan.slot = slot_0 + int(now_h * per_hour)
        return
    freedom = view.freedom_C[record.class_]
    earliest_s = max(view.run_1[0].now_s, life.until_s if np.isfinite(life.until_s) else 0.0)
    from_h = np.ceil((earliest_s - zero_s) / HOUR_S * per_hour - 1e-6) / per_hour
    slack_h = (latest_start_s(view, job, site) - zero_s) / HOUR_S - from_h
    work_h += freedom.load_s / HOUR_S
    usd, until_h = np.inf, 0.0
    for used in (1.0 - KEPT, 1.0):
        if life.suspensions < freedom.most_suspensions and slack_h > 0.0 and usd == np.inf:
            until_h = min(from_h + work_h + used * slack_h, reach_h)
            if life.state == WAITS:
                usd, _, to, from_h, until_h = _cheapest_anywhere(
                    view, prices, booked_ST, slot_0, job, gpus, from_h, until_h, work_h, np.inf, later_P
                )
            else:
                usd, _ = _cheapest(
                    view, prices, booked_ST, slot_0, job, site, gpus, power_w, from_h, until_h, work_h, False, np.inf,
                    later_P,
                )  # fmt: skip
    if usd == np.inf:  # as soon as it can
        until_h = min(from_h + work_h, reach_h)
        later_P[:] = 0.0
        for p in range(int(np.ceil(until_h)) - int(from_h)):
            later_P[p] = min(until_h, int(from_h) + p + 1.0) - max(from_h, float(int(from_h) + p))
    plan.site = to
    plan.slot = _book_life(view, booked_ST, slot_0, life_J, job, to, gpus, from_h, until_h, later_P, False)


@kernel()
def plan_started(
    view: ClusterView, prices: Prices, option_X: Records, booked_ST: I8, slot_0: int, plan_J: Records, life_J: Records,
    order_J: I8,
) -> None:  # fmt: skip
    """Plans the rest of every job that has started and may be suspended, one at a time with the others in place.

    A job runs on through the current hour if that costs no more than to stop it now and to resume it later; its plan
    says so (``stop``), and when it is to be resumed. One that lacks room, or that was stopped as often as it may be,
    runs on, or is resumed as soon as it can. One that may be capped, too, runs on under a cap where that saves more.

    Args:
        view: View.
        prices: Prices.
        option_X: Room for the options of a job.
        booked_ST: Books.
        slot_0: First slot of the books.
        plan_J: Plans of all jobs.
        life_J: Their booked lives.
        order_J: The jobs in the order in which they are planned.
    """
    per_hour = int(np.round(HOUR_S / view.run_1[0].slot_s))
    slot = slot_now(view)
    reach_h = _reach_h(prices, booked_ST, per_hour)
    kept_P, later_P = np.zeros(int(reach_h) + 1), np.zeros(int(reach_h) + 1)
    for job in order_J:
        plan = plan_J[job]
        if plan.serial < 0 or plan.serial != view.job_J[job].serial or (plan.at != STARTED and plan.at != LIFE):
            continue
        if not view.freedom_C[view.job_J[job].class_].interruptible:
            continue
        if plan.at == STARTED:
            give_back(booked_ST, slot_0, plan, slot)
            plan.slots, plan.at = 0, LIFE
        _give_life_back(booked_ST, slot_0, life_J, job)
        _plan_started(view, prices, option_X[0], booked_ST, slot_0, plan_J, life_J, job, reach_h, kept_P, later_P)

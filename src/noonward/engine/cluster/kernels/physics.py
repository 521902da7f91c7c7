"""Physics shared by both protocols: event heap, meters, starts, finishes, transfers and waiting lists."""

from __future__ import annotations

import numpy as np

from noonward.compiled import kernel
from noonward.decision.cluster.feasibility import room
from noonward.decision.cluster.lives import run_end_s, unit_s
from noonward.decision.cluster.view import CARBON, LOADS, ORACLE, POWER_W, PRICE, SECONDS, no_answer
from noonward.engine.cluster.kernels.kept_room import is_owed, spare_gpus
from noonward.engine.cluster.kernels.tenants import add_due, add_spent, hold_quota, quota_room
from noonward.engine.cluster.kernels.world import (
    AT_START,
    BREAK,
    CARBON_SUM,
    DONE,
    DROPPED,
    FACTOR_SUM,
    FINISH,
    FREED,
    GRID_EVENT,
    HARD_CAPS,
    JOINED,
    KIND_SHIFT,
    LIFT,
    NO_SLOT,
    OVERDUE,
    OWN,
    PLANNED,
    POWER_LIMIT,
    PRICE_SUM,
    RUNNING,
    SERIAL_SHIFT,
    STARTED,
    TAKEN,
    UNESTIMATED,
    UNISSUED,
    WAITING,
    World,
)
from noonward.ledger.settle import counted_s, integral_between, settle_integrals, settle_transfer
from noonward.ledger.utility import utility_kernel
from noonward.model.cluster.knowledge import OVERRUN
from noonward.units import HOUR_S

ROUNDING = 1e-9
"""Share by which rounding may exceed a power limit."""


@kernel(inline=True, allocates=False)
def push(w: World, time: float, kind: int, serial: int, job: int) -> None:
    """Adds an event to the heap: of a job, given its serial and its slot, or of none (0 and 0)."""
    item = (kind << KIND_SHIFT) | (serial << SERIAL_SHIFT) | job
    i = w.engine_1[0].heap_size
    w.engine_1[0].heap_size = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if w.heap_E[parent].time < time or (w.heap_E[parent].time == time and w.heap_E[parent].item <= item):
            break
        w.heap_E[i].time = w.heap_E[parent].time
        w.heap_E[i].item = w.heap_E[parent].item
        i = parent
    w.heap_E[i].time = time
    w.heap_E[i].item = item


@kernel(inline=True, allocates=False)
def note(w: World, what: int, job: int) -> None:
    """Notes what happens to a job now, where the engine is told from outside."""
    if w.engine_1[0].told:
        w.engine_1[0].journeys += 1
        x = w.heap_E.shape[0] - w.engine_1[0].journeys
        w.heap_E[x].time = w.shown.run_1[0].now_s
        w.heap_E[x].item = (what << KIND_SHIFT) | (w.shown.job_J[job].serial << SERIAL_SHIFT) | job


@kernel(inline=True, allocates=False)
def drop_top(w: World) -> None:
    """Removes the earliest event from the heap."""
    size = w.engine_1[0].heap_size - 1
    w.engine_1[0].heap_size = size
    time, item = w.heap_E[size].time, w.heap_E[size].item
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            w.heap_E[right].time < w.heap_E[child].time
            or (w.heap_E[right].time == w.heap_E[child].time and w.heap_E[right].item < w.heap_E[child].item)
        ):
            child = right
        if time < w.heap_E[child].time or (time == w.heap_E[child].time and item < w.heap_E[child].item):
            break
        w.heap_E[i].time = w.heap_E[child].time
        w.heap_E[i].item = w.heap_E[child].item
        i = child
    w.heap_E[i].time = time
    w.heap_E[i].item = item


@kernel(inline=True, allocates=False)
def event_of(item: int) -> tuple[int, int, int]:
    """Returns kind, serial and slot of an item of the heap."""
    serial = (item >> SERIAL_SHIFT) & ((1 << (KIND_SHIFT - SERIAL_SHIFT)) - 1)
    return item >> KIND_SHIFT, serial, item & ((1 << SERIAL_SHIFT) - 1)


@kernel(inline=True, allocates=False)
def current_part(w: World, time: float) -> int:
    """Returns the part of an hour that a time lies in, at most the last one known."""
    return int(min(time / w.engine_1[0].part_s, w.signal_KSH.shape[2] - 2.0))


@kernel(inline=True, allocates=False)
def hour_intensity(w: World, s: int, time: float) -> float:
    """Returns the mean carbon intensity of the hour that a time lies in, at most the last one known, g/kWh."""
    part_s = w.engine_1[0].part_s
    part = current_part(w, time)
    if part_s == HOUR_S:
        return w.signal_KSH[CARBON, s, part]
    parts = int(HOUR_S / part_s)
    first = part // parts * parts
    return (w.signal_KSH[CARBON_SUM, s, first + parts] - w.signal_KSH[CARBON_SUM, s, first]) / HOUR_S


@kernel(inline=True, allocates=False)
def site_integrals(w: World, s: int, t0: float, t1: float) -> tuple[float, float, float]:
    """Returns what a watt at a site settles by between two times: the seconds it counts, and price and carbon x s."""
    part_s, counted = w.engine_1[0].part_s, t1 - t0
    if w.signal_KSH.shape[0] > FACTOR_SUM:
        counted = counted_s(w.signal_KSH[FACTOR_SUM], s, t0, t1, part_s)
    price = integral_between(w.signal_KSH[PRICE_SUM, s], t0, t1, part_s)
    return counted, price, integral_between(w.signal_KSH[CARBON_SUM, s], t0, t1, part_s)


@kernel(inline=True, allocates=False)
def settle_site(w: World, s: int, t0: float, t1: float, power_w: float) -> tuple[float, float, float]:
    """Settles constant facility power of a site between two times: (kWh, USD, kg)."""
    counted, price, carbon = site_integrals(w, s, t0, t1)
    return settle_integrals(counted, price, carbon, power_w)


@kernel(inline=True, allocates=False)
def meter_over_cap(w: World, s: int, t0: float, t1: float, busy: int) -> None:
    """Adds the GPU-seconds by which a site's use exceeds its capacity curve."""
    t1 = min(t1, w.caps_SH.shape[1] * HOUR_S)  # hours after the curve's last have none, however many they are
    if t0 >= t1:
        return
    hour = int(t0 / HOUR_S)
    while t0 < t1:
        end = min(t1, (hour + 1) * HOUR_S)
        w.state_S[s].over_cap_gpu_s += max(0.0, busy - w.caps_SH[s, hour]) * (end - t0)
        t0 = end
        hour += 1


@kernel(allocates=False)
def read_overhead(w: World, s: int, t0: float, t1: float) -> None:
    """Meters apart what is no use at a site between two times: stops, loads, and what caps and resizes take."""
    state = w.state_S[s]
    if state.bent_gpus > 0:
        state.gpu_s -= state.slowed_gpus * (t1 - t0)
        state.slowed_gpu_s += state.slowed_gpus * (t1 - t0)
        state.capped_gpu_s += state.capped_gpus * (t1 - t0)
    if state.overhead_gpus > 0:
        kwh, usd, kg = settle_site(w, s, t0, t1, state.overhead_w)
        state.gpu_s -= state.overhead_gpus * (t1 - t0)
        state.overhead_gpu_s += state.overhead_gpus * (t1 - t0)
        state.overhead_kwh += kwh
        state.overhead_usd += usd
        state.overhead_kg += kg


@kernel(inline=True, allocates=False)
def read_meters(w: World, s: int, time: float) -> None:
    """Brings a site's meters to a time, unless clusters have their own; free GPUs count up to the window's end."""
    state = w.state_S[s]
    t0 = state.metered_s
    if time <= t0 or w.engine_1[0].told:
        return
    state.metered_s = time
    site = w.shown.site_S[s]
    busy = state.taken
    state.gpu_s += busy * (time - t0)
    integrals = site_integrals(w, s, t0, time)
    if busy > 0:
        kwh, usd, kg = settle_integrals(*integrals, state.busy_w)
        state.busy_kwh += kwh
        state.busy_usd += usd
        state.busy_kg += kg
    window = w.shown.run_1[0].window_s
    if site.free > 0 and t0 < window:
        if time > window:
            integrals = site_integrals(w, s, t0, window)
        kwh, usd, kg = settle_integrals(*integrals, site.free * site.free_w * site.pue)
        state.free_kwh += kwh
        state.free_usd += usd
        state.free_kg += kg
    if w.engine_1[0].bends:
        read_overhead(w, s, t0, time)
    if w.engine_1[0].caps and busy > 0:
        meter_over_cap(w, s, t0, time, busy)


@kernel(inline=True, allocates=False)
def utility_usd(w: World) -> float:
    """Returns U1 - U2 - U3 - U4 - U5 of the meters (MASAC, Eqs. 2-7), less the price of lateness, USD."""
    engine, run = w.engine_1[0], w.shown.run_1[0]
    gpu_s, usd, kg = 0.0 - engine.lost_gpu_s, 0.0, engine.move_kg + engine.result_kg
    for s in range(w.state_S.shape[0]):
        state = w.state_S[s]
        gpu_s += state.gpu_s
        usd += state.busy_usd + state.free_usd
        kg += state.busy_kg + state.free_kg
    lost_usd = engine.move_usd + engine.result_usd + engine.late_usd
    return utility_kernel(run.revenue_usd_per_gpu_hour, run.carbon_usd_per_t, gpu_s / HOUR_S, usd, kg, lost_usd)


@kernel(inline=True, allocates=False)
def started_utility_usd(w: World) -> float:
    """Returns the utility with every started job counted whole: its value, less free power and journeys so far, USD."""
    engine, run = w.engine_1[0], w.shown.run_1[0]
    free_usd, kg = 0.0, engine.move_kg
    for s in range(w.state_S.shape[0]):
        free_usd += w.state_S[s].free_usd
        kg += w.state_S[s].free_kg
    paid = utility_kernel(run.revenue_usd_per_gpu_hour, run.carbon_usd_per_t, 0.0, free_usd, kg, engine.move_usd)
    return engine.started_usd + paid


@kernel(inline=True, allocates=False)
def count_started(w: World, job: int, s: int) -> None:
    """Counts a job that starts now whole: revenue less energy and carbon within the run, less its result's journey."""
    run, outcome = w.shown.run_1[0], w.outcome_R[w.track_J[job].row]
    until = outcome.finish_s if w.engine_1[0].drained else min(outcome.finish_s, run.window_s)
    _, usd, kg = settle_site(w, s, outcome.start_s, until, outcome.power_w)
    gpu_hours, journey_usd = outcome.gpus * (until - outcome.start_s) / HOUR_S, 0.0
    ingress, result_gb = w.shown.job_J[job].origin, w.shown.job_J[job].result_gb
    if until == outcome.finish_s and result_gb > 0.0 and w.shown.home_I[ingress] != s:
        _, journey_usd, journey_kg = transfer(w, ingress, s, result_gb, until)
        kg += journey_kg
    value = utility_kernel(run.revenue_usd_per_gpu_hour, run.carbon_usd_per_t, gpu_hours, usd, kg, journey_usd)
    w.engine_1[0].started_usd += value
    if w.engine_1[0].rewards == OWN:
        charged_s = min(until, run.window_s)
        if charged_s > outcome.start_s:
            free_w = outcome.gpus * w.shown.site_S[s].free_w * w.shown.site_S[s].pue
            _, usd, kg = settle_site(w, s, outcome.start_s, charged_s, free_w)
            value -= utility_kernel(run.revenue_usd_per_gpu_hour, run.carbon_usd_per_t, 0.0, usd, kg, 0.0)
        credit(w, job, s, value)


@kernel(inline=True, allocates=False)
def credit(w: World, job: int, s: int, usd: float) -> None:
    """Credits what a decision about a job earns to the job and to the site that decided."""
    w.state_S[s].own_usd += usd
    w.job_usd_R[w.shown.job_J[job].serial] += usd


@kernel(inline=True, allocates=False)
def read_reward(w: World) -> None:
    """Brings all meters to now and books the utility's growth since the last reading as the step's reward."""
    for s in range(w.state_S.shape[0]):
        read_meters(w, s, w.shown.run_1[0].now_s)
    utility = started_utility_usd(w) if w.engine_1[0].rewards >= AT_START else utility_usd(w)
    w.engine_1[0].reward_usd = utility - w.engine_1[0].utility_usd
    w.engine_1[0].utility_usd = utility


@kernel(inline=True, allocates=False)
def show_hour(w: World) -> None:
    """Shows the current price and intensity, and the hour's forecast, unless they are shown from outside."""
    if w.engine_1[0].told:
        return
    part = current_part(w, w.shown.run_1[0].now_s)
    if part == w.engine_1[0].part_shown:
        return
    w.engine_1[0].part_shown = part
    for s in range(w.shown.site_S.shape[0]):
        w.shown.site_S[s].price = w.signal_KSH[PRICE, s, part]
        w.shown.site_S[s].carbon = w.signal_KSH[CARBON, s, part]
    hour = int(part * w.engine_1[0].part_s / HOUR_S)
    if hour != w.engine_1[0].hour_shown:
        w.engine_1[0].hour_shown = hour
        show_forecast(w)


@kernel(inline=True, allocates=False)
def show_forecast(w: World) -> int:
    """Shows the forecast of the hour shown; returns the kind of the question, or UNISSUED where it lacks that hour."""
    if w.forecast_KISL.shape[1] > 0:
        row = w.engine_1[0].hour_shown - w.issued_2[0]
        if row < 0 or row >= w.issued_2[1]:
            w.engine_1[0].unissued = 1
            return UNISSUED
        forecast_KSL = w.shown.forecast_KSL
        for kind in range(2):
            for s in range(forecast_KSL.shape[1]):
                for lead in range(forecast_KSL.shape[2]):
                    forecast_KSL[kind, s, lead] = w.forecast_KISL[kind, row, s, lead]
        w.engine_1[0].unissued = 0
    return w.shown.run_1[0].kind


@kernel(inline=True, allocates=False)
def set_defaults(w: World) -> None:
    """Sets every answer to hold, largest gang, oracle clock, at once."""
    for n in range(w.answers.answer_N.shape[0]):
        no_answer(w.answers, n)


@kernel(inline=True, allocates=False)
def room_now(w: World, s: int) -> int:
    """Returns how many GPUs may start at a site now."""
    return room(w.shown, s, w.caps_SH, w.engine_1[0].caps == HARD_CAPS)


@kernel(inline=True, allocates=False)
def room_for(w: World, job: int, s: int) -> int:
    """Returns how many GPUs a job may start on at a site now.

    Free ones that its tenant, the connection and the jobs that are suspended there leave it.
    """
    free = room_now(w, s)
    if w.engine_1[0].bends:
        if w.bent_J[job].kept > 0:
            return w.bent_J[job].kept
        owed = w.state_S[s].owed
        if owed > 0 and not w.state_S[s].keeps:
            if is_owed(w.shown, job):
                owed -= w.shown.life_J[job].own_gpus
            lacks = free - owed < w.shown.job_J[job].gpus_max
            if owed > 0 and lacks and free >= w.shown.job_J[job].gpus_min:
                free = min(free, spare_gpus(w, job, s))
    if w.engine_1[0].tenants:
        free = min(free, quota_room(w, w.track_J[job].tenant))
    return power_room(w, job, s, free) if w.state_S[s].limit_w < np.inf else free


@kernel(allocates=False)
def power_room(w: World, job: int, s: int, most: int) -> int:
    """Returns on how many GPUs, so many at most, a job may start within its site's power limit.

    Its power counts at the clock at which it draws most, that of jobs which load as they will draw
    when they run, and free GPUs count.
    """
    view, site = w.shown, w.shown.site_S[s]
    drawn_w = w.state_S[s].busy_w + site.free * site.free_w * site.pue
    if w.engine_1[0].bends:
        for other in range(view.life_J.shape[0]):
            life = view.life_J[other]
            if life.state == LOADS and life.site == s and view.job_J[other].serial >= 0:
                freedom, power_w = view.freedom_C[view.job_J[other].class_], w.outcome_R[w.track_J[other].row].power_w
                drawn_w += max(0.0, freedom.cap_power[life.cap] - freedom.load_power) * power_w
    more_w = (most_gpu_w(w, job, s) - site.free_w) * site.pue
    left_w = w.state_S[s].limit_w * (1.0 + ROUNDING) - drawn_w
    if more_w <= 0.0 or left_w >= most * more_w:
        return most
    return max(0, int(np.floor(left_w / more_w)))


@kernel(inline=True, allocates=False)
def most_gpu_w(w: World, job: int, s: int) -> float:
    """Returns the most that a job draws per GPU at a site, at the clock of which it draws most, W (IT)."""
    busy_w = 0.0
    for level in range(w.shown.site_S[s].levels):
        busy_w = max(busy_w, w.shown.speed_KSCGF[POWER_W, s, w.shown.job_J[job].class_, 1, level])
    return busy_w


@kernel(inline=True, allocates=False)
def show_free(w: World, s: int) -> None:
    """Shows how many GPUs of a site are neither taken nor withheld; notes where they are more than before."""
    free = max(0, w.shown.site_S[s].gpus - w.state_S[s].taken - w.state_S[s].withheld)
    if w.engine_1[0].wants_freed and free > w.shown.site_S[s].free:
        w.state_S[s].changed = 1
    w.shown.site_S[s].free = free


@kernel(inline=True, allocates=False)
def take_gpus(w: World, job: int, s: int, gpus: int) -> None:
    """Lets a job take GPUs of a site now, or give them back (negative); meters have been read."""
    w.state_S[s].taken += gpus
    show_free(w, s)
    if w.engine_1[0].tenants:
        hold_quota(w, job, gpus)


@kernel(allocates=False)
def run_power_w(w: World, job: int) -> float:
    """Returns the facility power of a running job by the model, W."""
    outcome = w.outcome_R[w.track_J[job].row]
    class_ = w.shown.job_J[job].class_
    power_w = w.shown.speed_KSCGF[POWER_W, outcome.site, class_, outcome.gpus, outcome.level]
    return float(power_w * w.shown.site_S[outcome.site].pue)


@kernel(allocates=False)
def count_due(w: World, job: int, sign: float) -> None:
    """Counts for a running job's tenant what it is expected to use (-1: no longer), by the signals at its start."""
    outcome, seconds = w.outcome_R[w.track_J[job].row], w.track_J[job].reach_s
    s, part = outcome.site, current_part(w, outcome.start_s)
    counted = seconds
    if w.signal_KSH.shape[0] > FACTOR_SUM:
        factor_s = w.signal_KSH[FACTOR_SUM, s, part + 1] - w.signal_KSH[FACTOR_SUM, s, part]
        counted *= factor_s / w.engine_1[0].part_s
    price, carbon = w.signal_KSH[PRICE, s, part] * seconds, w.signal_KSH[CARBON, s, part] * seconds
    kwh, usd, kg = settle_integrals(counted, price, carbon, sign * run_power_w(w, job))
    add_due(w, w.track_J[job].tenant, outcome.start_s, kwh, usd, kg)


@kernel(allocates=False)
def count_spent(w: World, job: int) -> None:
    """Counts for a job's tenant what it used, where it ends now, in place of what it was expected to use."""
    outcome = w.outcome_R[w.track_J[job].row]
    count_due(w, job, -1.0)
    now = w.shown.run_1[0].now_s
    kwh, usd, kg = settle_site(w, outcome.site, outcome.start_s, now, run_power_w(w, job))
    add_spent(w, w.track_J[job].tenant, outcome.start_s, kwh, usd, kg)


@kernel(inline=True, allocates=False)
def withhold(w: World, time: float, amount: int, spot: int) -> int:
    """Withholds so many GPUs of a site from a time on, or limits its power; jobs that run run on. Returns the site.

    Or notes that a grid event begins or ends there.

    Args:
        w: World.
        time: Time, s.
        amount: GPUs, or W.
        spot: Site, POWER_LIMIT + site, or GRID_EVENT + site.
    """
    s = spot % GRID_EVENT
    w.engine_1[0].steps_left -= 1
    w.shown.run_1[0].now_s = max(w.shown.run_1[0].now_s, time)
    if spot >= POWER_LIMIT:
        w.state_S[s].limit_w = amount
        return s
    if spot >= GRID_EVENT:
        w.state_S[s].changed = 1
        return s
    read_meters(w, s, time)
    w.state_S[s].withheld = amount
    show_free(w, s)
    return s


@kernel(inline=True, allocates=False)
def start(w: World, job: int, s: int, gpus: int, level: int) -> None:
    """Starts a job now: takes GPUs, fixes clock and power, schedules the finish unless it is told."""
    view, row = w.shown, w.track_J[job].row
    now, serial = view.run_1[0].now_s, view.job_J[job].serial
    if level == ORACLE:
        level = view.oracle_SCG[s, view.job_J[job].class_, gpus]
    read_meters(w, s, now)
    unit_s = view.speed_KSCGF[SECONDS, s, view.job_J[job].class_, gpus, level]
    seconds = view.job_J[job].work * unit_s
    told_s = seconds
    if w.engine_1[0].guessed:
        seconds = w.submitted_R[row].work * unit_s
    power_w = view.speed_KSCGF[POWER_W, s, view.job_J[job].class_, gpus, level] * view.site_S[s].pue
    take_gpus(w, job, s, gpus)
    w.state_S[s].busy_w += power_w
    w.outcome_R[row].status = RUNNING
    w.outcome_R[row].site = s
    w.outcome_R[row].gpus = gpus
    w.outcome_R[row].level = level
    w.outcome_R[row].start_s = now
    w.outcome_R[row].finish_s = now + seconds
    w.outcome_R[row].power_w = power_w
    if w.engine_1[0].budgets:
        w.track_J[job].reach_s = told_s
        count_due(w, job, 1.0)
    if not w.engine_1[0].told:
        push(w, now + min(seconds, told_s), FINISH, serial, job)
    note(w, STARTED, job)
    if w.engine_1[0].rewards >= AT_START:
        count_started(w, job, s)


@kernel(inline=True, allocates=False)
def runs_on(w: World, job: int) -> bool:
    """Returns whether a job that was expected to end now runs on; schedulers are then told a longer run time."""
    if not w.engine_1[0].guessed:
        return False
    view, row = w.shown, w.track_J[job].row
    outcome, now = w.outcome_R[row], w.shown.run_1[0].now_s
    if outcome.finish_s <= now:
        return False
    record, done = w.submitted_R[row], 0.0
    if w.engine_1[0].bends:  # of a job that was suspended or capped, what was done before counts
        done = record.work - w.bent_J[job].left
    told = view.job_J[job].work + done
    longer = told * OVERRUN
    if record.told_2 > told:
        longer = record.told_2
    elif record.told_3 > told:
        longer = record.told_3
    elif record.told_4 > told:
        longer = record.told_4
    longer -= done
    view.job_J[job].work = view.job_J[job].expected = longer
    if w.engine_1[0].bends:
        until_s = run_end_s(view, job, longer)
        view.life_J[job].until_s = until_s
    else:
        unit_s = view.speed_KSCGF[SECONDS, outcome.site, view.job_J[job].class_, outcome.gpus, outcome.level]
        until_s = outcome.start_s + longer * unit_s
    push_end(w, job, min(outcome.finish_s, max(until_s, now + 1.0)))
    return True


@kernel(inline=True, allocates=False)
def crash_s(w: World, job: int) -> float:
    """Returns when the hardware of a running job fails if its rate stays, s; infinite: never.

    It fails after some GPU-seconds of running, those under power caps included.
    """
    gpus = w.outcome_R[w.track_J[job].row].gpus
    return w.shown.life_J[job].rate_since_s + max(0.0, w.bent_J[job].fails_gpu_s) / gpus


@kernel(inline=True, allocates=False)
def fault_s(w: World, job: int) -> float:
    """Returns when a running job fails by its own fault if its rate stays, s; infinite: never.

    It does so after some of its work, wherever and whenever that is done.
    """
    view, row = w.shown, w.track_J[job].row
    life = view.life_J[job]
    left = w.bent_J[job].left - (w.submitted_R[row].work - w.failure_RX[row, 0])
    return life.rate_since_s + max(0.0, left) * unit_s(view, job) / life.rate


@kernel(inline=True, allocates=False)
def push_end(w: World, job: int, ends_s: float) -> None:
    """Schedules the end of a running job, or the lift of its power cap or its failure if that comes before."""
    if w.failure_RX.shape[0] > 0:
        fails_s = min(crash_s(w, job), fault_s(w, job))
        if fails_s <= min(ends_s, w.shown.life_J[job].lift_s):
            push(w, fails_s, BREAK, w.shown.job_J[job].serial, job)
            return
    if w.engine_1[0].told:  # its cluster says when it ends, which may be later than expected
        if w.shown.life_J[job].lift_s < np.inf:
            push(w, w.shown.life_J[job].lift_s, LIFT, w.shown.job_J[job].serial, job)
        return
    if w.engine_1[0].bends and w.shown.life_J[job].lift_s < ends_s:
        push(w, w.shown.life_J[job].lift_s, LIFT, w.shown.job_J[job].serial, job)
    else:
        push(w, ends_s, FINISH, w.shown.job_J[job].serial, job)


@kernel(inline=True, allocates=False)
def finish(w: World, job: int) -> None:
    """Ends a job now: frees its GPUs and sends its result home."""
    view, row = w.shown, w.track_J[job].row
    s = w.outcome_R[row].site
    read_meters(w, s, view.run_1[0].now_s)
    if w.engine_1[0].budgets:
        count_spent(w, job)
    take_gpus(w, job, s, -w.outcome_R[row].gpus)
    w.state_S[s].busy_w -= w.outcome_R[row].power_w
    if w.state_S[s].taken == 0:
        w.state_S[s].busy_w = 0.0
    w.outcome_R[row].status = DONE
    note(w, FREED, job)
    ingress = view.job_J[job].origin
    if view.job_J[job].result_gb > 0.0 and view.home_I[ingress] != s:
        kwh, usd, kg = transfer(w, ingress, s, view.job_J[job].result_gb, view.run_1[0].now_s)
        w.engine_1[0].result_kwh += kwh
        w.engine_1[0].result_usd += usd
        w.engine_1[0].result_kg += kg


@kernel(inline=True, allocates=False)
def transfer(w: World, ingress: int, s: int, size_gb: float, time: float) -> tuple[float, float, float]:
    """Settles a transfer between an ingress point and a site at a time; without signals only its energy and price."""
    link = w.shown.link_IS[ingress, s]
    home = w.shown.home_I[ingress]
    if w.engine_1[0].has_signals and home >= 0:
        here, there = hour_intensity(w, home, time), hour_intensity(w, s, time)
    elif w.engine_1[0].has_signals:
        here = there = hour_intensity(w, s, time)
    else:
        here = there = 0.0
    return settle_transfer(size_gb, link.usd_per_gb, link.kwh_per_gb, here, there)


@kernel(inline=True, allocates=False)
def move(w: World, job: int, ingress: int, s: int, begin_s: float) -> None:
    """Settles a job's own journey, which begins at a time, and counts it as a move."""
    if w.shown.home_I[ingress] == s or w.shown.job_J[job].move_gb == 0.0:
        return
    kwh, usd, kg = transfer(w, ingress, s, w.shown.job_J[job].move_gb, begin_s)
    w.outcome_R[w.track_J[job].row].moves += 1
    w.engine_1[0].move_kwh += kwh
    w.engine_1[0].move_usd += usd
    w.engine_1[0].move_kg += kg
    if w.engine_1[0].rewards == OWN:
        run, sender = w.shown.run_1[0], w.shown.home_I[ingress] if w.shown.home_I[ingress] >= 0 else s
        cost = utility_kernel(run.revenue_usd_per_gpu_hour, run.carbon_usd_per_t, 0.0, 0.0, kg, usd)
        credit(w, job, sender, cost)


@kernel(inline=True, allocates=False)
def missing(w: World) -> int:
    """Returns what the next job that arrives lacks: NO_SLOT in the view, UNESTIMATED run time, or 0."""
    if w.engine_1[0].next_arrival >= w.engine_1[0].estimated:
        return UNESTIMATED
    return 0 if w.engine_1[0].free_slot >= 0 or w.engine_1[0].new_slot < w.track_J.shape[0] else NO_SLOT


@kernel(inline=True, allocates=False)
def take_slot(w: World) -> int:
    """Shows the job that arrives next in a free slot of the view, and returns the slot."""
    r, job = w.engine_1[0].next_arrival, w.engine_1[0].free_slot
    w.engine_1[0].next_arrival = r + 1
    if job >= 0:
        w.engine_1[0].free_slot = w.track_J[job].next
    else:
        job = w.engine_1[0].new_slot
        w.engine_1[0].new_slot = job + 1
    w.shown.job_J[job].arrival_s = w.submitted_R[r].arrival_s
    w.shown.job_J[job].work = w.submitted_R[r].told
    w.shown.job_J[job].expected = w.submitted_R[r].expected
    w.shown.job_J[job].deadline_s = w.submitted_R[r].deadline_s
    w.shown.job_J[job].move_gb = w.submitted_R[r].move_gb
    w.shown.job_J[job].result_gb = w.submitted_R[r].result_gb
    w.shown.job_J[job].origin = w.submitted_R[r].origin
    w.shown.job_J[job].class_ = w.submitted_R[r].class_
    w.shown.job_J[job].gpus_min = w.submitted_R[r].gpus_min
    w.shown.job_J[job].gpus_max = w.submitted_R[r].gpus_max
    w.shown.job_J[job].preset_site = w.submitted_R[r].preset_site
    w.shown.job_J[job].serial = w.submitted_R[r].serial
    row = job if w.engine_1[0].told else r
    w.track_J[job].row = row
    w.outcome_R[row].status = PLANNED
    w.outcome_R[row].site = -1
    w.outcome_R[row].gpus = 0
    w.outcome_R[row].level = -1
    w.outcome_R[row].moves = 0
    w.outcome_R[row].reach_s = np.nan
    w.outcome_R[row].start_s = np.nan
    w.outcome_R[row].finish_s = np.nan
    w.outcome_R[row].power_w = 0.0
    w.track_J[job].next = -1
    w.track_J[job].before = -1
    w.track_J[job].earliest_s = 0.0
    w.track_J[job].held = w.submitted_R[r].held
    w.track_J[job].tenant = w.submitted_R[r].tenant
    w.track_J[job].priority = w.submitted_R[r].priority
    note(w, TAKEN, job)
    return job


@kernel(inline=True, allocates=False)
def give_slot_back(w: World, job: int) -> None:
    """Takes a job that is done or overdue out of the view."""
    w.shown.job_J[job].serial = -1
    w.track_J[job].next = w.engine_1[0].free_slot
    w.engine_1[0].free_slot = job


@kernel(inline=True, allocates=False)
def enqueue(w: World, job: int, s: int) -> None:
    """Appends a job to a site's waiting list."""
    row = w.track_J[job].row
    w.outcome_R[row].status = WAITING
    w.outcome_R[row].site = s
    w.outcome_R[row].reach_s = w.shown.run_1[0].now_s
    last = w.state_S[s].tail
    w.track_J[job].before = last
    if last < 0:
        w.state_S[s].head = job
    else:
        w.track_J[last].next = job
    w.state_S[s].tail = job
    w.shown.site_S[s].waiting += 1
    w.shown.site_S[s].waiting_gpus += w.shown.job_J[job].gpus_min
    note(w, JOINED, job)


@kernel(inline=True, allocates=False)
def not_held(w: World, job: int) -> int:
    """Returns a waiting job, or the first behind it that is not held; -1 for none."""
    while job >= 0 and w.track_J[job].held:
        job = w.track_J[job].next
    return job


@kernel(inline=True, allocates=False)
def leave_queue(w: World, job: int, s: int) -> None:
    """Takes a job out of a site's waiting list and counts."""
    before, behind = w.track_J[job].before, w.track_J[job].next
    if before < 0:
        w.state_S[s].head = behind
    else:
        w.track_J[before].next = behind
    if behind < 0:
        w.state_S[s].tail = before
    else:
        w.track_J[behind].before = before
    w.track_J[job].next = -1
    w.track_J[job].before = -1
    w.shown.site_S[s].waiting -= 1
    w.shown.site_S[s].waiting_gpus -= w.shown.job_J[job].gpus_min


@kernel(inline=True, allocates=False)
def give_up(w: World, job: int) -> None:
    """Marks a job overdue and drops it."""
    w.outcome_R[w.track_J[job].row].status = OVERDUE
    note(w, DROPPED, job)
    give_slot_back(w, job)

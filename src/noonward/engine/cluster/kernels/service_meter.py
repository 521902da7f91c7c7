"""Compiled readings of energy, latency, queues and power per decision of protocol on-arrival."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.compiled import kernel
from noonward.decision.cluster.observation import CARBON_G_PER_KWH, PRICE_USD_PER_MWH
from noonward.decision.cluster.value import gang_at
from noonward.decision.cluster.view import ORACLE, POWER_W, SECONDS, ClusterView, delay_s
from noonward.engine.cluster.kernels.batch import world_of
from noonward.engine.cluster.kernels.world import CARBON_SUM, FACTOR_SUM, OVERDUE, PRICE_SUM, World
from noonward.ledger.settle import counted_s, integral_between

JOULES, LATENCY_S, LATE = range(3)
"""Positions in ``Open.credit_BPX``: what has been credited of a job so far."""
ENERGY, USD, KG = range(3)
"""Positions in the weights of energy, its price and its carbon."""


class Open(NamedTuple):
    """Jobs that were decided on and have not started yet. Axes: B rows, P places."""

    last_B: I8
    """Serial of the job the row was asked about last, or -1."""
    slot_B: I8
    """Slot of that job."""
    count_B: I8
    """Places in use."""
    slot_BP: I8
    """Slots they have while they are in sight."""
    serial_BP: I8
    """Their serials."""
    credit_BPX: F8


class Readings(NamedTuple):
    """What the last reading found. Axes: B rows, S sites."""

    joules_B: F8
    """Energy beyond that of free GPUs, weighed, J: the whole run of the job decided on, and what earlier ones turned
    out to differ from what was credited; the time in system at the weight of the job's class is counted in."""
    latency_B: F8
    """End-to-end latency, s, credited likewise."""
    late_B: F8
    """Jobs whose latency exceeds the limit, credited likewise."""
    work_B: F8
    """Work of the job decided on, units; 0 if there was none."""
    decided_B: F8
    """1 if a job was decided on."""
    site_B: I8
    """Site it was sent to, or -1."""
    waiting_BS: F8
    """Jobs that wait now."""
    power_BS: F8
    """Facility power now, W."""


@kernel(inline=True, allocates=False)
def _weighed_s(w: World, s: int, start_s: float, run_s: float, weight_3: F8) -> float:
    """Returns a run's seconds, weighed: ``a run + integral of (b price / 100 USD/MWh + c intensity / 500 g/kWh)``.

    Prices and intensities are those that the ledger settles by; hours after the window's end count as its last one.
    """
    end_s, part_s = start_s + run_s, w.engine_1[0].part_s
    out = weight_3[ENERGY] * run_s
    if w.signal_KSH.shape[0] > FACTOR_SUM:
        out = weight_3[ENERGY] * counted_s(w.signal_KSH[FACTOR_SUM], s, start_s, end_s, part_s)
    if weight_3[USD] != 0.0:
        out += weight_3[USD] * integral_between(w.signal_KSH[PRICE_SUM, s], start_s, end_s, part_s) / PRICE_USD_PER_MWH
    if weight_3[KG] != 0.0:
        out += weight_3[KG] * integral_between(w.signal_KSH[CARBON_SUM, s], start_s, end_s, part_s) / CARBON_G_PER_KWH
    return out


@kernel(inline=True, allocates=False)
def _all_jobs(w: World) -> ClusterView:
    """Returns the view with all jobs of the run, by their serials, in place of those in sight, by their slots."""
    view = w.shown
    return ClusterView(
        view.run_1,
        view.site_S,
        w.submitted_R,
        view.asked_N,
        view.mask_NA,
        view.link_IS,
        view.link_free_IS,
        view.home_I,
        view.range_CS,
        view.forecast_KSL,
        view.speed_KSCGF,
        view.oracle_SCG,
        view.clock_SF,
        view.freedom_C,
        view.life_J,
    )


@kernel(inline=True, allocates=False)
def _credit(w: World, job: int, serial: int, limit_s: float, weight_3: F8, second_C: F8, out_X: F8) -> bool:
    """Writes what a job is known to take: its run as started, or as it would start now; returns whether it started."""
    view, record, outcome = _all_jobs(w), w.submitted_R[serial], w.outcome_R[serial]
    s, gpus, level = outcome.site, outcome.gpus, outcome.level
    site = view.site_S[s]
    if not np.isnan(outcome.start_s):
        weighed_s = _weighed_s(w, s, outcome.start_s, outcome.finish_s - outcome.start_s, weight_3)
        out_X[JOULES] = (outcome.power_w - gpus * site.free_w * site.pue) * weighed_s
        out_X[LATENCY_S] = outcome.finish_s - record.arrival_s
    else:
        most = gang_at(view, serial, s)
        gpus = min(most, gpus) if gpus > 0 else most
        if level == ORACLE:
            level = view.oracle_SCG[s, record.class_, gpus]
        run_s = record.work * view.speed_KSCGF[SECONDS, s, record.class_, gpus, level]
        power_w = view.speed_KSCGF[POWER_W, s, record.class_, gpus, level]
        reached_s = record.arrival_s + delay_s(view, serial, record.origin, s)
        if w.shown.job_J[job].serial == serial:
            reached_s = max(w.track_J[job].reach_s, w.track_J[job].earliest_s)
        start_s = max(view.run_1[0].now_s, reached_s)
        out_X[JOULES] = (power_w - gpus * site.free_w) * site.pue * _weighed_s(w, s, start_s, run_s, weight_3)
        out_X[LATENCY_S] = start_s - record.arrival_s + run_s
    out_X[JOULES] += second_C[record.class_] * out_X[LATENCY_S]
    out_X[LATE] = out_X[LATENCY_S] > limit_s
    return not np.isnan(outcome.start_s)


@kernel(inline=True, allocates=False)
def _book(readings: Readings, b: int, new_X: F8, old_X: F8) -> None:
    """Credits what a job turned out to take beyond what was credited before."""
    readings.joules_B[b] += new_X[JOULES] - old_X[JOULES]
    readings.latency_B[b] += new_X[LATENCY_S] - old_X[LATENCY_S]
    readings.late_B[b] += new_X[LATE] - old_X[LATE]
    for x in range(3):
        old_X[x] = new_X[x]


@kernel(inline=True, allocates=False)
def _settle_open(
    w: World, opened: Open, readings: Readings, b: int, limit_s: float, weight_3: F8, second_C: F8, new_X: F8
) -> None:
    """Brings the credits of a row's waiting jobs up to now; forgets those that have started or are overdue."""
    kept = 0
    for p in range(opened.count_B[b]):
        job, serial = opened.slot_BP[b, p], opened.serial_BP[b, p]
        if w.shown.job_J[job].serial != serial and w.outcome_R[serial].status == OVERDUE:
            continue
        started = _credit(w, job, serial, limit_s, weight_3, second_C, new_X)
        _book(readings, b, new_X, opened.credit_BPX[b, p])
        if not started:
            opened.slot_BP[b, kept] = job
            opened.serial_BP[b, kept] = serial
            for x in range(3):
                opened.credit_BPX[b, kept, x] = opened.credit_BPX[b, p, x]
            kept += 1
    opened.count_B[b] = kept


@kernel(allocates=False)
def read_service(
    place_B: NDArray[np.void],
    asked_BN: NDArray[np.bool_],
    opened: Open,
    readings: Readings,
    limit_s: float,
    weight_3: F8,
    second_C: F8,
    new_X: F8,
) -> None:
    """Reads all rows after a step.

    A job's energy and latency are credited when it is decided on, as if it started on arrival with the gang asked for;
    waiting is added as it passes, and the truth once it starts. The credits of a job sum to its own energy and latency.

    Args:
        place_B: PLACE records.
        asked_BN: Rows that are asked.
        opened: Jobs not yet started; the job asked about is decided on by the next reading.
        readings: Filled whole.
        limit_s: Latency beyond which a job is late, s.
        weight_3: What a joule counts: as such, per 100 USD/MWh of its price, per 500 g/kWh of its intensity.
        second_C: What a second of a job's time in system counts per class, J.
        new_X: Room for one job's credit.
    """
    for b in range(len(place_B)):
        w = world_of(place_B, b)
        readings.joules_B[b] = readings.latency_B[b] = readings.late_B[b] = 0.0
        readings.work_B[b] = readings.decided_B[b] = 0.0
        _settle_open(w, opened, readings, b, limit_s, weight_3, second_C, new_X)
        readings.site_B[b] = -1
        serial = opened.last_B[b]
        if serial >= 0:
            p, job = opened.count_B[b], opened.slot_B[b]
            opened.slot_BP[b, p] = job
            opened.serial_BP[b, p] = serial
            opened.credit_BPX[b, p] = 0.0
            started = _credit(w, job, serial, limit_s, weight_3, second_C, new_X)
            _book(readings, b, new_X, opened.credit_BPX[b, p])
            opened.count_B[b] = p if started else p + 1
            readings.work_B[b] = w.submitted_R[serial].work
            readings.decided_B[b] = 1.0
            readings.site_B[b] = w.outcome_R[serial].site
        opened.slot_B[b] = w.shown.asked_N[0]
        opened.last_B[b] = w.shown.job_J[w.shown.asked_N[0]].serial if asked_BN[b, 0] else -1
        for s in range(w.shown.site_S.shape[0]):
            site = w.shown.site_S[s]
            readings.waiting_BS[b, s] = site.waiting
            readings.power_BS[b, s] = w.state_S[s].busy_w + site.free * site.free_w * site.pue

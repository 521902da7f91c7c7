"""What stopping and capping jobs took in a run: stops and loads, lost work, slower runs, and time suspended."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from noonward.arrays import F8, I8, Bools, Records
from noonward.ledger.segments import (
    CRASH,
    FAIL,
    FAILED,
    HALTS,
    KILL,
    LOAD,
    LOST,
    OWN_JOURNEY,
    RUN,
    WASTED,
    Outcome,
    Overhead,
    PowerSegments,
    useful_share,
)
from noonward.ledger.settle import settle_power
from noonward.model.signals import SiteSignals
from noonward.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class Interruptions:
    """What suspensions and caps took. Energy, USD and kg are within those of jobs; money, carbon NaN without signals.

    Attributes:
        suspensions: How often a job was suspended, stopped without notice, or stopped by a failure and begun again.
        requeues: How often of these it was stopped without notice for others.
        suspended_h: Hours that jobs stood suspended, from the end of a stop to the begin of the next load (or, of jobs
            that were given up or never resumed, up to the run's end), h.
        overhead_gpu_hours: GPU-hours of stops and loads; they earn nothing.
        overhead_kwh: Their facility energy, kWh.
        overhead_usd: Its price, USD.
        overhead_kg: Its emissions, kgCO2.
        lost_gpu_hours: Useful GPU-hours of runs whose work was lost: of jobs that were suspended and given up later, or
            after the last checkpoint of jobs that were stopped without notice or failed; they earn nothing.
        lost_kwh: Their facility energy, kWh.
        lost_usd: Its price, USD.
        lost_kg: Its emissions, kgCO2.
        capped_gpu_hours: GPU-hours for which jobs ran under a power cap.
        slowed_gpu_hours: GPU-hours of runs under caps or on other gangs than the one started on, less the useful ones;
            they earn nothing. Below 0 where smaller gangs use GPUs better.
        resizes: How often a job was resumed on another gang.
        moves: How often a job that was suspended left for another site.
        moved_gb: What travelled for it, GB. Its energy, price and emissions are within those of moves.
    """

    suspensions: float
    suspended_h: float
    overhead_gpu_hours: float
    overhead_kwh: float
    overhead_usd: float
    overhead_kg: float
    lost_gpu_hours: float
    lost_kwh: float
    lost_usd: float
    lost_kg: float
    capped_gpu_hours: float = 0.0
    slowed_gpu_hours: float = 0.0
    resizes: float = 0.0
    requeues: float = 0.0
    moves: float = 0.0
    moved_gb: float = 0.0


def interruptions_of(outcome: Outcome, signals: SiteSignals) -> Interruptions | None:
    """Returns what suspensions and caps took, or None where no scheduler was asked about running jobs."""
    if outcome.segment_K is None:
        return None
    taken: dict[str, float] = {}
    for name, lost in (("overhead", False), ("lost", True)):
        chosen_K = np.isin(outcome.overhead.kind_K, WASTED) == lost
        gpu_hours, amount_A = _settled(outcome.overhead, chosen_K, signals, len(outcome.job_J))
        taken |= {
            f"{name}_gpu_hours": gpu_hours,
            f"{name}_kwh": float(amount_A[0]),
            f"{name}_usd": float(amount_A[1]),
            f"{name}_kg": float(amount_A[2]),
        }
    capped_gpu_hours_J, slowed_gpu_hours_J = capped_gpu_hours_of(outcome)
    transfer_X = outcome.transfer_X[outcome.transfer_X["kind"] == OWN_JOURNEY]
    moved_X = transfer_X[outcome.job_J["start_s"][transfer_X["job"]] < transfer_X["time_s"]]
    return Interruptions(
        suspensions=int(outcome.suspensions_J.sum()),
        suspended_h=float(suspended_h_of(outcome).sum()),
        **taken,
        capped_gpu_hours=float(capped_gpu_hours_J.sum()),
        slowed_gpu_hours=float(slowed_gpu_hours_J.sum()),
        resizes=_resizes(outcome),
        requeues=int((outcome.segment_K["kind"] == KILL).sum()),
        moves=len(moved_X),
        moved_gb=float(moved_X["size_gb"].sum()),
    )


def _resizes(outcome: Outcome) -> int:
    """Returns how often a job was resumed on another gang than it had."""
    segment_K = outcome.segment_K
    if segment_K is None:
        return 0
    loads_K = (segment_K["kind"][1:] == LOAD) & (segment_K["from_s"][1:] <= outcome.ended_s)
    return int((loads_K & (segment_K["gpus"][1:] != segment_K["gpus"][:-1])).sum())


def failed_amounts(outcome: Outcome, signals: SiteSignals) -> dict[str, float]:
    """Returns what failures came to, by the ledger's fields; zeros where no job may fail."""
    if outcome.environment.failures is None or outcome.segment_K is None:
        names = ("failed", "failures", "failed_gpu_hours", "failed_kwh", "failed_usd", "failed_kg")
        return dict.fromkeys(names, 0.0)
    overhead, failed_J = outcome.overhead, outcome.job_J["status"] == FAILED
    chosen_K = np.isin(overhead.kind_K, WASTED) & failed_J[overhead.job_K]
    gpu_hours, amount_A = _settled(overhead, chosen_K, signals, len(failed_J))
    return {
        "failed": int(failed_J.sum()),
        "failures": int(np.isin(outcome.segment_K["kind"], (CRASH, FAIL)).sum()),
        "failed_gpu_hours": gpu_hours,
        "failed_kwh": float(amount_A[0]),
        "failed_usd": float(amount_A[1]),
        "failed_kg": float(amount_A[2]),
    }


def _settled(overhead: Overhead, chosen_K: Bools, signals: SiteSignals, jobs: int) -> tuple[float, F8]:
    """Returns useful GPU-hours and amounts of some of the overhead's segments; no segment takes nothing."""
    columns = {one.name: getattr(overhead, one.name)[chosen_K] for one in fields(PowerSegments)}
    if not chosen_K.any():
        return 0.0, np.zeros(1 + len(signals.quantities))
    settled = settle_power(PowerSegments(**columns), signals, jobs)
    return float(settled.gpu_s_J.sum() / HOUR_S), settled.job_JA.sum(axis=0)


def suspended_h_of(outcome: Outcome) -> F8:
    """Returns how long each job stood suspended, from a stop's end to the next load or the run's end, h, [J]."""
    jobs = len(outcome.job_J)
    if outcome.segment_K is None:
        return np.zeros(jobs)
    segment_K, ended_s = outcome.segment_K, outcome.ended_s
    stop_K = np.flatnonzero(np.isin(segment_K["kind"], HALTS))
    next_K = np.minimum(stop_K + 1, len(segment_K) - 1)
    resumed = (segment_K["kind"][next_K] == LOAD) & (segment_K["job"][next_K] == segment_K["job"][stop_K])
    until_s = np.where(resumed, segment_K["from_s"][next_K], ended_s)
    dark_s = np.maximum(np.minimum(until_s, ended_s) - segment_K["to_s"][stop_K], 0.0)
    return np.bincount(segment_K["job"][stop_K], dark_s, minlength=jobs) / HOUR_S


def paused_s_of(outcome: Outcome) -> F8:
    """Returns how long each job did not run between its start and its finish, s, [J]."""
    jobs = len(outcome.job_J)
    if outcome.segment_K is None:
        return np.zeros(jobs)
    pauses_K = np.isin(outcome.segment_K["kind"], (*HALTS, LOAD))
    begun_K, ended_K = (np.where(np.isin(outcome.segment_K["kind"], kinds), 1.0, 0.0) for kinds in (HALTS, (LOAD,)))
    paused_s_K = ended_K * outcome.segment_K["to_s"] - begun_K * outcome.segment_K["from_s"]
    paused_s_J = np.bincount(outcome.segment_K["job"][pauses_K], paused_s_K[pauses_K], minlength=jobs)
    return paused_s_J.astype(np.float64, copy=False)


def capped_gpu_hours_of(outcome: Outcome) -> tuple[F8, F8]:
    """Returns each job's GPU-hours under power caps, and those that caps and resizes made useless, each [J]."""
    jobs = len(outcome.job_J)
    if outcome.segment_K is None:
        return np.zeros(jobs), np.zeros(jobs)
    part_K = outcome.segment_K
    seconds_K = np.maximum(np.minimum(part_K["to_s"], outcome.ended_s) - part_K["from_s"], 0.0)
    gpu_hours_K = part_K["gpus"] * seconds_K / HOUR_S
    slowed_K = gpu_hours_K * (1.0 - useful_share(part_K))
    gpu_hours_K = np.where(part_K["cap"] > 0, gpu_hours_K, 0.0)
    capped_J, slowed_J = (np.bincount(part_K["job"], hours_K, minlength=jobs) for hours_K in (gpu_hours_K, slowed_K))
    return capped_J.astype(np.float64, copy=False), slowed_J.astype(np.float64, copy=False)


def job_columns(outcome: Outcome) -> dict[str, F8 | I8]:
    """Returns what suspensions and caps took of each job, by the column of a record's table of jobs, each [J].

    None where no scheduler was asked about running jobs.
    """
    if outcome.segment_K is None:
        return {}
    return {
        "suspensions": outcome.suspensions_J,
        "suspended_h": suspended_h_of(outcome),
        "overhead_gpu_hours": overhead_gpu_hours_of(outcome, lost=False),
        "lost_gpu_hours": overhead_gpu_hours_of(outcome, lost=True),
        "slowed_gpu_hours": capped_gpu_hours_of(outcome)[1],
    }


def overhead_gpu_hours_of(outcome: Outcome, *, lost: bool) -> F8:
    """Returns each job's useful GPU-hours of lost runs, or the GPU-hours of its stops and loads, [J]."""
    overhead = outcome.overhead
    chosen = np.isin(overhead.kind_K, WASTED) == lost
    gpu_s_K = (overhead.to_s_K - overhead.from_s_K) * overhead.gpus_K * overhead.rate_K
    return np.bincount(overhead.job_K[chosen], gpu_s_K[chosen], minlength=len(outcome.job_J)) / HOUR_S


def late_s_of(outcome: Outcome, started_late_s_J: F8) -> F8:
    """Returns how long each job stood still beyond its slack up to its last start or resumption, s, [J].

    A job may stand still for its slack in all. Of a job that was resumed all counts that it did not run before:
    ``end of the last load - time run before it - (arrival + slack)``; where jobs may be late until some time, those
    without a slack have that time in place of the latter, as they have for their starts.

    Args:
        outcome: The run.
        started_late_s_J: Start less arrival + slack, s; kept where a job was never resumed.
    """
    if outcome.segment_K is None:
        return started_late_s_J
    segment_K, deadline_s_J = outcome.segment_K, outcome.environment.deadline_s_J
    load_K = np.flatnonzero((segment_K["kind"] == LOAD) & (segment_K["from_s"] <= outcome.ended_s))
    last_J = np.full(len(started_late_s_J), -1)
    last_J[segment_K["job"][load_K]] = load_K
    resumed = np.flatnonzero(last_J >= 0)
    before_K = np.arange(len(segment_K)) < last_J[segment_K["job"]]
    ran_s_J = _run_s(segment_K[before_K], len(last_J))
    late_s_J = started_late_s_J.copy()
    late_s_J[resumed] = segment_K["to_s"][last_J[resumed]] - ran_s_J[resumed] - deadline_s_J[resumed]
    return late_s_J


def _run_s(segment_K: Records, jobs: int) -> F8:
    """Returns how long each job would have run unbent for what it did in some segments and kept, s, [J]."""
    runs_K = np.isin(segment_K["kind"], (RUN, LOST))
    run_s_K = np.where(runs_K, segment_K["rate"] * (segment_K["to_s"] - segment_K["from_s"]), 0.0)
    return np.bincount(segment_K["job"], run_s_K, minlength=jobs).astype(np.float64, copy=False)

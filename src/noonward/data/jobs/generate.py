"""Jobs of an environment, drawn as a scenario says: fine-tuning jobs from trace statistics or a trace file, and more.

The random stream is split by purpose (how many, when, where, how large, how patient, of what kind), so turning one knob
of a scenario leaves the other draws as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, singledispatch
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.data.jobs.calibration import WorkloadCalibration, load_workload_calibration
from noonward.data.jobs.dated import job_rows, jobs_that_fit
from noonward.data.jobs.kernels import CELL_S, burst_factors, draw_times, scale_to_demand
from noonward.data.jobs.load import JobTrace, jobs_of_table, load_job_trace
from noonward.data.jobs.size import require_size
from noonward.data.jobs.standing import from_start, waiting_rows
from noonward.data.jobs.streams import (
    generate_mixed_jobs,
    generate_poisson_jobs,
    generate_shaped_jobs,
    paper_stream_jobs,
)
from noonward.data.local_time import ingress_timezone, local_week_s
from noonward.data.sanity import EPOCH_S
from noonward.errors import DataError, ScenarioError, nearest
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import (
    FineTuningJobs,
    JobTable,
    MixedJobs,
    PaperStreamJobs,
    PoissonJobs,
    ShapedJobs,
)
from noonward.paging import column, zero_rows
from noonward.units import DAY_S, HOUR_S, MINUTE_S

__all__ = [
    "build_jobs",
    "generate_fine_tuning_jobs",
    "generate_mixed_jobs",
    "generate_poisson_jobs",
    "generate_shaped_jobs",
    "paper_stream_jobs",
    "sample_trace_jobs",
]


RHYTHM_S: Final = 900.0
"""Spacing at which the local time is looked up, s; clocks differ from UTC by multiples of it."""


@singledispatch
def build_jobs(
    spec: object, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator
) -> Jobs:
    """Returns the jobs of one environment from whichever source its scenario names.

    Args:
        spec: One of the job sources of a scenario (``FineTuningJobs``, ``PoissonJobs``, ``MixedJobs``, ``ShapedJobs``,
            ``PaperStreamJobs``, ``JobTable``); its type decides.
        fleet: Sites and ingress points.
        start: UTC time of second 0.
        window_h: Hours over which jobs arrive.
        slot_s: Length of a slot, s.
        rng: Source of randomness; a table and the paper's stream need none.

    Raises:
        ScenarioError: The source is of an unknown type or does not fit fleet or window.
        DataError: A file's content is wrong, or a table holds a job that arrives after the window.
    """
    raise ScenarioError(f"jobs of type {type(spec).__name__} are not known; give one of the job sources of a scenario")


@build_jobs.register
def _(
    spec: FineTuningJobs, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator
) -> Jobs:
    return generate_fine_tuning_jobs(spec, fleet, start, window_h, slot_s, rng)


@build_jobs.register
def _(spec: PoissonJobs, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator) -> Jobs:
    return generate_poisson_jobs(spec, fleet, window_h * HOUR_S, rng)


@build_jobs.register
def _(spec: MixedJobs, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator) -> Jobs:
    return generate_mixed_jobs(spec, fleet, window_h * HOUR_S, rng)


@build_jobs.register
def _(spec: ShapedJobs, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator) -> Jobs:
    return generate_shaped_jobs(spec, fleet, window_h, rng)


@build_jobs.register
def _(
    spec: PaperStreamJobs, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator
) -> Jobs:
    return paper_stream_jobs(spec, fleet, window_h * HOUR_S)


@build_jobs.register
def _(spec: JobTable, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator) -> Jobs:
    rows = job_rows(spec)
    slack_s = rows.slack_s(spec.slack_h)
    alone_s = MINUTE_S * spec.leave_alone_min if spec.knowledge.run_time == "known" else 0.0
    if rows.submit_s_J is not None:
        arrival_s_J, inside_J = rows.arrivals_s(start, window_h)
        waiting_J = waiting_rows(spec, start)
        arrival_s_J = np.where(waiting_J, 0.0, arrival_s_J)
        inside_J = inside_J | waiting_J
        jobs = jobs_of_table(rows.table, fleet, arrival_s_J, inside_J, slack_s, rows.starts_s(start), alone_s)
        jobs = from_start(jobs, rows, start) if waiting_J.any() else jobs
        return jobs_that_fit(jobs, fleet, str(spec.path))
    jobs = jobs_of_table(rows.table, fleet, slack_s=slack_s, leave_alone_s=alone_s)
    late = int((jobs.arrival_s_J >= window_h * HOUR_S).sum())
    if late and jobs.arrival_s_J[0] > EPOCH_S:
        raise DataError(
            f"{spec.path}: jobs arrive {jobs.arrival_s_J[0]:.0f} s and later after the window's start: these look like "
            "seconds since 1970; give dates instead, in a column 'submit_time' (noonward import)"
        )
    if late:
        raise DataError(
            f"{spec.path}: {late} of {len(jobs)} jobs arrive after the window of {window_h} h, the last at "
            f"{jobs.arrival_s_J[-1]:g} s; arrivals must be below {window_h * HOUR_S:g} s: raise window_h or remove them"
        )
    return jobs


@dataclass(frozen=True, kw_only=True)
class _Streams:
    """One random stream a purpose, spawned in this order."""

    count: np.random.Generator
    origin: np.random.Generator
    time: np.random.Generator
    size: np.random.Generator
    slack: np.random.Generator
    kind: np.random.Generator

    @classmethod
    def spawn(cls, rng: np.random.Generator) -> _Streams:
        count, origin, time, size, slack, kind = rng.spawn(6)
        return cls(count=count, origin=origin, time=time, size=size, slack=slack, kind=kind)


@dataclass(frozen=True, kw_only=True)
class _Requests:
    """What came in, before capping, scaling and slots: arrival, ingress index, GPUs, duration."""

    arrival_s_J: F8
    origin_J: I8
    gpus_J: I8
    duration_s_J: F8


def generate_fine_tuning_jobs(
    spec: FineTuningJobs, fleet: Fleet, start: datetime, window_h: int, slot_s: float, rng: np.random.Generator
) -> Jobs:
    """Draws fine-tuning jobs with the gangs, durations and rhythm of a trace.

    * Number: ``Poisson(count)``, drawn again while it is 0. Ingress: independent, by ``origin_shares``.
    * Arrival at an ingress: density ``h(local hour) x w(local weekday) x prod_l G_l(t)``, h and w the trace's weights
      in the local time of the ingress' home, G_l gamma factors of mean 1 that are constant over blocks (6 h, 1 h,
      5 min, 1 min), independent between blocks and ingress points, with the variances that reproduce the trace's
      bursts (``burst_factors``). Rounded down to whole slots.
    * Gang: the trace's GPU count, at most ``gpus_cap``; minimum and maximum are equal. Duration: from the trace's
      quantiles for that (uncapped) GPU count; all scaled to the demand (``scale_to_demand``), in whole slots.
    * Slack: duration x ratio, ratio uniform on [0, 2 ``slack_ratio``], rounded down to whole seconds.
    * Kind: by share; data and model GB uniform on its ranges; the result is the model.

    With a trace file in ``spec.trace`` number, time, gang and duration come from ``sample_trace_jobs`` instead.

    Args:
        spec: The scenario's fine-tuning jobs.
        fleet: Sites and ingress points; jobs are of its first class.
        start: UTC time of second 0, timezone-aware.
        window_h: Hours over which jobs arrive, at least 1.
        slot_s: Length of a slot, s, above 0.
        rng: Source of randomness.

    Returns:
        The jobs, sorted by arrival; equal arrivals in random order.

    Raises:
        ScenarioError: An ingress is unknown or has no local time, or the demand cannot be met in whole slots.
        DataError: The trace file is wrong or too small.
    """
    if isinstance(spec.trace, Path):
        return sample_trace_jobs(spec, _trace_of(spec, spec.trace), fleet, start, window_h, slot_s, rng)
    _check_window(start, window_h, slot_s)
    streams = _Streams.spawn(rng)
    calibration = load_workload_calibration()
    count = _job_count(spec, streams.count)
    origin_J = _origins(spec, fleet, count, streams.origin)
    gpus_J = column(count, lambda part: calibration.draw_gpus(part.stop - part.start, streams.size))
    requests = _Requests(
        arrival_s_J=_arrivals(calibration, fleet, start, window_h, origin_J, streams.time),
        origin_J=origin_J,
        gpus_J=gpus_J,
        duration_s_J=column(count, lambda part: calibration.draw_duration_s(gpus_J[part], streams.size)),
    )
    return _finish(spec, fleet, requests, window_h, slot_s, streams)


def sample_trace_jobs(
    spec: FineTuningJobs,
    trace: JobTrace,
    fleet: Fleet,
    start: datetime,
    window_h: int,
    slot_s: float,
    rng: np.random.Generator,
) -> Jobs:
    """Draws fine-tuning jobs from a trace's own jobs.

    ``N ~ Poisson(count)`` jobs are drawn without replacement from a random stretch of the trace as long as the window
    in whole days, beginning on a full local hour, among the stretches that hold that many. Each job goes to an ingress
    by ``origin_shares``. A job submitted at local time h of the trace arrives when it is h at its ingress: at
    ``(t - h0) mod stretch``, t the trace's local time and h0 the ingress' local time at the window's start (a change
    of clocks within the window is not followed), rounded down to whole slots. Of a window that is not whole days only
    the jobs that arrive within it are drawn. The rest is as in ``generate_fine_tuning_jobs``; a job keeps the gang and
    the relative duration it has in the trace.

    Args:
        spec: The scenario's fine-tuning jobs.
        trace: The trace.
        fleet: Sites and ingress points.
        start: UTC time of second 0, timezone-aware.
        window_h: Hours over which jobs arrive, at least 1.
        slot_s: Length of a slot, s, above 0.
        rng: Source of randomness.

    Raises:
        ScenarioError: As ``generate_fine_tuning_jobs``.
        DataError: The trace is shorter than the window or holds too few jobs.
    """
    _check_window(start, window_h, slot_s)
    streams = _Streams.spawn(rng)
    count = _job_count(spec, streams.count)
    stretch_s = -(-window_h // 24) * DAY_S
    pool = _draw_stretch(trace, stretch_s, count, streams.time)
    origin_P = _origins(spec, fleet, len(pool), streams.origin)
    local_start_s_I = np.zeros(len(fleet.ingress_points))
    for index in np.unique(origin_P):
        zone = ingress_timezone(fleet, fleet.ingress_points[index])
        local_start_s_I[index] = local_week_s(zone, start, 0.0, 1)[0] % DAY_S
    arrival_s_P = np.mod(trace.local_s_J[pool] - local_start_s_I[origin_P], stretch_s)
    inside = np.flatnonzero(arrival_s_P < window_h * HOUR_S)
    if len(inside) < count:
        raise DataError(
            f"trace {trace.name}: {len(inside)} jobs of the drawn stretch fall into the window of {window_h} h, but "
            f"{count} are needed; lower jobs.count (now {spec.count}) or give a denser trace"
        )
    drawn = streams.time.choice(inside, size=count, replace=False)
    requests = _Requests(
        arrival_s_J=arrival_s_P[drawn],
        origin_J=origin_P[drawn],
        gpus_J=trace.gpus_J[pool[drawn]],
        duration_s_J=trace.duration_s_J[pool[drawn]],
    )
    return _finish(spec, fleet, requests, window_h, slot_s, streams)


def _finish(
    spec: FineTuningJobs, fleet: Fleet, requests: _Requests, window_h: int, slot_s: float, streams: _Streams
) -> Jobs:
    """Caps, scales and rounds requests, and draws slack, kind and sizes."""
    count = len(requests.arrival_s_J)
    gpus_J = column(count, lambda part: np.minimum(requests.gpus_J[part], spec.gpus_cap))
    capacity_gpu_s = sum(site.gpus for site in fleet.sites) * window_h * HOUR_S
    duration_s_J = scale_to_demand(requests.duration_s_J, gpus_J, spec.demand * capacity_gpu_s, slot_s)
    kinds = list(spec.kinds.values())
    shares = np.array([kind.share for kind in kinds])
    low_high_data = np.array([(kind.data.low_gb, kind.data.high_gb) for kind in kinds]).T
    low_high_model = np.array([(kind.model.low_gb, kind.model.high_gb) for kind in kinds]).T
    kind_J = column(
        count, lambda part: streams.kind.choice(len(kinds), size=part.stop - part.start, p=shares / shares.sum())
    )

    def slack_s(part: slice) -> F8:
        ratio_P = streams.slack.uniform(0.0, 2 * spec.slack_ratio, size=part.stop - part.start)
        return np.asarray(np.floor(ratio_P * duration_s_J[part]))

    def size_gb(low_high: F8) -> F8:
        low, high = low_high
        return column(count, lambda part: streams.kind.uniform(low[kind_J[part]], high[kind_J[part]]))

    model_gb_J = size_gb(low_high_model)
    return Jobs.build(
        arrival_s=column(count, lambda part: np.floor(requests.arrival_s_J[part] / slot_s) * slot_s),
        origin=requests.origin_J,
        gpus=gpus_J,
        work=duration_s_J,
        slack_s=column(count, slack_s),
        data_gb=size_gb(low_high_data),
        model_gb=model_gb_J,
        result_gb=model_gb_J,
    )


def _check_window(start: datetime, window_h: int, slot_s: float) -> None:
    if start.tzinfo is None or start.utcoffset() != timedelta(0):
        raise ScenarioError(f"the window starts at {start!s}, which is not UTC; give a timezone-aware UTC time")
    if window_h < 1:
        raise ScenarioError(f"the window lasts {window_h} h; it must last at least 1 h")
    if slot_s <= 0:
        raise ScenarioError(f"slots last {slot_s:g} s; a slot must be longer than 0 s")


def _job_count(spec: FineTuningJobs, rng: np.random.Generator) -> int:
    require_size(spec.count, "jobs.count")
    count = 0
    while not count:
        count = int(rng.poisson(spec.count))
    return count


def _origins(spec: FineTuningJobs, fleet: Fleet, count: int, rng: np.random.Generator) -> I8:
    shares = origin_shares(spec, fleet)

    def some(part: slice) -> I8:
        return np.asarray(rng.choice(len(shares), size=part.stop - part.start, p=shares), dtype=np.int64)

    return column(count, some)


def origin_shares(spec: FineTuningJobs, fleet: Fleet) -> F8:
    """Returns the share of the jobs that arrives at each ingress; they sum to 1.

    Raises:
        ScenarioError: An ingress is unknown.
    """
    names = [point.name for point in fleet.ingress_points]
    for name in spec.origin_shares:
        if name not in names:
            raise ScenarioError(f"jobs.origin_shares names the unknown ingress {name!r}; {nearest(name, names)}")
    shares = np.array([spec.origin_shares.get(name, 0.0) for name in names])
    return np.asarray(shares / shares.sum())


def _arrivals(
    calibration: WorkloadCalibration,
    fleet: Fleet,
    start: datetime,
    window_h: int,
    origin_J: I8,
    rng: np.random.Generator,
) -> F8:
    """Draws an arrival in s per job, from its ingress' rhythm and bursts."""
    arrival_s_J: F8 = zero_rows(len(origin_J), np.float64)
    cells = round(window_h * HOUR_S / CELL_S)
    looked_up = round(window_h * HOUR_S / RHYTHM_S)
    for index, stream in enumerate(rng.spawn(len(fleet.ingress_points))):
        mine = origin_J == index
        if mine.any():
            zone = ingress_timezone(fleet, fleet.ingress_points[index])
            weight = calibration.arrival_weight(local_week_s(zone, start, RHYTHM_S, looked_up))
            bursts = burst_factors(calibration.burst_period_s_L, calibration.burst_cv2_L, cells, stream)
            rate_C = np.repeat(weight, round(RHYTHM_S / CELL_S)) * bursts
            arrival_s_J[mine] = draw_times(rate_C, int(mine.sum()), stream)
    return arrival_s_J


def _draw_stretch(trace: JobTrace, stretch_s: float, count: int, rng: np.random.Generator) -> I8:
    """Returns the rows of a random stretch that begins on a full local hour and holds at least ``count`` jobs."""
    local_s = trace.local_s_J
    first_s = np.floor(local_s[0] / HOUR_S) * HOUR_S
    end_s = np.ceil((local_s[-1] + 1) / HOUR_S) * HOUR_S
    starts_s = np.arange(first_s, end_s - stretch_s + 1, HOUR_S)
    if not len(starts_s):
        raise DataError(
            f"trace {trace.name} covers {(end_s - first_s) / HOUR_S:g} h; the window needs {stretch_s / HOUR_S:g} h "
            "(whole days): give a longer trace or lower window_h"
        )
    begin = np.searchsorted(local_s, starts_s)
    end = np.searchsorted(local_s, starts_s + stretch_s)
    enough = np.flatnonzero(end - begin >= count)
    if not len(enough):
        raise DataError(
            f"trace {trace.name} has at most {int((end - begin).max())} jobs in any {stretch_s / HOUR_S:g} h, but "
            f"{count} are needed; lower jobs.count or give a denser trace"
        )
    chosen = rng.choice(enough)
    return np.arange(begin[chosen], end[chosen])


def _trace_of(spec: FineTuningJobs, path: Path) -> JobTrace:
    """Returns a trace file's jobs; read again only after the file has changed."""
    changed_ns = path.stat().st_mtime_ns if path.is_file() else 0
    return _cached_trace(path.absolute(), changed_ns, tuple(sorted(spec.columns.items())))


@lru_cache(maxsize=4)
def _cached_trace(path: Path, changed_ns: int, columns: tuple[tuple[str, str], ...]) -> JobTrace:
    return load_job_trace(path, dict(columns))

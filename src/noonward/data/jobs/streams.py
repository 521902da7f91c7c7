"""Streams of jobs: Poisson with log-normal work, drawn afresh or exactly as published, and by daily load shapes."""

from __future__ import annotations

import heapq
import math
import random
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noonward.data.jobs.load_shapes import DAY_HOURS, generate_load_shapes
from noonward.data.jobs.size import require_size
from noonward.errors import ScenarioError
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import (
    ClassStream,
    LogNormalWork,
    MixedJobs,
    PaperStreamJobs,
    ParetoWork,
    PoissonJobs,
    ShapedJobs,
)
from noonward.model.precision import SHAPE_DECIMALS, WORK_DECIMALS
from noonward.units import HOUR_S

PAPER_WORK_MIN: Final = 0.1
"""Smallest work of the published stream, units."""


def generate_poisson_jobs(spec: PoissonJobs, fleet: Fleet, window_s: float, rng: np.random.Generator) -> Jobs:
    """Draws Poisson arrivals per ingress with log-normal work.

    Per ingress ``N ~ Poisson(rate x window)`` arrivals, uniform over the window given N; work
    ``max(work_min, LogNormal(ln median, sigma))`` (CHSAC-AF, Table I), in millionths of a unit. Class 0, no limit on
    the delay; ``data_gb`` of data each.

    Args:
        spec: Rate, work, gangs and data.
        fleet: Its ingress points.
        window_s: Length of the window, s.
        rng: Source of randomness.

    Raises:
        ScenarioError: The draw holds no job.
    """
    arrival_rng, work_rng = rng.spawn(2)
    points = len(fleet.ingress_points)
    require_size(spec.rate_per_s * window_s * points, "jobs.rate_per_s")
    count_I: NDArray[np.int64] = arrival_rng.poisson(spec.rate_per_s * window_s, size=points)
    total = int(count_I.sum())
    if not total:
        raise _no_job(spec.rate_per_s * window_s * points)
    work_J = np.exp(work_rng.normal(math.log(spec.median_work), spec.sigma, size=total))
    return Jobs.build(
        arrival_s=arrival_rng.random(total) * window_s,
        origin=np.repeat(np.arange(points), count_I),
        work=np.maximum(np.round(work_J, WORK_DECIMALS), spec.work_min),
        gpus_min=spec.gpus_min,
        gpus_max=spec.gpus_max,
        data_gb=spec.data_gb,
    )


def generate_mixed_jobs(spec: MixedJobs, fleet: Fleet, window_s: float, rng: np.random.Generator) -> Jobs:
    """Draws the jobs of several classes, each from random streams of its own: a class does not change another's.

    Per class and ingress a Poisson process of rate ``rate (1 + amplitude sin(2 pi t / period))``, by thinning one of
    the highest rate; work by the class' law, in millionths of a unit. The streams are spawned in the fleet's order of
    classes. Slack is work x ratio where a class has one, the ratio uniform on [0, 2 ``slack_ratio``], else there is no
    limit on the delay; data by class.

    Args:
        spec: Streams by class.
        fleet: Its classes and ingress points.
        window_s: Length of the window, s.
        rng: Source of randomness.

    Raises:
        ScenarioError: The draw holds no job.
    """
    points = len(fleet.ingress_points)
    most = sum(stream.rate_per_s * (1 + stream.amplitude) for stream in spec.classes.values())
    most *= spec.rate_factor * window_s * points
    require_size(most, "the classes' rate_per_s")
    parts = []
    for c, (name, class_rng) in enumerate(zip(fleet.classes, rng.spawn(len(fleet.classes)), strict=True)):
        if name in spec.classes:
            stream = spec.classes[name]
            arrival_s, origin, work, slack_s = _class_jobs(stream, spec.rate_factor, points, window_s, class_rng)
            gangs = np.array([[c, stream.gpus_min, stream.gpus_max]] * len(work), dtype=np.int64).reshape(-1, 3)
            parts.append((arrival_s, origin, work, slack_s, *gangs.T, np.full(len(work), stream.data_gb)))
    arrival_s, origin, work, slack_s, class_, gpus_min, gpus_max, data_gb = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    if not len(work):
        rate = spec.rate_factor * sum(stream.rate_per_s for stream in spec.classes.values())
        raise _no_job(rate * window_s * points)
    return Jobs.build(
        arrival_s=arrival_s, origin=origin, work=work, slack_s=slack_s, class_=class_, gpus_min=gpus_min,
        gpus_max=gpus_max, data_gb=data_gb,
    )  # fmt: skip


def _class_jobs(
    stream: ClassStream, factor: float, points: int, window_s: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns arrivals in s, ingress indices, work, and slack in s of one class."""
    arrival_rng, work_rng, slack_rng = rng.spawn(3)
    count_I = arrival_rng.poisson(factor * stream.rate_per_s * (1 + stream.amplitude) * window_s, size=points)
    time_s = arrival_rng.random(int(count_I.sum())) * window_s
    wave = np.round(np.sin(2 * np.pi * time_s / (stream.period_h * HOUR_S)), SHAPE_DECIMALS)
    rate = 1 + stream.amplitude * wave
    kept = arrival_rng.random(len(time_s)) * (1 + stream.amplitude) < rate
    count = int(kept.sum())
    law = stream.work
    if isinstance(law, ParetoWork):
        work = law.work_min * (1.0 + work_rng.pareto(law.tail, size=count))
    else:
        work = np.exp(work_rng.normal(math.log(law.median_work), law.sigma, size=count))
        work = np.minimum(work, np.inf if law.work_max is None else law.work_max)
    work = np.maximum(np.round(work, WORK_DECIMALS), law.work_min)
    slack_s = np.full(count, np.inf)
    if stream.slack_ratio is not None:
        slack_s = np.floor(slack_rng.uniform(0.0, 2 * stream.slack_ratio, size=count) * work)
    return time_s[kept], np.repeat(np.arange(points), count_I)[kept], work, slack_s


def expected_gpu_s(spec: MixedJobs, fleet: Fleet, window_s: float) -> float:
    """Returns the mean GPU-seconds that jobs of several classes ask for, on their smallest gangs.

    Per class rate x points x window x gang x mean work. The mean of Pareto work is ``work_min tail / (tail - 1)``, that
    of log-normal work X between a and b, with ``p(x) = Phi((ln x - mu) / sigma)`` and ``q(x) = Phi((ln x - mu) / sigma
    - sigma)``: ``a p(a) + exp(mu + sigma^2 / 2) (q(b) - q(a)) + b (1 - p(b))``.

    Args:
        spec: Streams by class, whose work is in seconds.
        fleet: Its ingress points.
        window_s: Length of the window, s.
    """
    arrivals = spec.rate_factor * window_s * len(fleet.ingress_points)
    return arrivals * sum(each.rate_per_s * each.gpus_min * _mean_work(each.work) for each in spec.classes.values())


def _mean_work(law: LogNormalWork | ParetoWork) -> float:
    """Returns the mean of a distribution of work, units."""
    if isinstance(law, ParetoWork):
        return law.work_min * law.tail / (law.tail - 1)
    low, high = law.work_min, math.inf if law.work_max is None else law.work_max
    if not law.sigma:
        return min(max(law.median_work, low), high)
    below, phi = [math.log(end / law.median_work) / law.sigma for end in (low, high)], NormalDist().cdf
    least, most = (phi(each) for each in below)
    between = law.median_work * math.exp(law.sigma**2 / 2) * (phi(below[1] - law.sigma) - phi(below[0] - law.sigma))
    return low * least + between + (0.0 if most == 1.0 else high * (1.0 - most))


def generate_shaped_jobs(spec: ShapedJobs, fleet: Fleet, window_h: int, rng: np.random.Generator) -> Jobs:
    """Draws jobs that come at full hours, as many as the load shape of their class asks for.

    The load of class c in hour k (``load_shapes.generate_load_shapes``, days independent) makes
    ``load x cluster_gpus / mean_gpus`` jobs, rounded, with gangs Normal(mean, spread x mean), rounded, at least 1 GPU.
    The jobs of an hour come in random order at random ingress points.

    Args:
        spec: Sizes.
        fleet: Its classes and ingress points.
        window_h: Hours over which jobs arrive.
        rng: Source of randomness.

    Raises:
        ScenarioError: The draw holds no job.
    """
    shape_rng, size_rng, order_rng = rng.spawn(3)
    classes = len(fleet.classes)
    days = -(-window_h // DAY_HOURS)
    require_size(spec.cluster_gpus / spec.mean_gpus * window_h * classes, "jobs.cluster_gpus")
    load_HC = generate_load_shapes(days, classes, shape_rng).reshape(-1, classes)[:window_h]
    count_HC = np.rint(load_HC * spec.cluster_gpus / spec.mean_gpus).astype(np.int64)
    total = int(count_HC.sum())
    if not total:
        raise ScenarioError("no job arrives in the window; raise jobs.cluster_gpus or lower jobs.mean_gpus")
    hour, class_ = np.divmod(np.repeat(np.arange(count_HC.size), count_HC.ravel()), classes)
    gpus = np.maximum(np.rint(size_rng.normal(spec.mean_gpus, spec.spread * spec.mean_gpus, total)), 1)
    order = np.lexsort((order_rng.random(total), hour))
    return Jobs.build(
        arrival_s=hour[order] * HOUR_S,
        origin=order_rng.integers(len(fleet.ingress_points), size=total),
        class_=class_[order],
        work=np.full(total, spec.run_s),
        gpus=gpus[order].astype(np.int64),
        slack_s=spec.slack_s,
    )


def paper_stream_jobs(spec: PaperStreamJobs, fleet: Fleet, window_s: float) -> Jobs:
    """Draws the jobs of CHSAC-AF's published runs from ``random.Random(seed)``, draw for draw.

    At the start one ``expovariate(rate)`` per ingress in fleet order; then at each arrival, earliest first:
    ``max(0.1, lognormvariate(ln median, sigma))``, with ``routed`` a uniform ``choice`` among the sites, then
    ``expovariate(rate)`` for that ingress' next arrival. Gangs of 1 to ``gpus_max``.

    Args:
        spec: Seed, rate and work.
        fleet: Its ingress points and sites; their order decides who gets which draw.
        window_s: Length of the window, s.

    Raises:
        ScenarioError: The stream holds no job in the window.
    """
    source = random.Random(spec.seed)
    mu = math.log(spec.median_work)
    sites = range(len(fleet.sites))
    due = [(source.expovariate(spec.rate_per_s), point) for point in range(len(fleet.ingress_points))]
    mean = spec.rate_per_s * window_s * len(due)
    require_size(mean, "jobs.rate_per_s")
    heapq.heapify(due)
    rows: list[tuple[float, int, float, int]] = []
    while due[0][0] <= window_s:
        arrival_s, origin = due[0]
        work = max(PAPER_WORK_MIN, source.lognormvariate(mu, spec.sigma))
        site = source.choice(sites) if spec.routed else -1
        rows.append((arrival_s, origin, work, site))
        heapq.heapreplace(due, (arrival_s + source.expovariate(spec.rate_per_s), origin))
    if not rows:
        raise _no_job(mean)
    arrival_s_J, origin_J, work_J, site_J = (np.array(column) for column in zip(*rows, strict=True))
    return Jobs.build(
        arrival_s=arrival_s_J,
        origin=origin_J,
        work=work_J,
        gpus_min=1,
        gpus_max=spec.gpus_max,
        data_gb=spec.data_gb,
        preset_site=site_J,
    )


def _no_job(mean: float) -> ScenarioError:
    return ScenarioError(
        f"no job arrives in the window ({mean:g} are expected); raise jobs.rate_per_s (jobs per second and ingress) or "
        "window_h"
    )

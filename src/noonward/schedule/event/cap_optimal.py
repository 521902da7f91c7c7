"""``cap-optimal``: power goes first to the job that makes most throughput of the next watt.

Each job may run its GPUs at any of its measured caps, or stop them, and mix these over its GPUs or over time: its
throughput is the concave hull of its points. The most throughput within a budget is then a continuous knapsack, and
the greedy order of hull edges by throughput per watt solves it exactly (Dantzig 1957). Edges are sorted once; all
steps are answered together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8, I8
from noonward.schedule.event.jobs import EventPlan, RunningJob, plan_of


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Most throughput of some jobs at every power: edges of their hulls, by falling throughput per watt.

    Attributes:
        start_w_J: Power of each job at its least throughput, W.
        start_J: That throughput, as a share.
        job_E: Job of each edge.
        watts_E: Power of each edge, W, above 0.
        gain_E: Throughput of each edge, as a share of its job's.
    """

    start_w_J: F8
    start_J: F8
    job_E: I8
    watts_E: F8
    gain_E: F8

    @property
    def floor_w(self) -> float:
        """Least power of all jobs, W."""
        return float(self.start_w_J.sum())


def frontier(jobs: Sequence[RunningJob], *, caps: bool = True, stopped_w: float | None = 0.0) -> Frontier:
    """Returns the frontier of some jobs.

    Args:
        jobs: Jobs.
        caps: Whether GPUs may be capped.
        stopped_w: Power of a stopped GPU, W, below that of the lowest cap; None: GPUs are not stopped.
    """
    starts, edges = [], []
    for j, job in enumerate(jobs):
        points = list(zip(job.power_w, job.throughput, strict=True)) if caps else [(job.power_w[-1], 1.0)]
        hull = concave_hull(points if stopped_w is None else [(stopped_w, 0.0), *points])
        if job.least > hull[0][1]:
            first = float(np.interp(job.least, [t for _, t in hull], [w for w, _ in hull]))
            hull = [(first, job.least), *(point for point in hull if point[1] > job.least)]
        starts.append(hull[0])
        edges += [
            (job.weight * (b[1] - a[1]) / (b[0] - a[0]), j, job.gpus * (b[0] - a[0]), b[1] - a[1])
            for a, b in itertools.pairwise(hull)
        ]
    edges.sort(key=lambda edge: (-edge[0], edge[1]))
    gpus_J = np.array([job.gpus for job in jobs], dtype=float)
    return Frontier(
        start_w_J=gpus_J * np.array([w for w, _ in starts]),
        start_J=np.array([t for _, t in starts]),
        job_E=np.array([edge[1] for edge in edges], dtype=np.int64),
        watts_E=np.array([edge[2] for edge in edges]),
        gain_E=np.array([edge[3] for edge in edges]),
    )


def concave_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the corners of the least concave function above some points, in ascending order.

    Example:
        >>> concave_hull([(0, 0), (1, 0.2), (2, 1)])
        [(0, 0), (2, 1)]
    """
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points):
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (x - kept[-2][0]) <= (y - kept[-2][1]) * (
            kept[-1][0] - kept[-2][0]
        ):
            kept.pop()
        kept.append((x, y))
    return kept


def cap_optimal(
    jobs: Sequence[RunningJob], budget_w_T: F8, *, caps: bool = True, stopped_w: float | None = 0.0
) -> EventPlan:
    """Returns the plan that loses least weighted throughput in every step.

    Args:
        jobs: Jobs.
        budget_w_T: Power that all jobs together may draw in each step, W. Where it is below what their least
            throughput needs, they run at that, and the step is not met.
        caps: Whether GPUs may be capped.
        stopped_w: Power of a stopped GPU, W; None: GPUs are not stopped.

    Example:
        >>> job = RunningJob(name="a", gpus=10, power_w=(200.0, 400.0), throughput=(0.8, 1.0))
        >>> plan = cap_optimal([job], np.array([4000.0, 3000.0, 1000.0]), stopped_w=0.0)
        >>> [round(float(t), 3) for t in plan.throughput_JT[0]]
        [1.0, 0.9, 0.4]
    """
    edges = frontier(jobs, caps=caps, stopped_w=stopped_w)
    before_E = edges.floor_w + np.cumsum(edges.watts_E) - edges.watts_E
    share_ET = np.clip((np.asarray(budget_w_T)[None, :] - before_E[:, None]) / edges.watts_E[:, None], 0, 1)
    power_w_JT = np.repeat(edges.start_w_J[:, None], len(budget_w_T), axis=1)
    throughput_JT = np.repeat(edges.start_J[:, None], len(budget_w_T), axis=1)
    np.add.at(power_w_JT, edges.job_E, share_ET * edges.watts_E[:, None])
    np.add.at(throughput_JT, edges.job_E, share_ET * edges.gain_E[:, None])
    return plan_of(power_w_JT, throughput_JT, np.asarray(budget_w_T))

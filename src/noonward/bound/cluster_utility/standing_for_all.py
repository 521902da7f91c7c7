"""Few jobs that stand for very many: drawn by their GPU-hours, evenly over ingress points and time."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.jobs import Jobs


def standing_for_all(jobs: Jobs, tables: FleetTables, count: int, rng: np.random.Generator) -> tuple[I8, F8]:
    """Returns about so many jobs that stand for all, in their order, and how many each stands for.

    A job is taken with a chance in proportion to its GPU-hours at its largest gang, at most 1, and stands for 1 /
    chance jobs, so that weighted sums are right on average. Jobs are taken at even distances along ingress points and
    arrivals (systematic sampling; Madow 1949).

    Args:
        jobs: Jobs.
        tables: Tables of the fleet.
        count: Jobs that are to stand for all; with as many as there are, each stands for itself.
        rng: Source of randomness.
    """
    if count >= len(jobs):
        return np.arange(len(jobs)), np.ones(len(jobs))
    gang = np.minimum(jobs.gpus_max_J, tables.seconds_per_unit_SCGF.shape[2] - 1)
    least_s_CG = np.nanmin(tables.seconds_per_unit_SCGF[:, :, 1:], axis=(0, 3))
    size_J = gang * jobs.work_J * least_s_CG[jobs.class_J, gang - 1]
    chance_J, below_J = np.ones(len(jobs)), np.ones(len(jobs), dtype=bool)
    while True:
        left = count - int((~below_J).sum())
        chance_J[below_J] = left * size_J[below_J] / size_J[below_J].sum()
        over_J = below_J & (chance_J > 1.0)
        if not over_J.any():
            break
        chance_J[over_J], below_J = 1.0, below_J & ~over_J
    order = np.lexsort((jobs.arrival_s_J, jobs.origin_J))
    until_J = np.cumsum(chance_J[order]) + rng.random()
    hit_J = np.floor(until_J) > np.floor(until_J - chance_J[order])
    taken = np.sort(order[hit_J | (chance_J[order] == 1.0)])
    return taken, 1.0 / chance_J[taken]

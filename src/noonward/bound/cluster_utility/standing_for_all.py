"""Few jobs that stand for very many: drawn by their GPU-hours, evenly over ingress points and time."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.jobs import Jobs


class Draws:
    """Draws of jobs that stand for all, one after the other.

    A job is taken with a chance in proportion to its GPU-hours at its largest gang, at most 1, and stands for 1 /
    chance jobs, so that weighted sums are right on average. Jobs are taken at even distances along ingress points and
    arrivals (systematic sampling; Madow 1949). The distances begin elsewhere in every draw, so that several draws
    together are again at even distances.

    Args:
        jobs: Jobs.
        tables: Tables of the fleet.
        count: Jobs of a draw, about; with as many as there are, each stands for itself.
        draws: Draws after which their beginnings are used again, at least 1.
        rng: Source of randomness.
    """

    def __init__(self, jobs: Jobs, tables: FleetTables, count: int, draws: int, rng: np.random.Generator) -> None:
        gang = np.minimum(jobs.gpus_max_J, tables.seconds_per_unit_SCGF.shape[2] - 1)
        least_s_CG = np.nanmin(tables.seconds_per_unit_SCGF[:, :, 1:], axis=(0, 3))
        chance_J = _chances(gang * jobs.work_J * least_s_CG[jobs.class_J, gang - 1], count)
        self._always = np.flatnonzero(chance_J == 1.0)
        order = np.lexsort((jobs.arrival_s_J, jobs.origin_J))
        self._order, self._chance_J = order[chance_J[order] < 1.0], chance_J
        self._until_J = np.cumsum(chance_J[self._order])
        self._begin_N = rng.permutation((np.arange(draws) + rng.random()) / draws)
        self._made = 0

    def next(self) -> tuple[I8, F8]:
        """Returns the jobs of the next draw, in their order, and how many each stands for."""
        begin = self._begin_N[self._made % len(self._begin_N)]
        self._made += 1
        until = self._until_J[-1] if len(self._until_J) else 0.0
        hit = np.searchsorted(self._until_J, np.arange(begin, until, 1.0), side="right")
        taken = np.sort(np.concatenate([self._always, self._order[hit]]))
        return taken, 1.0 / self._chance_J[taken]


def _chances(size_J: F8, count: int) -> F8:
    """Returns the chances of jobs of these sizes to be among so many."""
    chance_J, below_J = np.ones(len(size_J)), np.ones(len(size_J), dtype=bool)
    if count >= len(size_J):
        return chance_J
    while True:
        left = count - int((~below_J).sum())
        chance_J[below_J] = left * size_J[below_J] / size_J[below_J].sum()
        over_J = below_J & (chance_J > 1.0)
        if not over_J.any():
            return chance_J
        chance_J[over_J], below_J = 1.0, below_J & ~over_J

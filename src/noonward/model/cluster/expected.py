"""Samplers that say what is expected: weighted jobs that stand for the mean of a workload's draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from noonward.arrays import F8
from noonward.model.cluster.jobs import Jobs


@dataclass(frozen=True)
class WeightedJobs:
    """Jobs that stand for more or less than themselves.

    Attributes:
        jobs: Jobs, sorted by arrival.
        weight_J: How many jobs of a draw each stands for, above 0.
    """

    jobs: Jobs
    weight_J: F8


@runtime_checkable
class ExpectedSampler(Protocol):
    """What draws the jobs of a window and also says what is expected of them."""

    def __call__(self, rng: np.random.Generator) -> Jobs:
        """Draws the jobs of a window."""

    def expected(self, count: int, rng: np.random.Generator) -> WeightedJobs:
        """Returns about so many jobs whose weighted sums come near to the means over draws."""


@dataclass(frozen=True)
class ChangedSampler:
    """Draws jobs and changes them.

    Attributes:
        sampler: What draws them.
        change: Changes them; every job keeps its place in the table.
    """

    sampler: Callable[[np.random.Generator], Jobs]
    change: Callable[[Jobs], Jobs]

    def __call__(self, rng: np.random.Generator) -> Jobs:
        """Draws the jobs of a window and changes them."""
        return self.change(self.sampler(rng))


@dataclass(frozen=True)
class ChangedExpectedSampler(ChangedSampler):
    """The same where the sampler says what is expected."""

    sampler: ExpectedSampler

    def expected(self, count: int, rng: np.random.Generator) -> WeightedJobs:
        """Returns what is expected, changed."""
        found = self.sampler.expected(count, rng)
        return WeightedJobs(self.change(found.jobs), found.weight_J)


def changed_sampler(
    sampler: Callable[[np.random.Generator], Jobs], change: Callable[[Jobs], Jobs]
) -> Callable[[np.random.Generator], Jobs]:
    """Returns a sampler whose jobs are changed; it says what is expected if the given one does."""
    if isinstance(sampler, ExpectedSampler):
        return ChangedExpectedSampler(sampler, change)
    return ChangedSampler(sampler, change)

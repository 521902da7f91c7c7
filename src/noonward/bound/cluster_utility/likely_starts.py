"""The candidate starts of every job that are likely at some capacity prices: few, so that all jobs fit into memory."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import Columns
from noonward.bound.cluster_utility.dual import Dual
from noonward.compiled import kernel

_OF_COLUMN: Final = tuple(each.name for each in fields(Columns) if each.name != "first_J")
_WHOLE: Final = ("option_K", "from_K", "to_K")
"""Those that are whole numbers."""


@kernel(allocates=False)
def _mark_likely(first_J: I8, priced_usd_K: F8, highest: F8, likely_K: NDArray[np.bool_]) -> None:
    """Marks each job's columns of most value, as many as ``highest`` has room for; of equal ones, all."""
    for j in range(len(first_J) - 1):
        highest[:] = -np.inf  # the job's highest values so far, the least of them first
        for k in range(first_J[j], first_J[j + 1]):
            value, i = priced_usd_K[k], 0
            if value > highest[0]:
                while i + 1 < len(highest) and highest[i + 1] < value:
                    highest[i] = highest[i + 1]
                    i += 1
                highest[i] = value
        for k in range(first_J[j], first_J[j + 1]):
            likely_K[k] = priced_usd_K[k] >= highest[0]


def likely_columns(dual: Dual, most: int) -> Columns:
    """Returns the columns of most value after the prices of the last evaluation, about ``most`` a job, at least 1."""
    columns = dual.columns
    likely_K = np.zeros(len(columns.value_K), dtype=np.bool_)
    _mark_likely(columns.first_J, dual.priced_usd_K(slice(None)), np.empty(most), likely_K)
    kept_K = np.concatenate([[0], np.cumsum(likely_K)])
    return Columns(first_J=kept_K[columns.first_J], **{name: getattr(columns, name)[likely_K] for name in _OF_COLUMN})


class Gathered:
    """Columns of jobs that follow each other, gathered some jobs at a time in arrays that are there from the beginning.

    Small arrays that stay between large ones that go would leave gaps in memory, several times what they hold.

    Args:
        jobs: Jobs.
        columns: Columns that there is room for at first.
    """

    def __init__(self, jobs: int, columns: int) -> None:
        self._first_J = np.zeros(jobs + 1, np.int64)
        self._by_column: dict[str, NDArray[np.generic]] = {
            name: np.empty(max(1, columns), np.int64 if name in _WHOLE else np.float64) for name in _OF_COLUMN
        }
        self._jobs = self._used = 0

    def add(self, part: Columns) -> None:
        """Adds the columns of the next jobs."""
        jobs, until = len(part.first_J) - 1, self._used + len(part.value_K)
        if until > len(self._by_column["value_K"]):
            for name, held in self._by_column.items():
                self._by_column[name] = np.concatenate([held[: self._used], np.empty(until, held.dtype)])
        for name, held in self._by_column.items():
            held[self._used : until] = getattr(part, name)
        self._first_J[self._jobs : self._jobs + jobs + 1] = part.first_J + self._used
        self._jobs, self._used = self._jobs + jobs, until

    def columns(self) -> Columns:
        """Returns all columns; ``option_K`` still counts the options of each part alone."""
        by_column: dict[str, Any] = {name: held[: self._used] for name, held in self._by_column.items()}
        return Columns(first_J=self._first_J[: self._jobs + 1], **by_column)

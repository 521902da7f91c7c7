"""The candidate starts of every job that are likely at some capacity prices: few, so that all jobs fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import Columns
from noonward.bound.cluster_utility.dual import Dual
from noonward.compiled import kernel

_OF_COLUMN: Final = tuple(each.name for each in fields(Columns) if each.name != "first_J")


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


def joined(parts: Sequence[Columns]) -> Columns:
    """Returns the columns of jobs that follow each other; ``option_K`` still counts the options of each part alone."""
    ends = np.cumsum([0, *(len(part.value_K) for part in parts)])
    first_J = [part.first_J[:-1] + before for part, before in zip(parts, ends[:-1], strict=True)]
    by_column = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _OF_COLUMN}
    return Columns(first_J=np.concatenate([*first_J, ends[-1:]]), **by_column)

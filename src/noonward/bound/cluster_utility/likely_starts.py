"""The candidate starts of every job that are likely at some capacity prices: few, so that all jobs fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.columns import Columns
from noonward.compiled import kernel


@kernel()
def _mark_likely(
    price_cumulative_P: F8,
    first_J: I8,
    value_K: F8,
    gpus_K: F8,
    from_K: I8,
    from_share_K: F8,
    to_K: I8,
    to_share_K: F8,
    most: int,
    likely_K: NDArray[np.bool_],
) -> None:
    """Marks each job's columns of most value after capacity prices, about ``most`` of them; of equal ones, all.

    The other arguments are those of ``kernels.dual_step``.
    """
    for j in range(len(first_J) - 1):
        begin, count = first_J[j], first_J[j + 1] - first_J[j]
        if count <= most:
            likely_K[begin : begin + count] = True
            continue
        priced = np.empty(count)
        for i in range(count):
            k = begin + i
            low, high = price_cumulative_P[from_K[k]], price_cumulative_P[to_K[k]]
            low += from_share_K[k] * (price_cumulative_P[from_K[k] + 1] - low)
            high += to_share_K[k] * (price_cumulative_P[to_K[k] + 1] - high)
            priced[i] = value_K[k] - gpus_K[k] * (high - low)
        least = np.partition(priced, count - most)[count - most]
        for i in range(count):
            likely_K[begin + i] = priced[i] >= least


def likely_columns(columns: Columns, price_SH: F8, most: int) -> Columns:
    """Returns the columns of most value after capacity prices, about ``most`` a job, at least 1."""
    cumulative_SH = np.zeros((price_SH.shape[0], price_SH.shape[1] + 1))
    np.cumsum(price_SH, axis=1, out=cumulative_SH[:, 1:])
    likely_K = np.zeros(len(columns.value_K), dtype=np.bool_)
    c = columns
    _mark_likely(
        cumulative_SH.ravel(), c.first_J, c.value_K, c.gpus_K, c.from_K, c.from_share_K, c.to_K, c.to_share_K, most,
        likely_K,
    )  # fmt: skip
    kept_K = np.concatenate([[0], np.cumsum(likely_K)])
    by_column = {each.name: getattr(columns, each.name)[likely_K] for each in fields(Columns) if each.name != "first_J"}
    return Columns(first_J=kept_K[columns.first_J], **by_column)


def joined(parts: Sequence[Columns]) -> Columns:
    """Returns the columns of jobs that follow each other; options are counted anew in every part."""
    before = np.cumsum([0, *(len(part.value_K) for part in parts[:-1])])
    first_J = [part.first_J[:-1] + offset for part, offset in zip(parts, before, strict=True)]
    by_column = {
        each.name: np.concatenate([getattr(part, each.name) for part in parts])
        for each in fields(Columns)
        if each.name != "first_J"
    }
    end = np.array([len(by_column["value_K"])])
    return Columns(first_J=np.concatenate([*first_J, end]), **by_column)

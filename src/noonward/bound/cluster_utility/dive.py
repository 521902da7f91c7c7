"""The linear relaxation made whole for the largest jobs: places that a search for a schedule begins at."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.bound.cluster_utility.master import Master

LARGEST_SHARE: Final = 0.6
"""The largest jobs are those that together ask for this share of all GPU-hours."""
ROUNDED: Final = 0.25
"""Share of the split ones among them that a step makes whole."""
WHOLE: Final = 1e-6
"""Shares nearer to 0 or 1 count as 0 or 1."""
FIT_GPU_HOURS: Final = 1e-9
"""GPU-hours by which a column may exceed what is left; far below the solver's own tolerance."""


def dive(master: Master, gpu_hours_J: F8) -> I8:
    """Makes the largest jobs whole, some at a time, and solves the linear relaxation of the others in between.

    Step by step, every one of the largest jobs that takes a column wholly is fixed there, and of those that are split a
    quarter (those with the largest shares) at the column of the largest share; columns that no longer fit beside the
    fixed ones are forbidden. The relaxation splits few jobs, but large ones among them, for which a search that begins
    elsewhere hardly finds the best site.

    Args:
        master: Linear relaxation that was solved; its columns are fixed in place, so it gives no bound any more.
        gpu_hours_J: GPU-hours of the jobs.

    Returns:
        The column that every one of the largest jobs takes wholly in the end; -1 for the others.
    """
    jobs, largest_J = len(gpu_hours_J), np.zeros(len(gpu_hours_J), dtype=bool)
    order_J = np.argsort(-gpu_hours_J, kind="stable")
    asked_J = np.cumsum(gpu_hours_J[order_J])
    largest_J[order_J[asked_J <= LARGEST_SHARE * asked_J[-1]]] = True
    job_K = master.job_of(master.columns)
    first_K, position, used = master.use(master.columns)
    left_P = master.dual.capacity_SH.flatten()
    done_J = np.zeros(jobs, dtype=bool)
    while True:
        optimum = master.optimum
        assert optimum is not None
        share_K = optimum.x
        candidates = np.flatnonzero(largest_J[job_K] & ~done_J[job_K] & (share_K > WHOLE))
        candidates = candidates[np.argsort(-share_K[candidates], kind="stable")]
        split = int((share_K[candidates] < 1.0 - WHOLE).sum())
        quota = int(np.ceil(ROUNDED * len(np.unique(job_K[candidates[len(candidates) - split :]]))))
        for k in candidates:
            if done_J[job_K[k]]:
                continue
            if share_K[k] < 1.0 - WHOLE:
                if quota == 0:
                    break
                quota -= 1
            entries = slice(first_K[k] + 1, first_K[k + 1])
            fits = bool((left_P[position[entries]] >= used[entries] - FIT_GPU_HOURS).all())
            if fits:
                left_P[position[entries]] -= used[entries]
                done_J[job_K[k]] = True
            master.fix(int(k), 1.0 if fits else 0.0)
        if not split:
            break
        master.solve()
    column_J = np.full(jobs, -1, dtype=np.int64)
    whole = largest_J[job_K] & (share_K > 1.0 - WHOLE)
    column_J[job_K[whole]] = master.columns[whole]
    return column_J

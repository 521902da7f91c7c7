"""Joint choices under protocol on-arrival: site, gang and clock.

Choice = (site x G + gang - 1) x F + level with F clock levels, or site x G + gang - 1 at the oracle's clock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noonward.compiled import kernel
from noonward.decision.cluster.view import Answers, ClusterView


@kernel(inline=True, allocates=False)
def some_room(view: ClusterView, job: int) -> bool:
    """Returns whether a feasible site has as many free GPUs as a job's smallest gang."""
    for s in range(view.site_S.shape[0]):
        if view.mask_NA[0, 1 + s] and view.site_S[s].free >= view.job_J[job].gpus_min:
            return True
    return False


@kernel(inline=True, allocates=False)
def largest_gang(view: ClusterView, job: int, site: int, gpus_max: int, room: bool) -> int:
    """Returns the largest gang a job may be sent to a site with, or 0 if it may not be sent there.

    Where some site has room, only sites with room, with gangs that are free now; where none has, every feasible site,
    with every gang (the job queues). The smallest is always the job's own smallest.

    Args:
        view: The question.
        job: Job asked about.
        site: Site.
        gpus_max: Largest gang of the choices.
        room: ``some_room`` of the job.
    """
    record = view.job_J[job]
    most = min(record.gpus_max, gpus_max, view.site_S[site].gpus)
    if room:
        most = min(most, view.site_S[site].free)
    return most if view.mask_NA[0, 1 + site] and most >= record.gpus_min else 0


@kernel(inline=True, allocates=False)
def fill_gang_mask(view: ClusterView, gpus_max: int, levels: int, mask_A: NDArray[np.uint8]) -> None:
    """Marks the feasible joint choices of a question ASK_ROUTE; levels are 0 where the clock is the oracle's."""
    job, clocks = view.asked_N[0], max(1, levels)
    room = some_room(view, job)
    mask_A[:] = 0
    for s in range(view.site_S.shape[0]):
        within = min(clocks, view.site_S[s].levels)
        for gpus in range(view.job_J[job].gpus_min, largest_gang(view, job, s, gpus_max, room) + 1):
            at = (s * gpus_max + gpus - 1) * clocks
            mask_A[at : at + within] = 1


@kernel(inline=True, allocates=False)
def write_gang_choice(answers: Answers, choice: int, gpus_max: int, levels: int) -> None:
    """Answers a question ASK_ROUTE with a joint choice; levels are 0 where the clock is the oracle's."""
    clocks = max(1, levels)
    gang = choice // clocks
    answers.answer_N[0].choice = 1 + gang // gpus_max
    answers.answer_N[0].gpus = 1 + gang % gpus_max
    if levels > 0:
        answers.answer_N[0].level = choice % clocks

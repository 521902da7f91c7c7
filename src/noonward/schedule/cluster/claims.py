"""Claims: GPUs of a site for jobs that a rule has sent there, until the slot in which they arrive is over."""

from __future__ import annotations

from typing import Final

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.decision.cluster.view import ClusterView
from noonward.schedule.cluster.booking import first_slot, slot_now

AHEAD: Final = 96
"""Longest claim, slots; that of a longer journey ends before the job is there."""
CLAIM_ROWS: Final = 1 + AHEAD
"""Rows of a table of claims by site: GPUs in all, then those whose claims end as a slot begins, by slot mod AHEAD."""


@kernel(inline=True, allocates=False)
def end_claims(view: ClusterView, claim_XS: F8, counted: int) -> int:
    """Ends the claims of jobs that arrived before this slot; returns the slot's number.

    Args:
        view: View.
        claim_XS: Claims.
        counted: Slot up to which they were ended before; below 0: they are blank. One in the future means that slots
            were shorter when claims were stored: all of them end.
    """
    now = slot_now(view)
    if counted > now:
        claim_XS[:, :] = 0.0
    for slot in range(max(counted + 1, now - AHEAD + 1), now + 1):
        row = 1 + slot % AHEAD
        for s in range(view.site_S.shape[0]):
            claim_XS[0, s] -= claim_XS[row, s]
            claim_XS[row, s] = 0.0
    return now


@kernel(inline=True, allocates=False)
def claim(view: ClusterView, claim_XS: F8, job: int, s: int, d: int) -> None:
    """Claims the smallest gang of a job that is sent from site s to site d now, until the slot of its arrival is over.

    The claim stays where the job is withdrawn on its way, or where something else than the rule changes what is done.
    """
    end = min(first_slot(view, job, s, d) + 1, slot_now(view) + AHEAD)
    claim_XS[0, d] += view.job_J[job].gpus_min
    claim_XS[1 + end % AHEAD, d] += view.job_J[job].gpus_min

"""Books of a choice-scoring policy: GPUs that run, and GPUs that jobs plan to take, by entry of an hour and site.

``memory.index_XY`` has a row a entry, which entrys take in turn, and two blocks of S columns: GPUs of runs that have
started, GPUs of plans.
"""

from __future__ import annotations

from noonward.compiled import kernel
from noonward.decision.cluster.view import ClusterView, RuleMemory
from noonward.schedule.cluster.choices.layout import (
    ENTRY_S,
    FREED,
    PLAN_FIRST,
    PLAN_GPUS,
    PLAN_LENGTH,
    PLAN_SITE,
)


@kernel(inline=True, allocates=False)
def clear_past(view: ClusterView, memory: RuleMemory) -> None:
    """Sets the rows of past entrys to zero, so that later ones can take them."""
    rows, now = memory.index_XY.shape[0], int(view.run_1[0].now_s // ENTRY_S)
    for past in range(max(int(memory.number_P[FREED]), now - rows), now):
        memory.index_XY[past % rows, :] = 0
    memory.number_P[FREED] = now


@kernel(inline=True, allocates=False)
def _mark(memory: RuleMemory, column: int, first: int, length: int, gpus: int) -> None:
    """Adds GPUs to the entrys of a run from the current one on, as far as the books reach."""
    rows, now = memory.index_XY.shape[0], int(memory.number_P[FREED])
    for entry in range(max(first, now), min(first + length, now + rows)):
        memory.index_XY[entry % rows, column] += gpus


@kernel(inline=True, allocates=False)
def entries_of(run_s: float) -> int:
    """Returns the entries of the books that a run takes."""
    whole = int(run_s // ENTRY_S)
    return whole + 1 if run_s > whole * ENTRY_S else whole


@kernel(inline=True, allocates=False)
def note_start(view: ClusterView, memory: RuleMemory, s: int, run_s: float, gpus: int) -> None:
    """Enters a run that starts now at a site."""
    now_s = view.run_1[0].now_s
    first = int(now_s // ENTRY_S)
    _mark(memory, s, first, entries_of(now_s + run_s - first * ENTRY_S), gpus)


@kernel(inline=True, allocates=False)
def forget_plan(view: ClusterView, memory: RuleMemory, job: int) -> None:
    """Takes the plan of a job out of the books."""
    plan_P = memory.job_index_JP[job]
    if plan_P[PLAN_SITE] >= 0:
        column = view.site_S.shape[0] + plan_P[PLAN_SITE]
        _mark(memory, column, plan_P[PLAN_FIRST], plan_P[PLAN_LENGTH], -plan_P[PLAN_GPUS])
        plan_P[PLAN_SITE] = -1


@kernel(inline=True, allocates=False)
def note_plan(view: ClusterView, memory: RuleMemory, job: int, d: int, start_s: float, run_s: float, gpus: int) -> None:
    """Enters the plan of a job that waits: a run at a site from a time on."""
    plan_P, first = memory.job_index_JP[job], int(start_s // ENTRY_S)
    plan_P[PLAN_SITE], plan_P[PLAN_FIRST], plan_P[PLAN_GPUS] = d, first, gpus
    plan_P[PLAN_LENGTH] = entries_of(start_s + run_s - first * ENTRY_S)
    _mark(memory, view.site_S.shape[0] + d, first, plan_P[PLAN_LENGTH], gpus)


@kernel(inline=True, allocates=False)
def taken(view: ClusterView, memory: RuleMemory, s: int, entry: int) -> int:
    """Returns the GPUs that runs and plans take at a site in a entry."""
    row = entry % memory.index_XY.shape[0]
    return memory.index_XY[row, s] + memory.index_XY[row, view.site_S.shape[0] + s]

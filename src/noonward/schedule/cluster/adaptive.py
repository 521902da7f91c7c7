"""A price of time that adapts to a limit: routing by weighed cost whose price of a second follows the excess."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.view import ASK_FINISHED, Answers, ClusterView, RuleMemory
from noonward.schedule.cluster.routing import LimitS
from noonward.schedule.cluster.weighed import SECOND, WeighedRouter, weighed_choice
from noonward.units import HOUR_S

START_W: Final = 30.0
"""Price of a second before any job has finished, J per second in system."""
RANGE: Final = 1e4
"""The price stays within the start over this and times this: where no price can reach the limit, it stops there."""
LEAST_JOBS: Final = 100.0
"""Finished jobs that the first steps are counted over at least."""
LIMIT, FINISHED = 4, 5
"""Positions in ``memory.number_P`` behind those of a ``WeighedRouter``: the limit, s, and how many jobs finished."""


@kernel(inline=True, allocates=False)
def follow_excess(view: ClusterView, memory: RuleMemory, job: int) -> None:
    """Moves the price of a second by a finished job's excess over the limit.

    ``ln w += g (t / L - 1)``, with t the job's time in system, L the limit, and 1 / g the number of jobs that finish
    in L at the rate so far, at least in an hour. So ``ln w`` is the sum of all excesses, weighed: while w is steady
    their mean goes to 0, whatever load and sites are.
    """
    number_P, now_s = memory.number_P, view.run_1[0].now_s
    limit_s = number_P[LIMIT]
    number_P[FINISHED] += 1.0
    jobs = max(number_P[FINISHED] * max(limit_s, HOUR_S) / max(now_s, limit_s), LEAST_JOBS)
    excess = (now_s - view.job_J[job].arrival_s) / limit_s - 1.0
    price = memory.table_XY[0, SECOND] * np.exp(excess / jobs)
    price = min(max(price, START_W / RANGE), START_W * RANGE)
    for c in range(memory.table_XY.shape[0]):
        memory.table_XY[c, SECOND] = price


@rule
def _adaptive(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    if view.run_1[0].kind == ASK_FINISHED:
        follow_excess(view, memory, view.asked_N[0])
    else:
        weighed_choice(view, answers, memory)


class AdaptiveRouter(WeighedRouter):
    """Routes as a ``WeighedRouter`` by energy and time, at the price of time that keeps a limit of the mean latency.

    The price is the multiplier of the constraint "mean time in system at most L" (CHSAC-AF, Eq. 7), moved by every job
    that finishes (``follow_excess``) instead of being trained for one load.

    Args:
        limit_s: Limit L of the mean time in system of finished jobs, s.
    """

    needs = Needs(protocols=("on-arrival",), finished=True)

    def __init__(self, *, limit_s: LimitS) -> None:
        super().__init__(second=START_W)
        self.limit_s = limit_s
        self.rule = _adaptive

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns what a ``WeighedRouter`` keeps, the limit, and the number of finished jobs."""
        memory = super().make_memory(brief, rng)
        return memory._replace(number_P=np.append(memory.number_P, [self.limit_s, 0.0]))

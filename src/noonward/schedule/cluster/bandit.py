"""UCB1 over clock levels: uniform routing, all useful GPUs, a clock learned per site and class (CHSAC-AF, Sec. V.B)."""

from __future__ import annotations

import numpy as np

from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.view import (
    ASK_ALLOCATE,
    ASK_FINISHED,
    ASK_ROUTE,
    POWER_W,
    SECONDS,
    Answers,
    ClusterView,
    RuleMemory,
)
from noonward.decision.scheduler import CompiledScheduler
from noonward.schedule.cluster.routing import uniform_site


@rule
def _ucb1(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    run = view.run_1[0]
    job = view.asked_N[0]
    if run.kind == ASK_ROUTE:
        answers.answer_N[0].choice = 1 + uniform_site(view, memory, job)
        return
    s, class_ = run.site, view.job_J[job].class_
    levels = view.site_S[s].levels
    first = (s * view.oracle_SCG.shape[1] + class_) * view.clock_SF.shape[1]
    if run.kind == ASK_FINISHED:
        arm = first + run.level
        joules = (
            view.speed_KSCGF[POWER_W, s, class_, run.gpus, run.level]
            * view.speed_KSCGF[SECONDS, s, class_, run.gpus, run.level]
        )
        memory.index_XY[arm, 0] += 1
        memory.table_XY[arm, 0] += (-joules - memory.table_XY[arm, 0]) / memory.index_XY[arm, 0]
        return
    if run.kind == ASK_ALLOCATE:
        memory.number_P[0] += 1.0
        best, most = 0, -np.inf
        for level in range(levels):
            tries = memory.index_XY[first + level, 0]
            if tries == 0:
                best = level
                break
            score = memory.table_XY[first + level, 0] + np.sqrt(2.0 * np.log(memory.number_P[0]) / tries)
            if score > most:
                best, most = level, score
        answers.answer_N[0].level = best


class Ucb1(CompiledScheduler):
    """UCB1 (Auer et al. 2002): arms are clock levels per site and class, the reward is -E_unit.

    Untried arms go first, in ascending clock; then the arm of highest mean + sqrt(2 ln t / N). t counts choices over
    all sites, N completions of the arm (so an arm is repeated until its first job has finished), as in the paper's
    simulator.
    """

    needs = Needs(protocols=("on-arrival",), allocate=True, finished=True)
    rule = staticmethod(_ucb1)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns t (number), mean reward (table) and completions (index) per arm."""
        tables = brief.fleet.tables(1)
        arms = tables.oracle_level_SCG.shape[0] * tables.oracle_level_SCG.shape[1] * tables.clock_SF.shape[1]
        return RuleMemory.make(
            numbers=(0.0,),
            table=np.zeros((arms, 1)),
            index=np.zeros((arms, 1), np.int64),
            random_state=int(rng.integers(2**63)),
        )

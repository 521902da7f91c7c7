"""Rules that stop running jobs for jobs that wait and may displace them (protocol each-slot)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from noonward.arguments import checked
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.lives import back_s, lacking, may_stop, progress_s, resume_until_s, unit_s, unsaved_s
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.value import energy_usd, run_seconds
from noonward.decision.cluster.view import (
    ASK_RUNNING,
    POWER_W,
    RUNS,
    WAITS,
    Answers,
    ClusterView,
    RuleMemory,
    first_seen,
    fits,
)
from noonward.decision.scheduler import CompiledScheduler
from noonward.schedule.cluster.slot_rules import cheapest_site
from noonward.units import HOUR_S

YOUNGEST: Final = 0
"""Position in ``memory.number_P``: 1 where the jobs that began to run last are stopped first."""
WORK: Final = 0
"""Position in ``memory.job_number_JP``: a job's work before it ran."""
Victims = Annotated[Literal["least-lost", "youngest"], Field(description="which running jobs are stopped first")]


@kernel(inline=True, allocates=False)
def _note_work(view: ClusterView, memory: RuleMemory, job: int) -> None:
    """Notes the work of a job that has not been seen before, and so has not run."""
    if first_seen(view, memory, job):
        memory.job_number_JP[job, WORK] = view.job_J[job].work


@kernel(inline=True, allocates=False)
def _ran_s(view: ClusterView, memory: RuleMemory, job: int) -> float:
    """Returns how long what a running job has done takes on its first gang, at full power, s."""
    before = max(0.0, memory.job_number_JP[job, WORK] - view.job_J[job].work)
    return before * unit_s(view, job) + progress_s(view, job)


@kernel(allocates=False)
def _longest_s(view: ClusterView, job: int, s: int) -> float:
    """Returns how long the jobs that wait anywhere and may displace a running job would run at its site, at most, s."""
    longest_s = 0.0
    for other in range(view.life_J.shape[0]):
        record = view.job_J[other]
        displaces = view.freedom_C[record.class_].preempts & (1 << view.job_J[job].class_)
        if displaces and record.serial >= 0 and view.life_J[other].state == WAITS and fits(view, other, s):
            longest_s = max(longest_s, run_seconds(view, other, s))
    return longest_s


@kernel(inline=True, allocates=False)
def stop_cost_usd(view: ClusterView, memory: RuleMemory, job: int, longest_s: float) -> float:
    """Returns what stopping a running job now costs per GPU that it gives back, at this hour's price, USD.

    While it stops and loads, its GPUs earn nothing and draw power; what it has to do again it has drawn and earned for
    nothing. What it has done is at risk, for it is lost if the job is not resumed in time: counted is as much of it as
    the jobs that displace it may take of the time for which it could still stand still, at most all.

    Args:
        view: View.
        memory: Holds each job's work.
        job: Job that runs.
        longest_s: How long the jobs that displace it may run, s.
    """
    life, freedom = view.life_J[job], view.freedom_C[view.job_J[job].class_]
    site = view.site_S[life.site]
    again_s = unsaved_s(view, job) if freedom.requeue else 0.0
    idle_s = freedom.stop_s + freedom.load_s + again_s * life.own_gpus / life.gpus
    power_w = view.speed_KSCGF[POWER_W, life.site, view.job_J[job].class_, life.gpus, life.level] * site.pue / life.gpus
    full_s = again_s + freedom.stop_power * freedom.stop_s + freedom.load_power * freedom.load_s
    energy = power_w * full_s * energy_usd(view, site.price, site.carbon)
    spare_s = max(resume_until_s(view, job) - back_s(view, job), longest_s)
    if spare_s > 0.0:
        idle_s += longest_s / spare_s * _ran_s(view, memory, job) * life.own_gpus / life.gpus
    return view.run_1[0].revenue_usd_per_gpu_hour * idle_s / HOUR_S + energy


@kernel(inline=True, allocates=False)
def _is_before(view: ClusterView, memory: RuleMemory, other: int, job: int, longest_s: float) -> bool:
    """Returns whether another running job is stopped before a job."""
    if memory.number_P[YOUNGEST]:
        mine, others = -view.life_J[job].since_s, -view.life_J[other].since_s
    else:
        mine = stop_cost_usd(view, memory, job, longest_s)
        others = stop_cost_usd(view, memory, other, longest_s)
    return bool(others < mine or (others == mine and view.job_J[other].serial < view.job_J[job].serial))


@kernel(inline=True, allocates=False)
def _serves(view: ClusterView, other: int, job: int) -> bool:
    """Returns whether every class that may displace a job may displace another job, too."""
    mine, others = 1 << view.job_J[job].class_, 1 << view.job_J[other].class_
    for c in range(view.freedom_C.shape[0]):
        if view.freedom_C[c].preempts & mine and not view.freedom_C[c].preempts & others:
            return False
    return True


@kernel(allocates=False)
def _is_victim(view: ClusterView, memory: RuleMemory, job: int, s: int) -> bool:
    """Returns whether the jobs that are stopped before a running job leave GPUs lacking at its site.

    Where stopping costs count, one that costs more than the jobs that displace it can earn there is not stopped.
    """
    gpus, longest_s = 0, _longest_s(view, job, s)
    if not memory.number_P[YOUNGEST]:
        earns = view.run_1[0].revenue_usd_per_gpu_hour * view.site_S[s].claimed * longest_s / HOUR_S
        if stop_cost_usd(view, memory, job, longest_s) * view.life_J[job].gpus > earns:
            return False
    for other in range(view.life_J.shape[0]):
        life = view.life_J[other]
        if life.state != RUNS or life.site != s or other == job or view.job_J[other].serial < 0:
            continue
        if _serves(view, other, job) and may_stop(view, other) and _is_before(view, memory, other, job, longest_s):
            gpus += life.gpus
    return bool(gpus < lacking(view, s))


@rule
def _preempt(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    running = view.run_1[0].kind == ASK_RUNNING
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        if running:
            if view.mask_NA[s, 1 + s] and _is_victim(view, memory, job, s):
                answers.answer_N[s].choice = 1 + s
            continue
        _note_work(view, memory, job)
        best = cheapest_site(view, s, job)
        if best == s and view.site_S[s].claimed > 0:
            left = view.site_S[s].free - view.site_S[s].claimed
            if left < view.job_J[job].gpus_min:
                best = -1
            else:
                answers.answer_N[s].gpus = min(left, view.job_J[job].gpus_max)
        answers.answer_N[s].choice = 1 + best


class Preempt(CompiledScheduler):
    """Starts each job where it earns most now, and stops running jobs for those that may displace them.

    A job whose class ``preempts`` others and that finds room nowhere has as many of them stopped at its site as give it
    GPUs: with a checkpoint, or at once where their class says ``requeue``. No other job starts on GPUs that it claims.
    Stopped are those first of which stopping costs least per GPU: overhead and work done again, at this hour's price,
    and what is at risk of the work done, more of it the less time is left to be resumed; a job whose stop costs more
    than those that displace it can earn runs on. Or, whatever it costs, those that began to run last, as Slurm
    does with ``PreemptParameters=youngest_first``.

    Args:
        victims: Which jobs are stopped first: ``least-lost`` or ``youngest``.

    Raises:
        ScenarioError: There is no such order.
    """

    rule = staticmethod(_preempt)
    needs = Needs(protocols=("each-slot",), signals=True, economics=True, levers=("preempt",))

    @checked
    def __init__(self, victims: Victims = "least-lost") -> None:
        self._numbers = (float(victims == "youngest"),)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns a memory that holds the order, and room for each job's work."""
        return RuleMemory.make(numbers=self._numbers, job_numbers=(0.0,))

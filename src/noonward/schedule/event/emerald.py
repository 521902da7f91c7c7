"""Emerald AI's four published policies for an event, and ``ride-through``, as controls of ``cap-optimal``.

After the pseudocode of the repository ai-emerald/emerald-ai-demo-may-2025 (Apache-2.0). Departures: their simulator
counts a stopped GPU as 0 W, here ``stopped_w`` is its power; their caps move in steps, here a cap lies anywhere
between two measured ones. A job's ``least`` is its least mean throughput inside the event
(``event_share_least``). ``event-response`` asks the same functions about the jobs that run, at their slack
(``schedule.cluster.event_orders``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import ScenarioError
from noonward.schedule.event.jobs import SLACK_W, EventPlan, RunningJob, plan_of

MOST_CANDIDATES = 12
"""Most jobs that may be paused of which ``dvfs-pause-fair`` tries every set."""


class EventPolicy(Protocol):
    """Makes a plan of the event from the jobs, the budget of each step (W) and the power of a stopped GPU (W)."""

    def __call__(self, jobs: Sequence[RunningJob], budget_w_T: F8, *, stopped_w: float = 0.0) -> EventPlan:
        """Returns the plan."""


def ride_through(jobs: Sequence[RunningJob], budget_w_T: F8, *, stopped_w: float = 0.0) -> EventPlan:
    """Returns the plan that does nothing."""
    full_w_J = np.array([job.full_w for job in jobs])
    shape = (len(jobs), len(budget_w_T))
    return plan_of(np.broadcast_to(full_w_J[:, None], shape).copy(), np.ones(shape), budget_w_T)


def dvfs_fair(jobs: Sequence[RunningJob], budget_w_T: F8, *, stopped_w: float = 0.0) -> EventPlan:
    """Caps all jobs: each gives an equal share of its headroom, the power above that of its least throughput."""
    full_w_J = np.array([job.full_w for job in jobs])
    headroom_w_J = full_w_J - np.array([job.least_w for job in jobs])
    shed_w_T = np.maximum(full_w_J.sum() - np.asarray(budget_w_T), 0.0)
    total_w = headroom_w_J.sum()
    share_T = np.minimum(shed_w_T / total_w, 1.0) if total_w > 0 else np.zeros(len(shed_w_T))
    power_w_JT = full_w_J[:, None] - headroom_w_J[:, None] * share_T[None, :]
    return plan_of(power_w_JT, _throughput(jobs, power_w_JT), np.asarray(budget_w_T))


def _throughput(jobs: Sequence[RunningJob], power_w_JT: F8) -> F8:
    """Returns the throughput of jobs whose GPUs all run under one cap."""
    rows = [job.throughput_at(power_w_T) for job, power_w_T in zip(jobs, power_w_JT, strict=True)]
    return np.array(rows).reshape(power_w_JT.shape)


def dvfs_pause_fair(jobs: Sequence[RunningJob], budget_w_T: F8, *, stopped_w: float = 0.0) -> EventPlan:
    """Pauses the jobs of a set in turn, one at a time, and caps the others fairly.

    Every set of at least two jobs is tried that may each lose its part of the event. Of the sets that meet the budget
    the one that sheds least wins; if none meets it, the one that sheds most.

    Raises:
        ScenarioError: More than ``MOST_CANDIDATES`` jobs may be paused.
    """
    steps = len(budget_w_T)
    candidates = [j for j, job in enumerate(jobs) if job.pausable and job.least <= 0.5 and steps > 1]
    if len(candidates) > MOST_CANDIDATES:
        raise ScenarioError(
            f"dvfs-pause-fair tries every set of the {len(candidates)} jobs that may be paused; at most "
            f"{MOST_CANDIDATES} can be tried. Take another policy or fewer jobs"
        )
    plans = []
    for size in range(2, len(candidates) + 1):
        turns_T = np.minimum(np.arange(steps) * size // steps, size - 1)
        for chosen in itertools.combinations(candidates, size):
            longest = np.bincount(turns_T, minlength=size) / steps
            if all(jobs[j].least <= 1 - part for j, part in zip(chosen, longest, strict=True)):
                plans.append(_in_turns(jobs, np.asarray(budget_w_T), chosen, turns_T, stopped_w))
    if not plans:
        return dvfs_fair(jobs, budget_w_T)
    return max(plans, key=lambda plan: (plan.met_T.sum(), plan.power_w_JT.sum() * (1 if plan.met_T.all() else -1)))


def _in_turns(
    jobs: Sequence[RunningJob], budget_w_T: F8, chosen: Sequence[int], turns_T: I8, stopped_w: float
) -> EventPlan:
    """Returns the plan in which chosen jobs are paused one after the other, and the rest is capped fairly."""
    power_w_JT = np.empty((len(jobs), len(budget_w_T)))
    throughput_JT = np.empty_like(power_w_JT)
    for turn, paused in enumerate(chosen):
        at_T = turns_T == turn
        part = while_paused(jobs, budget_w_T[at_T], chosen, paused, stopped_w)
        power_w_JT[:, at_T], throughput_JT[:, at_T] = part.power_w_JT, part.throughput_JT
    return plan_of(power_w_JT, throughput_JT, budget_w_T)


def while_paused(
    jobs: Sequence[RunningJob], budget_w_T: F8, chosen: Sequence[int], paused: int | None, stopped_w: float
) -> EventPlan:
    """Returns the plan of one turn of ``dvfs-pause-fair``: one job is stopped, and the rest is capped fairly.

    Args:
        jobs: Jobs.
        budget_w_T: Power that all jobs together may draw in each step, W.
        chosen: Those that are paused in turn. One that waits for its turn runs at full power: its loss is the turn.
        paused: The one whose turn it is; None where it has stopped already and is not among the jobs.
        stopped_w: Power of a stopped GPU, W.
    """
    others = [j for j in range(len(jobs)) if j != paused]
    dark_w = 0.0 if paused is None else stopped_w * jobs[paused].gpus
    running = [replace(jobs[j], least=1.0) if j in chosen else jobs[j] for j in others]
    rest = dvfs_fair(running, budget_w_T - dark_w)
    power_w_JT, throughput_JT = np.full((len(jobs), len(budget_w_T)), dark_w), np.zeros((len(jobs), len(budget_w_T)))
    power_w_JT[others], throughput_JT[others] = rest.power_w_JT, rest.throughput_JT
    return plan_of(power_w_JT, throughput_JT, budget_w_T)


def pause_greedy(jobs: Sequence[RunningJob], budget_w_T: F8, *, stopped_w: float = 0.0) -> EventPlan:
    """Walks the event; where power exceeds the budget, pauses the most flexible job for exactly its allowance."""
    budget_w_T = np.asarray(budget_w_T)
    steps = len(budget_w_T)
    allowed_J = [int(np.floor((1 - job.least) * steps + 1e-9)) if job.pausable else 0 for job in jobs]
    running_JT = np.ones((len(jobs), steps), dtype=bool)
    left = sorted(range(len(jobs)), key=lambda j: (jobs[j].least, j))
    full_w_J = np.array([job.full_w for job in jobs])
    dark_w_J = np.array([stopped_w * job.gpus for job in jobs])
    for t in range(steps):
        while left and float(np.where(running_JT[:, t], full_w_J, dark_w_J).sum()) > budget_w_T[t] + SLACK_W:
            j = left.pop(0)
            running_JT[j, t : t + allowed_J[j]] = False
    power_w_JT = np.where(running_JT, full_w_J[:, None], dark_w_J[:, None])
    return plan_of(power_w_JT, running_JT.astype(float), budget_w_T)


def pause_resize_fair(jobs: Sequence[RunningJob], budget_w_T: F8, *, stopped_w: float = 0.0) -> EventPlan:
    """Pauses at most one job for the whole event and takes GPUs from the others, an equal share of what each may lose.

    One size for the whole event is chosen, for its lowest budget; throughput is proportional to GPUs. Every job that
    may lose the whole event is tried as the paused one, and none; of the plans that meet the budget the one that
    affects fewest jobs wins, and among these the one that sheds least. If none meets it, the one that sheds most.
    """
    budget_w_T = np.asarray(budget_w_T)
    tried = [_resized(jobs, budget_w_T, paused, stopped_w) for paused in (None, *range(len(jobs)))]
    plans = [plan for plan in tried if plan is not None]

    def rank(plan: EventPlan) -> tuple[bool, int, float]:
        met = bool(plan.met_T.all())
        affected = int((plan.throughput_JT[:, 0] < 1).sum())
        shed = float(-plan.power_w_JT.sum())
        return (not met, affected if met else 0, shed if met else -shed)

    return min(plans, key=rank)


def _resized(jobs: Sequence[RunningJob], budget_w_T: F8, paused: int | None, stopped_w: float) -> EventPlan | None:
    """Returns the plan with one job paused (or none) and the others resized; None where that job may not be paused."""
    if paused is not None and (jobs[paused].least > 0 or not jobs[paused].pausable):
        return None
    gpus_J = np.array([job.gpus for job in jobs])
    per_gpu_J = np.array([job.power_w[-1] for job in jobs])
    kept_J = gpus_J.copy()
    may_J = np.array(
        [min(int(np.floor((1 - job.least) * job.gpus + 1e-9)), job.gpus - job.least_gpus) for job in jobs],
        dtype=np.int64,
    )
    if paused is not None:
        kept_J[paused], may_J[paused] = 0, 0
    saved_w_J = np.maximum(per_gpu_J - stopped_w, 0.0)
    shed_w = float(gpus_J @ per_gpu_J - budget_w_T.min() - (gpus_J - kept_J) @ saved_w_J)
    headroom_w = float(may_J @ saved_w_J)
    share = min(max(shed_w, 0.0) / headroom_w, 1.0) if headroom_w > 0 else 0.0
    kept_J -= np.minimum(np.ceil(share * may_J - 1e-9).astype(np.int64), may_J)
    power_w_J = kept_J * per_gpu_J + (gpus_J - kept_J) * stopped_w
    steps = len(budget_w_T)
    return plan_of(
        np.repeat(power_w_J[:, None], steps, axis=1), np.repeat((kept_J / gpus_J)[:, None], steps, axis=1), budget_w_T
    )


CONTROLS: dict[str, EventPolicy] = {
    "dvfs-fair": dvfs_fair,
    "dvfs-pause-fair": dvfs_pause_fair,
    "pause-greedy": pause_greedy,
    "pause-resize-fair": pause_resize_fair,
    "ride-through": ride_through,
}
"""Controls by name."""

"""Orders in which the running jobs of a site are bent in a grid event: by least loss, or by Emerald's four rules.

An order turns what running jobs may do into what each does now. Emerald's rules are those of
``noonward.schedule.event.emerald``, asked about the jobs that run; what a plan of them allots is brought to the next
measured cap or gang that draws no more.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from noonward.arrays import F8
from noonward.schedule.event.cap_optimal import concave_hull
from noonward.schedule.event.emerald import dvfs_fair, dvfs_pause_fair, pause_greedy, pause_resize_fair, while_paused
from noonward.schedule.event.jobs import EventPlan, RunningJob

Order = Literal["least-loss", "dvfs-fair", "dvfs-pause-fair", "pause-greedy", "pause-resize-fair"]
"""Which running jobs are bent, and how: those that lose least throughput per watt; all capped by the same share of the
power that they can shed; some paused in turn and the others capped so; those with most slack paused; one paused at most
and the others resized by the same share. The last four are rules of Emerald's published code."""
GUARD: Final = 1e-6
"""Share of a limit, or of what is to be shed, that rounding may take."""
TURNS: Final = 6
"""Jobs that ``dvfs-pause-fair`` may pause in turn at a site: those that draw most. It tries every set of them."""


class Way(NamedTuple):
    """Something that a running job may do.

    Attributes:
        power_w: IT power at its site, W.
        throughput: Throughput, GPUs.
        cap: Power cap, 0 for full power.
        stops: Whether it is suspended for that.
        gpus: Gang that it is then resumed on; 0 for its own.
        site: Site that it is then resumed at; -1 for its own.
    """

    power_w: float
    throughput: float
    cap: int = 0
    stops: bool = False
    gpus: int = 0
    site: int = -1


@dataclass(frozen=True, kw_only=True)
class Bendable:
    """A running job in an event, and what it may do in the rest of it.

    Attributes:
        serial: Serial of the job.
        gpus: GPUs that it holds.
        caps: Full power and the caps that its slack outlasts, by falling power.
        stop: What it does if it is suspended; None: it may not be.
        gangs: What it does on smaller gangs, by falling GPUs.
        slack_s: Slack, s.
        least: Least mean throughput over the rest of the event that its slack allows if it is paused, 0 to 1.
    """

    serial: int
    gpus: int
    caps: tuple[Way, ...]
    stop: Way | None = None
    gangs: tuple[Way, ...] = ()
    slack_s: float
    least: float = 0.0

    @property
    def full(self) -> Way:
        """What it does if nothing is asked of it."""
        return self.caps[0]


class Turn(NamedTuple):
    """A job's turn to be paused.

    Attributes:
        serial: Serial of the job.
        until_s: When the turn ends, s; it begins when that of the job before ends.
    """

    serial: int
    until_s: float


def least_loss(jobs: Sequence[Bendable], budget_w: float) -> dict[int, Way]:
    """Returns what each job does: the next step down is always that which loses least throughput per watt.

    Steps lie along the concave hull of what each job may do.

    Args:
        jobs: Jobs.
        budget_w: Power that they may draw together, W.
    """
    down = [_hull(job) for job in jobs]
    excess_w = sum(job.full.power_w for job in jobs) - budget_w
    place = [0] * len(jobs)
    heap = [(_lost_per_w(ways, 0), j) for j, ways in enumerate(down) if len(ways) > 1]
    heapq.heapify(heap)
    while excess_w > 0 and heap:
        _, j = heapq.heappop(heap)
        ways, at = down[j], place[j] = down[j], place[j] + 1
        excess_w -= ways[at - 1].power_w - ways[at].power_w
        if at + 1 < len(ways):
            heapq.heappush(heap, (_lost_per_w(ways, at), j))
    return {job.serial: ways[at] for job, ways, at in zip(jobs, down, place, strict=True) if at}


def _hull(job: Bendable) -> list[Way]:
    """Returns what a job may do that no mix of the rest beats, by falling power."""
    found = {(way.power_w, way.throughput): way for way in (*job.caps, *([] if job.stop is None else [job.stop]))}
    return [found[point] for point in reversed(concave_hull(list(found))) if point[0] <= job.full.power_w]


def _lost_per_w(ways: Sequence[Way], at: int) -> float:
    """Returns the throughput lost per watt on the way from one of a job's ways to the next, GPUs/W."""
    high, low = ways[at], ways[at + 1]
    return (high.throughput - low.throughput) / (high.power_w - low.power_w)


def capped_fairly(jobs: Sequence[Bendable], budget_w: float) -> dict[int, Way]:
    """Returns what each job does by *DVFS, fair*: every job sheds the same share of what it can, at least."""
    running = [_as_running(job) for job in jobs]
    return _brought_to_caps(jobs, dvfs_fair(running, np.array([budget_w])))


def paused_by_slack(jobs: Sequence[Bendable], budget_w: float, free_w: float) -> dict[int, Way]:
    """Returns what each job does by *pausing, greedy*: those with most slack are paused until all is shed.

    Args:
        jobs: Jobs.
        budget_w: Power that they may draw together, W.
        free_w: Power of a free GPU, W.
    """
    first = sorted(jobs, key=lambda job: (-job.slack_s, job.serial))
    running = [_as_running(job, least=0.0 if job.least == 0 else 1.0) for job in first]
    plan = pause_greedy(running, np.array([budget_w]), stopped_w=free_w)
    return _stopped(first, plan.throughput_JT[:, 0])


def paused_in_turn(
    jobs: Sequence[Bendable],
    budget_w: float,
    free_w: float,
    now_s: float,
    part_s: float,
    end_s: float,
    turns: Sequence[Turn],
    back_w: dict[int, float],
) -> tuple[dict[int, Way], tuple[Turn, ...]]:
    """Returns what each job does by *DVFS and pausing, fair*, and the turns that it keeps to.

    Turns are chosen for the rest of the event, by ``dvfs_pause_fair``, and kept until their jobs are gone or the budget
    is no longer met.

    Args:
        jobs: Jobs that run.
        budget_w: Power that they may draw together, W.
        free_w: Power of a free GPU, W.
        now_s: Now, s.
        part_s: Time after which jobs are asked about again, s.
        end_s: End of the event, s.
        turns: Turns chosen before, in order.
        back_w: What jobs add, W, that stand still or load and had a turn, by serial; their turns have ended.
    """
    serials = {job.serial: j for j, job in enumerate(jobs)}
    left = tuple(turn for turn in turns if turn.until_s > now_s)
    if left and all(turn.serial in serials for turn in left[1:]):
        chosen = {turn.serial for turn in turns}
        kept_w = budget_w - sum(back_w.get(serial, 0.0) for serial in chosen - {left[0].serial} - set(serials))
        running = [_as_running(job) for job in jobs]
        paused = serials.get(left[0].serial)
        waiting = [serials[serial] for serial in chosen & set(serials)]
        plan = while_paused(running, np.array([kept_w]), waiting, paused, free_w)
        if plan.met_T[0]:
            ways = _brought_to_caps(jobs, plan) | _stopped(jobs, plan.throughput_JT[:, 0])
            return ways, tuple(turns)
    steps = int(np.ceil((end_s - now_s) / part_s))
    largest = sorted((job for job in jobs if job.stop), key=lambda job: (-job.full.power_w, job.serial))[:TURNS]
    candidates = {job.serial for job in largest}
    running = [_as_running(job, pausable=job.serial in candidates) for job in jobs]
    if sum(job.full_w for job in running) <= budget_w:
        return {}, ()
    plan = dvfs_pause_fair(running, np.full(steps, budget_w), stopped_w=free_w)
    found = [(np.flatnonzero(dark_T), job) for dark_T, job in zip(plan.throughput_JT == 0, jobs, strict=True)]
    new = sorted((Turn(job.serial, now_s + part_s * (1 + int(at_T[-1]))) for at_T, job in found if len(at_T)), key=_end)
    ways = _brought_to_caps(jobs, plan) | _stopped(jobs, plan.throughput_JT[:, 0])
    return ways, tuple(new)


def _end(turn: Turn) -> float:
    return turn.until_s


def resized_fairly(jobs: Sequence[Bendable], budget_w: float, free_w: float) -> dict[int, Way]:
    """Returns what each job does by *pausing and resizing, fair*: one is paused at most, the others lose GPUs.

    Args:
        jobs: Jobs; one without a stop and gangs stays as it is.
        budget_w: Power that they may draw together, W.
        free_w: Power of a free GPU, W.
    """
    running = [
        _as_running(job, least_gpus=min([way.gpus for way in job.gangs], default=job.gpus), caps=False) for job in jobs
    ]
    if sum(job.full_w for job in running) <= budget_w:
        return {}
    share_J = pause_resize_fair(running, np.array([budget_w]), stopped_w=free_w).throughput_JT[:, 0]
    ways = _stopped(jobs, share_J)
    for job, share in zip(jobs, share_J.tolist(), strict=True):
        if 0 < share < 1:
            ways[job.serial] = next(way for way in job.gangs if way.gpus <= round(share * job.gpus))
    return ways


def _as_running(
    job: Bendable,
    *,
    least: float | None = None,
    pausable: bool | None = None,
    least_gpus: int = 0,
    caps: bool = True,
) -> RunningJob:
    """Returns a job as plans of events see it; ``least`` and ``pausable`` are its own unless they are given."""
    ways = job.caps[::-1] if caps else (job.full,)
    return RunningJob(
        name=str(job.serial),
        gpus=job.gpus,
        power_w=tuple(way.power_w / job.gpus for way in ways),
        throughput=tuple(way.throughput / job.full.throughput for way in ways),
        least=job.least if least is None else least,
        pausable=job.stop is not None and (pausable is None or pausable),
        least_gpus=least_gpus,
    )


def _brought_to_caps(jobs: Sequence[Bendable], plan: EventPlan) -> dict[int, Way]:
    """Returns the highest cap of each job that draws no more than a plan allots it in its first step."""
    found = {}
    for job, allotted_w in zip(jobs, plan.power_w_JT[:, 0].tolist(), strict=True):
        most_w = job.full.power_w - (job.full.power_w - allotted_w) * (1 - GUARD)
        way = next((way for way in job.caps if way.power_w <= most_w), job.caps[-1])
        if way.cap and way is not job.full:
            found[job.serial] = way
    return found


def _stopped(jobs: Sequence[Bendable], share_J: F8) -> dict[int, Way]:
    """Returns the stop of each job whose throughput is 0 in a plan."""
    return {job.serial: job.stop for job, share in zip(jobs, share_J.tolist(), strict=True) if share == 0 and job.stop}

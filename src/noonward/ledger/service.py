"""What a run did to its jobs and sites: latency per class, queues and power per site, against targets and caps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.ledger.segments import DONE, OVERDUE, TRANSIT, Outcome
from noonward.model.limits import Constraints


@dataclass(frozen=True, kw_only=True)
class ClassService:
    """How the jobs of one class fared; None where it is not defined.

    Attributes:
        jobs: Jobs that arrived.
        done: Jobs that finished.
        mean_time_in_system_s: Mean time from arrival to finish of done jobs: transfer, wait and run, s.
        p99_time_in_system_s: Its 99th percentile, s.
        target_s: Latency target, s; None for none.
        within_target: Share of the jobs that finished within the target, among those that could be judged: done,
            dropped, or in the system for longer than it when the run ended.
    """

    jobs: int
    done: int
    mean_time_in_system_s: float | None
    p99_time_in_system_s: float | None
    target_s: float | None
    within_target: float | None


@dataclass(frozen=True, kw_only=True)
class SiteService:
    """Queue and power of one site.

    Attributes:
        longest_queue: Most jobs that ever waited there at once, without those that ended overdue.
        mean_queue: Time-mean of the waiting jobs over the run (CHSAC-AF, Eq. 4), jobs.
        mean_power_w: Mean facility power over the window, free GPUs included, W.
        peak_power_w: Highest facility power within the window, W.
        power_cap_w: Limit of its power, W; None for none.
        over_cap_share: Share of the window in which the power lay above the limit; None without one.
    """

    longest_queue: int
    mean_queue: float
    mean_power_w: float
    peak_power_w: float
    power_cap_w: float | None
    over_cap_share: float | None


@dataclass(frozen=True, kw_only=True)
class Service:
    """Service of a run.

    Attributes:
        longest_queue: Most jobs that ever waited at all sites together, without those that ended overdue; a whole
            number for one run.
        classes: Per job class that arrived.
        sites: Per site.
    """

    longest_queue: float
    classes: dict[str, ClassService]
    sites: dict[str, SiteService]

    def as_dict(self) -> dict[str, Any]:
        """Returns all values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Service:
        """Returns a service from what ``as_dict`` returned."""
        return cls(
            longest_queue=content["longest_queue"],
            classes={name: ClassService(**values) for name, values in content["classes"].items()},
            sites={name: SiteService(**values) for name, values in content["sites"].items()},
        )


def measure_service(outcome: Outcome) -> Service:
    """Measures latency, queues and power of a run from what became of its jobs."""
    environment, job_J = outcome.environment, outcome.job_J
    limits = environment.constraints or Constraints()
    waited_J = ~np.isnan(job_J["reach_s"]) & ~np.isin(job_J["status"], (OVERDUE, TRANSIT))
    classes = {}
    for c, name in enumerate(environment.fleet.classes):
        of_J = (environment.jobs.class_J == c) & (environment.jobs.arrival_s_J <= outcome.ended_s)
        if of_J.any():
            classes[name] = _class_service(outcome, of_J, limits.latency_target_s.get(name))
    sites = {
        name: _site_service(outcome, s, waited_J, limits.power_cap_w.get(name))
        for s, name in enumerate(environment.sites)
    }
    longest = longest_queue(job_J["reach_s"][waited_J], job_J["start_s"][waited_J])
    return Service(longest_queue=longest, classes=classes, sites=sites)


def longest_queue(reach_s: F8, start_s: F8) -> int:
    """Returns the most jobs that wait at once; one that starts when another joins has left before it.

    Args:
        reach_s: Times jobs join, s.
        start_s: Times they start, at least ``reach_s``, or NaN for never.

    Example:
        >>> longest_queue(np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.0, 2.0, np.nan, np.nan]))
        2
    """
    held = ~(start_s <= reach_s)
    joins, leaves = np.sort(reach_s[held]), np.sort(start_s[held & ~np.isnan(start_s)])
    queue = np.arange(1, len(joins) + 1) - np.searchsorted(leaves, joins, side="right")
    return int(queue.max(initial=0))


def _class_service(outcome: Outcome, of_J: NDArray[np.bool_], target_s: float | None) -> ClassService:
    track, arrival_s = outcome.job_J[of_J], outcome.environment.jobs.arrival_s_J[of_J]
    done = track["status"] == DONE
    taken_s = (track["finish_s"] - arrival_s)[done]
    within = None
    if target_s is not None:
        so_far_s = (outcome.ended_s - arrival_s)[~done & (track["status"] != OVERDUE)]
        judged = len(taken_s) + int((track["status"] == OVERDUE).sum()) + int((so_far_s > target_s).sum())
        within = float((taken_s <= target_s).sum()) / judged if judged else None
    return ClassService(
        jobs=len(track),
        done=len(taken_s),
        mean_time_in_system_s=float(taken_s.mean()) if len(taken_s) else None,
        p99_time_in_system_s=float(np.percentile(taken_s, 99)) if len(taken_s) else None,
        target_s=target_s,
        within_target=within,
    )


def _site_service(outcome: Outcome, s: int, waited_J: NDArray[np.bool_], cap_w: float | None) -> SiteService:
    here = outcome.job_J[waited_J & (outcome.job_J["site"] == s)]
    left_s = np.fmin(here["start_s"], outcome.ended_s)
    power_w, seconds = power_steps(outcome, s)
    total_s = float(seconds.sum())
    return SiteService(
        longest_queue=longest_queue(here["reach_s"], here["start_s"]),
        mean_queue=float(np.maximum(0.0, left_s - here["reach_s"]).sum()) / outcome.ended_s,
        mean_power_w=float(power_w @ seconds) / total_s,
        peak_power_w=float(power_w.max()),
        power_cap_w=cap_w,
        over_cap_share=None if cap_w is None else float(seconds[power_w > cap_w].sum()) / total_s,
    )


def power_steps(outcome: Outcome, s: int) -> tuple[F8, F8]:
    """Returns the facility power of a site as steps of constant power within the window: W, and how long each lasts, s.

    Power is that of running jobs plus that of free GPUs; steps of no length are left out.
    """
    environment = outcome.environment
    site, tables = environment.fleet.sites[s], environment.fleet.tables(1)
    free_w = float(tables.free_w_S[s]) * site.pue
    window_s = min(environment.window_s, outcome.ended_s)
    ran = outcome.job_J[(outcome.job_J["site"] == s) & outcome.started_J]
    ran = ran[ran["start_s"] < window_s]
    change_w = ran["power_w"] - ran["gpus"] * free_w
    time_s = np.concatenate([[0.0], ran["start_s"], np.minimum(ran["finish_s"], window_s)])
    change_w = np.concatenate([[site.gpus * free_w], change_w, -change_w])
    order = np.argsort(time_s, kind="stable")
    power_w = np.cumsum(change_w[order])
    seconds = np.diff(time_s[order], append=window_s)
    return power_w[seconds > 0], seconds[seconds > 0]

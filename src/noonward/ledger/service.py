"""What a run did to its jobs and sites: latency per class, queues and power per site, against targets and caps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I4, I8
from noonward.ledger.segments import DONE, FAILED, OVERDUE, TRANSIT, Outcome
from noonward.ledger.sweep import sweep_power, sweep_queues
from noonward.ledger.withheld import standing_power, switched_off
from noonward.model.limits import Constraints
from noonward.paging import column, leave_memory, parts
from noonward.sorting import time_order
from noonward.units import HOUR_S


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
    jobs, classes = environment.jobs, {}
    for c, name in enumerate(environment.fleet.classes):

        def of_class(values_J: NDArray[Any], c: int = c) -> NDArray[Any]:
            def of(part: slice) -> NDArray[Any]:
                return values_J[part][(jobs.class_J[part] == c) & (jobs.arrival_s_J[part] <= outcome.ended_s)]

            return column(len(jobs), of)

        status_W = of_class(job_J["status"])
        if len(status_W):
            arrival_s_W, finish_s_W = of_class(jobs.arrival_s_J), of_class(job_J["finish_s"])
            target_s = limits.latency_target_s.get(name)
            classes[name] = _class_service(status_W, arrival_s_W, finish_s_W, outcome.ended_s, target_s)
    longest, longest_S, waited_s_S = _queues(outcome)
    leave_memory()
    cap_w_S = np.array([limits.power_cap_w.get(name, np.inf) for name in environment.sites])
    joules_S, peak_w_S, above_s_S, seconds_S = power_totals(outcome, cap_w_S).T.tolist()
    sites = {
        name: SiteService(
            longest_queue=longest_S[s],
            mean_queue=waited_s_S[s] / outcome.ended_s,
            mean_power_w=joules_S[s] / seconds_S[s],
            peak_power_w=peak_w_S[s],
            power_cap_w=limits.power_cap_w.get(name),
            over_cap_share=above_s_S[s] / seconds_S[s] if name in limits.power_cap_w else None,
        )
        for s, name in enumerate(environment.sites)
    }
    return Service(longest_queue=longest, classes=classes, sites=sites)


def _class_service(
    status_W: I8, arrival_s_W: F8, finish_s_W: F8, ended_s: float, target_s: float | None
) -> ClassService:
    """Returns how some jobs W of one class fared."""

    def of_done(part: slice) -> F8:
        return np.asarray((finish_s_W[part] - arrival_s_W[part])[status_W[part] == DONE])

    done, taken_s = status_W == DONE, column(len(status_W), of_done)
    within = None
    if target_s is not None:
        overdue = status_W == OVERDUE
        so_far_s = (ended_s - arrival_s_W)[~done & ~overdue & (status_W != FAILED)]
        judged = len(taken_s) + int(overdue.sum()) + int((so_far_s > target_s).sum())
        within = float((taken_s <= target_s).sum()) / judged if judged else None
    return ClassService(
        jobs=len(status_W),
        done=len(taken_s),
        mean_time_in_system_s=float(taken_s.mean()) if len(taken_s) else None,
        p99_time_in_system_s=float(np.percentile(taken_s, 99)) if len(taken_s) else None,
        target_s=target_s,
        within_target=within,
    )


def waiting_jobs(outcome: Outcome) -> tuple[F8, F8, I8]:
    """Returns when jobs joined the queue they were in last and when they started (NaN: never), s, and its site.

    Jobs that end overdue or still travel are left out: the outcome does not say when they left a queue. A suspended job
    waited up to its first start.
    """
    job_J, bends = outcome.job_J, outcome.segment_K is not None

    def waited(name: str) -> NDArray[Any]:
        def of(part: slice) -> NDArray[Any]:
            status_P = job_J["status"][part]
            at_site_P = status_P != TRANSIT
            if bends:
                at_site_P |= outcome.suspensions_J[part] > 0
            return job_J[name][part][~np.isnan(job_J["reach_s"][part]) & (status_P != OVERDUE) & at_site_P]

        return column(len(job_J), of)

    return waited("reach_s"), waited("start_s"), waited("site")


def _queues(outcome: Outcome) -> tuple[int, list[int], list[float]]:
    """Returns the most jobs that waited at once, at all sites and per site, and the time that jobs waited per site."""
    reach_s_W, start_s_W, site_W = waiting_jobs(outcome)
    sites = len(outcome.environment.sites)
    longest_S, waited_s_S = np.zeros(sites, np.int64), np.zeros(sites)
    joins_W, leaves_L = time_order(reach_s_W), _leaves(start_s_W)
    waiting_S, total_3 = np.zeros(sites, np.int64), np.zeros(3, np.int64)
    for part in parts(len(joins_W)):
        sweep_queues(
            reach_s_W, start_s_W, site_W, joins_W[part], leaves_L, outcome.ended_s, waiting_S, longest_S, waited_s_S,
            total_3,
        )  # fmt: skip
    return int(total_3[2]), longest_S.tolist(), waited_s_S.tolist()


def _leaves(start_s_W: F8) -> I8:
    """Returns the jobs that started, in the order in which they did."""
    count = len(start_s_W)
    left = column(count, lambda part: part.start + np.flatnonzero(~np.isnan(start_s_W[part])))
    order_L = time_order(column(len(left), lambda part: start_s_W[left[part]]))
    return column(len(left), lambda part: left[order_L[part]])


def power_totals(outcome: Outcome, cap_w_S: F8) -> F8:
    """Returns energy J, highest power W, seconds above a limit, and seconds of the window, per site, [S, 4].

    Power is that of running jobs, of their stops and loads, of jobs that were running before the run, and of free GPUs.

    Args:
        outcome: The run.
        cap_w_S: Limit of the facility power, W; infinite for none.
    """
    environment, tables = outcome.environment, outcome.environment.fleet.tables(1)
    free_w_S = tables.free_w_S * tables.pue_S
    power = outcome.occupied
    site_K, from_s_K, to_s_K = power.site_K, power.from_s_K, power.to_s_K
    window_s = min(environment.window_s, outcome.ended_s)
    out_S4, base_w_S = np.zeros((len(free_w_S), 4)), tables.gpus_S * free_w_S
    extra_w_K = column(len(power), lambda part: power.watts_K[part] - power.gpus_K[part] * free_w_S[power.site_K[part]])
    for more, sign in ((standing_power(environment), 1.0), (switched_off(environment, power), -1.0)):
        if more is not None:
            site_K, extra_w_K = np.concatenate([site_K, more.site_K]), np.concatenate([extra_w_K, sign * more.watts_K])
            from_s_K, to_s_K = np.concatenate([from_s_K, more.from_s_K]), np.concatenate([to_s_K, more.to_s_K])
    if environment.pue is not None:
        factor_SH = environment.site_signals.factor_SH
        site_K, from_s_K, to_s_K, extra_w_K = _by_hour(site_K, from_s_K, to_s_K, extra_w_K, base_w_S, factor_SH)
    begins_K, ends_K = time_order(from_s_K), time_order(to_s_K)
    since_s_S, taken_2 = np.zeros(len(free_w_S)), np.zeros(2, np.int64)
    for part in parts(len(site_K)):
        sweep_power(
            site_K, from_s_K, to_s_K, extra_w_K, begins_K, ends_K, window_s, base_w_S, since_s_S, cap_w_S, out_S4,
            taken_2, part.stop,
        )  # fmt: skip
    return out_S4


def _by_hour(site_K: I4, from_s_K: F8, to_s_K: F8, extra_w_K: F8, base_w_S: F8, factor_SH: F8) -> tuple[I4, F8, F8, F8]:
    """Returns power beyond that of free GPUs, cut at the hours, in which a watt counts for a factor.

    What the factor changes of the power of free GPUs is power of its own, site by site and hour by hour.
    """
    sites, hours = factor_SH.shape
    first_K = (from_s_K / HOUR_S).astype(np.int64)
    count_K = np.maximum(np.ceil(to_s_K / HOUR_S).astype(np.int64) - first_K, 1)
    of_X = np.repeat(np.arange(len(site_K)), count_K)
    hour_X = first_K[of_X] + np.arange(len(of_X)) - np.repeat(np.cumsum(count_K) - count_K, count_K)
    factor_X = factor_SH[site_K[of_X], np.minimum(hour_X, hours - 1)]
    site_Y, hour_Y = np.divmod(np.arange(sites * hours), hours)
    return (
        np.concatenate([site_K[of_X], site_Y.astype(site_K.dtype)]),
        np.concatenate([np.maximum(from_s_K[of_X], hour_X * HOUR_S), hour_Y * HOUR_S]),
        np.concatenate([np.minimum(to_s_K[of_X], (hour_X + 1) * HOUR_S), (hour_Y + 1) * HOUR_S]),
        np.concatenate([extra_w_K[of_X] * factor_X, base_w_S[site_Y] * (factor_SH[site_Y, hour_Y] - 1.0)]),
    )

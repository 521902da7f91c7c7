"""Where jobs go that a grid event keeps from running at their site: other sites with room, where that is worth it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from noonward.arrays import I8
from noonward.decision.cluster.feasibility import runs_alike
from noonward.decision.cluster.lives import back_s, may_suspend, resume_until_s
from noonward.decision.cluster.value import gang_at, travel_cost_usd
from noonward.decision.cluster.view import ClusterView, fits, return_delay_s
from noonward.schedule.cluster.event_orders import Bendable, Way
from noonward.schedule.cluster.lives import travel_h
from noonward.units import HOUR_S


def room_at(view: ClusterView, closed: Collection[int], going: dict[int, int]) -> I8:
    """Returns how many GPUs jobs from elsewhere may count on at each site: free ones that no job waits for.

    Args:
        view: View.
        closed: Sites in an event, or told of one: they take none.
        going: Sites that jobs are on their way to, by serial.
    """
    room_S = view.free_S - view.site_S["waiting_gpus"]
    gpus_of = dict(zip(view.job_J["serial"].tolist(), view.job_J["gpus_max"].tolist(), strict=True))
    for serial, d in going.items():
        room_S[d] -= gpus_of.get(serial, 0)
    room_S[list(closed)] = 0
    return np.asarray(np.maximum(room_S, 0))


def movable(view: ClusterView, s: int, jobs: dict[int, Bendable], end_s: float, room_S: I8) -> list[Bendable]:
    """Returns running jobs with what they do if they are suspended: those that may be resumed elsewhere do so there.

    Until it runs again a job does nothing; what its journey costs counts as GPU-hours at what these earn. Jobs are
    placed by falling power, each where it loses least, among the sites with room for it.

    Args:
        view: View.
        s: Site of the jobs.
        jobs: What they may do, by slot.
        end_s: End of the event, s.
        room_S: GPUs that they may count on (``room_at``).
    """
    found = {}
    for job, each in sorted(jobs.items(), key=lambda item: (-item[1].full.power_w, item[1].serial)):
        ways = [way for d in range(len(room_S)) if (way := _away(view, s, d, job, each, end_s, room_S)) is not None]
        best = max(ways, key=lambda way: way.throughput, default=None)
        if best is not None:
            room_S[best.site] -= each.gpus
        found[job] = each if best is None else replace(each, stop=best)
    return [found[job] for job in jobs]


def _away(view: ClusterView, s: int, d: int, job: int, each: Bendable, end_s: float, room_S: I8) -> Way | None:
    """Returns what a running job does that is suspended now and resumed at another site; None where it may not be."""
    if d == s or room_S[d] < each.gpus or not (may_suspend(view, job) and fits(view, job, d)):
        return None
    if not runs_alike(view, job, d):
        return None
    freedom, now_s, left_s = view.freedom_C[view.job_J["class_"][job]], view.now_s, end_s - view.now_s
    arrives_s = back_s(view, job) + HOUR_S * travel_h(view, job, s, d)
    until_s = resume_until_s(view, job) - return_delay_s(view, job, d) + return_delay_s(view, job, s)
    if arrives_s + float(view.run_1["slot_s"][0]) > until_s:
        return None
    usd = travel_cost_usd(view, job, s, d) - travel_cost_usd(view, job, s, s)
    if view.life_J["suspensions"][job] == 0:
        usd += freedom["checkpoint_gb"] * view.link_IS["usd_per_gb"][view.site_S["ingress"][s], d]
    still = (arrives_s - now_s + float(freedom["load_s"])) / left_s
    does = each.gpus * (1 - still) - _gpu_hours(view, usd) / (left_s / HOUR_S)
    return Way(each.gpus * float(view.site_S["free_w"][s]), does, stops=True, site=d) if does > 0 else None


def elsewhere(view: ClusterView, s: int, job: int, hours: float, room_S: I8) -> int:
    """Returns the site to which a waiting job goes rather than stand still for some hours; -1 for none.

    That of least cost with room for its gang, if the journey costs less than its GPUs earn in these hours.
    """
    best, least = -1, hours * gang_at(view, job, s)
    for d in range(len(room_S)):
        if d != s and view.allowed(s, d) and room_S[d] >= gang_at(view, job, d):
            cost = _gpu_hours(view, travel_cost_usd(view, job, s, d) - travel_cost_usd(view, job, s, s))
            if cost < least:
                best, least = d, cost
    return best


def _gpu_hours(view: ClusterView, usd: float) -> float:
    """Returns how many GPU-hours earn an amount; infinite where they earn nothing and it is above 0."""
    worth = float(view.run_1["revenue_usd_per_gpu_hour"][0])
    return usd / worth if worth > 0 else np.inf if usd > 0 else 0.0

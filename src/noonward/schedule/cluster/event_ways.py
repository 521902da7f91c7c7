"""What the running jobs of a site may do in a grid event, and what the site draws, as a view shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import Bools
from noonward.decision.cluster.lives import (
    back_s,
    may_cap,
    may_suspend,
    resume_until_s,
    slack_left_s,
    speed_on,
)
from noonward.decision.cluster.view import DARK, LOADS, POWER_W, RUNS, STOPS, WAITS, ClusterView
from noonward.schedule.cluster.event_orders import Bendable, Way
from noonward.schedule.event.cap_optimal import concave_hull


def power_w(view: ClusterView, job: int) -> float:
    """Returns the IT power of a running job without a cap, W."""
    life = view.life_J[job]
    return float(view.speed_KSCGF[POWER_W, life["site"], view.job_J["class_"][job], life["gpus"], life["level"]])


def site_w(view: ClusterView, s: int) -> float:
    """Returns the IT power of a site now, W: jobs that run, stop or load, and free GPUs."""
    total_w = float(view.free_S[s] * view.site_S["free_w"][s])
    for job in of_site(view, s):
        life, freedom = view.life_J[job], view.freedom_C[view.job_J["class_"][job]]
        share = {
            RUNS: freedom["cap_power"][life["cap"]],
            STOPS: freedom["stop_power"],
            LOADS: freedom["load_power"],
        }[int(life["state"])]
        total_w += float(share) * power_w(view, job)
    return total_w


def of_site(view: ClusterView, s: int) -> list[int]:
    """Returns the jobs that hold GPUs of a site."""
    life_J = view.life_J
    holds = (life_J["site"] == s) & np.isin(life_J["state"], (RUNS, STOPS, LOADS)) & (view.job_J["serial"] >= 0)
    return [int(job) for job in np.flatnonzero(holds)]


def stands(view: ClusterView) -> Bools:
    """Returns which jobs have run and hold no GPUs, or are about to hold none."""
    life_J = view.life_J
    stands_J = np.isin(life_J["state"], (STOPS, DARK)) | ((life_J["state"] == WAITS) & (life_J["suspensions"] > 0))
    return np.asarray(stands_J & (view.job_J["serial"] >= 0))


def standing(view: ClusterView) -> set[int]:
    """Returns the serials of the jobs that have run and hold no GPUs, or are about to hold none."""
    return set(view.job_J["serial"][stands(view)].tolist())


@dataclass(frozen=True, kw_only=True)
class Freed:
    """What an order does with running jobs.

    Attributes:
        caps: Whether they are capped.
        stops: Whether they are suspended.
        turns: Whether one is resumed after its turn; else after the event.
        resizes: Whether they are resized.
    """

    caps: bool
    stops: bool
    turns: bool
    resizes: bool


def bendable(view: ClusterView, s: int, job: int, full_w: float, end_s: float, may: Freed) -> Bendable:
    """Returns what a running job may do in the rest of an event.

    Args:
        view: View.
        s: Its site.
        job: Its slot.
        full_w: IT power that it draws if nothing is asked of it, W.
        end_s: End of the event, s.
        may: What is done with running jobs.
    """
    life, freedom = view.life_J[job], view.freedom_C[view.job_J["class_"][job]]
    gpus, left_s, slack_s = int(life["gpus"]), end_s - view.now_s, slack_left_s(view, job)
    slot_s, free_w = float(view.run_1["slot_s"][0]), float(view.site_S["free_w"][s])
    ways = {(full_w, float(gpus)): Way(full_w, float(gpus))}
    if may.caps and may_cap(view, job):
        for cap in range(1, int(freedom["caps"]) + 1):
            rate, share = float(freedom["cap_rate"][cap]), float(freedom["cap_power"][cap])
            if (1 - rate) * left_s <= slack_s:
                ways[share * full_w, rate * gpus] = Way(share * full_w, rate * gpus, cap)
    stop: Way | None = None
    gangs: list[Way] = []
    allowed_s = slack_s
    if may.stops and may_suspend(view, job):
        still_s = resume_until_s(view, job) - slot_s
        if (back_s(view, job) if may.turns else max(back_s(view, job), end_s)) <= still_s:
            stop, allowed_s = Way(gpus * free_w, 0.0, stops=True), still_s - view.now_s
        if may.resizes and gpus == life["own_gpus"]:
            gangs = _gangs(view, s, job, slack_s)
    return Bendable(
        serial=int(view.job_J["serial"][job]),
        gpus=gpus,
        caps=tuple(ways[point] for point in reversed(concave_hull(list(ways))) if point[0] <= full_w),
        stop=stop if gpus == life["own_gpus"] or not may.resizes else None,
        gangs=tuple(gangs),
        slack_s=slack_s,
        least=min(max(1 - allowed_s / left_s, 0.0), 1.0),
    )


def _gangs(view: ClusterView, s: int, job: int, slack_s: float) -> list[Way]:
    """Returns the smaller gangs on which a running job would end in time, by falling GPUs."""
    life, freedom, c = view.life_J[job], view.freedom_C[view.job_J["class_"][job]], view.job_J["class_"][job]
    found: list[Way] = []
    gpus, rest_s = int(life["gpus"]), float(life["until_s"]) - view.now_s
    for each in reversed(freedom["gang_gpus"][: int(freedom["gangs"])].tolist()):
        speed = speed_on(view, job, each) / float(life["speed"])
        stands_s = float(freedom["stop_s"] + freedom["dark_s"] + freedom["load_s"] + view.run_1["slot_s"][0])
        if each < gpus and rest_s * (1 / speed - 1) + stands_s <= slack_s:
            idle_w = (gpus - each) * float(view.site_S["free_w"][s])
            gang_w = float(view.speed_KSCGF[POWER_W, s, c, each, life["level"]])
            found.append(Way(gang_w + idle_w, speed * gpus, stops=True, gpus=each))
    return found

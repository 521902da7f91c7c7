"""Why a job is where it is: what each site would mean for it, what it waits for, and when it may start."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np

from noonward.decision.cluster.view import DARK, STOPS, ClusterView
from noonward.live.controller import Controller
from noonward.live.handover import PUT_OFF
from noonward.live.spoken import hours
from noonward.live.store.database import Row
from noonward.live.store.dependencies import waits_for as others_of
from noonward.live.store.schema import IS_OPEN
from noonward.live.tenants import budget_ends_s, budget_shown, said_of
from noonward.live.world.kernels import join_time, latest_s, travel_s
from noonward.live.world.seats import STARTING, SUSPENDED, TRANSIT, Seat
from noonward.live.world.world import World
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH, WATT_SECONDS_PER_MWH


@runtime_checkable
class Intends(Protocol):
    """A scheduler that can say what it intends to do with a waiting job, such as one that books."""

    def intended_start(self, view: ClusterView, job: int) -> tuple[int, float] | None:
        """Returns site and start, s; site -1 for a job that it does not intend to start; None if it does not know."""


class Candidate(msgspec.Struct, kw_only=True):
    """What a site would mean for a job now, with its largest gang and the clock of least energy."""

    site: str
    feasible: bool
    """Whether the policy may choose it now."""
    reason: str
    """Why not, or what would happen."""
    free: int
    waiting: int
    price_usd_per_mwh: float | None
    carbon_g_per_kwh: float | None
    gpus: int
    run_s: float | None
    energy_kwh: float | None
    """Facility energy of the run."""
    energy_usd: float | None
    """At the price of this hour."""
    carbon_kg: float | None
    """At the intensity of this hour."""
    latest_start: str | None
    """Latest start here that keeps the job's delay."""


Reason = Literal[
    "hand-over",
    "end",
    "release",
    "question",
    "start",
    "transfer",
    "site",
    "plan",
    "quota",
    "budget",
    "queue",
    "gpus",
    "policy",
    "refused",
    "jobs",
    "stop",
    "suspended",
]
"""Kinds of what a job waits for."""
IN_WORDS: Final[dict[Reason, str]] = {
    "start": "their planned start in a better hour",
    "gpus": "free GPUs",
    "queue": "jobs ahead of them",
    "policy": "a better hour: the policy defers them",
    "plan": "the capacity plan",
    "quota": "their tenant's quota",
    "budget": "the next period of their tenant's budget",
    "transfer": "their transfer",
    "release": "a release: they are held",
    "question": "the next decision",
    "site": "a site that may take them",
    "refused": "nothing in sight: no site and time pays",
    "hand-over": "their hand-over to the cluster",
    "jobs": "the end of other jobs",
    "stop": "their checkpoint: they are to be suspended",
    "suspended": "the least time between a stop and a load",
}
"""What several jobs wait for, the usual first; jobs that run or have ended wait for nothing."""

WAITING: Final = f"""
SELECT * FROM jobs WHERE {IS_OPEN} AND state <> 'running' AND (state <> 'starting' OR reason IS NOT NULL)
ORDER BY id DESC LIMIT ?
"""
"""The newest jobs that wait; one whose start is decided waits if its cluster gives a reason."""


class Why(msgspec.Struct, kw_only=True):
    """Why a job is where it is."""

    job: int
    state: str
    reason: Reason
    """Kind of what it waits for."""
    waits_for: str
    """What it waits for, in words."""
    expected_start: str | None
    """Earliest start that is known: of a decision, a transfer or expected ends of running jobs; none where it is open.
    """
    expected_end: str | None
    policy: str
    candidates: list[Candidate]
    """Empty once the job has been started."""


def why(controller: Controller, job: int) -> Why:
    """Returns why a job is where it is.

    Args:
        controller: Controller of the service.
        job: Number of a stored job.
    """
    row = controller.store.read("SELECT * FROM jobs WHERE id = ?", job)[0]
    with controller.lock:
        seat, mask_A = _seat(controller.world, row)
        reason, words, start_s = _waits_for(controller, seat, row, mask_A)
        candidates = [] if seat is None or mask_A is None else _candidates(controller, seat, mask_A)
    end_s = row["ended_s"]
    if end_s is None and row["start_s"] is not None:
        end_s = row["finish_s"] if row["resumed_s"] else (row["began_s"] or row["start_s"]) + row["run_s"]
    return Why(
        job=job,
        state=row["state"],
        reason=reason,
        waits_for=words,
        expected_start=None if start_s is None else controller.time_of(start_s),
        expected_end=None if end_s is None else controller.time_of(end_s),
        policy=controller.policy,
        candidates=candidates,
    )


def reasons(controller: Controller, most: int) -> list[tuple[str, int]]:
    """Returns what the newest jobs that wait are waiting for, in words, and how many do; the usual first.

    Args:
        controller: Controller of the service.
        most: Jobs that are looked at.
    """
    rows = controller.store.read(WAITING, most)
    counted: Counter[Reason] = Counter()
    for row in rows:
        with controller.lock:  # per job, so that a decision waits for one of them at most
            seat, mask_A = _seat(controller.world, row)
            counted[_waits_for(controller, seat, row, mask_A)[0]] += 1
    return [(words, counted[reason]) for reason, words in IN_WORDS.items() if counted[reason]]


def _seat(world: World, row: Row) -> tuple[Seat | None, Any]:
    """Returns a job's place in the books, and the mask of a question about it; None where it has none, or starts."""
    seat = world.seat_of.get(row["serial"])
    if seat is None or seat.about.job != row["id"]:
        return None, None
    return seat, None if seat.state == STARTING else _mask(world, seat)


def _candidates(controller: Controller, seat: Seat, mask_A: Any) -> list[Candidate]:
    """Returns a row per site, from the mask that the policy is asked with."""
    world = controller.world
    return [_candidate(controller, world, seat, s, bool(mask_A[1 + s])) for s in range(len(world.brief.sites))]


def _mask(world: World, seat: Seat) -> Any:
    """Returns the mask that a question about a job would have now; the view is left as it was."""
    view = world.view
    asked_N, mask_NA = view.asked_N.copy(), view.mask_NA.copy()
    try:
        each_slot = world.brief.protocol == "each-slot"
        asker = max(seat.site, 0) if each_slot else 0
        world.engine.show_mask(seat.slot, asker if each_slot else -1)
        world.restrict(seat, asker)
        return view.mask_NA[asker].copy()
    finally:
        view.asked_N[:], view.mask_NA[:] = asked_N, mask_NA


def _candidate(controller: Controller, world: World, seat: Seat, s: int, feasible: bool) -> Candidate:
    view, about = world.view, seat.about
    site = view.site_S[s]
    gpus = int(min(about.gpus_max, site["gpus"]))
    price, carbon = (None if np.isnan(site[name]) else float(site[name]) for name in ("price", "carbon"))
    run_s = watts = None
    if gpus >= about.gpus_min:
        level = int(view.oracle_SCG[s, about.class_, gpus])
        power, seconds = view.speed_KSCGF[:, s, about.class_, gpus, level]
        run_s, watts = float(about.expected * seconds), float(power * site["pue"])
    latest = float(latest_s(view, seat.slot, s))
    drawn = None if run_s is None or watts is None else watts * run_s
    return Candidate(
        site=world.brief.sites[s],
        feasible=feasible,
        reason=_reason(world, seat, s, feasible, latest),
        free=int(site["free"]),
        waiting=int(site["waiting"]),
        price_usd_per_mwh=price,
        carbon_g_per_kwh=carbon,
        gpus=gpus,
        run_s=run_s,
        energy_kwh=None if drawn is None else drawn / WATT_SECONDS_PER_KWH,
        energy_usd=None if drawn is None or price is None else drawn * price / WATT_SECONDS_PER_MWH,
        carbon_kg=None if drawn is None or carbon is None else drawn * carbon / WATT_SECONDS_PER_MWH,
        latest_start=controller.time_of(latest) if np.isfinite(latest) else None,
    )


def _reason(world: World, seat: Seat, s: int, feasible: bool, latest: float) -> str:
    """Returns why a site is not feasible, or what choosing it would mean."""
    view, about = world.view, seat.about
    site = view.site_S[s]
    here = world.brief.protocol == "each-slot" and s == seat.site
    if s in world.drained:
        return "the site is drained or does not answer"
    if s in seat.vetoed:
        return "the job must not run here"
    if seat.pinned not in (-1, s):
        return "the job is pinned to another site"
    if not view.range_CS[about.class_, s]:
        return "jobs of its class do not run here"
    if about.gpus_min > site["gpus"]:
        return f"it needs {about.gpus_min} GPUs at once, the site has {site['gpus']}"
    if here and world.now_s <= latest and not feasible:
        return f"it needs {about.gpus_min} GPUs at once, {site['free']} are free"
    if not feasible:
        return "it cannot be here before its latest start"
    if here:
        return "it could start here now"
    if world.brief.protocol == "each-slot":
        return f"it would join the queue here in {hours(join_time(view, seat.slot, seat.site, s) - world.now_s)}"
    return f"it would be here in {hours(travel_s(view, seat.slot, about.origin, s))}"


def _waits_for(controller: Controller, seat: Seat | None, row: Row, mask_A: Any) -> tuple[Reason, str, float | None]:
    """Returns what a job waits for, as its kind and in words, and its earliest known start."""
    world, state = controller.world, row["state"]
    if state == "suspended":
        return _while_suspended(controller, seat, row, mask_A)
    if row["start_s"] is not None:
        if state == "running" and seat is not None and world.engine.bends and _is_stopping(world, seat):
            return "stop", f"its checkpoint: it is to be suspended at {row['site']}", None
        if state == "starting" and str(row["reason"]).startswith(PUT_OFF):
            site = row["site"]
            return "hand-over", f"its hand-over to {site}, which is tried again: {row['reason']}", row["start_s"]
        if state == "starting" and row["reason"]:
            return "hand-over", f"{row['site']}, whose cluster holds it: {row['reason']}", row["start_s"]
        if state in ("starting", "running"):
            return "end", f"its end; it was started at {row['site']}", row["start_s"]
        return "end", "nothing: it has ended", row["start_s"]
    if state not in ("submitted", "transit", "waiting"):
        return "end", "nothing: it has ended", None
    if row["held"]:
        return "release", "its release: it is held", None
    if seat is None:
        if others := others_of(controller.store, row["id"]):
            return "jobs", others, None
        if world.brief.protocol == "on-arrival":
            return "question", "the next question", None
        slot_s = world.brief.slot_s
        next_s = (np.floor(row["arrival_s"] / slot_s) + 1) * slot_s
        return "question", "the next slot boundary, at which it is asked about", float(next_s)
    if seat.state == TRANSIT:
        reach_s, site = float(seat.reach_s or 0.0), world.brief.sites[seat.site]
        if seat.earliest_s > reach_s:
            return "start", f"the start that the policy {controller.policy} has planned at {site}", seat.earliest_s
        return "transfer", f"its transfer to {site}", reach_s
    if seat.site < 0 or mask_A is None:
        return "site", "a site that may take it", None
    if world.brief.protocol == "on-arrival" or not mask_A[1 + seat.site]:
        site, free = world.brief.sites[seat.site], int(world.view.site_S["free"][seat.site])
        used_up = [one for one in budget_shown(world, seat.about.tenant) if one.used_up]
        if used_up and world.brief.tenants is not None:
            name, until_s = world.brief.tenants.names[seat.about.tenant], budget_ends_s(world, seat.about.tenant)
            return "budget", f"the next period of the budget of tenant {name!r}: {said_of(used_up[0])}", until_s
        if free >= seat.about.gpus_min > world.engine.quota_room(seat.slot):
            tenants = world.brief.tenants
            tenant = "" if tenants is None else f" {tenants.names[seat.about.tenant]!r}"
            left = world.engine.quota_room(seat.slot)
            return "quota", f"the quota of tenant{tenant}: it may take {left} more GPUs now", None
        if free >= seat.about.gpus_min > world.engine.room(seat.site):
            words = f"the capacity curve of {site}: this hour it leaves no {seat.about.gpus_min} GPUs to start"
            return "plan", words, None
        if free >= seat.about.gpus_min and world.brief.protocol == "on-arrival":
            return "queue", f"the jobs before it in the queue of {site}", None
        room_s = _room_s(world, seat)
        return "gpus", f"{seat.about.gpus_min} free GPUs at {site} ({free} are free)", room_s
    return _intention(controller.policy, world, seat)


def _is_stopping(world: World, seat: Seat) -> bool:
    return int(world.view.life_J["state"][seat.slot]) == STOPS


def _while_suspended(
    controller: Controller, seat: Seat | None, row: Row, mask_A: Any
) -> tuple[Reason, str, float | None]:
    """Returns what a suspended job waits for."""
    world, site = controller.world, row["site"]
    if row["cancelling"]:
        return "end", f"its end: it was suspended at {site} and is being cancelled", None
    if seat is None or seat.state != SUSPENDED:
        return "question", f"the next decision: it was suspended at {site}", None
    life = world.view.life_J[seat.slot]
    if life["state"] == DARK:
        return "suspended", f"the least time between a stop and a load at {site}", float(life["until_s"])
    if seat.site in world.drained:
        return "site", f"{site}, which is drained or does not answer: a suspended job is resumed where it ran", None
    if mask_A is not None and mask_A[1 + seat.site]:
        return "policy", f"the policy {controller.policy}, which suspended it at {site} and is asked every slot", None
    free = int(world.view.site_S["free"][seat.site])
    return "gpus", f"{seat.gpus} free GPUs at {site} ({free} are free), where it is suspended", None


def _intention(policy: str, world: World, seat: Seat) -> tuple[Reason, str, float | None]:
    """Returns what a policy waits for that holds a job though it could start."""
    intended = world.scheduler.intended_start(world.view, seat.slot) if isinstance(world.scheduler, Intends) else None
    if intended is None:
        return (
            "policy",
            f"the policy {policy}, which defers it though it could start: it is asked again every slot",
            None,
        )
    site, start_s = intended
    if site < 0:
        words = f"nothing that is in sight: the policy {policy} has refused it, since it pays at no site and time"
        return "refused", words, None
    return (
        "start",
        f"the start that the policy {policy} has reserved at {world.brief.sites[site]}",
        max(start_s, world.now_s),
    )


def _room_s(world: World, seat: Seat) -> float | None:
    """Returns when enough GPUs of a job's site are free if running jobs take what the model says; nobody goes first."""
    free = int(world.view.site_S["free"][seat.site])
    running = [one for one in world.seat_of.begun() if one.site == seat.site]
    for one in sorted(running, key=lambda one: one.ends_s):
        free += one.gpus
        if free >= seat.about.gpus_min:
            return max(world.now_s, one.ends_s)
    return None


class Plan(msgspec.Struct, kw_only=True):
    """What is expected of a site in the coming hours: running jobs at their expected ends, and the forecast."""

    site: str
    busy_gpus: list[float]
    """Mean GPUs of running jobs, hour by hour from now."""
    waiting_gpus: int
    price_usd_per_mwh: list[float]
    """Forecast; empty where the policy is given none."""
    carbon_g_per_kwh: list[float]
    curve_gpus: list[float]
    """GPUs that may be busy by the policy's plan, hour by hour from the current full hour on; empty without a plan."""
    curve: str | None
    """Whether nothing may start beyond the curve (``hard``) or it is advice (``advisory``); none without."""


def plans(controller: Controller, hours: int = 24) -> list[Plan]:
    """Returns what is expected of every site in the coming hours."""
    with controller.lock:
        world = controller.world
        now_s = controller.store.now_s()
        busy_SH = np.zeros((len(world.brief.sites), hours))
        for seat in world.seat_of.begun():
            if seat.start_s is None or seat.run_s is None:
                continue
            left_s = seat.ends_s - now_s
            share_H = np.clip(left_s / HOUR_S - np.arange(hours), 0.0, 1.0)
            busy_SH[seat.site] += seat.gpus * share_H
        curves, first = world.curves, int(now_s // HOUR_S)
        if curves is not None:
            curves.cover(first)
        shown = world.hours is not None and world.brief.lookahead_h > 0
        value_KSL = np.diff(world.view.forecast_KSL, axis=2) / HOUR_S if shown else np.zeros((2, len(busy_SH), 0))
        return [
            Plan(
                site=name,
                busy_gpus=[round(float(value), 3) for value in busy_SH[s]],
                waiting_gpus=int(world.view.site_S["waiting_gpus"][s]),
                price_usd_per_mwh=_finite(value_KSL[0, s, :hours]),
                carbon_g_per_kwh=_finite(value_KSL[1, s, :hours]),
                curve_gpus=[] if curves is None else curves.limit_SH[s, first : first + hours].round(3).tolist(),
                curve=None if curves is None else "hard" if curves.hard else "advisory",
            )
            for s, name in enumerate(world.brief.sites)
        ]


def _finite(values: Any) -> list[float]:
    """Returns values as a list; none where no forecast has been issued yet."""
    return [] if np.isnan(values).any() else [round(float(value), 3) for value in values]

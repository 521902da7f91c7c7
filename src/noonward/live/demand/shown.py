"""Meters and grid events as the interface and the pages show them."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from noonward.arrays import F8
from noonward.live.controller import Controller
from noonward.live.demand.events import grid_event
from noonward.live.demand.meters import SiteMeter, held_against
from noonward.live.store.database import Row
from noonward.model.cluster.event import missed_intervals
from noonward.units import HOUR_S, MINUTE_S

PAST_H: Final = 24
"""Hours of the past that charts of power show."""
AHEAD_H: Final = 6
"""Hours ahead in which they show targets."""
FOLLOWS: Final = "event-response"
"""Policy that follows grid events."""


class MeterShown(msgspec.Struct, kw_only=True):
    """What a site draws now."""

    site: str
    counted: str
    """What targets are held against: ``measured`` (its feed) or ``estimated`` (running jobs by the service's books)."""
    source: str | None
    """Where it is measured; null: nowhere."""
    interval_min: float
    measured_kw: float | None
    """The last reading; null without one in the last quarter of an hour."""
    estimated_kw: float | None
    limit_kw: float | None
    """Power that a grid event allows now; null without one."""
    event: int | None
    """The event that lasts, or else the next one."""
    missed: int
    """Intervals that missed a target since the service was started."""
    problem: str
    """Why the meter cannot be read, or the last interval missed its target; empty where all is well."""


class GridEventShown(msgspec.Struct, kw_only=True):
    """A grid event. Times are UTC."""

    id: int
    site: str
    state: str
    """announced, active, over or cancelled."""
    start: str
    end: str
    announced: str
    """When the service was told."""
    baseline_kw: float
    target_kw: float
    ramp_min: float
    told_by: str
    """Token, or source."""
    cancelled_by: str | None
    counted: str
    """What it is held against, as of the site's meter."""
    asked_kwh: float
    """Energy that was to be left out in the intervals whose power is known."""
    left_out_kwh: float
    """Energy that was left out in them, in each interval at most what was asked."""
    missed: int
    """Intervals that missed the target."""
    unknown: int
    """Intervals that are over and whose power is not known."""


class GridEventCalled(msgspec.Struct, kw_only=True):
    """Answer to a call."""

    event: GridEventShown
    remark: str
    """What keeps the service from following it; empty where nothing does."""


def event_list(controller: Controller, limit: int = 100, number: int | None = None) -> list[GridEventShown]:
    """Returns grid events, newest first; or the one of a number."""
    if number is None:
        rows = controller.store.read("SELECT * FROM grid_events ORDER BY id DESC LIMIT ?", limit)
    else:
        rows = controller.store.read("SELECT * FROM grid_events WHERE id = ?", number)
    return [_event(controller, row) for row in rows]


def _event(controller: Controller, row: Row) -> GridEventShown:
    """Returns a stored event, with what is known of how it was kept."""
    now_s, time_of, meter = controller.store.now_s(), controller.time_of, controller.meters.of.get(row["site"])
    ends_s = now_s if row["cancelled_s"] is None else row["cancelled_s"]
    asked = left = 0.0
    missed = unknown = 0
    if meter is not None and row["start_s"] < ends_s:
        kw_of = _kw_of(controller, meter, row["start_s"] - meter.interval_s, min(row["end_s"], ends_s))
        hours, asked_kw, left_kw = held_against(grid_event(row), kw_of, meter.interval_s)
        known = ~np.isnan(left_kw)
        asked, left = float((asked_kw * hours)[known].sum()), float((left_kw * hours)[known].sum())
        missed = int(missed_intervals(asked_kw, left_kw).sum())
        begin_s = np.floor(row["start_s"] / meter.interval_s) * meter.interval_s
        over = begin_s + meter.interval_s * (1 + np.arange(len(known))) <= min(row["end_s"], ends_s)
        unknown = int((over & ~known).sum())
    lasts = "active" if row["start_s"] <= now_s else "announced"
    state = "cancelled" if row["cancelled_s"] is not None else lasts if now_s < row["end_s"] else "over"
    return GridEventShown(
        id=row["id"], site=row["site"], state=state, start=time_of(row["start_s"]), end=time_of(row["end_s"]),
        announced=time_of(row["known_s"]), baseline_kw=row["baseline_kw"], target_kw=row["target_kw"],
        ramp_min=row["ramp_s"] / MINUTE_S, told_by=row["told_by"], cancelled_by=row["cancelled_by"],
        counted="estimated" if meter is None else meter.by, asked_kwh=asked, left_out_kwh=left, missed=missed,
        unknown=unknown,
    )  # fmt: skip


def _kw_of(controller: Controller, meter: SiteMeter, from_s: float, until_s: float) -> dict[float, float]:
    """Returns the stored power of a site that targets are held against, by begin of the interval, kW."""
    rows = controller.store.read(
        "SELECT * FROM power WHERE site = ? AND from_s > ? AND from_s < ?", meter.site, from_s, until_s
    )
    measured = meter.by == "measured"
    found = {
        row["from_s"]: row["measured_kw"] if measured and row["measured_kw"] is not None else row["estimated_kw"]
        for row in rows
    }
    return {from_s: kw for from_s, kw in found.items() if kw is not None}


def meter_list(controller: Controller) -> list[MeterShown]:
    """Returns the meters of the sites that have one."""
    now_s = controller.store.now_s()
    open_ = controller.grid_events.open()
    problems = controller.meters.problems
    found = []
    for name, meter in controller.meters.of.items():
        mine = sorted((row for row in open_ if row["site"] == name), key=lambda row: row["start_s"])
        limit_kw = float(grid_event(mine[0]).step(np.array([now_s]))[0]) if mine else np.inf
        reading = None if meter.readings is None else meter.readings.last
        said = [problems[what] for what in (f"target of {name}", f"meter of {name}") if what in problems]
        found.append(
            MeterShown(
                site=name,
                counted=meter.by,
                source=None if meter.readings is None else meter.readings.feed.title,
                interval_min=meter.interval_s / MINUTE_S,
                measured_kw=None if reading is None else reading[1],
                estimated_kw=None if meter.estimate is None else meter.estimate[1],
                limit_kw=limit_kw if np.isfinite(limit_kw) else None,
                event=mine[0]["id"] if mine else None,
                missed=controller.meters.missed[name],
                problem="; ".join(said),
            )
        )
    return found


def power_lines(controller: Controller) -> dict[str, dict[str, list[Any]]]:
    """Returns the power of every metered site by interval, and what events allow, kW.

    Returns:
        By site: ``x`` (s since 1970, begins of intervals), ``measured``, ``estimated`` and ``limit``; None where there
        is nothing.
    """
    now_s, base_s = controller.store.now_s(), controller.setup.start.timestamp()
    found: dict[str, dict[str, list[Any]]] = {}
    for name, meter in controller.meters.of.items():
        each_s = meter.interval_s
        first = max(0, int((now_s - PAST_H * HOUR_S) // each_s))
        begin_s_N: F8 = each_s * np.arange(first, int((now_s + AHEAD_H * HOUR_S) // each_s) + 1, dtype=np.float64)
        rows = {
            row["from_s"]: row
            for row in controller.store.read("SELECT * FROM power WHERE site = ? AND from_s >= ?", name, first * each_s)
        }
        events = controller.store.read(
            "SELECT * FROM grid_events WHERE site = ? AND end_s > ? AND start_s < ? AND cancelled_s IS NULL",
            name, float(begin_s_N[0]), float(begin_s_N[-1]),
        )  # fmt: skip
        limit_N = np.full(len(begin_s_N), np.inf)
        for row in events:
            limit_N = np.minimum(limit_N, grid_event(row).step(begin_s_N))
        found[name] = {
            "x": [round(base_s + float(at_s)) for at_s in begin_s_N],
            **{
                line: [_round(rows[at_s][f"{line}_kw"]) if at_s in rows else None for at_s in begin_s_N.tolist()]
                for line in ("measured", "estimated")
            },
            "limit": [_round(kw) if np.isfinite(kw) else None for kw in limit_N.tolist()],
        }
    return found


def _round(kw: float | None) -> float | None:
    return None if kw is None else round(float(kw), 4)


def remark(controller: Controller) -> str:
    """Returns what keeps a service from following grid events; empty where nothing does."""
    if not controller.policy.startswith(FOLLOWS):
        return (
            f"policy {controller.policy} does not follow grid events: the site rides through; choose e.g. "
            f"{FOLLOWS}(base={controller.policy})"
        )
    freedoms = controller.world.view.freedom_C
    caps, stops = bool((freedoms["caps"] > 0).any()), bool(freedoms["interruptible"].any())
    if not (caps or stops):
        return "no class of jobs may be capped or suspended (fleet.freedoms): only starts are held"
    if not caps:
        return "no class of jobs may be capped (fleet.freedoms, or levers of the policy): jobs are suspended"
    return ""

"""What the pages' charts show: busy GPUs as decided and as they were, signals as forecast and as they came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.live.controller import Controller
from noonward.live.grid.keeper import HISTORY_H
from noonward.live.states import from_bytes
from noonward.live.store.schema import IS_OPEN
from noonward.live.why import plans
from noonward.live.world.hours import KEPT_H
from noonward.units import DAY_H, HOUR_S

PAST_H: Final = 24
"""Hours of the past that charts of GPUs show."""
SIGNAL_H: Final = 72
"""Hours of the past that charts of signals show."""
STEPS: Final = 6
"""Points an hour in charts of GPUs."""
LEADS: Final = (1, 6, 24)
"""Hours ahead for which the error of forecasts is stated."""


def busy_gpus(controller: Controller) -> dict[str, dict[str, list[Any]]]:
    """Returns the busy GPUs of every site: as planned, as decided, as they were, and as running jobs are to end.

    Returns:
        By site: ``x`` (s since 1970), ``decided`` (each job from its decided start for its expected run time),
        ``actual`` (from its start to its end as its cluster says; None after now), ``expected`` (running jobs, from
        now on), ``planned`` (capacity curve of the policy's plan; None where there was none).
    """
    store, sites = controller.store, controller.setup.sites
    now_s = store.now_s()
    first_h = max(0, int(now_s // HOUR_S) - PAST_H + 1)
    hours = int(now_s // HOUR_S) - first_h + 1
    time_T = first_h * HOUR_S + np.arange(hours * STEPS + 1) * HOUR_S / STEPS
    time_T = time_T[time_T <= now_s]
    columns = "site, gpus, start_s, run_s, began_s, ended_s, state"
    stored = store.read(
        f"SELECT {columns} FROM jobs WHERE start_s IS NOT NULL AND {IS_OPEN} "
        f"UNION ALL SELECT {columns} FROM jobs WHERE start_s IS NOT NULL AND ended_s >= ?",
        float(first_h * HOUR_S),
    )
    rows = [row for row in stored if row["site"] in sites]
    decided = _counted(sites, time_T, ((r["site"], r["gpus"], r["start_s"], r["start_s"] + r["run_s"]) for r in rows))
    actual = _counted(
        sites,
        time_T,
        (
            (r["site"], r["gpus"], r["began_s"], np.inf if r["ended_s"] is None else r["ended_s"])
            for r in rows
            if r["began_s"] is not None
        ),
    )
    base_s = controller.setup.start.timestamp()
    coming = plans(controller, DAY_H)
    later = [now_s + h * HOUR_S for h in range(DAY_H)]
    x = [round(base_s + float(t)) for t in [*time_T, *later]]
    planned = _planned(controller, first_h, [*time_T.tolist(), *later])
    past, future = len(time_T), len(later)
    return {
        name: {
            "x": x,
            "actual": [*actual[s].tolist(), *[None] * future],
            "decided": [*decided[s].tolist(), *[None] * future],
            "expected": [*[None] * past, *coming[s].busy_gpus],
            "planned": planned[s],
        }
        for s, name in enumerate(sites)
    }


def _planned(controller: Controller, first_h: int, times: Iterable[float]) -> list[list[float | None]]:
    """Returns the stored capacity curves from an hour on, by site and time; None where there was none."""
    rows = controller.store.read("SELECT hour, value FROM curves WHERE hour >= ?", first_h)
    curve = {row["hour"]: from_bytes(row["value"])["gpus_S"].round(3).tolist() for row in rows}
    of_time = [curve.get(int(t // HOUR_S)) for t in times]
    return [[None if each is None else each[s] for each in of_time] for s in range(len(controller.setup.sites))]


def _counted(sites: tuple[str, ...], time_T: F8, runs: Iterable[tuple[str, int, float, float]]) -> F8:
    """Returns the GPUs that runs (site, GPUs, from, to) hold at some times, by site and time."""
    change_ST = np.zeros((len(sites), len(time_T) + 1))
    for site, gpus, from_s, to_s in runs:
        first, last = np.searchsorted(time_T, (from_s, to_s))
        change_ST[sites.index(site), first] += gpus
        change_ST[sites.index(site), last] -= gpus
    return np.asarray(np.cumsum(change_ST, axis=1)[:, :-1])


def signal_lines(controller: Controller, lead_h: int = 6) -> dict[str, dict[str, Any]]:
    """Returns prices and intensities of every site: as they came, as they were forecast, and what is forecast now.

    Args:
        controller: Controller.
        lead_h: How many hours before the shown forecasts of past hours were made, at most a day.

    Returns:
        By site: ``x`` (s since 1970, hours), and for ``price`` and ``carbon`` the lines ``came``, ``stand_in``,
        ``before`` (forecast ``lead_h`` hours before) and ``next`` (forecast now), None where there is nothing; and
        ``error``: by lead of ``LEADS``, the mean absolute error over the hours shown.
    """
    keeper = controller.keeper
    if keeper is None:
        return {}
    now_h = int(controller.store.now_s() // HOUR_S)
    first_h = max(-HISTORY_H, now_h - SIGNAL_H + 1)
    hours = now_h - first_h + DAY_H + 1
    issued = {
        row["hour"]: from_bytes(row["value"])["value_KSL"]
        for row in controller.store.read("SELECT hour, value FROM forecasts WHERE hour >= ?", first_h - DAY_H)
    }
    rows = controller.store.read("SELECT * FROM signals WHERE hour >= ?", first_h)
    base_s = controller.setup.start.timestamp()
    out: dict[str, dict[str, Any]] = {}
    for s, site in enumerate(controller.setup.scenario.fleet.sites):
        of_zone = {row["hour"]: row for row in rows if row["zone"] == site.zone}
        lines: dict[str, Any] = {"x": [round(base_s + h * HOUR_S) for h in range(first_h, first_h + hours)]}
        for k, name in enumerate(("price", "carbon")):
            came_H, stand_in_H = _as_known(of_zone, name, first_h, hours)
            forecast = {hour: value_KSL[k, s] for hour, value_KSL in issued.items()}
            lines[name] = {
                "came": came_H,
                "stand_in": stand_in_H,
                "before": [_forecast(forecast, first_h + h, lead_h, now_h) for h in range(hours)],
                "next": _from_last(forecast, first_h, hours, now_h),
                "error": {lead: _error(forecast, came_H, first_h, lead) for lead in LEADS},
            }
        out[site.name] = lines
    return out


def _as_known(
    of_zone: dict[int, Any], name: str, first_h: int, hours: int
) -> tuple[list[float | None], list[float | None]]:
    """Returns the values that are known, and those that stand in for ones that are not."""
    came: list[float | None] = [None] * hours
    stand_in: list[float | None] = [None] * hours
    for hour, row in of_zone.items():
        if 0 <= hour - first_h < hours:
            true = row[f"true_{name}"]
            (stand_in if true is None else came)[hour - first_h] = row[name] if true is None else true
    return came, stand_in


def _forecast(forecast: dict[int, Any], hour: int, lead_h: int, now_h: int) -> float | None:
    """Returns what had been forecast for an hour so many hours before; None after the current hour."""
    if hour > now_h or hour - lead_h not in forecast:
        return None
    return round(float(forecast[hour - lead_h][lead_h]), 3)


def _from_last(forecast: dict[int, Any], first_h: int, hours: int, now_h: int) -> list[float | None]:
    """Returns what the last forecast says of the hours from the current one on."""
    line: list[float | None] = [None] * hours
    if forecast:
        last = max(forecast)
        for lead, value in enumerate(forecast[last][:KEPT_H]):
            if last + lead >= now_h and 0 <= last + lead - first_h < hours:
                line[last + lead - first_h] = round(float(value), 3)
    return line


def _error(forecast: dict[int, Any], came: list[float | None], first_h: int, lead_h: int) -> float | None:
    """Returns the mean absolute error of the forecasts that were made so many hours before; None without any."""
    errors = [
        abs(float(forecast[first_h + h - lead_h][lead_h]) - value)
        for h, value in enumerate(came)
        if value is not None and first_h + h - lead_h in forecast
    ]
    return float(np.mean(errors)) if errors else None

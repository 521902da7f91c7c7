"""Baselines of grid events at a live service: what a site would have drawn, from what its meter has read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.events import past_days
from noonward.data.local_time import site_timezone
from noonward.errors import DataError, ScenarioError
from noonward.live.store.database import Row
from noonward.live.store.store import Store
from noonward.model.cluster.event import ADJUST_UNTIL_S
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.stated_events import EventTerms
from noonward.units import DAY_S, HOUR_S

LEAST_KNOWN: Final = 0.9
"""Least share of a time whose power is known where a baseline is measured in it."""
_POWER: Final = "SELECT from_s, coalesce(measured_kw, estimated_kw) AS kw FROM power WHERE site = ? AND from_s >= ?"
_EVENTS: Final = "SELECT start_s, end_s FROM grid_events WHERE site = ? AND cancelled_s IS NULL AND start_s < ?"


def last_hour_kw(store: Store, site: str) -> float:
    """Returns the mean power of a site in the last hour, kW.

    Raises:
        DataError: Nothing is known of it.
    """
    known = [row["kw"] for row in store.read(_POWER, site, store.now_s() - HOUR_S) if row["kw"] is not None]
    if not sum(known):
        raise DataError(
            f"nothing is known of what {site} drew in the last hour, from which a baseline could follow; give "
            "baseline_kw (--baseline-kw)"
        )
    return float(sum(known) / len(known))


def high_4_of_5_kw(
    store: Store, fleet: Fleet, site: str, start_s: float, hours: float, target_kw: float = 0.0
) -> float:
    """Returns the baseline of an event by the rule of scenarios (``GridEvent.measured``), from what is known now, kW.

    What the event's own day drew adjusts it where the hours from 4 to 1 before the event are over.

    Args:
        store: Store.
        fleet: Fleet of the scenario.
        site: Site, which has a meter.
        start_s: Begin of the event, s since the service's start.
        hours: Its length, h.
        target_kw: Least baseline, kW.

    Raises:
        DataError: There are not five such days, or what was drawn then is not known.
    """
    at = fleet.site_index(site)
    meter = fleet.sites[at].meter
    assert meter is not None, "events are at sites with meters"
    terms = _shape(site, hours)
    rows = store.read(_EVENTS, site, start_s)
    others = [(_shape(site, (row["end_s"] - row["start_s"]) / HOUR_S), row["start_s"]) for row in rows]
    try:
        sites = list(fleet.sites)
        sites[at] = sites[at].model_copy(update={"timezone": site_timezone(sites[at]).key})
        dated = fleet.model_copy(update={"sites": tuple(sites)})
        past_s = past_days(dated, store.start, terms, start_s, others)
        event = replace(terms.at(start_s, past_s).event, target_kw=target_kw, baseline_kw=max(target_kw, 1.0))
    except ScenarioError as error:
        raise DataError(f"{error}; or give baseline_kw (--baseline-kw)") from None
    kw_N = _power(store.read(_POWER, site, past_s[-1] - DAY_S), meter.interval_s, event.end_s)
    adjusted = store.now_s() >= start_s - ADJUST_UNTIL_S
    needed = event.measured_in(adjusted)
    unknown = [from_s for from_s, until_s in needed if not _known(kw_N, meter.interval_s, from_s, until_s)]
    if unknown:
        raise DataError(
            f"what {site} drew is not known well enough in {len(unknown)} of the {len(needed)} times in which its "
            "baseline is measured; give baseline_kw (--baseline-kw)"
        )
    return event.measured(kw_N, meter.interval_s, adjusted=adjusted).baseline_kw


def _power(rows: Sequence[Row], interval_s: float, until_s: float) -> F8:
    """Returns power by interval from the service's start on, kW; NaN where it is unknown."""
    kw_N = np.full(math.ceil(until_s / interval_s), np.nan)
    for row in rows:
        if row["kw"] is not None and row["from_s"] < until_s:
            kw_N[round(row["from_s"] / interval_s)] = row["kw"]
    return kw_N


def _known(kw_N: F8, interval_s: float, from_s: float, until_s: float) -> bool:
    kw = kw_N[int(from_s // interval_s) : math.ceil(until_s / interval_s)]
    return bool(np.isfinite(kw).mean() >= LEAST_KNOWN)


def _shape(site: str, hours: float) -> EventTerms:
    """Returns an event of a length, by which past days are found."""
    return EventTerms(site=site, hours=hours, baseline_kw=1.0, cut=0.5, ramp_min=0.0)

"""One job that may run under power caps: when it costs least, and at which power in each hour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.life_capped import capped_life
from noonward.evaluate.one_job import Costed, Outlook, Place
from noonward.model.cluster.power_caps import CapCurve
from noonward.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class Capped(Costed):
    """A job that runs unbroken at a site, under power caps in some hours.

    Attributes:
        start: Start, UTC.
        end: End, UTC.
        power: Begin of each clock hour that it touches, UTC, and its mean power while it runs in it, share of full.
    """

    start: datetime
    end: datetime
    power: tuple[tuple[datetime, float], ...]


def capped(
    places: Sequence[Place],
    seen: Outlook,
    now: datetime,
    by: datetime,
    hours: float,
    carbon_usd_per_t: float,
    curve: CapCurve,
) -> Capped | None:
    """Returns the cheapest unbroken run of a job whose power may be capped, over all places; None if it fits nowhere.

    A cap may change at any time (``capped_life``), so the mean power of an hour may lie between two caps.

    Args:
        places: Places that the job may run at.
        seen: Prices and carbon intensities from now until ``by``.
        now: Earliest start, UTC.
        by: When it must be done, UTC.
        hours: How long it runs at full power, h.
        carbon_usd_per_t: Price of emissions, USD/t.
        curve: Shares of throughput by shares of power.
    """
    from_h, until_h = ((time - seen.start).total_seconds() / HOUR_S for time in (now, by))
    hour_P = np.arange(int(from_h), math.ceil(until_h))
    open_P = np.minimum(until_h, hour_P + 1.0) - np.maximum(from_h, hour_P)
    rate_M, share_M = np.array(curve.throughput), np.array(curve.power)
    found = []
    for place in places:
        value_KP = seen.value_KZH[:, seen.zones.index(place.zone), hour_P]
        weighed_P = value_KP[0] + carbon_usd_per_t / 1000 * value_KP[1]
        cost_PM = weighed_P[:, None] * place.extra_w(share_M) / 1e6
        used_P, work_P = np.zeros((2, len(hour_P)))
        if np.isinf(capped_life(rate_M, cost_PM, np.zeros(len(hour_P)), open_P, hours, used_P, work_P)):
            continue
        runs = np.flatnonzero(used_P > 0)
        share_P = np.zeros(len(hour_P))
        for p in runs:
            share_P[p] = _share(rate_M, share_M, cost_PM[p], work_P[p] / used_P[p])
        mwh_P = used_P * place.extra_w(share_P) / 1e6
        usd, kg = (float(mwh_P @ value_P) for value_P in value_KP)  # g/kWh is kg/MWh
        first, last = int(runs[0]), int(runs[-1])
        start_h = hour_P[first] + (1.0 - used_P[first] if last > first else 0.0)
        start_h = max(from_h, start_h)
        found.append(
            Capped(
                site=place.name,
                start=seen.start + timedelta(hours=float(start_h)),
                end=seen.start + timedelta(hours=float(start_h + used_P.sum())),
                power=tuple((seen.start + timedelta(hours=int(hour_P[p])), float(share_P[p])) for p in runs),
                usd=usd,
                kg=kg,
                weighed_usd=usd + carbon_usd_per_t * kg / 1000,
            )
        )
    return min(found, key=lambda each: each.weighed_usd, default=None)


def _share(rate_M: F8, share_M: F8, cost_M: F8, rate: float) -> float:
    """Returns the mean share of power at which a rate costs least in an hour: that of one cap, or between two."""
    below, above = np.flatnonzero(rate_M <= rate + 1e-9), np.flatnonzero(rate_M >= rate - 1e-9)
    best, share = math.inf, 1.0
    for low in below:
        for high in above:
            width = rate_M[high] - rate_M[low]
            part = 0.0 if width <= 0 else min(1.0, max(0.0, (rate - rate_M[low]) / width))
            cost = (1.0 - part) * cost_M[low] + part * cost_M[high]
            if cost < best:
                best, share = float(cost), float((1.0 - part) * share_M[low] + part * share_M[high])
    return share

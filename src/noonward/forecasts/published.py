"""Published prices: true day-ahead prices as far as they have been published, and another forecast for all else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.forecasts.forecaster import Forecaster
from noonward.forecasts.regression import USUAL_DAYS
from noonward.model.markets import Market, day_ahead_market
from noonward.model.signals import Signals
from noonward.units import DAY_H

WEEK_H: Final = DAY_H * USUAL_DAYS
"""Hours of the past that every forecast reads at most; a multiple of a week keeps hours of the day and weekdays."""


class PublishedForecaster(Forecaster):
    """Takes published prices as they are, and everything else from another forecaster.

    The price of a zone with a day-ahead market (``noonward.model.markets``) is known to the end of the market's day,
    and from the time of publication to the end of the next. Later hours are forecast as they would be at the last
    published hour: the other forecaster is issued there, given the published prices and, for the carbon intensities up
    to then, what it has forecast itself. Carbon intensities are the other's. An hour is read only if it was published
    by the start of the hour of issue; one that is unknown (NaN) ends what is published.

    Args:
        rest: Forecasts what is not published; reads nothing after its hour of issue.
        signals: Signals of the zones, in order; their values are not read.
    """

    def __init__(self, rest: Forecaster, signals: Signals) -> None:
        self._rest, self._start = rest, signals.start
        self._market_Z = [day_ahead_market(zone, signals.day_ahead) for zone in signals.zones]

    def values(self, value_KZH: F8, issue_I: I8, leads: int) -> F8:
        """Returns published prices and the other forecaster's values."""
        value_KIZL = self._rest.values(value_KZH, issue_I, leads)
        if not any(self._market_Z):
            return value_KIZL
        until_ZI = published_until(self._market_Z, self._start, issue_I)
        for i, issue in enumerate(issue_I.tolist()):
            self._publish(value_KZH, issue, until_ZI[:, i], value_KIZL[:, i])
        return value_KIZL

    def _publish(self, value_KZH: F8, issue: int, until_Z: I8, out_KZL: F8) -> None:
        """Writes what is published in an hour of issue, and what follows from it, over the other's forecast."""
        leads = out_KZL.shape[2]
        last_Z = np.full(len(until_Z), issue)
        for z, until in enumerate(np.minimum(until_Z, value_KZH.shape[2]).tolist()):
            price_H = value_KZH[0, z, issue:until]
            unknown_H = np.flatnonzero(np.isnan(price_H))
            known = int(unknown_H[0]) if len(unknown_H) else len(price_H)
            last_Z[z] = issue + max(known, 1) - 1
            out_KZL[0, z, : min(known, leads)] = price_H[:leads][:known]
        ends = [last for last in np.unique(last_Z).tolist() if issue < last < issue + leads - 1]
        if not ends:
            return
        first = max(0, issue + 1 - 2 * WEEK_H) // WEEK_H * WEEK_H
        seen_KZH = np.concatenate([value_KZH[..., first : issue + 1], out_KZL[..., 1:]], axis=2)
        for last in ends:
            later_KZL = self._rest.values(seen_KZH[..., : last + 1 - first], np.array([last - first]), leads)[:, 0]
            row_Z, ahead = last_Z == last, last - issue
            out_KZL[0, row_Z, ahead + 1 :] = later_KZL[0, row_Z, 1 : leads - ahead]


def published_until(market_Z: list[Market | None], start: datetime, issue_I: I8) -> I8:
    """Returns up to which hour prices have been published by the start of some hours of issue.

    Args:
        market_Z: Market of each zone; None: nothing is published ahead.
        start: UTC time of the first hour.
        issue_I: Hours of issue, positions from the first hour.

    Returns:
        Position after the last published hour, shape (zones, hours of issue); at least that after the hour of issue.
    """
    until: dict[Market | None, I8] = {None: issue_I + 1}
    for market in market_Z:
        if market is not None and market not in until:
            ends = [market.known_until(start + timedelta(hours=hour)) for hour in issue_I.tolist()]
            until[market] = np.array([round((end - start) / timedelta(hours=1)) for end in ends], dtype=np.int64)
    return np.stack([until[market] for market in market_Z])

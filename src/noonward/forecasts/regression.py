"""Regression forecasts: each lead a weighted sum of what the last days of the same signal say, for any zone.

Every feature is a mean of known values of the zone, and a lead's weights sum to 1. So the forecast follows a change of
level or unit: adding a constant to a signal adds it to the forecast, and a factor multiplies it. One table therefore
serves zones that were not in the training data. ``tools/fit_forecasts.py`` fits the weights, one table for prices and
one for carbon intensities.

Sums are taken in a fixed order, not by a matrix product: with weights of four decimals the exact result often lies
halfway between two rounded values, where the last bit decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import numpy as np

from noonward.arrays import F8, I8
from noonward.forecasts.forecaster import Forecaster, known_to_the_end, require_history
from noonward.model.precision import rounded_signals
from noonward.units import DAY_H

SignalName = Literal["price", "carbon"]

USUAL_DAYS: Final = 7
"""Days whose values make up what is usual for an hour of the day, as far as they are known."""
RECENT_H: Final = 6
FEATURES: Final = ("now", "before", "recent", "usual_now", "day", "usual", "near", "mean")
"""Features of a forecast for some hour of the day.

``now``, ``before``: the value in the hour of issue and in the hour before; ``recent``: mean of the 6 hours before;
``day``: the value of the target's hour of the day within the last 24 hours (the persistence forecast); ``usual``: mean
of the target's hour of the day over the last 7 days, as far as they are known; ``near``: mean of ``usual`` for the
hours beside the target's; ``usual_now``: ``usual`` for the hour of issue; ``mean``: mean of the last 24 hours.
"""
_TABLE: Final = "tables/forecast_regression.json"


class RegressionForecaster(Forecaster):
    """Weighs what the last week says of the same signal.

    Args:
        history_KZH: Signals before the run's first hour.

    Raises:
        SignalRangeError: The last 23 of them are not all known.
    """

    def __init__(self, history_KZH: F8) -> None:
        for history_ZH in history_KZH:
            require_history("regression", DAY_H - 1, known_to_the_end(history_ZH[None]))

    def values(self, value_KZH: F8, issue_I: I8, leads: int) -> F8:
        """Returns the weighted sums, rounded."""
        value_KIZL = regressed(value_KZH, issue_I, leads)
        value_KIZL[..., 1:] = rounded_signals(value_KIZL[..., 1:])
        return value_KIZL


def regressed(value_KZH: F8, issue_I: I8, leads: int) -> F8:
    """Returns the forecasts of both signals before they are rounded, (2, hours of issue, zones, leads)."""
    price_ZH, carbon_ZH = value_KZH
    return np.stack(
        [
            weighted(price_ZH, issue_I, leads, packaged_weights("price")),
            weighted(carbon_ZH, issue_I, leads, packaged_weights("carbon")),
        ]
    )


def features(value_ZH: F8, issue_I: I8) -> F8:
    """Returns the features known at some hours of issue.

    Args:
        value_ZH: Values per zone and hour; the 24 hours up to each hour of issue are known, earlier ones may be NaN.
        issue_I: Hours of issue, positions in the second axis, at least 23.

    Returns:
        Shape (hours of issue, zones, 24, features): entry p of the third axis is for the hours that lie p, p + 24,
        p + 48, ... hours after the hour of issue.
    """
    phase = np.arange(DAY_H)
    of_day_DIP = (issue_I[:, None] + phase - DAY_H * (phase > 0))[None] - DAY_H * np.arange(USUAL_DAYS)[:, None, None]
    value_DIZP = np.moveaxis(value_ZH[:, np.maximum(of_day_DIP, 0)], 0, 2)
    known_DIZP = (of_day_DIP >= 0)[:, :, None] & np.isfinite(value_DIZP)
    day = value_DIZP[0]
    usual = np.where(known_DIZP, value_DIZP, 0.0).sum(axis=0) / known_DIZP.sum(axis=0)
    of_phase = {
        "now": day[..., :1],
        "before": day[..., -1:],
        "recent": _mean(day[..., -RECENT_H:]),
        "usual_now": usual[..., :1],
        "day": day,
        "usual": usual,
        "near": 0.5 * (np.roll(usual, 1, axis=-1) + np.roll(usual, -1, axis=-1)),
        "mean": _mean(day),
    }
    return np.stack([np.broadcast_to(of_phase[name], day.shape) for name in FEATURES], axis=-1)


def _mean(value_X: F8) -> F8:
    """Returns the mean over the last axis, kept with length 1, summed from first to last whatever the layout."""
    return np.asarray(np.cumsum(value_X, axis=-1)[..., -1:] / value_X.shape[-1])


def weighted(value_ZH: F8, issue_I: I8, leads: int, weight_LF: F8) -> F8:
    """Returns forecasts by given weights; lead 0 is the hour of issue, which is known.

    Args:
        value_ZH: As for :func:`features`.
        issue_I: As for :func:`features`.
        leads: Number of leads, at least 1, the hour of issue included.
        weight_LF: Weights for the leads 1, 2, ... and the features, at least 24 leads. Longer leads repeat the
            weights of the last day that has some.

    Returns:
        Values, shape (hours of issue, zones, leads).

    Example:
        >>> weight_LF = np.zeros((24, len(FEATURES)))
        >>> weight_LF[:, FEATURES.index("now")] = 1.0
        >>> weighted(np.arange(30.0)[None], np.array([25]), 3, weight_LF).tolist()
        [[[25.0, 25.0, 25.0]]]
    """
    feature_FIZP = np.ascontiguousarray(np.moveaxis(features(value_ZH, issue_I), -1, 0))
    days = -(-leads // DAY_H)
    row_L = [max(standing_in(lead, len(weight_LF)) - 1, 0) for lead in range(days * DAY_H)]
    weight_FDP = weight_LF[row_L].T.reshape(len(FEATURES), days, DAY_H)
    out_IZDP = np.zeros((len(issue_I), len(value_ZH), days, DAY_H))
    for feature_IZP, weight_DP in zip(feature_FIZP, weight_FDP, strict=True):
        out_IZDP += feature_IZP[:, :, None] * weight_DP
    out = out_IZDP.reshape(len(issue_I), len(value_ZH), days * DAY_H)[:, :, :leads]
    out[:, :, 0] = value_ZH[:, issue_I].T
    return out


def standing_in(lead: int, known: int) -> int:
    """Returns the lead whose weights serve a lead, hours: itself up to the last known one, else that of the last day.

    Example:
        >>> standing_in(30, 48), standing_in(49, 48), standing_in(78, 48)
        (30, 25, 30)
    """
    return lead if lead <= known else known - (known - lead) % DAY_H


@cache
def packaged_weights(signal: SignalName) -> F8:
    """Returns the packaged weights of one signal, shape (leads from 1, features)."""
    weight_LF = np.array(packaged_table()["signals"][signal]["weights"], dtype=np.float64)
    weight_LF.setflags(write=False)
    return weight_LF


@cache
def packaged_table() -> Mapping[str, Any]:
    """Returns the packaged table: the weights and the record of how they were made."""
    text = files("noonward.forecasts").joinpath(_TABLE).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table

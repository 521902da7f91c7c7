"""What tomorrow's load may be: past days without missing and absurd ones, or a day-ahead forecast and its residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.errors import ScenarioError

Predictor = Literal["days", "forecast"]
"""Samples of tomorrow: the past days themselves, or a forecast of tomorrow and the errors of earlier forecasts."""
PREDICTORS: Final[tuple[Predictor, ...]] = ("days", "forecast")

FAR: Final = 6.0
"""A day is absurd where a class lies so many spreads from its median."""
FEWEST_DAYS: Final = 8
"""Usable days that a forecast's regression needs before its first forecast; with fewer, forecasts are means."""
WEEK: Final = 7
RIDGE: Final = 0.01
"""Weight of the squared coefficients against the mean squared error, with features and levels in units of the mean."""


def usable_days(load_NKC: F8) -> NDArray[np.bool_]:
    """Returns which days may serve as samples: those that are whole and not absurd.

    A day is missing where any of its loads is not a finite number of at least 0. A day is absurd where a class's load
    of the day, or its highest hour, lies more than ``FAR`` spreads from the class's median over all whole days. The
    spread is that from the median to the 10 % and the 90 % quantile, the larger of the two, and at least a twentieth
    of the median: up to a tenth of absurd days hardly moves it.

    Args:
        load_NKC: Load of every day, submission hour and class, in the order of days; NaN where unknown.
    """
    load_NKC = np.asarray(load_NKC, dtype=np.float64)
    whole_N = np.asarray((np.isfinite(load_NKC) & (np.nan_to_num(load_NKC) >= 0)).all(axis=(1, 2)))
    if not whole_N.any():
        return whole_N
    usable_N = whole_N.copy()
    for measure_NC in (load_NKC.mean(axis=1), load_NKC.max(axis=1)):
        low_C, middle_C, high_C = np.quantile(measure_NC[whole_N], (0.1, 0.5, 0.9), axis=0)
        spread_C = np.maximum.reduce([high_C - middle_C, middle_C - low_C, 0.05 * middle_C])
        with np.errstate(invalid="ignore"):
            usable_N &= (np.abs(measure_NC - middle_C) <= FAR * spread_C).all(axis=1)
    return usable_N


def samples_of(predictor: Predictor, load_NKC: F8, usable_N: NDArray[np.bool_], samples: int) -> tuple[F8, I8]:
    """Returns samples of the day that follows the given ones, (N, K, C), and the day that each is made from, (N,).

    Args:
        predictor: ``days``: the last usable days. ``forecast``: the forecast of the day plus the errors of the
            forecasts of the last usable days, each made from the days before it; load below 0 counts as 0.
        load_NKC: All days known, in order, without a day left out.
        usable_N: Which of them may be used.
        samples: Samples at most.

    Raises:
        ScenarioError: No day is usable.
    """
    if not usable_N.any():
        raise ScenarioError(
            f"none of {len(load_NKC)} past days can be used as a sample: each is missing or absurd; give whole days"
        )
    last = np.flatnonzero(usable_N)[-samples:]
    if predictor == "days":
        return np.ascontiguousarray(load_NKC[last]), last
    forecast_NKC = day_ahead_forecasts(load_NKC, usable_N)
    known = last[np.isfinite(forecast_NKC[last]).all(axis=(1, 2))]
    if len(known) == 0:
        return np.ascontiguousarray(load_NKC[last]), last
    return np.maximum(forecast_NKC[-1] + load_NKC[known] - forecast_NKC[known], 0.0), known


def day_ahead_forecasts(load_NKC: F8, usable_N: NDArray[np.bool_]) -> F8:
    """Returns the forecast of every day from the days before it, and of the day after the last, (N + 1, K, C).

    The level of a class (mean load of a day) follows a ridge regression on the weekday, the last usable day's level and
    the mean level of the last seven. Its shape within the day is the mean shape of the usable days of the last four
    weeks. Days before the first usable one are NaN. With fewer than ``FEWEST_DAYS`` usable days before it, a day's
    forecast is their mean.
    """
    days, hours, classes = load_NKC.shape
    out = np.full((days + 1, hours, classes), np.nan)
    level_NC = np.where(usable_N[:, None], np.nan_to_num(load_NKC).mean(axis=1), np.nan)
    usable = np.flatnonzero(usable_N)
    features = _Features.of(level_NC, usable)
    for day in range(int(usable[0]) + 1 if len(usable) else days + 1, days + 1):
        before = usable[: np.searchsorted(usable, day)]
        mean_KC = load_NKC[before[-4 * WEEK :]].mean(axis=0)
        out[day] = mean_KC
        if len(before) >= FEWEST_DAYS:
            mean_C = mean_KC.mean(axis=0)
            shape_KC = np.divide(mean_KC, mean_C, out=np.zeros_like(mean_KC), where=mean_C > 0)
            out[day] = np.maximum(_level(level_NC, features, before, day), 0.0) * shape_KC
    return out


@dataclass(frozen=True)
class _Features:
    """What a day's level is regressed on: the last usable level before it, and the mean of the last seven, (N + 1, C).

    Attributes:
        last_NC: Last level.
        week_NC: Mean of the last seven.
    """

    last_NC: F8
    week_NC: F8

    @classmethod
    def of(cls, level_NC: F8, usable: NDArray[np.int64]) -> _Features:
        """Returns the features of every day with a usable day before it, and of the day after the last."""
        days, classes = level_NC.shape
        last_NC, week_NC = np.full((2, days + 1, classes), np.nan)
        for day in range(int(usable[0]) + 1 if len(usable) else days + 1, days + 1):
            before = usable[: np.searchsorted(usable, day)]
            last_NC[day], week_NC[day] = level_NC[before[-1]], level_NC[before[-WEEK:]].mean(axis=0)
        return cls(last_NC, week_NC)

    def rows(self, days: NDArray[np.int64], scale_C: F8) -> F8:
        """Returns the features of some days as deviations from 1 in units of a scale, (C, days, features)."""
        weekday_NW = (days[:, None] % WEEK == np.arange(WEEK)).astype(np.float64)
        columns = [self.last_NC[days] / scale_C - 1.0, self.week_NC[days] / scale_C - 1.0]
        columns += [np.repeat(weekday_NW[:, i : i + 1], len(scale_C), axis=1) for i in range(WEEK)]
        return np.stack(columns, axis=-1).transpose(1, 0, 2)


def _level(level_NC: F8, features: _Features, before: NDArray[np.int64], day: int) -> F8:
    """Returns the forecast level of every class on a day, by ridge regression over the usable days before it."""
    mean_C = level_NC[before].mean(axis=0)
    scale_C = np.where(mean_C > 0, mean_C, 1.0)
    targets = before[1:]
    x_CRF, y_CR = features.rows(targets, scale_C), (level_NC[targets] / scale_C - 1.0).T
    gram_CFF = x_CRF.transpose(0, 2, 1) @ x_CRF / len(targets) + RIDGE * np.eye(x_CRF.shape[2])
    moment_CF = (x_CRF * y_CR[:, :, None]).mean(axis=1)
    coefficients_CF = np.linalg.solve(gram_CFF, moment_CF[:, :, None])[:, :, 0]
    deviation_C = (features.rows(np.array([day]), scale_C)[:, 0] * coefficients_CF).sum(axis=1)
    out: F8 = scale_C * (1.0 + deviation_C)
    return out

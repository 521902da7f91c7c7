"""Forecast of a system's peaks: how likely each coming hour is one that a coincident charge counts.

It reads the load up to now and nothing else. The load of the next two days is what is usual at the hour (mean of the
last five days of the same kind, weekdays or weekend) plus a part of how far the last hours lie above what is usual,
fitted by least squares for each lead on the days before. The errors made on those days are the scenarios. In each
scenario, a day's highest hour is weighted by the chance that it is among the season's peaks. Days that have passed
count as they were; the highest loads of days to come have the mean and spread of the last eight weeks. Beyond two days
an hour is as likely as it was the highest of its day before, and such a day among those that count. The chance is a
quarter of that: days are not independent (``SHARE_OF_INDEPENDENT``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, sqrt
from typing import Final

import numpy as np

from noonward.arrays import F8, I8, Bools
from noonward.model.cluster.calendar import Calendar
from noonward.model.cluster.tariff import Coincident
from noonward.units import DAY_H

NEAR_H: Final = 48
"""Hours ahead for which load is forecast."""
USUAL_DAYS: Final = 5
"""Days of the same kind whose mean is usual."""
LOOK_DAYS: Final = 14
"""Days within which these are looked for."""
RECENT_H: Final = 6
"""Hours whose excess over what is usual is carried on."""
PAST_DAYS: Final = 28
"""Days whose errors are the scenarios."""
LEVEL_DAYS: Final = 56
"""Days whose highest loads stand for those of the days to come."""
SHARE_OF_INDEPENDENT: Final = 0.25
"""Share of the chance that independent days would have. High loads come in spells and seasons, so that more days follow
that are as high than a normal tail says. Fitted by least squares on half a year of three systems of AEMO (NSW, QLD,
VIC; 0.236), for one, three and five peaks."""
LEAST_H: Final = DAY_H * (LOOK_DAYS + PAST_DAYS + 3)
"""Hours of load that a forecast needs."""


def usual_mw(mw_H: F8, weekend_H: Bools, now: int, leads: int) -> F8:
    """Returns the mean load of the last days of the same kind at the hours from one on, MW; NaN where none is known.

    Args:
        mw_H: Load by hour; only what lies before ``now`` is read.
        weekend_H: Whether an hour lies on a weekend, as far as leads reach.
        now: First hour ahead.
        leads: How many hours.
    """
    hour_L = now + np.arange(leads)
    total_L, count_L = np.zeros(leads), np.zeros(leads)
    for day in range(1, LOOK_DAYS + 3):
        at_L = hour_L - DAY_H * day
        known_L = (at_L >= 0) & (at_L < now) & (count_L < USUAL_DAYS)
        known_L &= weekend_H[np.maximum(at_L, 0)] == weekend_H[hour_L]
        value_L = np.where(known_L, mw_H[np.where(known_L, at_L, 0)], np.nan)
        known_L &= np.isfinite(value_L)
        total_L += np.where(known_L, value_L, 0.0)
        count_L += known_L
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(count_L > 0, total_L / count_L, np.nan))


@dataclass(frozen=True, kw_only=True)
class LoadForecast:
    """Load of the next hours in scenarios.

    Attributes:
        mean_L: Forecast, MW.
        mw_DL: Scenarios: the forecast and the errors of each past day, MW.
    """

    mean_L: F8
    mw_DL: F8


def load_forecast(mw_H: F8, weekend_H: Bools, now: int, leads: int = NEAR_H) -> LoadForecast:
    """Returns the forecast of the hours from one on.

    Args:
        mw_H: Load by hour, MW; only what lies before ``now`` is read, ``LEAST_H`` hours at least.
        weekend_H: Whether an hour lies on a weekend, as far as leads reach.
        now: First hour ahead.
        leads: How many hours.
    """

    def parts(at: int) -> tuple[F8, float]:
        before = slice(at - RECENT_H, at)
        excess = mw_H[before] - usual_mw(mw_H, weekend_H, at - RECENT_H, RECENT_H)
        return usual_mw(mw_H, weekend_H, at, leads), float(np.nanmean(excess)) if np.isfinite(excess).any() else 0.0

    first = int(np.ceil(leads / DAY_H))
    issued = [now - DAY_H * day for day in range(first, first + PAST_DAYS)]
    past = [(*parts(at), mw_H[at : at + leads]) for at in issued]
    usual_DL = np.array([usual_L for usual_L, _, _ in past])
    excess_D = np.array([excess for _, excess, _ in past])
    off_DL = np.nan_to_num(np.array([real_L for _, _, real_L in past]) - usual_DL)
    weight_L = excess_D @ off_DL / max(float(excess_D @ excess_D), 1e-9)
    usual_L, excess = parts(now)
    mean_L = usual_L + weight_L * excess
    return LoadForecast(mean_L=mean_L, mw_DL=mean_L + off_DL - excess_D[:, None] * weight_L)


def peak_chances(mw_H: F8, calendar: Calendar, charge: Coincident, now: int, leads: int) -> F8:
    """Returns how likely each of the hours from one on holds a peak that a charge counts, 0 to 1.

    Args:
        mw_H: Load by hour of the calendar, MW; only what lies before ``now`` is read.
        calendar: Hours on the site's clock, from the first of the load on, as far as leads reach at least.
        charge: Charge.
        now: First hour ahead.
        leads: How many hours.

    Returns:
        Shape (leads,); all 0 where fewer than ``LEAST_H`` hours of load lie before.
    """
    chance_L = np.zeros(leads)
    known_H = mw_H[:now]
    if now < LEAST_H or np.isfinite(known_H[-LEAST_H:]).mean() < 0.9:
        return chance_L
    hour_L = now + np.arange(leads)
    month_H = calendar.day_N.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    eligible_H = np.isin(month_H % 12 + 1, charge.months)
    season_H = month_H if charge.per == "month" else month_H // 12
    near = load_forecast(mw_H, calendar.weekend_N, now, min(NEAR_H, leads))
    day_L, today = calendar.day_N[hour_L], int(calendar.day_N[now])
    highest_D, at_D, days_D = _highest(known_H, calendar.day_N[:now], calendar.hour_N[:now], today)
    recent_D = highest_D[-LEVEL_DAYS:]
    mean, spread = float(recent_D.mean()), max(float(recent_D.std()), 1e-6 * abs(float(recent_D.mean())))
    hours_D = at_D[-PAST_DAYS:]
    usual_L = np.array([float((hours_D == hour).mean()) for hour in calendar.hour_N[hour_L].tolist()])
    for season in np.unique(season_H[hour_L][eligible_H[hour_L]]).tolist():
        rivals = _Rivals(
            seen_D=highest_D[_of_season(days_D, season, charge)],
            left=max(_days_left(today, season, charge) - 1, 0),
            mean=mean,
            spread=spread,
            peaks=charge.peaks,
        )
        mine_L = eligible_H[hour_L] & (season_H[hour_L] == season)
        chance_of_season_L = usual_L * float(rivals.chances(recent_D).mean())
        near_h = near.mw_DL.shape[1]
        chance_of_season_L[:near_h] = _counted(near.mw_DL, day_L[:near_h], known_H, calendar.day_N[:now], rivals)
        chance_L += np.where(mine_L, chance_of_season_L, 0.0)
    return np.asarray(SHARE_OF_INDEPENDENT * np.minimum(chance_L, 1.0))


@dataclass(frozen=True, kw_only=True)
class _Rivals:
    """Days of a season that a day's highest load has to beat.

    Attributes:
        seen_D: Highest load of the days that have passed, MW.
        left: Number of other days to come.
        mean: Mean of their highest loads, MW.
        spread: Standard deviation of these, MW.
        peaks: Days that count.
    """

    seen_D: F8
    left: int
    mean: float
    spread: float
    peaks: int

    def chances(self, mw_X: F8) -> F8:
        """Returns how likely days of some highest loads are among those that count: fewer others than that lie above.

        Days to come lie above at random, each as likely as the normal tail says; their number is taken as Poisson's.
        """
        above_X = (self.seen_D[None, :] > mw_X[:, None]).sum(axis=1)
        expected_X = self.left * np.array([_tail((mw - self.mean) / self.spread) for mw in mw_X.tolist()])
        chance_X, term_X = np.zeros(len(mw_X)), np.exp(-expected_X)
        for count in range(self.peaks):
            chance_X += np.where(count + above_X < self.peaks, term_X, 0.0)
            term_X = term_X * expected_X / (count + 1)
        return chance_X


def _tail(deviations: float) -> float:
    """Returns how likely a normal number lies above some standard deviations."""
    return 0.5 * erfc(deviations / sqrt(2))


def _highest(mw_H: F8, day_H: I8, hour_H: I8, today: int) -> tuple[F8, I8, I8]:
    """Returns the highest load of each day before today, its local hour, and the day."""
    kept = np.isfinite(mw_H) & (day_H < today)
    mw_K, day_K, hour_K = mw_H[kept], day_H[kept], hour_H[kept]
    order = np.lexsort((-mw_K, day_K))
    days_D, first_D = np.unique(day_K[order], return_index=True)
    return mw_K[order][first_D], hour_K[order][first_D], days_D


def _of_season(days_D: I8, season: int, charge: Coincident) -> Bools:
    """Returns which days lie in a season, and in the months of a charge."""
    month_D = days_D.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    group_D = month_D if charge.per == "month" else month_D // 12
    return np.asarray((group_D == season) & np.isin(month_D % 12 + 1, charge.months))


def _days_left(today: int, season: int, charge: Coincident) -> int:
    """Returns how many days of a season lie ahead, today included."""
    ahead_D = today + np.arange(367)
    return int(_of_season(ahead_D, season, charge).sum())


def _counted(mw_DL: F8, day_L: I8, known_H: F8, day_H: I8, rivals: _Rivals) -> F8:
    """Returns how likely each hour is the highest of its day in a scenario, and this day among those that count."""
    count_L = np.zeros(mw_DL.shape[1])
    for day in np.unique(day_L).tolist():
        at_L, before = np.flatnonzero(day_L == day), known_H[day_H == day]
        floor = float(np.nanmax(before)) if np.isfinite(before).any() else -np.inf
        best_D, highest_D = mw_DL[:, at_L].argmax(axis=1), mw_DL[:, at_L].max(axis=1)
        weight_D = np.where(highest_D > floor, rivals.chances(highest_D), 0.0)
        count_L[at_L] += np.bincount(best_D, weight_D, minlength=len(at_L))
    return count_L / len(mw_DL)


@dataclass(frozen=True, kw_only=True)
class PeakScore:
    """How well peaks were forecast.

    Attributes:
        brier: Mean squared error of the chances of the hours of the coming day, over all days.
        base: The same for the chance that every hour of the charge's months has alike.
        caught: Share of the peaks whose chance was above ``WATCHED``.
        watched: Share of all hours whose chance was.
    """

    brier: float
    base: float
    caught: float
    watched: float

    @property
    def skill(self) -> float:
        """Share of the error of the base rate that is avoided."""
        return 1 - self.brier / self.base


WATCHED: Final = 0.05
"""Chance above which a site would act."""


def peak_score(mw_H: F8, calendar: Calendar, charge: Coincident, peak_H: Bools, first: int, last: int) -> PeakScore:
    """Returns the Brier score of forecasts issued at each full day from an hour to another, for the 24 hours ahead.

    Args:
        mw_H: Load by hour of the calendar, MW.
        calendar: Hours on the site's clock.
        charge: Charge.
        peak_H: Whether an hour holds a peak, as it turned out.
        first: First hour of issue.
        last: Hour after the last forecast hour.
    """
    hours = range(first, last - DAY_H + 1, DAY_H)
    chance_H = np.concatenate([peak_chances(mw_H, calendar, charge, now, DAY_H) for now in hours])
    real_H = peak_H[first : first + len(chance_H)].astype(float)
    eligible_H = np.isin(calendar.number_M[calendar.month_N], charge.months)[first : first + len(chance_H)]
    chance_H, real_H = chance_H[eligible_H], real_H[eligible_H]
    watched_H = chance_H > WATCHED
    return PeakScore(
        brier=float(((chance_H - real_H) ** 2).mean()),
        base=float(((real_H.mean() - real_H) ** 2).mean()),
        caught=float(watched_H[real_H > 0].mean()) if real_H.any() else float("nan"),
        watched=float(watched_H.mean()),
    )

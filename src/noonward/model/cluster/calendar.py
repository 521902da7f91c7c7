"""The local calendar of a run: month, day, hour and weekday of every interval, which tariffs go by."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from noonward.arrays import F8, I8, Bools
from noonward.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """The local time of the intervals N of a run, and its billing months M: calendar months that its window touches.

    Intervals after the window, in which late jobs may run, count into the last of these months.

    Attributes:
        start: UTC time of the first interval.
        step_s: Length of an interval, s.
        month_N: Billing month of each interval, from 0.
        hour_N: Local hour, 0 to 23.
        day_N: Local day, days since 1970-01-01.
        weekend_N: Whether it is Saturday or Sunday.
        number_M: Month of the year, 1 to 12.
        share_M: Part of the month that lies in the window.
    """

    start: datetime
    step_s: float
    month_N: I8
    hour_N: I8
    day_N: I8
    weekend_N: Bools
    number_M: I8
    share_M: F8

    def __len__(self) -> int:
        return len(self.month_N)

    @property
    def months(self) -> int:
        """Number of billing months."""
        return len(self.share_M)

    @property
    def step_h(self) -> float:
        """Length of an interval, h."""
        return self.step_s / HOUR_S

    def positions(self, times: tuple[datetime, ...], interval_s: float) -> I8:
        """Returns where some intervals of a length stand, counted in that length; those outside the run are left out.

        Args:
            times: UTC starts of intervals.
            interval_s: Their length, s.
        """
        found = [int((time - self.start).total_seconds() // interval_s) for time in times]
        return np.array([n for n in found if 0 <= n < len(self) * self.step_s / interval_s], dtype=np.int64)


@functools.lru_cache(maxsize=64)
def site_calendar(timezone: str, start: datetime, window_s: float, step_s: float, count: int) -> Calendar:
    """Returns the calendar of a run at a place; its arrays are shared, read them only.

    Args:
        timezone: IANA time zone.
        start: UTC start of the run, a full hour.
        window_s: Length of the window, s.
        step_s: Length of an interval, s, a divisor of the hour.
        count: Number of intervals.

    Example:
        >>> found = site_calendar("America/New_York", datetime(2022, 7, 1, tzinfo=UTC), 86400.0, 3600.0, 24)
        >>> found.hour_N[:6].tolist(), found.number_M.tolist(), found.month_N[:6].tolist()
        ([20, 21, 22, 23, 0, 1], [6, 7], [0, 0, 0, 0, 1, 1])
        >>> (found.share_M * [30 * 24, 31 * 24]).round(9).tolist()
        [4.0, 20.0]
    """
    zone = ZoneInfo(timezone)
    hours = int(np.ceil(count * step_s / HOUR_S))
    offset_s_H = np.array([_offset_s(zone, start + timedelta(hours=h)) for h in range(hours)])
    second_N = np.arange(count) * step_s
    local_N = np.int64(start.timestamp()) + second_N.astype(np.int64) + offset_s_H[(second_N / HOUR_S).astype(np.int64)]
    time_N = local_N.astype("datetime64[s]")
    month_N, day_N = time_N.astype("datetime64[M]"), time_N.astype("datetime64[D]").astype(np.int64)
    within = max(1, int(np.ceil(window_s / step_s)))
    month_M = np.unique(month_N[:within])
    of_N = np.minimum(np.searchsorted(month_M, month_N), len(month_M) - 1)
    inside_s_N = np.clip(window_s - second_N, 0.0, step_s)
    inside_s_M = np.bincount(of_N, inside_s_N, minlength=len(month_M))
    return Calendar(
        start=start,
        step_s=step_s,
        month_N=of_N,
        hour_N=(local_N % 86400) // 3600,
        day_N=day_N,
        weekend_N=(day_N + 3) % 7 >= 5,  # 1970-01-01 was a Thursday
        number_M=month_M.astype(np.int64) % 12 + 1,
        share_M=inside_s_M / np.array([_month_s(zone, each) for each in month_M]),
    )


def _offset_s(zone: ZoneInfo, time: datetime) -> int:
    offset = time.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _month_s(zone: ZoneInfo, month: np.datetime64) -> float:
    """Returns how long a local month lasts, s: an hour less or more where its clock changes."""
    first, after = (
        datetime.fromisoformat(f"{each}-01").replace(tzinfo=zone).astimezone(UTC)
        for each in (month, month + np.timedelta64(1, "M"))
    )
    return (after - first).total_seconds()

"""A system's peaks and how well they are forecast."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

from noonward.data.system_load import hourly_highest, system_load, system_peaks
from noonward.forecasts.system_peaks import LEAST_H, PeakScore, peak_score
from noonward.model.cluster.calendar import site_calendar
from noonward.model.cluster.meter import SystemLoadFile
from noonward.model.cluster.tariff import Coincident
from noonward.units import DAY_H, HOUR_S


def scored_peaks(file: SystemLoadFile, charge: Coincident, zone: str) -> tuple[tuple[datetime, ...], PeakScore | None]:
    """Returns a system's peaks, and how well they are forecast a day ahead; None where the file is too short for that.

    Args:
        file: Its loads.
        charge: Charge.
        zone: IANA time zone whose days, months and years count.

    Raises:
        DataError: As ``system_peaks``.
    """
    found = system_peaks(file, charge, zone)
    first, step_s, mw_X = system_load(file)
    start = first.replace(minute=0, second=0, microsecond=0)
    hours = int((first - start + timedelta(seconds=step_s * len(mw_X))).total_seconds() // HOUR_S)
    calendar = site_calendar(zone, start, hours * HOUR_S, HOUR_S, hours)
    issued = LEAST_H + int(-calendar.hour_N[LEAST_H] % DAY_H) if hours > LEAST_H else hours
    if hours - issued < DAY_H:
        return found, None
    peak_H = np.zeros(hours, dtype=bool)
    peak_H[calendar.positions(found, HOUR_S)] = True
    mw_H = hourly_highest(file, start, hours)
    if not peak_H[issued:].any():
        return found, None
    return found, peak_score(mw_H, calendar, charge, peak_H, issued, hours)

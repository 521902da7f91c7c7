"""The window of your own scenario: as told, else the days that jobs and signals share, or those of the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np

from noonward.arrays import F8
from noonward.data.environments import REPLAY_S, past_days
from noonward.data.jobs.dated import JobRows
from noonward.data.jobs.load import run_times_s
from noonward.data.scenarios.own_fleet import OVERTIME_H, OwnFleet
from noonward.data.scenarios.own_jobs import dated_rows
from noonward.data.signals.load import load_signals
from noonward.errors import DataError, ScenarioError
from noonward.model.signals import Signals
from noonward.units import DAY_S, HOUR_S


def own_window(asked: OwnFleet, notes: list[str]) -> tuple[date | None, int]:
    """Returns the first day of the window and its hours: as told, else the days that all files share."""
    if asked.first is not None:
        days = 2 if asked.last is None else (asked.last - asked.first).days + 1
        if days < 1:
            raise ScenarioError(f"--to {asked.last} is before --from {asked.first}; give a later day")
        return asked.first, 24 * days
    if asked.last is not None:
        raise ScenarioError(f"--to {asked.last} was given without --from; give the first day too")
    rows = dated_rows(asked)
    if rows is None:
        return None, 48
    days_of_jobs = rows.days
    assert days_of_jobs is not None
    first, last = days_of_jobs
    past = past_days(first, last)
    first += timedelta(days=past)
    if asked.signals:
        zones = tuple(dict.fromkeys(pool.zone for pool in asked.pools))
        signals = load_signals(asked.signals, zones=zones)
        known_H = ~(np.isnan(signals.price_usd_per_mwh_ZH).any(0) | np.isnan(signals.carbon_g_per_kwh_ZH).any(0))
        if not known_H.any():
            raise DataError(_never_known(signals, asked.signals))
        at = np.flatnonzero(known_H)
        first = max(first, (signals.time_of(int(at[0])) + timedelta(hours=47)).date())
        run_s_J = run_times_s(rows.table)
        tail_h = _tail_h(asked, run_s_J)
        until = signals.time_of(int(at[-1]) + 1) - timedelta(hours=24 + tail_h)
        last = min(last, until.date())
        while last >= first and _replayed_until(rows, run_s_J, last) > signals.time_of(int(at[-1]) + 1):
            last -= timedelta(days=1)
        if last < first:
            raise DataError(
                f"jobs of {days_of_jobs[0]} to {days_of_jobs[1]} and signals of {signals.start:%Y-%m-%d} to "
                f"{signals.end:%Y-%m-%d} have no day in common (with a day of signals before it, and after it the "
                f"{tail_h} h in which its last job may end); give signals of the jobs' days, or a "
                "smaller --slack-h"
            )
    days = (last - first).days + 1
    if past:
        days_before = "day" if past == 1 else f"{past} days"
        notes.append(f"planners sample future jobs from the {days_before} of jobs before the window")
    of_jobs = "the later days of the jobs" if past else "the days of the jobs"
    which = "the days that jobs and signals share" if asked.signals else of_jobs
    notes.append(f"window: {first} to {last}, {which}")
    return first, 24 * days


def _tail_h(asked: OwnFleet, run_s_J: F8) -> int:
    """Returns the hours after a window in which its jobs may still start and end."""
    start_h = asked.slack_h if np.isfinite(asked.slack_h) else OVERTIME_H
    return int(np.ceil(start_h + run_s_J.max() / HOUR_S)) + 1


def _replayed_until(rows: JobRows, run_s_J: F8, last: date) -> datetime:
    """Returns the latest recorded end of the jobs that are submitted up to a day, with what a replay may lag behind."""
    day = datetime.combine(last, datetime.min.time(), UTC)
    if rows.start_s_J is None or rows.submit_s_J is None:
        return day
    inside_J = (rows.submit_s_J < day.timestamp() + DAY_S) & ~np.isnan(rows.start_s_J)
    if not inside_J.any():
        return day
    end_s = float(rows.start_s_J[inside_J].max() + run_s_J[inside_J].max()) + REPLAY_S + HOUR_S
    return datetime.fromtimestamp(end_s, UTC)


def _never_known(signals: Signals, paths: Sequence[Path]) -> str:
    """Returns which zones have no price or no carbon intensity at all."""
    lacks = [
        f"{zone} has no {what}"
        for what, value_ZH in (
            ("price", signals.price_usd_per_mwh_ZH),
            ("carbon intensity", signals.carbon_g_per_kwh_ZH),
        )
        for zone, value_H in zip(signals.zones, value_ZH, strict=True)
        if np.isnan(value_H).all()
    ]
    named = ", ".join(path.name for path in paths)
    return f"{named}: {'; '.join(lacks) or 'no hour has every price and carbon intensity'}; add a file that has them"

"""Jobs to come, drawn from a job table's own past: what a planner may know of your own table."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

import numpy as np

from noonward.arrays import I8
from noonward.errors import DataError
from noonward.model.cluster.jobs import NO_SITE, Jobs
from noonward.units import DAY_S, HOUR_S

DRAWS = 1000
"""Draws after which a history whose days hold hardly a job is given up."""


def history_of(jobs: Jobs, submit_s_J: np.ndarray, start: datetime) -> Jobs | None:
    """Returns the jobs that a planner may know before a window: those submitted before it, or None without any.

    Args:
        jobs: Jobs of a dated table.
        submit_s_J: Their submission, seconds since 1970-01-01 UTC.
        start: Start of the window.

    Returns:
        The jobs, their arrivals in seconds since midnight UTC of the first one's day, a Monday's midnight being a
        multiple of seven days.
    """
    known_J = submit_s_J < start.timestamp()
    if not known_J.any():
        return None
    rows_J = np.flatnonzero(known_J)
    return _with_rows(jobs, rows_J, submit_s_J[rows_J] - MONDAY_S)


MONDAY_S = 4.0 * DAY_S
"""The first Monday's midnight after 1970-01-01 UTC, a Thursday."""


def sample_history(past: Jobs, start: datetime, window_h: int, rng: np.random.Generator) -> Jobs:
    """Returns jobs for a window, day by day those of a random day of the past.

    A day of the window takes the jobs of a day of the past with the same weekday (UTC), drawn with replacement; of any
    day where the past holds no such weekday. Days of the past reach from its first job's to its last one's and may be
    empty.

    Args:
        past: Jobs as ``history_of`` returns them.
        start: Start of the window, 00:00 UTC.
        window_h: Its length, h.
        rng: Source of randomness.

    Raises:
        DataError: No job falls into the window in a thousand draws.
    """
    day_J = (past.arrival_s_J // DAY_S).astype(np.int64)
    days = np.arange(day_J[0], day_J[-1] + 1)
    first_day = int((start.timestamp() - MONDAY_S) // DAY_S)
    count = -(-window_h // 24)
    for _ in range(DRAWS):
        rows: list[I8] = []
        arrivals = []
        for offset in range(count):
            alike = days[days % 7 == (first_day + offset) % 7]
            drawn = int(rng.choice(alike if len(alike) else days))
            low, high = np.searchsorted(day_J, [drawn, drawn + 1])
            rows.append(np.arange(low, high))
            arrivals.append(past.arrival_s_J[low:high] + (offset - drawn) * DAY_S)
        arrival_s = np.concatenate(arrivals)
        inside = arrival_s < window_h * HOUR_S
        if inside.any():
            return _with_rows(past, np.concatenate(rows)[inside], arrival_s[inside])
    raise DataError(
        f"the history of jobs holds {len(past)} jobs on {len(days)} days, and no day that was drawn has one in a "
        f"window of {window_h} h; give a longer history by --history"
    )


def _with_rows(jobs: Jobs, rows_J: I8, arrival_s: np.ndarray) -> Jobs:
    """Returns some rows of a table of jobs under other arrivals, sorted by these."""
    order = np.argsort(arrival_s, kind="stable")
    columns = {field.name: getattr(jobs, field.name)[rows_J][order] for field in fields(jobs)}
    columns["arrival_s_J"] = arrival_s[order].astype(np.float64)
    columns["recorded_start_s_J"] = np.full(len(order), np.nan)
    columns["recorded_site_J"] = np.full(len(order), NO_SITE)
    if (columns["arrival_s_J"] < 0).any():
        raise DataError("jobs of before 1970 cannot serve as a history; correct their dates")
    return Jobs(**columns)

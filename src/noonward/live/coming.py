"""The jobs to come, as a service may know them: drawn from a file of past jobs, or from its own past arrivals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from noonward.data.environments import past_jobs
from noonward.data.jobs.history import history_of, sample_history
from noonward.live.names import Names
from noonward.live.store.store import Store
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import JobTable, Scenario
from noonward.units import DAY_H, DAY_S, HOUR_S

WEEK_H: Final = 7 * DAY_H
"""Hours of jobs that are drawn; a planner repeats them."""
PAST_S: Final = 8 * 7 * DAY_S
"""How far back a service's own arrivals are taken, s."""
LEAST_S: Final = DAY_S
"""Span of its own arrivals from which on a service can draw from them, s."""
Sampler = Callable[[np.random.Generator], Jobs]
"""Draws a week of jobs, their arrivals in s since the service's start or the same hour of a later week."""


def sampler_of(scenario: Scenario, store: Store, history: Path | None) -> Sampler | None:
    """Returns what draws the jobs to come, or None where the service knows too little of the past.

    Args:
        scenario: Scenario.
        store: Store of the service.
        history: Dated table of jobs, or job log; None: the service's own arrivals of the last eight weeks, once they
            span a day.

    Raises:
        DataError: The file cannot be read, has no dates or does not fit the fleet.
    """
    if history is None:
        past = own_past(store, Names.of(scenario.fleet, scenario.tenants))
    else:
        told = scenario.jobs if isinstance(scenario.jobs, JobTable) else JobTable(source="table", path=history)
        past = past_jobs(scenario, told.model_copy(update={"history": history}), store.start)
    return None if past is None else functools.partial(draw_week, past, store.start)


def own_past(store: Store, names: Names) -> Jobs | None:
    """Returns the jobs that were submitted to a service, or None where they span less than a day.

    Those of classes or ingress points that the fleet does not have any more are left out.
    """
    query = "SELECT * FROM jobs WHERE submitted_s >= ? AND state <> 'cancelled' ORDER BY submitted_s, id"
    stored = store.read(query, store.now_s() - PAST_S)
    rows = [row for row in stored if row["origin"] in names.ingress and row["class"] in names.classes]
    if not rows or rows[-1]["submitted_s"] - rows[0]["submitted_s"] < LEAST_S:
        return None
    column = {name: np.array([row[name] for row in rows]) for name in rows[0].keys() if name != "request"}  # noqa: SIM118
    slack_s = np.array([np.inf if row["max_delay_s"] is None else row["max_delay_s"] for row in rows])
    jobs = Jobs.build(
        arrival_s=column["submitted_s"].astype(float) - rows[0]["submitted_s"],
        work=column["work"].astype(float),
        origin=np.array([names.ingress.index(row["origin"]) for row in rows]),
        class_=np.array([names.classes.index(row["class"]) for row in rows]),
        gpus_min=column["gpus_min"].astype(np.int64),
        gpus_max=column["gpus_max"].astype(np.int64),
        slack_s=slack_s,
        data_gb=column["move_gb"].astype(float),
        result_gb=column["result_gb"].astype(float),
    )
    submit_s_J = column["submitted_s"].astype(float) + store.start.timestamp()
    return history_of(jobs, submit_s_J, store.start + timedelta(days=36500))


def draw_week(past: Jobs, start: datetime, rng: np.random.Generator) -> Jobs:
    """Returns a week of jobs from a full hour on, day by day those of a random day of the past with the same weekday.

    Args:
        past: Jobs as ``history_of`` returns them.
        start: First hour.
        rng: Source of randomness.
    """
    midnight = start.replace(hour=0)
    into_s = (start - midnight).total_seconds()
    drawn = sample_history(past, midnight, WEEK_H + (DAY_H if into_s else 0), rng)
    arrival_s = drawn.arrival_s_J - into_s
    inside = (arrival_s >= 0) & (arrival_s < WEEK_H * HOUR_S)
    columns = {each.name: getattr(drawn, each.name)[inside] for each in fields(drawn)}
    return Jobs(**(columns | {"arrival_s_J": arrival_s[inside]}))

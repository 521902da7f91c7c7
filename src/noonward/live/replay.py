"""A recorded service as an environment, so that the engine can play the same days again and be compared job by job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from noonward.arrays import Records
from noonward.errors import ScenarioError
from noonward.live.accounts import environment_of
from noonward.live.books import arrival_of
from noonward.live.grid.keeper import HISTORY_H, SignalKeeper
from noonward.live.setup import Setup
from noonward.live.store.store import Store
from noonward.model.cluster.environment import Environment, latest_end_s
from noonward.model.signals import Signals
from noonward.units import DAY_H, HOUR_S

COMPARED: Final = ("site", "gpus", "level", "start_s", "power_w", "moves")
"""What a decision is, of each job that was started."""
LATER_H: Final = 60 * DAY_H
"""Hours after the recording at which the engine stops, where jobs may wait as long as it takes."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a service recorded.

    Attributes:
        environment: Its jobs, its signals as they were known at the time, its fleet.
        jobs: Rows of its jobs in the same order.
        until_s: Time of its last question, s; later decisions are not compared.
        policies: Policies that decided, in order.
        steered: Numbers of jobs that an operator held, pinned, kept from sites or cancelled, or that were queued again.
    """

    environment: Environment
    jobs: tuple[Any, ...]
    until_s: float
    policies: tuple[str, ...]
    steered: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A decision that came out differently.

    Attributes:
        job: Number of the job.
        what: What differs, of ``COMPARED``, or ``state``.
        recorded: In the service.
        replayed: In the engine.
    """

    job: int
    what: str
    recorded: Any
    replayed: Any


def recording(setup: Setup, store: Store, sampler: Callable[[np.random.Generator], Any] | None = None) -> Recording:
    """Returns what a service recorded.

    Args:
        setup: Parts of the service.
        store: Its store.
        sampler: What its policy drew the jobs to come from.

    Raises:
        ScenarioError: No job was submitted, or nothing was decided.
    """
    rows = store.read("SELECT * FROM jobs ORDER BY arrival_s, id")
    until_s = store.value("asked_s")
    if not rows or until_s is None:
        raise ScenarioError(f"{store.database.title} holds no job that was decided about; there is nothing to replay")
    arrivals = [arrival_of(row) for row in rows]
    bare = [one._replace(held=False, pinned=-1, vetoed=frozenset()) for one in arrivals]
    events = store.read(
        "SELECT DISTINCT job FROM events WHERE kind IN ('held', 'let go', 'steered', 'cancelled', 'cancelling', "
        "'queued again') AND job IS NOT NULL"
    )
    steered = {row["job"] for row in events} | {
        one.job for one in arrivals if one.pinned >= 0 or one.vetoed or one.held
    }
    hours = int(until_s // HOUR_S) + 1
    environment = environment_of(setup, _signals(setup, store, hours), bare, hours * HOUR_S, drained=False)
    slot_s = setup.scenario.slot_s if setup.scenario.protocol == "each-slot" else 0.0
    end_s = latest_end_s(environment.jobs, setup.scenario.fleet, hours * HOUR_S, slot_s, environment.late_until_s)
    drained = end_s < LATER_H * HOUR_S  # jobs that wait as long as it takes have no latest end
    end_h = int(np.ceil(end_s / HOUR_S)) if drained else hours + LATER_H
    signals = None if environment.signals is None else _prolonged(environment.signals, end_h - hours)
    window_s = environment.window_s if drained else end_h * HOUR_S
    decided = store.read("SELECT policy, min(id) AS first FROM decisions GROUP BY policy ORDER BY first")
    return Recording(
        environment=replace(environment, drained=drained, window_s=window_s, signals=signals, sample_jobs=sampler),
        jobs=tuple(rows),
        until_s=float(until_s),
        policies=tuple(row["policy"] for row in decided),
        steered=frozenset(steered),
    )


def _signals(setup: Setup, store: Store, hours: int) -> Signals | None:
    if setup.source is None:
        return None
    return SignalKeeper(store, setup.source, setup.zones).signals(-HISTORY_H, hours)


def _prolonged(signals: Signals, hours: int) -> Signals:
    """Returns signals with some more hours, the last day again and again: no decision that is compared sees them."""
    if hours <= 0:
        return signals
    ahead_H = np.arange(hours) % DAY_H - DAY_H
    value_ZH = {name: np.concatenate([value, value[:, ahead_H]], axis=1) for name, value in signals.value_ZH.items()}
    return replace(signals, value_ZH=value_ZH)


def differences(recorded: Recording, replayed_J: Records) -> tuple[int, list[Difference]]:
    """Returns how many decisions were compared, and those that differ.

    Args:
        recorded: What the service recorded.
        replayed_J: What became of the jobs in the engine, in the environment's order.
    """
    compared, found = 0, []
    for row, job in zip(recorded.jobs, replayed_J, strict=True):
        if row["id"] in recorded.steered:
            continue
        start_s = float(job["start_s"])
        started = start_s <= recorded.until_s
        if not started and row["start_s"] is None:
            continue
        compared += 1
        if started != (row["start_s"] is not None):
            found.append(Difference(job=row["id"], what="state", recorded=row["state"], replayed=start_s))
            continue
        for what in COMPARED:
            if row[what] != job[what].item():
                found.append(Difference(job=row["id"], what=what, recorded=row[what], replayed=job[what].item()))
    return compared, found

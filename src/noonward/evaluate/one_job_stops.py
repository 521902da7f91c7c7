"""One job that may be suspended: in which hours it costs least, what stopping and loading take included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.one_job import Costed, Outlook, Place
from noonward.model.cluster.freedom import Freedom
from noonward.model.signals import cumulative
from noonward.units import HOUR_S

STEP_S: Final = 300.0
"""Length of a step of the search, s; in long windows longer, so that there are ``STEPS`` at most."""
STEPS: Final = 600
EQUAL: Final = 1e-9
"""Share of the cost of running through the window below which two schedules cost the same."""
RAN, RESUMED, FIRST = 0, 1, 2
"""How the search came to a running state: by running on, by a resumption, by the first start."""


@dataclass(frozen=True, kw_only=True)
class Interrupted(Costed):
    """A job that is suspended and resumed at a site.

    Attributes:
        runs: Start and end of each run, UTC; between two it writes its checkpoint, stands still and loads.
    """

    runs: tuple[tuple[datetime, datetime], ...]


def interrupted(
    places: Sequence[Place],
    seen: Outlook,
    now: datetime,
    by: datetime,
    hours: float,
    carbon_usd_per_t: float,
    freedom: Freedom,
) -> Interrupted | None:
    """Returns the cheapest schedule of a job that may be suspended, over all places; None if it fits nowhere.

    Runs, stops and resumptions lie on a grid of ``STEP_S`` from now on; the last run ends at ``by`` at the latest.

    Args:
        places: Places that the job may run at.
        seen: Prices and carbon intensities from now until ``by``.
        now: Earliest start, UTC.
        by: When it must be done, UTC.
        hours: How long it runs, h.
        carbon_usd_per_t: Price of emissions, USD/t.
        freedom: What stopping and resuming it takes, and how often that may be.
    """
    window_s, run_s = (by - now).total_seconds(), hours * HOUR_S
    need = math.ceil(run_s / max(STEP_S, window_s / STEPS) - 1e-9)
    step_s = run_s / need
    steps = int(window_s / step_s + 1e-9)
    since_s, edges_s = (now - seen.start).total_seconds(), np.arange(seen.value_KZH.shape[2] + 1) * HOUR_S
    found = []
    for place in places:
        z = seen.zones.index(place.zone)
        total_KH = cumulative(seen.value_KZH[:, z])
        weighed_H = total_KH[0] + carbon_usd_per_t / 1000 * total_KH[1]
        bill = _Bill(place, freedom, edges_s, since_s)
        runs_s = _cheapest(bill, weighed_H, steps, need, step_s, freedom)
        if runs_s:
            usd, kg = (bill.total(total_H, runs_s) for total_H in total_KH)  # g/kWh is kg/MWh
            runs = tuple(
                (now + timedelta(seconds=begin_s), now + timedelta(seconds=end_s)) for begin_s, end_s in runs_s
            )
            weighed_usd = usd + carbon_usd_per_t * kg / 1000
            found.append(Interrupted(site=place.name, runs=runs, usd=usd, kg=kg, weighed_usd=weighed_usd))
    return min(found, key=lambda each: each.weighed_usd, default=None)


@dataclass(frozen=True)
class _Bill:
    """What a job draws at a place while it runs, stops and loads, over what its GPUs draw when they are free."""

    place: Place
    freedom: Freedom
    edges_s: F8
    since_s: float

    def between(self, total_H: F8, watts: float, from_s: F8, to_s: F8) -> F8:
        """Returns the cost of some watts between times, given the integral of a price per MWh at the hours' edges."""
        ends = [np.interp(time_s + self.since_s, self.edges_s, total_H) for time_s in (to_s, from_s)]
        return np.asarray(watts / 1e6 / HOUR_S * (ends[0] - ends[1]))

    def stop(self, total_H: F8, at_s: F8) -> F8:
        """Returns the cost of stops that begin at some times."""
        paused = self.freedom.checkpoint
        return self.between(total_H, self.place.extra_w(paused.stop_power), at_s, at_s + paused.stop_s)

    def load(self, total_H: F8, until_s: F8) -> F8:
        """Returns the cost of loads that end at some times."""
        paused = self.freedom.checkpoint
        return self.between(total_H, self.place.extra_w(paused.load_power), until_s - paused.load_s, until_s)

    def total(self, total_H: F8, runs_s: Sequence[tuple[float, float]]) -> float:
        """Returns the cost of some runs with the stops and loads between them."""
        begin_s_R, end_s_R = (np.array(ends) for ends in zip(*runs_s, strict=True))
        runs = self.between(total_H, self.place.power_w, begin_s_R, end_s_R).sum()
        return float(runs + self.stop(total_H, end_s_R[:-1]).sum() + self.load(total_H, begin_s_R[1:]).sum())


def _cheapest(
    bill: _Bill, weighed_H: F8, steps: int, need: int, step_s: float, freedom: Freedom
) -> list[tuple[float, float]]:
    """Returns begin and end of each run of the cheapest schedule, s from now; none if it does not fit.

    A shortest path over (step, work done, running or not, suspensions): a run goes on or stops; a stopped job waits or
    loads. Axes: N suspensions (one layer where any number is allowed), T steps, W work done in steps.
    """
    paused, most = freedom.checkpoint, freedom.most_suspensions
    away = math.ceil((paused.stop_s + paused.dark_s) / step_s - 1e-9)
    loads = math.ceil(paused.load_s / step_s - 1e-9)
    least = min(need, max(1, math.ceil(freedom.min_run_s / step_s - 1e-9)))
    counted = most is not None and most < steps // max(1, away + loads + least)
    layers = 1 + (most or 0) * counted
    # A run that is resumed takes its least time, or what is left; by the work done before: from, until, steps.
    resumptions = [
        (1, need - least + 1, least),
        *((done, done + 1, need - done) for done in range(need - least + 1, need)),
    ]
    at_s_T = step_s * np.arange(steps + 1, dtype=np.float64)
    run_T = np.concatenate([[0.0], np.cumsum(bill.between(weighed_H, bill.place.power_w, at_s_T[:-1], at_s_T[1:]))])
    least_usd = EQUAL * float(np.abs(run_T).max())  # a stop that saves less is none
    stop_T, load_T = bill.stop(weighed_H, at_s_T) + least_usd, bill.load(weighed_H, at_s_T)
    on_NTW, off_NTW = np.full((2, layers, steps + 1, need + 1), np.inf)
    how_NTW = np.zeros((layers, steps + 1, need + 1), np.int8)
    jump_NTW = np.zeros((layers, steps + 1, need + 1), np.int32)
    left_NTW = np.zeros((layers, steps + 1, need + 1), np.int32)  # when a stopped state stopped

    for t in range(steps + 1):
        if t + least <= steps and run_T[t + least] - run_T[t] < on_NTW[0, t + least, least]:
            on_NTW[0, t + least, least] = run_T[t + least] - run_T[t]
            how_NTW[0, t + least, least], jump_NTW[0, t + least, least] = FIRST, least
        for n in range(layers):
            if t:
                waits_W = off_NTW[n, t - 1] < off_NTW[n, t]
                for state_NTW in (off_NTW, left_NTW):
                    state_NTW[n, t, waits_W] = state_NTW[n, t - 1, waits_W]
                on_W = on_NTW[n, t - 1, :-1] + (run_T[t] - run_T[t - 1])
                runs_W = on_W < on_NTW[n, t, 1:]
                on_NTW[n, t, 1:][runs_W], how_NTW[n, t, 1:][runs_W] = on_W[runs_W], RAN
            if t + away <= steps:
                off_W = on_NTW[n, t, :need] + stop_T[t]
                stops_W = off_W < off_NTW[n, t + away, :need]
                off_NTW[n, t + away, :need][stops_W], left_NTW[n, t + away, :need][stops_W] = off_W[stops_W], t
            into, begin = n + 1 if counted else n, t + loads
            if into == layers or begin > steps:
                continue
            for first, until, jump in resumptions:
                end = begin + jump
                if end <= steps:
                    cost_W = off_NTW[n, t, first:until] + (load_T[begin] + run_T[end] - run_T[begin])
                    into_W = slice(first + jump, until + jump)
                    better_W = cost_W < on_NTW[into, end, into_W]
                    on_NTW[into, end, into_W][better_W] = cost_W[better_W]
                    how_NTW[into, end, into_W][better_W], jump_NTW[into, end, into_W][better_W] = RESUMED, jump
    if not np.isfinite(on_NTW[:, :, need]).any():
        return []
    runs: list[tuple[float, float]] = []
    n, t = (int(at) for at in np.unravel_index(int(on_NTW[:, :, need].argmin()), (layers, steps + 1)))
    done, last = need, t
    while True:
        how, jump = int(how_NTW[n, t, done]), int(jump_NTW[n, t, done])
        if how == RAN:
            t, done = t - 1, done - 1
            continue
        begin, done = t - jump, done - jump
        runs.append((begin * step_s, last * step_s))
        if how == FIRST:
            return runs[::-1]
        n -= counted
        t = last = int(left_NTW[n, begin - loads, done])

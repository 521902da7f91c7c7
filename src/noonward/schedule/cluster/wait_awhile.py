"""Wait Awhile: each job runs in the hours of least forecast cost before it must end (protocol each-slot)."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arguments import checked
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.feasibility import first_start_s, is_suspended
from noonward.decision.cluster.lives import resume_until_s
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.value import (
    energy_usd,
    extra_power_w,
    revenue_usd,
    run_seconds,
    travel_cost_usd,
)
from noonward.decision.cluster.view import (
    ASK_RUNNING,
    CARBON,
    PRICE,
    Answers,
    ClusterView,
    RuleMemory,
    first_seen,
    latest_start_s,
)
from noonward.decision.scheduler import CompiledScheduler, forecast_remarks
from noonward.forecasts.forecast import Forecast
from noonward.schedule.cluster.capacity_prices import PRICED_H
from noonward.schedule.cluster.suspending import Measure
from noonward.units import HOUR_S

PRICE_WEIGHT, CARBON_WEIGHT = range(2)
"""Positions in ``memory.number_P``: what price and intensity count, or NaN for their cost."""
SITE: Final = 0
"""Position in ``memory.job_index_JP``: the site at which a job is to run."""
HALVINGS: Final = 60
"""Halvings of the range in which the limit of a job's cheap hours lies."""
NEAR_S: Final = 1e-3
"""Seconds below which two lengths of time count as equal."""


@kernel(inline=True, allocates=False)
def _hour_value(view: ClusterView, memory: RuleMemory, site: int, lead: int) -> float:
    """Returns what a watt counts for a second of an hour some hours ahead; NaN where it is not known."""
    forecast_KSL = view.forecast_KSL
    if lead + 1 >= forecast_KSL.shape[2]:
        return np.nan
    price = (forecast_KSL[PRICE, site, lead + 1] - forecast_KSL[PRICE, site, lead]) / HOUR_S
    carbon = (forecast_KSL[CARBON, site, lead + 1] - forecast_KSL[CARBON, site, lead]) / HOUR_S
    if np.isnan(memory.number_P[PRICE_WEIGHT]):
        return energy_usd(view, price, carbon)
    return memory.number_P[PRICE_WEIGHT] * price + memory.number_P[CARBON_WEIGHT] * carbon


@kernel(allocates=False)
def _cheapest(view: ClusterView, memory: RuleMemory, site: int, from_s: float, until_s: float, need_s: float) -> float:
    """Returns what a watt counts over the cheapest seconds between two times; infinite where they are too few.

    The limit between cheap and expensive hours is found by halving: the seconds of cheaper hours are taken whole, what
    lacks is taken at the limit.
    """
    zero_s = (view.run_1[0].now_s // HOUR_S) * HOUR_S
    low, high, known_s = np.inf, -np.inf, 0.0
    first = int((from_s - zero_s) // HOUR_S)
    lead = first
    while zero_s + lead * HOUR_S < until_s:
        value = _hour_value(view, memory, site, lead)
        if np.isnan(value):
            break
        low, high = min(low, value), max(high, value)
        known_s += min(until_s, zero_s + (lead + 1) * HOUR_S) - max(from_s, zero_s + lead * HOUR_S)
        lead += 1
    if known_s < need_s - NEAR_S:
        return np.inf
    last, total, taken_s = lead, 0.0, 0.0
    for _ in range(HALVINGS):
        limit = 0.5 * (low + high)
        total, taken_s = 0.0, 0.0
        for each in range(first, last):
            value = _hour_value(view, memory, site, each)
            if value <= limit:
                here_s = min(until_s, zero_s + (each + 1) * HOUR_S) - max(from_s, zero_s + each * HOUR_S)
                total += value * here_s
                taken_s += here_s
        if taken_s >= need_s - NEAR_S:
            high = limit
        else:
            low = limit
    total, taken_s = 0.0, 0.0
    for each in range(first, last):
        value = _hour_value(view, memory, site, each)
        if value <= low:
            here_s = min(until_s, zero_s + (each + 1) * HOUR_S) - max(from_s, zero_s + each * HOUR_S)
            total += value * here_s
            taken_s += here_s
    return total + (need_s - taken_s) * high


@kernel(allocates=False)
def _unbroken(view: ClusterView, memory: RuleMemory, site: int, start_s: float, seconds: float) -> float:
    """Returns what a watt counts over an unbroken run; infinite where an hour of it is not known."""
    return _cheapest(view, memory, site, start_s, start_s + seconds, seconds)


@kernel(allocates=False)
def _best_start_s(
    view: ClusterView, memory: RuleMemory, site: int, first_s: float, last_s: float, seconds: float
) -> tuple[float, float]:
    """Returns (start in s, what a watt counts) of the cheapest unbroken run: now, from an hour's turn, or at the last.

    Of equal runs the earliest.
    """
    best_s, best = first_s, _unbroken(view, memory, site, first_s, seconds)
    start_s = first_s
    while start_s < last_s:
        start_s = min((start_s // HOUR_S + 1.0) * HOUR_S, last_s)
        value = _unbroken(view, memory, site, start_s, seconds)
        if value < best:
            best_s, best = start_s, value
    return best_s, best


@kernel(allocates=False)
def _choose_site(view: ClusterView, memory: RuleMemory, job: int, s: int) -> int:
    """Returns the site at which a job's cheapest hours count least; the one that it waits at if nothing is known."""
    best, least = s, np.inf
    breaks = view.freedom_C[view.job_J[job].class_].interruptible
    in_usd = np.isnan(memory.number_P[PRICE_WEIGHT])
    for d in range(view.site_S.shape[0]):
        first_s, last_s = first_start_s(view, job, s, d), latest_start_s(view, job, d)
        if (d != s and not view.mask_NA[s, 1 + d]) or first_s > last_s or np.isinf(last_s):
            continue
        seconds = run_seconds(view, job, d)
        if breaks:
            value = _cheapest(view, memory, d, first_s, last_s + seconds, seconds)
        else:
            _, value = _best_start_s(view, memory, d, first_s, last_s, seconds)
        value *= extra_power_w(view, job, d)
        if in_usd:
            value += travel_cost_usd(view, job, s, d) - revenue_usd(view, job, d)
        if value < least:
            best, least = d, value
    return best


@kernel(allocates=False)
def _start_s(view: ClusterView, memory: RuleMemory, site: int, last_s: float, seconds: float) -> float:
    """Returns when a job is to run that may be stopped, s: now, or a time in this hour or at its end at the soonest.

    It runs now if less time than it needs is left in cheaper hours before it must end. Where only a part of this hour
    is needed and cheaper hours are to come, that part is the last of the hour.

    Args:
        view: View.
        memory: What counts.
        site: Site.
        last_s: Latest start, s.
        seconds: Seconds that it must run.
    """
    now = view.run_1[0].now_s
    zero_s = (now // HOUR_S) * HOUR_S
    end_s, until_s = zero_s + HOUR_S, last_s + seconds
    here, cheaper_s = _hour_value(view, memory, site, 0), 0.0
    lead = 1
    while zero_s + lead * HOUR_S < until_s:
        value = _hour_value(view, memory, site, lead)
        if np.isnan(value):
            break
        if value < here:
            cheaper_s += min(until_s, zero_s + (lead + 1) * HOUR_S) - (zero_s + lead * HOUR_S)
        lead += 1
    need_s = seconds - cheaper_s
    if need_s <= NEAR_S:
        return end_s
    if cheaper_s == 0.0 or need_s >= min(end_s, until_s) - now - NEAR_S:
        return now
    return end_s - need_s


@kernel(inline=True, allocates=False)
def _answer_running(view: ClusterView, answers: Answers, memory: RuleMemory, s: int, job: int) -> None:
    """Suspends a site's running job unless the whole coming hour is among its cheapest."""
    now = view.run_1[0].now_s
    if _start_s(view, memory, s, resume_until_s(view, job), view.life_J[job].until_s - now) > now:
        answers.answer_N[s].choice = 1 + s


@rule
def _wait_awhile(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    running = view.run_1[0].kind == ASK_RUNNING
    now = view.run_1[0].now_s
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        if running:
            _answer_running(view, answers, memory, s, job)
            continue
        freedom = view.freedom_C[view.job_J[job].class_]
        again = is_suspended(view, job)
        if first_seen(view, memory, job):
            memory.job_index_JP[job, SITE] = _choose_site(view, memory, job, s)
        site = s if again else memory.job_index_JP[job, SITE]
        if site != s and view.mask_NA[s, 1 + site]:
            answers.answer_N[s].choice = 1 + site
            continue
        last_s = latest_start_s(view, job, s)
        seconds = run_seconds(view, job, s) + (freedom.load_s if again else 0.0)
        if np.isinf(last_s) or now >= last_s:
            start_s = now
        elif freedom.interruptible:
            start_s = _start_s(view, memory, s, last_s, seconds)
        else:
            start_s, _ = _best_start_s(view, memory, s, now, last_s, seconds)
        if start_s > now + NEAR_S:
            answers.answer_N[s].earliest_s = start_s
        elif view.mask_NA[s, 1 + s]:
            answers.answer_N[s].choice = 1 + s


class WaitAwhile(CompiledScheduler):
    """Runs each job in the hours of least cost between its arrival and its latest end, whatever others need.

    Wiesner et al., "Let's wait awhile" (Middleware'21), its interruptible jobs, as GAIA (Hanafy et al., ASPLOS'24) has
    it under the name *Wait Awhile*: of all the time in which a job may run, the cheapest is taken, the earlier of equal
    hours first, and the job is suspended in the rest. Jobs of a class that is not interruptible run unbroken from their
    best start. A job goes to the site at which its hours cost least, its journey included. The plan ignores what
    suspensions take, and other jobs: where GPUs lack, a job waits for them until its latest start. A job without a
    deadline runs at once.

    Args:
        forecast: Forecast of the hours to come.
        measure: What makes an hour cheap: ``cost`` (energy at its price and its carbon at the carbon price), ``price``
            or ``carbon`` alone.
    """

    rule = staticmethod(_wait_awhile)

    @checked
    def __init__(self, forecast: Forecast, *, measure: Measure = "cost") -> None:
        self.needs = Needs(
            protocols=("each-slot",), signals=True, economics=True, forecast=forecast, levers=("suspend",),
            lookahead_h=0 if forecast.foresight else PRICED_H,
        )  # fmt: skip
        self._weights = {"cost": (np.nan, np.nan), "price": (1.0, 0.0), "carbon": (0.0, 1.0)}[measure]

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns a note where the run lies in months or hours that a learned forecast was trained on."""
        return forecast_remarks(self.needs.forecast, brief)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns what counts, and room for each job's site."""
        return RuleMemory.make(numbers=self._weights, job_index=(-1,))

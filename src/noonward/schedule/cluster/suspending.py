"""Rules that suspend or cap running jobs in expensive hours, and not in cheap ones."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from noonward.arguments import checked
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.lives import back_s, may_start_capped, resume_until_s, slack_left_s
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.value import energy_usd, route_cost_usd, run_value_at_usd
from noonward.decision.cluster.view import (
    ASK_ROUTE,
    ASK_RUNNING,
    CARBON,
    PRICE,
    Answers,
    ClusterView,
    RuleMemory,
    first_seen,
    latest_start_s,
    route_delay_s,
)
from noonward.decision.scheduler import CompiledScheduler, forecast_remarks
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.freedom import Lever
from noonward.model.cluster.setting import Protocol
from noonward.schedule.cluster.slot_rules import cheapest_site
from noonward.units import DAY_H, HOUR_S

HOUR, CHEAP_H, KEPT, PRICE_WEIGHT, CARBON_WEIGHT, LEAST_POWER = range(6)
"""Positions in ``memory.number_P``: the hour whose limits ``memory.table_XY`` holds; how many hours of a day are cheap;
the share of its slack that a job keeps; what price and intensity count, or NaN for their cost; the least power of a cap
in use, share of full power."""
Measure = Literal["cost", "price", "carbon"]
Quantile = Annotated[float, Field(gt=0, le=1, description="share of a day's hours that are cheap")]
Power = Annotated[float, Field(ge=0, le=1, description="least share of full power under a cap")]
Kept = Annotated[float, Field(ge=0, le=1, description="share of a job's slack that is left unused")]


@kernel(inline=True, allocates=False)
def _measure(view: ClusterView, memory: RuleMemory, price: float, carbon: float) -> float:
    """Returns what an hour of some price and intensity counts."""
    if np.isnan(memory.number_P[PRICE_WEIGHT]):
        return energy_usd(view, price, carbon)
    return memory.number_P[PRICE_WEIGHT] * price + memory.number_P[CARBON_WEIGHT] * carbon


@kernel(inline=True, allocates=False)
def _in_hour(view: ClusterView, kind: int, site: int, lead: int) -> float:
    """Returns the forecast mean of an hour at a site, by its lead: 0 is the current one."""
    return float((view.forecast_KSL[kind, site, lead + 1] - view.forecast_KSL[kind, site, lead]) / HOUR_S)


@kernel(inline=True, allocates=False)
def _note_next_cheap(view: ClusterView, memory: RuleMemory, site: int) -> None:
    """Notes for each lead the first from there on that is cheap at a site; past the hours known, the lead itself."""
    hours, next_cheap = min(DAY_H, view.forecast_KSL.shape[2] - 1), DAY_H
    for lead in range(DAY_H, -1, -1):
        cheap = lead >= hours
        if not cheap:
            value = _measure(view, memory, _in_hour(view, PRICE, site, lead), _in_hour(view, CARBON, site, lead))
            cheap = not value > memory.table_XY[site, 0]
        if cheap:
            next_cheap = lead
        memory.index_XY[site, lead] = next_cheap


@kernel(inline=True, allocates=False)
def _note_limits(view: ClusterView, memory: RuleMemory) -> None:
    """Notes what an hour may count at each site to be cheap: the last of the cheap hours among the next 24."""
    hour = view.run_1[0].now_s // HOUR_S
    if memory.number_P[HOUR] == hour:
        return
    memory.number_P[HOUR] = hour
    forecast_KSL = view.forecast_KSL
    for s in range(view.site_S.shape[0]):
        hours = 0
        for lead in range(min(DAY_H, forecast_KSL.shape[2] - 1)):
            value = _measure(view, memory, _in_hour(view, PRICE, s, lead), _in_hour(view, CARBON, s, lead))
            if np.isnan(value):
                break
            hours += 1
            at = hours  # keeps the hours in order
            while at > 1 and memory.table_XY[s, at - 1] > value:
                memory.table_XY[s, at] = memory.table_XY[s, at - 1]
                at -= 1
            memory.table_XY[s, at] = value
        cheap = int(np.ceil(memory.number_P[CHEAP_H] / DAY_H * hours))
        memory.table_XY[s, 0] = memory.table_XY[s, max(1, cheap)] if hours > 0 else np.inf
        _note_next_cheap(view, memory, s)


@kernel(inline=True, allocates=False)
def _is_expensive(view: ClusterView, memory: RuleMemory, site: int) -> bool:
    """Returns whether this hour counts more at a site than the limit of its cheap ones."""
    here = view.site_S[site]
    return bool(_measure(view, memory, here.price, here.carbon) > memory.table_XY[site, 0])


@kernel(inline=True, allocates=False)
def _next_cheap(view: ClusterView, memory: RuleMemory, site: int, from_s: float) -> int:
    """Returns the lead of the first cheap hour at a site that ends after a time; without any, past the hours known.

    The present hour is cheap or not by what it is, the others by what is forecast of them.
    """
    lead = int(from_s // HOUR_S - view.run_1[0].now_s // HOUR_S)
    if lead == 0 and not _is_expensive(view, memory, site):
        return 0
    return int(memory.index_XY[site, max(1, lead)]) if lead < DAY_H else max(1, lead)


@kernel(inline=True, allocates=False)
def _wait_until_s(view: ClusterView, memory: RuleMemory, site: int, from_s: float, due_s: float) -> float:
    """Returns when a job that is there at a time runs at a site: in the next cheap hour, or when it is due, s."""
    if not from_s < due_s < np.inf:
        return from_s
    hour = view.run_1[0].now_s // HOUR_S + _next_cheap(view, memory, site, from_s)
    return min(max(from_s, hour * HOUR_S), due_s)


@kernel(inline=True, allocates=False)
def _kept_s(view: ClusterView, memory: RuleMemory, job: int) -> float:
    """Returns how much of a job's slack is not to be waited through, s."""
    if first_seen(view, memory, job):
        memory.job_number_JP[job, 0] = view.job_J[job].deadline_s - view.job_J[job].arrival_s
    return memory.number_P[KEPT] * memory.job_number_JP[job, 0]


@kernel(inline=True, allocates=False)
def _route(view: ClusterView, answers: Answers, memory: RuleMemory, job: int) -> None:
    """Sends a job to the site at which it earns most at the prices of the hour in which it starts there."""
    kept_s, answer = _kept_s(view, memory, job), answers.answer_N[0]
    most, some_room = -np.inf, False
    for s in range(view.site_S.shape[0]):
        if not view.mask_NA[0, 1 + s]:
            continue
        site = view.site_S[s]
        there_s = view.run_1[0].now_s + route_delay_s(view, job, s)
        start_s = _wait_until_s(view, memory, s, there_s, latest_start_s(view, job, s) - kept_s)
        lead = int(start_s // HOUR_S - view.run_1[0].now_s // HOUR_S)
        price, carbon = site.price, site.carbon
        if 0 < lead < view.forecast_KSL.shape[2] - 1:
            price, carbon = _in_hour(view, PRICE, s, lead), _in_hour(view, CARBON, s, lead)
        room = site.free - site.waiting_gpus >= view.job_J[job].gpus_min
        value = run_value_at_usd(view, job, s, price, carbon) - route_cost_usd(view, job, s)
        if not room:
            value = -site.waiting_gpus / site.gpus
        if answer.choice == 0 or (room and not some_room) or (room == some_room and value > most):
            answer.choice, most, some_room = 1 + s, value, room
            answer.earliest_s = start_s if start_s > there_s else 0.0


@kernel(inline=True, allocates=False)
def _suspend_on_arrival(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    """Answers the dispatcher: where a job goes and from when on it runs there, and whether one that runs stops."""
    job, s = view.asked_N[0], view.run_1[0].site
    if view.run_1[0].kind == ASK_ROUTE:
        _route(view, answers, memory, job)
    elif view.run_1[0].kind == ASK_RUNNING and view.mask_NA[0, 1] and _is_expensive(view, memory, s):
        back_at_s = back_s(view, job)
        due_s = resume_until_s(view, job) - _kept_s(view, memory, job)
        if back_at_s < due_s:
            answers.answer_N[0].choice = 1
            answers.answer_N[0].earliest_s = _wait_until_s(view, memory, s, back_at_s, due_s)


@rule
def _suspend_threshold(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    _note_limits(view, memory)
    running = view.run_1[0].kind == ASK_RUNNING
    if view.run_1[0].kind == ASK_ROUTE or (running and view.run_1[0].slot_s == 0.0):
        _suspend_on_arrival(view, answers, memory)
        return
    cheap = False
    for s in range(view.site_S.shape[0]):
        cheap = cheap or not _is_expensive(view, memory, s)
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        kept_s = _kept_s(view, memory, job)
        if running:
            if _is_expensive(view, memory, s) and resume_until_s(view, job) - back_s(view, job) > kept_s:
                answers.answer_N[s].choice = 1 + s
            continue
        left_s = view.job_J[job].deadline_s - view.run_1[0].now_s
        waits = not np.isinf(left_s) and left_s > kept_s
        if waits and not cheap:  # wherever there is room
            continue
        best = cheapest_site(view, s, job)
        if best >= 0 and waits and _is_expensive(view, memory, best):
            best = -1
        answers.answer_N[s].choice = 1 + best


@kernel(inline=True, allocates=False)
def _cap_of(view: ClusterView, memory: RuleMemory, job: int) -> int:
    """Returns the lowest cap of a job's class that leaves the least power; 0 (full power) where there is none."""
    freedom, cap = view.freedom_C[view.job_J[job].class_], 0
    while cap < freedom.caps and freedom.cap_power[cap + 1] >= memory.number_P[LEAST_POWER]:
        cap += 1
    return cap


@rule
def _cap_threshold(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    _note_limits(view, memory)
    running = view.run_1[0].kind == ASK_RUNNING
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        kept_s = _kept_s(view, memory, job)
        if running:
            slow = _is_expensive(view, memory, s) and slack_left_s(view, job) > kept_s
            answers.answer_N[s].cap = _cap_of(view, memory, job) if slow else 0
            continue
        best = cheapest_site(view, s, job)
        answers.answer_N[s].choice = 1 + best
        left_s = view.job_J[job].deadline_s - view.run_1[0].now_s
        most = view.job_J[job].gpus_max
        if best == s and left_s > kept_s and _is_expensive(view, memory, s) and may_start_capped(view, job, s, most):
            answers.answer_N[s].cap = _cap_of(view, memory, job)


class _Threshold(CompiledScheduler):
    """What the rules of this file share: which hours are cheap, and how much slack is kept.

    Args:
        forecast: Forecast of the next 24 hours.
        measure: What makes an hour cheap.
        quantile: Share of the 24 hours that are cheap.
        kept: Share of a job's slack that is left unused.
        power: Least power of a cap in use, share of full power.
        levers: What it does with running jobs.
        protocols: Protocols under which its rule answers.
    """

    def __init__(
        self,
        forecast: Forecast,
        measure: Measure,
        quantile: float,
        kept: float,
        power: float,
        levers: tuple[Lever, ...],
        protocols: tuple[Protocol, ...] = ("each-slot",),
    ) -> None:
        self.needs = Needs(
            protocols=protocols,
            signals=True,
            economics=True,
            forecast=forecast,
            lookahead_h=DAY_H,
            levers=levers,
        )
        weights = {"cost": (np.nan, np.nan), "price": (1.0, 0.0), "carbon": (0.0, 1.0)}[measure]
        self._numbers = (-1.0, quantile * DAY_H, kept, *weights, power)

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns a note where the run lies in months or hours that a learned forecast was trained on."""
        return forecast_remarks(self.needs.forecast, brief)

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns room for the sorted hours of every site, the next cheap one from each on, and each job's slack."""
        room = (len(brief.sites), DAY_H + 1)
        return RuleMemory.make(
            numbers=self._numbers, table=np.zeros(room), index=np.zeros(room, dtype=np.int64), job_numbers=(0.0,)
        )


class SuspendThreshold(_Threshold):
    """Runs jobs in the cheap hours of the next day only, and suspends them in the others, within their slack.

    Suspend and resume by a threshold, as Ecovisor (Souza et al., ASPLOS'23) and GAIA (Hanafy et al., ASPLOS'24) have
    it: an hour is cheap at a site if it is among the ``quantile`` of least ``measure`` of the 24 hours that begin with
    it. Each job goes to the site with room at which it earns most at the prices of this hour, and waits, or is
    suspended where its class is interruptible, while the hour is not cheap there and more than ``kept`` of its slack is
    left; from then on it runs to its end. A job without a deadline does not wait.

    Under ``on-arrival`` a job is sent once: to the site with room at which it earns most at the prices of the hour in
    which it is to start, its journey included; without room anywhere, to where the least waits for the site's size. It
    starts there, and is resumed there, in the next hour that is forecast to be cheap.

    Args:
        forecast: Forecast of the next 24 hours.
        measure: What makes an hour cheap: ``cost`` (energy at its price and its carbon at the carbon price), ``price``
            or ``carbon`` alone.
        quantile: Share of the 24 hours that are cheap, above 0 to 1.
        kept: Share of a job's slack that is left unused, 0 to 1.
        resizes: Suspend jobs of elastic classes, too, and resume them on the largest gang of their class that fits.

    Raises:
        ScenarioError: A number is out of its range.
    """

    rule = staticmethod(_suspend_threshold)

    @checked
    def __init__(
        self,
        forecast: Forecast,
        *,
        measure: Measure = "cost",
        quantile: Quantile = 0.3,
        kept: Kept = 0.3,
        resizes: bool = False,
    ) -> None:
        levers: tuple[Lever, ...] = ("suspend", "resize") if resizes else ("suspend",)
        super().__init__(forecast, measure, quantile, kept, 1.0, levers, ("each-slot", "on-arrival"))


class CapThreshold(_Threshold):
    """Runs jobs under a power cap in the expensive hours of the next day, within their slack.

    The counterpart of ``SuspendThreshold`` with caps in place of suspensions. Each job starts at once at the site with
    room at which it earns most at the prices of this hour. While an hour is not cheap at its site and more than
    ``kept`` of its slack is left, it runs under the lowest cap of its class that leaves at least ``power``; in cheap
    hours, and once its slack is used up to ``kept``, at full power. A job without a deadline is not capped.

    Args:
        forecast: Forecast of the next 24 hours.
        measure: What makes an hour cheap: ``cost`` (energy at its price and its carbon at the carbon price), ``price``
            or ``carbon`` alone.
        quantile: Share of the 24 hours that are cheap, above 0 to 1.
        kept: Share of a job's slack that is left unused, 0 to 1.
        power: Least power under a cap, share of full power, 0 to 1.

    Raises:
        ScenarioError: A number is out of its range.
    """

    rule = staticmethod(_cap_threshold)

    @checked
    def __init__(
        self,
        forecast: Forecast,
        *,
        measure: Measure = "cost",
        quantile: Quantile = 0.3,
        kept: Kept = 0.3,
        power: Power = 0.6,
    ) -> None:
        super().__init__(forecast, measure, quantile, kept, power, ("cap",))

"""What an event on a fleet asked and gave, in words and by site; what a fleet must state for more."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.events import INTERVAL_S
from noonward.data.jobs.dated import job_rows
from noonward.evaluate.answer import digits_of
from noonward.evaluate.events.flexibility import shown_hours
from noonward.evaluate.events.one import CONTROLS, OneEvent
from noonward.evaluate.events.play import RAMP_S, inside_s
from noonward.evaluate.knowing import told
from noonward.evaluate.table import UNDEFINED, TextTable
from noonward.model.cluster.knowledge import RunTimeKnowledge
from noonward.model.cluster.scenario import JobTable, Scenario
from noonward.units import HOUR_S

TOLERANCE: Final = 1e-6
"""Share of what is asked by which what jobs draw may be below it: rounding."""


def told_for_events(scenario: Scenario) -> tuple[Scenario, list[str]]:
    """Returns a scenario whose running jobs may be acted on, and what was changed for that, in sentences.

    Run times are learned from unbroken runs, so a scenario that states ``fleet.freedoms`` cannot learn them: policies
    are told each job's limit instead, or its class's mean where the jobs have none.

    Args:
        scenario: Scenario of kind ``cluster``.
    """
    jobs = scenario.jobs
    if not scenario.fleet.freedoms or jobs.knowledge.run_time != "learned":
        return scenario, []
    limits = isinstance(jobs, JobTable) and not job_rows(jobs).details["limit_s"].is_null().all()
    way: RunTimeKnowledge = "limit" if limits else "class-mean"
    return told(scenario, way), [
        f"run times are told as {'limits' if limits else 'means of classes'} here (jobs.knowledge.run_time={way}): "
        "they are learned from unbroken runs, and events break runs"
    ]


def missing(scenario: Scenario, *, moves: bool = False) -> list[str]:
    """Returns what a fleet does not state, without which levers do nothing or a price cannot be told, in sentences.

    Args:
        scenario: Scenario of kind ``cluster``.
        moves: Whether jobs are to go to other sites.
    """
    said = []
    if not scenario.fleet.freedoms:
        first = scenario.fleet.classes[0]
        said.append(
            "no class of jobs may be suspended or capped, so all levers only hold starts; state fleet.freedoms, e.g. "
            f'--set "fleet.freedoms={{{first}: {{interruptible: true, caps: zeus-v100-bert}}}}" (docs/freedoms.md)'
        )
    elif moves and not any(freedom.moves for freedom in scenario.fleet.freedoms.values()):
        stopped = next((name for name, freedom in scenario.fleet.freedoms.items() if freedom.interruptible), "CLASS")
        said.append(
            "no class of running jobs may go to another site, so --moves sends starts there alone; state it, e.g. "
            f"--set fleet.freedoms.{stopped}.moves=true (docs/freedoms.md)"
        )
    if scenario.goal == "least-cost" and scenario.economics is not None and not scenario.economics.gpu_usd_per_hour:
        said.append(
            "USD per MWh needs what a GPU-hour costs; state economics.gpu_usd_per_hour (noonward init "
            "--gpu-usd-per-hour); revenue_usd_per_gpu_hour only makes policies serve every job"
        )
    return said


def event_words(found: OneEvent, drawn: bool) -> list[str]:
    """Returns when the event is, how many kW it asks, and what the fleet gives with all levers, in sentences.

    Args:
        found: The event, played.
        drawn: Whether its begin was drawn by the seed.
    """
    begin = found.ride.environment.start + timedelta(seconds=found.start_s)
    end = begin + timedelta(hours=found.case.hours)
    each, (base_S, asked_S, given_S) = found.played["all"], by_site(found)
    share = given_S.sum() / asked_S.sum() if asked_S.sum() > 0 else 0.0
    how = "; drawn by the seed, and another hour may give more or less (--start-h)" if drawn else ""
    late = "no further job is late" if each.late_jobs <= 0 else f"{each.late_jobs} more jobs are late"
    draw = "the sites draw" if found.site is None else f"{found.site} draws"
    return [
        f"The event: {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC{how}.",
        f"Without it {draw} {_kw(float(base_S[found.asked_S].sum()))} on average; it asks for "
        f"{_kw(float(asked_S.sum()))} less. With all levers the fleet gives {_kw(float(given_S.sum()))} "
        f"({share:.0%}) for {shown_hours(found.case.hours)}; {max(0.0, each.lost_gpu_hours):,.0f} GPU-hours of work "
        f"are put off, and {late}.",
        *_short_words(found, asked_S),
        *_ways_words(found),
    ]


def _short_words(found: OneEvent, asked_S: F8) -> list[str]:
    """Returns which sites could not give what is asked if all their jobs stopped, in sentences."""
    environment, power = found.ride.environment, found.ride.outcome.power
    begin_s, end_s = found.start_s, found.start_s + found.case.hours * HOUR_S
    tables = environment.fleet.tables(1)
    above_w_K = power.watts_K - (tables.free_w_S * tables.pue_S)[power.site_K] * power.gpus_K
    inside_s_K = inside_s(power, begin_s, end_s)
    above_kw_S = np.bincount(power.site_K, above_w_K * inside_s_K, len(asked_S)) / (end_s - begin_s) / 1000
    ran_S = np.bincount(power.site_K[inside_s_K > 0], minlength=len(asked_S)) > 0
    return [
        f"At {environment.sites[s]} the jobs draw only {_kw(above_kw_S[s])} more than free GPUs, less than the "
        f"{_kw(asked_S[s])} asked."
        if ran_S[s]
        else f"At {environment.sites[s]} no job runs during the event, so nothing can be cut there."
        for s in np.flatnonzero(above_kw_S < asked_S * (1 - TOLERANCE)).tolist()
    ]


def _ways_words(found: OneEvent) -> list[str]:
    """Returns what each set of levers gives and puts off, in a sentence; nothing where all give the same."""
    given = {way: (each.delivered_mwh, each.lost_gpu_hours) for way, each in found.played.items()}
    stayed = ["Moves change nothing in this event: with them as much is given and put off as without."]
    stayed = stayed if given.get("all-move") == given["all"] else []
    if len(set(given.values())) == 1:
        return stayed
    said = (
        f"{found.ways[way].words} ({each.delivered_mwh / each.asked_mwh:.0%} of the energy asked, "
        f"{max(0.0, each.lost_gpu_hours):,.0f} GPU-hours put off)"
        for way, each in found.played.items()
        if way != "all" and way not in CONTROLS and each.asked_mwh > 0
    )
    return [f"By what is done: {'; '.join(said)}.", *stayed]


def _kw(power_kw: float) -> str:
    """Returns a power with at least three significant digits.

    Example:
        >>> _kw(0.5), _kw(1234.5)
        ('0.50 kW', '1,234 kW')
    """
    return f"{power_kw:,.{digits_of(power_kw)}f} kW"


def by_site(found: OneEvent) -> tuple[F8, F8, F8]:
    """Returns per site what it draws without the event, what is asked, and what it gives with all levers, kW.

    What it gives is the mean after the limit has fallen; in each interval at most what was asked counts.
    """
    end_s = found.start_s + found.case.hours * HOUR_S
    fallen_s = found.start_s + min(RAMP_S, found.case.hours * HOUR_S / 2)
    whole, after = (
        slice(round(begin_s / INTERVAL_S), round(end_s / INTERVAL_S)) for begin_s in (found.start_s, fallen_s)
    )
    base_S = found.ride.kw_SN[:, whole].mean(axis=1)
    asked_S = np.where(found.asked_S, found.case.cut * base_S, 0.0)
    less_SN = base_S[:, None] - found.kw_SN["all"][:, after]
    return base_S, asked_S, np.clip(less_SN, 0.0, asked_S[:, None]).mean(axis=1)


def site_table(found: OneEvent) -> TextTable:
    """Returns a row per site: what it draws without the event, what is asked, and what it gives with all levers."""
    base_S, asked_S, given_S = by_site(found)
    rows = []
    for s, site in enumerate(found.ride.environment.sites):
        share = f"{given_S[s] / asked_S[s]:.0%}" if asked_S[s] > 0 else UNDEFINED
        rows.append((site, *(f"{each[s]:,.2f}" for each in (base_S, asked_S, given_S)), share))
    return TextTable(
        title="By site, with all levers",
        header=("site", "without it, kW", "asked less, kW", "given, kW", "share"),
        rows=tuple(rows),
        caption="Means over the event; what is given, after the quarter of an hour over which the limit falls. In each "
        "five minutes at most what was asked counts.",
    )

"""What the objectives of cluster scenarios share: bounds, metrics, tables of service, facts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from noonward.bound.cluster_energy import environment_energy_bound
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.lateness import late_gpu_hours_recorded, late_usd_in_bound
from noonward.bound.cluster_utility.many_jobs import candidate_starts, many_jobs_bound
from noonward.bound.cluster_utility.metered import metered_bound
from noonward.bound.cluster_utility.pieces import Deadline, MapPieces, in_turn
from noonward.bound.cluster_utility.prices import never
from noonward.data.jobs.dated import job_rows
from noonward.data.signals.load import stated_carbon_kinds
from noonward.evaluate.answer import (
    SAME_WORK,
    lasting,
    longest_queue,
    moved_jobs,
    savings,
    spoken,
)
from noonward.evaluate.book_tables import book_metrics, book_table, water_metrics, water_table
from noonward.evaluate.comparison import (
    Bound,
    BoundValue,
    Cell,
    Comparison,
    Objective,
    no_value,
)
from noonward.evaluate.ends import ends_metrics, ends_table
from noonward.evaluate.event_tables import event_metrics, event_table
from noonward.evaluate.evidence import SPANS
from noonward.evaluate.knowing import TOLD, knowing_metrics, knowing_table
from noonward.evaluate.meter_tables import meter_metrics, meter_table
from noonward.evaluate.metrics import Metric
from noonward.evaluate.replay import replay_notes
from noonward.evaluate.service_tables import class_table, constraint_table, service_metrics
from noonward.evaluate.statistics import mean, ratio
from noonward.evaluate.table import TextTable, number
from noonward.ledger.record import Record
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import (
    GeneratedSignals,
    JobTable,
    Scenario,
    SignalFile,
    SignalFiles,
    SignalSource,
    SinusoidalSignals,
)
from noonward.notices import tell

MANY_STARTS: Final = 30_000_000
"""Candidate starts of jobs beyond which the bound of the utility is that of very many jobs (``many_jobs_bound``): the
other would need more than 6 GB for them."""
FEW_CHOICES: Final = 20_000
"""Jobs times sites up to which nobody counts them."""
BOUND_GAP: Final = 0.01
"""Gap to a schedule, as a share of the bound, at which the search for the bound of a long window stops."""

_LEDGER_METRICS: Final = (
    ("gpu_hours", "gpu_hours", "GPU h"),
    ("over_cap_gpu_hours", "over_cap_gpu_hours", "GPU h"),
    ("completed_jobs", "done", "jobs"),
    ("overdue_jobs", "overdue", "jobs"),
    ("unfinished_jobs", "unfinished", "jobs"),
    ("late_gpu_hours", "late_gpu_hours", "GPU h"),
    ("late_usd", "late_usd", "USD"),
    ("energy_kwh", "energy_kwh", "kWh"),
    ("usd_per_gpu_hour", "usd_per_gpu_hour", "USD/(GPU h)"),
    ("g_per_gpu_hour", "g_per_gpu_hour", "gCO2/(GPU h)"),
    ("migrations", "moves", "moves"),
    ("mean_wait_s", "mean_wait_s", "s"),
    ("mean_time_in_system_s", "mean_time_in_system_s", "s"),
    ("p99_time_in_system_s", "p99_time_in_system_s", "s"),
    ("j_per_unit_exact", "joules_per_unit", "J/unit"),
    ("usd_per_unit", "usd_per_unit", "USD/unit"),
    ("g_per_unit", "g_per_unit", "gCO2/unit"),
)
"""Metric, field of the ledger, and unit."""


def ledger_cell(name: str, digits: int = 0, scale: float = 1.0) -> Cell:
    """Returns a cell that shows the mean of a field of the ledger."""
    return lambda comparison, policy: number(mean(scale * comparison.values(policy, name)), digits)


class ClusterObjective(Objective):
    """What both objectives of cluster scenarios share: bounds, metrics, tables of service, facts."""

    bound_values = (
        BoundValue(name="utility_usd", metric="utility_usd/bound", unit="USD"),
        BoundValue(name="best_known_usd", metric="utility_usd/best-known", unit="USD"),
        BoundValue(name="joules_per_unit", metric="j_per_unit_exact/bound", unit="J/unit"),
    )
    bound_in_steps = True
    bound_condition = (
        "the bound of the utility needs economics and 'end: drained', the bound of the energy 'end: window' and one "
        "class of jobs, and both jobs that do not fail"
    )

    def has_pieces(self, environment: Environment) -> bool:
        """Returns whether the bound of the utility is that of very many jobs."""
        utility = environment.failures is None and environment.economics is not None and environment.drained
        return utility and _are_very_many(environment)

    def compute_bound(self, environment: Environment, seconds: float | None = None) -> Bound:
        """Returns the Lagrangian bound of the utility, else the fluid bound of the energy per unit.

        ``utility_usd`` is an upper bound of the utility and ``best_known_usd`` the utility of the best schedule found
        with full knowledge, USD; ``joules_per_unit`` is a lower bound of the energy per unit at any mean time in
        system, J. None of them is there where jobs fail.

        Where late jobs wait at no price, and a log says how late jobs were, the bound is that of schedules which are
        late by no more GPU-hours: ``late_gpu_hours`` says how many. Others could put jobs off for ever.
        """
        return self.bound_in_pieces(environment, seconds, in_turn)

    def bound_in_pieces(self, environment: Environment, seconds: float | None, map_pieces: MapPieces) -> Bound:
        """Returns what ``compute_bound`` does; ``map_pieces`` carries out the pieces of the bound of very many jobs."""
        if environment.failures is not None:
            return Bound()
        if environment.economics is not None and environment.drained:
            late_gpu_hours = late_gpu_hours_recorded(environment)
            if math.isnan(late_gpu_hours):
                return _bound_of_utility(environment, environment, seconds, map_pieces)
            usd = late_usd_in_bound(environment)
            priced = replace(environment, late_usd_per_gpu_hour=usd)
            found = _bound_of_utility(priced, environment, seconds, map_pieces)
            found["utility_usd"] += usd * late_gpu_hours
            return Bound(**found, late_gpu_hours=late_gpu_hours)
        if not environment.drained and len(set(environment.jobs.class_J.tolist())) == 1:
            joules = environment_energy_bound(environment)
            return Bound() if np.isnan(joules) else Bound(joules_per_unit=joules)
        return Bound()

    def gap_metrics(self, bounds: Sequence[Bound]) -> list[Metric]:
        """Returns the distance of the best schedule found from the bound of the utility, over the bound.

        The optimum lies between the two, so it is the most by which the bound may be too high.
        """
        known = [bound for bound in bounds if {"utility_usd", "best_known_usd"} <= bound.keys()]
        if not known:
            return []
        upper_E, found_E = (np.array([bound[name] for bound in known]) for name in ("utility_usd", "best_known_usd"))
        return [Metric.of("optimality_gap", ratio(upper_E - found_E, upper_E).within(0.0), "fraction")]

    def describe_bound(self, bound: Bound) -> str:
        """Returns a bound in words."""
        if "utility_usd" not in bound:
            return f"at least {bound.get('joules_per_unit', math.nan):.3f} J/unit"
        upper, best = bound["utility_usd"], bound.get("best_known_usd", math.nan)
        few = "; capacity is priced with a sample of the jobs" if "standing_for_all" in bound else ""
        few += "; of schedules that are as late as the log at most" if "late_gpu_hours" in bound else ""
        if math.isnan(best):
            unknown = "no schedule was looked for, so its optimality gap is not known"
            return f"utility at most {upper:.2f} USD; {unknown}{few}"
        return (
            f"utility at most {upper:.2f} USD; best schedule known {best:.2f} USD "
            f"(optimality gap {(upper - best) / abs(upper):.2%}){few}"
        )

    def metrics(self, comparison: Comparison) -> list[Metric]:
        """Returns the ledger's means per policy, then the bounds, then constraints and job classes."""
        out: list[Metric] = []
        for policy in comparison.records:
            out += self.value_metrics(comparison, policy)
            for name, field, unit in _LEDGER_METRICS:
                value = comparison.mean(policy, field)
                # Prices may be negative; times, energies, emissions and numbers may not.
                out.append(Metric.of(f"{name}/{policy}", value if "USD" in unit else value.within(0.0), unit))
            out.append(
                Metric.of(f"longest_queue/{policy}", mean(longest_queue(comparison, policy)).within(0.0), "jobs")
            )
            saved = savings(comparison, policy)
            if comparison.scenario.signals is not None:
                out.append(Metric.of(f"saved_usd/{policy}", saved.usd, "USD"))
                out.append(Metric.of(f"saved_kg/{policy}", saved.kg, "kgCO2"))
            out.append(Metric.of(f"mean_delay_s/{policy}", saved.mean_delay_s.within(0.0), "s"))
            out.append(Metric.of(f"moved_jobs/{policy}", moved_jobs(comparison, policy).within(0.0), "jobs"))
            out.append(Metric.of(f"late_jobs/{policy}", saved.late_jobs.within(0.0), "jobs"))
        for each in self.bound_values:
            if not no_value(comparison.bounds, each.name):
                out.append(Metric.of(each.metric, mean(comparison.bound_values(each.name)), each.unit))
        return (
            out
            + self.gap_metrics(comparison.bounds)
            + service_metrics(comparison)
            + knowing_metrics(comparison)
            + ends_metrics(comparison)
            + meter_metrics(comparison)
            + event_metrics(comparison)
            + book_metrics(comparison)
            + water_metrics(comparison)
        )

    def value_metrics(self, comparison: Comparison, policy: str) -> list[Metric]:
        """Returns a policy's metrics of the ranked value."""
        return []

    def consequences(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns moves, delay, late or dropped jobs and work done beside the reference's."""
        saved, base = savings(comparison, policy), savings(comparison, comparison.reference)
        moved, today = moved_jobs(comparison, policy).value, spoken(comparison.reference)
        if comparison.scenario.lateness.rule == "wait":
            missed, of, before = "late", saved.late_jobs.value, base.late_jobs.value
        else:
            missed, (of, before) = (
                "dropped",
                (comparison.mean(each, "overdue").value for each in (policy, comparison.reference)),
            )
        told = [
            f"{moved:,.0f} jobs run away from their home site; starts are delayed by "
            f"{lasting(saved.mean_delay_s.value)} on average ({today}: {lasting(base.mean_delay_s.value)}); "
            f"{of:,.0f} jobs are {missed} ({today}: {before:,.0f})."
        ]
        work = ratio(comparison.values(policy, "gpu_hours"), comparison.values(comparison.reference, "gpu_hours")).value
        if abs(work - 1) > SAME_WORK:
            more = "more" if work > 1 else "fewer"
            told.append(
                f"It runs {100 * abs(work - 1):.1f}% {more} GPU-hours, so the bills are not directly comparable."
            )
        return told

    def tables(self, comparison: Comparison) -> list[TextTable]:
        """Returns latency per class, constraints with what was attained, what run times are worth, how jobs ended."""
        tables = (
            class_table(comparison),
            constraint_table(comparison),
            knowing_table(comparison),
            ends_table(comparison),
            meter_table(comparison),
            event_table(comparison),
            book_table(comparison),
            water_table(comparison),
        )
        return [table for table in tables if table is not None]

    def notes(self, comparison: Comparison) -> list[str]:
        """Returns how far a log could be replayed, and what the environments share, which their intervals rest on."""
        records, notes = comparison.records[comparison.reference], replay_notes(comparison)
        few = [round(bound["standing_for_all"]) for bound in comparison.bounds if "standing_for_all" in bound]
        if few:
            notes.append(
                f"the bound prices capacity with a sample of {min(few):,} jobs or more: it is valid, but other prices "
                "may lower it"
            )
        late = [bound["late_gpu_hours"] for bound in comparison.bounds if "late_gpu_hours" in bound]
        if late:
            notes.append(
                "lateness has no price here, so the bound is that of schedules which start jobs late by no more "
                f"GPU-hours than the log ({sum(late) / len(late):,.0f}); a policy that is later may go below it"
            )
        if len(records) < 2:
            return notes
        if isinstance(comparison.scenario.jobs, JobTable) and job_rows(comparison.scenario.jobs).submit_s_J is None:
            notes.append("every environment has the same jobs, from a file: only the signals differ")
        if isinstance(comparison.scenario.signals, SignalFiles):
            notes += _shared_windows(
                [datetime.fromisoformat(each.manifest["start"]) for each in records], comparison.scenario.window_h
            )
        return notes

    def name_environment(self, comparison: Comparison, record: Record) -> str:
        """Returns the jobs of an environment, after the UTC day it starts on where signals make days matter."""
        jobs = f"{record.ledger.jobs:,} jobs"
        return jobs if comparison.scenario.signals is None else f"{record.manifest['start'][:10]} ({jobs})"

    def facts(self, comparison: Comparison) -> list[tuple[str, str]]:
        """Returns protocol, fleet, horizon, what is told of run times, and signals."""
        scenario = comparison.scenario
        sites = comparison.records[comparison.reference][0].manifest["sites"]
        gpus = sum(int(site["gpus"]) for site in sites)
        listed = ", ".join(f"{site['name']} {site['gpus']}" for site in sites)
        count = f"{len(sites)} site{'s' * (len(sites) != 1)}"
        end = "runs continue until every job is done or dropped" if scenario.end == "drained" else "runs stop there"
        return [
            ("Decision mode", scenario.protocol),
            ("Fleet", f"{count}, {gpus:,} GPUs: {listed}"),
            ("Horizon", f"jobs arrive over {scenario.window_h} hours; {end}"),
            ("Run times", f"policies are told {TOLD[scenario.jobs.knowledge.run_time]}"),
            ("Signals", describe_signals(scenario.signals)),
            *([] if scenario.signals is None else [("Emissions", carbon_scope(scenario))]),
            *([] if scenario.signals is None else [("Start", "every environment starts at 00:00 UTC of its day")]),
        ]


def _are_very_many(environment: Environment) -> bool:
    """Returns whether the jobs of an environment without billed sites have too many candidate starts for memory."""
    few = environment.fleet.billed or len(environment.jobs) * len(environment.sites) <= FEW_CHOICES
    return not few and candidate_starts(environment) > MANY_STARTS


def _bound_of_utility(
    environment: Environment, stated: Environment, seconds: float | None, map_pieces: MapPieces
) -> Bound:
    """Returns the bound of the utility of an environment; how it is found depends on the one that was stated."""
    if environment.fleet.billed:
        metered = metered_bound(environment, seconds=seconds)
        best = {} if math.isnan(metered.lower_usd) else {"best_known_usd": metered.lower_usd}
        return Bound(utility_usd=metered.upper_usd, **best, **({"cut": 1.0} if metered.cut else {}))
    if _are_very_many(stated):
        return _bound_of_many_jobs(environment, seconds, map_pieces)
    where = f"bound, environment {environment.index}"
    found = utility_bound(
        environment,
        progress=lambda done, of: tell("progress", f"{where}: stretch {done} of {of}"),
        seconds=seconds,
        enough=BOUND_GAP,
    )
    best = {} if found.schedule is None else {"best_known_usd": found.lower_usd}
    return Bound(utility_usd=found.upper_usd, **best, **({"cut": 1.0} if found.cut else {}))


def _bound_of_many_jobs(environment: Environment, seconds: float | None, map_pieces: MapPieces) -> Bound:
    """Returns the bound of the utility where there are very many jobs, and how many of them stand for all."""
    late = never if seconds is None else Deadline.after(seconds)
    found = many_jobs_bound(environment, late=late, map_pieces=map_pieces)
    best = {} if math.isnan(found.lower_usd) else {"best_known_usd": found.lower_usd}
    cut = {"cut": 1.0} if found.cut else {}
    return Bound(utility_usd=found.upper_usd, **best, **cut, standing_for_all=float(found.jobs))


def _shared_windows(starts: Sequence[datetime], window_h: int) -> list[str]:
    """Returns that windows coincide or overlap, where they do."""
    distinct = sorted(set(starts))
    if len(distinct) < len(starts):
        return [
            f"the {len(starts)} environments share {len(distinct)} windows: prices and carbon intensities repeat, so "
            "intervals are too narrow"
        ]
    overlap = sum(later - earlier < timedelta(hours=window_h) for earlier, later in itertools.pairwise(distinct))
    if overlap:
        return [f"{overlap} of the {len(starts)} windows overlap the one before, so they are not independent of it"]
    return []


def carbon_scope(scenario: Scenario) -> str:
    """Returns by which method emissions are counted, and what they contain, in a sentence."""
    stated = stated_carbon_kinds(scenario.signals) if isinstance(scenario.signals, SignalFiles) else None
    kind = " and ".join(stated or ["average"])
    untold = " (the signal files do not say otherwise)" if stated == [] else ""
    pue = sorted({site.pue for site in scenario.fleet.sites if isinstance(site.pue, int | float)})
    times = f", times a PUE of {pue[0]:g}" if len(pue) == 1 else ", times each site's PUE" if pue else ""
    return (
        f"location-based, {kind} carbon intensity of each hour's electricity{untold}, life-cycle or direct as its "
        f"publisher counts it; of the power that the fleet states per GPU (only the card unless the host's share was "
        f"added){times}; making the hardware is left out"
    )


def describe_signals(signals: SignalSource | None) -> str:
    """Returns where prices and carbon intensities come from."""
    if signals is None:
        return "none: energy is reported, money and carbon are not"
    if isinstance(signals, GeneratedSignals):
        return (
            f"hourly prices and carbon intensities generated from the statistics of {SPANS[signals.calibration]}, not "
            "recorded ones"
        )
    if isinstance(signals, SinusoidalSignals):
        return "hourly prices and carbon intensities that follow a cosine, the same every day, not recorded ones"
    return "hourly prices and carbon intensities from " + ", ".join(
        (each.path if isinstance(each, SignalFile) else each).name for each in signals.paths
    )

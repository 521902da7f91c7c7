"""Objectives of cluster scenarios: utility where there are economics, else energy per unit of work."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, Final, Literal

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_energy import FluidFrontier, environment_energy_bound, fluid_frontier
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.many_jobs import many_jobs_bound
from noonward.bound.cluster_utility.metered import metered_bound
from noonward.data.environments import build_environment
from noonward.data.jobs.dated import job_rows
from noonward.data.signals.load import stated_carbon_kinds
from noonward.errors import InfeasiblePlanError
from noonward.evaluate.answer import (
    SAME_WORK,
    best_known_values,
    best_to_adopt,
    bills,
    can_run,
    carbon_unit,
    cost_digits,
    energy_unit,
    groups_of,
    interval,
    lasting,
    longest_queue,
    longest_waits,
    mass,
    mean_wait_h,
    money,
    moved_jobs,
    savings,
    spoken,
    utility_digits,
    window_words,
)
from noonward.evaluate.book_tables import book_metrics, book_table, water_metrics, water_table
from noonward.evaluate.comparison import (
    Bound,
    BoundValue,
    Cell,
    Comparison,
    Objective,
    cases_told,
    no_value,
    one_window,
)
from noonward.evaluate.ends import ends_metrics, ends_sentence, ends_table
from noonward.evaluate.event_tables import event_metrics, event_table
from noonward.evaluate.evidence import SPANS, assumed, made_prices
from noonward.evaluate.knowing import TOLD, knowing_metrics, knowing_table, worth
from noonward.evaluate.meter_tables import meter_metrics, meter_table
from noonward.evaluate.metrics import Metric
from noonward.evaluate.replay import replay_notes
from noonward.evaluate.service_tables import class_table, constraint_table, service_metrics
from noonward.evaluate.statistics import Estimate, mean, ratio, size_told
from noonward.evaluate.table import UNDEFINED, Column, Figure, Row, TextTable, number, percent
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
from noonward.units import HOUR_S

MANY_CHOICES: Final = 10_000_000
"""Jobs times sites beyond which the bound of the utility is that of very many jobs (``many_jobs_bound``)."""
BOUND_GAP: Final = 0.01
"""Gap to a schedule, as a share of the bound, at which the search for the bound of a long window stops."""


def objective_of(scenario: Scenario) -> Objective:
    """Returns the objective of a cluster scenario."""
    if scenario.goal == "least-cost":
        return CostObjective()
    return UtilityObjective() if scenario.economics is not None else EnergyObjective()


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

    def compute_bound(self, environment: Environment, seconds: float | None = None) -> Bound:
        """Returns the Lagrangian bound of the utility, else the fluid bound of the energy per unit.

        ``utility_usd`` is an upper bound of the utility and ``best_known_usd`` the utility of the best schedule found
        with full knowledge, USD; ``joules_per_unit`` is a lower bound of the energy per unit at any mean time in
        system, J. None of them is there where jobs fail.
        """
        if environment.failures is not None:
            return Bound()
        if environment.economics is not None and environment.drained and environment.fleet.billed:
            metered = metered_bound(environment, seconds=seconds)
            best = {} if math.isnan(metered.lower_usd) else {"best_known_usd": metered.lower_usd}
            return Bound(utility_usd=metered.upper_usd, **best, **({"cut": 1.0} if metered.cut else {}))
        if environment.economics is not None and environment.drained:
            if len(environment.jobs) * len(environment.sites) > MANY_CHOICES:
                return _bound_of_many_jobs(environment, seconds)
            where = f"bound, environment {environment.index}"
            found = utility_bound(
                environment,
                progress=lambda done, of: tell("progress", f"{where}: stretch {done} of {of}"),
                seconds=seconds,
                enough=BOUND_GAP,
            )
            best = {} if found.schedule is None else {"best_known_usd": found.lower_usd}
            return Bound(utility_usd=found.upper_usd, **best, **({"cut": 1.0} if found.cut else {}))
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


def _bound_of_many_jobs(environment: Environment, seconds: float | None) -> Bound:
    """Returns the bound of the utility where there are very many jobs, and how many of them stand for all."""
    end_s = math.inf if seconds is None else time.monotonic() + seconds
    found = many_jobs_bound(environment, late=lambda: time.monotonic() >= end_s)
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


def _ledger(name: str, digits: int = 0, scale: float = 1.0) -> Cell:
    return lambda comparison, policy: number(mean(scale * comparison.values(policy, name)), digits)


class UtilityObjective(ClusterObjective):
    """Utility, the higher the better, held against the Lagrangian bound (MASAC, Eqs. 2 to 7)."""

    value = "utility_usd"
    value_name = "utility (USD)"
    better: ClassVar[Literal["up", "down"]] = "up"
    bound_value = "utility_usd"
    meaning = (
        "Utility is revenue less the cost of energy, of emissions at the carbon price, and of the transfers of jobs "
        "and results (Zhang et al., MASAC, Eqs. 2 to 7); dropped jobs could not start in time, or were refused."
    )

    def columns(self, comparison: Comparison) -> tuple[tuple[Column, Cell], ...]:
        """Returns utility, paired change, share of the gap, GPU-hours, jobs, cost and emissions, migrations."""
        return (
            (Column("Utility", "USD", "up"), lambda c, p: number(c.mean(p, "utility_usd"), utility_digits(c))),
            (Column("Change against baseline", "%", "up"), lambda c, p: percent(c.gain(p), signed=True)),
            (Column("Share of possible improvement", "%", "up"), lambda c, p: percent(c.improvement_share(p))),
            (Column("GPU-hours", "GPU h", "up"), _ledger("gpu_hours")),
            (Column("Done", "jobs", "up"), _ledger("done")),
            (Column("Dropped", "jobs", "down"), _ledger("overdue")),
            (Column("Energy cost", "USD/(GPU h)", "down"), _ledger("usd_per_gpu_hour", 4)),
            (Column("Emissions", "gCO2/(GPU h)", "down"), _ledger("g_per_gpu_hour", 1)),
            (Column("Migrations", "moves"), _ledger("moves")),
        )

    def saying(self, comparison: Comparison, policy: str) -> str:
        """Returns utility gained and emissions avoided against the reference, in an environment's window."""
        gain = mean(comparison.values(policy, self.value) - comparison.values(comparison.reference, self.value))
        share = self.change(comparison, comparison.values(policy, self.value))
        percentage = "" if math.isnan(share.value) else f" ({'-' if share.value < 0 else ''}{size_told(share.value)})"
        avoided = savings(comparison, policy).kg
        window = window_words(comparison.scenario.window_h)
        return (
            f"has {money(Estimate(gain.value), 'USD')}{percentage} more utility{interval(gain)} and {mass(avoided)} "
            f"than {spoken(comparison.reference)} in {window}"
        )

    def bound_rows(self, comparison: Comparison) -> list[Row]:
        """Returns the upper bound and the best schedule known."""
        if no_value(comparison.bounds, "utility_usd"):
            return []
        upper_E = comparison.bound_values("utility_usd")
        rest = (UNDEFINED,) * (len(self.columns(comparison)) - 3)
        rows = []
        for name, values_E in (("upper bound", upper_E), ("best known schedule", best_known_values(comparison))):
            utility = number(mean(values_E), utility_digits(comparison))
            change, share = self.change(comparison, values_E), self.improvement_share(comparison, values_E)
            cells = (utility, percent(change, signed=True), percent(share), *rest)
            rows.append(Row(name=name, cells=cells, kind="bound"))
        return rows

    def value_metrics(self, comparison: Comparison, policy: str) -> list[Metric]:
        """Returns utility, change and share of the gap."""
        gain = f"gain_over_{comparison.reference}/{policy}"
        return [
            Metric.of(f"utility_usd/{policy}", comparison.mean(policy, "utility_usd"), "USD"),
            Metric.of(gain, comparison.gain(policy), "fraction"),
            Metric.of(f"improvement_share/{policy}", comparison.improvement_share(policy), "fraction"),
        ]

    def figures(self, comparison: Comparison) -> list[Figure]:
        """Returns gains, money, outcomes, utilisation, signals, and phases of jobs that were stopped or capped."""
        from noonward.evaluate.report import cluster_figures, utility_figures
        from noonward.evaluate.report.segments_figure import segments_figures

        return [
            utility_figures.gain_figure(comparison),
            utility_figures.money_figure(comparison),
            utility_figures.outcome_figure(comparison),
            cluster_figures.utilisation_bars(comparison, "sites with low prices and clean power"),
            cluster_figures.utilisation_map(comparison),
            *segments_figures(comparison),
            cluster_figures.signals_figure(comparison),
        ]

    def limits(self, comparison: Comparison) -> list[str]:
        """Returns how tight the bound is, and the cost that no policy can change."""
        sentences, digits = [], utility_digits(comparison)
        if not no_value(comparison.bounds, "utility_usd"):
            upper_E, known_E = comparison.bound_values("utility_usd"), best_known_values(comparison)
            gap = ratio(upper_E - known_E, upper_E)
            sentences.append(
                f"Upper bound: {number(mean(upper_E), digits)} USD. No scheduler earns more, not even one that knows "
                "every job, price and carbon intensity beforehand. The best known feasible schedule (with that "
                f"knowledge) earns {number(mean(known_E), digits)} USD, so the bound is at most {100 * gap.value:.1f}% "
                "too high (its optimality gap)."
            )
        reference, best = comparison.reference, self.ranked(comparison)[0]
        fixed = comparison.mean(reference, "fixed_usd")
        rest = f"Without it {reference} earns {number(comparison.mean(reference, 'controllable_usd'), digits)} USD"
        if best != reference:
            rest += f" and {best} {number(comparison.mean(best, 'controllable_usd'), digits)} USD"
        sentences.append(
            f"Fixed cost: {number(fixed, max(1, digits))} USD per environment for energy and carbon of GPUs kept ready "
            f"over the window, whatever a policy does. {rest}."
        )
        return sentences


class CostObjective(UtilityObjective):
    """Least total cost with all jobs served: energy, carbon, transfers, lateness and waiting, each at its price.

    Schedulers see the scenario's revenue as what serving a GPU-hour is worth, so that they refuse no job that costs
    less; no figure of the comparison contains it. The bound is that of the utility, taken off the revenue of the work
    that today's policy does.
    """

    value = "total_usd"
    value_name = "total cost"
    better = "down"
    meaning = (
        "The total cost ranks the policies and decides: energy, carbon at its price, transfers of jobs and results, "
        "lateness and waiting at their prices. Policies that leave more jobs undone or, where lateness has no price, "
        "more jobs late than today's come last."
    )

    def unmet(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns how many more jobs are not done or, where lateness has no price, late than under today's policy."""
        if policy == comparison.reference:
            return []
        more = undone(comparison, policy) - undone(comparison, comparison.reference)
        each = " per window" if len(comparison.bounds) > 1 else ""
        missed = [f"{_more(more, 'not done')}{each}"] if more > 0 else []
        if not comparison.scenario.lateness.usd_per_gpu_hour:
            late = [savings(comparison, each).late_jobs.value for each in (policy, comparison.reference)]
            if late[0] > late[1]:
                missed.append(f"{_more(late[0] - late[1], 'late')}{each}")
        return missed

    def price_that_admits(self, comparison: Comparison, policies: Sequence[str]) -> list[str]:
        """Returns the price of lateness below which the first policy that more late jobs alone keep out would save."""
        if comparison.scenario.lateness.usd_per_gpu_hour:
            return []
        today = comparison.reference
        for policy in policies:
            saved = self._saved(comparison, policy).value
            hours = [comparison.mean(each, "late_gpu_hours").value for each in (policy, today)]
            if saved <= 0 or hours[0] <= hours[1] or undone(comparison, policy) > undone(comparison, today):
                continue
            usd, unit = saved / (hours[0] - hours[1]) / comparison.currency.usd, comparison.currency.name
            return [
                f"{policy} saves {money(comparison.currency.of(Estimate(saved)), unit)} per window apart from that. "
                f"With a price of lateness (lateness.usd_per_gpu_hour) below {usd:,.3g} {unit} per GPU-hour, it would "
                "still save money and could be proposed."
            ]
        return []

    def notes(self, comparison: Comparison) -> list[str]:
        """Returns that prices were made, where they were, before the other notes."""
        made = made_prices(comparison.scenario)
        return [*([made] if made else []), *super().notes(comparison)]

    def assumptions(self, comparison: Comparison) -> list[str]:
        """Returns that prices were made, where they were, and what an own fleet assumes of jobs and sites."""
        return [told for told in (made_prices(comparison.scenario), assumed(comparison.scenario)) if told]

    def sooner(self, comparison: Comparison) -> list[str]:
        """Returns the policy of least mean delay that meets the constraints at no higher cost than today's."""
        today = comparison.reference
        cost = comparison.mean(today, self.value).value
        delay_s = {
            policy: savings(comparison, policy).mean_delay_s.value
            for policy in comparison.records
            if can_run(comparison.policies[policy])
            and comparison.mean(policy, self.value).value <= cost * (1 + SAME_COST)
            and not self.unmet(comparison, policy)
        }
        now_s = savings(comparison, today).mean_delay_s.value
        best = min(delay_s, key=delay_s.__getitem__, default=today)
        if best == today or not now_s - delay_s[best] > SOONER * now_s:
            return []
        return [
            f"At the same cost {best} starts jobs sooner: {lasting(delay_s[best])} of mean delay "
            f"({spoken(today)}: {lasting(now_s)})."
        ]

    def most_of_possible(self, comparison: Comparison, policy: str) -> float:
        """Returns the share of the improvement that the best schedule known reaches; NaN where none is known."""
        today = comparison.reference
        if no_value(comparison.bounds, "best_known_usd"):
            return math.nan
        base_E = comparison.values(today, self.value)
        least_E = comparison.values(today, "revenue_usd") - best_known_values(comparison)
        return ratio(base_E - comparison.values(policy, self.value), base_E - least_E).value

    def improvement_share(self, comparison: Comparison, values_E: F8) -> Estimate:
        """Returns the share of the possible improvement of the total: from today's down to the bound; at most 1."""
        today = comparison.reference
        base_E = comparison.values(today, self.value)
        least_E = comparison.values(today, "revenue_usd") - comparison.bound_values(self.bound_value)
        share = ratio(base_E - values_E, base_E - least_E)
        return share if share.high is None else replace(share, high=min(share.high, max(1.0, share.value)))

    def columns(self, comparison: Comparison) -> tuple[tuple[Column, Cell], ...]:
        """Returns the total, what it saves, its parts, emissions, energy, delay, late and undone jobs, moves."""
        unit, digits, carbon = comparison.currency.name, cost_digits(comparison), carbon_unit(comparison)
        power = energy_unit(comparison)
        late = [savings(comparison, policy).late_jobs.value for policy in comparison.records]
        late_digits = 0 if all(each.is_integer() for each in late) else 1  # a job in two windows is half a job

        def paid(values_E: F8) -> str:
            return number(comparison.currency.of(mean(values_E)), digits)

        def total(c: Comparison, p: str) -> F8:
            return c.values(p, self.value)

        def part(names: tuple[str, ...]) -> Cell:
            return lambda c, p: paid(np.sum([c.values(p, name) for name in names], axis=0))

        parts = [
            (Column(title, unit, "down"), part(names))
            for title, names in PARTS.items()
            if title == "Energy" or any(comparison.values(p, n).any() for p in comparison.records for n in names)
        ]
        standing = [
            (Column("Electricity of jobs from before", power[0]), _ledger("standing_kwh", power[2], 1 / power[1]))
        ]
        if not any(comparison.values(p, "standing_kwh").any() for p in comparison.records):
            standing = []
        return (
            (Column("Total cost", unit, "down"), lambda c, p: paid(total(c, p))),
            (Column("Saved", unit, "up"), lambda c, p: paid(total(c, c.reference) - total(c, p))),
            (Column("Saved", "%", "up"), lambda c, p: percent(self._share(c, p), signed=True)),
            (Column("Share of the possible improvement", "%", "up"), self._share_of_possible),
            *parts,
            (Column("Mean delay", "min", "down"), lambda c, p: number(_minutes(savings(c, p).mean_delay_s), 1)),
            (Column("Late", "jobs", "down"), lambda c, p: number(savings(c, p).late_jobs, late_digits)),
            (Column("Not done", "jobs", "down"), lambda c, p: number(Estimate(undone(c, p)))),
            (Column("Emissions", carbon[0], "down"), _ledger("carbon_kg", carbon[2], 1 / carbon[1])),
            (Column("Electricity", power[0], "down"), _ledger("energy_kwh", power[2], 1 / power[1])),
            *standing,
            (Column("Moved", "jobs"), lambda c, p: number(moved_jobs(c, p))),
        )

    def bound_rows(self, comparison: Comparison) -> list[Row]:
        """Returns the total that no policy can go below, and that of the best schedule known."""
        if no_value(comparison.bounds, "utility_usd"):
            return []
        today, digits = comparison.reference, cost_digits(comparison)
        base_E, revenue_E = comparison.values(today, self.value), comparison.values(today, "revenue_usd")
        rest = (UNDEFINED,) * (len(self.columns(comparison)) - 4)
        rows = []
        for name, utility_E in (
            ("lower bound", comparison.bound_values("utility_usd")),
            ("best known schedule", best_known_values(comparison)),
        ):
            total_E = revenue_E - utility_E
            paid = (number(comparison.currency.of(mean(each_E)), digits) for each_E in (total_E, base_E - total_E))
            shares = (ratio(base_E - total_E, base_E), self.improvement_share(comparison, total_E))
            cells = (*paid, percent(shares[0], signed=True), percent(shares[1]), *rest)
            rows.append(Row(name=name, cells=cells, kind="bound"))
        return rows

    def value_metrics(self, comparison: Comparison, policy: str) -> list[Metric]:
        """Returns the total, the bill, and the shares saved of each and of the possible improvement."""
        return [
            Metric.of(f"total_usd/{policy}", comparison.mean(policy, self.value), "USD"),
            Metric.of(f"saved_total_usd/{policy}", self._saved(comparison, policy), "USD"),
            Metric.of(f"saved_total_share/{policy}", self._share(comparison, policy), "fraction"),
            Metric.of(f"cost_usd/{policy}", mean(bills(comparison, policy)), "USD"),
            Metric.of(f"saved_share/{policy}", savings(comparison, policy).usd_share, "fraction"),
            Metric.of(f"improvement_share/{policy}", comparison.improvement_share(policy), "fraction"),
        ]

    def claim(self, share: float, today: str) -> str:
        """Returns how much cheaper a policy is than today's."""
        if math.isnan(share):
            return f"cheaper than {today}"
        return f"{size_told(share)} {'cheaper' if share >= 0 else 'dearer'} than {today}"

    def saying(self, comparison: Comparison, policy: str) -> str:
        """Returns what a policy saves of the total cost, per window and per year, and the emissions avoided."""
        saved, share = comparison.currency.of(self._saved(comparison, policy)), self._share(comparison, policy).value
        verb, more = ("saves", "") if saved.value >= 0 else ("costs", " more")
        saved = saved if saved.value >= 0 else -saved
        percentage = "" if math.isnan(share) else f" ({size_told(share, 1)})"
        hours = comparison.scenario.window_h
        year = f", {money(Estimate(saved.value * YEAR_H / hours), comparison.currency.name)} a year"
        year = "" if one_window(comparison) else year  # one window of jobs says nothing of a year
        amount = money(Estimate(saved.value), comparison.currency.name)
        avoided = savings(comparison, policy).kg
        doubtful = avoided.low is not None and avoided.high is not None and avoided.low <= 0 <= avoided.high
        emitted = f"{mass(avoided)}{' (not significant)' if doubtful else ''}"
        return (
            f"{verb} {amount}{percentage}{more}{interval(saved)} per window of {window_words(hours)}{year}, "
            f"with {emitted} than {spoken(comparison.reference)}"
        )

    def consequences(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns the parts of the saving, the worst window, and moves, delay and late jobs beside today's."""
        told = [self._parts_saved(comparison, policy), *self._gpu_share(comparison, policy)]
        if moved_jobs(comparison, policy).value > 0:
            told.append(
                f"What comes from moving jobs and what from waiting: run 'noonward sensitivity' with --policy {policy}."
            )
        saved_E = comparison.values(comparison.reference, self.value) - comparison.values(policy, self.value)
        if len(saved_E) > 1:
            worst = int(saved_E.argmin())
            amount = money(comparison.currency.of(Estimate(abs(float(saved_E[worst])))), comparison.currency.name)
            what = "saved" if saved_E[worst] >= 0 else "paid more"
            day = comparison.records[policy][worst].manifest["start"][:10]
            first = f"Worst of these windows ({day})"
            if one_window(comparison):
                first = "Worst of these draws of prices"
            counted = cases_told(comparison, len(saved_E))
            told.append(f"{first}: {amount} {what}; {int((saved_E < 0).sum())} of {counted} cost more than today.")
        told += [*super().consequences(comparison, policy), *longest_waits(comparison, policy)]
        return [*told, *ends_sentence(comparison, policy)]

    def tables(self, comparison: Comparison) -> list[TextTable]:
        """Returns waits and late jobs per class and per team, today's beside the policy's that the verdict names."""
        return [*(_wait_table(comparison, column) for column in _grouped(comparison)), *super().tables(comparison)]

    def _parts_saved(self, comparison: Comparison, policy: str) -> str:
        """Returns the parts of a saving as a sentence."""
        today, of, unit = comparison.reference, comparison.currency.of, comparison.currency.name
        parts = []
        for title, names in PARTS.items():
            mine, its = (sum(comparison.mean(each, name).value for name in names) for each in (policy, today))
            if not mine and not its:
                continue
            share = (
                f" ({size_told((its - mine) / its, 1)} of the electricity bill)"
                if title == "Energy" and its > 0
                else ""
            )
            less = "less" if mine <= its else "more"
            parts.append(f"{title.lower()} {money(of(Estimate(abs(its - mine))), unit)}{share} {less}")
        return f"Of this: {', '.join(parts)}."

    def _gpu_share(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns what is saved as a share of what the GPUs cost in the window; nothing where no one said what."""
        scenario, unit = comparison.scenario, comparison.currency.name
        assert scenario.economics is not None
        price = scenario.economics.gpu_usd_per_hour
        if not price:
            return []
        gpus = sum(site.gpus for site in scenario.fleet.sites)
        cost_usd = price * gpus * scenario.window_h
        saved = self._saved(comparison, policy)
        paid = money(comparison.currency.of(Estimate(cost_usd)), unit)
        less = "less" if saved.value >= 0 else "more"
        return [
            f"{gpus:,} GPUs at {price / comparison.currency.usd:,.4g} {unit} per hour cost {paid} per window: the "
            f"total is {abs(saved.value) / cost_usd:.2%} of that {less}."
        ]

    def basis(self, comparison: Comparison) -> list[str]:
        """Returns at which prices carbon, lateness and waiting count, and what is a limit where they have none."""
        scenario, unit = comparison.scenario, comparison.currency.name

        def price(usd: float) -> str:
            return f"{usd / comparison.currency.usd:,.4g} {unit}"

        assert scenario.economics is not None
        late, waiting = scenario.lateness.usd_per_gpu_hour, scenario.economics.waiting_usd_per_hour
        told = [f"carbon counts at {price(scenario.economics.carbon_usd_per_t)}/t"]
        if late:
            told.append(f"lateness at {price(late)} per GPU-hour")
        if waiting:
            told.append(f"waiting at {price(waiting)} per hour and job")
        free = [name for name, usd in (("lateness", late), ("waiting", waiting)) if not usd]
        limit = "; no policy is proposed under which more jobs are late or not done than today" if not late else ""
        alone_min = getattr(scenario.jobs, "leave_alone_min", 0.0)
        alone = f"; jobs under {alone_min:g} minutes are not to be delayed" if alone_min else ""
        without = f"; {' and '.join(free)} without a price" if free else ""
        return [f"{', '.join(told)[0].upper()}{', '.join(told)[1:]}{without}{alone}{limit}.", self._told(comparison)]

    def _told(self, comparison: Comparison) -> str:
        """Returns the sentence on what policies are told of run times, and what the truth would be worth."""
        way = comparison.scenario.jobs.knowledge.run_time
        said = f"Policies are told {TOLD[way]}"
        if comparison.knowing is None or way == "known":
            return f"{said}."
        more = comparison.currency.of(worth(comparison, "known"))
        if best_to_adopt(comparison) == comparison.reference:
            return f"{said}."
        less = "more" if more.value >= 0 else "less"
        why = "" if more.value >= 0 else " Jobs known to be short are late unless they start at once."
        more = more if more.value >= 0 else -more
        amount = money(Estimate(more.value), comparison.currency.name)
        would = f"{amount} {less}{interval(more)}"
        return f"{said}; if {comparison.knowing.policy} knew run times, it would save {would}.{why}"

    def limits(self, comparison: Comparison) -> list[str]:
        """Returns the cost that no policy can change, and how tight the bound is."""
        fixed = comparison.mean(comparison.reference, "fixed_kwh")
        told = [
            f"GPUs kept ready over the window draw {fixed.value:,.0f} kWh whatever a policy does: part of every cost."
        ]
        if not no_value(comparison.bounds, "utility_usd"):
            gap = mean(comparison.bound_values("utility_usd") - best_known_values(comparison))
            told.append(
                "The possible improvement rests on a bound of the total that is at most "
                f"{number(comparison.currency.of(gap), cost_digits(comparison))} {comparison.currency.name} too low: "
                "its distance from the best schedule known."
            )
        return told

    def _saved(self, comparison: Comparison, policy: str) -> Estimate:
        return mean(comparison.values(comparison.reference, self.value) - comparison.values(policy, self.value))

    def _share_of_possible(self, comparison: Comparison, policy: str) -> str:
        """Returns the share of the possible improvement; undefined where a policy costs more than today's."""
        share = comparison.improvement_share(policy)
        return UNDEFINED if share.value < 0 else percent(share)

    def _share(self, comparison: Comparison, policy: str) -> Estimate:
        base_E = comparison.values(comparison.reference, self.value)
        return ratio(base_E - comparison.values(policy, self.value), base_E)


PARTS: Final = {
    "Energy": ("energy_usd",),
    "Tariffs": ("tariff_usd",),
    "Carbon": ("carbon_usd",),
    "Transfers": ("move_usd", "result_usd"),
    "Lateness": ("late_usd",),
    "Waiting": ("waiting_usd",),
}
"""Parts of the total cost: their names in tables, and fields of the ledger. They sum to the total."""
SAME_COST: Final = 0.001
"""Two totals are the same where they differ by no more than this share."""
SOONER: Final = 0.1
"""Jobs start sooner where their mean delay is less by more than this share."""
YEAR_H: Final = 8766.0
"""Hours of a year, leap years counted in."""


def _grouped(comparison: Comparison) -> list[str]:
    """Returns the columns among class and team by which jobs fall into several groups."""
    return [name for name in ("class", "team") if len(groups_of(comparison, comparison.reference, name)) > 1]


def _wait_table(comparison: Comparison, column: str) -> TextTable:
    """Returns waits, late and undone jobs by class or team, under today's policy and the one the verdict names."""
    policies = list(dict.fromkeys([comparison.reference, best_to_adopt(comparison)]))
    found, rows = {policy: groups_of(comparison, policy, column) for policy in policies}, []
    for name in sorted({name for groups in found.values() for name in groups}):
        for policy in policies:
            groups = found[policy].get(name, [])
            count = len(comparison.bounds)
            longest_h = max((group.longest_h for group in groups), default=math.nan)
            means = (sum(getattr(g, what) for g in groups) / count for what in ("jobs", "late", "not_done"))
            jobs, late, not_done = (
                number(Estimate(value), 0 if value >= 10 or value % 1 == 0 else 1) for value in means
            )
            waits = (number(Estimate(hours), 1) for hours in (mean_wait_h(groups), longest_h))
            rows.append((name, policy, jobs, *waits, late, not_done))
    return TextTable(
        title=f"Who waits, by {column}",
        header=(column, "policy", "jobs", "mean wait (h)", "longest wait (h)", "late (jobs)", "not done (jobs)"),
        rows=tuple(rows),
        caption="Waits run from a job's arrival to its start. Jobs are means per environment.",
    )


def _more(count: float, what: str) -> str:
    return f"{count:,.4g} more job{'s' * (count != 1)} {what}"


def undone(comparison: Comparison, policy: str) -> float:
    """Returns the jobs that did not finish, mean over the environments."""
    return float((comparison.values(policy, "overdue") + comparison.values(policy, "unfinished")).mean())


def _minutes(seconds: Estimate) -> Estimate:
    spread = None if seconds.spread is None else seconds.spread / 60
    return Estimate(seconds.value / 60, spread=spread)


class EnergyObjective(ClusterObjective):
    """Energy per unit of work, the lower the better, held against the fluid bound."""

    value = "joules_per_unit"
    value_name = "energy per unit (J)"
    better = "down"
    bound_value = "joules_per_unit"

    def columns(self, comparison: Comparison) -> tuple[tuple[Column, Cell], ...]:
        """Returns jobs, energy per unit and its distance from the bound, times, queue; with signals cost and carbon."""

        def beyond(c: Comparison, policy: str) -> str:
            return percent(self.beyond_bound(c, c.values(policy, self.value)))

        without_signals: tuple[tuple[Column, Cell], ...] = (
            (Column("Completed", "jobs", "up"), _ledger("done")),
            (Column("Unfinished", "jobs", "down"), _ledger("unfinished")),
            (Column("Energy per unit, exact", "J/unit", "down"), _ledger("joules_per_unit", 2)),
            (Column("Change against baseline", "%", "down"), lambda c, p: percent(c.gain(p), signed=True)),
            (Column("Above the bound", "%", "down"), beyond),
            (Column("Mean time in system", "s", "down"), _ledger("mean_time_in_system_s")),
            (Column("99th percentile", "s", "down"), _ledger("p99_time_in_system_s")),
            (Column("Mean time, all arrivals so far", "s", "down"), _ledger("mean_time_so_far_s")),
            (Column("Longest queue", "jobs", "down"), lambda c, p: number(mean(longest_queue(c, p)))),
        )
        if comparison.scenario.signals is None:
            return without_signals
        return (
            *without_signals,
            (Column("Energy cost", "USD/million units", "down"), _ledger("usd_per_unit", 3, 1e6)),
            (Column("Emissions", "gCO2/1000 units", "down"), _ledger("g_per_unit", 3, 1e3)),
        )

    def bound_rows(self, comparison: Comparison) -> list[Row]:
        """Returns the lower bound."""
        if no_value(comparison.bounds, self.bound_value):
            return []
        lower_E = comparison.bound_values(self.bound_value)
        cells = [UNDEFINED] * len(self.columns(comparison))
        cells[2:5] = [number(mean(lower_E), 2), percent(self.change(comparison, lower_E), signed=True), "0.0"]
        return [Row(name="lower bound", cells=tuple(cells), kind="bound")]

    def figures(self, comparison: Comparison) -> list[Figure]:
        """Returns energy against latency, distributions of latency, power, routing and utilisation."""
        return energy_figures(comparison, frontier(comparison.scenario, comparison.seed))

    def limits(self, comparison: Comparison) -> list[str]:
        """Returns the bound, and what the fleet draws without any job."""
        sentences = []
        if not no_value(comparison.bounds, self.bound_value):
            lower = number(mean(comparison.bound_values(self.bound_value)), 3)
            sentences.append(
                f"Lower bound: {lower} J/unit at any mean time in system. No scheduler processes the work that "
                "arrives, or any part of it, with less energy per unit; jobs are taken as a fluid."
            )
        fixed = comparison.mean(comparison.reference, "fixed_kwh")
        hours = float(comparison.records[comparison.reference][0].manifest["window_s"]) / HOUR_S
        sentences.append(
            f"A fleet without any job draws {fixed.value / hours:.2f} kW: {fixed.value:,.0f} kWh over the window."
        )
        return sentences


def energy_figures(comparison: Comparison, curve: FluidFrontier | None) -> list[Figure]:
    """Returns the figures of a comparison by energy.

    Args:
        comparison: Comparison.
        curve: Points of the fluid bound's frontier at the work that arrives, or None.
    """
    from noonward.evaluate.report import cluster_figures, energy_figures

    return [
        energy_figures.energy_latency_figure(comparison, curve),
        energy_figures.latency_figure(comparison),
        energy_figures.power_figure(comparison),
        cluster_figures.routing_figure(comparison),
        cluster_figures.utilisation_bars(comparison, "sites that need little energy per unit"),
    ]


def environment_bounds(comparison: Comparison, policy: str) -> F8:
    """Returns the least energy per unit at a policy's own mean time in system (all arrivals) per environment, J.

    NaN where the bound is not defined: runs until drained, or jobs of several classes.
    """
    if comparison.scenario.end != "window":
        return np.full(len(comparison.bounds), np.nan)
    out = []
    for index, time_s in enumerate(comparison.values(policy, "mean_time_so_far_s")):
        environment = build_environment(comparison.scenario, index, comparison.seed)
        one_class = len(set(environment.jobs.class_J.tolist())) == 1
        out.append(environment_energy_bound(environment, float(time_s)) if one_class else np.nan)
    return np.array(out)


def frontier(scenario: Scenario, seed: int) -> FluidFrontier | None:
    """Returns the fluid bound's energy-latency frontier for a scenario's first environment, where it is defined."""
    if scenario.economics is not None or scenario.end != "window":
        return None
    environment = build_environment(scenario, 0, seed)
    jobs = environment.jobs
    arrived = jobs.arrival_s_J <= environment.window_s
    classes = set(jobs.class_J.tolist())
    if len(classes) != 1:
        return None
    try:
        return fluid_frontier(
            environment.fleet,
            work=float(jobs.work_J[arrived].sum()),
            horizon_s=environment.window_s,
            jobs=int(arrived.sum()),
            job_class=environment.fleet.classes[classes.pop()],
            gangs=(int(jobs.gpus_min_J.min()), int(jobs.gpus_max_J.max())),
            points=60,
        )
    except InfeasiblePlanError:
        return None  # more work than the fleet can do: no run does it all

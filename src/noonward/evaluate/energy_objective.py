"""The objective of cluster scenarios without economics: energy per unit of work, the lower the better."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_energy import FluidFrontier, environment_energy_bound, fluid_frontier
from noonward.data.environments import build_environment
from noonward.errors import InfeasiblePlanError
from noonward.evaluate.answer import (
    longest_queue,
)
from noonward.evaluate.cluster_objective import ClusterObjective, ledger_cell
from noonward.evaluate.comparison import (
    Cell,
    Comparison,
    no_value,
)
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import UNDEFINED, Column, Figure, Row, number, percent
from noonward.model.cluster.scenario import (
    Scenario,
)
from noonward.units import HOUR_S


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
            (Column("Completed", "jobs", "up"), ledger_cell("done")),
            (Column("Unfinished", "jobs", "down"), ledger_cell("unfinished")),
            (Column("Energy per unit, exact", "J/unit", "down"), ledger_cell("joules_per_unit", 2)),
            (Column("Change against baseline", "%", "down"), lambda c, p: percent(c.gain(p), signed=True)),
            (Column("Above the bound", "%", "down"), beyond),
            (Column("Mean time in system", "s", "down"), ledger_cell("mean_time_in_system_s")),
            (Column("99th percentile", "s", "down"), ledger_cell("p99_time_in_system_s")),
            (Column("Mean time, all arrivals so far", "s", "down"), ledger_cell("mean_time_so_far_s")),
            (Column("Longest queue", "jobs", "down"), lambda c, p: number(mean(longest_queue(c, p)))),
        )
        if comparison.scenario.signals is None:
            return without_signals
        return (
            *without_signals,
            (Column("Energy cost", "USD/million units", "down"), ledger_cell("usd_per_unit", 3, 1e6)),
            (Column("Emissions", "gCO2/1000 units", "down"), ledger_cell("g_per_unit", 3, 1e3)),
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

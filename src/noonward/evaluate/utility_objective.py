"""The objective of cluster scenarios with economics: utility, the higher the better."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from noonward.evaluate.answer import (
    best_known_values,
    interval,
    mass,
    money,
    savings,
    spoken,
    utility_digits,
    window_words,
)
from noonward.evaluate.cluster_objective import ClusterObjective, ledger_cell
from noonward.evaluate.comparison import (
    Cell,
    Comparison,
    no_value,
)
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio, size_told
from noonward.evaluate.table import UNDEFINED, Column, Figure, Row, number, percent


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
            (Column("GPU-hours", "GPU h", "up"), ledger_cell("gpu_hours")),
            (Column("Done", "jobs", "up"), ledger_cell("done")),
            (Column("Dropped", "jobs", "down"), ledger_cell("overdue")),
            (Column("Energy cost", "USD/(GPU h)", "down"), ledger_cell("usd_per_gpu_hour", 4)),
            (Column("Emissions", "gCO2/(GPU h)", "down"), ledger_cell("g_per_gpu_hour", 1)),
            (Column("Migrations", "moves"), ledger_cell("moves")),
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

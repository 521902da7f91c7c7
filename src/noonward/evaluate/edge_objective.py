"""Objective of edge scenarios: the mean response of image tasks, against a bound, beside quality, loads and energy."""

from __future__ import annotations

import math
from typing import Any, Final, cast

from noonward.arrays import F8
from noonward.bound.edge_environment import MOST_TASKS, bounds_of
from noonward.evaluate.comparison import Bound, BoundValue, Cell, Comparison, Objective, no_value
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.table import UNDEFINED, Column, Figure, Row, number, percent
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.scenario import EdgeScenario, PaperTasks, SessionTasks, TraceTasks

_METRICS: Final = (
    ("p95_response_s", "p95_response_s", "s"),
    ("quality", "quality", "quality"),
    ("reload_rate", "reload_rate", "fraction"),
    ("utility_per_image", "utility", "utility"),
    ("below_quality_min", "below_quality_min", "images"),
    ("late", "late", "images"),
    ("images", "images", "images"),
    ("unlaunched_tasks", "unlaunched", "tasks"),
    ("j_per_image", "joules_per_image", "J/image"),
    ("usd_per_image", "usd_per_image", "USD/image"),
    ("g_per_image", "g_per_image", "gCO2/image"),
    ("questions", "questions", "questions"),
)
"""Metric, field of the ledger, and unit."""
_CHANGES: Final = ("j_per_image", "usd_per_image", "g_per_image")
"""Metrics whose paired change against the reference policy is a metric too."""


def objective_of(scenario: EdgeScenario) -> Objective:
    """Returns the objective of an edge scenario."""
    return EdgeObjective()


def _ledger(name: str, digits: int = 0, scale: float = 1.0) -> Cell:
    return lambda comparison, policy: number(mean(scale * comparison.values(policy, name)), digits)


class EdgeObjective(Objective):
    """Mean response, the lower the better, held against the response bound for tasks of the scenario's steps.

    Quality is a constraint: a policy whose mean quality is below the scenario's ``quality_goal``, or that has more
    images below ``quality_min`` than the compared policy with the fewest, is ranked after all others.
    """

    value = "response_s"
    value_name = "mean response (s)"
    better = "down"
    bound_value = "response_s"
    bound_values = (
        BoundValue(name="response_s", metric="response_s/bound", unit="s"),
        BoundValue(name="best_known_s", metric="response_s/best-known", unit="s"),
        BoundValue(name="at_goal_s", metric="response_s/bound-at-goal", unit="s"),
    )
    bound_condition = f"the bound of the response needs 'end: drained' and at most {MOST_TASKS} tasks"
    meaning = (
        "Response is the time from the submission of a task to its finished image (EAT, Sec. IV); quality depends "
        "only on the inference steps, so policies that miss the scenario's quality are ranked after all others."
    )

    def unmet(self, comparison: Comparison, policy: str) -> list[str]:
        """Returns in words what a policy misses: the goal of the mean quality, or the least quality of images."""
        setting, found = cast("EdgeScenario", comparison.scenario), comparison.mean(policy, "quality")
        missed = []
        if found.value < setting.quality_goal:
            interval = "" if found.low is None else f" [{found.low:.4f}, {found.high:.4f}]"
            missed.append(f"mean quality {found.value:.4f}{interval}, the goal is {setting.quality_goal:g}")
        poor = {name: comparison.mean(name, "below_quality_min").value for name in comparison.records}
        if poor[policy] > min(poor.values()):
            missed.append(
                f"{poor[policy]:.1f} images per environment below the least quality of {setting.quality_min:g}"
            )
        return missed

    def notes(self, comparison: Comparison) -> list[str]:
        """Returns which policies are ranked last because they miss the scenario's quality."""
        missed = {policy: self.unmet(comparison, policy) for policy in self.ranked(comparison)}
        misses = [f"{policy} ({', '.join(what)})" for policy, what in missed.items() if what]
        return [f"ranked after all others, however soon they respond: {'; '.join(misses)}"] if misses else []

    def compute_bound(self, environment: EdgeEnvironment, seconds: float | None = None) -> Bound:
        """Returns the response bound and the best schedule found with foresight, both at the scenario's steps, s."""
        return Bound(bounds_of(environment))

    def describe_bound(self, bound: Bound) -> str:
        """Returns a bound in words."""
        best = f"best schedule known {bound['best_known_s']:.2f} s"
        if "response_s" not in bound:
            return best
        goal = f"; at the goal of quality at least {bound['at_goal_s']:.2f} s" if "at_goal_s" in bound else ""
        return f"mean response at least {bound['response_s']:.2f} s at equal steps{goal}; {best}"

    def columns(self, comparison: Comparison) -> tuple[tuple[Column, Cell], ...]:
        """Returns response, paired change, share of the gap, quality, loads, and energy, cost and carbon per image."""
        columns: tuple[tuple[Column, Cell], ...] = (
            (Column("Response", "s", "down"), _ledger("response_s", 1)),
            (Column("Change against baseline", "%", "down"), lambda c, p: percent(c.gain(p), signed=True)),
            (Column("Share of possible improvement", "%", "up"), lambda c, p: percent(c.improvement_share(p))),
            (Column("95th percentile", "s", "down"), _ledger("p95_response_s", 1)),
            (Column("Quality", "0 to 0.284", "up"), _ledger("quality", 3)),
            (Column("Launches that load", "%", "down"), _ledger("reload_rate", 0, 100.0)),
            (Column("Energy", "J/image", "down"), _ledger("joules_per_image")),
        )
        setting = cast("EdgeScenario", comparison.scenario)
        if setting.quality_min > 0:
            columns = (
                *columns[:5],
                (Column("Images below the least quality", "", "down"), _ledger("below_quality_min", 1)),
                (Column("Utility", "per image", "up"), _ledger("utility", 2)),
                *columns[5:],
            )
        if setting.tasks.deadline_s is not None:
            columns = (*columns, (Column("Late images", "", "down"), _ledger("late", 1)))
        if setting.signals is None:
            return columns
        return (
            *columns,
            (Column("Energy cost", "USD/1000 images", "down"), _ledger("usd_per_image", 3, 1000.0)),
            (Column("Emissions", "gCO2/image", "down"), _ledger("g_per_image", 3)),
        )

    def bound_rows(self, comparison: Comparison) -> list[Row]:
        """Returns the lower bound and the best schedule known."""
        rest = (UNDEFINED,) * (len(self.columns(comparison)) - 3)
        rows = []
        for name, title in (("response_s", "lower bound"), ("best_known_s", "best schedule known")):
            if no_value(comparison.bounds, name):
                continue
            values_E = comparison.bound_values(name)
            change, share = self.change(comparison, values_E), self.improvement_share(comparison, values_E)
            cells = (number(mean(values_E), 1), percent(change, signed=True), percent(share), *rest)
            rows.append(Row(name=title, cells=cells, kind="bound"))
        return rows

    def metrics(self, comparison: Comparison) -> list[Metric]:
        """Returns response, gain and share of the gap, the ledger's means per policy, then the bounds."""
        out: list[Metric] = []
        for policy in comparison.records:
            gain = f"gain_over_{comparison.reference}/{policy}"
            out.append(Metric.of(f"response_s/{policy}", comparison.mean(policy, "response_s"), "s"))
            out.append(Metric.of(gain, comparison.gain(policy), "fraction"))
            out.append(Metric.of(f"improvement_share/{policy}", comparison.improvement_share(policy), "fraction"))
            for name, field, unit in _METRICS:
                value = comparison.mean(policy, field)
                # Utilities and prices may be negative; shares, times and numbers may not.
                free = field == "utility" or "USD" in unit
                possible = value if free else value.within(0.0, 1.0 if unit == "fraction" else math.inf)
                out.append(Metric.of(f"{name}/{policy}", possible, unit))
                if name in _CHANGES and comparison.scenario.signals is not None:
                    base_E = comparison.values(comparison.reference, field)
                    change = ratio(comparison.values(policy, field) - base_E, base_E)
                    out.append(Metric.of(f"{name}_change/{policy}", change, "fraction"))
            missed = Estimate(float(len(self.unmet(comparison, policy))))
            out.append(Metric.of(f"constraints_missed/{policy}", missed, "constraints"))
        for each in self.bound_values:
            if not no_value(comparison.bounds, each.name):
                out.append(Metric.of(each.metric, mean(comparison.bound_values(each.name)), each.unit))
        return out

    def facts(self, comparison: Comparison) -> list[tuple[str, str]]:
        """Returns servers, tasks and steps."""
        setting = cast("EdgeScenario", comparison.scenario)
        tasks = setting.tasks
        drawn = describe_tasks(tasks)
        servers = setting.servers
        powers = f"{servers.idle_w:g} W idle, {servers.load_w:g} W loading, {servers.active_w:g} W generating"
        return [
            ("Servers", f"{servers.count} with one GPU each in {servers.zone}: {powers}"),
            ("Tasks", f"{drawn}; gangs of {', '.join(map(str, sorted(setting.tasks.sizes)))} servers"),
            ("Steps", f"rules and bounds: {setting.steps:g}; a task may have up to {setting.steps_max:g}"),
            *([("Quality", f"at least {setting.quality_goal:g} on average")] if setting.quality_goal else []),
        ]

    def figures(self, comparison: Comparison) -> list[Figure]:
        """Returns responses, and quality against response."""
        from noonward.evaluate.report import edge_figures

        return [edge_figures.response_figure(comparison), edge_figures.quality_figure(comparison)]

    def name_environment(self, comparison: Comparison, record: Any) -> str:
        """Returns the tasks of an environment, after the UTC day it starts on where signals make days matter."""
        tasks = f"{record.ledger.tasks} tasks"
        return tasks if comparison.scenario.signals is None else f"{record.manifest['start'][:10]} ({tasks})"

    def limits(self, comparison: Comparison) -> list[str]:
        """Returns what the bound says and how far the best schedule known is above it."""
        if no_value(comparison.bounds, "response_s"):
            return []
        lower_E, known_E = comparison.bound_values("response_s"), best_known_values(comparison)
        above, steps = ratio(known_E - lower_E, lower_E), cast("EdgeScenario", comparison.scenario).steps
        return [
            f"Lower bound: {number(mean(lower_E), 1)} s for tasks of {steps:g} steps. No scheduler "
            "responds sooner on average with as many steps, not even one that knows every arrival beforehand. The best "
            f"schedule known (with that knowledge) responds in {number(mean(known_E), 1)} s, "
            f"{100 * above.value:.1f}% above it."
        ]


def describe_tasks(tasks: PaperTasks | SessionTasks | TraceTasks) -> str:
    """Returns where the tasks come from, in words."""
    if isinstance(tasks, PaperTasks):
        models = f" for {tasks.models.count} models" if tasks.models.count > 1 else ""
        return f"{tasks.count} tasks at {tasks.rate_per_s:g}/s{models}"
    if isinstance(tasks, SessionTasks):
        return f"requests as in a real trace, {tasks.rate_per_s:g}/s over the day, {tasks.hours:g} h each"
    return f"requests of {tasks.path.name}, {tasks.hours:g} h each"


def best_known_values(comparison: Comparison) -> F8:
    """Returns the mean response of the best schedule known per environment, s."""
    return comparison.bound_values("best_known_s")

"""``reproduce dvfs-training --learned``: learned policies and controls over unseen weeks, paired, against the bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_seed
from noonward.evaluate.answer import longest_queue
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.energy_objective import environment_bounds, frontier
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.page import write_report
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.table import UNDEFINED, TextTable, number_by_seed, percent
from noonward.runtime.executor import Executor
from noonward.schedule.policies import policies as registered
from noonward.schedule.trained_files import PolicyFile, by_family
from noonward.studies.dvfs_training.figures import frontier_figure, paper_figures

if TYPE_CHECKING:
    from noonward.model.cluster.scenario import Scenario

LEARNED: Final = "chsac-af"
"""Names of learned policies of this setting start so."""
CONTROLS: Final = (
    *("uniform", "random-free"),
    *(f"most-free(gpus={gpus})" for gpus in (1, 4, 8)),
    *(f"greedy-energy(gpus={gpus})" for gpus in range(1, 9)),
    *(f"greedy-tradeoff(watts={watts})" for watts in (10, 30, 100, 200, 300, 500, 1000)),
    *(f"sla-energy(target_s={target_s})" for target_s in (900, 1200, 1800, 2700, 3600, 7200)),
)
"""Policies that learned ones are held against."""
REFERENCE: Final = "greedy-energy(gpus=4)"
"""Control that paired changes are measured against."""
PUBLISHED: Final = "chsac-af-published"
"""Learner as its authors' public code trains it."""
RANDOM: Final = "random-free"
"""Masked random policy, which it should then equal."""
TRADEOFFS_W: Final = (
    *(0, 2, 4.5, 5.5, 6.5, 7.5, 8.5, 9, 9.5, 10, 10.25, 10.5, 11, 11.5, 12, 13, 14, 15, 17, 20, 25, 30, 40, 50, 70),
    *(100, 150, 200, 300, 500, 1000),
)
"""Weights of a second, J, of the ``greedy-tradeoff`` that learned policies are held against at equal mean time."""
DRAWN: Final = (
    *("uniform", "random-free", "most-free(gpus=1)"),
    *("greedy-energy(gpus=1)", "greedy-energy(gpus=4)", "greedy-energy(gpus=8)"),
    *("greedy-tradeoff(watts=30)", "greedy-tradeoff(watts=300)", "sla-energy(target_s=1800)"),
)
"""Controls that stand in the figures after CHSAC-AF, Figs. 2 to 4, beside the learned policies."""


@dataclass(frozen=True, kw_only=True)
class ControlStudy:
    """Learned policies and controls over unseen weeks.

    Attributes:
        comparison: The runs.
        tradeoffs: Runs of ``greedy-tradeoff`` under ``TRADEOFFS_W`` in the same weeks.
        tables: Distances to the bound and to the controls; training seeds; the published learner beside chance.
        metrics: Metrics for ``--json``.
        report: HTML report.
    """

    comparison: Comparison
    tradeoffs: Comparison
    tables: tuple[TextTable, ...]
    metrics: list[Metric]
    report: Path


def week() -> Scenario:
    """Returns the scenario of the study."""
    scenario: Scenario = load_scenario("dvfs-training")
    return scenario


def study_policies() -> list[str]:
    """Returns the learned policies that are registered, then the controls."""
    names = [policy.name for policy in registered("on-arrival")]
    return [*(name for name in names if name.startswith(LEARNED)), *CONTROLS]


def study_controls(
    out: Path,
    weeks: int = 10,
    progress: Callable[[str], None] | None = None,
    executor: Executor | None = None,
) -> ControlStudy:
    """Runs learned policies and controls over weeks that no training sees, and writes figures and report.

    Args:
        out: Folder of all records.
        weeks: Number of weeks; each is a draw of its own of the test part (``noonward.data.splits``).
        progress: Called once per run and bound.
        executor: Where runs are carried out; by default here, one after the other.
    """
    scenario = week().model_copy(update={"baseline": REFERENCE})
    seed = split_seed("test", 0)
    comparison = compare(
        scenario, study_policies(), environments=weeks, seed=seed, out=out, progress=progress, executor=executor
    )
    tradeoffs = compare(
        scenario,
        [f"greedy-tradeoff(watts={watts})" for watts in TRADEOFFS_W],
        environments=weeks, seed=seed, out=out, bound=False, progress=progress, executor=executor,
    )  # fmt: skip
    least = least_energies(comparison, tradeoffs)
    curve = frontier(scenario, seed)
    some = drawn_part(comparison)
    seeds = seeds_table(comparison, least)
    tables = (
        distance_table(comparison, least),
        *([] if seeds is None else [seeds]),
        *([published_table(comparison)] if PUBLISHED in comparison.records else []),
    )
    report = write_report(
        comparison,
        out / "reproduce-dvfs-training" / "learned.html",
        command=f"noonward reproduce dvfs-training --learned --seeds {weeks}",
        tables=tables,
        figures=[frontier_figure(comparison, curve), *paper_figures(some, curve)],
    )
    return ControlStudy(
        comparison=comparison,
        tradeoffs=tradeoffs,
        tables=tables,
        metrics=study_metrics(comparison, least),
        report=report,
    )


def drawn_part(comparison: Comparison) -> Comparison:
    """Returns the comparison of the learned policies and a few controls alone."""
    kept = {name: found for name, found in comparison.records.items() if name in DRAWN or name.startswith(LEARNED)}
    return replace(comparison, records=kept)


GREEDY: Final = "greedy-energy("
"""Begin of the names of the greedy controls of a fixed gang."""


LeastEnergies = dict[str, dict[str, np.ndarray]]
"""Energies that policies are held against, J/unit per environment, by name of the distance and by policy."""


def least_energies(comparison: Comparison, tradeoffs: Comparison) -> LeastEnergies:
    """Returns the least energy at every policy's mean time: the bound's, fixed gangs', (other) controls', tradeoffs'.

    Args:
        comparison: Policies over the same weeks.
        tradeoffs: ``greedy-tradeoff`` at many weights over the same weeks.
    """
    policies = list(comparison.records)
    time_E = {policy: comparison.values(policy, "mean_time_so_far_s") for policy in policies}
    return {
        "above_bound": {policy: environment_bounds(comparison, policy) for policy in policies},
        "above_greedy": {policy: controls_energy(comparison, policy, GREEDY) for policy in policies},
        "above_controls": {policy: controls_energy(comparison, policy) for policy in policies},
        "above_tradeoff": {
            policy: frontier_energy(tradeoffs, tuple(tradeoffs.records), time_E[policy]) for policy in policies
        },
    }


def controls_energy(comparison: Comparison, policy: str, family: str = "") -> np.ndarray:
    """Returns the energy of the frontier of the (other) controls at a policy's mean time per environment, J/unit.

    NaN for policies faster than every control, and for the controls at its fast end.

    Args:
        comparison: Policies over the same weeks.
        policy: Policy.
        family: Only controls whose names begin like this.
    """
    others = [name for name in comparison.records if not name.startswith(LEARNED) and name != policy]
    controls = [name for name in others if name.startswith(family)]
    return frontier_energy(comparison, controls, comparison.values(policy, "mean_time_so_far_s"))


def frontier_energy(
    comparison: Comparison, controls: Sequence[str], time_s_E: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Returns the least energy of some controls at a mean time per environment, J/unit.

    It is the lower convex hull of the controls' (mean time, energy per unit) in the same environment: what a router
    reaches that draws a control per job. NaN where the mean time is below that of every control.

    Args:
        comparison: Runs of the controls.
        controls: Their names.
        time_s_E: Mean time over all arrivals per environment, s.
    """
    time_CE = np.array([comparison.values(name, "mean_time_so_far_s") for name in controls])
    energy_CE = np.array([comparison.values(name, "joules_per_unit") for name in controls])
    return np.array([hull_value(time_CE[:, e], energy_CE[:, e], float(at)) for e, at in enumerate(time_s_E)])


def hull_value(x_C: np.ndarray, y_C: np.ndarray, at: float) -> float:
    """Returns the lower convex hull of points at a value of x, flat beyond its lowest point; NaN left of all points.

    Example:
        >>> points = np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 3.5, 2.0, 5.0])
        >>> hull_value(*points, 2.0), hull_value(*points, 9.0), hull_value(*points, 0.5)
        (3.0, 2.0, nan)
    """
    hull: list[tuple[float, float]] = []
    for x, y in sorted(zip(x_C.tolist(), y_C.tolist(), strict=True)):
        if hull and y >= hull[-1][1]:
            continue
        while len(hull) > 1 and _above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    if not hull or at < hull[0][0]:
        return float("nan")
    return float(np.interp(at, [x for x, _ in hull], [y for _, y in hull]))


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Returns whether b lies on or above the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def distances(comparison: Comparison, policy: str, least: LeastEnergies) -> dict[str, Estimate]:
    """Returns how far a policy's energy lies above each least energy at its mean time, as fractions.

    Args:
        comparison: Policies over the same weeks.
        policy: Policy.
        least: What it is held against.
    """
    energy_E = comparison.values(policy, "joules_per_unit")
    return {name: ratio(energy_E - base[policy], base[policy]) for name, base in least.items()}


def distance_table(comparison: Comparison, least: LeastEnergies) -> TextTable:
    """Returns how far every policy lies above the bound and above the other controls, at its own mean time."""
    rows = []
    for policy in comparison.ranked():
        above = distances(comparison, policy, least)
        rows.append(
            (
                policy,
                f"{comparison.mean(policy, 'joules_per_unit').value:.3f}",
                f"{comparison.mean(policy, 'mean_time_so_far_s').value:,.0f}",
                percent(above["above_bound"], digits=3),
                percent(above["above_greedy"], signed=True, digits=3),
                percent(above["above_controls"], signed=True, digits=3),
                percent(above["above_tradeoff"], signed=True, digits=3),
            )
        )
    return TextTable(
        title="Distance to the bound and to the controls at the same mean time",
        header=(
            "policy",
            "energy per unit, exact (J/unit)",
            "mean time, all arrivals (s)",
            "above the fluid bound at that time (%)",
            "above the frontier of greedy-energy(gpus=N) (%)",
            "above the other controls' frontier at that time (%)",
            "above the frontier of greedy-tradeoff(watts=W) (%)",
        ),
        rows=tuple(rows),
        caption="The bound is the least energy per unit of any scheduler with that mean time in system. The controls' "
        "frontier is the lower convex hull of their energies over mean times, week by week; a policy below it does "
        "better than any mix of the controls. That of greedy-tradeoff(watts=W) is over "
        f"{len(TRADEOFFS_W)} weights W, finer than the registered ones. 95% intervals in brackets; undefined for "
        "policies faster than all others.",
    )


def families(comparison: Comparison) -> dict[str, list[PolicyFile]]:
    """Returns the files of every learned policy of several training seeds, by its name."""
    files = [policy.trained for policy in registered("on-arrival", trained=True) if policy.name in comparison.records]
    return {family: found for family, found in by_family(files).items() if len(found) > 1}


def seed_values(
    comparison: Comparison, least: LeastEnergies, files: list[PolicyFile]
) -> list[tuple[str, str, float, list[Estimate]]]:
    """Returns name, unit, scale in tables and value per training seed (mean over weeks) of what seeds differ in."""
    out: list[tuple[str, str, float, list[Estimate]]] = []

    def add(name: str, unit: str, scale: float, value: Callable[[str], Estimate]) -> None:
        out.append((name, unit, scale, [value(file.name) for file in files]))

    add("j_per_unit_exact", "J/unit", 1.0, lambda p: comparison.mean(p, "joules_per_unit"))
    add("mean_time_in_system_s", "s", 1.0, lambda p: comparison.mean(p, "mean_time_in_system_s"))
    add("p99_time_in_system_s", "s", 1.0, lambda p: comparison.mean(p, "p99_time_in_system_s"))
    above = {file.name: distances(comparison, file.name, least) for file in files}
    for name in least:
        add(name, "fraction", 100.0, lambda p, name=name: above[p][name])  # type: ignore[misc]
    limits = [file.meta.get("limits", {}).get("mean_latency_s") for file in files]
    if None not in limits:
        limit_s = dict(zip((file.name for file in files), limits, strict=True))
        time = "mean_time_in_system_s"
        add("over_limit", "fraction", 100.0, lambda p: mean(comparison.values(p, time) / limit_s[p] - 1.0))
    return out


_SEED_ROWS: Final = {
    "j_per_unit_exact": "energy per unit (J/unit)",
    "mean_time_in_system_s": "mean time in system (s)",
    "p99_time_in_system_s": "p99 time in system (s)",
    "above_greedy": "above the frontier of greedy-energy(gpus=N) (%)",
    "above_controls": "above all controls' frontier (%)",
    "above_tradeoff": "above the frontier of greedy-tradeoff(watts=W) (%)",
    "above_bound": "above the fluid bound at that time (%)",
    "over_limit": "mean time above the limit it was trained under (%)",
}


def seeds_table(comparison: Comparison, least: LeastEnergies) -> TextTable | None:
    """Returns how much training seeds differ, beside the spread over weeks; None without several seeds."""
    rows = []
    for family, files in families(comparison).items():
        for name, _, scale, values in seed_values(comparison, least, files):
            digits = 1 if name.endswith("_s") else 3
            scaled = [Estimate(scale * each.value) for each in values]
            halves = [scale * (each.high - each.value) for each in values if each.high is not None]
            rows.append(
                (
                    family,
                    _SEED_ROWS[name],
                    number_by_seed(mean([each.value for each in scaled]), digits),
                    f"{max(halves):.{digits}f}" if halves else UNDEFINED,
                    ", ".join(f"{round(each.value, digits) + 0.0:,.{digits}f}" for each in scaled),  # no "-0.000"
                )
            )
    if not rows:
        return None
    return TextTable(
        title="How much training seeds differ",
        header=("policy", "figure", "mean over seeds ± standard deviation", "95%, over weeks", "by seed"),
        rows=tuple(rows),
        caption="A seed's figure is its mean over the weeks; the column before gives the half-width of that mean's "
        "interval, of the widest seed.",
    )


def against_random(comparison: Comparison) -> list[tuple[str, str, Estimate]]:
    """Returns name, words and paired relative change of the published learner against the masked random policy."""
    out = []
    for name, field, words in (
        ("completed_jobs_vs_random", "done", "completed jobs"),
        ("j_per_unit_vs_random", "joules_per_unit", "energy per unit"),
        ("mean_time_vs_random", "mean_time_in_system_s", "mean time in system"),
        ("p99_time_vs_random", "p99_time_in_system_s", "p99 time in system"),
    ):
        base_E = comparison.values(RANDOM, field)
        out.append((name, words, ratio(comparison.values(PUBLISHED, field) - base_E, base_E)))
    return out


def published_table(comparison: Comparison) -> TextTable:
    """Returns what the published learner gains over chance."""
    return TextTable(
        title=f"{PUBLISHED} against {RANDOM}",
        header=("figure", "paired change (%)"),
        rows=tuple((words, percent(change, signed=True, digits=2)) for _, words, change in against_random(comparison)),
        caption=f"{RANDOM} draws a site with a free GPU and a gang at random. 95% intervals over weeks.",
    )


def study_metrics(comparison: Comparison, least: LeastEnergies) -> list[Metric]:
    """Returns the metrics of the study: means over weeks with 95% intervals, changes paired."""
    metrics = []
    for policy in comparison.records:
        energy_E = comparison.values(policy, "joules_per_unit")
        base_E = comparison.values(REFERENCE, "joules_per_unit")
        above = distances(comparison, policy, least)
        slower_E = comparison.values(policy, "mean_time_in_system_s") - comparison.values(
            REFERENCE, "mean_time_in_system_s"
        )
        for name, estimate, unit in (
            ("completed_jobs", comparison.mean(policy, "done"), "jobs"),
            ("j_per_unit_exact", comparison.mean(policy, "joules_per_unit"), "J/unit"),
            ("mean_time_in_system_s", comparison.mean(policy, "mean_time_in_system_s"), "s"),
            ("p99_time_in_system_s", comparison.mean(policy, "p99_time_in_system_s"), "s"),
            ("longest_queue", mean(longest_queue(comparison, policy)), "jobs"),
            ("j_per_unit_change", ratio(energy_E - base_E, base_E), "fraction"),
            ("mean_time_change_s", mean(slower_E), "s"),
            *((name, estimate, "fraction") for name, estimate in above.items()),
        ):
            metrics.append(Metric.of(f"{name}/{policy}", estimate, unit))
    for family, files in families(comparison).items():
        metrics.append(Metric.of(f"training_seeds/{family}", len(files), "seeds"))
        for name, unit, _, values in seed_values(comparison, least, files):
            metrics.append(Metric.of(f"{name}_over_seeds/{family}", mean([each.value for each in values]), unit))
    if PUBLISHED in comparison.records:
        for name, _, change in against_random(comparison):
            metrics.append(Metric.of(f"{name}/{PUBLISHED}", change, "fraction"))
    metrics.append(Metric.of("j_per_unit_exact/bound", mean(comparison.bound_values("joules_per_unit")), "J/unit"))
    return metrics

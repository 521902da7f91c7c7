"""``reproduce dvfs-training``: Tables II and III of CHSAC-AF on the published runs' own job stream, with controls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.bound_runs import BoundRun
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.energy_objective import frontier
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.cluster_figures import utilisation_bars
from noonward.evaluate.report.page import write_report
from noonward.evaluate.table import TextTable
from noonward.model.cluster.scenario import Scenario
from noonward.runtime.executor import Executor, map_runs
from noonward.runtime.runs import RecordedRun
from noonward.schedule.policies import find_policy
from noonward.studies.dvfs_training.figures import paper_figures
from noonward.studies.dvfs_training.tables import (
    PUBLISHED,
    j_per_unit_paper,
    paper_metrics,
    paper_tables,
    table_ii,
    table_iii,
)

ROUTED: Final = ("dp", "ucb1", "jointnf", "uniform")
"""Policies whose uniform routing is drawn within the job stream, as in the published runs."""
SELF_ROUTED: Final = (
    "random-free",
    "most-free(gpus=1)",
    "greedy-energy(gpus=1)",
    "greedy-energy(gpus=2)",
    "greedy-energy(gpus=4)",
    "greedy-energy(gpus=8)",
)
"""Controls that route by themselves: their stream draws no site, so its later jobs differ."""
SELF_ROUTED_NOTE: Final = (
    f"{', '.join(SELF_ROUTED)} ran on the published stream without its routing draws, as the published "
    "controls do: 96,627 jobs instead of 96,748, the same rates and sizes; the bound and the frontier are that stream's"
)
"""What a reader must know about the controls."""
POLICIES: Final = (*ROUTED, *SELF_ROUTED)
"""All policies of the reproduction."""
CONTROLS: Final = {
    "uniform": (62810.0, 11.66, None),
    "random-free": (96401.0, 9.79, 1533.0),
    "most-free(gpus=1)": (96055.0, 9.15, None),
    "greedy-energy(gpus=1)": (96001.0, 8.48, 4175.0),
    "greedy-energy(gpus=8)": (96525.0, 9.77, 670.0),
}
"""Controls measured on the authors' simulator: completed jobs, J/unit by the paper's counter, mean time in system."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A reproduced set of tables.

    Attributes:
        comparison: The runs; the controls that route by themselves ran on the stream without routing draws.
        tables: Tables II and III.
        metrics: Metrics for ``--json``.
        remarks: What must be said beside the tables.
        folder: Where the records lie.
        report: HTML report.
    """

    comparison: Comparison
    tables: tuple[TextTable, ...]
    metrics: list[Metric]
    remarks: tuple[str, ...]
    folder: Path
    report: Path


def stream_scenario(routed: bool) -> Scenario:
    """Returns ``dvfs-training`` on the published runs' job stream."""
    settings = [f"jobs={{source: paper-stream, routed: {str(routed).lower()}}}"]
    scenario: Scenario = load_scenario("dvfs-training", settings)
    return scenario


def reproduce(
    out: Path, progress: Callable[[str], None] | None = None, executor: Executor | None = None
) -> Reproduction:
    """Runs baselines and controls over the published seven days and writes tables, figures and report.

    Args:
        out: Folder of all records.
        progress: Called once per run and once for the bound.
        executor: Where runs are carried out; by default here, one after the other.
    """
    folder = out / "reproduce-dvfs-training"
    routed, unrouted = stream_scenario(True), stream_scenario(False)
    policies = {name: find_policy(name) for name in POLICIES}
    specs: list[RecordedRun | BoundRun] = [RecordedRun(routed, 0, 0, policies[name], folder) for name in ROUTED]
    specs += [RecordedRun(unrouted, 0, 0, policies[name], folder, notes=(SELF_ROUTED_NOTE,)) for name in SELF_ROUTED]
    *records, bound = map_runs([*specs, BoundRun(unrouted, 0, 0)], executor, progress)
    comparison = Comparison(
        scenario=routed,
        seed=123,
        folder=folder,
        reference="dp",
        policies=policies,
        records={policy: [record] for policy, record in zip(POLICIES, records, strict=True)},
        bounds=[bound.value],
    )
    return Reproduction(
        comparison=comparison,
        tables=(table_ii(comparison), table_iii(comparison)),
        metrics=[*paper_metrics(comparison), *control_metrics(comparison)],
        remarks=_remarks(comparison),
        folder=folder,
        report=write_report(
            comparison,
            folder / "report.html",
            figures=[
                *paper_figures(comparison, frontier(stream_scenario(False), 0)),
                utilisation_bars(comparison, "sites that need little energy per unit"),
            ],
            tables=paper_tables(comparison),
            command="noonward reproduce dvfs-training",
        ),
    )


def control_metrics(comparison: Comparison) -> list[Metric]:
    """Returns the controls' figures, times in system of all policies, and the bound."""
    metrics = []
    for policy, (record,) in comparison.records.items():
        ledger = record.ledger
        completed, counted, mean_time_s = CONTROLS.get(policy, (None, None, None))
        if policy not in PUBLISHED:
            metrics += [
                Metric.of(f"completed_jobs/{policy}", ledger.done, "jobs", completed),
                Metric.of(f"j_per_unit_paper/{policy}", j_per_unit_paper(record), "J/unit", counted),
                Metric.of(f"j_per_unit_exact/{policy}", ledger.joules_per_unit, "J/unit"),
            ]
        metrics += [
            Metric.of(f"mean_time_in_system_s/{policy}", ledger.mean_time_in_system_s, "s", mean_time_s),
            Metric.of(f"p99_time_in_system_s/{policy}", ledger.p99_time_in_system_s, "s"),
        ]
    least = comparison.bound_values("joules_per_unit")[0]
    metrics.append(Metric.of("j_per_unit_exact/bound", least, "J/unit"))
    return metrics


def _remarks(comparison: Comparison) -> tuple[str, ...]:
    """Returns the sentences that stand under the tables."""
    exact = all(
        comparison.records[policy][0].ledger.done == PUBLISHED[policy].completed for policy in ("dp", "ucb1", "jointnf")
    )
    free = comparison.records["random-free"][0]
    greedy = comparison.records["greedy-energy(gpus=8)"][0]
    return (
        f"The published baselines are reproduced {'exactly' if exact else 'NOT exactly: see the table'}.",
        "CHSAC-AF's published row (96,399 jobs, 9.77 J/unit, no queue) takes no learning: routing to sites with a free "
        f"GPU reaches it: at random, {free.ledger.done:,} jobs at {j_per_unit_paper(free):.2f} J/unit; greedily with "
        f"8 GPUs, {greedy.ledger.done:,} jobs at {j_per_unit_paper(greedy):.2f} J/unit (paper's counter).",
        f"No policy can use less than {comparison.bound_values('joules_per_unit')[0]:.2f} J/unit (exact) at any "
        "latency.",
    )

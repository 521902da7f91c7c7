"""How jobs ended, as their log says: GPU-hours of jobs that were done, and of those that failed or were cancelled."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.job_figures import Group, job_figures
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.table import TextTable, number, percent

WORDS: Final = {
    "done": "done",
    "failed": "failed by their own fault",
    "cancelled": "cancelled by their user or the scheduler",
    "timeout": "stopped at their time limit",
    "node-fail": "lost with their node",
    "–": "the log does not say",
}
"""States of a job table in words."""


def _groups_E(comparison: Comparison, policy: str) -> list[dict[str, Group]]:
    """Returns the figures of a policy's jobs by state per environment; empty where no log says how jobs ended."""
    return [job_figures(record).groups.get("state", {}) for record in comparison.records[policy]]


def gpu_hours_E(comparison: Comparison, policy: str, *, useful: bool) -> F8:
    """Returns the GPU-hours per environment of jobs that were done, or of those that were not, as the log says."""
    return np.array(
        [
            sum(group.gpu_hours for state, group in groups.items() if (state in ("done", "–")) == useful)
            for groups in _groups_E(comparison, policy)
        ]
    )


def knows_ends(comparison: Comparison) -> bool:
    """Returns whether the log says of any job that it was not done."""
    return any(set(groups) - {"done", "–"} for groups in _groups_E(comparison, comparison.reference))


def ends_sentence(comparison: Comparison, policy: str) -> list[str]:
    """Returns a sentence on the work of a policy that came to nothing; none where no job finished, or no log says."""
    if not knows_ends(comparison):
        return []
    lost, useful = (float(gpu_hours_E(comparison, policy, useful=each).mean()) for each in (False, True))
    if not lost + useful:
        return []  # no job finished
    return [
        f"Of its {lost + useful:,.0f} GPU-hours, {lost:,.0f} ({lost / (lost + useful):.1%}) are of jobs that the log "
        f"says failed, were cancelled, ran into their limit or lost their node; {useful:,.0f} are useful."
    ]


def ends_table(comparison: Comparison) -> TextTable | None:
    """Returns jobs and GPU-hours by how jobs ended under today's policy, or None where the log does not say."""
    if not knows_ends(comparison):
        return None
    groups_E = _groups_E(comparison, comparison.reference)
    total = sum(group.gpu_hours for groups in groups_E for group in groups.values())
    rows = []
    for state, words in WORDS.items():
        groups = [groups[state] for groups in groups_E if state in groups]
        if groups:
            hours = sum(group.gpu_hours for group in groups)
            count = Estimate(sum(group.jobs for group in groups) / len(groups_E))
            rows.append(
                (words, number(count), number(Estimate(hours / len(groups_E))), percent(ratio([hours], [total])))
            )
    return TextTable(
        title="How the jobs ended",
        header=("jobs", "jobs per window", "GPU-hours", "share (%)"),
        rows=tuple(rows),
        caption=f"As the log says, under {comparison.reference}; means of a window. GPU-hours are those of jobs that "
        "ended within the run. Every policy runs the same jobs for as long: what failed is paid for, and is no useful "
        "work.",
    )


def ends_metrics(comparison: Comparison) -> list[Metric]:
    """Returns the metrics for ``--json``; none where the log does not say how jobs ended."""
    if not knows_ends(comparison):
        return []
    out = []
    for policy in comparison.records:
        for name, useful in (("useful", True), ("lost", False)):
            hours = mean(gpu_hours_E(comparison, policy, useful=useful)).within(0.0)
            out.append(Metric.of(f"{name}_gpu_hours/{policy}", hours, "GPU h"))
    return out

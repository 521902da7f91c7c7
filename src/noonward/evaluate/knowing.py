"""What knowing run times would be worth: one policy of a comparison told the truth, what a log says, or limits."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.data.jobs.dated import job_rows
from noonward.evaluate.answer import interval
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.job_figures import job_figures
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import Estimate, mean, ratio
from noonward.evaluate.table import TextTable, number, percent
from noonward.model.cluster.knowledge import RunTimeKnowledge
from noonward.model.cluster.scenario import JobTable, Scenario

WAYS: Final[tuple[RunTimeKnowledge, ...]] = ("known", "learned", "limit")
"""What a policy is told of run times, in the order of the table."""
TOLD: Final = {
    "known": "each job's true run time, which is never known in advance",
    "learned": "the run times of similar past jobs, at most each job's limit",
    "limit": "the limit that each job's user stated",
    "class-mean": "the mean run time of each job's class",
}
"""What a policy is told, in words."""


def ways_of(scenario: Scenario) -> tuple[RunTimeKnowledge, ...]:
    """Returns the ways of a scenario with a job table that has limits; none for other scenarios."""
    table = scenario.jobs
    if not isinstance(table, JobTable) or scenario.economics is None:
        return ()
    if job_rows(table).details["limit_s"].is_null().all():
        return ()
    return tuple(dict.fromkeys([*WAYS, table.knowledge.run_time]))


def told(scenario: Scenario, way: RunTimeKnowledge) -> Scenario:
    """Returns a scenario whose policies are told of run times in a way."""
    knowledge = scenario.jobs.knowledge.model_copy(update={"run_time": way})
    return scenario.model_copy(update={"jobs": scenario.jobs.model_copy(update={"knowledge": knowledge})})


def better_E(comparison: Comparison, way: RunTimeKnowledge) -> F8:
    """Returns by how much the policy told a way is better than today's policy per window, in what ranks (USD)."""
    assert comparison.knowing is not None
    objective = comparison.objective
    values_E = np.array([float(getattr(r.ledger, objective.value)) for r in comparison.knowing.by_way[way]])
    base_E = comparison.values(comparison.reference, objective.value)
    return np.asarray(values_E - base_E if objective.better == "up" else base_E - values_E)


def worth(comparison: Comparison, way: RunTimeKnowledge) -> Estimate:
    """Returns how much better a way is than what the scenario tells its policies, paired, USD."""
    return mean(better_E(comparison, way) - better_E(comparison, comparison.scenario.jobs.knowledge.run_time))


def knowing_table(comparison: Comparison) -> TextTable | None:
    """Returns the policy under every way, or None where nothing was run."""
    knowing = comparison.knowing
    if knowing is None:
        return None
    unit, own = comparison.currency.name, comparison.scenario.jobs.knowledge.run_time
    base_E = comparison.values(comparison.reference, comparison.objective.value)
    digits = 0 if abs(base_E.mean()) >= 1000 else 1 if abs(base_E.mean()) >= 100 else 2
    rows = []
    for way, records in knowing.by_way.items():
        figures = [job_figures(record) for record in records]
        undone = [record.ledger.overdue + record.ledger.unfinished for record in records]
        rows.append(
            (
                f"{way}{' (this comparison)' if way == own else ''}",
                _amount(comparison.currency.of(mean(better_E(comparison, way))), digits),
                percent(ratio(better_E(comparison, way), base_E), signed=True),
                "" if way == own else _amount(comparison.currency.of(worth(comparison, way)), digits),
                number(Estimate(float(np.mean([each.late for each in figures]))), 1),
                number(Estimate(float(np.mean(undone))), 1),
            )
        )
    told_ways = "; ".join(f"{way}: {TOLD[way]}" for way in knowing.by_way)
    return TextTable(
        title=f"What knowing run times would be worth: {knowing.policy}",
        header=(
            "policy is told",
            f"better than {comparison.reference} ({unit})",
            "(%)",
            f"than in this comparison ({unit})",
            "late (jobs)",
            "not done (jobs)",
        ),
        rows=tuple(rows),
        caption=f"What the policy is told: {told_ways}. The same windows for all; only this policy ran in the other "
        "ways; 95% intervals. "
        "A job that is said to be short has no slack and is late unless it starts at once, so late jobs depend on "
        "what is told.",
    )


def knowing_metrics(comparison: Comparison) -> list[Metric]:
    """Returns the metrics for ``--json``; none where nothing was run."""
    if comparison.knowing is None:
        return []
    out = []
    for way in comparison.knowing.by_way:
        name = f"{comparison.knowing.policy}@{way}"
        out.append(Metric.of(f"knowing/better_usd/{name}", mean(better_E(comparison, way)), "USD"))
        out.append(Metric.of(f"knowing/worth_usd/{name}", worth(comparison, way), "USD"))
    return out


def _amount(value: Estimate, digits: int) -> str:
    return f"{value.value:,.{digits}f}{interval(value, digits)}"

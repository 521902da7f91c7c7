"""Tables II and III of CHSAC-AF from run records, with the paper's values beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import UNDEFINED, TextTable, number
from noonward.ledger.record import Record
from noonward.model.cluster.scenario import PaperStreamJobs
from noonward.units import DAY_S, WATT_SECONDS_PER_KWH

TICK_S: Final = 20.0
"""Interval at which the paper's simulator logs, s."""
DAYS: Final = (2, 3, 4, 5, 6, 7)
"""Days at whose ends Table III counts queues."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the paper prints about a policy.

    Attributes:
        label: The paper's name.
        completed: Completed jobs (Table II).
        joules_per_unit: Energy by load, J/unit (Table II), with the paper's unit counter.
        queue: Queue at the end of days 2 to 7, jobs (Table III).
    """

    label: str
    completed: int
    joules_per_unit: float
    queue: tuple[int, ...]


PUBLISHED: Final = {
    "dp": Published(
        label="DP", completed=60595, joules_per_unit=11.80, queue=(9996, 15166, 20271, 25672, 30957, 36083)
    ),
    "ucb1": Published(
        label="UCB1", completed=63111, joules_per_unit=11.70, queue=(9401, 14224, 19007, 24055, 28868, 33572)
    ),
    "jointnf": Published(
        label="JointNF", completed=67396, joules_per_unit=10.34, queue=(8059, 12228, 16382, 20712, 24889, 28908)
    ),
    "chsac-af": Published(label="CHSAC-AF", completed=96399, joules_per_unit=9.77, queue=(0,) * 6),
}
"""Tables II and III of CHSAC-AF (seed 123, 7 days), by the policy's name here."""


def paper_units(record: Record) -> float:
    """Returns the units of work that the paper's counter sees.

    At every log tick k of 20 s it adds ``rate x 20`` for each running job, and at each finish ``rate x (t mod 20)``. A
    job started at a and finished at b within the horizon H adds ``rate (b - 20 floor(a / 20))``, a job that still runs
    adds ``20 rate (floor(H / 20) - floor(a / 20))``: the time from the last tick before its start counts as work, so
    the counter is too high.
    """
    jobs = record.jobs
    start, finish, rate = (jobs[name].to_numpy() for name in ("start_s", "finish_s", "units_per_s"))
    horizon_s = float(record.manifest["ended_s"])
    started = start <= horizon_s
    first_tick_s = TICK_S * np.floor(start / TICK_S)
    last_s = np.where(finish <= horizon_s, finish, TICK_S * np.floor(horizon_s / TICK_S))
    return float((rate * (last_s - first_tick_s))[started].sum())


def j_per_unit_paper(record: Record) -> float:
    """Returns the fleet's energy per unit by the paper's counter, J; NaN without any work. See ``paper_units``."""
    units = paper_units(record)
    return record.ledger.energy_kwh * WATT_SECONDS_PER_KWH / units if units else float("nan")


def queues_at(record: Record, days: Sequence[float]) -> list[int]:
    """Returns the jobs that wait at all sites at the ends of some days: reached a site by then, not started by then."""
    jobs = record.jobs
    reach, start = jobs["reach_s"].to_numpy(), jobs["start_s"].to_numpy()
    return [int(((reach <= day * DAY_S) & ~(start <= day * DAY_S)).sum()) for day in days]


def published_policies(comparison: Comparison) -> list[str]:
    """Returns the policies of a comparison that the paper's tables show, in the paper's order."""
    return [policy for policy in PUBLISHED if policy in comparison.records]


def _rows_of(comparison: Comparison) -> list[str]:
    published = published_policies(comparison)
    return published + [policy for policy in comparison.records if policy not in published]


def _draws(comparison: Comparison) -> str:
    """Returns the sentence that is due where the jobs are not the very ones of the published runs."""
    if isinstance(comparison.scenario.jobs, PaperStreamJobs):
        return ""
    return " The jobs are other draws of the paper's distributions than the published runs'."


def paper_tables(comparison: Comparison) -> list[TextTable]:
    """Returns Tables II and III where a comparison shows one of its policies over its seven days."""
    if comparison.objective.value != "joules_per_unit" or not published_policies(comparison):
        return []
    if float(comparison.records[comparison.reference][0].manifest["window_s"]) < DAYS[-1] * DAY_S:
        return []
    return [table_ii(comparison), table_iii(comparison)]


def table_ii(comparison: Comparison) -> TextTable:
    """Returns completed jobs and energy per unit, by the paper's counter and exactly."""
    rows = []
    for policy in _rows_of(comparison):
        records, paper = comparison.records[policy], PUBLISHED.get(policy)
        rows.append(
            (
                policy,
                number(comparison.mean(policy, "done")),
                UNDEFINED if paper is None else f"{paper.completed:,}",
                number(mean([j_per_unit_paper(record) for record in records]), 2),
                UNDEFINED if paper is None else f"{paper.joules_per_unit:.2f}",
                number(comparison.mean(policy, "joules_per_unit"), 2),
            )
        )
    return TextTable(
        title="Completed jobs and energy per unit (CHSAC-AF, Table II)",
        header=(
            "policy",
            "completed (jobs)",
            "the paper's (jobs)",
            "by the paper's counter (J/unit)",
            "the paper's (J/unit)",
            "exact (J/unit)",
        ),
        rows=tuple(rows),
        caption="The paper's counter adds up to 20 s too much work per job; the exact figure is the one to compare by."
        + _draws(comparison),
    )


def table_iii(comparison: Comparison) -> TextTable:
    """Returns the queue at the end of days 2 to 7."""
    rows = []
    for policy in _rows_of(comparison):
        queues = np.array([queues_at(record, DAYS) for record in comparison.records[policy]])
        rows.append((policy, *(number(mean(queue_E)) for queue_E in queues.T)))
        if policy in PUBLISHED:
            rows.append((f"{PUBLISHED[policy].label}, paper", *(f"{queue:,}" for queue in PUBLISHED[policy].queue)))
    return TextTable(
        title="Jobs that wait at the end of each day (CHSAC-AF, Table III)",
        header=("policy", *(f"day {day} (jobs)" for day in DAYS)),
        rows=tuple(rows),
        caption="Fewer is better; a queue that grows by the day is never served." + _draws(comparison),
    )


def paper_metrics(comparison: Comparison) -> list[Metric]:
    """Returns the values of Tables II and III of the policies that the paper shows, with its values as references."""
    metrics = []
    for policy in published_policies(comparison):
        records, paper = comparison.records[policy], PUBLISHED[policy]
        counted = mean([j_per_unit_paper(record) for record in records])
        metrics += [
            Metric.of(f"completed_jobs/{policy}", comparison.mean(policy, "done"), "jobs", paper.completed),
            Metric.of(f"j_per_unit_paper/{policy}", counted, "J/unit", paper.joules_per_unit),
            Metric.of(f"j_per_unit_exact/{policy}", comparison.mean(policy, "joules_per_unit"), "J/unit"),
        ]
        ours_ED = np.array([queues_at(record, DAYS) for record in records])
        for day, ours_E, queue in zip(DAYS, ours_ED.T, paper.queue, strict=True):
            metrics.append(Metric.of(f"queue_day_{day}/{policy}", mean(ours_E), "jobs", queue))
    return metrics

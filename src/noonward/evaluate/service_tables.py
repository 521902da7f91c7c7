"""Latency per job class and the constraints of a scenario: what was attained, beside target and limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noonward.evaluate.metrics import Metric
from noonward.evaluate.results import UNDEFINED, number, percent
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import TextTable
from noonward.ledger.record import Record
from noonward.schedule.cluster.trained_policy import read_meta
from noonward.schedule.registry import policies

if TYPE_CHECKING:
    from noonward.evaluate.compare import Comparison


@dataclass(frozen=True, kw_only=True)
class Held:
    """A constraint and what a policy attained.

    Attributes:
        name: What is limited, e.g. ``mean_latency_s`` or ``queue/us-west``.
        unit: Unit of limit and values.
        limit: Limit; attained values at or below it keep it.
        attained_E: Value per environment.
        exceeded_E: Share of the window in which a power cap was exceeded; NaN for other constraints.
    """

    name: str
    unit: str
    limit: float
    attained_E: np.ndarray
    exceeded_E: np.ndarray


def held_constraints(comparison: Comparison, policy: str) -> list[Held]:
    """Returns the scenario's constraints with what a policy attained; none where the scenario has none."""
    limits, records = comparison.scenario.constraints, comparison.records[policy]
    if limits is None:
        return []

    def held(name: str, unit: str, limit: float, value: Callable[[Record], float]) -> Held:
        attained_E = np.array([value(record) for record in records])
        return Held(name=name, unit=unit, limit=limit, attained_E=attained_E, exceeded_E=np.full(len(records), np.nan))

    out = []
    if limits.mean_latency_s is not None:
        out.append(held("mean_latency_s", "s", limits.mean_latency_s, lambda r: r.ledger.mean_time_in_system_s))
    if limits.p99_latency_s is not None:
        out.append(held("p99_latency_s", "s", limits.p99_latency_s, lambda r: r.ledger.p99_time_in_system_s))
    for site in (one.name for one in comparison.scenario.fleet.sites):
        queue = limits.queue_limit(site)
        if queue is not None:
            out.append(held(f"queue/{site}", "jobs", queue, lambda r, at=site: r.service.sites[at].mean_queue))  # type: ignore[misc]
        if site in limits.power_cap_w:
            services = [record.service.sites[site] for record in records]
            out.append(
                Held(
                    name=f"power_w/{site}",
                    unit="W",
                    limit=limits.power_cap_w[site],
                    attained_E=np.array([one.peak_power_w for one in services]),
                    exceeded_E=np.array([one.over_cap_share for one in services], dtype=np.float64),
                )
            )
    return out


def constraint_table(comparison: Comparison) -> TextTable | None:
    """Returns every policy's constraints, or None where the scenario limits nothing."""
    if comparison.scenario.constraints is None:
        return None
    rows = []
    for policy in comparison.ranked():
        multipliers = trained_multipliers(policy)
        for held in held_constraints(comparison, policy):
            kept = int((held.attained_E <= held.limit).sum())
            rows.append(
                (
                    policy,
                    held.name,
                    f"{held.limit:,g} {held.unit}",
                    number(mean(held.attained_E), 1),
                    f"{kept} of {len(held.attained_E)}",
                    percent(mean(held.exceeded_E)),
                    multipliers.get((held.name, held.limit), UNDEFINED),
                )
            )
    if not rows:
        return None
    return TextTable(
        title="Constraints",
        header=(
            "policy",
            "constraint",
            "limit",
            "attained",
            "environments that keep it",
            "time above a power cap (%)",
            "multiplier",
        ),
        rows=tuple(rows),
        caption="Latencies are those of done jobs, from arrival to finish; a queue is the time-mean of the jobs that "
        "wait at a site; a power is the highest of the window. Limits are held against the runs, they stop no job. The "
        "multiplier is that of a policy that was trained under this very limit, J per unit per relative excess.",
    )


def trained_multipliers(policy: str) -> dict[tuple[str, float], str]:
    """Returns the multipliers that a learned policy was trained to, by name and limit; none for other policies."""
    if policy.endswith(".npz"):
        meta = read_meta(Path(policy))
    else:
        packaged = {each.name: each.trained.meta for each in policies(trained=True, kind="cluster") if each.trained}
        meta = packaged.get(policy, {})
    found = meta.get("constraints", {})
    return {
        (name, limit): f"{found[f'multiplier/{name}']:.3g}"
        for name, limit in meta.get("limits", {}).items()
        if f"multiplier/{name}" in found  # algorithms without multipliers know the limit all the same
    }


def class_table(comparison: Comparison) -> TextTable | None:
    """Returns latency per job class, or None where the jobs are of one class without a latency target."""
    limits = comparison.scenario.constraints
    shown = classes_of(comparison)
    if len(shown) < 2 and not (limits and limits.latency_target_s):
        return None
    rows = []
    for policy in comparison.ranked():
        for name in shown:
            target = None if limits is None else limits.latency_target_s.get(name)
            values = {field: class_values(comparison, policy, name, field) for field in _CLASS_FIELDS}
            rows.append(
                (
                    policy,
                    name,
                    number(mean(values["done"])),
                    number(mean(values["mean_time_in_system_s"]), 1),
                    number(mean(values["p99_time_in_system_s"]), 1),
                    UNDEFINED if target is None else f"{target:,g}",
                    percent(mean(values["within_target"])),
                )
            )
    return TextTable(
        title="Latency per class of jobs",
        header=("policy", "class", "done (jobs)", "mean (s)", "99th percentile (s)", "target (s)", "within it (%)"),
        rows=tuple(rows),
        caption="Time from arrival to finish: transfer, wait and run. Jobs that were dropped, or had already taken "
        "longer than the target when the run ended, count as missing it.",
    )


_CLASS_FIELDS = ("done", "mean_time_in_system_s", "p99_time_in_system_s", "within_target")


def classes_of(comparison: Comparison) -> list[str]:
    """Returns the classes of the jobs that arrived, in the fleet's order."""
    arrived = {name for record in comparison.records[comparison.reference] for name in record.service.classes}
    return [name for name in comparison.scenario.fleet.classes if name in arrived]


def class_values(comparison: Comparison, policy: str, name: str, field: str) -> np.ndarray:
    """Returns a figure of one job class per environment; NaN where none of it arrived."""
    found = [record.service.classes.get(name) for record in comparison.records[policy]]
    return np.array([None if one is None else getattr(one, field) for one in found], dtype=np.float64)


def service_metrics(comparison: Comparison) -> list[Metric]:
    """Returns the metrics of constraints (their limits as references) and, with several classes, of each class."""
    metrics = []
    shown = classes_of(comparison)
    for policy in comparison.records:
        for held in held_constraints(comparison, policy):
            name, _, at = held.name.partition("/")
            tail = f"/{at}" if at else ""
            metrics.append(Metric.of(f"constraint_{name}/{policy}{tail}", mean(held.attained_E), held.unit, held.limit))
            if not np.isnan(held.exceeded_E).all():
                share = mean(held.exceeded_E)
                metrics.append(Metric.of(f"constraint_over_cap_share/{policy}{tail}", share, "fraction"))
        for name in shown if len(shown) > 1 else ():
            for field, unit in (
                ("mean_time_in_system_s", "s"),
                ("p99_time_in_system_s", "s"),
                ("within_target", "fraction"),
            ):
                value = mean(class_values(comparison, policy, name, field))
                metrics.append(Metric.of(f"class_{field}/{policy}/{name}", value, unit))
    return metrics

"""Latency per job class and the constraints of a scenario: what was attained, beside target and limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean
from noonward.evaluate.table import UNDEFINED, TextTable, number, percent
from noonward.model.limits import Limit
from noonward.schedule.cluster.trained_policy import read_meta
from noonward.schedule.policies import policies


@dataclass(frozen=True, kw_only=True)
class Held:
    """A limit and what a policy attained.

    Attributes:
        limit: Limit; attained values at or below it keep it.
        attained_E: Value per environment.
        exceeded_E: Share of the window in which it was exceeded; NaN where that is not measured.
    """

    limit: Limit
    attained_E: np.ndarray
    exceeded_E: np.ndarray


def held_limits(comparison: Comparison, policy: str) -> list[Held]:
    """Returns the scenario's limits with what a policy attained; none where the scenario has none."""
    constraints, records = comparison.scenario.constraints, comparison.records[policy]
    limits = () if constraints is None else constraints.limits(comparison.scenario.fleet.site_names)
    return [
        Held(
            limit=limit,
            attained_E=np.array([limit.attained(record) for record in records]),
            exceeded_E=np.array([limit.exceeded_share(record) for record in records], dtype=np.float64),
        )
        for limit in limits
    ]


def constraint_table(comparison: Comparison) -> TextTable | None:
    """Returns every policy's constraints, or None where the scenario limits nothing."""
    if comparison.scenario.constraints is None:
        return None
    rows = []
    for policy in comparison.ranked():
        multipliers = trained_multipliers(policy)
        for held in held_limits(comparison, policy):
            limit = held.limit
            count = int((held.attained_E <= limit.limit).sum())
            rows.append(
                (
                    policy,
                    limit.name,
                    f"{limit.limit:,g} {limit.unit}",
                    number(mean(held.attained_E), 1),
                    f"{count} of {len(held.attained_E)}",
                    percent(mean(held.exceeded_E)),
                    multipliers.get((limit.name, limit.limit), UNDEFINED),
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
    constraints = meta.get("constraints", {})
    return {
        (name, limit): f"{constraints[f'multiplier/{name}']:.3g}"
        for name, limit in meta.get("limits", {}).items()
        if f"multiplier/{name}" in constraints  # algorithms without multipliers know the limit all the same
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
                    percent(mean(values["within_target"]).within(0.0, 1.0)),
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
        for held in held_limits(comparison, policy):
            limit = held.limit
            tail = "" if limit.site is None else f"/{limit.site[1]}"
            name = f"constraint_{limit.what}/{policy}{tail}"
            metrics.append(Metric.of(name, mean(held.attained_E).within(0.0), limit.unit, limit.limit))
            if not np.isnan(held.exceeded_E).all():
                share = mean(held.exceeded_E).within(0.0, 1.0)
                metrics.append(Metric.of(f"constraint_over_cap_share/{policy}{tail}", share, "fraction"))
        for name in shown if len(shown) > 1 else ():
            for field, unit in (
                ("mean_time_in_system_s", "s"),
                ("p99_time_in_system_s", "s"),
                ("within_target", "fraction"),
            ):
                most = 1.0 if unit == "fraction" else math.inf
                value = mean(class_values(comparison, policy, name, field)).within(0.0, most)
                metrics.append(Metric.of(f"class_{field}/{policy}/{name}", value, unit))
    return metrics

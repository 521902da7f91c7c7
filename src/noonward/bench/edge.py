"""Benchmarks of the edge engine: launches and questions per CPU-second, and the time of a decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noonward.bench.edge_env import env_questions
from noonward.bench.engine import cpu_seconds
from noonward.engine.edge.episodes import LAUNCHED, QUESTIONS, sum_episodes
from noonward.evaluate.metrics import Metric
from noonward.schedule.policies import make_scheduler
from noonward.studies.edge_inference.reproduce import SEED, TIMED, cell_scenario, study_policies, time_decisions

EPISODES: Final = 2000
"""Episodes of a timed loop."""
PUBLISHED: Final = 20_000.0
"""Steps per second of the published simulator (15,000 to 25,000)."""


def bench_edge(progress: Callable[[str], None] | None = None) -> list[Metric]:
    """Times episodes of the paper's arrivals, drawn and run in one compiled loop, and single decisions from Python.

    Args:
        progress: Called once per metric.
    """
    step = progress or (lambda _: None)
    out: list[Metric] = []
    setting = cell_scenario(TIMED)
    for name, policy, column, unit in (
        ("edge/launches_per_cpu_s", "reuse-first", LAUNCHED, "launches/CPU s"),
        ("edge/env_questions_per_cpu_s", "random", QUESTIONS, "questions/CPU s"),
    ):
        scheduler = make_scheduler(policy, setting.kind)
        count = float(sum_episodes(setting, scheduler, EPISODES)[:, column].sum())
        seconds = cpu_seconds(lambda scheduler=scheduler: sum_episodes(setting, scheduler, EPISODES))  # type: ignore[misc]
        out.append(Metric.of(name, count / seconds, unit, PUBLISHED if column == QUESTIONS else None))
        step(name)
    out.append(env_questions())
    step(out[-1].name)
    for policy in study_policies():
        out.append(Metric.of(f"edge/decision_us/{policy}", 1000 * time_decisions(policy, SEED), "CPU us/decision"))
        step(out[-1].name)
    return out

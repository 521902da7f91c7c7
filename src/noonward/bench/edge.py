"""Benchmarks of the edge engine: launches and questions per CPU-second, and the time of a decision."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from noonward.bench.edge_env import env_questions
from noonward.bench.engine import cpu_seconds
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_seed
from noonward.engine.edge.episodes import LAUNCHED, QUESTIONS, sum_episodes
from noonward.evaluate.edge_decision_time import decision_ms
from noonward.evaluate.metrics import Metric
from noonward.schedule.policies import make_scheduler, policies

SETTING: Final = ("servers.count=8", "tasks.sizes=[1,2,4,8]", "tasks.rate_per_s=0.1")
"""Where decisions are timed: the paper's eight servers (Table XII)."""
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
    setting = load_scenario("edge-inference-reference", list(SETTING))
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
    for policy in timed_policies():
        spent_us = 1000 * decision_ms(setting, policy, split_seed("test", 0))
        out.append(Metric.of(f"edge/decision_us/{policy}", spent_us, "CPU us/decision"))
        step(out[-1].name)
    return out


def timed_policies() -> list[str]:
    """Returns the edge policies whose decisions are timed: all that need no carbon intensity, of each net one seed."""
    names = [policy.name for policy in policies(kind="edge") if policy.name != "carbon-aware"]
    return [name for name in names if not re.search(r"-seed\d+$", name)]

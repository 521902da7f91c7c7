"""Benchmarks of bid prices: CPU time per job in short and long windows, and of renewing a plan of many waiting jobs."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.evaluate.metrics import Metric
from noonward.model.cluster.environment import Environment
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from noonward.units import HOUR_S

POLICY: Final = "bid-price-persistence"
"""Policy that is timed."""
JOBS_PER_DAY: Final = 2688
"""Jobs a day of the timed windows."""
WAITING: Final = 10_000
"""Waiting jobs whose plan is renewed."""
REPEATS: Final = 3


def bench_bid_price(progress: Callable[[str], None] | None = None) -> list[Metric]:
    """Times whole runs of 2 and 14 days and one renewal of prices and plan.

    Args:
        progress: Called once per metric.
    """
    step = progress or (lambda _: None)
    out = []
    run(_environment(1, 200), make_scheduler(POLICY))  # compiles
    for days in (2, 14):
        environment = _environment(days, JOBS_PER_DAY * days)
        seconds = min(_run_s(environment) for _ in range(REPEATS))
        out.append(
            Metric.of(f"bid_price/us_per_job_at_{days}_days", 1e6 * seconds / len(environment.jobs), "CPU us/job")
        )
        step(out[-1].name)
    out.append(Metric.of("bid_price/replan_10k_jobs_s", _replan_s(WAITING), "CPU s"))
    step(out[-1].name)
    return out


def _environment(days: int, jobs: int) -> Environment:
    """Returns ``fine-tuning`` with slots of 15 minutes."""
    settings = [f"window_h={24 * days}", "slot_s=900", f"jobs.count={jobs}"]
    return build_environment(load_scenario("fine-tuning", settings))


def _run_s(environment: Environment) -> float:
    """Returns the CPU time of one run, s."""
    began_s = time.process_time()
    run(environment, make_scheduler(POLICY))
    return time.process_time() - began_s


def _replan_s(waiting: int) -> float:
    """Returns the CPU time of renewing prices and plan an hour after many jobs came at once, s, for so many that wait.

    The jobs are those of two days, with the deadlines they have there.
    """
    environment = _environment(2, waiting + waiting // 10)
    jobs = environment.jobs
    at_once = replace(jobs, arrival_s_J=np.zeros(len(jobs)), slack_s_J=jobs.deadline_s_J)
    engine = ClusterEngine(replace(environment, jobs=at_once), scheduler := make_scheduler(POLICY))
    scheduler.reset(engine.brief, stream(0, "policy"))
    while engine.step() and engine.view.now_s < HOUR_S:
        scheduler.decide(engine.view, engine.answers)
    left = int(engine.view.site_S["waiting"].sum())
    times = []
    for _ in range(REPEATS):
        fresh = copy.deepcopy(scheduler)
        began_s = time.process_time()
        fresh.decide(engine.view, engine.answers)
        times.append(time.process_time() - began_s)
    return min(times) * waiting / left

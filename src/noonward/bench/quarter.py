"""Benchmark of a user's fleet: policies and bound over a quarter of dated jobs at 12 sites."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from noonward.data.environments import build_environment
from noonward.data.jobs.generate import generate_fine_tuning_jobs
from noonward.data.scenarios.load import load_scenario
from noonward.data.scenarios.own_fleet import OwnFleet, parse_site
from noonward.data.scenarios.own_scenario import write_own_fleet
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.engine.run import run
from noonward.evaluate.compare import compare
from noonward.evaluate.metrics import Metric
from noonward.files import write_table, write_text
from noonward.model.cluster.scenario import FineTuningJobs
from noonward.runtime.processes import Processes
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream

FIRST: Final = date(2022, 10, 1)
"""First day of the window."""
DAYS: Final = 92
PAST_DAYS: Final = 14
"""Days of jobs before the window, from which planners draw the jobs to come."""
JOBS: Final = 70_000
"""Jobs of the window, about."""
SITES: Final = {
    "berlin": ("DE", 72), "paris": ("FR", 64), "madrid": ("ES", 48), "warsaw": ("PL", 32), "delft": ("NL", 40),
    "toronto": ("CA-ON", 56), "dallas": ("US-TEX-ERCO", 64), "fresno": ("US-CAL-CISO", 40),
    "albany": ("US-NY-NYIS", 32), "sydney": ("AU-NSW", 40), "singapore": ("SG", 24), "seoul": ("KR", 28),
}  # fmt: skip
"""Zone and GPUs by site: 540 GPUs, of one type."""
DEMAND: Final = 0.65
"""GPU-hours asked over those there are."""
POLICIES: Final = (
    "what-happened", "local-fcfs", "price-greedy", "carbon-greedy", "cheapest-feasible", "booked-persistence",
    "bid-price-persistence", "bid-price-regression",
)  # fmt: skip
WORKERS: Final = 2


def bench_quarter(progress: Callable[[str], None] | None = None) -> list[Metric]:
    """Times ``noonward compare`` over a quarter: policies in two processes, then the bound.

    Args:
        progress: Called once per run and bound.
    """
    with tempfile.TemporaryDirectory() as folder:
        scenario = write_quarter(Path(folder))
        began_s, cpu_s = time.monotonic(), _cpu_s()
        with closing(Processes(WORKERS)) as executor:
            found = compare(scenario, POLICIES, environments=1, executor=executor, progress=progress)
        wall_s, cpu_s = time.monotonic() - began_s, _cpu_s() - cpu_s
        bound = found.bounds[0]
        best = max(float(found.values(policy, "utility_usd")[0]) for policy in found.records)
        known = max(best, bound.get("best_known_usd", best))
        return [
            Metric.of("quarter/jobs", float(found.records[POLICIES[0]][0].ledger.jobs), "jobs"),
            Metric.of("quarter/cpu_s", cpu_s, "CPU s"),
            Metric.of("quarter/wall_s", wall_s, "s"),
            Metric.of("quarter/bound_gap", (bound["utility_usd"] - known) / abs(known), "fraction"),
        ]


def write_quarter(folder: Path) -> Any:
    """Writes signals, a dated job log with recorded starts, and a scenario as ``noonward init`` makes it; returns that.

    The same numbers give the same files. Jobs have the gangs, durations and rhythm of the packaged job statistics; they
    are recorded as strict first come, first served at their own sites would have started them.

    Args:
        folder: Where to.
    """
    begin = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC) - timedelta(days=PAST_DAYS)
    hours = 24 * (PAST_DAYS + DAYS + 21)
    zones = tuple(zone for zone, _ in SITES.values())
    signals = generate_signals(zones, begin - timedelta(days=2), hours + 48, stream(0, "world", "quarter"))
    write_generated_signals(signals, folder / "signals.csv")
    pools = tuple(parse_site(f"{name}={zone}:{gpus}xA100-80-SXM")[0] for name, (zone, gpus) in SITES.items())
    last = FIRST + timedelta(days=DAYS - 1)
    asked = OwnFleet(name="quarter", pools=pools, signals=(folder / "signals.csv",), first=FIRST, last=last)
    table = folder / "jobs.csv"
    write_table(table, _log(asked, folder, begin))
    made = write_own_fleet(replace(asked, jobs=table), folder, POLICIES)
    write_text(folder / "quarter.yaml", made.text)
    return load_scenario(folder / "quarter.yaml")


def _log(asked: OwnFleet, folder: Path, begin: datetime) -> pl.DataFrame:
    """Returns the jobs of past and window with their submission, start and place."""
    scenario = write_own_fleet(asked, folder).scenario
    window_h = 24 * (PAST_DAYS + DAYS)
    spec = FineTuningJobs(
        count=round(JOBS * (PAST_DAYS + DAYS) / DAYS),
        origin_shares={pool.name: pool.gpus for pool in asked.pools},
        gpus_cap=min(16, *(pool.gpus for pool in asked.pools)),
        demand=DEMAND,
        kinds={"job": {"share": 1, "data": {"low_gb": 0, "high_gb": 0}, "model": {"low_gb": 0, "high_gb": 0}}},
    )
    drawn = generate_fine_tuning_jobs(
        spec, scenario.fleet, begin, window_h, scenario.slot_s, stream(0, "workload", "quarter")
    )
    settings = {"start": begin.date(), "window_h": window_h}
    world = build_environment(scenario.model_copy(update=settings))
    patient = replace(drawn, slack_s_J=np.full(len(drawn), 7 * 86400.0))
    outcome = run(replace(world, jobs=patient), make_scheduler("local-backfill"))
    start_s_J = outcome.job_J["start_s"]
    names = np.array([pool.name for pool in asked.pools])

    def times(seconds_J: np.ndarray) -> pl.Series:
        micros = pl.Series(np.round(seconds_J * 1e6)).fill_nan(None).cast(pl.Int64)
        since = micros.cast(pl.Duration("us"))
        return pl.select((pl.lit(begin.replace(tzinfo=None)) + since).dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_series()

    return pl.DataFrame(
        {
            "submit_time": times(drawn.arrival_s_J),
            "start_time": times(start_s_J),
            "origin": names[drawn.origin_J],
            "gpus": drawn.gpus_min_J,
            "duration_s": drawn.work_J,
        }
    )


def _cpu_s() -> float:
    """Returns CPU time of this process and of its children that have ended, s."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system

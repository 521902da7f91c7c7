"""Benchmarks of the engine: completed jobs, decisions and environments per CPU-second, and how cost scales."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import Answers, ClusterView
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.evaluate.metrics import Metric
from noonward.ledger.record import write_record
from noonward.ledger.segments import DONE
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S

ARRIVALS_PER_S = 0.16
"""Arrivals of ``dvfs-training``, jobs per second over all ingress points."""
BENDING_JOBS = 20_000
"""Jobs of the week in which jobs may be suspended and capped."""
BENDING = "fleet.freedoms={fine-tuning: {interruptible: true, caps: zeus-v100-bert}}"
"""What they allow."""
DISPATCHED = ("protocol=on-arrival", "window_h=1680", "jobs.count=200000", "jobs.demand=0.6")
"""Ten weeks of such jobs, in which a dispatcher is asked about each when it arrives; GPUs are asked for 60% of the
time."""


class StartLocally(Scheduler):
    """The plain-Python scheduler that is timed: starts each job where it arrived as soon as it fits."""

    needs = Needs(protocols=("each-slot",))

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Starts what fits."""
        for site, _ in view.asked():
            if view.allowed(site, site):
                answers.send(site, site)


def cpu_seconds(work: Callable[[], Any], least_s: float = 0.5, least_repeats: int = 5) -> float:
    """Returns the CPU time of one call, s: the least of some repeats (other load on the machine only adds)."""
    best, spent, repeats = float("inf"), 0.0, 0
    while spent < least_s or repeats < least_repeats:
        began = time.process_time()
        work()
        took = time.process_time() - began
        best, spent, repeats = min(best, took), spent + took, repeats + 1
    return best


def _run_seconds(environment: Environment, policy: str) -> float:
    """Returns the CPU time of one run, s."""
    return cpu_seconds(lambda: run(environment, make_scheduler(policy)))


def bench_engine(progress: Callable[[str], None] | None = None) -> list[Metric]:
    """Times engine and command line; every figure says what it counts.

    Args:
        progress: Called once per figure.
    """
    metrics: list[Metric] = []
    for part in (_training_jobs, _whole_path, _bending_jobs, _python_decisions, _tuning_environments, _scaling, _help):
        for metric in part():
            metrics.append(metric)
            if progress is not None:
                progress(metric.name)
    return metrics


def _training_jobs() -> list[Metric]:
    """Completed jobs per CPU-second over 7 days of ``dvfs-training``, run() whole (the reference: its simulator)."""
    environment = build_environment(load_scenario("dvfs-training"))
    out = []
    for policy, label, reference in (("dp", "dp", 1357.0), ("jointnf", "jointnf", 466.0)):
        done = run(environment, make_scheduler(policy)).count(DONE)
        seconds = _run_seconds(environment, policy)
        out.append(
            Metric.of(f"engine/dvfs-training/{label}/jobs_per_cpu_s", done / seconds, "completed jobs/CPU s", reference)
        )
    return out


def _whole_path() -> list[Metric]:
    """Completed jobs per CPU-second of the same under DP, from the scenario to the written record."""
    rate = _whole_path_rate(load_scenario("dvfs-training"), "dp")
    return [Metric.of("engine/dvfs-training/dp/whole_path_jobs_per_cpu_s", rate, "completed jobs/CPU s", 1357.0)]


def _bending_jobs() -> list[Metric]:
    """Completed jobs per CPU-second of a week of ``fine-tuning`` whose jobs wait for cheap hours, or bend to them.

    Under ``patient`` they only wait, under the others they are suspended, or capped; from the scenario to the record.
    Then of ten weeks in which a dispatcher sends each job when it arrives, and suspends it.
    """
    each_slot = load_scenario("fine-tuning", ["window_h=168", f"jobs.count={BENDING_JOBS}", BENDING])
    on_arrival = load_scenario("fine-tuning", [*DISPATCHED, BENDING])
    cases = [("fine-tuning", each_slot, policy) for policy in ("patient", "suspend-threshold", "cap-threshold")]
    cases.append(("fine-tuning-on-arrival", on_arrival, "suspend-threshold"))
    return [
        Metric.of(
            f"engine/{name}/{policy}/whole_path_jobs_per_cpu_s",
            _whole_path_rate(scenario, policy),
            "completed jobs/CPU s",
        )
        for name, scenario, policy in cases
    ]


def _whole_path_rate(scenario: Scenario, policy: str) -> float:
    """Returns completed jobs per CPU-second from a scenario to the written record.

    Environment built, run, settled and recorded, nothing shared between repeats: what one run of ``simulate`` does
    after its imports.
    """
    done, numbers = 0, itertools.count()

    def work() -> None:
        nonlocal done
        outcome = run(build_environment(scenario), make_scheduler(policy))
        to = Path(folder) / str(next(numbers))
        write_record(outcome, to, policy=policy, seed=0, scenario_digest="", code="")
        done = outcome.count(DONE)

    with tempfile.TemporaryDirectory() as folder:
        seconds = cpu_seconds(work, least_repeats=9)
    return done / seconds


def _python_decisions() -> list[Metric]:
    """Decision steps per CPU-second of a plain-Python scheduler on two-day ``fine-tuning``."""
    environment = build_environment(load_scenario("fine-tuning"))
    steps = run(environment, StartLocally()).steps
    seconds = cpu_seconds(lambda: run(environment, StartLocally()))
    return [Metric.of("engine/python-scheduler/decisions_per_cpu_s", steps / seconds, "decision steps/CPU s")]


def _tuning_environments() -> list[Metric]:
    """Two-day ``fine-tuning`` environments per CPU-second under local FCFS."""
    environment = build_environment(load_scenario("fine-tuning"))
    seconds = _run_seconds(environment, "local-fcfs")
    return [Metric.of("engine/fine-tuning/local-fcfs/environments_per_cpu_s", 1 / seconds, "environments/CPU s")]


def _long_environment(jobs: float) -> Environment:
    """Returns a ``dvfs-training`` environment of about so many arrivals; its queues grow all the while."""
    hours = max(1, round(jobs / ARRIVALS_PER_S / HOUR_S))
    return build_environment(load_scenario("dvfs-training", [f"window_h={hours}"]))


def _scaling() -> list[Metric]:
    """Cost and memory per arriving job at 10^4, 10^5 and 10^6 jobs under DP, whose queues grow without limit."""
    out = []
    for label, jobs in (("1e4", 1e4), ("1e5", 1e5), ("1e6", 1e6)):
        environment = _long_environment(jobs)
        count = len(environment.jobs)
        seconds = _run_seconds(environment, "dp")
        out.append(Metric.of(f"engine/scaling/ns_per_job_at_{label}", 1e9 * seconds / count, "CPU ns/job"))
    world = ClusterEngine(environment, make_scheduler("dp")).world
    size = sum(a.nbytes for a in (world.submitted_R, world.outcome_R, world.job_usd_R, world.heap_E))
    out.append(Metric.of("engine/scaling/bytes_per_job", size / count, "bytes/job"))
    return out


def _help() -> list[Metric]:
    """Wall time of ``noonward --help``, start of Python included: the least of five."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "noonward.cli.main", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return [Metric.of("cli/help_s", min(times), "s")]

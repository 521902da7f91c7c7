"""Benchmark of many jobs at many sites: what every part of a run costs per job, from the draw to the record.

The world is generated: sites share the packaged electricity zones, two GPU types and two PUEs, so that 400 sites are of
60 kinds. The window grows with the jobs: as many jobs come to a site per hour, however many there are in all.
"""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from noonward.bench.plan import large_problem, replan_one_hour
from noonward.bound.cluster_utility.many_jobs import many_jobs_bound
from noonward.bound.cluster_utility.pieces import MapPieces, in_turn
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import scenario_from
from noonward.data.signals.calibration import load_calibration
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.bound_runs import pieces_by
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean
from noonward.ledger.ledger import settle
from noonward.ledger.record import write_record
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.scenario import Scenario
from noonward.runtime.processes import Processes
from noonward.schedule.cluster.bid_price import KINDS_EXPECTED
from noonward.schedule.plan.solve import Planner
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream

JOBS: Final = 100_000
"""Jobs, where none are asked for."""
SITES: Final = 40
ZONES: Final = 15
"""Packaged electricity zones."""
JOBS_PER_SITE_HOUR: Final = 35
"""Jobs that come to a site per hour, on average."""
LEAST_H: Final = 24
"""Hours of the shortest window."""
SEED: Final = 0
"""Seed of the fleet, the jobs and the signals."""
RULE: Final = "cheapest-feasible"
"""Rule that is taken through the whole path."""
PLANNER: Final = "bid-price-regression"
BY_KIND: Final = f"bid-price(forecast=regression, expected={KINDS_EXPECTED}, exact_sites={{}})"
"""The same, where sites beyond so many are priced by kind. The same weighted jobs to come are planned with in both."""
REFERENCE: Final = "local-fcfs"
"""Where the possible improvement begins."""
ALIKE_SITES: Final = 12
"""Sites of the fleet at which what kinds cost is measured: three of each kind."""
ALIKE_JOBS: Final = 4000
"""Its jobs, about."""
DRAWS: Final = 24
"""Draws of it."""
PLAN_SAMPLES: Final = 200
"""Samples of the day-ahead plan."""
WARM_JOBS: Final = 200
"""Jobs of the run that compiles, and"""
WARM_SITES: Final = 4
"""its sites: so few jobs would have to run for years to keep many busy."""
GIB: Final = 2.0**30
REMARK: Final = f"""\
A generated world; more jobs take a longer window. CPU time per job, in order:
  build, rule, settle, record: draw of jobs and signals, run under {RULE}, settling it, writing its record
  whole_path: these four together
  us_per_job_at_SIZE: run under {PLANNER}; bound: bound of the utility, and a schedule beside it
What is reached (0: as good as the bound):
  bound_gap, planner_gap: what the best schedule known, and that planner alone, lack of the bound, over the bound
  kinds_points: gain from pricing sites by kind, in points of the possible improvement; below 0: it loses
Besides:
  plan/DCOUNT_N{PLAN_SAMPLES}: a day-ahead plan of COUNT clusters; replan: with an hour's new data; gap: its cost less
    its bound, over the cost
  peak_gib: most memory of this process, or of a worker
More: docs/figures-bench.md"""
"""What the metrics mean, for those who read them."""


@dataclass(frozen=True)
class Scale:
    """What is measured: a size, and its environment.

    Attributes:
        jobs: Jobs that were asked for.
        scenario: Scenario.
        environment: Its first draw.
        build_s: CPU time of the draw, s.
        workers: Processes that share the bound; 1: this one alone.
    """

    jobs: int
    scenario: Scenario
    environment: Environment
    build_s: float
    workers: int = 1

    @property
    def size(self) -> str:
        """The size in a metric's name, such as ``1e5_jobs_40_sites``."""
        jobs = f"{self.jobs:.0e}".replace("e+0", "e").replace("e+", "e")
        return f"{jobs if float(jobs) == self.jobs else self.jobs}_jobs_{len(self.scenario.fleet.sites)}_sites"

    def per_job(self, part: str, seconds: float) -> Metric:
        """Returns the CPU time of a part, us per job."""
        return Metric.of(f"scale/{part}/us_per_job", 1e6 * seconds / len(self.environment.jobs), "CPU us/job")


def bench_scale(
    progress: Callable[[str], None] | None = None, *, jobs: float = JOBS, sites: int = SITES, workers: int = 1
) -> list[Metric]:
    """Times every part of a run of many jobs at many sites.

    Args:
        progress: Called once per part.
        jobs: Jobs, about; a whole number of at least 1,000.
        sites: Sites, at least 1.
        workers: Processes that share the bound, at least 1; 1: this one alone. All other parts are in this one.

    Raises:
        ScenarioError: A number is out of its range.
    """
    if not jobs >= 1000 or jobs != round(jobs) or sites < 1:
        raise ScenarioError(
            f"a benchmark of {jobs:g} jobs at {sites} sites was asked for; give a whole number of at least 1,000 jobs "
            "and at least 1 site"
        )
    step = progress or (lambda _: None)
    scenario = many_sites(round(jobs), sites)
    warm = build_environment(many_sites(WARM_JOBS, min(sites, WARM_SITES)))
    for policy in (RULE, PLANNER):
        settle(run(warm, make_scheduler(policy)))
    many_jobs_bound(warm)
    del warm
    began_s = time.process_time()
    environment = build_environment(scenario, seed=SEED)
    scale = Scale(round(jobs), scenario, environment, time.process_time() - began_s, workers)
    metrics = []
    for part in PARTS:
        metrics += part(scale)
        step(metrics[-1].name)
    metrics.append(Metric.of("scale/peak_gib", _peak_bytes() / GIB, "GiB"))
    return metrics


def many_sites(jobs: int, sites: int, zones: int = ZONES) -> Scenario:
    """Returns a scenario of many jobs at many sites, by ``many_sites_content``."""
    scenario = scenario_from(many_sites_content(jobs, sites, zones), "many-sites")
    assert isinstance(scenario, Scenario)
    return scenario


def many_sites_content(jobs: int, sites: int, zones: int = ZONES) -> dict[str, Any]:
    """Returns what a file says of a scenario of many jobs at many sites; the same numbers give the same one.

    Jobs, network and economics are those of ``fine-tuning``. Site ``i`` is in zone ``i mod zones``; the GPU type
    changes every so many sites, and the PUE every twice as many. A site has 300 to 650 GPUs.

    Args:
        jobs: Jobs, about.
        sites: Sites.
        zones: Electricity zones that they share, 1 to 15: there are at most four kinds of sites in each.
    """
    shared = tuple(load_calibration("w2022").zones)[:zones]
    gpus_S = 50 * stream(SEED, "world", "bench-scale").integers(6, 14, sites)
    watts = {"T4-class": (8, 80), "L4-class": (10, 72)}
    types = {
        name: {"idle_w": idle_w, "classes": {"fine-tuning": {"power": {"constant_w": full_w}, "time": "duration"}}}
        for name, (idle_w, full_w) in watts.items()
    }
    placed: list[dict[str, Any]] = [
        {
            "name": f"site-{s:03d}",
            "zone": shared[s % zones],
            "gpu_type": tuple(watts)[s // zones % 2],
            "gpus": int(gpus_S[s]),
            "pue": (1.1, 1.3)[s // (2 * zones) % 2],
        }
        for s in range(sites)
    ]
    kinds = {
        name: {"share": 1 / 3, "data": {"low_gb": 1, "high_gb": most}, "model": {"low_gb": 0.2, "high_gb": 4}}
        for name, most in (("image-generation", 20), ("text-generation", 5), ("text-to-image", 10))
    }
    return {
        "name": "many-sites",
        "protocol": "each-slot",
        "slot_s": 900,
        "window_h": max(LEAST_H, round(jobs / (sites * JOBS_PER_SITE_HOUR))),
        "end": "drained",
        "fleet": {"gpu_types": types, "sites": placed},
        "network": {"throughput_gb_per_min": 1, "usd_per_gb": 0.01, "kwh_per_gb": 0.005},
        "signals": {"source": "generated", "year": 2022},
        "jobs": {
            "source": "fine-tuning",
            "count": jobs,
            "origin_shares": {site["name"]: site["gpus"] for site in placed},
            "kinds": kinds,
        },
        "economics": {"revenue_usd_per_gpu_hour": 0.05, "carbon_usd_per_t": 100},
    }


def _whole_path(scale: Scale) -> list[Metric]:
    """A rule from the draw to the written record."""
    began_s = time.process_time()
    outcome = run(scale.environment, make_scheduler(RULE))
    run_s = time.process_time()
    settle(outcome)
    settled_s = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        write_record(outcome, Path(folder) / "record", policy=RULE, seed=SEED, scenario_digest="", code="")
    written_s = time.process_time()
    return [
        scale.per_job("build", scale.build_s),
        scale.per_job("rule", run_s - began_s),
        scale.per_job("settle", settled_s - run_s),
        scale.per_job("record", written_s - settled_s),
        scale.per_job("whole_path", scale.build_s + written_s - began_s),
    ]


def _planner_and_bound(scale: Scale) -> list[Metric]:
    """Bid prices, the first improvements of their prices included; the bound, and how far from it the best known is."""
    began_s = time.process_time()
    outcome = run(scale.environment, make_scheduler(PLANNER))
    run_s = time.process_time()
    earned_usd = settle(outcome).utility_usd
    del outcome
    settled_s = _cpu_s()
    with _shared(scale.workers) as map_pieces:
        bound = many_jobs_bound(scale.environment, map_pieces=map_pieces)
    bound_s = _cpu_s() - settled_s
    best_usd = earned_usd if math.isnan(bound.lower_usd) else max(earned_usd, bound.lower_usd)
    jobs = len(scale.environment.jobs)
    return [
        Metric.of(f"scale/us_per_job_at_{scale.size}", 1e6 * (run_s - began_s) / jobs, "CPU us/job"),
        scale.per_job("bound", bound_s),
        Metric.of("scale/bound_gap", (bound.upper_usd - best_usd) / abs(bound.upper_usd), "fraction"),
        Metric.of("scale/planner_gap", (bound.upper_usd - earned_usd) / abs(bound.upper_usd), "fraction"),
    ]


@contextlib.contextmanager
def _shared(workers: int) -> Iterator[MapPieces]:
    """Yields what carries out the pieces of a bound: this process, or several, which end afterwards."""
    if workers == 1:
        yield in_turn
        return
    with contextlib.closing(Processes(workers)) as executor:
        yield pieces_by(executor, "bound")


def _kinds_of_sites(scale: Scale) -> list[Metric]:
    """What pricing sites by kind changes, paired, in points of what is possible.

    The fleet is small enough to price every site, and does not depend on the size that is measured.
    """
    scenario = many_sites(ALIKE_JOBS, ALIKE_SITES, zones=1)
    points_D = []
    for draw in range(DRAWS):
        environment = build_environment(scenario, seed=draw)

        def earned_usd(policy: str, environment: Environment = environment) -> float:
            return settle(run(environment, make_scheduler(policy))).utility_usd

        gain_usd = earned_usd(BY_KIND.format(1)) - earned_usd(BY_KIND.format(ALIKE_SITES))
        possible_usd = many_jobs_bound(environment, schedule=False).upper_usd - earned_usd(REFERENCE)
        points_D.append(100 * gain_usd / possible_usd)
    return [Metric.of("scale/kinds_points", mean(points_D), "points")]


def _day_ahead_plan(scale: Scale) -> list[Metric]:
    """A day-ahead plan of as many clusters as there are sites, and the same with an hour's new data."""
    clusters = max(2, len(scale.scenario.fleet.sites) // 2 * 2)
    planner = Planner()
    plan = planner.plan(large_problem(clusters, PLAN_SAMPLES))
    again = replan_one_hour(planner, plan)
    name = f"plan/D{clusters}_N{PLAN_SAMPLES}"
    return [
        Metric.of(f"{name}/cpu_s", plan.certificate.cpu_s, "CPU s"),
        Metric.of(f"{name}/replan_cpu_s", again.certificate.cpu_s, "CPU s"),
        Metric.of(f"{name}/gap", plan.certificate.gap, "fraction"),
    ]


PARTS: Final[tuple[Callable[[Scale], list[Metric]], ...]] = (
    _whole_path,
    _planner_and_bound,
    _kinds_of_sites,
    _day_ahead_plan,
)
"""What is measured, in this order. A further part is one function."""


def _cpu_s() -> float:
    """Returns the CPU time of this process so far, and of its workers that have ended, s."""
    import resource  # there is none on Windows

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _peak_bytes() -> float:
    """Returns the most memory that this process, or one of its workers that have ended, has taken so far, bytes."""
    import resource

    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return most if sys.platform == "darwin" else most * 1024.0

"""How fast plans and placements are, measured here and now."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from noonward.arrays import F8
from noonward.data.jobs.load_shapes import generate_load_shapes
from noonward.evaluate.metrics import Metric
from noonward.schedule.plan.classes import LoadClass
from noonward.schedule.plan.generate import whole
from noonward.schedule.plan.placement import Tracker
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.result import Plan
from noonward.schedule.plan.solve import Planner, make_plan
from noonward.seeding import stream

Progress = Callable[[str], None]
"""Called once per measurement with what was measured."""

STEPS = 5
"""Measurements of ``bench_plan``."""
JOBS = 4_000_000
"""Jobs of the placement measurement."""


def bench_plan(progress: Progress | None = None, *, large: bool = True) -> list[Metric]:
    """Measures plans at the paper's size, a re-plan, the whole LP, the large size, and placements.

    Args:
        progress: Called once per measurement.
        large: Whether to measure 40 clusters with 200 samples and 1,000 samples at the paper's size, too.
    """
    step = progress or (lambda _: None)
    load_NKC = generate_load_shapes(60, 7, stream(0, "workload", "bench-plan"))
    problem = plan_problem(load_NKC)
    planner = Planner()
    plan = planner.plan(problem)
    out = [Metric.of("plan/paper_size/cpu_s", plan.certificate.cpu_s, "s")]
    step("plan at the paper's size")
    again = replan_one_hour(planner, plan)
    out.append(Metric.of("plan/replan_one_hour/cpu_s", again.certificate.cpu_s, "s"))
    step("re-plan with one hour's new data")
    began_s = time.process_time()
    whole(problem)
    whole_s = time.process_time() - began_s
    out.append(Metric.of("plan/whole_compact_lp/cpu_s", whole_s, "s"))
    out.append(Metric.of("plan/ratio_to_whole_compact_lp", whole_s / plan.certificate.cpu_s, "times as fast"))
    step("whole compact LP")
    out += placement_metrics(plan)
    step("placements")
    if large:
        many = generate_load_shapes(1000, 7, stream(0, "workload", "bench-plan", "many"))
        out.append(Metric.of("plan/N1000/cpu_s", make_plan(replace(problem, load_NKC=many)).certificate.cpu_s, "s"))
        out.append(Metric.of("plan/D40_N200/cpu_s", make_plan(large_problem()).certificate.cpu_s, "s"))
        step("plans at large sizes")
    return out


def replan_one_hour(planner: Planner, plan: Plan) -> Plan:
    """Returns the plan of the same problem with the load of hour 0 known."""
    known_NKC = plan.problem.load_NKC.copy()
    known_NKC[:, 0] = known_NKC[0, 0]
    return planner.replan(plan, load_NKC=known_NKC)


def large_problem(clusters: int = 40, samples: int = 200) -> PlanProblem:
    """Returns the paper's setting at another size.

    Args:
        clusters: Clusters D, an even number.
        samples: Samples N.
    """
    classes = clusters + clusters // 2 + 1
    load_NKC = generate_load_shapes(samples, classes, stream(0, "workload", "bench-plan", "large"))
    return plan_problem(load_NKC, clusters)


def plan_problem(load_NKC: F8, clusters: int = 4) -> PlanProblem:
    """Returns a setting of the paper's form: a class bound to every cluster, one to every pair, one global.

    Args:
        load_NKC: Loads of samples N at submission hours K by class C, ``clusters * 3 / 2 + 1`` classes.
        clusters: Clusters D, an even number; every two form a data center. The paper has 4.
    """
    centers = clusters // 2
    ranges = [(d,) for d in range(clusters)] + [(2 * j, 2 * j + 1) for j in range(centers)] + [tuple(range(clusters))]
    span = load_NKC.shape[1] + 10
    phase_D = 21.6 * (np.arange(clusters) // 2) / centers + 1.75 * (np.arange(clusters) % 2)
    return PlanProblem(
        classes=tuple(LoadClass(name=f"class {c}", clusters=r, flexibility_h=10) for c, r in enumerate(ranges)),
        load_NKC=load_NKC,
        capacity_TD=np.ones((span, clusters)),
        cost_TD=1 + 0.215 * np.cos(2 * np.pi * (np.arange(span)[:, None] - phase_D) / 24),
        peak_cost_D=np.full(clusters, 0.18),
    )


def placement_metrics(plan: Plan) -> list[Metric]:
    """Measures placements per CPU-second against a plan, in batches of an hour's jobs and as single calls."""
    rng = stream(0, "workload", "bench-plan", "jobs")
    tracker = Tracker(plan.fractions)
    hours = plan.fractions.hours
    class_J = rng.integers(0, plan.fractions.classes, JOBS // hours)
    volume_J = np.maximum(rng.normal(1.0, 0.1, len(class_J)), 0.1)
    tracker.positions(0, class_J[:2], volume_J[:2])
    began_s = time.process_time()
    for k in range(hours):
        tracker.positions(k, class_J, volume_J)
    batch_s = time.process_time() - began_s
    tracker.place(0, 0, 1.0)
    began_s = time.process_time()
    for _ in range(200_000):
        tracker.place(hours // 2, 0, 1.0)
    single_s = time.process_time() - began_s
    return [
        Metric.of("placement/decisions_per_cpu_s", hours * len(class_J) / batch_s, "placements/s"),
        Metric.of("placement/single_calls_per_cpu_s", 200_000 / single_s, "placements/s"),
    ]

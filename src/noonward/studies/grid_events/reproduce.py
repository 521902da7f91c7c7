"""Field tests of flexible data centers: Emerald AI's two events in Arizona, May 2025, or another test's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import DataError
from noonward.evaluate.metrics import Metric
from noonward.schedule.event.cap_optimal import cap_optimal
from noonward.schedule.event.emerald import CONTROLS
from noonward.schedule.event.jobs import EventPlan, RunningJob, event_share_least
from noonward.studies.grid_events.match import FieldTest, Match, match, prepare
from noonward.studies.grid_events.read import Caps, Jobs, caps_of, read_caps, read_jobs, read_power

CUTS: Final = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Cuts of power whose least loss of throughput is computed."""
IDLE_W: Final = 60.0
"""Power of a stopped GPU that is left idle, W."""
NODE_GPUS: Final = 8
"""GPUs of a node."""
PACKAGED_CAPS: Final = "emerald_caps.csv"
"""Caps of eight workloads on A100: ai-emerald/emerald-ai-demo-may-2025, dvfs_sweep.csv (Apache-2.0)."""
PACKAGED_JOBS: Final = "emerald_srp_jobs.csv"
"""Jobs of the event of 3 May 2025: the same repository, SRP_exp_performance.csv (Apache-2.0)."""
IN_FOLDER: Final = {"srp": "SRP_total_power.csv", "aps": "aps_jobs_by_minute.csv"}
"""Files of power of both events in the folder of ``--data``, by name in figures."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A policy's answer to a field test's event.

    Attributes:
        policy: Its name.
        stopped_w: Power of a stopped GPU, W.
        plan: Its plan of the event, all steps with one budget.
        lost: Share of throughput lost over the event, by GPUs.
    """

    policy: str
    stopped_w: float
    plan: EventPlan
    lost: float


@dataclass(frozen=True, kw_only=True)
class Held:
    """A field test held against physics and policies.

    Attributes:
        test: The test.
        scaled: Computed power, scaled to the power before the event.
        unscaled: Computed power as the table of caps gives it.
        ours_J: Mean throughput of each job over the test under ``cap-optimal`` at the cut measured in each row.
        ours_met: Share of the rows in which it reaches that cut within what the jobs' classes tolerate.
        weight_J: What each job counts in the weighted performance; sums to 1.
        plans: Answers of all policies to the event's mean cut.
    """

    test: FieldTest
    scaled: Match
    unscaled: Match
    ours_J: F8
    ours_met: float
    weight_J: F8
    plans: tuple[Plan, ...]

    @property
    def published(self) -> bool:
        """Whether the performance of every job was published."""
        return bool(np.isfinite(self.test.performance_J).all())

    def weighted(self, performance_J: F8) -> float:
        """Returns the weighted performance."""
        return float(self.weight_J @ performance_J)

    def lost(self, performance_J: F8) -> float:
        """Returns the share of throughput lost over the test, by GPUs."""
        gpus_J = np.array([job.gpus for job in self.test.jobs])
        return float(1 - gpus_J @ performance_J / gpus_J.sum())


@dataclass(frozen=True, kw_only=True)
class GridEvents:
    """What was found.

    Attributes:
        held: Field tests.
        mix: Jobs whose least losses are computed.
        lost: Least share of throughput lost, by what GPUs may do and cut; NaN where the cut cannot be reached.
    """

    held: tuple[Held, ...]
    mix: tuple[RunningJob, ...]
    lost: dict[str, dict[float, float]]

    def metrics(self) -> list[Metric]:
        """Returns all figures (docs/figures-grid.md)."""
        found = []
        for held in self.held:
            test, name = held.test, held.test.name
            found += [
                Metric.of(f"{name}/largest_minute_error", held.scaled.largest, "fraction"),
                Metric.of(f"{name}/largest_minute_error_unscaled", held.unscaled.largest, "fraction"),
                Metric.of(f"{name}/steady_share", held.scaled.rows / len(test.steady_T), "fraction"),
                Metric.of(f"{name}/event_cut", test.event_cut, "fraction"),
            ]
            if held.published:
                found += [
                    Metric.of(
                        f"{name}/weighted_performance", held.weighted(held.ours_J), "fraction", reference=test.weighted
                    ),
                    Metric.of(f"{name}/weighted_performance_measured", held.weighted(test.performance_J), "fraction"),
                    Metric.of(f"{name}/throughput_lost", held.lost(held.ours_J), "fraction"),
                    Metric.of(f"{name}/cut_met", held.ours_met, "fraction"),
                    Metric.of(f"{name}/throughput_lost_measured", held.lost(test.performance_J), "fraction"),
                ]
            for plan in held.plans:
                label = plan.policy if plan.stopped_w == 0 else f"{plan.policy}-idle-{plan.stopped_w:g}w"
                met = float(plan.plan.met_T.mean())
                found += [
                    Metric.of(f"{name}/event_throughput_lost/{label}", plan.lost, "fraction"),
                    Metric.of(f"{name}/event_met/{label}", met, "fraction"),
                ]
        for way, by_cut in self.lost.items():
            found += [
                Metric.of(f"{way}/throughput_lost@{100 * cut:g}", lost, "fraction") for cut, lost in by_cut.items()
            ]
        return found


def reproduce_grid_events(
    *,
    data: Path | None = None,
    power: Path | None = None,
    events: Path | None = None,
    caps: Path | None = None,
    name: str = "test",
    timezone: str | None = None,
    idle_w: float = IDLE_W,
    node_gpus: int = NODE_GPUS,
) -> GridEvents:
    """Holds field tests against our physics and policies.

    Args:
        data: Folder of Emerald AI's files (``IN_FOLDER``); both events are held against it.
        power: Power of another test by time (``read_power``).
        events: Jobs of that test (``read_jobs``); None: its jobs are the columns of the power table.
        caps: Caps by workload (``read_caps``); None: those packaged.
        name: Name of the other test in figures.
        timezone: Clock of times without an offset.
        idle_w: Power of a stopped GPU that is left idle, W.
        node_gpus: GPUs of a node.

    Raises:
        DataError: A file is missing or its tables do not fit (``prepare``, ``match``), or options do not go together.
    """
    if power is not None and data is not None:
        raise DataError("--power holds one test's tables and --data a folder of Emerald's; give one of them")
    if events is not None and power is None:
        raise DataError("--events says which jobs ran while the power of --power was drawn; give both, or leave it out")
    measured = read_caps(caps) if caps is not None else _packaged_caps()
    tests = []
    if power is not None:
        jobs = None if events is None else read_jobs(events)
        tests.append(prepare(name, read_power(power, timezone), jobs, measured, node_gpus=node_gpus))
    elif data is not None:
        for each, file in IN_FOLDER.items():
            jobs = _packaged_jobs() if each == "srp" else None
            tests.append(prepare(each, read_power(data / file, timezone), jobs, measured, node_gpus=node_gpus))
    mix = tests[0].jobs if tests else _packaged_mix(measured)
    return GridEvents(
        held=tuple(_held(test, idle_w, node_gpus) for test in tests), mix=mix, lost=least_losses(mix, idle_w)
    )


def least_losses(jobs: Sequence[RunningJob], idle_w: float = IDLE_W) -> dict[str, dict[float, float]]:
    """Returns the least share of throughput that jobs lose at each cut of ``CUTS``, by what their GPUs may do.

    ``caps``: any mix of measured caps. ``pausing``: GPUs run without a cap or are stopped and draw nothing.
    ``pausing-idle-60w``: stopped GPUs draw their idle power. The optimum of a linear program over the measured points.

    Args:
        jobs: Jobs; their ``least`` and ``weight`` are not looked at.
        idle_w: Power of a stopped GPU that is left idle, W.
    """
    free = [replace(job, least=0.0, weight=1.0) for job in jobs]
    budget_w_T = sum(job.full_w for job in free) * (1 - np.array(CUTS))
    ways: dict[str, tuple[bool, float | None]] = {
        "caps": (True, None),
        "pausing": (False, 0.0),
        f"pausing-idle-{idle_w:g}w": (False, idle_w),
    }
    gpus_J = np.array([job.gpus for job in free])
    found = {}
    for way, (capped, stopped_w) in ways.items():
        plan = cap_optimal(free, budget_w_T, caps=capped, stopped_w=stopped_w)
        lost_T = np.where(plan.met_T, 1 - gpus_J @ plan.throughput_JT / gpus_J.sum(), np.nan)
        found[way] = dict(zip(CUTS, map(float, lost_T), strict=True))
    return found


def _held(test: FieldTest, idle_w: float, node_gpus: int) -> Held:
    """Returns a field test held against physics and policies."""
    rows, inside = len(test.event_T), int(test.event_T.sum())
    least_J = [event_share_least(job.least, rows, inside) for job in test.jobs]
    shares = np.array([job.least or 1.0 for job in test.jobs])
    weight_J = shares / shares.sum()
    ours = [
        replace(job, least=least, weight=float(weight) / job.gpus)
        for job, least, weight in zip(test.jobs, least_J, weight_J, strict=True)
    ]
    full_w = sum(job.full_w for job in test.jobs)
    kept = cap_optimal(ours, full_w * (1 - test.cut_T), stopped_w=None)
    jobs = [replace(job, least=least) for job, least in zip(test.jobs, least_J, strict=True)]
    budget_w_T = np.full(inside, full_w * (1 - test.event_cut))
    plans = []
    for stopped_w in (0.0, idle_w):
        for policy, control in CONTROLS.items():
            plan = control(jobs, budget_w_T, stopped_w=stopped_w)
            plans.append(Plan(policy=policy, stopped_w=stopped_w, plan=plan, lost=plan.lost(jobs)))
        best = cap_optimal(jobs, budget_w_T, stopped_w=stopped_w)
        plans.append(Plan(policy="cap-optimal", stopped_w=stopped_w, plan=best, lost=best.lost(jobs)))
    return Held(
        test=test,
        scaled=match(test, node_gpus=node_gpus),
        unscaled=match(test, node_gpus=node_gpus, scaled=False),
        ours_J=kept.throughput_JT.mean(axis=1),
        ours_met=float(kept.met_T.mean()),
        weight_J=weight_J,
        plans=tuple(plans),
    )


def _packaged_caps() -> dict[str, Caps]:
    """Returns the packaged caps."""
    with as_file(files("noonward.studies.grid_events") / "tables" / PACKAGED_CAPS) as path:
        return read_caps(path)


def _packaged_jobs() -> Jobs:
    """Returns the packaged jobs."""
    with as_file(files("noonward.studies.grid_events") / "tables" / PACKAGED_JOBS) as path:
        return read_jobs(path)


def _packaged_mix(caps: dict[str, Caps]) -> tuple[RunningJob, ...]:
    """Returns the packaged jobs on the GPUs that their caps were measured on."""
    found = []
    for job in _packaged_jobs().jobs:
        measured = caps_of(job.name, caps)
        if measured.gpus is None:
            raise DataError(
                f"the table of caps does not say how many GPUs {measured.workload!r} was measured on; give its column "
                "'total GPU power'"
            )
        found.append(
            RunningJob(
                name=job.name,
                gpus=measured.gpus,
                power_w=measured.power_w,
                throughput=measured.throughput,
                least=job.least,
            )
        )
    return tuple(found)

"""Changed environments: the same windows and jobs, but for slack, carbon price, moves, freedoms or meters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from noonward.arrays import F8
from noonward.errors import ScenarioError
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.expected import changed_sampler
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.freedom import MOST_GANGS, Freedom
from noonward.model.cluster.jobs import Jobs
from noonward.runtime.runs import RecordedRun
from noonward.units import HOUR_S

Bending = Literal["suspend", "resize", "cap", "move"]
"""Freedoms of running jobs that a change may give."""
AS_IT_IS: Final = "base"
"""Name of the change that changes nothing."""
DOUBLED: Final = 1.8
"""Speed-up of a job on twice its GPUs, where it is asked what resizing would be worth."""
CAPS: Final = "emerald-a100-fine-tuning"
"""Measured curve of power caps where it is asked what capping would be worth."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What differs from a scenario's environments; what is None or false stays as it is.

    Attributes:
        carbon_usd_per_t: Carbon price, USD/t.
        slack_h: Slack of every job, h; infinite for no limit.
        slack_factor: Factor on every job's slack.
        stay: Whether jobs run where they arrive.
        freedom: What may be done with running jobs of every class beside what the scenario states.
        without: What sites have not: ``battery``, ``solar``, or ``peaks``: charges for peaks of months and the system.
        connection_factor: Factor on the power of the sites' connections.
    """

    carbon_usd_per_t: float | None = None
    slack_h: float | None = None
    slack_factor: float | None = None
    stay: bool = False
    freedom: Bending | None = None
    without: Literal["battery", "solar", "peaks"] | None = None
    connection_factor: float | None = None

    @property
    def name(self) -> str:
        """Name, for metrics and folders.

        Example:
            >>> Change(slack_h=6.0, stay=True).name, Change().name
            ('slack=6h,stay', 'base')
        """
        parts = []
        if self.carbon_usd_per_t is not None:
            parts.append(f"carbon={self.carbon_usd_per_t:g}")
        if self.slack_h is not None:
            parts.append(f"slack={self.slack_h:g}h")
        if self.slack_factor is not None:
            parts.append(f"slack={self.slack_factor:g}x")
        parts += ["stay"] if self.stay else []
        parts += [f"freedom={self.freedom}"] if self.freedom is not None else []
        parts += [f"{self.without}=none"] if self.without is not None else []
        parts += [f"connection={self.connection_factor:g}x"] if self.connection_factor is not None else []
        return ",".join(parts) or AS_IT_IS

    def applied(self, environment: Environment) -> Environment:
        """Returns an environment with the change.

        With another slack, a job may start at the first slot after its arrival all the same. Without moves, every
        class of jobs becomes one class an ingress point, whose range is that point's home; jobs of a point without a
        home keep their range.

        Raises:
            ScenarioError: There is no carbon price to change, constraints or preferences name classes, jobs may now end
                after the signals do, or nobody would be asked about running jobs.
        """
        changed = environment
        if self.carbon_usd_per_t is not None:
            if environment.economics is None:
                raise ScenarioError(f"scenario {environment.scenario!r} has no economics, so no carbon price to change")
            priced = environment.economics.model_copy(update={"carbon_usd_per_t": self.carbon_usd_per_t})
            changed = replace(changed, economics=priced)
        if self.slack_h is not None or self.slack_factor is not None:
            slot_s = environment.slot_s if environment.protocol == "each-slot" else 0.0
            changed = _with_jobs(changed, functools.partial(_other_slack, self.slack_h, self.slack_factor, slot_s))
        if self.stay:
            changed = _without_moves(changed)
        if self.freedom is not None:
            changed = _freed(changed, self.freedom)
        if self.without is not None or self.connection_factor is not None:
            changed = replace(changed, fleet=self.of_meters(changed.fleet))
        return changed

    def of_meters(self, fleet: Fleet) -> Fleet:
        """Returns a fleet whose meters, tariffs and devices have the change."""
        sites = []
        for site in fleet.sites:
            meter, behind = site.meter, site.behind_meter
            if meter is not None and self.connection_factor is not None:
                meter = meter.connection_scaled(self.connection_factor)
            if meter is not None and self.without == "peaks":
                meter = meter.model_copy(update={"system_load": None, "system_peaks": ()})
            if behind is not None and self.without in ("battery", "solar"):
                behind = behind.model_copy(update={self.without: None})
            sites.append(site.model_copy(update={"meter": meter, "behind_meter": behind}))
        tariffs = fleet.tariffs
        if self.without == "peaks":
            none = {"demand": (), "coincident": ()}
            tariffs = {name: tariff.model_copy(update=none) for name, tariff in tariffs.items()}
        return fleet.model_copy(update={"sites": tuple(sites), "tariffs": tariffs})


@dataclass(frozen=True)
class ChangedRun(RecordedRun):
    """A run in a changed environment.

    Attributes:
        change: The change.
    """

    change: Change = Change()

    @property
    def label(self) -> str:
        """Policy, change and environment."""
        return f"{self.policy.name}, {self.change.name}, environment {self.index}"

    @property
    def place(self) -> Path:
        """Folder of the record."""
        base = self.folder if self.change == Change() else self.folder / "what-if" / self.change.name
        return base / super().place.relative_to(self.folder)

    def environment(self) -> Environment:
        """Returns the changed environment."""
        return self.change.applied(super().environment())


def _with_jobs(environment: Environment, change: Callable[[Jobs], Jobs], fleet: Fleet | None = None) -> Environment:
    """Returns an environment whose jobs, and those that planners draw, are changed alike; of another fleet if told."""
    draw = environment.sample_jobs
    return replace(
        environment,
        jobs=change(environment.jobs),
        sample_jobs=None if draw is None else changed_sampler(draw, change),
        fleet=fleet or environment.fleet,
    )


def _other_slack(slack_h: float | None, factor: float | None, slot_s: float, jobs: Jobs) -> Jobs:
    """Returns jobs with another slack, at least up to the first slot after their arrival."""
    slack_s_J = np.full(len(jobs), slack_h * HOUR_S) if slack_h is not None else _times(jobs.slack_s_J, factor or 0.0)
    until_slot_s_J = np.ceil(jobs.arrival_s_J / slot_s) * slot_s - jobs.arrival_s_J if slot_s else 0.0
    return replace(jobs, slack_s_J=np.maximum(slack_s_J, until_slot_s_J))


def _times(slack_s_J: F8, factor: float) -> F8:
    """Returns slacks times a factor; none at all times 0 is 0."""
    return np.zeros_like(slack_s_J) if factor == 0 else slack_s_J * factor


def _freed(environment: Environment, lever: Bending) -> Environment:
    """Returns an environment whose jobs of all classes have a freedom; those that state it keep theirs.

    Suspending takes what ``Checkpoint`` says by default, resizing doubles or halves a gang at a speed-up of ``DOUBLED``
    a doubling, caps follow the measured curve ``CAPS``, moves are those of suspended jobs.
    """
    if environment.protocol != "each-slot" or environment.learns_run_times:
        learned = "its run times are learned: set jobs.knowledge.run_time to limit or class-mean"
        why = learned if environment.learns_run_times else "its protocol is on-arrival: set protocol to each-slot"
        raise ScenarioError(f"running jobs of scenario {environment.scenario!r} cannot be changed: {why}")
    gangs = [2**k for k in range(MOST_GANGS) if 2**k <= 2 * int(environment.jobs.gpus_max_J.max())]
    speedup = [DOUBLED**k for k in range(len(gangs))]
    given: dict[Bending, dict[str, Any]] = {
        "suspend": {"interruptible": True},
        "resize": {"elastic": {"gpus": gangs, "speedup": speedup}} if len(gangs) > 1 else {},
        "cap": {"caps": CAPS},
        "move": {"interruptible": True, "moves": True},
    }
    fleet, freedoms = environment.fleet, {}
    for name in fleet.classes:
        stated = fleet.freedoms[name].model_dump(exclude_unset=True) if name in fleet.freedoms else {}
        free = {} if stated.get("requeue") else given[lever]
        freedoms[name] = Freedom.model_validate({**free, **{key: stated[key] for key in stated if stated[key]}})
    return replace(environment, fleet=Fleet.model_validate({**fleet.model_dump(), "freedoms": freedoms}))


def _without_moves(environment: Environment) -> Environment:
    """Returns an environment whose jobs run where they arrive."""
    if environment.constraints is not None:
        raise ScenarioError(
            f"scenario {environment.scenario!r} has constraints, which name classes of jobs; without moves every "
            "ingress point has classes of its own. Leave the constraints out: --set constraints=null"
        )
    if environment.latency_weight_w:
        raise ScenarioError(
            f"scenario {environment.scenario!r} has a latency_weight_w, which names classes of jobs; without moves "
            "every ingress point has classes of its own. Leave it out: --set latency_weight_w={}"
        )
    by_origin = functools.partial(_classes_by_origin, len(environment.fleet.ingress_points))
    return _with_jobs(environment, by_origin, _homes_only(environment.fleet))


def _classes_by_origin(points: int, jobs: Jobs) -> Jobs:
    return replace(jobs, class_J=jobs.class_J * points + jobs.origin_J)


def _homes_only(fleet: Fleet) -> Fleet:
    """Returns a fleet with a class for every class and ingress point, which may run at that point's home alone.

    Where a point has no home, or jobs of the class may not run there, the class keeps its range.
    """
    pairs = [(name, point) for name in fleet.classes for point in fleet.ingress_points]
    ranges = {}
    for name, point in pairs:
        allowed = fleet.ranges.get(name, fleet.site_names)
        ranges[f"{name}@{point.name}"] = (point.home,) if point.home in allowed else allowed
    types = {}
    for key, kind in fleet.gpu_types.items():
        profiles = {f"{name}@{point.name}": kind.classes[name].model_dump() for name, point in pairs}
        types[key] = {**kind.model_dump(), "classes": profiles}
    freedoms: dict[str, dict[str, Any]] = {}
    for name, freedom in fleet.freedoms.items():
        displaced = [f"{other}@{point.name}" for other in freedom.preempts for point in fleet.ingress_points]
        stated = {**freedom.model_dump(exclude_unset=True), "preempts": displaced}
        freedoms |= {f"{name}@{point.name}": stated for point in fleet.ingress_points}
    return Fleet.model_validate({**fleet.model_dump(), "gpu_types": types, "ranges": ranges, "freedoms": freedoms})

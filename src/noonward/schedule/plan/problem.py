"""What a day-ahead plan is made from: load samples, classes, capacities, costs and the guarantee asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.plan.classes import Entries, LoadClass, Queued, allowed_entries, run_hours_of

HEADROOM: Final = 1.25
"""Default of the largest possible load over the largest sample."""
_ARRAYS: Final = (
    "load_NKC", "capacity_TD", "cost_TD", "peak_cost_D", "load_max_KC", "placed_TD", "peak_before_D",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlanProblem:
    """A day-ahead planning problem (Hall et al., Eq. 12 to 14).

    Axes: N samples, K submission hours, C classes, T = K + max (h_c + run hours - 1) execution hours, D clusters.
    Loads, capacities and curves share one unit (GPUs, cores, a share of a cluster). Costs are per unit and hour.

    Attributes:
        classes: Classes C.
        load_NKC: Load submitted in each hour on past days, at least 0.
        capacity_TD: Machine capacity less inflexible load, at least 0 and finite: the largest curve allowed, Eq. (5).
        cost_TD: Cost of a unit of virtual capacity for an hour, Eq. (7); negative where power is paid to be used.
        peak_cost_D: Cost of a unit of a cluster's highest hour, at least 0, Eq. (7).
        beta: Tail of the CVaR, in (0, 1]: the mean of the worst share beta of days must fit, Eq. (6).
        eps: Radius of the Wasserstein ball, unit of load, at least 0, Eq. (11); 0 for the sample-average plan.
        load_max_KC: Largest load possible, the support, Eq. (13); by default ``HEADROOM`` x the largest sample.
        support: Whether the ball holds only distributions on 0 <= s <= load_max; without it, on all real loads.
        placed_TD: Load placed already, which takes part of the curve; 0 by default.
        queued: Load that waits since before hour 0 and is placed by the plan, too.
        peak_before_D: Highest curve of hours before hour 0, whose peak is paid for anyway; 0 by default.

    Raises:
        ScenarioError: A value is out of range, shapes disagree, or a sample lies outside the support.
        InfeasiblePlanError: A class has load but no capacity at all within its range and flexibility.
    """

    classes: tuple[LoadClass, ...]
    load_NKC: F8
    capacity_TD: F8
    cost_TD: F8
    peak_cost_D: F8
    beta: float = 0.2
    eps: float = 8e-3
    load_max_KC: F8 | None = None
    support: bool = True
    placed_TD: F8 | None = None
    queued: tuple[Queued, ...] = ()
    peak_before_D: F8 | None = None

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        self._check_guarantee()
        self._check_shapes()
        self._check_classes()
        for name in _ARRAYS:
            if getattr(self, name) is not None and name != "load_max_KC":
                _check_values(name, getattr(self, name), -np.inf if name == "cost_TD" else 0.0)
        self._check_support()
        self._check_queue()
        self._check_capacity()

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """N, K, C, T, D."""
        samples, hours, classes = self.load_NKC.shape
        span, clusters = self.capacity_TD.shape
        return samples, hours, classes, span, clusters

    @property
    def largest_KC(self) -> F8:
        """Largest load possible, the support's upper end."""
        return HEADROOM * self.load_NKC.max(axis=0) if self.load_max_KC is None else self.load_max_KC

    @property
    def robust(self) -> bool:
        """Whether the ball has a radius."""
        return self.eps > 0

    @cached_property
    def entries(self) -> Entries:
        """Fractions that may be above 0."""
        _, hours, _, _, clusters = self.shape
        return allowed_entries(self.classes, hours, clusters, self.queued)

    @property
    def run_hours_C(self) -> I8:
        """Hours a unit of every class runs."""
        return run_hours_of(self.classes)

    def cost_of(self, curve_TD: F8) -> float:
        """Returns f(v), Eq. (7): ``sum_td cost v + sum_d peak_cost max_t v``; the peak before hour 0 counts."""
        peak_D = curve_TD.max(axis=0)
        if self.peak_before_D is not None:
            peak_D = np.maximum(peak_D, self.peak_before_D)
        return float((self.cost_TD * curve_TD).sum() + (self.peak_cost_D * peak_D).sum())

    def _check_guarantee(self) -> None:
        if not 0 < self.beta <= 1:
            raise ScenarioError(f"beta is {self.beta}; the share of days in the tail must be above 0, at most 1")
        if not 0 <= self.eps < np.inf:
            raise ScenarioError(f"eps is {self.eps}; the radius must be finite and at least 0 (0: sample average)")
        if not self.classes:
            raise ScenarioError("there is no class; give at least one LoadClass")

    def _check_shapes(self) -> None:
        if self.load_NKC.ndim != 3 or self.load_NKC.size == 0:
            raise ScenarioError(
                f"load samples have shape {self.load_NKC.shape}; give at least one sample as (N, K, C), "
                "samples x submission hours x classes"
            )
        if self.capacity_TD.ndim != 2 or self.capacity_TD.size == 0:
            raise ScenarioError(f"capacity_TD has shape {self.capacity_TD.shape}; expected (T, D), hours x clusters")
        _, hours, count = self.load_NKC.shape
        clusters = self.capacity_TD.shape[1]
        longest = max(self.classes, key=lambda one: one.reach_h)
        horizon = hours + longest.reach_h
        expected: dict[str, tuple[int, ...]] = dict.fromkeys(
            ("capacity_TD", "cost_TD", "placed_TD"), (horizon, clusters)
        )
        expected["load_NKC"] = (self.load_NKC.shape[0], hours, len(self.classes))
        expected["peak_cost_D"] = expected["peak_before_D"] = (clusters,)
        expected["load_max_KC"] = (hours, count)
        for name, shape in expected.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ScenarioError(
                    f"{name} has shape {array.shape}; expected {shape}: {len(self.classes)} classes, {hours} "
                    f"submission hours, {horizon} execution hours (these + longest flexibility + its run less 1 h: "
                    f"class {longest.name!r} starts up to {longest.flexibility_h} h late and runs "
                    f"{longest.run_hours} h), {clusters} clusters"
                )

    def _check_classes(self) -> None:
        clusters = self.capacity_TD.shape[1]
        for one in self.classes:
            if max(one.clusters) >= clusters:
                raise ScenarioError(
                    f"class {one.name!r} may run at cluster {max(one.clusters)}, but there are {clusters} clusters "
                    f"(0 to {clusters - 1})"
                )

    def _check_support(self) -> None:
        if self.load_max_KC is None or not self.support:
            return
        _check_values("load_max_KC", self.load_max_KC, 0.0)
        outside = self.load_NKC > self.load_max_KC
        if outside.any():
            i, k, c = np.argwhere(outside)[0]
            raise ScenarioError(
                f"sample {i} has a load of {self.load_NKC[i, k, c]:g} of class {self.classes[c].name!r} in hour {k}, "
                f"above the largest possible load of {self.load_max_KC[k, c]:g}; raise load_max_KC or leave it out"
            )

    def _check_queue(self) -> None:
        span = self.capacity_TD.shape[0]
        for i, wait in enumerate(self.queued):
            if not 0 <= wait.load_class < len(self.classes):
                raise ScenarioError(
                    f"queued[{i}] is of class {wait.load_class}; classes are 0 to {len(self.classes) - 1}"
                )
            if not 0 <= wait.load < np.inf:
                raise ScenarioError(f"queued[{i}] has a load of {wait.load}; it must be finite and at least 0")
            one = self.classes[wait.load_class]
            last = span - one.run_hours
            if not 0 <= wait.flexibility_h <= last or wait.flexibility_h != int(wait.flexibility_h):
                raise ScenarioError(
                    f"queued[{i}] may start {wait.flexibility_h} h from now; class {one.name!r} runs {one.run_hours} h "
                    f"and the horizon has {span} h, so give whole hours from 0 to {last}"
                )

    def _check_capacity(self) -> None:
        entries = self.entries
        room_M = np.full(len(entries), np.inf)
        np.minimum.at(room_M, entries.entry_Z, self.capacity_TD.ravel()[entries.place_Z])
        load_L = np.concatenate([self.load_NKC.max(axis=0).ravel(), [wait.load for wait in self.queued]])
        room_L = np.zeros(len(load_L))
        np.maximum.at(room_L, entries.load_M, room_M)
        stuck = np.flatnonzero((load_L > 0) & (room_L == 0))
        if len(stuck):
            mine = np.flatnonzero(entries.load_M == stuck[0])
            one = self.classes[entries.class_M[mine[0]]]
            run = " in some hour of every run" if one.run_hours > 1 else ""
            raise InfeasiblePlanError(
                f"class {one.name!r} {self.origin(int(stuck[0]))} has a capacity of zero at all of its clusters "
                f"{list(one.clusters)} in hours {entries.run_hour_M[mine[0]]} to "
                f"{entries.run_hour_M[mine[-1]] + one.run_hours - 1}{run}; "
                "give one of them capacity, or widen the range or the flexibility"
            )

    def origin(self, load: int) -> str:
        """Returns where a load comes from, for messages: ``submitted in hour 3`` or ``queued (queued[0])``."""
        to_come = self.load_NKC.shape[1] * len(self.classes)
        return (
            f"submitted in hour {load // len(self.classes)}" if load < to_come else f"queued (queued[{load - to_come}])"
        )


def _check_values(name: str, array: F8, low: float) -> None:
    bad = ~np.isfinite(array) | (array < low)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        allowed = "it must be finite" if low == -np.inf else f"it must be finite and at least {low:g}"
        raise ScenarioError(f"{name}{list(where)} is {array[where]}; {allowed}")

"""What a day-ahead plan is made from: load samples, classes, capacities, costs and the guarantee asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.errors import InfeasiblePlanError, ScenarioError

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]

HEADROOM: Final = 1.25
"""Default of the largest possible load over the largest sample."""


@dataclass(frozen=True, kw_only=True)
class LoadClass:
    """Load that tolerates the same delay and may run at the same clusters.

    Attributes:
        name: Name.
        clusters: Spatial range D_c: indices of the clusters it may run at, each once.
        flexibility_h: Temporal flexibility h_c: longest delay of the execution hour, h, at least 0.

    Raises:
        ScenarioError: The range is empty or names a cluster twice, or the flexibility is below 0.
    """

    name: str
    clusters: tuple[int, ...]
    flexibility_h: int

    def __post_init__(self) -> None:
        if not self.clusters:
            raise ScenarioError(f"class {self.name!r} has an empty spatial range; name at least one cluster")
        if len(set(self.clusters)) != len(self.clusters) or min(self.clusters) < 0:
            raise ScenarioError(
                f"class {self.name!r} has the spatial range {self.clusters}; give cluster indices from 0, each once"
            )
        if self.flexibility_h < 0 or self.flexibility_h != int(self.flexibility_h):
            raise ScenarioError(
                f"class {self.name!r} has a flexibility of {self.flexibility_h} h; it must be whole hours, at least 0"
            )


@dataclass(frozen=True, kw_only=True)
class Entries:
    """The fractions Y that may be above 0, Eq. (4): d in D_c and t in [k, k + h_c]. Axis M, ordered by (k, c, t, d).

    Attributes:
        hour_M: Submission hour k.
        class_M: Class c.
        run_hour_M: Execution hour t.
        cluster_M: Cluster d.
        load_M: Index k C + c of the load.
        place_M: Index t D + d of the place.
    """

    hour_M: I8
    class_M: I8
    run_hour_M: I8
    cluster_M: I8
    load_M: I8
    place_M: I8

    def __len__(self) -> int:
        return len(self.load_M)

    @cached_property
    def by_place(self) -> tuple[I8, I8]:
        """Entries ordered by place, and the first of each place in that order."""
        order = np.argsort(self.place_M, kind="stable")
        count = int(self.place_M.max()) + 2
        return order, np.searchsorted(self.place_M[order], np.arange(count))


def allowed_entries(classes: Sequence[LoadClass], hours: int, clusters: int) -> Entries:
    """Returns the fractions that range and flexibility allow.

    Args:
        classes: Classes C.
        hours: Submission hours K.
        clusters: Clusters D.
    """
    rows = [
        (k, c, t, d)
        for k in range(hours)
        for c, one in enumerate(classes)
        for t in range(k, k + one.flexibility_h + 1)
        for d in sorted(one.clusters)
    ]
    k, c, t, d = np.array(rows, dtype=np.int64).T
    return Entries(
        hour_M=k, class_M=c, run_hour_M=t, cluster_M=d, load_M=k * len(classes) + c, place_M=t * clusters + d
    )


@dataclass(frozen=True, kw_only=True)
class PlanProblem:
    """A day-ahead planning problem (Hall et al., Eq. 12 to 14).

    Axes: N samples, K submission hours, C classes, T = K + max h_c execution hours, D clusters. Loads, capacities and
    curves share one unit (GPUs, cores, a share of a cluster); costs are per unit and hour.

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

    def __post_init__(self) -> None:
        for name in ("load_NKC", "capacity_TD", "cost_TD", "peak_cost_D", "load_max_KC", "placed_TD"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        self._check_guarantee()
        self._check_shapes()
        _check_values("load_NKC", self.load_NKC, 0.0)
        _check_values("capacity_TD", self.capacity_TD, 0.0)
        _check_values("cost_TD", self.cost_TD, -np.inf)
        _check_values("peak_cost_D", self.peak_cost_D, 0.0)
        if self.placed_TD is not None:
            _check_values("placed_TD", self.placed_TD, 0.0)
        self._check_support()
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
        return allowed_entries(self.classes, self.load_NKC.shape[1], self.capacity_TD.shape[1])

    def cost_of(self, curve_TD: F8) -> float:
        """Returns f(v), Eq. (7): ``sum_td cost v + sum_d peak_cost max_t v``."""
        return float((self.cost_TD * curve_TD).sum() + (self.peak_cost_D * curve_TD.max(axis=0)).sum())

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
        if self.capacity_TD.ndim != 2 or self.capacity_TD.shape[1] == 0:
            raise ScenarioError(f"capacity_TD has shape {self.capacity_TD.shape}; expected (T, D), hours x clusters")
        _, hours, count = self.load_NKC.shape
        clusters = self.capacity_TD.shape[1]
        expected: dict[str, tuple[int, ...]] = {}
        horizon = hours + max(one.flexibility_h for one in self.classes)
        expected["load_NKC"] = (self.load_NKC.shape[0], hours, len(self.classes))
        expected["capacity_TD"] = expected["cost_TD"] = expected["placed_TD"] = (horizon, clusters)
        expected["peak_cost_D"] = (clusters,)
        expected["load_max_KC"] = (hours, count)
        for name, shape in expected.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ScenarioError(
                    f"{name} has shape {array.shape}; expected {shape}: {len(self.classes)} classes, {hours} "
                    f"submission hours, {horizon} execution hours (these + longest flexibility), {clusters} clusters"
                )
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

    def _check_capacity(self) -> None:
        entries = self.entries
        room_KC = np.zeros(self.load_NKC.shape[1:])
        np.maximum.at(room_KC, (entries.hour_M, entries.class_M), self.capacity_TD.ravel()[entries.place_M])
        stuck = (self.load_NKC.max(axis=0) > 0) & (room_KC == 0)
        if stuck.any():
            k, c = np.argwhere(stuck)[0]
            one = self.classes[c]
            raise InfeasiblePlanError(
                f"class {one.name!r} submitted in hour {k} has a capacity of zero at all of its clusters "
                f"{list(one.clusters)} in hours {k} to {k + one.flexibility_h}; give one of them capacity, or widen "
                "the range or the flexibility"
            )


def _check_values(name: str, array: F8, low: float) -> None:
    bad = ~np.isfinite(array) | (array < low)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        allowed = "it must be finite" if low == -np.inf else f"it must be finite and at least {low:g}"
        raise ScenarioError(f"{name}{list(where)} is {array[where]}; {allowed}")


def mixed_cost(
    *,
    carbon_TD: F8 | None = None,
    price_TD: F8 | None = None,
    request_TD: F8 | None = None,
    carbon_weight: float = 0.0,
    price_weight: float = 0.0,
    request_weight: float = 0.0,
) -> F8:
    """Returns the cost of a unit of load for an hour from several signals: their weighted sum.

    Args:
        carbon_TD: Carbon intensity, e.g. gCO2/kWh.
        price_TD: Electricity price, e.g. USD/MWh.
        request_TD: Demand-response request: what a unit of load less in this hour is worth.
        carbon_weight: Cost per unit of load at a carbon intensity of 1.
        price_weight: Cost per unit of load at a price of 1.
        request_weight: Cost per unit of load at a request of 1.

    Raises:
        ScenarioError: No signal is given, one has a weight but no values, or shapes disagree.

    Example:
        >>> mixed_cost(carbon_TD=np.array([[300.0]]), price_TD=np.array([[50.0]]), carbon_weight=0.1, price_weight=1.0)
        array([[80.]])
    """
    parts: list[tuple[str, Any, float]] = [
        ("carbon", carbon_TD, carbon_weight),
        ("price", price_TD, price_weight),
        ("request", request_TD, request_weight),
    ]
    for name, signal, weight in parts:
        if weight != 0 and signal is None:
            raise ScenarioError(f"{name}_weight is {weight}, but there is no {name} signal; give {name}_TD")
    given = [(np.asarray(signal, dtype=np.float64), weight) for _, signal, weight in parts if signal is not None]
    if not given:
        raise ScenarioError("no signal is given; give carbon_TD, price_TD or request_TD with its weight")
    shapes = {signal.shape for signal, _ in given}
    if len(shapes) > 1:
        raise ScenarioError(f"signals have the shapes {sorted(shapes)}; they must agree")
    total: F8 = np.sum([weight * signal for signal, weight in given], axis=0)
    return total

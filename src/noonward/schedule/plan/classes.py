"""Load classes, what waits, and the fractions that range and flexibility allow, with the places their units occupy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from noonward.arrays import I8
from noonward.errors import ScenarioError


@dataclass(frozen=True, kw_only=True)
class LoadClass:
    """Load that tolerates the same delay, may run at the same clusters and runs as long.

    A unit submitted in hour k and started in hour t at cluster d, k <= t <= k + ``flexibility_h``, occupies d in the
    hours t to t + ``run_hours`` - 1, without interruption.

    Attributes:
        name: Name.
        clusters: Spatial range D_c: indices of the clusters it may run at, each once.
        flexibility_h: Temporal flexibility h_c: longest delay of the start, h, at least 0.
        run_hours: Hours a unit runs, at least 1.

    Raises:
        ScenarioError: The range is empty or names a cluster twice, the flexibility is below 0, or the run below 1 h.
    """

    name: str
    clusters: tuple[int, ...]
    flexibility_h: int
    run_hours: int = 1

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
        if self.run_hours < 1 or self.run_hours != int(self.run_hours):
            raise ScenarioError(
                f"class {self.name!r} runs for {self.run_hours} h; run_hours must be whole hours, at least 1"
            )

    @property
    def reach_h(self) -> int:
        """Hours after submission in which its load may still run: flexibility and run less the first hour."""
        return self.flexibility_h + self.run_hours - 1


@dataclass(frozen=True, kw_only=True)
class Queued:
    """Load that was submitted before hour 0, is known, and waits to start.

    Attributes:
        load_class: Index of its class, whose range and run it has.
        load: Load, at least 0.
        flexibility_h: Delay it still tolerates: it starts in hours 0 to this one.
    """

    load_class: int
    load: float
    flexibility_h: int


def run_hours_of(classes: Sequence[LoadClass]) -> I8:
    """Returns the hours a unit of every class runs, [C]."""
    return np.array([one.run_hours for one in classes], dtype=np.int64)


def places_of(run_hours_C: I8, class_X: I8, start_X: I8, cluster_X: I8, clusters: int) -> tuple[I8, I8]:
    """Returns the places that starts occupy, axis Z: index in X and place ``t D + d``.

    Args:
        run_hours_C: Hours a unit of every class runs.
        class_X: Classes of the starts.
        start_X: Hours they start in.
        cluster_X: Clusters.
        clusters: Clusters D.
    """
    run_X = run_hours_C[class_X]
    index = np.repeat(np.arange(len(class_X)), run_X)
    hour = start_X[index] + np.arange(len(index)) - np.repeat(np.cumsum(run_X) - run_X, run_X)
    return index, hour * clusters + cluster_X[index]


@dataclass(frozen=True, kw_only=True)
class Entries:
    """The fractions Y that may be above 0, Eq. (4): d in D_c and t in [k, k + h_c]; t is the hour of the start.

    Axis M: entries, ordered by (load, t, d). Loads: k C + c for load to come, K C + i for queued load i. Axis P: places
    ``t D + d``. Axis Z: the places that entries use, ordered by (load, place, entry). Axis G: pairs of a load and a
    place it may use, in that order; with one-hour classes Z, G and M are the same.

    Attributes:
        hour_M: Submission hour k; 0 for queued load.
        class_M: Class c.
        run_hour_M: Hour of the start t.
        cluster_M: Cluster d.
        load_M: Load.
        entry_Z: Entry of each use.
        place_Z: Place of each use.
        pair_Z: Pair of each use.
        load_G: Load of each pair.
        place_G: Place of each pair.
    """

    hour_M: I8
    class_M: I8
    run_hour_M: I8
    cluster_M: I8
    load_M: I8
    entry_Z: I8
    place_Z: I8
    pair_Z: I8
    load_G: I8
    place_G: I8

    def __len__(self) -> int:
        return len(self.load_M)

    @cached_property
    def first_G(self) -> I8:
        """First use of each pair in axis Z, and the end."""
        return np.searchsorted(self.pair_Z, np.arange(len(self.load_G) + 1))


def allowed_entries(
    classes: Sequence[LoadClass],
    hours: int,
    clusters: int,
    queued: Sequence[Queued] = (),
) -> Entries:
    """Returns the fractions that range and flexibility allow.

    Args:
        classes: Classes C.
        hours: Submission hours K.
        clusters: Clusters D.
        queued: Loads that wait.
    """
    loads = [(k, c, one.flexibility_h) for k in range(hours) for c, one in enumerate(classes)]
    loads += [(0, wait.load_class, wait.flexibility_h) for wait in queued]
    rows = [
        (load, k, c, t, d)
        for load, (k, c, flexibility_h) in enumerate(loads)
        for t in range(k, k + flexibility_h + 1)
        for d in sorted(classes[c].clusters)
    ]
    load_M, k, c, t, d = np.array(rows, dtype=np.int64).T
    entry_Z, place_Z = places_of(run_hours_of(classes), c, t, d, clusters)
    load_Z = load_M[entry_Z]
    order = np.lexsort((entry_Z, place_Z, load_Z))
    entry_Z, place_Z, load_Z = entry_Z[order], place_Z[order], load_Z[order]
    new_Z = np.ones(len(order), dtype=bool)
    new_Z[1:] = (np.diff(load_Z) != 0) | (np.diff(place_Z) != 0)
    return Entries(
        hour_M=k,
        class_M=c,
        run_hour_M=t,
        cluster_M=d,
        load_M=load_M,
        entry_Z=entry_Z,
        place_Z=place_Z,
        pair_Z=np.cumsum(new_Z) - 1,
        load_G=load_Z[new_Z],
        place_G=place_Z[new_Z],
    )

"""Daily load shapes for day-ahead planning: real profiles from a file, or a calibrated generator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import polars as pl

from noonward.arrays import F8
from noonward.data.table_file import TableFile, open_table
from noonward.errors import DataError, nearest
from noonward.model.precision import SHAPE_DECIMALS

DAY_HOURS: Final = 24
"""Hours of a profile."""
_TABLE: Final = "tables/load_shapes.json"
_STANDARD: Final = MappingProxyType(
    {"source": "source", "cluster": "cluster", "day": "day", "hour": "hour", "load": "load_normalised"}
)
_HELD_OUT: Final = 0.2
"""Share of a pool's profiles that only validation days are drawn from."""


@dataclass(frozen=True, kw_only=True)
class ShapeConstants:
    """Constants of the packaged load shapes and costs; loads are in shares of a cluster's capacity.

    Attributes:
        class_level: Mean load of a class.
        daily_amplitude: Amplitude of the daily cosine, relative.
        peak_hour: Hour of its peak.
        noise_day_common: Standard deviation of the day's factor common to all classes, relative.
        noise_day_class: Standard deviation of the day's factor of each class, relative.
        noise_hour: Standard deviation of the hour's factor, relative.
        noise_hour_memory: Its correlation from one hour to the next.
        delay_h: Temporal flexibility of every class, h.
        centers: Data centers.
        clusters_per_center: Clusters in each.
        capacity: Machine capacity of a cluster.
        cost_amplitude: Amplitude of the running cost, whose mean is 1.
        center_phase_h: Hours between the cost peaks of consecutive data centers.
        cluster_phase_h: Hours between those of consecutive clusters of a center.
        peak_weight: Cost of a unit of a cluster's highest hour.
        source: Where the constants come from.
    """

    class_level: float
    daily_amplitude: float
    peak_hour: float
    noise_day_common: float
    noise_day_class: float
    noise_hour: float
    noise_hour_memory: float
    delay_h: int
    centers: int
    clusters_per_center: int
    capacity: float
    cost_amplitude: float
    center_phase_h: float
    cluster_phase_h: float
    peak_weight: float
    hours: int
    source: str


@cache
def load_shape_constants() -> ShapeConstants:
    """Returns the packaged constants."""
    table: dict[str, Any] = json.loads((files("noonward.data") / _TABLE).read_text(encoding="utf-8"))
    return ShapeConstants(**table)


def generate_load_shapes(
    days: int, classes: int, rng: np.random.Generator, constants: ShapeConstants | None = None
) -> F8:
    """Draws daily loads per class: level x daily cosine x (1 + day noise + class-day noise + hour noise), at least 0.

    Hour noise is a stationary autoregression of order 1 within a day; all noise is normal.

    Args:
        days: Days N, at least 1.
        classes: Classes C, at least 1.
        rng: Source of randomness.
        constants: Constants; the packaged ones if left out.

    Returns:
        Loads (N, 24, C) in shares of a cluster's capacity.

    Raises:
        DataError: ``days`` or ``classes`` is below 1.

    Example:
        >>> generate_load_shapes(3, 7, np.random.default_rng(0)).shape
        (3, 24, 7)
    """
    if days < 1 or classes < 1:
        raise DataError(f"{days} days of {classes} classes were asked; give at least 1 of each")
    c = load_shape_constants() if constants is None else constants
    common = c.noise_day_common * rng.normal(size=(days, 1, 1))
    own = c.noise_day_class * rng.normal(size=(days, 1, classes))
    noise = rng.normal(size=(days, c.hours, classes))
    for hour in range(1, c.hours):
        fresh = np.sqrt(1 - c.noise_hour_memory**2) * noise[:, hour]
        noise[:, hour] = c.noise_hour_memory * noise[:, hour - 1] + fresh
    hours = np.arange(c.hours)
    wave_K = np.round(np.cos(2 * np.pi * (hours - c.peak_hour) / DAY_HOURS), SHAPE_DECIMALS)
    shape_K = c.class_level * (1 + c.daily_amplitude * wave_K)
    load: F8 = np.maximum(shape_K[None, :, None] * (1 + common + own + c.noise_hour * noise), 0.0)
    return load


def daily_costs(span_h: int, constants: ShapeConstants | None = None) -> F8:
    """Returns the running cost of a unit of load per hour and cluster, (T, D): sinusoids, shifted by cluster."""
    c = load_shape_constants() if constants is None else constants
    phase_D = np.array(
        [c.center_phase_h * j + c.cluster_phase_h * i for j in range(c.centers) for i in range(c.clusters_per_center)]
    )
    hours = np.arange(span_h)[:, None]
    wave_TD = np.round(np.cos(2 * np.pi * (hours - phase_D) / DAY_HOURS), SHAPE_DECIMALS)
    cost: F8 = 1.0 + c.cost_amplitude * wave_TD
    return cost


@dataclass(frozen=True, kw_only=True)
class LoadProfiles:
    """Daily load shapes of real clusters.

    Attributes:
        load_PK: Load per profile and hour of the day, at least 0.
        source_P: Source of each profile.
        cluster_P: Its cluster.
        day_P: Its day.
    """

    load_PK: F8
    source_P: tuple[str, ...]
    cluster_P: tuple[str, ...]
    day_P: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.load_PK)

    def of_sources(self, sources: Sequence[str]) -> LoadProfiles:
        """Returns the profiles of some sources.

        Raises:
            DataError: A source has no profile.
        """
        known = sorted(set(self.source_P))
        for name in sources:
            if name not in known:
                raise DataError(f"there is no load profile of source {name!r}; {nearest(name, known)}")
        kept = [p for p, source in enumerate(self.source_P) if source in sources]
        return LoadProfiles(
            load_PK=self.load_PK[kept],
            source_P=tuple(self.source_P[p] for p in kept),
            cluster_P=tuple(self.cluster_P[p] for p in kept),
            day_P=tuple(self.day_P[p] for p in kept),
        )


def read_load_profiles(path: Path, columns: Mapping[str, str] = MappingProxyType({})) -> LoadProfiles:
    """Reads daily load profiles.

    Args:
        path: CSV or Parquet file, one row an hour: ``source``, ``cluster``, ``day``, ``hour`` (0 to 23) and
            ``load_normalised`` (at least 0); other columns are ignored. Every profile (source, cluster, day) must have
            each hour once.
        columns: Names where the file's columns differ, by ``source``, ``cluster``, ``day``, ``hour``, ``load``.

    Raises:
        DataError: The file, a column or a value is not as described; the message names the row.
    """
    table = open_table(path, _STANDARD, columns, tuple(_STANDARD))
    hour = table.integers("hour", f"give the hour of the day, 0 to {DAY_HOURS - 1}", low=0)
    table.forbid("hour", hour >= DAY_HOURS, f"give the hour of the day, 0 to {DAY_HOURS - 1}")
    load = table.numbers("load", "give a load of at least 0", low=0.0)
    day = table.integers("day", "give the day as a whole number of at least 0", low=0)
    frame = pl.DataFrame(
        {
            "source": table.frame[table.column_of["source"]].cast(pl.String),
            "cluster": table.frame[table.column_of["cluster"]].cast(pl.String),
            "day": day,
            "hour": hour,
            "load": load,
        }
    )
    keys = ["source", "cluster", "day"]
    grouped = frame.sort(*keys, "hour").group_by(keys, maintain_order=True).agg("hour", "load")
    _refuse_partial(table, grouped)
    return LoadProfiles(
        load_PK=np.array(grouped["load"].to_list(), dtype=np.float64),
        source_P=tuple(grouped["source"].to_list()),
        cluster_P=tuple(grouped["cluster"].to_list()),
        day_P=tuple(grouped["day"].to_list()),
    )


def _refuse_partial(table: TableFile, grouped: pl.DataFrame) -> None:
    for source, cluster, day, hours, _ in grouped.iter_rows():
        if hours != list(range(DAY_HOURS)):
            raise DataError(
                f"{table.path}: the profile of source {source!r}, cluster {cluster!r}, day {day} has {len(hours)} "
                f"rows, hours {hours[:3]} ...; give each hour 0 to {DAY_HOURS - 1} once"
            )


def draw_days(
    profiles: LoadProfiles, training: int, validation: int, classes: int, rng: np.random.Generator, level: float
) -> tuple[F8, F8]:
    """Draws training and validation days: for every day and class a real profile, scaled to a common mean.

    A fifth of the profiles is kept for validation days alone. Within a class no profile is drawn twice; classes are
    drawn independently of each other, so what real classes have in common from day to day is lost.

    Args:
        profiles: Pool.
        training: Training days.
        validation: Validation days.
        classes: Classes C.
        rng: Source of randomness.
        level: Mean load of a class over the pool.

    Returns:
        Loads of the training and of the validation days, (N, 24, C).

    Raises:
        DataError: The pool holds too few profiles.
    """
    order = rng.permutation(len(profiles))
    kept = int(np.ceil(_HELD_OUT * len(profiles)))
    if len(profiles) - kept < training or kept < validation:
        raise DataError(
            f"{len(profiles)} load profiles are too few for {training} training and {validation} validation days, "
            f"which need {training} and {validation} of them in parts of {1 - _HELD_OUT:.0%} and {_HELD_OUT:.0%}; "
            "give more"
        )
    load_PK = profiles.load_PK * (level / profiles.load_PK.mean())
    parts = []
    for pool, days in ((order[kept:], training), (order[:kept], validation)):
        pick = np.stack([rng.choice(pool, days, replace=False) for _ in range(classes)], axis=1)
        parts.append(np.ascontiguousarray(load_PK[pick].transpose(0, 2, 1)))
    return parts[0], parts[1]

"""Values within the hour: what readings of 5 to 30 minutes say beside the means of their hours.

A table of parts has a row per part of an hour: ``zone``, ``timestamp`` (UTC start of the hour), ``quantity``
(``price`` or ``carbon``), ``step`` (minutes that a part lasts), ``into`` (minutes from the hour's start to the part's)
and ``value``. It holds only hours in which the quantity changes, and all parts of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import gcd
from typing import Any, Final

import numpy as np
import polars as pl

from noonward.arrays import F8
from noonward.model.signals import CARBON_NAME, PRICE_NAME

STEPS: Final = (60, 30, 20, 15, 10, 5)
"""Minutes that a value may hold."""
LEAST_COVER: Final = 0.5
"""Least share of an hour that its readings must cover."""
NAMES: Final = {"price": PRICE_NAME, "carbon": CARBON_NAME}
"""Signal of each quantity of a file."""
_HOUR: Final = ("zone", "timestamp")
_SCHEMA: Final[dict[str, Any]] = {
    "zone": pl.String,
    "timestamp": pl.Datetime("us", "UTC"),
    "quantity": pl.String,
    "step": pl.Int64,
    "into": pl.Int64,
    "value": pl.Float64,
}


def no_parts() -> pl.DataFrame:
    """Returns an empty table of parts."""
    return pl.DataFrame(schema=_SCHEMA)


def longest_step(*minutes: pl.Expr) -> pl.Expr:
    """Returns the longest of ``STEPS`` that divides all minutes of a group; null where none does."""
    fits = [pl.all_horizontal([(each % step == 0).all() for each in minutes]) for step in STEPS]
    return pl.coalesce([pl.when(fit).then(pl.lit(step, dtype=pl.Int64)) for fit, step in zip(fits, STEPS, strict=True)])


def parts_of(readings: pl.DataFrame, hours: pl.DataFrame) -> pl.DataFrame:
    """Returns the parts of the hours in which readings change.

    A part that no reading covers has the mean of its hour. Hours whose readings cross into the next one are left out.

    Args:
        readings: Columns ``zone``, ``timestamp`` (start of the hour), ``quantity``, ``into`` and ``minutes`` (from the
            hour's start, and length) and ``value``, known ones alone.
        hours: Columns ``zone``, ``timestamp``, ``price`` and ``carbon``: the hours' means, null where unknown.
    """
    key = [*_HOUR, "quantity"]
    fine = readings.filter(pl.col("minutes") < 60)
    if not fine.height:
        return no_parts()
    within = (pl.col("into") + pl.col("minutes") <= 60).all()
    varies = (pl.col("value") != pl.col("value").first()).any()
    fine = fine.with_columns(
        step=longest_step(pl.col("into"), pl.col("minutes")).over(key), kept=(within & varies).over(key)
    )
    fine = fine.filter(pl.col("kept") & (pl.col("step") < 60))
    if not fine.height:
        return no_parts()
    each = fine.select(*key, "step").unique().with_columns(into=pl.int_ranges(0, 60, pl.col("step"))).explode("into")
    split = fine.with_columns(
        into=pl.int_ranges(pl.col("into"), pl.col("into") + pl.col("minutes"), pl.col("step"))
    ).explode("into")
    means = hours.unpivot(["price", "carbon"], index=list(_HOUR), variable_name="quantity", value_name="mean")
    found = each.join(split.select(*key, "into", "value"), on=[*key, "into"], how="left")
    found = found.join(means.filter(pl.col("mean").is_not_null()), on=key, how="inner")
    return (
        found.with_columns(value=pl.coalesce("value", "mean"))
        .select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())
        .sort("zone", "quantity", "timestamp", "into")
    )


def mean_of_parts(value: pl.Expr, minutes: pl.Expr) -> pl.Expr:
    """Returns the mean of a group's values by the minutes they hold; the value itself where all are equal."""
    mean = (value * minutes).sum() / minutes.sum()
    return pl.when(value.min() == value.max()).then(value.first()).otherwise(mean)


def hours_of(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the hours of a tidy table whose rows may lie within hours, and the parts of those that change.

    Each value of a quantity holds for the longest of ``STEPS`` that divides all starts of its known values in the hour,
    so a value alone at an hour's start holds for the hour. An hour of which less than half is known is unknown.

    Args:
        rows: Columns ``timestamp`` (UTC), ``zone``, ``price`` and ``carbon`` (NaN: unknown), and flags.

    Returns:
        The same columns with a row per zone and hour, and a table of parts.
    """
    start = pl.col("timestamp").dt.truncate("1h")
    into = (pl.col("timestamp") - start).dt.total_minutes()
    if not rows.select((into > 0).any()).item():
        return rows, no_parts()
    marked = rows.with_columns(pl.col("price", "carbon").fill_nan(None), into=into, timestamp=start)
    others = [name for name in rows.columns if name not in (*_HOUR, *NAMES)]
    flags = [pl.col(name).all() if name == "is_real" else pl.col(name).any() for name in others]
    hours = marked.group_by(_HOUR, maintain_order=True).agg(*flags)
    known = []
    for name in NAMES:
        one = marked.filter(pl.col(name).is_not_null()).select(
            *_HOUR, pl.lit(name).alias("quantity"), "into", pl.col(name).alias("value")
        )
        one = one.with_columns(minutes=longest_step(pl.col("into")).over(_HOUR))
        mean = mean_of_parts(pl.col("value"), pl.col("minutes"))
        enough = pl.col("minutes").sum() >= 60 * LEAST_COVER
        hours = hours.join(one.group_by(_HOUR).agg(pl.when(enough).then(mean).alias(name)), on=list(_HOUR), how="left")
        known.append(one)
    parts = parts_of(pl.concat(known), hours)
    return hours.select(rows.columns).with_columns(pl.col("price", "carbon").fill_null(float("nan"))), parts


def arrays_of(
    parts: Sequence[pl.DataFrame], zones: Sequence[str], start: datetime, value_ZH: dict[str, F8]
) -> dict[tuple[str, str], F8]:
    """Returns values within hours by quantity and zone (``Signals.parts``).

    Args:
        parts: Tables of parts, of hours that differ.
        zones: Zones, in the order of the arrays.
        start: First hour.
        value_ZH: Means of the hours, by the name of the signal.
    """
    out: dict[tuple[str, str], F8] = {}
    table = pl.concat([no_parts(), *parts])
    for (quantity, zone), rows in table.partition_by("quantity", "zone", as_dict=True).items():
        name, row = NAMES[str(quantity)], zones.index(str(zone))
        base = gcd(*rows["step"].unique().to_list())
        value_HP = np.repeat(value_ZH[name][row][:, None], 60 // base, axis=1)
        hour_R = (rows["timestamp"].dt.epoch("s") - int(start.timestamp())).to_numpy() // 3600
        into_R, step_R, value_R = (rows[each].to_numpy() for each in ("into", "step", "value"))
        for later in range(0, int(step_R.max()), base):
            held_R = later < step_R
            value_HP[hour_R[held_R], (into_R[held_R] + later) // base] = value_R[held_R]
        out[name, str(zone)] = value_HP
    return out

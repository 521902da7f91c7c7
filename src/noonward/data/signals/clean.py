"""The one cleaner of signal files: readings of any publisher become hours of zones in USD/MWh and g/kWh.

Rules, the same for every publisher:

* A reading holds from its start for its interval: as the file states it, else the spacing to its neighbours (5 to 60
  minutes), so a file may change its resolution within.
* An hour is the mean of its readings, weighted by time, where they cover at least half of it; else it is unknown.
* Readings of 5 to 30 minutes that change within an hour are kept beside its mean (``noonward.data.signals.parts``).
* The same reading twice is dropped once; two readings that differ for the same time are an error.
* Prices become US dollars by the rates that were told.
* Gaps stay unknown, unless a longest gap to fill was told; it is filled along a straight line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Final

import numpy as np
import polars as pl

from noonward.data.account import Account
from noonward.data.signals.parts import LEAST_COVER, NAMES, mean_of_parts, parts_of
from noonward.data.signals.readings import ImportOptions, Readings
from noonward.errors import DataError, nearest

_LENGTHS: Final = (5, 10, 15, 20, 30, 60)


def clean(readings: Readings, options: ImportOptions, account: Account) -> pl.DataFrame:
    """Returns the hours that a file's readings give; arguments, columns and errors as of ``clean_with_parts``."""
    return clean_with_parts(readings, options, account)[0]


def clean_with_parts(readings: Readings, options: ImportOptions, account: Account) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the hours that a file's readings give, and a table of parts of those that change within.

    Args:
        readings: Readings.
        options: What the user told.
        account: Account of the file; what is done is added.

    Returns:
        Columns ``timestamp`` (UTC), ``zone``, ``price`` (USD/MWh) and ``carbon`` (g/kWh), null where unknown, and
        ``estimated``, sorted by zone and time; and the parts.

    Raises:
        DataError: There is no reading, an area cannot be assigned to a zone, two readings contradict each other, the
            intervals are longer than an hour, or the rate of a currency is missing.
    """
    if not readings.frame.select(_known().any()).item():
        raise DataError(f"{account.file}: no row holds a value; export it again")
    frame = _with_zones(readings, options, account)
    frame = _in_dollars(frame, options, account)
    frame = _without_repeats(frame, account)
    frame = _with_lengths(frame, account)
    hours = _hourly(frame, account)
    hours = _filled(hours, options.fill_gaps_h, account)
    account.rows_out = hours.height
    start = pl.col("stamp").dt.truncate("1h")
    timed = frame.with_columns(
        timestamp=start.cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        into=(pl.col("stamp") - start).dt.total_minutes(),
    )
    known = timed.unpivot(
        list(NAMES), index=["zone", "timestamp", "into", "minutes"], variable_name="quantity", value_name="value"
    ).filter(pl.col("value").is_not_null())
    return hours, parts_of(known, hours)


def _known() -> pl.Expr:
    """Returns whether a row holds a price or a carbon intensity."""
    return pl.col("price").is_not_null() | pl.col("carbon").is_not_null()


def _with_zones(readings: Readings, options: ImportOptions, account: Account) -> pl.DataFrame:
    """Returns the readings with the zone of each."""
    frame = readings.frame
    areas = frame["area"].unique().sort().to_list()
    zones = {area: options.zones[area] for area in areas if area in options.zones}
    if zones:
        kept = pl.col("area").is_in(list(zones))
        dropped = frame.filter(~kept)
        others = ", ".join(dropped["area"].unique().sort().to_list()[:5])
        account.add("dropped", dropped.height, f"other areas than those named by --zone ({others})")
        frame = frame.filter(kept)
    elif options.zone is not None or readings.one_zone is not None:
        if len(areas) > 1:
            shown = ", ".join(areas[:8]) + (", ..." if len(areas) > 8 else "")
            zone = options.zone or readings.one_zone
            raise DataError(
                f"{account.file} holds {len(areas)} areas or locations ({shown}), which are not one zone; say which "
                f"one to take, e.g. --zone '{areas[0]}={zone}'"
            )
        zones = {areas[0]: str(options.zone or readings.one_zone)}
    zone_of = {area: zones.get(area, readings.zone_of.get(area, area)) for area in areas}
    shared = sorted({zone for zone in zone_of.values() if list(zone_of.values()).count(zone) > 1 and zone})
    kept_areas = set(frame["area"].unique())
    for zone in shared:
        several = [area for area in areas if zone_of[area] == zone and area in kept_areas]
        if len(several) > 1:
            raise DataError(
                f"{account.file}: the areas {', '.join(several)} are all zone {zone}; take one of them: "
                f"--zone '{several[0]}={zone}'"
            )
    for area in sorted(kept_areas):
        if zone_of[area] != area:
            account.add("read", int((frame["area"] == area).sum()), f"area {area} is zone {zone_of[area]}")
    return frame.with_columns(zone=pl.col("area").replace_strict(zone_of, return_dtype=pl.String))


def _in_dollars(frame: pl.DataFrame, options: ImportOptions, account: Account) -> pl.DataFrame:
    """Returns the readings with prices in USD/MWh."""
    priced = frame.filter(pl.col("price").is_not_null())
    if options.currency is not None:
        frame = frame.with_columns(currency=pl.lit(options.currency))
        priced = priced.with_columns(currency=pl.lit(options.currency))
    for currency in priced["currency"].unique().sort():
        if currency == "USD":
            continue
        rates = options.rates.get(currency)
        if not rates:
            known = ", ".join(sorted(options.rates)) or "none"
            raise DataError(
                f"{account.file}: prices are in {currency}, and no exchange rate was given for it (given: {known}); "
                f"import the file with US dollars for one {currency}: noonward import {shlex.quote(account.file)} "
                f"--fx {currency}=RATE --out FOLDER"
            )
        frame = _converted(frame, currency, rates, account)
    return frame


def _converted(
    frame: pl.DataFrame, currency: str, rates: tuple[tuple[date, float], ...], account: Account
) -> pl.DataFrame:
    """Returns the readings with the prices of one currency in USD."""
    table = pl.DataFrame(
        {"day": [day for day, _ in rates], "rate": [rate for _, rate in rates]},
        schema={"day": pl.Date, "rate": pl.Float64},
    ).sort("day")
    mine = (pl.col("currency") == currency) & pl.col("price").is_not_null()
    dated = frame.with_columns(day=pl.col("stamp").dt.date()).with_row_index("at").sort("day")
    dated = dated.join_asof(table, on="day", strategy="backward").sort("at").drop("at")
    early = dated.filter(mine & pl.col("rate").is_null())
    if early.height:
        raise DataError(
            f"{account.file}, line {early['line'][0]}: {early['day'][0]} is before the first rate of {currency} "
            f"({table['day'][0]}); give a rate from that day on"
        )
    count = int(dated.select(mine.sum()).item())
    shown = f"{rates[0][1]:g}" if len(rates) == 1 else f"{len(rates)} rates"
    account.add("changed", count, f"prices in {currency} became USD at {shown} USD for one {currency}", rate=True)
    price = pl.when(mine).then(pl.col("price") * pl.col("rate")).otherwise("price")
    return dated.with_columns(price=price).drop("day", "rate")


def _without_repeats(frame: pl.DataFrame, account: Account) -> pl.DataFrame:
    """Returns the readings, each once.

    Raises:
        DataError: Two that differ hold for the same zone and time.
    """
    key = ["zone", "stamp"]
    held = frame.filter(_known() | ~(_known().any().over(key)))
    once = held.unique([*key, "price", "carbon"], keep="first", maintain_order=True)
    account.add("dropped", frame.height - once.height, "the same zone and time as another row, and no other value")
    twice = once.filter(pl.struct(key).is_duplicated()).sort([*key, "line"])
    if twice.height:
        zone, stamp = twice["zone"][0], twice["stamp"][0]
        lines = twice.filter((pl.col("zone") == zone) & (pl.col("stamp") == stamp))["line"]
        raise DataError(
            f"{account.file}, lines {lines[0]} and {lines[1]}: zone {zone} has two values at "
            f"{str(stamp)[:16]} UTC, "
            "and nothing says which holds; remove one, or give a file of one series"
        )
    return once


def _with_lengths(frame: pl.DataFrame, account: Account) -> pl.DataFrame:
    """Returns the readings with the length of each one's interval in minutes."""
    frame = frame.sort("zone", "stamp")
    if "minutes" in frame.columns:
        return frame
    step = pl.col("stamp").diff().over("zone").dt.total_minutes()
    frame = frame.with_columns(before=step, after=step.shift(-1).over("zone"))
    least = pl.min_horizontal("before", "after").fill_null(60)
    frame = frame.with_columns(minutes=pl.min_horizontal(least, 60))
    usual = frame["before"].drop_nulls().to_numpy()
    if len(usual) and np.median(usual) > 60:
        raise DataError(
            f"{account.file}: its values are {np.median(usual):g} minutes apart; hourly or finer ones are needed"
        )
    odd = frame.filter(~pl.col("minutes").is_in(list(_LENGTHS)))
    if odd.height:
        raise DataError(
            f"{account.file}, line {odd['line'][0]}: the values are {odd['minutes'][0]} minutes apart; allowed are "
            f"{', '.join(map(str, _LENGTHS))} minutes: correct the times"
        )
    return frame.drop("before", "after")


def _hourly(frame: pl.DataFrame, account: Account) -> pl.DataFrame:
    """Returns the means of the hours."""
    finer = frame.filter(_known() & (pl.col("minutes") != 60))
    if finer.height:
        lengths = ", ".join(str(m) for m in finer["minutes"].unique().sort())
        account.add(
            "changed",
            finer.height,
            f"readings of {lengths} minutes averaged to hours, and kept where they change within",
        )
    start = pl.col("stamp").dt.truncate("1h")
    into = ((pl.col("stamp") - start).dt.total_minutes()).alias("into")
    frame = frame.with_columns(hour=start, into=into)
    over = pl.max_horizontal(pl.col("into") + pl.col("minutes") - 60, 0)
    parts = pl.concat(
        [
            frame.with_columns(part=pl.col("minutes") - over),
            frame.with_columns(part=over, hour=pl.col("hour") + timedelta(hours=1)).filter(pl.col("part") > 0),
        ]
    )
    account.add(
        "changed", frame.filter(_known() & (pl.col("minutes") == 60) & (pl.col("into") > 0)).height,
        "hourly readings that start within a UTC hour were split between two",
    )  # fmt: skip
    sums = []
    for name in ("price", "carbon"):
        known = pl.col(name).is_not_null()
        cover = pl.col("part").filter(known).sum()
        mean = mean_of_parts(pl.col(name).filter(known), pl.col("part").filter(known))
        sums += [pl.when(cover >= 60 * LEAST_COVER).then(mean).alias(name), cover.alias(f"{name}_cover")]
    hours = parts.group_by("zone", "hour").agg(*sums, pl.col("estimated").any()).sort("zone", "hour")
    for name in ("price", "carbon"):
        part = hours.filter((pl.col(f"{name}_cover") > 0) & (pl.col(f"{name}_cover") < 60))
        filled = part.filter(pl.col(name).is_not_null()).height
        account.add("filled", filled, f"hours whose {name} is the mean of the part that is known (at least half)")
        account.add("dropped", part.height - filled, f"hours whose {name} is known for less than half of the hour")
    whole = hours.filter(_known())
    if not whole.height:
        raise DataError(f"{account.file}: no hour is known for at least half of it; give whole hours")
    return whole.select(
        pl.col("hour").dt.replace_time_zone("UTC").alias("timestamp"), "zone", "price", "carbon", "estimated"
    )


def _filled(hours: pl.DataFrame, longest_h: int, account: Account) -> pl.DataFrame:
    """Returns the hours with short gaps filled along a straight line; longer ones are counted."""
    whole = pl.concat(
        [
            zone.upsample("timestamp", every="1h").with_columns(pl.col("zone").forward_fill())
            for zone in hours.sort("zone", "timestamp").partition_by("zone")
        ]
    )
    for name in ("price", "carbon"):
        if hours[name].is_null().all():
            continue
        missing = pl.col(name).is_null()
        run = missing.rle_id().over("zone")
        length = pl.len().over("zone", "run")
        marked = whole.with_columns(run=run).with_columns(gap=length, line=pl.col(name).interpolate().over("zone"))
        fills = missing & (pl.col("gap") <= longest_h) & pl.col("line").is_not_null()
        account.add("filled", marked.filter(fills).height, f"hours of unknown {name}, along a straight line")
        whole = marked.with_columns(pl.when(fills).then("line").otherwise(name).alias(name)).drop("run", "gap", "line")
        left = whole.filter(pl.col(name).is_null()).height
        account.add("read", left, f"hours between the first and the last have no {name} and stay unknown")
    return whole.filter(_known())


def check_zones_used(options: ImportOptions, areas: Mapping[str, object]) -> None:
    """Raises DataError if an area that the user named stands in no file.

    Args:
        options: What the user told.
        areas: Areas of all files.
    """
    for area in options.zones:
        if area not in areas:
            raise DataError(f"--zone names the area {area!r}, which no file holds; {nearest(area, areas)}")

"""Loads of whole electricity systems from files: by the hour, and the intervals in which they peak."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from noonward.arrays import F8
from noonward.data.clock import Clock, read_times
from noonward.data.local_time import site_timezone
from noonward.data.table_file import open_table
from noonward.errors import DataError, nearest
from noonward.model.cluster.calendar import site_calendar
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.meter import SystemLoadFile
from noonward.model.cluster.system_load import SystemLoadByHour
from noonward.model.cluster.tariff import Coincident
from noonward.units import DAY_H, HOUR_S, MINUTE_S

BEFORE_H: Final = 366 * DAY_H
"""Hours before a run whose load is kept, as far as files hold it."""


def with_stated_meters(fleet: Fleet) -> Fleet:
    """Returns a fleet whose sites with a tariff have a time zone and the peaks of their system.

    Raises:
        DataError: A file of loads cannot be read, or breaks a rule of ``system_load``.
        ScenarioError: A site with a tariff has no time zone.
    """
    if all(site.meter is None or site.meter.tariff is None for site in fleet.sites):
        return fleet
    sites = tuple(_stated(fleet, s) for s in range(len(fleet.sites)))
    return fleet.model_copy(update={"sites": sites})


def _stated(fleet: Fleet, s: int) -> Site:
    site, tariff = fleet.sites[s], fleet.tariff_of(s)
    if tariff is None or site.meter is None:
        return site
    zone = site_timezone(site).key
    meter = site.meter
    if meter.system_load is not None and tariff.coincident:
        file = meter.system_load
        said, changed = file.model_dump_json(), _changed(file)
        peaks = tuple(_cached_peaks(said, changed, charge, zone) for charge in tariff.coincident)
        meter = meter.model_copy(update={"system_peaks": peaks})
    return site.model_copy(update={"timezone": zone, "meter": meter})


@functools.lru_cache(maxsize=64)
def _cached_peaks(said: str, changed: int, charge: Coincident, zone: str) -> tuple[datetime, ...]:
    return system_peaks(SystemLoadFile.model_validate_json(said), charge, zone)


def system_peaks(file: SystemLoadFile, charge: Coincident, zone: str) -> tuple[datetime, ...]:
    """Returns the UTC starts of the intervals in which a system's load peaks, as a coincident charge counts them.

    Args:
        file: Its loads.
        charge: Charge: how many peaks of which months, over what interval.
        zone: IANA time zone whose days, months and years count.

    Raises:
        DataError: As ``system_load``, or the file's intervals do not divide the charge's.
    """
    start, step_s, mw_X = _loads(file)
    interval_s = charge.interval_min * MINUTE_S
    if interval_s % step_s:
        raise DataError(
            f"{file.path.name} has a load every {step_s / MINUTE_S:g} min, which does not divide the "
            f"{charge.interval_min} min of the coincident charge; give a finer file, or another interval_min"
        )
    each = round(interval_s / step_s)
    skipped = round(-start.timestamp() % interval_s / step_s)
    mw_X = mw_X[skipped:]
    mw_X = mw_X[: len(mw_X) // each * each].reshape(-1, each).mean(axis=1)
    first = datetime.fromtimestamp(start.timestamp() + skipped * step_s, UTC)
    on_hour = first.replace(minute=0)
    before = round((first - on_hour).total_seconds() / interval_s)
    mw_X = np.concatenate([np.full(before, np.nan), mw_X])
    calendar = site_calendar(zone, on_hour, len(mw_X) * interval_s, interval_s, len(mw_X))
    return charge.peaks_of(mw_X, on_hour, calendar)


def system_load_by_hour(fleet: Fleet, start: datetime, hours: int) -> SystemLoadByHour | None:
    """Returns the load of the sites' systems over some hours and the year before; None where no charge goes by any.

    Args:
        fleet: Fleet.
        start: UTC start of the first hour.
        hours: Number of hours.

    Raises:
        DataError: As ``system_load``.
    """
    files: dict[int, SystemLoadFile] = {}
    for s, site in enumerate(fleet.sites):
        tariff = fleet.tariff_of(s)
        if tariff is not None and tariff.coincident and site.meter is not None and site.meter.system_load is not None:
            files[s] = site.meter.system_load
    if not files:
        return None
    mw_SH = np.full((len(fleet.sites), BEFORE_H + hours), np.nan)
    for s, file in files.items():
        mw_SH[s] = hourly_highest(file, start - timedelta(hours=BEFORE_H), BEFORE_H + hours)
    return SystemLoadByHour(mw_SH=mw_SH, before_h=BEFORE_H)


def hourly_highest(file: SystemLoadFile, start: datetime, hours: int) -> F8:
    """Returns the load of the highest interval of each hour from a full hour on, MW; NaN where none is known."""
    first, step_s, mw_X = _loads(file)
    hour_X = np.floor((first.timestamp() - start.timestamp() + step_s * np.arange(len(mw_X))) / HOUR_S).astype(np.int64)
    kept_X = (hour_X >= 0) & (hour_X < hours) & np.isfinite(mw_X)
    highest_H = np.full(hours, -np.inf)
    np.maximum.at(highest_H, hour_X[kept_X], mw_X[kept_X])
    return np.where(np.isfinite(highest_H), highest_H, np.nan)


def _loads(file: SystemLoadFile) -> tuple[datetime, float, F8]:
    """Returns what ``system_load`` does; a file that has not changed is read once."""
    return _cached_load(file.model_dump_json(), _changed(file))


def _changed(file: SystemLoadFile) -> int:
    """Returns when a file was written last, ns; 0 where there is none."""
    return file.path.stat().st_mtime_ns if file.path.is_file() else 0


@functools.lru_cache(maxsize=16)
def _cached_load(said: str, changed: int) -> tuple[datetime, float, F8]:
    return system_load(SystemLoadFile.model_validate_json(said))


def system_load(file: SystemLoadFile) -> tuple[datetime, float, F8]:
    """Reads the load of a system: CSV or Parquet, one row per interval, in any order; gaps are unknown load.

    Returns:
        UTC start of the first interval, length of an interval, s, and load by interval, MW; NaN where it is unknown.

    Raises:
        DataError: The file cannot be read, a column is missing, a time stands twice or off the grid, a load is no
            number, or there are fewer than two rows.
    """
    frame, name = _rows(file), file.path.name
    if frame.height < 2:
        raise DataError(f"{name}: {frame.height} rows of load; give at least two intervals")
    second_K = frame["time"].dt.epoch("s").to_numpy()
    order = np.argsort(second_K, kind="stable")
    second_K, mw_K = second_K[order], frame["load"].to_numpy()[order]
    gap_K = np.diff(second_K)
    if (gap_K == 0).any():
        again = datetime.fromtimestamp(int(second_K[:-1][gap_K == 0][0]), UTC)
        hint = "" if file.zone is not None else "; if it holds several areas, name one with zone"
        raise DataError(f"{name}: two rows are of {again:%Y-%m-%d %H:%M} UTC; give each time once{hint}")
    step_s = int(gap_K.min())
    wrong = (second_K - second_K[0]) % step_s != 0
    if wrong.any() or step_s > 3600 or 3600 % step_s:
        at = datetime.fromtimestamp(int(second_K[wrong.argmax()]), UTC)
        raise DataError(
            f"{name}: times are not on one grid of {step_s / 60:g} min (at {at:%Y-%m-%d %H:%M} UTC), or no part of an "
            "hour; give a load every 5, 15, 30 or 60 min"
        )
    mw_X = np.full((second_K[-1] - second_K[0]) // step_s + 1, np.nan)
    mw_X[(second_K - second_K[0]) // step_s] = mw_K
    first_s = int(second_K[0]) - (step_s if file.times == "end" else 0)
    return datetime.fromtimestamp(first_s, UTC), float(step_s), mw_X


def _rows(file: SystemLoadFile) -> pl.DataFrame:
    """Returns the times in UTC and the loads of a file's area."""
    standard = {"time": "time", "load": "load_mw", "zone": "zone"}
    required = ("time", "load") if file.zone is None else ("time", "load", "zone")
    table = open_table(file.path, standard, file.columns, required)
    if file.zone is not None:
        frame = table.frame.filter(pl.col(table.column_of["zone"]).cast(pl.String) == file.zone)
        if frame.is_empty():
            areas = table.frame[table.column_of["zone"]].cast(pl.String).unique().drop_nulls().sort().to_list()
            raise DataError(f"{table.name} has no row of zone {file.zone!r}; {nearest(file.zone, areas)}")
        table = replace(table, frame=frame)
    name = table.column_of["time"]
    column = table.frame[name]
    if column.dtype != pl.String:
        if not isinstance(column.dtype, pl.Datetime):
            raise DataError(f"{table.name}: column {name!r} holds values of type {column.dtype}, not times")
        column = column.dt.to_string("iso:strict")
    times = read_times(table, name, None if file.timezone is None else Clock(file.timezone), text=column)
    table.refuse(times.skipped | times.utc.is_null(), name, "is no time of the file's clock; correct it, or give UTC")
    return pl.DataFrame({"time": times.utc, "load": table.numbers("load", "give the system's load in MW")})

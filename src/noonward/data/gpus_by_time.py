"""GPUs and connections by time from files and steps: what a scenario says of sites, as a run reads it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from noonward.data.clock import stated_times
from noonward.data.text_table import TextTable, read_text_file
from noonward.errors import DataError
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.meter import MOST_KW, KwFile, KwStep, Meter
from noonward.model.cluster.withheld import STEPS, GpuFile, GpuStep, Withheld


def with_stated_gpus(fleet: Fleet) -> Fleet:
    """Returns a fleet in which files of GPUs by time are read: their steps stand in their place.

    Raises:
        DataError: A file cannot be read, or breaks a rule of ``gpu_steps``.
    """
    if not any(isinstance(site.gpus_by_time, GpuFile) for site in fleet.sites):
        return fleet
    return fleet.model_copy(update={"sites": tuple(_with_steps(site) for site in fleet.sites)})


def _with_steps(site: Site) -> Site:
    if not isinstance(site.gpus_by_time, GpuFile):
        return site
    steps = gpu_steps(site.gpus_by_time)
    return site.model_copy(update={"gpus": max(step.gpus for step in steps), "gpus_by_time": steps})


def gpu_steps(file: GpuFile) -> tuple[GpuStep, ...]:
    """Reads the steps of a file: times in ascending order, and the GPUs that there are from each on.

    Rows that change nothing are left out.

    Raises:
        DataError: The file cannot be read, a time is none or not after the one before, a number of GPUs is no whole
            number of at least 0, no row has a GPU, or there are too many steps.
    """
    table, time_K, gpus = _rows(file, "gpus", "GPUs")
    table.refuse(gpus.is_null() | (gpus < 0) | (gpus % 1 != 0), gpus.name, "is no whole number of GPUs of at least 0")
    gpus_K = gpus.to_numpy().astype(np.int64)
    if gpus_K.max() < 1:
        raise DataError(f"{table.name}: no row has a GPU; give at least one that has, or leave the site out")
    return tuple(GpuStep(from_=time_K[k], gpus=int(gpus_K[k])) for k in _changes(gpus_K, table, "GPUs"))


def with_stated_connections(fleet: Fleet) -> Fleet:
    """Returns a fleet in which files of connections by time are read: their steps stand in their place.

    Raises:
        DataError: A file cannot be read, or breaks a rule of ``kw_steps``.
    """
    files = [None if site.meter is None else site.meter.connection_kw for site in fleet.sites]
    if not any(isinstance(file, KwFile) for file in files):
        return fleet
    sites = []
    for site, file in zip(fleet.sites, files, strict=True):
        if site.meter is not None and isinstance(file, KwFile):
            meter = Meter.model_validate({**site.meter.model_dump(), "connection_kw": kw_steps(file)})
            site = site.model_copy(update={"meter": meter})
        sites.append(site)
    return fleet.model_copy(update={"sites": tuple(sites)})


def kw_steps(file: KwFile) -> tuple[KwStep, ...]:
    """Reads the steps of a file: times in ascending order, and the kW that a connection carries from each on.

    Rows that change nothing are left out.

    Raises:
        DataError: The file cannot be read, a time is none or not after the one before, a power is none above 0 and at
            most ``MOST_KW``, or there are too many steps.
    """
    table, time_K, kw = _rows(file, "kw", "kW")
    table.refuse(kw.is_null() | ~((kw > 0) & (kw <= MOST_KW)), kw.name, f"is no power above 0 and up to {MOST_KW:g} kW")
    kw_K = kw.to_numpy().astype(np.float64)
    return tuple(KwStep(from_=time_K[k], kw=float(kw_K[k])) for k in _changes(kw_K, table, "power"))


def _rows(file: GpuFile | KwFile, column: str, unit: str) -> tuple[TextTable, list[datetime], pl.Series]:
    """Returns a file's table, its times, which ascend, and a column's numbers."""
    table = read_text_file(file.path).table()
    time_K = stated_times(table, file.timezone, f"the time from which there are so many {unit}")
    wrong = np.flatnonzero(np.diff(time_K.dt.epoch("s").to_numpy()) <= 0)
    if len(wrong):
        raise DataError(
            f"{table.name}, line {table.lines[int(wrong[0]) + 1]}: this time is not after the one before; give the "
            "steps in the order of time, each time once"
        )
    name = table.column(column)
    return table, time_K.to_list(), table.numbers(name, unit).alias(name)


def _changes(value_K: NDArray[Any], table: TextTable, what: str) -> list[int]:
    """Returns the rows that change a value, the first of them row 0."""
    kept = np.flatnonzero(np.concatenate([[True], value_K[1:] != value_K[:-1]]))
    if len(kept) > STEPS:
        raise DataError(f"{table.name} changes the {what} {len(kept):,} times; give at most {STEPS:,} changes")
    return kept.tolist()


def withheld_gpus(fleet: Fleet, start: datetime) -> Withheld | None:
    """Returns what is withheld of a fleet's GPUs after a start; None where each site has all of them throughout.

    The first step of a site holds before it, too.

    Args:
        fleet: Fleet, its files read.
        start: UTC time of second 0.
    """
    changes = []
    for s, site in enumerate(fleet.sites):
        assert not isinstance(site.gpus_by_time, GpuFile), "files are read where scenarios are loaded"
        last = 0
        for k, step in enumerate(site.gpus_by_time or ()):
            time_s = (step.from_ - start).total_seconds() if k else 0.0
            changes.append((time_s, s, site.gpus - step.gpus - last))
            last = site.gpus - step.gpus
    return Withheld.of(changes, np.array([site.gpus for site in fleet.sites], dtype=np.int64))

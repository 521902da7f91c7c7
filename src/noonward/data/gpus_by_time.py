"""GPUs by time from files and steps: what a scenario says of its sites becomes what is withheld in a run."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from noonward.data.clock import stated_times
from noonward.data.text_table import read_text_file
from noonward.errors import DataError
from noonward.model.cluster.fleet import Fleet, Site
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
    table = read_text_file(file.path).table()
    time_K = stated_times(table, file.timezone, "the time from which there are so many GPUs")
    wrong = np.flatnonzero(np.diff(time_K.dt.epoch("s").to_numpy()) <= 0)
    if len(wrong):
        raise DataError(
            f"{table.name}, line {table.lines[int(wrong[0]) + 1]}: this time is not after the one before; give the "
            "steps in the order of time, each time once"
        )
    name = table.column("gpus")
    gpus = table.numbers(name, "GPUs")
    table.refuse(gpus.is_null() | (gpus < 0) | (gpus % 1 != 0), name, "is no whole number of GPUs of at least 0")
    gpus_K = gpus.to_numpy().astype(np.int64)
    if gpus_K.max() < 1:
        raise DataError(f"{table.name}: no row has a GPU; give at least one that has, or leave the site out")
    kept = np.flatnonzero(np.diff(gpus_K, prepend=-1))
    if len(kept) > STEPS:
        raise DataError(f"{table.name} changes the GPUs {len(kept):,} times; give at most {STEPS:,} changes")
    return tuple(GpuStep(from_=time_K[int(k)], gpus=int(gpus_K[k])) for k in kept)


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

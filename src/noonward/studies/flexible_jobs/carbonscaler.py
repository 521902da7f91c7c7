"""CarbonScaler's schedules for its profiled programs: our marginal greedy against a plain reading of what it published.

Source: Hanafy et al., "CarbonScaler" (SIGMETRICS'24), and its published controller, github.com/umassos/CarbonScaler.
Written from their definitions; none of their code is used. The profiles are ``src/profiles/nbody*.csv`` there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import DataError
from noonward.schedule.cluster.marginal_greedy import marginal_greedy
from noonward.studies.flexible_jobs.gaia import HISTORY_H, gaia_signals
from noonward.studies.flexible_jobs.tables import number_columns

WINDOWS: Final = ((12, 18), (24, 48), (48, 96))
"""(hours of work on one node, hours until the deadline)."""
STARTS: Final = 40
"""Arrivals, 13 hours apart."""
APART_H: Final = 13


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a program does and draws on some nodes.

    Attributes:
        name: Name.
        work_N: Work an hour on 0, 1, 2... nodes.
        power_N: Power, W.
    """

    name: str
    work_N: F8
    power_N: F8

    @classmethod
    def of(cls, path: Path) -> Profile:
        """Reads a profile: ``nodes`` (0, 1, 2...), ``throughput`` and ``power``.

        Raises:
            DataError: The file is not as described.
        """
        column = number_columns(path, ("nodes", "throughput", "power"))
        if column["nodes"].tolist() != list(range(len(column["nodes"]))) or len(column["nodes"]) < 2:
            raise DataError(
                f"{path.name}, column 'nodes': {column['nodes'].tolist()}; give 0, 1, 2 and so on, in order"
            )
        return cls(name=path.stem.removeprefix("carbonscaler_"), work_N=column["throughput"], power_N=column["power"])


def published_schedule(carbon_H: F8, profile: Profile, work: float) -> I8:
    """Returns the nodes of each hour by CarbonScaler's definition.

    All pairs of hour and number of nodes stand in one list, sorted by marginal throughput over marginal power and
    intensity. Again and again the first pair is taken whose number is one more than its hour has, until the hours do
    the work.
    """
    hours, most = len(carbon_H), len(profile.work_N) - 1
    pairs = [
        (
            (profile.work_N[n] - profile.work_N[n - 1])
            / ((profile.power_N[n] - profile.power_N[n - 1]) * carbon_H[hour]),
            hour,
            n,
        )
        for hour in range(hours)
        for n in range(1, most + 1)
    ]
    pairs.sort(key=lambda pair: -pair[0])
    nodes_H = np.zeros(hours, np.int64)
    while profile.work_N[nodes_H].sum() < work:
        at = next(at for at, (_, hour, n) in enumerate(pairs) if n == nodes_H[hour] + 1)
        _, hour, n = pairs.pop(at)
        nodes_H[hour] = n
    return nodes_H


@dataclass(frozen=True, kw_only=True)
class ScalerFound:
    """How our schedules compare.

    Attributes:
        name: Profile.
        schedules: Schedules compared.
        difference: Nodes by which they differ, summed over hours and schedules.
        saved: Carbon saved against one node from arrival on, as a share, mean over schedules.
    """

    name: str
    schedules: int
    difference: int
    saved: float


def hold_against_carbonscaler(profile_file: Path, signals: list[Path], seed: int = 0) -> ScalerFound:
    """Compares both schedules for jobs that arrive at many hours, under several deadlines.

    Args:
        profile_file: Table of a program's throughput and power.
        signals: Signal files; none: generated intensities.
        seed: Seed of the generator.

    Raises:
        DataError: A file is wrong.
        SignalRangeError: The signal files do not hold the hours.
    """
    profile = Profile.of(profile_file)
    hours = STARTS * APART_H + max(deadline_h for _, deadline_h in WINDOWS)
    carbon_H = gaia_signals(signals, hours, seed).carbon_g_per_kwh_ZH[0, HISTORY_H:]
    schedules = difference = 0
    saved = []
    for start in range(0, STARTS * APART_H, APART_H):
        for length_h, deadline_h in WINDOWS:
            window_H = carbon_H[start : start + deadline_h]
            work = length_h * float(profile.work_N[1])
            ours_H = marginal_greedy(window_H, profile.work_N, profile.power_N, work)
            published_H = published_schedule(window_H, profile, work)
            schedules += 1
            difference += int(np.abs(ours_H - published_H).sum())
            saved.append(1.0 - (profile.power_N[ours_H] @ window_H) / (profile.power_N[1] * window_H[:length_h].sum()))
    return ScalerFound(name=profile.name, schedules=schedules, difference=difference, saved=float(np.mean(saved)))

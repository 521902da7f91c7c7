"""The packaged statistics of a real job trace that the job generator runs on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.model.precision import TIME_DECIMALS
from noonward.units import DAY_S, HOUR_S

_TABLE: Final = "tables/workload_calibration.json"


@dataclass(frozen=True, kw_only=True)
class WorkloadCalibration:
    """Statistics of a job trace. Axes: G distinct GPU counts, K groups of GPU counts, Q quantiles, L burst levels.

    Attributes:
        hour_weight_H: Arrival rate by local hour over its mean; 24 values of mean 1.
        weekday_weight_D: Arrival rate by local weekday over its mean, Monday first; 7 values of mean 1.
        gpus_G: GPU counts that occur, ascending.
        gpus_share_G: Share of the jobs with each count; the shares sum to 1.
        group_low_K: Smallest GPU count of each group, ascending from 1.
        probability_Q: Probabilities of the duration quantiles, 0 to 1, ascending.
        duration_s_KQ: Duration quantiles of each group, s.
        burst_period_s_L: Length of the blocks over which a burst factor is constant, s, descending; each divides
            the one before.
        burst_cv2_L: Squared coefficient of variation of each level's factor.
        interarrival_cv: Coefficient of variation of the trace's interarrival times, for comparison.
        block_cv2_L: Squared coefficient of variation of the trace's rate in blocks of each length, daily and
            weekly rhythm and Poisson noise taken out, for comparison.
        jobs: Number of jobs the statistics rest on.
        jobs_per_h: Mean arrivals per hour.
        mean_gpus: Mean GPU count.
        mean_duration_s: Mean duration, s.
        source: Publisher, licence and caveats, as stated in the table.
    """

    hour_weight_H: F8
    weekday_weight_D: F8
    gpus_G: I8
    gpus_share_G: F8
    group_low_K: I8
    probability_Q: F8
    duration_s_KQ: F8
    burst_period_s_L: F8
    burst_cv2_L: F8
    interarrival_cv: float
    block_cv2_L: F8
    jobs: int
    jobs_per_h: float
    mean_gpus: float
    mean_duration_s: float
    source: Mapping[str, str]

    def arrival_weight(self, local_week_s: F8) -> F8:
        """Returns hour weight times weekday weight at local times, given in seconds since Monday's midnight.

        Example:
            >>> table = load_workload_calibration()
            >>> friday_noon, sunday_night = 108 * 3600.0, 165 * 3600.0
            >>> night, noon = table.arrival_weight(np.array([sunday_night, friday_noon]))
            >>> bool(noon > night)
            True
        """
        hour = (local_week_s % DAY_S // HOUR_S).astype(np.int64)
        weekday = (local_week_s // DAY_S).astype(np.int64) % 7
        return np.asarray(self.hour_weight_H[hour] * self.weekday_weight_D[weekday])

    def draw_gpus(self, count: int, rng: np.random.Generator) -> I8:
        """Draws GPU counts, uncapped."""
        return np.asarray(rng.choice(self.gpus_G, size=count, p=self.gpus_share_G), dtype=np.int64)

    def draw_duration_s(self, gpus_J: I8, rng: np.random.Generator) -> F8:
        """Draws a duration in s per job from its GPU count's group, log-linear between the quantiles, in whole ms."""
        return self.duration_at_s(gpus_J, rng.random(len(gpus_J)))

    def duration_at_s(self, gpus_J: I8, uniform_J: F8) -> F8:
        """Returns the durations in s that shares of the jobs of their GPU counts' groups are below, in whole ms."""
        group_J = np.searchsorted(self.group_low_K, gpus_J, side="right") - 1
        duration_s_J = np.empty(len(gpus_J))
        for group, quantile_s_Q in enumerate(self.duration_s_KQ):
            mine = group_J == group
            duration_s_J[mine] = np.exp(np.interp(uniform_J[mine], self.probability_Q, np.log(quantile_s_Q)))
        return np.round(duration_s_J, TIME_DECIMALS)


@cache
def load_workload_calibration() -> WorkloadCalibration:
    """Returns the packaged statistics of the PAI trace; the table is read at the first call.

    Example:
        >>> load_workload_calibration().jobs
        70182
    """
    return read_workload_calibration(json.loads((files("noonward.data") / _TABLE).read_text(encoding="utf-8")))


def read_workload_calibration(table: Mapping[str, Any]) -> WorkloadCalibration:
    """Returns the statistics from a parsed table in the packaged table's layout.

    Args:
        table: The parsed JSON; ``tools/calibrate_workload.py`` writes one from a trace.
    """
    shares = np.array(list(table["gpu_counts"].values()), dtype=np.float64)
    trace = table["trace"]
    return WorkloadCalibration(
        hour_weight_H=np.array(table["hour_weights"]),
        weekday_weight_D=np.array(table["weekday_weights"]),
        gpus_G=np.array([int(count) for count in table["gpu_counts"]], dtype=np.int64),
        gpus_share_G=shares / shares.sum(),
        group_low_K=np.array(table["duration_groups"]["gpus_from"], dtype=np.int64),
        probability_Q=np.array(table["duration_groups"]["probabilities"]),
        duration_s_KQ=np.array(table["duration_groups"]["quantiles_s"], dtype=np.float64),
        burst_period_s_L=np.array(table["bursts"]["period_s"], dtype=np.float64),
        burst_cv2_L=np.array(table["bursts"]["factor_cv2"]),
        interarrival_cv=trace["interarrival_cv"],
        block_cv2_L=np.array(table["bursts"]["block_cv2"]),
        jobs=trace["jobs"],
        jobs_per_h=trace["jobs_per_h"],
        mean_gpus=trace["mean_gpus"],
        mean_duration_s=trace["mean_duration_s"],
        source=table["source"],
    )

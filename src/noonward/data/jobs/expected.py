"""What is expected of generated fine-tuning jobs: weighted jobs instead of draws, for planners."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.data.jobs.calibration import WorkloadCalibration, load_workload_calibration
from noonward.data.jobs.generate import RHYTHM_S, generate_fine_tuning_jobs, origin_shares
from noonward.data.jobs.kernels import scale_to_demand
from noonward.data.local_time import ingress_timezone, local_week_s
from noonward.model.cluster.expected import WeightedJobs
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.scenario import FineTuningJobs
from noonward.units import HOUR_S

POPULATION: Final = 12
"""Jobs of the population that sizes are taken from, for each that is taken."""
GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True)
class FineTuningSampler:
    """Draws the fine-tuning jobs of a window from the packaged statistics, and says what is expected of them.

    Attributes:
        spec: The scenario's fine-tuning jobs.
        fleet: Sites and ingress points.
        start: UTC time of second 0.
        window_h: Hours over which jobs arrive.
        slot_s: Length of a slot, s.
    """

    spec: FineTuningJobs
    fleet: Fleet
    start: datetime
    window_h: int
    slot_s: float

    def __call__(self, rng: np.random.Generator) -> Jobs:
        """Draws the jobs of a window; raises as ``generate_fine_tuning_jobs``."""
        return generate_fine_tuning_jobs(self.spec, self.fleet, self.start, self.window_h, self.slot_s, rng)

    def expected(self, count: int, rng: np.random.Generator) -> WeightedJobs:
        """Returns about ``count`` jobs whose weighted sums come near to the means over draws.

        Sizes (GPUs and duration) are taken from a population that is spread evenly over the trace's quantiles, with
        chances in proportion to their GPU-hours, at most 1 (systematic sampling). So the jobs stand for about as many
        GPU-hours each, and large ones come in more sizes than a draw has. Ingress, arrival, slack, kind and data are
        spread evenly over their distributions, in random combination (Latin hypercube sampling, McKay et al. 1979);
        arrivals of an ingress by a sequence of low discrepancy along the sizes. Arrivals follow the mean rate, since
        bursts average out over draws.

        Args:
            count: Jobs, at least 1.
            rng: Source of randomness.

        Raises:
            ScenarioError: An ingress is unknown or has no local time, or the demand cannot be met in whole slots.
        """
        spec, calibration = self.spec, load_workload_calibration()
        window_s = self.window_h * HOUR_S
        demand_gpu_s = spec.demand * sum(site.gpus for site in self.fleet.sites) * window_s
        gpus_P, duration_s_P = _population(POPULATION * count, spec.gpus_cap, demand_gpu_s / spec.count, self.slot_s)
        chance_P = _chances(gpus_P * duration_s_P, count)
        until_P = np.cumsum(chance_P) + rng.random()
        taken = np.flatnonzero(np.floor(until_P) > np.floor(until_P - chance_P))
        gpus_J, duration_s_J = gpus_P[taken], duration_s_P[taken]
        weight_J = spec.count / len(chance_P) / chance_P[taken]
        found = len(taken)
        share_I = np.cumsum(origin_shares(spec, self.fleet))
        origin_J = np.searchsorted(share_I[:-1], _even(found, rng), side="right")
        arrival_s_J = np.floor(self._arrivals_s(calibration, origin_J, rng) / self.slot_s) * self.slot_s
        kinds = list(spec.kinds.values())
        share_K = np.cumsum([kind.share for kind in kinds])
        kind_J = np.searchsorted(share_K[:-1] / share_K[-1], _even(found, rng), side="right")
        low_KG, high_KG = (
            np.array([(getattr(kind.data, end), getattr(kind.model, end)) for kind in kinds])
            for end in ("low_gb", "high_gb")
        )
        data_gb_J, model_gb_J = (
            low_KG[kind_J, g] + _even(found, rng) * (high_KG[kind_J, g] - low_KG[kind_J, g]) for g in range(2)
        )
        slack_s_J = np.floor(2 * spec.slack_ratio * _even(found, rng) * duration_s_J)
        order = np.argsort(arrival_s_J, kind="stable")
        jobs = Jobs.build(
            arrival_s=arrival_s_J[order],
            origin=origin_J[order],
            gpus=gpus_J[order],
            work=duration_s_J[order],
            slack_s=slack_s_J[order],
            data_gb=data_gb_J[order],
            model_gb=model_gb_J[order],
            result_gb=model_gb_J[order],
        )
        return WeightedJobs(jobs, weight_J[order])

    def _arrivals_s(self, calibration: WorkloadCalibration, origin_J: I8, rng: np.random.Generator) -> F8:
        """Returns arrivals by the mean rate of each ingress, even along jobs of increasing size, s."""
        out_J = np.empty(len(origin_J))
        looked_up = round(self.window_h * HOUR_S / RHYTHM_S)
        edge_s_C = np.arange(looked_up + 1) * RHYTHM_S
        for index, point in enumerate(self.fleet.ingress_points):
            mine = np.flatnonzero(origin_J == index)
            if len(mine):
                zone = ingress_timezone(self.fleet, point)
                weight_C = calibration.arrival_weight(local_week_s(zone, self.start, RHYTHM_S, looked_up))
                mass_C = np.concatenate([[0.0], np.cumsum(weight_C)])
                at_J = (np.arange(len(mine)) * GOLDEN + rng.random()) % 1.0
                out_J[mine] = np.interp(at_J * mass_C[-1], mass_C, edge_s_C)
        return np.minimum(out_J, np.nextafter(self.window_h * HOUR_S, 0))


def _even(count: int, rng: np.random.Generator) -> F8:
    """Returns one number of each of so many equal parts of [0, 1), in random order."""
    return np.asarray((rng.permutation(count) + rng.random(count)) / count)


@lru_cache(maxsize=16)
def _population(jobs: int, gpus_cap: int, gpu_s_per_job: float, slot_s: float) -> tuple[I8, F8]:
    """Returns GPUs and durations, s, of jobs by increasing GPU-seconds, spread evenly over the trace's quantiles.

    Args:
        jobs: Number of jobs.
        gpus_cap: Most GPUs of a job.
        gpu_s_per_job: Mean GPU-seconds, to which durations are scaled.
        slot_s: Length of a slot, s.
    """
    calibration = load_workload_calibration()
    share_G = np.cumsum(calibration.gpus_share_G)
    middle_P = (np.arange(jobs) + 0.5) / jobs
    drawn_P = calibration.gpus_G[np.searchsorted(share_G[:-1] / share_G[-1], middle_P, side="right")]
    gpus_P = np.minimum(drawn_P, gpus_cap)
    duration_s_P = calibration.duration_at_s(drawn_P, np.asarray(np.arange(jobs) * GOLDEN % 1.0))
    duration_s_P = scale_to_demand(duration_s_P, gpus_P, jobs * gpu_s_per_job, slot_s)
    order = np.argsort(gpus_P * duration_s_P, kind="stable")
    return gpus_P[order], duration_s_P[order]


def _chances(size_P: F8, count: int) -> F8:
    """Returns chances in proportion to increasing sizes, at most 1, that sum to a count, at most that of the sizes."""
    chance_P, below = np.ones(len(size_P)), len(size_P)
    while below:
        chance_P[:below] = (count - (len(size_P) - below)) * size_P[:below] / size_P[:below].sum()
        still = int(np.searchsorted(chance_P[:below], 1.0))
        if still == below:
            break
        chance_P[still:below] = 1.0
        below = still
    return chance_P

"""Computes the packaged statistics table of the job generator from a job trace.

    python tools/calibrate_workload.py TRACE.parquet OUT.json

TRACE is a trace as ``noonward.data.jobs.load.load_job_trace`` reads it. ``noonward.data.jobs.calibration``
and ``noonward.data.jobs.generate`` say what each statistic means; this tool estimates them:

* hour and weekday weights: the rate of whole local hours fitted as (hour factor) x (weekday factor) so that the fitted
  counts of every hour and of every weekday are the observed ones (iterative proportional fitting);
* bursts: counts n_b in blocks of each length against their fitted mean m_b give the rate's squared coefficient of
  variation  V = sum((n_b - m_b)^2 - m_b) / sum(m_b^2), Poisson noise taken out; the factors' own variations are those
  whose nested product has just these V.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.data.jobs.load import JobTrace, load_job_trace

F8 = NDArray[np.float64]

GROUPS = [1, 2, 3, 4, 5, 8, 9, 16, 25]
PROBABILITIES = [round(step / 100, 2) for step in range(100)] + [0.995, 0.999, 1.0]
PERIODS_S = [21600, 3600, 300, 60]
SOURCE = {
    "trace": "Alibaba PAI, cluster-trace-gpu-v2020, https://github.com/alibaba/clusterdata, CC BY 4.0",
    "by_way_of": "UMass GAIA, pai-100k.csv, MIT licence",
    "changes": "The published 8,760-hour file repeats one trace of 1,450 hours about six times; it was folded back, "
    "freed of duplicates, and its first 1,160 hours were used. These are statistics of it; no job is contained.",
    "caveats": "num_gpus is the file's column 'cpus'; the file holds jobs of 5 minutes to 71 hours only; the local "
    "clock (second 0 = Tuesday 01:09) was inferred from the rhythm, +-1 h.",
}


def fit_rhythm(count_H: F8, hour_H: NDArray[np.int64], weekday_H: NDArray[np.int64]) -> tuple[F8, F8]:
    """Returns factors by hour and weekday, each of mean 1, whose products reproduce the counts' margins."""
    hour, weekday = np.ones(24), np.ones(7)
    for _ in range(100):
        hour = np.bincount(hour_H, count_H, 24) / np.bincount(hour_H, weekday[weekday_H], 24)
        weekday = np.bincount(weekday_H, count_H, 7) / np.bincount(weekday_H, hour[hour_H], 7)
    return hour / hour.mean(), weekday / weekday.mean()


def block_cv2(local_s: F8, rate_H: F8, first_h: int, period_s: int) -> float:
    """Returns the squared coefficient of variation of the rate in blocks, rhythm and Poisson noise taken out."""
    blocks = len(rate_H) * 3600 // period_s
    inside = local_s[local_s >= first_h * 3600] - first_h * 3600
    count = np.bincount((inside // period_s).astype(np.int64), minlength=blocks)[:blocks]
    mean = np.repeat(rate_H / 60, 60)[: blocks * period_s // 60].reshape(blocks, -1).sum(axis=1)
    return float(((count - mean) ** 2 - mean).sum() / (mean**2).sum())


def nested_cv2(period_s: list[int], factor_cv2: F8) -> F8:
    """Returns the block variations of a product of nested independent factors of mean 1, coarsest level first.

    Within a block of level l the finer levels average out: Q = 1 + ((1 + c) Q' - 1) / (sub-blocks), from the finest
    level up (Q' = 1 there); then 1 + V_l = Q_l prod of (1 + c) over l and the coarser levels.
    """
    within, result = 1.0, np.empty(len(period_s))
    for level in range(len(period_s) - 1, -1, -1):
        result[level] = np.prod(1 + factor_cv2[: level + 1]) * within - 1
        if level:
            within = 1 + ((1 + factor_cv2[level]) * within - 1) * period_s[level] / period_s[level - 1]
    return result


def fit_factors(period_s: list[int], cv2: F8) -> F8:
    """Returns the factors' squared coefficients of variation, at least 0, that give the blocks' (fixed point)."""
    factors = np.zeros(len(period_s))
    for _ in range(1000):
        factors = np.maximum((1 + factors) * np.sqrt((1 + cv2) / (1 + nested_cv2(period_s, factors))) - 1, 0)
    return factors


def calibrate(trace: JobTrace, source: dict[str, str]) -> dict[str, Any]:
    """Returns the table of a trace's statistics."""
    local_s = trace.local_s_J
    first_h, last_h = int(local_s[0] // 3600) + 1, int(local_s[-1] // 3600)
    hours = np.arange(first_h, last_h)
    count_H = np.bincount((local_s // 3600).astype(np.int64), minlength=last_h)[first_h:last_h].astype(np.float64)
    hour_H, weekday_H = hours % 24, hours // 24 % 7
    hour, weekday = fit_rhythm(count_H, hour_H, weekday_H)
    rate_H = hour[hour_H] * weekday[weekday_H]
    rate_H *= count_H.sum() / rate_H.sum()
    cv2 = np.array([block_cv2(local_s, rate_H, first_h, period) for period in PERIODS_S])
    gaps = np.diff(trace.submit_s_J)
    bounds = [*GROUPS, np.inf]
    counts = np.unique(trace.gpus_J, return_counts=True)
    return {
        "about": "Statistics of a GPU cluster's jobs; formulas: noonward.data.jobs.generate.",
        "source": source,
        "trace": {
            "jobs": len(trace),
            "jobs_per_h": round(float(count_H.mean()), 3),
            "mean_gpus": round(float(trace.gpus_J.mean()), 4),
            "mean_duration_s": round(float(trace.duration_s_J.mean()), 1),
            "interarrival_cv": round(float(gaps.std() / gaps.mean()), 3),
        },
        "hour_weights": hour.round(4).tolist(),
        "weekday_weights": weekday.round(4).tolist(),
        "bursts": {
            "period_s": PERIODS_S,
            "factor_cv2": fit_factors(PERIODS_S, cv2).round(4).tolist(),
            "block_cv2": cv2.round(4).tolist(),
        },
        "gpu_counts": {str(gpus): int(count) for gpus, count in zip(*counts, strict=True)},
        "duration_groups": {
            "gpus_from": GROUPS,
            "probabilities": PROBABILITIES,
            "quantiles_s": [
                np.quantile(trace.duration_s_J[(trace.gpus_J >= low) & (trace.gpus_J < high)], PROBABILITIES)
                .round()
                .astype(int)
                .tolist()
                for low, high in itertools.pairwise(bounds)
            ],
        },
    }


def main() -> None:
    """Reads the trace, writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="trace of jobs, CSV or Parquet")
    parser.add_argument("out", type=Path, help="JSON file to write")
    given = parser.parse_args()
    table = calibrate(load_job_trace(given.trace), SOURCE)
    given.out.write_text(json.dumps(table, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Scores learned run times on the last part of a job log, against what a planner could take instead.

Usage: python tools/score_run_times.py LOG

LOG is a job log or dated job table (docs/data.md). The first 80% of the jobs are the past; the others are predicted as
they arrive, and learned as they end. Printed: the mean CRPS (s; the absolute error of a single value) of the learned
distribution, the limit, the mean of the past, and the mean of the user's last two jobs that have ended; and the share
of jobs that end within predicted quantiles; and the mean Brier score (sum of squares over done, failed and cancelled)
of the predicted chances of how a job ends, against the shares of the past, where the log says how jobs ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from noonward.data.jobs.dated import job_rows
from noonward.data.jobs.knowledge import table_traits
from noonward.forecasts.run_times import CAUSES, LearnedRunTimes, crps_J
from noonward.model.cluster.scenario import JobTable

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
PAST = 0.8


def main() -> None:
    """Prints the scores."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = job_rows(JobTable(source="table", path=Path(sys.argv[1]), origin="here"))
    if rows.submit_s_J is None:
        sys.exit(f"{sys.argv[1]} has no dates; give a log or a table with a column submit_time")
    order = np.argsort(rows.submit_s_J, kind="stable")
    submit_s_J = rows.submit_s_J[order]
    start_s_J = submit_s_J if rows.start_s_J is None else np.where(np.isnan(s := rows.start_s_J[order]), submit_s_J, s)
    work_J = rows.table.numbers("duration_s", "give the run time in seconds, above 0", low=0, above=True)[order]
    gpus_J = rows.table.integers("gpus", "give a whole number of GPUs", low=1)[order]
    traits, cause_J = table_traits(rows.details[order], gpus_J)
    user_J = rows.details["user"].fill_null("").to_numpy()[order]
    end_s_J = start_s_J + work_J
    first = int(PAST * len(work_J))
    model = LearnedRunTimes(traits)
    ended = np.flatnonzero(end_s_J[:first] <= submit_s_J[first])
    model.end(ended, work_J[ended], cause_J[ended])
    running = list(set(range(first)) - set(ended.tolist()))
    last: dict[str, list[float]] = {}
    for job in ended[np.argsort(end_s_J[ended])].tolist():
        last.setdefault(user_J[job], []).append(work_J[job])
    mean = float(work_J[ended].mean())
    scores: dict[str, list[float]] = {"learned": [], "mean of the past": [], "user's last two": [], "limit": []}
    brier: dict[str, list[float]] = {"learned": [], "shares of the past": []}
    share_C = np.array([(cause_J[ended] == cause).mean() for cause in CAUSES])
    within: dict[float, list[bool]] = {share: [] for share in QUANTILES}
    for hour in np.unique(submit_s_J[first:] // 3600).tolist():
        done = sorted((job for job in running if end_s_J[job] <= hour * 3600), key=end_s_J.__getitem__)
        model.end(np.array(done, np.int64), work_J[done], cause_J[done])
        for job in done:
            last.setdefault(user_J[job], []).append(work_J[job])
        running = [job for job in running if end_s_J[job] > hour * 3600]
        jobs = first + np.flatnonzero(submit_s_J[first:] // 3600 == hour)
        running += jobs.tolist()
        edges_B, below_JB = model.distribution(jobs)
        below_JB = np.where(edges_B >= traits.limit_J[jobs, None], 1.0, below_JB)
        scores["learned"] += crps_J(edges_B, below_JB, work_J[jobs]).tolist()
        scores["mean of the past"] += np.abs(work_J[jobs] - mean).tolist()
        two = np.array([np.mean(last.get(user_J[job], [mean])[-2:]) for job in jobs])
        scores["user's last two"] += np.abs(work_J[jobs] - two).tolist()
        limited = jobs[np.isfinite(traits.limit_J[jobs])]
        scores["limit"] += np.abs(traits.limit_J[limited] - work_J[limited]).tolist()
        happened_JC = cause_J[jobs, None] == np.array(CAUSES)
        chance_JC = np.stack([model.chance_J(jobs, cause) for cause in CAUSES], axis=1)
        brier["learned"] += ((chance_JC - happened_JC) ** 2).sum(axis=1).tolist()
        brier["shares of the past"] += ((share_C - happened_JC) ** 2).sum(axis=1).tolist()
        for share, covered in within.items():
            covered += (work_J[jobs] <= model.quantile(jobs, share)).tolist()
    print(f"{len(work_J) - first:,} jobs predicted, {first:,} before them")
    for name, values in scores.items():
        print(f"{name:18} CRPS {np.mean(values):,.0f} s" if values else f"{name:18} none is known")
    for share, covered in within.items():
        print(f"ended within the quantile {share:g}: {np.mean(covered):.1%}")
    for name, values in brier.items():
        print(f"{name:18} Brier score of how jobs end {np.mean(values):.3f}")


if __name__ == "__main__":
    main()

"""Lower bounds on the response of image tasks that hold for several models and for load times of the tasks' own.

A class is the tasks of one gang size and one model: only they can use each other's loads.

- **Loads.** A task j with arrival a_j, load L_j and run W_j either loads itself, or finds a gang that a task of its
  class has left, so it is finished no earlier than ``d_j = min(a_j + L_j, max(a_j, F)) + W_j`` where
  ``F = min over the class of a_i + L_i + W_i`` is the first end of a task that loads. For a task alone in its class,
  d_j = a_j + L_j + W_j.
- **Servers.** Over the last W_j seconds before its end C_j (with its load, if it is alone in its class), task j holds
  g_j of N servers, so the mean time of that work is C_j - W_j / 2. Take one machine of all servers that may interrupt
  its work and begins none before ``d_j - W_j``. The sum of the mean times is least if it always works at the task of
  the least work ``g_j W_j / N`` (Goemans 1997, mean busy times); half of all W_j added bounds the sum of the C_j.

Both sums hold for every schedule, even one that knows all tasks; the larger is taken.
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8, I8
from noonward.compiled import kernel


def models_bound(
    servers: int, stamp_s_K: F8, ready_s_K: F8, gang_K: I8, model_K: I8, load_s_K: F8, run_s_K: F8, start_s: float
) -> float:
    """Returns a lower bound on the mean response of all tasks, s.

    Args:
        servers: Servers N.
        stamp_s_K: When tasks were submitted, s.
        ready_s_K: When they can be launched at the earliest, s.
        gang_K: Their gangs.
        model_K: Their models.
        load_s_K: Seconds that each of them takes to load.
        run_s_K: Seconds of each one's run without its load.
        start_s: First time at which anything can be launched, s.
    """
    ready_s_K = np.maximum(ready_s_K, start_s)
    _, class_K, size_C = np.unique(np.stack([gang_K, model_K]), axis=1, return_inverse=True, return_counts=True)
    class_K = class_K.reshape(-1)
    loaded_s_K = ready_s_K + load_s_K
    first_s_C = np.full(len(size_C), np.inf)
    np.minimum.at(first_s_C, class_K, loaded_s_K + run_s_K)
    begin_s_K = np.minimum(loaded_s_K, np.maximum(ready_s_K, first_s_C[class_K]))
    most_s = [float((begin_s_K + run_s_K - stamp_s_K).sum())]
    alone_K = size_C[class_K] == 1
    for from_s_K, last_s_K in (
        (begin_s_K, run_s_K),
        (np.where(alone_K, ready_s_K, begin_s_K), run_s_K + np.where(alone_K, load_s_K, 0.0)),
    ):
        mean_s = least_mean_times(from_s_K, gang_K * last_s_K / servers)
        most_s.append(float(mean_s + 0.5 * last_s_K.sum() - stamp_s_K.sum()))
    return max(most_s) / len(stamp_s_K)


@kernel()
def least_mean_times(release_K: F8, work_K: F8) -> float:
    """Returns the least sum, over jobs, of the mean time at which one machine that may interrupt works at each.

    The machine always works at the released job of the least work in all, which is optimal (Goemans 1997).

    Args:
        release_K: Earliest begin of each job, s.
        work_K: Work of each job, s; a job without any counts at its release.

    Example:
        >>> round(least_mean_times(np.array([0.0, 1.0]), np.array([3.0, 1.0])), 6)  # 0 to 1 and 2 to 4; 1 to 2
        3.666667
    """
    left_K, order_K = work_K.copy(), np.argsort(release_K)
    released, t, total = 0, 0.0, 0.0
    count = len(release_K)
    while True:
        while released < count and release_K[order_K[released]] <= t:
            if work_K[order_K[released]] <= 0.0:
                total += release_K[order_K[released]]
            released += 1
        best = -1
        for i in range(released):
            k = order_K[i]
            if left_K[k] > 0.0 and (best < 0 or work_K[k] < work_K[best]):
                best = k
        if best < 0:
            if released == count:
                return total
            t = release_K[order_K[released]]
            continue
        until = t + left_K[best]
        if released < count and release_K[order_K[released]] < until:
            until = release_K[order_K[released]]
        total += 0.5 * (until + t) * (until - t) / work_K[best]
        left_K[best] -= until - t
        if left_K[best] < 1e-12 * work_K[best]:
            left_K[best] = 0.0
        t = until

"""Marginal greedy: the cheapest hours and gangs of one elastic job, as CarbonScaler allots them."""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from noonward.arrays import F8, I8
from noonward.errors import ScenarioError

NEAR: Final = 1e-12
"""Share of the work that rounding may leave undone."""


def marginal_greedy(cost_H: F8, work_N: F8, power_N: F8, work: float) -> I8:
    """Returns the gang of each hour that does a job's work, by the greatest marginal work per cost.

    From no gang at all, the hour whose next larger gang adds most work per cost gets it, ``(w(n) - w(n - 1)) /
    ((p(n) - p(n - 1)) c(h))``, until the work is done. Where marginal work per power falls with the gang, no schedule
    that does as much work costs less (Hanafy et al., "CarbonScaler", SIGMETRICS'24). Of equal hours the earlier.

    Args:
        cost_H: What a unit of power costs in each hour: carbon intensity or price, above 0.
        work_N: Work an hour on a gang of 0, 1, 2... nodes; 0 on none, rising.
        power_N: Its power; 0 on none, rising.
        work: Work to be done, at least 0.

    Returns:
        Nodes by the hour.

    Raises:
        ScenarioError: The profile does not rise from 0, a cost is not above 0, or the hours are too few for the work.

    Example:
        >>> work_N, power_N = np.array([0.0, 1.0, 1.8]), np.array([0.0, 1.0, 2.0])
        >>> marginal_greedy(np.array([1.0, 5.0, 2.0]), work_N, power_N, 2.5).tolist()
        [2, 0, 1]
    """
    gained_N, drawn_N = np.diff(work_N), np.diff(power_N)
    if work_N[0] != 0 or power_N[0] != 0 or len(gained_N) < 1 or not ((gained_N > 0) & (drawn_N > 0)).all():
        raise ScenarioError("work and power by nodes must rise from 0 on 0 nodes; correct the profile")
    if not (cost_H > 0).all():
        raise ScenarioError(f"the cost of hour {int((~(cost_H > 0)).argmax())} is not above 0; give positive costs")
    per_power_N = gained_N / drawn_N
    nodes_H = np.zeros(len(cost_H), np.int64)
    done = 0.0
    best = [(-per_power_N[0] / cost, hour) for hour, cost in enumerate(cost_H.tolist())]
    heapq.heapify(best)
    while done < work * (1.0 - NEAR):
        if not best:
            raise ScenarioError(
                f"{len(cost_H)} hours at {len(gained_N)} nodes do {done:g} of {work:g} units of work; give more hours"
            )
        _, hour = heapq.heappop(best)
        nodes = int(nodes_H[hour])
        nodes_H[hour] += 1
        done += float(gained_N[nodes])
        if nodes + 1 < len(gained_N):
            heapq.heappush(best, (-per_power_N[nodes + 1] / float(cost_H[hour]), hour))
    return nodes_H

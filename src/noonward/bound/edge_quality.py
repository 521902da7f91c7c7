"""Lower bound on the response of edge settings at a mean quality, however the steps are spread among the images.

Take any schedule in which task k gets ``s_k >= f`` steps of t_k seconds. If every task is launched as before but given
f steps, each ends ``(s_k - f) t_k`` sooner, and no launch becomes impossible. So the sum of the responses is at least

    K B(f) + min { sum_k (s_k - f) t_k : f <= s_k <= m_k, sum_k q(s_k) >= K q },

where B(f) bounds the mean response of tasks of f steps (``noonward.bound.edge_environment``) and q is the mean quality.
The minimum is bounded by its Lagrangian: for every price p >= 0 of quality,

    sum_k min over s of { (s - f) t_k - p q(s) } + p K q

is no more than it. Each inner minimum is at an end or where ``p q'(s) = t_k``; the best price is found by bisection,
and any price gives a valid bound. It counts what more steps cost the tasks themselves, not those that wait for them.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.model.edge.quality import STEPS_HIGH, STEPS_LOW, quality

BISECTIONS: Final = 60
"""Prices that are tried."""
SLOPE: Final = 0.16 / math.log(6.0)
"""``s q'(s)`` between the fewest steps of any worth and the most that add quality."""


def least_more_seconds(step_s_K: F8, fewest_K: F8, most_K: F8, goal: float, law: int) -> float:
    """Returns a lower bound on the seconds that tasks take beyond their fewest steps, at a mean quality, s.

    Args:
        step_s_K: Seconds of a step of each task, above 0.
        fewest_K: Fewest steps of each.
        most_K: Most steps of each.
        goal: Mean quality.
        law: Position in ``LAWS``.

    Returns:
        The seconds of all tasks together; infinite where the most steps do not reach the goal.

    Example:
        >>> step_s_K, fewest_K, most_K = np.array([0.5, 0.5]), np.array([12.0, 12.0]), np.array([30.0, 30.0])
        >>> round(least_more_seconds(step_s_K, fewest_K, most_K, 0.26, 0), 1)  # 23 steps each, a little more
        11.0
    """
    high_K = np.maximum(fewest_K, np.minimum(most_K, STEPS_HIGH))
    if np.mean([quality(steps, law) for steps in high_K.tolist()]) < goal:
        return math.inf
    low, high, best_s = 0.0, float((step_s_K * STEPS_HIGH / SLOPE).max()), 0.0
    for _ in range(BISECTIONS):
        price = 0.5 * (low + high)
        bound_s, reached = _lagrangian(price, step_s_K, fewest_K, high_K, goal, law)
        best_s = max(best_s, bound_s)
        low, high = (price, high) if reached < goal else (low, price)
    return best_s


def _lagrangian(price: float, step_s_K: F8, fewest_K: F8, high_K: F8, goal: float, law: int) -> tuple[float, float]:
    """Returns the value at a price of quality (s per unit), s, and the mean quality of the steps that attain it."""
    usual_K = np.clip(np.clip(price * SLOPE / step_s_K, STEPS_LOW, STEPS_HIGH), fewest_K, high_K)
    steps_VK = np.stack([fewest_K, usual_K, high_K])
    quality_VK = np.array([[quality(steps, law) for steps in row] for row in steps_VK.tolist()])
    value_VK = (steps_VK - fewest_K) * step_s_K - price * quality_VK
    best_K = value_VK.argmin(axis=0)
    reached = float(np.take_along_axis(quality_VK, best_K[None], axis=0).mean())
    least_s = float(np.take_along_axis(value_VK, best_K[None], axis=0).sum())
    return least_s + price * goal * len(step_s_K), reached

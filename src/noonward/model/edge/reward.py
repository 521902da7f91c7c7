"""Reward of a launch: quality, and the reciprocal of response and queue (EAT, Sec. V.A.4)."""

from __future__ import annotations

from noonward.compiled import kernel

MOST_RECIPROCAL = 10.0
"""The reciprocal counts at most this much, as in the authors' public simulator; the paper has no such limit."""


@kernel(allocates=False)
def launch_reward(
    quality: float,
    response_s: float,
    queue_s: float,
    quality_weight: float,
    response_per_s: float,
    queue_per_s: float,
    penalty: float,
    quality_min: float,
) -> float:
    """Returns ``alpha q - lambda [q < q_min] + min(10, 1 / (beta response + mu queue))``.

    Args:
        quality: Quality q of the image.
        response_s: Its response, s.
        queue_s: Mean wait of the visible tasks that are left, s.
        quality_weight: alpha.
        response_per_s: beta.
        queue_per_s: mu.
        penalty: lambda.
        quality_min: Quality that an image should reach.

    Example:
        >>> launch_reward(0.2, 50.0, 75.0, 10.0, 0.004, 0.004, 1.0, 0.25)
        3.0
    """
    cost = response_per_s * response_s + queue_per_s * queue_s
    gain = MOST_RECIPROCAL if cost * MOST_RECIPROCAL <= 1.0 else 1.0 / cost
    return quality_weight * quality - (penalty if quality < quality_min else 0.0) + gain

"""The verdict of a comparison: which policy to adopt, whether to keep today's, or that more windows must run.

The best of many policies looks better than it is where the same windows choose and measure it. So windows of even
number choose, and those of odd number alone measure the one chosen. With one policy beside today's nothing is chosen,
and all windows measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.statistics import Estimate, mean, ratio

Kind = Literal["adopt", "keep", "more", "once", "draws", "limits"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a comparison advises.

    Attributes:
        kind: ``adopt``: the policy is better than today's; ``keep``: none is, keep today's; ``more``: the windows
            cannot tell; ``once``: it was better in the only window; ``draws``: it was better in the only window of
            jobs, whatever prices were drawn; ``limits``: it keeps limits that today's misses.
        policy: The policy that it names: the one to adopt or that leads; today's where that stays.
        leader: The policy chosen; today's where none was better in the windows that choose.
        gain: By how much it is better than today's per window, in the unit of the values; positive is better.
        share: The same as a fraction of today's value; NaN where that is not positive.
        chosen: Windows that chose the policy.
        measured: Windows that ``gain`` and ``share`` are measured on.
    """

    kind: Kind
    policy: str
    leader: str
    gain: Estimate
    share: Estimate
    chosen: tuple[int, ...]
    measured: tuple[int, ...]


def halves(windows: int, candidates: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the windows that choose among candidates, and those that measure the one chosen.

    Example:
        >>> halves(5, 3), halves(3, 1), halves(1, 3)
        (((0, 2, 4), (1, 3)), ((0, 1, 2), (0, 1, 2)), ((0,), (0,)))
    """
    every = tuple(range(windows))
    if candidates <= 1 or windows == 1:
        return every, every
    return every[::2], every[1::2]


def decide(values: Mapping[str, F8], today: str, candidates: Sequence[str], better: Literal["up", "down"]) -> Verdict:
    """Returns the verdict on policies measured in the same windows.

    A policy is adopted only if the 95% interval of its paired gain, in windows that did not choose it, lies above 0.

    Args:
        values: Measure of every policy per window.
        today: Policy that runs today.
        candidates: Policies that may be adopted: they can run, and keep every limit.
        better: Whether higher or lower values are better.

    Example:
        >>> costs = {"today": np.array([9.0, 9.0, 9.0]), "other": np.array([7.0, 8.0, 7.5])}
        >>> decide(costs, "today", ["other"], "down").kind
        'adopt'
    """
    sign = 1.0 if better == "up" else -1.0
    base_E = values[today]
    candidates = [policy for policy in candidates if policy != today]
    chosen, measured = halves(len(base_E), len(candidates))
    gains = {policy: sign * (values[policy] - base_E) for policy in candidates}
    first = max(candidates, key=lambda policy: _or_least(gains[policy][list(chosen)].mean()), default=today)
    at = list(measured)
    gain_E = gains.get(first, np.zeros(len(base_E)))
    if not gain_E[list(chosen)].mean() > 0:
        first, gain_E = today, np.zeros(len(base_E))
    gain = mean(gain_E[at])
    kind: Kind
    if first == today or (gain.high is not None and gain.high < 0):
        kind = "keep"
    elif len(base_E) == 1:
        kind = "once"
    else:
        kind = "adopt" if gain.low is not None and gain.low > 0 else "more"
    return Verdict(
        kind=kind,
        policy=today if kind == "keep" else first,
        leader=first,
        gain=gain,
        share=ratio(gain_E[at], base_E[at]),
        chosen=chosen,
        measured=measured,
    )


def _or_least(value: float) -> float:
    return -np.inf if np.isnan(value) else value

"""Rollouts: decision steps in the order they were made, and the advantages of their choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from noonward.arrays import F8, I8, Bools
from noonward.learn.core.experience import Moment, Transition


class Rollout(NamedTuple):
    """T decision steps of B runs; moments and choices have T B rows, step by step."""

    before: Moment
    choice_BN: I8
    after: Moment
    reward_TB: F8
    discount_TB: F8
    """Discount of what follows a step."""
    ended_TB: Bools
    cut_TB: Bools


def copied(transition: Transition) -> Transition:
    """Returns a copy that shares no array."""
    parts = (
        Moment._make(each.copy() for each in part) if isinstance(part, Moment) else part.copy() for part in transition
    )
    return Transition._make(parts)


def join(steps: Sequence[Transition], discount: Callable[[F8], F8]) -> Rollout:
    """Returns a rollout of transitions.

    Args:
        steps: Transitions of the same runs, in order.
        discount: Discounts of steps by the seconds they took.
    """
    return Rollout(
        before=stacked([each.before for each in steps]),
        choice_BN=np.concatenate([each.choice_BN for each in steps]),
        after=stacked([each.after for each in steps]),
        reward_TB=np.stack([each.reward_B for each in steps]),
        discount_TB=discount(np.stack([each.elapsed_s_B for each in steps])),
        ended_TB=np.stack([each.ended_B for each in steps]),
        cut_TB=np.stack([each.cut_B for each in steps]),
    )


def stacked(moments: Sequence[Moment]) -> Moment:
    """Returns moments as one, their rows one after the other."""
    return Moment._make(np.concatenate(each) for each in zip(*moments, strict=True))


def pick(moment: Moment, rows: I8) -> Moment:
    """Returns some rows of a moment."""
    return Moment._make(each[rows] for each in moment)


def advantages(rollout: Rollout, value_TB: F8, next_TB: F8, gae_lambda: float) -> F8:
    """Returns the generalised advantages (Schulman et al. 2016, Eqs. 11 to 16), [T, B].

    ``d_k = R_k + g_k V'_k - V_k``, ``A_k = d_k + g_k lambda A_k+1``; no value follows where a run ended, and no later
    advantage where it ended, was cut, or the rollout is over.

    Args:
        rollout: Steps.
        value_TB: Values V of what was seen.
        next_TB: Values V' of what was seen next.
        gae_lambda: Weight of longer estimates.
    """
    follows_TB = rollout.discount_TB * ~rollout.ended_TB
    out_TB = rollout.reward_TB + follows_TB * next_TB - value_TB
    goes_on_TB = gae_lambda * follows_TB * ~rollout.cut_TB
    for t in range(len(out_TB) - 2, -1, -1):
        out_TB[t] += goes_on_TB[t] * out_TB[t + 1]
    return out_TB


def normalised(number_B: F8, weight_B: I8) -> F8:
    """Returns numbers less their weighted mean, over their weighted deviation; unscaled where they are all the same."""
    mean = np.average(number_B, weights=weight_B)
    deviation = np.sqrt(np.average(np.square(number_B - mean), weights=weight_B))
    return np.asarray((number_B - mean) / (deviation if deviation > 0 else 1.0))

"""Categorical distributions over the feasible choices of an agent."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

INFEASIBLE: Final = -1e9
"""Logit of a choice that is infeasible: its probability is exactly 0, and no sum or gradient becomes NaN."""


def masked(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns values with ``INFEASIBLE`` where the mask is 0.

    Args:
        values: Logits or values, [..., A].
        mask: 1 where a choice is feasible, bool, same shape; at least one choice of each row must be.
    """
    return values.masked_fill(~mask, INFEASIBLE)


def log_policy(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the log-probabilities ``log softmax(masked logits)``, [..., A]; -1e9 or so where infeasible."""
    return torch.log_softmax(masked(logits, mask), -1)


def entropy(log_p: torch.Tensor) -> torch.Tensor:
    """Returns ``-sum_a p log p``, nats, [...]; infeasible choices add exactly 0."""
    return -(log_p.exp() * log_p).sum(-1)


def with_hold(mask_BNA: NDArray[np.uint8], asked_BN: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns the mask in which an agent that is not asked has one choice, 0: to hold.

    Args:
        mask_BNA: 1 where a choice is feasible, [..., N, A].
        asked_BN: Whether an agent is asked, [..., N].
    """
    mask = (mask_BNA != 0) & asked_BN[..., None]
    mask[..., 0] |= ~asked_BN
    return mask


def sample(logits: NDArray[np.floating], mask: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns a choice drawn from ``softmax(masked logits)`` by the Gumbel-max rule, [...]."""
    noise = rng.gumbel(size=logits.shape)
    return np.where(mask, logits + noise, -np.inf).argmax(-1)


def best(values: NDArray[np.floating], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns the feasible choice of largest value, the first of equals, [...]."""
    return np.where(mask, values, -np.inf).argmax(-1)

"""Random numbers inside compiled functions: SplitMix64, whose whole state is one word (Steele et al. 2014)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from noonward.compiled import kernel

Word = NDArray[np.uint64]
"""State of a generator: an array of one word."""


@kernel(inline=True, allocates=False)
def random_word(state: Word) -> np.uint64:
    """Returns 64 random bits and moves the state on."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(z ^ (z >> np.uint64(31)))


@kernel(inline=True, allocates=False)
def random_below(state: Word, limit: int) -> int:
    """Returns a random integer in [0, limit) and moves the state on; the modulo's bias is below limit / 2^64."""
    return np.int64(random_word(state) % np.uint64(limit))  # type: ignore[return-value]


@kernel(inline=True, allocates=False)
def uniform(state: Word) -> float:
    """Returns a uniform number in (0, 1) and moves the state on; 52 bits, neither 0 nor 1."""
    return (float(random_word(state) >> np.uint64(12)) + 0.5) / 4503599627370496.0


@kernel(inline=True, allocates=False)
def normal(state: Word) -> float:
    """Returns a standard normal number and moves the state on by two words (Box and Muller)."""
    return math.sqrt(-2.0 * math.log(uniform(state))) * math.cos(2.0 * math.pi * uniform(state))


@kernel(inline=True, allocates=False)
def geometric(state: Word, share: float) -> int:
    """Returns the trials up to and including the first success, each of which has a chance of ``share`` (0 to 1)."""
    if share >= 1.0:
        return 1
    return 1 + int(math.log(uniform(state)) / math.log1p(-share))

"""Named random streams: one SeedSequence a run, one independent stream a purpose.

Changing what one stream is used for (the policy, say) never changes what another draws (the arrivals).
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

import numpy as np

Stream = Literal["workload", "world", "policy", "learner", "forecast", "tenants"]
STREAMS: Final = ("workload", "world", "policy", "learner", "forecast", "tenants")


def stream(seed: int, name: Stream, *key: int | str) -> np.random.Generator:
    """Returns the generator of one named stream.

    Args:
        seed: The run's seed, at least 0.
        name: What the stream is for; streams of different names are independent.
        key: Further words or indices (environment number, zone name) that split the stream.

    Returns:
        A PCG64 generator that depends on the arguments alone.

    Raises:
        ValueError: The seed is negative or the stream's name is unknown.

    Example:
        >>> float(stream(7, "workload", 3).random()) == float(stream(7, "workload", 3).random())
        True
        >>> float(stream(7, "workload", 3).random()) == float(stream(7, "policy", 3).random())
        False
    """
    if seed < 0:
        raise ValueError(f"seed {seed} is negative; use an integer of at least 0")
    if name not in STREAMS:
        raise ValueError(f"unknown random stream {name!r}; streams: {', '.join(STREAMS)}")
    words = [STREAMS.index(name)]
    words += [k if isinstance(k, int) else zlib.crc32(k.encode()) for k in key]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=tuple(words))))

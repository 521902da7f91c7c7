"""Capacity curves that a scheduler sets in a service, which has no last hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from noonward.arrays import F8, I8

AHEAD_H: Final = 56 * 24
"""Hours from the current one on for which a curve can be set at least."""


class Curves:
    """Capacity curves by hour since the service's start: the sites' GPUs until a scheduler sets others.

    Args:
        gpus_S: GPUs of the sites.
        hard: Whether the curves are limits of what may start, or advice.

    Attributes:
        limit_SH: The curves, GPUs; a longer array takes its place as time passes (``cover``).
    """

    def __init__(self, gpus_S: I8, *, hard: bool) -> None:
        self.hard = hard
        self._gpus_S = gpus_S.astype(np.float64)
        self.limit_SH: F8 = np.zeros((len(gpus_S), 0))
        self._stored_SH: F8 = self.limit_SH.copy()
        self.cover(0)

    def cover(self, hour: int) -> None:
        """Makes room for the curves of an hour and of ``AHEAD_H`` after it."""
        known = self.limit_SH.shape[1]
        if hour + AHEAD_H > known:
            more_SH = np.repeat(self._gpus_S[:, None], 2 * (hour + AHEAD_H) - known, axis=1)
            self.limit_SH = np.concatenate([self.limit_SH, more_SH], axis=1)
            self._stored_SH = np.concatenate([self._stored_SH, more_SH], axis=1)

    def changes(self, hour: int) -> dict[int, F8]:
        """Returns the curves of the hours from one on that are not stored as they are now: GPUs by site."""
        differs_H = (self.limit_SH[:, hour:] != self._stored_SH[:, hour:]).any(axis=0)
        return {int(h): self.limit_SH[:, h].copy() for h in hour + np.flatnonzero(differs_H)}

    def note_stored(self, stored: Mapping[int, F8]) -> None:
        """Notes that curves are stored: GPUs by site, by hour."""
        for hour, gpus_S in stored.items():
            self._stored_SH[:, hour] = gpus_S

    def restore(self, stored: Mapping[int, F8]) -> None:
        """Puts curves back as they were stored: GPUs by site, by hour."""
        self.cover(max(stored, default=0))
        for hour, gpus_S in stored.items():
            self.limit_SH[:, hour] = gpus_S
        self.note_stored(stored)

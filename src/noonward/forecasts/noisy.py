"""Noisy forecasts: the truth and an error that grows with the lead."""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from noonward.arrays import F8, I8
from noonward.forecasts.forecaster import Forecaster, require_history
from noonward.forecasts.perfect import PerfectForecaster
from noonward.model.precision import rounded_signals
from noonward.units import DAY_H

MEMORY: Final = 0.9
"""Correlation of the errors of one lead and the next."""


class NoisyForecaster(Forecaster):
    """Reads the hours to come and adds an error.

    The error at lead l is ``noise x deviation x sqrt(min(l, 24) / 24) x e(l)``, e a stationary AR(1) over the leads.
    Every signal and hour of issue has a random generator of its own, from which errors are drawn lead by lead.

    Args:
        noise: Standard deviation of the error 24 hours ahead, as a share of the signal's own over the history.
        history_KZH: Signals before the run's first hour.
        rng: Stream ``forecast``; its first two children are those of prices and carbon intensities.

    Raises:
        SignalRangeError: Fewer than 24 hours of the history are known.
    """

    def __init__(self, noise: float, history_KZH: F8, rng: np.random.Generator) -> None:
        require_history("noisy", DAY_H, int(np.isfinite(history_KZH).sum(axis=2).min()))
        self._first = history_KZH.shape[2]
        self._scale_KZ = noise * np.nanstd(history_KZH, axis=2)
        self._seed_K = [cast("np.random.SeedSequence", child.bit_generator.seed_seq) for child in rng.spawn(2)]
        self._truth = PerfectForecaster()

    def values(self, value_KZH: F8, issue_I: I8, leads: int) -> F8:
        """Returns the truth and errors; the hour of issue is known."""
        value_KIZL = self._truth.values(value_KZH, issue_I, leads)
        path_KILZ = np.empty((2, len(issue_I), leads, value_KZH.shape[1]))
        for k in range(2):
            for i, issue in enumerate(issue_I.tolist()):
                self._generator(k, issue - self._first).standard_normal(out=path_KILZ[k, i])
        for lead in range(1, leads):
            path_KILZ[:, :, lead] = MEMORY * path_KILZ[:, :, lead - 1] + np.sqrt(1 - MEMORY**2) * path_KILZ[:, :, lead]
        growth_L = np.sqrt(np.minimum(np.arange(leads), DAY_H) / DAY_H)
        error_KIZL = self._scale_KZ[:, None, :, None] * growth_L * path_KILZ.swapaxes(2, 3)
        value_KIZL[..., 1:] = rounded_signals(value_KIZL[..., 1:] + error_KIZL[..., 1:])
        return value_KIZL

    def _generator(self, k: int, hour: int) -> np.random.Generator:
        """Returns the generator of a signal's errors in an hour of issue, whichever hours were asked for before."""
        seed = self._seed_K[k]
        own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, hour))
        return np.random.Generator(np.random.PCG64(own))

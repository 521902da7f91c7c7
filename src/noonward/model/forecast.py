"""Forecasts of signals, issued every hour with an error model, so that no scheduler sees the future by accident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from noonward.errors import SignalRangeError
from noonward.model.regression import DAY_H, SignalName, packaged_weights, weighted
from noonward.units import HOUR_S

F8 = NDArray[np.float64]
ForecastKind = Literal["perfect", "persistence", "regression", "noisy"]


@dataclass(frozen=True)
class Forecast:
    """How forecasts err.

    Attributes:
        kind: ``perfect``: the truth; ``persistence``: the value known for the same hour of the last 24 hours;
            ``regression``: a weighted sum of what the last days say (:mod:`noonward.model.regression`); ``noisy``: the
            truth plus an error that grows with the lead.
        noise: Standard deviation of the error 24 hours ahead, as a share of the signal's own over the history before
            the run (``noisy``). It grows with the root of the lead up to 24 hours and is as persistent from lead to
            lead as an AR(1) of 0.9. Every hour of issue draws from a generator of its own, lead by lead, so that an
            error depends neither on how many hours are forecast nor on how many leads.
    """

    kind: ForecastKind
    noise: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in get_args(ForecastKind):
            raise ValueError(f"unknown forecast {self.kind!r}; known: {', '.join(get_args(ForecastKind))}")
        if not self.noise >= 0:
            raise ValueError(f"forecast noise is {self.noise}; it must be at least 0")

    def integrals(
        self,
        value_ZH: F8,
        history_h: int,
        lookahead_h: int,
        rng: np.random.Generator,
        *,
        signal: SignalName | None = None,
    ) -> F8:
        """Returns forecasts issued at every hour as running integrals.

        Args:
            value_ZH: True values per zone and hour, ``history_h`` hours of history first.
            history_h: Hours before the run's first.
            lookahead_h: Leads, hours.
            rng: Stream ``forecast``. Every call for ``noisy`` spawns one child: the next signal's errors do not depend
                on this one's sizes.
            signal: Which signal it is; ``regression`` has other weights for prices than for carbon intensities.

        Returns:
            Integral from the hour of issue to ``l`` hours on, value x s, shape (hours of issue, zones,
            lookahead + 1). Hours after the last known one are NaN.

        Raises:
            SignalRangeError: Persistence, regression or noise lacks a day of history.
            ValueError: ``regression`` is not told which signal it forecasts.

        Example:
            >>> truth = np.array([[1.0, 2.0, 3.0]])
            >>> Forecast("perfect").integrals(truth, 1, 2, np.random.default_rng(0))[0, 0].tolist()
            [0.0, 7200.0, 18000.0]
        """
        zones, total = value_ZH.shape
        hours = total - history_h
        lead = np.arange(lookahead_h)
        issue = history_h + np.arange(hours)
        if self.kind == "persistence":
            self._require(DAY_H - 1, history_h)
            known = issue[:, None] + lead - DAY_H * ((lead + DAY_H - 1) // DAY_H)
            value_IZL = value_ZH[:, known].swapaxes(0, 1)
        elif self.kind == "regression":
            if signal is None:
                raise ValueError("a regression forecast must be told its signal; give signal='price' or 'carbon'")
            self._require(DAY_H - 1, _known_to_the_end(value_ZH[:, :history_h]))
            value_IZL = weighted(value_ZH, issue, lookahead_h, packaged_weights(signal))
        else:
            padded = np.concatenate([value_ZH, np.full((zones, lookahead_h), np.nan)], axis=1)
            value_IZL = padded[:, issue[:, None] + lead].swapaxes(0, 1)
        if self.kind == "noisy":
            value_IZL = value_IZL + self._errors(value_ZH[:, :history_h], hours, lookahead_h, rng.spawn(1)[0])
        out = np.zeros((hours, zones, lookahead_h + 1))
        np.cumsum(value_IZL * HOUR_S, axis=2, out=out[:, :, 1:])
        return out

    def _errors(self, history_ZH: F8, hours: int, lookahead_h: int, rng: np.random.Generator) -> F8:
        """Returns errors per hour of issue, zone and lead; the current hour is known."""
        self._require(DAY_H, int(np.isfinite(history_ZH).sum(axis=1).min()))
        scale_Z = np.nanstd(history_ZH, axis=1)
        path_ILZ = np.empty((hours, lookahead_h, len(scale_Z)))
        for issue, of_hour in enumerate(rng.spawn(hours)):
            of_hour.standard_normal(out=path_ILZ[issue])
        for lead in range(1, lookahead_h):
            path_ILZ[:, lead] = 0.9 * path_ILZ[:, lead - 1] + np.sqrt(1 - 0.9**2) * path_ILZ[:, lead]
        growth_L = np.sqrt(np.minimum(np.arange(lookahead_h), DAY_H) / DAY_H)
        return np.asarray(self.noise * scale_Z[:, None] * growth_L * path_ILZ.swapaxes(1, 2))

    def _require(self, needed_h: int, known_h: int) -> None:
        """Raises SignalRangeError if too few hours before the window are known."""
        if known_h < needed_h:
            raise SignalRangeError(
                f"a {self.kind} forecast needs {needed_h} hours of signals before the window, but there are "
                f"{known_h}; start the window later or use another forecast"
            )


def _known_to_the_end(history_ZH: F8) -> int:
    """Returns how many hours up to the end of a history are known in every zone without a break."""
    unknown = np.flatnonzero(np.isnan(history_ZH).any(axis=0))
    return int(history_ZH.shape[1] - (unknown[-1] + 1 if len(unknown) else 0))

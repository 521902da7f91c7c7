"""Forecasts of signals, issued every hour with an error model, so that no scheduler sees the future by accident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from noonward.arrays import F8
from noonward.errors import SignalRangeError
from noonward.forecasts import learned as forecast_net
from noonward.forecasts.regression import DAY_H, SignalName, packaged_weights, weighted
from noonward.model.signals import Signals
from noonward.units import HOUR_S

ForecastKind = Literal["perfect", "persistence", "regression", "learned", "noisy"]


@dataclass(frozen=True)
class Forecast:
    """How forecasts err.

    Attributes:
        kind: ``perfect``: the truth; ``persistence``: the value known for the same hour of the last 24 hours;
            ``regression``: a weighted sum of what the last days say (:mod:`noonward.forecasts.regression`);
            ``learned``: the same, corrected by a net that knows the zone (:mod:`noonward.forecasts.learned`);
            ``noisy``: the truth plus an error that grows with the lead.
        noise: Standard deviation of the error 24 hours ahead, as a share of the signal's own over the history before
            the run (``noisy``). It grows with the root of the lead up to 24 hours and is as persistent from lead to
            lead as an AR(1) of 0.9. Every hour of issue draws from a generator of its own, lead by lead, so that an
            error depends neither on how many hours are forecast nor on how many leads.
        net: Training seed of the packaged net (``learned``), 0 to 2.
    """

    kind: ForecastKind
    noise: float = 0.5
    net: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(ForecastKind):
            raise ValueError(f"unknown forecast {self.kind!r}; known: {', '.join(get_args(ForecastKind))}")
        if not self.noise >= 0:
            raise ValueError(f"forecast noise is {self.noise}; it must be at least 0")
        if self.net not in range(forecast_net.SEEDS):
            raise ValueError(f"forecast net is {self.net!r}; it must be from 0 to {forecast_net.SEEDS - 1}")

    def issued(self, signals: Signals, history_h: int, lookahead_h: int, rng: np.random.Generator) -> F8:
        """Returns forecasts of both signals, issued at every hour, as running integrals.

        Args:
            signals: True values of some zones, ``history_h`` hours of history first.
            history_h: Hours before the run's first.
            lookahead_h: Leads, hours.
            rng: Stream ``forecast``.

        Returns:
            Shape (price and carbon, hours of issue, zones, lookahead + 1), otherwise as :meth:`integrals`.

        Raises:
            SignalRangeError: Too little of the history is known.
            ScenarioError: ``learned`` was not trained on one of the zones.
        """
        value_KZH = np.stack([signals.price_usd_per_mwh_ZH, signals.carbon_g_per_kwh_ZH])
        if self.kind == "learned":
            issue_I = np.arange(history_h, signals.hours)
            net = forecast_net.packaged_net(self.net)
            return integrated(forecast_net.forecast(value_KZH, issue_I, signals.start, signals.zones, lookahead_h, net))
        price_ZH, carbon_ZH = value_KZH
        return np.stack(
            [
                self.integrals(price_ZH, history_h, lookahead_h, rng, signal="price"),
                self.integrals(carbon_ZH, history_h, lookahead_h, rng, signal="carbon"),
            ]
        )

    def integrals(
        self,
        value_ZH: F8,
        history_h: int,
        lookahead_h: int,
        rng: np.random.Generator,
        *,
        signal: SignalName | None = None,
    ) -> F8:
        """Returns forecasts of one signal, issued at every hour, as running integrals.

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
            ValueError: ``regression`` is not told which signal it forecasts, or ``learned`` is asked for one alone.

        Example:
            >>> truth = np.array([[1.0, 2.0, 3.0]])
            >>> Forecast("perfect").integrals(truth, 1, 2, np.random.default_rng(0))[0, 0].tolist()
            [0.0, 7200.0, 18000.0]
        """
        if self.kind == "learned":
            raise ValueError("a learned forecast reads prices and carbon intensities together; call issued")
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
        return integrated(value_IZL)

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


def integrated(value_L: F8) -> F8:
    """Returns running integrals over the last axis of hourly values, value x s, one column more, from 0."""
    out = np.zeros((*value_L.shape[:-1], value_L.shape[-1] + 1))
    np.cumsum(value_L * HOUR_S, axis=-1, out=out[..., 1:])
    return out


def _known_to_the_end(history_ZH: F8) -> int:
    """Returns how many hours up to the end of a history are known in every zone without a break."""
    unknown = np.flatnonzero(np.isnan(history_ZH).any(axis=0))
    return int(history_ZH.shape[1] - (unknown[-1] + 1 if len(unknown) else 0))

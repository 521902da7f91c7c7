"""Issuing of forecasts: as time passes, hour by hour, for the sites of a run or of a live service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from noonward.arrays import F8
from noonward.errors import SignalRangeError
from noonward.forecasts.forecast import Forecast
from noonward.forecasts.forecaster import integrate, price_and_carbon
from noonward.model.cluster.pue import PueByHour
from noonward.model.cluster.site_prices import SitePrices
from noonward.model.signals import Signals
from noonward.units import DAY_H


class ForecastIssuer:
    """Issues the forecasts that ``ClusterView.forecast_KSL`` shows.

    What an hour's forecast says does not depend on when it is asked for, nor on which others are asked for with it:
    a backtest that knows all signals may fill a buffer of many hours at once, a live service asks every hour, after
    ``append`` of what that hour published. Both get the same values (but for ``perfect`` and ``noisy``, which read
    hours to come and know none of them live). Prices that are published ahead are in the signals of a backtest; a
    live service gives them by ``publish``.

    Args:
        forecast: Kind of forecast and its settings.
        signals: Signals of all zones: history, the run's first hour, and what is known after it.
        start: UTC time of the run's first hour.
        site_zones: Zone of every site; two sites in one zone are given the same forecast.
        rng: Stream ``forecast`` of the run.
        pue: PUE of the sites by the hour, from a day before the run on, or None. Forecasts of the zones are multiplied
            by its factors: of the hours to come those of the last 24 hours; the true ones where the forecast reads
            hours to come.
        prices: How the sites' prices follow from their zones', by tariffs known beforehand, or None.

    Raises:
        SignalRangeError: Too little of the history is known.
        ScenarioError: A learned forecast was not trained on one of the zones.
        DataError: A zone has no signal.
    """

    def __init__(
        self,
        forecast: Forecast,
        signals: Signals,
        start: datetime,
        site_zones: Sequence[str],
        rng: np.random.Generator,
        pue: PueByHour | None = None,
        prices: SitePrices | None = None,
    ) -> None:
        self._zones = tuple(dict.fromkeys(site_zones))
        self._row_S = np.array([self._zones.index(zone) for zone in site_zones], dtype=np.int64)
        of_zones = signals.select(self._zones)
        self._first = of_zones.hour_of(start)
        self._end = of_zones.end
        self._value_KZH = price_and_carbon(of_zones)
        self._forecaster = forecast.forecaster(of_zones, self._first, rng)
        self._start, self._pue, self._foresight = start, pue, forecast.foresight
        self._prices = prices
        self._reads_published = forecast.published
        self._ahead: dict[int, F8] = {}

    @property
    def known_h(self) -> int:
        """Hours from the run's start on whose signals are known; forecasts of these hours can be issued."""
        return int(self._value_KZH.shape[2]) - self._first

    def append(self, signals: Signals) -> None:
        """Adds hours that have become known.

        Args:
            signals: Signals of all zones that start where the known ones end.

        Raises:
            SignalRangeError: They start at another hour.
            DataError: A zone has no signal.
        """
        if signals.start != self._end:
            raise SignalRangeError(
                f"signals from {signals.start:%Y-%m-%d %H:%M} UTC were added to those that end at "
                f"{self._end:%Y-%m-%d %H:%M} UTC; add every hour once, in order"
            )
        of_zones = signals.select(self._zones)
        self._end = of_zones.end
        self._value_KZH = np.concatenate([self._value_KZH, price_and_carbon(of_zones)], axis=2)

    def publish(self, hour: int, price_ZH: F8) -> None:
        """States the prices that were known in an hour of the hours after it, for forecasts that read published ones.

        Args:
            hour: Hour of issue, counted from the run's start.
            price_ZH: Prices of the hours from the next one on by zone, each zone once in the order of the sites,
                USD/MWh; NaN: not published.
        """
        if self._reads_published:
            self._ahead[hour] = price_ZH

    def issue(self, hour: int, forecast_KISL: F8) -> int:
        """Writes the forecasts issued in some hours, as running integrals from the hour of issue, value x s.

        Args:
            hour: First hour of issue, counted from the run's start.
            forecast_KISL: Room for (price and carbon, hours of issue, sites, leads + 1); a view's own forecast is
                written by ``issue(hour, view.forecast_KSL[:, None])``.

        Returns:
            Number of hours written: as many as there is room for and are known.

        Raises:
            SignalRangeError: The signals of the first hour are not known, or lie before the run.
        """
        hours = min(forecast_KISL.shape[1], self.known_h - hour)
        if hour < 0 or hours < 1:
            raise SignalRangeError(
                f"a forecast was asked for in hour {hour} of the run, but the signals of hours 0 to {self.known_h - 1} "
                "are known; add the hour's signals first"
            )
        value_KISL, row_S = self._values(hour, hours, forecast_KISL.shape[3] - 1), self._row_S
        if self._prices is not None or self._pue is not None:  # sites of a zone differ
            value_KISL, row_S = value_KISL[:, :, row_S], np.arange(len(row_S))
        if self._prices is not None:
            for i in range(hours):
                begin = self._start + timedelta(hours=hour + i)
                value_KISL[0, i] = self._prices.priced(value_KISL[0, i], begin, 1)
        if self._pue is not None:
            value_KISL = value_KISL * self._factors(self._pue, hour, hours, value_KISL.shape[3])
        integrate(np.ascontiguousarray(value_KISL), row_S, forecast_KISL)
        return hours

    def _values(self, hour: int, hours: int, leads: int) -> F8:
        """Returns what is forecast in some hours of issue; what was published by then counts where it was stated."""
        issue_I = self._first + hour + np.arange(hours)
        if not any(each in self._ahead for each in range(hour, hour + hours)):
            return self._forecaster.values(self._value_KZH, issue_I, leads)
        parts = []
        for issue in issue_I.tolist():
            value_KZH = self._value_KZH
            price_ZH = self._ahead.get(issue - self._first)
            if price_ZH is not None:
                ahead_KZH = np.stack([price_ZH, np.full_like(price_ZH, np.nan)])
                value_KZH = np.concatenate([value_KZH[..., : issue + 1], ahead_KZH], axis=2)
            parts.append(self._forecaster.values(value_KZH, np.array([issue]), leads))
        return np.concatenate(parts, axis=1)

    def _factors(self, pue: PueByHour, hour: int, hours: int, leads: int) -> F8:
        """Returns the factors that are expected in some hours of issue, (hours of issue, sites, leads)."""
        factor_SH = pue.window(self._start - timedelta(days=1), DAY_H + hour + hours + leads)
        issue_I, lead_L = DAY_H + hour + np.arange(hours), np.arange(leads)
        hour_IL = issue_I[:, None] + (lead_L if self._foresight else lead_L - DAY_H * -(-lead_L // DAY_H))
        return factor_SH[:, hour_IL].swapaxes(0, 1)

"""Prices, intensities and forecasts as a live service knows them, hour by hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from noonward.arrays import F8
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.decision.cluster.view import ClusterView
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.pue import PueByHour
from noonward.model.cluster.site_prices import SitePrices
from noonward.model.signals import Signals, SiteSignals
from noonward.units import DAY_H, HOUR_S

KEPT_H = DAY_H + 1
"""Hours of a forecast that are kept, the hour of issue included."""


class Hours:
    """Writes the signals of the current hour, and the forecast issued in it, into a view.

    Args:
        signals: Signals of the sites' zones up to the current hour, history included, all known.
        start: The service's start, a full hour, UTC.
        zones: Zone of each site.
        forecast: Forecast that the scheduler is given; None: none.
        rng: Stream ``forecast``.
        pue: PUE of the sites by the hour, from a day before the start on, or None.
        prices: How the sites' prices follow from their zones', by tariffs, or None.
        published: Prices that were known ahead in some hours, by hour: those of the hours after it by zone, each zone
            once in the order of the sites; of other hours, the signals say what was published.

    Attributes:
        known_h: Hours from the start on that are known.
        issued: Hour of the last forecast and its price (USD/MWh) and intensity (g/kWh) by site and hour from then on;
            None before the first.

    Raises:
        SignalRangeError: Too little of the history is known for the forecast.
        ScenarioError: A learned forecast was not trained on one of the zones.
    """

    def __init__(
        self,
        signals: Signals,
        start: datetime,
        zones: Sequence[str],
        forecast: Forecast | None,
        rng: np.random.Generator,
        pue: PueByHour | None = None,
        published: Mapping[int, F8] | None = None,
        prices: SitePrices | None = None,
    ) -> None:
        self._pue, self._prices = pue, prices
        self.signals, self.start, self.zones = signals, start, tuple(zones)
        self.known_h = self._hours_known()
        self._issuer = None if forecast is None else ForecastIssuer(forecast, signals, start, zones, rng, pue, prices)
        self._publish(published)
        self._shown: tuple[int, int] | None = None
        self.issued: tuple[int, F8] | None = None

    def _publish(self, published: Mapping[int, F8] | None) -> None:
        for hour, price_ZH in (published or {}).items():
            if self._issuer is not None:
                self._issuer.publish(hour, price_ZH)

    def _hours_known(self) -> int:
        return round((self.signals.end - self.start).total_seconds() / HOUR_S)

    def append(self, signals: Signals, published: Mapping[int, F8] | None = None) -> None:
        """Adds hours that have become known, from ``known_h`` on.

        Args:
            signals: Their signals.
            published: Prices that were known ahead in them, as at the start.
        """
        joined = {
            name: np.concatenate([self.signals.of(name), signals.select(self.signals.zones).of(name)], axis=1)
            for name in self.signals.value_ZH
        }
        if self._issuer is not None:
            self._issuer.append(signals)
        self._publish(published)
        self.signals = replace(self.signals, value_ZH=joined, parts={})
        self.known_h = self._hours_known()

    def at_sites(self) -> SiteSignals:
        """Returns the signals at the sites from the start on, as far as they are known."""
        factor_SH = None if self._pue is None else self._pue.window(self.start, self.known_h)
        return SiteSignals.of(self.signals, self.zones, self.start, self.known_h, factor_SH, self._prices)

    def show(self, view: ClusterView, hour: int) -> None:
        """Writes an hour's signals and forecast into a view; an hour not yet known shows the last that is.

        Args:
            view: The view.
            hour: Hour since the start.
        """
        hour = min(hour, self.known_h - 1)
        if self._shown == (hour, id(view.site_S)):
            return
        self._shown = (hour, id(view.site_S))
        at = hour + round((self.start - self.signals.start).total_seconds() / HOUR_S)
        for s, zone in enumerate(self.zones):
            row = self.signals.zone_index(zone)
            view.site_S["price"][s] = self.signals.price_usd_per_mwh_ZH[row, at]
            view.site_S["carbon"][s] = self.signals.carbon_g_per_kwh_ZH[row, at]
        if self._prices is not None:
            begin = self.start + timedelta(hours=hour)
            view.site_S["price"] = self._prices.priced(view.site_S["price"][:, None], begin, 1)[:, 0]
        if self._pue is not None:
            factor_S = self._pue.window(self.start + timedelta(hours=hour), 1)[:, 0]
            view.site_S["price"] *= factor_S
            view.site_S["carbon"] *= factor_S
        if self._issuer is not None:
            self._issuer.issue(hour, view.forecast_KSL[:, None])
            self.issued = hour, np.diff(view.forecast_KSL[:, :, : KEPT_H + 1], axis=2) / HOUR_S

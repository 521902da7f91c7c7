"""What an edge scheduler is told before the first task: servers, gang times and rules, nothing of the tasks to come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.forecasts.forecast import Forecast
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.scenario import EdgeScenario
from noonward.seeding import stream
from noonward.units import HOUR_S

LEADS_H: Final = 24
"""Hours that a forecast reaches, the current one included."""


@dataclass(frozen=True, kw_only=True)
class EdgeBrief:
    """What is known before the first task.

    Attributes:
        scenario: Name of what is run, for messages.
        start: UTC time of second 0.
        setting: Servers, gang times, visible queue, quality, and the laws of the tasks.
        signals: Whether prices and carbon intensities are known.
        issue: ``hour -> (2, leads)``: price, USD/MWh, and carbon intensity, g/kWh, as forecast in an hour of the run;
            lead 0 is that hour itself. None for a scheduler that asks for no forecast, and without signals.
    """

    scenario: str
    start: datetime
    setting: EdgeScenario
    signals: bool
    issue: Callable[[int], F8] | None = None

    @classmethod
    def of(cls, environment: EdgeEnvironment, forecast: Forecast | None = None, seed: int = 0) -> EdgeBrief:
        """Returns the brief of an environment.

        Args:
            environment: Environment.
            forecast: Forecast that the scheduler asks for.
            seed: Seed of the run, for a noisy forecast.
        """
        return cls(
            scenario=environment.scenario,
            start=environment.start,
            setting=environment.setting,
            signals=environment.signals is not None,
            issue=_issuer(environment, forecast, seed),
        )


def _issuer(environment: EdgeEnvironment, forecast: Forecast | None, seed: int) -> Callable[[int], F8] | None:
    """Returns what issues the forecasts of the servers' zone."""
    if forecast is None or environment.signals is None:
        return None
    zones, rng = [environment.setting.servers.zone], stream(seed, "forecast", environment.index)
    issuer = ForecastIssuer(forecast, environment.signals, environment.start, zones, rng)

    def issue(hour: int) -> F8:
        integral_KISL = np.zeros((2, 1, 1, LEADS_H + 1))
        issuer.issue(hour, integral_KISL)
        return np.asarray(np.diff(integral_KISL[:, 0, 0]) / HOUR_S)

    return issue

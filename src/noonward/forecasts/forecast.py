"""Which forecast a scheduler is given: a kind and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, get_args

import numpy as np
from pydantic import Field

from noonward.arguments import check
from noonward.arrays import F8
from noonward.forecasts.forecaster import Forecaster, price_and_carbon
from noonward.forecasts.learned import SEEDS, LearnedForecaster, find_net
from noonward.forecasts.noisy import NoisyForecaster
from noonward.forecasts.perfect import PerfectForecaster
from noonward.forecasts.persistence import PersistenceForecaster
from noonward.forecasts.published import PublishedForecaster
from noonward.forecasts.regression import RegressionForecaster
from noonward.model.signals import Signals

Noise = Annotated[float, Field(ge=0, allow_inf_nan=False, description="share of the signal's standard deviation")]
"""Error of a noisy forecast."""
NetName = Annotated[
    Annotated[int, Field(ge=0, le=SEEDS - 1)]
    | Annotated[str, Field(pattern=r"^([A-Za-z]|[0-9]+[A-Za-z._-])[A-Za-z0-9._-]*$", max_length=64)],
    Field(union_mode="left_to_right", description="training seed, mean, small-seed0 to -seed2 or your own"),
]
"""Net of a learned forecast."""
ForecastKind = Literal[
    "perfect",
    "persistence",
    "regression",
    "learned",
    "noisy",
    "published",
    "published+regression",
    "published+learned",
]
BEYOND: Final[Mapping[ForecastKind, ForecastKind]] = {
    "published": "persistence",
    "published+regression": "regression",
    "published+learned": "learned",
}
"""Kinds that take day-ahead prices as they were published, with the kind that forecasts all else."""


@dataclass(frozen=True)
class Forecast:
    """A kind of forecast and its settings.

    Attributes:
        kind: ``perfect``: the truth; ``persistence``: the value known for the same hour of the last 24 hours;
            ``regression``: a weighted sum of what the last days say (:mod:`noonward.forecasts.regression`);
            ``learned``: the same, corrected by a net that knows the zone (:mod:`noonward.forecasts.learned`);
            ``noisy``: the truth plus an error that grows with the lead (:mod:`noonward.forecasts.noisy`);
            ``published``, ``published+regression``, ``published+learned``: day-ahead prices as far as they have been
            published, all else by persistence, the regression or the net (:mod:`noonward.forecasts.published`).
        noise: Standard deviation of the error 24 hours ahead, as a share of the signal's own over the history before
            the run (``noisy``).
        net: Training seed of the packaged net (``learned``, ``published+learned``), 0 to 2; ``mean``: the mean of the
            three; or the name of one by ``noonward fit-forecast``.
    """

    kind: ForecastKind
    noise: Noise = 0.5
    net: NetName = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(ForecastKind):
            raise ValueError(f"unknown forecast {self.kind!r}; known: {', '.join(get_args(ForecastKind))}")
        check("forecast noise", self.noise, Noise)
        check("forecast net", self.net, NetName)

    @property
    def foresight(self) -> bool:
        """Whether it reads hours to come, which a live service does not know."""
        return self.kind in ("perfect", "noisy")

    @property
    def published(self) -> bool:
        """Whether it reads hours to come whose prices have been published."""
        return self.kind in BEYOND

    @property
    def rest(self) -> Forecast:
        """The forecast of what has not been published: itself where it reads nothing published."""
        return replace(self, kind=BEYOND.get(self.kind, self.kind))

    @property
    def by_net(self) -> bool:
        """Whether a net makes it, or what is not published of it: it serves only the zones that the net knows."""
        return self.rest.kind == "learned"

    @property
    def with_published(self) -> Forecast:
        """The same forecast, published prices taken as they are; itself where there is no such kind."""
        kinds = {beyond: kind for kind, beyond in BEYOND.items()}
        return replace(self, kind=kinds.get(self.kind, self.kind))

    def forecaster(self, signals: Signals, history_h: int, rng: np.random.Generator) -> Forecaster:
        """Returns what makes the forecasts of one run.

        Args:
            signals: Signals of some zones, at least up to the run's first hour.
            history_h: Hours before the run's first.
            rng: Stream ``forecast``.

        Raises:
            SignalRangeError: Too little of the history is known.
            ScenarioError: ``learned`` was not trained on one of the zones.
        """
        return _MAKERS[self.kind](self, signals, history_h, rng)


def _history(signals: Signals, history_h: int) -> F8:
    return price_and_carbon(signals)[..., :history_h]


_Maker = Callable[[Forecast, Signals, int, np.random.Generator], Forecaster]
_MAKERS: Final[dict[ForecastKind, _Maker]] = {
    "perfect": lambda forecast, signals, history_h, rng: PerfectForecaster(),
    "persistence": lambda forecast, signals, history_h, rng: PersistenceForecaster(history_h),
    "regression": lambda forecast, signals, history_h, rng: RegressionForecaster(_history(signals, history_h)),
    "learned": lambda forecast, signals, history_h, rng: LearnedForecaster(
        find_net(forecast.net), signals.zones, signals.start, price_and_carbon(signals)[..., : history_h + 1]
    ),
    "noisy": lambda forecast, signals, history_h, rng: NoisyForecaster(
        forecast.noise, _history(signals, history_h), rng
    ),
    **dict.fromkeys(
        BEYOND,
        lambda forecast, signals, history_h, rng: PublishedForecaster(
            forecast.rest.forecaster(signals, history_h, rng), signals
        ),
    ),
}
"""How the forecaster of each kind is made."""

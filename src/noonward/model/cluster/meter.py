"""A site's meter: the interval over which power is metered, the connection, and the load other than GPUs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from noonward.arrays import F8, I8
from noonward.model.cluster.program import Program
from noonward.model.spec import NonNegative, Spec, without_defaults
from noonward.units import HOUR_S, MINUTE_S

IntervalMin = Literal[5, 10, 15, 20, 30, 60]
"""Lengths of metering intervals, min: divisors of the hour."""
MOST_KW: Final = 1e9
"""Largest power of a site, kW."""
Kilowatts = Annotated[float, Field(gt=0, le=MOST_KW)]


class SystemLoadFile(Spec):
    """A file with the load of the whole system that a site lies in."""

    path: Path
    """CSV or Parquet file with the columns ``time`` and ``load_mw``; with ``zone``, also ``zone``."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of its columns where they differ: keys time, load, zone."""
    zone: str | None = None
    """Area whose rows are read, where the file has several."""
    timezone: str | None = None
    """Time zone of times without an offset: an IANA name or an offset such as +10:00."""
    times: Literal["start", "end"] = "start"
    """Whether a time is the start or the end of its interval."""


def _in_utc(time: datetime) -> datetime:
    """Returns a time in UTC; one without an offset is taken for UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


class Meter(Spec):
    """The meter of a site. Its power is that of GPUs times the PUE of the hour, plus the base load.

    Metered power is the mean over an interval. The base load is there in the window, as free GPUs are.
    """

    interval_min: IntervalMin = 15
    """Length of an interval, min."""
    connection_kw: Kilowatts | None = None
    """Power that the grid connection may carry, kW; none: no limit. Energy above it is counted, and priced where
    ``over_connection_usd_per_kwh`` is given; jobs are not stopped."""
    over_connection_usd_per_kwh: NonNegative = 0.0
    """Price of energy above the connection, USD/kWh."""
    base_kw: Annotated[float, Field(ge=0, le=MOST_KW)] = 0.0
    """Constant facility load other than the GPUs and their cooling: storage, offices, other tenants, kW."""

    tariff: str | None = None
    """Name of its tariff in ``fleet.tariffs``; none: energy is settled at the price of the zone alone."""
    past_peak_kw: Annotated[float, Field(ge=0, le=MOST_KW)] = 0.0
    """Highest metered power of the eleven months before the window, kW, which ratchets refer to."""
    system_load: SystemLoadFile | None = None
    """Load of the whole system, or the path of its file: coincident charges go by its peaks."""
    system_peaks: tuple[tuple[Annotated[datetime, AfterValidator(_in_utc)], ...], ...] = ()
    """Starts of the system's peaks, in UTC unless they have an offset, one list per coincident charge of the tariff,
    where they are known; found in ``system_load`` where that is given."""

    @field_validator("system_load", mode="before")
    @classmethod
    def _by_path(cls, said: Any) -> Any:
        return {"path": said} if isinstance(said, str | Path) else said

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "tariff", "past_peak_kw", "system_load", "system_peaks")

    @property
    def interval_s(self) -> float:
        """Length of an interval, s."""
        return self.interval_min * MINUTE_S

    def averaged(self, kw_N: F8, step_s: float) -> F8:
        """Returns mean power by interval of the meter, kW, from power by shorter ones."""
        return np.asarray(kw_N.reshape(-1, round(self.interval_s / step_s)).mean(axis=1))

    def over_kwh(self, kw_N: F8, step_s: float) -> float:
        """Returns the energy above the connection, kWh; 0 without a limit."""
        if self.connection_kw is None:
            return 0.0
        over_X = np.maximum(0.0, self.averaged(kw_N, step_s) - self.connection_kw)
        return float(over_X.sum() * self.interval_s / HOUR_S)

    def settle(self, kw_N: F8, step_s: float) -> float:
        """Returns the price of the energy above the connection, USD.

        Args:
            kw_N: Power drawn by interval, kW.
            step_s: Length of these intervals, s, a divisor of the meter's.
        """
        return self.over_connection_usd_per_kwh * self.over_kwh(kw_N, step_s)

    def convex(self, program: Program, draw_N: I8, step_s: float) -> None:
        """Adds the power above the connection to a program: over_k >= mean power of k - connection, at its price."""
        if self.connection_kw is None or not self.over_connection_usd_per_kwh:
            return
        each = round(self.interval_s / step_s)
        count = len(draw_N) // each
        over_X = program.columns(count, self.over_connection_usd_per_kwh * self.interval_s / HOUR_S)
        program.rows(count, [(over_X, 1.0), (draw_N.reshape(count, each), -1.0 / each)], lower=-self.connection_kw)

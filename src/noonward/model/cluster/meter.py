"""A site's meter: the interval over which power is metered, the connection, and the load other than GPUs."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from noonward.arrays import F8, I8
from noonward.model.cluster.program import Program
from noonward.model.spec import NonNegative, Spec, without_defaults
from noonward.units import HOUR_S, MINUTE_S

IntervalMin = Literal[5, 10, 15, 20, 30, 60]
"""Lengths of metering intervals, min: divisors of the hour."""
MOST_KW: Final = 1e9
"""Largest power of a site, kW."""
MOST_HARD_KW: Final = 1e6
"""Largest power of a connection that limits starts, kW."""
Kilowatts = Annotated[float, Field(gt=0, le=MOST_KW)]
_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)


class SystemLoadFile(Spec):
    """A file with the load of the whole system that a site lies in."""

    path: Path
    """CSV or Parquet file with the columns ``time`` and ``load_mw``; with ``zone``, also ``zone``."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Names of its columns if they differ: keys time, load, zone."""
    zone: str | None = None
    """Area whose rows are read, where the file has several."""
    timezone: str | None = None
    """Time zone of times without an offset: an IANA name or an offset such as +10:00."""
    times: Literal["start", "end"] = "start"
    """Whether a row's time is the start or the end of its interval."""


def _in_utc(time: datetime) -> datetime:
    """Returns a time in UTC; one without an offset is taken for UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


class KwStep(Spec):
    """How much power a connection carries from a time on."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    from_: Annotated[datetime, AfterValidator(_in_utc), Field(alias="from")]
    """Time from which it does: a day or a time, UTC unless it has an offset."""
    kw: Kilowatts
    """Power, kW."""


class KwFile(Spec):
    """A file of such steps."""

    path: Path
    """CSV file with the columns ``time`` and ``kw``: from each time on the connection carries so much."""
    timezone: str | None = None
    """Time zone of times without an offset: an IANA name, or an offset such as +01:00; left out: they must have one."""


class Meter(Spec):
    """The meter of a site. Its power is that of GPUs times the PUE of the hour, plus the base load.

    Metered power is the mean over an interval. The base load is there in the window, as free GPUs are.
    """

    interval_min: IntervalMin = 15
    """Length of an interval, min."""
    connection_kw: Kilowatts | tuple[KwStep, ...] | KwFile | None = None
    """Power that the grid connection may carry, kW; none: no limit. A number, steps (``[{from: 2024-05-06, kw: 96},
    ...]``, the first of which holds before it, too), or a file of them (``KwFile``, or its path). Energy above it is
    counted, and priced where ``over_connection_usd_per_kwh`` is given; jobs are not stopped."""
    hard_connection: bool = False
    """Whether no job starts that would lift the site's power above the connection. Jobs that run then run on."""
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

    @field_validator("connection_kw", mode="before")
    @classmethod
    def _of_file(cls, said: Any) -> Any:
        """Takes a path for the file that it names; a number as text is one."""
        if isinstance(said, str):
            try:
                return float(said)
            except ValueError:
                return {"path": said}
        return said

    @field_validator("connection_kw", mode="after")
    @classmethod
    def _in_order(cls, said: float | tuple[KwStep, ...] | KwFile | None) -> float | tuple[KwStep, ...] | KwFile | None:
        if isinstance(said, tuple):
            if not said:
                raise ValueError("connection_kw holds no step; give kW, or steps such as [{from: 2024-05-06, kw: 96}]")
            if any(step.from_ >= after.from_ for step, after in itertools.pairwise(said)):
                raise ValueError("the steps of connection_kw do not ascend; give them by time, each time once")
        return said

    @model_validator(mode="after")
    def _has_what_is_hard(self) -> Self:
        if not self.hard_connection or isinstance(self.connection_kw, KwFile):
            return self
        if not 0 < max((step.kw for step in self.connection), default=0.0) <= MOST_HARD_KW:
            raise ValueError(
                f"hard_connection needs a connection_kw of at most {MOST_HARD_KW:,.0f} kW; give one, or leave "
                "hard_connection out"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "hard_connection", "tariff", "past_peak_kw", "system_load", "system_peaks")

    @property
    def interval_s(self) -> float:
        """Length of an interval, s."""
        return self.interval_min * MINUTE_S

    @property
    def connection(self) -> tuple[KwStep, ...]:
        """Steps of the connection's power; none without a limit."""
        assert not isinstance(self.connection_kw, KwFile), "files are read where scenarios are loaded"
        if self.connection_kw is None or isinstance(self.connection_kw, tuple):
            return self.connection_kw or ()
        return (KwStep(from_=_FIRST, kw=self.connection_kw),)

    def connection_scaled(self, factor: float) -> Meter:
        """Returns the meter with a connection that carries a multiple of the power; the same without a limit."""
        if isinstance(self.connection_kw, float):
            return self.model_copy(update={"connection_kw": factor * self.connection_kw})
        steps = tuple(step.model_copy(update={"kw": factor * step.kw}) for step in self.connection)
        return self.model_copy(update={"connection_kw": steps}) if steps else self

    def connection_at(self, start: datetime, time_s_X: F8) -> F8:
        """Returns the power that the connection carries at some times, kW; infinite without a limit.

        Args:
            start: UTC time of second 0.
            time_s_X: Times since then, s.
        """
        if not self.connection:
            return np.full(len(time_s_X), np.inf)
        from_s_K = np.array([(step.from_ - start).total_seconds() for step in self.connection])
        kw_K = np.array([step.kw for step in self.connection])
        return np.asarray(kw_K[np.maximum(np.searchsorted(from_s_K, time_s_X, side="right") - 1, 0)])

    def connection_by_interval(self, start: datetime, count: int) -> F8:
        """Returns the power that the connection carries in the intervals of a run, kW: its mean where it changes.

        Args:
            start: UTC time of the first interval's begin.
            count: Number of intervals.
        """
        steps_s = np.array([(step.from_ - start).total_seconds() for step in self.connection])
        kw_X = self.connection_at(start, self.interval_s * np.arange(count, dtype=np.float64))
        changes_s = steps_s[(steps_s > 0) & (steps_s < count * self.interval_s) & (steps_s % self.interval_s > 0)]
        for x in np.unique(changes_s // self.interval_s).astype(np.int64).tolist():
            edge_s = self.interval_s * np.array([x, x + 1.0])
            edge_s = np.unique([*edge_s, *steps_s[(steps_s > edge_s[0]) & (steps_s < edge_s[1])]])
            kw_X[x] = self.connection_at(start, edge_s[:-1]) @ np.diff(edge_s) / self.interval_s
        return kw_X

    def averaged(self, kw_N: F8, step_s: float) -> F8:
        """Returns mean power by interval of the meter, kW, from power by shorter ones."""
        return np.asarray(kw_N.reshape(-1, round(self.interval_s / step_s)).mean(axis=1))

    def over_kwh(self, kw_N: F8, start: datetime, step_s: float) -> float:
        """Returns the energy above the connection, kWh; 0 without a limit. Arguments as in ``settle``."""
        if not self.connection:
            return 0.0
        kw_X = self.averaged(kw_N, step_s)
        over_X = np.maximum(0.0, kw_X - self.connection_by_interval(start, len(kw_X)))
        return float(over_X.sum() * self.interval_s / HOUR_S)

    def settle(self, kw_N: F8, start: datetime, step_s: float) -> float:
        """Returns the price of the energy above the connection, USD.

        Args:
            kw_N: Power drawn by interval, kW.
            start: UTC time of the first interval's begin.
            step_s: Length of these intervals, s, a divisor of the meter's.
        """
        return self.over_connection_usd_per_kwh * self.over_kwh(kw_N, start, step_s)

    def convex(self, program: Program, draw_N: I8, start: datetime, step_s: float) -> None:
        """Adds the power above the connection to a program: over_k >= mean power of k - connection, at its price."""
        if not self.connection or not self.over_connection_usd_per_kwh:
            return
        each = round(self.interval_s / step_s)
        count = len(draw_N) // each
        over_X = program.columns(count, self.over_connection_usd_per_kwh * self.interval_s / HOUR_S)
        limit_X = self.connection_by_interval(start, count)
        program.rows(count, [(over_X, 1.0), (draw_N.reshape(count, each), -1.0 / each)], lower=-limit_X)

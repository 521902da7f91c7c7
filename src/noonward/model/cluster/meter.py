"""A site's meter: the interval over which power is metered, the connection, and the load beside the GPUs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from noonward.model.spec import NonNegative, Spec
from noonward.units import MINUTE_S

IntervalMin = Literal[5, 10, 15, 20, 30, 60]
"""Lengths of metering intervals, min: divisors of the hour."""
MOST_KW: Final = 1e9
"""Largest power of a site, kW."""
Kilowatts = Annotated[float, Field(gt=0, le=MOST_KW)]


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
    """Constant facility load beside the GPUs and their cooling: storage, offices, other tenants, kW."""

    @property
    def interval_s(self) -> float:
        """Length of an interval, s."""
        return self.interval_min * MINUTE_S

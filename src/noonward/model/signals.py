"""Signals: hourly electricity price and carbon intensity per zone, in UTC, by interval start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from noonward.arrays import F8
from noonward.errors import DataError, SignalRangeError, nearest


@dataclass(frozen=True, kw_only=True)
class Signals:
    """Hourly price and carbon intensity of some zones.

    Attributes:
        start: First hour, timezone-aware UTC, on the full hour; value ``h`` holds for
            ``[start + h, start + h + 1)`` hours.
        zones: Zone keys, e.g. ``"CA-ON"``, in the order of the arrays' first axis.
        price_usd_per_mwh_ZH: Price per zone and hour, USD/MWh. Negative prices are legal; NaN marks an unknown hour.
        carbon_g_per_kwh_ZH: Carbon intensity per zone and hour, gCO2/kWh, at least 0; NaN marks an unknown hour.
        notes: What a reader of any result must know about the data (stand-ins, estimates), per zone.

    Raises:
        DataError: Shapes disagree, the start is not a UTC hour, a zone stands twice, an intensity is negative
            or a value is infinite.
    """

    start: datetime
    zones: tuple[str, ...]
    price_usd_per_mwh_ZH: F8
    carbon_g_per_kwh_ZH: F8
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.start.utcoffset() != timedelta(0):
            raise DataError(f"signals start at {self.start!s}, which is not UTC; give a timezone-aware UTC time")
        if (self.start.minute, self.start.second, self.start.microsecond) != (0, 0, 0):
            raise DataError(f"signals start at {self.start!s}; they must start on a full hour")
        if len(set(self.zones)) != len(self.zones):
            raise DataError(f"a zone stands twice in {self.zones}; name each zone once")
        shape = (len(self.zones), self.hours)
        for name in ("price_usd_per_mwh_ZH", "carbon_g_per_kwh_ZH"):
            array = getattr(self, name)
            if array.shape != shape:
                raise DataError(f"{name} has shape {array.shape}; expected (zones, hours) = {shape}")
            if np.isinf(array).any():
                zone, hour = np.argwhere(np.isinf(array))[0]
                raise DataError(f"{name} of {self.zones[zone]} is infinite at {self.time_of(int(hour))}")
        if (self.carbon_g_per_kwh_ZH < 0).any():
            zone, hour = np.argwhere(self.carbon_g_per_kwh_ZH < 0)[0]
            raise DataError(
                f"carbon intensity of {self.zones[zone]} is {self.carbon_g_per_kwh_ZH[zone, hour]} g/kWh at "
                f"{self.time_of(int(hour))}; it must be at least 0"
            )

    @property
    def hours(self) -> int:
        """Number of hours covered."""
        return int(self.price_usd_per_mwh_ZH.shape[-1])

    @property
    def end(self) -> datetime:
        """First instant after the last hour, UTC."""
        return self.time_of(self.hours)

    def time_of(self, hour: int) -> datetime:
        """Returns the UTC start of an hour by its index (which may lie outside the range)."""
        return self.start + timedelta(hours=hour)

    def hour_of(self, time: datetime) -> int:
        """Returns the index of the hour that contains a UTC time.

        Raises:
            SignalRangeError: The time lies outside ``[start, end)``.
            DataError: The time has no time zone.
        """
        if time.tzinfo is None:
            raise DataError(f"time {time!s} has no time zone; give UTC")
        hour = int((time.astimezone(UTC) - self.start) // timedelta(hours=1))
        if not 0 <= hour < self.hours:
            raise SignalRangeError(
                f"signals were asked at {time!s}, but cover {self.start:%Y-%m-%d %H:%M} to "
                f"{self.end:%Y-%m-%d %H:%M} UTC; choose a window inside or give longer signals"
            )
        return hour

    def zone_index(self, zone: str) -> int:
        """Returns a zone's position.

        Raises:
            DataError: The zone has no signal.
        """
        if zone not in self.zones:
            raise DataError(f"zone {zone!r} has no signal; {nearest(zone, self.zones)}")
        return self.zones.index(zone)

    def window(self, start: datetime, hours: int) -> Signals:
        """Returns the part that begins at a UTC hour and lasts some hours (a view, nothing is copied).

        Raises:
            SignalRangeError: Part of the window lies outside the hours covered.
        """
        if hours < 1:
            raise SignalRangeError(f"a window of {hours} hours was asked; it must last at least 1 hour")
        first = self.hour_of(start)
        self.hour_of(start + timedelta(hours=hours - 1))
        cut = slice(first, first + hours)
        return replace(
            self,
            start=self.time_of(first),
            price_usd_per_mwh_ZH=self.price_usd_per_mwh_ZH[:, cut],
            carbon_g_per_kwh_ZH=self.carbon_g_per_kwh_ZH[:, cut],
        )

    def select(self, zones: tuple[str, ...]) -> Signals:
        """Returns the signals of some zones, in the order given (a zone may repeat only in the result's arrays).

        Raises:
            DataError: A zone has no signal.
        """
        rows = [self.zone_index(zone) for zone in zones]
        return replace(
            self,
            zones=tuple(zones),
            price_usd_per_mwh_ZH=self.price_usd_per_mwh_ZH[rows],
            carbon_g_per_kwh_ZH=self.carbon_g_per_kwh_ZH[rows],
        )

    def require_known(self, what: str) -> Signals:
        """Returns itself if no value is missing.

        Args:
            what: Who needs the values, for the message.

        Raises:
            SignalRangeError: A price or intensity is NaN; the message names the zone and the hour.
        """
        for name, array in (("price", self.price_usd_per_mwh_ZH), ("carbon intensity", self.carbon_g_per_kwh_ZH)):
            missing = np.argwhere(np.isnan(array))
            if len(missing):
                zone, hour = missing[0]
                raise SignalRangeError(
                    f"{what} needs the {name} of zone {self.zones[zone]} at {self.time_of(int(hour)):%Y-%m-%d %H:%M} "
                    f"UTC, which is unknown ({len(missing)} unknown hours in the window); choose another window or "
                    "complete the signals"
                )
        return self

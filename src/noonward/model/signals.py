"""Signals: named hourly quantities of the grid (price, carbon intensity, ...) per zone, and per site with integrals."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import numpy as np

from noonward.arrays import F8
from noonward.errors import DataError, SignalRangeError, nearest
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH, WATT_SECONDS_PER_MWH

PRICE_NAME: Final = "price_usd_per_mwh"
"""Electricity price."""
CARBON_NAME: Final = "carbon_g_per_kwh"
"""Carbon intensity, life cycle."""
PARTS: Final = (2, 3, 4, 6, 12)
"""Parts that an hour may have: of 30, 20, 15, 10 and 5 minutes."""
_AMOUNTS: Final = {"usd": ("USD", "usd", 1.0), "g": ("g", "kg", 1000.0), "kg": ("kg", "kg", 1.0), "l": ("L", "l", 1.0)}
"""Unit of an amount in a quantity's name: as it is printed, unit it is totalled in, and how many make one of those."""
_ENERGIES: Final = {"kwh": ("kWh", WATT_SECONDS_PER_KWH), "mwh": ("MWh", WATT_SECONDS_PER_MWH)}


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What a signal states per unit of energy, read from its name: what, ``_``, amount, ``_per_``, energy.

    Attributes:
        name: Name, e.g. ``carbon_g_per_kwh``.
        unit: Unit of its values, e.g. ``g/kWh``.
        total: Name of what energy settles to, e.g. ``carbon_kg``.
        watt_seconds: Watts x integral of the values over seconds / this = total.

    Example:
        >>> water = Quantity.named("water_l_per_kwh")
        >>> water.unit, water.total, water.watt_seconds
        ('L/kWh', 'water_l', 3600000.0)
    """

    name: str
    unit: str
    total: str
    watt_seconds: float

    @classmethod
    def named(cls, name: str) -> Quantity:
        """Returns the quantity of a name.

        Raises:
            DataError: The name states no unit.
        """
        amounts, energies = "|".join(_AMOUNTS), "|".join(_ENERGIES)
        found = re.fullmatch(f"([a-z][a-z0-9_]*)_({amounts})_per_({energies})", name)
        if found is None:
            raise DataError(
                f"signal {name!r} does not state its unit; end its name in _<amount>_per_<energy>, with an amount of "
                f"{', '.join(_AMOUNTS)} and an energy of {', '.join(_ENERGIES)}, e.g. water_l_per_kwh"
            )
        what, amount, energy = found.groups()
        shown, totalled, per_total = _AMOUNTS[amount]
        energy_shown, watt_seconds = _ENERGIES[energy]
        return cls(
            name=name,
            unit=f"{shown}/{energy_shown}",
            total=f"{what}_{totalled}",
            watt_seconds=watt_seconds * per_total,
        )


@dataclass(frozen=True, kw_only=True)
class Signals:
    """Hourly signals of some zones.

    Attributes:
        start: First hour, timezone-aware UTC, on the full hour; value ``h`` holds for
            ``[start + h, start + h + 1)`` hours.
        zones: Zone keys, e.g. ``"CA-ON"``, in the order of the arrays' first axis.
        value_ZH: Values per zone and hour by the name of the quantity, which states its unit (``Quantity``):
            ``price_usd_per_mwh`` (negative prices are legal), ``carbon_g_per_kwh`` (at least 0), and any other, e.g.
            ``water_l_per_kwh``. NaN marks an unknown hour; a quantity that is missing is unknown throughout.
        notes: What a reader of any result must know about the data (synthetic hours, estimates), per zone.
        parts: Values within the hours, by quantity and zone, of those that change within hours: shape (hours, parts),
            2, 3, 4, 6 or 12 parts of equal length. ``value_ZH`` holds the means of their hours, which forecasts,
            charts and data transfers read; power is settled by the parts.
        day_ahead: Whether the price of a zone is that of its day-ahead market, where that is not as the packaged table
            says (``noonward.model.markets``).

    Raises:
        DataError: Shapes disagree, the start is not a UTC hour, a zone stands twice, a name states no unit, a carbon
            intensity is negative, a value is infinite, or a part of a known hour is unknown.
    """

    start: datetime
    zones: tuple[str, ...]
    value_ZH: Mapping[str, F8]
    notes: tuple[str, ...] = ()
    parts: Mapping[tuple[str, str], F8] = field(default_factory=dict)
    day_ahead: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.start.utcoffset() != timedelta(0):
            raise DataError(f"signals start at {self.start!s}, which is not UTC; give a timezone-aware UTC time")
        if (self.start.minute, self.start.second, self.start.microsecond) != (0, 0, 0):
            raise DataError(f"signals start at {self.start!s}; they must start on a full hour")
        if len(set(self.zones)) != len(self.zones):
            raise DataError(f"a zone stands twice in {self.zones}; name each zone once")
        if not self.value_ZH:
            raise DataError(f"signals hold no quantity; give at least {PRICE_NAME} or {CARBON_NAME}")
        shape = (len(self.zones), self.hours)
        for name, array in self.value_ZH.items():
            Quantity.named(name)
            if array.shape != shape:
                raise DataError(f"{name} has shape {array.shape}; expected (zones, hours) = {shape}")
            if np.isinf(array).any():
                zone, hour = np.argwhere(np.isinf(array))[0]
                raise DataError(f"{name} of {self.zones[zone]} is infinite at {self.time_of(int(hour))}")
        carbon_ZH = self.value_ZH.get(CARBON_NAME)
        if carbon_ZH is not None and (carbon_ZH < 0).any():
            zone, hour = np.argwhere(carbon_ZH < 0)[0]
            raise DataError(
                f"carbon intensity of {self.zones[zone]} is {carbon_ZH[zone, hour]} g/kWh at "
                f"{self.time_of(int(hour))}; it must be at least 0"
            )
        for (name, zone), value_HP in self.parts.items():
            self._check_parts(name, zone, value_HP)

    def _check_parts(self, name: str, zone: str, value_HP: F8) -> None:
        """Raises DataError if values within hours are not allowed."""
        if value_HP.ndim != 2 or len(value_HP) != self.hours or value_HP.shape[1] not in PARTS:
            raise DataError(
                f"{name} of {zone} within hours has shape {value_HP.shape}; expected {self.hours} hours of "
                f"{', '.join(map(str, PARTS))} parts"
            )
        known_H = np.isfinite(self.of(name)[self.zone_index(zone)])
        wrong_H = known_H & ~np.isfinite(value_HP).all(axis=1)
        if wrong_H.any() or (name == CARBON_NAME and (value_HP < 0).any()):
            hour = int(wrong_H.argmax()) if wrong_H.any() else int((value_HP < 0).any(axis=1).argmax())
            raise DataError(
                f"{name} of {zone} within the hour {self.time_of(hour)} is {value_HP[hour].tolist()}; every part of a "
                "known hour must be known and finite, and carbon intensities at least 0"
            )

    def of(self, name: str) -> F8:
        """Returns the values of a quantity per zone and hour; NaN where it is missing."""
        found = self.value_ZH.get(name)
        return np.full((len(self.zones), self.hours), np.nan) if found is None else found

    def by_part(self, name: str, zone: str, parts: int) -> F8:
        """Returns the values of a quantity of a zone by parts of the hours, (hours x parts).

        Args:
            name: Quantity.
            zone: Zone.
            parts: Parts of an hour, a multiple of those that are kept.
        """
        kept_HP = self.parts.get((name, zone))
        if kept_HP is None:
            return np.repeat(self.of(name)[self.zone_index(zone)], parts)
        return np.repeat(kept_HP.ravel(), parts // kept_HP.shape[1])

    @property
    def price_usd_per_mwh_ZH(self) -> F8:
        """Electricity price per zone and hour, USD/MWh."""
        return self.of(PRICE_NAME)

    @property
    def carbon_g_per_kwh_ZH(self) -> F8:
        """Carbon intensity per zone and hour, gCO2/kWh."""
        return self.of(CARBON_NAME)

    @property
    def hours(self) -> int:
        """Number of hours covered."""
        return int(next(iter(self.value_ZH.values())).shape[-1])

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
            value_ZH={name: array[:, cut] for name, array in self.value_ZH.items()},
            parts={key: value_HP[cut] for key, value_HP in self.parts.items()},
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
            value_ZH={name: array[rows] for name, array in self.value_ZH.items()},
            parts={key: value_HP for key, value_HP in self.parts.items() if key[1] in zones},
        )

    def require_known(self, what: str) -> Signals:
        """Returns itself if every price and carbon intensity is known.

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


def cumulative(value_SH: F8, step_s: float = HOUR_S) -> F8:
    """Returns running integrals of hourly values over time, one more than there are hours.

    Args:
        value_SH: Values per hour, e.g. USD/MWh, shape (sites, hours).
        step_s: How long a value holds, s, where it is a part of an hour.

    Returns:
        Integral from second 0 to each hour's start and to the last's end, value x s, shape (sites, hours + 1).

    Example:
        >>> cumulative(np.array([[1.0, 3.0]])).tolist()
        [[0.0, 3600.0, 14400.0]]
    """
    out = np.zeros((value_SH.shape[0], value_SH.shape[1] + 1))
    np.cumsum(value_SH * step_s, axis=1, out=out[:, 1:])
    return out


class PricesAtSites(Protocol):
    """How prices of energy at sites follow from those of their zones (``noonward.model.cluster.site_prices``)."""

    def parts(self, start: datetime, hours: int) -> int:
        """Returns the fewest parts of an hour within which what is added to prices does not change."""

    def priced(self, price_SP: F8, start: datetime, parts: int) -> F8:
        """Returns the prices of the sites by part of the hours from a start on, from those of their zones, USD/MWh."""


@dataclass(frozen=True, kw_only=True)
class SiteSignals:
    """Signals at the sites of a run from its start, and their running integrals, by parts of hours P.

    A part is a whole hour where no signal changes within hours; else the longest that all of them have in common.

    Attributes:
        quantities: What each position of the first axis holds: the price, the carbon intensity, then any others.
        part_s: Length of a part, s, a divisor of the hour.
        value_QSP: Values per site and part, times the factor where there is one; NaN where unknown.
        cumulative_QSP: ``cumulative`` of the values, value x s, one more column.
        factor_SH: What a watt counts for in each hour (``PueByHour``); no hours where it counts for one throughout.
        factor_cumulative_SP: ``cumulative`` of the factors by part, s; no columns where there are none.
    """

    quantities: tuple[Quantity, ...]
    part_s: float
    value_QSP: F8
    cumulative_QSP: F8
    factor_SH: F8
    factor_cumulative_SP: F8

    @classmethod
    def of(
        cls,
        signals: Signals | None,
        zones: Sequence[str],
        start: datetime,
        hours: int,
        factor_SH: F8 | None = None,
        prices: PricesAtSites | None = None,
    ) -> SiteSignals:
        """Returns the signals of some sites.

        Args:
            signals: Signals of their zones, or None: price and carbon intensity are unknown throughout.
            zones: Zone of each site.
            start: Start of the run, UTC.
            hours: Hours the run may touch.
            factor_SH: What a watt counts for per site and hour; None: one throughout.
            prices: How the sites' prices follow from their zones'; None: they are the same.
        """
        names = [PRICE_NAME, CARBON_NAME]
        parts = 1
        if signals is None:
            value_QSP = np.full((2, len(zones), hours), np.nan)
        else:
            names += [name for name in signals.value_ZH if name not in names]
            window = signals.window(start, hours)
            parts = math.lcm(*(each.shape[1] for (_, zone), each in window.parts.items() if zone in zones))
            if prices is not None:
                parts = math.lcm(parts, prices.parts(start, hours))
            value_QSP = np.stack([[window.by_part(name, zone, parts) for zone in zones] for name in names])
        if prices is not None:
            value_QSP[0] = prices.priced(value_QSP[0], start, parts)
        part_s = HOUR_S / parts
        none = np.zeros((len(zones), 0))
        factor_cumulative_SP = none
        if factor_SH is not None:
            factor_SP = np.repeat(factor_SH, parts, axis=1)
            value_QSP = value_QSP * factor_SP
            factor_cumulative_SP = cumulative(factor_SP, part_s)
        return cls(
            quantities=tuple(Quantity.named(name) for name in names),
            part_s=part_s,
            value_QSP=value_QSP,
            cumulative_QSP=np.stack([cumulative(value_SP, part_s) for value_SP in value_QSP]),
            factor_SH=none if factor_SH is None else factor_SH,
            factor_cumulative_SP=factor_cumulative_SP,
        )

    @property
    def parts(self) -> int:
        """Parts of an hour."""
        return round(HOUR_S / self.part_s)

    @property
    def value_QSH(self) -> F8:
        """Values per site and hour: the means of their parts."""
        if self.parts == 1:
            return self.value_QSP
        quantities, sites, _ = self.value_QSP.shape
        return np.asarray(self.value_QSP.reshape(quantities, sites, -1, self.parts).mean(axis=3))

    @property
    def price_SP(self) -> F8:
        """Electricity price by part, USD/MWh."""
        return np.asarray(self.value_QSP[0])

    @property
    def carbon_SP(self) -> F8:
        """Carbon intensity by part, g/kWh."""
        return np.asarray(self.value_QSP[1])

    @property
    def price_SH(self) -> F8:
        """Electricity price by hour, USD/MWh."""
        return np.asarray(self.value_QSH[0])

    @property
    def carbon_SH(self) -> F8:
        """Carbon intensity by hour, g/kWh."""
        return np.asarray(self.value_QSH[1])

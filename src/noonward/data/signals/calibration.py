"""The packaged statistics of real prices and carbon intensities that the signal generator runs on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.errors import DataError, nearest

CALIBRATIONS: Final = ("w2022", "train")
"""Statistics that are packaged: the year 2022, and January 2021 to June 2023."""

_TABLE: Final = "tables/signals_calibration.json"


@dataclass(frozen=True, kw_only=True)
class SeriesCalibration:
    """Statistics of one variable (price or carbon intensity) in one zone.

    Axes: M months (January first), H hours of the UTC day, D parts of the UTC day (0-6, 6-12, 12-18 and 18-24 h),
    K knots of the normal score, C memory components.

    Attributes:
        hours: Hours the statistics rest on.
        mean: Mean, USD/MWh or gCO2/kWh.
        std: Standard deviation, USD/MWh or gCO2/kWh.
        autocorrelation_1h: Autocorrelation at a lag of one hour.
        autocorrelation_24h: Autocorrelation at a lag of one day.
        negative_share: Share of the hours with a negative value, 0 to 1.
        minimum: Smallest value seen, USD/MWh or gCO2/kWh.
        maximum: Largest value seen, USD/MWh or gCO2/kWh.
        profile_MH: Mean by month and UTC hour without its spikes (they belong to the curves), USD/MWh or gCO2/kWh.
        weekend_step: Mean of local weekend days less that of the other days, USD/MWh or gCO2/kWh.
        hour_spread_H: Width of the residual by UTC hour relative to all hours, positive, root mean square 1.
        residual_curve_MDK: Residual over ``hour_spread_H`` at the normal scores ``score_knots_K``, non-decreasing,
            USD/MWh or gCO2/kWh.
        memory_share_C: Share of the normal score's variance that each memory component carries; they sum to 1.
    """

    hours: int
    mean: float
    std: float
    autocorrelation_1h: float
    autocorrelation_24h: float
    negative_share: float
    minimum: float
    maximum: float
    profile_MH: F8
    weekend_step: float
    hour_spread_H: F8
    residual_curve_MDK: F8
    memory_share_C: F8


@dataclass(frozen=True, kw_only=True)
class ZoneCalibration:
    """Statistics of one zone.

    Attributes:
        zone: Zone key, e.g. ``"CA-ON"``.
        utc_offset: Standard-time offset from UTC; it decides which hours are the local weekend.
        price: Statistics of the price, USD/MWh.
        carbon: Statistics of the lifecycle carbon intensity, gCO2/kWh.
        stand_ins: Variables (``"price"``, ``"carbon"``) whose statistics rest on a proxy, not on real series.
    """

    zone: str
    utc_offset: timedelta
    price: SeriesCalibration
    carbon: SeriesCalibration
    stand_ins: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SignalCalibration:
    """Statistics of all calibrated zones over one window of time.

    Attributes:
        name: ``"w2022"`` or ``"train"``.
        zones: The calibrated zones in the order of the correlation matrix.
        score_knots_K: Normal scores at which the residual curves are given, increasing.
        tau_C: Decay time of each memory component, h.
        period_C: Period of each memory component, h; 0 for one that only decays.
        correlation_SS: Correlation of the normal scores; series are all prices, then all carbon intensities.
        residual_correlation_SS: Correlation of the real residuals around their month and hour means, winsorised at
            0.5 % and 99.5 %; the same series.
        sources: Publishers and licences, as stated in the table.
    """

    name: str
    zones: Mapping[str, ZoneCalibration]
    score_knots_K: F8
    tau_C: F8
    period_C: F8
    correlation_SS: F8
    residual_correlation_SS: F8
    sources: Mapping[str, Any]

    def zone(self, name: str) -> ZoneCalibration:
        """Returns one zone's statistics.

        Raises:
            DataError: The zone is not calibrated; the message names the known ones.
        """
        if name not in self.zones:
            known = ", ".join(self.zones)
            raise DataError(
                f"zone {name!r} has no packaged statistics, so its signals cannot be generated; calibrated zones: "
                f"{known}; choose one of them or give signal files"
            )
        return self.zones[name]

    def correlation_of(self, zones: tuple[str, ...]) -> F8:
        """Returns the correlation of some zones' series: their prices, then their carbon intensities."""
        order = {name: position for position, name in enumerate(self.zones)}
        rows = np.array([order[name] for name in zones])
        rows = np.concatenate([rows, rows + len(order)])
        return np.asarray(self.correlation_SS[np.ix_(rows, rows)])


@cache
def load_calibration(name: str = "w2022") -> SignalCalibration:
    """Returns the packaged statistics of one window; the table is read at the first call.

    Args:
        name: ``"w2022"`` or ``"train"``.

    Raises:
        DataError: No such statistics are packaged.

    Example:
        >>> load_calibration("w2022").zones["SG"].price.hours
        8760
    """
    if name not in CALIBRATIONS:
        raise DataError(f"calibration {name!r} is not packaged; {nearest(name, CALIBRATIONS)}")
    return read_calibration(_table(), name)


def read_calibration(table: Mapping[str, Any], name: str) -> SignalCalibration:
    """Returns the statistics of one window from a parsed table in the packaged table's layout.

    Args:
        table: The table.
        name: The window, a key of ``table["windows"]``.
    """
    window = table["windows"][name]
    zones = {
        entry["zone"]: ZoneCalibration(
            zone=entry["zone"],
            utc_offset=timedelta(hours=entry["utc_offset_h"]),
            price=_series(window["series"][entry["zone"]]["price"]),
            carbon=_series(window["series"][entry["zone"]]["carbon"]),
            stand_ins=tuple(table["stand_ins"].get(entry["zone"], ())),
        )
        for entry in table["zones"]
    }
    return SignalCalibration(
        name=name,
        zones=zones,
        score_knots_K=_frozen(table["score_knots"]),
        tau_C=_frozen([component["tau_h"] for component in table["components"]]),
        period_C=_frozen([component["period_h"] for component in table["components"]]),
        correlation_SS=_symmetric(window["correlation_lower"]),
        residual_correlation_SS=_symmetric(window["residual_correlation_lower"]),
        sources=table["sources"],
    )


@cache
def _table() -> Mapping[str, Any]:
    """Returns the parsed table."""
    text = files("noonward.data").joinpath(_TABLE).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _series(entry: Mapping[str, Any]) -> SeriesCalibration:
    """Returns one series' statistics from its entry in the table."""
    share_C = np.asarray(entry["memory_share"], dtype=np.float64)
    return SeriesCalibration(
        hours=entry["hours"],
        mean=float(entry["mean"]),
        std=float(entry["std"]),
        autocorrelation_1h=float(entry["autocorrelation_1h"]),
        autocorrelation_24h=float(entry["autocorrelation_24h"]),
        negative_share=float(entry["negative_share"]),
        minimum=float(entry["minimum"]),
        maximum=float(entry["maximum"]),
        profile_MH=_frozen(entry["profile"]),
        weekend_step=float(entry["weekend_step"]),
        hour_spread_H=_frozen(entry["hour_spread"]),
        residual_curve_MDK=_frozen(entry["residual_curve"]),
        memory_share_C=_frozen(share_C / share_C.sum()),
    )


def _symmetric(lower: list[list[float]]) -> F8:
    """Returns the symmetric matrix with unit diagonal whose rows below the diagonal are given."""
    matrix = np.eye(len(lower))
    for row, values in enumerate(lower):
        matrix[row, : len(values)] = values
        matrix[: len(values), row] = values
    matrix.setflags(write=False)
    return matrix


def _frozen(values: Any) -> F8:
    """Returns a read-only float array."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array

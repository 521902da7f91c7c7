"""Generated hourly prices and carbon intensities that share the statistics of real ones.

Every series (price or carbon intensity of a zone) is

    value(t) = profile[month, hour] + weekend_step x (w(t) - 2/7) + hour_spread[hour] x curve(score(t))

* ``month`` and ``hour`` are UTC; ``w(t)`` is 1 on local Saturdays and Sundays (standard time), else 0.
* ``curve`` is a non-decreasing, piecewise linear function of the normal score, one for each month and quarter of the
  UTC day, flat outside its knots: a Gaussian copula with the real residuals' margins, their skew, negative prices and
  spikes.
* ``score(t)`` is standard normal and a sum of memory components, ``sum_c sqrt(share_c) x_c(t)``. A component decays,
  ``x(t) = r x(t-1) + sqrt(1 - r^2) e(t)`` with ``r = exp(-1 / tau)``, or also swings, ``x(t) = a(t) cos(2 pi t / P) +
  b(t) sin(2 pi t / P)`` with two decaying parts a and b. The score's autocorrelation at lag k is therefore
  ``sum_c share_c exp(-k / tau_c) cos(2 pi k / P_c)`` (cosine 1 without a period).
* The innovations of all series are correlated alike in every component, by the real scores' correlation matrix over
  the overlap ``sum_c sqrt(share_ic share_jc)`` of the two series' memories, projected to the nearest-by-eigenvalues
  positive semidefinite matrix with unit diagonal.

A value outside the range of the zone's real series in the calibration window is set to the nearer end of that range,
so that no carbon intensity lies below the smallest one published and no price outside the market's own extremes. All
values are rounded to what markets publish, 0.01 USD/MWh and 0.1 g/kWh (:mod:`noonward.model.precision`): the same draw
has the same bytes on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8
from noonward.data.signals.calibration import SeriesCalibration, SignalCalibration, load_calibration
from noonward.errors import DataError
from noonward.model.cluster.scenario import SinusoidalSignals
from noonward.model.precision import CARBON_DECIMALS, PRICE_DECIMALS, SHAPE_DECIMALS, range_on_grid, rounded_signals
from noonward.model.signals import Signals


def generate_signals(
    zones: tuple[str, ...], start: datetime, hours: int, rng: np.random.Generator, calibration: str = "w2022"
) -> Signals:
    """Draws one realisation of price and carbon intensity for some zones.

    The same generator state gives the same bytes; a longer draw begins with the shorter one.

    Args:
        zones: Zone keys, each once; the order is that of the result and, like the set itself, part of the draw.
        start: First hour, timezone-aware UTC, on the full hour; it decides months and weekdays, of any year.
        hours: Number of hours, at least 1.
        rng: Source of randomness; advanced by the draw.
        calibration: ``"w2022"`` (the year 2022) or ``"train"`` (January 2021 to June 2023).

    Returns:
        Signals without unknown hours: prices in USD/MWh, carbon intensities in gCO2/kWh. The notes name every zone
        whose statistics rest on a stand-in.

    Raises:
        DataError: A zone is not calibrated or stands twice, the calibration is unknown, the start is not a UTC hour
            or hours is below 1.

    Example:
        >>> day = generate_signals(("SG", "PL"), datetime(2022, 6, 1, tzinfo=UTC), 24, np.random.default_rng(7))
        >>> day.price_usd_per_mwh_ZH.shape, bool((day.carbon_g_per_kwh_ZH > 300).all())
        ((2, 24), True)
    """
    return draw_signals(load_calibration(calibration), zones, start, hours, rng)


def draw_signals(
    table: SignalCalibration, zones: tuple[str, ...], start: datetime, hours: int, rng: np.random.Generator
) -> Signals:
    """Draws one realisation from given statistics; arguments, result and errors as in :func:`generate_signals`."""
    _check(zones, start, hours)
    parts = [table.zone(zone) for zone in zones]
    series = [part.price for part in parts] + [part.carbon for part in parts]
    offset_h_S = np.array([part.utc_offset / timedelta(hours=1) for part in parts] * 2)
    score_SH = draw_scores(table, zones, series, hours, rng).scores()
    month_H, hour_H, weekend_SH = calendar(start, hours, offset_h_S)
    value_SH = np.empty_like(score_SH)
    for row, one in enumerate(series):
        curve_H = _on_curves(score_SH[row], month_H, hour_H // 6, table.score_knots_K, one.residual_curve_MDK)
        plain_H = one.profile_MH[month_H, hour_H] + one.weekend_step * (weekend_SH[row] - 2 / 7)
        value_SH[row] = plain_H + one.hour_spread_H[hour_H] * curve_H
    price_ZH, carbon_ZH = rounded_signals(value_SH.reshape(2, len(zones), hours))
    for value_ZH, decimals, ranges in (
        (price_ZH, PRICE_DECIMALS, [part.price for part in parts]),
        (carbon_ZH, CARBON_DECIMALS, [part.carbon for part in parts]),
    ):
        for value_H, one in zip(value_ZH, ranges, strict=True):
            np.clip(value_H, *range_on_grid(one.minimum, one.maximum, decimals), out=value_H)
    return Signals(
        start=start.astimezone(UTC),
        zones=tuple(zones),
        value_ZH={"price_usd_per_mwh": price_ZH, "carbon_g_per_kwh": carbon_ZH},
        notes=tuple(
            f"{part.zone} {variable}: synthetic, from the statistics of a proxy, not of the market"
            for part in parts
            for variable in part.stand_ins
        ),
    )


def innovation_correlation(root_share_SC: F8, correlation_SS: F8) -> F8:
    """Returns the innovations' correlation that gives the scores theirs, as nearly as a positive semidefinite one can.

    Args:
        root_share_SC: Square roots of the memory shares per series and component.
        correlation_SS: Wanted correlation of the scores.
    """
    overlap_SS = np.maximum(root_share_SC @ root_share_SC.T, 1e-6)
    wanted_SS = np.clip(correlation_SS / overlap_SS, -1.0, 1.0)
    np.fill_diagonal(wanted_SS, 1.0)
    return positive_semidefinite(wanted_SS)


def positive_semidefinite(matrix_SS: F8) -> F8:
    """Returns a correlation matrix near a symmetric one: negative eigenvalues become 0, the diagonal 1.

    Args:
        matrix_SS: Symmetric matrix with unit diagonal, possibly indefinite.
    """
    weight_S, vector_SS = np.linalg.eigh(matrix_SS)
    fixed_SS = (vector_SS * np.maximum(weight_S, 0.0)) @ vector_SS.T
    scale_S = np.sqrt(np.diag(fixed_SS))
    return np.asarray(fixed_SS / np.outer(scale_S, scale_S))


def _check(zones: tuple[str, ...], start: datetime, hours: int) -> None:
    """Raises if the arguments describe no signals."""
    if not zones:
        raise DataError("no zone was asked of the signal generator; name at least one")
    if len(set(zones)) != len(zones):
        raise DataError(f"a zone stands twice in {zones}; name each zone once")
    if hours < 1:
        raise DataError(f"{hours} hours were asked of the signal generator; ask for at least 1 hour")
    if start.tzinfo is None or start.utcoffset() != timedelta(0):
        raise DataError(f"signals start at {start!s}, which is not UTC; give a timezone-aware UTC time")
    if (start.minute, start.second, start.microsecond) != (0, 0, 0):
        raise DataError(f"signals start at {start!s}; they must start on a full hour")


@dataclass(frozen=True)
class ScorePaths:
    """One draw of the hidden parts that make up the normal scores. Axes: P parts, H hours, S series, C components.

    Attributes:
        part_PHS: Decaying parts, independent between series: one a component, then a second one of those that swing.
        rate_P: What is left of a part after an hour, on average.
        mix_SS: What makes the series' innovations correlated.
        root_SC: Square roots of the components' shares.
        swings_C: Which components swing.
        phase_CH: Phase of every component, rad; 0 where it does not swing.
    """

    part_PHS: F8
    rate_P: F8
    mix_SS: F8
    root_SC: F8
    swings_C: NDArray[np.bool_]
    phase_CH: F8

    def scores(self) -> F8:
        """Returns the correlated standard normal scores of all series, (S, H)."""
        cosine_PHS = self.part_PHS[: len(self.swings_C)] * np.cos(self.phase_CH)[:, :, None]
        swung_CH = np.sin(self.phase_CH[self.swings_C])
        cosine_PHS[self.swings_C] += self.part_PHS[len(self.swings_C) :] * swung_CH[:, :, None]
        return np.asarray(np.einsum("chs,rs,rc->rh", cosine_PHS, self.mix_SS, self.root_SC, optimize=True))


def draw_scores(
    table: SignalCalibration,
    zones: tuple[str, ...],
    series: list[SeriesCalibration],
    hours: int,
    rng: np.random.Generator,
) -> ScorePaths:
    """Draws the hidden parts of the scores of all series: prices of the zones, then carbon intensities."""
    share_SC = np.array([one.memory_share_C for one in series])
    root_SC = np.sqrt(share_SC)
    innovation_SS = innovation_correlation(root_SC, table.correlation_of(zones))
    weight_S, vector_SS = np.linalg.eigh(innovation_SS)
    mix_SS = vector_SS * np.sqrt(np.maximum(weight_S, 0.0))

    swings_C = table.period_C > 0
    tau_P = np.concatenate([table.tau_C, table.tau_C[swings_C]])
    rate_P = np.exp(-1.0 / tau_P)
    phase_CH = 2 * np.pi * np.arange(hours) / np.where(swings_C, table.period_C, np.inf)[:, None]
    return ScorePaths(
        part_PHS=_decaying(rng.standard_normal((hours, len(tau_P), len(series))), rate_P),
        rate_P=rate_P,
        mix_SS=mix_SS,
        root_SC=root_SC,
        swings_C=swings_C,
        phase_CH=phase_CH,
    )


def _decaying(noise_HPS: F8, rate_P: F8) -> F8:
    """Returns stationary unit-variance first-order autoregressions, shape ``(P, H, S)``.

    The recursion ``x(t) = r x(t-1) + e(t)`` is the product of ``1 + r^k L^k`` over k = 1, 2, 4, ..., applied in turn.
    """
    x_PHS = np.ascontiguousarray(noise_HPS.transpose(1, 0, 2))
    x_PHS[:, 1:] *= np.sqrt(1.0 - rate_P**2)[:, None, None]
    step = 1
    while step < x_PHS.shape[1]:
        x_PHS[:, step:] += (rate_P**step)[:, None, None] * x_PHS[:, :-step].copy()
        step *= 2
    return x_PHS


def calendar(start: datetime, hours: int, offset_h_S: F8) -> tuple[I8, I8, F8]:
    """Returns each hour's UTC month (0 to 11) and hour of day, and per series 1 on the local weekend."""
    first = np.datetime64(start.astimezone(UTC).replace(tzinfo=None), "h")
    stamp_H = first + np.arange(hours)
    month_H = stamp_H.astype("datetime64[M]").astype(np.int64) % 12
    hour_count_H = stamp_H.astype(np.int64)
    day_SH = np.floor((hour_count_H + offset_h_S[:, None]) / 24).astype(np.int64)
    weekday_SH = (day_SH + 3) % 7  # 1970-01-01 was a Thursday, weekday 3
    return month_H, hour_count_H % 24, (weekday_SH >= 5).astype(np.float64)


def _on_curves(score_H: F8, month_H: I8, part_H: I8, knot_K: F8, curve_MDK: F8) -> F8:
    """Returns each hour's value on the curve of its month and part of the day, at its score."""
    cell_H = np.clip(np.searchsorted(knot_K, score_H) - 1, 0, len(knot_K) - 2)
    share_H = np.clip((score_H - knot_K[cell_H]) / np.diff(knot_K)[cell_H], 0.0, 1.0)
    low_H, high_H = curve_MDK[month_H, part_H, cell_H], curve_MDK[month_H, part_H, cell_H + 1]
    return np.asarray(low_H + share_H * (high_H - low_H))


def sinusoidal_signals(spec: SinusoidalSignals, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
    """Returns price and carbon that are the same every day (Hall et al., Sec. V.B): a cosine with a peak per zone.

    Values are rounded as those of :func:`generate_signals`.

    Args:
        spec: Means, amplitude and peak hours.
        zones: Zones, all of which have a peak hour.
        start: First hour, UTC.
        hours: Number of hours.
    """
    hour_H = start.hour + np.arange(hours)
    peak_Z = np.array([spec.peak_hours[zone] for zone in zones])
    wave_ZH = np.round(np.cos(2 * np.pi * (hour_H[None] - peak_Z[:, None]) / 24.0), SHAPE_DECIMALS)
    mean_K = np.array([spec.price_usd_per_mwh, spec.carbon_g_per_kwh])
    price_ZH, carbon_ZH = rounded_signals(mean_K[:, None, None] * (1.0 + spec.amplitude * wave_ZH))
    value_ZH = {"price_usd_per_mwh": price_ZH, "carbon_g_per_kwh": carbon_ZH}
    return Signals(start=start, zones=zones, value_ZH=value_ZH)

"""Settlement, in one place: watts and gigabytes to kWh, USD and kgCO2, O(1) a segment by cumulative integrals."""

from __future__ import annotations

import numpy as np

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH, WATT_SECONDS_PER_MWH


def cumulative(value_SH: F8) -> F8:
    """Returns running integrals of hourly values over time, one more than there are hours.

    Args:
        value_SH: Values per hour, e.g. USD/MWh, shape (sites, hours).

    Returns:
        Integral from second 0 to each hour's start and to the last's end, value x s, shape (sites, hours + 1).

    Example:
        >>> cumulative(np.array([[1.0, 3.0]])).tolist()
        [[0.0, 3600.0, 14400.0]]
    """
    out = np.zeros((value_SH.shape[0], value_SH.shape[1] + 1))
    np.cumsum(value_SH * HOUR_S, axis=1, out=out[:, 1:])
    return out


@kernel(inline=True, allocates=False)
def integral(cumulative_H: F8, time_s: float) -> float:
    """Returns the integral of an hourly signal from second 0 to ``time_s`` (within the hours covered), value x s."""
    position = time_s / HOUR_S
    hour = min(int(position), cumulative_H.shape[0] - 2)
    below = cumulative_H[hour]
    return below + (cumulative_H[hour + 1] - below) * (position - hour)


@kernel(inline=True, allocates=False)
def settle_segment(
    price_cumulative_SH: F8, carbon_cumulative_SH: F8, s: int, t0_s: float, t1_s: float, power_w: float
) -> tuple[float, float, float]:
    """Settles constant facility power of a site between two times.

    Args:
        price_cumulative_SH: ``cumulative`` of the prices, USD/MWh x s.
        carbon_cumulative_SH: ``cumulative`` of the carbon intensities, g/kWh x s.
        s: Site.
        t0_s: Start, s.
        t1_s: End, s, at least the start.
        power_w: Facility power (PUE included), W.

    Returns:
        (energy kWh, cost USD, emissions kgCO2): W s / 3.6e6, W x USD/MWh s / 3.6e9, W x g/kWh s / 3.6e9.
    """
    price = integral(price_cumulative_SH[s], t1_s) - integral(price_cumulative_SH[s], t0_s)
    carbon = integral(carbon_cumulative_SH[s], t1_s) - integral(carbon_cumulative_SH[s], t0_s)
    return (
        power_w * (t1_s - t0_s) / WATT_SECONDS_PER_KWH,
        power_w * price / WATT_SECONDS_PER_MWH,
        power_w * carbon / WATT_SECONDS_PER_MWH,
    )


@kernel(inline=True, allocates=False)
def settle_transfer(
    size_gb: float, usd_per_gb: float, kwh_per_gb: float, carbon_from_g_per_kwh: float, carbon_to_g_per_kwh: float
) -> tuple[float, float, float]:
    """Settles a transfer over one link (MASAC, Sec. II): cost s psi, carbon eps s (I_i + I_j) / 2.

    Args:
        size_gb: GB moved, s.
        usd_per_gb: Price of the link, psi.
        kwh_per_gb: Energy of the link, epsilon.
        carbon_from_g_per_kwh: Intensity at one end when the transfer starts, I_i.
        carbon_to_g_per_kwh: Intensity at the other end, I_j.

    Returns:
        (energy kWh, cost USD, emissions kgCO2). The energy is paid for within psi.
    """
    energy = kwh_per_gb * size_gb
    return energy, usd_per_gb * size_gb, energy * 0.5 * (carbon_from_g_per_kwh + carbon_to_g_per_kwh) / 1000.0

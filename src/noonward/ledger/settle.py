"""Settlement, in one place: watts and gigabytes to kWh, USD, kgCO2 and any other signal, O(1) a segment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8, I4, I8, Records
from noonward.compiled import kernel
from noonward.ledger.segments import OWN_JOURNEY, PowerSegments
from noonward.model.network import Links
from noonward.model.signals import SiteSignals
from noonward.paging import parts, zero_rows
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH, WATT_SECONDS_PER_MWH


@kernel(inline=True, allocates=False)
def integral(cumulative_P: F8, time_s: float, part_s: float) -> float:
    """Returns the integral of a signal from second 0 to ``time_s`` (within the time covered), value x s.

    Args:
        cumulative_P: Integral to the start of each part, value x s.
        time_s: Time, s.
        part_s: How long a value holds: an hour, or a part of one, s.
    """
    position = time_s / part_s
    part = int(min(position, cumulative_P.shape[0] - 2.0))
    below = cumulative_P[part]
    return below + (cumulative_P[part + 1] - below) * (position - part)


@kernel(inline=True, allocates=False)
def integral_between(cumulative_P: F8, t0_s: float, t1_s: float, part_s: float) -> float:
    """Returns the integral of a signal between two times, value x s; see ``integral``."""
    return integral(cumulative_P, t1_s, part_s) - integral(cumulative_P, t0_s, part_s)


@kernel(inline=True, allocates=False)
def settle_integrals(counted_s: float, price: float, carbon: float, power_w: float) -> tuple[float, float, float]:
    """Settles constant facility power over a time whose integrals are known.

    Args:
        counted_s: Seconds, each as often as a watt counts then.
        price: Integral of the price, USD/MWh x s.
        carbon: Integral of the carbon intensity, g/kWh x s.
        power_w: Facility power (PUE included), W.

    Returns:
        (energy kWh, cost USD, emissions kgCO2): W s / 3.6e6, W x USD/MWh s / 3.6e9, W x g/kWh s / 3.6e9.
    """
    return (
        power_w * counted_s / WATT_SECONDS_PER_KWH,
        power_w * price / WATT_SECONDS_PER_MWH,
        power_w * carbon / WATT_SECONDS_PER_MWH,
    )


@kernel(inline=True, allocates=False)
def settle_segment(
    price_cumulative_SP: F8,
    carbon_cumulative_SP: F8,
    s: int,
    t0_s: float,
    t1_s: float,
    power_w: float,
    part_s: float,
) -> tuple[float, float, float]:
    """Settles constant facility power of a site between two times.

    Args:
        price_cumulative_SP: ``cumulative`` of the prices, USD/MWh x s.
        carbon_cumulative_SP: ``cumulative`` of the carbon intensities, g/kWh x s.
        s: Site.
        t0_s: Start, s.
        t1_s: End, s, at least the start.
        power_w: Facility power (PUE included), W.
        part_s: How long a price or an intensity holds: an hour, or a part of one, s.

    Returns:
        (energy kWh, cost USD, emissions kgCO2); see ``settle_integrals``.
    """
    price = integral_between(price_cumulative_SP[s], t0_s, t1_s, part_s)
    carbon = integral_between(carbon_cumulative_SP[s], t0_s, t1_s, part_s)
    return settle_integrals(t1_s - t0_s, price, carbon, power_w)


@kernel(inline=True, allocates=False)
def counted_s(factor_cumulative_SP: F8, s: int, t0_s: float, t1_s: float, part_s: float) -> float:
    """Returns the seconds between two times, each as often as a watt counts then (``SiteSignals.factor_SH``)."""
    if factor_cumulative_SP.shape[1] == 0:
        return t1_s - t0_s
    return integral_between(factor_cumulative_SP[s], t0_s, t1_s, part_s)


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


@dataclass(frozen=True, kw_only=True)
class SettledPower:
    """Power segments, settled per job. Axes: J jobs, A amounts: kWh, then the total of each signal (USD, kgCO2, ...).

    Attributes:
        job_JA: What the segments drew.
        displaced_JA: What their GPUs would have drawn free within the window.
        gpu_s_J: GPUs x time x throughput, s: useful GPU-seconds.
    """

    job_JA: F8
    displaced_JA: F8
    gpu_s_J: F8


def settle_power(
    segments: PowerSegments, signals: SiteSignals, jobs: int, free_w_S: F8 | None = None, window_s: float = 0.0
) -> SettledPower:
    """Settles power segments.

    Args:
        segments: Segments of any engine.
        signals: Signals at the sites.
        jobs: Number of jobs J.
        free_w_S: Facility power of a free GPU, W; none: nothing is displaced.
        window_s: Time up to which free GPUs are charged, s.
    """
    amounts = 1 + len(signals.quantities)
    out = SettledPower(
        job_JA=zero_rows(jobs, np.float64, amounts),
        displaced_JA=zero_rows(jobs, np.float64, amounts),
        gpu_s_J=zero_rows(jobs, np.float64),
    )
    for part in parts(len(segments)):
        _settle_power(
            signals.cumulative_QSP,
            signals.factor_cumulative_SP,
            signals.part_s,
            np.array([quantity.watt_seconds for quantity in signals.quantities]),
            np.zeros(signals.cumulative_QSP.shape[1]) if free_w_S is None else free_w_S,
            window_s,
            segments.site_K[part],
            segments.job_K[part],
            segments.from_s_K[part],
            segments.to_s_K[part],
            segments.watts_K[part],
            segments.gpus_K[part],
            segments.rate_K[part],
            out.job_JA,
            out.displaced_JA,
            out.gpu_s_J,
        )
    return out


@kernel(allocates=False)
def _settle_power(
    cumulative_QSP: F8,
    factor_cumulative_SP: F8,
    part_s: float,
    watt_seconds_Q: F8,
    free_w_S: F8,
    window_s: float,
    site_K: I4,
    job_K: I4,
    from_s_K: F8,
    to_s_K: F8,
    watts_K: F8,
    gpus_K: I4,
    rate_K: F8,
    job_JA: F8,
    displaced_JA: F8,
    gpu_s_J: F8,
) -> None:
    """Adds every segment to its job: each amount as ``settle_segment`` reckons it."""
    for k in range(site_K.shape[0]):
        s, j, t0_s, t1_s = site_K[k], job_K[k], from_s_K[k], to_s_K[k]
        free_w = free_w_S[s] * gpus_K[k]
        until_s = min(t1_s, window_s)
        charged = until_s > t0_s
        rate = rate_K[k] if rate_K.shape[0] > 0 else 1.0
        gpu_s_J[j] += (t1_s - t0_s) * gpus_K[k] * rate
        job_JA[j, 0] += watts_K[k] * counted_s(factor_cumulative_SP, s, t0_s, t1_s, part_s) / WATT_SECONDS_PER_KWH
        if charged:
            displaced_JA[j, 0] += (
                free_w * counted_s(factor_cumulative_SP, s, t0_s, until_s, part_s) / WATT_SECONDS_PER_KWH
            )
        for q in range(cumulative_QSP.shape[0]):
            before = integral(cumulative_QSP[q, s], t0_s, part_s)
            drawn = integral(cumulative_QSP[q, s], t1_s, part_s) - before
            job_JA[j, 1 + q] += watts_K[k] * drawn / watt_seconds_Q[q]
            if charged:
                if until_s < t1_s:
                    drawn = integral(cumulative_QSP[q, s], until_s, part_s) - before
                displaced_JA[j, 1 + q] += free_w * drawn / watt_seconds_Q[q]


def settle_transfers(transfer_X: Records, links: Links, home_I: I8, signals: SiteSignals, jobs: int) -> tuple[F8, F8]:
    """Settles transfers per job, at the means of the hour each begins; an ingress point without a home has no signal.

    Args:
        transfer_X: TRANSFER records of any engine.
        links: Links between ingress points and sites.
        home_I: Site that an ingress point belongs to, or -1.
        signals: Signals at the sites.
        jobs: Number of jobs J.

    Returns:
        Own journeys and results of the jobs, each [J, A] with the amounts of ``SettledPower``. The USD are the links'
        own, which pay for the energy.
    """
    amounts = 1 + len(signals.quantities)
    own_JA, result_JA = zero_rows(jobs, np.float64, amounts), zero_rows(jobs, np.float64, amounts)
    watt_seconds_Q = np.array([quantity.watt_seconds for quantity in signals.quantities])
    for part in parts(len(transfer_X)):
        _settle_transfers(
            transfer_X[part], links.usd_per_gb_IS, links.kwh_per_gb_IS, home_I, signals.value_QSH, watt_seconds_Q,
            own_JA, result_JA,
        )  # fmt: skip
    return own_JA, result_JA


@kernel(allocates=False)
def _settle_transfers(
    transfer_X: Records,
    usd_per_gb_IS: F8,
    kwh_per_gb_IS: F8,
    home_I: I8,
    value_QSH: F8,
    watt_seconds_Q: F8,
    own_JA: F8,
    result_JA: F8,
) -> None:
    """Adds every transfer to its job: as ``settle_transfer`` reckons it, further signals like the carbon intensity."""
    for x in range(len(transfer_X)):
        one = transfer_X[x]
        i, s, j = one.ingress, one.site, one.job
        here = home_I[i] if home_I[i] >= 0 else s
        hour = min(int(one.time_s / HOUR_S), value_QSH.shape[2] - 1)
        kwh, usd, kg = settle_transfer(
            one.size_gb, usd_per_gb_IS[i, s], kwh_per_gb_IS[i, s], value_QSH[1, here, hour], value_QSH[1, s, hour]
        )
        out_JA = own_JA if one.kind == OWN_JOURNEY else result_JA
        out_JA[j, 0] += kwh
        out_JA[j, 1] += usd
        out_JA[j, 2] += kg
        for q in range(2, value_QSH.shape[0]):
            mean = 0.5 * (value_QSH[q, here, hour] + value_QSH[q, s, hour])
            out_JA[j, 1 + q] += kwh * mean * (WATT_SECONDS_PER_KWH / watt_seconds_Q[q])

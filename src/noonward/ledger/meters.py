"""Meters of sites: mean power by interval, from the segments of a run, and the lines that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8
from noonward.ledger.segments import Outcome, PowerSegments
from noonward.ledger.withheld import standing_power, switched_off
from noonward.model.cluster.meter import Meter
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH


@dataclass(frozen=True, kw_only=True)
class MeterLines:
    """What the meter of a site read over a run.

    Attributes:
        energy_kwh: Energy of the site, base load included, kWh.
        base_kwh: Energy of its base load, which no policy changes, kWh.
        peak_kw: Largest mean power of an interval, kW.
        load_factor: Mean power over the window and what follows it until the last interval with power, over the peak;
            NaN without any power.
        over_connection_kwh: Energy above the connection's power, kWh; 0 without a limit.
        over_connection_usd: Its price, USD.
    """

    energy_kwh: float
    base_kwh: float
    peak_kw: float
    load_factor: float
    over_connection_kwh: float
    over_connection_usd: float


def interval_joules(segments: PowerSegments, sites: int, interval_s: float, count: int) -> F8:
    """Returns the energy of power segments by site and interval, J, (sites, count); O(segments + intervals).

    Energy within the interval of a change of power is reckoned from the change on; the power after it is summed.

    Args:
        segments: Segments within ``[0, count x interval_s]``.
        sites: Number of sites.
        interval_s: Length of an interval, s.
        count: Number of intervals.

    Example:
        >>> zero, watts = np.zeros(1, np.int32), np.array([2.0])
        >>> one = PowerSegments(
        ...     site_K=zero, job_K=zero, from_s_K=np.array([30.0]), to_s_K=np.array([90.0]), watts_K=watts, gpus_K=zero
        ... )
        >>> interval_joules(one, 1, 60.0, 3).tolist()
        [[60.0, 60.0, 0.0]]
    """
    own, later = np.zeros((2, sites, count + 1))
    for time_s_K, watts_K in ((segments.from_s_K, segments.watts_K), (segments.to_s_K, -segments.watts_K)):
        at_K = (time_s_K / interval_s).astype(np.int64)
        np.add.at(own, (segments.site_K, at_K), watts_K * ((at_K + 1) * interval_s - time_s_K))
        np.add.at(later, (segments.site_K, np.minimum(at_K + 1, count)), watts_K)
    joules = own + interval_s * np.cumsum(later, axis=1)
    return np.asarray(joules[:, :count])


def interval_kw(outcome: Outcome, interval_s: float) -> F8:
    """Returns the mean power of every site by interval, kW, (sites, intervals), over all hours that a run may touch.

    P_s(t) = pue_s(t) [sum over jobs of their power + free GPUs' power] + base_s: running jobs with their stops and
    loads, jobs that were running before the run, free GPUs and the base load, the latter two within the window.

    Args:
        outcome: The run.
        interval_s: Length of an interval, s, a divisor of the hour.
    """
    environment = outcome.environment
    tables, window_s = environment.fleet.tables(1), environment.window_s
    per_hour = round(HOUR_S / interval_s)
    sites, count = len(environment.sites), environment.hours * per_hour
    free_w_S = tables.free_w_S * tables.pue_S
    power = outcome.occupied
    inside_K = power.from_s_K < window_s
    displaced = PowerSegments(
        site_K=power.site_K[inside_K],
        job_K=power.job_K[inside_K],
        from_s_K=power.from_s_K[inside_K],
        to_s_K=np.minimum(power.to_s_K[inside_K], window_s),
        watts_K=(power.gpus_K * free_w_S[power.site_K])[inside_K],
        gpus_K=power.gpus_K[inside_K],
    )
    inside_s_N = np.clip(window_s - np.arange(count) * interval_s, 0.0, interval_s)
    joules_SN = (tables.gpus_S * free_w_S)[:, None] * inside_s_N
    joules_SN += interval_joules(power, sites, interval_s, count)
    joules_SN -= interval_joules(displaced, sites, interval_s, count)
    for more, sign in ((standing_power(environment), 1.0), (switched_off(environment, power), -1.0)):
        if more is not None:
            joules_SN += sign * interval_joules(more, sites, interval_s, count)
    if environment.pue is not None:
        joules_SN *= np.repeat(environment.site_signals.factor_SH, per_hour, axis=1)
    kw_SN = joules_SN / interval_s / 1000.0
    for s, site in enumerate(environment.fleet.sites):
        if site.meter is not None:
            kw_SN[s] += base_kw(site.meter, window_s, interval_s, count)
    # Sums of many changes of power leave rounding errors where nothing is drawn.
    return np.asarray(np.where(np.abs(kw_SN) < 1e-9, 0.0, kw_SN))


def base_kw(meter: Meter, window_s: float, interval_s: float, count: int) -> F8:
    """Returns the mean base load of a site by interval, kW: it is there within the window."""
    return np.asarray(meter.base_kw * np.clip(window_s - np.arange(count) * interval_s, 0.0, interval_s) / interval_s)


def meter_lines(outcome: Outcome) -> dict[str, MeterLines]:
    """Returns what the meters of a run's sites read, by site; sites without a meter are left out."""
    environment = outcome.environment
    lines = {}
    kw_of: dict[float, F8] = {}
    for s, site in enumerate(environment.fleet.sites):
        if site.meter is None:
            continue
        interval_s = site.meter.interval_s
        if interval_s not in kw_of:
            kw_of[interval_s] = interval_kw(outcome, interval_s)
        lines[site.name] = _lines(kw_of[interval_s][s], site.meter, environment.window_s)
    return lines


def _lines(kw_N: F8, meter: Meter, window_s: float) -> MeterLines:
    """Returns what a meter read of its power by interval."""
    hours = meter.interval_s / HOUR_S
    drawn = np.flatnonzero(kw_N > 0)
    until_s = max(window_s, (int(drawn[-1]) + 1) * meter.interval_s if len(drawn) else 0.0)
    energy_kwh, peak_kw = float(kw_N.sum() * hours), float(kw_N.max())
    limit_kw = np.inf if meter.connection_kw is None else meter.connection_kw
    over_kwh = float(np.maximum(0.0, kw_N - limit_kw).sum() * hours)
    return MeterLines(
        energy_kwh=energy_kwh,
        base_kwh=meter.base_kw * 1000.0 * window_s / WATT_SECONDS_PER_KWH,
        peak_kw=peak_kw,
        load_factor=energy_kwh * HOUR_S / until_s / peak_kw if peak_kw > 0 else float("nan"),
        over_connection_kwh=over_kwh,
        over_connection_usd=over_kwh * meter.over_connection_usd_per_kwh,
    )

"""Meters of sites: mean power by interval, from the segments of a run, and the lines that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noonward.arrays import F8
from noonward.ledger.bill import bill_of, energy_price, metered_site, step_of
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
        energy_usd: Bill: energy of the site at its tariff's price, USD; like all of the bill NaN without a tariff.
        demand_usd: Bill: charges for the peaks of months, USD.
        coincident_usd: Bill: charges for power while the system peaked, USD.
        monthly_usd: Bill: fixed charges, USD.
        bill_usd: The bill, with the energy above the connection, USD.
        tariff_usd: What the bill adds to the energy of GPUs at the site's price, which the ledger counts already:
            base load, peaks, dearer blocks, fixed charges, USD; without a tariff the energy above the connection alone.
    """

    energy_kwh: float
    base_kwh: float
    peak_kw: float
    load_factor: float
    over_connection_kwh: float
    over_connection_usd: float
    energy_usd: float
    demand_usd: float
    coincident_usd: float
    monthly_usd: float
    bill_usd: float
    tariff_usd: float


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


def interval_kw(outcome: Outcome, interval_s: float, *, gpus_only: bool = False) -> F8:
    """Returns the mean power of every site by interval, kW, (sites, intervals), over all hours that a run may touch.

    P_s(t) = pue_s(t) [sum over jobs of their power + free GPUs' power] + base_s: running jobs with their stops and
    loads, jobs that were running before the run, free GPUs and the base load, the latter two within the window.

    Args:
        outcome: The run.
        interval_s: Length of an interval, s, a divisor of the hour.
        gpus_only: Whether to leave out base loads and jobs that were running before the run: what the ledger counts.
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
    standing = None if gpus_only else standing_power(environment)
    for more, sign in ((standing, 1.0), (switched_off(environment, power), -1.0)):
        if more is not None:
            joules_SN += sign * interval_joules(more, sites, interval_s, count)
    if environment.pue is not None:
        joules_SN *= np.repeat(environment.site_signals.factor_SH, per_hour, axis=1)
    kw_SN = joules_SN / interval_s / 1000.0
    for s, site in enumerate(environment.fleet.sites):
        if site.meter is not None and not gpus_only:
            kw_SN[s] += base_kw(site.meter, window_s, interval_s, count)
    # Sums of many changes of power leave rounding errors where nothing is drawn.
    return np.asarray(np.where(np.abs(kw_SN) < 1e-9, 0.0, kw_SN))


def base_kw(meter: Meter, window_s: float, interval_s: float, count: int) -> F8:
    """Returns the mean base load of a site by interval, kW: it is there within the window."""
    return np.asarray(meter.base_kw * np.clip(window_s - np.arange(count) * interval_s, 0.0, interval_s) / interval_s)


def meter_lines(outcome: Outcome) -> dict[str, MeterLines]:
    """Returns what the meters of a run's sites read, by site; sites without a meter are left out."""
    environment = outcome.environment
    kw_of: dict[tuple[float, bool], F8] = {}

    def kw_SN(step_s: float, *, gpus_only: bool = False) -> F8:
        key = (step_s, gpus_only)
        if key not in kw_of:
            kw_of[key] = interval_kw(outcome, step_s, gpus_only=gpus_only)
        return kw_of[key]

    lines = {}
    for s, site in enumerate(environment.fleet.sites):
        if site.meter is None:
            continue
        step_s = step_of(environment, site.meter)
        read = _read(kw_SN(step_s)[s], step_s, site.meter, environment.window_s)
        found = metered_site(environment, s)
        bill = dict.fromkeys(("energy_usd", "demand_usd", "coincident_usd", "monthly_usd", "bill_usd"), float("nan"))
        tariff_usd = read["over_connection_usd"]
        if found is not None:
            settled = bill_of(found, kw_SN(step_s)[s])
            gpus_kw_N = kw_SN(step_s, gpus_only=True)[s]
            counted_usd = float((gpus_kw_N * energy_price(environment, s, step_s)).sum() * step_s / HOUR_S / 1000.0)
            bill = {
                "energy_usd": settled.energy_usd,
                "demand_usd": settled.demand_usd,
                "coincident_usd": settled.coincident_usd,
                "monthly_usd": settled.fixed_usd,
                "bill_usd": settled.total_usd + read["over_connection_usd"],
            }
            tariff_usd = bill["bill_usd"] - counted_usd
        lines[site.name] = MeterLines(**read, **bill, tariff_usd=tariff_usd)
    return lines


def _read(kw_N: F8, step_s: float, meter: Meter, window_s: float) -> dict[str, float]:
    """Returns what a meter read of its power by interval, which is averaged over its own intervals."""
    kw_X = kw_N.reshape(-1, round(meter.interval_s / step_s)).mean(axis=1)
    hours = meter.interval_s / HOUR_S
    drawn = np.flatnonzero(kw_X > 0)
    until_s = max(window_s, (int(drawn[-1]) + 1) * meter.interval_s if len(drawn) else 0.0)
    energy_kwh, peak_kw = float(kw_X.sum() * hours), float(kw_X.max())
    limit_kw = np.inf if meter.connection_kw is None else meter.connection_kw
    over_kwh = float(np.maximum(0.0, kw_X - limit_kw).sum() * hours)
    return {
        "energy_kwh": energy_kwh,
        "base_kwh": meter.base_kw * 1000.0 * window_s / WATT_SECONDS_PER_KWH,
        "peak_kw": peak_kw,
        "load_factor": energy_kwh * HOUR_S / until_s / peak_kw if peak_kw > 0 else float("nan"),
        "over_connection_kwh": over_kwh,
        "over_connection_usd": over_kwh * meter.over_connection_usd_per_kwh,
    }

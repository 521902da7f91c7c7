"""Meters of sites: mean power by interval, from the segments of a run, and the lines that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.ledger.bill import MeteredSite, books_of, events_of, metered_site, step_of
from noonward.ledger.dispatch import Dispatch, dispatched, settled
from noonward.ledger.segments import Outcome, PowerSegments
from noonward.ledger.withheld import standing_power, switched_off
from noonward.model.cluster.books import CarbonBooks
from noonward.model.cluster.devices import Flows
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.event import EventTotals
from noonward.model.cluster.meter import Meter
from noonward.model.cluster.water import WATER_NAME, WaterUse
from noonward.units import HOUR_S, WATT_SECONDS_PER_KWH


@dataclass(frozen=True, kw_only=True)
class MeterLines:
    """What the meter of a site read over a run.

    Attributes:
        energy_kwh: Energy drawn from the grid, base load included, kWh.
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
        solar_kwh: Energy of solar cells that was used or exported, kWh.
        export_kwh: Energy delivered to the grid, kWh.
        charged_kwh: Energy put into the battery, kWh.
        discharged_kwh: Energy taken from it, kWh.
        wear_usd: Its wear, USD.
        export_usd: What was paid for exports, USD.
        job_pro_rata_usd: Energy of jobs at the mean price of the site's mix in each interval, USD; NaN without devices.
        job_marginal_usd: Energy of jobs at what a kWh more would have cost the site, peaks included, USD; NaN without
            devices.
        tariff_usd: What the bill, wear and exports add to the energy of GPUs at the site's price, which the ledger
            counts already:
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
    solar_kwh: float
    export_kwh: float
    charged_kwh: float
    discharged_kwh: float
    wear_usd: float
    export_usd: float
    job_pro_rata_usd: float
    job_marginal_usd: float
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
    """Returns the mean power of every site by interval, kW, (sites, intervals): ``power_kw`` of a run."""
    return power_kw(outcome.environment, outcome.occupied, interval_s, gpus_only=gpus_only)


def power_kw(environment: Environment, power: PowerSegments, interval_s: float, *, gpus_only: bool = False) -> F8:
    """Returns the mean power of every site by interval, kW, (sites, intervals), over all hours that a run may touch.

    P_s(t) = pue_s(t) [sum over jobs of their power + free GPUs' power] + base_s: running jobs with their stops and
    loads, jobs that were running before the run, free GPUs and the base load, the latter two within the window.

    Args:
        environment: What is run.
        power: Power of all GPUs that jobs occupy.
        interval_s: Length of an interval, s, a divisor of the hour.
        gpus_only: Whether to leave out base loads and jobs that were running before the run: what the ledger counts.
    """
    tables, window_s = environment.fleet.tables(1), environment.window_s
    per_hour = round(HOUR_S / interval_s)
    sites, count = len(environment.sites), environment.hours * per_hour
    free_w_S = tables.free_w_S * tables.pue_S
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


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the meter of a site read, and what follows from it.

    Attributes:
        lines: Its lines.
        events: Grid events at it; None without any.
        books: Its carbon books; None without a contract for a plant's output.
        water: What water it used; None where that is not stated.
    """

    lines: MeterLines
    events: EventTotals | None = None
    books: CarbonBooks | None = None
    water: WaterUse | None = None

    @property
    def added_usd(self) -> float:
        """What the site adds to the cost of a run beside the energy of its GPUs at its price, USD."""
        events_usd = 0.0 if self.events is None else self.events.penalty_usd - self.events.payment_usd
        return self.lines.tariff_usd + events_usd + (0.0 if self.books is None else self.books.ppa_usd)


def read_meters(outcome: Outcome) -> dict[str, Reading]:
    """Returns what the meters of a run's sites read, by site; sites without a meter are left out."""
    environment = outcome.environment
    kw_of: dict[tuple[float, bool], F8] = {}

    def kw_SN(step_s: float, *, gpus_only: bool = False) -> F8:
        key = (step_s, gpus_only)
        if key not in kw_of:
            kw_of[key] = interval_kw(outcome, step_s, gpus_only=gpus_only)
        return kw_of[key]

    readings = {}
    for s, site in enumerate(environment.fleet.sites):
        if site.meter is None:
            continue
        step_s = step_of(environment, site.meter)
        load_kw_N, found = kw_SN(step_s)[s], metered_site(environment, s)
        if found is None:
            read = _read(load_kw_N, environment.start, step_s, site.meter, environment.window_s)
            readings[site.name] = Reading(
                lines=MeterLines(**read, **_UNBILLED, tariff_usd=read["over_connection_usd"]),
                water=_water(environment, s, load_kw_N, load_kw_N, step_s),
            )
            continue
        gpus_kw_N = kw_SN(step_s, gpus_only=True)[s]
        counted_usd = float((gpus_kw_N * found.price_N).sum() * step_s / HOUR_S / 1000.0)
        flows, jobs = _unaided(load_kw_N), (float("nan"), float("nan"))
        if site.behind_meter is not None:
            best = dispatched(found, load_kw_N)
            flows, jobs = best.flows, _job_costs(outcome, s, found, best)
        readings[site.name] = Reading(
            lines=_billed(found, flows, jobs, counted_usd, environment.window_s),
            events=events_of(found, flows.grid_N),
            books=books_of(environment, s, found, flows.grid_N),
            water=_water(environment, s, load_kw_N, flows.grid_N, step_s),
        )
    return readings


_UNBILLED: Final = dict.fromkeys(
    ("energy_usd", "demand_usd", "coincident_usd", "monthly_usd", "bill_usd", "job_pro_rata_usd", "job_marginal_usd"),
    float("nan"),
) | dict.fromkeys(("solar_kwh", "export_kwh", "charged_kwh", "discharged_kwh", "wear_usd", "export_usd"), 0.0)
"""Lines of a meter without a tariff."""


def _unaided(load_kw_N: F8) -> Flows:
    """Returns the flows of a site that has nothing behind its meter."""
    none_N = np.zeros(len(load_kw_N))
    return Flows(load_kw_N, load_kw_N, none_N, none_N, none_N, none_N)


def _billed(
    site: MeteredSite, flows: Flows, jobs: tuple[float, float], counted_usd: float, window_s: float
) -> MeterLines:
    """Returns the lines of a meter with a tariff.

    Args:
        site: Site.
        flows: Power by interval.
        jobs: Energy of jobs pro rata and at the margin, USD.
        counted_usd: Energy of GPUs that the ledger counts, USD.
        window_s: Length of the window, s.
    """
    bill, over_usd, wear_usd, export_usd = settled(site, flows)
    hours = site.calendar.step_h
    solar_kwh = 0.0 if site.behind.solar is None else site.behind.solar.settle(flows.solar_N, hours)
    return MeterLines(
        **_read(flows.grid_N, site.calendar.start, site.calendar.step_s, site.meter, window_s),
        energy_usd=bill.energy_usd,
        demand_usd=bill.demand_usd,
        coincident_usd=bill.coincident_usd,
        monthly_usd=bill.fixed_usd,
        bill_usd=bill.total_usd + over_usd,
        solar_kwh=solar_kwh,
        export_kwh=float(flows.export_N.sum() * hours),
        charged_kwh=float(flows.charge_N.sum() * hours),
        discharged_kwh=float(flows.discharge_N.sum() * hours),
        wear_usd=wear_usd,
        export_usd=export_usd,
        job_pro_rata_usd=jobs[0],
        job_marginal_usd=jobs[1],
        tariff_usd=bill.total_usd + over_usd + wear_usd - export_usd - counted_usd,
    )


def _job_costs(outcome: Outcome, s: int, site: MeteredSite, best: Dispatch) -> tuple[float, float]:
    """Returns the energy of a site's jobs at the mean price of its mix, and at the margin, USD."""
    environment, step_s, hours = outcome.environment, site.calendar.step_s, site.calendar.step_h
    count = len(site.calendar)
    job_kw_N = interval_joules(outcome.occupied, len(environment.sites), step_s, count)[s] / step_s / 1000.0
    if environment.pue is not None:
        job_kw_N = job_kw_N * np.repeat(environment.site_signals.factor_SH[s], round(HOUR_S / step_s))
    flows, battery = best.flows, site.behind.battery
    wear = 0.0 if battery is None else battery.usd_per_mwh_through
    paid_for_N = 0.0 if site.behind.export is None else flows.export_N * site.export_price_N
    mix_N = flows.grid_N * site.price_N - paid_for_N + flows.discharge_N * wear
    share_N = np.divide(job_kw_N, flows.load_N, out=np.zeros(count), where=flows.load_N > 0)
    pro_rata_usd = float((share_N * mix_N).sum() * hours / 1000.0)
    return pro_rata_usd, float((job_kw_N * best.price_N).sum() * hours / 1000.0)


def _water(environment: Environment, s: int, load_kw_N: F8, grid_kw_N: F8, step_s: float) -> WaterUse | None:
    """Returns the water of a site; None where its scenario states none.

    Args:
        environment: What was run.
        s: Position of the site.
        load_kw_N: Its load by interval, base load included, kW.
        grid_kw_N: Power drawn from the grid, kW.
        step_s: Length of an interval, s.
    """
    site, signals = environment.fleet.sites[s], environment.signals
    if site.water is None or site.meter is None or environment.water is None:
        return None
    hours, steps = environment.hours, round(HOUR_S / step_s)
    load_kwh_H, grid_kwh_H = (kw_N.reshape(hours, steps).mean(axis=1) for kw_N in (load_kw_N, grid_kw_N))
    pue_H = np.full(hours, site.pue)
    if environment.pue is not None:
        pue_H = pue_H * environment.site_signals.factor_SH[s]
    it_kwh_H = (load_kwh_H - base_kw(site.meter, environment.window_s, HOUR_S, hours)) / pue_H
    grid_l_H = np.full(hours, np.nan if site.water.grid_l_per_kwh is None else site.water.grid_l_per_kwh)
    if site.water.grid_l_per_kwh is None and signals is not None and WATER_NAME in signals.value_ZH:
        grid_l_H = signals.window(environment.start, hours).by_part(WATER_NAME, site.zone, 1)
    return WaterUse.of(it_kwh_H, grid_kwh_H, environment.water.l_per_kwh_SH[s, :hours], grid_l_H)


def _read(kw_N: F8, start: datetime, step_s: float, meter: Meter, window_s: float) -> dict[str, float]:
    """Returns what a meter read of the power drawn from the grid, which is averaged over its own intervals."""
    kw_X = meter.averaged(kw_N, step_s)
    drawn = np.flatnonzero(kw_X > 0)
    until_s = max(window_s, (int(drawn[-1]) + 1) * meter.interval_s if len(drawn) else 0.0)
    energy_kwh, peak_kw = float(kw_X.sum() * meter.interval_s / HOUR_S), float(kw_X.max())
    return {
        "energy_kwh": energy_kwh,
        "base_kwh": meter.base_kw * 1000.0 * window_s / WATT_SECONDS_PER_KWH,
        "peak_kw": peak_kw,
        "load_factor": energy_kwh * HOUR_S / until_s / peak_kw if peak_kw > 0 else float("nan"),
        "over_connection_kwh": meter.over_kwh(kw_N, start, step_s),
        "over_connection_usd": meter.settle(kw_N, start, step_s),
    }

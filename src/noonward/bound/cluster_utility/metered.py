"""Upper bound on the utility with meters: tariffs, peaks, connections and devices priced by their duals.

A schedule earns U0(x) - sum over sites of C_s(L_s(x)): what it earns before the energy of metered sites, less the least
cost of each site's load L by its tariff and devices (``ledger.dispatch``). For any prices p of that load, USD/kWh,

    max_x [U0 - sum_s C_s(L_s)] <= max_x [U0 - sum_s p_s L_s] - sum_s min_L [C_s(L) - p_s L],

by Fenchel's inequality. The first part is the bound without meters at the prices p, the second a linear program per
site. Prices are the duals of a site's program at a load; those of a demand charge are at least 0 and sum to at most its
rate over the intervals of a month: they lie on its simplex. Loads are averaged from step to step (Frank and Wolfe
1956), which makes the prices those at which schedules and charges agree. System peaks count as known.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.primal import BookedSchedule
from noonward.errors import ScenarioError
from noonward.ledger.bill import MeteredSite, metered_site
from noonward.ledger.dispatch import add_site, balance, dispatched
from noonward.ledger.meters import base_kw, interval_joules, power_kw
from noonward.ledger.segments import PowerSegments
from noonward.ledger.withheld import standing_power
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.program import Program
from noonward.model.cluster.site_prices import StatedPrices
from noonward.units import HOUR_S

STEPS: Final = 6
"""Prices that are tried."""
LEAST_LOAD: Final = 1e-5
"""Least load that prices are read at, as a share of the most that a site's GPUs draw."""


@dataclass(frozen=True, kw_only=True)
class MeteredBound:
    """What no scheduler can exceed where sites have tariffs and devices.

    Attributes:
        upper_usd: Upper bound on the ledger's utility, USD.
        lower_usd: Utility of the best schedule found, its devices dispatched, USD; NaN without one.
        steps: Prices tried.
        cut: Whether the seconds given ran out.
    """

    upper_usd: float
    lower_usd: float
    steps: int
    cut: bool

    @property
    def gap_usd(self) -> float:
        """Optimality gap: the optimum lies between ``lower_usd`` and this much above it, USD."""
        return self.upper_usd - self.lower_usd


def require_unbilled(environment: Environment, what: str) -> None:
    """Raises ScenarioError if a site has a tariff, which a bound does not know.

    Args:
        environment: Environment.
        what: The bound, for the message.
    """
    if environment.fleet.billed:
        raise ScenarioError(
            f"{what} does not know tariffs, and a site of scenario {environment.scenario!r} has one; use 'noonward "
            "bound' without that option, or leave out the tariff: --set fleet.sites.0.meter=null"
        )


def metered_bound(
    environment: Environment, *, steps: int = STEPS, seconds: float | None = None, **options: Any
) -> MeteredBound:
    """Bounds the utility any scheduler can reach where sites have tariffs and devices.

    Args:
        environment: Environment with economics and signals, ``end: drained``.
        steps: Prices to try, at least 1; each gives a bound, and the least counts.
        seconds: Seconds after which no further step is begun; None: none is left out.
        options: Further arguments of ``utility_bound``.

    Raises:
        ScenarioError: No site has a tariff, or as ``utility_bound``.
    """
    if steps < 1 or not environment.fleet.billed:
        raise ScenarioError(f"a bound with meters takes at least 1 step ({steps}) and a site with a tariff")
    end_s = np.inf if seconds is None else time.monotonic() + seconds
    sites = {s: _Site.of(environment, s) for s in range(len(environment.sites)) if environment.fleet.tariff_of(s)}
    load_of = {s: one.fixed_kw_N for s, one in sites.items()}
    upper_usd, lower_usd, done = np.inf, -np.inf, 0
    while done < steps and (not done or time.monotonic() < end_s):
        # At no load at all the duals say nothing of what a first kWh costs.
        price_of = {
            s: dispatched(one.site, np.maximum(load_of[s], LEAST_LOAD * one.most_kw_N)).price_N
            for s, one in sites.items()
        }
        left = None if seconds is None else max(end_s - time.monotonic(), 0.0)
        found = utility_bound(_priced(environment, sites, price_of), seconds=left, **options)
        monthly_usd = sum(one.monthly_usd for one in sites.values())
        least_usd = sum(one.least_usd(price_of[s]) for s, one in sites.items())
        upper_usd = min(upper_usd, found.upper_usd - least_usd - monthly_usd)
        done += 1
        if found.schedule is None:
            break
        drawn = {s: one.drawn_kw(environment, s, found.schedule) for s, one in sites.items()}
        cost_usd = sum(dispatched(one.site, drawn[s] + one.fixed_kw_N).cost_usd for s, one in sites.items())
        priced_usd = sum(float(price_of[s] @ drawn[s]) * one.site.calendar.step_h / 1000 for s, one in sites.items())
        lower_usd = max(lower_usd, found.lower_usd + priced_usd - cost_usd - monthly_usd)
        for s, one in sites.items():
            load_of[s] = load_of[s] + (drawn[s] + one.fixed_kw_N - load_of[s]) / done
    return MeteredBound(
        upper_usd=float(upper_usd),
        lower_usd=float(lower_usd) if np.isfinite(lower_usd) else float("nan"),
        steps=done,
        cut=done < steps and time.monotonic() >= end_s,
    )


@dataclass(frozen=True, kw_only=True)
class _Site:
    """A metered site: what it draws whatever is scheduled, and the most that its GPUs draw, kW by interval."""

    site: MeteredSite
    fixed_kw_N: F8
    most_kw_N: F8

    @classmethod
    def of(cls, environment: Environment, s: int) -> _Site:
        """Returns a site of an environment."""
        site = metered_site(environment, s)
        assert site is not None, "only sites with a tariff are asked for"
        step_s, count = site.calendar.step_s, len(site.calendar)
        tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
        gangs = np.arange(tables.power_w_SCGF.shape[2])[1:, None]
        busiest_w = max(float(np.nanmax(tables.power_w_SCGF[s, :, 1:] / gangs)), float(tables.free_w_S[s]))
        factor_N = np.ones(count)
        if environment.pue is not None:
            factor_N = np.repeat(environment.site_signals.factor_SH[s], round(HOUR_S / step_s))
        fixed_kw_N = base_kw(site.meter, environment.window_s, step_s, count)
        standing = standing_power(environment)
        if standing is not None:
            joules_SN = interval_joules(standing, len(environment.sites), step_s, count)
            fixed_kw_N = fixed_kw_N + joules_SN[s] / step_s / 1000.0 * factor_N
        most_kw = float(tables.gpus_S[s] * busiest_w * tables.pue_S[s]) / 1000.0
        return cls(site=site, fixed_kw_N=fixed_kw_N, most_kw_N=most_kw * factor_N)

    @property
    def monthly_usd(self) -> float:
        """Fixed charges, USD."""
        return float(self.site.tariff.usd_per_month * self.site.calendar.share_M.sum())

    def least_usd(self, price_N: F8) -> float:
        """Returns the least of a load's cost less what it pays at some prices, over all loads of its GPUs, USD."""
        program, hours = Program(), self.site.calendar.step_h
        columns = add_site(program, self.site, float((self.most_kw_N + self.fixed_kw_N).max()))
        gpus_N = program.columns(len(price_N), -price_N * hours / 1000.0, upper=self.most_kw_N)
        program.rows(len(price_N), [*balance(columns), (gpus_N, -1.0)], lower=self.fixed_kw_N, upper=self.fixed_kw_N)
        return program.solved("least cost of a metered load").value

    def drawn_kw(self, environment: Environment, s: int, schedule: BookedSchedule) -> F8:
        """Returns the power of the site's GPUs under a schedule, kW by interval."""
        power = scheduled_power(environment, schedule)
        return np.asarray(power_kw(environment, power, self.site.calendar.step_s, gpus_only=True)[s])


def scheduled_power(environment: Environment, schedule: BookedSchedule) -> PowerSegments:
    """Returns the power of the jobs that a schedule runs."""
    jobs = environment.jobs
    tables = environment.fleet.tables(int(jobs.gpus_max_J.max()))
    job_K = np.flatnonzero(schedule.site_J >= 0)
    at = (schedule.site_J[job_K], jobs.class_J[job_K], schedule.gpus_J[job_K], schedule.level_J[job_K])
    start_s_K = schedule.start_s_J[job_K]
    return PowerSegments(
        site_K=schedule.site_J[job_K].astype(np.int32),
        job_K=job_K.astype(np.int32),
        from_s_K=start_s_K,
        to_s_K=start_s_K + jobs.work_J[job_K] * tables.seconds_per_unit_SCGF[at],
        watts_K=tables.power_w_SCGF[at] * tables.pue_S[schedule.site_J[job_K]],
        gpus_K=schedule.gpus_J[job_K].astype(np.int32),
    )


def _priced(environment: Environment, sites: dict[int, _Site], price_of: dict[int, F8]) -> Environment:
    """Returns the environment in which energy of the metered sites has some prices."""
    parts = int(np.lcm.reduce([round(HOUR_S / one.site.calendar.step_s) for one in sites.values()]))
    price_SP = np.full((len(environment.sites), environment.hours * parts), np.nan)
    for s, one in sites.items():
        price_SP[s] = np.repeat(price_of[s], price_SP.shape[1] // len(one.site.calendar))
    return replace(
        environment, stated_prices=StatedPrices(price_SP=price_SP, parts_per_hour=parts, others=environment.prices)
    )

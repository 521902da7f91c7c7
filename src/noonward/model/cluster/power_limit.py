"""Hard connections: the power that a site's GPUs may draw when a job starts there, and the GPUs that fit into it.

The engine masks starts by it, in simulations and live; bounds reckon the most GPUs that may run within it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from noonward.arrays import F8
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import FleetTables
from noonward.model.cluster.setting import Setting
from noonward.model.cluster.withheld import StandingJobs, Withheld
from noonward.units import HOUR_S

W_PER_KW = 1000.0


def limit_w(setting: Setting, time_s_X: F8, standing: StandingJobs | None = None) -> F8:
    """Returns the most power that the GPUs of the sites may draw at some times when a job starts, W, (X, S).

    ``(connection - base load) / factor of the hour - power of jobs that were running before the run``: as the engine
    reckons power, which is at the one PUE of the site. Whole W, at least 0; infinite at sites without a hard
    connection.

    Args:
        setting: Setting of a run.
        time_s_X: Times since its start, at least 0, s.
        standing: Jobs that were running before it.
    """
    sites = setting.fleet.sites
    watts_XS = np.full((len(time_s_X), len(sites)), np.inf)
    for s, site in enumerate(sites):
        if site.meter is None or not site.meter.hard_connection:
            continue
        watts_X = W_PER_KW * (site.meter.connection_at(setting.start, time_s_X) - site.meter.base_kw)
        if setting.pue is not None:
            hour_X = np.floor(time_s_X / HOUR_S).astype(int).tolist()
            hour_s = [setting.start + timedelta(hours=hour) for hour in hour_X]
            watts_X = watts_X / np.array([setting.pue.window(each, 1)[s, 0] for each in hour_s])
        if standing is not None:
            stands_XJ = (standing.site_J == s) & (time_s_X[:, None] < standing.end_s_J)
            watts_X = watts_X - stands_XJ @ standing.power_w_J
        watts_XS[:, s] = np.floor(np.maximum(watts_X, 0.0))
    return watts_XS


@dataclass(frozen=True, kw_only=True)
class PowerSteps:
    """Power limits of the sites over a run, as steps of time. Axes: K steps, S sites.

    Attributes:
        from_s_K: When the steps begin, seconds since the run's start, ascending, the first at 0.
        watts_KS: Limits from then on, W (``limit_w``).
    """

    from_s_K: F8
    watts_KS: F8

    @classmethod
    def of(cls, environment: Environment) -> PowerSteps | None:
        """Returns the limits of an environment; None where no site has a hard connection."""
        meters = [site.meter for site in environment.fleet.sites]
        hard = [meter for meter in meters if meter is not None and meter.hard_connection]
        if not hard:
            return None
        end_s = HOUR_S * environment.hours
        times_s = [(step.from_ - environment.start).total_seconds() for meter in hard for step in meter.connection]
        if environment.pue is not None:
            times_s += (HOUR_S * np.arange(environment.hours)).tolist()
        if environment.standing is not None:
            times_s += environment.standing.end_s_J.tolist()
        from_s_K = np.unique([0.0, *(time_s for time_s in times_s if 0 < time_s <= end_s)])
        return cls(from_s_K=from_s_K, watts_KS=limit_w(environment, from_s_K, environment.standing))


def within_power(environment: Environment, tables: FleetTables, *, surely: bool) -> Withheld | None:
    """Returns the GPUs that no job may take: withheld ones, and those for which hard connections leave no power.

    Of g GPUs that are there, n run within a limit L where ``n busy + (g - n) free <= L``, powers per GPU.

    Args:
        environment: Environment.
        tables: Tables of its fleet.
        surely: Whether any n of the jobs' gangs fit, ``busy`` being the most that one draws per GPU; else n is the most
            that may ever fit, ``busy`` being the least. The latter leaves limits out where running jobs may be stopped
            or capped, which then draw less.
    """
    steps, withheld = PowerSteps.of(environment), environment.unavailable
    if steps is None or (not surely and environment.fleet.freedoms):
        return withheld
    from_s_K = steps.from_s_K if withheld is None else np.union1d(steps.from_s_K, withheld.from_s_K)
    watts_KS = steps.watts_KS[np.searchsorted(steps.from_s_K, from_s_K, side="right") - 1]
    there_KS = np.repeat(tables.gpus_S[None], len(from_s_K), axis=0)
    if withheld is not None:
        there_KS = there_KS - withheld.at(from_s_K)
    gangs_G = np.arange(1, tables.power_w_SCGF.shape[2])[:, None]
    busy_w_SCGF = tables.power_w_SCGF[:, np.unique(environment.jobs.class_J), 1:] / gangs_G
    busy_w_S = (np.nanmax if surely else np.nanmin)(busy_w_SCGF, axis=(1, 2, 3)) * tables.pue_S
    free_w_S = tables.free_w_S * tables.pue_S
    more_w_S = busy_w_S - free_w_S
    spare_w_KS = watts_KS - there_KS * free_w_S
    fit_KS = np.where(spare_w_KS >= 0, np.inf, 0.0 if surely else np.inf)
    np.divide(spare_w_KS, more_w_S, out=fit_KS, where=(more_w_S > 0) & np.isfinite(spare_w_KS))
    run_KS = np.clip(np.floor(fit_KS + 1e-9), 0, there_KS)
    return Withheld(from_s_K=from_s_K, gpus_KS=tables.gpus_S - run_KS.astype(np.int64))

"""Lateness without a price: the bound of schedules that are as late as what happened at most."""

from __future__ import annotations

import math

import numpy as np

from noonward.bound.cluster_utility.columns import market
from noonward.ledger.ledger import weighed_lateness
from noonward.model.cluster.environment import Environment
from noonward.units import HOUR_S, WATT_SECONDS_PER_MWH


def late_gpu_hours_recorded(environment: Environment) -> float:
    """Returns how late the jobs of a log started in all, times their smallest gangs, GPU h; as the ledger counts it.

    NaN where the bound needs no limit of lateness, or has none: late jobs are dropped or pay, or no start is recorded.
    """
    jobs = environment.jobs
    if environment.late_until_s == -np.inf or environment.late_usd_per_gpu_hour > 0 or not jobs.has_record:
        return math.nan
    late_s_J = jobs.recorded_start_s_J - jobs.deadline_s_J
    return float(weighed_lateness(jobs, late_s_J).sum())


def late_usd_in_bound(environment: Environment) -> float:
    """Returns a price at which lateness hardly pays: what a GPU-hour of energy and carbon costs on average, USD.

    At any price p >= 0, a schedule that is late by at most L GPU-hours is worth at most p L more than where lateness
    costs p, so that bound and p L together bound it (Lagrangian relaxation of the limit).
    """
    tables = environment.fleet.tables(1)
    costs = market(environment, tables)
    usd_per_w_s_S = costs.weight_cumulative_SP[:, -1] / (
        costs.part_s * (costs.weight_cumulative_SP.shape[1] - 1) * WATT_SECONDS_PER_MWH
    )
    power_w_S = tables.pue_S * np.nanmax(tables.power_w_SCGF[:, :, 1], axis=(1, 2))
    return max(0.0, float(np.mean(usd_per_w_s_S * power_w_S) * HOUR_S))

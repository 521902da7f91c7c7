"""A learned price of capacity: a small net of the forecast cost of energy at a site and in the fleet, hour by hour.

The price stands for what else the GPU-hours of a cheap hour could earn. It was fitted to the capacity duals of training
windows (``bound.cluster_utility``), so a plan needs no dual of its own. Costs and prices are shares of the revenue of a
GPU-hour, so that a net fits fleets of other prices; nothing in it names or counts sites.
"""

from __future__ import annotations

import numpy as np

from noonward.arrays import F4, F8
from noonward.compiled import kernel
from noonward.decision.cluster.value import energy_usd
from noonward.decision.cluster.view import CARBON, POWER_W, ClusterView, RuleMemory
from noonward.decision.cluster.view import PRICE as SIGNAL_PRICE
from noonward.schedule.cluster.choices.layout import (
    COST,
    ENERGY,
    HOUR,
    PAID,
    PRICE,
    PRICE_AT,
    PRICE_HIDDEN,
    PRICE_INPUTS,
    PRICE_SCALE,
    START_H,
    WINDOW_S,
)
from noonward.schedule.nets import layer
from noonward.units import DAY_H, HOUR_S

PRICED_H = 120
"""Hours ahead that have prices; none are expected further ahead."""
UNIT = 0.4
"""Price at which the net's softplus is 1, share of the revenue."""


@kernel(inline=True, allocates=False)
def extra_w_per_gpu(view: ClusterView, s: int) -> float:
    """Returns the facility power that a busy GPU adds to a free one at a site, W."""
    level = view.oracle_SCG[s, 0, 1]
    return view.site_S[s].pue * (view.speed_KSCGF[POWER_W, s, 0, 1, level] - view.site_S[s].free_w)


@kernel(allocates=False)
def write_costs(view: ClusterView, table_XY: F8) -> None:
    """Writes the forecast cost of energy of all hours ahead: integrals (USD per W) and shares of the revenue.

    Hours that are not forecast repeat the last day's.
    """
    sites, hours = view.site_S.shape[0], table_XY.shape[1]
    forecast_KSL, fleet = view.forecast_KSL, 4 * sites
    gpus = 0.0
    for s in range(sites):
        gpus += view.site_S[s].gpus
    for hour in range(hours):
        table_XY[fleet, hour] = 0.0
    for s in range(sites):
        known = 0
        while known < forecast_KSL.shape[2] - 1 and np.isfinite(
            forecast_KSL[SIGNAL_PRICE, s, known + 1] + forecast_KSL[CARBON, s, known + 1]
        ):
            known += 1
        day = min(DAY_H, known)
        share = extra_w_per_gpu(view, s) / view.run_1[0].revenue_usd_per_gpu_hour
        total = 0.0
        for hour in range(hours):
            lead = hour if hour < known else known - day + (hour - known) % day
            price = forecast_KSL[SIGNAL_PRICE, s, lead + 1] - forecast_KSL[SIGNAL_PRICE, s, lead]
            carbon = forecast_KSL[CARBON, s, lead + 1] - forecast_KSL[CARBON, s, lead]
            usd = energy_usd(view, price, carbon)
            table_XY[ENERGY * sites + s, hour] = total
            table_XY[COST * sites + s, hour] = share * usd
            table_XY[fleet, hour] += share * usd * view.site_S[s].gpus / gpus
            total += usd


@kernel(inline=True, allocates=False)
def mean_of_row(table_XY: F8, row: int, first: int, until: int) -> float:
    """Returns the mean of a row's entries from one hour up to another, as far as the row reaches."""
    until = min(table_XY.shape[1], until)
    total = 0.0
    for hour in range(first, until):
        total += table_XY[row, hour]
    return total / (until - first)


@kernel(inline=True, allocates=False)
def write_price_inputs(
    view: ClusterView, table_XY: F8, s: int, hour: int, left_h: float, day_h: float, x_I: F4
) -> None:
    """Writes what the price net is fed about a site's hour.

    These are its cost and the fleet's, the means of both over the 6, 12 and 24 hours from it on, what is left of the
    window, whether that has ended, and the time of day.

    Args:
        view: View.
        table_XY: Costs (``write_costs``).
        s: Site.
        hour: Hours ahead.
        left_h: Hours from the current hour to the window's end; infinite for a service.
        day_h: Hour of day of the current hour, UTC.
        x_I: Written.
    """
    sites = view.site_S.shape[0]
    row, fleet = COST * sites + s, 4 * sites
    x_I[0], x_I[1] = table_XY[row, hour], table_XY[fleet, hour]
    at = 2
    for span in (6, 12, 24):
        x_I[at] = mean_of_row(table_XY, row, hour, hour + span)
        x_I[at + 1] = mean_of_row(table_XY, fleet, hour, hour + span)
        at += 2
    x_I[8] = min(2.0, max(-1.0, (left_h - hour) / DAY_H))
    x_I[9] = 1.0 if hour >= left_h else 0.0
    angle = 2.0 * np.pi * (day_h + hour) / DAY_H
    x_I[10], x_I[11] = np.sin(angle), np.cos(angle)


@kernel(allocates=False)
def price_inputs(view: ClusterView, table_XY: F8, left_h: float, day_h: float, x_HSI: F4) -> None:
    """Writes what the price net is fed about the next hours of all sites; arguments as ``write_price_inputs``."""
    for hour in range(x_HSI.shape[0]):
        for s in range(view.site_S.shape[0]):
            write_price_inputs(view, table_XY, s, hour, left_h, day_h, x_HSI[hour, s])


@kernel(inline=True, allocates=False)
def _softplus(x: float) -> float:
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@kernel(inline=True, allocates=False)
def _net_share(
    view: ClusterView,
    table_XY: F8,
    weight_W: F4,
    at: int,
    hidden: int,
    s: int,
    hour: int,
    left_h: float,
    day_h: float,
    x_I: F4,
    y_I: F4,
    z_I: F4,
) -> float:
    """Returns the net's price of a site's hour, share of the revenue; arguments as in ``write_net_prices``."""
    write_price_inputs(view, table_XY, s, hour, left_h, day_h, x_I)
    following = layer(weight_W, at, PRICE_INPUTS, hidden, x_I, y_I, True)
    layer(weight_W, following, hidden, 1, y_I, z_I, False)
    return _softplus(z_I[0])


@kernel(allocates=False)
def write_net_prices(
    view: ClusterView,
    table_XY: F8,
    weight_W: F4,
    at: int,
    hidden: int,
    left_h: float,
    day_h: float,
    x_I: F4,
    y_I: F4,
    z_I: F4,
    price_SH: F8,
) -> None:
    """Writes the net's prices of the hours ahead, USD per GPU-hour.

    Args:
        view: View.
        table_XY: Costs (``write_costs``).
        weight_W: Weights of nets.
        at: Where the price net's begin.
        hidden: Units of its layer.
        left_h: Hours from the current hour to the window's end; infinite for a service.
        day_h: Hour of day of the current hour, UTC.
        x_I: Room for its inputs.
        y_I: Room for its layer.
        z_I: Room for its output.
        price_SH: Written.
    """
    for s in range(price_SH.shape[0]):
        for hour in range(price_SH.shape[1]):
            share = _net_share(view, table_XY, weight_W, at, hidden, s, hour, left_h, day_h, x_I, y_I, z_I)
            price_SH[s, hour] = UNIT * share * view.run_1[0].revenue_usd_per_gpu_hour


@kernel(inline=True, allocates=False)
def renew_prices(view: ClusterView, memory: RuleMemory, x_I: F4, y_I: F4, z_I: F4) -> None:
    """Writes costs and prices of the hours ahead at the turn of an hour."""
    sites, table_XY, numbers = view.site_S.shape[0], memory.table_XY, memory.number_P
    write_costs(view, table_XY)
    zero_s = view.run_1[0].now_s // HOUR_S * HOUR_S
    numbers[HOUR] = zero_s / HOUR_S
    left_h, day_h = (numbers[WINDOW_S] - zero_s) / HOUR_S, numbers[START_H] + zero_s / HOUR_S
    at, hidden = int(numbers[PRICE_AT]), int(numbers[PRICE_HIDDEN])
    scale = UNIT * numbers[PRICE_SCALE]
    for s in range(sites):
        total = 0.0
        for hour in range(table_XY.shape[1]):
            price = 0.0
            if hour < PRICED_H and scale > 0.0:
                weight_W = memory.weight_W
                price = scale * _net_share(view, table_XY, weight_W, at, hidden, s, hour, left_h, day_h, x_I, y_I, z_I)
            table_XY[PRICE * sites + s, hour] = price
            table_XY[PAID * sites + s, hour] = total
            total += price * view.run_1[0].revenue_usd_per_gpu_hour

"""Power caps as bid prices choose them: that under which a run costs least, its longer use of GPUs included."""

from __future__ import annotations

from typing import Any, Final

from noonward.arrays import F8
from noonward.compiled import kernel
from noonward.decision.cluster.view import ClusterView

MARGIN: Final = 0.03
"""What a GPU-hour that a cap adds to a run must save beyond its price, as a share of what a GPU-hour earns: prices are
forecasts, and where they are 0 the lowest cap would hold GPUs for hours to save next to nothing."""


@kernel(inline=True, allocates=False)
def at(sum_SR: F8, site: int, lead_h: float) -> float:
    """Returns a running integral, as in ``Prices``, at a lead."""
    hour = int(lead_h)
    below = sum_SR[site, hour]
    return below + (sum_SR[site, hour + 1] - below) * (lead_h - hour)


@kernel(inline=True, allocates=False)
def capped_power_w(view: ClusterView, option: Any, site: int, cap: int) -> float:
    """Returns the facility power that a run under a cap of its class adds to that of its free GPUs, W.

    Args:
        view: View.
        option: OPTION of the run at full power.
        site: Site.
        cap: Cap; 0 is full power.
    """
    if cap == 0:
        return float(option.power_w)
    idle_w = view.site_S[site].pue * option.gpus * view.site_S[site].free_w
    return float(view.freedom_C[option.class_].cap_power[cap] * (option.power_w + idle_w) - idle_w)


@kernel(inline=True, allocates=False)
def run_usd(view: ClusterView, paid_SR: F8, energy_SR: F8, option: Any, site: int, start_h: float, cap: int) -> float:
    """Returns what a run under a cap from a start on costs for energy and GPUs, USD; 0 is full power.

    It is ``power_k x energy + GPUs x (price + margin)`` over ``run / throughput_k`` hours for cap k, as in the bound
    with caps for a cap that stays. Arguments as in ``best_cap``.
    """
    run_h = option.run_h / view.freedom_C[option.class_].cap_rate[cap]
    energy = at(energy_SR, site, start_h + run_h) - at(energy_SR, site, start_h)
    paid = at(paid_SR, site, start_h + run_h) - at(paid_SR, site, start_h)
    margin = MARGIN * view.run_1[0].revenue_usd_per_gpu_hour
    return capped_power_w(view, option, site, cap) * energy + option.gpus * (paid + margin * run_h)


@kernel(inline=True, allocates=False)
def best_cap(
    view: ClusterView, paid_SR: F8, energy_SR: F8, option: Any, site: int, start_h: float, most_h: float
) -> int:
    """Returns the cap under which a run from a start on costs least (``run_usd``); 0 is full power.

    Args:
        view: View.
        paid_SR: Running integral of the prices, as in ``Prices``.
        energy_SR: Running integral of the cost of energy and carbon, as in ``Prices``.
        option: OPTION of the run at full power.
        site: Site.
        start_h: Start, h from the start of the current hour.
        most_h: Longest run under a cap that slack and room allow, h.
    """
    freedom, best, least = view.freedom_C[option.class_], 0, 0.0
    most_h = min(most_h, paid_SR.shape[1] - 2.0 - start_h)
    for cap in range(freedom.caps + 1):
        if cap > 0 and option.run_h / freedom.cap_rate[cap] > most_h:
            break
        usd = run_usd(view, paid_SR, energy_SR, option, site, start_h, cap)
        if cap == 0 or usd < least:
            best, least = cap, usd
    return best

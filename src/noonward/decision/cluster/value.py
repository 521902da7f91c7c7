"""What running or moving a job is worth, as rules reckon it (the ledger alone settles what it was worth)."""

from __future__ import annotations

from typing import Final

from noonward.compiled import kernel
from noonward.decision.cluster.view import CARBON, POWER_W, PRICE, SECONDS, ClusterView, lead_integral
from noonward.units import HOUR_S, KG_PER_TONNE, WATT_SECONDS_PER_MWH

ROUNDING: Final = 1e-9
"""Share by which bounds are widened, far above what rounding makes of a value."""


@kernel(inline=True, allocates=False)
def gang_at(view: ClusterView, job: int, site: int) -> int:
    """Returns a job's largest gang at a site, GPUs."""
    return min(view.job_J[job].gpus_max, view.site_S[site].gpus)


@kernel(inline=True, allocates=False)
def run_seconds(view: ClusterView, job: int, site: int) -> float:
    """Returns a job's run time at a site with its largest gang and the oracle's clock, s."""
    record = view.job_J[job]
    gpus, alike = gang_at(view, job, site), view.site_S[site].alike
    level = view.oracle_SCG[alike, record.class_, gpus]
    return record.work * view.speed_KSCGF[SECONDS, alike, record.class_, gpus, level]


@kernel(inline=True, allocates=False)
def expected_share(view: ClusterView, job: int) -> float:
    """Returns what share of its told run time a job is expected to take; 1 where run times are known."""
    record = view.job_J[job]
    return record.expected / record.work if record.work > 0.0 else 1.0  # nothing may be left of a suspended job


@kernel(inline=True, allocates=False)
def extra_power_w(view: ClusterView, job: int, site: int) -> float:
    """Returns the facility power a running job adds to that of its GPUs when free, W: PUE (P - n free power)."""
    record = view.job_J[job]
    gpus, alike = gang_at(view, job, site), view.site_S[site].alike
    level = view.oracle_SCG[alike, record.class_, gpus]
    power_w = view.speed_KSCGF[POWER_W, alike, record.class_, gpus, level]
    return view.site_S[site].pue * (power_w - gpus * view.site_S[site].free_w)


@kernel(inline=True, allocates=False)
def revenue_usd(view: ClusterView, job: int, site: int) -> float:
    """Returns what a job earns at a site, USD: alpha x GPUs x hours."""
    gpus = gang_at(view, job, site)
    return view.run_1[0].revenue_usd_per_gpu_hour * gpus * run_seconds(view, job, site) / HOUR_S


@kernel(inline=True, allocates=False)
def energy_usd(view: ClusterView, price_usd_s: float, carbon_g_s: float) -> float:
    """Returns the cost of one watt over integrals of price (USD/MWh x s) and intensity (g/kWh x s), USD."""
    usd_per_kg = view.run_1[0].carbon_usd_per_t / KG_PER_TONNE
    return (price_usd_s + usd_per_kg * carbon_g_s) / WATT_SECONDS_PER_MWH


@kernel(inline=True, allocates=False)
def _journey_usd(view: ClusterView, size_gb: float, ingress: int, d: int) -> float:
    """Returns the cost of data over a link at this hour's intensities, USD; an ingress without a site has none."""
    link, home = view.link_IS[ingress, d], view.home_I[ingress] if view.home_I[ingress] >= 0 else d
    return _data_usd(view, size_gb, link.usd_per_gb, link.kwh_per_gb, view.site_S[home].carbon, view.site_S[d].carbon)


@kernel(inline=True, allocates=False)
def _data_usd(
    view: ClusterView, size_gb: float, usd_per_gb: float, kwh_per_gb: float, carbon: float, there: float
) -> float:
    """Returns the cost of data between two intensities over a link of some USD/GB and kWh/GB, USD."""
    usd_per_g = view.run_1[0].carbon_usd_per_t / KG_PER_TONNE / 1000.0
    return float(size_gb * (usd_per_gb + usd_per_g * kwh_per_gb * (0.5 * (carbon + there))))


@kernel(inline=True, allocates=False)
def travel_cost_usd(view: ClusterView, job: int, s: int, d: int) -> float:
    """Returns the cost of a job's journey from site s to d and of its result home at this hour's intensities, USD."""
    record, cost = view.job_J[job], 0.0
    if d != s:
        cost += _journey_usd(view, record.move_gb, view.site_S[s].ingress, d)
    if view.home_I[record.origin] != d:
        cost += _journey_usd(view, record.result_gb, record.origin, d)
    return cost


@kernel(inline=True, allocates=False)
def least_travel_cost_usd(view: ClusterView, job: int, s: int, carbon: float) -> float:
    """Returns what ``travel_cost_usd`` is at least, to any site but s and the job's home, USD.

    Args:
        view: View.
        job: Job.
        s: Site at which it waits.
        carbon: Lowest intensity of any site now, g/kWh.
    """
    record, here = view.job_J[job], view.site_S[s]
    cost = _data_usd(view, record.move_gb, here.least_usd_per_gb, here.least_kwh_per_gb, here.carbon, carbon)
    if view.home_I[record.origin] >= 0:
        home = view.site_S[view.home_I[record.origin]]
        cost += _data_usd(view, record.result_gb, home.least_usd_per_gb, home.least_kwh_per_gb, home.carbon, carbon)
    return (1.0 - ROUNDING) * cost


@kernel(inline=True, allocates=False)
def route_cost_usd(view: ClusterView, job: int, d: int) -> float:
    """Returns the cost of an arriving job's journey to site d and of its result's way back, as ``travel_cost_usd``."""
    record = view.job_J[job]
    if view.home_I[record.origin] == d:
        return 0.0
    return _journey_usd(view, record.move_gb, record.origin, d) + _journey_usd(view, record.result_gb, record.origin, d)


@kernel(inline=True, allocates=False)
def run_value_usd(view: ClusterView, job: int, site: int) -> float:
    """Returns what a job earns at a site at this hour's price and intensity over leaving the GPUs free, USD."""
    return run_value_at_usd(view, job, site, view.site_S[site].price, view.site_S[site].carbon)


@kernel(inline=True, allocates=False)
def run_value_at_usd(view: ClusterView, job: int, site: int, price: float, carbon: float) -> float:
    """Returns what a job earns at a site at a price (USD/MWh) and an intensity (g/kWh) over leaving GPUs free, USD."""
    seconds = run_seconds(view, job, site)
    cost = extra_power_w(view, job, site) * energy_usd(view, price * seconds, carbon * seconds)
    return revenue_usd(view, job, site) - cost


@kernel(inline=True, allocates=False)
def most_run_value_usd(view: ClusterView, job: int, site: int) -> float:
    """Returns what ``run_value_usd`` is at most per unit of work, of a job's class and gang, USD; it must have work."""
    value, revenue = run_value_usd(view, job, site), revenue_usd(view, job, site)
    return (value + ROUNDING * (abs(revenue) + abs(revenue - value))) / view.job_J[job].work


@kernel(inline=True, allocates=False)
def forecast_energy_usd(view: ClusterView, site: int, start_s: float, seconds: float) -> float:
    """Returns the expected cost of one watt at a site from a time on, for some seconds, USD."""
    ahead = start_s - (view.run_1[0].now_s // HOUR_S) * HOUR_S
    until = ahead + seconds
    forecast = view.forecast_KSL
    price = lead_integral(forecast, PRICE, site, until) - lead_integral(forecast, PRICE, site, ahead)
    carbon = lead_integral(forecast, CARBON, site, until) - lead_integral(forecast, CARBON, site, ahead)
    return energy_usd(view, price, carbon)


@kernel(inline=True, allocates=False)
def forecast_value_usd(view: ClusterView, job: int, site: int, start_s: float) -> float:
    """Returns what a job that starts at a site at a time is expected to earn over leaving the GPUs free, USD."""
    watt_usd = forecast_energy_usd(view, site, start_s, run_seconds(view, job, site))
    return revenue_usd(view, job, site) - extra_power_w(view, job, site) * watt_usd

"""What running or moving a job is worth, as rules reckon it (the ledger alone settles what it was worth)."""

from __future__ import annotations

from noonward.compiled import kernel
from noonward.decision.cluster.view import CARBON, POWER_W, PRICE, SECONDS, ClusterView, lead_integral
from noonward.units import HOUR_S, KG_PER_TONNE, WATT_SECONDS_PER_MWH


@kernel(inline=True, allocates=False)
def gang_at(view: ClusterView, job: int, site: int) -> int:
    """Returns a job's largest gang at a site, GPUs."""
    return min(view.job_J[job].gpus_max, view.site_S[site].gpus)


@kernel(inline=True, allocates=False)
def run_seconds(view: ClusterView, job: int, site: int) -> float:
    """Returns a job's run time at a site with its largest gang and the oracle's clock, s."""
    record = view.job_J[job]
    gpus = gang_at(view, job, site)
    level = view.oracle_SCG[site, record.class_, gpus]
    return record.work * view.speed_KSCGF[SECONDS, site, record.class_, gpus, level]


@kernel(inline=True, allocates=False)
def expected_share(view: ClusterView, job: int) -> float:
    """Returns what share of its told run time a job is expected to take; 1 where run times are known."""
    record = view.job_J[job]
    return record.expected / record.work if record.work > 0.0 else 1.0  # nothing may be left of a suspended job


@kernel(inline=True, allocates=False)
def extra_power_w(view: ClusterView, job: int, site: int) -> float:
    """Returns the facility power a running job adds to that of its GPUs when free, W: PUE (P - n free power)."""
    record = view.job_J[job]
    gpus = gang_at(view, job, site)
    level = view.oracle_SCG[site, record.class_, gpus]
    power_w = view.speed_KSCGF[POWER_W, site, record.class_, gpus, level]
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
def travel_cost_usd(view: ClusterView, job: int, s: int, d: int) -> float:
    """Returns the cost of a job's journey from site s to d and of its result home at this hour's intensities, USD."""
    record, sites = view.job_J[job], view.site_S
    usd_per_g = view.run_1[0].carbon_usd_per_t / KG_PER_TONNE / 1000.0
    cost = 0.0
    if d != s:
        link = view.link_IS[sites[s].ingress, d]
        carbon = 0.5 * (sites[s].carbon + sites[d].carbon)
        cost += record.move_gb * (link.usd_per_gb + usd_per_g * link.kwh_per_gb * carbon)
    home = view.home_I[record.origin]
    if home != d:
        link = view.link_IS[record.origin, d]
        carbon = 0.5 * (sites[home].carbon + sites[d].carbon)
        cost += record.result_gb * (link.usd_per_gb + usd_per_g * link.kwh_per_gb * carbon)
    return cost


@kernel(inline=True, allocates=False)
def run_value_usd(view: ClusterView, job: int, site: int) -> float:
    """Returns what a job earns at a site at this hour's price and intensity over leaving the GPUs free, USD."""
    seconds = run_seconds(view, job, site)
    price, carbon = view.site_S[site].price, view.site_S[site].carbon
    cost = extra_power_w(view, job, site) * energy_usd(view, price * seconds, carbon * seconds)
    return revenue_usd(view, job, site) - cost


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

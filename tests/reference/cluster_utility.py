"""Slow oracle of the utility bound: values from the equations as they stand, every schedule of a small case tried."""

import itertools
import math
from datetime import UTC, datetime

import numpy as np

from noonward.decision.brief import Needs
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.power import ClassProfile, GpuType, PowerCurve
from noonward.model.economics import Economics
from noonward.model.network import Network
from noonward.model.signals import Signals

SLOT_S = 600.0
START = datetime(2022, 1, 1, tzinfo=UTC)


def build(
    jobs,
    *,
    gpus=(2, 3),
    pue=(1.3, 1.1),
    price=None,
    carbon=None,
    window_h=6,
    network=None,
    revenue=0.05,
    profile=None,
    slot_s=SLOT_S,
    protocol="each-slot",
    clocks=(1.0,),
    ingress="sites",
):
    """Builds an environment with long enough signals; prices and intensities default to constants."""
    sites, hours = len(gpus), 400
    price = np.full((sites, hours), 100.0) if price is None else price
    carbon = np.full((sites, hours), 400.0) if carbon is None else carbon
    profile = profile or ClassProfile(power=PowerCurve(constant_w=80))
    kind = GpuType(idle_w=8.0, clocks=clocks, classes={"tune": profile})
    names = [f"s{i}" for i in range(sites)]
    fleet = Fleet(
        gpu_types={"t4": kind},
        sites=tuple(
            Site(name=name, zone=name, gpu_type="t4", gpus=count, pue=factor)
            for name, count, factor in zip(names, gpus, pue, strict=True)
        ),
        ingress=ingress,
    )
    network = network or Network(throughput_gb_per_min=0.5, usd_per_gb=0.001, kwh_per_gb=0.05, latency_ms=100)
    return Environment(
        scenario="test",
        index=0,
        seed=0,
        start=START,
        protocol=protocol,
        slot_s=slot_s,
        window_s=window_h * 3600.0,
        drained=True,
        fleet=fleet,
        links=network.links(fleet),
        jobs=jobs,
        signals=Signals(
            start=START, zones=tuple(names), value_ZH={"price_usd_per_mwh": price, "carbon_g_per_kwh": carbon}
        ),
        economics=Economics(revenue_usd_per_gpu_hour=revenue, carbon_usd_per_t=100.0),
    )


def random_environment(seed, count=4, sites=2, **options):
    """Draws a small environment with hourly prices, some of them negative."""
    rng = np.random.default_rng(seed)
    work = rng.uniform(500, 9000, count)
    jobs = Jobs.build(
        arrival_s=rng.uniform(0, 5000, count),
        work=work,
        origin=rng.integers(0, sites, count),
        gpus=rng.integers(1, 3, count),
        slack_s=rng.uniform(0, 6000, count) * (rng.random(count) > 0.2),
        data_gb=rng.uniform(0, 10, count),
        model_gb=rng.uniform(0, 3, count),
        result_gb=rng.uniform(0, 3, count),
    )
    return build(
        jobs,
        gpus=tuple(int(g) for g in rng.integers(2, 4, sites)),
        pue=tuple(rng.uniform(1, 1.5, sites)),
        price=rng.uniform(-150, 500, (sites, 400)),
        carbon=rng.uniform(0, 900, (sites, 400)),
        window_h=3,
        **options,
    )


def plain_integral(values_h, start_s, end_s):
    """Integrates an hourly signal, hour by hour."""
    total, hour = 0.0, int(start_s // 3600)
    while hour * 3600 < end_s:
        total += values_h[hour] * max(0.0, min(end_s, (hour + 1) * 3600) - max(start_s, hour * 3600))
        hour += 1
    return total


def plain_run(env, j, level):
    """Run time of a job's smallest gang at a clock level in s, and the IT power of one of its GPUs in W."""
    kind, gpus = env.fleet.gpu_types["t4"], int(env.jobs.gpus_min_J[j])
    profile, clock = kind.classes["tune"], kind.clocks[level]
    run_s = env.jobs.work_J[j] * float(profile.seconds_per_unit(gpus, clock))
    return run_s, float(profile.power.power_w(gpus, clock)) / gpus


def plain_value(env, j, site, start_s, depart_s, level=0):
    """What one run adds to the idle fleet's utility, from Eqs. 2-6 as they stand; fixed gangs."""
    jobs, home = env.jobs, int(env.jobs.origin_J[j])
    run_s, watts = plain_run(env, j, level)
    gpus, end_s = int(jobs.gpus_min_J[j]), start_s + run_s
    price = env.signals.price_usd_per_mwh_ZH[site]
    carbon = env.signals.carbon_g_per_kwh_ZH
    mu = env.economics.carbon_usd_per_t / 1e6
    kw, free_kw = (w * env.fleet.sites[site].pue * gpus / 1000 for w in (watts, 8.0))
    usd = env.economics.revenue_usd_per_gpu_hour * gpus * run_s / 3600
    for rate, values in ((1e-3, price), (mu, carbon[site])):
        usd -= rate * kw * plain_integral(values, start_s, end_s) / 3600
        usd += rate * free_kw * plain_integral(values, min(start_s, env.window_s), min(end_s, env.window_s)) / 3600
    if site != home:
        per_gb, kwh = env.links.usd_per_gb_IS[home, site], env.links.kwh_per_gb_IS[home, site]
        for size, time_s in ((jobs.data_gb_J[j] + jobs.model_gb_J[j], depart_s), (jobs.result_gb_J[j], end_s)):
            mean = (carbon[home, int(time_s // 3600)] + carbon[site, int(time_s // 3600)]) / 2
            usd -= size * (per_gb + mu * kwh * mean)
    return float(usd)


def plain_choices(env, j):
    """All (site, start, value at the best departure, clock level) of a job under the slot rules."""
    jobs, home, slot = env.jobs, int(env.jobs.origin_J[j]), env.slot_s
    ready = math.ceil(jobs.arrival_s_J[j] / slot)
    out = []
    for site in range(len(env.sites)):
        back_s = env.links.latency_s_IS[home, site] + jobs.result_gb_J[j] * env.links.seconds_per_gb_IS[home, site]
        moved = jobs.data_gb_J[j] + jobs.model_gb_J[j]
        delay_s = env.links.latency_s_IS[home, site] + moved * env.links.seconds_per_gb_IS[home, site]
        travel = 0 if site == home else max(1, math.ceil(delay_s / slot))
        start = ready + travel
        while start * slot <= max(jobs.arrival_s_J[j] + jobs.slack_s_J[j] - back_s, env.late_until_s):
            late_h = max(0.0, start * slot - jobs.arrival_s_J[j] - jobs.slack_s_J[j]) / 3600
            departures = [start] if site == home else range(ready, start - travel + 1)
            for level in range(len(env.fleet.gpu_types["t4"].clocks)):
                value = max(plain_value(env, j, site, start * slot, d * slot, level) for d in departures)
                value -= env.late_usd_per_gpu_hour * jobs.gpus_min_J[j] * late_h
                out.append((site, start * slot, value, level))
            start += 1
    return out


def plain_idle(env):
    """Utility of an idle fleet, negative where prices are positive."""
    usd = 0.0
    for s, site in enumerate(env.fleet.sites):
        kw = site.pue * site.gpus * 8.0 / 1000
        price = plain_integral(env.signals.price_usd_per_mwh_ZH[s], 0, env.window_s) / 1000
        carbon = plain_integral(env.signals.carbon_g_per_kwh_ZH[s], 0, env.window_s) * 1e-4
        usd -= kw * (price + carbon) / 3600
    return float(usd)


def fits(env, runs):
    """Whether runs (job, site, start, level) stay within every site's GPUs at every instant at which a run starts."""
    for _, site, now, _ in runs:
        on = [(int(env.jobs.gpus_min_J[j]), t, plain_run(env, j, level)[0]) for j, s, t, level in runs if s == site]
        if sum(gpus for gpus, t, run_s in on if t <= now < t + run_s) > env.fleet.sites[site].gpus:
            return False
    return True


def within_quotas(env, tenants, runs):
    """Whether runs stay within the quotas of `reference.tenants.Tenant`s at every instant at which one starts."""
    for _, _, now, _ in runs:
        used = [0] * len(tenants)
        for j, _, t, level in runs:
            if t <= now < t + plain_run(env, j, level)[0]:
                used[env.tenant_J[j]] += int(env.jobs.gpus_min_J[j])
        for name in {tenant.cohort for tenant in tenants}:
            pool = sum(tenant.lendable for tenant in tenants if tenant.cohort == name)
            borrowed = 0
            for tenant, gpus in zip(tenants, used, strict=True):
                if tenant.cohort == name:
                    limit = 0 if name is None else pool if tenant.borrow is None else tenant.borrow
                    if gpus > tenant.gpus + limit:
                        return False
                    borrowed += max(0, gpus - tenant.gpus + tenant.lendable)
            if borrowed > pool:
                return False
    return True


def brute_force(env, tenants=()):
    """Best utility over all combinations of (site, start, level) or nothing, within the tenants' quotas."""
    menus = [[None, *(c for c in plain_choices(env, j) if c[2] > 0)] for j in range(len(env.jobs))]
    best = 0.0
    for combination in itertools.product(*menus):
        total = sum(choice[2] for choice in combination if choice)
        runs = [(j, c[0], c[1], c[3]) for j, c in enumerate(combination) if c]
        if total > best and fits(env, runs) and (not tenants or within_quotas(env, tenants, runs)):
            best = total
    return plain_idle(env) + best


class Replay(Scheduler):
    """Carries a booked schedule out."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self, schedule):
        self.schedule = schedule

    def decide(self, view, answers):
        plan = self.schedule
        for here, _ in view.asked():
            job = int(view.serial_N[here])
            site = int(plan.site_J[job])
            due_s = plan.start_s_J[job] if site == here else plan.depart_s_J[job]
            if site >= 0 and view.now_s == due_s:
                answers.send(here, site, gpus=int(plan.gpus_J[job]), level=int(plan.level_J[job]))


def earned(env, scheduler):
    """Utility of a run of the engine."""
    return settle(run(env, scheduler)).utility_usd

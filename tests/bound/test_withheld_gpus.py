"""Bounds where GPUs are withheld for a time, against every schedule of small worlds, reckoned by plain loops."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.freedom_bounds import freedom_bounds
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.model.cluster.freedom import Freedom
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.withheld import StandingJobs, Withheld
from noonward.schedule.policies import make_scheduler
from reference.cluster_utility import (
    Replay,
    build,
    earned,
    plain_choices,
    plain_idle,
    plain_integral,
    plain_run,
    random_environment,
)

FREE_W = 8.0


def withholding(env, seed):
    """Gives an environment steps of withheld GPUs, and jobs that stand at its start in half of the worlds."""
    rng = np.random.default_rng(1000 + seed)
    gpus_S = env.fleet.tables(1).gpus_S
    changes = []
    for s, gpus in enumerate(gpus_S.tolist()):
        last = 0
        for time_s in np.sort(rng.choice([0.0, 1800.0, 3600.0, 4200.0, 6000.0, 9000.0], 3, replace=False)).tolist():
            withheld = int(rng.integers(0, gpus + 1))
            changes.append((time_s, s, withheld - last))
            last = withheld
    standing = None
    if seed % 2:
        standing = StandingJobs(
            site_J=np.array([0]), gpus_J=np.array([1]), end_s_J=np.array([5000.0]), told_end_s_J=np.array([5000.0]),
            power_w_J=np.array([100.0]),
        )  # fmt: skip
    return replace(env, withheld=Withheld.of(changes, gpus_S), standing=standing)


def plain_withheld(env, site, time_s):
    """GPUs that no job may take at a time, from the announced steps and the standing jobs."""
    gpus = 0
    if env.withheld is not None:
        for from_s, row in zip(env.withheld.from_s_K, env.withheld.gpus_KS, strict=True):
            if from_s <= time_s:
                gpus = int(row[site])
    if env.standing is not None:
        rows = zip(env.standing.site_J, env.standing.gpus_J, env.standing.end_s_J, strict=True)
        gpus += sum(int(n) for s, n, end_s in rows if s == site and time_s < end_s)
    return min(gpus, env.fleet.sites[site].gpus)


def plain_fits(env, runs):
    """Whether jobs start within what is left: those that run take at most the GPUs less the withheld ones."""
    for _, site, now, _ in runs:
        on = [(int(env.jobs.gpus_min_J[j]), t, plain_run(env, j, level)[0]) for j, s, t, level in runs if s == site]
        taken = sum(gpus for gpus, t, run_s in on if t <= now < t + run_s)
        if taken > env.fleet.sites[site].gpus - plain_withheld(env, site, now):
            return False
    return True


def plain_off_usd(env, runs):
    """Free power of GPUs that are withheld and without a job, which nobody pays: min(withheld, GPUs - taken)."""
    usd = 0.0
    for s, site in enumerate(env.fleet.sites):
        mine = [
            (int(env.jobs.gpus_min_J[j]), t, t + plain_run(env, j, level)[0]) for j, at, t, level in runs if at == s
        ]
        times = {0.0, env.window_s, *(time_s for _, t, end_s in mine for time_s in (t, end_s))}
        times |= set() if env.withheld is None else set(env.withheld.from_s_K.tolist())
        times |= set() if env.standing is None else set(env.standing.end_s_J.tolist())
        for begin_s, end_s in itertools.pairwise(sorted(time_s for time_s in times if time_s <= env.window_s)):
            taken = sum(gpus for gpus, t, until_s in mine if t <= begin_s and until_s >= end_s)
            off_kw = min(plain_withheld(env, s, begin_s), site.gpus - taken) * FREE_W * site.pue / 1000
            price = plain_integral(env.signals.price_usd_per_mwh_ZH[s], begin_s, end_s) / 1000
            carbon = plain_integral(env.signals.carbon_g_per_kwh_ZH[s], begin_s, end_s) * 1e-4
            usd += off_kw * (price + carbon) / 3600
    return float(usd)


def best_of_all(env):
    """Best utility over all combinations of (site, start) or nothing."""
    menus = [[None, *plain_choices(env, j)] for j in range(len(env.jobs))]
    best = -math.inf
    for combination in itertools.product(*menus):
        runs = [(j, c[0], c[1], c[3]) for j, c in enumerate(combination) if c]
        total = sum(c[2] for c in combination if c)
        if total + plain_idle(env) + most_off_usd(env) > best and plain_fits(env, runs):
            best = max(best, plain_idle(env) + total + plain_off_usd(env, runs))
    return best


def most_off_usd(env):
    """More than switched-off GPUs can be worth, so that hopeless combinations need not be reckoned."""
    weight = np.abs(env.signals.price_usd_per_mwh_ZH).max() + 0.1 * np.abs(env.signals.carbon_g_per_kwh_ZH).max()
    return sum(site.gpus * FREE_W * site.pue for site in env.fleet.sites) * env.window_s * weight / 3.6e9


@pytest.mark.parametrize("seed", range(16))
def test_the_bound_is_at_least_the_best_of_all_schedules_and_the_schedule_runs(seed):
    env = withholding(random_environment(seed, count=3, sites=1 + seed % 2, slot_s=1200.0), seed)
    optimum = best_of_all(env)
    bound = utility_bound(env, iterations=100, rounds=30)
    assert bound.upper_usd >= optimum - 1e-9
    assert bound.lower_usd <= optimum + 1e-9
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.lower_usd, abs=1e-9)
    assert utility_bound(env, iterations=50, period_s=1200.0).upper_usd >= optimum - 1e-9


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("policy", ["local-backfill", "price-greedy", "cheapest-feasible"])
def test_no_policy_earns_more_than_the_bound(seed, policy):
    env = withholding(random_environment(seed, count=12, sites=2), seed)
    assert earned(env, make_scheduler(policy)) <= utility_bound(env, iterations=60, schedule=False).upper_usd + 1e-9


def hour_jobs(count, run_s=3600.0):
    return Jobs.build(arrival_s=np.zeros(count), work=np.full(count, run_s), slack_s=3600.0)


def test_withheld_gpus_lower_the_bound_by_what_they_would_have_earned():
    """Two jobs of an hour that must start within the hour; one of two GPUs is withheld: one job earns 1 USD alone."""
    env = build(hour_jobs(2), gpus=(2,), pue=(1.0,), price=np.zeros((1, 400)), carbon=np.zeros((1, 400)), revenue=1.0)
    env = replace(env, jobs=replace(env.jobs, slack_s_J=np.zeros(2)))
    assert utility_bound(env).upper_usd == pytest.approx(2.0)
    one_less = replace(env, withheld=Withheld.of([(0.0, 0, 1)], np.array([2])))
    assert utility_bound(one_less).upper_usd == pytest.approx(1.0)
    standing = StandingJobs(
        site_J=np.array([0]), gpus_J=np.array([1]), end_s_J=np.array([7000.0]), told_end_s_J=np.array([7000.0]),
        power_w_J=np.array([80.0]),
    )  # fmt: skip
    assert utility_bound(replace(env, standing=standing)).upper_usd == pytest.approx(1.0)
    gone = replace(standing, end_s_J=np.array([1.0]))  # its GPU may be taken in a part of the hour
    assert utility_bound(replace(env, standing=gone)).upper_usd == pytest.approx(2.0)


@pytest.mark.parametrize("usd_per_mwh", [0.0, 100.0, -100.0])
def test_a_job_that_runs_on_is_no_breach_of_the_bound(usd_per_mwh):
    """A GPU is withheld from 600 s on; the job that began before runs its hour, and saves no free power after that.

    It draws 80 W for an hour. Of the window of six hours the GPU would draw 8 W free for 600 s.
    """
    price = np.full((1, 400), usd_per_mwh)
    env = build(hour_jobs(1), gpus=(1,), pue=(1.0,), price=price, carbon=np.zeros((1, 400)), revenue=1.0)
    env = replace(env, withheld=Withheld.of([(600.0, 0, 1)], np.array([1])))
    assert earned(env, make_scheduler("local-fcfs")) == pytest.approx(1.0 - 80e-6 * usd_per_mwh)
    assert Relaxation(env).costs.idle_usd == pytest.approx(-8e-6 / 6 * usd_per_mwh)
    assert utility_bound(env).upper_usd >= 1.0 - 80e-6 * usd_per_mwh - 1e-12
    assert utility_bound(env).upper_usd <= 1.0 - 80e-6 * usd_per_mwh + 8e-6 * 6 * abs(usd_per_mwh)


def test_an_hour_has_the_most_gpus_since_the_longest_run_could_have_begun():
    env = build(hour_jobs(2, run_s=5000.0), gpus=(3,), pue=(1.0,))
    env = replace(env, withheld=Withheld.of([(0.0, 0, 1), (7200.0, 0, 2), (10000.0, 0, -2)], np.array([3])))
    capacity_H = Relaxation(env).capacity_SH[0]
    # 2 GPUs in hours 0 and 1, none from 7,200 to 10,000 s, then 2 again: a run of 5,000 s reaches into two more hours.
    assert capacity_H.tolist()[:3] == [2.0, 2.0, 2.0]
    never = replace(env, withheld=Withheld.of([(7200.0, 0, 3)], np.array([3])))
    assert Relaxation(never).capacity_SH[0].tolist()[:5] == [3.0, 3.0, 3.0, 3.0, 0.0]


@pytest.mark.parametrize("freedom", [{"interruptible": True}, {"caps": {"power": [0.5, 1], "throughput": [0.75, 1]}}])
def test_schedules_with_freedoms_take_no_withheld_gpu(freedom):
    """Of two jobs of an hour that must start at once one runs: of two GPUs one is withheld until the third comes."""
    env = build(hour_jobs(3), gpus=(2,), pue=(1.0,), price=np.zeros((1, 400)), carbon=np.zeros((1, 400)), revenue=1.0)
    fleet = env.fleet.model_copy(update={"freedoms": {"tune": Freedom.model_validate(freedom)}})
    jobs = replace(env.jobs, arrival_s_J=np.array([0.0, 0.0, 7200.0]), slack_s_J=np.zeros(3))
    env = replace(env, fleet=fleet, jobs=jobs, withheld=Withheld.of([(0.0, 0, 1), (7200.0, 0, -1)], np.array([2])))
    for worth in freedom_bounds(env, ("all",)).worth.values():
        assert worth.known_usd == pytest.approx(2.0)

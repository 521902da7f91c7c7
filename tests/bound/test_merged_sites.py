"""Sites of one kind as one: never below what can be earned, near the bound of all, unchanged where none are alike."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.bench.scale import many_sites
from noonward.bound.cluster_utility import many_jobs
from noonward.bound.cluster_utility.columns import market
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.many_jobs import many_jobs_bound
from noonward.bound.cluster_utility.merged_sites import fleet_part, jobs_of_part, merged_sites, parts_of_fleet
from noonward.bound.cluster_utility.stretches import refined
from noonward.data.environments import build_environment
from noonward.errors import ScenarioError
from noonward.model.cluster.withheld import Withheld
from reference.alike_sites import alike
from reference.cluster_utility import brute_force, random_environment


def four_sites(seed, count=9):
    env = alike(random_environment(seed, count=count, sites=4), (0, 0, 2, 2))
    if seed % 3 == 2:
        gpus_S = env.fleet.tables(1).gpus_S
        env = replace(env, withheld=Withheld.of([(1800.0, 0, 1), (6000.0, 1, 2), (9000.0, 1, -2)], gpus_S))
    return env


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_of_merged_sites_is_never_below_the_best_of_all_schedules(seed):
    env = alike(random_environment(seed, count=3, sites=4), (0, 0, 2, 2))
    optimum = brute_force(env)
    assert utility_bound(merged_sites(env)[0], iterations=40, schedule=False).upper_usd >= optimum - 1e-9
    assert many_jobs_bound(env, jobs=2, rounds=20, exact_sites=1).upper_usd >= optimum - 1e-9


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_of_merged_sites_is_never_below_a_schedule_of_all_sites(seed):
    env = four_sites(seed)
    exact = utility_bound(env, iterations=40)
    found = many_jobs_bound(env, jobs=3, rounds=20, exact_sites=1)
    assert found.upper_usd >= exact.lower_usd - 1e-9
    assert found.idle_usd == pytest.approx(exact.idle_usd)
    assert found.price_usd_per_gpu_hour_SH.shape[0] == 2
    assert found.idle_usd <= found.lower_usd + 1e-9
    assert found.lower_usd <= exact.upper_usd + 1e-9


def test_a_merged_site_has_the_gpus_of_all_and_the_jobs_of_all():
    env = four_sites(2)
    merged, kind_S = merged_sites(env)
    assert kind_S.tolist() == [0, 0, 1, 1]
    gpus = [site.gpus for site in env.fleet.sites]
    assert [site.gpus for site in merged.fleet.sites] == [gpus[0] + gpus[1], gpus[2] + gpus[3]]
    assert merged.jobs.origin_J.tolist() == (env.jobs.origin_J // 2).tolist()
    assert (merged.withheld.gpus_KS[:, 0] == env.withheld.gpus_KS[:, :2].sum(axis=1)).all()


def test_the_parts_of_a_fleet_hold_every_site_and_job_once():
    env = four_sites(2)
    part_S = parts_of_fleet(np.array([0, 0, 1, 1]), 2)
    parts = [
        (fleet_part(env, part_S, part), np.flatnonzero(part_S == part), jobs_of_part(env, part_S, part))
        for part in range(2)
    ]
    assert [sites.tolist() for _, sites, _ in parts] == [[0, 2], [1, 3]]
    assert sorted(np.concatenate([rows for _, _, rows in parts]).tolist()) == list(range(len(env.jobs)))
    for part, sites, rows in parts:
        assert [site.gpus for site in part.fleet.sites] == [env.fleet.sites[s].gpus for s in sites]
        assert (sites[part.jobs.origin_J] == env.jobs.origin_J[rows]).all()
        assert (part.jobs.work_J == env.jobs.work_J[rows]).all()
        assert (part.links.latency_s_IS == env.links.latency_s_IS[np.ix_(sites, sites)]).all()
        assert (part.withheld.gpus_KS == env.withheld.gpus_KS[:, sites]).all()
    idle = [market(each, each.fleet.tables(1)).idle_usd for each in (env, *(part for part, _, _ in parts))]
    assert sum(idle[1:]) == pytest.approx(idle[0])


def test_a_schedule_by_parts_comes_near_that_of_the_whole_fleet():
    environment = build_environment(many_sites(2000, 8, zones=1))
    whole = many_jobs_bound(environment, jobs=len(environment.jobs))
    parts = many_jobs_bound(environment, jobs=len(environment.jobs), exact_sites=4)
    assert parts.lower_usd == pytest.approx(whole.lower_usd, rel=0.02)
    assert parts.lower_usd < parts.upper_usd


def test_every_part_refines_prices_with_its_own_jobs_and_a_kind_pays_their_mean(monkeypatch):
    environment = build_environment(many_sites(8000, 8, zones=1))
    kind_S = merged_sites(environment)[1]
    part_S = parts_of_fleet(kind_S, 4)
    found = []

    def kept(jobs, price_SH, **options):
        found.append((jobs.environment, price_SH, refined(jobs, price_SH, **options)[0]))
        return found[-1][2], len(jobs.environment.jobs)

    monkeypatch.setattr(many_jobs, "refined", kept)
    bound = many_jobs_bound(environment, rounds=20, schedule=False, exact_sites=4)
    by_site_SH = np.zeros((8, bound.price_usd_per_gpu_hour_SH.shape[1]))
    for part, (alone, before_SH, after_SH) in enumerate(found):
        relaxation = Relaxation(alone)
        assert len(alone.jobs) == len(jobs_of_part(environment, part_S, part))
        assert relaxation.value(after_SH)[0] < relaxation.value(before_SH)[0]
        by_site_SH[part_S == part, : after_SH.shape[1]] = after_SH
    gpus_S = np.array([site.gpus for site in environment.fleet.sites])
    for kind, price_H in enumerate(bound.price_usd_per_gpu_hour_SH):
        alike_S = kind_S == kind
        mean_H = np.average(by_site_SH[alike_S], axis=0, weights=gpus_S[alike_S])
        assert price_H[: after_SH.shape[1]] == pytest.approx(mean_H[: after_SH.shape[1]], abs=1e-12)
    merged = Relaxation(merged_sites(environment)[0])
    assert bound.upper_usd == pytest.approx(merged.value(bound.price_usd_per_gpu_hour_SH)[0], rel=1e-12)
    assert bound.jobs == len(environment.jobs)


def test_prices_refined_by_parts_list_a_better_schedule(monkeypatch):
    environment = build_environment(many_sites(8000, 8, zones=1))
    by_parts = many_jobs_bound(environment, jobs=100, exact_sites=4)
    monkeypatch.setattr(many_jobs, "refined", lambda jobs, price_SH, **_: (price_SH, 1))
    assert by_parts.lower_usd > many_jobs_bound(environment, jobs=100, exact_sites=4).lower_usd


def test_a_part_to_which_no_jobs_come_is_left_out():
    environment = build_environment(many_sites(400, 4, zones=1))
    part_S = parts_of_fleet(merged_sites(environment)[1], 2)
    home_J = environment.fleet.tables(1).home_I[environment.jobs.origin_J]
    environment = replace(environment, jobs=environment.jobs.take(np.flatnonzero(part_S[home_J] == 1)))
    bound = many_jobs_bound(environment, rounds=20, exact_sites=2)
    merged = Relaxation(merged_sites(environment)[0])
    assert bound.idle_usd < bound.lower_usd <= bound.upper_usd
    assert bound.upper_usd == pytest.approx(merged.value(bound.price_usd_per_gpu_hour_SH)[0], rel=1e-12)


def test_merging_costs_the_bound_little_where_sites_are_large():
    environment = build_environment(many_sites(2000, 8, zones=1))
    exact = many_jobs_bound(environment, jobs=len(environment.jobs), schedule=False)
    merged = many_jobs_bound(environment, jobs=len(environment.jobs), schedule=False, exact_sites=1)
    assert merged.upper_usd == pytest.approx(exact.upper_usd, rel=0.01)


def test_where_no_sites_are_alike_the_environment_is_left_as_it_is():
    env = random_environment(1, sites=3)
    assert merged_sites(env)[0] is env


def test_a_number_of_exact_sites_below_one_is_refused():
    with pytest.raises(ScenarioError, match="exact_sites 0"):
        many_jobs_bound(random_environment(1), exact_sites=0)

"""The bound of very many jobs: a bound in every world, exact where every job stands for itself."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.bench.scale import many_sites
from noonward.bound.cluster_utility import many_jobs
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.many_jobs import (
    PARTS,
    STEP_SHARE,
    candidate_starts,
    many_jobs_bound,
    standing_for_all,
)
from noonward.bound.cluster_utility.prices import descend_evenly
from noonward.data.environments import build_environment
from noonward.errors import ScenarioError
from noonward.evaluate import cluster_objective
from noonward.evaluate.utility_objective import UtilityObjective
from noonward.model.cluster.withheld import Withheld
from reference.cluster_utility import random_environment


@pytest.fixture(scope="module")
def medium():
    return build_environment(many_sites(2000, 4))


@pytest.mark.parametrize("seed", range(200))
def test_the_bound_of_few_jobs_that_stand_for_all_is_never_below_the_exact_bound(seed):
    env = random_environment(seed, count=9, sites=2 + seed % 2)
    if seed % 4 == 3:
        gpus_S = env.fleet.tables(1).gpus_S
        env = replace(env, withheld=Withheld.of([(1800.0, 0, 1), (6000.0, 1, 2), (9000.0, 1, -2)], gpus_S))
    exact = utility_bound(env, iterations=40, tolerance=1e-7, schedule=False)
    found = many_jobs_bound(env, jobs=3, rounds=20, seed=seed)
    assert found.upper_usd >= exact.upper_usd - exact.dual_excess_usd - 1e-9
    assert found.lower_usd <= exact.upper_usd + 1e-9
    assert found.idle_usd == pytest.approx(exact.idle_usd)


def test_where_every_job_stands_for_itself_prices_and_bound_are_those_of_all_jobs(medium):
    relaxation = Relaxation(medium)
    step_usd = STEP_SHARE * medium.economics.revenue_usd_per_gpu_hour
    _, price_SH, _ = descend_evenly(relaxation, 30, step_usd, parts=PARTS)
    found = many_jobs_bound(medium, jobs=len(medium.jobs), rounds=30)
    assert np.array_equal(found.price_usd_per_gpu_hour_SH, price_SH)
    assert found.upper_usd == pytest.approx(relaxation.value(price_SH)[0], rel=1e-12)


def test_few_jobs_give_nearly_the_bound_of_all_and_a_schedule_near_it(medium):
    whole = many_jobs_bound(medium, jobs=len(medium.jobs))
    few = many_jobs_bound(medium, jobs=len(medium.jobs) // 4)
    assert few.jobs == pytest.approx(len(medium.jobs) / 4, rel=0.02)
    assert few.upper_usd == pytest.approx(whole.upper_usd, rel=0.005)
    assert 0.9 * few.upper_usd < few.lower_usd < few.upper_usd


def test_the_bound_does_not_depend_on_how_many_jobs_are_listed_at_once(medium, monkeypatch):
    whole = many_jobs_bound(medium, jobs=300, rounds=20)
    monkeypatch.setattr(many_jobs, "STARTS_AT_ONCE", candidate_starts(medium) / 5)
    parts = many_jobs_bound(medium, jobs=300, rounds=20)
    assert parts.upper_usd == pytest.approx(whole.upper_usd, rel=1e-12)
    assert parts.lower_usd == pytest.approx(whole.lower_usd, rel=0.05)


def test_candidate_starts_are_counted_and_grow_with_slack(medium):
    hurried = replace(medium, jobs=replace(medium.jobs, slack_s_J=medium.jobs.slack_s_J / 10))
    counts = [len(Relaxation(each).columns.value_K) for each in (hurried, medium)]
    assert [candidate_starts(each) for each in (hurried, medium)] == pytest.approx(counts, rel=0.2)
    assert counts[1] > 1.5 * counts[0]


@pytest.mark.parametrize("count", [1, 40, 500, 10_000])
def test_jobs_stand_for_the_gpu_hours_of_all(medium, count):
    jobs, tables = medium.jobs, medium.fleet.tables(16)
    taken, weight_J = standing_for_all(jobs, tables, count, np.random.default_rng(0))
    size_J = jobs.gpus_max_J * jobs.work_J
    assert len(taken) == min(count, len(jobs))
    assert (np.diff(taken) > 0).all()
    assert (weight_J >= 1).all()
    assert weight_J @ size_J[taken] == pytest.approx(size_J.sum(), rel=1e-6 if count == 1 else 0.001)


def test_a_comparison_takes_it_beyond_a_size_and_says_so(medium, monkeypatch):
    plain = UtilityObjective().compute_bound(medium, 0.0)
    assert "standing_for_all" not in plain
    for name in ("MANY_STARTS", "FEW_CHOICES"):
        monkeypatch.setattr(cluster_objective, name, 1000)
    found = UtilityObjective().compute_bound(medium)
    assert found["utility_usd"] > found["best_known_usd"]
    assert "capacity is priced with a sample of the jobs" in UtilityObjective().describe_bound(found)
    assert UtilityObjective().compute_bound(medium, 0.0)["cut"] == 1.0


@pytest.mark.parametrize("options", [{"jobs": 0}, {"rounds": 5}])
def test_numbers_out_of_range_are_refused(medium, options):
    with pytest.raises(ScenarioError, match="at least 1 and 6"):
        many_jobs_bound(medium, **options)

"""The utility bound within quotas: against all schedules of small worlds, its linear program, and its duals."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.master import Master
from noonward.bound.cluster_utility.quotas import Pools, QuotaDual, quota_bound
from noonward.bound.highs import minimise
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_settings
from noonward.errors import ScenarioError
from noonward.model.cluster.tenant import Tenants
from reference.cluster_utility import brute_force, earned, random_environment
from reference.tenants import Tenant

CHOICES = {"iterations": 60, "tolerance": 1e-9, "most_jobs": 6000}


def drawn(seed, count=4):
    """A small world whose jobs belong to two or three tenants, and these tenants."""
    rng = random.Random(f"{seed} quotas")
    tenants = []
    for _ in range(rng.randint(2, 3)):
        cohort = rng.choice((None, "a", "a"))
        tenants.append(Tenant(rng.randint(0, 3), cohort, rng.choice((None, 0, 1, 2)), rng.choice((None, 0, 1, 2))))
    tenants.append(Tenant(2))
    environment = random_environment(seed, count=count, sites=2 + seed % 2)
    stated = Tenants.model_validate({"of": {f"t{t}": each.spec() for t, each in enumerate(tenants)}})
    most_T = stated.most_gpus_T()
    fitting_J = [np.flatnonzero(most_T >= gpus).tolist() for gpus in environment.jobs.gpus_min_J]
    tenant_J = np.array([rng.choice(fitting) for fitting in fitting_J])
    return replace(environment, tenants=stated, tenant_J=tenant_J), tenants


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_the_bound_is_at_least_the_best_schedule_within_the_quotas(seed):
    environment, tenants = drawn(seed)
    optimum = brute_force(environment, tenants)
    assert utility_bound(environment, iterations=100).upper_usd >= optimum - 1e-9
    dual = QuotaDual(Relaxation(environment), environment.tenants, environment.tenant_J)
    rng = np.random.default_rng(seed)
    for scale in (0.0, 0.02, 0.5):
        prices = scale * rng.exponential(size=dual.shape) * (rng.random(dual.shape) < 0.7)
        assert dual.value(prices)[0] >= optimum - 1e-9


def program_usd(environment):
    """The linear relaxation over all columns, its quotas as sums over all sets of tenants of a cohort.

    What tenants of a set hold together is at most what they keep and the smaller of what the cohort lends and what they
    may borrow: the same polyhedron without its variables b (a polymatroid).
    """
    relaxation = Relaxation(environment)
    master = Master(relaxation)
    columns = np.arange(len(relaxation.columns.value_K))
    job_K, (sites, hours) = master.job_of(columns), relaxation.shape
    first_K, position, used = master.use(columns)
    used_KSH = np.zeros((len(columns), sites * hours))
    for k in columns:
        inner = slice(first_K[k] + 1, first_K[k + 1])
        np.add.at(used_KSH[k], position[inner], used[inner])
    used_KSH = used_KSH.reshape(-1, sites, hours)
    rows = [(job_K == j).astype(float) for j in range(len(environment.jobs))]
    upper = [1.0] * len(rows)
    for s, h in itertools.product(range(sites), range(hours)):
        rows.append(used_KSH[:, s, h])
        upper.append(relaxation.capacity_SH[s, h])
    pools, tenant_K = Pools.of(environment.tenants), environment.tenant_J[job_K]
    for c in range(len(pools.pool_C)):
        own = np.flatnonzero(pools.cohort_T == c)
        for count in range(1, len(own) + 1):
            for some in itertools.combinations(own, count):
                most = pools.kept_T[list(some)].sum() + min(pools.pool_C[c], pools.most_T[list(some)].sum())
                used_KH = used_KSH.sum(axis=1) * np.isin(tenant_K, some)[:, None]
                rows += list(used_KH.T)
                upper += [most] * hours
    used_R = np.array([row.any() for row in rows])
    limits = np.array(upper)[used_R]
    found = minimise(-relaxation.columns.value_K, np.array(rows)[used_R], np.full(len(limits), -np.inf), limits, "all")
    return relaxation.idle_usd - found.value


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_optimum_of_its_linear_program(seed):
    environment, _ = drawn(seed, count=5)
    assert utility_bound(environment, tolerance=1e-9).upper_usd == pytest.approx(program_usd(environment), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_dual_of_a_quota_is_at_least_what_one_more_gpu_adds(seed):
    environment, _ = drawn(seed, count=6)
    relaxation = Relaxation(environment)
    found = quota_bound(relaxation, environment.tenants, environment.tenant_J, **CHOICES)
    assert (found.one_more_usd_T >= -1e-9).all()
    for t, name in enumerate(environment.tenants.names):
        more = quota_bound(relaxation, environment.tenants.with_one_more(name), environment.tenant_J, **CHOICES)
        assert found.upper_usd - 1e-6 <= more.upper_usd <= found.upper_usd + found.one_more_usd_T[t] + 1e-6


def test_one_more_gpu_is_worth_something_to_a_tenant_that_lacks_it_and_nothing_to_one_without_jobs():
    environment = build_environment(load_scenario("tiny", ["tenants={of: {one: {gpus: 4}, two: {gpus: 50}}}"]))
    alone = replace(environment, tenant_J=np.ones(len(environment.jobs), np.int64))
    found = utility_bound(alone).quotas
    assert found.one_more_usd_T[0] == 0.0, "a tenant without jobs needs no GPU"
    short = replace(environment, tenant_J=np.zeros(len(environment.jobs), np.int64))
    assert utility_bound(short).quotas.one_more_usd_T[0] > 0.0


STATED = "tenants={of: {ours: {gpus: 3, cohort: all, borrow: 1}, theirs: {gpus: 4, cohort: all, lend: 2}}}"


@pytest.mark.parametrize("policy", ["local-fcfs", "cheapest-feasible", "random"])
def test_no_policy_exceeds_the_bound_within_its_quotas(policy):
    from noonward.schedule.policies import make_scheduler

    for index in range(3):
        environment = build_environment(load_scenario("tiny", [STATED]), index, 5)
        bound = utility_bound(environment)
        assert earned(environment, make_scheduler(policy)) <= bound.upper_usd
        assert bound.upper_usd <= utility_bound(replace(environment, tenants=None, tenant_J=None)).upper_usd + 1e-6
        assert bound.schedule is None


def test_quotas_that_never_bind_leave_the_bound_as_it_is():
    scenario = load_scenario("tiny")
    free = utility_bound(build_environment(scenario), tolerance=1e-7)
    wide = build_environment(with_settings(scenario, ["tenants={of: {a: {gpus: 500}, b: {gpus: 500}}}"]))
    within = utility_bound(wide, tolerance=1e-7)
    assert within.upper_usd == pytest.approx(free.upper_usd, rel=1e-6)
    assert within.quotas.one_more_usd_T.tolist() == [0.0, 0.0]


def test_many_jobs_are_bounded_without_column_generation_and_shorter_periods_are_refused():
    environment = build_environment(load_scenario("tiny", [STATED]))
    tight, loose = utility_bound(environment), utility_bound(environment, most_jobs=4)
    assert loose.upper_usd >= tight.upper_usd - 1e-6
    assert np.isinf(loose.dual_excess_usd)
    with pytest.raises(ScenarioError, match="has tenants, whose quotas are priced by the hour"):
        utility_bound(environment, period_s=1800.0)

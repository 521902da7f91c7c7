"""What is expected of fine-tuning jobs: weighted jobs against the means over many draws."""

import pickle

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.jobs.expected import _chances
from noonward.data.scenarios.load import load_scenario
from noonward.errors import ScenarioError
from noonward.evaluate.what_if.changes import Change
from noonward.model.cluster.expected import ExpectedSampler, WeightedJobs

RNG = np.random.default_rng
DRAWS = 150


@pytest.fixture(scope="module")
def environment():
    return build_environment(load_scenario("fine-tuning"), 4, 10_000)


@pytest.fixture(scope="module")
def drawn(environment):
    return [environment.sample_jobs(RNG(seed)) for seed in range(DRAWS)]


@pytest.fixture(scope="module")
def found(environment):
    return environment.sample_jobs.expected(2000, RNG(0))


def gpu_hours(jobs):
    return jobs.work_J * jobs.gpus_max_J / 3600.0


def test_the_weights_sum_to_the_jobs_of_a_draw_and_their_gpu_hours_to_the_demand(environment, drawn, found):
    assert isinstance(found, WeightedJobs)
    assert abs(len(found.jobs) - 2000) <= 1
    assert abs(found.weight_J.sum() / np.mean([len(jobs) for jobs in drawn]) - 1) < 0.03
    mean_gpu_h = np.mean([gpu_hours(jobs).sum() for jobs in drawn])
    assert abs(found.weight_J @ gpu_hours(found.jobs) / mean_gpu_h - 1) < 0.002


def test_every_job_stands_for_about_as_many_gpu_hours_as_any_other_unless_it_is_larger(found):
    share_J = found.weight_J * gpu_hours(found.jobs)
    sure = found.weight_J <= found.weight_J.min() * (1 + 1e-9)
    assert 0 < sure.sum() < 1000
    assert np.ptp(share_J[~sure]) < 1e-6 * share_J.mean()
    assert share_J[sure].min() > 0.999 * share_J[~sure].max()


@pytest.mark.parametrize("what", ["hours", "origins", "gangs", "durations", "slacks", "data", "models"])
def test_gpu_hours_are_spread_as_over_many_draws(what, drawn, found):
    column, edges = {
        "hours": (lambda jobs: jobs.arrival_s_J / 3600.0, np.arange(0, 49, 6.0)),
        "origins": (lambda jobs: jobs.origin_J, np.arange(6)),
        "gangs": (lambda jobs: jobs.gpus_max_J, [1, 2, 5, 9, 17, 33, 1000]),
        "durations": (lambda jobs: jobs.work_J / 3600.0, [0, 0.5, 1, 2, 4, 8, 1000]),
        "slacks": (lambda jobs: jobs.slack_s_J / jobs.work_J, np.linspace(0, 2, 5)),
        "data": (lambda jobs: jobs.data_gb_J, [0, 0.5, 2, 5, 10, 1000]),
        "models": (lambda jobs: jobs.model_gb_J, [0, 1, 5, 10, 20, 1000]),
    }[what]

    def shares(jobs, weight_J=1.0):
        size_J = gpu_hours(jobs) * weight_J
        return np.histogram(column(jobs), edges, weights=size_J)[0] / size_J.sum()

    each = np.array([shares(jobs) for jobs in drawn])
    of_mean = each.std(axis=0) / np.sqrt(DRAWS)
    expected = shares(found.jobs, found.weight_J)
    off = np.abs(expected - each.mean(axis=0))
    np.testing.assert_array_less(off, 4 * of_mean + 0.012)
    assert off.sum() < 0.5 * np.abs(each - each.mean(axis=0)).sum(axis=1).mean(), "hardly nearer than a single draw"


def test_the_same_numbers_give_the_same_jobs_and_others_other_ones(environment, found):
    again, other = (environment.sample_jobs.expected(2000, RNG(seed)) for seed in (0, 1))
    assert again.jobs.arrival_s_J.tobytes() == found.jobs.arrival_s_J.tobytes()
    assert again.weight_J.tobytes() == found.weight_J.tobytes()
    assert other.jobs.arrival_s_J.tobytes() != found.jobs.arrival_s_J.tobytes()
    assert other.jobs.work_J.tobytes() != found.jobs.work_J.tobytes()


def test_a_sampler_travels_to_another_process(environment, found):
    there = pickle.loads(pickle.dumps(environment.sample_jobs)).expected(2000, RNG(0))
    assert there.jobs.work_J.tobytes() == found.jobs.work_J.tobytes()


def test_a_changed_environment_changes_what_is_expected(environment, found):
    changed = Change(slack_factor=0.5).applied(environment).sample_jobs
    assert isinstance(changed, ExpectedSampler)
    half = changed.expected(2000, RNG(0))
    assert half.weight_J.tobytes() == found.weight_J.tobytes()
    np.testing.assert_allclose(half.jobs.slack_s_J, 0.5 * found.jobs.slack_s_J, atol=60.0)
    assert half.jobs.slack_s_J.sum() < 0.6 * found.jobs.slack_s_J.sum()


def test_draws_of_other_workloads_say_nothing_of_what_is_expected():
    environment = build_environment(load_scenario("dvfs-training", ["window_h=1"]))
    assert not isinstance(environment.sample_jobs, ExpectedSampler)


def test_an_unknown_ingress_is_refused(environment):
    spec = environment.sample_jobs.spec.model_copy(update={"origin_shares": {"Narnia": 1.0}})
    sampler = type(environment.sample_jobs)(spec, environment.fleet, environment.start, 48, 60.0)
    with pytest.raises(ScenarioError, match="unknown ingress 'Narnia'"):
        sampler.expected(10, RNG(0))


def test_chances_are_in_proportion_to_sizes_and_at_most_one():
    np.testing.assert_allclose(_chances(np.array([1.0, 1.0, 2.0]), 2), [0.5, 0.5, 1.0])
    np.testing.assert_allclose(_chances(np.array([1.0, 3.0, 6.0, 90.0]), 2), [0.1, 0.3, 0.6, 1.0])
    np.testing.assert_allclose(_chances(np.array([1.0, 1.0, 8.0, 90.0]), 3), [0.5, 0.5, 1.0, 1.0])
    assert (_chances(np.array([1.0, 2.0]), 2) == 1.0).all()

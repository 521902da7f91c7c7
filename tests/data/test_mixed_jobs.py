"""Jobs of several classes: each with its own arrivals and work, none changed by another."""

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.jobs.streams import generate_mixed_jobs
from noonward.data.scenarios.load import load_scenario
from noonward.errors import ScenarioError
from noonward.model.cluster.scenario import MixedJobs

FLEET = load_scenario("dvfs-training").fleet
HOUR_S = 3600.0
TRAINING = {"rate_per_s": 0.02, "work": {"law": "log-normal", "median_work": 50_000, "sigma": 0.4}}
INFERENCE = {
    "rate_per_s": 0.1,
    "amplitude": 0.8,
    "period_h": 6,
    "work": {"law": "pareto", "work_min": 2000, "tail": 3.0},
    "gpus_max": 4,
}


def drawn(hours=48, seed=1, **classes):
    spec = MixedJobs.model_validate({"source": "mixed", "classes": classes})
    return generate_mixed_jobs(spec, FLEET, hours * HOUR_S, np.random.default_rng(seed))


def test_every_class_has_its_own_rate_work_and_gangs():
    jobs = drawn(training=TRAINING, inference=INFERENCE)
    for c, rate, most in ((0, 0.02, 8), (1, 0.1, 4)):
        of = jobs.class_J == c
        expected = rate * 8 * 48 * HOUR_S
        assert abs(of.sum() - expected) < 5 * np.sqrt(expected)
        assert set(jobs.gpus_max_J[of].tolist()) == {most}
        assert set(jobs.origin_J[of].tolist()) == set(range(8))
    training, inference = jobs.work_J[jobs.class_J == 0], jobs.work_J[jobs.class_J == 1]
    assert np.median(training) == pytest.approx(50_000, rel=0.02)
    assert np.log(training).std() == pytest.approx(0.4, rel=0.03)
    assert inference.min() >= 2000
    assert inference.mean() == pytest.approx(2000 * 3 / 2, rel=0.03)
    assert (inference > 4000).mean() == pytest.approx(2.0**-3, rel=0.05)


def test_the_rate_follows_its_wave():
    jobs = drawn(inference=INFERENCE)
    phase = (jobs.arrival_s_J / (6 * HOUR_S)) % 1.0
    first_half = (phase < 0.5).mean()  # mean rate of the upper half wave: 1 + 2 amplitude / pi
    assert first_half == pytest.approx((1 + 2 * 0.8 / np.pi) / 2, abs=0.01)


def test_a_class_does_not_change_the_draws_of_another():
    both, alone = drawn(training=TRAINING, inference=INFERENCE), drawn(inference=INFERENCE)
    of = both.class_J == 1
    assert both.arrival_s_J[of].tobytes() == alone.arrival_s_J.tobytes()
    assert both.work_J[of].tobytes() == alone.work_J.tobytes()


def test_an_empty_draw_and_an_unknown_class_are_refused():
    with pytest.raises(ScenarioError, match="no job arrives"):
        drawn(hours=1, training=TRAINING | {"rate_per_s": 1e-9})
    with pytest.raises(ScenarioError, match=r"jobs\.classes names the unknown class 'infrence'.*inference"):
        load_scenario(
            "dvfs-mixed", ["jobs.classes.infrence={rate_per_s: 1, work: {law: pareto, work_min: 1, tail: 2}}"]
        )
    with pytest.raises(ScenarioError, match="gpus_max 1 is below gpus_min 2"):
        load_scenario("dvfs-mixed", ["jobs.classes.inference.gpus_min=2", "jobs.classes.inference.gpus_max=1"])


def test_slack_and_largest_work_are_those_of_the_class():
    jobs = build_environment(load_scenario("training-days", ["jobs.rate_factor=20"])).jobs
    ratio_J = jobs.slack_s_J / jobs.work_J
    assert 0 <= ratio_J.min() < 0.01
    assert 0.99 < ratio_J.max() <= 1
    assert abs(ratio_J.mean() - 0.5) < 0.02
    assert jobs.work_J.min() == 21600
    assert jobs.work_J.max() == 432000


def test_twice_the_rates_are_twice_the_jobs():
    one, two = (
        len(build_environment(load_scenario("training-days", [f"jobs.rate_factor={n}"])).jobs) for n in (10, 20)
    )
    assert abs(two / one - 2) < 0.1


def test_slack_by_run_time_is_for_classes_of_fixed_duration_and_work_has_an_order():
    with pytest.raises(ScenarioError, match=r"jobs\.classes\.inference\.slack_ratio is for classes of fixed duration"):
        load_scenario("dvfs-mixed", ["jobs.classes.inference.slack_ratio=1"])
    with pytest.raises(ScenarioError, match=r"work_max 5 is below work_min 21600"):
        load_scenario("training-days", ["jobs.classes.tune-8.work.work_max=5"])

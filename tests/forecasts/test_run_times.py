"""Learned run times: hazards on paper, censoring, limits, scores on a made log."""

import numpy as np
import pytest

from noonward.errors import DataError
from noonward.forecasts.run_times import (
    BY_BOTH,
    BY_WORK,
    FIRST_HAZARD,
    GROWTH,
    SHRINKAGE,
    LearnedRunTimes,
    crps_J,
)
from noonward.model.cluster.knowledge import CANCELLED, DONE, FAILED, RUNNING, JobTraits

BIN = 30
"""Bin of the work clock that begins at 2^(30/4 - 1) = 90.5 units: 100 lies in it."""


def traits(count, limit=np.inf, **levels):
    return JobTraits.build(
        [np.array(values) for values in levels.values()], limit_J=np.broadcast_to(limit, count) * 1.0
    )


def below(model, job):
    """Share of jobs like one that end below each edge."""
    return model.distribution(np.array([job]))[1][0]


def test_the_hazard_is_that_of_the_formula():
    model = LearnedRunTimes(traits(4))
    model.end(np.arange(3), np.full(3, 100.0), np.full(3, DONE))
    before, at = SHRINKAGE * FIRST_HAZARD / (3 + SHRINKAGE), (3 + SHRINKAGE * FIRST_HAZARD) / (3 + SHRINKAGE)
    share_B = below(model, 3)
    assert share_B[BIN] == pytest.approx(1 - (1 - before) ** BIN, rel=1e-12)
    assert share_B[BIN + 1] == pytest.approx(1 - (1 - before) ** BIN * (1 - at), rel=1e-12)
    assert share_B[BIN + 2] == pytest.approx(1 - (1 - before) ** BIN * (1 - at) * (1 - FIRST_HAZARD), rel=1e-12)


def test_a_group_is_drawn_towards_the_next_broader_one():
    """One job of a user beside three of another: h_user = (d + S h_all) / (n + S)."""
    model = LearnedRunTimes(traits(5, user=["ann", "bob", "bob", "bob", "ann"]))
    model.end(np.arange(4), np.array([100.0, 1000.0, 1000.0, 1000.0]), np.full(4, DONE))
    all_at = (1 + SHRINKAGE * FIRST_HAZARD) / (4 + SHRINKAGE)
    all_before = SHRINKAGE * FIRST_HAZARD / (4 + SHRINKAGE)
    at, before = (1 + SHRINKAGE * all_at) / (1 + SHRINKAGE), SHRINKAGE * all_before / (1 + SHRINKAGE)
    assert below(model, 4)[BIN + 1] == pytest.approx(1 - (1 - before) ** BIN * (1 - at), rel=1e-12)


def test_a_job_without_a_user_is_predicted_by_the_broader_groups():
    known = LearnedRunTimes(traits(4, user=["ann", "ann", "", "bob"]))
    known.end(np.arange(2), np.array([100.0, 100.0]), np.full(2, DONE))
    assert below(known, 2).tolist() == below(known, 3).tolist()
    assert below(known, 2)[BIN + 1] < below(known, 1)[BIN + 1]


def test_what_still_runs_counts_as_reached():
    """Forty ended at 100; of as many others, forty still run at 400: more than half reach that."""
    ended, running = LearnedRunTimes(traits(81)), LearnedRunTimes(traits(81))
    for model in (ended, running):
        model.end(np.arange(40), np.full(40, 100.0), np.full(40, DONE))
    running.end(np.arange(40, 80), np.full(40, 400.0), np.full(40, RUNNING))
    assert ended.quantile(np.array([80]), 0.6)[0] < 110
    assert running.quantile(np.array([80]), 0.6)[0] > 400


def test_told_bit_by_bit_is_told_at_once():
    once, slowly = LearnedRunTimes(traits(2)), LearnedRunTimes(traits(2))
    job = np.array([0])
    for age in (0.0, 3.0, 3.5, 50.0, 99.0):
        slowly.end(job, np.array([age]), np.array([RUNNING]))
    for model in (once, slowly):
        model.end(job, np.array([100.0]), np.array([FAILED]))
    assert below(once, 1).tolist() == below(slowly, 1).tolist()


def test_causes_compete():
    model = LearnedRunTimes(traits(104))
    causes = np.repeat([DONE, FAILED, CANCELLED], [60, 30, 10])
    model.end(np.arange(100), np.full(100, 100.0), causes)
    chances = [model.chance_J(np.array([103]), cause)[0] for cause in (DONE, FAILED, CANCELLED)]
    assert chances == pytest.approx([0.6, 0.3, 0.1], abs=0.03)
    assert sum(chances) <= 1 + 1e-12


def test_estimates_rise_and_keep_to_the_limit_until_it_is_passed():
    model = LearnedRunTimes(traits(51, limit=150.0))
    model.end(np.arange(50), np.linspace(50.0, 140.0, 50), np.full(50, DONE))
    estimate_K = model.estimates(np.array([50]), 0.7, 6)[1][0]
    assert (np.diff(estimate_K) > 0).all()
    assert 100 < estimate_K[0] < 140
    passed = estimate_K >= 150.0
    assert estimate_K[passed][0] == 150.0
    assert (estimate_K[1:][passed[:-1]] >= GROWTH * 150.0 - 1e-3).all()
    assert model.quantile(np.array([50]), 0.7, np.array([estimate_K[0]]))[0] == estimate_K[1]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_what_is_expected_is_the_mean_up_to_the_first_estimate(share):
    rng = np.random.default_rng(4)
    work = np.exp2(rng.uniform(4, 12, 20_000))
    model = LearnedRunTimes(traits(20_001))
    model.end(np.arange(20_000), work, np.full(20_000, DONE))
    mean_J, estimate_JK = model.estimates(np.array([20_000]), share, 3)
    assert mean_J[0] == pytest.approx(np.minimum(work, estimate_JK[0, 0]).mean(), rel=0.02)


def test_an_unknown_job_has_an_estimate_above_its_age():
    model = LearnedRunTimes(traits(1))
    for age in (0.0, 1e-6, 1.0, 1e7, 1e12):
        assert model.quantile(np.array([0]), 0.7, np.array([age]))[0] > age


def test_limits_that_say_much_are_believed():
    rng = np.random.default_rng(1)
    work = np.exp(rng.normal(8, 2, 2000))
    model = LearnedRunTimes(traits(2000, limit=work * rng.uniform(1, 4, 2000)))
    model.end(np.arange(1500), work[:1500], np.full(1500, DONE))
    assert model.weight_3[BY_WORK] < 0.01
    share = model.quantile(np.arange(1500, 2000), 0.5) / work[1500:]
    assert 0.8 < np.median(share) < 1.25


def test_prior_and_limit_are_combined_as_bayes_combines_them():
    rng = np.random.default_rng(2)
    work, asked = np.exp2(rng.uniform(4, 16, 6000)), np.array([6000])
    model = LearnedRunTimes(traits(6001, limit=np.append(work * np.exp2(rng.uniform(0, 6, 6000)), 2.0**12)))
    model.end(np.arange(6000), work, np.full(6000, DONE))
    assert model.weight_3[BY_BOTH] > 0.5
    # Evenly from 2^4 to 2^16, and 2^0 to 2^6 below a limit of 2^12: evenly from 2^6 to 2^12.
    for share in (0.2, 0.5, 0.8):
        assert np.log2(model.quantile(asked, share)[0]) == pytest.approx(6 + 6 * share, abs=0.3)
    # A limit near the least run time leaves a range of it alone: 2^4 to 2^5.
    short = LearnedRunTimes(traits(6001, limit=np.append(model.traits.limit_J[:6000], 2.0**5)))
    short.end(np.arange(6000), work, np.full(6000, DONE))
    assert np.log2(short.quantile(asked, 0.5)[0]) == pytest.approx(4.5, abs=0.2)


@pytest.mark.parametrize(
    ("work", "cause", "words"), [(1.0, 7, "causes"), (-1.0, DONE, "at least 0"), (np.nan, DONE, "at least 0")]
)
def test_what_cannot_have_happened_is_refused(work, cause, words):
    with pytest.raises(DataError, match=words):
        LearnedRunTimes(traits(1)).end(np.array([0]), np.array([work]), np.array([cause]))


def test_the_score_is_the_integral():
    rng = np.random.default_rng(3)
    edges = np.cumsum(rng.exponential(1.0, 9))
    below_JB = np.sort(rng.random((5, 9)), axis=1)
    below_JB[:, 0], below_JB[:, -1] = 0.0, 1.0
    work = rng.uniform(edges[0], edges[-1], 5)
    x = np.linspace(edges[0], edges[-1], 400_001)
    for j in range(5):
        square = (np.interp(x, edges, below_JB[j]) - (x >= work[j])) ** 2
        assert crps_J(edges, below_JB[j : j + 1], work[j : j + 1])[0] == pytest.approx(
            float(((square[1:] + square[:-1]) / 2 * np.diff(x)).sum()), rel=1e-3
        )


def test_on_a_made_log_it_scores_better_than_limit_class_mean_and_last_two_jobs():
    """Twenty users with a run time of their own, log-normal about it; limits are round hours above it."""
    rng = np.random.default_rng(5)
    count, learned = 6000, 4000
    user = rng.integers(20, size=count)
    work = np.exp(np.log(rng.uniform(600, 30_000, 20))[user] + rng.normal(0, 0.8, count))
    limit = np.maximum(np.ceil(work / 3600.0), np.exp(rng.normal(2, 0.7, count)).round() + 1) * 3600.0
    model = LearnedRunTimes(traits(count, limit=limit, user=user.astype(str)))
    score, last_two, cover = [], [], {share: [] for share in (0.1, 0.3, 0.5, 0.7, 0.9)}
    model.end(np.arange(learned), work[:learned], np.full(learned, DONE))
    for first in range(learned, count, 250):  # learns as jobs end
        jobs = np.arange(first, first + 250)
        edges, below_JB = model.distribution(jobs)
        score += crps_J(edges, np.where(edges >= limit[jobs, None], 1.0, below_JB), work[jobs]).tolist()
        for share, covered in cover.items():
            covered += (work[jobs] <= model.quantile(jobs, share)).tolist()
        for job in jobs:
            mine = np.flatnonzero(user[:job] == user[job])[-2:]
            last_two.append(abs(work[job] - work[mine].mean()))
        model.end(jobs, work[jobs], np.full(250, DONE))
    held = slice(learned, count)
    class_mean = np.abs(work[held] - work[:learned].mean())
    assert np.mean(score) < 0.75 * np.mean(last_two)
    assert np.mean(score) < 0.75 * class_mean.mean()
    assert np.mean(score) < 0.5 * (limit[held] - work[held]).mean()
    for share, covered in cover.items():
        assert np.mean(covered) == pytest.approx(share, abs=0.03)

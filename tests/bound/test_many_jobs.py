"""The bound of very many jobs: a bound in every world, exact where every job stands for itself."""

import math
from dataclasses import replace

import numpy as np
import pytest

from noonward.bench.scale import many_sites
from noonward.bound.cluster_utility import many_jobs, many_jobs_schedule, stretches
from noonward.bound.cluster_utility.columns import Columns
from noonward.bound.cluster_utility.dual import Dual, Relaxation
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.likely_starts import Gathered, likely_columns
from noonward.bound.cluster_utility.many_jobs import candidate_starts, many_jobs_bound
from noonward.bound.cluster_utility.many_jobs_schedule import ManyJobsSchedule
from noonward.bound.cluster_utility.pieces import in_turn
from noonward.bound.cluster_utility.prices import descend, descend_by_draws, descend_with_momentum
from noonward.bound.cluster_utility.primal import free_gpus, least_gpu_hours, slot_options
from noonward.bound.cluster_utility.standing_for_all import Draws
from noonward.bound.cluster_utility.starts import value_and_rent
from noonward.bound.cluster_utility.stretches import Listing, priced
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


def test_the_bound_is_what_the_dual_function_of_all_jobs_says_at_its_prices(medium):
    found = many_jobs_bound(medium, jobs=100, rounds=10)
    assert found.upper_usd == pytest.approx(Relaxation(medium).value(found.price_usd_per_gpu_hour_SH)[0], rel=1e-12)


def test_steps_with_momentum_lead_nearer_to_the_least_value_than_as_many_of_polyaks_length(medium):
    relaxation = Relaxation(medium)
    value_usd, price_SH = descend_with_momentum(relaxation, 60, 0.007)
    assert value_usd == pytest.approx(relaxation.value(price_SH)[0], rel=1e-12)
    assert value_usd < descend(relaxation, 60)[0] < relaxation.value(np.zeros(relaxation.shape))[0]
    further_usd, _ = descend_with_momentum(relaxation, 2, 1e-9, price_SH)
    assert further_usd <= value_usd


def test_few_jobs_give_nearly_the_least_bound_and_a_schedule_near_it(medium):
    least = utility_bound(medium, schedule=False)
    few = many_jobs_bound(medium, jobs=len(medium.jobs) // 4)
    assert few.jobs == len(medium.jobs)
    assert least.upper_usd - least.dual_excess_usd <= few.upper_usd
    assert few.upper_usd == pytest.approx(least.upper_usd, rel=0.0005)
    assert 0.997 * few.upper_usd < few.lower_usd < few.upper_usd


def test_where_memory_is_short_prices_are_refined_with_a_sample_too(medium, monkeypatch):
    a_job = Listing.of(medium).starts(stretches.LIKELY) / len(medium.jobs)
    monkeypatch.setattr(stretches, "STRETCH_STARTS", int(500 * a_job))
    some = many_jobs_bound(medium, schedule=False)
    assert 100 < some.jobs <= 502
    assert some.upper_usd == pytest.approx(many_jobs_bound(medium, schedule=False).upper_usd, rel=0.01)


@pytest.mark.parametrize("limit", ["FIRST_STARTS", "TIMES_DRAWN"])
def test_the_first_search_takes_no_more_jobs_than_memory_and_time_allow(medium, monkeypatch, limit):
    counts = []

    class Counted(Draws):
        def next(self):
            rows, weight_J = super().next()
            counts.append(len(rows))
            return rows, weight_J

    monkeypatch.setattr(many_jobs, "Draws", Counted)
    many_jobs_bound(medium, rounds=2, schedule=False)
    usual, made = math.ceil(many_jobs.PER_SITE_HOUR * 4 * 24), len(counts)
    assert counts == pytest.approx([usual] * 5, abs=1)  # starts are counted, two steps; the same and one to compare
    monkeypatch.setattr(many_jobs, limit, 0.01 if limit == "TIMES_DRAWN" else candidate_starts(medium) / 200)
    many_jobs_bound(medium, rounds=2, schedule=False)
    first, *steps, again, compared = counts[made:]
    assert [first, again] == pytest.approx([usual] * 2, abs=1)
    assert all(1 <= count < usual / 2 for count in (*steps, compared))


def test_prices_found_before_are_kept_where_refining_leads_away(medium, monkeypatch):
    plain = many_jobs_bound(medium, rounds=20, schedule=False)
    monkeypatch.setattr(many_jobs, "REFINING", 30.0)
    monkeypatch.setattr(stretches, "LIKELY", 1)
    assert many_jobs_bound(medium, rounds=20, schedule=False).upper_usd <= 1.01 * plain.upper_usd


def test_draws_at_every_step_lead_nearer_to_the_least_value_than_one_draw(medium):
    every, least = Listing.of(medium), descend_with_momentum(Relaxation(medium), 120, 0.007)[0]

    def excess(draws_made):
        draws = Draws(medium.jobs, every.tables, 60, draws_made, np.random.default_rng(0))
        drawn = [every.dual(*draws.next()) for _ in range(draws_made)]
        begin_SH = np.zeros(every.capacity_SH.shape)
        price_SH = descend_by_draws(lambda step: drawn[step % draws_made], 120, 0.007, begin_SH)
        return priced(every, price_SH, in_turn)[0] - least

    assert 0 < 3 * excess(120) < excess(1)


def test_a_search_by_draws_that_is_late_keeps_its_prices():
    price_SH = np.ones((2, 3))
    assert np.array_equal(descend_by_draws(lambda _: None, 5, 1.0, price_SH, lambda: True), price_SH)


def test_the_likely_starts_of_a_job_are_those_of_most_value_after_prices():
    value_K = np.array([5.0, 4.0, 3.0, 9.0, 1.0, 1.0])
    at_K = np.array([0, 0, 1, 0, 0, 0])
    columns = Columns(
        first_J=np.array([0, 3, 4, 6]),
        option_K=np.arange(6), start_s_K=np.zeros(6), value_K=value_K, gpus_K=np.ones(6),
        from_K=at_K, from_share_K=np.zeros(6), to_K=at_K + 1, to_share_K=np.zeros(6),
    )  # fmt: skip
    dual = Dual(columns, np.ones((1, 3)), 0.0)
    dual.value(np.array([[3.0, 0.5, 0.0]]))
    kept = likely_columns(dual, 1)
    assert kept.option_K.tolist() == [2, 3, 4, 5]  # 3 - 0.5 is more than 5 - 3; equal ones are kept
    assert kept.first_J.tolist() == [0, 1, 2, 4]
    dual.value(np.zeros((1, 3)))
    gathered = Gathered(6, 5)
    gathered.add(kept)
    gathered.add(likely_columns(dual, 2))
    both = gathered.columns()
    assert both.first_J.tolist() == [0, 1, 2, 4, 6, 7, 9]
    assert both.value_K.tolist() == [3.0, 9.0, 1.0, 1.0, 5.0, 4.0, 9.0, 1.0, 1.0]


def test_the_bound_does_not_depend_on_how_many_jobs_are_listed_at_once(medium, monkeypatch):
    whole = many_jobs_bound(medium, jobs=300, rounds=20)
    monkeypatch.setattr(stretches, "STARTS_AT_ONCE", candidate_starts(medium) / 5)
    parts = many_jobs_bound(medium, jobs=300, rounds=20)
    assert parts.upper_usd == pytest.approx(whole.upper_usd, rel=1e-12)
    assert parts.lower_usd == pytest.approx(whole.lower_usd, rel=0.01)


@pytest.mark.parametrize("stretch_h", [96, 8])
def test_a_schedule_searched_in_parts_holds_no_more_gpus_than_there_are_and_is_worth_what_it_says(
    medium, monkeypatch, stretch_h
):
    monkeypatch.setattr(many_jobs_schedule, "STRETCH_H", stretch_h)
    relaxation = Relaxation(medium)
    _, price_SH = descend_with_momentum(relaxation, 20, 0.007)
    gpu_hours_J = least_gpu_hours(relaxation.options, len(medium.jobs))
    schedule = ManyJobsSchedule(
        medium, relaxation.tables, relaxation.costs, price_SH, relaxation.priced_usd_J(price_SH), gpu_hours_J,
        0,
    )  # fmt: skip
    schedule.book(400)
    listed_usd = schedule.value_usd
    schedule.search(400, lambda: True)
    assert schedule.value_usd == listed_usd
    schedule.search(400)
    searched_usd = schedule.value_usd
    assert listed_usd < searched_usd < relaxation.value(price_SH)[0] - relaxation.costs.idle_usd
    table = slot_options(medium, relaxation.tables, relaxation.costs, relaxation.options)
    free_ST = free_gpus(medium, relaxation.tables, price_SH.shape[1])
    value_usd = 0.0
    for j in np.flatnonzero(schedule.option_J >= 0):
        option, slot = table.first_J[j] + schedule.option_J[j], schedule.slot_J[j]
        assert table.low_O[option] <= slot <= table.high_O[option]
        free_ST[table.site_O[option], slot : slot + table.slots_O[option]] -= table.gpus_O[option]
        value_usd += value_and_rent(table, np.zeros((len(free_ST), price_SH.shape[1] + 1)), option, slot)[0]
    assert (free_ST >= 0).all()
    assert np.array_equal(free_ST, schedule.free_ST)
    assert value_usd == pytest.approx(searched_usd, rel=1e-9)


def test_candidate_starts_are_counted_and_grow_with_slack(medium):
    hurried = replace(medium, jobs=replace(medium.jobs, slack_s_J=medium.jobs.slack_s_J / 10))
    counts = [len(Relaxation(each).columns.value_K) for each in (hurried, medium)]
    assert [candidate_starts(each) for each in (hurried, medium)] == pytest.approx(counts, rel=0.2)
    assert counts[1] > 1.5 * counts[0]


@pytest.mark.parametrize("count", [1, 40, 500, 10_000])
def test_jobs_stand_for_the_gpu_hours_of_all(medium, count):
    jobs, draws = medium.jobs, Draws(medium.jobs, medium.fleet.tables(16), count, 1, np.random.default_rng(0))
    taken, weight_J = draws.next()
    size_J = jobs.gpus_max_J * jobs.work_J
    assert len(taken) == min(count, len(jobs))
    assert (np.diff(taken) > 0).all()
    assert (weight_J >= 1).all()
    assert weight_J @ size_J[taken] == pytest.approx(size_J.sum(), rel=1e-6 if count == 1 else 0.001)


def test_draws_together_are_at_even_distances(medium):
    """Ten draws of 40 jobs take what one draw of 400 would: no job twice, the large ones apart."""
    jobs, count = medium.jobs, 10
    draws = Draws(jobs, medium.fleet.tables(16), 40, count, np.random.default_rng(0))
    made = [draws.next() for _ in range(count)]
    times_J = np.bincount(np.concatenate([taken for taken, _ in made]), minlength=len(jobs))
    chance_J = np.zeros(len(jobs))
    for taken, weight_J in made:
        chance_J[taken] = 1.0 / weight_J
    drawn_J = times_J > 0
    assert (np.abs(times_J - count * chance_J)[drawn_J] < 1.0 + 1e-9).all()
    again = [draws.next()[0] for _ in range(count)]
    assert all(np.array_equal(taken, other) for (taken, _), other in zip(made, again, strict=True))


def test_a_comparison_takes_it_beyond_a_size_and_says_so(medium, monkeypatch):
    plain = UtilityObjective().compute_bound(medium, 0.0)
    assert "standing_for_all" not in plain
    for name in ("MANY_STARTS", "FEW_CHOICES"):
        monkeypatch.setattr(cluster_objective, name, 1000)
    found = UtilityObjective().compute_bound(medium)
    assert found["utility_usd"] > found["best_known_usd"]
    assert "capacity is priced with a sample of the jobs" in UtilityObjective().describe_bound(found)
    assert UtilityObjective().compute_bound(medium, 0.0)["cut"] == 1.0


@pytest.mark.parametrize("options", [{"jobs": 0}, {"rounds": 1}])
def test_numbers_out_of_range_are_refused(medium, options):
    with pytest.raises(ScenarioError, match="at least 1 and 2"):
        many_jobs_bound(medium, **options)

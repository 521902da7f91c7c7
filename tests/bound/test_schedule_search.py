"""The search for a schedule of the utility bound: its parts against plain loops, and the whole against brute force."""

from types import SimpleNamespace

import numpy as np
import pytest

from noonward.bound.cluster_utility.booking import Bookings, book_listed
from noonward.bound.cluster_utility.dive import dive
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.master import Master
from noonward.bound.cluster_utility.prices import descend, polish
from noonward.bound.cluster_utility.primal import guide, least_gpu_hours, slot_options
from noonward.bound.cluster_utility.search import Room, improve
from noonward.bound.cluster_utility.starts import best_start, first_taken, fitting, last_taken, value_and_rent
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.units import HOUR_S
from reference.cluster_utility import Replay, brute_force, earned, random_environment


@pytest.fixture(scope="module")
def world():
    """An environment of 150 jobs, its relaxation, capacity prices and what the search knows."""
    env = build_environment(load_scenario("fine-tuning", ["jobs.count=150", "window_h=12"]))
    relaxation = Relaxation(env)
    upper_usd, price_SH, columns = descend(relaxation, 100)
    table = slot_options(env, relaxation.tables, relaxation.costs, relaxation.options)
    gpu_hours_J = least_gpu_hours(relaxation.options, len(env.jobs))
    known = guide(table, env, price_SH, relaxation.priced_usd_J(price_SH), gpu_hours_J)
    return SimpleNamespace(
        env=env, relaxation=relaxation, upper_usd=upper_usd, price_SH=price_SH, columns=columns, table=table,
        known=known, gpu_hours_J=gpu_hours_J, slots=int(price_SH.shape[1] * HOUR_S / env.slot_s) + 2,
    )  # fmt: skip


def listed(world, scale=1.0):
    """Bookings by arrival."""
    jobs = len(world.env.jobs)
    gpus_S = world.relaxation.tables.gpus_S
    books = Bookings.empty(np.repeat(gpus_S[:, None], world.slots, axis=1).astype(np.int32), jobs)
    order_J, any_J = np.arange(jobs), np.full(jobs, -1)
    book_listed(world.table, world.known, scale, order_J, any_J, np.random.default_rng(0), books)
    return books


def free_of(world, books):
    """Free GPUs, counted job by job."""
    free_ST = np.repeat(world.relaxation.tables.gpus_S[:, None], world.slots, axis=1)
    for option, slot in zip(books.option_J, books.slot_J, strict=True):
        if option >= 0:
            until = slot + world.table.slots_O[option]
            free_ST[world.table.site_O[option], slot:until] -= world.table.gpus_O[option]
    return free_ST


@pytest.mark.parametrize("seed", range(20))
def test_stretches_that_fit_are_those_of_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    free_T = rng.choice([0, 3], p=[0.04 * (seed % 5), 1 - 0.04 * (seed % 5)], size=400).astype(np.int32)
    length, low, high = int(rng.integers(1, 120)), int(rng.integers(0, 50)), int(rng.integers(60, 250))
    fits = [t for t in range(low, high + 1) if free_T[t : t + length].min() >= 2]
    found, begin = [], low
    while begin <= high:
        begin, last = fitting(free_T, 2, length, begin, high)
        if begin <= high:
            found += range(begin, last + 1)
            begin = last + length + 1
    assert found == fits
    taken = [t for t in range(low, high) if free_T[t] < 2]
    assert first_taken(free_T, low, high, 2) == (taken[0] if taken else high)
    assert last_taken(free_T, low, high, 2) == (taken[-1] if taken else low - 1)


def test_the_best_start_is_worth_what_the_best_of_all_starts_is(world):
    table, known, free_ST = world.table, world.known, listed(world).free_ST
    some = 0
    for option in range(0, len(table.low_O), 3):
        free_T = free_ST[table.site_O[option]]
        best = 0.0
        for slot in range(table.low_O[option], table.high_O[option] + 1):
            if free_T[slot : slot + table.slots_O[option]].min() >= table.gpus_O[option]:
                value, rent = value_and_rent(table, known.price_cumulative_SH, option, slot)
                best = max(best, value - 0.7 * rent)
        slot, value, priced = best_start(table, known, 0.7, free_T, option, 0.0)
        assert priced == pytest.approx(best, abs=1e-9)
        if slot >= 0:
            some += 1
            assert value == value_and_rent(table, known.price_cumulative_SH, option, slot)[0]
    assert some > 20


def test_the_search_keeps_books_that_are_right_and_gains(world):
    books = listed(world)
    jobs, first_usd = len(books.option_J), books.value_J.sum()
    best = books.copied()
    generator, room = np.random.default_rng(1), Room.of(jobs)
    improve(world.table, world.known, 0, 3000, 3000, 0.2, np.inf, generator, books, best, room)
    for each in (books, best):
        assert free_of(world, each).min() >= 0
        for j in np.flatnonzero(each.option_J >= 0):
            option, slot = each.option_J[j], each.slot_J[j]
            assert world.table.first_J[j] <= option < world.table.first_J[j + 1]
            assert world.table.low_O[option] <= slot <= world.table.high_O[option]
            value, _ = value_and_rent(world.table, world.known.price_cumulative_SH, option, slot)
            assert each.value_J[j] == value
    assert (books.free_ST == free_of(world, books)).all()
    assert best.value_J.sum() >= books.value_J.sum()
    assert first_usd < best.value_J.sum() <= world.upper_usd - world.relaxation.idle_usd


def test_the_search_ends_where_no_more_can_be_gained(world):
    books = listed(world)
    before = books.copied()
    enough_usd = float(books.value_J.sum())
    generator, room = np.random.default_rng(1), Room.of(len(books.option_J))
    improve(world.table, world.known, 0, 500, 500, 0.2, enough_usd, generator, books, before.copied(), room)
    assert books.slot_J.tobytes() == before.slot_J.tobytes()
    assert books.option_J.tobytes() == before.option_J.tobytes()


def test_a_dive_gives_the_largest_jobs_whole_places_within_capacity(world):
    relaxation = world.relaxation
    master = Master(relaxation)
    polish(relaxation, world.price_SH, world.columns, 1e-6, master=master)
    column_J = dive(master, world.gpu_hours_J)
    placed_J = np.flatnonzero(column_J >= 0)
    assert (master.job_of(column_J[placed_J]) == placed_J).all()
    order_J = np.argsort(-world.gpu_hours_J)
    largest = order_J[np.cumsum(world.gpu_hours_J[order_J]) <= 0.6 * world.gpu_hours_J.sum()]
    assert 5 < len(placed_J) <= len(largest)
    assert set(placed_J) <= set(largest)
    c = relaxation.columns
    used_SH = np.zeros(relaxation.shape)
    for k in column_J[placed_J]:
        site, start_s = relaxation.options.site_O[c.option_K[k]], c.start_s_K[k]
        end_s = start_s + relaxation.options.run_s_O[c.option_K[k]]
        for hour in range(relaxation.shape[1]):
            inside_s = max(0.0, min(end_s, (hour + 1) * HOUR_S) - max(start_s, hour * HOUR_S))
            used_SH[site, hour] += c.gpus_K[k] * inside_s / HOUR_S
    assert (used_SH <= relaxation.gpus_S[:, None] + 1e-6).all()


@pytest.mark.parametrize("seed", range(20))
def test_small_cases_are_searched_to_their_optimum(seed):
    env = random_environment(seed, count=4, sites=2)
    optimum = brute_force(env)
    bound = utility_bound(env, rounds=400, seed=seed)
    assert bound.upper_usd >= optimum - 1e-9
    assert bound.lower_usd == pytest.approx(optimum, abs=1e-9)
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.lower_usd, abs=1e-9)


def test_the_search_closes_much_of_the_gap_that_a_list_leaves():
    env = build_environment(load_scenario("fine-tuning", ["jobs.count=400", "window_h=24"]))
    bound = utility_bound(env, rounds=8000)
    listed_alone = utility_bound(env, rounds=0)
    assert 0 <= bound.gap_usd < 0.6 * listed_alone.gap_usd
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.lower_usd, abs=1e-6)

"""Prices refined by stretches: each beside the others as they are, by any number of processes the same."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from noonward.bench.scale import many_sites
from noonward.bound.cluster_utility import many_jobs, many_jobs_schedule, stretches
from noonward.bound.cluster_utility.dual import Relaxation
from noonward.bound.cluster_utility.many_jobs import many_jobs_bound
from noonward.bound.cluster_utility.pieces import Deadline, in_turn
from noonward.bound.cluster_utility.prices import descend_with_momentum
from noonward.bound.cluster_utility.stretches import Listing, Stretch, days_of_stretch, priced, refined
from noonward.data.environments import build_environment
from reference.cluster_utility import random_environment


@pytest.fixture(scope="module")
def medium():
    return build_environment(many_sites(2000, 4))


@pytest.fixture(scope="module")
def first(medium):
    """Prices near the best ones, and D at them."""
    value_usd, price_SH = descend_with_momentum(Relaxation(medium), 30, 0.007)
    return price_SH, value_usd


def sent(pieces):
    """Carries out pieces as another process would: each as it is pickled, in another order."""
    found = {n: pickle.loads(pickle.dumps(pieces[n])).found() for n in reversed(range(len(pieces)))}
    return [found[n] for n in range(len(pieces))]


def short(monkeypatch, starts=1e4):
    """Cuts jobs, days and schedule into several pieces."""
    monkeypatch.setattr(stretches, "MOST_DAYS", 1)
    monkeypatch.setattr(stretches, "STARTS_AT_ONCE", starts)
    monkeypatch.setattr(stretches, "PRICED_TOGETHER", 2)
    monkeypatch.setattr(many_jobs_schedule, "STRETCH_H", 12)


@pytest.mark.parametrize("exact_sites", [64, 2])
def test_other_processes_find_the_same_bytes(monkeypatch, exact_sites):
    environment = build_environment(many_sites(2000, 4, zones=1))
    short(monkeypatch)
    here, there = (
        many_jobs_bound(environment, rounds=10, exact_sites=exact_sites, map_pieces=each) for each in (in_turn, sent)
    )
    assert (here.upper_usd, here.lower_usd, here.jobs) == (there.upper_usd, there.lower_usd, there.jobs)
    assert here.price_usd_per_gpu_hour_SH.tobytes() == there.price_usd_per_gpu_hour_SH.tobytes()


def test_a_piece_takes_along_its_own_jobs_alone(medium, first, monkeypatch):
    short(monkeypatch)
    counts = []

    def counted(pieces):
        for piece in (pickle.loads(pickle.dumps(piece)) for piece in pieces):
            if hasattr(piece, "jobs"):
                counts.append((type(piece).__name__, len(piece.jobs.environment.jobs)))
        return in_turn(pieces)

    every = Listing.of(medium)
    priced(every, first[0], counted)
    assert sum(count for _, count in counts) == len(medium.jobs)
    assert max(count for _, count in counts) == 2 * every.at_once < len(medium.jobs)
    counts.clear()
    _, held = refined(every, first[0], rounds=2, step_usd=1e-3, seed=0, map_pieces=counted)
    assert held == len(medium.jobs)  # each is counted by the stretch in which it arrives
    last = counts[-1][1]
    assert 0 < last < 0.2 * len(medium.jobs)  # when hardly any job runs any more


def test_d_is_that_of_all_jobs_whatever_the_parts_in_which_they_are_priced(medium, first, monkeypatch):
    short(monkeypatch)
    upper_usd, priced_usd_J, _ = priced(Listing.of(medium), first[0], in_turn)
    relaxation = Relaxation(medium)
    assert upper_usd == pytest.approx(relaxation.value(first[0])[0], rel=1e-12)
    assert priced_usd_J == pytest.approx(relaxation.priced_usd_J(first[0]), abs=1e-12)


def test_a_stretch_searches_its_own_prices_beside_the_others_as_they_are(medium, first, monkeypatch):
    short(monkeypatch)
    monkeypatch.setattr(stretches, "MARGIN_H", 0)
    monkeypatch.setattr(stretches, "LIKELY", 1000)
    every, relaxation, price_SH = Listing.of(medium), Relaxation(medium), 1.3 * first[0]
    before_usd = relaxation.value(price_SH)[0]
    stretch = Stretch(jobs=every, price_SH=price_SH, first_h=6, until_h=18, rounds=60, step_usd=1e-3, seed=0)
    found_SX, held = stretch.found()
    assert held == np.count_nonzero((medium.jobs.arrival_s_J >= 6 * 3600) & (medium.jobs.arrival_s_J < 18 * 3600))
    mixed_SH = price_SH.copy()
    mixed_SH[:, 6:18] = found_SX
    after_usd = relaxation.value(mixed_SH)[0]
    assert after_usd < before_usd - 0.05  # with all starts and without margins, D falls by what the stretch found
    other = price_SH.copy()
    other[:, 18:] *= 2.0
    assert not np.array_equal(replace(stretch, price_SH=other).found()[0], found_SX)
    other = price_SH.copy()
    other[:, 6:18] = found_SX
    again_SX, _ = replace(stretch, price_SH=other).found()
    assert relaxation.value(np.concatenate([price_SH[:, :6], again_SX, price_SH[:, 18:]], axis=1))[0] <= after_usd


def test_stretches_of_a_day_come_near_one_that_holds_the_window(monkeypatch):
    environment = build_environment(many_sites(6000, 2))
    few = {"jobs": 300, "schedule": False}
    whole = many_jobs_bound(environment, **few)
    with monkeypatch.context() as patched:
        patched.setattr(many_jobs, "refined", lambda every, price_SH, **_: (price_SH, 1))
        assert whole.upper_usd < many_jobs_bound(environment, **few).upper_usd
    monkeypatch.setattr(stretches, "MOST_DAYS", 1)
    days = many_jobs_bound(environment, **few)
    assert days.upper_usd != whole.upper_usd
    assert days.upper_usd == pytest.approx(whole.upper_usd, rel=0.001)


def test_a_stretch_has_as_many_days_as_memory_allows_for(medium, monkeypatch):
    every, days = Listing.of(medium), []
    a_day = every.starts(stretches.LIKELY)
    held = sum(np.minimum(np.diff(columns.first_J), stretches.LIKELY).sum() for _, columns, _ in every.parts())
    assert a_day == pytest.approx(held, rel=0.2)
    for room in (0.1, 3.5, 4.2, 100.0):
        monkeypatch.setattr(stretches, "STRETCH_STARTS", int(room * a_day))
        days.append(days_of_stretch(every))
    assert days == [1, 2, 3, stretches.MOST_DAYS]


@pytest.mark.parametrize("seed", range(20))
def test_prices_of_stretches_of_few_jobs_give_a_bound_too(seed, monkeypatch):
    short(monkeypatch)
    monkeypatch.setattr(stretches, "STRETCH_STARTS", 2 * stretches.LIKELY)
    environment = random_environment(seed, count=9, sites=2 + seed % 2)
    found = many_jobs_bound(environment, jobs=2, rounds=6, seed=seed, map_pieces=sent)
    exact = Relaxation(environment).value(found.price_usd_per_gpu_hour_SH)[0]
    assert found.upper_usd == pytest.approx(exact, rel=1e-12)


def test_a_search_that_is_late_keeps_the_prices_that_it_has(medium, first):
    every = Listing.of(medium)
    late = Deadline(0.0)
    price_SH, _ = refined(every, first[0], rounds=9, step_usd=1.0, seed=0, map_pieces=sent, late=late)
    assert np.array_equal(price_SH, first[0])
    cut = many_jobs_bound(medium, late=late, map_pieces=sent)
    assert cut.cut
    assert cut.upper_usd == pytest.approx(Relaxation(medium).value(cut.price_usd_per_gpu_hour_SH)[0], rel=1e-12)


def test_a_deadline_lies_so_many_seconds_ahead():
    assert Deadline.after(-1.0)()
    assert not Deadline.after(1000.0)()
    assert not Deadline(math.inf)()

"""Bounds in pieces: left by their specs, found by all workers together, the same as one process finds."""

import pytest

from noonward.bench.scale import many_sites
from noonward.bound.cluster_utility import many_jobs_schedule, stretches
from noonward.data.scenarios.load import load_scenario
from noonward.evaluate import cluster_objective
from noonward.evaluate.bound_runs import BoundRun, map_with_bounds
from noonward.notices import listening
from noonward.runtime.executor import map_runs
from noonward.runtime.processes import Processes

MANY = many_sites(1500, 3)


@pytest.fixture
def very_many(monkeypatch):
    """Has the bound of very many jobs found where there are few, in several pieces."""
    for name in ("MANY_STARTS", "FEW_CHOICES"):
        monkeypatch.setattr(cluster_objective, name, 1000)
    monkeypatch.setattr(stretches, "MOST_DAYS", 1)
    monkeypatch.setattr(many_jobs_schedule, "STRETCH_H", 24)


def test_a_bound_of_very_many_jobs_is_the_same_by_one_process_and_by_two(very_many, tmp_path):
    alone = map_runs([BoundRun(MANY, 0, 1)])[0]
    told, done = [], []
    executor = Processes(2, patience_s=0.0, start_s=0.0)
    try:
        with listening(lambda kind, about: told.append(about)):
            found = map_with_bounds([BoundRun(MANY, 0, 1, tmp_path, left=True)], executor, done.append)[0]
        assert len(executor.pids) == 2
    finally:
        executor.close()
    assert found.value == alone.value
    assert found.value["best_known_usd"] < found.value["utility_usd"]
    assert "bound, environment 0: prices of hours 0 to 23" in told
    assert done == ["bound, environment 0"]
    again = map_with_bounds([BoundRun(MANY, 0, 1, tmp_path, left=True)])[0]
    assert again.of is None  # read back
    assert again.value == alone.value


def test_a_bound_that_is_left_is_not_there_until_all_workers_found_it(very_many, tmp_path):
    spec, kept = BoundRun(MANY, 0, 1, tmp_path, left=True), []
    left = map_runs([spec])[0]
    assert left.bound is None
    assert not spec.place.exists()
    found = map_with_bounds([spec], None, None, lambda place, one: kept.append((place, one.value)))[0]
    assert kept == [(0, found.value)]
    assert spec.place.is_file()


def test_other_bounds_are_found_by_their_own_spec(tmp_path):
    spec = BoundRun(load_scenario("tiny"), 0, 1, left=True)
    assert map_runs([spec])[0].value == map_with_bounds([spec])[0].value


def test_time_that_is_up_cuts_a_bound_in_pieces(very_many):
    found = map_with_bounds([BoundRun(MANY, 0, 1, None, 0.0, left=True)])[0]
    assert found.value["cut"] == 1.0

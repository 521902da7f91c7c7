"""Digests of records and bounds cover the package, its libraries, and files of one's own."""

import shutil

import pytest

from noonward import sources
from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.comparison import objective_of
from noonward.evaluate.utility_objective import UtilityObjective
from noonward.model.kinds import CLUSTER
from noonward.runtime import rests_on
from noonward.schedule.cluster.packaged_policies import trained_policies
from noonward.schedule.policies import find_policy, make_scheduler, register
from noonward.schedule.registry import Policy

TRAINED = sources.PACKAGE / "schedule" / "cluster" / "trained"


def of_run(policy):
    found = find_policy(policy)
    return rests_on.run_digest(CLUSTER, found, found.make())


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A small package in place of this one, for its digest: a source, and the net that learned prices start from."""
    place = tmp_path / "package"
    place.mkdir()
    (place / "engine.py").write_text("SLOTS = 1\n", encoding="utf-8")
    shutil.copy(TRAINED / "masac-credit-seed1.npz", place / "masac-credit-seed1.npz")

    def digest():
        return sources.digest(path for path in place.iterdir())

    monkeypatch.setattr(rests_on, "package_digest", digest)
    return place


@pytest.mark.parametrize("policy", ["local-fcfs", "bid-price(forecast=regression, price=1)"])
def test_a_record_falls_with_any_file_of_the_package(package, policy):
    before = of_run(policy)
    assert of_run(policy) == before
    (package / "engine.py").write_text("SLOTS = 2\n", encoding="utf-8")
    changed = of_run(policy)
    assert changed != before
    shutil.copy(TRAINED / "masac-credit-seed2.npz", package / "masac-credit-seed1.npz")
    assert of_run(policy) not in (before, changed)


def test_the_package_digest_covers_the_nets_that_arguments_name():
    held = {path for path in sources.PACKAGE.rglob("*") if path.is_file()}
    assert {TRAINED / "masac-credit-seed1.npz", sources.PACKAGE / "forecasts/tables/forecast_net_seed1.npz"} <= held
    before = sources.digest(held)
    assert sources.digest(held - {TRAINED / "masac-credit-seed1.npz"}) != before


def test_the_versions_of_libraries_count(monkeypatch):
    before = of_run("local-fcfs")
    monkeypatch.setattr(rests_on, "versions", lambda: {"numpy": "another"})
    assert of_run("local-fcfs") != before


def test_a_trained_policy_of_your_own_counts_by_its_file(own_registry, tmp_path):
    shutil.copy(TRAINED / "masac.npz", tmp_path / "own.npz")
    (file,) = trained_policies(tmp_path)
    own_registry.add(
        Policy(name="own", make=lambda: make_scheduler(str(file.path)), summary="", family="own", trained=file)
    )
    before = of_run("own")
    shutil.copy(TRAINED / "madqn.npz", tmp_path / "own.npz")
    assert of_run("own") != before


def test_a_forecast_of_your_own_counts_by_its_file(monkeypatch, tmp_path):
    monkeypatch.setenv("NOONWARD_FORECASTS", str(tmp_path))
    tables = sources.PACKAGE / "forecasts" / "tables"
    shutil.copy(tables / "forecast_net_small-seed0.npz", tmp_path / "mine.npz")
    before = of_run("booked(forecast=learned, net=mine)")
    shutil.copy(tables / "forecast_net_small-seed1.npz", tmp_path / "mine.npz")
    assert of_run("booked(forecast=learned, net=mine)") != before


def test_a_scheduler_of_your_own_counts_by_its_source(own_registry, monkeypatch, tmp_path):
    source = "from noonward.schedule.cluster.slot_rules import MostFree\nclass Mine(MostFree):\n    'Mine.'\n"
    (tmp_path / "mine_rule.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    register("mine", lambda: make_scheduler("mine_rule:Mine"))
    before = of_run("mine")
    (tmp_path / "mine_rule.py").write_text(source + "# changed\n", encoding="utf-8")
    assert of_run("mine") != before


def test_bounds_of_two_objectives_differ_and_fall_with_the_package(package):
    objective = objective_of(load_scenario("tiny"))
    before = rests_on.bound_digest(CLUSTER, objective)

    class Other(UtilityObjective):
        pass

    assert rests_on.bound_digest(CLUSTER, Other()) != before
    (package / "engine.py").write_text("SLOTS = 2\n", encoding="utf-8")
    assert rests_on.bound_digest(CLUSTER, objective) != before

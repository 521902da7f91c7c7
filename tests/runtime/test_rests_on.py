"""Digests of records cover what a run rests on, and nothing else."""

import pytest

from noonward import sources
from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.cluster_objectives import UtilityObjective
from noonward.evaluate.comparison import objective_of
from noonward.evaluate.edge_objective import EdgeObjective
from noonward.model.kinds import CLUSTER, EDGE
from noonward.runtime import rests_on
from noonward.schedule.policies import make_scheduler

PACKAGE = sources.PACKAGE


@pytest.fixture
def seen(monkeypatch):
    """Files that the digests asked for cover, by their place in the package."""
    files = set()

    def collect(paths, about=""):
        paths = list(paths)
        files.update(path.relative_to(PACKAGE).as_posix() for path in paths if path.is_relative_to(PACKAGE))
        return sources.digest(paths, about)

    rests_on._digest.cache_clear()
    monkeypatch.setattr(rests_on, "digest", collect)
    yield files
    rests_on._digest.cache_clear()


def of_run(policy):
    return rests_on.run_digest(CLUSTER, policy, make_scheduler(policy))


def test_a_run_rests_on_engine_ledger_data_tables_and_its_policy(seen):
    of_run("cheapest-feasible")
    assert seen >= {
        "engine/run.py",
        "engine/cluster/kernels/physics.py",
        "ledger/settle.py",
        "ledger/record.py",
        "data/signals/generate.py",
        "data/tables/signals_calibration.json",
        "forecasts/tables/forecast_regression.json",
        "model/cluster/scenario.py",
        "schedule/cluster/slot_rules.py",
        "schedule/cluster/catalogue.py",
        "schedule/registry.py",
        "runtime/runs.py",
        "units.py",
    }


def test_a_run_does_not_rest_on_other_policies_bounds_reports_training_or_other_kinds(seen):
    of_run("cheapest-feasible")
    parts = {path.partition("/")[0] for path in seen}
    assert not parts & {"cli", "evaluate", "learn", "studies", "bench", "bound", "live"}
    assert not seen & {"schedule/cluster/bid_price.py", "schedule/cluster/routing.py", "schedule/plan/solve.py"}
    assert not [path for path in seen if path.endswith(".npz") and "trained" in path]
    assert not [path for path in seen if "/edge" in path and "catalogue" not in path]


def test_a_trained_policy_rests_on_its_own_file_alone(seen):
    of_run("masac")
    assert [path for path in seen if "/trained/" in path] == ["schedule/cluster/trained/masac.npz"]


def test_policies_of_one_class_share_a_digest_and_others_do_not():
    assert of_run("booked-persistence") == of_run("booked-noisy")
    names = ("local-fcfs", "booked-noisy", "bid-price-noisy", "masac", "madqn", "dp")
    assert len({of_run(name) for name in names}) == len(names)


def test_the_versions_of_libraries_count(monkeypatch):
    before = of_run("local-fcfs")
    rests_on._digest.cache_clear()
    monkeypatch.setattr(rests_on, "versions", lambda: {"numpy": "another"})
    assert of_run("local-fcfs") != before
    rests_on._digest.cache_clear()


def test_a_bound_rests_on_its_solver_and_the_environment_and_not_on_policies_and_reports(seen):
    rests_on.bound_digest(CLUSTER, objective_of(load_scenario("tiny")))
    assert seen >= {
        "bound/cluster_utility/lagrangian.py",
        "bound/cluster_energy.py",
        "evaluate/cluster_objectives.py",
        "data/environments.py",
        "model/economics.py",
    }
    assert not [path for path in seen if path.startswith(("evaluate/report/", "schedule/", "learn/", "cli/"))]


def test_a_bound_that_is_apart_rests_on_its_module_and_the_call_and_not_on_the_metrics_beside_it(seen):
    objective = objective_of(load_scenario("edge-inference"))
    before = rests_on.bound_digest(EDGE, objective)
    assert seen >= {
        "bound/edge_environment.py",
        "bound/edge_kinds.py",
        "bound/edge_search.py",
        "engine/edge/kernels.py",
    }
    assert not [path for path in seen if path.startswith(("evaluate/", "learn/", "cli/"))]
    assert "schedule/edge/priced_lookahead.py" not in seen  # but the beam plays patient reuse

    class Other(EdgeObjective):
        def compute_bound(self, environment, seconds=None):
            return super().compute_bound(environment, 1.0)

    assert rests_on.bound_digest(EDGE, Other()) != before


@pytest.mark.parametrize("objective", [UtilityObjective, EdgeObjective])
def test_an_objective_names_all_modules_of_bounds_and_engines_that_it_imports(objective):
    named = sources.closure(sources.file_of(module) for module in objective.bound_modules)
    own = sources.file_of(objective.__module__)
    used = {path for path in sources.imported(own) if path.relative_to(PACKAGE).parts[0] in ("bound", "engine")}
    assert used
    assert used <= named


def test_an_objective_that_names_no_modules_rests_on_all_that_its_own_module_imports(seen):
    class Own(UtilityObjective):
        bound_modules = ()

    rests_on.bound_digest(CLUSTER, Own())
    assert {"schedule/registry.py", "evaluate/edge_objective.py"} <= seen

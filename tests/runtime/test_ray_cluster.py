"""Ray: the same bytes as serial, killed workers lose nothing, a missing Ray names the extra."""

import importlib.util
import sys

import pytest

from noonward.bench.scale import many_sites
from noonward.bound.cluster_utility import stretches
from noonward.data.scenarios.load import load_scenario
from noonward.errors import MissingExtraError, ScenarioError
from noonward.evaluate import cluster_objective
from noonward.evaluate.bound_runs import BoundRun
from noonward.evaluate.compare import compare
from noonward.runtime.executor import map_runs
from noonward.runtime.ray_cluster import RayCluster
from noonward.runtime.shared import forget, shared
from runtime.specs import Square, Summing
from runtime.test_processes import files_of

TINY = load_scenario("tiny")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra 'ray' is not installed")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster():
    """Ray on this machine."""
    executor = RayCluster("local")
    yield executor
    executor.close()


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_records_and_bounds_are_those_of_serial_byte_for_byte(cluster, tmp_path):
    for name, executor in (("one", None), ("two", cluster)):
        compare(TINY, ["local-fcfs", "random"], environments=2, out=tmp_path / name, executor=executor)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") != {}


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_a_bound_in_pieces_is_that_of_serial(cluster, monkeypatch):
    for name in ("MANY_STARTS", "FEW_CHOICES"):
        monkeypatch.setattr(cluster_objective, name, 1000)
    monkeypatch.setattr(stretches, "MOST_DAYS", 1)
    spec = BoundRun(many_sites(1500, 3), 0, 1)
    assert spec.in_pieces(cluster).value == spec.in_pieces(None).value


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_what_specs_share_is_built_once_or_comes_from_this_process(cluster, tmp_path):
    specs = [Summing(n, tmp_path) for n in range(12)]  # three tables, of which this process has the second
    forget()
    shared(specs[4].shares.key, specs[4].shares.make)
    assert map_runs(specs, cluster) == [1e5 * (n // 4) + n for n in range(12)]
    assert sorted(path.name.split("-")[1] for path in tmp_path.glob("built-*")) == ["0", "1", "2"]


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_nothing(cluster, tmp_path):
    specs = [Square(n, tmp_path, first="die_once" if n == 1 else "") for n in range(4)]
    assert [square for square, _ in map_runs(specs, cluster)] == [0, 1, 4, 9]
    assert (tmp_path / "died-1").exists()


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_an_error_arrives_with_its_type_and_message(cluster):
    with pytest.raises(ScenarioError, match="5 is wrong; give another"):
        map_runs([Square(4), Square(5, first="scenario_error")], cluster)


def test_a_missing_ray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'noonward\[ray\]'"):
        RayCluster("local")

"""Ray on several nodes: those that are killed in mid-run lose nothing and change no byte."""

import os
import sys
from pathlib import Path

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.compare import compare
from noonward.runtime.executor import map_runs
from noonward.runtime.ray_cluster import RayCluster
from runtime.specs import Summing
from runtime.test_processes import files_of
from runtime.test_ray_cluster import needs_ray

pytestmark = [needs_ray, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]

STORE = {"object_store_memory": 80_000_000}


@pytest.fixture
def nodes(monkeypatch):
    """A head without cores and two nodes of one core each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]))
    often = {"health_check_period_ms": 500, "health_check_initial_delay_ms": 500, "health_check_failure_threshold": 2}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": often, **STORE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster, [cluster.add_node(num_cpus=1, **STORE) for _ in range(2)]
    cluster.shutdown()


def test_nodes_that_are_killed_in_mid_run_lose_nothing_and_change_no_byte(nodes, tmp_path):
    cluster, (first, second) = nodes
    executor = RayCluster(cluster.address)
    tiny, policies, done = load_scenario("tiny"), ["local-fcfs", "random", "price-greedy"], []

    def kill_one(label):
        done.append(label)
        if len(done) == 2:  # four specs are under way or wait at the nodes, two at each
            cluster.remove_node(second, allow_graceful=False)

    def replace_the_other(label):
        if label == "sum 0":  # with it goes the table that the other sums need, and that only a task has built
            cluster.add_node(num_cpus=1, **STORE)
            cluster.remove_node(first, allow_graceful=False)
            (tmp_path / "go").touch()

    sums = [Summing(n, tmp_path, waits_for=tmp_path / "go" if n else None) for n in range(4)]
    try:
        compare(tiny, policies, environments=4, out=tmp_path / "two", executor=executor, progress=kill_one)
        assert len(cluster.list_all_nodes()) == 2
        assert map_runs(sums, executor, replace_the_other) == [0.0, 1.0, 2.0, 3.0]
    finally:
        executor.close()
    compare(tiny, policies, environments=4, out=tmp_path / "one")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") != {}
    assert executor.work.runs == 16 + 4
    assert executor.work.nodes >= 2
    assert len(list(tmp_path.glob("built-*"))) == 2

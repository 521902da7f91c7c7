"""Ray on several nodes: those that are killed in mid-run lose nothing and change no byte."""

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.compare import compare
from noonward.runtime.ray_cluster import RayCluster
from runtime.test_processes import files_of
from runtime.test_ray_cluster import needs_ray

pytestmark = [needs_ray, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]

STORE = {"object_store_memory": 80_000_000}


@pytest.fixture
def nodes(monkeypatch):
    """A head without cores and two nodes of one core each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    in_store = {"max_direct_call_object_size": 1000}  # bytes; smaller results would lie in the driver's own memory
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": in_store, **STORE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster, [cluster.add_node(num_cpus=1, **STORE) for _ in range(2)]
    cluster.shutdown()


def test_nodes_that_are_killed_in_mid_run_lose_nothing_and_change_no_byte(nodes, tmp_path):
    cluster, (first, second) = nodes
    executor = RayCluster(cluster.address)
    tiny, policies, done = load_scenario("tiny"), ["local-fcfs", "random", "price-greedy"], []

    def kill(label):
        done.append(label)
        if len(done) == 2:  # four specs are under way or wait at the nodes, two at each
            cluster.remove_node(second, allow_graceful=False)
        if len(done) == 7:  # with this node the environment of the specs under way is lost: it is built again
            cluster.remove_node(first, allow_graceful=False)
            cluster.add_node(num_cpus=1, **STORE)

    try:
        compare(tiny, policies, environments=4, out=tmp_path / "two", executor=executor, progress=kill)
    finally:
        executor.close()
    compare(tiny, policies, environments=4, out=tmp_path / "one")
    assert len(cluster.list_all_nodes()) == 2
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") != {}
    assert executor.work.runs == len(done) == 16
    assert executor.work.nodes >= 2

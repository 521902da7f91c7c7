"""Ray on several nodes: one that is killed in mid-run loses nothing and changes no byte."""

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.compare import compare
from noonward.runtime.ray_cluster import STORE_BYTES, RayCluster
from runtime.test_processes import files_of
from runtime.test_ray_cluster import needs_ray

pytestmark = [needs_ray, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def nodes(monkeypatch):
    """A head without cores and two nodes of one core each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    options = {"object_store_memory": STORE_BYTES}
    head = {"num_cpus": 0, "include_dashboard": False, **options}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster, [cluster.add_node(num_cpus=1, **options) for _ in range(2)]
    cluster.shutdown()


def test_a_node_that_is_killed_in_mid_run_loses_nothing_and_changes_no_byte(nodes, tmp_path):
    cluster, (_, second) = nodes
    executor = RayCluster(cluster.address)
    tiny, policies, done = load_scenario("tiny"), ["local-fcfs", "random", "price-greedy"], []

    def kill_one(label):
        done.append(label)
        if len(done) == 2:  # four specs are under way or wait at the nodes, two at each
            cluster.remove_node(second, allow_graceful=False)

    try:
        compare(tiny, policies, environments=4, out=tmp_path / "two", executor=executor, progress=kill_one)
    finally:
        executor.close()
    compare(tiny, policies, environments=4, out=tmp_path / "one")
    assert len(done) > 8  # specs that began after it died
    assert len(cluster.list_all_nodes()) == 2
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") != {}

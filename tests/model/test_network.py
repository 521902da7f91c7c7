"""Links: one number or a matrix, nothing at home, and the refusal of what does not fit."""

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.errors import ScenarioError
from noonward.model.cluster.fleet import Fleet
from noonward.model.network import Network

KIND = {"idle_w": 1, "classes": {"c": {"power": {}}}}


def fleet(ingress="sites"):
    """Two sites, a and b; by default an ingress at home in each."""
    sites = [{"name": name, "zone": "Z", "gpu_type": "T", "gpus": 1} for name in "ab"]
    return Fleet.model_validate({"gpu_types": {"T": KIND}, "sites": sites, "ingress": ingress})


def test_one_number_holds_for_every_link_but_those_at_home():
    links = Network(latency_ms=250, throughput_gb_per_min=2, usd_per_gb=0.5, kwh_per_gb=0.25).links(fleet())
    assert links.latency_s_IS.tolist() == [[0.0, 0.25], [0.25, 0.0]]
    assert links.seconds_per_gb_IS.tolist() == [[0.0, 30.0], [30.0, 0.0]]
    assert links.usd_per_gb_IS.tolist() == [[0.0, 0.5], [0.5, 0.0]]
    assert links.kwh_per_gb_IS.tolist() == [[0.0, 0.25], [0.25, 0.0]]


def test_an_ingress_without_a_home_pays_for_every_link():
    ingress = [{"name": "region"}, {"name": "a", "home": "a"}, {"name": "b", "home": "b"}]
    links = Network(latency_ms=((10, 20), (30, 40), (50, 60)), throughput_gb_per_min=60).links(fleet(ingress))
    assert links.latency_s_IS.tolist() == [[0.01, 0.02], [0.0, 0.04], [0.05, 0.0]]
    assert links.seconds_per_gb_IS.tolist() == [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]


def test_without_a_throughput_data_take_no_time():
    assert Network().links(fleet()).seconds_per_gb_IS.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_what_stands_at_home_in_a_matrix_is_not_read():
    links = Network(throughput_gb_per_min=((0, 1), (2, 0)), usd_per_gb=((9, 1), (2, 9))).links(fleet())
    assert links.seconds_per_gb_IS.tolist() == [[0.0, 60.0], [30.0, 0.0]]
    assert links.usd_per_gb_IS.tolist() == [[0.0, 1.0], [2.0, 0.0]]


@pytest.mark.parametrize("name", ["latency_ms", "throughput_gb_per_min", "usd_per_gb", "kwh_per_gb"])
def test_a_matrix_of_another_shape_is_refused(name):
    with pytest.raises(ValueError, match=rf"network\.{name} has shape \(1, 2\); give one number or 2 rows"):
        Network(**{name: ((1, 1),)}).links(fleet())


def test_a_throughput_of_zero_on_a_link_is_refused():
    with pytest.raises(ValueError, match="throughput_gb_per_min has a value of 0 GB/min; it must be above 0"):
        Network(throughput_gb_per_min=((1, 0), (1, 1))).links(fleet())


@pytest.mark.parametrize("matrix", [((1, 2), (1,)), ((1, 2), (1, 2, 3))])
def test_a_ragged_matrix_is_refused(matrix):
    with pytest.raises(ValueError, match=r"network\.latency_ms has rows of unequal length; give one number or 2 rows"):
        Network(latency_ms=matrix).links(fleet())


def test_a_queue_needs_a_throughput_and_is_not_at_home():
    with pytest.raises(ValueError, match=r"network\.queued needs network\.throughput_gb_per_min"):
        Network(queued=True)
    assert Network(throughput_gb_per_min=1, queued=True).links(fleet()).queued
    assert not Network(throughput_gb_per_min=1).links(fleet()).queued


def test_a_queue_is_for_protocol_on_arrival():
    with pytest.raises(ScenarioError, match=r"network\.queued is for protocol on-arrival, not each-slot"):
        load_scenario("tiny", ["network.queued=true"])

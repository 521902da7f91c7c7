"""The registry: names, order, own classes, and errors that help."""

from typing import get_args

import pytest

from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import ForecastKind
from noonward.schedule import registry
from noonward.schedule.cluster.slot_rules import MostFree
from noonward.schedule.registry import make_scheduler, policies, register


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(registry, "_POLICIES", dict(registry._POLICIES))


def test_every_policy_makes_a_fresh_scheduler_and_says_what_it_does():
    for policy in policies():
        assert isinstance(policy.make(), Scheduler)
        assert policy.make() is not policy.make()
        assert policy.summary
        assert "\n" not in policy.summary


def test_policies_of_a_protocol_answer_it():
    names = {protocol: [p.name for p in policies(protocol)] for protocol in ("each-slot", "on-arrival")}
    assert names["each-slot"][0] == "local-fcfs"
    assert names["on-arrival"][0] == "dp"
    assert set(names["each-slot"]) | set(names["on-arrival"]) == {p.name for p in policies()}
    assert not set(names["each-slot"]) & set(names["on-arrival"])


def test_policies_say_what_they_cannot_do_without():
    valuing = {"cheapest-feasible"}
    kinds = get_args(ForecastKind)
    valuing |= {f"{way}-{kind}" for way in ("booked", "bid-price") for kind in kinds if kind != "learned"}
    made = {policy.name: policy.make() for policy in policies(trained=False)}
    assert {name for name, scheduler in made.items() if scheduler.needs_economics} == valuing
    sampling = {name for name in made if name.startswith(("bid-price-", "plan-"))} | {"at-once", "spread-evenly"}
    assert {name for name, scheduler in made.items() if scheduler.needs_samples} == sampling


def test_gangs_in_names_are_the_gangs_asked_for():
    assert [make_scheduler(f"most-free-{gpus}").gpus for gpus in range(1, 9)] == list(range(1, 9))
    assert [make_scheduler(f"greedy-energy-{gpus}").gpus for gpus in range(1, 9)] == list(range(1, 9))
    assert (make_scheduler("dp").clock, make_scheduler("dp-max-clock").clock) == (0.6, 1.0)


def test_own_policy_can_be_registered_once(fresh):
    register("mine", MostFree)
    assert isinstance(make_scheduler("mine"), MostFree)
    assert policies()[-1].summary == "Control: to the site with the most free GPUs, among those with room; else hold."
    with pytest.raises(ValueError, match="a policy named 'mine' is registered already"):
        register("mine", MostFree)


def test_own_class_is_loaded_by_module_and_name():
    assert isinstance(make_scheduler("noonward.schedule.cluster.slot_rules:MostFree"), MostFree)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("price-greddy", r"unknown policy 'price-greddy'; did you mean 'price-greedy'\? \(or give module:Class\)"),
        ("zzz", r"unknown policy 'zzz'; 'noonward policies' lists those there are \(or give module:Class\)"),
        ("nosuchmodule:Class", "policy 'nosuchmodule:Class' cannot be loaded: .*No module named 'nosuchmodule'"),
        ("noonward.schedule.cluster.slot_rules:Absent", "has no attribute 'Absent'"),
        ("noonward.schedule.cluster.booking:Booked", "missing 1 required positional argument.*made without arguments"),
        ("noonward.decision.scheduler:Scheduler", "abstract"),
        (":MostFree", "cannot be loaded"),
        ("collections:Counter", "policy 'collections:Counter' is no Scheduler"),
    ],
)
def test_policy_that_cannot_be_made_is_explained(name, message):
    with pytest.raises(ScenarioError, match=message):
        make_scheduler(name)

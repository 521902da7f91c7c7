"""The registry: names, order, own classes, and errors that help."""

from typing import Annotated, get_args

import pytest
from pydantic import Field

from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import ForecastKind
from noonward.notices import listening
from noonward.schedule import policies as named
from noonward.schedule import registry
from noonward.schedule.cluster.slot_rules import MostFree
from noonward.schedule.families import Family
from noonward.schedule.policies import find_policy, make_scheduler, policies, register, registered_policies


def test_every_policy_makes_a_own_registry_scheduler_and_says_what_it_does():
    for policy in policies():
        assert isinstance(policy.make(), {"cluster": Scheduler, "edge": EdgeScheduler}[policy.kind])
        assert policy.make() is not policy.make()
        assert policy.summary
        assert "\n" not in policy.summary


def test_policies_of_a_protocol_answer_it():
    names = {protocol: [p.name for p in policies(protocol)] for protocol in ("each-slot", "on-arrival")}
    assert names["each-slot"][0] == "local-fcfs"
    both = set(names["each-slot"]) & set(names["on-arrival"])
    assert both == {"suspend-threshold-perfect"}
    assert next(name for name in names["on-arrival"] if name not in both) == "dp"
    assert set(names["each-slot"]) | set(names["on-arrival"]) == {p.name for p in policies(kind="cluster")}


def test_policies_say_what_they_cannot_do_without():
    valuing = {"cheapest-feasible", "cheapest-unclaimed", "patient", "preempt-youngest"}
    valuing |= {f"{name}-perfect" for name in ("suspend-threshold", "cap-threshold", "wait-awhile")}
    kinds = [kind for kind in get_args(ForecastKind) if kind != "learned" and "+" not in kind]
    valuing |= {f"{way}-{kind}" for way in ("booked", "bid-price") for kind in kinds}
    valuing.add("bid-price-published-learned")
    made = {policy.name: policy.make() for policy in policies(trained=False, kind="cluster")}
    assert {name for name, scheduler in made.items() if scheduler.needs.economics} == valuing
    sampling = {name for name in made if name.startswith(("bid-price-", "plan-"))} | {"at-once", "spread-evenly"}
    assert {name for name, scheduler in made.items() if scheduler.needs.samples} == sampling


def test_a_name_that_two_kinds_share_is_that_of_the_kind_asked_for(own_registry):
    assert isinstance(make_scheduler("random", "edge"), EdgeScheduler)
    assert isinstance(make_scheduler("random", "cluster"), Scheduler)
    assert isinstance(make_scheduler("random"), Scheduler)
    assert isinstance(make_scheduler("local-fcfs", "edge"), Scheduler)  # no edge policy has the name
    with pytest.raises(ValueError, match="'random' is registered already"):
        register("random", MostFree)
    register("local-fcfs", lambda: make_scheduler("fifo"), "Mine.", kind="edge")
    assert find_policy("local-fcfs", "edge").name == "local-fcfs"
    assert own_registry.find("local-fcfs", "edge").summary == "Mine."
    assert own_registry.find("local-fcfs").kind == "cluster"
    assert own_registry.find("local-fcfs", "edge").protocols == ()


def stepped(steps: Annotated[float, Field(ge=0, description="steps")] = 24.0):
    return make_scheduler("fifo")


def held(slots: Annotated[int, Field(ge=1, description="slots")]):
    return make_scheduler("random") if slots > 1 else MostFree()


def test_families_of_two_kinds_may_share_a_name(own_registry):
    own_registry.add_family(
        Family(
            name="dp",
            make=stepped,
            describe=lambda steps: f"{steps:g} steps.",
            kind="edge",
        )
    )
    own_registry.add_member("dp", "dp", kind="edge")
    assert own_registry.find("dp(steps=24)", "edge").name == "dp"
    assert own_registry.find("dp(steps=23)", "edge").summary == "23 steps."
    assert own_registry.find("dp(clock=1)", "cluster").name == "dp-max-clock"


def test_gangs_in_names_are_the_gangs_asked_for():
    assert [make_scheduler(f"most-free(gpus={gpus})").gpus for gpus in range(1, 9)] == list(range(1, 9))
    assert [make_scheduler(f"greedy-energy(gpus={gpus})").gpus for gpus in range(1, 9)] == list(range(1, 9))
    assert (make_scheduler("dp").clock, make_scheduler("dp-max-clock").clock) == (0.6, 1.0)


def test_own_policy_can_be_registered_once(own_registry):
    register("mine", MostFree)
    assert isinstance(make_scheduler("mine"), MostFree)
    assert policies()[-1].summary == "Control: to the site with the most free GPUs, among those with room; else hold."
    with pytest.raises(ValueError, match="a policy named 'mine' is registered already"):
        register("mine", MostFree)


def test_what_was_registered_in_another_registry_is_unknown_here(own_registry):
    own_registry.copy().add(registry.Policy(name="mine", make=MostFree, summary="", family="mine"))
    assert "mine" not in [policy.name for policy in policies()]
    register("mine", MostFree, family="most-free", roles=["control"])
    assert policies(family="most-free")[-1].name == policies(role="control")[-1].name == "mine"
    assert not policies()[-1].packaged


@pytest.mark.parametrize("name", ["", "a(b=1)", "a,b", "a b"])
def test_a_name_that_could_not_be_given_is_refused(own_registry, name):
    with pytest.raises(ValueError, match="without brackets, commas and blanks"):
        register(name, MostFree)


def test_an_unknown_role_is_refused(own_registry):
    with pytest.raises(ValueError, match="unknown role 'planer'; did you mean 'planner'"):
        register("mine", MostFree, roles=["planer"])


def test_arguments_in_a_name_make_the_scheduler():
    assert make_scheduler("greedy-energy(gpus=12)").gpus == 12
    assert make_scheduler(" most-free( gpus = 3 ) ".strip()).gpus == 3
    assert make_scheduler("greedy-tradeoff(watts=2.5)").weights == (1.0, 0.0, 0.0, 2.5)
    assert make_scheduler("sla-energy(target_s=60)").target_s == 60
    assert make_scheduler("dp(clock=0.8)").clock == 0.8
    assert make_scheduler("booked(forecast=noisy, noise=0.1)").needs.forecast.noise == 0.1
    bids = make_scheduler("bid-price(forecast=learned, net=2, samples=4, rounds=16)")
    assert (bids.needs.forecast.kind, bids.needs.forecast.net, bids.samples, bids.rounds) == ("learned", 2, 4, 16)
    plan = make_scheduler("plan(curves=hard, replan=hourly, promise=0.9, beta=0.1, eps=0.01, samples=20)")
    assert (plan.needs.curves, plan.hourly, plan.samples) == ("hard", True, 20)
    assert (plan.promise, plan.beta, plan.eps) == (0.9, 0.1, 0.01)


def test_the_short_name_is_the_one_that_reports_show():
    for given, shown in (
        ("greedy-energy(gpus=4)", "greedy-energy(gpus=4)"),
        ("greedy-energy(gpus=12)", "greedy-energy(gpus=12)"),
        ("greedy-tradeoff( watts=30.0 )", "greedy-tradeoff(watts=30)"),
        ("booked(forecast=perfect)", "booked-perfect"),
        ("bid-price(rounds=8,forecast=regression)", "bid-price-regression"),
        ("bid-price(samples=3,forecast=regression)", "bid-price(forecast=regression, samples=3)"),
        ("plan()", "plan-advisory"),
        ("plan", "plan-advisory"),
        ("dp(clock=1)", "dp-max-clock"),
        ("most-free", "most-free"),
        ("net.npz", "net.npz"),
    ):
        assert find_policy(given).name == shown
        assert find_policy(shown).name == shown


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "greedy-energy",
            r"argument gpus is missing; give a whole number from 1 to 4096 \(GPUs\)",
        ),
        ("greedy-energy(gpus=0)", r"gpus is '0'; allowed: a whole number from 1 to 4096 \(GPUs\)"),
        ("greedy-energy(gpus=2.5)", "gpus is '2.5'; allowed: a whole number"),
        ("greedy-energy(gpu=2)", "there is no argument 'gpu'; it takes gpus: a whole number"),
        ("greedy-energy(4)", "'4' is not of the form name=value; it takes gpus"),
        ("greedy-energy(gpus=2, gpus=3)", "argument gpus is given twice"),
        ("greedy-tradeoff(watts=-1)", r"watts is '-1'; allowed: a number of at least 0 \(J per second in system\)"),
        ("greedy-tradeoff(watts=nan)", "watts is 'nan'; allowed"),
        ("sla-energy(target_s=0)", r"target_s is '0'; allowed: a number above 0 \(s\)"),
        (
            "booked(forecast=true)",
            "forecast is 'true'; allowed: one of perfect, persistence, regression",
        ),
        ("booked(forecast=perfect, noise=0.1)", "noise is given, but the forecast is perfect"),
        ("bid-price(forecast=noisy, net=1)", "net is given, but the forecast is noisy"),
        ("local-fcfs(gpus=2)", r"policy 'local-fcfs' takes no arguments; it was given \(gpus=2\); write 'local-fcfs'"),
        ("greedy-energy-4", r"unknown policy 'greedy-energy-4'; write greedy-energy\(gpus=4\)"),
        ("sla-energy-900", r"unknown policy 'sla-energy-900'; write sla-energy\(target_s=900\)"),
        ("plan-3", "unknown policy 'plan-3'; did you mean 'plan'"),
        ("gredy-energy(gpus=2)", r"unknown policy 'gredy-energy\(gpus=2\)'; did you mean 'greedy-energy'"),
    ],
)
def test_wrong_arguments_are_explained(name, message):
    with pytest.raises(ScenarioError, match=message):
        make_scheduler(name)


def test_a_family_of_ones_own_takes_arguments(own_registry):
    own_registry.add_family(
        Family(
            name="held",
            make=held,
            describe=lambda slots: f"Holds for {slots} slots.",
        )
    )
    own_registry.add_member("held-once", "held", {"slots": 1})
    assert isinstance(make_scheduler("held(slots=1)"), MostFree)
    assert own_registry.find("held(slots=1)").name == "held-once"
    assert own_registry.find("held(slots=2)").summary == "Holds for 2 slots."
    with pytest.raises(ValueError, match="'held' is registered already"):
        own_registry.add_family(own_registry.families()[-1])


def test_a_file_names_registered_policies_only(monkeypatch):
    def refuse(name):
        raise AssertionError(f"{name} was imported")

    monkeypatch.setattr(named.importlib, "import_module", refuse)
    registered_policies(["local-fcfs", "greedy-energy(gpus=12)", "masac"], "scenario 's'")
    for name in ("os:abort", "net.npz", "nosuch", "greedy-energy(gpus=x)"):
        with pytest.raises(ScenarioError, match=r"^scenario 's': .*a file may name registered policies only"):
            registered_policies([name], "scenario 's'")


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


def test_a_former_name_finds_the_policy_and_tells_the_new_name(own_registry):
    heard = []
    with listening(lambda kind, about: heard.append((kind, about))):
        assert find_policy("masac-plus-seed1").name == "bid-price-neural-seed1"
    assert heard == [("renamed", "policy 'masac-plus-seed1' is now named 'bid-price-neural-seed1'")]
    assert "masac-plus" not in [policy.name for policy in policies()]
    with pytest.raises(ValueError, match="'masac-plus' is registered already"):
        own_registry.add_former_name("masac-plus", "dp")
    own_registry.add_former_name("first", "local-fcfs")
    assert own_registry.copy().find("first").name == "local-fcfs"

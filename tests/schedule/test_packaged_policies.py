"""Packaged trained policies: found by name and seed, registered with what they say of themselves, small if asked."""

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.errors import DataError, FileError, ScenarioError
from noonward.evaluate.compare import compare
from noonward.evaluate.report.page import write_report
from noonward.evaluate.service_tables import constraint_table
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.schedule import policies as named
from noonward.schedule import registry
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.catalogue import add_trained
from noonward.schedule.cluster.packaged_policies import FOLDER, trained_policies
from noonward.schedule.cluster.trained_policy import TrainedPolicy, read_meta, read_policy, write_policy
from trained_files import NETS, write_random_policy


@pytest.fixture
def folder(tmp_path):
    for name, seed in (("plus-seed2", 2), ("plus", 0), ("early", 0), ("plus-seed10", 10)):
        write_random_policy(tmp_path / f"{name}.npz", seed, record={"summary": f"Says {name}."})
    (tmp_path / "notes.txt").write_text("no policy")
    return tmp_path


def test_files_are_found_by_family_and_seed(folder):
    found = trained_policies(folder)
    assert [(file.name, file.family, file.seed) for file in found] == [
        ("early", "early", 0),
        ("plus", "plus", 0),
        ("plus-seed2", "plus", 2),
        ("plus-seed10", "plus", 10),
    ]
    assert trained_policies(folder / "absent") == []
    write_random_policy(folder / "early-seed0.npz")
    write_random_policy(folder / "early.npz", 2, record={"config": {"seed": 2}})
    assert [(file.name, file.family, file.seed) for file in trained_policies(folder)][:2] == [
        ("early", "early", 2),
        ("early-seed0", "early", 0),
    ]


def test_they_are_registered_by_their_names_and_kept_apart(folder):
    rules = [policy.name for policy in named.policies(trained=False, kind="cluster")]
    only_rules = registry.Registry()
    for policy in named.policies(trained=False, kind="cluster"):
        only_rules.add(policy)
    add_trained(only_rules, folder)
    with named.using(only_rules):
        check_trained(rules)
    with pytest.raises(ValueError, match="'early' is registered already"):
        add_trained(only_rules, folder)


def check_trained(rules):
    trained = named.policies(trained=True, kind="cluster")
    assert [policy.name for policy in trained] == ["early", "plus", "plus-seed2", "plus-seed10"]
    assert trained[1].summary == "Says plus."
    assert [policy.name for policy in named.policies(trained=False, kind="cluster")] == rules
    assert [policy.name for policy in named.policies("each-slot")][-4:] == [policy.name for policy in trained]
    assert not set(load_scenario("fine-tuning").policies) & {policy.name for policy in trained}
    outcome = run(build_environment(load_scenario("tiny")), named.make_scheduler("plus-seed2"))
    assert outcome.steps > 10


def test_a_file_without_a_summary_says_what_it_is(tmp_path):
    write_random_policy(tmp_path / "bare-seed1.npz")
    assert trained_policies(tmp_path)[0].summary == "none, trained on tiny with seed 1."


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "masac.npz").write_text("text")
    with pytest.raises(DataError, match=r"masac\.npz is no trained policy"):
        trained_policies(tmp_path)


def test_every_further_seed_has_a_first_one():
    found = trained_policies(FOLDER, NETS / "cluster")
    assert {file.family for file in found} == {file.name for file in found if file.seed == 0}


def test_nets_of_further_seeds_are_known_by_their_folder(monkeypatch):
    monkeypatch.setenv(named.NETS, "")
    with pytest.raises(ScenarioError, match=r"unknown policy 'masac-seed1'; nets of further training seeds lie in"):
        named.default_registry().find("masac-seed1")
    try:
        named.use_nets(NETS)
        names = [policy.name for policy in named.policies(trained=True)]
        first = names.index("masac")
        assert names[first : first + 3] == ["masac", "masac-seed1", "masac-seed2"]
        assert {"eat-seed0", "eat", "eat-seed1"} <= set(names)
        assert named.default_registry().find("masac-seed1").packaged
    finally:
        named._packaged.cache_clear()


def test_a_folder_without_nets_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(named.NETS, "")
    try:
        with pytest.raises(FileError, match="holds no folder 'cluster' or 'edge' with nets"):
            named.use_nets(tmp_path)
    finally:
        named._packaged.cache_clear()


def test_half_precision_is_rounded_smaller_and_runs_as_what_it_holds(tmp_path):
    write_random_policy(tmp_path / "whole.npz")
    write_random_policy(tmp_path / "half.npz", half=True)
    whole, half = (read_policy(tmp_path / f"{name}.npz") for name in ("whole", "half"))
    for mine, theirs in zip(half.weights + half.biases, whole.weights + whole.biases, strict=True):
        assert mine.dtype == np.float32
        assert not np.array_equal(mine, theirs)
        np.testing.assert_array_equal(mine, theirs.astype(np.float16).astype(np.float32))
    with np.load(tmp_path / "half.npz") as file:
        assert file["policy/0/weight"].dtype == np.float16
    write_policy(tmp_path / "rounded.npz", half.weights, half.biases, half.meta)
    environment = build_environment(load_scenario("tiny"))
    runs = [run(environment, TrainedPolicy(tmp_path / f"{name}.npz")) for name in ("half", "rounded")]
    assert runs[0].job_J.tobytes() == runs[1].job_J.tobytes()
    assert read_meta(tmp_path / "half.npz") == read_meta(tmp_path / "whole.npz")


def test_weights_beyond_half_precision_are_refused(tmp_path):
    write_random_policy(tmp_path / "net.npz")
    net = read_policy(tmp_path / "net.npz")
    with pytest.raises(DataError, match="weight of 70000 does not fit float16"):
        write_policy(
            tmp_path / "half.npz", net.weights, [bias * 0 + 70_000 for bias in net.biases], net.meta, half=True
        )
    assert not (tmp_path / "half.npz").exists()


@pytest.mark.usefixtures("further_seeds")
def test_the_policies_of_all_seeds_are_each_run_once() -> None:
    from noonward.data.scenarios.load import load_scenario
    from noonward.studies.fine_tuning.reproduce import chosen_policies

    names, learned = chosen_policies(load_scenario("fine-tuning"), None)
    assert len(names) == len(set(names))
    assert {"masac", "masac-seed1", "masac-seed2"} <= set(names)
    assert {"masac", "masac-credit", "madqn", "mappo", "bid-price-neural", "bid-price-learned"} == set(learned)


def test_bid_price_neural_is_bid_prices_under_the_nets_of_three_seeds():
    found = {
        policy.name: policy
        for policy in named.policies(trained=True, kind="cluster")
        if policy.name.startswith("bid-price-neural")
    }
    assert list(found) == ["bid-price-neural", "bid-price-neural-seed1", "bid-price-neural-seed2"]
    sites = [site.name for site in load_scenario("fine-tuning").fleet.sites]
    for seed, policy in enumerate(found.values()):
        assert (policy.trained.family, policy.trained.seed, policy.trained.meta["sites"]) == (
            "bid-price-neural",
            seed,
            sites,
        )
        assert policy.trained.meta["record"]["seed"] == seed
        scheduler = policy.make()
        assert isinstance(scheduler, BidPrice)
        assert scheduler.needs.forecast == Forecast("learned", net=seed)
        assert (scheduler.samples, scheduler.rounds) == (4, 16)


def test_each_net_decides_in_its_own_way():
    scenario = load_scenario("fine-tuning", ["window_h=24", "jobs.count=300"])
    environment = build_environment(scenario)
    earned = {
        name: settle(run(environment, named.make_scheduler(name))).utility_usd
        for name in ("local-fcfs", "bid-price-neural", "bid-price-neural-seed1", "bid-price-neural-seed2")
    }
    assert len(set(earned.values())) == 4
    assert min(earned[name] for name in list(earned)[1:]) > earned["local-fcfs"]


def test_bid_price_neural_stands_in_a_comparison(tmp_path):
    """With its table and its report, in a scenario with a limit."""
    scenario = load_scenario("tiny", ["window_h=3", "jobs.count=8", "constraints.mean_latency_s=50"])
    found = compare(scenario, ["local-fcfs", "bid-price-neural"], environments=1, out=tmp_path)
    assert "bid-price-neural" in write_report(found, tmp_path / "report.html").read_text(encoding="utf-8")
    assert [row[0] for row in constraint_table(found).rows].count("bid-price-neural") == 1

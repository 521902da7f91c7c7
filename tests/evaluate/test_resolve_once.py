"""A comparison finds every policy once, makes it once to be asked and once per run, and reads a net once."""

import pickle
from collections import Counter

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.evaluate.asked import fitting_policies, with_reference
from noonward.evaluate.cluster_objective import ClusterObjective
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Bound
from noonward.runtime.runs import RecordedRun
from noonward.schedule import net_file
from noonward.schedule.policies import find_policy
from noonward.schedule.registry import Policy, Registry
from trained_files import write_random_policy

TINY = load_scenario("tiny")
ENVIRONMENTS = 3


@pytest.fixture
def counts(monkeypatch):
    """How often policies were found and made, and files of nets read whole, by name."""
    counted = Counter()

    def count(owner, method, name_of):
        whole = getattr(owner, method)

        def called(*args, **more):
            counted[method, name_of(*args)] += 1
            return whole(*args, **more)

        monkeypatch.setattr(owner, method, called)

    count(Registry, "find", lambda self, name, *_: name)
    count(net_file, "stored_arrays", lambda path, *names: None if names else path.name)
    monkeypatch.setattr(ClusterObjective, "compute_bound", lambda self, environment: Bound(utility_usd=10.0))
    return counted


def test_every_policy_is_found_once_for_runs_verdict_and_report(counts, tmp_path):
    policies, misfits = fitting_policies(TINY)
    policies, reference = with_reference(TINY, policies)
    comparison = compare(TINY, policies, environments=ENVIRONMENTS, out=tmp_path, today=reference)
    comparison.report(tmp_path / "report.html")
    assert not misfits
    assert comparison.reference == TINY.baseline
    found = {name: count for (what, name), count in counts.items() if what == "find"}
    assert found == dict.fromkeys(TINY.policies, 1)


def test_a_policy_is_made_once_to_be_asked_and_once_per_run(tmp_path):
    made, plain = [], find_policy("local-fcfs")
    counted = Policy(name="counted", make=lambda: made.append(1) or plain.make(), summary="", family="counted")
    compare(TINY, [counted], environments=ENVIRONMENTS, out=tmp_path, bound=False)
    assert len(made) == 1 + ENVIRONMENTS


def test_a_net_is_read_once_by_all_runs_and_again_where_its_file_has_changed(counts, tmp_path):
    file = tmp_path / "net.npz"
    for seed in range(2):
        write_random_policy(file, seed=seed)
        compare(TINY, [str(file)], environments=ENVIRONMENTS, bound=False)
        assert counts["stored_arrays", "net.npz"] == 1 + seed


def test_a_changed_copy_of_a_net_leaves_the_next_one_as_it_is(tmp_path):
    file = tmp_path / "net.npz"
    write_random_policy(file)
    weights = []
    for _ in range(2):
        ((block, *_),) = net_file.read_nets(file)[0].values()
        weights.append(block.arrays["weight"].copy())
        block.arrays["weight"][:] = 7.0
    assert (weights[0] == weights[1]).all()


def test_a_spec_is_small_and_its_policy_is_found_again_where_it_runs(tmp_path):
    named = find_policy("plan(curves=hard)")
    spec = RecordedRun(TINY, 0, 0, named, tmp_path)
    assert len(pickle.dumps(named)) < 200
    again = pickle.loads(pickle.dumps(spec))
    assert again.policy.name == "plan-hard"
    assert again.policy.make.keywords == named.make.keywords
    assert again.portable
    assert find_policy("mine:Policy").portable
    assert not Policy(name="mine", make=named.make, summary="", family="mine").portable

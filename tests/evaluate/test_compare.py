"""Comparisons: paired records, kept and resumed; gains and gaps by hand; policies of one's own."""

import json
import math
import sys

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.errors import ScenarioError
from noonward.evaluate.asked import comparison_folder
from noonward.evaluate.cluster_objective import ClusterObjective
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Bound
from noonward.files import file_name
from noonward.notices import listening
from noonward.runtime import runs as runs_module
from trained_files import write_random_policy

POLICIES = ("local-fcfs", "cheapest-feasible", "random")
TINY = load_scenario("tiny")
OWN = """
from noonward import Needs, Scheduler

class Lazy(Scheduler):
    needs = Needs(protocols=("each-slot",))
    def decide(self, view, answers):
        for site, job in view.asked():
            if view.now_s >= 3600 and view.allowed(site, site):
                answers.send(site, site)
"""


@pytest.fixture
def runs(monkeypatch):
    """A list that grows by (policy class, environment) with every run that is played, and bounds that cost nothing."""
    played, run = [], runs_module.run

    def counted(environment, scheduler, **options):
        played.append((type(scheduler).__name__, environment.index))
        return run(environment, scheduler, **options)

    monkeypatch.setattr(runs_module, "run", counted)
    monkeypatch.setattr(
        ClusterObjective, "compute_bound", lambda self, environment: Bound(utility_usd=10.0 + environment.index)
    )
    return played


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three policies over two environments, with their real bounds."""
    return compare(TINY, POLICIES, environments=2, seed=1, out=tmp_path_factory.mktemp("runs"))


def test_records_lie_by_policy_and_environment(whole):
    assert whole.folder.name == f"tiny-{TINY.digest[:8]}-seed1"
    assert sorted(path.name for path in whole.folder.iterdir()) == [
        "bound",
        "cheapest-feasible",
        "local-fcfs",
        "random",
    ]
    for policy in POLICIES:
        assert [record.folder for record in whole.records[policy]] == [
            whole.folder / policy / n for n in ("000", "001")
        ]
        assert [record.manifest["environment"] for record in whole.records[policy]] == [0, 1]


def test_every_policy_meets_the_same_worlds(whole):
    digests = [[record.manifest["environment_digest"] for record in whole.records[policy]] for policy in POLICIES]
    assert digests[0] == digests[1] == digests[2]
    assert len(set(digests[0])) == 2
    jobs = [{record.ledger.jobs for record in environment} for environment in zip(*whole.records.values(), strict=True)]
    assert all(len(count) == 1 for count in jobs)


def test_gains_and_gaps_are_ratios_of_sums_of_ledgers(whole):
    base, other = ([record.ledger.utility_usd for record in whole.records[name]] for name in POLICIES[:2])
    bound = [bound["utility_usd"] for bound in whole.bounds]
    assert whole.reference == "local-fcfs"
    assert whole.gain("cheapest-feasible").value == pytest.approx(sum(other) / sum(base) - 1)
    closed = (sum(other) - sum(base)) / (sum(bound) - sum(base))
    assert whole.improvement_share("cheapest-feasible").value == pytest.approx(closed)
    assert whole.gain("local-fcfs").value == whole.improvement_share("local-fcfs").value == 0.0
    assert whole.mean("random", "gpu_hours").value == pytest.approx(whole.values("random", "gpu_hours").mean())


def test_no_policy_earns_more_than_the_bound(whole):
    for policy in POLICIES:
        assert (whole.values(policy, "utility_usd") <= whole.bound_values("utility_usd") + 1e-9).all()
        assert (whole.values(policy, "utility_usd") <= whole.bound_values("best_known_usd") + 1e-9).all()


def test_figures_name_every_quantity_of_every_policy(whole):
    metrics = {metric.name: metric for metric in whole.metrics()}
    assert len(metrics) == len(whole.metrics())
    quantities = {
        "utility_usd", "gain_over_local-fcfs", "improvement_share", "gpu_hours", "over_cap_gpu_hours",
        "completed_jobs", "overdue_jobs",
        "unfinished_jobs", "energy_kwh", "usd_per_gpu_hour", "g_per_gpu_hour", "migrations", "mean_wait_s",
        "mean_time_in_system_s", "p99_time_in_system_s", "j_per_unit_exact", "usd_per_unit", "g_per_unit",
        "longest_queue", "saved_usd", "saved_kg", "mean_delay_s", "late_jobs", "late_gpu_hours", "late_usd",
        "moved_jobs",
    }  # fmt: skip
    names = {f"{quantity}/{policy}" for quantity in quantities for policy in POLICIES}
    assert set(metrics) == names | {"utility_usd/bound", "utility_usd/best-known", "optimality_gap"}
    assert metrics["completed_jobs/random"].value == whole.values("random", "done").mean()
    assert metrics["j_per_unit_exact/random"].value == whole.values("random", "joules_per_unit").mean()
    assert metrics["utility_usd/bound"].value == whole.bound_values("utility_usd").mean()
    assert all(metric.unit for metric in metrics.values())


def test_without_economics_no_utility_is_reported(runs, tmp_path):
    scenario = load_scenario("tiny", ["economics=null"])
    names = [metric.name for metric in compare(scenario, ["random"], environments=1, out=tmp_path).metrics()]
    assert "energy_kwh/random" in names
    assert not [name for name in names if name.split("/")[0] in ("improvement_share", "gain_over_random")]
    assert "utility_usd/random" not in names


def test_one_environment_has_no_spread(runs, tmp_path):
    one = compare(TINY, ["random"], environments=1, out=tmp_path).mean("random", "gpu_hours")
    assert (one.low, one.high) == (None, None)


def test_a_second_call_reads_what_is_recorded(runs, tmp_path):
    first = compare(TINY, POLICIES, environments=2, out=tmp_path)
    assert len(runs) == 6
    again = compare(TINY, POLICIES, environments=2, out=tmp_path)
    assert len(runs) == 6
    assert again == first


def test_a_comparison_goes_on_where_it_stopped(runs, tmp_path):
    first = compare(TINY, POLICIES, environments=2, out=tmp_path)
    folder = first.records["random"][1].folder
    (folder / "ledger.json").unlink()
    assert compare(TINY, POLICIES, environments=2, out=tmp_path) == first
    assert runs[6:] == [("RandomMasked", 1)]
    compare(TINY, [*POLICIES, "most-free"], environments=3, out=tmp_path)
    assert runs[7:] == [
        ("MostFree", 0), ("MostFree", 1),
        ("LocalFcfs", 2), ("CheapestFeasible", 2), ("RandomMasked", 2), ("MostFree", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("file", ["manifest.json", "jobs.parquet", "hours.parquet", "ledger.json", "service.json"])
def test_a_damaged_record_is_run_again_with_a_word(runs, tmp_path, file):
    first = compare(TINY, ["random"], environments=1, out=tmp_path)
    place = first.records["random"][0].folder / file
    whole = place.read_bytes()
    place.write_bytes(whole.replace(b"1", b"2", 1) if file.endswith(".json") else whole[: len(whole) // 2])
    told = []
    with listening(lambda kind, about: told.append(about) if kind == "record" else None):
        assert compare(TINY, ["random"], environments=1, out=tmp_path) == first
    assert len(runs) == 2
    assert place.read_bytes() == whole
    assert [f"{file} is not as it was recorded" in about for about in told] == [True]


def test_a_changed_bound_is_computed_again(runs, tmp_path):
    first = compare(TINY, ["random"], environments=1, out=tmp_path)
    place = first.folder / "bound" / "000.json"
    content = json.loads(place.read_text(encoding="utf-8"))
    for bound in ({"utility_usd": 99.0}, {"utility_usd": "x"}, {}, [], None):
        place.write_text(json.dumps(content | {"bound": bound}), encoding="utf-8")
        assert compare(TINY, ["random"], environments=1, out=tmp_path).bounds == first.bounds


@pytest.mark.parametrize(
    "change",
    [
        {"environment_digest": "x"},
        {"policy": "x"},
        {"policy_seed": 9},
        {"scenario_digest": "x"},
        {"versions": {"code": "x"}},
    ],
)
def test_a_record_of_another_world_policy_or_version_is_not_taken(runs, tmp_path, change):
    first = compare(TINY, ["random"], environments=1, out=tmp_path)
    path = first.records["random"][0].folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | change), encoding="utf-8")
    assert compare(TINY, ["random"], environments=1, out=tmp_path) == first
    assert len(runs) == 2


def test_other_scenarios_and_seeds_have_folders_of_their_own(runs, tmp_path):
    folders = {comparison_folder(TINY, seed, tmp_path) for seed in (0, 1)}
    folders |= {comparison_folder(load_scenario("tiny", ["window_h=3"]), 0, tmp_path)}
    assert len(folders) == 3
    compare(TINY, ["random"], environments=1, seed=0, out=tmp_path)
    compare(TINY, ["random"], environments=1, seed=1, out=tmp_path)
    assert len(runs) == 2


def test_bounds_are_read_back_unless_the_world_is_another(runs, tmp_path, monkeypatch):
    first = compare(TINY, ["random"], environments=1, out=tmp_path)
    assert first.bounds == [Bound(utility_usd=10.0)]
    monkeypatch.setattr(ClusterObjective, "compute_bound", lambda self, environment: Bound(utility_usd=99.0))
    assert compare(TINY, ["random"], environments=1, out=tmp_path).bounds == first.bounds
    path = first.folder / "bound" / "000.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | {"of": "another world"}), encoding="utf-8")
    assert compare(TINY, ["random"], environments=1, out=tmp_path).bounds == [Bound(utility_usd=99.0)]


def test_the_reference_is_the_scenarios_where_it_takes_part(runs, tmp_path):
    def reference(scenario, names):
        return compare(scenario, names, environments=1, out=tmp_path).reference

    assert reference(TINY, ["random", "local-fcfs"]) == "local-fcfs"
    assert reference(TINY, ["random", "most-free"]) == "random"
    assert reference(load_scenario("tiny", ["baseline=most-free"]), ["random", "most-free"]) == "most-free"


def test_the_scenarios_policies_run_where_none_are_named(runs, tmp_path):
    scenario = load_scenario("tiny", ["policies=[most-free, random]"])
    assert list(compare(scenario, environments=1, out=tmp_path).records) == ["most-free", "random"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["local-fcfs", "local-fcsf"], "unknown policy 'local-fcsf'; did you mean 'local-fcfs'"),
        (["random", "random"], "a policy stands twice in random, random; name each once"),
        ([], "no policy to compare"),
        (["no_such_module:Thing"], "policy 'no_such_module:Thing' cannot be loaded"),
        (["json:JSONDecoder"], "policy 'json:JSONDecoder' is no Scheduler"),
    ],
)
def test_wrong_policies_are_refused_before_anything_runs(runs, tmp_path, names, message):
    with pytest.raises(ScenarioError, match=message):
        compare(TINY, names, environments=1, out=tmp_path)
    assert runs == []
    assert list(tmp_path.iterdir()) == []


def test_a_policy_of_another_protocol_is_refused(runs, tmp_path):
    with pytest.raises(ScenarioError, match="'ucb1' answers the protocols on-arrival"):
        compare(TINY, ["ucb1"], environments=1, out=tmp_path)


def test_a_policy_of_ones_own_runs_and_is_never_taken_from_a_record(runs, tmp_path, monkeypatch):
    (tmp_path / "own_policy.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_policy", raising=False)
    names = ["local-fcfs", "own_policy:Lazy"]
    first = compare(TINY, names, environments=1, out=tmp_path / "runs")
    again = compare(TINY, names, environments=1, out=tmp_path / "runs")
    assert runs == [("LocalFcfs", 0), ("Lazy", 0), ("Lazy", 0)]
    assert first == again
    lazy = first.records["own_policy:Lazy"][0]
    assert lazy.folder == first.folder / file_name("own_policy:Lazy") / "000"
    assert lazy.jobs["start_s"].drop_nans().min() >= 3600


def test_a_trained_policys_file_runs_by_its_path_and_is_never_taken_from_a_record(runs, tmp_path):
    file = tmp_path / "own.npz"
    utilities = []
    for seed in (0, 1):
        write_random_policy(file, seed)
        found = compare(TINY, ["local-fcfs", str(file)], environments=1, out=tmp_path / "runs")
        utilities.append(found.records[str(file)][0].ledger.utility_usd)
    assert runs == [("LocalFcfs", 0), ("TrainedPolicy", 0), ("TrainedPolicy", 0)]
    assert utilities[0] != utilities[1]
    assert found.records[str(file)][0].folder.parent.parent == found.folder


def test_progress_is_told_of_every_run_and_bound(runs, tmp_path):
    told = []
    compare(TINY, ["random", "most-free"], environments=2, out=tmp_path, progress=told.append)
    each = ["random, environment {}", "most-free, environment {}"]
    runs_first = [line.format(index) for index in (0, 1) for line in each]
    assert told == [*runs_first, "bound, environment 0", "bound, environment 1"]


def test_records_are_handed_on_before_any_bound_is_looked_for(runs, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        ClusterObjective, "compute_bound", lambda self, environment: seen.append("bound") or Bound(utility_usd=10.0)
    )
    found = compare(
        TINY, ["random", "most-free"], environments=2, out=tmp_path,
        on_record=lambda policy, index, record: seen.append((policy, index, record)),
    )  # fmt: skip
    handed = [(policy, index, found.records[policy][index]) for index in (0, 1) for policy in ("random", "most-free")]
    assert seen == [*handed, "bound", "bound"]


def test_a_comparison_without_a_bound_says_so_and_looks_for_none(tmp_path, monkeypatch):
    def none(self, environment):
        raise AssertionError("a bound was looked for")

    monkeypatch.setattr(ClusterObjective, "compute_bound", none)
    found = compare(TINY, ["local-fcfs", "random"], environments=2, out=tmp_path, bound=False)
    assert found.bounds == [Bound(), Bound()]
    assert any("no bound was computed" in note for note in found.notes)
    assert math.isnan(found.improvement_share("random").value)


def test_a_bound_cut_short_holds_and_stands_for_no_more_seconds_than_it_had(tmp_path):
    def bounded(seconds):
        return compare(TINY, ["local-fcfs"], environments=1, out=tmp_path, bound_seconds=seconds)

    short = bounded(1e-9)
    assert short.bounds[0]["cut"] == 1
    assert any("stopped at its time limit" in note for note in short.notes)
    assert bounded(1e-9).bounds == short.bounds
    whole = bounded(None)
    assert "cut" not in whole.bounds[0]
    assert not any("stopped at its time limit" in note for note in whole.notes)
    utility = whole.records["local-fcfs"][0].ledger.utility_usd
    assert utility <= whole.bounds[0]["utility_usd"] < short.bounds[0]["utility_usd"]
    assert bounded(1e-9).bounds == whole.bounds


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_seconds_of_a_bound_that_are_none_are_refused(runs, tmp_path, seconds):
    with pytest.raises(ScenarioError, match="seconds; give a finite number above 0"):
        compare(TINY, ["random"], environments=1, out=tmp_path, bound_seconds=seconds)
    assert runs == []


def test_a_bound_that_cannot_stop_early_takes_no_seconds(tmp_path):
    with pytest.raises(ScenarioError, match="cannot stop early"):
        compare(load_scenario("edge-inference"), ["random"], environments=1, out=tmp_path, bound_seconds=1.0)


def test_a_gap_that_nothing_opens_is_not_defined(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(ClusterObjective, "compute_bound", lambda self, environment: Bound())
    done = compare(TINY, ["local-fcfs", "random"], environments=2, out=tmp_path)
    assert math.isnan(done.improvement_share("random").value)
    assert next(metric for metric in done.metrics() if metric.name == "improvement_share/random").value is None
    assert "utility_usd/bound" not in [metric.name for metric in done.metrics()]

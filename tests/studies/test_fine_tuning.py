"""The paper's comparison on a tiny fleet, with two training seeds of two nets of random weights."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.jobs.load import write_job_table
from noonward.data.scenarios.load import load_scenario
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.data.splits import split_scenario, split_seed
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.evaluate.learned import learned_policies
from noonward.ledger.ledger import settle
from noonward.schedule import policies as named
from noonward.schedule import registry
from noonward.schedule.cluster.catalogue import add_trained
from noonward.studies.fine_tuning.report import (
    chosen,
    claims_tables,
    figures,
    findings,
    foresees,
    seeds_table,
    write_fine_tuning,
)
from noonward.studies.fine_tuning.reproduce import _notes, chosen_policies, environment_metrics, reproduce_fine_tuning
from trained_files import training_record, write_random_policy

SEEDS = ("masac", "masac-seed1", "madqn", "madqn-seed1")


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """Two seeds of two policies in a registry of one's own, and a policy for other sites."""
    folder = tmp_path_factory.mktemp("trained")
    for n, name in enumerate(SEEDS):
        write_random_policy(folder / f"{name}.npz", n, record=training_record(n))
    write_random_policy(folder / "elsewhere.npz", scenario="fine-tuning")
    own = registry.Registry()
    for policy in named.policies(trained=False, kind="cluster"):
        own.add(policy)
    add_trained(own, folder)
    with named.using(own):
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Signals of a month of the test, and a job table."""
    folder = tmp_path_factory.mktemp("files")
    signals = generate_signals(("CA-ON", "SG"), datetime(2022, 3, 1, tzinfo=UTC), 720, np.random.default_rng(0))
    write_generated_signals(signals, folder / "signals.csv")
    environment = build_environment(load_scenario("tiny"), 5)
    write_job_table(environment.jobs, environment.fleet, folder / "jobs.csv")
    return folder / "signals.csv", folder / "jobs.csv"


@pytest.fixture(scope="module")
def found(registered, files, tmp_path_factory):
    signals, jobs = files
    names = ["price-greedy", "masac", "madqn"]
    out = tmp_path_factory.mktemp("runs")
    return reproduce_fine_tuning([signals], jobs, names=names, environments=3, out=out, scenario="tiny")


@pytest.fixture(scope="module")
def metrics(found):
    return {metric.name: metric for metric in found.metrics()}


@pytest.mark.usefixtures("registered")
def test_a_learned_name_means_all_its_seeds_and_the_reference_is_always_there():
    scenario = load_scenario("tiny")
    assert set(learned_policies(scenario)) == {"masac", "madqn"}
    runs, learned = chosen_policies(scenario, ["random", "masac", "madqn-seed1"])
    assert runs == ["local-fcfs", "random", "masac", "masac-seed1", "madqn-seed1"]
    assert list(learned) == ["masac"]
    runs, learned = chosen_policies(scenario, None)
    assert runs == [*scenario.policies, "madqn", "madqn-seed1", "masac", "masac-seed1"]


def test_environments_are_the_tests_own_and_both_kinds_are_there(found):
    assert [half.name for half in found.halves] == ["generated", "real"]
    for half in found.halves:
        assert half.runs.paired
        for record in half.runs.records["local-fcfs"]:
            assert datetime.fromisoformat(record.manifest["start"]).month in (3, 6, 9, 12)
        assert half.runs.seed == split_seed("test", 0)
    assert [half.days.records["local-fcfs"][0].manifest["window_s"] / 3600 for half in found.halves] == [120, 12]


def test_a_learned_policys_figure_is_the_mean_over_seeds_paired_over_environments(found, metrics):
    for half in found.halves:
        base = half.runs.values("local-fcfs", "utility_usd")
        mine = np.mean([half.runs.values(name, "utility_usd") for name in SEEDS[:2]], axis=0)
        metric = metrics[f"gain_over_local-fcfs/masac@{half.name}"]
        assert metric.value == pytest.approx((mine - base).sum() / base.sum())
        assert metric.low < metric.value < metric.high
        assert metric.reference == 0.286
        gains = [half.runs.gain(name).value for name in SEEDS[:2]]
        assert metrics[f"seed_spread/masac@{half.name}"].value == pytest.approx(np.std(gains, ddof=1))
        theirs = np.mean([half.runs.values(name, "utility_usd") for name in SEEDS[2:]], axis=0)
        assert metrics[f"masac_less_madqn_usd@{half.name}"].value == pytest.approx((mine - theirs).mean())


def test_gpu_hours_are_held_against_every_other_policy_of_the_paper(metrics):
    over = [metrics[f"masac_gpu_hours_over/{name}@real"].value for name in ("local-fcfs", "price-greedy", "madqn")]
    assert metrics["masac_gpu_hours_over/least@real"].value == max(over)
    assert metrics["masac_gpu_hours_over/least@real"].reference == 0.156


def test_figures_of_training_are_those_of_the_curves(found, metrics):
    assert metrics["training_seeds/masac"].value == 2
    assert metrics["converged_epoch/masac"].reference == 10
    assert 5 < metrics["converged_epoch/masac"].value < 15
    assert metrics["migration_change_in_training/masac"].value == pytest.approx(-0.5, abs=0.01)
    assert metrics["migration_change_in_validation/masac"].value < -0.2
    assert metrics["step_reward_madqn_over_masac"].value == pytest.approx(1, abs=0.05)


def test_rules_in_the_validation_panel_ran_in_the_validation_environments(found):
    scenario, seed = split_scenario(load_scenario("tiny"), "validation"), split_seed("validation", 0)
    drawn = [build_environment(scenario, index, seed) for index in range(2)]
    earned = [settle(run(each, named.make_scheduler("local-fcfs"))).utility_usd for each in drawn]
    assert found.rules_in_validation["local-fcfs"] == pytest.approx(np.mean(earned))
    assert list(found.rules_in_validation) == ["local-fcfs", "price-greedy", "carbon-greedy"]


def test_figures_say_which_environments_they_show_and_have_names_of_their_own(found):
    shown = figures(found)
    assert len({figure.name for figure in shown}) == len(shown)
    for half in ("generated", "real"):
        titles = [figure.title for figure in shown if figure.title.endswith(f"{half} test environments")]
        assert len(titles) == 6
    training = next(figure for figure in shown if figure.name == "training").plot
    lines = {trace.name: trace for trace in training.data if trace.xaxis == "x" and trace.name}
    values_KE = found.learned["masac"].curve("reward_per_step")
    np.testing.assert_allclose(lines["masac"].y, values_KE.mean(axis=0))
    band = next(trace for trace in training.data if trace.fill == "toself")
    assert max(band.y) == values_KE.max()
    validation = next(trace for trace in training.data if trace.xaxis == "x2" and trace.name == "masac")
    assert list(validation.x) == list(range(2, 21, 2))
    assert "local-fcfs" in {trace.name for trace in training.data}


def test_the_report_holds_claims_results_and_findings(found, tmp_path):
    path = write_fine_tuning(found, tmp_path / "r.html", command="noonward reproduce fine-tuning")
    text = path.read_text(encoding="utf-8")
    for words in ("+28.6", "up to +15.6", "Results in real test environments", "How much training seeds differ"):
        assert words in text
    for sentence in findings(found):
        assert sentence.split(" %")[0] in text
    claims, training = claims_tables(found)
    assert len(claims.header) == 4
    assert training.rows[0][:2] == ("epochs until MASAC's step reward converges", "10")
    assert [row[2] for row in seeds_table(found).rows] == ["2"] * 4


def test_what_is_left_out_is_said(registered, found, tmp_path):
    assert not any("LEFT OUT" in note for note in found.notes)
    assert any("masac has 2 training seeds" in note for note in found.notes)
    alone = reproduce_fine_tuning(names=["price-greedy"], environments=1, out=tmp_path, scenario="tiny")
    assert [half.name for half in alone.halves] == ["generated"]
    assert any("real test environments were LEFT OUT" in note for note in alone.notes)
    assert any("no learned policy was compared" in note for note in alone.notes)
    assert not [metric for metric in alone.metrics() if "masac" in metric.name]
    assert seeds_table(alone) is None
    path = write_fine_tuning(alone, tmp_path / "r.html", command="noonward reproduce fine-tuning")
    assert "LEFT OUT" in path.read_text(encoding="utf-8")


def test_a_policy_that_met_the_tests_months_is_named(found):
    masac = found.learned["masac"]

    def notes(*months):
        records = tuple({} if each is None else {"months": {"train": each}} for each in months)
        return " ".join(_notes({"masac": dataclasses.replace(masac, records=records)}, True))

    assert "NO TEST" not in notes([1, 2], [4])
    assert "masac was trained or validated on months 6, 9 of the test" in notes([1, 9, 6], [4])
    assert "a file does not say" in notes([1], None)
    assert not any("NO TEST" in note or "does not say" in note for note in found.notes)


def test_the_best_policy_is_sought_among_those_that_do_not_know_the_future(found):
    assert foresees("booked-perfect")
    assert foresees("booked-noisy")  # the truth with an error
    assert not foresees("booked-persistence")
    assert not foresees("local-fcfs")
    half = found.halves[0]
    knows = dataclasses.replace(half.policies, records={**half.policies.records, "booked-perfect": knowing(half)})
    assert "booked-perfect" not in chosen(knows).records
    told = findings(dataclasses.replace(found, halves=(dataclasses.replace(half, policies=knows),)))
    assert not any("future: booked-perfect" in sentence for sentence in told)


def knowing(half):
    """Records of a policy that earns more than any other."""
    return [
        dataclasses.replace(record, ledger=dataclasses.replace(record.ledger, utility_usd=1e6))
        for record in half.policies.records["local-fcfs"]
    ]


def test_signals_without_jobs_are_refused(registered, files, tmp_path):
    with pytest.raises(ScenarioError, match="give --signals and --jobs"):
        reproduce_fine_tuning([files[0]], scenario="tiny", out=tmp_path)
    assert not list(Path(tmp_path).iterdir())


def test_a_policy_that_does_not_fit_the_real_environments_is_refused_before_any_run(registered, files, tmp_path):
    signals, jobs = files  # a complete job table: bid prices cannot sample the jobs to come
    names = ["bid-price-persistence"]
    with pytest.raises(ScenarioError, match="'bid-price-persistence' plans for jobs to come"):
        reproduce_fine_tuning([signals], jobs, names=names, environments=1, out=tmp_path, scenario="tiny")
    assert not list(Path(tmp_path).iterdir())


def test_policies_without_curves_draw_no_training(found):
    bare = {
        name: dataclasses.replace(each, records=tuple({} for _ in each.records)) for name, each in found.learned.items()
    }
    silent = dataclasses.replace(found, learned=bare)
    assert "training" not in {figure.name for figure in figures(silent)}
    assert len(claims_tables(silent)) == 1


def test_the_best_learned_policy_is_paired_with_every_other(found):
    """Shares of one gap: the paired difference is the difference of the shares, and its sign that of the utilities."""
    half = found.halves[0]
    records = {**half.policies.records, "bid-price-neural": half.policies.records["masac"]}
    posing = dataclasses.replace(half, policies=dataclasses.replace(half.policies, records=records))
    metrics = {metric.name: metric for metric in environment_metrics(posing, {})}
    at = f"@{half.name}"
    for policy in ("local-fcfs", "price-greedy", "masac", "madqn"):
        more = metrics[f"improvement_share_more/{policy}{at}"]
        shares = [metrics[f"improvement_share/{name}{at}"].value or 0.0 for name in ("bid-price-neural", policy)]
        assert more.value == pytest.approx(shares[0] - shares[1], abs=1e-12)
    assert f"improvement_share_more/bid-price-neural{at}" not in metrics
    assert not any(metric.name.startswith("improvement_share_more") for metric in found.metrics())

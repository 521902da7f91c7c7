"""What policies earn that are not told run times: pairs, shares of the gap, the table and the command."""

import json

import pytest

from command_line import CommandLine
from noonward.studies.fine_tuning import knowledge
from noonward.studies.fine_tuning.knowledge import WAYS, knowledge_table, runs_of, study_knowledge

POLICIES = ("booked-persistence", "cheapest-feasible")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def found(folder):
    steps = []
    study = study_knowledge(
        environments=2, out=folder, scenario="tiny", policies=POLICIES, progress=lambda *step: steps.append(step)
    )
    assert len(steps) == runs_of(2, POLICIES)
    return study


def test_local_fcfs_earns_the_same_whatever_it_is_told(found):
    earned = {tuple(comparison.values("local-fcfs", "utility_usd")) for comparison in found.by_way.values()}
    assert len(earned) == 1


def test_what_is_lost_is_the_difference_of_the_shares(found):
    for policy in POLICIES:
        for way in WAYS:
            lost = found.improvement_share(policy, "known").value - found.improvement_share(policy, way).value
            assert found.lost(policy, way).value == pytest.approx(lost, abs=1e-12)
    assert found.lost("booked-persistence", "class-mean").value != 0


def test_every_policy_has_a_figure_under_every_way_and_a_row(found):
    names = [metric.name for metric in found.metrics()]
    assert set(names) >= {f"knowledge/improvement_share/{policy}@{way}" for policy in POLICIES for way in WAYS}
    table = knowledge_table(found, 2)
    assert table.header == ("policy", *WAYS)
    assert [row[0] for row in table.rows] == list(POLICIES)


def test_the_command_reads_back_what_was_recorded(found, folder, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    noonward = CommandLine(monkeypatch, capsys)
    kept = knowledge.study_knowledge.__kwdefaults__
    monkeypatch.setattr(knowledge.study_knowledge, "__kwdefaults__", {**kept, "scenario": "tiny"})
    told = ("reproduce", "fine-tuning", "--knowledge", "-n", 2, "--policies", ",".join(POLICIES), "--out", folder)
    answer = json.loads(noonward(*told, "--workers", 1, "--json").out)
    values = {figure["name"]: figure["value"] for figure in answer["figures"]}
    assert values.items() >= {metric.name: metric.value for metric in found.metrics()}.items()
    assert "class-mean" in noonward(*told, "--workers", 1).out
    assert noonward("reproduce", "fine-tuning", "--knowledge", "--map").code == 2
    assert noonward("reproduce", "fine-tuning", "--knowledge", "--jobs", "jobs.csv").code == 2

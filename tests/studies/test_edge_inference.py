"""``reproduce edge-inference``: tables beside the paper's, values below the bound, metrics, resuming."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_line import CommandLine
from noonward.schedule.edge.rules import Fifo, ReuseFirst
from noonward.schedule.policies import policies, register
from noonward.studies.edge_inference import reproduce
from noonward.studies.edge_inference.figures import scratch_figure, study_figures, training_figure
from noonward.studies.edge_inference.published import CELLS, DECISION_MS, PAPER, paper_value
from noonward.studies.edge_inference.report import findings, write_edge_inference
from noonward.studies.edge_inference.reproduce import (
    LEARNED,
    RULES,
    cell_scenario,
    reproduce_edge_inference,
    study_policies,
    work_of,
)
from noonward.studies.edge_inference.tables import study_tables, values_below

SMALL = [(4, 0.03), (8, 0.1)]


@pytest.fixture
def noonward(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    """The command line, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return reproduce_edge_inference(
        tmp_path_factory.mktemp("study"),
        names=["random", "reuse-first", "patient-reuse", "greedy"],
        episodes=2,
        cells=SMALL,
    )


def test_the_papers_tables_are_whole():
    assert len(CELLS) == 15
    for quantity, rows in PAPER.items():
        assert set(rows) == {"EAT", "EAT-A", "EAT-D", "EAT-DA", "PPO", "Genetic", "Harmony", "Random", "Greedy"}
        assert all(set(row) == set(CELLS) for row in rows.values()), quantity
    assert paper_value("response_s", "eat", (4, 0.03)) == 21.4
    assert paper_value("reload_rate", "random", (12, 0.19)) == 0.602
    assert paper_value("quality", "reuse-first", (4, 0.03)) is None
    assert "EAT-D" not in DECISION_MS


def test_every_cell_is_the_public_simulators(found):
    setting = cell_scenario((8, 0.1))
    assert (setting.servers.count, setting.tasks.sizes, setting.tasks.rate_per_s) == (8, (1, 2, 4, 8), 0.1)
    assert (setting.end, setting.quality, setting.choice) == ("drained", "reference", "lowest")


def test_metrics_have_the_stated_names_and_the_papers_values(found):
    metrics = {metric.name: metric for metric in found.metrics()}
    for name in (
        "response_s/reuse-first/N4/0.03",
        "quality/greedy/N8/0.10",
        "reload_rate/random/N4/0.03",
        "improvement_share/patient-reuse/N8/0.10",
        "response_s/bound/N4/0.03",
        "response_s/bound/N8/0.10",
        "response_s/beam/N8/0.10",
        "improvement_share/beam/N4/0.03",
        "response_s/bound-any-quality/N4/0.03",
        "g_per_image/patient-reuse/N4/0.03",
        "decision_ms/greedy",
    ):
        assert metrics[name].value is not None
    assert metrics["response_s/random/N4/0.03"].reference == 48.7
    assert metrics["decision_ms/greedy"].reference == 23.8
    for cell in ("N4/0.03", "N8/0.10"):
        bounds = [metrics[f"response_s/{name}/{cell}"].value for name in ("bound-any-quality", "bound", "beam")]
        assert bounds == sorted(bounds)
        assert metrics[f"improvement_share/reuse-first/{cell}"].value == 0


def test_values_below_the_bound_are_named(found):
    below = {(name, cell): (value, floor, at, least) for name, cell, value, _, floor, at, least in values_below(found)}
    value, floor, at, least = below["EAT", (4, 0.03)]
    assert (value, floor) == (21.4, "quality .26")
    assert value < least < at
    assert ("Random", (4, 0.03)) not in below
    assert any("below the bound" in line for line in findings(found))


def test_tables_and_report_hold_every_policy_and_the_papers_rows(found, tmp_path):
    tables = {table.title: table for table in study_tables(found)}
    response = tables["Response, s (Table X), 4 servers"]
    assert [row[0] for row in response.rows[:2]] == ["lower bound", "clairvoyant beam"]
    assert {"random", "EAT (paper)"} <= {row[0] for row in response.rows}
    assert all(len(row) == len(table.header) for table in tables.values() for row in table.rows)
    figures = study_figures(found)
    names = "response share efficiency load-times durations training from-scratch"
    assert [figure.name for figure in figures] == names.split()
    shown = {trace.name for trace in figures[1].plot.data}
    assert {"lower bound", "patient-reuse"} <= shown
    assert not shown & {"random", "reuse-first"}
    page = write_edge_inference(found, tmp_path / "report.html", command="noonward").read_text(encoding="utf-8")
    for words in ("Table X", "after EAT, Fig. 6".capitalize(), "Findings", "gCO2/image"):
        assert words.lower() in page.lower()


def test_learned_policies_join_when_they_are_registered(own_registry):
    before = study_policies()
    assert before[: len(RULES)] == list(RULES)
    register("eat-mine", ReuseFirst, kind="edge", roles=["learned"])
    register("eat-mine-seed1", Fifo, kind="edge", roles=["learned"])
    assert study_policies() == [*before, "eat-mine"]
    assert work_of(None, 10, SMALL) == 2 * 10 * (len(before) + 1 + 2)


def test_policies_without_a_trained_file_are_said_to_be_missing(found, tmp_path, monkeypatch):
    whole = replace(found, missing=("ppo", "eat-da"))
    words = "Without a row, because no trained file of them is packaged: ppo, eat-da."
    assert words in findings(whole)
    assert found.missing == ()  # its policies were named
    monkeypatch.setattr(reproduce, "RULES", ("reuse-first",))
    monkeypatch.setattr(reproduce, "decision_ms", lambda *_: 0.0)
    learned = {policy.name for policy in policies(kind="edge", trained=True) if "-seed" not in policy.name}
    quick = reproduce_edge_inference(tmp_path, episodes=1, cells=SMALL[:1])
    assert set(quick.missing) == set(LEARNED) - learned
    assert set(quick.policies) == {"reuse-first", *learned}


def test_a_mean_quality_below_the_goal_is_a_finding(found):
    (line,) = [line for line in findings(found) if line.startswith("Below a mean quality of 0.26: ")]
    assert "random in 2 of 2 cells" in line
    assert "patient-reuse" not in line


def test_the_curves_of_training_are_those_of_the_policies_files():
    figure = training_figure()
    drawn = {(trace.name, trace.xaxis): list(trace.y) for trace in figure.plot.data}
    records = {policy.name: policy.trained.meta["record"] for policy in policies(kind="edge", trained=True)}
    assert {name for name, _ in drawn} == {name for name in records if "-seed" not in name}
    for axis, key in (("x", "reward"), ("x2", "episode_length"), ("x3", "loss")):
        assert drawn["eat-d", axis] == [each[key] for each in records["eat-d"]["curve"]]
    assert ("eat-published", "x") not in drawn
    assert drawn["eat-published", "x4"] == [each["reward"] for each in records["eat-published"]["curve"]]


def test_curves_from_scratch_stand_beside_those_after_imitation():
    drawn = {trace.name: (list(trace.x), list(trace.y)) for trace in scratch_figure().plot.data}
    names = ("ppo", "eat", "eat-a", "eat-d", "eat-da")
    assert set(drawn) == {f"{name}{how}" for name in names for how in ("", ", from scratch")}
    for policy in policies(kind="edge", trained=True):
        if policy.name not in names:
            continue
        (run,) = policy.trained.meta["record"]["from_scratch"]
        rows = [row for row in run["curve"] if row["validation_reward"] is not None]
        expected = [row["environment_steps"] for row in rows], [-row["validation_reward"] for row in rows]
        assert drawn[f"{policy.name}, from scratch"] == expected
        assert run["validation_reward"] == max(row["validation_reward"] for row in rows)
        assert min(drawn[policy.name][1]) < min(expected[1])  # imitation ends ahead


def test_an_interrupted_study_resumes(tmp_path, monkeypatch):
    names = ["reuse-first", "patient-reuse"]
    whole = reproduce_edge_inference(tmp_path, names=names, episodes=2, cells=SMALL[:1])
    calls: list[str] = []
    monkeypatch.setattr(reproduce, "edge_response_bound", lambda *_: calls.append("bound"))
    again = reproduce_edge_inference(tmp_path, names=names, episodes=2, cells=SMALL[:1])
    assert calls == []
    for name, values_E in whole.floors[SMALL[0]].items():
        assert np.array_equal(again.floors[SMALL[0]][name], values_E)


def test_the_command_prints_figures(noonward: CommandLine) -> None:
    answer = noonward(
        "reproduce", "edge-inference", "-n", 2, "--servers", 4, "--policies", "reuse-first,patient-reuse,beam", "--json"
    )
    content = json.loads(answer.out)
    assert {"response_s/bound/N4/0.01", "improvement_share/patient-reuse/N4/0.09"} <= {
        f["name"] for f in content["figures"]
    }
    assert Path(content["report"]).is_file()
    refused = noonward("reproduce", "edge-inference", "--servers", 9)
    assert (refused.code, "the paper has 4, 8, 12 servers" in refused.err) == (2, True)

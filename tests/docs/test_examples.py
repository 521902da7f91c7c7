"""The examples run as a user runs them."""

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandLine
from noonward.data.scenarios.load import load_scenario
from noonward.schedule.registry import Registry

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_registry: Registry) -> None:
    """Runs in an empty folder, with the examples importable and a registry of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_every_example_is_tested_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == {
        "own_scheduler.py",
        "compiled_rule.py",
        "own_scenario.yaml",
        "compare.ipynb",
        "paper_figure.py",
    }


@pytest.mark.usefixtures("in_a_folder")
def test_own_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_scheduler.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    earned = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert list(earned) == ["local-fcfs", "cheapest-feasible", "cheapest-site", "bound"]
    assert max(earned.values()) == earned["bound"]


@pytest.mark.usefixtures("in_a_folder")
def test_the_figure_of_the_docs_is_what_the_example_draws(noonward: CommandLine) -> None:
    assert noonward("compare", "tiny", "--no-bound", "--no-report", "--csv", "results.csv").code == 0
    drawn = runpy.run_path(str(EXAMPLES / "paper_figure.py"))
    told = "draw it again, as docs/paper-figure.md says"
    figure = EXAMPLES.parent / "docs/images/paper-figure.svg"
    assert drawn["drawn"](drawn["changes"](Path("results.csv"))) == figure.read_text(encoding="utf-8"), told


@pytest.mark.usefixtures("in_a_folder")
def test_compiled_rule_earns_what_the_same_scheduler_earns_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "compiled_rule.py"), run_name="__main__")
    one, other = (line.split()[1] for line in capsys.readouterr().out.splitlines())
    assert one == other


def test_own_scenario(noonward: CommandLine) -> None:
    path = EXAMPLES / "own_scenario.yaml"
    assert noonward("scenario", "check", path).out.startswith("own-fleet: valid. 2 sites, 96 GPUs")
    assert noonward("compare", path, "-n", 1, "--no-report").code == 0


def test_fleets_in_other_zones(noonward: CommandLine) -> None:
    paths = sorted((EXAMPLES / "zones").glob("*.yaml"))
    assert [path.stem for path in paths] == ["europe", "us", "world"]
    assert all(sum(site.gpus for site in load_scenario(path).fleet.sites) == 540 for path in paths)
    policies = ("--policies", "local-fcfs,cheapest-feasible")
    assert noonward("compare", paths[-1], "-n", 1, *policies, "--no-bound", "--no-report").code == 0


@pytest.mark.usefixtures("in_a_folder")
def test_notebook() -> None:
    cells = json.loads((EXAMPLES / "compare.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            *lines, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(lines, []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
            else:
                exec(compile(ast.Module([last], []), "cell", "exec"), names)
    assert "<table>" in shown[0]._repr_html_()
    assert [len(each) > 0 for each in shown[1:4]] == [True, True, True]
    assert [type(each).__name__ for each in shown[4:]] == ["Figure"] * 2 + ["StudyResult"] * 2
    assert "<svg" in shown[6]._repr_html_()
    assert sorted(path.name for path in Path().iterdir()) == ["report.html"]

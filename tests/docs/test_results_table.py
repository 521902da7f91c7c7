"""The tables and samples of README and docs are what commands print, those of ``make demo`` first."""

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tool_named(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_tables_and_sample_of_the_demo_are_what_it_prints(tmp_path):
    command = [sys.executable, "-m", "noonward.cli.main", "compare", "fine-tuning", "--out", str(tmp_path)]

    def printed(*more):
        return subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout

    assert "noonward compare fine-tuning\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    tool = tool_named("results_tables")
    figures = {figure["name"]: figure for figure in json.loads(printed("--no-report", "--json"))["figures"]}
    told = ["--set", "jobs.knowledge.run_time=learned", "--set", "jobs.knowledge.limit.to=4"]
    told += ["--policies", ",".join(tool.SHORT_ROWS), "--no-bound", "--no-report", "--json"]
    learned = {figure["name"]: figure for figure in json.loads(printed(*told))["figures"]}
    for page, name, lines in (
        ("docs/results.md", "fine-tuning", tool.table(figures)),
        ("README.md", "short-fine-tuning", tool.short_table(figures, learned)),
    ):
        text = (ROOT / page).read_text(encoding="utf-8")
        shown = text.partition(f"<!-- results {name} -->")[2].partition(tool.END)[0].strip().split("\n")
        assert shown == lines, f"{page}: run tools/results_tables.py {name}"
    sampler, text = tool_named("readme_samples"), (ROOT / "README.md").read_text(encoding="utf-8")
    policies = [line for line in tool.table(figures) if line.startswith("| `")]
    assert f"`make demo` compares {len(policies)} policies" in text
    (found,) = [m for m in sampler.SAMPLE.finditer(text) if m["command"] == "noonward compare fine-tuning"]
    assert found["text"] == sampler.sample(printed("--no-report"), found), "run tools/readme_samples.py"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_samples_of_quick_commands_are_what_they_print(page, noonward):
    sampler = tool_named("readme_samples")
    found = list(sampler.SAMPLE.finditer((ROOT / page).read_text(encoding="utf-8")))
    assert found
    for sample in found:
        if "fine-tuning" not in sample["command"]:
            printed = noonward(*shlex.split(sample["command"])[1:]).out
            assert sample["text"] == sampler.sample(printed, sample), "run tools/readme_samples.py"

"""The tables and samples of README and docs are what commands print, those of ``make demo`` first."""

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from noonward.evaluate.kept import kept_comparisons, read_comparison
from noonward.evaluate.metrics import to_json

ROOT = Path(__file__).parents[2]


def tool_named(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the demo's comparison prints in a process of its own, and its figures, from the records that it leaves."""
    assert "noonward compare fine-tuning\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    out = tmp_path_factory.mktemp("demo")
    command = ["noonward.cli.main", "compare", "fine-tuning", "--no-report", "--out", str(out)]
    printed = subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True).stdout
    (kept,) = kept_comparisons(Path(printed.rpartition("records: ")[2].strip()))
    comparison, _ = read_comparison(kept)
    return printed, figures_of(to_json(comparison.metrics()))


def figures_of(answer):
    """Figures by name of what a command prints with ``--json``."""
    return {figure["name"]: figure for figure in json.loads(answer)["figures"]}


def shown(page, name, tool):
    """Lines of a page's table."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.partition(f"<!-- results {name} -->")[2].partition(tool.END)[0].strip().split("\n")


def test_table_and_sample_of_the_demo_are_what_it_prints(demo):
    printed, figures = demo
    tool, sampler = tool_named("results_tables"), tool_named("readme_samples")
    lines, text = tool.table(figures), (ROOT / "README.md").read_text(encoding="utf-8")
    assert shown("docs/results.md", "fine-tuning", tool) == lines, "run tools/results_tables.py fine-tuning"
    policies = [line for line in lines if line.startswith("| `")]
    assert f"`make demo` compares {len(policies)} policies" in text
    (found,) = [m for m in sampler.SAMPLE.finditer(text) if m["command"] == "noonward compare fine-tuning"]
    assert found["text"] == sampler.sample(printed, found), "run tools/readme_samples.py"


def test_the_short_table_holds_figures_of_the_demo_and_of_learned_run_times(demo, noonward):
    """The other planner by prices, which differs in its forecast alone, is left out of the last column: it is slow."""
    tool = tool_named("results_tables")
    rows = tool.short_table(demo[1], {})
    policies = [name for name in tool.SHORT_ROWS if name != "bid-price-neural"]
    told = ("--set", "jobs.knowledge.run_time=learned", "--set", "jobs.knowledge.limit.to=4")
    told += ("--policies", ",".join(policies), "--no-bound", "--no-report", "--json")
    lines = tool.short_table(demo[1], figures_of(noonward("compare", "fine-tuning", *told).out))
    table = shown("README.md", "short-fine-tuning", tool)
    assert len(table) == len(lines)
    for stated, found, without in zip(table, lines, rows, strict=True):
        if "`bid-price-neural`" in stated:
            assert stated.rpartition(" | ")[0] == without.rpartition(" | ")[0]
        else:
            assert stated == found, "run tools/results_tables.py short-fine-tuning"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_samples_of_quick_commands_are_what_they_print(page, noonward):
    sampler = tool_named("readme_samples")
    found = list(sampler.SAMPLE.finditer((ROOT / page).read_text(encoding="utf-8")))
    assert found
    for sample in found:
        if "fine-tuning" not in sample["command"]:
            printed = noonward(*shlex.split(sample["command"])[1:]).out
            assert sample["text"] == sampler.sample(printed, sample), "run tools/readme_samples.py"

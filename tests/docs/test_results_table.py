"""The table of README and docs is what ``make demo`` prints: ``compare fine-tuning``, ten environments, seed 0."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def results_tables():
    spec = importlib.util.spec_from_file_location("results_tables", ROOT / "tools" / "results_tables.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_table_of_results_is_what_the_demo_gives(tmp_path):
    command = [sys.executable, "-m", "noonward.cli.main", "compare", "fine-tuning", "--no-report", "--json"]
    printed = subprocess.run([*command, "--out", str(tmp_path)], check=True, capture_output=True, text=True).stdout
    tool = results_tables()
    assert "noonward compare fine-tuning\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = tool.table({figure["name"]: figure for figure in json.loads(printed)["figures"]})
    for page in ("README.md", "docs/fine-tuning.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        shown = text.partition("<!-- results fine-tuning -->")[2].partition(tool.END)[0].strip().split("\n")
        assert shown == lines, page

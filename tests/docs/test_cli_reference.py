"""The reference of the command line is what ``--help`` prints."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_is_current() -> None:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "tools" / "cli_reference.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    made = tool.pages()
    assert {path.name for path in (ROOT / "docs").glob("cli*.md")} == set(made)
    stale = [name for name, text in made.items() if (ROOT / "docs" / name).read_text(encoding="utf-8") != text]
    assert not stale, "run: python tools/cli_reference.py"

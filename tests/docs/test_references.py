"""The references of the command line and of scenario files are what the tools write that make them."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("tool", "pages"), [("cli_reference", "cli*.md"), ("scenario_reference", "scenario*.md")])
def test_a_reference_is_current(tool: str, pages: str) -> None:
    spec = importlib.util.spec_from_file_location(tool, ROOT / "tools" / f"{tool}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.pages()
    assert {path.name for path in (ROOT / "docs").glob(pages)} == set(made)
    stale = [name for name, text in made.items() if (ROOT / "docs" / name).read_text(encoding="utf-8") != text]
    assert not stale, f"run: python tools/{tool}.py"

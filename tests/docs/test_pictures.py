"""Pictures that a command draws are those in the docs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tools.pictures.concepts import PICTURES  # noqa: E402


def tool(name: str) -> ModuleType:
    """Returns a module of tools/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_one_job_shows_what_its_command_prints() -> None:
    told = "draw it again: python tools/when_picture.py"
    assert tool("when_picture").picture() == (ROOT / "docs/images/when.svg").read_text(encoding="utf-8"), told


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_a_concept_is_what_its_command_draws(name: str) -> None:
    told = "draw it again: python -m tools.pictures.concepts"
    assert PICTURES[name]().svg() == (ROOT / f"docs/images/{name}.svg").read_text(encoding="utf-8"), told


def test_every_picture_of_the_docs_is_shown_on_a_page() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [image.name for image in (ROOT / "docs/images").iterdir() if f"images/{image.name}" not in shown] == []

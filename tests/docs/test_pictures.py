"""Pictures that a command draws are those in the docs."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_of_one_job_shows_what_its_command_prints() -> None:
    spec = importlib.util.spec_from_file_location("when_picture", ROOT / "tools/when_picture.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    told = "draw it again: python tools/when_picture.py"
    assert tool.picture() == (ROOT / "docs/images/when.svg").read_text(encoding="utf-8"), told

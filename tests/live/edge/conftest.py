from pathlib import Path

import pytest

from command_line import CommandLine
from live.edge.fakes import STORES


@pytest.fixture
def noonward(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    """The command line, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def _close_stores():
    """Closes the stores that a test has opened."""
    yield
    while STORES:
        STORES.pop().close()

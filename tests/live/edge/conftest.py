from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import CommandLine
from live.edge.fakes import STORES
from live.edge.gangs import Gang, gang_of, written


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the small model."""
    return written(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="session")
def workers() -> Iterator[Gang]:
    """Four workers without a model, for tests of group ``edge``."""
    with gang_of(4) as started:
        yield started


@pytest.fixture
def gang(workers: Gang, small: Path) -> Gang:
    """Four workers with the small model."""
    workers.load(small)
    return workers


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

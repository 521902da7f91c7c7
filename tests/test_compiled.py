"""Compiled functions: one cache per state of the sources, in a folder one may choose; none without a file."""

import importlib.util
import shutil
from pathlib import Path

import pytest

import noonward
from noonward.compiled import CACHE_VARIABLE, code_digest, kernel

PACKAGE = Path(noonward.__file__).parent


def load(path, name="loaded"):
    """Loads a file as a module of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    """A copy of the package's sources, and a function that gives the digest of their present state."""
    folder = tmp_path / "noonward"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder, lambda: load(folder / "compiled.py").code_digest()


def test_the_digest_is_that_of_exactly_these_sources(copy):
    _, name = copy
    assert name() == code_digest()


@pytest.mark.parametrize(
    "file",
    [
        "engine/cluster/kernels/physics.py",
        "ledger/settle.py",
        "decision/cluster/view.py",
        "decision/cluster/value.py",
        "units.py",
    ],
)
def test_an_edit_of_a_source_changes_the_digest(copy, file):
    folder, name = copy
    before = name()
    text = (folder / file).read_text(encoding="utf-8")
    (folder / file).write_text(text + "\n", encoding="utf-8")
    assert name() != before
    (folder / file).write_text(text, encoding="utf-8")
    assert name() == before


def test_a_new_or_moved_source_changes_the_digest(copy):
    folder, name = copy
    names = [name()]
    (folder / "engine" / "extra.py").touch()
    names.append(name())
    (folder / "engine" / "extra.py").rename(folder / "ledger" / "extra.py")
    names.append(name())
    assert len(set(names)) == 3


@pytest.mark.parametrize("part", ["cli", "evaluate", "learn", "studies", "bench"])
def test_commands_reports_and_training_hold_no_compiled_function(copy, part):
    folder, name = copy
    before = name()
    (folder / part).mkdir(exist_ok=True)
    (folder / part / "extra.py").touch()
    assert name() == before
    kernels = [path for path in (PACKAGE / part).rglob("*.py") if "import kernel" in path.read_text(encoding="utf-8")]
    assert kernels == []


@pytest.mark.parametrize(
    ("edited", "again"),
    [
        ("engine/cluster/kernels/physics.py", True),
        ("units.py", True),  # through physics
        ("decision/cluster/view.py", True),
        ("decision/cluster/value.py", False),
        ("evaluate/report/page.py", False),
    ],
)
def test_an_edit_recompiles_what_rests_on_it_and_nothing_else(copy, edited, again):
    folder, _ = copy
    source = folder / "engine" / "cluster" / "kernels" / "each_slot.py"

    def of():
        return load(folder / "compiled.py").cache_folder(source)

    before = of()
    (folder / edited).write_text((folder / edited).read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert (of() != before) == again


def test_every_import_within_the_package_is_seen(copy):
    compiled = load(copy[0] / "compiled.py")
    loops = copy[0] / "engine" / "cluster" / "kernels" / "loops.py"
    (copy[0] / "own.py").write_text(
        "from noonward.engine.cluster.kernels import (\n    loops,\n    world,\n)\n", encoding="utf-8"
    )
    assert set(compiled._imported(copy[0] / "own.py")) == {loops, loops.with_name("world.py")}


@pytest.mark.parametrize(
    ("variables", "base"),
    [
        ({CACHE_VARIABLE: "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg"),
        ({CACHE_VARIABLE: "", "XDG_CACHE_HOME": ""}, "/home/.cache"),
        ({}, "/home/.cache"),
        ({CACHE_VARIABLE: "~/mine"}, "/home/mine"),
    ],
)
def test_the_folder_may_be_chosen(monkeypatch, variables, base):
    monkeypatch.setenv("HOME", "/home")
    for name in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert load(PACKAGE / "compiled.py").cache_base() == Path(base) / "noonward" / "kernels"


def test_a_function_of_a_file_is_cached_in_the_folder_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    compiled = load(PACKAGE / "compiled.py")
    (tmp_path / "own.py").write_text("def twice(x):\n    return 2 * x\n", encoding="utf-8")
    twice = compiled.kernel()(load(tmp_path / "own.py", "own").twice)
    assert twice(21) == 42
    folder = compiled.cache_folder(tmp_path / "own.py")
    assert folder.is_relative_to(tmp_path / "cache")
    assert list(folder.rglob("*.kernel"))


def test_a_function_without_a_file_is_compiled_all_the_same():
    namespace = {}
    exec(compile("def thrice(x):\n    return 3 * x\n", "<prompt>", "exec"), namespace)
    thrice = kernel()(namespace["thrice"])
    assert thrice(14) == 42
    assert len(thrice.signatures) == 1
    assert thrice.stats.cache_path is None


def test_division_by_zero_follows_numpy():
    namespace = {}
    exec(compile("def inverse(x):\n    return 1.0 / x\n", "<prompt>", "exec"), namespace)
    assert kernel()(namespace["inverse"])(0.0) == float("inf")

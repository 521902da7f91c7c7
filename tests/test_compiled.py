"""Compiled functions: cached in a folder one may choose, named after the sources; none without a file."""

import importlib.util
from pathlib import Path

import pytest

import noonward
from noonward.compiled import CACHE_VARIABLE, kernel
from noonward.schedule.policies import make_scheduler

PACKAGE = Path(noonward.__file__).parent


def load(path, name="loaded"):
    """Loads a file as a module of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("part", ["cli", "evaluate", "studies", "bench"])
def test_commands_and_reports_hold_no_compiled_function(part):
    kernels = [path for path in (PACKAGE / part).rglob("*.py") if "import kernel" in path.read_text(encoding="utf-8")]
    assert kernels == []


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


def test_each_rule_has_a_symbol_of_its_own():
    # machine code of two rules, loaded from the cache, must not take one symbol: one would run in the other's place
    dispatchers = [each.rule for each in (make_scheduler("random"), make_scheduler("booked-persistence"))]
    symbols = []
    for each in dispatchers:
        assert each._numba_type_ is not None  # compiles it
        (compiled,) = each.overloads.values()
        symbols.append(compiled.fndesc.llvm_func_name)
    assert ["_random_masked" in symbols[0], "_booked" in symbols[1]] == [True, True]

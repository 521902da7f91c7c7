"""The cache of compiled functions: read back, dropped where it is damaged, told of, and without loose parts."""

import importlib.util
import os
import subprocess
import sys

import pytest

from noonward import compiled
from noonward.cli.compile_notice import CompileNotice
from noonward.kernel_cache import MARK
from noonward.notices import listening

SOURCE = """
from noonward.compiled import kernel

@kernel(inline=True, allocates=False)
def add(x, y):
    return x + y

@kernel(allocates=False)
def twice(x):
    return add(x, x)
"""


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Loads two functions of a file as a new process would, with a cache of their own."""
    monkeypatch.setenv(compiled.CACHE_VARIABLE, str(tmp_path / "cache"))
    source = tmp_path / "two_functions.py"
    source.write_text(SOURCE, encoding="utf-8")
    compiled.cache_folder.cache_clear()

    def loaded():
        spec = importlib.util.spec_from_file_location("two_functions", source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield loaded
    compiled.cache_folder.cache_clear()


def files(tmp_path):
    return list((tmp_path / "cache").rglob("*.kernel"))


def notices_of(function, *arguments):
    """Returns a function's result and the kinds of notices that its call made."""
    told = []
    with listening(lambda kind, about: told.append(kind)):
        result = function(*arguments)
    return result, told


def test_a_function_is_compiled_once_and_read_back(load, tmp_path):
    assert notices_of(load().twice, 21) == (42, ["compile", "part"])
    (path,) = files(tmp_path)
    before = path.read_bytes()
    assert before.startswith(MARK)
    assert notices_of(load().twice, 21) == (42, [])
    assert files(tmp_path) == [path]
    assert path.read_bytes() == before


def test_each_kind_of_arguments_has_a_file_of_its_own(load, tmp_path):
    twice = load().twice
    assert twice(21) == 42
    assert twice(1.5) == 3.0
    assert len(files(tmp_path)) == 2
    assert notices_of(load().twice, 1.5) == (3.0, [])


def test_a_pasted_function_can_be_called_from_python(load):
    assert load().add(2, 3) == 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(MARK)],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
        lambda data: b"something else",
        lambda data: data.replace(b"kernel 1", b"kernel 0"),
    ],
)
def test_a_damaged_file_is_dropped_with_its_folder_and_compiled_again(load, tmp_path, damage):
    load().twice(21)
    (path,) = files(tmp_path)
    other = path.with_name("of-another-function.kernel")
    other.touch()
    path.write_bytes(damage(path.read_bytes()))
    assert notices_of(load().twice, 21) == (42, ["damaged", "compile", "part"])
    assert files(tmp_path) == [path]
    assert notices_of(load().twice, 21) == (42, [])


def test_a_cache_that_cannot_be_written_is_done_without(load, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder would be", encoding="utf-8")
    assert load().twice(21) == 42
    assert load().twice(21) == 42


def test_a_function_of_one_signature_is_compiled_when_it_is_first_called(tmp_path, monkeypatch):
    before = compiled.compilations()
    monkeypatch.setenv(compiled.CACHE_VARIABLE, str(tmp_path))
    namespace = {}
    exec(compile("def thrice(x):\n    return 3 * x\n", "<prompt>", "exec"), namespace)
    thrice = compiled.kernel("int64(int64)")(namespace["thrice"])
    assert thrice.signatures == []
    assert thrice(14) == 42
    assert len(thrice.signatures) == 1
    assert compiled.compilations() == before  # it has no file, so nobody waits for it twice
    with pytest.raises(TypeError):
        thrice("x")


def test_the_command_line_says_once_that_it_compiles_and_how_far_it_is(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 6.0, 7.0])
    monkeypatch.setattr("noonward.cli.compile_notice.time.monotonic", lambda: next(clock))
    notice = CompileNotice()
    for kind in ("compile", "part", "part", "compile"):
        notice(kind, "f")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "compiling functions, once per version and kind of policy (about a minute of CPU time)",
        "  2 functions compiled in 6 s",
    ]


def test_the_command_line_names_a_damaged_file_in_one_line(capsys):
    CompileNotice()("damaged", "/cache/f.kernel")
    assert capsys.readouterr().err == (
        "/cache/f.kernel was damaged: its folder is dropped, its functions are compiled again\n"
    )


CALLERS = """
from numba import int64
from noonward.compiled import address_of, call_at, kernel

@kernel(int64(int64), allocates=False)
def twice(x):
    return 2 * x

@kernel(int64(int64), allocates=False)
def four_times(x):
    return twice(twice(x))

@kernel(allocates=False)
def eight_times(x):
    return 2 * four_times(x)

@kernel(apart=True)
def apart(x):
    return 2 * four_times(x)

@kernel(allocates=False)
def calls_apart(x):
    return apart(2 * x) // 2

@kernel(int64(int64, int64), allocates=False)
def by_address(function, x):
    return 1 + call_at(function, x)
"""
WORTH = {"twice": 10, "four_times": 20, "eight_times": 40, "apart": 40, "calls_apart": 40}
FOUR = {"twice", "four_times"}
NEEDS = {
    "twice": {"twice"},
    "four_times": FOUR,
    "eight_times": FOUR | {"eight_times"},
    "apart": FOUR | {"apart"},
    "calls_apart": FOUR | {"apart", "calls_apart"},
}
PROCESSES = [
    ["twice four_times eight_times", "twice four_times eight_times"],
    ["eight_times four_times twice", "eight_times four_times twice"],
    ["four_times", "four_times"],
    # A function is compiled where those it rests on had been read back one by one.
    ["four_times", "twice four_times eight_times", "eight_times"],
    ["calls_apart", "apart calls_apart"],
    ["calls_apart apart", "apart", "calls_apart four_times"],
    ["apart", "calls_apart", "calls_apart apart"],
]


@pytest.mark.parametrize("processes", PROCESSES)
def test_functions_that_are_called_where_they_lie_are_read_back_in_a_process_of_their_own(tmp_path, processes):
    source = tmp_path / "callers.py"
    source.write_text(CALLERS, encoding="utf-8")
    ready = set()
    for order in map(str.split, processes):
        calls = ", ".join(f"callers.{name}(5)" for name in order)
        text = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import callers
from noonward.notices import listening
told = []
with listening(lambda kind, about: told.append(kind)):
    print({calls}, callers.by_address(callers.address_of(callers.twice), 5), told.count("compile"))
"""
        run = subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, compiled.CACHE_VARIABLE: str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
        )
        needed = {"by_address"}.union(*map(NEEDS.get, order))
        printed = [int(each) for each in run.stdout.split()]
        assert printed == [*map(WORTH.get, order), 11, len(needed - ready)]
        ready |= needed

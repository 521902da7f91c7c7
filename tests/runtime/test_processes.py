"""Processes: the same results and errors as serial; killed workers are replaced; an interrupt keeps what is done."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.errors import MissingExtraError, NoonwardError, ScenarioError
from noonward.evaluate.compare import compare
from noonward.notices import listening
from noonward.runtime.carry_out import THREAD_VARIABLES, cores, next_of
from noonward.runtime.executor import map_runs
from noonward.runtime.processes import Processes
from noonward.schedule.cluster.slot_rules import LocalFcfs
from noonward.schedule.policies import default_registry, register, using
from runtime.specs import Reading, Square

TINY = load_scenario("tiny")


@pytest.fixture(scope="module")
def processes():
    """An executor of two workers."""
    executor = Processes(2, patience_s=0.0, start_s=0.0)
    yield executor
    executor.close()


@pytest.fixture
def workers(processes):
    """Two workers that are there."""
    return start(processes)


def start(executor):
    """Returns an executor whose workers are there."""
    if not executor.pids:
        map_runs([Square(n, first="wait_a_little") for n in range(4)], executor)
    return executor


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_records_and_bounds_are_those_of_serial_byte_for_byte(workers, tmp_path):
    one = compare(TINY, ["local-fcfs", "random", "booked-noisy"], environments=2, out=tmp_path / "one")
    names = ["local-fcfs", "random", "booked-noisy"]
    two = compare(TINY, names, environments=2, out=tmp_path / "two", executor=workers)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") != {}
    assert one.bounds == two.bounds


def test_specs_run_in_workers_and_results_come_in_order(workers):
    found = map_runs([Square(n, first="wait_a_little") for n in range(12)], workers)
    assert [square for square, _ in found] == [n**2 for n in range(12)]
    pids = {pid for _, pid in found}
    assert pids & set(workers.pids)
    assert pids <= {os.getpid(), *workers.pids}


def test_a_worker_stays_with_its_group_and_else_takes_one_that_nobody_has():
    specs, todo = [Square(n) for n in range(5)], list(range(5))  # groups 0 0 1 1 2
    asked = [(None, set()), (None, {0}), (0, {0, 1}), (0, {0, 1}), (0, {0, 1})]
    assert [next_of(todo, specs, group, taken) for group, taken in asked] == [0, 2, 1, 4, 3]


def test_specs_that_come_last_wait_until_no_other_is_left():
    specs = [Square(n, last=n in (0, 2)) for n in range(5)]  # groups 0 0 1 1 2
    todo = list(range(5))
    asked = [(0, set()), (0, {0}), (1, {0, 1, 2}), (0, {0, 1}), (0, {0, 1})]
    assert [next_of(todo, specs, group, taken) for group, taken in asked] == [1, 3, 4, 0, 2]


def test_a_file_that_changed_since_the_last_call_is_read_again(workers, tmp_path):
    path = tmp_path / "signals.csv"
    for text in ("one", "two"):
        path.write_text(text)
        assert map_runs([Reading(n, path) for n in range(6)], workers) == [text] * 6


def test_small_jobs_start_no_workers():
    executor = Processes(2)
    assert {pid for _, pid in map_runs([Square(n) for n in range(50)], executor)} == {os.getpid()}
    assert executor.pids == []


def test_one_worker_means_this_process():
    executor = Processes(1, patience_s=0.0, start_s=0.0)
    assert {pid for _, pid in map_runs([Square(n) for n in range(5)], executor)} == {os.getpid()}


def test_what_is_not_portable_runs_here(workers):
    found = map_runs([Square(n, portable=n != 2) for n in range(4)], workers)
    assert found[2] == (4, os.getpid())
    assert found[1][1] in workers.pids


@pytest.mark.parametrize(
    ("first", "kind", "message"),
    [
        ("scenario_error", ScenarioError, "5 is wrong; give another"),
        ("missing_extra", MissingExtraError, "pip install 'noonward[ray]'"),
        ("odd", RuntimeError, "OddError: odd at 5"),
    ],
)
def test_an_error_in_a_worker_arrives_with_its_type_and_message(workers, tmp_path, first, kind, message):
    specs = [Square(n, tmp_path, first=first if n == 5 else "") for n in range(5, 8)]
    with pytest.raises(kind) as raised:
        map_runs(specs, workers)
    assert message in str(raised.value)
    assert type(raised.value) is kind


def test_of_several_errors_the_first_in_order_is_raised_and_what_stands_before_it_is_kept(workers, tmp_path):
    kinds = ["wait_a_little", "wait_a_little", "scenario_error", "scenario_error"]
    specs = [Square(n, tmp_path, first=first) for n, first in enumerate(kinds)]
    with pytest.raises(ScenarioError, match="2 is wrong"):
        map_runs(specs, workers)
    assert {"0", "1"} <= {path.name for path in tmp_path.iterdir()}


def test_a_killed_worker_is_replaced_and_its_spec_runs_again(workers, tmp_path):
    before = set(workers.pids)
    specs = [Square(n, tmp_path, first="die_once" if n == 1 else "") for n in range(6)]
    assert [square for square, _ in map_runs(specs, workers)] == [n**2 for n in range(6)]
    assert len(set(workers.pids) & before) == 1
    assert len(workers.pids) == 2


def test_a_spec_that_kills_every_worker_is_given_up_with_its_name(workers):
    with pytest.raises(NoonwardError, match=r"square of 3: its worker died 3 times \(exit code -9\)"):
        map_runs([Square(3, first="die"), Square(4)], workers)


def test_workers_keep_their_libraries_to_one_thread(workers, monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    executor = start(Processes(2, patience_s=0.0, start_s=0.0))
    said = Path(f"/proc/{executor.pids[0]}/environ").read_bytes().split(b"\0")
    executor.close()
    assert {f"{name}=1".encode() for name in THREAD_VARIABLES} <= set(said)
    assert not any(name in os.environ for name in THREAD_VARIABLES)


def test_what_a_worker_tells_is_told_here(workers):
    told = []
    with listening(lambda kind, about: told.append((kind, about))):
        found = map_runs([Square(3, first="tell"), Square(4)], workers)
    assert [n for n, _ in found] == [9, 16]
    assert os.getpid() not in {pid for _, pid in found}
    assert ("progress", "half of 3") in told


def test_there_is_at_least_one_core():
    assert 1 <= cores() <= (os.cpu_count() or 1)


class Mine(LocalFcfs):
    """A policy of one's own."""


def test_a_policy_registered_by_a_program_runs_in_that_program(workers, tmp_path):
    with using(default_registry().copy()):
        register("mine", Mine)
        found = compare(TINY, ["local-fcfs", "mine"], environments=2, out=tmp_path, executor=workers)
    assert found.values("mine", "utility_usd").tolist() == found.values("local-fcfs", "utility_usd").tolist()


def test_a_policy_named_by_module_and_class_runs_in_workers(workers, tmp_path, monkeypatch):
    (tmp_path / "own_in_worker.py").write_text(
        "import os\nfrom noonward import Scheduler\n\n"
        "class Idle(Scheduler):\n    protocols = ('each-slot',)\n"
        "    def decide(self, view, answers):\n        pass\n"
        "    def remarks(self, environment):\n        return (f'process {os.getpid()}',)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    executor = start(Processes(2, patience_s=0.0, start_s=0.0))
    found = compare(TINY, ["own_in_worker:Idle"], environments=4, out=tmp_path / "runs", executor=executor)
    notes = {note for record in found.records["own_in_worker:Idle"] for note in record.manifest["notes"]}
    assert {note for note in notes if note.startswith("process")} <= {f"process {pid}" for pid in executor.pids}
    executor.close()


INTERRUPTED = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from noonward.runtime.executor import map_runs
from noonward.runtime.processes import Processes
from runtime.specs import Reading, Square

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    executor = Processes(2, patience_s=0.0, start_s=0.0)
    map_runs([Square(n, first="wait_a_little") for n in range(4)], executor)
    (folder / "pids").write_text(" ".join(map(str, executor.pids)))
    specs = [Square(0, folder), Square(1, folder), Square(2, folder, first="wait"), Square(3, folder, first="wait")]
    map_runs(specs, executor)
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true):
    for _ in range(6000):
        if true():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_program_leaves_no_worker_behind_and_keeps_what_was_done(tmp_path, signal_number):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED.format(path=sys.path), encoding="utf-8")
    program = subprocess.Popen([sys.executable, str(script), str(tmp_path)], stderr=subprocess.DEVNULL)
    assert wait_until(lambda: {"0", "1"} <= {path.name for path in tmp_path.iterdir()})
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert all(alive(pid) for pid in pids)
    program.send_signal(signal_number)
    assert program.wait(timeout=30) != 0
    if signal_number == signal.SIGINT:
        assert not any(alive(pid) for pid in pids)
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.isdigit()) == ["0", "1"]
    else:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

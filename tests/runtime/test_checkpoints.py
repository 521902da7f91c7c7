"""Recorded runs that were interrupted continue in mid-run: here, in workers, and from the command line."""

import functools
import itertools
import subprocess
import sys
import time

import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine import checkpoint
from noonward.engine.checkpoint import Checkpoint
from noonward.engine.run import run
from noonward.evaluate.compare import compare
from noonward.notices import listening
from noonward.runtime.executor import map_runs
from noonward.runtime.processes import Processes
from noonward.runtime.runs import RecordedRun
from noonward.schedule.cluster.slot_rules import MostFree
from noonward.schedule.policies import find_policy, make_scheduler
from runtime.specs import Endless, Square

TINY = load_scenario("tiny", ["jobs.count=90"])


class CutOffError(Exception):
    """Breaks a run off."""


def cut_off_after(monkeypatch, looks):
    """Has checkpoints be due at every fifth look at a clock, which breaks the run off after some looks."""
    times = itertools.count()

    def clock():
        if looks is not None and (time := next(times)) >= looks:
            raise CutOffError
        return float(time) if looks is not None else 0.0

    monkeypatch.setattr(checkpoint, "WRITES", 0.0)
    monkeypatch.setattr(checkpoint, "Checkpoint", functools.partial(Checkpoint, every_s=5.0, clock=clock))


def spec_of(folder, policy="bid-price-noisy"):
    folder.mkdir(exist_ok=True)
    return RecordedRun(TINY, 0, 3, find_policy(policy), folder)


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_recorded_run_continues_from_its_checkpoint_and_leaves_its_record_alone(tmp_path, monkeypatch):
    cut_off_after(monkeypatch, 30)
    spec, notices = spec_of(tmp_path / "broken"), []
    with pytest.raises(CutOffError):
        map_runs([spec])
    assert [str(path) for path in files_of(spec.folder)] == ["bid-price-noisy/000.checkpoint"]
    cut_off_after(monkeypatch, None)
    with listening(lambda kind, about: notices.append(about) if kind == "checkpoint" else None):
        map_runs([spec])
        map_runs([spec_of(tmp_path / "whole")])
    assert len(notices) == 1
    assert notices[0].startswith("resumed at ")
    assert notices[0].endswith(f" of 90 jobs from {spec.folder}/bid-price-noisy/000.checkpoint")
    assert files_of(spec.folder) == files_of(tmp_path / "whole")
    assert (spec.place / "manifest.json").exists()


def test_a_comparison_continues_in_mid_run(tmp_path, monkeypatch):
    cut_off_after(monkeypatch, 30)
    with pytest.raises(CutOffError):
        compare(TINY, ["most-free"], environments=1, out=tmp_path / "broken", bound=False)
    (kept,) = (tmp_path / "broken").rglob("*.checkpoint")
    assert kept.name == "000.checkpoint"
    cut_off_after(monkeypatch, None)
    for name in ("broken", "whole"):
        compare(TINY, ["most-free"], environments=1, out=tmp_path / name, bound=False)
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")


def test_a_checkpoint_of_another_policy_or_version_is_passed_over_with_a_notice(tmp_path, monkeypatch):
    other, spec, notices = spec_of(tmp_path, "bid-price-regression"), spec_of(tmp_path), []
    for each in (other, spec):
        cut_off_after(monkeypatch, 30)
        with pytest.raises(CutOffError):
            map_runs([each])
    (other.folder / "bid-price-regression" / "000.checkpoint").replace(spec.place.with_suffix(".checkpoint"))
    cut_off_after(monkeypatch, None)
    with listening(lambda kind, about: notices.append(about) if kind == "checkpoint" else None):
        map_runs([spec])
    path = f"{tmp_path}/bid-price-noisy/000.checkpoint"
    assert notices == [f"{path} cannot be continued from: it is of another policy; the run begins again"]
    assert not list(tmp_path.rglob("*.checkpoint"))
    whole = spec_of(tmp_path / "whole")
    map_runs([whole])
    assert files_of(whole.place) == files_of(spec.place)


def test_own_policies_and_folders_that_are_not_there_have_no_checkpoints(tmp_path, monkeypatch):
    cut_off_after(monkeypatch, 30)
    compare(TINY, [MostFree()], environments=1, out=tmp_path / "own", bound=False)
    map_runs([RecordedRun(TINY, 0, 3, find_policy("most-free"), tmp_path / "not there")])
    assert not list(tmp_path.rglob("*.checkpoint"))


def test_workers_that_are_ended_write_last_checkpoints(tmp_path):
    executor = Processes(2, patience_s=0.0, start_s=0.0)
    map_runs([Square(n, first="wait_a_little") for n in range(4)], executor)
    notices = []
    with listening(lambda kind, about: notices.append(about) if kind == "checkpoint" else None):
        results = executor.each([Endless(0, tmp_path), Square(1)])
        assert next(results)[0] == 1
        while not (tmp_path / "under way").exists():
            time.sleep(0.01)
        results.close()
    assert executor.pids == []
    assert len(notices) == 1
    assert notices[0].endswith("kept.npz; the same command continues from there")
    environment = build_environment(load_scenario("tiny"))
    outcome = run(environment, make_scheduler("most-free"), checkpoint=Checkpoint(tmp_path / "kept.npz"))
    assert outcome.tobytes() == run(environment, make_scheduler("most-free")).tobytes()


INTERRUPTED = """
import functools, itertools, os, signal, sys, threading
from noonward.cli import interruptible
from noonward.cli.main import main
from noonward.engine import checkpoint
from noonward.notices import ask_to_stop

number, times, asked = int(sys.argv.pop()), itertools.count(), threading.Event()

def ask():
    found = ask_to_stop()
    asked.set()
    return found

def clock():
    if (time := next(times)) == 30:
        os.kill(os.getpid(), number)
        asked.wait(60)
    return float(time)

interruptible.ask_to_stop = ask
checkpoint.Checkpoint = functools.partial(checkpoint.Checkpoint, clock=clock)
main()
"""


@pytest.mark.parametrize("number", [2, 15])
def test_an_interrupted_command_says_where_it_stopped_and_where_it_resumed(number, tmp_path):
    def called(program, out, *more):
        words = ["simulate", "tiny", "--policy", "bid-price-noisy", "--out", out, *more]
        return subprocess.run([*program, *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    command = [sys.executable, "-m", "noonward.cli.main"]
    stopped = called([sys.executable, "-c", INTERRUPTED], "one", str(number))
    assert stopped.returncode == 130, stopped.stderr
    first, last = stopped.stderr.splitlines()[-2:]
    (kept,) = tmp_path.rglob("*.checkpoint")
    far, _, rest = first.partition(", kept in ")
    assert rest == f"{kept.relative_to(tmp_path)}; the same command continues from there"
    assert last == "interrupted; the same command repeats no run that is recorded"
    resumed, whole = called(command, "one"), called(command, "two")
    assert resumed.returncode == whole.returncode == 0, resumed.stderr
    line = f"{far.replace('stopped', 'resumed')} from {rest.partition(';')[0]}"
    assert line in resumed.stderr.splitlines()
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") != {}

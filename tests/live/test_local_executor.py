"""Jobs as processes of this machine: held until released, run once, ended with all they started."""

import json
import os
from pathlib import Path

import pytest

from live.waiting import wait_for
from noonward.live.executors.local import LocalExecutor
from noonward.live.executors.protocol import Order
from noonward.live.executors.running import Stopping


@pytest.fixture
def executor(tmp_path):
    return LocalExecutor(tmp_path / "site", lambda posix_s: posix_s)


def order(token, command):
    return Order(token=token, job=7, name="a", command=command, gpus=2, run_s=1.0, start_s=0.0, handle=token)


def test_a_job_gets_no_secret_of_the_service(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("DATA", "/data")
    executor = LocalExecutor(tmp_path / "site", lambda posix_s: posix_s, environment=("DATA",))
    one = order("nw-a-7-0", "env")
    executor.submit_held(one)
    executor.release(one)
    wait_for(lambda: phase(executor, one) == "done", "the end")
    names = {line.split("=")[0] for line in (tmp_path / "site" / one.token / "output").read_text().splitlines()}
    assert {"PATH", "DATA", "NOONWARD_JOB", "NOONWARD_GPUS"} <= names
    assert "PGPASSWORD" not in names


def phase(executor, one):
    return executor.statuses([one])[0].phase


def test_a_job_runs_once_after_its_release_however_often_that_is_repeated(executor, tmp_path):
    one = order("nw-a-7-0", f"echo $NOONWARD_JOB $NOONWARD_GPUS >> {tmp_path}/ran")
    assert executor.find(one) is None
    assert executor.statuses([one]) == []
    for _ in range(2):
        assert executor.submit_held(one) == one.token
    assert executor.find(one) == one.token
    assert phase(executor, one) == "held"
    for _ in range(5):
        executor.release(one)
    wait_for(lambda: phase(executor, one) == "done", "the end")
    executor.release(one)
    assert (tmp_path / "ran").read_text() == "7 2\n"
    found = executor.statuses([one])[0]
    assert found.exit_code == 0
    assert found.began_s <= found.ended_s
    assert json.loads((tmp_path / "site" / one.token / "order.json").read_text())["job"] == 7


def test_a_command_that_fails_and_one_that_is_ended(executor, tmp_path):
    bad, gone = (
        order("nw-a-8-0", "echo no >&2; exit 3"),
        order("nw-a-9-0", f"sleep 600 & echo $$ > {tmp_path}/pid; wait"),
    )
    for one in (bad, gone):
        executor.submit_held(one)
        executor.release(one)
    wait_for(lambda: phase(executor, bad) == "failed", "the failure")
    assert executor.statuses([bad])[0].exit_code == 3
    assert (tmp_path / "site" / bad.token / "output").read_text() == "no\n"
    wait_for((tmp_path / "pid").exists, "the start")
    executor.cancel(gone)
    assert phase(executor, gone) == "cancelled"
    wait_for(lambda: not _lives((tmp_path / "pid").read_text().strip()), "the end of its processes")


def test_a_job_that_is_cancelled_while_held_never_runs(executor, tmp_path):
    one = order("nw-a-10-0", f"touch {tmp_path}/ran")
    executor.submit_held(one)
    executor.cancel(one)
    executor.release(one)
    assert phase(executor, one) == "cancelled"
    assert not (tmp_path / "ran").exists()


def test_a_process_that_dies_without_an_exit_code_failed_with_its_machine(executor, tmp_path):
    one = order("nw-a-11-0", "kill -9 $PPID")
    executor.submit_held(one)
    executor.release(one)
    wait_for(lambda: phase(executor, one) == "node-failed", "the death of its runner")
    assert "without an exit code" in executor.statuses([one])[0].reason


def test_a_job_that_was_released_and_that_no_process_took_failed_with_its_machine(executor, tmp_path):
    one = order("nw-a-12-0", f"touch {tmp_path}/ran")
    executor.submit_held(one)
    released = tmp_path / "site" / one.token / "released"
    released.touch()  # the machine goes down before the runner begins
    assert phase(executor, one) == "queued"
    os.utime(released, (0, 0))
    assert phase(executor, one) == "node-failed"
    executor.cancel(one)
    executor.release(one)
    assert phase(executor, one) == "cancelled"
    assert not (tmp_path / "ran").exists()


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_running_job_writes_its_checkpoint_upon_a_signal_and_ends(tmp_path):
    executor = LocalExecutor(tmp_path / "site", lambda posix_s: posix_s, stopping=Stopping(signal="USR1"))
    write = f"trap 'echo 3 > {tmp_path}/checkpoint; exit 85' USR1"
    one = order("nw-a-7-0", f"{write}; touch {tmp_path}/runs; while :; do sleep 0.05; done")
    executor.submit_held(one)
    executor.release(one)
    wait_for((tmp_path / "runs").exists, "the run")
    executor.signal(one)
    wait_for(lambda: phase(executor, one) == "failed", "the checkpoint")
    assert executor.statuses([one])[0].exit_code == 85
    assert (tmp_path / "checkpoint").read_text() == "3\n"
    executor.stop(one)
    assert not executor.resume(one)


def test_a_running_job_that_does_not_heed_the_signal_is_stopped(tmp_path):
    executor = LocalExecutor(tmp_path / "site", lambda posix_s: posix_s, stopping=Stopping(signal="USR1"))
    one = order("nw-a-7-0", f"trap '' USR1; touch {tmp_path}/runs; while :; do sleep 0.05; done")
    executor.submit_held(one)
    executor.release(one)
    wait_for((tmp_path / "runs").exists, "the run")
    executor.signal(one)
    assert phase(executor, one) == "running"
    executor.stop(one)
    assert phase(executor, one) in executor.stopped_as

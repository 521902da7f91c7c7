"""Running jobs of a real Slurm cluster: told to write a checkpoint, requeued and held, paused, resumed, capped."""

import contextlib
import signal
from dataclasses import replace

import pytest

from live.slurm_site import MISSING, SlurmSite
from live.test_running_jobs import FREE, HOUR_S, Tides
from live.test_slurm import phase, submitted
from live.waiting import wait_for
from noonward.live import setup as live_setup
from noonward.live.executors.protocol import ClusterError, Order, RefusedError
from noonward.live.executors.running import PowerCaps, Stopping
from noonward.live.executors.slurm import SlurmExecutor
from noonward.live.requests import JobRequest

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")

TRAINS = """
#SBATCH --no-kill
python3 -c '
import pathlib, signal, sys, time
place = pathlib.Path("{folder}")
done = int((place / "checkpoint").read_text()) if (place / "checkpoint").exists() else 0
def write(*_):
    (place / "checkpoint").write_text(str(done + 1))
    sys.exit({code})
signal.signal(signal.SIGUSR1, write)
with (place / "runs").open("a") as file:
    file.write("begins at %d\\n" % done)
while not (place / "enough").exists():
    time.sleep(0.05)
'
code=$?
exit $code
"""


@pytest.fixture(scope="module")
def site():
    """A cluster of one node with two GPUs."""
    with SlurmSite("s", nodes=1, gpus=2) as made:
        yield made


@pytest.fixture
def made(site, monkeypatch):
    """Makes executors of the cluster."""
    monkeypatch.setenv("PATH", site.env["PATH"])

    def make(**more):
        return SlurmExecutor(
            lambda posix_s: posix_s - 1.7e9, conf=site.conf, gpus_per_node=2, options=("--output=/dev/null",), **more
        )

    return make


def runs(folder):
    file = folder / "runs"
    return file.read_text().splitlines() if file.exists() else []


def free_gpus(executor):
    return executor.usable_gpus(0)


def test_a_requeued_job_writes_its_checkpoint_frees_its_gpus_and_goes_on_from_it(made, tmp_path):
    executor = made(stopping=Stopping(signal="USR1", grace_s=60.0))
    one = submitted(executor, "nw-s1-1-0", TRAINS.format(folder=tmp_path, code=85), gpus=2)
    executor.release(one)
    wait_for(lambda: runs(tmp_path) == ["begins at 0"], "the first run")
    assert free_gpus(executor) == 0
    executor.signal(one)
    wait_for(lambda: phase(executor, one) == "failed", "the checkpoint")
    assert executor.statuses([one])[0].exit_code == 85
    executor.stop(one)
    wait_for(lambda: phase(executor, one) == "held", "the requeue")
    executor.stop(one)
    assert (free_gpus(executor), executor.find(one)) == (2, one.handle)
    assert executor.resume(one)
    assert executor.resume(one)
    wait_for(lambda: runs(tmp_path) == ["begins at 0", "begins at 1"], "the second run")
    (tmp_path / "enough").touch()
    wait_for(lambda: phase(executor, one) == "done", "the end")


def test_a_job_that_does_not_heed_the_signal_is_stopped_all_the_same(made, tmp_path):
    executor = made(stopping=Stopping(signal="USR1"))
    one = submitted(executor, "nw-s2-1-0", f"trap '' USR1; echo begins >> {tmp_path}/runs; sleep 600", gpus=2)
    executor.release(one)
    wait_for(lambda: runs(tmp_path) == ["begins"], "the first run")
    executor.signal(one)
    executor.stop(one)
    wait_for(lambda: phase(executor, one) == "held", "the requeue")
    assert free_gpus(executor) == 2
    executor.cancel(one)
    assert not executor.resume(one)


def test_a_job_that_has_ended_is_not_run_again(made, monkeypatch):
    executor = made(stopping=Stopping(signal="USR1"))
    ends = [submitted(executor, f"nw-s{n}-1-0", f"exit {code}", gpus=1) for n, code in ((7, 0), (8, 3))]
    for one in ends:
        executor.release(one)
    wait_for(lambda: [phase(executor, one) for one in ends] == ["done", "failed"], "their ends")
    late = {one.token: replace(executor.statuses([one])[0], phase="running", exit_code=None) for one in ends}
    for seen in (executor._of, lambda order: late[order.token]):  # the second saw it run before it ended
        monkeypatch.setattr(executor, "_of", seen)
        for one in ends:
            with contextlib.suppress(RefusedError):
                executor.stop(one)
        assert [phase(executor, one) for one in ends] == ["done", "failed"]


def test_a_paused_job_keeps_its_gpus_and_its_memory(made, tmp_path):
    executor = made(suspend_by="pause")
    assert (executor.keeps_gpus, executor.levers) == (True, {"suspend"})
    one = submitted(executor, "nw-s3-1-0", f"while :; do date +%s%N > {tmp_path}/alive; sleep 0.05; done", gpus=2)
    executor.release(one)
    wait_for((tmp_path / "alive").exists, "the run")
    executor.stop(one)
    wait_for(lambda: phase(executor, one) == "suspended", "the pause")
    last = (tmp_path / "alive").read_text()
    assert free_gpus(executor) == 0
    assert executor.resume(one)
    wait_for(lambda: (tmp_path / "alive").read_text() not in ("", last), "the run to go on")
    assert phase(executor, one) == "running"
    executor.cancel(one)


def test_a_job_that_waits_is_held(made):
    executor = made()
    first, second = (submitted(executor, f"nw-s4-{n}-0", "sleep 600", gpus=2) for n in (1, 2))
    executor.release(first)
    wait_for(lambda: phase(executor, first) == "running", "the first job's start")
    executor.release(second)
    assert phase(executor, second) == "queued"
    executor.stop(second)
    assert phase(executor, second) == "held"
    for one in (first, second):
        executor.cancel(one)


def test_a_job_that_does_not_run_is_held_instead_of_told_to_write_a_checkpoint(made):
    executor = made(stopping=Stopping(signal="USR1"))
    first, second, third = (submitted(executor, f"nw-s6-{n}-0", "sleep 600", gpus=2) for n in (1, 2, 3))
    executor.release(first)
    wait_for(lambda: phase(executor, first) == "running", "the first job's start")
    executor.release(second)
    for one in (second, third):
        executor.signal(one)
        assert phase(executor, one) == "held"
    for one in (first, second, third):
        executor.cancel(one)


@pytest.mark.parametrize(
    ("words", "raised"),
    [("slurm_load_jobs error: Socket timed out on send/recv operation", True), ("Invalid job id specified", False)],
)
def test_a_signal_that_the_controller_did_not_take_was_not_sent(made, tmp_path, words, raised):
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '7|nw-s9-1-0|RUNNING|1700000000|N/A|0|root|None|'\n")
    (tmp_path / "scancel").write_text(f"#!/bin/sh\necho 'scancel: error: {words}' >&2\nexit 1\n")
    for command in ("squeue", "scancel"):
        (tmp_path / command).chmod(0o755)
    executor = made(stopping=Stopping(signal="USR1"), commands=tmp_path)
    one = Order(token="nw-s9-1-0", job=1, name="a", command="true", gpus=1, run_s=1.0, start_s=0.0, handle="7")
    with pytest.raises(ClusterError, match="timed out") if raised else contextlib.nullcontext():
        executor.signal(one)


def test_nothing_waits_for_a_signal_while_the_controller_stands_still_and_the_job_is_suspended_after(
    site, made, service, monkeypatch, tmp_path
):
    monkeypatch.setattr(live_setup, "make_scheduler", lambda policy: Tides())
    caps = PowerCaps(command=("true",), full_w=700.0)
    executor = made(stopping=Stopping(signal="USR1", grace_s=9e9), power_caps=caps)
    live = service("local-fcfs", *FREE, executors={"north": executor})
    executor._second_of = lambda posix_s: live.clock.seconds
    job = JobRequest(
        name="a", work=4 * HOUR_S, origin="north", class_="fine-tuning", max_delay_s=9e5,
        command=TRAINS.format(folder=tmp_path, code=85),
    )  # fmt: skip
    live.submit(job)

    def at(seconds):
        live.set_time(seconds)
        live.controller.track(0)
        live.controller.decide()
        live.controller.deliver(0)
        return live.store.read("SELECT state FROM jobs")[0]["state"]

    at(60.0)
    wait_for(lambda: at(live.clock.seconds) == "running" and runs(tmp_path) == ["begins at 0"], "the first run")
    live.controller.agents[0].running._acting.wait_s = 0.0
    site.controller(signal.SIGSTOP)
    try:
        live.set_time(HOUR_S)
        live.controller.decide()
        live.controller.deliver(0)
        assert tuple(live.store.read("SELECT stage, signalled_s FROM outbox")[0]) == ("stopping", None)
    finally:
        site.controller(signal.SIGCONT)
    wait_for(lambda: at(live.clock.seconds) == "suspended", "the suspension")
    assert (tmp_path / "checkpoint").read_text() == "1"
    wait_for(lambda: at(2 * HOUR_S + 60) == "running" and len(runs(tmp_path)) == 2, "the second run")
    (tmp_path / "enough").touch()
    wait_for(lambda: at(2 * HOUR_S + 120) == "done", "the end")
    assert runs(tmp_path) == ["begins at 0", "begins at 1"]


def test_the_power_of_a_jobs_gpus_is_limited_by_a_command(made, tmp_path):
    words = ("/bin/sh", "-c", f"echo {{nodes}} {{watts}} {{job}} >> {tmp_path}/limits")
    executor = made(power_caps=PowerCaps(command=words, full_w=700.0))
    one = submitted(executor, "nw-s5-1-0", "sleep 600")
    executor.release(one)
    wait_for(lambda: phase(executor, one) == "running", "the start")
    nodes = executor.cap(one, 0.6)
    executor.cap(one, 1.0)
    assert (tmp_path / "limits").read_text().splitlines() == [f"{nodes} {w} {one.handle}" for w in (420, 700)]
    assert nodes
    executor.cancel(one)
    with pytest.raises(RefusedError, match="no power_cap"):
        made().cap(one, 0.6)

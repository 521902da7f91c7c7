"""Real Slurm clusters: held, released, run, tracked; gangs of nodes, requeues, cancellations, a site lost."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from live.slurm_accounting import MISSING as MISSING_ACCOUNTING
from live.slurm_accounting import Accounting
from live.slurm_site import MISSING, SlurmSite
from live.waiting import wait_for
from noonward.live.executors.protocol import ClusterError, Order, RefusedError
from noonward.live.executors.slurm import SlurmExecutor
from noonward.live.executors.slurmrestd import SlurmRestExecutor
from noonward.live.executors.web import ClusterWeb
from noonward.live.requests import JobRequest
from noonward.live.terms import Terms

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")


@pytest.fixture(scope="module")
def site():
    """A cluster of four nodes with two GPUs each."""
    with SlurmSite("a", nodes=4, gpus=2) as made:
        yield made


@pytest.fixture
def executor(site, monkeypatch):
    monkeypatch.setenv("PATH", site.env["PATH"])
    return SlurmExecutor(
        lambda posix_s: posix_s - 1.7e9, conf=site.conf, gpus_per_node=2, options=("--output=/dev/null",)
    )


def order(token, command="true", gpus=1, handle=None):
    return Order(token=token, job=1, name="a", command=command, gpus=gpus, run_s=1.0, start_s=0.0, handle=handle)


def submitted(executor, *given, **more):
    one = order(*given, **more)
    return order(*given, **more, handle=executor.submit_held(one))


def phase(executor, one):
    found = executor.statuses([one])
    return found[0].phase if found else None


def test_a_job_is_held_until_its_release_and_found_by_its_token(executor, tmp_path):
    one = submitted(executor, "nw-t1-1-0", f"echo $SLURM_JOB_ID > {tmp_path}/ran")
    assert phase(executor, one) == "held"
    assert executor.find(one) == one.handle
    assert executor.find(order("nw-t1-2-0")) is None
    assert [stray.handle for stray in executor.strays() if stray.token == one.token] == [one.handle]
    executor.release(one)
    wait_for(lambda: phase(executor, one) == "done", "the job's end")
    executor.release(one)
    assert (tmp_path / "ran").read_text().strip() == one.handle
    found = executor.statuses([one])[0]
    assert found.began_s <= found.ended_s
    assert found.exit_code == 0


def test_a_gang_of_four_nodes_runs_on_four(executor, site, tmp_path):
    one = submitted(executor, "nw-t2-1-0", f"echo $SLURM_JOB_NUM_NODES > {tmp_path}/nodes", gpus=8)
    executor.release(one)
    wait_for(lambda: phase(executor, one) == "done", "the gang's end")
    assert (tmp_path / "nodes").read_text().strip() == "4"


def test_failures_and_cancellations_are_told(executor):
    bad = submitted(executor, "nw-t3-1-0", "exit 3")
    gone = submitted(executor, "nw-t3-2-0", "sleep 600")
    never = submitted(executor, "nw-t3-3-0", "sleep 600")
    for one in (bad, gone):
        executor.release(one)
    wait_for(lambda: phase(executor, gone) == "running", "the start")
    executor.cancel(gone)
    executor.cancel(never)
    wait_for(lambda: phase(executor, gone) == "cancelled", "the cancellation")
    wait_for(lambda: phase(executor, bad) == "failed", "the failure")
    assert phase(executor, never) == "cancelled"
    codes = {each.handle: each.exit_code for each in executor.statuses([bad, gone, never])}
    assert codes == {bad.handle: 3, gone.handle: None, never.handle: None}
    executor.cancel(gone)


def test_an_ordinary_user_whose_service_has_no_folder_runs_jobs_that_get_no_secret(site, tmp_path, monkeypatch):
    for folder in (site.root, *site.root.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct"):
        wrapped = shutil.which(name, path=site.env["PATH"])
        (commands / name).write_text(
            f'#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups {wrapped} "$@"\n'
        )
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", site.env["PATH"])
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("DATA", "/data")
    monkeypatch.chdir("/")
    executor = SlurmExecutor(lambda posix_s: posix_s, conf=site.conf, commands=commands, environment=("DATA",))
    token = f"nw-u{os.getpid()}-1-0"
    one = submitted(executor, token, "id -u; pwd; env")
    output = Path("/tmp") / f"{token}.out"
    try:
        executor.release(one)
        wait_for(lambda: phase(executor, one) in ("done", "failed"), "the job's end")
        assert executor.statuses([one])[0].reason == "COMPLETED"
        lines = output.read_text().splitlines()
    finally:
        output.unlink(missing_ok=True)
    assert lines[:2] == ["65534", "/tmp"]
    names = {line.split("=")[0] for line in lines[2:]}
    assert {"PATH", "DATA", "NOONWARD_JOB", "NOONWARD_GPUS", "SLURM_JOB_ID"} <= names
    assert not {"PGPASSWORD", "TZ", "SLURM_TIME_FORMAT"} & names


def test_what_a_job_asks_of_its_cluster_is_what_slurm_gives_it(executor, site, tmp_path):
    (tmp_path / "apptainer").write_text('#!/bin/sh\necho "in $2"; shift 2; exec "$@"\n')
    (tmp_path / "apptainer").chmod(0o755)
    able = SlurmExecutor(
        lambda posix_s: posix_s - 1.7e9, conf=site.conf, gpus_per_node=2, container=(f"{tmp_path}/apptainer", "exec")
    )
    terms = Terms(
        time_limit_s=90.0,
        environment={"MODEL": "it's small"},
        workdir=str(tmp_path),
        output=f"{tmp_path}/%x.log",
        image="/images/a.sif",
        exclusive=True,
        task=1,
        tasks=2,
    )
    command = "#SBATCH --mem=5M\npwd; echo $MODEL $NOONWARD_JOB $NOONWARD_GPUS $NOONWARD_TASK; sleep 600"
    one = replace(order("nw-t8-1-0", command), terms=terms)
    one = replace(one, handle=able.submit_held(one))
    said = site.call("scontrol", "show", "job", one.handle)
    able.release(one)
    printed = tmp_path / "nw-t8-1-0.log"
    wait_for(lambda: printed.exists() and printed.read_text().count("\n") == 3, "its lines")
    able.cancel(one)
    assert printed.read_text().splitlines()[:3] == ["in /images/a.sif", str(tmp_path), "it's small 1 1 1"]
    assert "TimeLimit=00:02:00" in said
    assert "MinMemoryNode=5M" in said
    assert "OverSubscribe=NO" in said
    wait_for(lambda: phase(able, one) == "cancelled", "the cancellation")


def test_a_job_that_can_never_start_has_failed_with_slurms_reason(executor, site):
    wrong = SlurmExecutor(lambda posix_s: posix_s, conf=site.conf, gpus_per_node=8, options=("--output=/dev/null",))
    one = submitted(wrong, "nw-t9-1-0", "sleep 600", gpus=6)  # a node has two
    wrong.release(one)
    wait_for(lambda: phase(wrong, one) in ("node-failed", "queued"), "Slurm's reason")
    wait_for(lambda: wrong.statuses([one])[0].reason, "Slurm's reason")
    found = wrong.statuses([one])[0]
    wrong.cancel(one)
    assert (found.phase, found.reason) == ("node-failed", "BadConstraints")


def test_a_requeued_job_queues_and_runs_again(executor, site):
    one = submitted(executor, "nw-t4-1-0", "sleep 600")
    executor.release(one)
    wait_for(lambda: phase(executor, one) == "running", "the start")
    site.call("scontrol", "requeue", one.handle)
    wait_for(lambda: phase(executor, one) in ("queued", "held"), "the requeue")
    executor.cancel(one)
    wait_for(lambda: phase(executor, one) == "cancelled", "the cancellation")


def test_a_job_that_an_administrator_holds_is_held(executor, site):
    one = submitted(executor, "nw-t6-1-0", "sleep 600")
    executor.release(one)
    wait_for(lambda: phase(executor, one) == "running", "the start")
    site.call("scontrol", "requeuehold", one.handle)
    wait_for(lambda: phase(executor, one) == "held", "the hold")
    executor.cancel(one)
    wait_for(lambda: phase(executor, one) == "cancelled", "the cancellation")


def test_a_job_that_slurm_cannot_launch_and_holds_for_ever_failed_with_its_node(monkeypatch):
    with SlurmSite("b" * 40, nodes=1, gpus=1) as site:  # no socket of a job fits into its path
        monkeypatch.setenv("PATH", site.env["PATH"])
        executor = SlurmExecutor(lambda posix_s: posix_s, conf=site.conf, options=("--output=/dev/null",))
        one = submitted(executor, "nw-t7-1-0")
        executor.release(one)
        wait_for(lambda: phase(executor, one) == "node-failed", "the failure")
        assert executor.statuses([one])[0].reason == "launch failed requeued held"
        executor.cancel(one)
        assert phase(executor, one) == "cancelled"


def test_gpus_of_others_and_of_nodes_that_are_down_are_not_usable(executor, site):
    wait_for(lambda: executor.usable_gpus(0) == 8, "an idle site")
    foreign = site.call("sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap", "sleep 600").strip()
    wait_for(lambda: executor.usable_gpus(0) == 6, "the foreign job's start")
    assert executor.usable_gpus(2) == 8  # they are our own
    site.call("scontrol", "update", "nodename=a3", "state=drain", "reason=test")
    wait_for(lambda: executor.usable_gpus(0) <= 4, "the drained node")
    site.call("scancel", foreign)
    site.call("scontrol", "update", "nodename=a3", "state=resume")
    wait_for(lambda: executor.usable_gpus(0) == 8, "the node's return")


def test_what_slurm_refuses_is_an_error_with_its_words(site, executor):
    refused = SlurmExecutor(lambda posix_s: posix_s, conf=site.conf, partition="nowhere")
    with pytest.raises(RefusedError, match=r"sbatch refused it: .*partition"):
        refused.submit_held(order("nw-t5-1-0"))
    for command in ("#SBATCH --no-such-option\ntrue", "echo one\r\ntrue", "#SBATCH --gpus=400\ntrue"):
        with pytest.raises(RefusedError, match=r"option|DOS|resource"):
            executor.submit_held(order("nw-t5-2-0", command))
    assert executor.statuses([]) == []


@pytest.fixture
def rest(site):
    """The cluster's slurmrestd: it does not run as root, so neither do its jobs."""
    if shutil.which("slurmrestd") is None:
        pytest.skip("slurmrestd is not installed")
    for folder in (site.root, *site.root.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    place = site.root / "rest"
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "slurmrestd", "-a", "rest_auth/local",
               "-s", "openapi/v0.0.38", f"unix:{place}/socket"]  # fmt: skip
    with (place / "out").open("wb") as out:
        process = subprocess.Popen(command, env=site.env, stdout=out, stderr=out)
    try:
        wait_for((place / "socket").exists, "slurmrestd")
        web = ClusterWeb("the cluster", "http://localhost", socket=place / "socket")
        yield SlurmRestExecutor(
            lambda posix_s: posix_s - 1.7e9, web, gpus_per_node=2, fields={"standard_output": "/dev/null"}
        )
        web.close()
    finally:
        process.terminate()
        process.wait()


def test_slurmrestd_does_what_the_commands_do(rest, site, tmp_path):
    one = submitted(rest, "nw-r1-1-0", "exit 0")
    assert (phase(rest, one), rest.find(one)) == ("held", one.handle)
    assert rest.find(order("nw-r1-9-0")) is None
    assert one.handle in [stray.handle for stray in rest.strays()]
    rest.release(one)
    wait_for(lambda: phase(rest, one) == "done", "the job's end")
    rest.release(one)
    found = rest.statuses([one])[0]
    assert (found.began_s <= found.ended_s, found.exit_code) == (True, 0)
    bad, gone = submitted(rest, "nw-r1-2-0", "exit 3"), submitted(rest, "nw-r1-3-0", "sleep 600")
    rest.release(bad)
    rest.cancel(gone)
    rest.cancel(gone)
    wait_for(lambda: phase(rest, bad) == "failed", "the failure")
    codes = {each.handle: each.exit_code for each in rest.statuses([bad, gone])}
    assert codes == {bad.handle: 3, gone.handle: None}
    assert phase(rest, gone) == "cancelled"
    gang = submitted(rest, "nw-r1-4-0", "sleep 600", gpus=6)
    rest.release(gang)
    wait_for(lambda: phase(rest, gang) == "running", "the gang's start")
    assert "NumNodes=3" in site.call("scontrol", "show", "job", gang.handle)
    assert rest.usable_gpus(6) == 8
    assert rest.usable_gpus(0) == 2
    rest.cancel(gang)
    wait_for(lambda: phase(rest, gang) == "cancelled", "the end of the gang")
    terms = Terms(time_limit_s=90.0, exclusive=True, environment={"A": "b"}, workdir="/tmp")
    asked = replace(order("nw-r1-6-0"), terms=terms)
    asked = replace(asked, handle=rest.submit_held(asked))
    said = site.call("scontrol", "show", "job", asked.handle)
    rest.cancel(asked)
    assert "TimeLimit=00:02:00" in said
    assert "OverSubscribe=NO" in said
    refused = SlurmRestExecutor(lambda posix_s: posix_s, rest._web, partition="nowhere")
    with pytest.raises(RefusedError, match=r"refused POST /job/submit: .*partition"):
        refused.submit_held(order("nw-r1-5-0"))


@pytest.fixture
def live(service, site, monkeypatch, executor):
    """A service whose first site is the cluster; the cluster's clock is a minute off."""
    made = service("local-fcfs")
    skewed = SlurmExecutor(
        lambda posix_s: posix_s - 1.7e9 + 60.0, conf=site.conf, gpus_per_node=2, options=("--output=/dev/null",)
    )
    made.controller.agents[0].executor = skewed
    return made


def test_from_submission_to_the_end_with_a_site_lost_and_back(live, site, executor):
    (job,) = live.submit(JobRequest(name="a", work=600.0, origin="north", command="sleep 1", gpus_min=2))
    live.set_time(60.0)
    live.controller.decide()
    live.controller.deliver(0)
    site.stop_controller()
    with pytest.raises(ClusterError, match="slurm controller") as away:
        executor.submit_held(order("nw-t5-3-0"))
    assert not isinstance(away.value, RefusedError)
    for _ in range(3):
        with pytest.raises(ClusterError):
            live.controller.track(0)
    assert live.store.read("SELECT reachable FROM sites WHERE name = 'north'")[0]["reachable"] == 0
    site.start_controller()

    def ended():
        live.controller.track(0)
        return live.store.read("SELECT state FROM jobs WHERE id = ?", job)[0]["state"] == "done"

    wait_for(ended, "the job's end")
    row = live.store.read("SELECT * FROM jobs WHERE id = ?", job)[0]
    assert row["ended_s"] >= row["began_s"]
    live.set_time(120.0)
    live.controller.decide()
    assert live.controller.world.engine.taken_S[0] == 0
    kinds = [one["kind"] for one in live.store.read("SELECT kind FROM events WHERE job = ? ORDER BY id", job)]
    assert kinds[0] == "submitted"
    assert kinds[-1] == "done"


@pytest.mark.skipif(
    bool(MISSING_ACCOUNTING), reason=f"Slurm's accounting is not installed: {', '.join(MISSING_ACCOUNTING)} missing"
)
def test_the_accounting_knows_jobs_that_the_controller_has_forgotten(monkeypatch):
    with SlurmSite("b", nodes=1, gpus=2, accounting=Accounting) as site:
        monkeypatch.setenv("PATH", site.env["PATH"])
        executor = SlurmExecutor(lambda posix_s: posix_s - 1.7e9, conf=site.conf, options=("--output=/dev/null",))
        commands = ("true", "exit 3", "sleep 600", "sleep 600")
        jobs = [submitted(executor, f"nw-t9-{n}-0", command) for n, command in enumerate(commands)]
        for one in jobs[:3]:
            executor.release(one)
        wait_for(lambda: phase(executor, jobs[2]) == "running", "the third job's start")
        executor.cancel(jobs[2])
        executor.cancel(jobs[3])
        ends = ["done", "failed", "cancelled", "cancelled"]
        wait_for(lambda: [phase(executor, one) for one in jobs] == ends, "the jobs' ends")
        known = {each.handle: each for each in executor.statuses(jobs)}
        wait_for(lambda: [each.phase for each in executor.accounted([one.handle for one in jobs])] == ends, "sacct")
        site.stop_controller()
        site.start_controller("-c")
        assert site.call("squeue", "-h", "--states=all") == ""
        found = executor.statuses(jobs)
        assert [each.phase for each in found] == ends
        assert [each.token for each in found] == [one.token for one in jobs]
        for now in found[:3]:
            assert (now.began_s, now.ended_s) == (known[now.handle].began_s, known[now.handle].ended_s)
        assert [each.exit_code for each in found] == [0, 3, None, None]
        assert found[1].reason == "exit code 3:0"
        site.accounting.stop()
        assert [each.phase for each in executor.statuses(jobs)] == ["unknown"] * 4

"""The Ray executor: against hand-made answers, and (slow) against a real Ray cluster on this machine."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from live.slurm_site import free_ports
from live.waiting import wait_for
from noonward.live.executors.protocol import ClusterError, Order
from noonward.live.executors.ray_jobs import RayExecutor
from noonward.live.executors.web import ClusterWeb


class Answers:
    """Ray's answers, by hand."""

    title = "ray"

    def __init__(self):
        self.jobs, self.sent = {}, []

    def call(self, method, path, content=None, *, known=(), **_):
        self.sent.append((method, path))
        if path == "/api/cluster_status":
            return 200, {"data": {"clusterStatus": {"loadMetricsReport": {"usage": {"GPU": [3.0, 8.0]}}}}}
        if path == "/api/jobs/" and method == "GET":
            return 200, list(self.jobs.values())
        if path == "/api/jobs/":
            if content["submission_id"] in self.jobs:
                return 500, None
            self.jobs[content["submission_id"]] = {**content, "status": "PENDING"}
            return 200, {}
        token = path.split("/")[3]
        if token not in self.jobs:
            assert 404 in known
            return 404, None
        return 200, {"logs": "one\ntwo\n"} if path.endswith("/logs") else self.jobs[token]


def order(token="nw-t-1-0", gpus=1, command="true"):
    return Order(token=token, job=1, name="a", command=command, gpus=gpus, run_s=1.0, start_s=0.0, handle=token)


def test_the_end_of_a_jobs_log_is_what_it_has_printed():
    ray = RayExecutor(lambda posix_s: posix_s, Answers(), gpus_per_node=4)
    assert ray.printed(order(), 100) is None
    ray.release(order())
    assert ray.printed(order(), 4) == b"two\n"


def test_a_job_is_submitted_by_its_release_and_once():
    web = Answers()
    ray = RayExecutor(lambda posix_s: posix_s, web, gpus_per_node=4)
    one = order(gpus=3)
    assert ray.submit_held(one) == one.token
    assert (web.jobs, ray.statuses([one]), ray.find(one)) == ({}, [], None)
    ray.release(one)
    ray.release(one)
    assert web.sent.count(("POST", "/api/jobs/")) == 1
    assert web.jobs[one.token]["entrypoint_num_gpus"] == 3
    ray.release(order("nw-t-2-0", gpus=9))
    assert "entrypoint_num_gpus" not in web.jobs["nw-t-2-0"]
    assert web.jobs["nw-t-2-0"]["runtime_env"]["env_vars"]["NOONWARD_GPUS"] == "9"


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        ({"status": "PENDING"}, "queued"),
        ({"status": "RUNNING", "start_time": 2000}, "running"),
        ({"status": "SUCCEEDED", "start_time": 2000, "end_time": 5000, "driver_exit_code": 0}, "done"),
        ({"status": "FAILED", "start_time": 2000, "end_time": 5000, "driver_exit_code": 3}, "failed"),
        ({"status": "FAILED", "message": "the node died"}, "node-failed"),
        ({"status": "STOPPED", "end_time": 5000}, "cancelled"),
    ],
)
def test_what_ray_says_of_a_job(said, phase):
    web = Answers()
    web.jobs["nw-t-1-0"] = {"submission_id": "nw-t-1-0", **said}
    found = RayExecutor(lambda posix_s: posix_s, web).statuses([order()])[0]
    assert found.phase == phase
    assert found.ended_s == (5.0 if "end_time" in said else None)
    assert found.exit_code == said.get("driver_exit_code")


def test_gpus_of_others_are_not_usable():
    ray = RayExecutor(lambda posix_s: posix_s, Answers())
    assert (ray.usable_gpus(0), ray.usable_gpus(2)) == (5, 7)
    assert RayExecutor(lambda posix_s: posix_s, Answers(), gpu_resource="other").usable_gpus(0) is None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Ray cluster of one node with four GPUs by name."""
    ray = Path(sys.executable).with_name("ray")
    if not ray.exists() or importlib.util.find_spec("aiohttp_cors") is None:
        pytest.skip("Ray's jobs interface is not installed: pip install 'ray[default]'")
    port = free_ports(12)
    folder = Path("/tmp") / f"noonward-ray-{os.getpid()}"
    named = (
        "port", "dashboard-port", "ray-client-server-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port",
        "runtime-env-agent-port", "metrics-export-port", "node-manager-port", "object-manager-port",
    )  # fmt: skip
    command = [
        str(ray), "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1",
        *(f"--{name}={port + n}" for n, name in enumerate(named)), "--num-cpus=4", "--num-gpus=0",
        "--resources=" + json.dumps({"gpu_sim": 4}), "--object-store-memory=100000000", f"--temp-dir={folder}",
        "--disable-usage-stats",
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("ray") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    url = f"http://127.0.0.1:{port + 1}"

    def answers():
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{url}/api/jobs/", timeout=2).status == 200

    try:
        wait_for(answers, "Ray's answer", 120.0)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_jobs_of_a_real_cluster(cluster, tmp_path):
    web = ClusterWeb("ray", cluster)
    ray = RayExecutor(lambda posix_s: posix_s, web, gpus_per_node=4, gpu_resource="gpu_sim")
    good = order("nw-t-1-0", gpus=4, command=f"echo $NOONWARD_GPUS >> {tmp_path}/ran")
    bad, gone = order("nw-t-2-0", command="exit 3"), order("nw-t-3-0", command="sleep 600")

    def phase(one):
        found = ray.statuses([one])
        return found[0].phase if found else None

    for one in (good, bad, gone):
        assert ray.find(one) is None
        ray.submit_held(one)

    def released():
        with contextlib.suppress(ClusterError):  # it takes jobs a moment after it answers
            ray.release(good)
            return True

    wait_for(released, "the first submission")
    ray.release(good)
    wait_for(lambda: phase(good) == "done", "the job's end", 120.0)
    assert (tmp_path / "ran").read_text() == "4\n"
    ray.release(bad)
    ray.release(gone)
    wait_for(lambda: phase(bad) == "failed", "the failure", 120.0)
    assert ray.statuses([bad])[0].exit_code == 3
    wait_for(lambda: phase(gone) == "running", "the start", 120.0)
    assert ray.usable_gpus(1) in (None, 4)  # Ray 2.60 does not say it here
    ray.cancel(gone)
    wait_for(lambda: phase(gone) == "cancelled", "the cancellation", 120.0)
    ray.cancel(order("nw-t-9-0"))
    done = ray.statuses([good])[0]
    assert done.began_s <= done.ended_s
    web.close()

"""The service as a process of its own: killed and started again under load, and driven from the command line."""

import json
import random
import re
import signal
from datetime import UTC, datetime

import pytest

from live.process import Process
from live.waiting import wait_for
from noonward.errors import ScenarioError
from noonward.live.client import Client, ServiceError
from noonward.live.clock import ManualClock
from noonward.live.requests import JobRequest
from noonward.live.store.store import Store

FAST = """
import sys
from datetime import timedelta
from pathlib import Path
from noonward.live.clock import SystemClock
from noonward.live.config import checked_config
from noonward.live.server import serve
from noonward.live.store.sqlite import NAME, last_time
folder = Path(sys.argv[1])
sites = {"north": {"executor": "local"}, "south": {"executor": "local"}}
said = {"scenario": "tiny", "policy": "most-free", "folder": str(folder), "sites": sites, "port": 0, "poll_s": 60}
config, scenario = checked_config(said, "x", Path())
last = last_time(folder) if (folder / NAME).is_file() else None
clock = SystemClock(600.0, None if last is None else last + timedelta(seconds=1))
serve(config, scenario, clock=clock, started=lambda address, controller: print(address, flush=True))
"""


def test_killed_under_load_no_job_is_lost_and_none_runs_twice(tmp_path):
    ran, chance, acknowledged, sent = tmp_path / "ran", random.Random(3), set(), 0
    ran.mkdir()
    for kill in range(2):
        with Process("-c", FAST, str(tmp_path / "live")) as service, Client(service.address) as client:
            for _ in range(chance.randrange(3, 9)):
                jobs = [
                    JobRequest(
                        name="a", work=1.0, origin="north", key=f"k{sent + n}", command=f"echo x >> {ran}/{sent + n}"
                    )
                    for n in range(5)
                ]
                client.submit(*jobs)
                acknowledged.update(range(sent, sent + 5))
                sent += 5
            if kill % 2:
                wait_for(lambda: any(ran.iterdir()), "the first job's run")
            service.end(signal.SIGKILL)
    with Process("-c", FAST, str(tmp_path / "live")) as service, Client(service.address) as client:
        wait_for(lambda: client.service().open_jobs == 0, "the end of all jobs", 120.0)
        states = {job.state for job in client.jobs(limit=1000)}
        assert service.end() in (0, -signal.SIGTERM)
    assert states == {"done"}
    assert {int(file.name) for file in ran.iterdir()} == acknowledged
    assert {file.read_text() for file in ran.iterdir()} == {"x\n"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("demo"))
    with Process("-m", "noonward.cli.main", "serve", "--demo", "--folder", folder, "--port", "0") as service:
        yield service
        assert service.end(signal.SIGINT) in (0, 130, -signal.SIGINT)


def test_the_demo_runs_jobs_and_is_driven_from_the_command_line(demo, noonward, tmp_path):
    at = ("--address", demo.address)
    with Client(demo.address) as client:
        wait_for(lambda: client.jobs(state="running") or client.jobs(state="done"), "a job's run", 120.0)
    shown = noonward("sites", *at)
    assert shown.code == 0
    assert all(name in shown.out for name in ("toronto", "warsaw", "singapore"))
    answer = noonward("submit", "echo hello", "--work", 60, "--origin", "warsaw", "--max-delay", "11d", *at)
    assert answer.code == 0, answer.err
    job = int(re.search(r"submitted 1 job: (\d+)", answer.out)[1])
    assert f"job {job} is" in noonward("why", job, *at).out
    refused = noonward("output", job, *at)  # the demo runs nothing
    assert (refused.code, refused.out) == (2, "")
    assert f"job {job}" in refused.err
    (tmp_path / "jobs.json").write_text(json.dumps([{"name": "f", "work": 5, "origin": "toronto"}] * 3))
    assert "submitted 3 jobs" in noonward("submit", "--file", tmp_path / "jobs.json", "--key", "again", *at).out
    assert "(3 known already)" in noonward("submit", "--file", tmp_path / "jobs.json", "--key", "again", *at).out
    held = noonward("submit", "true", "--work", 5, "--gpus", 16, "--origin", "toronto", *at)
    number = int(re.search(r"submitted 1 job: (\d+)", held.out)[1])
    assert "drained" in noonward("live", "drain", "singapore", *at).out
    assert "open" in noonward("live", "undrain", "singapore", *at).out
    assert "is off" in noonward("live", "dispatch", "singapore", "--off", *at).out
    assert "is on" in noonward("live", "dispatch", "singapore", "--on", *at).out
    assert "local-fcfs decides" in noonward("live", "policy", "local-fcfs", *at).out
    cancelled = noonward("live", "cancel", number, *at)
    assert cancelled.code == 0
    for words in (("hold", number), ("release", number), ("pin", number, "warsaw"), ("veto", number, "warsaw")):
        refused = noonward("live", *words, *at)
        assert refused.code == 2
        assert "only a job that has not been started" in refused.err


def test_bad_input_on_the_command_line(noonward, tmp_path):
    assert noonward("submit", "true").code == 2
    assert noonward("submit", "true", "--work", "-1").code == 2
    (tmp_path / "bad.json").write_text("{")
    assert "is not JSON" in noonward("submit", "--file", tmp_path / "bad.json").err
    assert "noonward serve" in noonward("sites", "--address", "http://127.0.0.1:1").err
    assert "or --demo" in noonward("serve").err
    (tmp_path / "mine.yaml").write_text("scenario: tiny\npolicy: local-fcfs\nsites: {north: {executor: local}}\n")
    assert "sites lacks south" in noonward("serve", tmp_path / "mine.yaml").err
    (tmp_path / "open.yaml").write_text(
        "scenario: tiny\npolicy: local-fcfs\nhost: 0.0.0.0\nsites: {north: {executor: model}, south: {executor: model}}"
    )
    assert "without tokens" in noonward("serve", tmp_path / "open.yaml").err
    (tmp_path / "slurm.yaml").write_text(
        "{scenario: tiny, policy: local-fcfs, sites: {north: {executor: slurm}, south: {executor: model}}}"
    )
    assert "draws its signals from a generator" in noonward("serve", tmp_path / "slurm.yaml").err


def test_a_store_of_a_shadow_is_not_served_live_nor_the_reverse(tmp_path):
    stores = {
        mode: Store(tmp_path / mode, ManualClock(datetime(2026, 3, 1, tzinfo=UTC))) for mode in ("live", "shadow")
    }
    for mode, store in stores.items():
        store.require_mode(mode)
        store.require_mode(mode)
    with pytest.raises(ScenarioError, match="is of a service of kind shadow, whose work one of kind live must"):
        stores["shadow"].require_mode("live")
    with pytest.raises(ScenarioError, match="is of a service of kind live"):
        stores["live"].require_mode("shadow")
    for store in stores.values():
        store.close()


def test_store_and_tokens_from_the_command_line(noonward, tmp_path):
    folder = ("--folder", tmp_path / "live")
    made = noonward("live", "token", "add", "ci", "--scope", "submit", *folder)
    assert re.fullmatch(r"nwt_[\w-]{43}\n", made.out)
    assert f"in the new store {folder[1]}:" in made.err
    assert "already" in noonward("live", "token", "add", "ci", *folder).err
    assert noonward("live", "token", "list", *folder).out.startswith("ci  submit")
    assert noonward("live", "token", "rotate", "ci", *folder).out != made.out
    assert noonward("live", "backup", tmp_path / "copy.sqlite", *folder).code == 0
    assert noonward("live", "restore", tmp_path / "copy.sqlite", "--folder", tmp_path / "new").code == 0
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o077 == 0
    assert noonward("live", "vacuum", "--folder", tmp_path / "new").code == 0
    assert "void" in noonward("live", "token", "revoke", "ci", *folder).out
    assert noonward("live", "token", "revoke", "ci", *folder).code == 2
    assert "holds no store" in noonward("live", "vacuum", "--folder", tmp_path / "none").err
    with pytest.raises(ServiceError):
        Client("http://127.0.0.1:1", timeout_s=0.2).sites()


def test_jobs_status_and_savings_are_shown_in_the_terminal(demo, noonward):
    at = ("--address", demo.address)
    with Client(demo.address) as client:
        wait_for(lambda: client.jobs(state="running") or client.jobs(state="done"), "a job's run", 120.0)
        wait_for(lambda: len(client.jobs()) > 2, "a job more than the list shows", 120.0)
    listed = noonward("jobs", "--limit", 2, *at)
    assert listed.code == 0
    assert "the newest 2; --limit shows more" in listed.out
    jobs = json.loads(noonward("jobs", "--limit", 2, "--json", *at).out)
    assert [job["id"] for job in jobs] == sorted((job["id"] for job in jobs), reverse=True)
    assert noonward("jobs", "--state", "lost", *at).out == "no such job\n"
    refused = noonward("jobs", "--state", "sleeping", *at)
    assert refused.code == 2
    assert "sleeping" in refused.err
    status = noonward("status", *at)
    assert "policy: " in status.out
    assert "GPUs free" in status.out
    assert json.loads(noonward("status", "--json", *at).out)["mode"] == "live"
    saved = noonward("savings", "--days", 1, *at)
    assert saved.code == 0
    assert "saved per day: " in saved.out
    assert len(json.loads(noonward("sites", "--json", *at).out)) == 3
    assert json.loads(noonward("why", jobs[0]["id"], "--json", *at).out)["job"] == jobs[0]["id"]

"""A full disk and a store that another program holds: what is refused, and that all goes on by itself afterwards."""

import json
import sqlite3
import subprocess

import pytest

from live.callers import local_client
from live.chaos import SERVICE
from live.process import Process
from live.waiting import wait_for
from noonward.live.api import handlers
from noonward.live.client import Client, ServiceError
from noonward.live.requests import JobRequest
from noonward.live.store.database import StoreError

JOB = {"name": "a", "command": "true", "work": 60.0, "origin": "north"}


class Full:
    """The disk is full: the store's file cannot grow."""

    words = "full"

    def __init__(self, store):
        self.store = store

    def begin(self):
        def fill(connection, now_s):
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")

        self.store.do(fill)

    def end(self):
        self.store.do(lambda connection, now_s: connection.execute("PRAGMA max_page_count = 1000000") and None)


class Locked:
    """Another program holds the store's file."""

    words = "locked"

    def __init__(self, store):
        self.store = store
        self.other = sqlite3.connect(store.path, isolation_level=None)
        store.do(lambda connection, now_s: connection.execute("PRAGMA busy_timeout = 1") and None)

    def begin(self):
        self.other.execute("BEGIN IMMEDIATE")

    def end(self):
        self.other.execute("ROLLBACK")
        self.other.close()


@pytest.mark.parametrize("trouble", [Full, Locked])
def test_jobs_are_refused_and_nothing_decided_is_lost_until_the_store_can_be_written_again(
    service, trouble, monkeypatch
):
    monkeypatch.setattr(handlers, "READY_S", -1.0)
    live = service("local-fcfs")
    big = {**JOB, "command": "x" * 60_000}
    with local_client(live) as http:
        assert http.post("/v1/jobs", json=[JOB] * 6).status_code == 201
        held = trouble(live.store)
        held.begin()
        refused = http.post("/v1/jobs", json=[big] * 10)
        assert (refused.status_code, refused.json()["code"]) == (503, "store")
        assert trouble.words in refused.json()["message"]
        live.set_time(60.0)
        before = live.controller.world.asked_s
        failures = 0
        for _ in range(3):
            try:
                live.controller.decide()
                live.controller.signals()
            except StoreError:
                failures += 1
        assert failures or live.controller.world.asked_s > before
        assert http.get("/readyz").status_code == 503
        assert http.get("/v1/jobs").status_code == 200
        held.end()
        assert http.get("/readyz").status_code == 200
        assert http.post("/v1/jobs", json=[JOB] * 4).status_code == 201
        for minute in range(2, 8):
            live.set_time(60.0 * minute)
            live.steps()
        states = [job["state"] for job in http.get("/v1/jobs").json()["jobs"]]
    assert states == ["done"] * 10
    assert live.controller.world.engine.taken_S.tolist() == [0, 0]


def test_what_was_decided_while_the_store_could_not_be_written_is_stored_by_the_next_step(service):
    live = service("local-fcfs")
    with local_client(live) as http:
        http.post("/v1/jobs", json=[JOB] * 3)
        live.set_time(60.0)
        do, calls = live.store.do, []

        def fails_once(change):
            calls.append(change)
            if len(calls) == 2:  # the first of a step stamps the time, the second stores what it decided
                raise StoreError("the disk is full")
            return do(change)

        live.store.do = fails_once
        with pytest.raises(StoreError):
            live.controller.decide()
        assert live.controller.world.engine.taken_S.sum() == 3
        live.set_time(120.0)
        live.controller.decide()
        shown = http.get("/v1/jobs").json()["jobs"]
        assert [job["decided_start"][-9:] for job in shown] == ["00:01:00Z"] * 3
        assert len(live.store.read("SELECT token FROM outbox")) == 3


def test_a_policy_that_could_not_be_stored_does_not_decide(service):
    live = service("local-fcfs")

    def fails(change):
        raise StoreError("the disk is full")

    live.store.do = fails
    with pytest.raises(StoreError):
        live.controller.use_policy("most-free")
    assert live.controller.policy == "local-fcfs"
    assert live.controller.books.policy == "local-fcfs"


def test_a_job_that_arrived_before_a_defect_arrives_once(service):
    live = service("local-fcfs")
    live.submit(*[JobRequest(**JOB)] * 3)
    live.set_time(60.0)
    world = live.controller.world
    step, world.engine.step = world.engine.step, lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        live.controller.decide()
    world.engine.step = step
    live.set_time(120.0)
    live.controller.decide()
    assert live.controller.world.engine.taken_S.tolist() == [3, 0]
    assert len(live.store.read("SELECT token FROM outbox")) == 3


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 4 MiB that can be made larger."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no file system can be mounted here: needs root")
    yield place
    subprocess.run(["umount", place], check=True)


HASTY = f"import noonward.live.controller as controller\ncontroller.LONGEST_PAUSE_S = 1.0\n{SERVICE}"
"""A service that tries again after a second at the latest, not after a minute."""


@pytest.mark.slow
def test_a_service_whose_disk_is_full_refuses_jobs_and_takes_them_again_once_there_is_room(small_disk, tmp_path):
    ran = tmp_path / "ran"
    ran.mkdir()
    sites = {"north": {"executor": "local"}, "south": {"executor": "local"}}
    said = {"scenario": "tiny", "policy": "local-fcfs", "folder": str(small_disk), "sites": sites, "port": 0,
            "poll_s": 60}  # fmt: skip

    def job(n):
        padding = "#" * 60_000
        return JobRequest(name="a", work=1.0, origin="north", key=f"k{n}", command=f"echo x >> {ran}/{n} {padding}")

    acknowledged = []
    with Process("-c", HASTY, json.dumps(said)) as service, Client(service.address) as client:
        refused = None
        while refused is None:
            try:
                client.submit(job(len(acknowledged)))
                acknowledged.append(len(acknowledged))
            except ServiceError as error:
                refused = error
        assert (refused.status, "full" in str(refused)) == (503, True)
        assert client.service().open_jobs > 0
        subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
        wait_for(lambda: client.service().open_jobs == 0, "the end of all jobs", 120.0)
        client.submit(job(len(acknowledged)))
        wait_for(lambda: client.service().open_jobs == 0, "the end of the last job", 120.0)
        assert not client.service().problems
        service.end()
    counts = {int(file.name): file.read_text() for file in ran.iterdir()}
    assert counts == dict.fromkeys(range(len(acknowledged) + 1), "x\n")

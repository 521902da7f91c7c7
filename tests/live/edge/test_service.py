"""The service on Ray with two small workers: images, killed and stopped workers, no leaks, nothing left behind."""

import importlib.util
import json
import os
import signal
import time
from contextlib import closing

import pytest

from noonward.errors import FileError, NoonwardError
from noonward.live.clock import SystemClock
from noonward.live.edge.orders import Limits
from noonward.live.edge.tasks import TaskStore
from noonward.live.store.store import Store

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("ray", "diffusers", "psutil")),
        reason="the extra 'edge' is not installed",
    ),
    pytest.mark.slow,
    pytest.mark.xdist_group("edge"),
]
WAIT_S = 600.0
"""Longest wait of a test: only what never comes takes so long, however busy the machine is."""
LIMITS = Limits(beat_s=0.2, lease_s=20.0, start_s=WAIT_S, load_s=WAIT_S, group_s=1800.0, join_s=WAIT_S, task_s=1800.0)
"""A worker that uses CPU time keeps its lease on any busy machine. What ends a gang otherwise comes after ``WAIT_S``: a
gang that is free sooner was freed by the lease (tests/live/edge/test_controller.py has its seconds)."""
CHANGES = ("servers.count=2", "tasks.sizes=[1,2]", "steps=60", "steps_max=60", "steps_min=1")


@pytest.fixture(scope="module")
def client(tmp_path_factory, small):
    """A service of two servers with the small model. At the end it is killed, and nothing is left of it."""
    import psutil

    from noonward.live.edge.client import processes_of, start_service, stop_service
    from noonward.live.edge.model_folder import read_model_folder
    from noonward.live.edge.settings import Settings, edge_scenario

    folder = tmp_path_factory.mktemp("edge")
    setting, models = edge_scenario("edge-inference", CHANGES), (read_model_folder(small),)
    up = start_service(folder, Settings(setting=setting, policy="patient-reuse", models=models, limits=LIMITS))
    try:
        all_ready(up)
        yield up
        with pytest.raises(FileError, match="a service is up in"):
            start_service(folder, None)
        process = psutil.Process(up.pid)
        process.kill()
        process.wait(WAIT_S)
        with pytest.raises(NoonwardError, match="has ended"):
            up.status()
    finally:
        stop_service(folder)
    assert processes_of(folder) == []


def until(condition):
    """Waits until something holds; returns what it is."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("it did not come about in time")


def all_ready(client):
    """Waits until no worker starts or works."""
    return until(lambda: (s := client.status()["servers"]) and {x["state"] for x in s} == {"ready"} and s)


def finished(client, name):
    """Waits until a task is done or failed; returns its record."""
    return until(lambda: (task := client.task(name))["state"] in ("done", "failed") and task)


def begun(client, gang, step):
    """Submits a task; returns its id when its gang has done some steps."""
    task = client.submit({"prompt": "a harbour", "gang": gang, "size": "96x96"})["id"]
    until(lambda: client.status()["progress"].get(task, 0) >= step)
    return task


def test_a_gang_generates_an_image_with_its_record(client):
    from PIL import Image

    all_ready(client)
    name = client.submit({"prompt": "a harbour", "gang": 2, "seed": 11, "steps_max": 4})["id"]
    task = finished(client, name)
    assert (task["state"], task["reason"]) == ("done", None)
    (attempt,) = task["attempts"]
    assert (sorted(attempt["servers"]), attempt["steps"]) == ([0, 1], 4)
    assert attempt["run_s"] > 0
    assert attempt["energy_j"] > 0
    with Image.open(client._folder / "images" / f"{name}.png") as image:
        assert (image.size, image.text["seed"], image.text["task"]) == ((128, 128), "11", name)


@pytest.mark.parametrize(("sent", "member"), [(signal.SIGKILL, 0), (signal.SIGSTOP, 1)], ids=["killed", "stopped"])
def test_a_member_that_is_killed_or_stopped_frees_its_gang_and_the_task_is_done(client, sent, member):
    pids = [server["pid"] for server in all_ready(client)]
    name = begun(client, 2, 2)
    rank = client.task(name)["attempts"][0]["servers"][member]
    os.kill(pids[rank], sent)
    until(lambda: client.task(name)["attempts"][0]["error"])
    until(lambda: client.status()["servers"][1 - rank]["state"] == "ready")
    task = finished(client, name)
    assert (task["state"], len(task["attempts"])) == ("done", 2)
    assert f"the worker of server {rank}" in task["attempts"][0]["error"]
    now = [server["pid"] for server in client.status()["servers"]]
    assert now[rank] != pids[rank]
    assert now[1 - rank] == pids[1 - rank], "the other member is kept"
    with pytest.raises(ProcessLookupError):
        os.kill(pids[rank], 0)


def test_tasks_with_changing_gangs_leak_neither_memory_nor_groups(client):
    """Memory is that of whole workers: a worker's grows in its first images and then by less than 10 MB in ten."""

    def drawn(*gangs):
        """Generates an image on each of some gangs."""
        given = {"prompt": "a harbour", "steps_max": 2, "size": "32x32"}
        names = [client.submit({**given, "gang": gang})["id"] for gang in gangs]
        assert [finished(client, name)["state"] for name in names] == ["done"] * len(names)

    def made():
        """Generates images, the last with both workers; returns the servers once all have answered again."""
        drawn(2, 1, 1, 2, 1, 2, 2, 1, 1, 2)
        drawn(2)
        all_ready(client)
        heard = time.time() + 1
        until(lambda: client.status()["now_unix_s"] > heard)
        return client.status()["servers"]

    all_ready(client)
    before, after = made(), made()
    for one, two in zip(before, after, strict=True):
        assert (one["groups"], two["groups"]) == (1, 1), "the process group of the last gang alone"
        assert two["descriptors"] <= one["descriptors"] + 4
        assert two["rss_mb"] < one["rss_mb"] + 40


def test_a_wrong_request_is_refused_and_a_strange_one_is_not_answered(client):
    with pytest.raises(NoonwardError, match="--gang 3; allowed: 1, 2"):
        client.submit({"prompt": "a harbour", "gang": 3})
    with pytest.raises(NoonwardError, match="there is no task 'image-9'"):
        client.task("image-9")
    address = json.loads((client._folder / "service.json").read_text())
    assert (client._folder / "service.json").stat().st_mode & 0o077 == 0
    import http.client

    for token in ("", "Bearer wrong"):
        connection = http.client.HTTPConnection("127.0.0.1", address["port"], timeout=30)
        connection.request("POST", "/stop", "{}", {"Authorization": token})
        assert connection.getresponse().status == 401
        connection.close()


def test_a_ray_that_is_killed_is_started_again_and_the_tasks_are_done(client):
    import psutil

    for name in ("raylet", "gcs_server"):
        all_ready(client)
        runs = begun(client, 2, 1)
        (process,) = [p for p in psutil.Process(client.pid).children(recursive=True) if p.name() == name]
        process.kill()
        until(lambda name=name: any(f"Ray's {name} is gone" in note for note in client.status()["notes"]))
        waits = client.submit({"prompt": "a harbour", "gang": 1, "steps_max": 2, "size": "32x32"})["id"]
        done = [finished(client, each) for each in (runs, waits)]
        assert [task["state"] for task in done] == ["done", "done"], done
        assert done[0]["attempts"][0]["fault"] == "service"


def test_the_page_holds_images_and_asks_no_other_host(client):
    finished(client, client.submit({"prompt": "<script>alert(1)</script>", "gang": 1, "steps_max": 1})["id"])
    page = client._folder / "index.html"
    wanted = ("&lt;script&gt;alert(1)", "data:image/png;base64,")  # a page may be of a time before the image
    text = until(lambda: all(each in (found := page.read_text(encoding="utf-8")) for each in wanted) and found)
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def ports(folder):
    """Returns the ports at which the processes of a service listen."""
    import psutil

    from noonward.live.edge.client import processes_of

    found = set()
    for pid in processes_of(folder):
        found |= {each.laddr.port for each in psutil.Process(pid).net_connections("inet") if each.status == "LISTEN"}
    return found


def test_the_command_line_starts_asks_and_stops_a_service_that_outlives_it(noonward, tmp_path, small, client):
    """It exchanges displaced rows, and shares no port with another service."""
    from noonward.live.edge.client import processes_of

    given = ("--set", "steps=6", "--workers", 2, "--folder", "e")
    up = noonward("edge", "up", "--model", f"tiny={small}", "--parallelism", "displaced", *given)
    assert up.code == 0, up.err
    assert "2 workers are ready" in up.out
    assert json.loads(noonward("edge", "status", "--folder", "e", "--json").out)["parallelism"] == "displaced"
    first, second = ports(client._folder), ports(tmp_path / "e")
    assert first
    assert second
    assert not first & second
    made = noonward("edge", "submit", "a harbour", "--gang", 2, "--count", 2, "--wait", "--folder", "e", "--json")
    tasks = json.loads(made.out)["tasks"]
    assert [task["state"] for task in tasks] == ["done", "done"], made.err
    shown = noonward("edge", "status", "--page", "page.html", "--folder", "e")
    assert "2 done" in shown.out
    late = noonward("edge", "submit", "a harbour", "--deadline", "0.01s", "--gang", 2, "--wait", "--folder", "e")
    assert (late.code, "the deadline passed" in late.err) == (2, True)
    waits = noonward("edge", "submit", "a harbour", "--gang", 2, "--folder", "e")
    assert "image-000004" in waits.out
    down = noonward("edge", "down", "--folder", "e")
    assert (down.code, "killed" in down.out) == (0, False), down.out
    assert processes_of(tmp_path / "e") == []
    with closing(Store(tmp_path / "e", SystemClock())) as store:
        kept, _ = TaskStore(store, tmp_path / "e").read()
    assert kept["image-000004"].state in ("queued", "done")
    again = noonward("edge", "down", "--folder", "e")
    assert (again.code, "no service is up in e" in again.err) == (2, True)

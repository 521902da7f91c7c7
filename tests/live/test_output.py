"""What jobs have printed: who may read it, and which files the service reads for them."""

import contextlib
import json
from dataclasses import replace

import httpx
import pytest

from live.callers import JOB, local_client
from live.waiting import wait_for
from noonward.cli import live_client
from noonward.live.client import Client
from noonward.live.executors.local import LocalExecutor
from noonward.live.executors.protocol import ClusterError, Order
from noonward.live.executors.slurm import SlurmExecutor
from noonward.live.terms import Terms
from noonward.live.tokens import make_token

TOKEN = "nw-a-7-0"


def order(**terms):
    return Order(
        token=TOKEN, job=7, name="a", command="true", gpus=1, run_s=1.0, start_s=0.0, handle="12", terms=Terms(**terms)
    )


def test_an_owner_and_administrators_read_what_a_job_prints(service, tmp_path, monkeypatch, capsys):
    local = LocalExecutor(tmp_path / "site", lambda posix_s: posix_s)
    live = service("local-fcfs", executors={"north": local})
    scopes = {"ann": "submit", "bob": "submit", "eve": "read", "root": "admin"}
    tokens = {name: make_token(live.store, name, scope) for name, scope in scopes.items()}
    with local_client(live) as http:

        def ask(who, path, **more):
            return http.get(path, headers={"Authorization": f"Bearer {tokens[who]}"}, **more)

        job = {**JOB, "command": "printf 'one\\ntwo\\377'", "origin": "north", "site": "north"}
        assert http.post("/v1/jobs", json=job, headers={"Authorization": f"Bearer {tokens['ann']}"}).status_code == 201
        waiting = ask("ann", "/v1/jobs/1/output")
        assert (waiting.status_code, waiting.json()["message"]) == (
            404, "job 1 has not been handed to a cluster of this service: it has printed nothing",
        )  # fmt: skip
        live.set_time(60.0)
        live.steps()
        wait_for(lambda: list((tmp_path / "site").glob("*/exit")), "its end")
        for who in ("ann", "root"):
            found = ask(who, "/v1/jobs/1/output").json()
            assert found == {"job": 1, "site": "north", "text": "one\ntwo\ufffd", "cut": False}
        assert ask("ann", "/v1/jobs/1/output?bytes=4").json() == {
            "job": 1, "site": "north", "text": "two\ufffd", "cut": True
        }  # fmt: skip
        assert (ask("bob", "/v1/jobs/1/output").status_code, ask("eve", "/v1/jobs/1/output").status_code) == (403, 403)
        assert ask("root", "/v1/jobs/9/output").status_code == 404
        assert ask("root", "/v1/jobs/1/output?bytes=9999999").status_code == 422

        def pass_on(request):
            return httpx.Response(200, content=ask("ann", request.url.raw_path.decode()).content)

        with Client("http://localhost:8470", transport=httpx.MockTransport(pass_on)) as client:
            assert client.output(1, most=4).text == "two\ufffd"
            monkeypatch.setattr(live_client, "open_client", lambda address: contextlib.nullcontext(client))
            capsys.readouterr()
            live_client.output(1)
            assert capsys.readouterr() == ("one\ntwo\ufffd", "")
            live_client.output(1, json=True)
            assert json.loads(capsys.readouterr().out)["cut"] is False

        def away(of, most):
            raise ClusterError("its disk is away")

        live.controller.agents[0].executor.printed = away
        refused = ask("ann", "/v1/jobs/1/output")
        assert (refused.status_code, refused.json()["code"]) == (503, "cluster")


def test_where_nothing_runs_nothing_is_printed(live, http):
    http.post("/v1/jobs", json=JOB)
    live.set_time(60.0)
    live.steps()
    assert "only its cluster keeps it" in http.get("/v1/jobs/1/output").json()["message"]


def test_only_the_file_that_the_service_named_is_read(tmp_path):
    local, place = LocalExecutor(tmp_path, lambda posix_s: posix_s), tmp_path / TOKEN
    place.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("hash of a token")
    assert local.printed(order(), 100) is None
    (place / "output").write_text("0123456789")
    assert local.printed(order(), 4) == b"6789"
    assert local.printed(order(output=str(secret)), 100) is None
    (place / "output").unlink()
    (place / "output").symlink_to(secret)
    assert local.printed(order(), 100) is None
    (place / "output").unlink()
    (place / "output").mkdir()
    assert local.printed(order(), 100) is None


@pytest.mark.parametrize(
    ("output", "terms", "name"),
    [
        (None, {}, f"{TOKEN}.out"),
        (None, {"workdir": "/elsewhere"}, f"{TOKEN}.out"),
        ("logs-%j-%x", {}, f"logs-12-{TOKEN}"),
        ("logs-%j-%x", {"workdir": "/elsewhere"}, None),
        ("%u.out", {}, None),
        (None, {"output": "%x.out"}, None),
    ],
)
def test_slurm_jobs_print_to_the_file_of_their_site(tmp_path, output, terms, name):
    slurm = SlurmExecutor(lambda posix_s: posix_s, gpus_per_node=1, chdir=tmp_path, output=output, commands=tmp_path)
    for other in (f"{TOKEN}.out", f"logs-12-{TOKEN}", "%u.out"):
        (tmp_path / other).write_text(other)
    assert slurm.printed(order(**terms), 1000) == (None if name is None else name.encode())


def test_files_of_other_users_are_not_read(tmp_path):
    slurm = SlurmExecutor(
        lambda posix_s: posix_s,
        gpus_per_node=1,
        chdir=tmp_path,
        as_user=("sudo", "-u", "{user}"),
        commands=tmp_path,
    )
    (tmp_path / f"{TOKEN}.out").write_text("a")
    assert slurm.printed(replace(order(), owner="ann"), 1000) is None

"""The HTTP interface: jobs in and out, what is refused and how, tokens and scopes, events, figures."""

import asyncio
import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from starlette.testclient import TestClient

from live.callers import JOB, PEER, local_client
from noonward.cli import live_client
from noonward.errors import ScenarioError
from noonward.live.accounts import Interval, Savings
from noonward.live.api import guard, handlers
from noonward.live.api.app import make_app
from noonward.live.api.guard import MOST_BYTES
from noonward.live.client import Client, ServiceError
from noonward.live.config import RaySite
from noonward.live.requests import JobRequest
from noonward.live.server import _require_tokens
from noonward.live.tokens import make_token, revoke_token
from noonward.live.why import reasons, why

EXAMPLES = Path(__file__).parents[2] / "examples" / "live"


def test_one_job_is_stored_decided_run_and_shown(live, http):
    answer = http.post("/v1/jobs", json=JOB)
    assert (answer.status_code, answer.json()) == (201, {"ids": [1], "new": 1})
    assert http.get("/v1/jobs/1").json()["state"] == "submitted"
    live.set_time(60.0)
    live.steps()
    live.controller.track(0)
    shown = http.get("/v1/jobs/1").json()
    assert (shown["state"], shown["site"], shown["gpus"]) == ("running", "north", 1)
    assert shown["decided_start"].endswith("T00:01:00Z")
    live.set_time(660.0)
    live.steps()
    assert http.get("/v1/jobs/1").json()["state"] == "done"
    decision = http.get("/v1/decisions?job=1").json()[0]
    assert (decision["asked_at"], decision["choice"], decision["policy"]) == ("north", "north", "local-fcfs")
    assert decision["candidates"][0]["price_usd_per_mwh"] == live.environment.site_signals.price_SH[0, 0]
    assert [one["site"] for one in decision["candidates"]] == ["north", "south"]


def test_a_batch_is_stored_whole_or_not_at_all(http):
    bad = http.post("/v1/jobs", json=[JOB, {**JOB, "origin": "nowhere"}])
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid")
    assert http.get("/v1/jobs").json() == {"jobs": [], "next": None}
    assert http.post("/v1/jobs", json=[JOB] * 3).json()["ids"] == [1, 2, 3]
    page = http.get("/v1/jobs?limit=2").json()
    assert ([job["id"] for job in page["jobs"]], page["next"]) == ([3, 2], 2)
    assert [job["id"] for job in http.get("/v1/jobs?limit=2&before=2").json()["jobs"]] == [1]


def test_an_idempotency_key_makes_a_repeat_harmless(http):
    headers = {"Idempotency-Key": "mine"}
    first = http.post("/v1/jobs", json=[JOB, JOB], headers=headers)
    again = http.post("/v1/jobs", json=[JOB, JOB], headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["ids"] == again.json()["ids"] == [1, 2]
    other = http.post("/v1/jobs", json=[{**JOB, "work": 1.0}, JOB], headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "key")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 400),
        (b'{"name": "\xff\xfe"}', 400),
        (b"[" * 100_000, 400),
        (b"[]", 422),
        (b'{"name": "a"}', 422),
        (b'{"name": "a", "work": -1}', 422),
        (b'{"name": "a", "work": 1e12, "origin": "north"}', 422),
        (b'{"name": "a", "work": 1e400}', 422),
        (b'{"name": "a", "work": 1, "surprise": 1}', 422),
        (json.dumps([JOB] * 10_001).encode(), 422),
        (b'{"name": "' + b"x" * (MOST_BYTES + 1) + b'"}', 413),
    ],
)
def test_what_is_not_a_job_is_refused(http, body, status):
    answer = http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (status, 422 if status == 400 else status)
    assert answer.json()["message"]
    assert http.get("/v1/jobs").json()["jobs"] == []


def test_an_array_is_stored_as_its_tasks(live, http):
    answer = http.post("/v1/jobs", json=[{**JOB, "tasks": 3}, JOB], headers={"Idempotency-Key": "k"})
    assert answer.json() == {"ids": [1, 2, 3, 4], "new": 4}
    assert [job["name"] for job in http.get("/v1/jobs").json()["jobs"]] == ["a", "a[2]", "a[1]", "a[0]"]
    again = http.post("/v1/jobs", json=[{**JOB, "tasks": 3}, JOB], headers={"Idempotency-Key": "k"})
    assert again.json() == {"ids": [1, 2, 3, 4], "new": 0}
    assert http.post("/v1/jobs", json=[{**JOB, "tasks": 10_000}, JOB]).status_code == 422


def test_a_body_that_is_streamed_without_a_length_is_cut_off(http):
    def parts():
        for _ in range(40):
            yield b"x" * 2**20

    answer = http.post("/v1/jobs", content=parts(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_other_content_types_and_unknown_paths(http):
    assert http.post("/v1/jobs", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert http.get("/v1/nothing").json()["code"] == "unknown"
    assert http.delete("/v1/jobs").status_code == 405
    assert http.get("/v1/jobs/77").status_code == 404
    for digits in (19, 23, 5000):
        for path in ("", "/why", "/cancel", "/hold"):
            method = "POST" if path in ("/cancel", "/hold") else "GET"
            assert http.request(method, f"/v1/jobs/{'9' * digits}{path}").status_code == 404
        assert http.get(f"/jobs/{'9' * digits}").status_code == 404
    assert http.get("/v1/jobs/999999999999999999").status_code == 404
    assert http.get("/v1/jobs?limit=-1").status_code == 422
    assert http.get("/v1/jobs?state=asleep").status_code == 422


def test_a_page_of_another_site_reaches_nothing(http):
    foreign = {"Origin": "https://evil.example"}
    assert http.post("/v1/jobs", json=JOB, headers=foreign).status_code == 403
    assert http.get("/v1/jobs", headers={"Host": "evil.example"}).status_code == 403
    assert http.post("/v1/jobs", json=JOB, headers={"Origin": "http://localhost:8470"}).status_code == 201


def test_with_tokens_every_request_needs_one_of_enough_scope(live, http):
    tokens = {scope: make_token(live.store, scope, scope) for scope in ("read", "submit", "admin")}
    live.controller.store.do(lambda connection, now_s: None)
    with TestClient(make_app(live.controller), base_url="http://example.org", client=PEER) as client:

        def status(method, path, token=None, **given):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return client.request(method, path, headers=headers, **given).status_code

        assert status("GET", "/v1/jobs") == 401
        assert status("GET", "/v1/jobs", "nwt_wrong") == 401
        assert status("GET", "/v1/jobs", tokens["read"]) == 200
        assert status("POST", "/v1/jobs", tokens["read"], json=JOB) == 403
        assert status("POST", "/v1/jobs", tokens["submit"], json=JOB) == 201
        job = client.get("/v1/jobs/1", headers={"Authorization": f"Bearer {tokens['read']}"}).json()
        assert job["owner"] == "submit"
        assert status("PATCH", "/v1/sites/north", tokens["submit"], json={"drained": True}) == 403
        assert status("PATCH", "/v1/sites/north", tokens["admin"], json={"drained": True}) == 200
        assert status("GET", "/metrics") == 401
        assert status("GET", "/healthz") == 200
    rows = live.store.read("SELECT hash FROM tokens")
    assert not any(token.encode() in row["hash"] for token in tokens.values() for row in rows)
    revoke_token(live.store, "read")
    with TestClient(make_app(live.controller), base_url="http://example.org", client=PEER) as client:
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {tokens['read']}"}).status_code == 401


def test_a_job_is_changed_by_its_owner_or_an_administrator_alone(live):
    tokens = {name: make_token(live.store, name, scope) for name, scope in
              (("ann", "submit"), ("bob", "submit"), ("root", "admin"))}  # fmt: skip
    with TestClient(make_app(live.controller), base_url="http://example.org", client=PEER) as client:

        def ask(method, path, name, **given):
            return client.request(method, path, headers={"Authorization": f"Bearer {tokens[name]}"}, **given)

        assert ask("POST", "/v1/jobs", "ann", json=[JOB, JOB]).status_code == 201
        assert ask("POST", "/v1/jobs", "bob", json=JOB).status_code == 201
        for path, body in (("hold", None), ("release", None), ("cancel", None)):
            refused = ask("POST", f"/v1/jobs/1/{path}", "bob", json=body)
            assert (refused.status_code, refused.json()["code"]) == (403, "owner")
        assert ask("PATCH", "/v1/jobs/1", "bob", json={"site": "south"}).status_code == 403
        assert ask("POST", "/v1/jobs/1/hold", "ann").status_code == 200
        assert ask("POST", "/v1/jobs/1/release", "root").status_code == 200
        assert ask("POST", "/v1/jobs/1/cancel", "root").status_code == 202
        assert [job["id"] for job in ask("GET", "/v1/jobs?owner=ann", "bob").json()["jobs"]] == [2, 1]
    events = live.store.read("SELECT data FROM events WHERE kind = 'submitted' ORDER BY id")
    assert [json.loads(row["data"]) for row in events] == [{"by": "ann"}, {"by": "ann"}, {"by": "bob"}]


def test_a_service_is_open_to_its_own_machine_alone(live):
    def status(host, peer, named="localhost:8470"):
        config = live.controller.setup.config.model_copy(update={"host": host})
        live.controller.setup = replace(live.controller.setup, config=config)
        with TestClient(make_app(live.controller), base_url=f"http://{named}", client=(peer, 50000)) as client:
            return client.get("/v1/jobs").status_code

    assert status("127.0.0.1", "127.0.0.1") == 200
    assert status("127.0.0.1", "127.0.0.1", "evil.example") == 403
    assert status("127.0.0.1", "10.0.0.7") == 403  # a proxy of this machine that lets others in
    assert status("0.0.0.0", "10.0.0.7") == 401  # as after the last token was revoked
    assert status("0.0.0.0", "127.0.0.1") == 401


def test_a_service_of_clusters_stays_closed_when_its_last_token_is_gone(live):
    setup = live.controller.setup
    sites = setup.config.sites | {"north": RaySite(executor="ray", url="http://127.0.0.1:1")}
    running = replace(setup, config=setup.config.model_copy(update={"sites": sites}), executors=(None, None))
    live.controller.setup = running
    with pytest.raises(ScenarioError, match="could run commands at north as the service's user; make one first"):
        _require_tokens(running, live.store)
    with local_client(live) as client:
        assert client.get("/v1/jobs").status_code == 401
    live.controller.setup = replace(running, config=running.config.model_copy(update={"without_tokens": True}))
    with local_client(live) as client:
        assert client.get("/v1/jobs").status_code == 200


def test_the_last_administrator_is_not_revoked(live):
    make_token(live.store, "ci", "submit")
    make_token(live.store, "one", "admin")
    make_token(live.store, "old", "admin")
    live.store.do(
        lambda connection, now_s: (
            connection.execute("UPDATE tokens SET expires_at = '2000-01-01T00:00:00+00:00' WHERE name = 'old'") and None
        )
    )
    with pytest.raises(ScenarioError, match="no other valid token than 'one'"):
        revoke_token(live.store, "one")
    make_token(live.store, "two", "admin")
    revoke_token(live.store, "one")
    revoke_token(live.store, "ci")
    with pytest.raises(ScenarioError, match="rotate two"):
        revoke_token(live.store, "two")


def test_a_token_expires_and_is_rotated(live):
    from noonward.live.tokens import holder_of

    old = make_token(live.store, "ci", "submit", 1)
    assert holder_of(live.store, old).scope == "submit"
    new = make_token(live.store, "ci", "read", replace=True)
    assert holder_of(live.store, old) is None
    assert holder_of(live.store, new).scope == "submit"
    live.store.do(
        lambda connection, now_s: (
            connection.execute("UPDATE tokens SET expires_at = '2000-01-01T00:00:00+00:00'") and None
        )
    )
    assert holder_of(live.store, new) is None


def test_hold_release_pin_veto_and_cancel(live, http):
    http.post("/v1/jobs", json=[JOB, JOB, JOB, {**JOB, "gpus_min": 8}])
    assert http.post("/v1/jobs/1/hold").json()["held"]
    assert http.patch("/v1/jobs/2", json={"site": "south"}).json()["pinned"] == "south"
    assert http.patch("/v1/jobs/3", json={"not_sites": ["north"]}).json()["not_sites"] == ["north"]
    assert http.patch("/v1/jobs/3", json={"not_sites": ["north", "south"]}).status_code == 422
    assert http.patch("/v1/jobs/3", json={"site": "atlantis"}).status_code == 422
    assert http.post("/v1/jobs/4/cancel").json()["state"] == "cancelled"
    for minute in range(1, 8):
        live.set_time(60.0 * minute)
        live.steps()
    found = {job["id"]: (job["state"], job["site"]) for job in http.get("/v1/jobs").json()["jobs"]}
    assert found[1] == ("waiting", "north")
    assert found[2][1] == "south"
    assert found[3] == ("waiting", "north")  # local-fcfs moves nothing
    assert found[4][0] == "cancelled"
    assert http.patch("/v1/jobs/2", json={"site": "north"}).status_code == 409
    assert not http.post("/v1/jobs/1/release").json()["held"]
    live.set_time(600.0)
    live.steps()
    assert http.get("/v1/jobs/1").json()["state"] in ("starting", "running")


def test_why_names_what_a_job_waits_for(live, http):
    http.post("/v1/jobs", json=[{**JOB, "gpus_min": 8}, {**JOB, "gpus_min": 2, "max_delay_s": 5000.0}])
    live.set_time(60.0)
    live.steps()
    found = http.get("/v1/jobs/2/why").json()
    assert (found["reason"], found["waits_for"]) == ("gpus", "2 free GPUs at north (0 are free)")
    assert reasons(live.controller, 100) == [("free GPUs", 1)]
    assert found["expected_start"].endswith("00:11:00Z")
    north, south = found["candidates"]
    assert (north["feasible"], north["reason"]) == (False, "it needs 2 GPUs at once, 0 are free")
    assert south["feasible"]
    assert south["energy_kwh"] == pytest.approx(2 * 80 * 1.2 * 600 / 3.6e6)
    assert south["latest_start"].endswith("01:23:20Z")
    before = live.controller.world.view.mask_NA.copy()
    assert (live.controller.world.view.mask_NA == before).all()
    assert http.get("/v1/jobs/1/why").json()["candidates"] == []
    http.post("/v1/jobs/2/hold")
    assert http.get("/v1/jobs/2/why").json()["waits_for"] == "its release: it is held"


def test_jobs_that_start_are_not_among_the_newest_that_wait(live, http):
    http.post("/v1/jobs", json=[{**JOB, "gpus_min": 8}, {**JOB, "gpus_min": 2}, {**JOB, "origin": "south"}])
    live.set_time(60.0)
    live.controller.decide()
    assert [http.get(f"/v1/jobs/{job}").json()["state"] for job in (1, 2, 3)] == ["starting", "waiting", "starting"]
    assert reasons(live.controller, 1) == [("free GPUs", 1)]


def test_why_names_the_start_that_a_policy_has_booked(service):
    live = service("booked-persistence")
    live.submit(*(live.request(j) for j in range(20)))
    live.set_time(60.0)
    live.steps()
    waits = {job: why(live.controller, job) for job in range(1, 21)}
    booked = {job: one for job, one in waits.items() if one.waits_for.startswith("the start that the policy")}
    assert booked
    for slot in range(2, 48 * 60):
        live.set_time(60.0 * slot)
        live.steps()
    started = {
        row["id"]: live.controller.time_of(row["start_s"])
        for row in live.store.read("SELECT id, start_s FROM jobs WHERE start_s IS NOT NULL")
    }
    assert {job: one.expected_start for job, one in booked.items()} == {job: started[job] for job in booked}


def test_savings_of_different_days_are_kept_apart(live, http, monkeypatch):
    computed = []

    def savings(controller, days):
        computed.append(days)
        return Savings(
            reference="r", policy=str(days), days=[], left_out=0, saved_usd_a_day=Interval(mean=0, low=None, high=None),
            saved_kg_a_day=Interval(mean=0, low=None, high=None), run_times=None, remark="",
        )  # fmt: skip

    monkeypatch.setattr(handlers, "savings", savings)
    monkeypatch.setattr(handlers, "SETTLE_SHARE", 1.0)  # other days need not wait, however long the first ones took
    for days in (31, 7, 31, 7):
        assert http.get(f"/v1/savings?days={days}").json()["policy"] == str(days)
    assert computed == [31, 7]


def test_tokens_are_looked_up_off_the_event_loop(live, http, monkeypatch):
    on_the_loop = []

    def spy(look):
        def looked(*given):
            with contextlib.suppress(RuntimeError):
                on_the_loop.append(asyncio.get_running_loop())
            return look(*given)

        return looked

    monkeypatch.setattr(guard, "any_tokens", spy(guard.any_tokens))
    monkeypatch.setattr(guard, "holder_by", spy(guard.holder_by))
    assert http.get("/v1/jobs").status_code == 200
    token = make_token(live.store, "ci", "read")
    with TestClient(make_app(live.controller), base_url="http://example.org", client=PEER) as client:
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert on_the_loop == []


def test_a_drained_site_starts_nothing_and_its_jobs_are_not_dropped(live, http):
    http.patch("/v1/sites/north", json={"drained": True})
    http.post("/v1/jobs", json={**JOB, "max_delay_s": 7200.0})
    live.set_time(60.0)
    live.steps()
    assert http.get("/v1/jobs/1").json()["state"] == "waiting"
    assert http.get("/v1/jobs/1/why").json()["candidates"][0]["reason"] == "the site is drained or does not answer"
    http.patch("/v1/sites/north", json={"drained": False})
    live.set_time(120.0)
    live.steps()
    assert http.get("/v1/jobs/1").json()["state"] == "starting"
    assert http.patch("/v1/sites/atlantis", json={"drained": True}).status_code == 404
    assert [row["action"] for row in live.store.read("SELECT action FROM audit")] == ["drain", "undrain"]


def test_dispatch_off_hands_nothing_over_until_it_is_on_again(live, http):
    http.patch("/v1/sites/north", json={"dispatch": False})
    http.post("/v1/jobs", json=[JOB, JOB])
    live.set_time(60.0)
    live.steps()
    assert http.get("/v1/jobs/1").json()["state"] == "starting"
    north = http.get("/v1/sites").json()[0]
    assert (north["dispatch"], north["undispatched"], north["free"]) == (False, 2, 6)
    assert live.store.read("SELECT stage FROM outbox WHERE job = 1")[0]["stage"] == "queued"
    http.post("/v1/jobs/2/cancel")
    live.steps()
    assert http.get("/v1/jobs/2").json()["state"] == "cancelled"
    assert http.patch("/v1/sites/north", json={"dispatch": True}).json()["dispatch"]
    live.steps()
    live.controller.track(0)
    assert http.get("/v1/jobs/1").json()["state"] == "running"
    assert http.patch("/v1/sites/north", json={}).status_code == 422
    assert [row["action"] for row in live.store.read("SELECT action FROM audit")] == ["dispatch off", "dispatch on"]


def test_the_policy_changes_while_jobs_wait_and_survives_a_restart(live, http):
    http.post("/v1/jobs", json=[{**JOB, "gpus_min": 8}, {**JOB, "gpus_min": 8}])
    live.set_time(60.0)
    live.steps()
    assert http.post("/v1/policy", json={"policy": "most-free"}).json()["policy"] == "most-free"
    assert http.post("/v1/policy", json={"policy": "booked-perfect"}).status_code == 422
    assert http.post("/v1/policy", json={"policy": "nonsense"}).status_code == 422
    for code in ("os:abort", "noonward.schedule.slot_rules:LocalFcfs", "trained.npz"):
        assert http.post("/v1/policy", json={"policy": code}).status_code == 422
    assert live.controller.policy == "most-free"
    live.restart()
    assert live.controller.policy == "most-free"
    live.set_time(120.0)
    live.steps()
    rows = live.store.read("SELECT state, site FROM jobs ORDER BY id")
    assert [tuple(row) for row in rows] == [("running", "north"), ("transit", "south")]


def test_the_audit_log_says_who_changed_what_to_administrators_alone(live):
    tokens = {name: make_token(live.store, name, scope) for name, scope in (("root", "admin"), ("ann", "submit"))}
    app_ = make_app(live.controller)
    with TestClient(app_, client=PEER, base_url="http://127.0.0.1") as http:

        def ask(who, method, path, content=None):
            return http.request(method, path, json=content, headers={"Authorization": f"Bearer {tokens[who]}"})

        assert ask("root", "PATCH", "/v1/sites/north", {"drained": True}).status_code == 200
        assert ask("root", "POST", "/v1/policy", {"policy": "cheapest-feasible"}).status_code == 200
        found = ask("root", "GET", "/v1/audit").json()
        assert [(one["who"], one["action"], one["detail"]) for one in found] == [
            ("root", "policy", "cheapest-feasible"),
            ("root", "drain", "north"),
        ]
        older = ask("root", "GET", f"/v1/audit?before={found[0]['id']}").json()
        assert [one["id"] for one in older] == [found[1]["id"]]
        assert ask("ann", "GET", "/v1/audit").status_code == 403


def test_events_from_a_number_on(live, http):
    http.post("/v1/jobs", json=[JOB, JOB])
    live.set_time(60.0)
    live.steps()
    events = http.get("/v1/events").json()
    assert [event["kind"] for event in events][:2] == ["submitted", "submitted"]
    assert http.get(f"/v1/events?after={events[-1]['id']}").json() == []


def test_figures_are_in_prometheus_format(live, http):
    http.post("/v1/jobs", json=JOB)
    text = http.get("/metrics").text
    assert 'noonward_jobs{state="submitted"} 1' in text
    assert 'noonward_site_free{site="north"} 8' in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) noonward_\w+ .+|noonward_\w+(\{.*\})? [-+.e\d]+", line), line


def test_health_and_readiness(live, http, monkeypatch):
    assert http.get("/healthz").json() == {"healthy": True, "late": []}
    store = live.store
    store.do(lambda connection, now_s: connection.execute("PRAGMA max_page_count = 1") and None)
    monkeypatch.setattr(handlers, "READY_S", -1.0)
    full = http.get("/readyz")
    assert (full.status_code, full.json()["ready"]) == (503, False)
    assert "full" in full.json()["reason"]
    store.do(lambda connection, now_s: connection.execute("PRAGMA max_page_count = 1000000") and None)
    assert http.get("/readyz").json() == {"ready": True}
    live.controller.heartbeats["decide"] = type("Beat", (), {"late": True, "problem": "stuck"})()
    assert http.get("/healthz").status_code == 503


def test_the_openapi_page_names_every_route(live, http):
    page = http.get("/openapi.json").json()
    from noonward.live.api.handlers import Api

    served = {
        (route.path.replace(":job", ""), method.lower())
        for route in Api(live.controller).routes()
        for method in route.methods - {"HEAD"}
        if route.path.startswith("/v1")
    }
    assert served == {(path, method) for path, methods in page["paths"].items() for method in methods}
    assert "JobRequest" in page["components"]["schemas"]


def test_the_client_talks_to_the_service(live):
    import httpx

    with local_client(live) as inner:

        def pass_on(request):
            answer = inner.request(
                request.method, request.url.raw_path.decode(), content=request.content, headers=dict(request.headers)
            )
            return httpx.Response(answer.status_code, content=answer.content)

        with Client("http://localhost:8470", transport=httpx.MockTransport(pass_on)) as client:
            made = client.submit(*(msgspec.convert(JOB, JobRequest) for _ in range(2)), key="k")
            assert made.ids == [1, 2]
            assert client.job(1).name == "a"
            assert [job.id for job in client.jobs(state="submitted")] == [2, 1]
            assert client.hold(1).held
            assert not client.release(1).held
            assert client.steer(1, site="south").pinned == "south"
            assert client.cancel(2).state == "cancelled"
            assert [site.name for site in client.sites()] == ["north", "south"]
            assert client.drain("north").drained
            assert not client.dispatch("north", False).dispatch
            assert client.service().policy == "local-fcfs"
            assert client.use_policy("most-free").policy == "most-free"
            assert client.why(1).job == 1
            assert [plan.site for plan in client.plans()] == ["north", "south"]
            assert client.savings(1).reference == live.scenario.baseline
            assert client.decisions(1) == []
            assert next(event.kind for event in client.events()) == "submitted"
            with pytest.raises(ServiceError, match="there is no job 9") as refused:
                client.job(9)
            assert refused.value.status == 404
    with Client("http://127.0.0.1:1", timeout_s=0.5) as client, pytest.raises(ServiceError, match="noonward serve"):
        client.sites()


@pytest.mark.parametrize(("protocol", "said"), [("each-slot", "; the service decides next at "), ("on-arrival", "")])
def test_submit_says_when_the_service_decides_next(service, noonward, monkeypatch, protocol, said):
    import httpx

    live = service("local-fcfs" if protocol == "each-slot" else "dp-max-clock", f"protocol={protocol}")
    live.set_time(90.0)
    with local_client(live) as inner:

        def pass_on(request):
            sent = {
                name: request.headers[name] for name in ("content-type", "idempotency-key") if name in request.headers
            }
            answer = inner.request(request.method, request.url.path, content=request.content, headers=sent)
            return httpx.Response(answer.status_code, content=answer.content)

        transport = httpx.MockTransport(pass_on)
        monkeypatch.setattr(
            live_client, "open_client", lambda address: Client("http://localhost:8470", transport=transport)
        )
        printed = noonward("submit", "true", "--work", "60", "--origin", "north", "--key", "k").out.strip()
        again = noonward("submit", "true", "--work", "60", "--origin", "north", "--key", "k").out
    slot_s = live.scenario.slot_s
    time = live.controller.time_of((90.0 // slot_s + 1) * slot_s) if said else ""
    assert printed == f"submitted 1 job: 1{said}{time}"
    assert again.startswith("submitted 0 jobs: 1 (1 known already)")
    assert "decides" not in again


def test_the_dashboard_shows_figures_that_there_are(service):
    live = service("local-fcfs", "fleet.sites.0.meter={interval_min: 5}", live={"events": {}})
    live.controller.run()
    live.controller.stop()
    with local_client(live) as http:
        http.post("/v1/jobs", json=JOB)
        http.post("/v1/grid-events", json={"site": "north", "target_kw": 0.1, "baseline_kw": 0.2})
        live.set_time(60.0)
        live.steps()
        known = set(re.findall(r"^# TYPE (\S+)", http.get("/metrics").text, re.MULTILINE))
    shown = set(re.findall(r"noonward_\w+", (EXAMPLES / "grafana.json").read_text()))
    assert {name.removesuffix("_bucket") for name in shown} <= known

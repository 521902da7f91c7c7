"""Tenants at a live service: the simulation's quotas and turns, what a submission may not exceed, what is shown."""

import re
from dataclasses import replace

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from live.callers import JOB, PEER, local_client
from noonward.cli import live_client
from noonward.cli.main import app
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError
from noonward.ledger.record import job_table
from noonward.live.api.app import make_app
from noonward.live.client import Client
from noonward.live.requests import request_of
from noonward.live.tenants import require_default, tenants_shown
from noonward.live.tokens import make_token
from noonward.live.why import why
from noonward.schedule.policies import make_scheduler

QUOTAS = (
    "tenants={half_life_h: HALF, default: guests, of: {blue: {gpus: 4, cohort: all, borrow: 2, members: [ann, bea]}, "
    "red: {gpus: 4, cohort: all, lend: 3, members: [rob], gang_max: 3, waiting_max: 2}, guests: {gpus: 3}}}"
)


@pytest.mark.parametrize("half_life", ["0", "6"])
@pytest.mark.parametrize("restart_every", [0, 20])
def test_a_day_of_tenants_is_decided_as_in_the_simulation(service, half_life, restart_every):
    live = service("local-fcfs", "jobs.gpus_cap=3", QUOTAS.replace("HALF", half_life))
    live.play(restart_every)
    outcome = run(live.environment, make_scheduler("local-fcfs"))
    rows = live.store.read("SELECT * FROM jobs ORDER BY arrival_s, id")
    found = [np.nan if row["start_s"] is None else row["start_s"] for row in rows]
    np.testing.assert_array_equal(found, outcome.job_J["start_s"])
    free = replace(live.environment, tenants=None, tenant_J=None)
    start_s_J = run(free, make_scheduler("local-fcfs")).job_J["start_s"]
    assert not np.array_equal(start_s_J, outcome.job_J["start_s"], equal_nan=True)


BUDGETS = (
    "tenants={default: guests, of: {blue: {gpus: 16, members: [ann], budget: {usd: 0.03, period: PERIOD}}, "
    "red: {gpus: 16, members: [rob], budget: {kwh: 0.4, kg: 0.2, period: day}}, guests: {gpus: 16}}}"
)


@pytest.mark.parametrize("restart_every", [0, 15])
@pytest.mark.parametrize(("policy", "protocol"), [("local-fcfs", "each-slot"), ("dp-max-clock", "on-arrival")])
def test_a_day_under_budgets_is_decided_as_in_the_simulation(service, policy, protocol, restart_every):
    live = service(policy, f"protocol={protocol}", BUDGETS.replace("PERIOD", "window"))
    live.play(restart_every)
    outcome = run(live.environment, make_scheduler(policy))
    rows = live.store.read("SELECT * FROM jobs ORDER BY arrival_s, id")
    found = [np.nan if row["start_s"] is None else row["start_s"] for row in rows]
    np.testing.assert_array_equal(found, outcome.job_J["start_s"])
    free = replace(live.environment, tenants=None, tenant_J=None)
    start_s_J = run(free, make_scheduler(policy)).job_J["start_s"]
    assert not np.array_equal(start_s_J, outcome.job_J["start_s"], equal_nan=True)
    shown = {one.name: one for one in tenants_shown(live.store, live.controller.world, live.environment.tenants)}
    jobs = job_table(outcome).with_columns(tenant=live.environment.tenant_J)
    spent = shown["blue"].budget[0]
    assert spent.due == pytest.approx(0.0, abs=1e-12)
    assert spent.spent == pytest.approx(jobs.filter(jobs["tenant"] == 0)["energy_usd"].sum())


@pytest.mark.parametrize("restart_every", [0, 15])
@pytest.mark.parametrize(("policy", "protocol"), [("local-fcfs", "each-slot"), ("dp-max-clock", "on-arrival")])
def test_a_day_of_priorities_is_decided_as_in_the_simulation(service, policy, protocol, restart_every):
    sites = "fleet.sites.0.gpus=2", "fleet.sites.1.gpus=2", "jobs.gpus_cap=2", "jobs.count=90"
    live = service(policy, f"protocol={protocol}", "priorities={}", *sites)
    priority_J = np.arange(len(live.environment.jobs)) % 4
    live.environment = replace(live.environment, priority_J=priority_J)
    live.play(restart_every)
    outcome = run(live.environment, make_scheduler(policy))
    rows = live.store.read("SELECT * FROM jobs ORDER BY arrival_s, id")
    found = [np.nan if row["start_s"] is None else row["start_s"] for row in rows]
    np.testing.assert_array_equal(found, outcome.job_J["start_s"])
    free = replace(live.environment, priorities=None, priority_J=None)
    start_s_J = run(free, make_scheduler(policy)).job_J["start_s"]
    assert not np.array_equal(start_s_J, outcome.job_J["start_s"], equal_nan=True)


def test_priorities_are_those_of_the_class_or_the_job_and_a_tenant_may_use_some(service, tmp_path, monkeypatch):
    limits = "tenants={default: guests, of: {blue: {gpus: 16, members: [ann]}, guests: {gpus: 16, priority_max: 10}}}"
    live = service("local-fcfs", "priorities={fine-tuning: 3}", limits)
    with local_client(live) as http:
        tokens = {name: make_token(live.store, name, "submit") for name in ("ann", "rob")}

        def ask(who, content):
            return http.post("/v1/jobs", json=content, headers={"Authorization": f"Bearer {tokens[who]}"})

        assert ask("ann", {**JOB, "priority": 100}).status_code == 201
        assert ask("rob", {**JOB, "priority": 10}).status_code == 201
        assert ask("rob", JOB).status_code == 201
        said = refusal(ask("rob", {**JOB, "priority": 11}))
        assert "has priority 11; tenant 'guests' may use priorities up to 10 (priority_max)" in said
        assert ask("ann", {**JOB, "priority": 101}).status_code == 422
        assert [row["priority"] for row in live.store.read("SELECT priority FROM jobs ORDER BY id")] == [100, 10, 3]

        def pass_on(request):
            headers = {"Authorization": f"Bearer {tokens['ann']}", "Content-Type": "application/json"}
            answer = http.request(request.method, request.url.path, content=request.content, headers=headers)
            return httpx.Response(answer.status_code, content=answer.content)

        transport = httpx.MockTransport(pass_on)
        monkeypatch.setattr(
            live_client, "open_client", lambda address: Client("http://localhost:8470", transport=transport)
        )
        asked = ["submit", "true", "--work", "60", "--origin", "north", "--priority", "42"]
        assert CliRunner().invoke(app, asked).exit_code == 0
        assert ask_job(http, tokens["ann"], 4)["priority"] == 42
    plain = service("local-fcfs")
    with pytest.raises(DataError, match="states no priorities"):
        plain.checker.row(request_of({**JOB, "priority": 1}))


def ask_job(http, token, number):
    return http.get(f"/v1/jobs/{number}", headers={"Authorization": f"Bearer {token}"}).json()


def test_a_budget_is_shown_refuses_and_is_why_a_job_waits(service, monkeypatch):
    budgets = BUDGETS.replace("usd: 0.03, period: PERIOD", "kwh: 0.001, period: day, at_limit: refuse")
    live = service("local-fcfs", budgets.replace("kwh: 0.4, kg: 0.2", "kwh: 0.001"))
    with local_client(live) as http:
        tokens = {name: make_token(live.store, name, "submit") for name in ("ann", "rob")}

        def ask(who, method, path, content=None):
            return http.request(method, path, json=content, headers={"Authorization": f"Bearer {tokens[who]}"})

        for who in tokens:
            assert ask(who, "POST", "/v1/jobs", [JOB, JOB]).status_code == 201
        live.set_time(60.0)
        live.steps()
        said = refusal(ask("ann", "POST", "/v1/jobs", JOB))
        assert re.search(r"the budget of tenant 'blue' is used up: 0\.00 kWh spent and [\d.]+ due of 0\.00", said)
        assert "(at_limit: refuse); the period ends on 20" in said
        assert ask("rob", "POST", "/v1/jobs", JOB).status_code == 201
        assert why(live.controller, 4).waits_for.startswith("the next period of the budget of tenant 'red': ")
        shown = {one["name"]: one["budget"] for one in ask("rob", "GET", "/v1/tenants").json()}
        assert [(one["unit"], one["most"], one["at_limit"]) for one in shown["blue"]] == [("kWh", 0.001, "refuse")]
        assert shown["guests"] == []

        def pass_on(request):
            return httpx.Response(200, content=ask("rob", "GET", request.url.path).content)

        transport = httpx.MockTransport(pass_on)
        monkeypatch.setattr(
            live_client, "open_client", lambda address: Client("http://localhost:8470", transport=transport)
        )
        answer = CliRunner().invoke(app, ["status"])
    assert re.search(
        r"budget until \d{4}-\d\d-\d\d 00:00 UTC: 0\.00 kWh spent and .* due of 0\.00; used up", answer.output
    )


@pytest.fixture
def tenants_live(service):
    return service("local-fcfs", "jobs.gpus_cap=3", QUOTAS.replace("HALF", "0"))


@pytest.fixture
def ask(tenants_live):
    """Asks the service as a holder of a token."""
    tokens = {
        name: make_token(tenants_live.store, name, "admin" if name == "root" else "submit")
        for name in ("ann", "rob", "new", "root")
    }
    client = TestClient(make_app(tenants_live.controller), client=PEER, base_url="http://127.0.0.1")
    return lambda who, method, path, content=None: client.request(
        method, path, json=content, headers={"Authorization": f"Bearer {tokens[who]}"}
    )


def refusal(answer):
    assert answer.status_code == 422
    return answer.json()["message"]


def test_a_submission_beyond_a_limit_says_what_where_and_what_is_allowed(ask, tenants_live):
    said = refusal(ask("rob", "POST", "/v1/jobs", {**JOB, "gpus_max": 4}))
    assert "gang of up to 4 GPUs; tenant 'red' may submit gangs of up to 3 (gang_max)" in said
    said = refusal(ask("new", "POST", "/v1/jobs", {**JOB, "gpus_min": 4}))
    assert "needs 4 GPUs at once; tenant 'guests' may hold at most 3" in said
    said = refusal(ask("rob", "POST", "/v1/jobs", [JOB] * 3))
    assert "tenant 'red' has 0 jobs waiting and may have 2 (waiting_max); these 3 would be too many" in said
    assert tenants_live.store.read("SELECT count(*) AS n FROM jobs")[0]["n"] == 0
    assert ask("rob", "POST", "/v1/jobs", [{**JOB, "key": "one"}, JOB]).status_code == 201
    assert "has 2 jobs waiting" in refusal(ask("rob", "POST", "/v1/jobs", JOB))
    assert ask("ann", "POST", "/v1/jobs", [JOB] * 5).status_code == 201  # another tenant's are not counted
    tenants_live.set_time(60.0)
    tenants_live.steps()
    assert ask("rob", "POST", "/v1/jobs", JOB).status_code == 201  # the first two have been started


def test_tenants_are_shown_with_what_they_hold_and_why_a_job_waits_for_its_quota(ask, tenants_live):
    big = {**JOB, "gpus_min": 3, "gpus_max": 3}
    assert ask("new", "POST", "/v1/jobs", [big, big]).status_code == 201
    assert ask("ann", "POST", "/v1/jobs", {**JOB, "gpus_min": 6, "gpus_max": 6, "origin": "south"}).status_code == 201
    tenants_live.set_time(60.0)
    tenants_live.steps()
    shown = {one["name"]: one for one in ask("rob", "GET", "/v1/tenants").json()}
    held = {name: (one["gpus"], one["most"], one["used"], one["waiting"]) for name, one in shown.items()}
    assert held == {"blue": (4, 6, 6, 0), "red": (4, 8, 0, 0), "guests": (3, 3, 3, 1)}
    assert shown["red"]["waiting_max"] == 2
    waits = why(tenants_live.controller, 2)
    assert waits.waits_for == "the quota of tenant 'guests': it may take 0 more GPUs now"


def test_status_shows_what_tenants_hold(tenants_live, monkeypatch):
    with local_client(tenants_live) as inner:

        def pass_on(request):
            return httpx.Response(200, content=inner.get(request.url.path).content)

        transport = httpx.MockTransport(pass_on)
        monkeypatch.setattr(
            live_client, "open_client", lambda address: Client("http://localhost:8470", transport=transport)
        )
        answer = CliRunner().invoke(app, ["status"])
    assert answer.exception is None
    assert re.search(r"tenant: blue holds 0 of 4, with loans 6 GPUs, 0\.0 on average; 0 jobs waiting", answer.output)
    assert "tenant: guests holds 0 of 3 GPUs" in answer.output


def test_a_service_needs_a_tenant_for_holders_that_none_names():
    with pytest.raises(ScenarioError, match=r"without tenants\.default"):
        require_default(load_scenario("tiny", ["tenants={of: {blue: {gpus: 4}}}"]))

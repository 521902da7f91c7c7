"""The interface against its own description: whatever is sent, no defect and no status that is not described."""

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient

from noonward.live.api.app import make_app
from noonward.live.api.openapi import document
from noonward.live.tokens import make_token

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed (extra dev)")


OPERATIONS = [(path, method) for path, methods in document()["paths"].items() for method in methods]


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[f"{method} {path}" for path, method in OPERATIONS])
def test_whatever_is_sent_is_answered_as_described(service, path, method):
    live = service("local-fcfs")
    live.submit(*(live.request(j) for j in range(3)))
    live.set_time(3600.0)
    live.steps()
    described = schemathesis.openapi.from_asgi("/openapi.json", make_app(live.controller))
    checks = schemathesis.checks
    held = [
        checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
        checks.response_schema_conformance,
    ]  # fmt: skip

    @settings(
        max_examples=25, deadline=None, derandomize=True, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )  # fmt: skip
    @given(case=described[path][method].as_strategy())
    def ask(case):
        case.call_and_validate(headers={"Host": "localhost:8470"}, checks=held)

    ask()


def test_without_a_token_or_its_scope_nothing_is_answered(service):
    live = service("local-fcfs")
    token = make_token(live.store, "reader", "read")
    with TestClient(make_app(live.controller), base_url="http://noonward.example") as client:
        page = client.get("/openapi.json").json()
        for path, methods in page["paths"].items():
            at = path.replace("{job}", "1").replace("{site}", "north")
            for method in methods:
                for headers, status in (({}, 401), ({"Authorization": f"Bearer {token}"}, 403)):
                    if method == "get" and status == 403:
                        continue
                    answer = client.request(method, at, headers=headers, json={})
                    assert answer.status_code == status, f"{method} {path}"
                    assert set(answer.json()) == {"code", "message"}

"""The interface against its own description: whatever is sent, no defect and no status that is not described."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from noonward.live.api.app import make_app
from noonward.live.api.openapi import document
from noonward.live.requests import JobRequest
from noonward.live.tokens import make_token

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed (extra dev)")


pytestmark = pytest.mark.slow
OPERATIONS = [(path, method) for path, methods in document()["paths"].items() for method in methods]


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[f"{method} {path}" for path, method in OPERATIONS])
def test_whatever_is_sent_is_answered_as_described(service, path, method):
    live = service("local-fcfs")
    jobs = [JobRequest(name="a", work=work, origin="north", gpus_min=8) for work in (30.0, 6000.0, 60.0, 60.0, 60.0)]
    live.submit(*jobs)
    for time_s in (60.0, 120.0, 180.0):  # one job is done, one runs, the others wait
        live.set_time(time_s)
        live.steps()
        live.steps()
    token = make_token(live.store, "tester", "admin")
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
    @given(
        case=described[path][method].as_strategy(),
        job=st.one_of(st.none(), st.integers(0, 7)),
        site=st.one_of(st.none(), st.sampled_from(("north", "south"))),
    )
    def ask(case, job, site):
        known = {"job": job, "site": site}
        given = {name: value if known[name] is None else known[name] for name, value in case.path_parameters.items()}
        case.path_parameters = given
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=held)

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

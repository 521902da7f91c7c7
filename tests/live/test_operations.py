"""What an operator sees: figures, alerts, logs with ids of requests, and the example files that use them."""

import functools
import io
import json
import logging
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
import yaml
from starlette.testclient import TestClient

from live.callers import JOB, PEER, local_client
from noonward.cli.main import app
from noonward.live.api.app import make_app
from noonward.live.api.handlers import Api
from noonward.live.config import LiveConfig
from noonward.live.executors import kubernetes
from noonward.live.logs import ACCESS, REQUEST, JsonLines, TextLines, configure_logs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "live"
CHART = EXAMPLES / "helm"


def figure(http, name):
    """Returns the values of a figure by their labels."""
    found = re.findall(rf"^{name}((?:\{{.*\}})?) (\S+)$", http.get("/metrics").text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


# Figures.


def test_jobs_that_end_are_counted_from_the_start_of_the_service(live, http):
    http.post("/v1/jobs", json=[JOB, {**JOB, "origin": "south"}, JOB])
    http.post("/v1/jobs/3/cancel")
    live.set_time(60.0)
    live.steps()
    live.set_time(700.0)
    live.steps()
    ended = {'{state="done"}': 2, '{state="cancelled"}': 1, '{state="failed"}': 0, '{state="overdue"}': 0}
    assert figure(http, "noonward_jobs_ended_total").items() >= ended.items()
    assert figure(http, "noonward_jobs_ended_total").items() >= ended.items()  # each event is counted once
    with local_client(live) as later:
        assert set(figure(later, "noonward_jobs_ended_total").values()) == {0.0}


def test_a_hand_over_that_waits_has_an_age(live, http):
    http.patch("/v1/sites/north", json={"dispatch": False})
    http.post("/v1/jobs", json=JOB)
    live.set_time(60.0)
    live.steps()
    live.set_time(360.0)
    live.steps()
    assert figure(http, "noonward_site_handover_waiting") == {'{site="north"}': 1, '{site="south"}': 0}
    assert figure(http, "noonward_site_handover_oldest_seconds") == {'{site="north"}': 300, '{site="south"}': 0}
    assert figure(http, "noonward_site_dispatch") == {'{site="north"}': 0, '{site="south"}': 1}


def test_requests_are_counted_by_route_and_status(http):
    http.post("/v1/jobs", json=JOB)
    http.post("/v1/jobs", json={})
    http.get("/v1/jobs/1")
    http.get("/v1/jobs/9")
    http.get("/nothing/at/all")
    http.request("BREW", "/v1/jobs")
    assert figure(http, "noonward_http_requests_total") == {
        '{method="GET",route="/v1/jobs/{job}",status="200"}': 1,
        '{method="GET",route="/v1/jobs/{job}",status="404"}': 1,
        '{method="GET",route="other",status="404"}': 1,
        '{method="POST",route="/v1/jobs",status="201"}': 1,
        '{method="POST",route="/v1/jobs",status="422"}': 1,
        '{method="other",route="/v1/jobs",status="405"}': 1,
    }
    assert figure(http, "noonward_http_request_seconds_count")['{route="/v1/jobs/{job}"}'] == 2
    buckets = figure(http, "noonward_http_request_seconds_bucket")
    assert buckets['{route="/v1/jobs/{job}",le="+Inf"}'] == 2


def test_the_page_names_every_figure_and_alerts_use_such_alone(service):
    live = service("local-fcfs", "fleet.sites.0.meter={interval_min: 5}", live={"events": {}})
    live.controller.run()
    live.controller.stop()
    with local_client(live) as http:
        http.post("/v1/jobs", json=JOB)
        http.post("/v1/grid-events", json={"site": "north", "cut": 0.25, "baseline_kw": 1.0})
        live.set_time(60.0)
        live.steps()
        known = set(re.findall(r"^# TYPE (\S+)", http.get("/metrics").text, re.MULTILINE))
    page = (ROOT / "docs" / "live-operations.md").read_text()
    table = page.split("## Figures and alerts")[1].split("| alert |")[0]
    assert set(re.findall(r"`(noonward_\w+)", table)) == known
    rules = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"][0]["rules"]
    used = {name for rule in rules for name in re.findall(r"noonward_\w+", rule["expr"])}
    assert used <= known
    assert [rule["alert"] for rule in rules] == re.findall(r"^\| `(Noonward\w+)`", page, re.MULTILINE)
    assert all(rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"] for rule in rules)


# Logs.


@pytest.fixture
def logged():
    """Collects what is logged, as lines of JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    loggers = [logging.getLogger("noonward.live"), ACCESS]
    levels = [each.level for each in loggers]
    loggers[0].addHandler(handler)
    for each in loggers:
        each.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    loggers[0].removeHandler(handler)
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


def test_every_answer_has_the_id_of_its_request_and_so_has_its_line(http, logged):
    given = http.post("/v1/jobs", json=JOB, headers={"X-Request-Id": "deploy-7"})
    assert given.headers["x-request-id"] == "deploy-7"
    odd = http.get("/v1/jobs/9", headers={"X-Request-Id": "a b\tc"})
    assert re.fullmatch("[0-9a-f]{16}", odd.headers["x-request-id"])
    lines = logged()
    assert [(line["request"], line["method"], line["path"], line["status"]) for line in lines] == [
        ("deploy-7", "POST", "/v1/jobs", 201),
        (odd.headers["x-request-id"], "GET", "/v1/jobs/9", 404),
    ]
    assert lines[0]["who"] == "loopback"
    assert lines[0]["duration_ms"] > 0
    assert REQUEST.get() == ""


def test_browsers_are_told_to_stay_with_tls_where_there_is_tls(live):
    with local_client(live) as plain:
        assert "strict-transport-security" not in plain.get("/healthz").headers
    with TestClient(make_app(live.controller), base_url="https://localhost:8470", client=PEER) as secure:
        assert secure.get("/healthz").headers["strict-transport-security"] == "max-age=31536000"


def test_a_defect_is_logged_under_the_id_that_its_sender_is_told(live, logged, monkeypatch):
    def broken(self):
        raise ZeroDivisionError("here")

    monkeypatch.setattr(Api, "site_list", broken)
    with local_client(live) as http:
        answer = http.get("/v1/sites", headers={"X-Request-Id": "mine"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "mine")
    assert answer.json()["message"].endswith("its log says more of mine")
    line = next(line for line in logged() if line["level"] == "error")
    assert line["request"] == "mine"
    assert "ZeroDivisionError: here" in line["traceback"]


def test_lines_of_text_have_time_level_and_request():
    record = logging.LogRecord("noonward.live", logging.WARNING, "", 0, "site %s: away", ("north",), None)
    record.threadName, record.created = "site north", 0.0
    assert TextLines().format(record) == "1970-01-01T00:00:00.000Z warning site north: site north: away"
    token = REQUEST.set("r1")
    assert TextLines().format(record).endswith("away [request r1]")
    REQUEST.reset(token)


@pytest.mark.parametrize(("requests", "level"), [(True, logging.INFO), (False, logging.ERROR)])
def test_a_line_per_request_is_asked_for(monkeypatch, requests, level):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    before = root.level, ACCESS.level
    configure_logs("json", "warning", requests=requests)
    assert isinstance(root.handlers[0].formatter, JsonLines)
    assert (root.level, ACCESS.level) == (logging.WARNING, level)
    root.setLevel(before[0])
    ACCESS.setLevel(before[1])


# The chart.


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed here")
def test_helm_takes_the_chart():
    done = subprocess.run(["helm", "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = subprocess.run(["helm", "template", "n", str(CHART)], capture_output=True, text=True, check=True).stdout
    assert {each["kind"] for each in yaml.safe_load_all(made)} >= {"StatefulSet", "Service", "ConfigMap", "Role"}


def rendered(template, values):
    """What the chart makes, as far as plain values and conditions say it: pipes and loops stand as words."""
    found, keeps = [], [True]
    for line in template.splitlines():
        tag = re.search(r"\{\{-? *(if|with|range|end)\b(.*?)\}\}", line)
        if tag and tag[1] == "end":
            keeps.pop()
        elif tag:
            used = re.findall(r"\.Values\.([\w.]+)", tag[2])
            told = any(functools.reduce(lambda of, name: of[name], path.split("."), values) for path in used)
            keeps.append(keeps[-1] and told)
        elif all(keeps) and not line.strip().startswith("{{"):
            found.append(re.sub(r"\{\{.*?\}\}", "x", line))
    assert keeps == [True]
    return [each for each in yaml.safe_load_all("\n".join(found)) if each]


def test_the_chart_uses_values_that_there_are_and_settings_that_the_service_takes():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    template = (CHART / "templates" / "all.yaml").read_text()
    for path in set(re.findall(r"\.Values\.([\w.]+)", template)):
        found = values
        for name in path.split("."):
            assert name in found, path
            found = found[name]
    unused = set(values) - {path.split(".")[0] for path in re.findall(r"\.Values\.([\w.]+)", template)}
    assert unused == set()
    assert set(values["config"]) <= set(LiveConfig.model_fields)
    of_command = re.search(
        r"^          command:\n(.*?)^          \{\{- if .Values.databaseSecret", template, re.DOTALL | re.M
    )
    words = [line.strip()[2:] for line in of_command[1].splitlines() if line.strip().startswith("- ")]
    assert words[0] == "noonward"
    assert "--shadow" in words
    command = typer.main.get_command(app).commands[words[1]]
    command.make_context("noonward", words[2:])  # every word is one that it takes
    assert values["service"]["port"] == LiveConfig.model_fields["port"].default
    made = rendered(template, values | {"impersonates": ["oidc:ann"]})
    kinds = {each["kind"] for each in made}
    assert kinds >= {"StatefulSet", "Service", "ConfigMap", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    allowed = {
        (group, resource): set(rule["verbs"])
        for each in made
        for rule in each.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    asked = (*kubernetes._JOBS, *kubernetes._SETS, kubernetes._KUEUE, "workloads")
    groups = [(asked[n].removeprefix("apis/").split("/")[0], asked[n + 1]) for n in range(0, len(asked), 2)]
    for each in groups[:2]:
        assert allowed[each] == {"get", "list", "create", "patch", "delete"}
    assert allowed[groups[2]] == {"list", "patch"}
    assert allowed["", "nodes"] == allowed["", "pods"] == {"list"}
    assert allowed["", "users"] == {"impersonate"}
    assert template.count("{{- if") + template.count("{{- with") + template.count("{{- range") == template.count(
        "{{- end }}"
    )

"""The webhook: which jobs are told, once each over restarts, again where a request was not taken."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import ValidationError

from noonward.live import webhook
from noonward.live.config import LiveConfig, WebhookConfig
from noonward.live.grid.sources import SourceError
from noonward.live.operator import cancel_job
from noonward.live.requests import JobRequest

HOUR_S = 3600.0


class Hook:
    """Takes posts, or answers with a status that is no success."""

    def __init__(self):
        hook, self.posts, self.headers, self.status = self, [], [], 204

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if hook.status < 300:
                    hook.posts.append(body)
                    hook.headers.append(dict(self.headers))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}/jobs"

    @property
    def told(self):
        """All jobs that were told: (number, state)."""
        return [(job["id"], job["state"]) for post in self.posts for job in post["jobs"]]

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def hook():
    with contextlib.closing(Hook()) as made:
        yield made


def one(name, **given):
    return JobRequest(**{"name": name, "work": 600.0, "origin": "north", "gpus_min": 1, "gpus_max": 1, **given})


def to(live, until_s):
    while live.clock.seconds < until_s:
        live.set_time(live.clock.seconds + 300.0)
        live.steps()


ALL = ["done", "failed", "cancelled", "overdue", "lost"]


def test_jobs_that_ended_are_told_once_also_after_a_restart(service, hook, tmp_path):
    token = tmp_path / "token"
    token.write_text("sesame\n")
    live = service("local-fcfs", live={"webhook": {"url": hook.url, "states": ALL, "token_file": token}})
    (first,) = live.submit(one("a"))
    (second,) = live.submit(one("b"))
    cancel_job(live.controller, second, "me")
    to(live, HOUR_S)
    live.controller.webhook.step()
    assert sorted(hook.told) == [(first, "done"), (second, "cancelled")]
    (told,) = [job for post in hook.posts for job in post["jobs"] if job["id"] == first]
    row = live.store.read("SELECT * FROM jobs WHERE id = ?", first)[0]
    assert told == {
        "id": first, "name": "a", "owner": row["owner"], "site": "north", "gpus": 1, "exit_code": row["exit_code"],
        "reason": row["reason"], "state": "done", "submitted": live.controller.time_of(row["submitted_s"]),
        "started": live.controller.time_of(row["began_s"]), "ended": live.controller.time_of(row["ended_s"]),
    }  # fmt: skip
    assert hook.posts[0]["service"] == live.controller.service.name
    assert hook.headers[0]["Authorization"] == "Bearer sesame"
    live.restart()
    live.controller.webhook.step()
    assert len(hook.told) == 2
    (third,) = live.submit(one("c"))
    to(live, 2 * HOUR_S)
    live.controller.webhook.step()
    assert hook.told[2:] == [(third, "done")]


def test_what_is_not_taken_is_told_again_after_a_pause(service, hook):
    live = service("local-fcfs", live={"webhook": {"url": hook.url, "states": ["done"]}})
    (job,) = live.submit(one("a"))
    to(live, HOUR_S)
    hook.status = 503
    with pytest.raises(SourceError, match="status 503"):
        live.controller.webhook.step()
    hook.status = 200
    with pytest.raises(SourceError, match="asked again in"):
        live.controller.webhook.step()
    live.restart()
    live.controller.webhook.step()
    assert hook.told == [(job, "done")]


def test_only_the_ends_that_are_named_are_told_many_in_parts(service, hook, monkeypatch):
    monkeypatch.setattr(webhook, "MOST", 2)
    monkeypatch.setattr(webhook, "KEPT_EVERY", 1)
    live = service("local-fcfs", live={"webhook": {"url": hook.url}})
    for n in range(8):  # fill the site for two hours
        live.submit(one(f"a{n}", work=2 * HOUR_S))
    late = [live.submit(one(f"b{n}", max_delay_s=600.0))[0] for n in range(5)]
    to(live, 4 * HOUR_S)
    live.controller.webhook.step()
    assert hook.told == [(job, "overdue") for job in late]
    assert [len(post["jobs"]) for post in hook.posts] == [2, 2, 1]
    last = live.store.read("SELECT MAX(id) AS last FROM events")[0]["last"]
    assert live.store.value(webhook.TOLD) == last


def test_what_ended_before_there_was_a_webhook_is_not_told(service, hook):
    live = service("local-fcfs")
    live.submit(one("a"))
    to(live, HOUR_S)
    made = webhook.Webhook(
        WebhookConfig(url=hook.url, states=ALL),
        live.store, "here", live.controller.time_of,
    )  # fmt: skip
    made.step()
    assert hook.posts == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "ftp://here"}, "url"),
        ({"url": "https://here", "states": []}, "states"),
        ({"url": "https://here", "states": ["running"]}, "states"),
        ({"url": "http://here", "token_file": "t"}, "a token is sent over HTTPS alone"),
    ],
)
def test_wrong_settings_are_refused(given, words):
    with pytest.raises(ValidationError, match=words):
        LiveConfig(scenario="tiny", policy="local-fcfs", sites={}, webhook=given)

"""The interface over HTTP: images as OpenAI's clients ask for them, cancel, health, metrics, tokens, strange bodies."""

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from starlette.testclient import TestClient

from live.edge.fakes import MODELS, PART, opened, setting
from noonward.live.api.guard import MOST_BYTES
from noonward.live.edge.controller import Controller
from noonward.live.edge.orders import Beat, Facts, Limits, Part
from noonward.live.edge.plan import Plan
from noonward.live.edge.service import Service
from noonward.live.edge.web import WebServer
from noonward.live.tokens import make_token, revoke_token
from noonward.schedule.edge.rules import FirstFit


def headers(token):
    """Returns what a client with a token sends."""
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


class QuickWorkers:
    """Answers every call at once, with the order as the image; draws nothing while ``held``, until it is left."""

    def __init__(self, post):
        self.post, self.held, self.drawing, self.orders = post, False, {}, []

    def start(self, n, reply):
        self.post(lambda: reply(Facts(pid=100 + n, host="127.0.0.1", node="here", device="cpu")))

    def call(self, n, name, *given, reply):
        if name == "generate":
            self.orders.append(given[0])
            if self.held:
                self.drawing[n] = reply
                return
        if name == "leave" and n in self.drawing:
            left = self.drawing.pop(n)
            self.post(lambda: left(RuntimeError("stopped")))
        answers = {
            "load": lambda: 0.0,
            "meet": lambda: ("127.0.0.1", 5),
            "generate": lambda: Part(
                **{**vars(PART), "pngs": tuple(p.prompt.encode() for p in given[0].pictures) if given[1] == 0 else ()}
            ),
            "beat": lambda: Beat(attempt=0, step=0, rss_mb=1, descriptors=1, groups=0, model=""),
            "leave": lambda: None,
        }
        self.post(lambda: reply(answers[name]()))

    def kill(self, n):
        pass

    def cpu_s(self, n):
        return None

    def outage(self):
        return None

    def restart(self, reply):
        pass

    def close(self):
        pass


class Running:
    """A service with quick workers, whose turns a thread takes."""

    def __init__(self, folder):
        def make(post, store, clock, start):
            self.workers = QuickWorkers(post)
            plan = Plan(setting=setting(), models=MODELS, limits=Limits())
            return Controller(plan, FirstFit(), self.workers, store, clock, start, np.random.default_rng(0))

        self.store = opened(folder)
        self.tokens = {scope: make_token(self.store, scope, scope) for scope in ("read", "submit", "admin")}
        self.service = Service(folder, self.store, make)
        self.web = WebServer(self.store, folder, self.service._answer, self.service.watch)
        self.ended = False
        self.thread = threading.Thread(target=self.turns, daemon=True)
        self.thread.start()

    def turns(self):
        while not self.ended:
            self.service._turn()

    def close(self):
        self.ended = True
        self.service._inbox.put(lambda: None)
        self.thread.join()
        self.web.shutdown()

    def states(self):
        return [task.state for task in self.service.controller.tasks.values()]


@pytest.fixture
def running(tmp_path):
    """A service that is ready."""
    found = Running(tmp_path)
    yield found
    found.close()


@pytest.fixture
def client(running):
    """A client that has the token."""
    with TestClient(running.web.app(), headers=headers(running.tokens["admin"])) as client:
        yield client


def until(condition):
    """Waits until something holds."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def asked(client, **content):
    """Asks for images."""
    return client.post("/v1/images/generations", json={"prompt": "a boat", **content})


def test_an_image_comes_as_openais_clients_expect_it(client):
    answer = asked(client, model="tiny", n=2, size="512x512", user="me", quality="hd", seed=7)
    assert answer.status_code == 200
    content = answer.json()
    assert [base64.b64decode(each["b64_json"]) for each in content["data"]] == [b"a boat", b"a boat"]
    assert [each["seed"] for each in content["data"]] == [7, 8]
    assert content["created"] > 1_600_000_000
    assert client.get("/v1/models").json()["data"][0] == {"id": "tiny", "object": "model", "owned_by": "local"}


def test_an_image_comes_as_an_address_that_opens_without_a_header(client):
    (image,) = asked(client, response_format="url").json()["data"]
    (second,) = asked(client, response_format="url").json()["data"]
    assert "nwt_" not in image["url"], "the address holds no token"
    with TestClient(client.app) as other:
        answer = other.get(image["url"])
        assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "image/png", b"a boat")
        key = image["url"].split("?")[1]
        assert other.get(f"/images/{second['id']}.png?{key}").status_code == 401, "it opens one image alone"
        assert other.get(f"/status?{key}").status_code == 401


def test_addresses_of_images_outlive_the_service(client, running, tmp_path):
    (image,) = asked(client, response_format="url").json()["data"]
    again = WebServer(running.store, tmp_path, running.service._answer, running.service.watch)
    with TestClient(again.app()) as other:
        assert other.get(image["url"]).content == b"a boat"
    again.shutdown()


def test_guidance_negative_prompt_size_and_steps_reach_the_workers(client, running):
    answer = asked(
        client, guidance=6, negative_prompt="fog", size="256x512", steps=9, gang=2, seed=3, response_format="b64_json"
    )
    assert answer.status_code == 200, answer.text
    order = running.workers.orders[0]
    assert (order.drawing.guidance, order.pictures[0].negative, order.sides_px) == (6.0, "fog", (256, 512))
    assert (order.steps, order.size, order.pictures[0].seed) == (9, 2, 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"prompt": None}, "the prompt is None; give a text"),
        ({"prompt": "x" * 4001}, "allowed: 4000"),
        ({"n": 11}, "n is 11; allowed: 1 to 10"),
        ({"n": True}, "Expected `int`, got `bool`"),
        ({"n": 0}, "allowed: 1 to 10"),
        ({"gang": 2.0}, "--gang is 2.0"),
        ({"gang": True}, "--gang is True"),
        ({"seed": "x"}, "--seed is 'x'"),
        ({"size": "1000x512"}, "width must be a multiple of 16"),
        ({"size": "512x528", "gang": 2}, "the height of 32"),
        ({"size": "4096x4096"}, "at most 1048576 pixels"),
        ({"size": "large"}, "give WIDTHxHEIGHT in pixels, such as 512x512"),
        ({"size": 512}, "Expected `str`, got `int`"),
        ({"response_format": "jpg"}, "Invalid enum value 'jpg'"),
        ({"guidance": 0.5}, "--guidance 0.5; allowed: 1"),
        ({"guidance": float("inf")}, "the body is not JSON"),
        ({"negative_prompt": "fog"}, "a negative prompt works by guidance"),
        ({"model": "dall-e-3"}, "--model 'dall-e-3' is not one of the service's"),
        ({"step": 3}, "unknown field 'step'; did you mean 'steps'"),
    ],
)
def test_wrong_requests_are_refused_in_openais_form(client, running, content, words):
    body = json.dumps({"prompt": "a boat", **content})
    answer = client.post("/v1/images/generations", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert words in answer.json()["error"]["message"]
    assert running.states() == []


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"prompt":' + b"[" * 100_000, b"[1]", b"null", b"\xff", b"", b'{"prompt": "\\ud800"}']
)
@pytest.mark.parametrize("path", ["/tasks", "/v1/images/generations"])
def test_strange_bodies_are_answered(client, path, body):
    answer = client.post(path, content=body)
    assert answer.status_code in ((400,) if path.startswith("/v1") else (400, 422))
    assert answer.json()["error" if path.startswith("/v1") else "message"]


@pytest.mark.parametrize(
    ("content", "words"), [({"prompt": "a", "owner": "b"}, "unknown field 'owner'"), ({}, "there is no prompt")]
)
def test_a_task_has_the_fields_that_are_listed_alone(client, content, words):
    answer = client.post("/tasks", json=content)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert words in answer.json()["message"]


def test_a_body_that_is_too_large_is_refused(client):
    assert client.post("/tasks", content=b"x", headers={"Content-Length": str(MOST_BYTES + 1)}).status_code == 413


def test_a_body_of_another_type_is_refused(client):
    answer = client.post("/v1/images/generations", content="{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415
    assert "send 'Content-Type: application/json'" in answer.json()["error"]["message"]


def test_the_page_is_shown_to_whoever_logs_in_and_allows_nothing_from_elsewhere(client, running):
    assert asked(client).status_code == 200
    with TestClient(running.web.app(), follow_redirects=False) as browser:
        assert browser.get("/").headers["location"] == "/login?next=/"
        assert browser.get("/images/image-000001.png").status_code == 401
        assert browser.post("/login", data={"token": running.tokens["read"]}).status_code == 303
        page = browser.get("/")
        assert "1 done" in page.text
        assert '<img src="/images/image-000001.png"' in page.text
        assert browser.get("/images/image-000001.png").content == b"a boat"
        assert browser.get("/static/style.css").status_code == 200
        word = page.text.split('name="word" value="')[1].split('"')[0]
        assert browser.post("/logout", data={"word": word}).status_code == 303
        assert browser.get("/images/image-000001.png").status_code == 401
    assert "style-src 'self'" in page.headers["content-security-policy"]
    assert (page.headers["x-frame-options"], page.headers["cache-control"]) == ("DENY", "no-store")


READ = ("/metrics", "/v1/models", "/status", "/tasks/image-000001", "/images/image-000001.png")


def test_all_but_health_needs_a_token(running):
    with TestClient(running.web.app()) as client:
        assert client.get("/health").status_code in (200, 503)
        for path in READ:
            assert client.get(path).status_code == 401
            assert client.get(path, headers=headers("wrong")).status_code == 401
        assert client.post("/stop").status_code == 401
        assert client.get("/nothing").status_code == 404
        revoke_token(running.store, "read")
        assert client.get("/status", headers=headers(running.tokens["read"])).status_code == 401


def test_a_token_allows_what_its_scope_says(running, client):
    assert asked(client).status_code == 200
    with TestClient(running.web.app()) as other:
        reader, user = headers(running.tokens["read"]), headers(running.tokens["submit"])
        assert [other.get(path, headers=reader).status_code for path in READ] == [200] * 5
        refused = other.post("/v1/images/generations", json={"prompt": "a boat"}, headers=reader)
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "invalid_request_error")
        assert other.post("/tasks", json={"prompt": "a boat"}, headers=reader).status_code == 403
        mine = other.post("/tasks", json={"prompt": "a boat"}, headers=user).json()
        assert mine["owner"] == "submit"
        assert other.delete(f"/tasks/{mine['id']}", headers=user).status_code == 200
        refused = other.delete("/tasks/image-000001", headers=user)
        assert (refused.status_code, refused.json()["code"]) == (403, "owner")
        assert other.post("/stop", headers=user).status_code == 403


def test_a_task_is_canceled_and_its_servers_are_free_again(client, running):
    running.workers.held = True
    runs, waits = (client.post("/tasks", json={"prompt": "a boat", "gang": 4}).json()["id"] for _ in range(2))
    until(lambda: len(running.workers.drawing) == 4)
    running.workers.held = False
    for name in (waits, runs):
        assert client.delete(f"/tasks/{name}").json()["reason"] == "it was canceled"
    assert asked(client, gang=4).status_code == 200
    assert client.delete(f"/tasks/{runs}").json()["state"] == "failed", "to cancel what has ended changes nothing"
    assert client.delete("/tasks/image-000009").status_code == 404


def test_a_request_whose_image_fails_says_why_and_leaves_nothing(client, running):
    running.workers.held = True
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(asked, client, n=2, gang=4)
        until(lambda: len(running.workers.drawing) == 4 and len(running.states()) == 2)
        running.workers.held = False  # before the second one is launched
        client.delete("/tasks/image-000001")
        refused = answer.result()
    assert (refused.status_code, refused.json()["error"]["type"]) == (500, "server_error")
    assert refused.json()["error"]["message"] == "image-000001: it was canceled"
    assert running.states() == ["failed", "done"]


def test_health_and_metrics(client):
    assert asked(client).status_code == 200
    assert client.get("/health").json() == {"status": "ok", "workers": 4, "ready": 4}
    text = client.get("/metrics").text
    assert 'noonward_edge_tasks{state="done"} 1\n' in text
    assert 'noonward_edge_workers{state="ready"} 4\n' in text
    assert "# TYPE noonward_edge_mean_response_seconds gauge\n" in text
    assert 'noonward_edge_http_requests_total{method="POST",route="/v1/images/generations",status="200"} 1\n' in text


def test_many_requests_at_once_are_each_answered_once(client, running):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: asked(client, seed=n, prompt=f"boat {n}"), range(40)))
    assert [answer.status_code for answer in answers] == [200] * 40
    drawn = [base64.b64decode(answer.json()["data"][0]["b64_json"]).decode() for answer in answers]
    assert drawn == [f"boat {n}" for n in range(40)]
    assert running.states() == ["done"] * 40


def test_a_client_that_goes_away_cancels_its_images(running):
    import http.client

    running.workers.held = True
    running.web.start()
    connection = http.client.HTTPConnection("127.0.0.1", running.web.port, timeout=60)
    connection.request(
        "POST", "/v1/images/generations", json.dumps({"prompt": "a boat"}), headers(running.tokens["submit"])
    )
    until(lambda: running.states() == ["running"])
    connection.close()
    until(lambda: running.states() == ["failed"])
    running.web.shutdown()

"""What one caller may take: requests, jobs, streams, computing and memory; others are answered all the while."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from live.callers import JOB, PEER
from noonward.live.api import guard, handlers
from noonward.live.api.app import make_app
from noonward.live.api.guard import Bodies, RefusedError, body_of
from noonward.live.api.handlers import Api
from noonward.live.api.rates import BURST_S, MOST_NAMES, Rate
from noonward.live.requests import JobRequest
from noonward.live.tokens import Holder, make_token


def limited(live, **limits):
    """Returns a client of a service with these limits, and the headers of two tokens."""
    setup = live.controller.setup
    live.controller.setup = replace(setup, config=setup.config.model_copy(update=limits))
    headers = [{"Authorization": f"Bearer {make_token(live.store, name, 'submit')}"} for name in ("ci", "other")]
    return TestClient(make_app(live.controller), base_url="http://example.org", client=PEER), *headers


def test_a_bucket_holds_ten_seconds_and_what_is_too_much_is_owed():
    at = [0.0]
    rate = Rate(3.0, lambda: at[0])
    assert [rate.take("a", 1.0) for _ in range(int(3 * BURST_S))] == [0.0] * 30
    at[0] = 100.0
    assert rate.take("a", 60.0) == 0.0  # more than it holds
    assert rate.take("a", 1.0) == pytest.approx(10.0)
    at[0] = 109.0
    assert rate.take("a", 1.0) == pytest.approx(1.0)
    at[0] = 110.5
    assert rate.take("a", 1.0) == 0.0
    assert Rate(None).take("a", 1e9) == 0.0


def test_buckets_of_callers_that_are_gone_are_forgotten():
    at = [0.0]
    rate = Rate(1.0, lambda: at[0])
    rate.take("heavy", 1e6)
    for n in range(MOST_NAMES):
        rate.take(str(n), 1.0)
    at[0] = 60.0
    rate.take("new", 1.0)
    assert len(rate._level) <= 3
    assert rate.take("heavy", 1.0) > 0.0  # what is owed is not


def test_a_token_that_asks_too_often_waits_and_another_does_not(live):
    client, ci, other = limited(live, requests_per_s=0.01)
    with client:
        assert client.get("/v1/jobs", headers=ci).status_code == 200
        refused = client.get("/v1/jobs", headers=ci)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate")
        assert 80 <= int(refused.headers["retry-after"]) <= 90
        assert "ci may make 0.01 requests per second on average (requests_per_s)" in refused.json()["message"]
        assert client.get("/v1/jobs", headers=other).status_code == 200
        assert client.get("/healthz").status_code == 200


def test_jobs_of_a_batch_and_tasks_of_an_array_count_each(live):
    client, ci, other = limited(live, jobs_per_s=0.1)
    with client:
        assert client.post("/v1/jobs", json={**JOB, "tasks": 50}, headers=ci).status_code == 201
        refused = client.post("/v1/jobs", json=JOB, headers=ci)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate")
        assert int(refused.headers["retry-after"]) > 400
        assert client.get("/v1/jobs/50", headers=ci).status_code == 200
        assert client.post("/v1/jobs", json=JOB, headers=other).status_code == 201
    assert live.store.read("SELECT count(*) AS n FROM jobs")[0]["n"] == 51


def test_streams_of_events_are_counted_by_token_and_refused_beyond_a_number(live, monkeypatch):
    live.submit(live_request())
    api = Api(live.controller)

    async def count():
        stream = api._counted(SimpleNamespace(is_disconnected=lambda: asyncio.sleep(0, False)), Holder("ci", "read"), 0)
        assert b"submitted" in await anext(stream)
        counts = [api._streams["ci"]]
        await stream.aclose()
        return [*counts, api._streams["ci"]]

    assert asyncio.run(count()) == [1, 0]
    monkeypatch.setattr(handlers, "MOST_STREAMS", 0)
    client, ci, _ = limited(live)
    with client:
        refused = client.get("/v1/events", headers={**ci, "Accept": "text/event-stream"})
        assert (refused.status_code, refused.json()["code"]) == (429, "streams")
        assert client.get("/v1/events", headers=ci).status_code == 200


def live_request():
    return JobRequest(name="a", work=600.0, origin="north")


def test_savings_of_many_spans_take_a_fifth_of_the_time_at_most(live, monkeypatch):
    at, computed = [1000.0], []

    def slow(controller, days):
        at[0] += 10.0
        computed.append(days)
        return SimpleNamespace(days=days)

    monkeypatch.setattr(handlers, "savings", slow)
    monkeypatch.setattr(handlers, "time", SimpleNamespace(monotonic=lambda: at[0]))
    api = Api(live.controller)

    async def settled(days):
        return (await api.settled(days)).days

    assert asyncio.run(settled(7)) == 7
    with pytest.raises(RefusedError, match="savings of 8 days can be computed in 40 s") as refused:
        asyncio.run(settled(8))
    assert (refused.value.status, refused.value.after_s) == (429, 40.0)
    at[0] += 40.0
    assert asyncio.run(settled(8)) == 8
    at[0] += handlers.SETTLED_S - 5.0  # those of 7 days are out of date
    assert asyncio.run(settled(9)) == 9
    assert asyncio.run(settled(7)) == 7
    assert computed == [7, 8, 9]


# Bodies.


def request_with(app, *parts):
    """Returns a request that sends some parts of a body, and no end."""
    left = list(parts)

    async def receive():
        if left:
            return {"type": "http.request", "body": left.pop(0), "more_body": True}
        return await asyncio.Event().wait()

    headers = [(b"content-type", b"application/json")]
    return Request({"type": "http", "app": app, "method": "POST", "path": "/", "headers": headers}, receive)


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch):
    monkeypatch.setattr(guard, "BODY_S", 0.001)
    app = Starlette()
    app.state.bodies = Bodies()
    with pytest.raises(RefusedError, match="did not arrive within") as refused:
        asyncio.run(body_of(request_with(app, b"[")))
    assert refused.value.status == 408
    assert app.state.bodies.bytes == 0


def test_bodies_that_arrive_together_take_so_much_memory_at_most():
    app = Starlette()
    bodies = app.state.bodies = Bodies(10)

    async def both():
        slow = asyncio.create_task(body_of(request_with(app, b"123456")))
        while bodies.bytes < 6:
            await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="many large bodies arrive at once") as refused:
            await body_of(request_with(app, b"1", b"2345"))
        held = bodies.bytes
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        return refused.value.status, held, bodies.bytes

    assert asyncio.run(both()) == (503, 6, 0)


def test_other_requests_have_their_turn_while_a_large_batch_is_checked(live):
    api = Api(live.controller)
    turns = []

    async def race():
        async def other():
            while True:
                turns.append(None)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        rows = await api._checked([live_request()] * 1000)
        task.cancel()
        return len(rows)

    assert asyncio.run(race()) == 1000
    assert len(turns) >= 4

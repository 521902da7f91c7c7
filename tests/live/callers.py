"""A job as it is submitted over HTTP, and a caller on the service's own machine."""

from starlette.testclient import TestClient

from noonward.live.api.app import make_app

JOB = {"name": "a", "command": "true", "work": 600.0, "origin": "north"}
PEER = ("127.0.0.1", 50000)


def local_client(live, **given):
    """Returns a client that calls a service from its own machine."""
    return TestClient(make_app(live.controller), base_url="http://localhost:8470", client=PEER, **given)

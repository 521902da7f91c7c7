"""Around every request: an id, a line in the log, and counts of requests by route, status and duration."""

from __future__ import annotations

import bisect
import logging
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noonward.live.api.exposition import Exposition, labels
from noonward.live.logs import HEADER, REQUEST, log_request, request_id

_log: Final = logging.getLogger("noonward.live")
_HEADER: Final = HEADER.encode()
BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the buckets of durations, s."""


ONLY_TLS: Final = (b"strict-transport-security", b"max-age=31536000")
"""Header of answers over TLS: browsers use TLS alone for this host from then on, for a year."""


class RequestCounts:
    """Requests that were answered, since the service started.

    Attributes:
        answered: Number by method, route and status.
        within: Number by route and bucket of ``BOUNDS_S``, the last one beyond all bounds.
        seconds: Durations together by route, s.
    """

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, int]] = Counter()
        self.within: dict[str, list[int]] = {}
        self.seconds: Counter[str] = Counter()

    def add(self, method: str, route: str, status: int, took_s: float) -> None:
        """Counts a request."""
        self.answered[method, route, status] += 1
        bucket = bisect.bisect_left(BOUNDS_S, took_s)
        self.within.setdefault(route, [0] * (len(BOUNDS_S) + 1))[bucket] += 1
        self.seconds[route] += took_s  # type: ignore[assignment]

    def show(self, lines: Exposition) -> None:
        """Adds the counts to figures for Prometheus."""
        answered = {
            labels(method=method, route=route, status=str(status)): count
            for (method, route, status), count in sorted(self.answered.items())
        }
        lines.add("http_requests_total", "counter", "Requests that were answered.", answered)
        buckets: dict[str, float] = {}
        for route, within in sorted(self.within.items()):
            total = 0
            for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], within, strict=True):
                total += count
                buckets["_bucket" + labels(route=route, le=bound)] = total
            buckets["_sum" + labels(route=route)] = self.seconds[route]
            buckets["_count" + labels(route=route)] = total
        lines.add("http_request_seconds", "histogram", "How long requests took.", buckets)


class Watched:
    """An application whose requests have ids, are logged and counted.

    Args:
        app: The application inside; the name of a caller's token is in ``scope["state"]["who"]`` once it is known.
        counts: Where requests are counted.
        routes: Path of the route of each endpoint.
    """

    def __init__(self, app: ASGIApp, counts: RequestCounts, routes: Mapping[object, str]) -> None:
        self._app, self._counts, self._routes = app, counts, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), None)
        name = request_id(None if given is None else given.decode("latin-1"))
        began, status = time.perf_counter(), 0
        token = REQUEST.set(name)

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(_HEADER, name.encode()), *([ONLY_TLS] if scope["scheme"] == "https" else [])]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        try:
            await self._app(scope, receive, marked)
        except Exception:
            # The application has answered with 500; here the line of the log still has the request's id.
            _log.exception("the service failed at %s %s", scope["method"], scope["path"])
            if not status:
                raise
        finally:
            route = self._routes.get(scope.get("endpoint"), "other")
            who = scope.get("state", {}).get("who", "")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._counts.add(method, route, status, time.perf_counter() - began)
            log_request(scope["method"], scope["path"], status, began, who)
            REQUEST.reset(token)


METHODS: Final = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS")
"""Methods that are counted by their names."""


def watched(app: Starlette, counts: RequestCounts) -> Watched:
    """Returns an application whose requests are counted by its routes.

    Args:
        app: The application.
        counts: Where requests are counted.
    """
    paths: dict[object, str] = {}
    for each in app.routes:
        if isinstance(each, Route):
            paths[each.endpoint] = each.path.replace(":job", "")
        elif isinstance(each, Mount):
            paths[each.app] = each.path
    return Watched(app, counts, paths)

"""HTTP on this machine: a free port of the loopback address, requests with the service's token alone."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from noonward.errors import NoonwardError

MOST_BYTES: Final = 1_000_000
"""Largest request."""

Answer = Callable[[str, dict[str, Any]], Any]
"""``(name, content) -> answer``: carries out a request; raises NoonwardError for a wrong one."""


class WebServer(ThreadingHTTPServer):
    """Serves ``GET /status``, ``GET /page``, ``GET /tasks/ID``, ``POST /tasks`` and ``POST /stop``.

    The token comes in the header ``Authorization: Bearer TOKEN``, for the page also as ``?token=TOKEN``.

    Args:
        token: Token of the service.
        answer: Who answers.
    """

    daemon_threads = True

    def __init__(self, token: str, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token, self.answer = token, answer


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    timeout = 60

    def do_GET(self) -> None:
        """Answers what only reads."""
        path = urlsplit(self.path).path
        if path == "/page":
            self._answer("page", {})
        elif path == "/status":
            self._answer("status", {})
        elif path.startswith("/tasks/"):
            self._answer("task", {"id": path.removeprefix("/tasks/")})
        else:
            self._send(404, {"error": f"there is no {path}"})

    def do_POST(self) -> None:
        """Answers what changes something."""
        name = {"/tasks": "submit", "/stop": "stop"}.get(urlsplit(self.path).path)
        if name is None:
            self._send(404, {"error": f"there is no {self.path}"})
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self._send(413, {"error": f"send a body of at most {MOST_BYTES} bytes"})
            return
        try:
            content = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            self._send(400, {"error": f"the body is no JSON: {error}"})
            return
        if not isinstance(content, dict):
            self._send(400, {"error": "the body is no JSON object"})
            return
        self._answer(name, content)

    def _answer(self, name: str, content: dict[str, Any]) -> None:
        """Has a request carried out and sends the answer."""
        if not self._is_ours():
            self._send(403, {"error": "the token is missing or wrong"})
            return
        try:
            answer = self.server.answer(name, content)
        except NoonwardError as error:
            self._send(400, {"error": str(error)})
        except (AttributeError, TypeError) as error:
            self._send(400, {"error": f"a field is missing, unknown or of the wrong type: {error}"})
        except Exception as error:
            self._send(500, {"error": repr(error)})
        else:
            self._send(200, answer)

    def _is_ours(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        given = given or parse_qs(urlsplit(self.path).query).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self.server.token.encode())

    def _send(self, code: int, answer: Any) -> None:
        html = isinstance(answer, str)
        body = answer.encode() if html else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8" if html else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: every task has a record."""

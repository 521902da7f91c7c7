"""A VTN of OpenADR 3.1 for tests, on the loopback: tokens, and events that are created, searched and deleted.

Run by itself (``python tests/data/vtn_server.py PORT CLIENT:SECRET``) it serves other clients; version 2.4 of
``openadr3-client`` creates and reads events at it.
"""

import base64
import json
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

MOST = 50


class VtnServer:
    """Serves until it is closed.

    Attributes:
        events: Event objects, in the order in which they were created.
        reports: Report objects that were posted.
        seen: Requests: method, path, query.
        secrets: Secret of each client; empty: anybody may ask.
        trouble: Body that it answers to every request, in place of what was asked for; None: nothing is wrong.
    """

    def __init__(self, secrets=None, port=0):
        self.events, self.reports, self.seen, self.trouble = [], [], [], None
        self.secrets, self.tokens = secrets or {}, set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do(self):
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                query = parse_qs(parts.query)
                server.seen.append((self.command, parts.path, query))
                status, said = server.answer(self.command, parts.path, query, body, self.headers)
                content = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/openadr3/3.1.0"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def wait(self):
        self._thread.join()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method, path, query, body, headers):
        """Returns status and content."""
        if self.trouble is not None:
            return 200, self.trouble
        path = path.removeprefix("/openadr3/3.1.0")
        if path == "/auth/server":
            return 200, {"tokenURL": f"{self.url}/auth/token"}
        if path == "/auth/token":
            return self.token({name: values[0] for name, values in parse_qs(body).items()}, headers)
        if self.secrets and headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return 403, {"title": "Forbidden", "status": 403}
        if path == "/events" and method == "POST":
            return 201, self.created(json.loads(body))
        if path == "/reports" and method == "POST":
            return self.reported(json.loads(body))
        if path == "/events":
            return self.searched(query)
        known = [each for each in self.events if path == f"/events/{each['id']}"]
        if not known:
            return 404, {"title": "Not Found", "status": 404}
        if method == "DELETE":
            self.events.remove(known[0])
        return 200, known[0]

    def token(self, form, headers):
        """Issues a token to a client that knows its secret, as the form or the header says (RFC 6749, 2.3.1)."""
        client, secret = form.get("client_id"), form.get("client_secret")
        if (basic := headers.get("Authorization", "")).startswith("Basic "):
            client, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
        known = client in self.secrets and self.secrets[client] == secret
        if form.get("grant_type") != "client_credentials" or not known:
            return 400, {"error": "invalid_client"}
        self.tokens.add(f"token-{len(self.tokens)}")
        return 200, {"access_token": f"token-{len(self.tokens) - 1}", "token_type": "Bearer", "expires_in": 3600}

    def created(self, said):
        """Returns a new event: what was said of it, with what a VTN adds."""
        now = datetime.now(UTC).isoformat()
        times = {"createdDateTime": now, "modificationDateTime": now}
        self.events.append({**times, **said, "id": f"event-{len(self.events)}", "objectType": "EVENT"})
        return self.events[-1]

    def reported(self, said):
        """Takes a report of an event that it knows (OpenADR 3.1: eventID, clientName and resources are required)."""
        if said.get("eventID") not in {each["id"] for each in self.events}:
            return 404, {"title": "Not Found", "status": 404}
        if not said.get("clientName") or not all(each["resourceName"] for each in said["resources"]):
            return 400, {"title": "Bad Request", "status": 400}
        self.reports.append({**said, "id": f"report-{len(self.reports)}", "objectType": "REPORT"})
        return 201, self.reports[-1]

    def searched(self, query):
        """Returns the events of a program that name all targets, from ``skip`` on, ``limit`` at most."""
        skip, limit = (int(query.get(name, [default])[0]) for name, default in (("skip", 0), ("limit", MOST)))
        if limit > MOST:
            return 400, {"title": "Bad Request", "status": 400}
        programs, targets = query.get("programID"), set(query.get("targets", []))
        wanted = [
            each
            for each in self.events
            if (programs is None or each["programID"] in programs) and targets <= set(each.get("targets") or [])
        ]
        return 200, wanted[skip : skip + limit]


if __name__ == "__main__":
    VtnServer(dict([sys.argv[2].split(":")]), int(sys.argv[1])).wait()

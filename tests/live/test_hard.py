"""What a service meets on a network: huge and broken bodies, idle connections, slow readers, TLS; it stays up."""

import contextlib
import json
import resource
import socket
import ssl
import subprocess
import sys

import httpx
import pytest

from live.callers import JOB
from live.process import Process
from live.waiting import wait_for
from noonward.live.client import Client

SERVICE = """
import sys
from pathlib import Path
from noonward.live.config import checked_config
from noonward.live.server import serve
said = {"scenario": "tiny", "policy": "local-fcfs", "folder": sys.argv[1], "port": 0,
        "sites": {"north": {"executor": "model"}, "south": {"executor": "model"}}}
if len(sys.argv) > 2:
    said |= {"tls_certificate": sys.argv[2], "tls_key": sys.argv[3]}
config, scenario = checked_config(said, "x", Path())
serve(config, scenario, started=lambda address, controller: print(address, flush=True))
"""
MANY = 10_000
"""Idle connections."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Process("-c", SERVICE, str(tmp_path_factory.mktemp("hard"))) as made:
        yield made
        made.end()


def place(address):
    host, port = address.split("//")[1].split(":")
    return host, int(port)


def is_up(address, **more):
    return httpx.get(f"{address}/healthz", timeout=30.0, **more).status_code == 200


def sent(address, head, *parts):
    """Sends raw bytes and returns the status line of the answer, or what the connection ended with."""
    with socket.create_connection(place(address), timeout=30) as connection:
        try:
            connection.sendall(head)
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(4096).split(b"\r\n")[0].decode()
        except OSError:
            return "closed"


HEAD = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_of_100_mb_is_refused(service):
    block = b"x" * 2**20
    said = sent(service.address, f"{HEAD}Content-Length: {100 * 2**20}\r\n\r\n".encode(), *[block] * 100)
    assert said in ("closed", "HTTP/1.1 413 Request Entity Too Large", "HTTP/1.1 413 Content Too Large")
    chunk = b"%x\r\n%s\r\n" % (len(block), block)
    said = sent(service.address, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode(), *[chunk] * 100, b"0\r\n\r\n")
    assert said.startswith("HTTP/1.1 413") or said == "closed"
    assert is_up(service.address)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 10_000_000,
        b'{"a":' * 1_000_000,
        b'{"name": "\xff\xfe\x80", "work": 1}',
        b"\xff\xfe" + '{"name": "a"}'.encode("utf-16-le"),
        b'{"name": "\\ud800", "work": 1}',
        b'{"name": "a", "work": 1e999}',
        b'{"name": "a", "work": NaN}',
        b'{"name": "a", "work": 1, "name": "b", "command": "' + b"\\u0000" * 1000 + b'"}',
        b"\x00" * 1000,
        b"",
    ],
    ids=["arrays", "objects", "bytes", "utf-16", "surrogate", "infinite", "nan", "nulls", "zeros", "nothing"],
)
def test_a_broken_body_is_refused_or_taken_and_nothing_fails(service, body):
    answer = httpx.post(
        f"{service.address}/v1/jobs", content=body, headers={"Content-Type": "application/json"}, timeout=60.0
    )
    assert answer.status_code in (201, 400, 422)
    assert is_up(service.address)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(20_000)) + b"\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /static/../../secrets HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /static/%2e%2e/%2e%2e/html.py HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n" * 10_000,
    ],
    ids=["tls", "host", "path", "headers", "length", "escapes", "dots", "escaped dots", "blank"],
)
def test_what_is_no_request_is_refused(service, raw):
    said = sent(service.address, raw)
    assert not said.startswith(("HTTP/1.1 2", "HTTP/1.1 5"))
    assert is_up(service.address)


def test_10_000_idle_connections_leave_the_service_answering(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MANY + 500:
        pytest.skip(f"this machine allows {hard} open files; the test needs {MANY + 500}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Process("-c", SERVICE, str(tmp_path / "live")) as service:
        host, port = place(service.address)
        idle = []
        try:
            for n in range(MANY):
                one = socket.socket()
                one.bind((f"127.0.{1 + n // 5000}.1", 0))
                one.settimeout(10)
                one.connect((host, port))
                if n % 2:
                    one.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: loc")  # a request that never ends
                idle.append(one)
            assert is_up(service.address)
            answer = httpx.post(f"{service.address}/v1/jobs", json=JOB, timeout=60.0)
            assert answer.status_code == 201
        finally:
            for one in idle:
                one.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert is_up(service.address)
        assert service.end() in (0, -15)


def test_more_connections_than_files_are_refused_and_the_service_recovers(tmp_path):
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n{SERVICE}"
    with Process("-c", limited, str(tmp_path / "live")) as service:
        idle = []
        with contextlib.suppress(OSError):
            for _ in range(600):
                one = socket.create_connection(place(service.address), timeout=5)
                idle.append(one)
        assert len(idle) > 200
        for one in idle:
            one.close()

        def answers():
            with contextlib.suppress(httpx.HTTPError):
                return is_up(service.address) and httpx.post(f"{service.address}/v1/jobs", json=JOB).status_code == 201
            return False

        wait_for(answers, "an answer after the flood", 60.0)
        assert service.end() in (0, -15)


def test_a_connection_that_sends_no_whole_head_in_time_is_closed(tmp_path):
    hasty = f"import noonward.live.api.connections as connections\nconnections.IDLE_S = 0.5\n{SERVICE}"
    with Process("-c", hasty, str(tmp_path / "live")) as service:
        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for begun in (b"", b"GET /healthz HT", whole, whole + b"GET /hea"):
            with socket.create_connection(place(service.address), timeout=30) as connection:
                connection.sendall(begun)
                answered = b""
                while part := connection.recv(4096):  # until it is closed from the other side
                    answered += part
                assert (b"200 OK" in answered) == begun.startswith(whole)
        assert service.end() in (0, -15)


def test_endless_headers_are_cut_off(service):
    with socket.create_connection(place(service.address), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(OSError):
            for n in range(100_000):
                connection.sendall(b"X-%d: y\r\n" % n)
            raise AssertionError("one megabyte of headers was read")
    assert is_up(service.address)


def test_events_are_streamed_as_they_happen_and_resumed(service):
    with httpx.Client(base_url=service.address, timeout=60.0) as client:
        first = client.post("/v1/jobs", json=[JOB, JOB]).json()["ids"]

        def events(after, jobs, last_id=None):
            headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": str(last_id)})
            found, number = [], None
            with client.stream("GET", f"/v1/events?after={after}", headers=headers) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                for line in stream.iter_lines():
                    if line.startswith("id: "):
                        number = int(line[4:])
                    if line.startswith("data: "):
                        event = json.loads(line[6:])
                        assert event["id"] == number
                        found.append(event)
                    if jobs <= {event["job"] for event in found if event["kind"] == "submitted"}:
                        break
            return found

        seen = events(0, set(first))
        assert [event["id"] for event in seen] == sorted({event["id"] for event in seen})
        later = client.post("/v1/jobs", json=JOB).json()["ids"]
        resumed = events(0, set(later), last_id=seen[-1]["id"])
        assert min(event["id"] for event in resumed) == seen[-1]["id"] + 1


def certificate(folder):
    """Writes a key and a certificate of its own for 127.0.0.1."""
    key, file = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "2", "-keyout", str(key), "-out", str(file), "-subj", "/CN=localhost", "-addext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return file, key


def test_a_key_that_others_may_read_is_refused(tmp_path):
    file, key = certificate(tmp_path)
    key.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-c", SERVICE, str(tmp_path / "live"), str(file), str(key)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "can be read by other users of the machine; chmod 600 it" in done.stderr


def test_tls_files_are_used(tmp_path, monkeypatch):
    file, key = certificate(tmp_path)
    with Process("-c", SERVICE, str(tmp_path / "live"), str(file), str(key)) as service:
        assert service.address.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(file))
        assert is_up(service.address, verify=trusted)
        answer = httpx.post(f"{service.address}/v1/jobs", json=JOB, verify=trusted, timeout=30.0)
        assert answer.status_code == 201
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(f"{service.address}/healthz")
        said = sent(service.address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not said.startswith("HTTP/1.1 2")
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        with Client(service.address) as client:
            assert [site.name for site in client.sites()] == ["north", "south"]
        service.end()

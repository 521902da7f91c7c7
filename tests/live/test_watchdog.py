"""What systemd is told: that the service is ready, and that it is well as long as it is."""

import socket
import sys

import pytest

from live.process import Process
from noonward.live.watchdog import tell, watched

SERVICE = """
import sys
from pathlib import Path
from noonward.live.config import checked_config
from noonward.live.server import serve
said = {"scenario": "tiny", "policy": "local-fcfs", "folder": sys.argv[1], "port": 0,
        "sites": {"north": {"executor": "model"}, "south": {"executor": "model"}}}
config, scenario = checked_config(said, "x", Path())
serve(config, scenario, started=lambda address, controller: print(address, flush=True))
"""


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """A socket such as systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def test_nothing_is_told_where_nobody_asks(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not tell("READY=1")
    with watched(lambda: True):
        pass


def test_a_socket_that_is_gone_harms_nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    assert not tell("READY=1")


@pytest.mark.skipif(sys.platform != "linux", reason="names of sockets without files are Linux's")
def test_a_name_without_a_file_is_understood(monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0noonward-test")
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", "@noonward-test")
        assert tell("READY=1")
        assert listening.recv(100) == b"READY=1"


def test_it_is_told_to_be_well_only_while_it_is(systemd, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    asked = []

    def is_well():
        asked.append(None)
        return len(asked) > 5

    with watched(is_well):
        assert systemd.recv(100) == b"WATCHDOG=1"
        assert len(asked) > 5


def test_a_service_says_when_it_listens(systemd, tmp_path):
    with Process("-c", SERVICE, str(tmp_path / "live")) as service:
        said = systemd.recv(200).decode()
        assert said == f"READY=1\nSTATUS=listening at {service.address.removeprefix('http://')}"
        assert service.end() in (0, -15)

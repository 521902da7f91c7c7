"""Events fetched from a VTN: tokens, pages, programs and targets, what is refused, and a scenario that reads them."""

import json

import pytest

from command_line import CommandLine
from data.test_openadr import CONTRACT, EVENT
from data.vtn_server import VtnServer
from noonward.data.openadr import read_openadr
from noonward.data.vtn import Credentials, fetch_events
from noonward.errors import DataError, ScenarioError
from noonward.model.cluster.stated_events import EventFile

ME = Credentials(client="me", secret="secret")


@pytest.fixture
def vtn():
    server = VtnServer({"me": "secret"})
    yield server
    server.close()


@pytest.fixture
def noonward(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def test_all_pages_are_read_with_a_token(vtn):
    for number in range(120):
        vtn.created({**EVENT, "eventName": f"event {number}"})
    found = fetch_events(vtn.url + "/", ME)
    assert [each["eventName"] for each in found] == [f"event {number}" for number in range(120)]
    assert [path.rpartition("/")[2] for _, path, _ in vtn.seen] == ["server", "token", "events", "events", "events"]
    assert [query["skip"] for _, path, query in vtn.seen if path.endswith("events")] == [["0"], ["50"], ["100"]]


def test_full_last_page_ends(vtn):
    for _ in range(50):
        vtn.created(EVENT)
    assert len(fetch_events(vtn.url, ME)) == 50


def test_programs_and_targets_choose(vtn):
    vtn.created(EVENT)
    vtn.created({**EVENT, "programID": "8", "targets": ["dc-1", "dc-2"]})
    vtn.created({**EVENT, "targets": None})
    assert len(fetch_events(vtn.url, ME)) == 3
    assert [each["programID"] for each in fetch_events(vtn.url, ME, program="8")] == ["8"]
    assert len(fetch_events(vtn.url, ME, targets=("dc-1",))) == 2
    assert len(fetch_events(vtn.url, ME, targets=("dc-1", "dc-2"))) == 1


def test_a_public_vtn_needs_no_token():
    server = VtnServer()
    try:
        server.created(EVENT)
        assert len(fetch_events(server.url)) == 1
        assert [path.rpartition("/")[2] for _, path, _ in server.seen] == ["events"]
    finally:
        server.close()


def test_what_is_refused(vtn):
    with pytest.raises(DataError, match="answered 403"):
        fetch_events(vtn.url)
    with pytest.raises(DataError, match=r"answered 400 .* check the client's id and secret") as error:
        fetch_events(vtn.url, Credentials(client="me", secret="wrong"))
    assert "wrong" not in str(error.value) + repr(Credentials(client="me", secret="wrong"))
    with pytest.raises(DataError, match="answered 404"):
        fetch_events(vtn.url + "/events", Credentials(client="me", secret="secret", token_url=vtn.url + "/auth/token"))
    for address in ("http://vtn.example.com", "ftp://127.0.0.1", "vtn.example.com"):
        with pytest.raises(ScenarioError, match="is not HTTPS"):
            fetch_events(address)
    with pytest.raises(ScenarioError, match="is not HTTPS"):
        fetch_events(vtn.url, Credentials(client="me", secret="secret", token_url="http://vtn.example.com/token"))
    for trouble, words in ((b"<html>", "no JSON"), (b"{}", "no list of event objects"), (b"[3]", "no list of event")):
        vtn.trouble = trouble
        with pytest.raises(DataError, match=words):
            fetch_events(vtn.url)
    with pytest.raises(DataError, match="names no tokenURL"):
        fetch_events(vtn.url, ME)


def test_a_vtn_that_does_not_run_is_said():
    server = VtnServer()
    server.close()
    with pytest.raises(DataError, match="does not answer"):
        fetch_events(server.url)


def test_a_scenario_reads_what_the_command_writes(vtn, noonward, monkeypatch, tmp_path):
    vtn.created(EVENT)
    done = noonward("data", "events", vtn.url, "events.json", "--client", "me")
    assert (done.code, "NOONWARD_VTN_SECRET" in done.err) == (2, True)
    monkeypatch.setenv("NOONWARD_VTN_SECRET", "secret")
    done = noonward("data", "events", vtn.url, "events.json", "--client", "me", "--target", "dc-1")
    assert (done.code, done.out) == (0, "1 event: events.json\n")
    assert json.loads((tmp_path / "events.json").read_text()) == vtn.events
    events = read_openadr(EventFile(path=tmp_path / "events.json", contracts=(CONTRACT,)))
    assert [each.target_kw for each in events] == [75.0, 60.0]

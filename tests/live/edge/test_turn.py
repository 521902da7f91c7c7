"""The service's loop: what raises in a turn, in an answer or in the page is noted, and ends nothing."""

import pytest

from live.edge.fakes import Bench
from noonward.errors import FileError
from noonward.live.edge import service as module
from noonward.live.edge.service import Service


@pytest.fixture
def service(tmp_path):
    """A service with fake workers, whose turns are taken by the test."""

    bench = Bench(tmp_path).ready()
    return Service(tmp_path, bench.store.store, lambda *_: bench.controller)


def last(service):
    """Returns the newest note."""
    return service.controller.notes.texts[-1]


def test_a_page_that_cannot_be_written_is_noted(service, monkeypatch):
    def full(*_):
        raise FileError("index.html cannot be written: no space left on device")

    monkeypatch.setattr(module, "write_text", full)
    service.stop()
    service._inbox.put(lambda: None)
    service._turn()
    assert "the page was not done: FileError: index.html cannot be written: no space left on device" in last(service)


def test_a_page_that_cannot_be_encoded_is_noted(service, tmp_path):
    service.controller.submit(prompt="a boat", gang=1).prompt = "a \ud800 boat"
    service._inbox.put(lambda: None)
    service._turn()
    assert "the page was not done: UnicodeEncodeError" in last(service)


def test_what_is_due_and_fails_is_noted_and_tried_again(service, monkeypatch):
    calls = []

    def fails():
        calls.append(1)
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(service.controller, "tick", fails)
    for _ in range(2):
        service._inbox.put(lambda: None)
        service._turn()
    assert len(calls) == 2
    assert "what was due was not done: ZeroDivisionError: oh (test_turn.py, line" in last(service)


def test_an_answer_that_fails_is_noted_and_the_next_is_given(service):
    done = []
    service._inbox.put(lambda: 1 / 0)
    service._inbox.put(lambda: done.append(1))
    service._turn()
    assert done == [1]
    assert "an answer was not done: ZeroDivisionError" in last(service)

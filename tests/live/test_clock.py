"""A machine's clock that ran ahead and was set right: the service says so and goes on, also after a restart."""

import json

import pytest

from noonward.live.journal import replay_journal
from noonward.live.requests import JobRequest

AHEAD_S = 86400.0


def submit(live, **given):
    return live.submit(JobRequest(**{"name": "a", "work": 600.0, "origin": "north", **given}))[0]


def rows(live):
    return {row["id"]: row for row in live.store.read("SELECT * FROM jobs")}


@pytest.mark.parametrize("policy", ["local-fcfs", "booked-persistence"])
@pytest.mark.parametrize("restarted", [False, True])
def test_jobs_are_decided_about_again_once_the_clock_is_right(service, policy, restarted):
    live = service(policy)
    live.set_time(60.0)
    before = submit(live, site="north")
    live.set_time(120.0)
    live.steps()
    live.set_time(AHEAD_S + 120.0)
    wrong, held = submit(live, site="north"), submit(live, held=True)
    live.set_time(AHEAD_S + 180.0)
    live.steps()
    assert rows(live)[wrong]["start_s"] == AHEAD_S + 180.0
    live.set_time(200.0)
    if restarted:
        live.restart()
    right = submit(live, site="north")
    for _ in range(2):
        live.set_time(live.store.now_s() + 60.0)
        live.steps()
    found = rows(live)
    assert found[right]["state"] in ("starting", "running")
    assert found[right]["start_s"] <= 320.0
    assert (found[before]["start_s"], found[before]["submitted_s"]) == (120.0, 60.0)
    for job in (wrong, held):
        assert found[job]["submitted_s"] <= 260.0
    assert found[wrong]["start_s"] <= 260.0
    assert live.store.read("SELECT max(hour) AS last FROM signals")[0]["last"] == 0
    said = live.store.read("SELECT data FROM events WHERE kind = 'clock set back'")
    assert [json.loads(row["data"])["by_s"] for row in said] == [pytest.approx(AHEAD_S, abs=200.0)]
    assert "it was 24.0 h ahead" in live.controller.problems["clock"]
    live.set_time(live.store.now_s() + 1200.0)
    live.steps()
    live.steps()
    assert [rows(live)[job]["state"] for job in (wrong, right)] == ["done", "done"]
    found = replay_journal(live.controller.setup, live.store)
    assert found.same, (found.recorded, found.replayed)
    assert found.compared >= 3


def test_a_clock_that_is_a_little_back_is_waited_for(service):
    live = service("local-fcfs")
    live.set_time(120.0)
    submit(live)
    live.set_time(60.0)
    live.controller.decide()
    assert live.store.read("SELECT id FROM events WHERE kind = 'clock set back'") == []
    assert "clock" not in live.controller.problems

"""The controller's loops: what ends them."""

import math
import re
import threading
from dataclasses import replace

import pytest

from live.callers import local_client
from live.conftest import FixedSource
from noonward.live import controller as controller_module
from noonward.live.executors.protocol import ClusterError
from noonward.live.journal import replay_journal
from noonward.live.requests import JobRequest
from noonward.live.states import to_bytes


class Watcher:
    """Watches nothing."""

    def step(self):
        pass


def test_all_loops_end_at_once_however_seldom_they_step(service):
    live = service("local-fcfs")
    controller = live.controller
    seldom = controller.setup.config.model_copy(update={"poll_s": 1e6})
    controller.setup = replace(controller.setup, config=seldom)
    controller.watchers = {0: Watcher()}
    controller.run()
    controller.stop()
    for thread in controller._threads:
        thread.join(20)
        assert not thread.is_alive(), thread.name


def test_a_service_that_has_signals_starts_without_its_publishers(service, monkeypatch):
    live = service("local-fcfs")
    monkeypatch.setattr(controller_module, "START_WAIT_S", 0.01)
    hung = threading.Event()
    monkeypatch.setattr(FixedSource, "refresh", lambda *given: hung.wait())
    live.set_time(3600.0)
    try:
        live.restart()  # does not end while it waits
        assert live.controller.keeper.last_hour == 1
    finally:
        hung.set()


def test_jobs_are_followed_whatever_becomes_of_their_hand_over(service):
    controller = service("local-fcfs").controller
    followed, hung = threading.Event(), threading.Event()
    controller.agents[0].reconcile = hung.wait  # the hand-over waits for a cluster
    controller.agents[0].track = followed.set
    controller.run()
    try:
        assert followed.wait(20)
    finally:
        hung.set()
        controller.stop()


@pytest.mark.parametrize(("policy", "settings"), [("local-fcfs", ()), ("dp-max-clock", ("protocol=on-arrival",))])
def test_new_jobs_are_decided_about_when_a_question_is_due(service, policy, settings):
    """Between the slots nothing is decided about them, so that nothing is woken for each of a thousand a second."""
    live = service(policy, *settings)
    controller, slot_s = live.controller, live.scenario.slot_s
    first = JobRequest(name="a", work=60.0, origin="north")
    after = JobRequest(name="b", work=60.0, origin="north", after=(1,))

    def woken(request):
        controller.decide_wake.clear()
        live.submit(request)
        controller.take_new([live.checker.row(request)])
        return controller.decide_wake.is_set()

    assert woken(first)
    controller.decide()
    at_once = live.scenario.protocol == "on-arrival"
    assert woken(first) == at_once
    assert woken(after)  # it may be done already, and the job's delay counts from now on
    live.set_time(slot_s or 1.0)
    assert woken(first)


def test_a_cluster_that_stands_still_holds_nothing_else_up(service):
    live = service("local-fcfs")
    controller = live.controller
    stands, goes_on, decided = threading.Event(), threading.Event(), threading.Event()
    still, other = controller.agents
    for step in ("reconcile", "deliver", "track"):
        setattr(still, step, stands.wait)
    other.track = goes_on.set
    decide = controller.decide
    controller.decide = lambda: decide() and decided.set()
    live.submit(JobRequest(name="a", work=600.0, origin="north"))
    controller.run()
    try:
        assert goes_on.wait(20)
        assert decided.wait(20)
        with local_client(live) as client:
            assert (client.get("/readyz").status_code, client.get("/healthz").status_code) == (200, 200)
    finally:
        stands.set()
        controller.stop()


@pytest.mark.parametrize(("error", "late"), [(ClusterError("no answer"), False), (ValueError("a defect"), True)])
def test_a_loop_whose_cluster_is_away_does_not_hang(service, error, late):
    """Whoever watches the service would start it again, and that would help nobody."""
    controller = service("local-fcfs").controller
    controller.setup = replace(controller.setup, config=controller.setup.config.model_copy(update={"poll_s": 0.1}))
    found, again = [], threading.Event()

    def track():
        beat = controller.heartbeats["site north"]
        found.append(beat.late)
        beat.beaten = -math.inf
        if len(found) == 2:
            again.set()
        raise error

    controller.agents[0].track = track
    controller.run()
    try:
        assert again.wait(20)
        assert found[:2] == [False, late]
        assert str(error) in controller.problems["site north"]
    finally:
        controller.stop()


def test_a_policy_that_cannot_read_its_stored_state_begins_again_and_says_so(service):
    live = service("booked-persistence")
    waits, starts = (JobRequest(name="a", work=600.0, origin="north", max_delay_s=most) for most in (1e6, 60.0))
    live.submit(waits, waits, starts)
    live.set_time(60.0)
    live.steps()
    rows = live.store.read("SELECT id, state, serial, slot FROM jobs ORDER BY id")
    of_another_build = {"scheduler.plan_of_then": to_bytes({"plan_of_then": 1.0})}
    live.store.do(lambda connection, now_s: live.store.keep(connection, of_another_build))
    live.restart()
    assert re.match(
        "the policy booked-persistence cannot read the state that it stored, since another build .*plan_of_then.*; it "
        "has begun again without it, and all jobs keep their places",
        live.controller.problems["policy"],
    )
    assert live.store.read("SELECT id, state, serial, slot FROM jobs ORDER BY id") == rows
    live.submit(starts)
    live.set_time(120.0)
    live.steps()
    assert [row["start_s"] for row in live.store.read("SELECT start_s FROM jobs ORDER BY id")] == [None, None, 60, 120]
    assert replay_journal(live.controller.setup, live.store).same
    live.restart()
    assert "policy" not in live.controller.problems

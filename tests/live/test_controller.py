"""The controller's loops: what ends them."""

import threading
from dataclasses import replace

import pytest

from live.conftest import FixedSource
from noonward.live import controller as controller_module
from noonward.live.requests import JobRequest


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

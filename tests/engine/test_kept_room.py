"""Room kept for suspended jobs: by hand, and on random worlds none of them comes too late."""

import random

import pytest

from engine.test_suspension import Breaker, draw, grow_signals, play
from noonward.decision.brief import Needs
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.ledger.segments import DONE, OVERDUE
from noonward.units import HOUR_S
from reference import small_worlds, suspension

FREE = suspension.Freedom()
FIRST = {"gpus": 2, "work": 3 * HOUR_S, "slack_s": 5 * HOUR_S}
"""Started at once and suspended after an hour it is due at hour 6, and then runs until hour 8."""


class Pauses(Scheduler):
    """Suspends jobs at some hours, resumes them as late as it may, and starts all others at once."""

    def __init__(self, stops, levers=("suspend",)):
        self.needs = Needs(protocols=("each-slot",), levers=levers)
        self.stops, self.asked = stops, []

    def decide(self, view, answers):
        for site, job in view.asked():
            serial, hour = int(view.job_J["serial"][job]), view.now_s / HOUR_S
            if view.kind == ASK_RUNNING:
                self.asked.append((serial, hour))
                if self.stops.get(serial) == hour:
                    answers.suspend(site)
                continue
            paused = view.life_J["suspensions"][job] > 0
            if view.allowed(site, site) and (not paused or view.now_s == view.job_J["deadline_s"][job]):
                answers.send(site, site)


def played(jobs, stops, gpus=4, levers=("suspend",), freedom=FREE, **options):
    world = small_worlds.plain([gpus], jobs, price=[[10.0]], freedoms={0: freedom}, slot_s=HOUR_S / 2, **options)
    scheduler = Pauses(stops, levers)
    return run(world.environment(), scheduler), scheduler


def starts_h(outcome):
    return (outcome.job_J["start_s"] / HOUR_S).tolist()


@pytest.mark.parametrize(
    ("gpus", "hours", "starts_at"),
    [
        (3, 5.0, 1.0),  # gone when the first job is due
        (3, 5.5, 8.0),  # it would hold the first job's GPUs half an hour too long: after it
        (2, 9.0, 1.0),  # leaves it enough
    ],
)
def test_nothing_starts_that_would_keep_a_suspended_job_from_being_back_in_time(gpus, hours, starts_at):
    second = {"arrival_s": HOUR_S, "gpus": gpus, "work": hours * HOUR_S, "slack_s": 20 * HOUR_S}
    outcome, _ = played([FIRST, second], {0: 1.0})
    assert outcome.job_J["status"].tolist() == [DONE, DONE]
    assert outcome.job_J["finish_s"][0] == 8 * HOUR_S
    assert starts_h(outcome) == [0.0, starts_at]


def test_of_several_small_jobs_as_many_start_as_leave_it_room():
    small = {"arrival_s": HOUR_S, "gpus": 1, "work": 9 * HOUR_S, "slack_s": 20 * HOUR_S}
    outcome, _ = played([FIRST, small, small, small], {0: 1.0})
    assert outcome.job_J["finish_s"][0] == 8 * HOUR_S
    assert starts_h(outcome) == [0.0, 1.0, 1.0, 8.0]


@pytest.mark.parametrize(("hours", "suspended"), [(2.5, True), (8.0, False)])
def test_a_job_is_suspended_only_if_it_finds_its_gpus_free_when_it_is_due(hours, suspended):
    """The second job would be due at hour 7, beside the first until hour 8 and what has started on its GPUs."""
    third = {"arrival_s": HOUR_S, "gpus": 2, "work": hours * HOUR_S, "slack_s": 20 * HOUR_S}
    outcome, scheduler = played([FIRST, FIRST, third], {0: 1.0, 1: 2.0})
    assert ((1, 2.0) in scheduler.asked) == suspended
    assert outcome.suspensions_J.tolist() == [1, int(suspended), 0]
    assert outcome.job_J["status"].tolist() == [DONE] * 3


def test_who_may_displace_a_suspended_job_need_not_leave_it_room():
    urgent = {"arrival_s": HOUR_S, "class_": 1, "gpus": 4, "work": 9 * HOUR_S, "slack_s": HOUR_S}
    freedoms = {0: FREE, 1: suspension.Freedom(interruptible=False, preempts=(0,))}
    more = (((0.0, 0.0, 100.0), None),)
    world = small_worlds.plain([4], [FIRST, urgent], price=[[10.0]], freedoms=freedoms, slot_s=HOUR_S / 2, more=more)
    outcome = run(world.environment(), Pauses({0: 1.0}, ("suspend", "preempt")))
    assert starts_h(outcome) == [0.0, 1.0]
    assert outcome.job_J["status"].tolist() == [OVERDUE, DONE]


def test_of_two_late_jobs_the_one_that_was_due_first_goes_first():
    """Both wait for the same GPUs; neither keeps the other out for ever."""
    late = {"late_until_s": 40 * HOUR_S, "late_usd": 0.5}
    jobs = [FIRST, FIRST | {"slack_s": 4 * HOUR_S}]
    world = small_worlds.plain([4], jobs, price=[[10.0]], freedoms={0: FREE}, slot_s=HOUR_S / 2, **late)
    world.withheld = [[(0.0, 0), (2 * HOUR_S, 2)]]

    class Eager(Pauses):
        def decide(self, view, answers):
            for site, _ in view.asked():
                if view.kind == ASK_RUNNING:
                    if view.now_s == HOUR_S:
                        answers.suspend(site)
                elif view.allowed(site, site) and (view.now_s == 0 or view.now_s >= 10 * HOUR_S):
                    answers.send(site, site)

    outcome = run(world.environment(), Eager({}))
    assert outcome.job_J["status"].tolist() == [DONE, DONE]
    assert outcome.job_J["finish_s"].tolist() == [14 * HOUR_S, 12 * HOUR_S]


class Returns(Breaker):
    """Suspends at random, holds suspended jobs at random, but resumes each at the last moment that it may."""

    def decide(self, view, answers):
        super().decide(view, answers)
        if view.kind == ASK_RUNNING:
            return
        for site, job in view.asked():
            if view.life_J["suspensions"][job] > 0:
                answers.hold(site)
                left_s = view.job_J["deadline_s"][job] - view.now_s
                due = left_s < view.run_1["slot_s"][0] + self.back_s(view, job, site)
                if view.allowed(site, site) and (due or self.rng.random() < 0.2):
                    answers.send(site, site)

    @staticmethod
    def back_s(view, job, site):
        record = view.job_J[job]
        link = view.link_IS[record["origin"], site]
        return link["latency_s"] + record["result_gb"] * link["seconds_per_gb"] if record["result_gb"] else 0.0


@pytest.mark.parametrize("seed", range(200))
def test_no_suspended_job_comes_too_late(seed):
    """Whatever others do, a job that is resumed when it is due ends in time: gangs do not starve."""
    world = draw(seed)
    world.caps = None
    grow_signals(world, random.Random(f"{seed} longer"))
    outcome = play(world, Returns(seed, holds=(0.1, 0.5)[seed % 2]))
    paused_J = outcome.suspensions_J > 0
    assert (outcome.job_J["status"][paused_J] != OVERDUE).all()

"""Runs that are cut off at their window: nobody is asked at the last instant, when nothing could run any more."""

import pytest

from noonward.decision.brief import Needs
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.ledger.ledger import settle
from noonward.ledger.segments import OVERDUE, WAITING
from reference.small_worlds import plain


class Starter(Scheduler):
    """Starts every job where it is, and notes when it was asked."""

    needs = Needs(protocols=("each-slot",))

    def reset(self, brief, rng):
        self.times = []

    def decide(self, view, answers):
        self.times.append(view.now_s)
        for site, _ in view.asked():
            if view.allowed(site, site):
                answers.send(site, site)


@pytest.mark.parametrize("slot_s", [60.0, 300.0])
def test_a_job_of_the_last_instant_is_neither_asked_about_nor_started(slot_s):
    arrivals = (0.0, 3600.0 - slot_s, 3600.0)
    jobs = [{"arrival_s": at, "slack_s": 1e5} for at in arrivals]
    scheduler = Starter()
    outcome = run(plain([9], jobs, slot_s=slot_s, window_h=1, drained=False).environment(), scheduler)
    assert max(scheduler.times) == 3600.0 - slot_s
    assert outcome.job_J["status"].tolist()[2] == WAITING
    assert outcome.ended_s == 3600.0
    assert settle(outcome).unfinished == 2  # the second one runs on


def test_a_job_whose_latest_start_passes_in_the_last_slot_is_overdue():
    jobs = [{"gpus": 1, "slack_s": 1e5, "work": 7200.0}, {"slack_s": 3590.0}, {"slack_s": 3600.0}]
    outcome = run(plain([1], jobs, slot_s=60.0, window_h=1, drained=False).environment(), Starter())
    assert outcome.job_J["status"].tolist()[1:] == [OVERDUE, WAITING]

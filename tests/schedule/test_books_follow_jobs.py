"""Books of planners that are told wrong run times: they follow what the jobs do."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.model.cluster.jobs import Jobs
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain

HOUR_S = 3600.0
PLANNERS = ("booked-perfect", "bid-price-perfect")


class Told(Scheduler):
    """Asks a scheduler in whose view the jobs have other run times."""

    def __init__(self, name, work_h):
        self.inner, self.work_h = make_scheduler(name), work_h
        self.needs = replace(self.inner.needs, lookahead_h=24)  # as far as the run times told

    def reset(self, brief, rng):
        self.inner.reset(brief, rng)

    def decide(self, view, answers):
        jobs = view.job_J.copy()
        for serial, hours in self.work_h.items():
            jobs["work"][jobs["serial"] == serial] = hours * HOUR_S
        self.inner.decide(view._replace(job_J=jobs), answers)


def starts_h(name, gpus, jobs, told_h, **options):
    """Hours of the starts under wrong run times; NaN for a job that never starts."""
    sampled = Jobs.build(arrival_s=np.array([20.0 * HOUR_S]), work=np.array([60.0]))
    world = plain(gpus, jobs, **({"price": [[0.0]] * len(gpus), "alpha": 0.1} | options))
    environment = replace(world.environment(), sample_jobs=lambda rng: sampled)
    found = run(environment, Told(name, told_h), compiled=False).job_J
    return np.where(found["start_s"] >= 0, found["start_s"] / HOUR_S, np.nan), found["site"]


@pytest.mark.parametrize("name", PLANNERS)
def test_a_job_that_ends_early_gives_its_booking_back(name):
    """The first is told to take 10 h and takes 1 h: the second starts then, within its slack of 2 h."""
    jobs = [{"work": HOUR_S}, {"arrival_s": 0.5 * HOUR_S, "work": HOUR_S, "slack_s": 2 * HOUR_S}]
    start_h, _ = starts_h(name, [1], jobs, {0: 10.0})
    assert start_h.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", PLANNERS)
def test_a_job_that_runs_on_keeps_its_gpus_in_the_books(name):
    """The first is told to take 1 h and takes 3 h at the cheap site; the second, with little slack, goes elsewhere."""
    jobs = [{"work": 3 * HOUR_S}, {"arrival_s": 66 * 60.0, "work": HOUR_S, "slack_s": 5 * 60.0}]
    start_h, site = starts_h(name, [1, 1], jobs, {0: 1.0}, price=[[10.0], [50.0]])
    assert site.tolist() == [0, 1]
    assert start_h[0] == 0.0
    assert 1.1 <= start_h[1] <= 66 / 60 + 5 / 60


@pytest.mark.parametrize("name", PLANNERS)
def test_a_job_that_waits_for_one_that_runs_on_starts_when_that_ends(name):
    jobs = [{"work": 3 * HOUR_S}, {"arrival_s": 0.5 * HOUR_S, "work": HOUR_S, "slack_s": 9 * HOUR_S}]
    start_h, _ = starts_h(name, [1], jobs, {0: 1.0})
    assert start_h[1] >= 3.0
    assert start_h[1] <= 4.0  # booked behind at most a quarter more than it takes


@pytest.mark.parametrize("name", PLANNERS)
def test_a_job_told_longer_than_forecasts_reach_starts_at_once(name):
    start_h, _ = starts_h(name, [1], [{"work": HOUR_S, "slack_s": 3 * HOUR_S}], {0: 500.0})
    assert start_h.tolist() == [0.0]

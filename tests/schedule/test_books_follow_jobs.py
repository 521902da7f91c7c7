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

    def __init__(self, name, work_h, expected=1.0):
        self.inner, self.expected = make_scheduler(name), expected
        self.needs = self.inner.needs
        self.told_s = np.full(100, np.nan)  # by serial; a place without a job has serial -1
        self.told_s[list(work_h)] = HOUR_S * np.array(list(work_h.values()))

    def reset(self, brief, rng):
        self.inner.reset(brief, rng)

    def decide(self, view, answers):
        jobs = view.job_J.copy()
        told_s = self.told_s[jobs["serial"]]
        known = ~np.isnan(told_s)
        jobs["work"][known], jobs["expected"][known] = told_s[known], self.expected * told_s[known]
        self.inner.decide(view._replace(job_J=jobs), answers)


def outcomes(name, gpus, jobs, told_h, expected=1.0, forecast_h=None, **options):
    """What becomes of the jobs under wrong run times, of which a share is expected."""
    sampled = Jobs.build(arrival_s=np.array([20.0 * HOUR_S]), work=np.array([60.0]))
    world = plain(gpus, jobs, **({"price": [[0.0]] * len(gpus), "alpha": 0.1} | options))
    environment = replace(world.environment(), sample_jobs=lambda rng: sampled, forecast_h=forecast_h)
    return run(environment, Told(name, told_h, expected), compiled=False).job_J


def starts_h(*args, **options):
    """Hours of the starts, as ``outcomes``; NaN for a job that never starts; and the sites."""
    found = outcomes(*args, **options)
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
    start_h, _ = starts_h(name, [1], [{"work": HOUR_S, "slack_s": 3 * HOUR_S}], {0: 500.0}, forecast_h=24)
    assert start_h.tolist() == [0.0]


@pytest.mark.parametrize("name", PLANNERS)
def test_a_job_that_was_refused_starts_within_the_hour_where_another_ends_early(name):
    """The first is told to take 54 minutes and takes 12; the second must start by minute 18."""
    jobs = [{"work": 0.2 * HOUR_S}, {"arrival_s": 0.1 * HOUR_S, "work": HOUR_S, "slack_s": 0.2 * HOUR_S}]
    start_h, _ = starts_h(name, [1], jobs, {0: 0.9})
    assert start_h.tolist() == [0.0, pytest.approx(0.2)]


def test_a_job_whose_room_a_run_beyond_its_booking_holds_goes_elsewhere_within_the_hour():
    """The first is told to take 12 minutes and takes 3 h at the cheap site, where the second waits for its end."""
    jobs = [{"work": 3 * HOUR_S}, {"arrival_s": 0.1 * HOUR_S, "work": HOUR_S, "slack_s": 0.2 * HOUR_S}]
    start_h, site = starts_h("bid-price-perfect", [1, 1], jobs, {0: 0.2}, price=[[10.0], [50.0]])
    assert site.tolist() == [0, 1]
    assert 0.2 <= start_h[1] <= 0.3


@pytest.mark.parametrize(("expected", "site"), [(1.0, 1), (1 / 16, 0)])
def test_bid_prices_weigh_a_journey_by_what_the_job_is_expected_to_take(expected, site):
    """Told to take 8 h; the journey costs 0.03 USD, and the other site saves 0.009 USD an hour."""
    jobs, network = [{"work": HOUR_S, "move_gb": 1.0}], {"usd_per_gb": ((0.0, 0.03), (0.03, 0.0))}
    _, where = starts_h("bid-price-perfect", [1, 1], jobs, {0: 8.0}, expected, price=[[100.0], [10.0]], network=network)
    assert where.tolist() == [site]


def test_a_late_job_comes_before_those_in_time_while_runs_outlast_their_bookings():
    """Prices rise, so twenty jobs are booked one after the other; the last to come needs both GPUs, soon."""

    def start_of_the_last_h(runs_h):
        jobs = [{"work": runs_h * HOUR_S, "slack_s": 50 * HOUR_S} for _ in range(20)]
        jobs.append({"arrival_s": 0.1 * HOUR_S, "work": HOUR_S, "gpus": 2, "slack_s": 0.2 * HOUR_S})
        told_h, rising = dict.fromkeys(range(20), 1.0), [[10.0 + 100.0 * h for h in range(40)]]
        return starts_h("bid-price-perfect", [2], jobs, told_h, price=rising, late_until_s=60 * HOUR_S)[0][20]

    assert start_of_the_last_h(1.0) == 10.0  # where runs end as told, bookings hold
    assert start_of_the_last_h(2.0) <= 4.0


def test_a_late_job_starts_within_the_hour_where_another_ends_early():
    """The first is told to take 10 h and takes half an hour; the second is late by then, and booked behind it."""
    jobs = [{"work": 0.5 * HOUR_S}, {"arrival_s": 0.1 * HOUR_S, "work": HOUR_S, "slack_s": 0.1 * HOUR_S}]
    start_h, _ = starts_h("bid-price-perfect", [1], jobs, {0: 10.0}, late_until_s=60 * HOUR_S)
    assert start_h.tolist() == [0.0, 0.5]


@pytest.mark.parametrize(
    ("reserve", "expected", "late_until_h", "latest_h"),
    [(0.0, 0.5, 20, 8.0), (0.5, 0.5, 20, 4.0), (0.5, 1.0, 20, 8.0), (0.5, 0.5, -np.inf, 8.0)],
)
def test_slack_in_reserve_is_not_planned_with_where_run_times_are_estimates(reserve, expected, late_until_h, latest_h):
    """Prices fall, so the last hour that may be planned with is the best."""
    falling = [[100.0 - 2.0 * h for h in range(20)]]
    name, jobs = f"bid-price(forecast=perfect, reserve={reserve})", [{"work": HOUR_S, "slack_s": 8 * HOUR_S}]
    start_h, _ = starts_h(name, [1], jobs, {0: 1.0}, expected, price=falling, late_until_s=late_until_h * HOUR_S)
    assert start_h.tolist() == [latest_h]


def test_a_job_without_room_before_its_reserve_starts_within_it():
    """The first runs for 6 h, beyond what it was told: the second is due after 4 of its 8 h of slack."""
    jobs = [{"work": 6 * HOUR_S}, {"arrival_s": 0.5 * HOUR_S, "work": HOUR_S, "slack_s": 8 * HOUR_S}]
    name, told_h = "bid-price(forecast=perfect, reserve=0.5)", {0: 1.0, 1: 1.0}
    start_h, _ = starts_h(name, [1], jobs, told_h, 0.5, late_until_s=40 * HOUR_S)
    assert start_h[1] == 6.0


TRANSFER = {"usd_per_gb": ((0.0, 0.001), (0.001, 0.0))}
"""What the journey of a job with 1 GB costs between two sites."""


@pytest.mark.parametrize(("late_until_h", "moves"), [(60, 0), (-np.inf, 2)])
def test_a_job_that_pays_for_its_journey_leaves_no_sooner_than_it_must(late_until_h, moves):
    """The first is told to take 5.5 h at the site that is cheap after 6 h, and takes 40: the second stays at home."""
    jobs = [
        {"origin": 1, "work": 40 * HOUR_S, "slack_s": 0.0, "move_gb": 1.0},
        {"arrival_s": 600.0, "work": HOUR_S, "slack_s": 6.4 * HOUR_S, "move_gb": 1.0},
    ]
    price = [[100.0], [100.0] * 6 + [10.0]]
    options = {"price": price, "network": TRANSFER, "late_until_s": late_until_h * HOUR_S}
    found = outcomes("bid-price-perfect", [1, 1], jobs, {0: 5.5}, **options)
    assert found["site"].tolist() == [1, 0]
    assert found["moves"].tolist() == [0, moves]


@pytest.mark.parametrize(("late_usd", "site"), [(0.0, 0), (1.0, 1)])
def test_a_late_job_moves_only_if_that_is_worth_its_transfer(late_usd, site):
    """The last is late; there is room where it waits after 3 h, and elsewhere after 1 h, 1 USD away."""
    jobs = [
        {"work": 3 * HOUR_S, "slack_s": 0.0},
        {"origin": 1, "work": HOUR_S, "slack_s": 0.0},
        {"arrival_s": 360.0, "work": HOUR_S, "slack_s": 720.0, "move_gb": 1.0},
    ]
    price, network = [[10.0], [10.0]], {"usd_per_gb": ((0.0, 1.0), (1.0, 0.0))}
    options = {"price": price, "network": network, "late_until_s": 60 * HOUR_S, "late_usd": late_usd}
    found = outcomes("bid-price-perfect", [1, 1], jobs, {}, **options)
    assert found["site"].tolist() == [0, 1, site]
    assert found["moves"].tolist() == [0, 0, site]

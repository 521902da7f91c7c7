"""Bid prices that suspend jobs: in which hours, within which limits, and with books that add up."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.evaluate.conformance import check_scheduler
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, RUN
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.life_suspended import least_usd, suspended_life
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S
from reference import small_worlds, suspension

CHECKPOINT = suspension.Freedom(stop_s=60.0, dark_s=60.0, load_s=120.0, stop_power=0.5, load_power=0.5)
PRICE = [5.0, 10.0, 90.0, 10.0, 10.0, *[500.0] * 19]
FOUR = {"gpus": 2, "work": 4 * HOUR_S, "slack_s": 8 * HOUR_S}
SUSPENDS = "bid-price(forecast=perfect, suspends=yes)"


def played(jobs, freedom=CHECKPOINT, policy=SUSPENDS, gpus=4, price=PRICE):
    """The outcome of some jobs on one site; no job is expected to come after them."""
    world = small_worlds.plain([gpus], jobs, price=[price], freedoms={0: freedom}, another=lambda rng: jobs_of(rng))
    return run(world.environment(), make_scheduler(policy))


def jobs_of(rng):
    """A job to come that changes no price: one GPU for a minute."""
    row = dict.fromkeys(small_worlds.JOB_COLUMNS, 0)
    return [row | {"work": 60.0, "slack_s": HOUR_S, "preset_site": -1, "gpus_min": 1, "gpus_max": 1}]


def runs(outcome):
    """(start h, end h) of the runs of suspended jobs."""
    return [(r["from_s"] / HOUR_S, r["to_s"] / HOUR_S) for r in outcome.segment_K if r["kind"] == RUN]


def test_a_job_is_suspended_through_dear_hours():
    outcome = played([FOUR])
    assert runs(outcome) == [pytest.approx((0.0, 2.0)), pytest.approx((3.0 + 120 / HOUR_S, 5.0 + 120 / HOUR_S))]
    unbroken = played([FOUR], policy="bid-price-perfect")
    assert unbroken.segment_K is None
    assert settle(outcome).utility_usd > settle(unbroken).utility_usd


def test_a_stop_that_does_not_pay_is_not_made():
    """The dear hour saves 80 USD/MWh x 0.2 kW; a stop and its resume would take an hour each at up to 90 USD/MWh."""
    dear = replace(CHECKPOINT, stop_s=HOUR_S, stop_power=1.0, load_s=HOUR_S, load_power=1.0)
    assert played([FOUR], dear).suspensions_J.tolist() == [0]
    assert played([FOUR], CHECKPOINT, price=[10.0] * 24).suspensions_J.tolist() == [0]


@pytest.mark.parametrize(
    ("freedom", "slack_h"),
    [
        (replace(CHECKPOINT, most_suspensions=0), 8.0),
        (replace(CHECKPOINT, min_run_s=4 * HOUR_S), 8.0),
        (CHECKPOINT, 0.1),
    ],
)
def test_a_job_that_may_not_be_suspended_runs_on(freedom, slack_h):
    outcome = played([FOUR | {"slack_s": slack_h * HOUR_S}], freedom)
    assert outcome.job_J["status"].tolist() == [DONE]
    assert outcome.suspensions_J.tolist() == [0]


def days(index=0, *settings):
    """A week of training jobs of which half fit at once."""
    return build_environment(load_scenario("training-days", ["jobs.rate_factor=0.588", *settings]), index, 0)


class Watched(BidPrice):
    """Checks after every hour that the books hold no less than nothing."""

    def _renew(self, view, prices, rounds):
        super()._renew(view, prices, rounds)
        assert (self._booked_ST >= 0).all()
        booked = self._life_J["serial"] >= 0
        assert (self._life_J["gpus"][booked] > 0).all()


def test_the_books_add_up_and_steps_equal_the_compiled_run():
    environment = days()
    scheduler = Watched(Forecast("regression"), suspends=True)
    outcome = run(environment, scheduler, compiled=False)
    assert outcome.tobytes() == run(environment, BidPrice(Forecast("regression"), suspends=True)).tobytes()
    assert (outcome.job_J["status"] == DONE).mean() > 0.95
    assert outcome.suspensions_J.sum() > 50


def test_unless_told_to_it_suspends_nothing():
    environment = days()
    outcome = run(environment, make_scheduler("bid-price-regression"))
    assert outcome.segment_K is None
    rigid = load_scenario("training-days", ["jobs.rate_factor=0.588", "fleet.freedoms={}"])
    other = run(build_environment(rigid, 0, 0), make_scheduler("bid-price(forecast=regression, suspends=yes)"))
    assert other.tobytes() == outcome.tobytes()


@pytest.mark.usefixtures("few_jobs")
def test_it_conforms():
    check_scheduler("bid-price(forecast=regression, suspends=yes)", seeds=[0])


def test_no_life_costs_less_than_its_useful_time_in_the_cheapest_periods():
    """What is never searched for never was the cheapest; without stops and resumes the sum is a life's cost."""
    rng = np.random.default_rng(3)
    equal = 0
    for _ in range(200):
        periods = int(rng.integers(2, 12))
        cost_P, share_P = rng.normal(5.0, 4.0, periods), np.ones(periods)
        share_P[[0, -1]] = rng.uniform(0.1, 1.0, 2)
        units = rng.uniform(0.2, share_P.sum())
        free = rng.random() < 0.5
        resume_P, stop_P = np.zeros((2, periods)) if free else rng.uniform(0.0, 2.0, (2, periods))
        used_P, nothing_P, marks_XP = np.zeros(periods), np.zeros(periods), np.zeros((2, periods), np.uint8)
        asked = cost_P, resume_P, stop_P, nothing_P, nothing_P, share_P, units
        usd = suspended_life(*asked, np.inf, used_P, *marks_XP)
        least = least_usd(cost_P, share_P, units)
        assert least <= usd + 1e-9
        equal += free and abs(usd - least) < 1e-9
    assert equal > 20


def test_a_life_that_is_to_cost_less_than_a_sum_is_found_only_if_it_does():
    """Hours 0 and 2 at 1 USD each and a resume at 2; with one open hour, that hour."""
    nothing_P, resume_P = np.zeros(3), np.full(3, 2.0)
    for cost_P, units, usd, use in (([1.0, 9.0, 1.0], 2.0, 4.0, [1, 0, 1]), ([3.0], 1.0, 3.0, [1])):
        periods = len(cost_P)
        asked = np.array(cost_P), resume_P[:periods], *[nothing_P[:periods]] * 3, np.ones(periods), units
        for below, found, used in ((usd + 1e-9, usd, use), (usd, np.inf, [0] * periods)):
            used_P, marks_XP = np.ones(periods), np.ones((2, periods), np.uint8)
            assert suspended_life(*asked, below, used_P, *marks_XP) == found
            assert used_P.tolist() == used
            assert (marks_XP.sum() > 0) == (found == 4.0)

"""Bid prices that cap the power of jobs: under which cap they start and run on, and with books that add up."""

import itertools
import random
from dataclasses import replace

import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.evaluate.conformance import check_scheduler
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, RUN
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.caps import MARGIN
from noonward.schedule.policies import make_scheduler
from noonward.units import HOUR_S
from reference import small_worlds, suspension

HALF = suspension.Freedom(caps=((0.5, 0.8),))
"""Half of the power for 80% of the throughput: a job takes 62.5% of its energy, and a quarter more time."""
CAPS = "bid-price(forecast=perfect, caps=yes)"
TWO = {"gpus": 2, "work": 2 * HOUR_S, "slack_s": 8 * HOUR_S}
DEAR, CHEAP = 300.0, 20.0
"""Prices, USD/MWh, at 100 W a GPU and 1 USD a GPU-hour. Of the quarter of a GPU-hour that a cap adds to each, the
margin asks for 0.0075 USD; the cap saves 0.01125 USD and 0.00075 USD."""


def job_to_come(*, gpus=1, work_h=1 / 60, slack_h=1.0, arrival_h=0.0):
    row = dict.fromkeys(small_worlds.JOB_COLUMNS, 0)
    times = {"arrival_s": arrival_h * HOUR_S, "work": work_h * HOUR_S, "slack_s": slack_h * HOUR_S}
    return row | times | {"preset_site": -1, "gpus_min": gpus, "gpus_max": gpus}


def world_of(jobs, freedom=HALF, gpus=(4,), price=((DEAR,) * 24,), to_come=()):
    """Some jobs; unless others are given, only a minute on one GPU is expected to come."""
    expected = list(to_come) or [job_to_come()]
    prices = [list(price_H) for price_H in price]
    return small_worlds.plain(list(gpus), jobs, price=prices, freedoms={0: freedom}, another=lambda rng: expected)


def played(jobs, *, policy=CAPS, price=(DEAR,) * 24, to_come=()):
    """The outcome of some jobs on one site of four GPUs."""
    return run(world_of(jobs, price=[price], to_come=to_come).environment(), make_scheduler(policy))


def runs(outcome, job=0):
    """(start h, end h, cap) of a job's runs."""
    kept = [r for r in outcome.segment_K if r["kind"] == RUN and r["job"] == job]
    return [(r["from_s"] / HOUR_S, r["to_s"] / HOUR_S, int(r["cap"])) for r in kept]


def test_a_job_runs_under_a_cap_where_gpus_are_free_and_energy_is_dear():
    outcome = played([TWO])
    assert runs(outcome) == [pytest.approx((0.0, 2.5, 1))]
    full = played([TWO], policy="bid-price-perfect")
    saved = settle(outcome).utility_usd - settle(full).utility_usd
    assert saved == pytest.approx(2 * 2 * 0.1 * DEAR / 1000 * (1 - 0.5 / 0.8))


def test_a_cap_that_saves_less_than_the_margin_is_not_used():
    assert MARGIN == 0.03
    assert runs(played([TWO], price=(CHEAP,) * 24)) == []


@pytest.mark.parametrize(("slack_h", "capped"), [(0.15, False), (0.25, True)])
def test_the_longer_run_counts_as_slack(slack_h, capped):
    """A cap makes the run of 48 minutes 12 minutes longer."""
    outcome = played([TWO | {"work": 0.8 * HOUR_S, "slack_s": slack_h * HOUR_S}])
    assert bool(runs(outcome)) == capped
    assert outcome.job_J["status"].tolist() == [DONE]


def test_a_job_is_not_capped_where_gpus_are_scarce():
    """Jobs without slack are expected that ask for twice the GPUs from the third hour on: there, GPUs have a price."""
    rivals = [job_to_come(gpus=4, work_h=1.0, slack_h=0.0, arrival_h=2 + k // 2) for k in range(44)]
    outcome = played([TWO], to_come=rivals)
    assert runs(outcome) == []
    assert outcome.job_J["finish_s"].tolist() == [2 * HOUR_S]


def test_a_cap_is_lifted_when_a_waiting_job_needs_the_gpus():
    """The second job must start by 4:12, which nobody foresaw; under its cap the first would hold all GPUs until 5:00.

    The booking of the first ends at 4:12, with its cap lifted at the turn of the hour, so the second one has room.
    """
    second = {"arrival_s": 0.5 * HOUR_S, "gpus": 4, "work": HOUR_S, "slack_s": 3.7 * HOUR_S}
    outcome = played([TWO | {"work": 4 * HOUR_S, "gpus": 4}, second])
    assert runs(outcome) == [pytest.approx((0.0, 1.0, 1)), pytest.approx((1.0, 4.2, 0))]
    assert outcome.job_J["status"].tolist() == [DONE, DONE]
    assert outcome.job_J["start_s"][1] == pytest.approx(4.2 * HOUR_S)


def test_a_cap_stays_where_others_find_room_beside_it():
    second = {"arrival_s": 0.5 * HOUR_S, "gpus": 2, "work": HOUR_S, "slack_s": 3.8 * HOUR_S}
    outcome = played([TWO | {"work": 4 * HOUR_S}, second])
    assert runs(outcome) == [pytest.approx((0.0, 5.0, 1))]


def energy_usd(price_H, gpus, start_m, run_m, power):
    """Cost of the energy of a run at 100 W a GPU, minute by minute."""
    return sum(gpus * 0.1 * power * price_H[minute // 60] / 1000 / 60 for minute in range(start_m, start_m + run_m))


@pytest.mark.parametrize("seed", range(20))
def test_one_job_with_foresight_takes_the_best_of_all_sites_starts_and_caps(seed):
    """Each site has one price all day, and the job as little slack as a cap takes or more."""
    rng = random.Random(seed)
    price_SH = [[rng.choice([20.0, 150.0, 300.0])] * 24 for _ in range(2)]
    gpus, minutes, slack_m = rng.choice([1, 2]), rng.choice([40, 80, 120]), rng.choice([0, 10, 30, 90])
    job = {"gpus": gpus, "work": 60.0 * minutes, "slack_s": 60.0 * slack_m}
    freedom = suspension.Freedom(caps=((0.75, 0.9), (0.5, 0.8)))
    outcome = run(world_of([job], freedom, gpus=(4, 4), price=price_SH).environment(), make_scheduler(CAPS))
    ways = {}
    for site, start_m, (power, rate) in itertools.product(
        (0, 1), range(slack_m + 1), ((1, 1), (0.75, 0.9), (0.5, 0.8))
    ):
        if site <= start_m and start_m + minutes / rate - minutes <= slack_m:  # a journey takes a slot
            usd = energy_usd(price_SH[site], gpus, 0, minutes, power) / rate
            ways[site, start_m, power] = usd, usd + MARGIN * gpus * minutes / 60 / rate
    least = min(ways.values(), key=lambda way: way[1])
    assert settle(outcome).energy_usd == pytest.approx(least[0])


@pytest.mark.parametrize("seed", range(20))
def test_with_foresight_caps_never_cost_a_job_that_is_alone(seed):
    rng = random.Random(seed)
    price = [rng.choice([20.0, 150.0, 300.0, 600.0]) for _ in range(24)]
    job = {"gpus": 2, "work": 600.0 * rng.randint(2, 40), "slack_s": 600.0 * rng.randint(0, 40)}
    capped, full = played([job], price=price), played([job], price=price, policy="bid-price-perfect")
    assert settle(capped).utility_usd >= settle(full).utility_usd - 1e-9
    assert capped.job_J["start_s"].tolist() == full.job_J["start_s"].tolist()


class Watched(BidPrice):
    """Checks after every hour that the books hold no less than nothing, and no more than there is."""

    def _renew(self, view, prices, rounds):
        super()._renew(view, prices, rounds)
        assert (self._booked_ST >= 0).all()
        assert (self._booked_ST <= view.site_S["gpus"][:, None]).all()


def test_the_books_add_up_and_steps_equal_the_compiled_run():
    environment = build_environment(load_scenario("training-days", ["jobs.rate_factor=0.588"]), 0, 0)
    outcome = run(environment, Watched(Forecast("regression"), caps=True), compiled=False)
    assert outcome.tobytes() == run(environment, BidPrice(Forecast("regression"), caps=True)).tobytes()
    assert (outcome.job_J["status"] == DONE).mean() > 0.95
    assert (outcome.segment_K["cap"] > 0).sum() > 50


def test_unless_told_to_and_where_no_class_has_caps_it_caps_nothing():
    settings = ["jobs.rate_factor=0.588"]
    outcome = run(
        build_environment(load_scenario("training-days", settings), 0, 0), make_scheduler("bid-price-regression")
    )
    assert outcome.segment_K is None
    rigid = build_environment(load_scenario("training-days", [*settings, "fleet.freedoms={}"]), 0, 0)
    other = run(rigid, make_scheduler("bid-price(forecast=regression, caps=yes)"))
    assert other.tobytes() == outcome.tobytes()


def test_following_events_with_caps_does_not_make_the_base_cap_jobs():
    environment = build_environment(load_scenario("training-days", ["jobs.rate_factor=0.588"]), 0, 0)
    followed = run(environment, make_scheduler("event-response(base=bid-price-regression)"))
    alone = run(environment, make_scheduler("bid-price-regression"))
    assert followed.job_J.tobytes() == alone.job_J.tobytes()


@pytest.mark.usefixtures("few_jobs")
def test_a_run_that_goes_on_from_a_state_equals_one_that_never_stopped():
    check_scheduler("bid-price(forecast=regression, caps=yes)", seeds=[0])


BOTH = "bid-price(forecast=perfect, caps=yes, suspends=yes)"
STOPS = {"stop_s": 60.0, "dark_s": 60.0, "load_s": 60.0, "stop_power": 1.0, "load_power": 1.0}
PEAK = [20.0, 3000.0, *[20.0] * 4, *[3500.0] * 18]
"""The second hour is expensive. A job that starts at once and is not suspended runs through it."""
FIVE = {"gpus": 2, "work": 5 * HOUR_S, "slack_s": 8 * HOUR_S}


def with_both(price, freedom, policy=BOTH):
    return run(world_of([FIVE], freedom, price=[price]).environment(), make_scheduler(policy))


@pytest.mark.parametrize(
    ("price", "freedom", "stops", "capped"),
    [
        (PEAK, suspension.Freedom(caps=((0.5, 0.8),), **STOPS), 1, True),
        ([DEAR] * 24, suspension.Freedom(caps=((0.5, 0.8),), **STOPS), 0, True),
        ([CHEAP] * 24, suspension.Freedom(caps=((0.5, 0.8),), **STOPS), 0, False),
        (PEAK, suspension.Freedom(caps=((0.5, 0.8),), **STOPS | {"load_s": 6 * HOUR_S}), 0, True),
    ],
    ids=["one expensive hour", "every hour expensive", "every hour cheap", "a stop costs more than it saves"],
)
def test_with_both_levers_a_job_is_given_the_one_that_saves_more(price, freedom, stops, capped):
    outcome = with_both(price, freedom)
    assert outcome.suspensions_J.tolist() == [stops]
    caps = [] if outcome.segment_K is None else [r["cap"] for r in outcome.segment_K if r["kind"] == RUN]
    assert any(caps) == capped
    assert (outcome.job_J["status"] == DONE).all()
    unbent = settle(with_both(price, freedom, "bid-price-perfect"))
    assert settle(outcome).utility_usd > unbent.utility_usd or not (stops or capped)


def test_with_both_levers_a_class_that_allows_one_is_planned_as_with_that_one():
    for freedom, lever in ((replace(HALF, interruptible=False), "caps"), (suspension.Freedom(**STOPS), "suspends")):
        for price in (PEAK, [DEAR] * 24):
            alone = with_both(price, freedom, f"bid-price(forecast=perfect, {lever}=yes)")
            assert with_both(price, freedom).tobytes() == alone.tobytes()


@pytest.mark.usefixtures("few_jobs")
def test_with_both_levers_a_run_that_goes_on_from_a_state_equals_one_that_never_stopped():
    check_scheduler("bid-price(forecast=regression, caps=yes, suspends=move)", seeds=[0])

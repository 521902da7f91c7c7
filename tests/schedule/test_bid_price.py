"""Bid prices: what capacity costs when it is short, who gets it, and books that hold."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment, build_environments
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief, Needs
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, OVERDUE
from noonward.model.cluster.environment import GpuCaps
from noonward.model.cluster.jobs import Jobs
from noonward.schedule.cluster.bid_price import BidPrice, _best_kink, extended
from noonward.schedule.registry import make_scheduler
from noonward.seeding import stream
from reference.ledger import hourly
from reference.small_worlds import plain

HOUR_S = 3600.0
PERFECT = Forecast("perfect")


def jobs_at(hours, *, work_h=1.0, slack_h=0.0, **columns):
    """Jobs that arrive at some hours, by default of an hour on one GPU."""
    work = np.full(len(hours), work_h * HOUR_S)
    return Jobs.build(arrival_s=np.array(hours) * HOUR_S, work=work, slack_s=np.multiply(slack_h, HOUR_S), **columns)


def environment_of(gpus, jobs, sampled, **options):
    """A plain world whose planners sample always the same jobs."""
    world = plain(gpus, jobs, **({"price": [[0.0]] * len(gpus), "alpha": 0.1} | options))
    return replace(world.environment(), sample_jobs=lambda rng: sampled)


def asked_once(environment, **options):
    """The scheduler after its first question."""
    scheduler = BidPrice(PERFECT, **options)
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(Brief.of(environment, scheduler.needs), stream(0, "policy"))
    engine.step()
    scheduler.decide(engine.view, engine.answers)
    return scheduler


def hour_prices(scheduler):
    """Prices in force, USD per GPU-hour, per site and hour."""
    return np.diff(scheduler._price_sum_SH, axis=1)


def test_capacity_costs_nothing_where_it_is_ample():
    environment = environment_of([4], [{"work": HOUR_S}], jobs_at([0.5, 1, 1, 2]))
    assert (hour_prices(asked_once(environment)) == 0).all()


def test_capacity_costs_something_in_the_hours_that_are_short_and_nothing_in_the_others():
    environment = environment_of([1], [{"work": 60.0}], jobs_at([2, 2, 2, 2, 4]), window_h=8)
    price_H = hour_prices(asked_once(environment))[0]
    assert price_H[2] > 0.05  # four jobs of 0.1 USD for one GPU
    assert (np.delete(price_H, 2) == 0).all()


def test_only_the_site_that_is_short_has_a_price():
    sampled = jobs_at([2, 2, 2], data_gb=8.0)  # at the first site; without slack there is no time to move
    environment = environment_of([1, 1], [{"work": 60.0}], sampled, window_h=8)
    prices = hour_prices(asked_once(environment))
    assert prices[0, 2] > 0.05
    assert (prices[1] == 0).all()


def test_sampled_jobs_count_by_their_weight():
    """Two draws of one job each ask for one GPU on average, not for two."""
    environment = environment_of([1], [{"work": 60.0, "slack_s": 0.0}], jobs_at([2]), window_h=8)
    assert (hour_prices(asked_once(environment, samples=2)) == 0).all()


def test_no_round_leaves_capacity_free_of_charge():
    environment = environment_of([1], [{"work": 60.0}], jobs_at([2, 2, 2]), window_h=8)
    assert (hour_prices(asked_once(environment, first_rounds=0)) == 0).all()


def test_sampled_gangs_larger_than_any_of_the_runs_own_are_priced():
    environment = environment_of([8], [{"work": 60.0}], jobs_at([2, 2], gpus=8), window_h=8)
    assert hour_prices(asked_once(environment))[0, 2] > 0.05


def test_a_flexible_job_leaves_the_cheap_hour_to_one_that_has_no_other():
    """Hour 1 is cheapest by 0.004 USD; the job to come can run in that hour alone, and is worth 0.1 USD."""
    flexible = {"work": HOUR_S, "slack_s": 3 * HOUR_S}
    later = {"arrival_s": HOUR_S, "work": HOUR_S, "slack_s": 0.0}
    sampled = jobs_at([0.02, 1], slack_h=np.array([3.0, 0.0]))  # the statistics know both kinds
    environment = environment_of([1], [flexible, later], sampled, price=[[50.0, 10.0, 50.0, 50.0]])
    booked = run(environment, make_scheduler("booked-perfect"))
    assert booked.job_J["start_s"][0] == HOUR_S
    assert booked.job_J["status"].tolist() == [DONE, OVERDUE]
    priced = run(environment, BidPrice(PERFECT))
    assert priced.job_J["status"].tolist() == [DONE, DONE]
    assert priced.job_J["start_s"][1] == HOUR_S
    assert settle(priced).utility_usd > settle(booked).utility_usd + 0.09


def test_without_a_rival_the_cheap_hour_is_taken():
    flexible = {"work": HOUR_S, "slack_s": 3 * HOUR_S}
    environment = environment_of([1], [flexible], jobs_at([7]), price=[[50.0, 10.0, 50.0, 50.0]])
    assert run(environment, BidPrice(PERFECT)).job_J["start_s"].tolist() == [HOUR_S]


def test_a_job_worth_less_than_its_gpus_cost_is_refused():
    environment = environment_of([1], [{"work": HOUR_S}], jobs_at([7]), price=[[2000.0]])  # 0.2 USD for 0.1 USD
    assert run(environment, BidPrice(PERFECT)).job_J["status"].tolist() == [OVERDUE]


# ---------------------------------------------------------------- the best start, slowly


def grid_world(seed):
    """Two or three sites and jobs whose times all lie on whole minutes."""
    rng = random.Random(seed)
    gpus = [rng.randint(1, 3) for _ in range(rng.randint(2, 3))]
    jobs = [
        {
            "gpus": rng.randint(1, max(gpus)),
            "origin": rng.randrange(len(gpus)),
            "arrival_s": 60.0 * rng.randrange(300),
            "work": 60.0 * rng.randint(1, 250),
            "slack_s": 60.0 * rng.randint(0, 400),
            "move_gb": float(rng.randint(0, 30)),
            "result_gb": float(rng.randint(0, 5)),
        }
        for _ in range(8)
    ]
    jobs.sort(key=lambda job: job["arrival_s"])
    price = [[rng.uniform(-50, 200) for _ in range(6)] for _ in gpus]
    link = tuple(tuple(0.0 if i == j else 0.0005 for j in range(len(gpus))) for i in range(len(gpus)))
    world = plain(gpus, jobs, price=price, alpha=0.02, window_h=6, network={"usd_per_gb": link})
    return world, replace(world.environment(), sample_jobs=lambda rng: jobs_at([1, 2, 3]))


def best_by_trying(world, job, s, now_s, price_SH):
    """The most a job can earn from now on at some prices, by trying every minute at every site."""
    best = 0.0
    for d, site in enumerate(world.sites):
        if job.gpus_min > site.gpus:
            continue
        earliest_s = now_s + (60.0 * job.move_gb if d != s else 0.0)
        latest_s = job.deadline_s - (60.0 * job.result_gb if d != job.origin else 0.0)
        travel_usd = 0.0005 * (job.move_gb * (d != s) + job.result_gb * (d != job.origin))
        start_s = earliest_s
        while start_s <= latest_s:
            end_s = start_s + job.work
            value = world.alpha * job.gpus_max * job.work / HOUR_S - travel_usd
            value -= 100.0 * job.gpus_max * hourly(world.price[d], start_s, end_s) / 3.6e9
            value -= job.gpus_max * hourly([*price_SH[d], 0.0], start_s, end_s) / HOUR_S
            best = max(best, value)
            start_s += 60.0
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_best_start_between_turns_of_hours_is_the_best_of_all_minutes(seed):
    world, environment = grid_world(seed)
    scheduler = BidPrice(PERFECT, first_rounds=5, rounds=2)
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(Brief.of(environment, scheduler.needs), stream(0, "policy"))
    rng, jobs, tried = np.random.default_rng(seed), world.jobs(), 0
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
        price_SH = rng.uniform(0.0, 0.03, (len(world.sites), 20))
        price_sum_SH = np.concatenate([np.zeros((len(world.sites), 1)), np.cumsum(price_SH, axis=1)], axis=1)
        for s, job in engine.view.asked():
            if rng.random() > 0.03 and tried > 3:
                continue
            now_s = engine.view.now_s
            value, site, start_s = _best_kink(scheduler._known, price_sum_SH, job, s, now_s)
            assert value == pytest.approx(best_by_trying(world, jobs[job], s, now_s, price_SH), rel=1e-9, abs=1e-12)
            assert (site >= 0) == (value > 0)
            assert start_s >= now_s or site < 0
            tried += 1
    assert tried > 3


# ---------------------------------------------------------------- forecasts


def test_hours_beyond_a_forecast_repeat_the_day_before():
    hourly_H = np.arange(1.0, 27.0)  # 26 hours: 1 to 26
    forecast_KSL = np.concatenate([[0.0], np.cumsum(hourly_H)])[None, None]
    longer = np.diff(extended(forecast_KSL, 30)[0, 0])
    assert longer.tolist() == [*hourly_H, 3.0, 4.0, 5.0, 6.0]


def test_a_forecast_shorter_than_a_day_repeats_its_last_hour():
    forecast_KSL = np.array([[[0.0, 5.0, 7.0]], [[0.0, 1.0, 4.0]]])
    assert extended(forecast_KSL, 4).tolist() == [[[0.0, 5.0, 7.0, 9.0, 11.0]], [[0.0, 1.0, 4.0, 7.0, 10.0]]]


def test_hours_that_are_not_forecast_are_filled_and_long_forecasts_stay():
    nan = math.nan
    assert extended(np.array([[[0.0, 5.0, 7.0, nan]]]), 1).tolist() == [[[0.0, 5.0, 7.0, 9.0]]]
    assert extended(np.array([[[0.0, 5.0, 7.0, 8.0]]]), 1).tolist() == [[[0.0, 5.0, 7.0, 8.0]]]


def test_the_forecast_reaches_to_the_end_of_the_last_job_that_may_come():
    sampled = jobs_at([40], work_h=30, slack_h=60)
    scheduler = asked_once(environment_of([2], [{"work": HOUR_S}], sampled, window_h=48))
    assert scheduler._known.forecast_KSL.shape[2] - 1 >= 40 + 60 + 30


# ---------------------------------------------------------------- whole runs


class Audited(BidPrice):
    """Looks into the books after every answer, in large worlds at the turn of every hour."""

    def decide(self, view, answers):
        hour = self._hour
        super().decide(view, answers)
        if len(self._site_J) > 100 and hour == self._hour:
            return
        assert self._booked_TS.min() >= 0
        assert (self._booked_TS.max(axis=0) <= view.site_S["gpus"]).all()


CURVE = "{power: {cubic_w: 40, constant_w: 20}, time: {constant_s: 0.5, per_clock_s: 1.0, per_gpu_s: 0.1}}"


@pytest.mark.parametrize("kind", ["perfect", "persistence", "regression", "noisy"])
@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["end=window"],
        ["jobs.count=90", "jobs.gpus_cap=8", "jobs.slack_ratio=1"],
        [f"fleet.gpu_types.T4-class.classes.fine-tuning={CURVE}", "fleet.gpu_types.T4-class.clocks=[0.5, 1.0]"],
    ],
)
def test_bookings_never_exceed_the_sites_and_every_answer_is_feasible(kind, settings):
    for environment in build_environments(load_scenario("tiny", settings), 3):
        outcome = run(environment, Audited(Forecast(kind)))
        if environment.drained:
            assert np.isin(outcome.job_J["status"], (DONE, OVERDUE)).all()


def test_bookings_never_exceed_the_sites_of_the_main_scenario():
    scenario = load_scenario("fine-tuning", ["window_h=12", "jobs.count=400"])
    for seed in range(2):
        outcome = run(build_environment(scenario, seed, seed), Audited(Forecast("persistence"), first_rounds=30))
        assert outcome.count(DONE) > 300


def test_jobs_that_may_wait_for_ever_are_planned_within_the_window():
    jobs = [{"arrival_s": 900.0 * n, "work": 5400.0, "slack_s": math.inf} for n in range(20)]
    sampled = jobs_at([1, 2, 3], work_h=1.5, slack_h=math.inf)
    environment = environment_of([2], jobs, sampled, window_h=6, drained=False)
    outcome = run(environment, Audited(PERFECT))
    started = outcome.job_J["start_s"][outcome.started_J]
    assert len(started) >= 8
    assert (started <= 6 * HOUR_S).all()


def test_a_hard_cap_keeps_booked_jobs_waiting_and_is_never_an_infeasible_answer():
    for index in range(3):
        environment = build_environment(load_scenario("tiny"), index)
        caps_SH = np.random.default_rng(index).integers(0, 7, (2, environment.hours)).astype(np.float64)
        outcome = run(replace(environment, caps=GpuCaps(gpus_SH=caps_SH)), BidPrice(Forecast("persistence")))
        assert 0 < outcome.count(DONE) < len(environment.jobs)


@pytest.mark.parametrize("name", ["bid-price-persistence", "bid-price-regression", "bid-price-perfect"])
def test_bid_prices_earn_more_than_local_fcfs(name):
    def mean_usd(policy):
        environments = build_environments(load_scenario("tiny"), 5)
        return np.mean([settle(run(environment, make_scheduler(policy))).utility_usd for environment in environments])

    assert mean_usd(name) > 1.1 * mean_usd("local-fcfs")


def test_the_same_seed_gives_the_same_run_and_another_seed_other_samples():
    environment = build_environment(load_scenario("tiny"), 3)
    runs = [run(environment, BidPrice(Forecast("noisy")), seed=seed).job_J.tobytes() for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    scheduler = BidPrice(Forecast("noisy"))
    assert [run(environment, scheduler, seed=1).job_J.tobytes() for _ in range(2)] == runs[:1] * 2


@pytest.mark.parametrize("option", [{"samples": 3}, {"first_rounds": 20}, {"rounds": 2}, {"step": 0.05}])
def test_every_setting_is_a_knob(option):
    environment = build_environment(load_scenario("tiny"), 3)
    plain, turned = (run(environment, BidPrice(PERFECT, **options)).job_J.tobytes() for options in ({}, option))
    assert plain != turned


def test_jobs_that_cannot_be_sampled_are_refused():
    environment = replace(build_environment(load_scenario("tiny")), sample_jobs=None)
    with pytest.raises(ScenarioError, match="scenario 'tiny' cannot be sampled"):
        run(environment, BidPrice(PERFECT))
    with pytest.raises(ScenarioError, match="scenario 'tiny' cannot be sampled; use generated jobs or another policy"):
        BidPrice(PERFECT).reset(Brief.of(environment, Needs()), stream(0, "policy"))


def test_jobs_whose_revenue_is_unknown_are_refused():
    environment = replace(build_environment(load_scenario("tiny")), economics=None)
    with pytest.raises(ScenarioError, match="scenario 'tiny' has no economics"):
        run(environment, BidPrice(PERFECT))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples of bid prices is 0; it must be at least 1"),
        ({"first_rounds": -1}, "first_rounds of bid prices is -1; it must be at least 0"),
        ({"rounds": -3}, "rounds of bid prices is -3; it must be at least 0"),
        ({"step": 0.0}, r"step of bid prices is 0\.0 USD per GPU-hour; it must be finite and above 0"),
        ({"step": -0.01}, r"step of bid prices is -0\.01"),
        ({"step": math.nan}, "step of bid prices is nan"),
        ({"step": math.inf}, "step of bid prices is inf"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BidPrice(PERFECT, **options)


def test_the_least_settings_are_allowed():
    environment = environment_of([1], [{"work": 60.0}], jobs_at([2]))
    outcome = run(environment, BidPrice(PERFECT, samples=1, first_rounds=0, rounds=0))
    assert outcome.job_J["status"].tolist() == [DONE]

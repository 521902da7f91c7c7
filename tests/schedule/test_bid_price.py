"""Bid prices: what capacity costs when it is short, who gets it, and books that hold."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief, Needs
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, OVERDUE
from noonward.model.cluster.environment import GpuCaps
from noonward.model.cluster.expected import WeightedJobs
from noonward.model.cluster.jobs import Jobs
from noonward.runtime.by_kind import build_environments
from noonward.schedule.cluster.bid_price import STRETCH_H, BidPrice
from noonward.schedule.cluster.capacity_prices import OPTION, PRICED_H, best_start, describe, sum_up, sum_up_energy
from noonward.schedule.cluster.choices import prices as choices_prices
from noonward.schedule.cluster.choices.layout import PRICE
from noonward.schedule.cluster.learned_price import packaged_price
from noonward.schedule.cluster.packaged_policies import FOLDER
from noonward.schedule.cluster.rooms import best_room
from noonward.schedule.policies import make_scheduler
from noonward.schedule.policy_files import load_policy
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
    return np.diff(scheduler._prices.paid_SR, axis=1)


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


def offered(scheduler, view, job, s, price_SH):
    """Prices as given per hour of the run, and what a job takes and earns."""
    hour, sites = scheduler._hour, len(price_SH)
    ahead_SH = np.zeros((sites, PRICED_H))
    ahead_SH[:, : price_SH.shape[1] - hour] = price_SH[:, hour:]
    prices = scheduler._prices._replace(paid_SR=np.zeros_like(scheduler._prices.paid_SR))
    sum_up(ahead_SH, prices.paid_SR)
    option_S = np.zeros(sites, OPTION)
    describe(view, scheduler._kinds, job, s, view.now_s, hour * HOUR_S, np.inf, 0.0, False, option_S)
    return prices, option_S


def best_by_trying(world, job, s, now_s, price_SH, booked_ST=None):
    """The most a job can earn from now on at some prices, by trying every minute at every site.

    With books (per minute of the run), only starts with room, on whole minutes and after a journey in a later one.
    """
    best = 0.0
    for d, site in enumerate(world.sites):
        if job.gpus_min > site.gpus:
            continue
        earliest_s = now_s + (60.0 * job.move_gb if d != s else 0.0)
        latest_s = job.deadline_s - (60.0 * job.result_gb if d != job.origin else 0.0)
        travel_usd = 0.0005 * (job.move_gb * (d != s) + job.result_gb * (d != job.origin))
        start_s = max(earliest_s, now_s + 60.0 * (d != s)) if booked_ST is not None else earliest_s
        while start_s <= latest_s:
            end_s = start_s + job.work
            minutes = slice(int(start_s // 60), math.ceil(end_s / 60))
            if booked_ST is not None and (booked_ST[d, minutes] + job.gpus_max > site.gpus).any():
                start_s += 60.0
                continue
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
        price_SH = rng.uniform(0.0, 0.03, (len(world.sites), 24))
        for s, slot in engine.view.asked():
            job = int(engine.view.serial_N[s])
            if rng.random() > 0.03 and tried > 3:
                continue
            now_s = engine.view.now_s
            prices, option_S = offered(scheduler, engine.view, slot, s, price_SH)
            rows = prices.paid_SR, prices.energy_SR
            least_2S = np.array([np.diff(value_SR).min(axis=1) for value_SR in rows])
            value, site, start_h = best_start(engine.view.site_S, price_SH.shape[1], *rows, least_2S, option_S, s, 0.0)
            assert value == pytest.approx(best_by_trying(world, jobs[job], s, now_s, price_SH), rel=1e-9, abs=1e-12)
            assert (site >= 0) == (value > 0)
            assert start_h >= now_s % HOUR_S / HOUR_S or site < 0
            tried += 1
    assert tried > 3


@pytest.mark.parametrize("seed", range(6))
def test_the_best_start_with_room_is_the_best_of_all_minutes_with_room(seed):
    world, environment = grid_world(seed)
    scheduler = BidPrice(PERFECT, first_rounds=5, rounds=2)
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    rng, jobs, found = np.random.default_rng(seed), world.jobs(), 0
    gpus_S = np.array([site.gpus for site in world.sites])
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
        if rng.random() > 0.5:
            continue
        price_SH = rng.uniform(0.0, 0.03, (len(world.sites), 24))
        slot_0 = scheduler._hour * 60
        books_ST = np.zeros((len(gpus_S), scheduler._booked_ST.shape[1]), np.int64)
        for _ in range(12):  # runs of others
            site, slot = rng.integers(len(gpus_S)), rng.integers(900)
            books_ST[site, slot : slot + rng.integers(1, 100)] += 1
        books_ST = np.minimum(books_ST, gpus_S[:, None])
        all_ST = np.concatenate([np.zeros((len(gpus_S), slot_0), np.int64), books_ST], axis=1)
        for s, slot in engine.view.asked():
            job = int(engine.view.serial_N[s])
            prices, option_S = offered(scheduler, engine.view, slot, s, price_SH)
            value, site, start = best_room(
                engine.view, scheduler._kinds, prices, option_S, books_ST, slot_0, np.inf, 0.0, slot, s
            )
            best = best_by_trying(world, jobs[job], s, engine.view.now_s, price_SH, all_ST)
            assert value == pytest.approx(best, rel=1e-9, abs=1e-12)
            if site < 0:
                continue
            found += 1
            minutes = slice(start, start + math.ceil(jobs[job].work / 60))
            assert (all_ST[site, minutes] + jobs[job].gpus_max <= gpus_S[site]).all()
    assert found > 0


# ---------------------------------------------------------------- forecasts and the horizon


def hourly_costs(scheduler):
    """Forecast cost of a watt per hour in reach, USD/MWh."""
    return np.diff(scheduler._prices.energy_SR, axis=1) * 1e6


def forecast_costs(hourly_H, reach):
    """Hourly costs, USD/MWh, that come of a forecast of prices alone."""
    engine = ClusterEngine(environment_of([1], [{"work": HOUR_S}], jobs_at([1])), BidPrice(PERFECT))
    forecast_KSL = np.zeros((2, 1, len(hourly_H) + 1))
    forecast_KSL[0, 0, 1:] = np.cumsum(hourly_H) * HOUR_S
    forecast_KSL[1, 0, np.isnan(forecast_KSL[0, 0])] = math.nan
    energy_SR = np.zeros((1, reach + 1))
    sum_up_energy(engine.view._replace(forecast_KSL=forecast_KSL), energy_SR)
    return (np.diff(energy_SR[0]) * 1e6).round(9).tolist()


def test_hours_beyond_a_forecast_repeat_the_day_before():
    hourly_H = np.arange(1.0, 27.0)  # 26 hours: 1 to 26
    assert forecast_costs(hourly_H, 30) == [*hourly_H, 3.0, 4.0, 5.0, 6.0]
    assert forecast_costs(hourly_H, 51)[-2:] == [26.0, 3.0]


def test_a_forecast_shorter_than_a_day_repeats_itself():
    assert forecast_costs([5.0, 2.0], 5) == [5.0, 2.0, 5.0, 2.0, 5.0]


def test_hours_that_are_not_forecast_are_filled_and_long_forecasts_stay():
    assert forecast_costs([5.0, 2.0, math.nan], 4) == [5.0, 2.0, 5.0, 2.0]
    assert forecast_costs([5.0, 2.0, 1.0], 2) == [5.0, 2.0]


def test_runs_behind_the_horizon_pay_the_prices_of_its_last_day_once_more():
    price_SH = np.arange(PRICED_H, dtype=float)[None]
    paid_SR = np.zeros((1, PRICED_H + 49))
    sum_up(price_SH, paid_SR)
    day = range(PRICED_H - 24, PRICED_H)
    assert np.diff(paid_SR[0])[PRICED_H - 1 :].tolist() == [PRICED_H - 1, *day, *day]


def test_prices_and_books_reach_to_the_end_of_the_longest_run_in_sight():
    sampled = jobs_at([40], work_h=30, slack_h=60)
    scheduler = asked_once(environment_of([2], [{"work": HOUR_S}], sampled, window_h=48))
    assert len(hour_prices(scheduler)[0]) >= PRICED_H + 30
    longer = {"work": 150 * HOUR_S, "slack_s": HOUR_S}
    scheduler = asked_once(environment_of([2], [longer], sampled, window_h=48))
    assert len(hourly_costs(scheduler)[0]) >= PRICED_H + 150
    assert scheduler._booked_ST.shape[1] >= (PRICED_H + 150) * 60
    assert (scheduler._booked_ST > 0).sum() == 150 * 60


def test_arrays_do_not_grow_with_the_window():
    def sizes(days):
        jobs = [{"arrival_s": 6 * HOUR_S * n, "work": HOUR_S, "slack_s": HOUR_S} for n in range(4 * days)]
        sampled = jobs_at(np.arange(24.0 * days), slack_h=1.0)
        scheduler = BidPrice(PERFECT)
        run(environment_of([2], jobs, sampled, window_h=24 * days), scheduler)
        return [scheduler._prices.paid_SR.shape, scheduler._booked_ST.shape, len(scheduler._coming_C)]

    assert sizes(8) == sizes(12)


def test_the_sampled_week_repeats():
    """In every week the same hours are short as in the first."""
    sampled = jobs_at([*[30.0] * 6, 150.0])
    jobs = [{"arrival_s": hour * HOUR_S, "work": 60.0} for hour in (0.0, 1.0, 168.0, 336.0)]
    scheduler = BidPrice(PERFECT)
    engine = ClusterEngine(environment_of([1], jobs, sampled, window_h=24 * 21), scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    dear = {}
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
        dear[engine.view.now_s / HOUR_S] = np.flatnonzero(hour_prices(scheduler)[0][:PRICED_H] > 0.01).tolist()
    assert dear == {0.0: [30, 198], 1.0: [29, 197], 168.0: [30, 198], 336.0: [30]}  # none after the window's end


def test_a_workload_without_a_job_in_its_first_week_leaves_capacity_free_of_charge():
    environment = environment_of([1], [{"work": 60.0}], jobs_at([300.0]), window_h=480)
    assert (hour_prices(asked_once(environment)) == 0).all()


def test_prices_move_on_with_the_clock_and_come_into_sight_from_the_day_before():
    jobs = [{"arrival_s": hour * HOUR_S, "work": 60.0} for hour in (0.0, 5.0)]
    scheduler = BidPrice(PERFECT, rounds=0)
    sampled = jobs_at([7] * 4 + [PRICED_H - 23 - STRETCH_H] * 4)  # a week later, these come on the horizon's last day
    engine = ClusterEngine(environment_of([1], jobs, sampled, window_h=480), scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    seen = []
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
        seen.append(hour_prices(scheduler)[0][:PRICED_H].copy())
    np.testing.assert_allclose(seen[1][:-5], seen[0][5:], atol=1e-15)
    np.testing.assert_allclose(seen[1][-5:], seen[0][-24:-19], atol=1e-15)
    assert seen[1][-5:].max() > 0.01


def test_a_row_that_another_job_takes_gives_its_booking_back():
    jobs = [{"work": 3 * HOUR_S, "slack_s": 2 * HOUR_S}]
    environment = environment_of([1], jobs, jobs_at([7]), price=[[50.0, 50.0, 10.0, 10.0, 10.0]])
    scheduler = BidPrice(PERFECT)
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    engine.step()
    scheduler.decide(engine.view, engine.answers)
    assert np.flatnonzero(scheduler._booked_ST[0]).tolist() == list(range(120, 300))
    engine.view.job_J["serial"] = 7  # the first job has gone, unseen
    engine.view.job_J["work"] = HOUR_S
    scheduler.decide(engine.view, engine.answers)
    assert np.flatnonzero(scheduler._booked_ST[0]).tolist() == list(range(120, 180))


# ---------------------------------------------------------------- whole runs


class Audited(BidPrice):
    """Looks into the books after every answer, in large worlds at the turn of every hour."""

    def decide(self, view, answers):
        hour = self._hour
        super().decide(view, answers)
        if len(self._plan_J) > 100 and hour == self._hour:
            return
        assert self._booked_ST.min() >= 0
        assert (self._booked_ST.max(axis=1) <= view.site_S["gpus"]).all()


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
        outcome = run(environment, Audited(Forecast(kind)), compiled=False)
        if environment.drained:
            assert np.isin(outcome.job_J["status"], (DONE, OVERDUE)).all()


def test_bookings_never_exceed_the_sites_of_the_main_scenario():
    scenario = load_scenario("fine-tuning", ["window_h=12", "jobs.count=400"])
    for seed in range(2):
        scheduler = Audited(Forecast("persistence"), first_rounds=30)
        outcome = run(build_environment(scenario, seed, seed), scheduler, compiled=False)
        assert outcome.count(DONE) > 300


def test_jobs_that_may_wait_for_ever_are_planned_within_the_window():
    jobs = [{"arrival_s": 900.0 * n, "work": 5400.0, "slack_s": math.inf} for n in range(20)]
    sampled = jobs_at([1, 2, 3], work_h=1.5, slack_h=math.inf)
    environment = environment_of([2], jobs, sampled, window_h=6, drained=False)
    outcome = run(environment, Audited(PERFECT), compiled=False)
    started = outcome.job_J["start_s"][outcome.started_J]
    assert len(started) >= 6
    assert (started < 6 * HOUR_S).all()


def test_runs_journeys_and_slacks_that_no_integer_holds_are_planned_or_left_out():
    jobs = [
        {"work": HOUR_S, "slack_s": math.inf},
        {"work": 1e300, "slack_s": 0.0},
        {"work": HOUR_S, "slack_s": 1e300, "arrival_s": 300.0},
        {"work": HOUR_S, "slack_s": math.inf, "move_gb": 1e308, "result_gb": 1e308, "arrival_s": 300.0},
        {"work": HOUR_S, "slack_s": 1e300, "move_gb": 1e19, "result_gb": 1e19, "arrival_s": 300.0},
    ]
    sampled = jobs_at([1, 2, 3], work_h=1e300, slack_h=math.inf, data_gb=1e308, result_gb=1e308)
    price = [[30.0] * 6, [10.0] * 6]  # the cheaper site is out of the reach of the last two
    environment = environment_of([2, 2], jobs, sampled, price=price, window_h=6, drained=False)
    outcome = run(environment, Audited(PERFECT), compiled=False)
    assert outcome.job_J["site"].tolist() == [1, 0, 1, 0, 0]
    assert (outcome.count(DONE), outcome.count(OVERDUE)) == (4, 0)


class Counted(BidPrice):
    """Counts the questions that the compiled rule leaves to it."""

    asked = 0

    def decide(self, view, answers):
        self.asked += 1
        super().decide(view, answers)


def test_the_compiled_rule_answers_all_questions_but_the_first_of_an_hour():
    scenario = load_scenario("fine-tuning", ["window_h=12", "jobs.count=2000"])  # more in sight than there is room for
    environment = build_environment(scenario)
    compiled, plain_python = Counted(Forecast("persistence")), Counted(Forecast("persistence"))
    outcome = run(environment, compiled)
    assert outcome.tobytes() == run(environment, plain_python, compiled=False).tobytes()
    assert environment.hours * 20 < plain_python.asked
    assert 10 < compiled.asked < environment.hours + 10


def test_the_compiled_rule_leaves_runs_beyond_the_books_to_python():
    jobs = [{"work": 60.0}, {"work": 500 * HOUR_S, "arrival_s": 600.0}, {"work": 60.0, "arrival_s": 900.0}]
    environment = environment_of([2], jobs, jobs_at([2]))
    scheduler = Counted(PERFECT)
    outcome = run(environment, scheduler)
    assert outcome.tobytes() == run(environment, BidPrice(PERFECT), compiled=False).tobytes()
    assert scheduler._booked_ST.shape[1] > 500 * 60
    assert outcome.count(DONE) == 3


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


@pytest.mark.parametrize(
    "option",
    [{"samples": 3}, {"first_rounds": 20}, {"rounds": 2}, {"step": 0.05}, {"expected": 50}, {"jobs_per_hour": 0.5}],
)
def test_every_setting_is_a_knob(option):
    environment = build_environment(load_scenario("tiny"), 3)
    plain, turned = (run(environment, BidPrice(PERFECT, **options)).job_J.tobytes() for options in ({}, option))
    assert plain != turned


def test_weighted_jobs_count_by_their_weight():
    class Twice:
        """The job of the second hour, which stands for two."""

        def __call__(self, rng):
            return jobs_at([1, 1])

        def expected(self, count, rng):
            return WeightedJobs(jobs_at([1]), np.array([2.0]))

    alone, twice = (
        asked_once(replace(environment_of([1], [{"work": 60.0}], None), sample_jobs=sampler), samples=1, expected=count)
        for sampler, count in ((lambda rng: jobs_at([1]), 0), (Twice(), 5))
    )
    drawn = asked_once(replace(environment_of([1], [{"work": 60.0}], None), sample_jobs=Twice()), samples=1)
    assert hour_prices(alone)[0, 1] == 0.0
    assert hour_prices(drawn)[0, 1] > 0.0
    np.testing.assert_allclose(hour_prices(twice), hour_prices(drawn))


def test_where_nothing_is_said_of_what_is_expected_jobs_are_drawn():
    environment = environment_of([1], [{"work": 60.0}], jobs_at([2, 2]))
    drawn, expected = (asked_once(environment, samples=2, expected=count) for count in (0, 7))
    np.testing.assert_array_equal(hour_prices(expected), hour_prices(drawn))


def test_expected_jobs_of_a_long_window_are_as_many_a_week():
    class Counts:
        asked = 0

        def __call__(self, rng):
            raise AssertionError("jobs are drawn")

        def expected(self, count, rng):
            self.asked = count
            return WeightedJobs(jobs_at([2, 2]), np.ones(2))

    sampler = Counts()
    environment = environment_of([1], [{"work": 60.0}], None, window_h=3 * STRETCH_H)
    asked_once(replace(environment, sample_jobs=sampler), expected=40)
    assert sampler.asked == 120


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
        ({"samples": 0}, "samples is 0; allowed: a whole number of at least 1"),
        ({"first_rounds": -1}, "first_rounds is -1; allowed: a whole number of at least 0"),
        ({"rounds": -3}, "rounds is -3; allowed: a whole number of at least 0"),
        ({"expected": -1}, "expected is -1; allowed: a whole number of at least 0"),
        ({"jobs_per_hour": 0.0}, r"jobs_per_hour is 0\.0; allowed: a number above 0"),
        ({"jobs_per_hour": math.inf}, "jobs_per_hour is inf"),
        ({"memory": 0.0}, r"memory is 0\.0; allowed: a number above 0 and at most 1"),
        ({"memory": 1.1}, r"memory is 1\.1"),
        ({"step": 0.0}, r"step is 0\.0; allowed: a number above 0 \(USD per GPU-hour\)"),
        ({"step": -0.01}, r"step is -0\.01"),
        ({"step": math.nan}, "step is nan"),
        ({"step": math.inf}, "step is inf"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ScenarioError, match=message):
        BidPrice(PERFECT, **options)


def test_the_least_settings_are_allowed():
    environment = environment_of([1], [{"work": 60.0}], jobs_at([2]))
    outcome = run(environment, BidPrice(PERFECT, samples=1, first_rounds=0, rounds=0))
    assert outcome.job_J["status"].tolist() == [DONE]


def test_prices_start_from_learned_ones_as_masac_credit_reckons_with():
    environment = build_environment(load_scenario("fine-tuning", ["signals.months=[4]"]))
    choices = load_policy(FOLDER / "masac-credit.npz")
    engine = ClusterEngine(environment, choices)
    choices.reset(engine.brief, stream(0, "policy"))
    engine.step()
    choices.decide(engine.view, engine.answers)
    sites = len(environment.sites)
    share_SH = choices.memory.table_XY[PRICE * sites : (PRICE + 1) * sites, : choices_prices.PRICED_H]
    scheduler = BidPrice(Forecast("regression"), learned_price=packaged_price(0), first_rounds=0)
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    engine.step()
    scheduler.decide(engine.view, engine.answers)
    learned_SH = hour_prices(scheduler)[:, : choices_prices.PRICED_H]
    np.testing.assert_allclose(learned_SH, 0.05 * share_SH, rtol=1e-12, atol=1e-12)
    assert learned_SH.max() > 0.005
    assert (hour_prices(scheduler)[:, choices_prices.PRICED_H : PRICED_H] == 0).all()
    other = packaged_price(1)(engine.view, scheduler._window_h, scheduler._start_hour)
    assert np.abs(other - learned_SH).max() > 1e-4


def test_a_run_with_learned_prices_is_as_good_with_a_fifth_of_the_first_rounds_and_half_of_the_others():
    environments = list(build_environments(load_scenario("fine-tuning", ["signals.months=[4]"]), 3, 7))
    utility = {
        name: sum(settle(run(environment, make())).utility_usd for environment in environments)
        for name, make in {
            "usual": lambda: BidPrice(Forecast("regression")),
            "learned": lambda: BidPrice(
                Forecast("regression"), rounds=4, first_rounds=20, learned_price=packaged_price(0)
            ),
        }.items()
    }
    assert utility["learned"] > 0.98 * utility["usual"]


@pytest.mark.parametrize("memory", [1.0, 0.5])
def test_the_memory_of_slopes_fades_by_the_hour(memory):
    environment = environment_of([1], [{"work": 60.0}, {"work": 60.0, "arrival_s": 5400.0}], jobs_at([2, 2, 2, 3, 3]))
    scheduler = BidPrice(PERFECT, first_rounds=20, rounds=0, memory=memory)
    engine = ClusterEngine(environment, scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    seen = {}
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
        seen.setdefault(scheduler._hour, scheduler._square_SH.copy())
    assert seen[0][0, 2] > 0
    np.testing.assert_allclose(seen[1][0, 1], memory * seen[0][0, 2])


def test_bid_price_learned_plans_by_forecast_and_prices_of_its_training_seed():
    scheduler = make_scheduler("bid-price-learned-seed1")
    assert scheduler.needs.forecast == Forecast("learned", net="small-seed1")
    assert scheduler.learned_price is packaged_price(1)
    scheduler = make_scheduler("bid-price-learned")
    assert scheduler.needs.forecast == Forecast("learned", net="small-seed0")
    assert scheduler.learned_price is packaged_price(0)
    assert (scheduler.samples, scheduler.rounds, scheduler.first_rounds, scheduler.memory) == (3, 8, 20, 0.8)
    assert (scheduler.expected, scheduler.jobs_per_hour) == (2000, 16.0)
    assert make_scheduler("bid-price-regression").learned_price is None
    assert make_scheduler("bid-price(forecast=regression, price=2)").learned_price is packaged_price(2)
    with pytest.raises(ScenarioError, match="price is '3'; allowed: one of none, 0, 1, 2"):
        make_scheduler("bid-price(forecast=regression, price=3)")

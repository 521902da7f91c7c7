import math
import random
from dataclasses import replace

import highspy
import numpy as np
import pytest

from noonward.bound.cluster_utility import columns, lagrangian, primal
from noonward.bound.cluster_utility.columns import build_columns
from noonward.bound.cluster_utility.dual import Dual, Relaxation
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.bound.cluster_utility.prices import descend, descend_evenly, piece, polish_in_pieces
from noonward.bound.cluster_utility.primal import (
    MOST_LOOKS,
    MOST_TRIES,
    REBOOKED,
    TRIES_PER_JOB,
    slot_options,
    usual_tries,
)
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.scheduler import Scheduler
from noonward.errors import ScenarioError
from noonward.evaluate.comparison import Bound, objective_of
from noonward.model.cluster.environment import GpuCaps
from noonward.model.cluster.fleet import Ingress
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.power import ClassProfile, PowerCurve, TimeCurve
from noonward.model.network import Network
from reference.cluster_utility import (
    SLOT_S,
    Replay,
    brute_force,
    build,
    earned,
    fits,
    plain_choices,
    plain_idle,
    plain_integral,
    plain_value,
    random_environment,
)


class Chooser(Scheduler):
    """Starts and moves jobs at random; clock levels at random, or always the one given."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self, seed, level=None):
        self.rng, self.level = random.Random(seed), level

    def decide(self, view, answers):
        for here, _ in view.asked():
            site = self.rng.choice(np.flatnonzero(view.mask_NA[here]).tolist()) - 1
            level = self.rng.randrange(-1, view.site_S["levels"][here]) if self.level is None else self.level
            if site >= 0:
                answers.send(here, site, level=level)


# Fast is the oracle's clock: 80 J a second of work against 142 J at clock 0.45, whose runs last 1 / 0.45 as long.
TWO_CLOCKS = {
    "clocks": (0.45, 1.0),
    "profile": ClassProfile(power=PowerCurve(cubic_w=18.0, constant_w=62.0), time=TimeCurve(per_clock_s=1.0)),
}


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_at_least_the_brute_force_optimum_and_the_schedule_at_most(seed):
    env = random_environment(seed, count=3 if seed % 3 else 4, sites=2 + seed % 2)
    optimum = brute_force(env)
    bound = utility_bound(env, iterations=100, rounds=30)
    assert bound.upper_usd >= optimum - 1e-9
    assert bound.lower_usd <= optimum + 1e-9
    assert bound.idle_usd == pytest.approx(plain_idle(env))
    relaxation, rng = Relaxation(env), np.random.default_rng(seed)
    for scale in (0.0, 0.01, 0.1, 1.0):
        price_SH = scale * rng.exponential(size=relaxation.shape) * (rng.random(relaxation.shape) < 0.7)
        assert relaxation.value(price_SH)[0] >= optimum - 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_a_bound_that_may_stop_at_a_gap_is_a_bound_within_it(seed):
    env = random_environment(seed, count=4, sites=2)
    optimum = brute_force(env)
    relaxation = Relaxation(env)
    value_usd, price_SH, _ = descend_evenly(relaxation, 60)
    assert value_usd == relaxation.value(price_SH)[0] >= optimum - 1e-9
    assert value_usd <= relaxation.value(np.zeros(relaxation.shape))[0]
    wide = utility_bound(env, enough=10.0, most_jobs=4, rounds=0)
    tight = utility_bound(env, rounds=0)
    assert wide.upper_usd >= tight.upper_usd - 1e-9


def test_a_long_window_stops_at_its_gap_and_goes_on_without_one():
    env = build_environment(load_scenario("fine-tuning", ["jobs.count=300", "window_h=48"]))
    stopped = utility_bound(env, enough=0.2, most_jobs=100)
    assert stopped.upper_usd - stopped.lower_usd <= 0.2 * stopped.upper_usd
    whole = utility_bound(env, enough=1e-9, most_jobs=100, rounds=0)
    assert whole.iterations > stopped.iterations
    assert stopped.lower_usd <= whole.upper_usd <= stopped.upper_usd + 1e-9


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("late_usd", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(("seed", "until_s"), [(0, 14400.0), (1, 14400.0), (2, 14400.0), (3, 2400.0), (4, 0.0)])
def test_where_jobs_may_be_late_the_bound_is_at_least_the_brute_force_optimum(
    seed, until_s, late_usd, cut, monkeypatch
):
    if cut:  # as in long windows: starts that are later still are one column an option
        monkeypatch.setattr(columns, "MOST_LATE", 0)
        monkeypatch.setattr(columns, "LATE_H", 0.5)
    env = random_environment(seed, count=3, sites=2, slot_s=1200.0)
    env = replace(env, late_until_s=until_s, late_usd_per_gpu_hour=late_usd)
    optimum = brute_force(env)
    assert until_s < 14400.0 or optimum > brute_force(replace(env, late_until_s=-np.inf)) or late_usd > 0
    bound = utility_bound(env, iterations=100, rounds=30)
    assert bound.upper_usd >= optimum - 1e-9
    assert bound.lower_usd <= optimum + 1e-9
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.lower_usd, abs=1e-9)
    for answers in range(10):
        assert earned(env, Chooser(answers)) <= optimum + 1e-9
    relaxation, rng = Relaxation(env), np.random.default_rng(seed)
    for scale in (0.0, 0.01, 0.1, 1.0):
        price_SH = scale * rng.exponential(size=relaxation.shape) * (rng.random(relaxation.shape) < 0.7)
        assert relaxation.value(price_SH)[0] >= optimum - 1e-9


@pytest.mark.parametrize("late_usd", [0.0, 0.05])
@pytest.mark.parametrize("until_s", [20000.0, 1200.0, 0.0])  # some jobs may start later than that without being late
@pytest.mark.parametrize("seed", range(6))
def test_one_late_job_alone_is_bounded_by_its_own_best_start(seed, until_s, late_usd):
    env = random_environment(seed, count=1, network=Network(throughput_gb_per_min=0.5, usd_per_gb=0.001))
    env = replace(env, late_until_s=until_s, late_usd_per_gpu_hour=late_usd)
    best = max((choice[2] for choice in plain_choices(env, 0)), default=0.0)
    bound = utility_bound(env, iterations=50, rounds=0)
    assert bound.upper_usd == pytest.approx(plain_idle(env) + max(0.0, best), abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_with_two_clock_levels_no_answers_exceed_the_bound_and_the_schedule_runs(seed):
    env = random_environment(seed, count=3, **TWO_CLOCKS)
    tables = env.fleet.tables(2)
    assert (tables.oracle_level_SCG[:, :, 1:] == 1).all()
    optimum = brute_force(env)
    bound = utility_bound(env, iterations=100, rounds=30)
    assert bound.upper_usd >= optimum - 1e-9
    assert bound.lower_usd <= optimum + 1e-9
    assert bound.idle_usd == pytest.approx(plain_idle(env))
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.lower_usd, abs=1e-9)
    for answers in range(10):
        assert earned(env, Chooser(answers)) <= optimum + 1e-9
        assert earned(env, Chooser(answers, level=0)) <= optimum + 1e-9


def test_a_slow_clock_never_earns_more_than_the_bound():
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.array([3600.0]), slack_s=600.0)
    time = TimeCurve(constant_s=0.0, per_clock_s=1.0)
    profile = ClassProfile(power=PowerCurve(cubic_w=20.0, constant_w=60.0), time=time)
    env = build(jobs, gpus=(1,), pue=(1.0,), clocks=(0.3, 1.0), profile=profile)
    assert env.fleet.tables(1).oracle_level_SCG[0, 0, 1] == 1
    bound = utility_bound(env)
    slow, oracle = earned(env, Chooser(0, level=0)), earned(env, Chooser(0, level=-1))
    assert slow > oracle + 0.05
    assert slow <= bound.upper_usd + 1e-12
    # 1 h of work takes 10/3 h at clock 0.3 and 60.54 W, 52.54 W more than a free GPU: 0.14 USD/kWh.
    assert bound.upper_usd - bound.idle_usd == pytest.approx(10 / 3 * (0.05 - 0.14 * 0.05254))
    assert bound.schedule.level_J.tolist() == [0]
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.lower_usd)
    assert bound.gap_usd == pytest.approx(0, abs=1e-12)


def test_a_job_without_a_result_may_start_as_late_as_the_engine_lets_it():
    # Half a second from home, and at the deadline exactly: nothing travels back.
    network = Network(usd_per_gb=0.001, latency_ms=500.0)
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.array([3600.0]), slack_s=600.0)
    price = np.array([[3000.0] * 400, [0.0] * 400])
    env = build(jobs, gpus=(1, 1), pue=(1.0, 1.0), price=price, network=network)
    bound = utility_bound(env)
    assert bound.schedule.site_J.tolist() == [1]
    assert bound.schedule.start_s_J.tolist() == [600.0]
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.upper_usd)


def test_no_schedule_is_made_under_hard_capacity_curves():
    env = random_environment(5, count=4)
    caps = GpuCaps(gpus_SH=np.zeros((2, env.hours)))
    free, hard = utility_bound(env), utility_bound(replace(env, caps=caps))
    assert hard.schedule is None
    assert math.isnan(hard.lower_usd)
    assert hard.upper_usd == free.upper_usd
    advisory = utility_bound(replace(env, caps=replace(caps, hard=False)))
    assert advisory.lower_usd == free.lower_usd > free.idle_usd


@pytest.mark.parametrize("seed", range(20))
def test_one_job_alone_is_bounded_by_its_own_best_start(seed):
    env = random_environment(seed, count=1, network=Network(throughput_gb_per_min=0.5, usd_per_gb=0.001))
    best = max((choice[2] for choice in plain_choices(env, 0)), default=0.0)
    bound = utility_bound(env, iterations=50, rounds=0)
    assert bound.upper_usd == pytest.approx(plain_idle(env) + max(0.0, best), abs=1e-9)
    assert bound.lower_usd == pytest.approx(bound.upper_usd, abs=1e-9)
    assert bound.dual_excess_usd == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("periods", [1, 2, 10])
@pytest.mark.parametrize("seed", range(10))
def test_candidates_suffice_at_any_capacity_prices(seed, periods):
    """With the retrieval's carbon: the priced maximum over candidates equals that over all slots."""
    network = Network(throughput_gb_per_min=2.0, usd_per_gb=0.001, latency_ms=100.0)
    env = random_environment(seed, count=3, network=network, slot_s=120.0)
    links = replace(env.links, kwh_per_gb_IS=np.where(np.eye(2) > 0, 0.0, 0.5))
    jobs = replace(env.jobs, data_gb_J=np.zeros(3), model_gb_J=np.zeros(3), result_gb_J=np.full(3, 2.0))
    env = replace(env, links=links, jobs=jobs)
    relaxation = Relaxation(env)
    shorter = build_columns(env, relaxation.options, relaxation.costs, 3600.0 / periods)
    dual = Dual(shorter, np.repeat(relaxation.capacity_SH, periods, axis=1), relaxation.idle_usd)
    price_SP = np.random.default_rng(seed).exponential(0.02 / periods, dual.shape)
    expected = 0.0
    for j in range(3):
        priced = [0.0]
        for site, start_s, value, _ in plain_choices(env, j):
            end_s = start_s + jobs.work_J[j]
            held = plain_integral(price_SP[site], start_s * periods, end_s * periods) / 3600
            priced.append(value - jobs.gpus_min_J[j] * held)
        expected += max(priced)
    capacity = float(dual.gpus_S @ price_SP.sum(axis=1))
    got = dual.value(price_SP)[0] - relaxation.costs.idle_usd - capacity
    assert got == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("period_s", [600.0, 1800.0])
@pytest.mark.parametrize("seed", range(8))
def test_shorter_periods_lower_the_bound_and_never_below_the_brute_force_optimum(seed, period_s):
    env = random_environment(seed, count=4, sites=1 + seed % 2)
    hourly, shorter = utility_bound(env, rounds=0), utility_bound(env, rounds=0, period_s=period_s)
    assert brute_force(env) - 1e-9 <= shorter.upper_usd <= hourly.upper_usd + 1e-9
    assert (shorter.price_usd_per_gpu_hour_SH == hourly.price_usd_per_gpu_hour_SH).all()
    pieces = utility_bound(env, rounds=0, period_s=period_s, most_jobs=4)
    assert brute_force(env) - 1e-9 <= pieces.upper_usd <= hourly.upper_usd + 1e-9


def test_two_half_hours_at_once_fit_an_hour_on_average_and_no_half_hour():
    jobs = Jobs.build(arrival_s=np.zeros(2), work=np.array([1800.0, 1800.0]), gpus=1, slack_s=0.0)
    env = build(jobs, gpus=(1,), pue=(1.0,))
    one = (0.05 - 0.14 * 0.072) / 2
    assert utility_bound(env, tolerance=1e-9).upper_usd - plain_idle(env) == pytest.approx(2 * one)
    exact = utility_bound(env, tolerance=1e-9, period_s=1800.0)
    assert exact.upper_usd - exact.idle_usd == pytest.approx(one)
    assert exact.gap_usd == pytest.approx(0, abs=1e-9)


def test_periods_divide_the_hour_into_whole_slots(medium):
    for period_s in (0.0, 7200.0, 2500.0, 900.0 + 1.0, math.nan):
        with pytest.raises(ScenarioError, match="divide the hour"):
            utility_bound(medium, period_s=period_s)


def test_the_gap_is_that_of_the_environments_whose_schedule_is_known():
    objective = objective_of(load_scenario("tiny"))
    known = Bound(utility_usd=100.0, best_known_usd=98.0)
    (gap,) = objective.gap_metrics([known, Bound(utility_usd=300.0, best_known_usd=294.0), Bound(utility_usd=7.0)])
    assert gap.name == "optimality_gap"
    assert gap.value == pytest.approx(0.02)
    assert objective.gap_metrics([Bound(joules_per_unit=8.0)]) == []


def test_ample_capacity_costs_nothing_and_every_job_earns_its_closed_form():
    work = np.array([3600.0, 7200.0])
    jobs = Jobs.build(arrival_s=np.array([0.0, 600.0]), work=work, origin=1, gpus=2, slack_s=600.0)
    env = build(jobs, gpus=(50, 50))
    bound = utility_bound(env)
    # 0.1 USD/kWh + 400 g/kWh x 1e-4 USD/g = 0.14 USD/kWh on PUE 1.1 (site 1, at home): 72 W more per busy GPU.
    expected = (0.05 - 0.14 * 1.1 * 0.072) * 2 * 3
    assert bound.upper_usd - bound.idle_usd == pytest.approx(expected)
    assert bound.gap_usd == pytest.approx(0, abs=1e-9)
    assert not bound.price_usd_per_gpu_hour_SH.any()


def test_a_busy_gpu_saves_free_power_inside_the_window_only():
    jobs = Jobs.build(arrival_s=np.array([5 * 3600.0]), work=np.array([7200.0]), gpus=1, slack_s=0.0)
    env = build(jobs, gpus=(2,), pue=(1.0,), window_h=6)
    bound = utility_bound(env)
    assert bound.upper_usd - bound.idle_usd == pytest.approx(0.1 - 0.14 * (2 * 0.080 - 1 * 0.008))


def test_two_jobs_for_one_gpu_leave_the_better_one_and_prices_the_hour():
    jobs = Jobs.build(arrival_s=np.zeros(2), work=np.array([3600.0, 3600.0]), gpus=np.array([1, 2]), slack_s=0.0)
    env = build(jobs, gpus=(2,), pue=(1.0,))
    one = 0.05 - 0.14 * 0.072
    bound = utility_bound(env, tolerance=1e-9)
    assert bound.upper_usd - bound.idle_usd == pytest.approx(2 * one)
    assert bound.schedule.gpus_J.tolist() == [0, 2]
    assert bound.price_usd_per_gpu_hour_SH[0, 0] == pytest.approx(one)


def test_a_job_without_a_feasible_start_earns_nothing():
    jobs = Jobs.build(arrival_s=np.array([1.0]), work=np.array([3600.0]), slack_s=10.0)
    bound = utility_bound(build(jobs))
    assert bound.upper_usd == pytest.approx(bound.idle_usd)
    assert bound.schedule.site_J.tolist() == [-1]
    assert math.isnan(bound.schedule.start_s_J[0])


def test_zero_slack_on_a_slot_boundary_can_start_at_home_alone():
    jobs = Jobs.build(arrival_s=np.array([1200.0]), work=np.array([3600.0]), origin=1, slack_s=0.0, data_gb=1.0)
    bound = utility_bound(build(jobs))
    assert bound.schedule.site_J.tolist() == [1]
    assert bound.schedule.start_s_J.tolist() == [1200.0]
    assert Relaxation(build(jobs)).options.site_O.tolist() == [1]


def test_negative_prices_make_running_worth_more_than_revenue():
    jobs = Jobs.build(arrival_s=np.array([0.0]), work=np.array([3600.0]), slack_s=7200.0)
    price = np.full((1, 400), 100.0)
    price[0, 1] = -500.0
    env = build(jobs, gpus=(1,), pue=(1.0,), price=price)
    bound = utility_bound(env)
    assert bound.schedule.start_s_J.tolist() == [3600.0]
    assert bound.upper_usd - bound.idle_usd == pytest.approx(0.05 + 0.072 * (0.5 - 0.04))


def test_the_last_start_before_the_deadline_is_found_inside_an_hour():
    price = np.full((1, 400), 100.0)
    price[0, 1] = -500.0
    jobs = Jobs.build(arrival_s=np.array([0.0]), work=np.array([3600.0]), slack_s=1300.0)
    bound = utility_bound(build(jobs, gpus=(1,), pue=(1.0,), price=price), rounds=0)
    assert bound.schedule.start_s_J.tolist() == [1200.0]
    assert bound.gap_usd == pytest.approx(0, abs=1e-12)
    assert bound.upper_usd - bound.idle_usd == pytest.approx(0.05 - 0.072 * (0.04 + 2 / 3 * 0.1 - 1 / 3 * 0.5))


def test_a_job_that_only_loses_money_does_not_run():
    jobs = Jobs.build(arrival_s=np.array([0.0]), work=np.array([3600.0]), slack_s=7200.0)
    bound = utility_bound(build(jobs, revenue=0.001))
    assert bound.upper_usd == pytest.approx(bound.idle_usd)
    assert bound.gap_usd == pytest.approx(0)


def test_a_flexible_gang_takes_the_best_size_and_clock():
    time = TimeCurve(constant_s=0.2, per_clock_s=0.8, per_gpu_s=0.05)
    profile = ClassProfile(power=PowerCurve(cubic_w=50, constant_w=30), time=time)
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.array([7200.0]), gpus_min=1, gpus_max=3, slack_s=600.0)
    env = build(jobs, gpus=(3,), pue=(1.0,), profile=profile, clocks=(0.5, 0.7, 1.0))

    def value(n, f):
        hours = 2 * float(time.seconds_per_unit(n, f))
        return n * hours * 0.05 - 0.14 * hours * n * (0.050 * f**3 + 0.030 - 0.008)

    best = max(value(n, f) for n in (1, 2, 3) for f in (0.5, 0.7, 1.0))
    bound = utility_bound(env)
    assert bound.upper_usd - bound.idle_usd == pytest.approx(best)
    assert bound.lower_usd == pytest.approx(bound.upper_usd)
    assert earned(env, Replay(bound.schedule)) == pytest.approx(bound.lower_usd)
    every = utility_bound(replace(env, protocol="on-arrival"))
    assert every.upper_usd - every.idle_usd == pytest.approx(best)
    assert every.schedule is None


def test_a_relay_that_costs_less_than_the_direct_link_lowers_the_bound_on_moving():
    cost = ((0.0, 0.01, 1.0), (0.01, 0.0, 0.01), (1.0, 0.01, 0.0))
    network = Network(usd_per_gb=cost, throughput_gb_per_min=10.0)
    price = np.array([[2000.0] * 400, [2000.0] * 400, [0.0] * 400])
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.array([36000.0]), slack_s=7200.0, data_gb=5.0)
    env = build(jobs, gpus=(1, 1, 1), pue=(1.0, 1.0, 1.0), price=price, network=network, window_h=24)
    bound = utility_bound(env, schedule=False)
    run = 10 * (0.05 - 0.04 * 0.072)
    assert bound.upper_usd - bound.idle_usd == pytest.approx(run - 5 * 0.02)


def test_jobs_from_an_ingress_without_a_home_travel_to_every_site():
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.array([3600.0]), slack_s=7200.0, data_gb=10.0)
    env = build(
        jobs,
        gpus=(2,),
        pue=(1.0,),
        protocol="on-arrival",
        ingress=(Ingress(name="edge"),),
        network=Network(usd_per_gb=0.001),
    )
    bound = utility_bound(env)
    assert bound.upper_usd - bound.idle_usd == pytest.approx(0.05 - 0.14 * 0.072 - 0.01)


@pytest.fixture(scope="module")
def medium():
    """Thirty jobs on five GPUs, scarce on purpose."""
    return random_environment(99, count=30, sites=2)


def linear_optimum(relaxation):
    """Optimum of the linear relaxation over every candidate column, written out row by row."""
    jobs, hours = len(relaxation.best_J), relaxation.shape[1]
    options, columns = relaxation.options, relaxation.columns
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    none = np.empty(0, dtype=np.int32)
    for limit in [1.0] * jobs + [float(g) for g in relaxation.tables.gpus_S for _ in range(hours)]:
        solver.addRow(-np.inf, limit, 0, none, np.empty(0))
    for k, option in enumerate(columns.option_K):
        start_s = columns.start_s_K[k]
        end_s = start_s + options.run_s_O[option]
        entries = {int(options.job_O[option]): 1.0}
        for hour in range(hours):
            overlap_s = min(end_s, 3600.0 * (hour + 1)) - max(start_s, 3600.0 * hour)
            if overlap_s > 0:
                row = jobs + int(options.site_O[option]) * hours + hour
                entries[row] = float(options.gpus_O[option]) * overlap_s / 3600.0
        rows = np.array(list(entries), dtype=np.int32)
        solver.addCol(-columns.value_K[k], 0.0, np.inf, len(rows), rows, np.array(list(entries.values())))
    solver.run()
    return relaxation.costs.idle_usd - solver.getInfo().objective_function_value


def test_the_least_bound_is_the_linear_relaxation(medium):
    optimum = linear_optimum(Relaxation(medium))
    exact = utility_bound(medium, tolerance=1e-10, schedule=False)
    assert exact.upper_usd == pytest.approx(optimum, abs=1e-8)
    assert exact.upper_usd - exact.dual_excess_usd <= optimum + 1e-8
    assert exact.price_usd_per_gpu_hour_SH.any()
    added = optimum - exact.idle_usd
    steps = utility_bound(medium, tolerance=math.inf, schedule=False)
    assert optimum - 1e-9 <= steps.upper_usd <= optimum + 0.02 * added
    assert math.isinf(steps.dual_excess_usd)


@pytest.mark.parametrize(("first", "until"), [(0, 3), (4, 9), (2, 40)])
def test_a_stretch_changes_the_dual_function_by_its_own_part_alone(medium, first, until):
    whole = Relaxation(medium)
    rng = np.random.default_rng(first)
    prices = [rng.random(whole.shape) * 0.2 for _ in range(3)]
    for other in prices[1:]:
        other[:, :first], other[:, until:] = prices[0][:, :first], prices[0][:, until:]
    part, _ = piece(whole, prices[0], first, min(until, whole.shape[1]))
    apart = [whole.value(price)[0] - part.value(np.ascontiguousarray(price[:, first:until]))[0] for price in prices]
    assert apart == pytest.approx([apart[0]] * 3, abs=1e-12)
    _, free = whole.value(prices[1])
    _, free_part = part.value(np.ascontiguousarray(prices[1][:, first:until]))
    assert free_part == pytest.approx(free[:, first:until])


def test_a_bound_in_pieces_is_above_the_linear_relaxation_and_near_it(medium):
    relaxation = Relaxation(medium)
    optimum = linear_optimum(relaxation)
    steps = []
    pieces = utility_bound(medium, most_jobs=20, progress=lambda *step: steps.append(step))
    assert pieces.upper_usd - optimum <= pieces.dual_excess_usd + 1e-9
    assert pieces.dual_excess_usd == pytest.approx(pieces.gap_usd)
    assert math.isinf(utility_bound(medium, most_jobs=20, schedule=False).dual_excess_usd)
    assert len(steps) > 3
    assert steps[-1] == (len(steps), len(steps))
    assert relaxation.value(pieces.price_usd_per_gpu_hour_SH)[0] == pieces.upper_usd
    added = optimum - pieces.idle_usd
    assert optimum - 1e-9 <= pieces.upper_usd <= optimum + 0.005 * added
    rough = utility_bound(medium, schedule=False, tolerance=math.inf, iterations=30)
    begun = descend(Relaxation(medium), 30)
    better, _ = polish_in_pieces(Relaxation(medium), *begun[1:], 1e-6, 8)
    assert optimum - 1e-9 <= better < rough.upper_usd


@pytest.mark.parametrize("seed", range(4))
def test_a_bound_in_pieces_is_at_least_the_brute_force_optimum(seed):
    env = random_environment(seed, count=5, sites=2)
    assert utility_bound(env, most_jobs=4, schedule=False).upper_usd >= brute_force(env) - 1e-9


def test_the_bound_belongs_to_its_prices_and_more_steps_never_raise_it(medium):
    bound = utility_bound(medium, schedule=False)
    relaxation = Relaxation(medium)
    assert relaxation.value(bound.price_usd_per_gpu_hour_SH)[0] == pytest.approx(bound.upper_usd, abs=1e-12)
    priced = relaxation.priced_usd_J(bound.price_usd_per_gpu_hour_SH)
    capacity = float(relaxation.tables.gpus_S @ bound.price_usd_per_gpu_hour_SH.sum(axis=1))
    assert bound.idle_usd + priced.sum() + capacity == pytest.approx(bound.upper_usd)
    values = [descend(Relaxation(medium), n)[0] for n in (1, 20, 200)]
    assert values[0] > values[1] >= values[2]


def test_the_schedule_obeys_the_slot_rules_and_earns_what_it_says(medium):
    bound = utility_bound(medium, rounds=200)
    schedule, jobs, links = bound.schedule, medium.jobs, medium.links
    starts = enumerate(zip(schedule.site_J, schedule.start_s_J, strict=True))
    runs = [(j, int(s), t, 0) for j, (s, t) in starts if s >= 0]
    assert len(runs) > 5
    assert fits(medium, runs)
    total = plain_idle(medium)
    for j, site, start_s, _ in runs:
        home = int(jobs.origin_J[j])
        depart_s = schedule.depart_s_J[j]
        assert start_s % SLOT_S == 0
        assert schedule.gpus_J[j] == jobs.gpus_min_J[j]
        back_s = links.latency_s_IS[home, site] + jobs.result_gb_J[j] * links.seconds_per_gb_IS[home, site]
        assert start_s + back_s <= jobs.arrival_s_J[j] + jobs.slack_s_J[j]
        if site == home:
            assert math.isnan(depart_s)
            assert start_s >= jobs.arrival_s_J[j]
        else:
            moved = jobs.data_gb_J[j] + jobs.model_gb_J[j]
            delay_s = links.latency_s_IS[home, site] + moved * links.seconds_per_gb_IS[home, site]
            assert depart_s % SLOT_S == 0
            assert depart_s >= jobs.arrival_s_J[j]
            assert start_s >= depart_s + max(delay_s, SLOT_S)
        total += plain_value(medium, j, site, start_s, depart_s)
        assert schedule.value_usd_J[j] == pytest.approx(plain_value(medium, j, site, start_s, depart_s))
    assert bound.lower_usd == pytest.approx(total)
    assert earned(medium, Replay(schedule)) == pytest.approx(total)
    assert bound.gap_usd >= 0
    assert bound.gap_usd < 0.15 * (bound.upper_usd - bound.idle_usd)


def test_the_same_seed_gives_the_same_bound_and_more_tries_a_schedule_no_worse(medium):
    first, again = (utility_bound(medium, rounds=100, seed=3) for _ in range(2))
    assert first.upper_usd == again.upper_usd
    assert first.schedule.start_s_J.tobytes() == again.schedule.start_s_J.tobytes()
    listed = utility_bound(medium, rounds=0)
    assert first.lower_usd > listed.lower_usd
    starts = {utility_bound(medium, rounds=100, seed=seed).schedule.start_s_J.tobytes() for seed in range(4)}
    assert len(starts) > 1


def test_the_search_for_a_schedule_ends_when_time_is_up(medium, monkeypatch):
    parts, whole = [], primal.improve

    def counted(table, guide, first, last, tries, *others):
        parts.append((first, last, tries))
        whole(table, guide, first, last, tries, *others)

    monkeypatch.setattr(primal, "improve", counted)
    monkeypatch.setattr(lagrangian.time, "monotonic", lambda: float(len(parts)))  # each part of the search takes 1 s
    asked = {"iterations": 20, "tolerance": math.inf, "rounds": 1000}
    unlimited = utility_bound(medium, **asked)
    assert parts == [(0, 1000, 1000)]
    parts.clear()
    limited = utility_bound(medium, seconds=3, **asked)
    assert parts == [(0, 10, 1000), (10, 20, 1000), (20, 30, 1000)]
    assert limited.cut
    assert not unlimited.cut
    assert limited.upper_usd == unlimited.upper_usd >= limited.lower_usd
    parts.clear()
    assert utility_bound(medium, seconds=1000, **asked).schedule.value_usd > limited.schedule.value_usd
    assert len(parts) == 100


def test_arguments_and_environments_that_cannot_be_bounded_are_refused(medium):
    with pytest.raises(ScenarioError, match="end: drained"):
        utility_bound(replace(medium, drained=False))
    with pytest.raises(ScenarioError, match="economics and signals"):
        utility_bound(replace(medium, economics=None))
    for options in ({"iterations": 0}, {"tolerance": -1.0}, {"tolerance": math.nan}, {"rounds": -1}, {"most_jobs": 3}):
        with pytest.raises(ScenarioError, match="at least"):
            utility_bound(medium, **options)
    relaxation = Relaxation(medium)
    with pytest.raises(ScenarioError, match="capacity prices"):
        relaxation.value(np.full(relaxation.shape, -1.0))
    with pytest.raises(ScenarioError, match="expected shape"):
        relaxation.value(np.zeros((1, 1)))


def test_fewer_tries_are_made_where_each_looks_at_very_many_slots(medium):
    relaxation = Relaxation(medium)
    table = slot_options(medium, relaxation.tables, relaxation.costs, relaxation.options)
    assert usual_tries(table) == TRIES_PER_JOB * len(medium.jobs)
    many = replace_options(table, np.arange(MOST_TRIES // TRIES_PER_JOB + 10), slots=1)
    assert usual_tries(many) == MOST_TRIES
    long = replace_options(table, np.arange(11), slots=10**7)
    assert usual_tries(long) == int(MOST_LOOKS / (REBOOKED * 10**7)) < TRIES_PER_JOB * 10
    assert usual_tries(replace_options(table, np.arange(11), slots=10**12)) == 1


def replace_options(table, first_J, slots):
    """The options of jobs that have one each, which looks at a number of slots."""
    count = len(first_J) - 1
    zeros_O = np.zeros(count, np.int64)
    return table._replace(first_J=first_J, low_O=zeros_O, high_O=zeros_O, slots_O=zeros_O + slots)

import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from noonward.bound.cluster_energy import environment_energy_bound, fluid_bound, fluid_frontier
from noonward.engine.run import run
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.ledger.ledger import settle
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet, Site
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.power import ClassProfile, GpuType, PowerCurve, TimeCurve
from noonward.model.cluster.withheld import Withheld
from noonward.model.network import Network
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from reference import on_arrival

CLOCKS = on_arrival.CLOCKS
WEEK_S = 7 * 86400.0


def gpu(power, time, *, sleep_w, clocks=(1.0,)):
    return GpuType(
        idle_w=50.0,
        sleep_w=sleep_w,
        clocks=clocks,
        classes={
            "training": ClassProfile(
                power=PowerCurve(cubic_w=power[0], linear_w=power[1], constant_w=power[2]),
                time=TimeCurve(constant_s=time[0], per_clock_s=time[1], per_gpu_s=time[2]),
            )
        },
    )


def fleet_of(*sites):
    """A fleet of (GPU type, GPUs, PUE) whose free GPUs sleep."""
    return Fleet(
        gpu_types={f"g{i}": kind for i, (kind, _, _) in enumerate(sites)},
        sites=tuple(
            Site(name=f"s{i}", zone=f"z{i}", gpu_type=f"g{i}", gpus=gpus, pue=pue)
            for i, (_, gpus, pue) in enumerate(sites)
        ),
        free_gpus="sleep",
    )


@pytest.fixture(scope="module")
def paper_fleet():
    """The eight sites of CHSAC-AF, Table I."""
    return fleet_of(*((gpu(s.power, s.time, sleep_w=s.free_w, clocks=CLOCKS), s.gpus, 1.0) for s in on_arrival.SITES))


def test_one_site_one_clock_is_arithmetic():
    fleet = fleet_of((gpu((0, 0, 100), (2.0, 0, 0), sleep_w=10.0), 4, 1.5))
    bound = fluid_bound(fleet, work=30.0, horizon_s=100.0, gangs=(1, 1))
    # 60 GPU-seconds at 100 W, the other 340 at 10 W, PUE 1.5.
    assert bound.energy_j == pytest.approx(1.5 * (60 * 100 + 340 * 10))
    assert bound.joule_per_unit == pytest.approx(bound.energy_j / 30)
    assert bound.service_s == pytest.approx(60)
    assert bound.service_s_SNF[0, 1, 0] == pytest.approx(60)
    # Sleeping GPUs weigh least on the most work: no smaller amount has less energy per unit.
    assert bound.joule_per_unit_up_to == pytest.approx(bound.joule_per_unit)


def test_the_cheap_site_fills_first():
    cheap, dear = gpu((0, 0, 50), (1.0, 0, 0), sleep_w=0.0), gpu((0, 0, 80), (1.0, 0, 0), sleep_w=0.0)
    fleet = fleet_of((dear, 1, 1.0), (cheap, 1, 1.0))
    bound = fluid_bound(fleet, work=150.0, horizon_s=100.0, gangs=(1, 1))
    assert bound.energy_j == pytest.approx(100 * 50 + 50 * 80)
    assert bound.service_s_SNF[:, 1, 0].tolist() == pytest.approx([50, 100])
    # The least ratio is that of the cheap site alone.
    assert bound.joule_per_unit_up_to == pytest.approx(50)


def test_a_mean_time_buys_speed_with_energy():
    slow_or_fast = gpu((100, 0, 20), (0, 1.0, 0), sleep_w=0.0, clocks=(0.5, 1.0))
    fleet = fleet_of((slow_or_fast, 10, 1.0))
    asked = {"work": 100.0, "horizon_s": 100.0, "gangs": (1, 1)}
    # At f = 0.5: 2 s and 65 J a unit; at f = 1: 1 s and 120 J a unit.
    assert fluid_bound(fleet, **asked).energy_j == pytest.approx(6500)
    assert fluid_bound(fleet, **asked, mean_time_s=15.0, jobs=10).energy_j == pytest.approx(50 * 65 + 50 * 120)
    with pytest.raises(InfeasiblePlanError, match=r"lower the work .* or the mean time"):
        fluid_bound(fleet, **asked, mean_time_s=9.0, jobs=10)
    part = fluid_bound(fleet, **asked, mean_time_s=15.0, jobs=10).joule_per_unit_up_to
    assert part == pytest.approx(65)


def test_the_bound_per_unit_up_to_some_work_is_the_least_over_smaller_amounts():
    cheap, dear = gpu((0, 0, 50), (1.0, 0, 0), sleep_w=10.0), gpu((0, 0, 80), (1.0, 0, 0), sleep_w=10.0)
    fleet = fleet_of((dear, 1, 1.0), (cheap, 1, 1.0))
    asked = {"horizon_s": 100.0, "gangs": (1, 1)}
    each = [fluid_bound(fleet, work=work, **asked).joule_per_unit for work in range(10, 151, 10)]
    # 2,000 J asleep, 40 J more a unit on the cheap site, 70 J on the dear one: least where the cheap site is full.
    assert each[9] == pytest.approx(60)
    assert each[14] == pytest.approx(9500 / 150)
    assert min(each) == each[9]
    assert fluid_bound(fleet, work=150.0, **asked).joule_per_unit_up_to == pytest.approx(60)
    assert fluid_bound(fleet, work=50.0, **asked).joule_per_unit_up_to == pytest.approx(each[4])


def test_energy_rises_with_work_and_is_convex(paper_fleet):
    energy = [fluid_bound(paper_fleet, work=work, horizon_s=WEEK_S).energy_j for work in np.linspace(1e9, 1.2e10, 12)]
    assert (np.diff(energy) > 0).all()
    assert (np.diff(energy, 2) > -1e-6 * energy[0]).all()


def test_the_frontier_falls_and_is_convex(paper_fleet):
    work, jobs = 96627 * 54164.0, 96627
    frontier = fluid_frontier(paper_fleet, work=work, horizon_s=WEEK_S, jobs=jobs, points=15)
    times, energy = frontier.mean_time_s_P, frontier.joule_per_unit_P
    slopes = np.diff(energy) / np.diff(times)
    assert len(times) == 15
    assert (slopes < 0).all()
    assert (np.diff(slopes) > -1e-9).all()
    free = fluid_bound(paper_fleet, work=work, horizon_s=WEEK_S)
    assert energy[-1] == pytest.approx(free.joule_per_unit, rel=1e-6)
    one = fluid_bound(paper_fleet, work=work, horizon_s=WEEK_S, mean_time_s=670.0, jobs=jobs)
    asked = fluid_frontier(paper_fleet, work=work, horizon_s=WEEK_S, jobs=jobs, mean_times_s=[670.0, 1.0])
    assert asked.mean_time_s_P.tolist() == [670.0]
    assert asked.joule_per_unit_P[0] == pytest.approx(one.joule_per_unit)


def test_no_greedy_run_of_a_day_lies_below_the_frontier(paper_fleet):
    horizon_s = on_arrival.DAY_S
    for gpus in (1, 8):
        summary, jobs, _ = on_arrival.run(on_arrival.greedy(gpus), choose=False, days=1)
        ends = [min(job.finish_s, horizon_s) if job.gpus else horizon_s for job in jobs]
        mean_s = sum(end - job.arrival_s for end, job in zip(ends, jobs, strict=True)) / len(jobs)
        work = sum(job.work for job in jobs)
        offered = fluid_bound(paper_fleet, work=work, horizon_s=horizon_s, mean_time_s=mean_s, jobs=len(jobs))
        assert 0.95 * summary["j_per_unit"] < offered.joule_per_unit_up_to <= summary["j_per_unit"]
        done = on_arrival.exact_units(jobs, horizon_s)
        exact = fluid_bound(paper_fleet, work=done, horizon_s=horizon_s, mean_time_s=mean_s, jobs=len(jobs))
        assert offered.joule_per_unit_up_to <= exact.joule_per_unit <= summary["j_per_unit"]


def test_seven_days_at_the_offered_load_lie_below_the_controls_of_the_paper_fleet(paper_fleet):
    # Exact J per unit and mean time over all arrivals up to the horizon of the reference runs (seed 123, 7 days).
    work, jobs = 5226866462.0, 96627
    for joule_per_unit, mean_s in ((8.5036, 4164.7), (8.8831, 2183.7), (9.2666, 1140.8), (9.9220, 669.37)):
        bound = fluid_bound(paper_fleet, work=work, horizon_s=WEEK_S, mean_time_s=mean_s, jobs=jobs)
        assert 0.99 * joule_per_unit < bound.joule_per_unit_up_to <= joule_per_unit
    # Every unit at its site's best: the check column of the sheet, E_unit(1, f*) at A10 and L4.
    small = fluid_bound(paper_fleet, work=1e6, horizon_s=WEEK_S)
    asleep_j = 21152.0 * WEEK_S
    assert 0 < (small.energy_j - asleep_j) / 1e6 < 6.403


def test_arguments_out_of_range_are_refused(paper_fleet):
    for options, words in (
        ({"work": 0.0, "horizon_s": 1.0}, "above 0"),
        ({"work": 1.0, "horizon_s": math.inf}, "horizon"),
        ({"work": 1.0, "horizon_s": 1.0, "gangs": (0, 1)}, "gangs"),
        ({"work": 1.0, "horizon_s": 1.0, "gangs": (600, 600)}, "no site"),
        ({"work": 1.0, "horizon_s": 1.0, "job_class": "trainin"}, "did you mean 'training'"),
        ({"work": 1.0, "horizon_s": 1.0, "mean_time_s": 5.0}, "at least 1 job"),
    ):
        with pytest.raises(ScenarioError, match=words):
            fluid_bound(paper_fleet, **options)
    with pytest.raises(InfeasiblePlanError, match=r"cannot process 1e.12 units .* lower the work"):
        fluid_bound(paper_fleet, work=1e12, horizon_s=1.0)
    with pytest.raises(InfeasiblePlanError, match="environment_energy_bound"):
        fluid_frontier(paper_fleet, work=1e12, horizon_s=1.0, jobs=1)
    with pytest.raises(ScenarioError, match="at least 2"):
        fluid_frontier(paper_fleet, work=1.0, horizon_s=1.0, jobs=1, points=1)


def environment_of(fleet, jobs):
    """An hour's environment of a fleet and jobs."""
    return Environment(
        scenario="test",
        index=0,
        seed=0,
        start=datetime(2022, 1, 1, tzinfo=UTC),
        drained=False,
        protocol="on-arrival",
        slot_s=60.0,
        window_s=3600.0,
        fleet=fleet,
        links=Network().links(fleet),
        jobs=jobs,
    )


def test_an_environment_is_bounded_at_the_work_that_arrives_in_its_window(paper_fleet):
    rng = stream(1, "workload")
    arrival_s = np.sort(rng.uniform(0, 7200, 60))
    jobs = Jobs.build(arrival_s=arrival_s, work=rng.uniform(1e4, 1e5, 60), gpus_min=1, gpus_max=8)
    env = environment_of(paper_fleet, jobs)
    inside = jobs.arrival_s_J <= 3600
    offered = {"work": float(jobs.work_J[inside].sum()), "horizon_s": 3600.0}
    bound = fluid_bound(paper_fleet, **offered)
    limited = fluid_bound(paper_fleet, **offered, mean_time_s=400.0, jobs=int(inside.sum()))
    assert limited.energy_j > bound.energy_j
    assert environment_energy_bound(env) == bound.joule_per_unit_up_to
    assert environment_energy_bound(env, mean_time_s=400.0) == limited.joule_per_unit_up_to


def test_withheld_gpus_draw_nothing_in_the_bound():
    kind = gpu((0, 0, 100), (1.0, 0, 0), sleep_w=10.0)
    fleet = fleet_of((kind, 2, 1.0))
    jobs = Jobs.build(arrival_s=np.zeros(1), work=np.full(1, 50.0))
    whole = environment_of(fleet, jobs)
    half = replace(whole, withheld=Withheld.of([(1800.0, 0, 1)], np.array([2])))
    assert environment_energy_bound(whole) == pytest.approx((2 * 3600 * 10 + 50 * 90) / 50)
    assert environment_energy_bound(half) == pytest.approx((1.5 * 3600 * 10 + 50 * 90) / 50)


def test_no_run_on_a_fleet_whose_gpus_come_and_go_goes_below_the_bound():
    kind = gpu((0, 0, 100), (1.0, 0, 0), sleep_w=10.0)
    rng = stream(2, "workload")
    for n in range(5):
        jobs = Jobs.build(arrival_s=np.sort(rng.uniform(0, 3600, 12)), work=rng.uniform(60, 1200, 12))
        changes = [(float(rng.integers(0, 3000)), int(rng.integers(2)), int(rng.integers(1, 3))) for _ in range(n + 1)]
        env = replace(
            environment_of(fleet_of((kind, 3, 1.2), (kind, 2, 1.4)), jobs),
            withheld=Withheld.of(changes, np.array([3, 2])),
        )
        ledger = settle(run(env, make_scheduler("greedy-energy(gpus=1)")))
        assert ledger.joules_per_unit >= environment_energy_bound(env) * (1 - 1e-9)


def test_an_overloaded_environment_has_an_energy_bound_per_unit():
    cheap, dear = gpu((0, 0, 50), (1.0, 0, 0), sleep_w=10.0), gpu((0, 0, 80), (1.0, 0, 0), sleep_w=10.0)
    fleet = fleet_of((dear, 1, 1.0), (cheap, 1, 1.0))
    jobs = Jobs.build(arrival_s=np.arange(20.0), work=np.full(20, 1000.0))
    env = environment_of(fleet, jobs)
    with pytest.raises(InfeasiblePlanError, match=r"cannot process 20000 units .* at most 7200; lower the work"):
        fluid_bound(fleet, work=20_000.0, horizon_s=3600.0)
    # The cheap site full for the hour: 3,600 units at 50 W, the dear GPU asleep at 10 W.
    assert environment_energy_bound(env) == pytest.approx(60)
    far = replace(env, jobs=replace(jobs, work_J=np.full(20, 1e15)))
    assert environment_energy_bound(far) == pytest.approx(60)
    assert environment_energy_bound(env, mean_time_s=100.0) == pytest.approx(50 - 10 + 20 * 3600 / 2000)
    with pytest.raises(InfeasiblePlanError, match=r"at most 2000 job-seconds in service: at most 2000; .* mean time"):
        fluid_bound(fleet, work=20_000.0, horizon_s=3600.0, mean_time_s=100.0, jobs=20)
    for policy in ("most-free(gpus=1)", "uniform"):
        assert environment_energy_bound(env) <= settle(run(env, make_scheduler(policy))).joules_per_unit
    late = environment_of(fleet, Jobs.build(arrival_s=np.array([4000.0]), work=np.ones(1)))
    assert math.isnan(environment_energy_bound(late))
    with pytest.raises(ScenarioError, match="end: window"):
        environment_energy_bound(replace(env, drained=True, jobs=replace(jobs, slack_s_J=np.zeros(20))))

"""The slow oracle against hand arithmetic, and its pinned first day of the paper-exact stream."""

import math
import random

import pytest

from reference import on_arrival
from reference.on_arrival import ORACLE, SITES, Job, Site

# One clock, T(1) = 1 s a unit, T(2) = 0.5 s a unit, P = 100 W a GPU, 10 W asleep.
PLAIN = {"free_w": 10.0, "clocks": (1.0,), "power": (0.0, 0.0, 100.0), "time": (1.0, 0.0, 0.0)}


def play(jobs, *, gpus=1, ask=8, horizon_s=1000.0, travel_s=0.0, **options):
    site = Site(gpus=gpus, **PLAIN)
    return on_arrival.simulate(
        [site], [[travel_s]], jobs, lambda state, job: (0, ask, ORACLE, 0.0), horizon_s, **options
    )


def starts(jobs):
    return [(job.status, job.start_s) for job in jobs]


def test_second_job_on_one_gpu_waits_for_the_first():
    jobs, queued = play([Job(0.0, 0, 10.0), Job(4.0, 0, 10.0)], travel_s=1.0, queue_times_s=[5.0, 11.0, 1000.0])
    assert [(job.reach_s, job.start_s, job.finish_s) for job in jobs] == [(1.0, 1.0, 11.0), (5.0, 11.0, 21.0)]
    assert queued == [[1], [0], [0]]
    # 1000 s asleep at 10 W, 20 s of it at 100 W instead.
    assert on_arrival.energy_j([Site(gpus=1, pue=1.5, **PLAIN)], jobs, 1000.0) == 1.5 * (10_000 + 20 * 90)
    assert on_arrival.exact_units(jobs, 1000.0) == 20.0


def test_job_takes_what_is_free_up_to_what_was_asked():
    jobs, _ = play([Job(0.0, 0, 8.0), Job(1.0, 0, 8.0), Job(2.0, 0, 8.0, gpus_max=1)], gpus=3, ask=2)
    assert [(job.gpus, job.start_s, job.finish_s) for job in jobs] == [(2, 0.0, 4.0), (1, 1.0, 9.0), (1, 4.0, 12.0)]


def test_head_that_does_not_fit_blocks_those_behind_it():
    jobs, _ = play([Job(0.0, 0, 10.0, gpus_max=1), Job(1.0, 0, 2.0, gpus_min=2), Job(2.0, 0, 2.0)], gpus=2)
    assert starts(jobs) == [("done", 0.0), ("done", 10.0), ("done", 11.0)]


@pytest.mark.parametrize(("deadline_s", "status"), [(10.0, "done"), (math.nextafter(10.0, 0.0), "overdue")])
def test_start_at_the_deadline_is_in_time_and_one_float_later_is_not(deadline_s, status):
    jobs, _ = play([Job(0.0, 0, 10.0), Job(1.0, 0, 1.0, deadline_s=deadline_s)])
    assert jobs[1].status == status


def test_head_that_lapses_lets_those_behind_it_start():
    jobs, _ = play(
        [Job(0.0, 0, 10.0, gpus_max=1), Job(1.0, 0, 2.0, gpus_min=2, deadline_s=5.0), Job(2.0, 0, 2.0)], gpus=2
    )
    assert [job.status for job in jobs] == ["done", "overdue", "done"]
    assert jobs[2].start_s == 5.0


@pytest.mark.parametrize(
    ("home", "deadline_s", "reach_s", "status"),
    [(1, 7.0, 4.0, "done"), (1, math.nextafter(7.0, 0.0), math.nan, "overdue"), (0, 1.0, 0.0, "done")],
)
def test_return_of_the_result_counts_against_the_deadline_except_at_home(home, deadline_s, reach_s, status):
    # Travel 1 + 3 GB x 1 s = 4 s; return 1 + 2 x 1 = 3 s, so away from home the job is sent off up to deadline 4 + 3 s.
    jobs, _ = play(
        [Job(0.0, 0, 1.0, deadline_s=deadline_s, move_gb=3.0, result_gb=2.0)],
        travel_s=1.0,
        link_s_per_gb=[[1.0]],
        home_site=[home],
    )
    assert (jobs[0].reach_s, jobs[0].status) == (pytest.approx(reach_s, nan_ok=True), status)


def test_no_result_takes_no_time_to_return():
    jobs, _ = play([Job(0.0, 0, 1.0, deadline_s=1.0)], travel_s=1.0, home_site=[1])
    assert jobs[0].status == "done"


def test_at_one_instant_a_finish_comes_before_a_join_and_a_lapse_comes_last():
    # All at 10 s: the GPU falls free, the third job (index 2) joins behind the second, whose latest start is now.
    jobs, _ = play([Job(0.0, 0, 10.0), Job(1.0, 0, 1.0, deadline_s=10.0), Job(10.0, 0, 1.0)])
    assert starts(jobs) == [("done", 0.0), ("done", 10.0), ("done", 11.0)]


def test_drained_run_ends_with_the_last_job():
    jobs, _ = play([Job(0.0, 0, 10.0), Job(2.0, 0, 30.0, deadline_s=10.0)], horizon_s=5.0, drained=True)
    assert [job.status for job in jobs] == ["done", "done"]


def test_job_held_back_joins_the_queue_at_its_earliest_start():
    jobs, _ = on_arrival.simulate(
        [Site(gpus=1, **PLAIN)],
        [[0.0]],
        [Job(0.0, 0, 1.0), Job(1.0, 0, 100.0)],
        lambda state, job: (0, 1, ORACLE, 50.0 if job.arrival_s == 0.0 else 0.0),
        1000.0,
    )
    assert starts(jobs) == [("done", 101.0), ("done", 1.0)]


def test_hourly_cap_shrinks_a_start_and_its_rise_starts_the_queue():
    caps = [[1, 2, 3, 3]]
    jobs, _ = play([Job(0.0, 0, 9000.0), Job(1.0, 0, 1.0, gpus_min=2, gpus_max=2)], gpus=4, horizon_s=9999.0, caps=caps)
    assert [(job.gpus, job.start_s) for job in jobs] == [(1, 0.0), (2, 7200.0)]


def test_every_status_at_the_horizon():
    jobs, _ = play([Job(0.0, 0, 1.0), Job(2.0, 0, 10.0), Job(3.0, 0, 1.0), Job(4.9, 0, 1.0)], travel_s=0.5, horizon_s=5)
    assert [job.status for job in jobs] == ["done", "running", "queued", "in transit"]
    assert on_arrival.exact_units(jobs, 5.0) == 1.0 + 2.5


def test_paper_counter_adds_the_part_of_the_first_tick_before_the_start():
    site = Site(gpus=1, **PLAIN)
    jobs, _ = play([Job(15.0, 0, 10.0), Job(50.0, 0, 100.0)], horizon_s=110.0)
    # Done: a whole tick at 20, then 25 mod 20. Running at the horizon: ticks 60, 80, 100.
    assert on_arrival.paper_units([site], jobs, 110.0) == (20 + 5) + 3 * 20
    assert on_arrival.exact_units(jobs, 110.0) == 10 + 60


def test_fleet_gives_the_figures_of_the_sheet():
    assert sum(site.gpus * site.free_w for site in SITES) == 21_152
    assert [site.clocks[site.best_level(1)] for site in SITES] == [0.8, 0.8, 0.8, 0.8, 0.7, 0.8, 0.8, 0.8]
    assert {site.clocks[site.best_level(8)] for site in SITES} == {0.7}
    energies = [site.unit_j(1, site.best_level(1)) for site in SITES]
    assert energies == pytest.approx([9.452, 8.992, 8.102, 9.761, 6.403, 9.887, 8.148, 6.836], abs=5e-4)


@pytest.mark.parametrize(("choose", "arrivals"), [(True, 96_748), (False, 96_627)])
def test_stream_has_the_arrivals_of_the_sheet(choose, arrivals):
    stream = on_arrival.paper_stream(random.Random(123), 7 * on_arrival.DAY_S, choose=choose)
    assert sum(1 for _ in stream) == arrivals


DAY_ONE = {  # completed, queue per site, J a unit exact and by the paper's counter
    "DP": (8533, [1351, 1141, 0, 1304, 59, 1297, 0, 0], 12.024587525868043, 11.842079265476196),
    "UCB1": (8887, [1290, 1032, 0, 1242, 6, 1232, 0, 0], 12.04663110576874, 11.836264391797366),
    "JointNF": (9250, [1147, 801, 0, 1087, 0, 1079, 0, 0], 10.483253891805324, 10.451357061987244),
    "random free": (13472, [0] * 8, 9.921390050236974, 9.831060861768231),
    "most free, n=1": (13114, [0] * 8, 9.244759581038245, 9.22033456042832),
    "greedy, n=1": (13065, [0] * 8, 8.573080571069204, 8.55207027534002),
    "greedy, n=8": (13614, [0] * 8, 9.941027336710293, 9.793958220512854),
    "uniform, n=8": (8846, [1301, 1053, 0, 1249, 2, 1239, 0, 0], 11.917410635751015, 11.711817365385752),
}


@pytest.mark.parametrize("name", DAY_ONE)
def test_first_day_of_every_policy_is_pinned(name):
    completed, queue, exact, paper = DAY_ONE[name]
    figures, jobs, queues = on_arrival.run(**on_arrival.policies()[name], days=1)
    assert (figures["completed"], queues) == (completed, [queue])
    assert figures["j_per_unit"] == pytest.approx(exact, rel=1e-12)
    assert figures["j_per_unit_paper"] == pytest.approx(paper, rel=1e-12)
    assert sum(job.status == "queued" for job in jobs) == sum(queue)

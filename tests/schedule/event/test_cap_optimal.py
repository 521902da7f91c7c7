"""Cap allocation: equal to a linear program, Emerald's four policies by hand, curves that are refused."""

import numpy as np
import pytest

from noonward.bound.highs import minimise
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.schedule.event.cap_optimal import cap_optimal, concave_hull
from noonward.schedule.event.emerald import (
    CONTROLS,
    dvfs_fair,
    dvfs_pause_fair,
    pause_greedy,
    pause_resize_fair,
    ride_through,
)
from noonward.schedule.event.jobs import RunningJob, event_share_least


def drawn_job(rng, name):
    """A job with a random curve, not always concave."""
    count = int(rng.integers(1, 6))
    power = np.sort(rng.uniform(90, 400, count))
    rate = np.append(np.sort(rng.uniform(0.1, 1, count - 1)), 1.0)
    least = float(rng.choice([0.0, rng.uniform(0, 1), 1.0]))
    return RunningJob(
        name=name,
        gpus=int(rng.integers(1, 65)),
        power_w=tuple(power),
        throughput=tuple(rate),
        least=least,
        weight=float(rng.uniform(0.5, 2)),
    )


def best_by_linear_program(jobs, budget_w, points_of):
    """Most weighted throughput (GPUs) within a budget, None where there is none: HiGHS over shares of GPUs."""
    columns = [(j, w, t) for j, job in enumerate(jobs) for w, t in points_of(job)]
    gain = [-jobs[j].weight * jobs[j].gpus * t for j, w, t in columns]
    watts = [jobs[j].gpus * w for j, w, t in columns]
    floors = [[t if j == i else 0.0 for j, w, t in columns] for i in range(len(jobs))]
    one = [[float(j == i) for j, w, t in columns] for i in range(len(jobs))]
    least, ones = [job.least for job in jobs], [1.0] * len(jobs)
    lower, upper = [-np.inf, *least, *ones], [budget_w, *[np.inf] * len(jobs), *ones]
    try:
        return -minimise(
            np.array(gain), np.array([watts, *floors, *one]), np.array(lower), np.array(upper), "allocation"
        ).value
    except InfeasiblePlanError:
        return None


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize(("caps", "stopped_w"), [(True, None), (True, 40.0), (False, 0.0), (False, 60.0)])
def test_no_plan_within_the_budget_has_more_throughput(seed, caps, stopped_w):
    rng = np.random.default_rng(seed)
    jobs = [drawn_job(rng, f"job{n}") for n in range(int(rng.integers(1, 6)))]

    def points_of(job):
        points = list(zip(job.power_w, job.throughput, strict=True)) if caps else [(job.power_w[-1], 1.0)]
        return points if stopped_w is None else [(stopped_w, 0.0), *points]

    full_w = sum(job.full_w for job in jobs)
    budget_w_T = full_w * rng.uniform(0.1, 1.1, 4)
    plan = cap_optimal(jobs, budget_w_T, caps=caps, stopped_w=stopped_w)
    for t, budget_w in enumerate(budget_w_T):
        best = best_by_linear_program(jobs, budget_w, points_of)
        assert plan.met_T[t] == (best is not None)
        if best is not None:
            ours = sum(job.weight * job.gpus * share for job, share in zip(jobs, plan.throughput_JT[:, t], strict=True))
            assert ours == pytest.approx(best, rel=1e-7)
    assert all((plan.throughput_JT[j] >= job.least - 1e-9).all() for j, job in enumerate(jobs))


def test_the_hull_leaves_out_what_a_mix_beats():
    assert concave_hull([(0, 0), (100, 0.1), (200, 0.8), (300, 0.8), (400, 1.0)]) == [(0, 0), (200, 0.8), (400, 1.0)]


def pair(**more):
    """Two jobs of 10 GPUs at 400 W that keep 80% of throughput at 200 W."""
    curve = {"gpus": 10, "power_w": (200.0, 400.0), "throughput": (0.8, 1.0)}
    return [RunningJob(name="a", **curve, **more), RunningJob(name="b", **{**curve, "gpus": 30}, **more)]


def test_dvfs_fair_takes_the_same_part_of_each_headroom():
    plan = dvfs_fair(pair(least=0.9), np.array([16000.0, 14000.0, 10000.0]))
    assert plan.power_w_JT[:, 1] == pytest.approx([3500.0, 10500.0])
    assert plan.throughput_JT[:, 1] == pytest.approx([0.95, 0.95])
    assert plan.met_T.tolist() == [True, True, False]
    assert plan.throughput_JT[:, 2] == pytest.approx([0.9, 0.9])


def test_dvfs_pause_fair_pauses_jobs_in_turn():
    jobs = [*pair(least=0.5), RunningJob(name="c", gpus=10, power_w=(200.0, 400.0), throughput=(0.8, 1.0), least=0.9)]
    plan = dvfs_pause_fair(jobs, np.full(4, 16000.0), stopped_w=0.0)
    assert plan.throughput_JT[0].tolist() == [0, 0, 1, 1]
    assert plan.throughput_JT[1].tolist() == [1, 1, 0, 0]
    assert plan.met_T.all()
    # With the large job dark the budget is kept without caps; with the small one dark, only c gives what is left.
    assert plan.power_w_JT[2].tolist() == [4000.0] * 4
    idle = dvfs_pause_fair(jobs, np.full(4, 16000.0), stopped_w=100.0)
    assert idle.power_w_JT[0].tolist() == [1000.0, 1000.0, 4000.0, 4000.0]
    assert idle.power_w_JT[2].tolist() == [3000.0, 3000.0, 4000.0, 4000.0]


def test_dvfs_pause_fair_refuses_more_sets_than_it_can_try():
    with pytest.raises(ScenarioError, match="13 jobs"):
        dvfs_pause_fair([pair()[0]] * 13, np.full(2, 1000.0))


def test_pause_greedy_pauses_the_most_flexible_job_for_its_allowance():
    small, large = pair()
    jobs = [RunningJob(name="a", gpus=10, power_w=(400.0,), throughput=(1.0,), least=0.5), large]
    plan = pause_greedy(jobs, np.full(4, 12000.0))
    assert plan.throughput_JT.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    plan = pause_greedy([jobs[0], small], np.full(4, 4000.0))
    assert plan.throughput_JT.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    plan = pause_greedy([jobs[0]], np.full(4, 1000.0), stopped_w=50.0)
    assert plan.power_w_JT.tolist() == [[500, 500, 4000, 4000]]
    assert plan.met_T.tolist() == [True, True, False, False]


def test_pause_resize_fair_affects_fewest_jobs():
    plan = pause_resize_fair(pair(), np.full(2, 12000.0))
    assert plan.throughput_JT[:, 0].tolist() == [0.0, 1.0]
    plan = pause_resize_fair(pair(least=0.5), np.full(2, 12000.0))
    assert plan.power_w_JT.sum(axis=0).tolist() == [11600.0, 11600.0]
    assert plan.throughput_JT[:, 0] == pytest.approx([7 / 10, 22 / 30])


def test_idle_power_of_stopped_gpus_counts():
    for name in ("pause-greedy", "pause-resize-fair"):
        dark, idle = (CONTROLS[name](pair(), np.full(2, 12000.0), stopped_w=w) for w in (0.0, 60.0))
        assert idle.lost(pair()) > dark.lost(pair())


def test_ride_through_changes_nothing():
    plan = ride_through(pair(), np.full(3, 1.0))
    assert plan.lost(pair()) == 0
    assert not plan.met_T.any()


def test_what_a_job_may_lose_in_its_run_may_be_lost_in_the_event():
    assert event_share_least(0.75, 400, 200) == 0.5
    assert event_share_least(0.5, 400, 100) == 0
    with pytest.raises(ScenarioError, match="no longer than the run"):
        event_share_least(0.5, 100, 200)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"power_w": (300.0, 200.0)}, "ascend"),
        ({"throughput": (0.9, 0.8)}, "not fall"),
        ({"gpus": 0}, "at least 1"),
        ({"least": 1.2}, "from 0 to 1"),
        ({"weight": 0.0}, "above 0"),
    ],
)
def test_a_job_that_cannot_be_is_refused(change, said):
    with pytest.raises(ScenarioError, match=said):
        RunningJob(**{"name": "a", "gpus": 8, "power_w": (200.0, 400.0), "throughput": (0.8, 1.0), **change})

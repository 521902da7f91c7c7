"""The response bound against exhaustive search on tiny worlds, and by hand."""

import copy
import math

import numpy as np
import pytest

from engine.edge.worlds import LOAD_S, STEP_S, events, random_tasks, world_of
from noonward.bound import edge
from noonward.bound.edge import response_bound
from noonward.errors import ScenarioError
from noonward.schedule.edge.rules import patient_rule, reuse_first_rule
from reference import edge as reference


def bound_of(servers, tasks, steps=24.0):
    load_s_G, run_s_G = np.full(9, np.nan), np.full(9, np.nan)
    for size in LOAD_S:
        load_s_G[size], run_s_G[size] = LOAD_S[size], steps * STEP_S[size]
    stamp_K = np.array([task["stamp_t"] * 0.1 for task in tasks])
    ready_K = np.array([max(task["stamp_t"] + 1, 10) * 0.1 for task in tasks])
    return response_bound(servers, stamp_K, ready_K, np.array([task["gang"] for task in tasks]), load_s_G, run_s_G, 1.0)


def least_response(world, spent=0.0, best=math.inf):
    """The least sum of responses over every schedule that acts at arrivals and completions."""
    if spent >= best:
        return best
    if not world.queue and not world.coming:
        return spent
    for q, task in enumerate(world.visible()):
        if world.fits(task):
            again = copy.deepcopy(world)
            again.launch(q)
            one = again.done[-1]
            response = one["start_t"] * 0.1 + one["duration_s"] - again.tasks[one["task"]]["stamp_t"] * 0.1
            best = least_response(again, spent + response, best)
    ahead = [one.left for one in world.server if one.left > 0]
    ahead += [world.coming[0][1]["stamp_t"] + 1 - world.now_t] if world.coming else []
    if ahead:
        again = copy.deepcopy(world)
        for _ in range(min(ahead)):
            for one in again.server:
                one.left -= 1
            again.now_t += 1
        again.take_arrivals()
        best = least_response(again, spent, best)
    return best


@pytest.mark.parametrize("servers", [2, 4])
def test_no_schedule_is_better_than_the_bound(servers):
    rng = np.random.default_rng(3)
    gaps = []
    for number in range(30):
        tasks = random_tasks(rng, 4, servers, 1, 600)
        world = reference.World(servers, tasks, 24.0, fragmenting=number % 2 == 0)
        world.take_arrivals()
        least = least_response(world) / len(tasks)
        bound = bound_of(servers, tasks)
        assert bound <= least + 1e-9
        gaps.append(least / bound - 1)
    assert np.mean(gaps) < 0.05  # tight on average


def test_rules_are_above_the_bound_on_whole_episodes():
    rng = np.random.default_rng(4)
    for servers in (4, 8):
        for _ in range(5):
            tasks = random_tasks(rng, 20, servers, 1, 4000)
            for rule in (patient_rule, reuse_first_rule):
                launches = events(world_of(servers, tasks), rule)
                mean = np.mean([t * 0.1 + d - tasks[k]["stamp_t"] * 0.1 for k, t, _, d, _ in launches])
                assert bound_of(servers, tasks) <= mean


def test_one_class_by_hand():
    """Two servers, three tasks of one server at once: load and run, load and run, then one that finds its model."""
    tasks = [{"stamp_t": 0, "gang": 1, "model": 0, "load_s": 24.0, "step_s": 0.315}] * 3
    run = 24 * 0.315
    assert bound_of(2, tasks) == pytest.approx((2 * (1 + 24 + run) + 1 + 24 + 2 * run) / 3)


def test_large_tasks_one_after_another_by_hand():
    tasks = [{"stamp_t": 0, "gang": 4, "model": 0, "load_s": 32.0, "step_s": 0.14}] * 2
    run = 24 * 0.14
    assert bound_of(4, tasks) == pytest.approx((1 + 32 + run + 1 + 32 + 2 * run) / 2)


def test_gangs_of_more_servers_than_there_are_are_refused():
    tasks = [{"stamp_t": 0, "gang": 8, "model": 0, "load_s": 30.0, "step_s": 0.1}]
    with pytest.raises(ScenarioError, match="a gang of 8 servers does not fit 6"):
        bound_of(6, tasks)
    with pytest.raises(ScenarioError, match="no task"):
        bound_of(4, [])


def three_kinds(rng, servers, count):
    """Tasks of all three kinds: the largest size, the second largest, and smaller ones."""
    tasks = random_tasks(rng, count, servers, 1, 600)
    for task, size in zip(tasks, (8, 4, 1, 8, 2) if servers == 12 else (4, 2, 1, 4, 1), strict=False):
        task.update(gang=size, load_s=LOAD_S[size], step_s=STEP_S[size])
    return tasks


@pytest.mark.parametrize("servers", [6, 12])
def test_no_schedule_is_better_than_the_bound_of_three_kinds(servers):
    rng = np.random.default_rng(5)
    gaps = []
    for number in range(20):
        tasks = three_kinds(rng, servers, 4) if number % 2 else random_tasks(rng, 4, servers, 1, 600)
        world = reference.World(servers, tasks, 24.0, fragmenting=number % 4 < 2)
        world.take_arrivals()
        least = least_response(world) / len(tasks)
        bound = bound_of(servers, tasks)
        assert bound <= least + 1e-9
        gaps.append(least / bound - 1)
    assert np.mean(gaps) < 0.05


def test_three_kinds_by_hand():
    """A gang of 8 and one of 4 load at once; the task of one server waits for the sooner of them to be dissolved."""
    run = {size: 24 * step_s for size, step_s in STEP_S.items()}
    tasks = [
        {"stamp_t": 0, "gang": size, "model": 0, "load_s": LOAD_S[size], "step_s": STEP_S[size]} for size in (8, 4, 1)
    ]
    both = 1 + 30 + run[8], 1 + 32 + run[4]
    third = 1 + 24 + run[1]
    later = [  # whichever kind is absent at first returns when the sooner of the other two is done
        sum(both) + min(both) + 24 + run[1],
        both[0] + third + min(both[0], third) + 32 + run[4],
        both[1] + third + min(both[1], third) + 30 + run[8],
    ]
    assert bound_of(12, tasks) == pytest.approx(min(later) / 3)
    assert bound_of(16, tasks) == pytest.approx((sum(both) + third) / 3)  # all three fit


def test_rules_are_above_the_bound_of_three_kinds_on_whole_episodes():
    rng = np.random.default_rng(6)
    for _ in range(4):
        tasks = random_tasks(rng, 16, 12, 1, 3000)
        for rule in (patient_rule, reuse_first_rule):
            launches = events(world_of(12, tasks), rule)
            mean = np.mean([t * 0.1 + d - tasks[k]["stamp_t"] * 0.1 for k, t, _, d, _ in launches])
            assert bound_of(12, tasks) <= mean


def test_gangs_of_eight_and_of_four_take_turns_on_ten_servers_by_hand():
    run = {size: 24 * STEP_S[size] for size in (4, 8)}
    tasks = [{"stamp_t": 0, "gang": size, "load_s": LOAD_S[size], "step_s": STEP_S[size]} for size in (8, 4, 2)]
    first = {size: 1 + LOAD_S[size] + run[size] for size in (4, 8)}
    both = min(2 * first[4] + LOAD_S[8] + run[8], 2 * first[8] + LOAD_S[4] + run[4])
    assert bound_of(10, tasks) == pytest.approx((both + 1 + LOAD_S[2] + 24 * STEP_S[2]) / 3)


def test_no_schedule_is_better_than_the_bound_on_ten_servers():
    """In every third world gangs of 8 share their tasks between periods with gangs of 4 and kinds with 2 and 1."""
    rng = np.random.default_rng(8)
    for number in range(6):
        sizes = ((8, 4, 1, 4), (4, 8, 2, 8), (8, 4, 2, 1, 8))[number % 3]
        tasks = random_tasks(rng, len(sizes), 10, 1, 600)
        for task, size in zip(tasks, sizes, strict=True):
            task.update(gang=size, load_s=LOAD_S[size], step_s=STEP_S[size])
        world = reference.World(10, tasks, 24.0, fragmenting=number % 4 < 2)
        world.take_arrivals()
        assert bound_of(10, tasks) <= least_response(world) / len(tasks) + 1e-9


def test_two_bounds_that_share_the_large_tasks_are_higher_and_below_every_rule(monkeypatch):
    rng = np.random.default_rng(9)
    raised = []
    for _ in range(4):
        tasks = random_tasks(rng, 16, 10, 1, 3000)
        bound = bound_of(10, tasks)
        for rule in (patient_rule, reuse_first_rule):
            launches = events(world_of(10, tasks), rule)
            assert bound <= np.mean([t * 0.1 + d - tasks[k]["stamp_t"] * 0.1 for k, t, _, d, _ in launches])
        with monkeypatch.context() as unshared:
            unshared.setattr(edge, "SHARES", ())
            raised.append(bound - bound_of(10, tasks))
    assert min(raised) >= 0
    assert max(raised) > 0.3

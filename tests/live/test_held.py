"""Jobs that wait on are held in compiled code: decided, noted and remembered as if each were asked about in Python."""

import msgspec
import numpy as np
import pytest

from live.test_world import arrivals_of, world_of
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.cluster.view import HOLD
from noonward.live.world import world as world_module
from noonward.live.world.held import HeldJobs
from noonward.live.world.seats import STARTING
from noonward.schedule.policies import make_scheduler

POLICIES = ["local-fcfs", "random", "booked-persistence", "cheapest-feasible", "patient", "price-greedy"]


@pytest.fixture(scope="module")
def environment():
    return build_environment(load_scenario("tiny", ["jobs.count=60", "slot_s=300"]))


@pytest.fixture
def passed(monkeypatch):
    """Numbers of questions that each step has passed over."""
    counts, step = [], HeldJobs.step

    def noted(self):
        kind, passed = step(self)
        counts.append(passed)
        return kind, passed

    monkeypatch.setattr(HeldJobs, "step", noted)
    return counts


def crowd_of(environment):
    """Returns arrivals, many more than there is room for, that may wait for long."""
    return [
        one._replace(arrival_s=0.1 * one.arrival_s, gpus_min=1 + one.job % 4, gpus_max=4, max_delay_s=1e5 + one.job)
        for one in arrivals_of(environment)
    ]


def play(world, environment, slots):
    """Plays slots while an operator steers; returns all that was told, and the state of world and scheduler."""
    coming, ends, told = crowd_of(environment)[::-1], [], []
    for slot in range(slots):
        time_s = slot * environment.slot_s
        while coming and coming[-1].arrival_s <= time_s:
            world.arrive([coming.pop()])
        for end_s, serial in [one for one in ends if one[0] <= time_s]:
            world.finish(serial, end_s)
        ends = [one for one in ends if one[0] > time_s]
        if slot % 7 == 3:
            for n, serial in enumerate(sorted(world.seat_of)):
                if world.seat_of[serial].state != STARTING:
                    world.steer(serial, n % 5 == 4, (n + slot) % 3 - 1, {0} if n % 4 == 1 else ())
        if slot % 7 == 5:
            for serial in sorted(world.seat_of):
                if world.seat_of[serial].state != STARTING:
                    world.steer(serial, False, -1, ())
        if slot % 11 == 6:
            world.drain(0, slot % 2 == 0)
        world.run_to(time_s)
        seats, decisions, notes = world.drain_changes()
        for seat in seats:
            if seat.state == STARTING and seat.freed_s is None:
                ends.append((seat.start_s + seat.run_s, seat.serial))
        decided = [one._replace(seen=one.seen.id) for one in decisions]
        told.append((msgspec.msgpack.encode(seats), decided, notes, world.asks))
    state = {name: np.array(value).tolist() for name, value in world.scheduler.state().items()}
    return told, state, world.engine.view.job_J.tolist(), world.engine.world.track_J.tolist()


@pytest.mark.parametrize("policy", POLICIES)
def test_all_is_as_if_every_question_were_asked(environment, monkeypatch, passed, policy):
    slots = 60
    found = play(world_of(environment, policy), environment, slots)
    assert sum(passed) > 20
    passed.clear()
    monkeypatch.setattr(world_module, "can_hold", lambda engine, scheduler: False)
    assert found == play(world_of(environment, policy), environment, slots)
    assert not passed


def crowd(world, jobs, environment):
    one = arrivals_of(environment)[0]._replace(arrival_s=0.0, gpus_min=4, gpus_max=4, max_delay_s=1e9, held=False)
    world.arrive(one._replace(job=n, origin=0) for n in range(jobs))


def test_the_first_of_many_new_jobs_and_those_that_an_operator_limits_are_asked_about_in_python(environment, passed):
    world = world_of(environment, "local-fcfs")
    crowd(world, 30, environment)
    world.run_to(0.0)
    held = [one.job for one in world.decisions if one.choice == HOLD]
    assert len(held) == len(set(held)) == sum(seat.state != STARTING for seat in world.seat_of.values())
    assert sum(passed) == len(held) - 1, "all but the first"
    passed.clear()
    world.run_to(300.0)
    waiting = [seat for seat in world.seat_of.values() if seat.state != STARTING]
    assert sum(passed) == len(waiting) - 1, "all but the first"
    passed.clear()
    world.steer(waiting[4].serial, False, 1, ())
    world.steer(waiting[9].serial, False, -1, {1})
    world.run_to(600.0)
    assert sum(passed) == len(waiting) - 3
    passed.clear()
    world.drain(1, True)
    world.run_to(900.0)
    assert not passed, "what is drained is not to be seen by the rule"


def test_new_jobs_that_see_other_things_are_asked_about_in_python(environment, passed):
    world = world_of(environment, "local-fcfs")
    crowd(world, 30, environment)
    world.run_to(0.0)
    passed.clear()
    one = arrivals_of(environment)[0]._replace(arrival_s=1.0, gpus_min=4, gpus_max=4, max_delay_s=1e9, origin=0)
    world.arrive(one._replace(job=100 + n, move_gb=1e9 * (n % 2), max_delay_s=5000.0) for n in range(6))
    world.drain_changes()
    world.run_to(300.0)
    noted = [(one.job, (one.seen.id, one.feasible)) for one in world.decisions]
    assert [job for job, _ in noted] == list(range(100, 106))
    assert len({text for _, text in noted}) == 2, "every second one is too large to be moved in time"
    waiting = sum(seat.state != STARTING for seat in world.seat_of.values())
    assert sum(passed) == waiting - 6 - 1


def test_a_slot_of_its_own_is_taken_by_a_new_job_as_new(environment, passed):
    world = world_of(environment, "local-fcfs")
    crowd(world, 10, environment)
    world.run_to(0.0)
    last = max(seat.serial for seat in world.seat_of.values() if seat.state != STARTING)
    slot = world.seat_of[last].slot
    world.withdraw(last)
    crowd_one = arrivals_of(environment)[0]._replace(job=99, arrival_s=0.0, gpus_min=4, gpus_max=4, origin=0)
    world.arrive([crowd_one])
    world.run_to(300.0)
    assert world.seat_of[last + 1].slot == slot
    assert [one.job for one in world.decisions if one.at_s == 300.0] == [99]


@pytest.mark.parametrize("policy", ["bid-price-persistence", "random-free"])
def test_others_are_asked_in_python(policy):
    scheduler = make_scheduler(policy)
    scenario = "tiny" if "each-slot" in scheduler.needs.protocols else "dvfs-training"
    environment = build_environment(load_scenario(scenario, ["window_h=1"] if scenario != "tiny" else []))
    assert world_of(environment, policy)._held is None

"""The books of a live service decide as the engine does, job by job, when jobs take as long as the model says."""

import math

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief
from noonward.engine.run import run
from noonward.ledger.segments import OVERDUE as DROPPED
from noonward.live.world.hours import Hours
from noonward.live.world.seats import OVERDUE, STARTING, Arrival
from noonward.live.world.world import World
from noonward.schedule.registry import make_scheduler
from noonward.seeding import stream
from reference.small_worlds import draw


def arrivals_of(environment):
    jobs = environment.jobs
    return [
        Arrival(
            job=j,
            attempt=0,
            arrival_s=float(jobs.arrival_s_J[j]),
            origin=int(jobs.origin_J[j]),
            class_=int(jobs.class_J[j]),
            gpus_min=int(jobs.gpus_min_J[j]),
            gpus_max=int(jobs.gpus_max_J[j]),
            work=float(jobs.work_J[j]),
            max_delay_s=float(jobs.slack_s_J[j]),
            move_gb=float(jobs.data_gb_J[j] + jobs.model_gb_J[j]),
            result_gb=float(jobs.result_gb_J[j]),
        )
        for j in range(len(jobs))
    ]


def world_of(environment, policy):
    scheduler = make_scheduler(policy) if isinstance(policy, str) else policy
    brief = Brief.of(environment, scheduler.needs)
    hours = None
    if environment.signals is not None:
        zones = [site.zone for site in environment.fleet.sites]
        hours = Hours(environment.signals, environment.start, zones, scheduler.needs.forecast, stream(0, "forecast", 0))
    return World(brief, scheduler, hours, stream(0, "policy", environment.index))


def play(world, environment, restart_every=0, remake=None):
    """Plays an environment through the books; returns what became of each job. Jobs take what the model says."""
    coming = arrivals_of(environment)[::-1]
    became, ends, steps = {}, [], 0
    while True:
        times = [coming[-1].arrival_s] if coming else []
        times += [end for end, _ in ends[:1]] + [world.next_event_s()]
        if environment.protocol == "each-slot":
            slot_s = environment.slot_s
            time = min(math.ceil(min(times) / slot_s) * slot_s, world.next_slot_s()) if min(times) < 1e18 else np.inf
            time = min(time, world.next_slot_s())
        else:
            time = min(times)
        if not math.isfinite(time):
            return became
        now = []
        while coming and coming[-1].arrival_s <= time:
            now.append(coming.pop())
        world.arrive(now)
        while ends and ends[0][0] <= time:
            end, serial = ends.pop(0)
            world.finish(serial, end)
        world.run_to(time)
        seats, _, notes = world.drain_changes()
        assert not [note for note in notes if note.kind == "infeasible answer"]
        for seat in seats:
            became[seat.about.job] = seat
            if seat.state == STARTING and seat.freed_s is None:
                ends = sorted([*ends, (seat.start_s + seat.run_s, seat.serial)])
        steps += 1
        if restart_every and steps % restart_every == 0:
            world = remake(world)


def assert_same(became, outcome):
    """Asserts that all jobs fared alike; a run that is cut off at its window's end is compared up to there."""
    assert len(became) == len(outcome.job_J)
    compared = 0
    for j, job in enumerate(outcome.job_J):
        seat = became[j]
        if not outcome.environment.drained and np.isnan(job["start_s"]):
            continue
        compared += 1
        assert (seat.state == OVERDUE) == (job["status"] == DROPPED)
        if seat.state != OVERDUE:
            found = (
                seat.site,
                seat.gpus,
                seat.level,
                seat.start_s,
                seat.start_s + seat.run_s,
                seat.power_w,
                seat.moves,
            )
            fields = ("site", "gpus", "level", "start_s", "finish_s", "power_w", "moves")
            assert found == tuple(job[name].item() for name in fields)
    assert compared > len(became) / 2


SLOT_POLICIES = ["local-fcfs", "price-greedy", "random", "cheapest-feasible", "booked-persistence"]


@pytest.mark.parametrize("policy", SLOT_POLICIES)
def test_each_slot_the_books_decide_as_the_engine(policy):
    environment = build_environment(load_scenario("tiny", ["jobs.count=60"]))
    became = play(world_of(environment, policy), environment)
    assert_same(became, run(environment, make_scheduler(policy)))


@pytest.mark.parametrize("policy", ["jointnf", "greedy-energy-2", "ucb1", "dp", "greedy-tradeoff-100"])
def test_on_arrival_the_books_decide_as_the_engine(policy):
    environment = build_environment(load_scenario("dvfs-training", ["window_h=1"]))
    became = play(world_of(environment, policy), environment)
    assert_same(became, run(environment, make_scheduler(policy)))


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_random_small_worlds_with_deadlines_travel_and_results(protocol):
    played = 0
    for seed in range(120):
        small = draw(seed, protocol)
        environment = small.environment()
        if not environment.drained or environment.caps is not None:
            continue
        policy = "random" if protocol == "each-slot" else "random-free"
        became = play(world_of(environment, policy), environment)
        assert_same(became, run(environment, make_scheduler(policy)))
        played += 1
    assert played > 8

"""The books of a live service decide as the engine does, job by job, when jobs take as long as the model says."""

import math
from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief, Needs
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.errors import InfeasiblePlanError, ScenarioError
from noonward.ledger.segments import OVERDUE as DROPPED
from noonward.live.clock import ManualClock
from noonward.live.config import LiveConfig
from noonward.live.setup import Setup
from noonward.live.store.store import Store
from noonward.live.world.curves import AHEAD_H, Curves
from noonward.live.world.hours import Hours
from noonward.live.world.seats import OVERDUE, STARTING, WAITING, Arrival
from noonward.live.world.world import World
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from noonward.units import HOUR_S
from reference.small_worlds import START, draw, plain


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


@pytest.mark.parametrize("policy", ["jointnf", "greedy-energy(gpus=2)", "ucb1", "dp", "greedy-tradeoff(watts=100)"])
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


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_what_arrived_with_a_job_in_sight_is_not_kept(protocol):
    jobs = [{"arrival_s": 0.0, "work": 60.0, "slack_s": 4e4} for _ in range(9)]
    environment = plain((4, 4), jobs, protocol=protocol).environment()
    world = world_of(environment, "random" if protocol == "each-slot" else "random-free")
    world.arrive(arrivals_of(environment))
    world.run_to(0.0)
    assert len(world.seat_of) == 9
    left_R = world.engine.world.submitted_R
    assert len(left_R) == 0
    assert left_R.base is None, "a part of an array keeps all of it"


class Limited(Scheduler):
    """A random policy that sets hard capacity curves at each question, again in every hour."""

    def __init__(self, protocol):
        self.inner = make_scheduler("random" if protocol == "each-slot" else "random-free")
        self.needs = replace(self.inner.needs, curves="hard")

    def reset(self, brief, rng):
        self.inner.reset(brief, rng)
        self.gpus_S = np.array([site.gpus for site in brief.fleet.sites])

    def decide(self, view, answers):
        hour = int(view.now_s // HOUR_S)
        share_SH = np.random.default_rng(hour).uniform(0.0, 1.5, (len(self.gpus_S), 400))
        answers.limit(hour, self.gpus_S[:, None] * share_SH)
        self.inner.decide(view, answers)


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_hard_curves_keep_jobs_from_starting_as_in_the_engine(protocol):
    played = changed = 0
    for seed in range(120):
        environment = draw(seed, protocol).environment()
        if not environment.drained or environment.caps is not None or not math.isinf(environment.late_until_s):
            continue
        outcome = run(environment, Limited(protocol))
        assert_same(play(world_of(environment, Limited(protocol)), environment), outcome)
        free = run(environment, make_scheduler("random" if protocol == "each-slot" else "random-free"))
        changed += not np.array_equal(outcome.job_J["start_s"], free.job_J["start_s"], equal_nan=True)
        played += 1
    assert played > 8
    assert changed > 3


class Closed(Scheduler):
    """Sends jobs to the first site, whose hard curve is 0 up to an hour."""

    needs = Needs(protocols=("on-arrival",), curves="hard")

    def __init__(self, until_h):
        self.until_h = until_h

    def decide(self, view, answers):
        answers.limit(0, np.zeros((len(view.site_S), self.until_h)))
        answers.send(0, 0)


def test_a_queue_under_a_hard_curve_is_looked_at_when_an_hour_begins():
    environment = plain((4, 4), [{"arrival_s": 0.0, "work": 60.0, "slack_s": 4e4}], protocol="on-arrival").environment()
    world = world_of(environment, Closed(3))
    world.arrive(arrivals_of(environment))
    world.run_to(5.0)
    assert (world.engine.room(0), world.engine.room(1)) == (0, 0)
    world.drain(0, True)
    for hour in (1, 2, 3):
        assert world.next_event_s() == hour * HOUR_S
        world.run_to(world.next_event_s())
    assert [seat.state for seat in world.seat_of.values()] == [WAITING]
    world.drain(0, False)
    world.run_to(3.5 * HOUR_S)
    (seat,) = world.seat_of.values()
    assert (seat.state, seat.site, seat.start_s) == (STARTING, 0, 3.5 * HOUR_S)


def test_curves_reach_as_far_as_they_are_set_however_long_a_service_runs():
    curves = Curves(np.array([4, 8]), hard=True)
    year_h = 366 * 24
    curves.cover(year_h)
    assert curves.limit_SH.shape[1] >= year_h + AHEAD_H
    assert curves.limit_SH[:, -1].tolist() == [4.0, 8.0]
    assert curves.changes(0) == {}
    curves.limit_SH[1, year_h] = 3.0
    changed = curves.changes(year_h - 1)
    assert {hour: gpus_S.tolist() for hour, gpus_S in changed.items()} == {year_h: [4.0, 3.0]}
    again = Curves(np.array([4, 8]), hard=True)
    again.restore(changed)
    assert np.array_equal(again.limit_SH[:, : year_h + 1], curves.limit_SH[:, : year_h + 1])
    assert again.changes(0) == {}


class Failing(Scheduler):
    """Fails at the first question."""

    needs = Needs(protocols=("on-arrival",))
    failed = False

    def decide(self, view, answers):
        if not self.failed:
            self.failed = True
            raise InfeasiblePlanError("no plan fits")
        answers.send(0, 1)


def test_a_job_whose_question_the_scheduler_failed_at_is_asked_about_again():
    environment = plain((4, 4), [{"arrival_s": 0.0, "work": 60.0, "slack_s": 4e4}], protocol="on-arrival").environment()
    world = world_of(environment, Failing())
    world.arrive(arrivals_of(environment))
    with pytest.raises(InfeasiblePlanError):
        world.run_to(0.0)
    assert world.scheduler.failed
    world.run_to(10.0)
    (seat,) = world.seat_of.values()
    assert (seat.state, seat.site) == (STARTING, 1)


def test_a_service_refuses_links_that_queue(tmp_path):
    queued = load_scenario("dvfs-training", ["network.throughput_gb_per_min=60", "network.queued=true"])
    config = LiveConfig(
        scenario=queued.name, policy="jointnf", sites={name: {"executor": "model"} for name in queued.fleet.site_names}
    )
    store = Store(tmp_path, ManualClock(START))
    try:
        with pytest.raises(ScenarioError, match=r"network\.queued, a model of links that a live service does not keep"):
            Setup.of(config, queued, store)
    finally:
        store.close()

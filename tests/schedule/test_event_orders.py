"""Orders of events: the plans of Emerald's rules, brought to measured caps and gangs; turns that are kept."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.schedule.cluster.event_orders import (
    GUARD,
    TURNS,
    Bendable,
    Turn,
    Way,
    capped_fairly,
    least_loss,
    paused_by_slack,
    paused_in_turn,
    resized_fairly,
)
from noonward.schedule.event.cap_optimal import cap_optimal
from noonward.schedule.event.emerald import dvfs_fair, dvfs_pause_fair, pause_greedy
from noonward.schedule.event.jobs import RunningJob
from noonward.studies.grid_events.reproduce import _packaged_caps, _packaged_mix

FREE_W = 60.0
HOUR_S = 3600.0


def job(serial, gpus=10, *, gangs=(), slack_s=9e4, least=0.0, stops=True):
    """A job at 400 W a GPU that keeps 80% of throughput at 200 W."""
    ways = (Way(400.0 * gpus, float(gpus)), Way(200.0 * gpus, 0.8 * gpus, 1))
    smaller = [Way(400.0 * each + FREE_W * (gpus - each), float(each), stops=True, gpus=each) for each in gangs]
    return Bendable(
        serial=serial,
        gpus=gpus,
        caps=ways,
        stop=Way(FREE_W * gpus, 0.0, stops=True) if stops else None,
        gangs=tuple(smaller),
        slack_s=slack_s,
        least=least,
    )


@pytest.fixture(scope="module")
def emerald():
    """The six jobs of the event of 3 May 2025 with their measured caps, as plans and as the engine see them."""
    plans = [replace(each, least=0.0) for each in _packaged_mix(_packaged_caps())]
    engine = []
    for serial, each in enumerate(plans):
        pairs = sorted(zip(each.power_w, each.throughput, strict=True), reverse=True)
        ways = [Way(w * each.gpus, t * each.gpus, cap) for cap, (w, t) in enumerate(pairs)]
        stop = Way(FREE_W * each.gpus, 0.0, stops=True)
        engine.append(
            Bendable(serial=serial, gpus=each.gpus, caps=tuple(ways), stop=stop, slack_s=9e4, least=each.least)
        )
    return plans, engine


def drawn(jobs, ways):
    """Power, W, and throughput, GPUs, of jobs of which some are bent."""
    done = [ways.get(each.serial, each.full) for each in jobs]
    return sum(way.power_w for way in done), sum(way.throughput for way in done)


@pytest.mark.parametrize("cut", [0.1, 0.25, 0.4])
def test_emeralds_jobs_are_allotted_what_the_published_rules_allot_them(emerald, cut):
    plans, engine = emerald
    full_w = sum(each.full_w for each in plans)
    gpus_J = np.array([each.gpus for each in plans])
    budget = np.array([full_w * (1 - cut)])
    ours = {
        "dvfs-fair": capped_fairly(engine, budget[0]),
        "pause-greedy": paused_by_slack(engine, budget[0], FREE_W),
    }
    offline = {
        "dvfs-fair": dvfs_fair(plans, budget),
        "pause-greedy": pause_greedy(plans, budget, stopped_w=FREE_W),
    }
    for order, plan in offline.items():
        power_w, throughput = drawn(engine, ours[order])
        assert power_w <= budget[0] * (1 + GUARD)
        assert throughput <= gpus_J @ plan.throughput_JT[:, 0] + 1e-6
    stopped_J = offline["pause-greedy"].throughput_JT[:, 0] == 0
    assert set(ours["pause-greedy"]) == set(np.flatnonzero(stopped_J).tolist())
    best = cap_optimal(plans, budget, stopped_w=FREE_W)
    power_w, throughput = drawn(engine, least_loss(engine, budget[0]))
    assert power_w <= budget[0] * (1 + GUARD)
    assert throughput <= gpus_J @ best.throughput_JT[:, 0] + 1e-6


def test_turns_of_emeralds_jobs_are_those_of_the_published_rule(emerald):
    plans, engine = emerald
    least = [replace(each, least=0.5) for each in plans]
    asked = [replace(each, least=0.5) for each in engine]
    budget_w = 0.75 * sum(each.full_w for each in plans)
    steps = 36
    plan = dvfs_pause_fair(least, np.full(steps, budget_w), stopped_w=FREE_W)
    ways, turns = paused_in_turn(asked, budget_w, FREE_W, 0.0, 300.0, 3 * HOUR_S, (), {})
    dark = [(int(np.flatnonzero(row == 0)[-1]), j) for j, row in enumerate(plan.throughput_JT) if (row == 0).any()]
    assert [turn.serial for turn in turns] == [j for _, j in sorted(dark)]
    assert [turn.until_s for turn in turns] == [300.0 * (last + 1) for last, _ in sorted(dark)]
    assert [serial for serial, way in ways.items() if way.stops] == [turns[0].serial]
    assert drawn(asked, ways)[0] <= budget_w * (1 + GUARD)


def test_a_turn_is_kept_until_it_ends_and_its_job_has_its_power_kept():
    jobs = [job(1), job(2, 30), job(3, 10, stops=False)]
    jobs[:2] = [replace(each, least=0.5) for each in jobs[:2]]
    budget_w = 17000.0
    ways, turns = paused_in_turn(jobs, budget_w, FREE_W, 0.0, 300.0, 1200.0, (), {})
    assert [turn.serial for turn in turns] == [1, 2]
    assert ways[1].stops
    assert not ways.get(2, jobs[1].full).stops
    # The first job has stopped, and holds no GPUs.
    ways, kept = paused_in_turn(jobs[1:], budget_w - 10 * FREE_W, FREE_W, 300.0, 300.0, 1200.0, turns, {1: 3400.0})
    assert kept == turns
    assert all(not way.stops for way in ways.values())
    # Its turn is over: the other one stops, and what it needs to come back is not used by others.
    ways, kept = paused_in_turn(jobs[1:], 7200.0, FREE_W, 600.0, 300.0, 1200.0, turns, {1: 3400.0})
    assert kept == turns
    assert ways[2].stops
    assert ways[3].cap == 1
    free, _ = paused_in_turn(jobs[1:], 7200.0, FREE_W, 600.0, 300.0, 1200.0, turns, {})
    assert 3 not in free


def test_turns_are_chosen_anew_when_one_of_their_jobs_is_gone():
    jobs = [replace(job(each, 20), least=0.5) for each in (1, 2, 3)]
    turns = (Turn(1, 600.0), Turn(9, 1200.0))
    _, kept = paused_in_turn(jobs, 17000.0, FREE_W, 0.0, 300.0, 1200.0, turns, {})
    assert {turn.serial for turn in kept} <= {1, 2, 3}
    assert kept[-1].until_s == 1200.0


def test_turns_are_of_the_jobs_that_draw_most():
    jobs = [replace(job(each, each), least=0.5) for each in range(1, TURNS + 5)]
    full_w = sum(each.full.power_w for each in jobs)
    _, turns = paused_in_turn(jobs, 0.8 * full_w, FREE_W, 0.0, 300.0, 3600.0, (), {})
    assert turns
    assert all(turn.serial > 4 for turn in turns)


def test_without_an_excess_nothing_is_bent():
    jobs = [job(1), job(2)]
    assert least_loss(jobs, 8000.0) == {}
    assert capped_fairly(jobs, 8000.0) == {}
    assert paused_by_slack(jobs, 8000.0, FREE_W) == {}
    assert resized_fairly(jobs, 8000.0, FREE_W) == {}
    assert paused_in_turn(jobs, 8000.0, FREE_W, 0.0, 300.0, 3600.0, (), {}) == ({}, ())
    assert capped_fairly([], 0.0) == {}


def test_jobs_are_resized_to_a_gang_of_their_class_that_draws_no_more():
    jobs = [job(1, 16, gangs=(12, 8), stops=False), job(2, 32, gangs=(24, 16, 8), stops=False)]
    ways = resized_fairly(jobs, 0.8 * 48 * 400.0, FREE_W)
    assert {serial: way.gpus for serial, way in ways.items()} == {1: 12, 2: 16}
    assert all(way.stops for way in ways.values())
    assert drawn(jobs, ways)[0] <= 0.8 * 48 * 400.0
    pausable = [job(1, 16, gangs=(12, 8)), job(2, 32, gangs=(24, 16, 8))]
    (one,) = resized_fairly(pausable, 0.8 * 48 * 400.0, FREE_W).items()
    assert one == (1, pausable[0].stop) or one[0] == 2


def test_a_job_with_the_most_slack_is_paused_first():
    jobs = [job(1, slack_s=100.0), job(2, slack_s=5000.0), job(3, slack_s=900.0)]
    assert set(paused_by_slack(jobs, 11000.0, FREE_W)) == {2}
    assert set(paused_by_slack(jobs, 7000.0, FREE_W)) == {2, 3}


def test_a_running_job_states_the_gpus_that_it_may_be_resized_to():
    with pytest.raises(Exception, match="resized to 11 GPUs at least"):
        RunningJob(name="a", gpus=10, power_w=(400.0,), throughput=(1.0,), least_gpus=11)

"""The lookahead over sampled futures: against hindsight, the lookahead without futures, and what it may not know."""

import numpy as np
import pytest

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.view import NOBODY, QUEUED, WAIT
from noonward.engine.edge.engine import EdgeEngine, run_edge_environment
from noonward.engine.edge.episodes import LAUNCHED, RESPONSE_S, sum_episodes
from noonward.errors import ScenarioError
from noonward.evaluate.edge_conformance import check_edge_scheduler
from noonward.learn.tasks.edge_advice import make_room, play_on
from noonward.schedule.edge.futures import (
    COUNT,
    HORIZON_S,
    PERIODS,
    Coming,
    draw_coming,
    draw_time,
    first_from,
    memory_for,
    numbers_for,
    play_future,
)
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.priced_lookahead import PricedLookahead
from noonward.schedule.edge.sampled_lookahead import SampledLookahead, sampled_choice
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream

REFERENCE = "edge-inference-reference"
EIGHT = ["servers.count=8", "tasks.sizes=[1,2,4,8]", "tasks.rate_per_s=0.1"]
SOON = [*EIGHT, "tasks.count=14", "tasks.first=6", "tasks.rate_per_s=0.5"]
"""All tasks come within the horizon of every question, and few enough to be visible."""


def certain(environment):
    """A list of tasks to come that is the environment's own, again and again: its futures are what really comes."""
    record_K, period_s = environment.tasks.record_K, 1000.0
    task_P = np.zeros(4 * len(record_K), QUEUED)
    for name in ("stamp_s", "gang", "model", "steps_max", "deadline_s"):
        task_P[name] = np.tile(record_K[name], 4)
    task_P["stamp_s"] += np.repeat(period_s * np.arange(4), len(record_K))
    return Coming(task_P, 4 * period_s, period_s)


def questions(environment, rule):
    """Worlds at the questions of a run under a rule."""
    rule.reset(EdgeBrief.of(environment), stream(1, "policy"))
    engine = EdgeEngine(environment, rule)
    while engine.step():
        yield engine.world
        rule.decide(engine.view, engine.answers)


@pytest.mark.parametrize("choice", ["lowest", "least-fragmentation"])
def test_a_future_that_is_certain_costs_what_it_costs_in_hindsight(choice):
    setting = load_scenario(REFERENCE, [*SOON, "visible=14", f"choice={choice}", "tasks.models={count: 2}"])
    environment = build_edge_environment(setting, 3, 5)
    memory = memory_for(numbers_for(24.0, 1, certain(environment)), setting, certain(environment), 1)
    room, waits, taken = make_room(8, 14, 14), 0, 0
    for world in questions(environment, Lookahead()):
        view = world.shown
        now_s = view.now_s
        at_s = draw_time(memory, now_s)
        assert at_s % 1000.0 == pytest.approx(now_s)
        count = int(memory.number_P[COUNT])
        first, until = (first_from(memory.task_RQ[1], count, time_s) for time_s in (at_s, at_s + HORIZON_S))
        costs = {}
        for a in np.flatnonzero(view.mask_A).tolist():
            costs[a] = play_future(view, memory, a - 1, first, until, now_s - at_s)
            assert costs[a] == pytest.approx(play_on(world, room, a, 24.0, 24.0, True, False))
        if min(costs.values()) < costs[1 + sampled_choice(view, memory)] - 1e-6:
            # Only a later task of a class, or a wait for an arrival alone, may be cheaper than what is tried.
            best = min(costs, key=costs.get)
            assert best == WAIT or (view.task_Q["gang"][: best - 1] == view.task_Q["gang"][best - 1]).any()
        taken += 1
        waits += WAIT in costs
    assert taken >= 14
    assert waits > 0


def test_a_future_can_turn_the_choice():
    """Two servers; tasks of 1 and 2 wait. Alone, the gang of 2 goes first: 27.75 + 59.31 = 87.1 s against 90.9 s.

    With two more tasks of 1 at once, all three of 1 go first, the last without a load, and then the gang of 2 loads:
    2 x 31.56 + 39.12 + 66.87 = 169.1 s, against 27.75 + 2 x 59.31 + 66.87 = 213.2 s.
    """
    setting = load_scenario(REFERENCE, ["servers.count=2", "tasks.sizes=[1,2]", "tasks.count=2", "tasks.first=2"])
    environment = next(
        each for each in (build_edge_environment(setting, n) for n in range(50)) if each.tasks.gang_K.tolist() == [1, 2]
    )
    world = next(questions(environment, Lookahead()))
    task_P = np.zeros(8, QUEUED)
    task_P["stamp_s"] = np.repeat(1000.0 * np.arange(4), 2) + [1.0, 1.05] * 4
    task_P["gang"], task_P["steps_max"] = 1, 30.0
    coming = Coming(task_P, 4000.0, 1000.0)
    memory = memory_for(numbers_for(24.0, 5, coming), setting, coming, 1)
    alone = memory_for(numbers_for(24.0, 0, None), setting, None, 1)
    assert sampled_choice(world.shown, alone) == 1
    assert sampled_choice(world.shown, memory) == 0


@pytest.mark.parametrize("make", [SampledLookahead, PricedLookahead])
def test_without_futures_it_is_the_lookahead(make):
    setting = load_scenario(REFERENCE, EIGHT)
    given = {"futures": 0, "price_s": 100.0} if make is PricedLookahead else {"futures": 0}
    known = PricedLookahead(100.0) if make is PricedLookahead else Lookahead()
    more = {**given, "futures": 64}
    differ = 0
    for n in range(6):
        environment = build_edge_environment(setting, n, 7)
        runs = [run_edge_environment(environment, each) for each in (known, make(**given), make(**more))]
        assert runs[0].task_K.tobytes() == runs[1].task_K.tobytes()
        differ += runs[0].task_K.tobytes() != runs[2].task_K.tobytes()
    assert differ > 0


@pytest.mark.parametrize("name", ["sampled-lookahead", "priced-sampled-lookahead"])
def test_it_keeps_the_rules_and_does_not_read_the_future(name):
    check_edge_scheduler(make_scheduler(name, "edge"), seeds=[0])


def test_its_futures_follow_its_own_seed():
    setting = load_scenario(REFERENCE, EIGHT)
    environment = build_edge_environment(setting, 0, 0)
    runs = [run_edge_environment(environment, SampledLookahead(4), seed=seed).task_K.tobytes() for seed in (0, 0, 1, 2)]
    assert runs[0] == runs[1]
    assert len(set(runs)) > 1


def test_it_responds_sooner_in_the_papers_values_at_8_servers():
    setting = load_scenario("edge-inference", EIGHT)
    sums = [sum_episodes(setting, each, 150, seed=5) for each in (Lookahead(), SampledLookahead())]
    responses = [each[:, RESPONSE_S].sum() / each[:, LAUNCHED].sum() for each in sums]
    assert responses[1] < responses[0]


def test_tasks_to_come_follow_the_law():
    setting = load_scenario(REFERENCE, EIGHT)
    coming = draw_coming(setting, stream(3, "policy"))
    assert coming.period_s == 0.0
    assert len(coming.task_P) / coming.length_s == pytest.approx(0.1, rel=0.1)
    assert np.bincount(coming.task_P["gang"])[[1, 2, 4, 8]] / 2000 == pytest.approx(0.25, abs=0.04)
    ended = setting.model_copy(update={"tasks": setting.tasks.model_copy(update={"count": 11, "until_s": 5.0})})
    assert np.array_equal(draw_coming(ended, stream(3, "policy")).task_P, coming.task_P)  # it knows no end


def test_tasks_to_come_follow_the_hours_of_a_real_trace():
    setting = load_scenario("edge-inference-real", ["tasks.start_hour=8", "tasks.hours=24"])
    coming = draw_coming(setting, stream(3, "policy"))
    assert coming.period_s == 24 * 3600.0
    assert coming.length_s == PERIODS * coming.period_s
    hour = (8 + coming.task_P["stamp_s"] // 3600) % 24
    assert (np.diff(coming.task_P["stamp_s"]) >= 0).all()
    count_24 = np.bincount(hour.astype(int), minlength=24)
    assert 50 * count_24[11:15].sum() < count_24.sum()  # the trace's shares of these hours are .001 and 0
    assert 10 * count_24[21] > count_24.sum()  # .12
    assert (coming.task_P["task"] != NOBODY).all()


def test_wrong_values_are_refused():
    for make in (SampledLookahead, PricedLookahead):
        with pytest.raises(ValueError, match="futures is -1; give a whole number of at least 0"):
            make(futures=-1)
    with pytest.raises(ScenarioError, match="futures is '0'; allowed: a whole number from 1 to 4096"):
        make_scheduler("sampled-lookahead(futures=0)", "edge")
    assert make_scheduler("priced-sampled-lookahead", "edge").futures == 64

"""State of every registered scheduler: stored in mid-run and restored in another process' place, bit for bit."""

import pickle
import random
from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.cluster.engine import ClusterEngine
from noonward.errors import ScenarioError
from noonward.schedule.policies import make_scheduler, policies
from noonward.seeding import stream
from reference import small_worlds

SHORT = {"fine-tuning": ["window_h=24", "jobs.demand=0.2"], "dvfs-training": ["window_h=1"]}


def environment_for(policy):
    """A crowded small world, or an hour of what a policy was trained for."""
    if policy.trained is not None or not small_worlds.serves(policy):
        scenario = "fine-tuning" if policy.trained is None else policy.trained.meta["scenario"]
        return build_environment(load_scenario(scenario, SHORT.get(scenario, ["window_h=2"])))
    needs = policy.make().needs
    world = small_worlds.draw(4, needs.protocols[0], drained=True, caps="none", signals=True, history_h=24)
    world.sites = [replace(site, clocks=(0.3, 0.6, 0.8, 1.0)) for site in world.sites]
    small_worlds.add_signals(world, random.Random(4), True, 24)
    return world.environment()


def plain(value):
    """Whether a value is made of arrays, numbers, strings, None, and lists and dicts of such."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and plain(each) for name, each in value.items())
    if isinstance(value, list):
        return all(plain(each) for each in value)
    return value is None or isinstance(value, np.ndarray | int | float | str)


def play(environment, name, *, restart=-1):
    """Answers and outcome of a run in which the scheduler is replaced by a restored one after some questions."""
    scheduler = make_scheduler(name)
    engine = ClusterEngine(environment, scheduler, seed=3)
    scheduler.reset(engine.brief, stream(3, "policy", environment.index))
    answers = []
    while engine.step():
        if len(answers) == restart:
            state = scheduler.state()
            assert plain(state)
            stored = pickle.dumps(state)
            scheduler.decide(engine.view, engine.answers)  # what is stored must not change with the scheduler
            engine.answers.answer_N[:] = (0, 0, -1, 0.0, -1)
            assert pickle.dumps(state) == stored
            scheduler = make_scheduler(name)
            scheduler.reset(engine.brief, stream(8, "policy", environment.index))
            scheduler.load_state(pickle.loads(stored))
        scheduler.decide(engine.view, engine.answers)
        answers.append(engine.answers.answer_N.tobytes() + engine.answers.limit_SH.tobytes())
    return answers, engine.outcome().job_J.tobytes()


@pytest.mark.parametrize("policy", policies(kind="cluster"), ids=lambda policy: policy.name)
def test_a_restored_scheduler_answers_like_one_that_never_stopped(policy):
    environment = environment_for(policy)
    whole = play(environment, policy.name)
    count = len(whole[0])
    assert count >= 10
    for restart in (1, count // 2):
        assert play(environment, policy.name, restart=restart) == whole


def test_the_state_of_another_scheduler_is_refused():
    environment = build_environment(load_scenario("tiny"))
    held = {}
    for name in ("local-fcfs", "booked-perfect", "bid-price-perfect"):
        scheduler = make_scheduler(name)
        engine = ClusterEngine(environment, scheduler)
        scheduler.reset(engine.brief, stream(0, "policy"))
        held[name] = (scheduler, scheduler.state())
    with pytest.raises(ScenarioError, match=r"of the state of LocalFcfs has shape .* expected"):
        held["local-fcfs"][0].load_state(held["booked-perfect"][1])
    with pytest.raises(ScenarioError, match=r"a state of LocalFcfs holds index_XY, .* but the one given holds"):
        held["local-fcfs"][0].load_state(held["bid-price-perfect"][1])
    with pytest.raises(ScenarioError, match="but the one given holds nothing"):
        held["bid-price-perfect"][0].load_state({})


def test_a_state_kept_before_jobs_had_an_expected_work_is_restored():
    scheduler = make_scheduler("bid-price-perfect")
    engine = ClusterEngine(build_environment(load_scenario("tiny")), scheduler)
    scheduler.reset(engine.brief, stream(0, "policy"))
    state = scheduler.state()
    sampled = state["_sampled"]
    assert len(sampled)
    older = np.empty(len(sampled), [(name, sampled.dtype[name]) for name in sampled.dtype.names if name != "expected"])
    for name in older.dtype.names:
        older[name] = sampled[name]
    plans = np.zeros(2, [("serial", "i8"), ("at", "i8"), ("deadline_s", "f8"), ("site", "i8"), ("slot", "i8")])
    plans["slot"] = 7
    scheduler.load_state(state | {"_sampled": older, "_plan_J": plans})
    assert scheduler.state()["_plan_J"]["slot"].tolist() == [7, 7]
    assert scheduler.state()["_plan_J"]["urgent"].tolist() == [0, 0]
    assert scheduler.state()["_sampled"].tobytes() == sampled.tobytes()

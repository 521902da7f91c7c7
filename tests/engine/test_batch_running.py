"""Batches whose agents are asked about running jobs, too: bit for bit the cluster engine, and rewards that sum up."""

import random
from collections import Counter

import numpy as np
import pytest

from engine.test_batch import finish, pick, shown, step
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.cluster.observation import Observation
from noonward.decision.cluster.view import ASK_RUNNING
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster import build
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.cluster.engine import ClusterEngine
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.learn.envs.parallel_env import SitesEnv
from noonward.learn.tasks.cluster import ClusterTask
from noonward.learn.tasks.source import Source
from noonward.ledger.ledger import settle
from noonward.model.cluster.environment import Environment

SHORT = ["window_h=12"]
RUNNING = Observation(kind="extended", running=True, forecast_h=3)


@pytest.fixture(scope="module")
def days() -> list[Environment]:
    scenario = load_scenario("training-days", SHORT)
    return [build_environment(scenario, index, 0) for index in range(2)]


def batch(environments: list[Environment], observation: Observation = RUNNING) -> BatchEngine:
    forecast = Forecast("persistence") if observation.forecast_h else None
    return BatchEngine(environments, observation, seeds=range(len(environments)), forecast=forecast)


class Suspends(Scheduler):
    needs = Needs(forecast=Forecast("persistence"), lookahead_h=4, levers=("suspend",))

    def decide(self, view, answers):
        raise NotImplementedError


def test_a_batch_of_one_is_the_cluster_engine_while_jobs_are_suspended(days):
    many, one, kinds = batch(days[:1]), ClusterEngine(days[0], Suspends(), seed=0, rewards=True), Counter()
    rng = random.Random(3)
    while one.step():
        kinds[one.view.kind] += 1
        assert one.reward_usd == many.reward_B[0]
        for name in one.view._fields:
            assert getattr(one.view, name).tobytes() == getattr(many.row_view(0), name).tobytes()
        choice_N = pick(many, 0, rng)
        one.answers.answer_N["choice"][:] = choice_N
        many.step(choice_N[None])
    outcome = one.outcome()
    assert outcome.tobytes() == many.outcome(0).tobytes()
    assert kinds[ASK_RUNNING] > 20
    assert len(outcome.segment_K) > 50


def test_rewards_sum_to_the_utility_of_a_ledger_with_suspensions(days):
    many = batch(days[:1])
    _, rewards = finish(many, [1])
    ledger = settle(many.outcome(0))
    assert sum(rewards[0]) == pytest.approx(ledger.utility_usd, rel=1e-9)


def test_segments_grow_on_the_way_and_a_saved_state_goes_on_bit_for_bit(days, monkeypatch):
    roomy = finish(batch(days), range(2))
    monkeypatch.setattr(build, "SEGMENTS", 1)
    many = batch(days)
    rngs = [random.Random(row) for row in range(2)]
    for _ in range(200):
        step(many, rngs)
    saved, resting = many.state(), [rng.getstate() for rng in rngs]
    while not many.done_B.all():
        step(many, rngs)
    again = batch(days)
    again.load_state(saved)
    for rng, at in zip(rngs, resting, strict=True):
        rng.setstate(at)
    while not again.done_B.all():
        step(again, rngs)
    assert [again.outcome(row).tobytes() for row in range(2)] == [many.outcome(row).tobytes() for row in range(2)]
    assert finish(batch(days), range(2)) == roomy


def test_failures_fill_the_segments_of_a_batch_too(days, monkeypatch):
    """Nobody is asked about running jobs here, but those that fail leave segments, for which room must be made."""
    failing = load_scenario("training-days", [*SHORT, "jobs.failures={per_gpu_hour: 1.0e-3, retries: 5}"])
    environment = build_environment(failing, 0, 0)
    plain = Observation(kind="paper")
    whole = batch([environment], plain)
    finish(whole, [0])
    monkeypatch.setattr(build, "SEGMENTS", 1)
    grown = batch([environment], plain)
    finish(grown, [0])
    assert len(whole.outcome(0).segment_K) > 20
    assert grown.outcome(0).tobytes() == whole.outcome(0).tobytes()


def test_what_is_shown_of_a_running_job(days):
    """By hand from the view: its gang, what is left of its run, and how long it could stand still."""
    many, rng, seen = batch(days[:1]), random.Random(5), 0
    names, own = RUNNING.names(days[0].sites), RUNNING.own_names(days[0].sites)
    while not many.done_B[0]:
        view = many.row_view(0)
        for n, site in enumerate(days[0].sites):
            entry = {name: float(many.global_BG[0, names.index(f"{name}/{site}")]) for name in ("gang", "running")}
            running = view.kind == ASK_RUNNING and view.asked_N[n] >= 0
            assert entry["running"] == running
            if running:
                seen += 1
                life = view.life_J[view.asked_N[n]]
                assert entry["gang"] == life["gpus"] / 8
                left_s = life["until_s"] - view.now_s
                shown_O = dict(zip(own, many.own_BNO[0, n].tolist(), strict=True))
                assert shown_O["run_time"] == pytest.approx(np.sqrt(left_s / 86400), rel=1e-6)
                watts = view.site_S["pue"][n] * life["gpus"] * (380 - 60)  # over free GPUs
                kwh = watts / 1000 * left_s / 3600
                usd = kwh / 1000 * view.price_S[n] + kwh * view.carbon_S[n] / 1e6 * 100
                value = -usd / (life["gpus"] * left_s / 3600 * 0.05)
                assert shown_O["now/hold"] == pytest.approx(2 * value / (abs(value) + 1), rel=1e-5)
                assert shown_O[f"now/{site}"] == 0.0
        many.step(pick(many, 0, rng)[None])
    assert seen > 20


def test_a_choice_about_a_running_job_is_named(days):
    many, rng = batch(days[:1]), random.Random(0)
    while many.row_view(0).kind != ASK_RUNNING:
        many.step(pick(many, 0, rng)[None])
    before, choice_N = shown(many, 0), pick(many, 0, rng)
    agent = int(many.asked_BN[0].argmax())
    choice_N[agent] = 1 + (agent + 1) % 3
    with pytest.raises(InfeasibleActionError, match=r"\(no choice\); feasible now: 0 \(run on\)"):
        many.step(choice_N[None])
    assert shown(many, 0) == before


def test_pettingzoo_sites_suspend_running_jobs():
    env = SitesEnv(load_scenario("training-days", SHORT), Observation(kind="paper", running=True))
    observations, _ = env.reset(seed=1)
    suspended = 0
    while env.agents:
        view = env._episodes.engine.row_view(0)
        actions = {agent: int(np.flatnonzero(observations[agent]["action_mask"])[-1]) for agent in env.agents}
        suspended += view.kind == ASK_RUNNING and any(actions.values())
        observations, _, _, _, infos = env.step(actions)
        assert not any(info["infeasible"] for info in infos.values())
    assert suspended > 10


def test_what_does_not_go_together_is_refused(days):
    for reward in ("at-start", "own"):
        with pytest.raises(ScenarioError, match="counts a job's whole run when it starts"):
            BatchEngine(days, Observation(kind="paper", running=True), seeds=range(2), reward=reward)
    with pytest.raises(ValueError, match="under on-arrival nobody is asked about running jobs"):
        Observation(kind="paper", protocol="on-arrival", running=True)
    with pytest.raises(ScenarioError, match="set reward=utility, or leave out show_running"):
        ClusterTask(sources=(Source(scenario="training-days"),), reward="at-start", show_running=True)
    with pytest.raises(ScenarioError, match="asks nobody about running jobs; leave out show_running"):
        ClusterTask(sources=(Source(scenario="tiny"),), show_running=True).observation_of(
            load_scenario("dvfs-training")
        )

"""Same seed, same bytes; and a policy changes nothing that belongs to the world."""

import random
from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.cluster import build
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.schedule.policies import make_scheduler, policies
from reference import small_worlds

CLOCKS = (0.3, 0.6, 0.8, 1.0)


def environment_for(scheduler, seed=1):
    """A crowded world with signals, in the scheduler's protocol, every site with the clocks the registry asks for."""
    world = small_worlds.draw(seed, scheduler.needs.protocols[0], drained=True, caps="none", signals=True, history_h=24)
    world.sites = [replace(site, clocks=CLOCKS) for site in world.sites]
    small_worlds.add_signals(world, random.Random(seed), True, 24)
    environment = world.environment()
    if not scheduler.needs.record:
        return environment
    jobs = environment.jobs
    site_J, start_s_J = np.arange(len(jobs)) % len(environment.sites), jobs.arrival_s_J + 60.0
    return replace(environment, jobs=replace(jobs, recorded_site_J=site_J, recorded_start_s_J=start_s_J))


def state(outcome):
    return outcome.tobytes()


def inputs(environment):
    parts = [getattr(environment.jobs, name) for name in vars(environment.jobs)]
    parts += [environment.signals.price_usd_per_mwh_ZH, environment.signals.carbon_g_per_kwh_ZH]
    return [part.tobytes() for part in parts]


OF_ANY_ZONE = [policy.name for policy in policies(trained=False, kind="cluster") if small_worlds.serves(policy)]
"""Policies whose forecasts, if they read any, serve zones that no net was trained on."""


@pytest.mark.parametrize("name", OF_ANY_ZONE)
def test_both_loops_give_the_same_bytes_and_leave_the_world_alone(name):
    environment = environment_for(make_scheduler(name))
    before = inputs(environment)
    first = run(environment, make_scheduler(name), seed=5)
    assert state(first) == state(run(environment, make_scheduler(name), seed=5, compiled=False))
    if isinstance(make_scheduler(name), CompiledScheduler):
        assert state(first) == state(run(environment, make_scheduler(name), seed=5, compiled=True))
    assert inputs(environment) == before


@pytest.mark.parametrize("name", ["random", "random-free", "booked-noisy"])
def test_another_seed_gives_another_run(name):
    environments = [environment_for(make_scheduler(name), seed) for seed in range(5)]
    runs = [
        [state(run(environment, make_scheduler(name), seed=seed)) for environment in environments] for seed in (5, 6)
    ]
    assert runs[0] != runs[1]


def test_a_scheduler_may_be_run_again():
    scheduler = make_scheduler("random")
    environment = environment_for(scheduler)
    assert state(run(environment, scheduler)) == state(run(environment, scheduler))


def test_policies_are_shown_the_same_world():
    names = ["random", "most-free", "price-greedy", "booked-perfect"]
    worlds = []
    for name in names:
        scheduler = make_scheduler(name)
        worlds.append(ClusterEngine(environment_for(scheduler), scheduler, seed=1).world)
    assert len({world.submitted_R.tobytes() for world in worlds}) == 1
    assert len({world.signal_KSH.tobytes() for world in worlds}) == 1


def first_forecast(environment, name, seed=0):
    """The forecast that is shown at the first question."""
    engine = ClusterEngine(environment, make_scheduler(name), seed=seed)
    engine.step()
    return engine.view.forecast_KSL


def test_forecast_noise_depends_on_the_seed_alone():
    environment = environment_for(make_scheduler("booked-noisy"))
    first, again, other = (first_forecast(environment, "booked-noisy", seed).tobytes() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("name", ["booked-perfect", "booked-noisy", "bid-price-regression", "plan-advisory"])
def test_forecasts_may_be_issued_one_hour_at_a_time(name, monkeypatch):
    """However many hours are issued at once, also where a loop stops for each of them."""
    environment = environment_for(make_scheduler(name))
    at_once = state(run(environment, make_scheduler(name), seed=5))
    for hours in (1, 5):
        monkeypatch.setattr(build, "ISSUED_H", hours)
        assert state(run(environment, make_scheduler(name), seed=5)) == at_once
        assert state(run(environment, make_scheduler(name), seed=5, compiled=False)) == at_once


def test_a_long_run_holds_no_more_forecasts_than_a_short_one():
    scenario = load_scenario("tiny", ["window_h=2000", "jobs.count=300"])
    world = ClusterEngine(build_environment(scenario), make_scheduler("booked-persistence")).world
    assert world.forecast_KISL.shape[1] == build.ISSUED_H == 48


def test_rewards_are_read_one_step_at_a_time():
    scheduler = make_scheduler("most-free")
    environment = environment_for(scheduler)
    outcome = run(environment, scheduler, rewards=True)
    assert len(outcome.rewards_K) == outcome.steps + 1
    assert outcome.job_J.tobytes() == run(environment, scheduler).job_J.tobytes()
    assert run(environment, scheduler).rewards_K is None


def test_a_scheduler_without_a_rule_cannot_run_compiled():
    class Holds(Scheduler):
        def decide(self, view, answers):
            pass

    with pytest.raises(TypeError, match="Holds has no compiled rule"):
        run(environment_for(make_scheduler("random")), Holds(), compiled=True)


def test_two_sites_in_one_zone_are_told_the_same_forecast():
    environment = build_environment(load_scenario("tiny", ["fleet.sites.1.zone=CA-ON"]))
    forecast_KSL = first_forecast(environment, "booked-noisy")
    assert np.array_equal(forecast_KSL[:, 0], forecast_KSL[:, 1], equal_nan=True)
    assert np.isfinite(forecast_KSL).any()

"""The faces for outside libraries pass those libraries' own tests and are the batch engine underneath."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import MONTHS
from noonward.decision.cluster.observation import Observation
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.learn.envs import IDS
from noonward.learn.envs.dispatcher_env import DispatcherEnv
from noonward.learn.envs.parallel_env import SitesEnv
from noonward.ledger.ledger import settle

SHORT = ("protocol=on-arrival", "window_h=6", "jobs.count=20")


def dispatcher(**options):
    return DispatcherEnv("dvfs-training", settings=("window_h=1",), **options)


def play(env, seed):
    """Plays an episode of random feasible actions; returns what was seen and the rewards, the first reading first."""
    observations, infos = env.reset(seed=seed)
    rng = np.random.default_rng(0)
    seen, rewards = [observations], [infos[env.possible_agents[0]]["before_usd"]]
    while env.agents:
        actions = {agent: int(rng.choice(np.flatnonzero(observations[agent]["action_mask"]))) for agent in env.agents}
        observations, reward, terminated, truncated, _ = env.step(actions)
        seen.append(observations)
        rewards.append(reward[env.possible_agents[0]])
        assert len(set(reward.values())) == 1
        assert set(truncated.values()) == {False}
    assert set(terminated.values()) == {True}
    return seen, rewards


def test_pettingzoo_accepts_the_sites():
    env = SitesEnv("tiny")
    parallel_api_test(env, num_cycles=500)
    parallel_seed_test(lambda: SitesEnv("tiny"), num_cycles=20)
    observations, _ = env.reset(seed=1)
    for agent in env.agents:
        assert env.observation_space(agent).contains(observations[agent])
    extended = Observation(kind="extended", forecast_h=2)
    parallel_api_test(SitesEnv("tiny", extended, forecast=Forecast("persistence")), num_cycles=50)


@pytest.mark.parametrize("reward", ["utility", "at-start"])
def test_rewards_of_the_sites_sum_to_the_utility(reward):
    env = SitesEnv("tiny", reward=reward)
    _, rewards = play(env, 3)
    ledger = settle(env._episodes.engine.outcome(0))
    assert sum(rewards) == pytest.approx(ledger.utility_usd, rel=1e-9)


METERED = (
    "fleet.tariffs={t: {demand: [{usd_per_kw_month: 50, interval_min: 15}], usd_per_month: 20}}",
    "fleet.sites.0.meter={tariff: t, base_kw: 0.2, connection_kw: 0.4, over_connection_usd_per_kwh: 1}",
    "fleet.sites.1.meter={tariff: t}",
    "fleet.sites.1.behind_meter={battery: {kw: 0.2, kwh: 0.8}}",
    "events=[{site: north, start_h: 3, hours: 2, baseline_kw: 0.5, cut: 0.3, penalty_usd_per_mwh: 4000}]",
)


def metered_episode(reward, metered):
    """Rewards of an episode of `tiny`, the first reading first, summed over agents where they differ; its ledger."""
    env = SitesEnv(load_scenario("tiny", METERED if metered else METERED[:1]), reward=reward)
    observations, infos = env.reset(seed=3)
    rng, rewards = np.random.default_rng(0), [infos["north"]["before_usd"]]
    while env.agents:
        masks = {agent: observations[agent]["action_mask"] for agent in env.agents}
        actions = {agent: int(rng.choice(np.flatnonzero(mask))) for agent, mask in masks.items()}
        observations, earned, *_ = env.step(actions)
        rewards.append(sum(earned.values()) if reward == "own" else earned["north"])
    return np.array(rewards), settle(env._episodes.engine.outcome(0))


@pytest.mark.parametrize("reward", ["utility", "own"])
def test_rewards_of_metered_sites_hold_what_the_ledger_settles(reward):
    rewards, ledger = metered_episode(reward, True)
    plain, _ = metered_episode(reward, False)
    assert abs(ledger.tariff_usd) > 0.05
    if reward == "utility":
        assert rewards.sum() == pytest.approx(ledger.utility_usd, rel=1e-9)
    assert (plain - rewards).sum() == pytest.approx(ledger.tariff_usd, rel=1e-9)
    # peaks cost when they are set, not at the end alone
    assert (np.abs(plain - rewards)[1:] > 1e-3).sum() > 5


def test_rewards_of_the_dispatcher_hold_what_the_ledger_settles():
    settings = (*SHORT, *METERED[:1], "fleet.sites.0.meter={tariff: t}", "fleet.sites.2.meter={tariff: t}")
    observation = Observation(kind="extended", protocol="on-arrival", gpus_max=16, signals=True)
    env = DispatcherEnv("fine-tuning", observation, settings=settings, reward="utility")
    _, info = env.reset(seed=2)
    total, ended = info["before_usd"], False
    while not ended:
        _, reward, ended, _, _ = env.step(env.action_space.sample())
        total += reward
    ledger = settle(env._episodes.engine.outcome(0))
    assert abs(ledger.tariff_usd) > 0.05
    assert total == pytest.approx(ledger.utility_usd, rel=1e-9)


def test_own_rewards_differ_by_agent_and_sum_to_what_the_team_earns_over_idling():
    env = SitesEnv("tiny", reward="own")
    observations, _ = env.reset(seed=3)
    rng, earned = np.random.default_rng(0), dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        masks = {agent: observations[agent]["action_mask"] for agent in env.agents}
        actions = {agent: int(rng.choice(np.flatnonzero(mask))) for agent, mask in masks.items()}
        observations, rewards, _, _, _ = env.step(actions)
        for agent, reward in rewards.items():
            earned[agent] += reward
    ledger = settle(env._episodes.engine.outcome(0))
    assert len(set(earned.values())) > 1
    assert sum(earned.values()) - ledger.fixed_usd == pytest.approx(ledger.utility_usd, rel=1e-9)


def test_a_seed_names_an_episode_and_the_next_one_differs():
    env = SitesEnv("tiny")
    first, again = play(env, 3), play(SitesEnv("tiny"), 3)
    np.testing.assert_equal(first, again)
    start = env._episodes.engine.environments[0]
    env.reset()
    following = env._episodes.engine.environments[0]
    assert (start.seed, start.index, following.seed, following.index) == (10_003, 0, 10_003, 1)
    assert len(play(SitesEnv("tiny"), 4)[1]) != len(first[1])


@pytest.mark.parametrize("part", ["train", "validation"])
def test_episodes_stay_in_their_part_of_the_data(part):
    env = SitesEnv("tiny", part=part)
    for seed in range(5):
        env.reset(seed=seed)
        assert env._episodes.engine.environments[0].start.month in MONTHS[part]


def test_sites_that_are_not_asked_may_hold_only():
    env = SitesEnv("tiny")
    observations, infos = env.reset(seed=0)
    idle = [agent for agent in env.agents if not infos[agent]["asked"]]
    assert idle
    assert all(observations[agent]["action_mask"].tolist() == [1, 0, 0] for agent in idle)


def test_actions_outside_the_space_raise_whatever_becomes_of_infeasible_ones():
    env = SitesEnv("tiny")
    _, infos = env.reset(seed=0)
    asked = next(agent for agent in env.agents if infos[agent]["asked"])
    with pytest.raises(InfeasibleActionError, match="no such choice"):
        env.step({agent: 7 if agent == asked else 0 for agent in env.agents})
    single = dispatcher()
    _, info = single.reset(seed=0)
    assert info["action_mask"].sum() == single.action_masks().sum() == 64
    with pytest.raises(InfeasibleActionError, match="no such choice"):
        single.step(64)


def with_an_infeasible_action(env, mask_of):
    """Plays feasible actions until one is infeasible; returns that one and the mask."""
    rng = np.random.default_rng(0)
    while mask_of(env).all():
        env.step(int(rng.choice(np.flatnonzero(mask_of(env)))))
    return int(np.flatnonzero(~mask_of(env))[-1]), mask_of(env)


def test_an_infeasible_action_of_the_dispatcher_is_replaced_and_reported_or_refused():
    taken = {}
    for infeasible in ("replace", "raise"):
        env = gymnasium.make(
            "noonward/FineTuning-v0", settings=SHORT, infeasible=infeasible, disable_env_checker=True
        ).unwrapped
        env.reset(seed=2)
        wrong, mask = with_an_infeasible_action(env, DispatcherEnv.action_masks)
        if infeasible == "raise":
            with pytest.raises(InfeasibleActionError, match="choose only what mask_BNA marks"):
                env.step(wrong)
            assert (env.action_masks() == mask).all()
            right = int(np.flatnonzero(mask[: wrong + 1])[-1])
            observation, *_, info = env.step(right)
            assert (info["infeasible"], info["action"]) == (False, right)
        else:
            observation, *_, info = env.step(wrong)
            assert info["infeasible"]
        taken[infeasible] = (info["action"], observation.tolist())
    assert taken["replace"] == taken["raise"]


def before_an_infeasible_action(env):
    """Plays until an agent that is asked has an infeasible action; returns the agent, the action and the masks."""
    rng = np.random.default_rng(0)
    observations, infos = env.reset(seed=0)
    while True:
        masks = {agent: observations[agent]["action_mask"] for agent in env.agents}
        for agent, mask in masks.items():
            if infos[agent]["asked"] and not mask.all():
                return agent, int(np.flatnonzero(mask == 0)[0]), masks
        actions = {agent: int(rng.choice(np.flatnonzero(mask))) for agent, mask in masks.items()}
        observations, *_, infos = env.step(actions)


def test_an_infeasible_action_of_a_site_counts_as_hold_and_is_reported_or_refused():
    held, replaced, strict = SitesEnv("tiny"), SitesEnv("tiny"), SitesEnv("tiny", infeasible="raise")
    for env in (held, replaced, strict):
        wrong, action, masks = before_an_infeasible_action(env)
    hold = dict.fromkeys(masks, 0)
    expected, found = held.step(hold), replaced.step(hold | {wrong: action})
    np.testing.assert_equal(found[:4], expected[:4])
    assert [(found[4][agent]["infeasible"], found[4][agent]["action"]) for agent in masks] == [
        (agent == wrong, 0) for agent in masks
    ]
    assert not expected[4][wrong]["infeasible"]
    with pytest.raises(InfeasibleActionError, match="choose only what mask_BNA marks"):
        strict.step(hold | {wrong: action})
    np.testing.assert_equal(strict.step(hold)[:2], expected[:2])


def test_the_last_mask_leaves_one_choice():
    env = dispatcher()
    env.reset(seed=0)
    ended = False
    while not ended:
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        ended = terminated or truncated
    assert np.flatnonzero(info["action_mask"]).tolist() == np.flatnonzero(env.action_masks()).tolist() == [0]
    assert env.action_space.sample() == 0
    sites = SitesEnv("tiny")
    seen, _ = play(sites, 3)
    assert all(seen[-1][agent]["action_mask"].tolist() == [1, 0, 0] for agent in sites.possible_agents)


def test_a_flat_observation_holds_the_mask_last():
    env, flat = SitesEnv("tiny"), SitesEnv("tiny", flat=True)
    observations, _ = env.reset(seed=1)
    flattened, infos = flat.reset(seed=1)
    for agent, seen in observations.items():
        assert flat.observation_space(agent).contains(flattened[agent])
        assert infos[agent]["action_mask"].tolist() == seen["action_mask"].tolist()
        assert flattened[agent].tolist() == [*seen["observation"].tolist(), *seen["action_mask"].tolist()]


def test_no_step_without_an_episode():
    env = SitesEnv("tiny")
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step({})
    play(env, 0)
    with pytest.raises(RuntimeError, match="the episode has ended"):
        env.step({})


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_accepts_every_id(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box.*precision.*")
        check_env(gymnasium.make(f"noonward.learn.envs:{name}").unwrapped, skip_render_check=True)


def test_an_id_needs_no_import():
    code = (
        "import gymnasium\n"
        "env = gymnasium.make('noonward.learn.envs:noonward/DvfsTraining-v0', settings=('window_h=1',))\n"
        "print(env.reset(seed=0)[1]['action_mask'].sum())\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["64"]


def test_the_dispatchers_reward_is_the_papers():
    env = dispatcher()
    env.reset(seed=0)
    _, reward, *_ = env.step(4 * 8)  # one L4 at its oracle's clock: 6.403 J per unit (model sheet of CHSAC-AF)
    assert reward == pytest.approx(-0.6403 + 0.05, abs=1e-4)
    total, ended = 0, False
    while not ended:
        observation, reward, terminated, ended, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert -4.0 < reward < 0.05
        assert not terminated
        total += 1
    assert total > 100
    assert not observation.any()


def test_the_dispatcher_may_choose_the_clock():
    env = dispatcher(observation=Observation(kind="paper", protocol="on-arrival", levels=8))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box.*precision.*")
        check_env(env, skip_render_check=True)
    rewards = {}
    for level in range(8):
        env.reset(seed=0)
        rewards[level] = env.step(4 * 8 * 8 + level)[1]  # one L4; its oracle's clock is 0.7, level 4
    assert max(rewards, key=rewards.get) == 4
    assert rewards[4] == pytest.approx(-0.6403 + 0.05, abs=1e-4)
    assert len(set(rewards.values())) == 8


def test_rewards_of_the_dispatcher_sum_to_the_utility():
    observation = Observation(kind="extended", protocol="on-arrival", gpus_max=16, signals=True)
    env = DispatcherEnv("fine-tuning", observation, settings=SHORT, reward="utility")
    _, info = env.reset(seed=2)
    total, ended = info["before_usd"], False
    while not ended:
        _, reward, ended, truncated, _ = env.step(env.action_space.sample())
        assert not truncated
        total += reward
    assert total == pytest.approx(settle(env._episodes.engine.outcome(0)).utility_usd, rel=1e-9)


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ScenarioError, match="has the protocol each-slot, but DispatcherEnv is for on-arrival"):
        DispatcherEnv("tiny")
    with pytest.raises(ScenarioError, match="which scenario 'dvfs-training' has not"):
        dispatcher(reward="utility")
    with pytest.raises(ValueError, match="did you mean 'energy'"):
        dispatcher(reward="energie")
    with pytest.raises(ScenarioError, match=r"protocol on-arrival, but SitesEnv is for each-slot; .*DispatcherEnv"):
        SitesEnv(load_scenario("dvfs-training"))
    for face in (SitesEnv, DispatcherEnv):
        with pytest.raises(ValueError, match="infeasible is 'rise'; did you mean 'raise'"):
            face(infeasible="rise")
        with pytest.raises(ScenarioError, match="part is 'tst'; did you mean 'test'"):
            face(part="tst")
        with pytest.raises(ScenarioError, match="observation is 'extended'; give an Observation"):
            face(observation="extended")
    with pytest.raises(ScenarioError, match=r"give a tuple of KEY=VALUE, as \('window_h=1',\)"):
        DispatcherEnv(settings="window_h=1")


LEARNING = """
import sys
from noonward.cli.main import main
sys.modules[sys.argv.pop()] = None
for words in (["train", "tiny"], ["bench", "learn"]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


@pytest.mark.parametrize("missing", ["torch", "tensorboard"])
def test_learning_without_a_library_it_needs_names_the_extra(missing):
    answer = subprocess.run([sys.executable, "-c", LEARNING, missing], check=False, capture_output=True, text=True)
    assert answer.stdout.split() == ["2", "2"]
    assert answer.stderr.count(f"error: module '{missing}' is not installed") == 2
    assert answer.stderr.count("noonward[train]") == 2
    assert "Traceback" not in answer.stderr


MISSING = """
import importlib, sys
from noonward.errors import MissingExtraError
for module, missing in (("parallel_env", "pettingzoo"), ("dispatcher_env", "gymnasium"), ("edge_env", "gymnasium")):
    sys.modules[missing] = None
    try:
        importlib.import_module(f"noonward.learn.envs.{module}")
    except MissingExtraError as error:
        assert "noonward[train]" in str(error), error
        print(module)
"""


def test_a_missing_library_names_the_extra():
    answer = subprocess.run([sys.executable, "-c", MISSING], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["parallel_env", "dispatcher_env", "edge_env"]

"""The Gymnasium face of the edge setting passes that library's own test and is the batch engine underneath."""

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from engine.edge.cells import scenario_of
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.learn.envs.edge_env import EdgeEnv


def play(env, seed):
    """Plays an episode of random feasible actions; returns the rewards, the first reading first, and what was seen."""
    observation, info = env.reset(seed=seed)
    rng = np.random.default_rng(0)
    rewards, seen, ended = [info["before"]], [observation], False
    while not ended:
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        observation, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        seen.append(observation)
        ended = terminated or truncated
    assert terminated
    assert not truncated
    return rewards, seen


def test_gymnasium_accepts_it_by_scenario():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box.*precision.*")
        check_env(EdgeEnv(scenario_of(8)), skip_render_check=True)


def test_rewards_sum_to_price_times_quality_less_responses():
    env = EdgeEnv(scenario_of(4), price_s=80.0, target=0.25)
    rewards, _ = play(env, 3)
    total = {name: env.batch.total(name)[0] for name in ("response_s", "quality", "launched")}
    worth = 80.0 * (total["quality"] - 0.25 * total["launched"]) - total["response_s"]
    assert sum(rewards) == pytest.approx(worth / 100.0)


def test_a_seed_names_an_episode_and_the_next_one_differs():
    env = EdgeEnv(scenario_of(4))
    first, again = play(env, 3), play(EdgeEnv(scenario_of(4)), 3)
    np.testing.assert_equal(first, again)
    env.reset(seed=3)
    start = env.batch.environments[0]
    env.reset()
    following = env.batch.environments[0]
    assert (start.seed, start.index, following.seed, following.index) == (10_003, 0, 10_003, 1)


def test_masks_say_what_is_feasible_and_the_rest_is_replaced_or_refused():
    env = EdgeEnv(scenario_of(4), steps=(20, 22), infeasible="raise")
    _, info = env.reset(seed=1)
    assert env.action_masks().tolist() == [bool(each) for each in info["action_mask"]]
    assert all(env.action_masks()[env.action_space.sample()] for _ in range(20))
    wrong = int(np.flatnonzero(~env.action_masks())[0])
    with pytest.raises(InfeasibleActionError, match="answer only what the mask marks"):
        env.step(wrong)
    lower = np.flatnonzero(env.action_masks()[:wrong])
    right = int(lower[-1] if len(lower) else np.flatnonzero(env.action_masks())[0])
    observation, *_, info = env.step(right)
    assert (info["infeasible"], info["action"]) == (False, right)
    other = EdgeEnv(scenario_of(4), steps=(20, 22))
    other.reset(seed=1)
    replaced, *_, info = other.step(wrong)
    assert (info["infeasible"], info["action"]) == (True, right)
    np.testing.assert_array_equal(replaced, observation)
    with pytest.raises(InfeasibleActionError):
        other.step(other.action_space.n)


def test_the_last_mask_leaves_one_choice():
    env = EdgeEnv(scenario_of(4))
    play(env, 0)
    assert np.flatnonzero(env.action_masks()).tolist() == [0]


def test_a_run_that_its_limit_cuts_is_truncated():
    env = EdgeEnv(scenario_of(4, end="limit", limit_s=1.05))
    env.reset(seed=0)
    *_, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (False, True)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)


def test_scenarios_of_another_kind_and_wrong_options_are_refused():
    with pytest.raises(ScenarioError, match="kind cluster"):
        EdgeEnv("tiny")
    with pytest.raises(ScenarioError, match="least and most"):
        EdgeEnv(scenario_of(4), steps=(9, 8))
    with pytest.raises(ValueError, match="infeasible is 'drop'"):
        EdgeEnv(scenario_of(4), infeasible="drop")
    with pytest.raises(ScenarioError, match="part"):
        EdgeEnv(scenario_of(4), part="exam")
    with pytest.raises(RuntimeError, match="call reset"):
        EdgeEnv(scenario_of(4)).step(0)

"""EAT and its ablations: the toy is learned, gradients flow, settings change what is learned, runs resume exactly."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learn.test_settings import Change, digest
from learn.test_trainer import StopIn, assert_same
from learn.token_toy import PLACES, best_reward, token_task
from noonward.errors import ScenarioError
from noonward.learn.algorithms.eat import Eat, EatConfig, PublishedConfig
from noonward.learn.algorithms.ppo import Ppo, PpoConfig
from noonward.learn.algorithms.registry import algorithm_named
from noonward.learn.core.checkpoint import load_checkpoint
from noonward.learn.core.settings import build
from noonward.learn.core.token_nets import noise_schedule
from noonward.learn.tasks.edge import EdgeTask
from noonward.learn.tasks.rows import Rows
from noonward.learn.tasks.source import Source
from noonward.learn.tasks.task import dimensions_of
from noonward.learn.train.run_config import RunConfig
from noonward.learn.train.trainer import Trainer

SMALL: dict[str, Any] = {"hidden": (8, 8), "width": 8, "heads": 2, "context": 8}
TINY: dict[str, Any] = {**SMALL, "rounds": 3, "batch": 8, "capacity": 200, "imitation_updates": 4, "critic_alone": 2}
NETS: dict[str, Any] = {"hidden": (24, 24), "width": 12, "heads": 2, "context": 24, "batch": 32, "rounds": 3}
TASK = EdgeTask(sources=(Source(scenario="toy"),))
BRIEF: dict[str, Any] = {"environments": 3, "steps": 30, "episode_steps": 7, "updates": 6, "validation_environments": 2}


def run_of(algorithm: str, settings: dict[str, Any], **fields: Any) -> RunConfig:
    return RunConfig(algorithm=algorithm, task=TASK, settings=settings, **{**BRIEF, "epochs": 2, **fields})


def learner(algorithm: str = "eat", **settings: Any) -> tuple[Any, Rows]:
    """Returns a learner of the toy that has seen some steps, and its rows."""
    task = token_task()
    rows = Rows(task, 4, 100)
    entry = algorithm_named(algorithm)
    made = entry.make(dimensions_of(rows.engine, task), build(entry.config, settings), 3)
    for _ in range(12):
        made.observe(rows.step(made.act(rows.moment, explore=True)))
    return made, rows


FAST: dict[str, Any] = {"actor_rate": 3e-3, "critic_rate": 3e-3}
ADVISED: dict[str, Any] = {**NETS, **FAST, "imitation_updates": 150}
ALONE: dict[str, Any] = {
    **NETS,
    **FAST,
    "imitation": 0.0,
    "imitation_kept": 0.0,
    "imitation_updates": 0,
    "hindsight": 0.0,
    "soft": 1.0,
    "critic_alone": 100,
    "temperature": 0.002,
    "gamma": 0.5,
    "target_rate": 0.02,
}
PPO: dict[str, Any] = {"hidden": (32, 32), "width": 16, "heads": 2, "context": 32, "rollout_steps": 50, "passes": 6}


@pytest.mark.parametrize(
    ("algorithm", "settings", "share"),
    [
        ("eat", ADVISED, 0.9),
        ("eat-a", ADVISED, 0.8),
        ("eat-d", {**ADVISED, "imitation_kept": 0.0}, 0.9),
        ("eat-da", ADVISED, 0.8),
        ("eat-da", ALONE, 0.6),
        ("ppo", {**PPO, **FAST, "gamma": 0.5, "gradient_norm": 10.0, "minibatches": 4}, 0.8),
        ("ppo", {**PPO, **FAST, "minibatches": 4, "imitation_updates": 1000}, 0.9),
    ],
    ids=("eat", "eat-a", "eat-d", "eat-da", "soft-actor-critic-alone", "ppo", "ppo-imitates"),
)
def test_the_toy_is_learned(algorithm: str, settings: dict[str, Any], share: float, tmp_path: Path) -> None:
    fields = {"environments": 8, "steps": 200, "episode_steps": 1000, "validation_environments": 20}
    updates = {} if algorithm == "ppo" else {"updates": 100}
    config = run_of(algorithm, settings, epochs=5 if share < 0.9 else 2, **fields, **updates)
    trainer = Trainer(config, token_task(), tmp_path)
    trainer.run()
    assert trainer.best_reward > share * best_reward(20)


@pytest.mark.parametrize("algorithm", ["eat", "eat-a", "eat-d", "eat-da", "eat-published"])
def test_every_parameter_learns(algorithm: str) -> None:
    settings = {"soft": 1.0, "imitation_updates": 0, "critic_alone": 0, "critic_guides": True, "hindsight": 1.0}
    made, _ = learner(algorithm, **{**TINY, **settings, "imitation_kept": 1.0})
    before = {name: value.clone() for name, value in made.actor.named_parameters()}
    critic = {name: value.clone() for name, value in made.critic.named_parameters()}
    for _ in range(3):
        made.update()
    for old, net in ((before, made.actor), (critic, made.critic)):
        still = [name for name, value in net.named_parameters() if value.numel() and torch.equal(value, old[name])]
        assert still == []


def test_the_critics_gradient_reaches_the_actor_through_all_rounds_or_is_cut() -> None:
    made, _ = learner("eat", **{**TINY, "soft": 1.0, "critic_alone": 0})
    batch = made.replay.sample(made.batch_rng, 8)
    tokens, fits = made._tokens_of(batch.seen_NBI[0]), made._fits(batch.mask_NBA[0])
    made._soft_loss(tokens, fits).backward()
    # a round's time enters by its own row of the embedding: the gradient of the first round's is there too
    assert made.actor.time_w.grad.abs().sum() > 0
    assert made.actor.noisy_w.grad.abs().sum() > 0
    cut, _ = learner("eat", **{**TINY, "soft": 1.0, "critic_alone": 0, "critic_guides": False})
    cut._soft_loss(tokens, fits).backward()  # the entropy alone is left
    assert cut.actor.time_w.grad.abs().sum() > 0
    assert all(each.grad is None for each in cut.critic.parameters())


def test_ablations_leave_out_their_part() -> None:
    parts = {
        name: {each for each, value in learner(name, **TINY)[0].actor.named_parameters() if value.numel()}
        for name in ("eat", "eat-a", "eat-d", "eat-da")
    }
    attention = {"encoder.mix_w", "encoder.mix_b"}
    diffusion = {"noisy_w", "time_w", "slot_noisy_w"}
    assert parts["eat"] - parts["eat-a"] == attention
    assert parts["eat"] - parts["eat-d"] == diffusion
    assert parts["eat"] - parts["eat-da"] == attention | diffusion


def test_greedy_choices_are_feasible_and_decoded_as_said() -> None:
    made, _ = learner("eat-d", **TINY)
    fits = torch.tensor([[True, True, True, False], [True, True, True, True], [False, True, False, True]])
    action = torch.tensor([[0.1, 1.0, -0.5, 0.2, 0.9], [-0.1, 0.0, 0.5, 0.2, 0.9], [-0.1, -3.0, 0.1, 0.9, 0.0]])
    place, level = made._decoded(action, fits)
    assert place.tolist() == [2, 0, 1]  # the best that fits; a wait; nothing to wait for
    assert level.tolist() == [4, 0, 0]
    share = made.log_soft(action, fits).exp()
    torch.testing.assert_close(share.sum(-1), torch.ones(3))
    assert share[0, 3] == share[2, 0] == share[2, 2] == 0.0


def test_what_is_left_of_the_signal_after_ten_rounds() -> None:
    assert noise_schedule("preserving", 10)[1][-1] == pytest.approx(np.exp(-5.05))
    assert noise_schedule("linear", 10)[1][-1] == pytest.approx(0.904, abs=1e-3)


@pytest.mark.parametrize("algorithm", ["eat", "eat-d", "eat-published", "ppo"])
def test_a_stopped_run_resumes_bit_for_bit(algorithm: str, tmp_path: Path) -> None:
    settings = {**SMALL, "rollout_steps": 10, "minibatches": 2} if algorithm == "ppo" else {**TINY, "soft": 1.0}
    fields = {} if algorithm == "ppo" else {"updates": 4}
    config = run_of(algorithm, settings, epochs=3, **{**BRIEF, **fields} if fields else {"updates": 1000})
    Trainer(config, token_task(), tmp_path / "whole").run()
    with pytest.raises(KeyboardInterrupt):
        Trainer(config, token_task(), tmp_path / "parts", StopIn(2)).run()
    resumed = Trainer(config, token_task(), tmp_path / "parts")
    assert resumed.epoch == 1
    resumed.run()
    whole, parts = (load_checkpoint(tmp_path / name / "checkpoint.npz") for name in ("whole", "parts"))
    assert_same(whole, parts)


CHANGES: dict[str, Change] = {
    "attention": (False, {}),
    "diffusion": (False, {}),
    "hidden": ((9, 8), {}),
    "width": (10, {}),
    "heads": (1, {}),
    "context": (9, {}),
    "rounds": (4, {}),
    "betas": ("linear", {}),
    "predicts": ("noise", {}),
    "tanh_noise": (True, {"predicts": "noise"}),
    "limit": (0.1, {}),
    "noisy_execution": (True, {}),
    "critic_sees": ("numbers", {"soft": 1.0}),
    "critic_guides": (False, {"soft": 1.0}),
    "batch": (9, {}),
    "actor_rate": (1e-3, {}),
    "critic_rate": (1e-3, {"soft": 1.0}),
    "last_rate": (0.1, {"updates_all": 5}),
    "updates_all": (5, {"last_rate": 0.1}),
    "gamma": (0.5, {"soft": 1.0}),
    "target_rate": (0.5, {"soft": 1.0}),
    "temperature": (1.0, {"soft": 1.0}),
    "noise": (2.0, {}),
    "capacity": (50, {}),
    "imitation": (0.5, {}),
    "imitation_updates": (5, {}),
    "imitation_kept": (1.0, {}),
    "hindsight": (0.5, {}),
    "soft": (1.0, {}),
    "critic_alone": (3, {"soft": 1.0}),
    "precision": ("float64", {}),
}
PPO_CHANGES: dict[str, Change] = {
    "hidden": ((9, 8), {}),
    "attention": (False, {}),
    "width": (10, {}),
    "heads": (1, {}),
    "context": (9, {}),
    "gradient_norm": (1e-9, {}),
    "rollout_steps": (15, {}),
    "passes": (2, {}),
    "minibatches": (1, {}),
    "actor_rate": (1e-3, {}),
    "critic_rate": (1e-3, {}),
    "gamma": (0.5, {}),
    "per_slot": (False, {}),
    "gae_lambda": (0.5, {}),
    "clip": (1e-6, {"actor_rate": 0.05}),
    "entropy_weight": (1.0, {}),
    "huber": (0.01, {}),
    "normalise_values": (False, {}),
    "value_memory": (0.5, {}),
    "imitation_updates": (2, {}),
    "precision": ("float64", {}),
}


def learned(folder: Path, algorithm: str, settings: dict[str, Any]) -> str:
    """Returns a digest of the curves and the last policy of a short run in the toy."""
    trainer = Trainer(run_of(algorithm, settings), token_task(), folder)
    trainer.run()
    return digest([repr(trainer.curves), *trainer.algorithm.policy_arrays()[:2]])


BEFORE: dict[str, str] = {}


def before(folder: Path, algorithm: str, settings: dict[str, Any]) -> str:
    """Returns ``learned`` of what changes are made to, once per settings."""
    name = repr((algorithm, settings))
    if name not in BEFORE:
        BEFORE[name] = learned(folder, algorithm, settings)
    return BEFORE[name]


@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_changes_what_is_learned(name: str, tmp_path: Path) -> None:
    value, context = CHANGES[name]
    base = {**TINY, **context}
    assert base.get(name, getattr(EatConfig(), name)) != value
    assert before(tmp_path / "one", "eat", base) != learned(tmp_path / "other", "eat", {**base, name: value})


@pytest.mark.parametrize("name", PPO_CHANGES)
def test_every_setting_of_ppo_changes_what_is_learned(name: str, tmp_path: Path) -> None:
    value, context = PPO_CHANGES[name]
    base = {**SMALL, "rollout_steps": 10, "minibatches": 2, **context}
    assert base.get(name, getattr(PpoConfig(), name)) != value
    assert before(tmp_path / "one", "ppo", base) != learned(tmp_path / "other", "ppo", {**base, name: value})


def test_every_setting_is_changed_somewhere() -> None:
    for config in (EatConfig, PublishedConfig):
        assert {field.name for field in dataclasses.fields(config)} == set(CHANGES)
    assert {field.name for field in dataclasses.fields(PpoConfig)} == set(PPO_CHANGES)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ScenarioError, match="heads do not divide"):
        EatConfig(width=30)
    with pytest.raises(ScenarioError, match="two layers"):
        EatConfig(hidden=(8,))
    with pytest.raises(ScenarioError, match="heads do not divide"):
        PpoConfig(width=30)
    with pytest.raises(ScenarioError, match="two layers"):
        PpoConfig(hidden=(8, 8, 8))
    task = dataclasses.replace(token_task(), advised=False)
    with pytest.raises(ScenarioError, match="need advice"):
        Eat(dimensions_of(Rows(task, 1, 9).engine, task), EatConfig(), 0)
    with pytest.raises(ScenarioError, match="imitation needs advice"):
        Ppo(dimensions_of(Rows(task, 1, 9).engine, task), PpoConfig(imitation_updates=1), 0)
    task = dataclasses.replace(token_task(), tokens=None)
    for name in ("eat", "ppo"):
        entry = algorithm_named(name)
        with pytest.raises(ScenarioError, match="sees tokens"):
            entry.make(dimensions_of(Rows(task, 1, 9).engine, task), entry.config(), 0)


def test_a_place_that_does_not_fit_is_never_taken() -> None:
    made, rows = learner("eat", **TINY)
    for explore in (True, False):
        for _ in range(30):
            rows.step(made.act(rows.moment, explore=explore))  # the toy asserts that choices are feasible
    assert rows.engine.mask_BNA.shape[-1] == (1 + PLACES) * made.levels

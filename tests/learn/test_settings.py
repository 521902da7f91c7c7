"""Every setting of every algorithm, and of a run, changes what is learned.

A setting without an entry in CHANGES fails the test that counts them.
"""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learn import two_dispatch_sites as toy
from learn.test_trainer import toy_run
from learn.two_sites import toy_task
from noonward.learn.algorithms.chsac import Chsac, ChsacConfig, PublishedConfig
from noonward.learn.algorithms.madqn import MadqnConfig
from noonward.learn.algorithms.mappo import MappoConfig
from noonward.learn.algorithms.masac import MasacConfig
from noonward.learn.core.experience import Transition
from noonward.learn.train.run_config import RunConfig
from noonward.learn.train.trainer import Trainer

CONFIGS: dict[str, Any] = {"masac": MasacConfig, "madqn": MadqnConfig, "mappo": MappoConfig, "chsac-af": ChsacConfig}
BASES: dict[str, dict[str, Any]] = {
    "masac": {"hidden": (4,), "batch": 8, "capacity": 200, "actor_rate": 1e-3},
    "madqn": {"hidden": (4,), "batch": 8, "capacity": 200, "epsilon_updates": 20},
    "mappo": {"hidden": (4,), "rollout_steps": 10, "passes": 2, "minibatches": 2},
    "chsac-af": {"hidden": (4,), "quantiles": 3, "batch": 8, "capacity": 200, "rate": 1e-3, "average_rate": 0.5},
}
"""Small sizes, under which the changes are made."""

Change = tuple[Any, dict[str, Any]]
"""Another value of a setting, and other settings without which it does nothing."""
OFF_POLICY: dict[str, Change] = {
    "hidden": ((5,), {}),
    "batch": (9, {}),
    "gamma": (0.9, {}),
    "target_rate": (0.1, {}),
    "capacity": (50, {}),
    "precision": ("float64", {}),
}
CHANGES: dict[str, dict[str, Change]] = {
    "masac": {
        **OFF_POLICY,
        "actor_rate": (2e-3, {}),
        "critic_rate": (1e-3, {}),
        "temperature": (0.5, {}),
        "tune_temperature": (True, {}),
        "temperature_rate": (0.1, {"tune_temperature": True}),
        "target_entropy": (0.9, {"tune_temperature": True, "temperature_rate": 0.1}),
    },
    "madqn": {
        **OFF_POLICY,
        "rate": (1e-3, {}),
        "epsilon_first": (0.5, {}),
        "epsilon_last": (0.5, {}),
        "epsilon_updates": (5, {}),
    },
    "mappo": {
        "hidden": ((5,), {}),
        "rollout_steps": (15, {}),
        "passes": (3, {}),
        "minibatches": (1, {}),
        "actor_rate": (1e-3, {}),
        "critic_rate": (1e-3, {}),
        "gamma": (0.9, {}),
        "per_slot": (True, {}),
        "gae_lambda": (0.5, {}),
        "clip": (0.01, {"actor_rate": 0.05}),
        "entropy_weight": (0.1, {}),
        "huber": (0.1, {}),
        "normalise_values": (False, {}),
        "value_memory": (0.5, {}),
        "gradient_norm": (0.01, {}),
        "precision": ("float64", {}),
    },
    "chsac-af": {
        **OFF_POLICY,
        "quantiles": (4, {}),
        "kappa": (0.1, {}),
        "rate": (2e-3, {}),
        "fewer_gpus": (0.5, {}),
        "temperature": (0.5, {}),
        "temperature_rate": (0.1, {}),
        "target_entropy": (0.9, {"temperature_rate": 0.1}),
        "dual_rate": (0.5, {}),
        "dual_damping": (0.1, {}),
        "average_rate": (0.1, {}),
        "centre": (False, {}),
        "actor_gradient": ("one-hot", {}),
        "bootstrap": (False, {}),
        "gang_head": ("fleet", {}),
        "energy_unit": ("kWh", {}),
        "quantile_weights": ("target", {}),
        "weigh_by_size": (False, {}),
        "excess": ("positive", {}),
        "duals_fall": (False, {}),
        "behaviour": ("latest", {"rate": 0.1, "average_rate": 0.01}),
        "execute": ("greedy", {}),
    },
}
COOLED: dict[str, Any] = {"cooled_entropy": 0.05, "cooling_until": 4, "temperature_rate": 0.1}
CHANGES["chsac-af"] |= {
    "cooled_entropy": (0.005, COOLED),
    "cooling_from": (2, COOLED),
    "cooling_until": (8, COOLED),
}
RUN_CHANGES: dict[str, Change] = {
    "algorithm": ("madqn", {}),
    "settings": ({"hidden": (5,), "batch": 8, "capacity": 200}, {}),
    "seed": (1, {}),
    "epochs": (3, {}),
    "environments": (2, {}),
    "steps": (31, {}),
    "episode_steps": (7, {}),
    "updates": (6, {}),
    "validation_environments": (3, {}),
    "validate_every": (2, {"epochs": 4}),
}
ELSEWHERE = {
    "task": "what is trained in (tests/learn/test_record_of_training.py, tests/cli/test_train.py)",
    "checkpoint_every": "says what is on the disk (tests/learn/test_trainer.py)",
    "device": "gives the same numbers elsewhere (tests/learn/test_gpu.py)",
}
"""Fields of a run that do not change what is learned in the toy, and what tests them."""


def learned(folder: Path, algorithm: str, settings: dict[str, Any], **fields: Any) -> str:
    """Returns a digest of the curves and the last policy of a short run in the toy."""
    config = dataclasses.replace(toy_run(), algorithm=algorithm, settings=settings, **{"epochs": 2, **fields})
    trainer = Trainer(config, toy_task(), folder)
    trainer.run()
    return digest([repr(trainer.curves), *trainer.algorithm.policy_arrays()[:2]])


BEFORE: dict[str, str] = {}


def before(folder: Path, algorithm: str, settings: dict[str, Any], **fields: Any) -> str:
    """Returns ``learned`` of what changes are made to, once per settings."""
    name = repr((algorithm, settings, fields))
    if name not in BEFORE:
        BEFORE[name] = learned(folder, algorithm, settings, **fields)
    return BEFORE[name]


def dispatched(settings: dict[str, Any]) -> str:
    """Returns a digest of what CHSAC-AF tells, holds and answers after some rounds of the toy dispatcher."""
    algorithm = Chsac(toy.dimensions("mean_latency_s"), ChsacConfig(**settings), seed=3)
    algorithm.held_K[:] = 0.5  # so that a constraint that holds has a multiplier to release
    rng, rows, told = np.random.default_rng(0), 16, []
    price_BS, mask_BA = toy.questions(rng, rows)
    before = toy.moment(price_BS, mask_BA)
    none_B, row_B = np.zeros(rows, bool), np.arange(rows)
    for _ in range(8):
        choice_B = algorithm.act(before, explore=True)[:, 0]
        size_B = rng.uniform(0.5, 2.0, rows)
        reward_B = -size_B * toy.energy(price_BS)[row_B, choice_B]
        excess_B = toy.LATENCY_S.ravel()[choice_B] / 350.0 - 1.0
        price_BS, mask_BA = toy.questions(rng, rows)
        after = toy.moment(price_BS, mask_BA)
        cost_BK = np.column_stack([size_B * excess_B, size_B, np.ones(rows)])
        algorithm.observe(
            Transition(before, choice_B[:, None], reward_B, np.ones(rows), cost_BK, none_B, none_B, after)
        )
        told.append(algorithm.update())
        before = after
    return digest([repr(told), *algorithm.policy_arrays()[:2], algorithm.act(before, explore=False)])


def digest(parts: list[Any]) -> str:
    out = hashlib.sha256()
    for part in parts:
        for array in part if isinstance(part, list) else [part]:
            out.update(array.encode() if isinstance(array, str) else np.ascontiguousarray(array).tobytes())
    return out.hexdigest()


@pytest.mark.parametrize(
    ("algorithm", "name"), [(algorithm, name) for algorithm in CHANGES for name in CHANGES[algorithm]]
)
def test_every_setting_of_an_algorithm_changes_what_is_learned(algorithm: str, name: str, tmp_path: Path) -> None:
    value, context = CHANGES[algorithm][name]
    base = {**BASES[algorithm], **context}
    assert base.get(name, getattr(CONFIGS[algorithm](), name)) != value
    if algorithm == "chsac-af":
        assert dispatched(base) != dispatched({**base, name: value})
    else:
        one = before(tmp_path / "one", algorithm, base)
        assert one != learned(tmp_path / "other", algorithm, {**base, name: value})


@pytest.mark.parametrize("name", RUN_CHANGES)
def test_every_setting_of_a_run_changes_what_is_learned(name: str, tmp_path: Path) -> None:
    value, context = RUN_CHANGES[name]
    settings = {"hidden": (4,), "batch": 8, "capacity": 200}
    one, other = ({"algorithm": "masac", "settings": settings, **context, **more} for more in ({}, {name: value}))
    assert before(tmp_path / "one", **one) != learned(tmp_path / "other", **other)


@pytest.mark.parametrize("algorithm", ["masac", "chsac-af"])
def test_the_same_settings_give_the_same_result(algorithm: str, tmp_path: Path) -> None:
    if algorithm == "chsac-af":
        assert dispatched(BASES[algorithm]) == dispatched(BASES[algorithm])
    else:
        results = {learned(tmp_path / name, algorithm, BASES[algorithm]) for name in ("one", "other")}
        assert len(results) == 1


def test_every_setting_is_changed_somewhere() -> None:
    for algorithm, config in CONFIGS.items():
        assert {field.name for field in dataclasses.fields(config)} == set(CHANGES[algorithm])
    assert {field.name for field in dataclasses.fields(PublishedConfig)} == set(CHANGES["chsac-af"])
    assert {field.name for field in dataclasses.fields(RunConfig)} == set(RUN_CHANGES) | set(ELSEWHERE)

"""Warm starts: losses equal plain loops, the toy is learned from its best policy alone, resumed bit for bit."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learn.batches import DIMENSIONS, feed, random_moment
from learn.test_trainer import MADQN, MASAC, assert_same, toy_run
from learn.two_sites import AGENTS, LENGTH, BestDemonstrator, best_reward, toy_task
from noonward.errors import ScenarioError
from noonward.learn.algorithms.madqn import Madqn, MadqnConfig
from noonward.learn.algorithms.mappo import Mappo, MappoConfig
from noonward.learn.algorithms.masac import Masac, MasacConfig
from noonward.learn.core.checkpoint import load_checkpoint
from noonward.learn.core.masking import with_hold
from noonward.learn.tasks.cluster import ClusterTask
from noonward.learn.tasks.source import Source
from noonward.learn.tasks.task import Task
from noonward.learn.train.imitation import (
    Demonstrations,
    accuracy,
    demonstrate,
    fit,
    imitation_loss,
    loss_of,
    weights_of,
)
from noonward.learn.train.run_config import RunConfig, with_settings
from noonward.learn.train.trainer import EpochReport, Trainer

MAPPO: dict[str, Any] = {"hidden": (32, 32), "actor_rate": 3e-3, "critic_rate": 3e-3, "gamma": 0.9, "rollout_steps": 40}
SETTINGS: dict[str, dict[str, Any]] = {"masac": MASAC, "madqn": MADQN, "mappo": MAPPO}
BRIEF: dict[str, dict[str, Any]] = {
    "masac": {"hidden": (8,), "batch": 8, "capacity": 300},
    "madqn": {"hidden": (8,), "batch": 8, "capacity": 300},
    "mappo": {"hidden": (8,), "rollout_steps": 7, "passes": 2},
}


def taught_task() -> Task:
    return dataclasses.replace(toy_task(), demonstrator=BestDemonstrator)


def brief_run(algorithm: str, settings: dict[str, Any] | None = None, **fields: Any) -> RunConfig:
    more = {"warm_start": "best", "warm_start_environments": 3, "warm_start_passes": 2, "warm_start_batch": 16}
    given = {**BRIEF[algorithm], **(settings or {})}
    base = toy_run()
    return dataclasses.replace(base, algorithm=algorithm, settings=given, **{**more, **fields})


@pytest.mark.parametrize("kind", ["cross-entropy", "margin"])
def test_losses_equal_plain_loops(kind: Any) -> None:
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    preference = torch.randn(3, 7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    mask = rng.random((3, 7, 4)) < 0.6
    mask[..., 2] |= ~mask.any(-1)
    choice = np.where(mask, rng.random(mask.shape), -1).argmax(-1)
    told = rng.random((3, 7)) < 0.5
    tensors = [torch.from_numpy(each) for each in (mask, choice, told.astype(float))]
    found = imitation_loss(preference, *tensors, kind=kind, margin=0.3)
    wanted = torch.zeros((), dtype=torch.float64)
    for n, b in np.argwhere(told).tolist():
        mine, feasible = preference[n, b], np.flatnonzero(mask[n, b]).tolist()
        chosen = int(choice[n, b])
        if kind == "margin":
            loss = max(mine[a] + 0.3 * (a != chosen) for a in feasible) - mine[chosen]
        else:
            loss = torch.log(sum(torch.exp(mine[a]) for a in feasible)) - mine[chosen]  # type: ignore[arg-type]
        wanted = wanted + loss / told.sum()
    assert found.item() == pytest.approx(wanted.item(), abs=1e-9)
    ours, plain = (torch.autograd.grad(each, preference, retain_graph=True)[0] for each in (found, wanted))
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-9)
    assert (ours[~torch.from_numpy(mask)] == 0).all()


def random_shown(seed: int = 0) -> Demonstrations:
    """Returns random choices of random moments."""
    rng = np.random.default_rng(seed)
    seen = random_moment(rng, rows=40)
    mask_BNA = with_hold(seen.mask_BNA, seen.asked_BN)
    choice_BN = np.where(mask_BNA, rng.random(mask_BNA.shape), -1).argmax(-1)
    return Demonstrations(seen, choice_BN, seen.asked_BN & (mask_BNA.sum(-1) > 1), 0.0, 1, 0)


def made(algorithm: str, **fields: Any) -> Any:
    small: dict[str, Any] = {"hidden": (64, 64), "precision": "float64", **fields}
    if algorithm == "mappo":
        return Mappo(DIMENSIONS, MappoConfig(**small), seed=1)
    if algorithm == "masac":
        return Masac(DIMENSIONS, MasacConfig(**small, capacity=50), seed=1)
    return Madqn(DIMENSIONS, MadqnConfig(**small, capacity=50), seed=1)


@pytest.mark.parametrize("algorithm", ["masac", "madqn", "mappo"])
def test_a_few_choices_are_learned_by_heart(algorithm: str) -> None:
    imitator, shown = made(algorithm), random_shown()
    before = accuracy(imitator, shown)[0]
    olds = [p.detach().clone() for p in imitator.deciding_net.parameters()]
    loss = fit(imitator, shown, np.random.default_rng(0), passes=400, batch=16, rate=5e-3, margin=0.8)
    right, recall = accuracy(imitator, shown)
    assert before < 0.8 < 0.97 < right
    assert recall > 0.97
    assert loss < 0.1
    told_BN = shown.told_BN
    assert (imitator.act(shown.seen, explore=False) == shown.choice_BN)[told_BN].mean() == right
    for new, old in zip(imitator.deciding_net.parameters(), olds, strict=True):
        assert ((new != old).flatten(1).float().mean(1) > 0.8).all()
    if algorithm == "madqn":
        for new, target in zip(imitator.net.parameters(), imitator.target.parameters(), strict=True):
            assert (new == target).all()


def test_what_is_not_told_teaches_nothing() -> None:
    imitator, shown = made("masac"), random_shown()
    rows = np.arange(40)
    other = shown._replace(choice_BN=np.where(shown.told_BN, shown.choice_BN, 0))
    losses = [loss_of(imitator, each, weights_of(each, 0.0), rows, 0.8).item() for each in (shown, other)]
    assert losses[0] == losses[1] > 0.0
    silent = shown._replace(told_BN=np.zeros_like(shown.told_BN))
    assert loss_of(imitator, silent, weights_of(silent, 0.0), rows, 0.8).item() == 0.0


def test_the_critics_of_masac_learn_alone_at_first() -> None:
    masac = Masac(DIMENSIONS, MasacConfig(hidden=(8,), batch=16, capacity=500, critic_alone=2), seed=1)
    feed(masac)
    old_actor, old_critic = (net.arrays()[0][0].copy() for net in (masac.actor, masac.critic))
    for update in range(3):
        masac.update()
        assert (masac.actor.arrays()[0][0] == old_actor).all() == (update < 2)
    assert (masac.critic.arrays()[0][0] != old_critic).any()


def test_rare_choices_weigh_more_when_balanced() -> None:
    shown = random_shown()
    assert (weights_of(shown, 0.0) == shown.told_BN).all()
    weight_BN = weights_of(shown, 1.0)
    for n in range(3):
        choice, weight = (each[shown.told_BN[:, n], n] for each in (shown.choice_BN, weight_BN))
        sums = [weight[choice == a].sum() for a in set(choice.tolist())]
        assert len(sums) >= 3
        np.testing.assert_allclose(sums, 1.0)
    assert (weight_BN[~shown.told_BN] == 0).all()
    np.testing.assert_allclose(weights_of(shown, 0.5) ** 2, weight_BN)


def test_demonstrations_are_whole_runs_of_the_policy() -> None:
    task, steps = taught_task(), []
    shown = demonstrate(task, 4, 1000, observe=steps.append)
    assert len(shown.choice_BN) == len(steps) == 4 * LENGTH
    assert (shown.runs, shown.missed) == (4, 0)
    assert shown.reward == pytest.approx(best_reward([task.training(n) for n in range(4)]), rel=1e-12)
    assert sum(step.ended_B[0] for step in steps) == 4
    assert shown.told_BN.sum() == shown.seen.asked_BN.sum()
    assert len(demonstrate(task, 4, 5).choice_BN) == 20


def test_an_answer_that_is_no_choice_is_counted_and_not_learned() -> None:
    class Half(BestDemonstrator):
        def choices(self) -> Any:
            out = super().choices()
            out[0] = -1
            return out

    shown = demonstrate(dataclasses.replace(toy_task(), demonstrator=Half), 2, 1000)
    assert shown.missed == shown.seen.asked_BN[:, 0].sum() > 0
    assert not shown.told_BN[:, 0].any()
    assert (shown.choice_BN[:, 0] == 0).all()

    class Silent(BestDemonstrator):
        def choices(self) -> Any:
            return np.full(AGENTS, -1)

    with pytest.raises(ScenarioError, match="nothing to imitate"):
        demonstrate(dataclasses.replace(toy_task(), demonstrator=Silent), 1, 1000)


@pytest.mark.parametrize("algorithm", ["masac", "madqn", "mappo"])
def test_the_toy_is_learned_by_imitation_alone(algorithm: str, tmp_path: Path) -> None:
    settings = {**SETTINGS[algorithm], **({"passes": 1, "actor_rate": 0.0} if algorithm == "mappo" else {})}
    config = RunConfig(
        algorithm=algorithm,
        task=ClusterTask(sources=(Source(scenario="x"),)),
        settings=settings,
        epochs=1,
        steps=10,
        updates=1,
        validation_environments=20,
        warm_start="best",
        warm_start_environments=60,
        warm_start_passes=20,
        warm_start_batch=64,
        warm_start_rate=3e-3,
    )
    task = taught_task()
    reports: list[EpochReport] = []

    class Listening:
        def phase(self, name: str, done: int, total: int) -> None:
            """Hears nothing."""

        def epoch(self, report: EpochReport) -> None:
            reports.append(report)

    trainer = Trainer(config, task, tmp_path, Listening())
    trainer.run()
    first, best = trainer.curves[0], best_reward([task.validation(n) for n in range(20)])
    assert [row["epoch"] for row in trainer.curves] == [report.epoch for report in reports] == [0, 1]
    assert reports[0].eta_s is None
    assert first["imitated_reward"] == pytest.approx(best, rel=1e-12)
    assert first["imitation_accuracy"] > 0.93  # type: ignore[operator]
    assert 0.97 * best < first["validation_reward"] <= best + 1e-9  # type: ignore[operator]


def test_the_toy_is_learned_by_mappo(tmp_path: Path) -> None:
    for name, more in (("whole", {}), ("parts", {"minibatches": 2})):
        config = RunConfig(
            algorithm="mappo",
            task=ClusterTask(sources=(Source(scenario="x"),)),
            settings={**MAPPO, **more},
            environments=10,
            epochs=6,
            steps=200,
            episode_steps=1000,
            validation_environments=20,
        )
        task = toy_task()
        trainer = Trainer(config, task, tmp_path / name)
        untrained = trainer.validate()
        trainer.run()
        best = best_reward([task.validation(n) for n in range(20)])
        assert untrained < 0.8 * best
        assert 0.93 * best < trainer.best_reward <= best + 1e-9
        assert trainer.algorithm.state()["updates"] == 6 * 200 // 40


class StopIn:
    """A reporter that ends the run when a phase is heard of after some epochs."""

    def __init__(self, phase: str, after: int) -> None:
        self.name, self.after, self.over = phase, after, -1

    def phase(self, name: str, done: int, total: int) -> None:
        if self.over == self.after and name == self.name:
            raise KeyboardInterrupt

    def epoch(self, report: EpochReport) -> None:
        self.over = report.epoch


@pytest.mark.parametrize(
    ("algorithm", "settings", "fields"),
    [
        ("masac", {"critic_alone": 7}, {"warm_start_keep": True}),
        ("madqn", {"span": "own"}, {"warm_start_keep": True}),
        ("mappo", {"per_slot": True, "critic_alone": 3}, {}),
        ("mappo", {"minibatches": 3}, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize(("phase", "after"), [("imitate", -1), ("collect", 0), ("update", 1)])
def test_a_run_that_is_stopped_goes_on_to_the_same_bits(
    algorithm: str, settings: dict[str, Any], fields: dict[str, Any], phase: str, after: int, tmp_path: Path
) -> None:
    config = brief_run(algorithm, settings, **fields)
    task = taught_task()
    Trainer(config, task, tmp_path / "whole").run()
    with pytest.raises(KeyboardInterrupt):
        Trainer(config, task, tmp_path / "cut", StopIn(phase, after)).run()
    resumed = Trainer(config, task, tmp_path / "cut")
    assert (resumed.epoch, len(resumed.curves)) == (max(after, 0), after + 1)
    resumed.run()
    assert_same(*[load_checkpoint(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut")])
    assert (tmp_path / "whole/curves.csv").read_bytes() == (tmp_path / "cut/curves.csv").read_bytes()


def test_demonstrations_stay_in_the_replay_when_they_are_kept(tmp_path: Path) -> None:
    counts = []
    for name, keep in (("kept", True), ("not", False)):
        config = brief_run("masac", {"capacity": 2000}, warm_start_keep=keep, epochs=1)
        trainer = Trainer(config, taught_task(), tmp_path / name)
        trainer.run()
        counts.append(trainer.algorithm.state()["replay"]["valid_N"].copy())
    assert (counts[0] - counts[1] == 3 * LENGTH).all()


def test_same_seed_same_curves_and_every_field_of_a_warm_start_counts(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"warm_start": None},
        {"warm_start_environments": 4},
        {"warm_start_passes": 3},
        {"warm_start_batch": 10},
        {"warm_start_rate": 2e-3},
        {"warm_start_margin": 0.3},
        {"warm_start_steps": 10},
        {"warm_start_balance": 0.5},
        {"warm_start_keep": True},
        {"seed": 1},
    ]
    curves = []
    for number, change in enumerate([{}, *changes]):
        config = brief_run("madqn", **{"epochs": 1, **change})
        trainer = Trainer(config, taught_task(), tmp_path / str(number))
        trainer.run()
        curves.append((tmp_path / str(number) / "curves.csv").read_bytes())
    assert curves[0] == curves[1]
    assert len(set(curves)) == len(changes)


@pytest.mark.parametrize(
    ("algorithm", "given", "message"),
    [
        ("mappo", ["warm_start=random", "warm_start_keep=true"], "mappo has no replay to keep demonstrations in"),
        ("masac", ["warm_start=random", "warm_start_passes=0"], "warm_start_passes is 0"),
        ("masac", ["warm_start=random", "warm_start_rate=fast"], "warm_start_rate is 'fast'"),
        ("masac", ["warm_start=random", "warm_start_keep=3"], "warm_start_keep is 3"),
        ("masac", ["warm_start=random", "warm_start_balance=2"], "warm_start_balance is 2"),
        ("masac", ["warm_start=7"], "warm_start is 7; give a policy's name"),
        ("masac", ["warm_starts=random"], "unknown setting 'warm_starts'"),
        ("mappo", ["updates=2"], "mappo learns from each rollout .* leave out updates"),
        ("masac", ["updates=2.5"], "updates is 2.5"),
        (
            "masac",
            ["warm_start_margin=2", "warm_start_keep=true"],
            "without a policy to imitate; set warm_start=POLICY",
        ),
        ("mappo", ["batch=3"], "unknown setting 'batch'"),
    ],
)
def test_mistakes_are_named(algorithm: str, given: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        with_settings(algorithm, ClusterTask(sources=(Source(scenario="tiny"),)), given)


def test_policies_that_do_not_exist_or_fit_are_named(tmp_path: Path) -> None:

    for policy, message in (("cheapest-feasibl", "cheapest-feasible"), ("dp", "on-arrival")):
        config = with_settings(
            "masac", ClusterTask(sources=(Source(scenario="tiny"),)), [f"warm_start={policy}", "capacity=100"]
        )
        with pytest.raises(ScenarioError, match=message):
            config.open()
    given = ["warm_start=booked-noisy", "observation=extended", "forecast_h=2", "forecast=persistence"]
    config = with_settings("masac", ClusterTask(sources=(Source(scenario="tiny"),)), given)
    with pytest.raises(ScenarioError, match="a run has one forecast"):
        config.open()


def test_a_rule_of_a_scenario_is_imitated(tmp_path: Path) -> None:
    from noonward.learn.train.export import export_policy

    given = [
        *("warm_start=cheapest-feasible", "warm_start_environments=6", "warm_start_passes=60", "warm_start_batch=32"),
        *("steps=20", "environments=2", "hidden=[32]", "rollout_steps=10", "observation=extended"),
    ]
    config = with_settings("mappo", ClusterTask(sources=(Source(scenario="tiny"),)), given, epochs=1)
    trainer = Trainer(config, config.open(), tmp_path)
    trainer.run()
    first = trainer.curves[0]
    assert first["imitation_missed"] == 0
    assert first["imitation_accuracy"] > 0.9  # type: ignore[operator]
    assert first["validation_reward"] > 0.9 * first["imitated_reward"]  # type: ignore[operator]
    meta = export_policy(tmp_path, tmp_path / "policy.npz")
    assert (meta["algorithm"], meta["head"]) == ("mappo", "logits")

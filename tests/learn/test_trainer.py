"""Training: the toy is learned, same seed same curves, and a run that is killed resumes as if it had never stopped."""

import csv
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learn.two_sites import LENGTH, TwoSites, best_reward, toy_task
from noonward.errors import DataError, FileError, ScenarioError
from noonward.files import locked_folder
from noonward.learn.core.checkpoint import load_checkpoint
from noonward.learn.tasks.cluster import ClusterTask
from noonward.learn.tasks.rows import Rows
from noonward.learn.tasks.source import Source
from noonward.learn.train.curves import Events
from noonward.learn.train.run_config import RunConfig, with_settings
from noonward.learn.train.trainer import EpochReport, Trainer, best_of, mean_of

NETS: dict[str, Any] = {"hidden": (32, 32), "batch": 64, "target_rate": 0.02, "gamma": 0.9}
MASAC = {**NETS, "actor_rate": 3e-3, "critic_rate": 3e-3, "temperature": 0.02}
MAPPO: dict[str, Any] = {"hidden": (32, 32), "actor_rate": 3e-3, "critic_rate": 3e-3, "gamma": 0.9, "rollout_steps": 40}
MADQN = {**NETS, "rate": 3e-3, "epsilon_updates": 400}
REPLAYED: dict[str, Any] = {"batch": 8, "capacity": 100}
BRIEF: dict[str, Any] = {
    "environments": 3,
    "steps": 30,
    "episode_steps": 13,
    "updates": 5,
    "epochs": 4,
    "validation_environments": 2,
}


def toy_run(algorithm: str = "masac", settings: dict[str, Any] | None = None, **fields: Any) -> RunConfig:
    small = {"hidden": (8,), **({"rollout_steps": 7, "passes": 2} if algorithm == "mappo" else REPLAYED)}
    task = ClusterTask(sources=(Source(scenario="two-sites"),))
    return RunConfig(algorithm=algorithm, task=task, settings={**small, **(settings or {})}, **{**BRIEF, **fields})


def assert_same(one: Any, other: Any, where: str = "") -> None:
    """Asserts that two trees hold the same bits."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_same(one[name], other[name], f"{where}/{name}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, where
        assert one.tobytes() == other.tobytes(), where
    else:
        assert one == other, where


class StopIn:
    """A reporter that ends the run within an epoch."""

    def __init__(self, epoch: int) -> None:
        self.last = epoch - 1
        self.over = 0

    def phase(self, name: str, done: int, total: int) -> None:
        if self.over == self.last and name == "update":
            raise KeyboardInterrupt

    def epoch(self, report: EpochReport) -> None:
        self.over = report.epoch


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [("masac", MASAC), ("madqn", MADQN)],
    ids=("masac", "madqn"),
)
def test_the_best_policy_of_the_toy_is_learned(algorithm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    fields = {"environments": 4, "steps": 200, "episode_steps": 1000, "updates": 150, "validation_environments": 20}
    config = RunConfig(
        algorithm=algorithm, task=ClusterTask(sources=(Source(scenario="x"),)), epochs=6, settings=settings, **fields
    )
    setting = toy_task()
    trainer = Trainer(config, setting, tmp_path)
    untrained = trainer.validate()
    trainer.run()
    best = best_reward([setting.validation(n) for n in range(20)])
    assert untrained < 0.8 * best
    assert 0.93 * best < trainer.best_reward <= best + 1e-9


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("masac", {}),
        ("masac", {"tune_temperature": True}),
        ("madqn", {}),
        ("mappo", {"per_slot": True}),
        ("mappo", {"minibatches": 3}),
    ],
    ids=str,
)
def test_a_run_that_is_stopped_goes_on_to_the_same_bits(
    algorithm: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = toy_run(algorithm, settings)
    Trainer(config, toy_task(), tmp_path / "whole").run()
    with pytest.raises(KeyboardInterrupt):
        Trainer(config, toy_task(), tmp_path / "cut", StopIn(3)).run()
    resumed = Trainer(config, toy_task(), tmp_path / "cut")
    assert resumed.epoch == 2
    resumed.run()
    trees = [load_checkpoint(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut")]
    assert_same(*trees)
    assert (tmp_path / "whole/curves.csv").read_bytes() == (tmp_path / "cut/curves.csv").read_bytes()


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


@pytest.mark.parametrize(
    ("algorithm", "given", "message"),
    [
        ("masac", ["warm_starts=random"], "unknown setting 'warm_starts'"),
        ("mappo", ["updates=2"], "mappo learns from each rollout .* leave out updates"),
        ("masac", ["updates=2.5"], "updates is 2.5"),
        ("mappo", ["batch=3"], "unknown setting 'batch'"),
    ],
)
def test_mistaken_settings_are_named(algorithm: str, given: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        with_settings(algorithm, ClusterTask(sources=(Source(scenario="tiny"),)), given)


def test_a_figure_is_averaged_over_the_updates_that_tell_it() -> None:
    assert mean_of([{"loss": 4.0}, {"value": 1.0}, {"loss": None}]) == {"loss": 4.0, "value": 1.0}
    assert mean_of([{"loss": 0.0}, {"loss": 4.0}]) == {"loss": 2.0}
    assert mean_of([{"loss": None}]) == {"loss": None}


KILLED = """
import os, signal, sys
from pathlib import Path
from noonward.learn.train.run_config import RunConfig
from noonward.learn.train.trainer import Trainer

class Kill:
    over = 0
    def phase(self, name, done, total):
        if self.over == 2 and name == "update":
            os.kill(os.getpid(), signal.SIGKILL)
    def epoch(self, report):
        self.over = report.epoch

config = RunConfig.from_json(sys.argv[1])
Trainer(config, config.open(), Path(sys.argv[2]), Kill()).run()
"""


IN_SCENARIO = {
    "masac": (
        Source(scenario="tiny"),
        ["steps=120", "updates=5", "environments=3", "hidden=[8]", "batch=8", "capacity=500", "episode_steps=90"],
    ),
    "chsac-af": (
        Source(
            scenario="dvfs-training",
            settings=("window_h=1", "constraints.mean_latency_s=1500", "constraints.queue_max=2"),
        ),
        [
            *("reward=energy", "steps=60", "updates=4", "environments=3", "hidden=[8]", "quantiles=3", "batch=8"),
            *("capacity=400", "episode_steps=90", "validate_every=2"),
        ],
    ),
}


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("algorithm", IN_SCENARIO)
def test_a_killed_run_in_a_scenario_goes_on_to_the_same_bits(algorithm: str, tmp_path: Path) -> None:

    source, given = IN_SCENARIO[algorithm]
    config = with_settings(algorithm, ClusterTask(sources=(source,)), given, epochs=4)
    done = subprocess.run([sys.executable, "-c", KILLED, config.to_json(), str(tmp_path / "cut")], check=False)
    assert done.returncode == -signal.SIGKILL
    resumed = Trainer(config, config.open(), tmp_path / "cut")
    assert resumed.epoch == 2
    resumed.run()
    Trainer(config, config.open(), tmp_path / "whole").run()
    assert_same(*[load_checkpoint(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut")])
    assert (tmp_path / "whole/curves.csv").read_bytes() == (tmp_path / "cut/curves.csv").read_bytes()


def test_same_seed_same_curves_and_another_seed_others(tmp_path: Path) -> None:
    texts = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        Trainer(toy_run(seed=seed), toy_task(), tmp_path / name).run()
        texts.append((tmp_path / name / "curves.csv").read_text(encoding="utf-8"))
    assert texts[0] == texts[1] != texts[2]


def test_curves_hold_an_epoch_a_row_and_the_events_too(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = Trainer(toy_run(validate_every=3), toy_task(), tmp_path)
    trainer.run()
    with (tmp_path / "curves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["environment_steps"] for row in rows] == ["90", "180", "270", "360"]
    assert [bool(row["validation_reward"]) for row in rows] == [False, False, True, True]
    assert all(float(row["critic_loss"]) > 0 for row in rows)
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    shown = [each.value for each in events.Scalars("train/critic_loss")]
    np.testing.assert_allclose(shown, [float(row["critic_loss"]) for row in rows], rtol=1e-6)
    assert {"seconds/collect", "seconds/update", "seconds/validate"} <= set(events.Tags()["scalars"])


@pytest.mark.parametrize("stops", [(2,), (4,), (2, 4, 4)], ids=str)
def test_events_hold_every_epoch_once_however_often_a_run_was_stopped(stops: tuple[int, ...], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = toy_run(checkpoint_every=2)  # of what is written after a checkpoint, a resumed run writes it again
    for epoch in stops:
        stopper = StopIn(epoch)
        trainer = Trainer(config, toy_task(), tmp_path, stopper)
        stopper.over = trainer.epoch
        with pytest.raises(KeyboardInterrupt):
            trainer.run()
    Trainer(config, toy_task(), tmp_path).run()
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert [each.step for each in events.Scalars("train/critic_loss")] == [1, 2, 3, 4]


def test_the_last_of_many_event_files_written_in_one_second_is_read_last(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for session in range(12):  # from the tenth file on, numbers have one digit more
        events = Events(tmp_path, session)
        events.write(session, {"train": {"loss": float(session)}})
        events.write(session + 1, {"train": {"loss": -1.0}})  # as from a run that is killed before its checkpoint
        events.close()
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("train/loss")] == [
        *((step, float(step)) for step in range(12)),
        (12, -1.0),
    ]


def test_the_best_validated_policy_is_kept(tmp_path: Path) -> None:
    trainer = Trainer(toy_run(epochs=6), toy_task(), tmp_path)
    rewards = []
    trainer.validate = lambda: rewards.append([1.0, 3.0, 2.0, 3.0, 0.0, -1.0][len(rewards)]) or rewards[-1]  # type: ignore
    policies = []
    act = trainer.algorithm.policy_arrays
    trainer.algorithm.policy_arrays = lambda: policies.append(act()) or policies[-1]  # type: ignore
    trainer.run()
    assert (trainer.best_epoch, trainer.best_reward, len(policies)) == (2, 3.0, 2)
    kept = best_of(load_checkpoint(tmp_path / "checkpoint.npz"))
    assert all((a == b).all() for a, b in zip(kept.weights, policies[1].weights, strict=True))
    assert kept.meta == policies[1].meta


def test_rows_start_the_next_draw_where_a_run_ended_or_was_cut() -> None:
    rows = Rows(toy_task(), 2, episode_steps=LENGTH - 5)
    for step in range(1, 2 * LENGTH + 1):
        before = rows.moment
        transition = rows.step(np.zeros((2, 2), int))
        assert transition.before is before
        assert not transition.ended_B.any()
        assert transition.cut_B.all() == (step % (LENGTH - 5) == 0)
        if transition.cut_B.all():
            assert (transition.after.global_BG != rows.moment.global_BG).all()
    assert rows.number_B.tolist() == [4, 5]
    ending = Rows(toy_task(), 1, episode_steps=1000)
    ended = [bool(ending.step(np.zeros((1, 2), int)).ended_B[0]) for _ in range(3 * LENGTH)]
    assert np.flatnonzero(ended).tolist() == [LENGTH - 1, 2 * LENGTH - 1, 3 * LENGTH - 1]


def test_another_run_in_the_same_folder_is_refused_and_a_damaged_checkpoint_named(tmp_path: Path) -> None:
    Trainer(toy_run(epochs=1), toy_task(), tmp_path).run()
    with pytest.raises(ScenarioError, match="holds another training run"):
        Trainer(toy_run(seed=5), toy_task(), tmp_path)
    more = Trainer(toy_run(epochs=2), toy_task(), tmp_path)
    more.run()
    assert len(more.curves) == 2
    whole = (tmp_path / "checkpoint.npz").read_bytes()
    (tmp_path / "checkpoint.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"checkpoint\.npz cannot be read"):
        Trainer(toy_run(epochs=2), toy_task(), tmp_path)


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path) -> None:
    trainer = Trainer(toy_run(epochs=1), toy_task(), tmp_path)
    with locked_folder(tmp_path, "training"), pytest.raises(FileError, match="is in use by training, process"):
        trainer.run()
    trainer.run()
    with locked_folder(tmp_path, "training"):
        trainer.run()  # there is nothing left to train


def test_a_checkpoint_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Trainer(toy_run(epochs=1), toy_task(), tmp_path).run()
    old = (tmp_path / "checkpoint.npz").read_bytes()

    def broken(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    trainer = Trainer(toy_run(epochs=2), toy_task(), tmp_path)
    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(FileError, match="disk full"):
        trainer.run()
    assert (tmp_path / "checkpoint.npz").read_bytes() == old


def test_rewards_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    class Nothing(TwoSites):
        def step(self, choice_BN: Any) -> None:
            super().step(choice_BN)
            self.reward_B[:] = np.nan

    import dataclasses

    with pytest.raises(ScenarioError, match="no utility"):
        Trainer(toy_run(), dataclasses.replace(toy_task(), engine=Nothing), tmp_path).run()

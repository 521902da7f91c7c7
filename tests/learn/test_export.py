"""Export: the file's runner makes the same choices as the nets that were trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noonward.engine.run import run
from noonward.errors import DataError
from noonward.learn.tasks.cluster import ClusterTask
from noonward.learn.tasks.source import Source
from noonward.learn.train.export import export_policy
from noonward.learn.train.run_config import with_settings
from noonward.learn.train.trainer import Trainer, moment_of
from noonward.ledger.ledger import settle
from noonward.schedule.cluster.trained_policy import TrainedPolicy, read_policy

BRIEF = ("steps=60", "updates=20", "environments=2", "hidden=[8]", "batch=16", "epochs=1")


DAYS = Source(scenario="training-days", settings=("window_h=12",))
"""Jobs that may be suspended."""


def trained(folder: Path, algorithm: str, *more: str, source: Source | None = None) -> Trainer:
    config = with_settings(algorithm, ClusterTask(sources=(source or Source(scenario="tiny"),)), [*BRIEF, *more])
    trainer = Trainer(config, config.open(), folder)
    trainer.run()
    return trainer


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("masac", ()),
        ("masac", ("observation=extended", "forecast_h=2", "forecast=persistence")),
        ("madqn", ("observation=extended",)),
        ("masac", ("observation=extended", "show_running=true")),
    ],
    ids=str,
)
def test_the_runner_makes_the_same_choices_as_the_nets(algorithm: str, more: Any, tmp_path: Path) -> None:
    suspends = "show_running=true" in more
    trainer = trained(tmp_path, algorithm, *more, source=DAYS if suspends else None)
    meta = export_policy(tmp_path, tmp_path / "policy.npz")
    policy = TrainedPolicy(tmp_path / "policy.npz")
    environment, seed = trainer.task.validation(0)
    outcome = run(environment, policy, seed=seed)
    engine: Any = trainer.task.engine([environment], [seed])
    while not engine.done_B.all():
        moment = moment_of(engine)
        engine.step(np.where(moment.asked_BN, trainer.algorithm.act(moment, explore=False), 0))
    mine = engine.outcome(0)
    assert suspends == (0 if outcome.segment_K is None else len(outcome.segment_K) > 0)
    assert (mine.job_J["site"] == outcome.job_J["site"]).all()
    np.testing.assert_array_equal(mine.job_J["start_s"], outcome.job_J["start_s"])
    assert settle(outcome).utility_usd == pytest.approx(trainer.best_reward, rel=1e-6)
    record = read_policy(tmp_path / "policy.npz").meta["record"]
    assert record["config"]["settings"]["hidden"] == [8]
    assert record["curve"] == trainer.curves
    assert meta["algorithm"] == algorithm


def test_what_cannot_be_exported_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no training run"):
        export_policy(tmp_path, tmp_path / "policy.npz")

"""What a run writes about itself: migration cost by epoch, and a record that names no folder."""

import json

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.run import run
from noonward.learn.tasks.cluster import ClusterTask
from noonward.learn.tasks.source import Source
from noonward.learn.train.export import export_policy
from noonward.learn.train.run_config import with_settings
from noonward.learn.train.trainer import Rows, Trainer
from noonward.ledger.ledger import settle
from noonward.schedule.cluster.trained_policy import TrainedPolicy, read_meta

BRIEF = ("steps=150", "updates=5", "environments=2", "hidden=[8]", "batch=16", "epochs=3", "episode_steps=60")


def migration_usd(ledger):
    return ledger.move_usd + 0.1 * ledger.move_kg  # 100 USD/tCO2


def random_choices(engine, rng):
    return (engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2)


def test_the_engine_tells_what_the_ledger_says_migrations_cost():
    environments = [build_environment(load_scenario("tiny"), index) for index in range(2)]
    engine = BatchEngine(environments, Observation(kind="paper"), seeds=[0, 1])
    rng = np.random.default_rng(0)
    assert engine.migration_usd().tolist() == [0.0, 0.0]
    while not engine.done_B.all():
        engine.step(random_choices(engine, rng))
    expected = [migration_usd(settle(engine.outcome(row))) for row in range(2)]
    assert min(expected) > 0
    assert engine.migration_usd() == pytest.approx(expected)


def test_migration_cost_of_an_epoch_is_the_growth_over_its_steps_also_over_the_ends_of_episodes(tmp_path, monkeypatch):
    config = with_settings("masac", ClusterTask(sources=(Source(scenario="tiny"),)), BRIEF)
    trainer = Trainer(config, config.open(), tmp_path)
    grown = 0.0
    step = Rows.step

    def watched(rows, choice_BN):
        nonlocal grown
        before = rows.engine.migration_usd()
        carried = rows.engine.step

        def and_read(choices):
            nonlocal grown
            carried(choices)
            grown += float((rows.engine.migration_usd() - before).sum())

        with monkeypatch.context() as patch:
            patch.setattr(rows.engine, "step", and_read)
            return step(rows, choice_BN)

    monkeypatch.setattr(Rows, "step", watched)
    trainer.run()
    paid = [row["migration_usd_per_step"] for row in trainer.curves]
    assert min(paid) > 0
    assert sum(paid) * 150 * 2 == pytest.approx(grown)
    assert trainer.curves[0]["episodes"] >= 4


def test_the_record_holds_curves_a_summary_and_what_the_written_policy_earns(tmp_path):
    sources = (Source(scenario="tiny"),)
    trainer = Trainer(
        config := with_settings("madqn", ClusterTask(sources=sources), BRIEF), config.open(), tmp_path / "run"
    )
    trainer.run()
    export_policy(tmp_path / "run", tmp_path / "half.npz", half=True)
    record = read_meta(tmp_path / "half.npz")["record"]
    assert record["curve"] == trainer.curves
    assert record["summary"] == f"madqn, trained on tiny with seed 0 up to epoch {trainer.best_epoch} of 3."
    environment, seed = trainer.task.validation(0)
    ledger = settle(run(environment, TrainedPolicy(tmp_path / "half.npz"), seed=seed))
    assert record["validation_utility_usd"] == ledger.utility_usd
    trainer.validate()
    paid = trainer.task.figures["migration_usd"](trainer._validation)
    assert trainer.curves[-1]["validation_migration_usd"] == pytest.approx(float(paid.mean()))


def test_the_record_names_files_without_their_folders(tmp_path):
    from noonward.cli.options import open_scenario
    from noonward.data.jobs.load import write_job_table

    environment = build_environment(load_scenario("tiny"))
    write_job_table(environment.jobs, environment.fleet, tmp_path / "jobs.csv")
    source = Source(scenario="tiny", jobs=str(tmp_path / "jobs.csv"))
    assert open_scenario("tiny", jobs=tmp_path / "jobs.csv").jobs.source == "table"
    config = with_settings("masac", ClusterTask(sources=(source,)), ("epochs=1", *BRIEF[:5]))
    Trainer(config, config.open(), tmp_path / "run").run()
    meta = export_policy(tmp_path / "run", tmp_path / "net.npz")
    assert meta["record"]["config"]["sources"][0]["jobs"] == "jobs.csv"
    assert str(tmp_path) not in json.dumps(meta)

"""Records, settings and energy: what is written is read back; damage is named."""

import json

import pytest

from live.edge.fakes import MODELS, Bench, setting
from noonward.errors import DataError, ScenarioError
from noonward.live.edge.energy import energy_j
from noonward.live.edge.orders import Drawing, Limits
from noonward.live.edge.predictor import Predictor
from noonward.live.edge.settings import Settings, read_settings
from noonward.live.edge.tasks import TaskStore


def test_a_task_is_read_back_as_it_was_written(tmp_path):
    bench = Bench(tmp_path).ready()
    task = bench.submit(gang=2, deadline_s=9.0)
    assert TaskStore(tmp_path).read() == {task.id: task}


def test_a_damaged_record_is_named(tmp_path):
    store = TaskStore(tmp_path)
    (tmp_path / "tasks" / "image-000001.json").write_text("{")
    with pytest.raises(DataError, match=r"image-000001.json is a damaged record"):
        store.read()
    (tmp_path / "tasks" / "image-000001.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(DataError, match="has format 99; this version reads format 1"):
        store.read()


def test_settings_are_read_back_as_they_were_written(tmp_path):
    given = Settings(
        setting=setting(2),
        policy="fifo",
        models=MODELS,
        drawing=Drawing(parallelism="displaced", warm_up=2, guidance=3.0),
        limits=Limits(lease_s=7.0),
        load_policy="reload-on-regroup",
        tries=3,
        seed=5,
    )
    (tmp_path / "settings.json").write_text(given.as_text())
    assert read_settings(tmp_path / "settings.json") == given
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(DataError, match="holds no settings of a service"):
        read_settings(tmp_path / "settings.json")


def test_more_steps_than_a_model_has_are_refused():
    with pytest.raises(ScenarioError, match="steps_max is 2000; a model has at most 1000"):
        Settings(setting=setting(steps_max=2000), policy="fifo", models=MODELS)


def test_energy_is_power_times_time_of_every_server_and_of_its_facility():
    servers = setting(servers=4).servers
    assert energy_j(servers, 4, 10.0, 20.0) == pytest.approx(4 * (100 * 10 + 300 * 20))
    assert energy_j(servers.model_copy(update={"pue": 1.5}), 1, 0.0, 7200.0) == pytest.approx(1.5 * 300 * 7200)


def test_expected_times_are_the_scenarios_until_a_gang_is_measured():
    predictor = Predictor(setting())
    assert (predictor.expect_s(2, 20, formed=True), predictor.expect_s(2, 20, formed=False)) == (30.0, 20.0)
    predictor.measured(2, load_s=2.0, rest_s=5.0, steps=10)
    assert (predictor.expect_s(2, 20, formed=True), predictor.expect_s(4, 20, formed=True)) == (12.0, 30.0)
    predictor.measured(2, load_s=None, rest_s=15.0, steps=10)
    assert predictor.expect_s(2, 1, formed=False) == pytest.approx(0.8)

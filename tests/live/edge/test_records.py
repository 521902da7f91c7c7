"""Records, settings and energy: what is written is read back; damage is named."""

import json

import pytest

from live.edge.fakes import MODELS, Bench, opened, setting
from noonward.errors import DataError, FileError, ScenarioError
from noonward.live.edge.energy import energy_j
from noonward.live.edge.orders import Drawing, Limits
from noonward.live.edge.predictor import Predictor
from noonward.live.edge.settings import Settings, read_settings
from noonward.live.edge.tasks import TIMES


def test_a_task_is_read_back_as_it_was_written(tmp_path):
    bench = Bench(tmp_path).ready()
    task = bench.submit(gang=2, deadline_s=9.0)
    assert bench.store.read() == ({task.id: task}, [])


def change_record(bench, number, change):
    """Changes the stored record of a task; None: to what is no JSON."""
    store = bench.store.store
    content = json.loads(store.read("SELECT record FROM images WHERE id = ?", number)[0]["record"])
    record = "{" if change is None else json.dumps({**content, **change})
    store.do(
        lambda connection, now_s: connection.execute("UPDATE images SET record = ? WHERE id = ?", (record, number))
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, "truncated"),
        ({"gang": True}, "Expected `int`, got `bool`"),
        ({"gang": 2.0}, "Expected `int`, got `float`"),
        ({"prompt": "a \ud800 boat"}, "surrogate"),
        ({"state": "lost"}, "Invalid enum value 'lost'"),
        ({"id": "image-000009"}, "it is the record of 'image-000009'"),
        ({"attempts": [{}]}, "missing required field"),
    ],
)
def test_a_record_that_cannot_be_read_is_left_out_with_a_message_and_the_others_are_read(tmp_path, change, words):
    bench = Bench(tmp_path)
    first = bench.submit()
    bench.submit()
    change_record(bench, 2, change)
    again = Bench(tmp_path)
    assert list(again.controller.tasks) == [first.id]
    (note,) = again.controller.notes.texts
    assert "the record of image 2 cannot be read and is left out: " in note
    assert words in note
    assert again.submit().id == "image-000003", "its number is not given again"


def test_a_record_of_an_earlier_version_is_read(tmp_path):
    bench = Bench(tmp_path)
    task = bench.submit()
    change_record(
        bench, 1, {"attempts": [{"servers": [0], "steps": 20, "formed": True, "launched_unix_s": 5.0, "error": "oh"}]}
    )
    tasks, notes = bench.store.read()
    assert (tasks[task.id].attempts[0].fault, notes) == ("task", [])


def test_a_number_is_not_given_again_after_all_tasks_were_forgotten(tmp_path):
    bench = Bench(tmp_path)
    for task in [bench.submit() for _ in range(3)][::-1]:  # the newest first
        bench.store.forget(task)
    assert bench.store.read() == ({}, [])
    assert Bench(tmp_path).submit().id == "image-000004"


def test_a_store_that_is_no_store_is_one_clear_error(tmp_path):
    (tmp_path / "noonward.sqlite").write_text("no" * 500)
    with pytest.raises(FileError, match="cannot be used as a store: file is not a database"):
        Bench(tmp_path)


def test_the_store_of_another_service_is_refused(tmp_path):
    opened(tmp_path).require_mode("live")
    with pytest.raises(ScenarioError, match="is of a service of kind live, whose work one of kind images must not"):
        opened(tmp_path).require_mode("images")


def test_measured_times_are_there_after_a_restart_with_the_same_models_alone(tmp_path):
    bench = Bench(tmp_path).ready()
    bench.submit(gang=2)
    bench.now_s = 2.0
    bench.load(0, 1)
    bench.now_s = 6.0
    bench.draw(0, 1)
    again = Bench(tmp_path).controller.predictor
    assert (again.load_s_G[2], again.step_s_G[2], again.loads_G[2], again.runs_G[2]) == (2.0, 4.0 / 20, 1, 1)
    assert (again.load_s_G[1], again.loads_G[1]) == (10.0, 0)
    other = Bench(tmp_path, drawing=Drawing(parallelism="displaced")).controller.predictor
    assert (other.load_s_G[2], other.runs_G[2]) == (10.0, 0)


@pytest.mark.parametrize(
    "times",
    ["no", {}, {"loads": 3, "steps": []}, {"loads": [[2, -1.0, 1]], "steps": []}, {"loads": [["a"]], "steps": []}],
)
def test_damaged_times_are_measured_anew(tmp_path, times):
    bench = Bench(tmp_path)
    bench.store.keep_times({"of": bench.controller.plan.measured_for(), "times": times})
    again = Bench(tmp_path).controller
    assert again.predictor.loads_G.sum() == 0
    assert "times are measured again" in again.notes.texts[0]
    store = bench.store.store
    store.do(lambda connection, now_s: store.keep(connection, {TIMES: "[" * 100_000}))
    assert Bench(tmp_path).controller.predictor.loads_G.sum() == 0


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
    assert (predictor.expect_s(2, 20, loads=True), predictor.expect_s(2, 20, loads=False)) == (30.0, 20.0)
    predictor.measured(2, load_s=2.0, rest_s=5.0, steps=10)
    assert (predictor.expect_s(2, 20, loads=True), predictor.expect_s(4, 20, loads=True)) == (12.0, 30.0)
    predictor.measured(2, load_s=None, rest_s=15.0, steps=10)
    assert predictor.expect_s(2, 1, loads=False) == pytest.approx(0.8)

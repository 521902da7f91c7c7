"""Freedoms of jobs: what a scenario may state of them, what is refused, and that stating none changes nothing."""

import pytest
from pydantic import ValidationError

from noonward.data.environments import UNBROKEN, build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.errors import ScenarioError
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.freedom import Freedom
from noonward.model.cluster.power_caps import CAP_TABLES

ALL = {
    "interruptible": True,
    "elastic": {"gpus": [8, 16, 32], "speedup": [1, 1.95, 3.7]},
    "caps": "emerald-a100-pretraining-7b",
    "checkpoint": {"stop_s": 60, "dark_s": 90, "load_s": 60},
    "min_run_s": 1800,
    "most_suspensions": 8,
}


def fleet(**freedoms):
    profile = {"power": {"constant_w": 100}}
    return Fleet.model_validate(
        {
            "gpu_types": {"A": {"idle_w": 10, "classes": {"train": profile, "serve": profile}}},
            "sites": [{"name": "a", "zone": "Z", "gpu_type": "A", "gpus": 8}],
            "freedoms": freedoms,
        }
    )


def test_every_freedom_can_be_stated_and_comes_back():
    stated = fleet(train=ALL)
    assert Fleet.model_validate(stated.model_dump(mode="json")) == stated
    assert stated.freedoms["train"].checkpoint.load_power == 0.25
    assert stated.freedoms["train"].cap_curve is CAP_TABLES["emerald-a100-pretraining-7b"].curve


def test_a_fleet_without_freedoms_writes_none_so_that_digests_stay():
    assert "freedoms" not in fleet().model_dump()
    assert "freedoms" in fleet(train=ALL).model_dump()
    assert (
        load_scenario("tiny").digest != load_scenario("tiny", ["fleet.freedoms.fine-tuning.interruptible=true"]).digest
    )


@pytest.mark.parametrize(
    ("freedom", "message"),
    [
        ({"elastic": {"gpus": [8, 16], "speedup": [1, 1.9, 3]}}, "2 gangs have 3 speed-ups"),
        ({"elastic": {"gpus": [16, 8], "speedup": [1, 1.9]}}, "must both ascend"),
        ({"elastic": {"gpus": [8, 16], "speedup": [1, 1]}}, "must both ascend"),
        ({"elastic": {"gpus": [8, 16], "speedup": [2, 3]}}, "the first speed-up is 2"),
        ({"elastic": {"gpus": [8, 16], "speedup": [1, 2.1]}}, "can be at most 2, the ratio of the gangs"),
        ({"elastic": {"gpus": [8], "speedup": [1]}}, "at least 2 items"),
        ({"caps": {"power": [0.5, 1], "throughput": [0.9]}}, "2 shares of power have 1 of throughput"),
        ({"caps": {"power": [1, 0.5], "throughput": [1, 0.8]}}, "must ascend"),
        ({"caps": {"power": [0.5, 0.9], "throughput": [0.8, 1]}}, "the last point is power 0.9 and throughput 1"),
        ({"caps": {"power": [0, 1], "throughput": [0.1, 1]}}, "greater than 0"),
        ({"caps": "emerald-a100-pretraining"}, "unknown table of power caps.*did you mean 'emerald-a100-pretraining"),
        ({"min_run_s": 60}, "min_run_s goes with interruptible: true"),
        ({"most_suspensions": 3}, "most_suspensions goes with interruptible: true"),
        ({"requeue": True, "interruptible": True}, "state one of both"),
        ({"requeue": True, "elastic": {"gpus": [1, 2], "speedup": [1, 2]}}, "state one of both"),
        ({"checkpoint": {"every_s": -1}}, "greater than or equal to 0"),
        ({"checkpoint": {"stop_power": 1.5}}, "less than or equal to 1"),
        ({"suspendable": True}, "Extra inputs are not permitted"),
    ],
)
def test_a_freedom_that_contradicts_itself_is_refused(freedom, message):
    with pytest.raises(ValidationError, match=message):
        Freedom.model_validate(freedom)


@pytest.mark.parametrize(
    ("freedoms", "message"),
    [
        ({"trian": {}}, "freedoms name the unknown class 'trian'; did you mean 'train'"),
        ({"serve": {"preempts": ["trian"]}}, "serve preempts the unknown class 'trian'; did you mean 'train'"),
        ({"serve": {"preempts": ["train"]}}, "serve preempts train, which may not be stopped"),
        ({"serve": {"preempts": ["serve"], "requeue": True}}, "serve and serve preempt each other"),
        (
            {name: {"preempts": [other], "requeue": True} for name, other in (("serve", "train"), ("train", "serve"))},
            "serve and train preempt each other",
        ),
    ],
)
def test_freedoms_that_do_not_fit_the_classes_are_refused(freedoms, message):
    with pytest.raises(ValidationError, match=message):
        fleet(**freedoms)


def test_a_scenario_file_says_which_key_is_wrong():
    with pytest.raises(ScenarioError, match=r"freedoms.fine-tuning.interuptible: unknown key; did you mean 'interr"):
        load_scenario("tiny", ["fleet.freedoms.fine-tuning.interuptible=true"])


def test_runs_say_that_policies_do_not_use_freedoms():
    assert UNBROKEN in build_environment(load_scenario("tiny", ["fleet.freedoms.fine-tuning.interruptible=true"])).notes
    assert UNBROKEN not in build_environment(load_scenario("tiny")).notes


@pytest.mark.parametrize("name", CAP_TABLES)
def test_every_measured_curve_saves_power_faster_than_throughput_at_its_best_point(name):
    table = CAP_TABLES[name]
    assert "Apache-2.0" in table.source
    assert max(speed / power for power, speed in zip(table.curve.power, table.curve.throughput, strict=True)) > 1.05

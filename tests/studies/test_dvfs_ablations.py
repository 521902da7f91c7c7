"""Ablations of CHSAC-AF: each takes back one correction, all run in the same windows, and what is kept stands."""

import dataclasses
import json

import pytest

from command_line import CommandLine
from noonward.learn.algorithms.chsac import ChsacConfig, PublishedConfig
from noonward.studies.dvfs_training import ablations, short_training
from noonward.studies.dvfs_training.ablations import ablations_table, study_ablations
from noonward.studies.dvfs_training.short_training import ABLATIONS, SETTINGS, WORLD, Ablation, ShortTraining

WIDE = ("constraints.mean_latency_s=3600", "window_h=1")
BRIEF = ("reward=energy", "epochs=1", "environments=2", "steps=20", "updates=2", "episode_steps=100000000",
         "validate_every=1", "checkpoint_every=1", "hidden=[8,8]", "quantiles=2", "batch=8")  # fmt: skip
RULES = ("greedy-tradeoff(watts=10)", "greedy-tradeoff(watts=1000)", "greedy-energy(gpus=1)")


def training(ablation, folder, seed=0):
    return ShortTraining(
        ablation=ablation, seed=seed, settings=SETTINGS, world=WORLD, windows=1, window_h=1, folder=folder
    )


def brief(folder, progress=None):
    return study_ablations(
        folder, seeds=2, windows=2, window_h=1, settings=BRIEF, world=WIDE, ablations=ABLATIONS[:2], controls=RULES,
        progress=progress,
    )  # fmt: skip


def test_every_ablation_is_a_training_that_changes_one_thing(tmp_path):
    whole = training(ABLATIONS[0], tmp_path).config.content()
    for each in ABLATIONS[1:-1]:
        content = training(each, tmp_path).config.content()
        changed = {name for name in whole if content[name] != whole[name]}
        settings = {name for name in whole["settings"] if content["settings"][name] != whole["settings"][name]}
        assert (changed == {"settings"} and len(settings) == 1) or (changed == {"observation"} and not settings)
    published = training(ABLATIONS[-1], tmp_path).config.content()["settings"]
    differ = {name for name in whole["settings"] if published[name] != whole["settings"][name]}
    ours, theirs = ChsacConfig(), PublishedConfig()
    assert differ == {name for name in vars(ours) if getattr(ours, name) != getattr(theirs, name)}


def test_what_was_reached_is_kept_and_not_trained_again(tmp_path, monkeypatch):
    first = brief(tmp_path)
    trained = []
    monkeypatch.setattr("noonward.learn.train.run_trainer.trainer_for", lambda *given: trained.append(given))
    labels = []
    again = brief(tmp_path, labels.append)
    assert not trained
    assert "actor-gradient, seed 1" in labels
    assert again.metrics() == first.metrics()
    assert len(first.reached["whole"]) == 2
    names = {metric.name for metric in first.metrics()}
    assert {"ablation/above_bound/whole", "ablation/above_tradeoff/greedy-energy(gpus=1)"} <= names
    assert all(metric.value > 0 for metric in first.metrics() if metric.name.startswith("ablation/above_bound"))
    assert len(ablations_table(first).rows) == 4


def test_a_training_of_other_settings_is_made_anew(tmp_path):
    spec = training(ABLATIONS[0], tmp_path)
    other = ShortTraining(**{**vars_of(spec), "settings": (*SETTINGS, "kappa=2.0")})
    assert spec.place == other.place
    assert spec.digest != other.digest


def vars_of(spec):
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}


def test_the_control_at_a_mean_time_is_the_hull_of_its_weights(tmp_path):
    found = brief(tmp_path)
    for name in RULES[:2]:
        joules_E = found.controls.values(name, "joules_per_unit").tolist()
        time_s_E = found.controls.values(name, "mean_time_so_far_s").tolist()
        assert found.above_tradeoff(joules_E, time_s_E) == pytest.approx(0.0, abs=1e-12)
        assert found.above_tradeoff([1.02 * each for each in joules_E], time_s_E) == pytest.approx(0.02)


def test_the_command_prints_every_training(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    noonward = CommandLine(monkeypatch, capsys)
    base = (Ablation("whole", "nothing"),)
    monkeypatch.setattr(short_training, "ABLATIONS", base)
    changed = {"settings": BRIEF, "world": WIDE, "ablations": base, "controls": RULES, "windows": 1, "window_h": 1}
    monkeypatch.setattr(study_ablations, "__kwdefaults__", study_ablations.__kwdefaults__ | changed)
    monkeypatch.setattr(ablations, "CONTROLS", RULES)
    answer = noonward("reproduce", "dvfs-training", "--ablations", "--training-seeds", 1, "--workers", 1, "--json")
    assert answer.code == 0, answer.err
    assert "ablation/above_bound/whole" in {figure["name"] for figure in json.loads(answer.out)["figures"]}
    assert noonward("reproduce", "dvfs-training", "--ablations", "--learned").code == 2
    assert noonward("reproduce", "dvfs-training", "--training-seeds", 2).code == 2

"""Ablations of masac-credit: each changes what is learned, all are compared on the same windows."""

import json

from command_line import CommandLine
from noonward.learn.train.run_config import with_settings
from noonward.studies.fine_tuning import ablations
from noonward.studies.fine_tuning.ablations import ABLATIONS, SETTINGS, Ablation, study_ablations

BRIEF = ("epochs=1", "environments=2", "windows=2", "price_steps=10", "questions=100", "hidden=[4,4]", "kept=2",
         "residual=false", "rate=0.01")  # fmt: skip


def test_trainings_are_compared_on_the_same_windows():
    found = study_ablations(seeds=2, windows=2, scenario="tiny", settings=BRIEF, ablations=ABLATIONS[:2])
    assert list(found.share) == ["whole", "no-capacity-price"]
    assert all(len(each) == 2 for each in found.seeds.values())
    assert found.metrics()[0].name == "ablation_improvement_share/whole"
    for name, share in found.share.items():
        assert abs(share.value - sum(found.seeds[name]) / 2) < 1e-9


def test_every_ablation_is_a_training_that_can_be_made():
    from noonward.learn.tasks.cluster import ClusterTask
    from noonward.learn.tasks.source import Source

    task, digests = ClusterTask(sources=(Source(scenario="tiny"),)), set()
    for each in ABLATIONS:
        config = with_settings("masac-credit", task, (*SETTINGS, *each.settings))
        digests.add(config.digest())
    assert len(digests) == len(ABLATIONS)


def test_the_command_prints_every_training(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    noonward = CommandLine(monkeypatch, capsys)
    monkeypatch.setattr(ablations, "SCENARIO", "tiny")
    monkeypatch.setattr(study_ablations, "__kwdefaults__", study_ablations.__kwdefaults__ | {
        "scenario": "tiny", "settings": BRIEF, "ablations": ABLATIONS[:1],
    })  # fmt: skip
    monkeypatch.setattr(ablations, "ABLATIONS", (Ablation("whole", "nothing"),))
    answer = noonward("reproduce", "fine-tuning", "--ablations", "-n", 2, "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["figures"][0]["name"] == "ablation_improvement_share/whole"
    assert noonward("reproduce", "fine-tuning", "--training-seeds", 2).code == 2
    assert noonward("reproduce", "fine-tuning", "--ablations", "--policies", "masac").code == 2

"""``noonward train``: trains, exports, resumes; what is wrong is named."""

import dataclasses
import json
from pathlib import Path

import pytest

from command_line import CommandLine
from noonward.learn.algorithms.registry import ALGORITHMS, algorithm_named
from noonward.learn.train.run_config import RunConfig
from noonward.schedule.cluster.trained_policy import read_policy

BRIEF = [f"--set={each}" for each in ("steps=40", "updates=2", "environments=2", "hidden=[8]", "batch=8")]


def test_train_says_where_results_are_exports_and_resumes(noonward: CommandLine, tmp_path: Path) -> None:
    done = noonward("train", "tiny", *BRIEF, "--epochs", 1, "--out", tmp_path, "--export", tmp_path / "p.npz", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert read_policy(tmp_path / "p.npz").meta["algorithm"] == "masac"
    assert len(found["curves"]) == found["epochs"] == 1
    again = noonward("train", "tiny", *BRIEF, "--epochs", 1, "--out", tmp_path)
    assert "nothing to train" in again.err
    assert found["folder"] in again.out
    more = noonward("train", "--resume", found["folder"], "--epochs", 2, "--json")
    assert "resumes after epoch 1" in more.err
    assert json.loads(more.out)["curves"][:1] == found["curves"]
    assert json.loads(more.out)["epochs"] == 2


def test_several_sources_are_taken_in_turn(noonward: CommandLine, tmp_path: Path) -> None:
    done = noonward(
        "train", "tiny", *BRIEF, "--also", "tiny", "--epochs", 1, "--out", tmp_path, "--algorithm", "madqn", "--json"
    )
    assert done.code == 0, done.err
    config = json.loads((Path(json.loads(done.out)["folder"]) / "config.json").read_text(encoding="utf-8"))
    assert [source["scenario"] for source in config["sources"]] == ["tiny", "tiny"]


def test_an_interrupt_says_how_to_resume(
    noonward: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from noonward.learn.algorithms import masac

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(masac.Masac, "update", interrupted)
    stopped = noonward("train", "tiny", *BRIEF, "--out", tmp_path)
    assert stopped.code == 130
    assert "resume with: noonward train --resume" in stopped.err
    assert stopped.err.count("interrupted") == stopped.err.count("resume with") == 1


def test_an_interrupt_says_what_is_kept(noonward: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from noonward.learn.algorithms import masac

    update, left = masac.Masac.update, [0]

    def interrupted(self: masac.Masac) -> dict[str, float]:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return update(self)

    monkeypatch.setattr(masac.Masac, "update", interrupted)
    run = ("train", "tiny", *BRIEF, "--set=checkpoint_every=2", "--out", tmp_path)  # two updates an epoch
    left[0] = 3
    stopped = noonward(*run, "--epochs", 3)
    assert "no epoch is kept yet" in stopped.err
    left[0] = 7
    stopped = noonward(*run, "--epochs", 5)
    assert "2 of 5 epochs are kept" in stopped.err
    left[0] = 100
    on = noonward(*stopped.err.partition("resume with: noonward ")[2].split(), "--json")
    assert json.loads(on.out)["epochs"] == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiny", "--algorithm", "masc"], "did you mean 'masac'"),
        (["tiny", "--set", "batsh=3"], "did you mean 'batch'"),
        (["tiny", "--set", "batch=many"], "batch is 'many'; it must be a whole number"),
        (["tiny", "--set", "epochs=1.5"], "it must be a whole number"),
        (["tiny", "--set", "hidden=8"], "must be a list of whole numbers"),
        (["tiny", "--set", "gamma"], "not of the form name=value"),
        (["tiny", "--set", "forecast_h=3"], "needs both its hours and its kind"),
        (["tiny", "--set", "forecast_h=3", "--set", "forecast=noisy"], "set observation=extended"),
        (["tiny", "--set", "temperature=NaN"], "temperature is nan; it must be a finite number"),
        (["tiny", "--set", "show_signals=yes"], "show_signals is 'yes'; it must be true or false"),
        (["tiny", "--set", "usd_weight=inf"], "usd_weight is 'inf'; it must be a finite number"),
        (["dvfs-training"], "no utility to learn from"),
        (
            ["dvfs-training", "--set", "reward=energy", "--set", "constraints.mean_latency_s=3600"],
            "limits mean_latency_s, but masac learns from rewards alone",
        ),
        (["dvfs-training", "--set", "reward=energy", "--set", "usd_weight=1"], "has no signals, so neither price"),
        (["tiny", "--set", "carbon_weight=1"], "reward is utility, which knows no energy_weight"),
        (["tiny", "--set", "reward=energy", "--set", "energy_weight=0"], "are all 0"),
        (["tiny", "--set", "reward=energy", "--set", "energy_weight=-1"], "energy_weight is -1"),
        (["dvfs-mixed", "--set", "show_signals=true"], "shows neither signals nor classes"),
        (["tiny", "--set", "observation=raw"], "'raw' is for protocol on-arrival"),
        (["tiny", "--set", "observation=extended", "--set", "show_class=true"], "always shows signals"),
        (["tiny", "--workers", "2"], "masac learns from environments that are stepped side by side in one process"),
        ([], "name a scenario"),
        (["tiny", "--resume", "nowhere"], "leave out SCENARIO"),
        (["--resume", "nowhere", "--set", "steps=5", "--seed", "1"], "leave out --seed, --set; only --epochs"),
        (["--resume", "nowhere"], "holds no training run"),
        (["tiny", "--set", "device=banana"], "device is 'banana', which cannot be used here"),
        (["tiny", "--set", "seed=1", "--seed", "2"], "seed is given twice"),
        (["tiny", "--set", "gamma=0.9", "--set", "gamma=0.8"], "gamma is given twice"),
        (["tiny", "--hyper", "jobs.count=3"], "values of the scenario are set by --set"),
        (["tiny", "--set", "reward=energy"], "the reward 'energy' is for protocol on-arrival, as dvfs-training"),
        (["tiny", "--half"], "give --export FILE.npz too"),
        (["tiny", "--export", "policy.txt"], "does not end in .npz"),
        (["tiny", "--export", "nowhere/policy.npz"], "there is no folder"),
    ],
    ids=" ".join,
)
def test_bad_input_gets_one_clear_error(
    noonward: CommandLine, tmp_path: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = noonward("train", *words)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not any(tmp_path.iterdir())


def test_a_folder_is_no_file_to_export_to(noonward: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    answer = noonward("train", "tiny", "--out", tmp_path, "--export", tmp_path / "folder.npz")
    assert answer.code == 2
    assert "folder.npz is a folder; name a file" in answer.err


def test_no_setting_of_an_algorithm_bears_the_name_of_one_of_the_run() -> None:
    run = {field.name for field in dataclasses.fields(RunConfig)}
    for name in ALGORITHMS:
        own = {field.name for field in dataclasses.fields(algorithm_named(name).config)}
        assert not run & own, name


def test_a_damaged_config_is_named(noonward: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    answer = noonward("train", "--resume", tmp_path)
    assert answer.code == 2
    assert "config.json is damaged" in answer.err

"""What lists something prints it as JSON too, and a scenario's check explains its keys."""

import json
from pathlib import Path

import pytest

from command_line import CommandLine


@pytest.mark.parametrize(
    ("words", "key", "among"),
    [
        ("init --zones --json", "zone", "DE"),
        ("init --gpus --json", "name", "A100-80-SXM"),
        ("import --formats --json", "format", "slurm"),
        ("scenario list --json", "name", "tiny"),
    ],
)
def test_a_list_is_a_json_array(noonward: CommandLine, words: str, key: str, among: str) -> None:
    assert among in [row[key] for row in json.loads(noonward(*words.split()).out)]


def test_json_of_init_needs_a_list(noonward: CommandLine) -> None:
    answer = noonward("init", "--json")
    assert (answer.code, "--json is for the lists of --gpus and --zones; add one of them" in answer.err) == (2, True)


def test_tokens_are_listed_as_json(noonward: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("msgspec")
    store = ("--folder", tmp_path / "store")
    assert noonward("live", "token", "add", "ci", "--scope", "submit", *store).code == 0
    (row,) = json.loads(noonward("live", "token", "list", "--json", *store).out)
    assert (row["name"], row["scope"], row["expires_at"]) == ("ci", "submit", None)


def test_a_check_of_a_scenario_explains_every_key(noonward: CommandLine) -> None:
    content = json.loads(noonward("scenario", "check", "tiny", "--explain", "--json").out)
    rows = {row["key"]: row for row in content["keys"]}
    assert (content["scenario"], content["valid"]) == ("tiny", True)
    assert rows["fleet.sites.1.pue"]["value"] == "1.2"
    assert rows["fleet.gpu_types.T4-class.idle_w"]["meaning"].startswith("Power of a free GPU")
    assert rows["baseline"] == {
        "key": "baseline", "value": "local-fcfs", "meaning": "Policy that comparisons are made against."
    }  # fmt: skip
    shown = noonward("scenario", "check", "tiny", "--explain").out
    assert "fleet.sites.1.zone" in shown
    assert "Key of its electricity zone" in shown


def test_checks_of_data_say_the_same_as_json(noonward: CommandLine, tmp_path: Path) -> None:
    assert noonward("data", "generate", "tiny", "--out", tmp_path).code == 0
    signals = json.loads(noonward("data", "check", tmp_path / "signals.csv", "--json").out)
    shown = noonward("data", "check", tmp_path / "signals.csv").out
    assert [row["zone"] for row in signals["zones"]] == ["CA-ON", "SG"]
    assert all(f"{row['price_usd_per_mwh']['mean']:.1f}" in shown for row in signals["zones"])
    jobs = json.loads(noonward("data", "check", tmp_path / "jobs.csv", "--scenario", "tiny", "--json").out)
    assert jobs["serves"]["scenario"] == "tiny"
    assert f"{jobs['kind']}: {jobs['jobs']} jobs" in noonward(
        "data", "check", tmp_path / "jobs.csv", "--scenario", "tiny"
    ).out  # fmt: skip

"""Unlikely values are said with every result, and stop nothing."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import CommandLine
from noonward.data.environments import build_environment
from noonward.data.sanity import signal_warnings
from noonward.data.scenarios.load import load_scenario, packaged_scenarios, with_files, with_settings
from noonward.errors import DataError
from noonward.model.signals import Signals


@pytest.fixture
def noonward(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    """The command line, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def checks(*settings: str) -> list[str]:
    notes = build_environment(load_scenario("tiny", settings)).notes
    return [note for note in notes if note.startswith("check: ")]


def signals(price: float, carbon: float) -> Signals:
    values = {"price_usd_per_mwh": np.full((1, 24), price), "carbon_g_per_kwh": np.full((1, 24), carbon)}
    return Signals(start=datetime(2022, 1, 1, tzinfo=UTC), zones=("DE",), value_ZH=values)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("fleet.sites.0.pue=130", "site 'north' has a PUE of 130"),
        ("fleet.gpu_types.T4-class.idle_w=90", "draws 90 W idle and 80 W under a job"),
        ("economics.carbon_usd_per_t=100000", "the carbon price is 1e+05 USD/t"),
    ],
)
def test_an_unlikely_scenario_is_said_to_be_one(setting: str, says: str) -> None:
    (found,) = checks(setting)
    assert says in found
    assert checks() == []


@pytest.mark.parametrize("name", [name for name in packaged_scenarios() if not name.startswith("edge")])
def test_packaged_scenarios_are_likely(name: str) -> None:
    assert not [note for note in build_environment(load_scenario(name)).notes if note.startswith("check: ")]


@pytest.mark.parametrize(
    ("price", "carbon", "says"),
    [
        (0.08, 400, ["the mean price is 0.08 USD/MWh"]),
        (80_000, 400, ["the mean price is 8e+04 USD/MWh"]),
        (80, 0.4, ["the mean carbon intensity is 0.4 g/kWh"]),
        (5, 5, []),
        (np.nan, np.nan, []),
    ],
)
def test_levels_that_show_a_wrong_unit_are_said(price: float, carbon: float, says: list[str]) -> None:
    found = signal_warnings(signals(price, carbon))
    assert len(found) == len(says)
    for text, wanted in zip(found, says, strict=True):
        assert wanted in text


def test_a_warning_comes_before_the_runs_and_with_the_results(noonward: CommandLine) -> None:
    words: list[Any] = ["compare", "tiny", "-n", 1, "--policies", "local-fcfs", "--no-report", "--set"]
    answer = noonward(*words, "fleet.sites.0.pue=4")
    assert answer.code == 0
    assert "check: site 'north' has a PUE of 4" in answer.err
    assert "check: site 'north' has a PUE of 4" in answer.out


def test_arrivals_in_seconds_since_1970_are_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("arrival_s,origin,gpus,duration_s,slack_s\n1664582400,north,1,60,60\n")
    with pytest.raises(DataError, match=r"look like seconds since 1970; give dates instead, in a column 'submit_time'"):
        build_environment(with_files(load_scenario("tiny"), [], path))


def test_a_learned_forecast_in_a_zone_that_it_does_not_know_is_left_out(noonward: CommandLine) -> None:
    settings = ["fleet.sites.0.zone=FI", "signals={source: sinusoidal, price_usd_per_mwh: 50, carbon_g_per_kwh: 300, "
                "amplitude: 0.3, peak_hours: {FI: 3, SG: 15}}", "policies=[local-fcfs, bid-price-neural]"]  # fmt: skip
    scenario = with_settings(load_scenario("tiny"), settings)
    assert scenario.fleet.sites[0].zone == "FI"
    words = [word for setting in settings for word in ("--set", setting)]
    answer = noonward("compare", "tiny", "-n", 1, "--no-report", *words)
    assert answer.code == 0, answer.err
    assert "left out: scheduler 'bid-price-neural' does not fit" in answer.err
    assert "was not trained on the zones FI" in answer.err
    assert noonward("compare", "tiny", "-n", 1, "--policies", "bid-price-neural", *words).code == 2


def test_dated_jobs_and_logs_are_looked_at_before_they_are_used(noonward: CommandLine) -> None:
    Path("jobs.csv").write_text("submit_time,origin,gpus,duration_s\n2022-10-01T00:00Z,north,2,3600\n")
    answer = noonward("data", "check", "jobs.csv")
    assert answer.code == 0, answer.err
    assert "dated job table, 2022-10-01 to 2022-10-01 UTC: 1 jobs" in answer.out
    answer = noonward("data", "check", "jobs.csv", "--scenario", "tiny")
    assert (answer.code, "infinite slack" in answer.err) == (2, True)
    Path("in-time.csv").write_text("submit_time,origin,gpus,duration_s,slack_s\n2022-10-01T00:00Z,north,2,3600,60\n")
    assert noonward("data", "check", "in-time.csv", "--scenario", "tiny").code == 0
    answer = noonward("data", "check", "jobs.csv", "--scenario", "fine-tuning")
    assert (answer.code, "'north'" in answer.err) == (2, True)
    Path("sacct.txt").write_text(
        "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"
        "1|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T01:00:00|3600|gres/gpu=2\n"
    )
    assert "--timezone" in noonward("data", "check", "sacct.txt").err
    answer = noonward("data", "check", "sacct.txt", "--timezone", "Europe/Berlin")
    assert "sacct.txt (Slurm accounting (sacct)): 1 rows in, 1 rows out" in answer.out

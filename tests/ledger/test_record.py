"""Run records: what they hold by hand, whole or not at all, the same bytes for the same seed."""

import errno
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ledger.two_jobs import HOUR_S, PLAN, START, environment, played
from noonward import files
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.errors import DataError, FileError
from noonward.ledger import record
from noonward.ledger.ledger import settle
from noonward.ledger.record import FILES, environment_digest, hour_table, job_table, read_record, write_record
from noonward.ledger.segments import OVERDUE, TRANSIT
from noonward.schedule.policies import make_scheduler


def write(outcome, folder, seed=0):
    return write_record(outcome, folder, policy="script", seed=seed, scenario_digest="abc")


def column(table, name, site):
    return table.filter(pl.col("site") == site)[name].to_list()


def waiting(outcome, time_s):
    """How many jobs wait at all sites after all events up to a time, without those that end overdue."""
    job_J = outcome.job_J
    joined = job_J["reach_s"] <= time_s
    left = (job_J["start_s"] <= time_s) | np.isin(job_J["status"], (OVERDUE, TRANSIT))
    return int((joined & ~left).sum())


def test_what_is_written_is_read_back(tmp_path):
    outcome = played()
    written = write(outcome, tmp_path / "deep" / "000", seed=7)
    found = read_record(tmp_path / "deep" / "000")
    assert found == written
    assert found.ledger == settle(outcome)
    assert sorted(path.name for path in found.folder.iterdir()) == sorted(FILES)
    assert found.jobs.equals(job_table(outcome))
    assert found.hours.equals(hour_table(outcome))
    manifest = found.manifest
    assert (manifest["policy"], manifest["policy_seed"], manifest["scenario_digest"]) == ("script", 7, "abc")
    assert datetime.fromisoformat(manifest["start"]) == START
    assert (manifest["window_s"], manifest["ended_s"]) == (2 * HOUR_S, 2.5 * HOUR_S)
    assert [site["pue"] for site in manifest["sites"]] == [1.5, 2.0]


def test_a_record_without_signals_is_read_back(tmp_path):
    written = write(played(signals=None, economics=None), tmp_path / "000")
    np.testing.assert_equal(vars(read_record(tmp_path / "000").ledger), vars(written.ledger))


@pytest.mark.parametrize(("scenario", "policy"), [("tiny", "random"), ("dvfs-training", "random-free")])
def test_the_same_seed_gives_the_same_bytes_of_every_file(tmp_path, scenario, policy):
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        drawn = build_environment(load_scenario(scenario, ["window_h=2", "end=window"]))
        write(run(drawn, make_scheduler(policy), seed=seed), tmp_path / name, seed=seed)
    for file in FILES:
        one, two, other = ((tmp_path / name / file).read_bytes() for name in ("one", "two", "other"))
        assert one == two, file
        assert one != other, file


def test_a_record_replaces_the_one_that_lies_there(tmp_path):
    write(played({}), tmp_path / "000")
    write(played(), tmp_path / "000")
    assert read_record(tmp_path / "000").ledger.done == 2
    assert [path.name for path in tmp_path.iterdir()] == ["000"]


@pytest.mark.parametrize("part", ["settle_run", "job_table", "hour_table", "manifest_of"])
def test_a_failure_leaves_nothing_behind_and_an_older_record_whole(tmp_path, monkeypatch, part):
    outcome = played()

    def broken(*arguments):
        raise ValueError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(record, part, broken)
        with pytest.raises(ValueError, match="broken"):
            write(outcome, tmp_path / "000")
        assert list(tmp_path.iterdir()) == []
        patch.undo()
        older = write(outcome, tmp_path / "000")
        patch.setattr(record, part, broken)
        with pytest.raises(ValueError, match="broken"):
            write(outcome, tmp_path / "000")
    assert [path.name for path in tmp_path.iterdir()] == ["000"]
    assert read_record(tmp_path / "000") == older


def test_a_full_disk_leaves_nothing_behind_and_is_named(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FileError, match="000 cannot be written: the disk is full"):
        write(played(), tmp_path / "000")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_cleared(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    left = tmp_path / f".000.{files._machine()}-{dead.pid}-0.part"
    left.mkdir()
    (left / "stray").touch()
    write(played(), tmp_path / "000")
    assert [path.name for path in tmp_path.iterdir()] == ["000"]
    assert sorted(path.name for path in (tmp_path / "000").iterdir()) == sorted(FILES)


@pytest.mark.parametrize("missing", FILES)
def test_an_incomplete_folder_is_refused(tmp_path, missing):
    write(played(), tmp_path / "000")
    (tmp_path / "000" / missing).unlink()
    with pytest.raises(DataError, match=f"000 is no run record: {missing} missing; run the policy again"):
        read_record(tmp_path / "000")


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(DataError, match="is no run record"):
        read_record(tmp_path / "none")


@pytest.mark.parametrize("file", ["manifest.json", "ledger.json"])
def test_a_damaged_file_is_refused(tmp_path, file):
    write(played(), tmp_path / "000")
    (tmp_path / "000" / file).write_text('{"format": 1,')
    with pytest.raises(DataError, match=r"000 is a damaged run record: .*; run the policy again"):
        read_record(tmp_path / "000")


@pytest.mark.parametrize("other", [0, 99, None])
def test_another_format_is_refused(tmp_path, other):
    write(played(), tmp_path / "000")
    path = tmp_path / "000" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": other}))
    with pytest.raises(DataError, match=f"of format {other}; this version reads format 3"):
        read_record(tmp_path / "000")


def test_jobs_by_hand():
    table = job_table(played())
    assert table["status"].to_list() == ["done", "done"]
    assert table["origin"].to_list() == ["a", "a"]
    assert table["site"].to_list() == ["a", "b"]
    assert table["reach_s"].to_list() == [0.0, 600.0]
    assert table["start_s"].to_list() == [1800.0, 5400.0]
    assert table["finish_s"].to_list() == [5400.0, 9000.0]
    assert table["power_w"].to_list() == [1500.0, 2000.0]
    assert table["clock"].to_list() == [1.0, 1.0]
    assert table["units"].to_list() == pytest.approx([3600.0, 3600.0])
    assert table["units_per_s"].to_list() == [1.0, 1.0]
    assert table["energy_kwh"].to_list() == pytest.approx([1.5, 2.0])
    assert table["energy_usd"].to_list() == pytest.approx([0.225, -0.04])
    assert table["carbon_kg"].to_list() == pytest.approx([0.75, 0.6])
    assert table["moves"].to_list() == [0, 1]
    assert table["move_usd"].to_list() == pytest.approx([0.0, 0.1])
    assert table["result_kg"].to_list() == pytest.approx([0.0, 0.06])


def test_a_job_that_never_ran_has_no_clock_and_used_nothing():
    table = job_table(played({0: PLAN[0]}))
    assert table["status"].to_list() == ["done", "overdue"]
    assert table["gpus"].to_list() == [1, 0]
    assert np.isnan(table["clock"][1])
    assert np.isnan(table["start_s"][1])
    assert table["units"].to_list() == pytest.approx([3600.0, 0.0])
    assert table["energy_kwh"].to_list() == pytest.approx([1.5, 0.0])


def test_hours_by_hand():
    table = hour_table(played())
    assert table["hour"].to_list() == [0, 1, 2] * 2
    assert column(table, "busy_gpu_hours", "a") == pytest.approx([0.5, 0.5, 0.0])
    assert column(table, "busy_gpu_hours", "b") == pytest.approx([0.0, 0.5, 0.5])
    assert column(table, "job_kwh", "a") == pytest.approx([0.75, 0.75, 0.0])
    assert column(table, "job_kwh", "b") == pytest.approx([0.0, 1.0, 1.0])
    assert column(table, "free_kwh", "a") == pytest.approx([0.225, 0.225, 0.0])  # 1.5 free GPUs of 0.15 kW
    assert column(table, "free_kwh", "b") == pytest.approx([0.2, 0.1, 0.0])  # nothing after the window
    assert column(table, "arrivals", "a") == [2, 0, 0]
    assert column(table, "arrivals", "b") == [0, 0, 0]
    assert column(table, "price_usd_per_mwh", "b") == [50.0, -50.0, 10.0]
    assert column(table, "carbon_g_per_kwh", "a") == [400.0, 600.0, 800.0]
    assert table["gpus"].to_list() == [2, 2, 2, 1, 1, 1]


def test_jobs_that_wait_at_the_turn_of_an_hour_by_hand():
    table = hour_table(played())
    assert column(table, "waiting", "a") == [1, 0, 0]  # job 0 from 0:00 to 0:30; job 1 leaves at 0:00
    assert column(table, "waiting", "b") == [0, 1, 0]  # job 1 from 0:10 to 1:30
    outcome = played()
    for time_s, count in ((0.0, 1), (599.0, 1), (600.0, 2), (1800.0, 1), (5399.0, 1), (5400.0, 0)):
        assert waiting(outcome, time_s) == count


def test_a_job_that_still_travels_when_the_run_ends_waits_nowhere():
    outcome = played({1: (1, 0.0)}, moves_at_s=3540.0, window_s=HOUR_S, drained=False)  # on its way for 10 minutes
    assert outcome.job_J["status"][1] == TRANSIT
    assert column(hour_table(outcome), "waiting", "b") == [0]
    assert waiting(outcome, HOUR_S) == 1  # job 0, which was never told to start


@pytest.mark.parametrize(
    ("scenario", "settings", "policy"),
    [
        ("tiny", [], "random"),
        ("tiny", ["end=window"], "local-fcfs"),
        ("fine-tuning", [], "cheapest-feasible"),
        ("dvfs-training", ["window_h=3"], "ucb1"),
    ],
)
def test_hours_sum_to_the_ledger_and_count_the_queue(scenario, settings, policy):
    outcome = run(build_environment(load_scenario(scenario, settings)), make_scheduler(policy))
    ledger, table, jobs = settle(outcome), hour_table(outcome), job_table(outcome)
    assert table["busy_gpu_hours"].sum() == pytest.approx(ledger.gpu_hours, rel=1e-9)
    assert table["job_kwh"].sum() == pytest.approx(ledger.job_kwh, rel=1e-9)
    assert table["free_kwh"].sum() == pytest.approx(ledger.free_kwh, rel=1e-9)
    assert (table["busy_gpu_hours"] <= table["gpus"] + 1e-9).all()
    assert jobs["energy_kwh"].sum() == pytest.approx(ledger.job_kwh, rel=1e-9)
    assert jobs["units"].sum() == pytest.approx(ledger.units, rel=1e-9)
    for hour in range(table["hour"].max() + 1):
        assert table.filter(pl.col("hour") == hour)["waiting"].sum() == waiting(outcome, hour * HOUR_S)


def test_environment_digests_tell_jobs_and_signals_apart():
    first, again, other = (build_environment(load_scenario("tiny"), index) for index in (0, 0, 1))
    assert environment_digest(first) == environment_digest(again)
    assert environment_digest(first) != environment_digest(other)
    assert environment_digest(environment(signals=None, economics=None)) != environment_digest(environment())

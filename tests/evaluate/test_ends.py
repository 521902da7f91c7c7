"""Work that came to nothing: GPU-hours by how jobs ended, as their log says, in headline, table and figures."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from noonward import compare
from noonward.data.scenarios.load import load_scenario, with_files, with_settings
from noonward.evaluate.answer import headline
from noonward.evaluate.ends import ends_sentence, ends_table, gpu_hours_E

FIRST = datetime(2022, 10, 1, tzinfo=UTC)
STATES = ["COMPLETED", "FAILED", "CANCELLED by 1001", None]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``tiny`` with twelve jobs of two hours on two GPUs; a quarter ends in each state."""
    table = {
        "submit_time": [f"{FIRST + timedelta(hours=n):%Y-%m-%dT%H:%M:%SZ}" for n in range(12)],
        "origin": ["north", "south"] * 6,
        "gpus": 2,
        "duration_s": 7200.0,
        "slack_s": 6 * 3600.0,
        "state": STATES * 3,
    }
    path: Path = tmp_path_factory.mktemp("fleet") / "jobs.csv"
    pl.DataFrame(table).write_csv(path)
    return with_files(load_scenario("tiny", ["goal=least-cost"]), [], path)


@pytest.fixture(scope="module")
def found(fleet: Any) -> Any:
    return compare(fleet, ["local-fcfs", "cheapest-feasible"], environments=2, bound=False)


def test_gpu_hours_are_useful_or_lost(found: Any) -> None:
    for policy in found.records:
        assert gpu_hours_E(found, policy, useful=True).tolist() == pytest.approx([24.0, 24.0])
        assert gpu_hours_E(found, policy, useful=False).tolist() == pytest.approx([24.0, 24.0])
        total = found.mean(policy, "gpu_hours").value
        figures = {metric.name: metric.value for metric in found.metrics()}
        assert figures[f"useful_gpu_hours/{policy}"] + figures[f"lost_gpu_hours/{policy}"] == pytest.approx(total)
    assert found.jobs()["state"].unique().sort().to_list() == [None, "cancelled", "done", "failed"]


def test_headline_and_table_say_it(found: Any) -> None:
    (sentence,) = ends_sentence(found, "local-fcfs")
    assert sentence.startswith("Of its 48 GPU-hours, 24 (50.0%) are of jobs that the log says failed")
    said = " ".join(headline(found))
    assert ("are of jobs that the log says failed" in said) == ("Keep" not in said)
    table = ends_table(found)
    assert table is not None
    assert [row[1:] for row in table.rows] == [("3", "12", "25.0")] * 4


def test_jobs_that_fail_as_the_log_says_have_the_hours_of_the_ledger(fleet: Any) -> None:
    scenario = with_settings(fleet, ["jobs.failures={recorded: true}"])
    found = compare(scenario, ["local-fcfs", "cheapest-feasible"], environments=1, bound=False)
    table = ends_table(found)
    assert table is not None
    assert [row[1:] for row in table.rows] == [("3", "12", "25.0")] * 4
    assert found.mean("local-fcfs", "failed_gpu_hours").value == pytest.approx(12.0)
    for policy in found.records:
        done, failed = (found.mean(policy, name).value for name in ("gpu_hours", "failed_gpu_hours"))
        hours = sum(gpu_hours_E(found, policy, useful=each).sum() for each in (True, False))
        assert hours == pytest.approx(done + failed)


def test_time_for_which_jobs_stood_suspended_is_no_work(tmp_path: Path, fleet: Any) -> None:
    pl.read_csv(fleet.jobs.path).with_columns(duration_s=8 * 3600.0).write_csv(tmp_path / "jobs.csv")
    scenario = with_settings(
        with_files(fleet, [], tmp_path / "jobs.csv"), ["fleet.freedoms.fine-tuning.interruptible=true"]
    )
    found = compare(scenario, ["local-fcfs", "suspend-threshold"], environments=1, bound=False)
    assert found.jobs().filter(policy="suspend-threshold")["suspended_h"].sum() > 1
    for policy in found.records:
        useful, lost = (gpu_hours_E(found, policy, useful=each).sum() for each in (True, False))
        assert useful + lost == pytest.approx(2 * 8.0 * found.mean(policy, "done").value)


def test_a_window_in_which_no_job_finishes_has_no_shares(tmp_path: Path, fleet: Any) -> None:
    pl.read_csv(fleet.jobs.path).with_columns(duration_s=1e6).write_csv(tmp_path / "jobs.csv")
    scenario = with_settings(with_files(fleet, [], tmp_path / "jobs.csv"), ["end=window"])
    found = compare(scenario, ["local-fcfs", "cheapest-feasible"], environments=1, bound=False)
    assert ends_sentence(found, "cheapest-feasible") == []
    table = ends_table(found)
    assert table is not None
    assert [row[2:] for row in table.rows] == [("0", "–")] * 4


def test_nothing_is_said_where_the_log_does_not_say(tmp_path: Path, fleet: Any) -> None:
    pl.read_csv(fleet.jobs.path).drop("state").write_csv(tmp_path / "jobs.csv")
    scenario = with_files(fleet, [], tmp_path / "jobs.csv")
    found = compare(scenario, ["local-fcfs", "cheapest-feasible"], environments=1, bound=False)
    assert ends_sentence(found, "local-fcfs") == []
    assert ends_table(found) is None
    assert not [metric for metric in found.metrics() if "_gpu_hours" in metric.name and "lost" in metric.name]

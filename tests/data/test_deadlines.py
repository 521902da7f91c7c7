"""Deadlines of a job table: times by which jobs must have ended, as the slack of their starts."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from noonward.data.environments import build_environment, past_jobs
from noonward.data.jobs.formats import import_jobs
from noonward.data.jobs.logs.log import LogOptions
from noonward.data.scenarios.load import load_scenario, with_days, with_files, with_settings
from noonward.engine.run import run
from noonward.errors import DataError
from noonward.schedule.policies import make_scheduler

TABLE = {
    "submit_time": ["2022-10-01T00:00:00Z", "2022-10-01T01:00:00Z", "2022-10-01T02:00:00Z", "2022-10-01T03:00:00Z"],
    "deadline": ["2022-10-01T06:00:00Z", "2022-10-01T01:30:00Z", None, "2022-10-01T05:00:00+01:00"],
    "duration_s": [3600.0, 3600.0, 7200.0, 1800.0],
    "origin": ["north"] * 4,
    "gpus": [1, 1, 1, 1],
}


def scenario_of(folder: Path, table: dict[str, Any], *settings: str) -> Any:
    path = folder / "jobs.csv"
    pl.DataFrame(table, strict=False).write_csv(path)
    made = with_days(with_files(load_scenario("tiny"), [], path), date(2022, 10, 1))
    return with_settings(made, ["lateness.rule=wait", *settings])


def test_a_deadline_leaves_a_start_as_much_slack_as_the_run_leaves_it(tmp_path: Path) -> None:
    jobs = build_environment(scenario_of(tmp_path, TABLE, "jobs.slack_h=7")).jobs
    # 6 h less a run of 1 h; a deadline that no start can keep; none: the scenario's own; 04:00 UTC, an hour on.
    assert jobs.slack_s_J.tolist() == [5 * 3600.0, 0.0, 7 * 3600.0, 1800.0]
    assert build_environment(scenario_of(tmp_path, TABLE)).jobs.slack_s_J[2] == np.inf


def test_jobs_that_end_by_their_deadlines_are_not_late(tmp_path: Path) -> None:
    environment = build_environment(scenario_of(tmp_path, TABLE, "fleet.sites.0.gpus=1", "fleet.sites.1.gpus=1"))
    outcome = run(environment, make_scheduler("local-fcfs"))
    late = outcome.job_J["start_s"] > environment.jobs.arrival_s_J + environment.jobs.slack_s_J
    due = [datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None for text in TABLE["deadline"]]
    due_s = [np.inf if at is None else (at - datetime(2022, 10, 1, tzinfo=UTC)).total_seconds() for at in due]
    missed = outcome.job_J["finish_s"] > np.array(due_s)
    kept = np.array([0, 2, 3])  # no start can keep the deadline of the second: it is in time if it starts at once
    assert late[kept].tolist() == missed[kept].tolist() == [False, False, True]
    assert (bool(late[1]), bool(missed[1])) == (False, True)


def test_the_past_has_deadlines_too(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, TABLE)
    past = past_jobs(scenario, scenario.jobs, datetime(2022, 10, 1, 1, 30, tzinfo=UTC))
    assert past is not None
    assert past.slack_s_J.tolist() == [5 * 3600.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"slack_s": [1.0] * 4}, "has both 'deadline' and 'slack_s'"),
        ({"deadline": ["soon"] * 4}, "soon"),
    ],
)
def test_deadlines_that_make_no_sense_are_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        build_environment(scenario_of(tmp_path, TABLE | changes))


def test_a_table_without_dates_has_no_deadlines(tmp_path: Path) -> None:
    table = {name: TABLE[name] for name in ("deadline", "duration_s", "origin", "gpus")} | {"arrival_s": [0.0] * 4}
    with pytest.raises(DataError, match="goes with 'submit_time' and 'duration_s'"):
        build_environment(scenario_of(tmp_path, table))


def test_an_import_turns_deadlines_into_slack(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    table = TABLE | {"user": ["ada"] * 4}
    pl.DataFrame(table).rename({"deadline": "must end"}).write_csv(path)
    frame, account = import_jobs(path, LogOptions(columns={"deadline": "must end"}))
    assert frame["slack_s"].to_list() == [5 * 3600.0, 0.0, np.inf, 1800.0]
    assert any("deadlines became" in str(entry) for entry in account.entries)

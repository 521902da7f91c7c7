"""How far forecasts reach: as stated, as past jobs took, as a scheduler asks, and never by the jobs to come."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_days, with_files, with_settings
from noonward.decision.brief import Brief, Needs
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.model.cluster.scenario import Scenario
from noonward.schedule.policies import make_scheduler

DAY = datetime(2022, 10, 1, tzinfo=UTC)
YESTERDAY = Needs(forecast=Forecast("persistence"))


@pytest.mark.parametrize(
    ("stated_h", "asked_h", "reach_h"), [(None, 0, 240), (None, 300, 300), (30, 0, 30), (30, 72, 72)]
)
def test_it_is_stated_or_asked_for(stated_h: int | None, asked_h: int, reach_h: int) -> None:
    settings = [] if stated_h is None else [f"forecast_h={stated_h}"]
    environment = build_environment(load_scenario("tiny", settings))
    jobs = environment.jobs
    for each in (jobs, replace(jobs, work_J=jobs.work_J / 2), replace(jobs, slack_s_J=jobs.slack_s_J / 2)):
        drawn = replace(environment, jobs=each)
        assert Brief.of(drawn, replace(YESTERDAY, lookahead_h=asked_h)).lookahead_h == reach_h
        assert Brief.of(drawn, Needs(lookahead_h=asked_h)).lookahead_h == 0  # no forecast


def test_it_must_be_an_hour_to_a_year() -> None:
    for hours in (0, 8761):
        with pytest.raises(ScenarioError, match="forecast_h"):
            load_scenario("tiny", [f"forecast_h={hours}"])


def table(path: Path, jobs: list[tuple[float, float]], *settings: str) -> Scenario:
    """``tiny`` on a table of jobs (submission and run time, h since the window's start) that may wait for two hours."""
    submit = [f"{DAY + timedelta(hours=at):%Y-%m-%dT%H:%M:%SZ}" for at, _ in jobs]
    columns = {"submit_time": submit, "duration_s": [3600.0 * run_h for _, run_h in jobs]}
    rows = len(jobs)
    frame = pl.DataFrame(columns | {"gpus": [1] * rows, "origin": ["north"] * rows, "slack_s": [7200.0] * rows})
    frame.write_csv(path / "jobs.csv")
    return with_settings(with_days(with_files(load_scenario("tiny"), [], path / "jobs.csv"), DAY.date()), settings)


@pytest.mark.parametrize(
    ("jobs", "reach_h"),
    [
        ([(-900.0, 198.0), (1.0, 1.0)], 300),  # 1.5 times run and slack
        ([(-900.0, 198.0), (1.0, 500.0)], 300),  # a job to come
        ([(-100.0, 900.0), (1.0, 1.0)], 240),  # still runs at the start: 1.5 times 102 h are known
        ([(-900.0, 20.0), (1.0, 1.0)], 240),
        ([(1.0, 500.0), (2.0, 1.0)], 240),
    ],
)
def test_past_jobs_of_a_table_lengthen_it(tmp_path: Path, jobs: list[tuple[float, float]], reach_h: int) -> None:
    environment = build_environment(table(tmp_path, jobs))
    assert Brief.of(environment, YESTERDAY).lookahead_h == reach_h
    stated = build_environment(table(tmp_path, jobs, "forecast_h=50"))
    assert Brief.of(stated, YESTERDAY).lookahead_h == 50


def test_what_is_stated_counts_where_run_times_are_learned() -> None:
    learned = ["jobs.knowledge.run_time=learned", "jobs.knowledge.limit.to=4"]
    drawn, stated = (build_environment(load_scenario("tiny", [*learned, *more])) for more in ([], ["forecast_h=30"]))
    assert Brief.of(stated, YESTERDAY).lookahead_h == 30
    assert drawn.knowledge is not None
    assert Brief.of(drawn, YESTERDAY).lookahead_h == int(np.ceil(drawn.knowledge.reach_s / 3600)) + 2


def test_a_short_forecast_changes_what_is_booked() -> None:
    long, short = (
        run(build_environment(load_scenario("tiny", more)), make_scheduler("booked-persistence"))
        for more in ([], ["forecast_h=4"])
    )
    assert long.job_J["start_s"].tolist() != short.job_J["start_s"].tolist()

"""What happened: a log replayed as a policy, and what is said where it cannot be."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_days, with_files, with_settings
from noonward.decision.brief import Brief, check_fit
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError
from noonward.evaluate.answer import headline
from noonward.evaluate.compare import compare
from noonward.ledger.record import environment_digest
from noonward.schedule.cluster.what_happened import WhatHappened, replay_of
from noonward.schedule.policies import make_scheduler

DAY = datetime(2022, 10, 1, tzinfo=UTC)


@pytest.fixture
def fleet_of(tmp_path: Path) -> Callable[..., Any]:
    """Writes a log of jobs with starts in minutes after their submission, and returns ``tiny`` on it."""

    def fleet_of(**columns: Any) -> Any:
        count = max(len(value) for value in columns.values() if isinstance(value, list))
        submitted = [DAY + timedelta(minutes=7 * n) for n in range(count)]
        waits = columns.pop("wait_min")
        starts = [None if w is None else at + timedelta(minutes=w) for at, w in zip(submitted, waits, strict=True)]
        table = {
            "submit_time": [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in submitted],
            "start_time": [None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in starts],
            "origin": ["north"] * count,
            "gpus": [1] * count,
            "duration_s": [600.0] * count,
            "slack_s": [36000.0] * count,
        }
        path = tmp_path / "jobs.csv"
        pl.DataFrame(table | columns, strict=False).write_csv(path)
        return with_days(with_files(load_scenario("tiny"), [], path), DAY.date())

    return fleet_of


def replayed(scenario: Any) -> Any:
    environment = build_environment(scenario)
    return run(environment, WhatHappened()).job_J, environment


def test_jobs_run_where_and_from_when_the_log_says(fleet_of: Callable[..., Any]) -> None:
    scenario = fleet_of(wait_min=[3, 0, 90, 4], start_site=["north", "south", "north", "south"])
    jobs, environment = replayed(scenario)
    assert [environment.sites[site] for site in jobs["site"]] == ["north", "south", "north", "south"]
    slot_s = environment.slot_s
    at_home = [0, 2]
    recorded_s = environment.jobs.recorded_start_s_J[at_home]
    assert recorded_s.tolist() == [180.0, 14 * 60.0 + 90 * 60.0]
    assert (jobs["start_s"][at_home] == np.ceil(recorded_s / slot_s) * slot_s).all()
    # What travels leaves on arrival and starts when it is there, or at its recorded start where that is later.
    away = jobs["start_s"][[1, 3]]
    assert (away > environment.jobs.arrival_s_J[[1, 3]]).all()
    assert jobs["moves"].tolist() == [0, 1, 0, 1] or not environment.jobs.data_gb_J.any()


def test_a_log_without_sites_ran_where_its_jobs_come_from(fleet_of: Callable[..., Any]) -> None:
    jobs, environment = replayed(fleet_of(wait_min=[0, 0], origin=["south", "north"]))
    assert [environment.sites[site] for site in jobs["site"]] == ["south", "north"]


def test_the_replay_differs_from_what_the_jobs_would_do_by_themselves(fleet_of: Callable[..., Any]) -> None:
    environment = build_environment(fleet_of(wait_min=[200, 100]))
    recorded = run(environment, WhatHappened()).job_J["start_s"]
    assert (recorded > run(environment, make_scheduler("local-fcfs")).job_J["start_s"] + 3600).all()


def test_records_that_the_fleet_has_no_place_for_are_counted_and_said(fleet_of: Callable[..., Any]) -> None:
    scenario = fleet_of(
        wait_min=[3, None, -5, 3, 3], start_site=["paris", "north", "north", None, "south"], gpus=[1, 1, 1, 1, 7]
    )
    environment = build_environment(with_settings(scenario, ["fleet.sites.1.gpus=6"]))  # the last job needs 7
    replay = replay_of(environment.jobs, environment.fleet)
    assert replay.site_J.tolist() == [0, 0, 0, 0, 0]
    assert replay.start_s_J.tolist()[1:3] == environment.jobs.arrival_s_J.tolist()[1:3]
    said = WhatHappened().remarks(Brief.of(environment, WhatHappened.needs))
    assert [text.split(": each of 1 of 5 jobs ")[1].split(":")[0] for text in said] == [
        "ran at a site that the fleet does not have",
        "ran at a site that, as described, cannot run it",
        "has no recorded site",
        "has no recorded start",
        "has a recorded start before its submission",
    ]


def test_a_comparison_measures_savings_against_what_happened(fleet_of: Callable[..., Any]) -> None:
    scenario = fleet_of(wait_min=[120 - 7 * n for n in range(6)] + [None], gpus=[2] * 7)
    found = compare(scenario, ["cheapest-feasible"], environments=1, bound=False)
    assert found.reference == "what-happened"
    figures = {metric.name: metric.value for metric in found.metrics()}
    assert figures["saved_usd/what-happened"] == 0.0
    assert figures["saved_usd/cheapest-feasible"] != 0.0
    assert figures["mean_delay_s/what-happened"] > figures["mean_delay_s/cheapest-feasible"] + 3600
    assert {"saved_kg/cheapest-feasible", "late_jobs/cheapest-feasible"} <= set(figures)
    assert any("has no recorded start" in note for note in found.notes)
    late = next(note for note in found.notes if "start later than recorded" in note)
    assert "2 of 7 jobs" in late, late  # six start at once, on 2 of 8 GPUs each
    assert "10 minutes on average" in late
    assert any("what happened" in sentence for sentence in headline(found)) or headline(found)[0].startswith("Keep")
    assert compare(scenario, ["local-fcfs"], environments=1, bound=False, today="local-fcfs").reference == "local-fcfs"
    stated = scenario.model_copy(update={"baseline": "local-fcfs"})
    assert compare(stated, ["local-fcfs"], environments=1, bound=False).reference == "local-fcfs"


def test_what_happened_is_never_proposed(fleet_of: Callable[..., Any]) -> None:
    found = compare(fleet_of(wait_min=[0] * 3), ["random"], environments=1, bound=False)
    assert headline(found)[0].startswith(("Keep what you do today", "random was"))


def test_jobs_without_a_record_cannot_be_replayed(fleet_of: Callable[..., Any]) -> None:
    for scenario in (load_scenario("tiny"), fleet_of(wait_min=[None, None])):
        environment = build_environment(scenario)
        with pytest.raises(ScenarioError, match="column 'start_time'"):
            check_fit(Brief.of(environment, WhatHappened.needs), WhatHappened.needs, "what-happened")
    found = compare(fleet_of(wait_min=[None, None]), ["local-fcfs", "random"], environments=1, bound=False)
    assert found.reference == "local-fcfs"


def test_a_record_is_part_of_the_environment(fleet_of: Callable[..., Any]) -> None:
    digests = {environment_digest(build_environment(fleet_of(wait_min=[wait, 0]))) for wait in (0, 30, 30)}
    assert len(digests) == 2


def test_a_start_that_is_no_time_is_refused(fleet_of: Callable[..., Any], tmp_path: Path) -> None:
    scenario = fleet_of(wait_min=[0, 0])
    path = tmp_path / "jobs.csv"
    path.write_text(path.read_text().replace("2022-10-01T00:07:00Z,2022-10-01T00:07:00Z", "2022-10-01T00:07:00Z,soon"))
    with pytest.raises(DataError, match=r"line 3.*'soon'|'soon'.*line 3"):
        build_environment(scenario)


def test_every_job_that_ran_is_replayed_however_late_it_started(fleet_of: Callable[..., Any]) -> None:
    wait_min = [5, 60 * 80, 10]  # the second started 68 h after its window of 12 h
    scenario = with_settings(fleet_of(wait_min=wait_min), ["lateness.rule=wait", "slot_s=60"])
    jobs, environment = replayed(scenario)
    assert jobs["start_s"].tolist() == environment.jobs.recorded_start_s_J.tolist()
    assert environment.late_until_s == environment.jobs.recorded_start_s_J.max() + 3600
    said = "late jobs may start until 69 h after the window, under every policy: jobs.csv records starts up to then"
    assert said in environment.notes, environment.notes
    stated = build_environment(with_settings(scenario, ["lateness.overtime_h=24"]))
    assert stated.late_until_s == 36 * 3600.0
    assert not any("late jobs may start" in note for note in stated.notes)


def test_a_window_beyond_the_end_of_the_log_is_said(fleet_of: Callable[..., Any]) -> None:
    scenario = fleet_of(wait_min=[5, 6])
    longer = with_days(scenario, DAY.date(), DAY.date() + timedelta(days=3))
    note = "jobs.csv ends on 2022-10-01: no job arrives in the last 3 days of the window, which ends on 2022-10-05"
    assert any(note in said for said in build_environment(longer).notes)
    assert not any("ends on" in said for said in build_environment(scenario).notes)
    assert any(note in said for said in compare(longer, ["what-happened"], environments=1, bound=False).notes)


def test_jobs_that_follow_each_other_at_odd_seconds_start_as_recorded(tmp_path: Path) -> None:
    """One GPU that is never free for long: replayed in slots of a minute, every job would start later than the last."""
    starts_s, run_s = [], [61.0, 119.0, 240.0, 59.0, 601.0, 33.0, 90.0]
    for n in range(len(run_s)):
        starts_s.append(7.0 + sum(run_s[:n]) + n)
    table = {
        "submit_time": [f"{DAY + timedelta(seconds=n):%Y-%m-%dT%H:%M:%SZ}" for n in range(len(run_s))],
        "start_time": [f"{DAY + timedelta(seconds=s):%Y-%m-%dT%H:%M:%SZ}" for s in starts_s],
        "origin": "north",
        "gpus": 1,
        "duration_s": run_s,
    }
    path = tmp_path / "jobs.csv"
    pl.DataFrame(table).write_csv(path)
    scenario = with_days(with_files(load_scenario("tiny"), [], path), DAY.date())
    scenario = with_settings(scenario, ["fleet.sites.0.gpus=1", "lateness.rule=wait"])
    jobs, environment = replayed(scenario)
    assert jobs["start_s"].tolist() == starts_s == environment.jobs.recorded_start_s_J.tolist()
    found = compare(scenario, ["what-happened"], environments=1, bound=False)
    assert not any("later than recorded" in note for note in found.notes)
    assert any("in the first second with room" in note and "decide every 60 s" in note for note in found.notes)

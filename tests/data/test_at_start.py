"""What was running or waiting when a window starts, as a log says: held GPUs, jobs at second 0, notes, and no leaks."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from noonward.data.environments import build_environment, past_jobs
from noonward.data.scenarios.load import load_scenario, with_days, with_files, with_settings
from noonward.decision.brief import Brief
from noonward.engine.run import run
from noonward.errors import DataError
from noonward.ledger.ledger import settle
from noonward.ledger.record import environment_digest
from noonward.schedule.cluster.what_happened import WhatHappened
from noonward.schedule.policies import make_scheduler

DAY = datetime(2022, 10, 1, tzinfo=UTC)
AS_RECORDED = "jobs.at_start=as-recorded"
COLUMNS = ("submit_h", "start_h", "run_h", "gpus", "site")


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Any]:
    """Writes a log of jobs (hours since the window's start) and returns ``tiny`` on it, with 4 GPUs at each site."""

    def log(jobs: list[tuple[float, float | None, float, int, str]], *settings: str, **columns: Any) -> Any:
        def stamp(hours: float | None) -> str | None:
            return None if hours is None else f"{DAY + timedelta(seconds=round(3600 * hours)):%Y-%m-%dT%H:%M:%SZ}"

        row = dict(zip(COLUMNS, zip(*jobs, strict=True), strict=True))
        table = {
            "submit_time": [stamp(h) for h in row["submit_h"]],
            "start_time": [stamp(h) for h in row["start_h"]],
            "duration_s": [float(round(3600 * h)) for h in row["run_h"]],
            "gpus": row["gpus"],
            "origin": ["north"] * len(jobs),
            "start_site": row["site"],
            "slack_s": [4 * 3600.0] * len(jobs),
        }
        path = tmp_path / "jobs.csv"
        pl.DataFrame(table | columns, strict=False).write_csv(path)
        scenario = with_days(with_files(load_scenario("tiny"), [], path), DAY.date())
        sizes = ["fleet.sites.0.gpus=4", "fleet.sites.1.gpus=4", "slot_s=60", "lateness.rule=wait"]
        return with_settings(scenario, [*sizes, AS_RECORDED, *settings])

    return log


JOBS = [
    (-5.0, -4.0, 6.0, 2, "north"),  # runs until hour 2
    (-30.0, -29.0, 1.0, 1, "north"),  # has ended
    (-2.0, 2.5, 1.0, 1, "north"),  # waits
    (-3.0, 1.0, 1.0, 1, "north"),  # waits, and was submitted before it
    (-6.0, 1.5, 1.0, 4, "south"),  # waits; its slack of 4 h has passed
    (-1.0, -0.5, 2.0, 3, "south"),  # runs until 1.5
    (-1.0, -0.5, 2.0, 3, "paris"),  # ran where the fleet has no site
    (1.0, 3.0, 1.0, 2, "north"),
]


def test_running_jobs_hold_their_gpus_and_waiting_ones_arrive_at_the_start(log: Callable[..., Any]) -> None:
    environment = build_environment(log(JOBS))
    standing, jobs = environment.standing, environment.jobs
    assert (standing.site_J.tolist(), standing.gpus_J.tolist()) == ([0, 1], [2, 3])
    assert standing.end_s_J.tolist() == [7200.0, 5400.0]
    tables = environment.fleet.tables(4)
    assert standing.power_w_J.tolist() == [tables.pue_S[s] * 80.0 * n for s, n in ((0, 2), (1, 3))]
    assert jobs.arrival_s_J.tolist() == [0.0, 0.0, 0.0, 3600.0]
    assert jobs.row_J.tolist() == [4, 3, 2, 7]  # in the order of submission
    assert jobs.slack_s_J.tolist() == [0.0, 3600.0, 7200.0, 14400.0]
    steps = environment.unavailable
    assert (steps.from_s_K.tolist(), steps.gpus_KS.tolist()) == ([0.0, 5400.0, 7200.0], [[2, 3], [2, 0], [0, 0]])


def test_the_replay_starts_every_job_as_recorded_beside_them(log: Callable[..., Any]) -> None:
    outcome = run(build_environment(log(JOBS)), WhatHappened())
    recorded_s = outcome.environment.jobs.recorded_start_s_J
    at_home = outcome.environment.jobs.recorded_site_J == 0
    assert outcome.job_J["start_s"][at_home].tolist() == recorded_s[at_home].tolist()
    ledger = settle(outcome)
    assert ledger.standing_kwh == pytest.approx(sum(outcome.environment.standing.power_w_J * [2.0, 1.5]) / 1000)


def test_it_is_said_and_counted(log: Callable[..., Any]) -> None:
    notes = build_environment(log(JOBS)).notes
    assert any("2 jobs of jobs.csv were running at the window's start, on 5 of 8 GPUs: under every" in n for n in notes)
    assert any("3 jobs were waiting in jobs.csv at the window's start, for 3.7 h on average" in n for n in notes)
    assert any("1 job of jobs.csv was running at the window's start at a site that the fleet" in n for n in notes)
    assert any("1 of the 8 jobs of jobs.csv are submitted between" in n for n in notes)
    crowded = [*JOBS, (-1.0, -0.5, 2.0, 4, "south")]
    said = build_environment(log(crowded)).notes
    assert any("at south 7 GPUs were busy at the window's start, more than its 4" in n for n in said)


def test_an_empty_start_is_what_it_was(log: Callable[..., Any]) -> None:
    empty = build_environment(log(JOBS, "jobs.at_start=empty"))
    assert (empty.standing, len(empty.jobs)) == (None, 1)
    assert not any("at the window's start" in note for note in empty.notes)
    assert environment_digest(empty) != environment_digest(build_environment(log(JOBS)))
    assert "at_start" not in log(JOBS, "jobs.at_start=empty").jobs.model_dump()


def first_come_first_served(jobs: list[tuple[int, int, int]], gpus: int) -> list[int]:
    """Starts in minutes of jobs (arrival, GPUs, run time) on a cluster that starts them in order, minute by minute.

    It shares no code with the engine: every minute it counts who runs.
    """
    starts: list[int] = []
    minute = 0
    for arrival, need, _ in jobs:
        minute = max(minute, arrival)
        while need + sum(n for at, (_, n, run) in zip(starts, jobs, strict=False) if at <= minute < at + run) > gpus:
            minute += 1
        starts.append(minute)
    return starts


@pytest.mark.parametrize("seed", range(6))
def test_first_come_first_served_replays_its_own_log_from_any_hour(log: Callable[..., Any], seed: int) -> None:
    """A cluster that starts jobs in order writes a log; the same rule, dropped into its middle, goes on as it did."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.integers(0, 60 * 30, 60)).tolist()
    jobs = [(at, int(rng.integers(1, 4)), int(rng.integers(10, 240))) for at in arrivals]
    starts = first_come_first_served(jobs, 4)
    shifted = [
        (at / 60 - 20, start / 60 - 20, run / 60, n, "north") for (at, n, run), start in zip(jobs, starts, strict=True)
    ]
    environment = build_environment(log(shifted, "lateness.overtime_h=240"))
    outcome = run(environment, make_scheduler("local-fcfs"))
    assert environment.standing is not None
    np.testing.assert_allclose(outcome.job_J["start_s"], environment.jobs.recorded_start_s_J, atol=1e-6)
    empty = build_environment(log(shifted, "lateness.overtime_h=240", "jobs.at_start=empty"))
    began = run(empty, make_scheduler("local-fcfs")).job_J["start_s"]
    assert (began <= empty.jobs.recorded_start_s_J + 1e-6).all()
    assert (began < empty.jobs.recorded_start_s_J).any()


def test_planners_know_no_ends_that_they_are_not_told(log: Callable[..., Any]) -> None:
    scenario = log(JOBS, "jobs.knowledge.run_time=limit", limit_s=[4.5 * 3600.0, *[90000.0] * 4, None, *[9e4] * 2])
    environment = build_environment(scenario)
    assert environment.standing.end_s_J.tolist() == [7200.0, 5400.0]
    # The first is expected at its limit, half an hour after the start; the second, without one, as long again.
    assert environment.standing.told_end_s_J.tolist() == [1800.0, 1800.0]
    told = Brief.of(environment, make_scheduler("booked-perfect").needs).withheld
    assert told.from_s_K.tolist() == [0.0, 1800.0]
    known = build_environment(log(JOBS))
    assert Brief.of(known, make_scheduler("booked-perfect").needs).withheld.from_s_K.tolist() == [0.0, 5400.0, 7200.0]


def test_waiting_jobs_are_no_past_that_planners_draw_from(log: Callable[..., Any]) -> None:
    scenario = log(JOBS)
    past = past_jobs(scenario, scenario.jobs, DAY)
    assert past is not None
    assert sorted(past.row_J.tolist()) == [0, 1, 5, 6]


def test_a_log_that_says_no_starts_cannot_say_who_was_there(log: Callable[..., Any], tmp_path: Path) -> None:
    scenario = log(JOBS)
    path = tmp_path / "jobs.csv"
    pl.read_csv(path).drop("start_time").write_csv(path)
    with pytest.raises(DataError, match=r"it lacks column 'start_time'; give it, or set jobs.at_start=empty"):
        build_environment(scenario)

"""Jobs with dates run on their own days, under the signals of those days."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from noonward.data.environments import build_environment, one_window_only
from noonward.data.scenarios.load import load_scenario, scenario_from, with_days, with_files, with_settings
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError, SignalRangeError
from noonward.ledger.record import job_table
from noonward.schedule.policies import make_scheduler

FIRST = datetime(2022, 10, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def signals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Signals of both zones of ``tiny`` from 25 September to 14 October."""
    path = tmp_path_factory.mktemp("signals") / "signals.csv"
    drawn = generate_signals(("CA-ON", "SG"), FIRST - timedelta(days=6), 20 * 24, np.random.default_rng(0))
    write_generated_signals(drawn, path)
    return path


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[..., Path]:
    """Writes a job table: a job an hour from 1 to 7 October, unless columns say otherwise."""

    def jobs(**columns: Any) -> Path:
        hours = [FIRST + timedelta(hours=hour) for hour in range(7 * 24)]
        table: dict[str, Any] = {
            "submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours],
            "origin": "north",
            "gpus": 1,
            "duration_s": 600.0,
            "slack_s": 3600.0,
        }
        path = tmp_path / "jobs.csv"
        frame = pl.DataFrame({"n": range(len(hours))})
        for name, value in (table | columns).items():
            frame = frame.with_columns(pl.Series(name, value) if isinstance(value, list) else pl.lit(value).alias(name))
        frame.drop("n").write_csv(path)
        return path

    return jobs


def test_jobs_and_signals_meet_on_the_days_of_both(signals: Path, jobs: Callable[..., Path]) -> None:
    scenario = with_files(load_scenario("tiny"), [signals], jobs())
    starts = set()
    for index in range(8):
        environment = build_environment(scenario, index)
        starts.add(environment.start)
        assert FIRST <= environment.start <= FIRST + timedelta(days=6)
        assert environment.jobs.arrival_s_J.tolist() == [3600.0 * hour for hour in range(12)]
        assert any("12 of the 168 jobs of jobs.csv are submitted between" in note for note in environment.notes)
    assert len(starts) > 1


def test_days_that_are_pinned_stand_above_what_the_scenario_says(signals: Path, jobs: Callable[..., Path]) -> None:
    scenario = with_files(load_scenario("tiny"), [signals], jobs())
    scenario = with_settings(scenario, ["signals.first_day=2022-10-05", "signals.months=[3]"])
    pinned = with_days(scenario, date(2022, 10, 2), date(2022, 10, 3))
    environment = build_environment(pinned, 5)
    assert (environment.start, environment.window_s) == (FIRST + timedelta(days=1), 48 * 3600)
    assert len(environment.jobs) == 48
    assert one_window_only(pinned)
    assert not one_window_only(with_files(load_scenario("tiny"), [signals], jobs()))
    assert with_days(load_scenario("tiny"), date(2022, 10, 2)).window_h == 12


def test_generated_signals_follow_the_jobs_to_their_first_day(jobs: Callable[..., Path]) -> None:
    environment = build_environment(with_files(load_scenario("tiny"), [], jobs()), 3)
    assert environment.start == FIRST


@pytest.mark.parametrize(
    ("stamp", "more", "arrives_h"),
    [
        ("2022-10-01T05:00:00+02:00", {}, 3),
        ("2022-10-01 05:00:00", {"timezone": "Europe/Berlin"}, 3),
        ("2022-10-01T05:00Z", {"timezone": "Europe/Berlin"}, 5),
    ],
)
def test_times_may_have_a_zone(jobs: Callable[..., Path], stamp: str, more: dict[str, str], arrives_h: int) -> None:
    path = jobs(submit_time=[stamp] * 168)
    content = load_scenario("tiny").model_dump(mode="json")
    content |= {"jobs": {"source": "table", "path": str(path), **more}, "start": "2022-10-01"}
    assert build_environment(scenario_from(content)).jobs.arrival_s_J[0] == arrives_h * 3600


def test_parquet_tables_may_have_dates(tmp_path: Path, jobs: Callable[..., Path]) -> None:
    path = tmp_path / "jobs.parquet"
    table = pl.read_csv(jobs()).with_columns(
        pl.col("submit_time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC")
    )
    table.write_parquet(path)
    assert len(build_environment(with_files(load_scenario("tiny"), [], path)).jobs) == 12


def test_a_slurm_log_is_a_job_table_where_its_clock_and_place_are_told(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    row = "{}|2022-10-01T02:00:00|2022-10-01T02:00:00|2022-10-01T03:00:00|3600|gres/gpu=2\n"
    path.write_text("JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n" + "".join(row.format(n) for n in range(3)))
    with_log = with_files(load_scenario("tiny"), [], path)
    with pytest.raises(DataError, match="--timezone"):
        build_environment(with_log)
    told = with_settings(with_log, ["jobs.timezone=Europe/Berlin", "jobs.origin=north", "end=window"])
    environment = build_environment(told)
    assert environment.jobs.arrival_s_J.tolist() == [0.0] * 3
    assert environment.jobs.gpus_min_J.tolist() == [2] * 3
    elsewhere = build_environment(with_settings(told, ["jobs.origin=south"]))
    assert elsewhere.jobs.origin_J.tolist() != environment.jobs.origin_J.tolist()
    with pytest.raises(DataError, match="not valid JSON"):
        build_environment(with_settings(told, ["jobs.format=kubernetes"]))


def test_a_table_without_dates_is_said_to_have_none(jobs: Callable[..., Path]) -> None:
    path = jobs()
    pl.read_csv(path).drop("submit_time").with_columns(arrival_s=pl.lit(0.0)).write_csv(path)
    notes = build_environment(with_files(load_scenario("tiny"), [], path)).notes
    assert "jobs.csv has no dates (column submit_time): its jobs run on the day each window starts on" in notes


def test_what_does_not_meet_is_refused_with_the_days_of_both(signals: Path, jobs: Callable[..., Path]) -> None:
    scenario = with_files(load_scenario("tiny"), [signals], jobs())
    with pytest.raises(DataError, match=r"no job is submitted between 2022-10-10.*of 2022-10-01 to 2022-10-07.*--from"):
        build_environment(with_days(scenario, date(2022, 10, 10)))
    with pytest.raises(SignalRangeError, match=r"starts on 2021-10-01 needs the day before it"):
        build_environment(with_days(scenario, date(2021, 10, 1)))
    late = with_files(load_scenario("tiny"), [signals], jobs(submit_time=["2023-10-01T00:00Z"] * 168))
    with pytest.raises(SignalRangeError, match=r"jobs of .* are of 2023-10-01 to 2023-10-01, and the signals cover"):
        build_environment(late)
    with pytest.raises(DataError, match="has both 'submit_time' and 'arrival_s'"):
        build_environment(with_files(load_scenario("tiny"), [], jobs(arrival_s=0.0)))
    with pytest.raises(DataError, match=r"line 2, column 'submit_time': the value '2022-10-01 05:00' has no time zone"):
        build_environment(with_files(load_scenario("tiny"), [], jobs(submit_time=["2022-10-01 05:00"] * 168)))
    with pytest.raises(ScenarioError, match="--to 2022-10-01 is before --from 2022-10-02"):
        with_days(scenario, date(2022, 10, 2), date(2022, 10, 1))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda t: t.with_columns(pl.when(pl.col("zone") != "SG").then("price_usd_per_mwh").alias("price_usd_per_mwh")),
         "SG has no price"),
        (lambda t: t.filter((pl.col("zone") != "SG") | (pl.int_range(pl.len()) % 4 != 3)), "of SG is unknown in 1"),
        (lambda t: t.filter(pl.col("timestamp") < "2022-09-26"), "hold no day that a window may start on"),
    ],
)  # fmt: skip
def test_the_zone_and_quantity_that_lacks_is_named(signals: Path, tmp_path: Path, spoil: Any, says: str) -> None:
    path = tmp_path / "spoilt.csv"
    spoil(pl.read_csv(signals)).write_csv(path)
    with pytest.raises(SignalRangeError, match=says):
        build_environment(with_files(load_scenario("tiny"), [path]))


def test_a_job_may_start_at_the_first_slot_after_its_arrival_whatever_its_slack(jobs: Callable[..., Path]) -> None:
    off = [f"{FIRST + timedelta(hours=hour, seconds=1):%Y-%m-%dT%H:%M:%SZ}" for hour in range(168)]
    scenario = with_files(load_scenario("tiny"), [], jobs(submit_time=off, slack_s=0.0))
    outcome = run(build_environment(scenario), make_scheduler("local-fcfs"))
    assert outcome.started_J.all()
    assert (outcome.job_J["start_s"] % 60 == 0).all()


def test_slack_is_told_where_the_table_states_none(jobs: Callable[..., Path]) -> None:
    path = jobs()
    pl.read_csv(path).drop("slack_s").write_csv(path)
    scenario = with_settings(with_files(load_scenario("tiny"), [], path), ["jobs.slack_h=2"])
    assert build_environment(scenario).jobs.slack_s_J.tolist() == [7200.0] * 12
    with pytest.raises(ScenarioError, match="infinite slack cannot run until drained"):
        build_environment(with_settings(scenario, ["jobs.slack_h=null"]))


def test_jobs_of_a_log_that_fit_nowhere_are_left_out_and_counted(jobs: Callable[..., Path]) -> None:
    environment = build_environment(with_files(load_scenario("tiny"), [], jobs(gpus=[99, 1] * 84)))
    assert len(environment.jobs) == 6
    assert "6 of 12 jobs of jobs.csv need more GPUs at once than any site has; they are left out" in environment.notes
    with pytest.raises(DataError, match=r"every job of the window needs more GPUs .* \(8\); enlarge a site"):
        build_environment(with_files(load_scenario("tiny"), [], jobs(gpus=99)))


def test_details_of_a_table_stand_beside_its_jobs(jobs: Callable[..., Path]) -> None:
    # Rows in falling order of time, and every second one too large for the fleet.
    backwards = [f"{FIRST + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}" for hour in reversed(range(168))]
    names = [f"hour {hour}" for hour in reversed(range(168))]
    path = jobs(
        submit_time=backwards, gpus=[99, 1] * 84, name=names, job_id=list(range(168)), limit_s=7200, state="COMPLETED"
    )
    environment = build_environment(with_files(load_scenario("tiny"), [], path))
    details = environment.details
    assert details is not None
    assert details.columns == ["job_id", "user", "team", "name", "partition", "limit_s", "state", "priority"]
    assert details["name"].to_list() == [f"hour {s / 3600:.0f}" for s in environment.jobs.arrival_s_J]
    assert details.row(0) == ("167", None, None, "hour 0", None, 7200.0, "done", None)
    assert build_environment(load_scenario("tiny")).details is None


def test_a_record_says_who_asked_for_a_job(jobs: Callable[..., Path]) -> None:
    scenario = with_files(load_scenario("tiny"), [], jobs(job_id=[f"j{n}" for n in range(168)], team="nlp"))
    table = job_table(run(build_environment(scenario), make_scheduler("local-fcfs")))
    assert table.columns[:3] == ["job_id", "team", "arrival_s"]
    assert table.select("job_id", "team", "arrival_s").row(2) == ("j2", "nlp", 7200.0)
    without = job_table(run(build_environment(load_scenario("tiny")), make_scheduler("local-fcfs")))
    assert without.columns[0] == "arrival_s"


def test_details_that_say_nothing_known_are_refused(jobs: Callable[..., Path]) -> None:
    for column, value, says in (
        ("state", "hung", r"line 2, column 'state': the value 'hung' is not allowed; give done, failed, cancelled"),
        ("limit_s", "0", "column 'limit_s': the value '0' is not allowed; give seconds above 0, or leave it empty"),
        ("limit_s", "long", "column 'limit_s': the value 'long'"),
    ):
        with pytest.raises(DataError, match=says):
            build_environment(with_files(load_scenario("tiny"), [], jobs(**{column: value})))


def sampled(scenario: Any, index: int = 0) -> np.ndarray:
    """Returns the arrivals of jobs drawn for the window, rounded to hours."""
    sample = build_environment(scenario, index).sample_jobs
    assert sample is not None
    return sample(np.random.default_rng(0)).arrival_s_J // 3600


def test_jobs_to_come_are_drawn_from_the_tables_past_and_never_its_future(jobs: Callable[..., Path]) -> None:
    # One job at midnight until 4 October, an hourly one from then on.
    days = [FIRST + timedelta(days=day) for day in range(4)]
    later = [FIRST + timedelta(days=4, hours=hour) for hour in range(164)]
    path = jobs(submit_time=[f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in days + later])
    scenario = with_files(load_scenario("tiny"), [], path)
    assert sampled(with_days(scenario, date(2022, 10, 5))).tolist() == [0.0]
    assert sampled(with_days(scenario, date(2022, 10, 5), date(2022, 10, 6))).tolist() == [0.0, 24.0]
    assert build_environment(with_days(scenario, date(2022, 10, 1))).sample_jobs is None


def test_a_history_of_its_own_serves_a_window_without_a_past(tmp_path: Path, jobs: Callable[..., Path]) -> None:
    past = jobs(submit_time=["2021-05-03T02:30:00Z"] * 84 + ["2021-05-04T05:30:00Z"] * 84).rename(tmp_path / "past.csv")
    scenario = with_settings(with_files(load_scenario("tiny"), [], jobs()), [f"jobs.history='{past}'"])
    # 3 October 2022 is a Monday like 3 May 2021, 4 October a Tuesday like 4 May.
    assert set(sampled(with_days(scenario, date(2022, 10, 3)))) == {2.0}
    assert set(sampled(with_days(scenario, date(2022, 10, 4)))) == {5.0}
    # Jobs of after the window's start are none of its past, whichever file they stand in.
    later = [f"2022-10-10T{hour:02d}:10:00Z" for hour in range(24)] * 7
    pl.read_csv(past).with_columns(submit_time=pl.Series(later)).write_csv(past)
    assert build_environment(with_days(scenario, date(2022, 10, 3))).sample_jobs is None
    pl.read_csv(past).drop("submit_time").with_columns(arrival_s=0).write_csv(past)
    with pytest.raises(DataError, match="has no dates; give it a column 'submit_time'"):
        build_environment(scenario)

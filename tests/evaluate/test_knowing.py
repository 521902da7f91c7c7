"""What knowing run times would be worth: one policy, told in every way, over the windows of a log."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from noonward import compare
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_files, with_settings
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.evaluate.answer import headline
from noonward.evaluate.kept import keep, read_comparison
from noonward.evaluate.knowing import better_E, told, ways_of, worth

FIRST = datetime(2022, 10, 1, tzinfo=UTC)
DAYS = 12
POLICIES = ["local-fcfs", "booked-persistence", "cheapest-feasible"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``tiny`` with a job an hour for twelve days; users ann, with short jobs, and bob; limits are four times."""
    folder: Path = tmp_path_factory.mktemp("fleet")
    drawn = generate_signals(("CA-ON", "SG"), FIRST - timedelta(days=3), (DAYS + 6) * 24, np.random.default_rng(0))
    write_generated_signals(drawn, folder / "signals.csv")
    hours = [FIRST + timedelta(hours=n) for n in range(24 * DAYS)]
    rng = np.random.default_rng(1)
    run_s = np.where(np.arange(len(hours)) % 2, rng.uniform(3600, 18000, len(hours)), rng.uniform(60, 300, len(hours)))
    jobs = pl.DataFrame(
        {
            "submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours],
            "origin": ["north", "south", "south", "north"] * (6 * DAYS),
            "gpus": 2,
            "duration_s": run_s.round(),
            "slack_s": 6 * 3600.0,
            "user": ["ann", "bob"] * (12 * DAYS),
            "limit_s": (4 * run_s).round(),
        }
    )
    jobs.write_csv(folder / "jobs.csv")
    jobs.drop("limit_s").write_csv(folder / "unlimited.csv")
    base = load_scenario("tiny", ["goal=least-cost", "jobs.knowledge.run_time=learned"])
    return with_files(base, [folder / "signals.csv"], folder / "jobs.csv")


@pytest.fixture(scope="module")
def found(fleet: Any) -> Any:
    return compare(fleet, POLICIES, windows=4, bound=False, currency="EUR=2")


def test_the_policy_runs_in_every_way_over_the_same_windows(found: Any) -> None:
    assert found.knowing.policy in POLICIES[1:]
    assert list(found.knowing.by_way) == ["known", "learned", "limit"]
    starts = [record.manifest["start"] for record in found.records["local-fcfs"]]
    for records in found.knowing.by_way.values():
        assert [record.manifest["start"] for record in records] == starts
    digests = {way: records[0].manifest["environment_digest"] for way, records in found.knowing.by_way.items()}
    assert len(set(digests.values())) == 3


def test_the_scenarios_own_way_is_the_comparisons_run(found: Any) -> None:
    policy = found.knowing.policy
    own = [record.ledger.total_usd for record in found.knowing.by_way["learned"]]
    assert own == found.values(policy, "total_usd").tolist()
    saved_E = found.values("local-fcfs", "total_usd") - found.values(policy, "total_usd")
    assert better_E(found, "learned").tolist() == saved_E.tolist()
    assert worth(found, "learned").value == 0
    more_E = saved_E - better_E(found, "known")
    assert worth(found, "known").value == pytest.approx(-more_E.mean(), rel=1e-12)


def test_headline_table_and_figures_say_it(found: Any) -> None:
    said = " ".join(headline(found))
    assert "Policies are told the run times of similar past jobs, at most each job's limit; if" in said
    table = next(table for table in found.objective.tables(found) if table.title.startswith("What knowing run times"))
    assert [row[0] for row in table.rows] == ["known", "learned (this comparison)", "limit"]
    assert all("EUR" in head for head in (table.header[1], table.header[3]))
    shown = float(table.rows[0][3].split(" ")[0].replace(",", ""))
    figures = {metric.name: metric for metric in found.metrics()}
    metric = figures[f"knowing/worth_usd/{found.knowing.policy}@known"]
    assert shown == pytest.approx(metric.value / 2, abs=0.006)
    assert metric.low is not None
    assert metric.low < metric.value < metric.high


def test_a_loss_by_knowing_is_said_with_the_interval_of_the_loss(found: Any) -> None:
    by_way = found.knowing.by_way
    swapped = {"known": by_way["limit"], "learned": by_way["known"], "limit": by_way["limit"]}
    worse = dataclasses.replace(found, knowing=dataclasses.replace(found.knowing, by_way=swapped))
    lost = -found.currency.of(worth(worse, "known"))
    assert lost.value > 0
    assert f"it would save {lost.value:,.2f} EUR less [{lost.low:,.2f}, {lost.high:,.2f}]." in " ".join(headline(worse))


def test_a_comparison_read_back_says_it_too(found: Any) -> None:
    again, _ = read_comparison(keep(found, "noonward compare"))
    assert headline(again) == headline(found)
    assert again.objective.tables(again) == found.objective.tables(found)
    assert list(again.knowing.by_way) == list(found.knowing.by_way)


def test_other_scenarios_take_no_further_runs(fleet: Any) -> None:
    assert ways_of(load_scenario("tiny")) == ()
    assert ways_of(with_files(fleet, [], fleet.jobs.path.with_name("unlimited.csv"))) == ()
    assert compare("tiny", POLICIES, environments=1, bound=False).knowing is None
    assert ways_of(told(fleet, "class-mean")) == ("known", "learned", "limit", "class-mean")


def test_who_is_left_alone_is_decided_by_what_is_told(fleet: Any) -> None:
    """Ann's jobs end within five minutes; by their limits, those of at most ten minutes over four do."""
    alone = with_settings(fleet, ["jobs.leave_alone_min=10", "start=2022-10-09"])
    known, learned, limit = (build_environment(told(alone, way)).jobs for way in ("known", "learned", "limit"))
    ann = np.arange(len(known)) % 2 == 0
    assert (known.slack_s_J == 0).tolist() == ann.tolist()
    assert (learned.slack_s_J == 0).tolist() == ann.tolist()
    assert (limit.slack_s_J == 0).tolist() == (known.work_J * 4 < 600).tolist()
    assert 0 < (limit.slack_s_J == 0).sum() < ann.sum()


def test_a_jobs_own_run_time_does_not_say_whether_it_is_left_alone(fleet: Any) -> None:
    alone = with_settings(fleet, ["jobs.leave_alone_min=10", "start=2022-10-09"])
    table = pl.read_csv(alone.jobs.path)
    first = table["submit_time"].to_list().index("2022-10-09T00:00:00Z")
    run_s = table["duration_s"].to_list()
    run_s[first + 1] = 60.0  # a short job of bob's, whose jobs are long
    path = alone.jobs.path.with_name("other.csv")
    table.with_columns(duration_s=pl.Series(run_s)).write_csv(path)
    other = with_settings(alone, [f"jobs.path={path}"])
    before, after = (build_environment(each).jobs for each in (alone, other))
    assert after.work_J[1] == 60.0
    assert after.slack_s_J.tolist() == before.slack_s_J.tolist()

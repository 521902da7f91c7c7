"""Records in parts: the same content as whole tables, parts of whole days, one day read alone, killed between parts."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from engine.test_suspension import Breaker, draw
from ledger.two_jobs import HOUR_S, environment, played
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.run import run
from noonward.errors import DataError
from noonward.ledger import record, table_parts
from noonward.ledger.folder import write_files
from noonward.ledger.ledger import settle
from noonward.ledger.record import (
    hour_table,
    job_table,
    read_record,
    record_files,
    segment_table,
    write_record,
)
from noonward.ledger.service import measure_service
from noonward.ledger.table_parts import day_parts
from noonward.model.cluster.jobs import Jobs
from noonward.schedule.policies import make_scheduler
from noonward.units import DAY_S

NAMES = {"policy": "script", "seed": 0, "scenario_digest": "abc", "code": "0"}
WORLDS = 40


def in_small_parts(patch, least=2, most=3):
    patch.setattr(table_parts, "LEAST_ROWS", least)
    patch.setattr(table_parts, "MOST_ROWS", most)


def groups(path):
    return pq.read_metadata(path).num_row_groups


def check(outcome, folder, patch):
    """A record in small parts holds what whole tables hold, column for column, and the same ledger."""
    with patch.context() as small:
        in_small_parts(small)
        write_record(outcome, folder, **NAMES)
        parts = day_parts(outcome.environment.jobs.arrival_s_J)
        sent = record_files(outcome, **NAMES)
    found = read_record(folder)
    assert groups(folder / "jobs.parquet") == len(parts)
    assert_frame_equal(found.jobs, job_table(outcome))
    assert_frame_equal(found.hours, hour_table(outcome))
    np.testing.assert_equal(found.ledger.as_dict(), settle(outcome).as_dict())
    assert found.service == measure_service(outcome)
    assert (found.segments is None) == (outcome.segment_K is None)
    if found.segments is not None:
        assert_frame_equal(found.segments, segment_table(outcome))
    assert {name: (folder / name).read_bytes() for name in sent if name != "manifest.json"} == {
        name: content for name, content in sent.items() if name != "manifest.json"
    }
    return found, len(parts)


@given(st.lists(st.floats(0, 5 * DAY_S), max_size=40), st.integers(1, 6), st.integers(0, 6))
def test_parts_hold_all_rows_once_and_end_with_a_day_unless_it_is_too_long(times, least, more):
    time_s = np.sort(np.array(times, dtype=float))
    with pytest.MonkeyPatch.context() as patch:
        in_small_parts(patch, least, least + more)
        parts = day_parts(time_s)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == len(time_s)
    assert all(part.stop - part.start <= least + more for part in parts)
    for part in parts[:-1]:
        size, last, following = part.stop - part.start, time_s[part.stop - 1], time_s[part.stop]
        assert size >= least
        assert size == least + more or last // DAY_S < following // DAY_S


def test_days_without_a_job_make_no_part(monkeypatch):
    in_small_parts(monkeypatch, 2, 4)
    assert day_parts(np.array([0.0, 1.0, 40 * DAY_S, 41 * DAY_S])) == [slice(0, 2), slice(2, 4)]
    assert day_parts(np.zeros(0)) == [slice(0, 0)]


@pytest.mark.parametrize("seed", range(WORLDS))
def test_random_worlds_with_suspensions_hold_the_same_in_parts(tmp_path, monkeypatch, seed):
    outcome = run(draw(seed).environment(), Breaker(seed))
    found, parts = check(outcome, tmp_path / "run", monkeypatch)
    assert found.segments is not None
    assert parts > 1 or len(outcome.job_J) <= 3


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        (["window_h=72"], "random"),
        (["window_h=72", "fleet.freedoms={fine-tuning: {interruptible: true}}"], "suspend-threshold"),
    ],
)
def test_days_of_generated_jobs_hold_the_same_in_parts(tmp_path, monkeypatch, changes, policy):
    outcome = run(build_environment(load_scenario("tiny", [*changes, "jobs.count=60"])), make_scheduler(policy))
    found, _ = check(outcome, tmp_path / "run", monkeypatch)
    arrivals = job_table(outcome)["arrival_s"]
    for day in range(5):
        rows = found.scan("jobs", day=day).collect()
        expected = job_table(outcome).filter((arrivals >= day * DAY_S) & (arrivals < (day + 1) * DAY_S))
        assert_frame_equal(rows, expected)
        hours = found.scan("hours", day=day).collect()["hour"]
        assert set(hours) == set(range(24 * day, min(24 * (day + 1), found.hours["hour"].max() + 1)))


def test_a_log_keeps_its_texts_and_records_in_parts(tmp_path, monkeypatch):
    rng = random.Random(3)
    count = 9
    jobs = Jobs.build(
        arrival_s=np.arange(count) * 0.3 * DAY_S,
        work=np.full(count, HOUR_S),
        slack_s=HOUR_S,
        recorded_site=np.array([rng.choice((-2, -1, 0, 1)) for _ in range(count)]),
        recorded_start_s=np.array([np.nan, *range(1, count)], float) * DAY_S,
    )
    texts = [rng.choice((None, "jöb", "x" * 40)) for _ in range(count)]
    details = pl.DataFrame(
        {
            "job_id": [f"id-{j}" for j in range(count)],
            "user": texts,
            "team": pl.Series([None] * count, dtype=pl.String),
            "state": [None] * (count - 1) + ["FAILED"],
        }
    )
    outcome = run(
        environment(jobs=jobs, details=details, signals=None, economics=None, window_s=3 * DAY_S),
        make_scheduler("local-fcfs"),
    )
    found, parts = check(outcome, tmp_path / "run", monkeypatch)
    assert parts == 3
    assert found.jobs.columns[:3] == ["job_id", "user", "state"]
    assert found.jobs["user"].to_list() == texts


def test_a_record_of_few_jobs_is_one_part_and_may_be_scanned(tmp_path):
    found = write_record(played(), tmp_path / "run", **NAMES)
    assert groups(tmp_path / "run" / "jobs.parquet") == 1
    assert found.scan("jobs").select("arrival_s", "site").collect().equals(found.jobs.select("arrival_s", "site"))
    assert found.scan("jobs", day=1).collect().is_empty()
    with pytest.raises(DataError, match="has no table 'segments'; it has jobs, hours"):
        found.scan("segments")
    (tmp_path / "run" / "jobs.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"jobs\.parquet cannot be read any more"):
        found.scan("jobs")


def test_no_table_of_more_jobs_than_a_part_is_made(tmp_path, monkeypatch):
    outcome = run(build_environment(load_scenario("tiny", ["jobs.count=60"])), make_scheduler("random"))
    in_small_parts(monkeypatch, 5, 7)
    made, whole = [], job_table

    def counted(part, settled):
        made.append(len(part.job_J))
        assert len(settled.power.job_JA) == len(settled.move_JA) == len(part.job_J)
        return whole(part, settled)

    monkeypatch.setattr(record, "job_table", counted)
    write_record(outcome, tmp_path / "run", **NAMES)
    assert sum(made) == len(outcome.job_J) > 7
    assert max(made) <= 7


def test_a_damaged_part_is_refused(tmp_path, monkeypatch):
    in_small_parts(monkeypatch, 1, 1)
    write_record(played(), tmp_path / "run", **NAMES)
    path = tmp_path / "run" / "jobs.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with pytest.raises(DataError, match=r"jobs\.parquet is not as it was recorded"):
        read_record(tmp_path / "run")


KILLED = """
import os, signal, sys
from pathlib import Path
from ledger.two_jobs import played
from noonward.ledger import record, table_parts
table_parts.LEAST_ROWS = table_parts.MOST_ROWS = 1
whole, made = record.job_table, []
def second_kills(part, settled):
    made.append(part)
    if len(made) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(part, settled)
record.job_table = second_kills
record.write_record(played(), Path(sys.argv[1]), policy="script", seed=0, scenario_digest="abc", code="0")
"""


@pytest.mark.parametrize("earlier", [False, True])
def test_killed_between_parts_there_is_no_record_or_the_earlier_one(tmp_path, earlier):
    if earlier:
        older = write_record(played(), tmp_path / "000", **NAMES | {"seed": 7})
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(record.__file__).parents[2])])
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "000")],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = [path for path in tmp_path.iterdir() if path.name != "000"]
    assert [path.suffix for path in left] == [".part"]  # the first part had been written
    if earlier:
        assert read_record(tmp_path / "000") == older
    else:
        with pytest.raises(DataError, match="is no run record"):
            read_record(tmp_path / "000")


def test_a_failure_between_parts_leaves_nothing(tmp_path, monkeypatch):
    in_small_parts(monkeypatch, 1, 1)
    whole, made = job_table, []

    def second_fails(part, settled):
        made.append(part)
        if len(made) == 2:
            raise ValueError("broken")
        return whole(part, settled)

    monkeypatch.setattr(record, "job_table", second_fails)
    with pytest.raises(ValueError, match="broken"):
        write_record(played(), tmp_path / "000", **NAMES)
    assert list(tmp_path.iterdir()) == []


def test_files_of_several_parts_may_be_written_elsewhere(tmp_path, monkeypatch):
    in_small_parts(monkeypatch, 1, 1)
    files = record_files(played(), **NAMES)
    assert all(isinstance(content, bytes) for content in files.values())
    write_files(files, tmp_path / "000")
    assert read_record(tmp_path / "000") == write_record(played(), tmp_path / "000", **NAMES)

"""Logs of the Parallel Workloads Archive, in the Standard Workload Format."""

import gzip
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from noonward.data.import_files import import_files
from noonward.errors import DataError

ARCHIVE = Path(__file__).resolve().parents[2].parent / "shared/data/flexible/NASA-iPSC-1993-3.1-cln.swf.gz"
HEAD = "; Version: 2.2\n; UnixStartTime: 1640995200\n; Queue: 0 interactive\n"  # 2022-01-01T00:00:00Z
ROWS = """
 1  0  10 60  4 -1 -1  8 3600 -1 1 12 3 7 0 -1 -1 -1
 2 90  -1 30 -1 -1 -1  2   -1 -1 0 13 3 7 1  5 -1 -1
 3 95   0 20  2 -1 -1  2   40 -1 5 13 3 7 1 -1 -1 -1
 3 95   0 10  2 -1 -1  2   40 -1 2 13 3 7 1 -1 -1 -1
 4 96   0 -1  2 -1 -1  2   40 -1 5 13 3 7 1 -1 -1 -1
"""


def read(path: Path, text: str = "", **options: object) -> tuple[pl.DataFrame, list[str]]:
    """Reads a file, written first where its text is given: its jobs and account."""
    if text:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    found = import_files([path], **options)  # type: ignore[arg-type]
    assert found.jobs is not None
    return found.jobs, found.accounts[0].lines()


@pytest.mark.parametrize("name", ["log.swf", "log.swf.gz", "log.txt"])
def test_jobs_have_their_users_groups_limits_and_ends(tmp_path: Path, name: str) -> None:
    jobs, account = read(tmp_path / name, HEAD + ROWS)
    names = ("job_id", "submit_time", "start_time", "duration_s", "gpus", "user", "team", "name", "partition")
    assert jobs.select(*names, "limit_s", "state").rows() == [
        ("1", "2022-01-01T00:00:00Z", "2022-01-01T00:00:10Z", 60.0, 4, "12", "3", "7", "interactive", 3600.0, "done"),
        ("2", "2022-01-01T00:01:30Z", None, 30.0, 2, "13", "3", "7", "1", None, "failed"),
        ("3", "2022-01-01T00:01:35Z", "2022-01-01T00:01:35Z", 20.0, 2, "13", "3", "7", "1", 40.0, "cancelled"),
    ]
    assert "  dropped 1: parts of jobs that stand whole in another line" in account
    assert "  read 4: processors are taken as GPUs: the format has no field of GPUs" in account


def test_an_old_log_is_moved_by_whole_weeks_or_refused(tmp_path: Path) -> None:
    old = HEAD.replace("1640995200", "749458803") + ROWS  # Friday, 1 October 1993, 07:00:03 UTC
    with pytest.raises(DataError, match=r"log.swf, line 5: its time, 1993-10-01 07:00, lies before 2000; .*--first"):
        read(tmp_path / "log.swf", old)
    jobs, account = read(tmp_path / "log.swf", old, first_day=date(2022, 10, 1))
    assert jobs["submit_time"][0] == "2022-09-30T07:00:03Z"  # a Friday too
    assert "  changed 3: times moved by 1,513 weeks, to begin on 2022-09-30" in account


def test_what_is_no_such_log_is_refused(tmp_path: Path) -> None:
    for text, says in (
        (HEAD + "1 2 3\n", "log.swf, line 4: 3 fields, but a job of the Standard Workload Format has 18"),
        (HEAD.replace("UnixStartTime", "StartTime") + ROWS, "does not say when it starts; add a line such as"),
        (HEAD, "holds a head and no job"),
        (HEAD + ROWS.replace("60  4 -1", "60 -4 -1"), "line 5, column 'processors': the value '-4' is negative; only"),
        (HEAD + ROWS.replace("3600", "long"), "line 5, column 'time asked': the value 'long' is not a number"),
    ):
        with pytest.raises(DataError, match=says):
            read(tmp_path / "log.swf", text)
    (tmp_path / "log.swf.gz").write_bytes(gzip.compress(b"; Version: 2\n" * 1000)[:-20])
    with pytest.raises(DataError, match=r"log\.swf\.gz cannot be unpacked"):
        read(tmp_path / "log.swf.gz")


@pytest.mark.skipif(not ARCHIVE.is_file(), reason=f"the archive's log is not at {ARCHIVE}")
def test_a_log_of_the_archive_is_read_whole() -> None:
    jobs, account = read(ARCHIVE, first_day=date(2022, 10, 1))
    assert account[0].endswith("18,239 rows in, 18,066 rows out")
    assert (jobs["gpus"] * jobs["duration_s"]).sum() / 3600 == pytest.approx(131_732.78194, abs=1e-4)
    assert jobs["user"].n_unique() == 69

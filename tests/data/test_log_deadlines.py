"""Deadlines of Slurm's accounting, and job tables that hold ``inf``: what an import writes it reads again."""

import json
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from noonward.data.clock import Clock
from noonward.data.jobs.formats import import_jobs
from noonward.data.jobs.logs.log import LogOptions
from noonward.errors import DataError

SACCT = """\
JobID|Submit|Start|End|State|AllocTRES|Deadline
1|2024-01-02T00:00:00|2024-01-02T00:10:00|2024-01-02T01:10:00|COMPLETED|gres/gpu=2|2024-01-02T05:00:00
2|2024-01-02T00:00:00|2024-01-02T00:10:00|2024-01-02T01:10:00|COMPLETED|gres/gpu=2|Unknown
"""


def test_deadlines_of_sacct_are_times_by_which_jobs_must_end(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(SACCT)
    jobs, account = import_jobs(tmp_path / "sacct.txt", LogOptions(clock=Clock("Europe/Berlin")))
    assert jobs["deadline"].to_list() == ["2024-01-02T04:00:00Z", None]
    assert {each.why: each.count for each in account.entries}["deadlines: jobs must end by them"] == 1
    moved, _ = import_jobs(tmp_path / "sacct.txt", LogOptions(clock=Clock("UTC"), first_day=date(2024, 1, 9)))
    assert moved["deadline"][0] == "2024-01-09T05:00:00Z"


def test_deadlines_of_sacct_as_json(tmp_path: Path) -> None:
    job = {
        "job_id": 1, "state": {"current": ["COMPLETED"]},
        "time": {"submission": 1704153600, "start": 1704154200, "end": 1704157800, "elapsed": 3600,
                 "deadline": {"set": True, "infinite": False, "number": 1704171600}},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]},
    }  # fmt: skip
    (tmp_path / "sacct.json").write_text(json.dumps({"jobs": [job]}))
    jobs, _ = import_jobs(tmp_path / "sacct.json", LogOptions())
    assert jobs["deadline"].to_list() == ["2024-01-02T05:00:00Z"]


@pytest.mark.parametrize(("text", "slack_s"), [("inf", float("inf")), ("Inf", float("inf")), ("3600", 3600.0)])
def test_jobs_without_a_limit_of_their_delay_are_read_again(tmp_path: Path, text: str, slack_s: float) -> None:
    (tmp_path / "jobs.csv").write_text(
        f"job_id,submit_time,duration_s,gpus,slack_s\n1,2024-01-02T00:00:00Z,600,2,{text}\n"
    )
    jobs, _ = import_jobs(tmp_path / "jobs.csv", LogOptions())
    assert jobs["slack_s"].cast(pl.Float64).to_list() == [slack_s]


def test_other_numbers_are_never_endless(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submit_time,duration_s,gpus,data_gb\n1,2024-01-02T00:00:00Z,600,2,inf\n")
    with pytest.raises(DataError, match="'inf' is not a number"):
        import_jobs(tmp_path / "jobs.csv", LogOptions())

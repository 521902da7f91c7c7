"""``noonward advise`` on the command line: table, CSV, commands for Slurm, files and squeue itself, bad input."""

import csv
import io
import json
import re
from datetime import UTC, datetime

import pytest

from live.advise.test_squeue import SCREEN, TABLE
from live.slurm_site import MISSING, SlurmSite
from noonward.live.advise.squeue import EXPORT, parse_queue

HEAD = "timestamp,zone,price_usd_per_mwh,carbon_intensity_g_per_kwh\n"
NOW = ("--now", "2026-03-14 12:00")


@pytest.fixture
def fleet(noonward, tmp_path):
    """A fleet of two sites, as ``noonward init`` writes it, with files of signals: north is cheap at night."""
    rows = [
        f"2026-03-{day:02}T{hour:02}:00:00Z,{zone},{price if 0 < hour < 6 else 4 * price},{4 * price}"
        for day in range(1, 15)
        for hour in range(24)
        for zone, price in (("DE", 20), ("FR", 40))
    ]
    (tmp_path / "signals.csv").write_text(HEAD + "\n".join(rows) + "\n")
    made = noonward(
        "init", "mine.yaml", "--site", "north=DE:16xA100-80-SXM", "--site", "south=FR:16xA100-80-SXM", "--signals",
        "signals.csv",
    )  # fmt: skip
    assert made.code == 0, made.err
    (tmp_path / "q.txt").write_text(TABLE)
    return "mine.yaml"


def test_a_table_csv_and_commands(noonward, fleet):
    given = ("advise", "--queue", "q.txt", "--fleet", fleet, "--at", "south", "--run-hours", 1, *NOW)
    table = noonward(*given)
    assert table.code == 0, table.err
    assert "12 waiting jobs" in table.out
    assert "note: q.txt: 1 jobs without GPUs are left out" in table.out
    rows = list(csv.DictReader(io.StringIO(noonward(*given, "--format", "csv").out)))
    found = json.loads(noonward(*given, "--json").out)
    assert [job["job"] for job in found["jobs"]] == [row["job"] for row in rows]
    assert [job["start_utc"] or "" for job in found["jobs"]] == [row["start_utc"] for row in rows]
    assert [row["job"] for row in rows] == ["2", "3", "4", "5_0", "5_1", "5_2", "5_3", "5_9", "6", "7", "11", "12"]
    assert rows[0] | {"site": "north", "start_utc": "2026-03-15T01:00:00Z", "queued_at": "south"} == rows[0]
    assert float(rows[0]["saved_usd"]) > 0
    assert (rows[8]["site"], rows[8]["reason"]) == ("", "its owner holds it")
    lines = noonward(*given, "--format", "sbatch").out.splitlines()
    begin = datetime(2026, 3, 15, 1, tzinfo=UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    assert lines[1].startswith("# Jobs that move are submitted again with what the queue says of them")
    lines = [line for line in lines if "&& scancel" in line]
    assert lines[0].startswith(
        f"sbatch --clusters=north --begin={begin} --job-name=plain --time=30:00 --nodes=1 --ntasks=1 --gres=gpu:1 "
        "'/home/a b/train.sh' && scancel 2  # plain: "
    )
    assert " '--job-name=gpus per job' --time=1-02:04:00 --nodes=2 --ntasks=1 --gpus=4 SCRIPT && scancel 3 " in lines[1]
    assert lines[3].startswith(f"sbatch --clusters=north --begin={begin} --array=0 --job-name=array --time=10:00 ")
    assert lines[3].split("  #")[0].endswith("--gres=gpu:1 SCRIPT && scancel 5_0")
    stays = noonward(*given[:5], "--at", "north", *given[7:], "--format", "sbatch").out.splitlines()
    assert stays[1].startswith(f"scontrol update JobId=2 StartTime={begin}  # plain: ")
    assert all(line.startswith(("#", "sbatch ", "scontrol update ")) for line in lines + stays)


def test_two_files_and_a_waiting_time(noonward, fleet):
    given = ("advise", "--queue", "south=q.txt", "--queue", "north=q.txt", "--fleet", fleet, "--run-hours", 1, *NOW)
    rows = list(csv.DictReader(io.StringIO(noonward(*given, "--later-h", 0, "--format", "csv").out)))
    assert {row["queued_at"] for row in rows} == {"north", "south"}
    assert all(row["start_utc"] <= "2026-03-14T16" for row in rows if row["site"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give the queue's file (--queue FILE), or --slurm"),
        (("--queue", "q.txt", "--slurm"), "one of both"),
        (("--queue", "none.txt"), "none.txt cannot be read: No such file or directory"),
        (("--queue", "screen.txt"), "screen.txt, line 1: this is squeue's table for the screen"),
        (("--queue", "bytes.txt"), "bytes.txt is not UTF-8"),
        (("--queue", "q.txt"), "say whose queue it is: --at SITE"),
        (("--queue", "q.txt", "--at", "south", "--now", "noon"), "--now: 'noon' is not a time"),
        (("--queue", "q.txt", "--at", "south", "--now", "2026-04-01"), "bring the signal files up to date"),
        (("--queue", "q.txt", "--at", "south", "--policy", "booked-perfect"), "reads the future"),
        (("--slurm",), "squeue"),
    ],
)
def test_bad_input_is_one_clear_error(noonward, fleet, tmp_path, monkeypatch, words, said):
    (tmp_path / "screen.txt").write_text(SCREEN)
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = noonward("advise", "--fleet", fleet, *(() if "--now" in words else NOW), *words)
    assert found.code == 2
    assert said in found.err
    assert found.err.count("error:") == 1


def test_squeue_is_asked_as_the_message_says(noonward, fleet, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "squeue"
    stub.write_text(
        f"#!/bin/sh\n[ \"$1\" = -O ] && /bin/cat {tmp_path}/q.txt || {{ echo 'wrong options' >&2; exit 1; }}\n"
    )
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = noonward("advise", "--slurm", "--fleet", fleet, "--at", "south", "--run-hours", 1, *NOW)
    assert found.code == 0, found.err
    assert "12 waiting jobs" in found.out
    assert re.match(r'squeue -O "', EXPORT)


@pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")
def test_the_command_of_the_message_works_on_a_real_cluster():
    with SlurmSite("a", nodes=2, gpus=2) as site:
        quiet = ("--output=/dev/null", "--wrap", "sleep 60")
        site.call("sbatch", "--hold", "--gpus=3", "--time=10", "-J", "by|job", *quiet)
        site.call("sbatch", "--hold", "--gres=gpu:1", "--nodes=2", "--array=1-3%1", "--time=1-1:00:00", *quiet)
        table, content = site.call("sh", "-c", EXPORT), site.call("squeue", "--json")
    for text in (table, content):
        jobs = {job.id: (job.gpus, job.left_s, job.name) for job in parse_queue(text, "squeue", 0.0).jobs}
        assert jobs == {"1": (3, 600.0, "by|job"), **{f"2_{task}": (2, 90000.0, "wrap") for task in (1, 2, 3)}}

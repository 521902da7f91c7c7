"""Standard Workload Format (version 2.2): logs of the Parallel Workloads Archive, 18 numbers a job.

The fields, -1 for missing: job, submission (s since the log's start), wait (s), run time (s), processors, CPU time,
memory, processors asked for, time asked for (s), memory asked for, status, user, group, program, queue, partition,
preceding job, think time. The head's lines begin with ``;``; ``UnixStartTime`` says when the log starts.

There is no field of GPUs: processors are taken as GPUs, and the account says so. Lines of status 2 to 4 are parts of
jobs that stand whole in another line.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from noonward.data.account import Account
from noonward.data.jobs.logs.log import LOG_COLUMNS, LogFormat, LogOptions
from noonward.data.text_table import TextFile, text_table
from noonward.errors import DataError

FIELDS: Final = (
    "job", "submit", "wait", "run", "processors", "cpu time", "memory", "processors asked", "time asked",
    "memory asked", "status", "user", "group", "program", "queue", "partition", "preceding job", "think time",
)  # fmt: skip
"""Fields of a line, in order."""
_STATES: Final = {0: "failed", 1: "done", 5: "cancelled"}
_PARTS: Final = (2, 3, 4)
_HEAD: Final = re.compile(r"^;\s*(Version|Computer|UnixStartTime|MaxJobs|MaxProcs)\s*:", re.MULTILINE)


def _recognises(file: TextFile) -> bool:
    return file.start.startswith(";") and _HEAD.search(file.text[:20_000]) is not None


def _read(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    lines, rows, bad = [], [], []
    for number, line in enumerate(file.text.splitlines(), start=1):
        fields = line.split()
        if not fields or line.lstrip().startswith(";"):
            continue
        if len(fields) != len(FIELDS):
            bad.append((number, len(fields)))
            continue
        lines.append(number)
        rows.append(fields)
    file.refuse_lengths(bad, f"a job of the Standard Workload Format has {len(FIELDS)}", "correct or remove the line")
    if not rows:
        raise DataError(f"{file.name} holds a head and no job; download it again")
    table = text_table(file, FIELDS, rows, lines)
    account.rows_in = len(rows)
    field = {name: table.numbers(name, "a number, -1 where it is unknown", decimal=".") for name in FIELDS}
    for name in ("processors", "processors asked"):
        table.refuse(field[name] < -1, name, "is negative; only -1 may be, for an unknown number")
    frame = pl.DataFrame({"line": table.frame["line"], **field})
    status = frame["status"].cast(pl.Int64)
    parts = status.is_in(list(_PARTS))
    account.add("dropped", int(parts.sum()), "parts of jobs that stand whole in another line")
    frame = frame.with_columns(status).filter(~parts)
    frame = frame.with_columns(pl.when(pl.col(name) >= 0).then(name).alias(name) for name in FIELDS)
    asked = frame["processors"].is_null() | (frame["processors"] == 0)
    gpus = frame["processors"].set(asked, None).fill_null(frame["processors asked"])
    account.add("read", frame.height, "processors are taken as GPUs: the format has no field of GPUs")
    submit = (frame["submit"] * 1e6).round().cast(pl.Int64) + _start_s(file) * 1_000_000
    queues = _names(file, "Queue")
    return pl.DataFrame(
        {
            "line": frame["line"],
            "job_id": _numbered(frame["job"]),
            "submit_time": submit.cast(pl.Datetime("us")),
            "start_time": (submit + (frame["wait"] * 1e6).round().cast(pl.Int64)).cast(pl.Datetime("us")),
            "end_time": None,
            "duration_s": frame["run"],
            "gpus": gpus.cast(pl.Int64),
            "origin": None,
            "gpu_type": None,
            "state": frame["status"].replace_strict(_STATES, default=None, return_dtype=pl.String),
            "user": _numbered(frame["user"]),
            "team": _numbered(frame["group"]),
            "name": _numbered(frame["program"]),
            "partition": _numbered(frame["queue"]).replace(queues).fill_null(_numbered(frame["partition"])),
            "limit_s": frame["time asked"].set(frame["time asked"] == 0, None),
        },
        schema=dict(LOG_COLUMNS),
    )


def _start_s(file: TextFile) -> int:
    """Returns when the log starts, seconds since 1970-01-01 UTC.

    Raises:
        DataError: The head does not say.
    """
    match = re.search(r"^;\s*UnixStartTime\s*:\s*(\d+)\s*$", file.text, re.MULTILINE)
    if match is None:
        raise DataError(
            f"{file.name} does not say when it starts; add a line such as '; UnixStartTime: 1640995200' (seconds since "
            "1970-01-01 UTC) to its head"
        )
    return int(match[1])


def _names(file: TextFile, what: str) -> dict[str, str]:
    """Returns the names that the head gives to numbers, as in ``; Queue: 0 interactive``."""
    matches = re.findall(rf"^;\s*{what}\s*:\s+(\d+)\s+(\S.*?)\s*$", file.text, re.MULTILINE)
    return dict(matches)


def _numbered(numbers: pl.Series) -> pl.Series:
    """Returns whole numbers as text; null where they are unknown."""
    return numbers.cast(pl.Int64).cast(pl.String)


FORMAT = LogFormat(name="swf", title="Standard Workload Format (.swf)", recognises=_recognises, read=_read)

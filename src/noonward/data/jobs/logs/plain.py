"""Any other table of jobs: one row a job, columns by their usual names or as the user names them."""

from __future__ import annotations

from typing import Final

import polars as pl

from noonward.data.account import Account
from noonward.data.jobs.logs.log import (
    LogFormat,
    LogOptions,
    elapsed_s,
    find_columns,
    limits_s,
    log_times,
    named_columns,
    texts_of,
)
from noonward.data.text_table import TextFile, TextTable
from noonward.errors import DataError

NAMES: Final = {
    "job_id": ("job_id", "jobid", "job id", "job", "id"),
    "submit_time": ("submit_time", "submitted", "submit", "submission_time", "submitted_at", "created", "created_at",
                    "arrival", "arrival_time", "queued_at"),
    "start_time": ("start_time", "started", "start", "started_at"),
    "end_time": ("end_time", "ended", "end", "finished", "finished_at", "completed_at", "completion_time"),
    "duration_s": ("duration_s", "runtime_s", "run_time_s", "elapsed_s", "duration_seconds", "elapsedraw"),
    "duration_min": ("duration_min", "runtime_min", "duration_minutes"),
    "duration_h": ("duration_h", "runtime_h", "hours", "duration_hours"),
    "elapsed": ("elapsed", "duration", "runtime"),
    "gpus": ("gpus", "num_gpus", "gpu_count", "n_gpus", "ngpus", "gpu_num", "gpu"),
    "gpu_type": ("gpu_type", "gpu_model"),
    "origin": ("origin", "cluster", "ingress"),
    "state": ("state", "status", "job_state"),
    "user": ("user", "user_id", "username", "user_name", "owner", "uid"),
    "team": ("team", "account", "project", "vc", "organization"),
    "name": ("name", "job_name", "jobname"),
    "partition": ("partition", "queue", "queue_name"),
    "limit_s": ("limit_s", "time_limit_s", "timelimit_s", "walltime_s", "max_run_time_s"),
    "limit_min": ("limit_min", "timelimitraw", "time_limit_min"),
    "limit_h": ("limit_h", "time_limit_h"),
    "limit": ("limit", "timelimit", "time_limit", "walltime"),
    "class": ("class",),
    "site": ("site",),
    "start_site": ("start_site", "ran_at", "run_site", "execution_site"),
    "slack_s": ("slack_s",),
    "deadline": ("deadline", "due", "end_by"),
    "data_gb": ("data_gb",),
    "model_gb": ("model_gb",),
    "result_gb": ("result_gb",),
}  # fmt: skip
"""Usual names of a column, by key; the keys are what ``--column`` takes."""
_MISSING: Final = ("", "-", "none", "null", "nan", "unknown")
_SECONDS: Final = {"duration_s": 1.0, "duration_min": 60.0, "duration_h": 3600.0}


def _recognises(file: TextFile) -> bool:
    names = set(file.names())
    return bool(names & set(NAMES["gpus"])) and bool(names & (set(NAMES["submit_time"]) | set(NAMES["start_time"])))


def _read(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    table = file.table()
    account.rows_in = table.frame.height
    column = find_columns(table, NAMES, options, account)
    if column["gpus"] is None:
        raise _missing(table, "GPUs", "gpus")
    waits = column["partition"]
    if waits is not None and "partition" not in options.columns and _all_numbers(table.frame[waits]):
        account.add("read", table.frame.height, f"column {waits!r} holds numbers: taken as waiting times, not as names")
        column["partition"] = None
    nothing = pl.Series([None]).new_from_index(0, table.frame.height)
    texts = texts_of(table, column, "job_id", "origin", "gpu_type", "state", "user", "team", "name", "partition")
    times = {
        key: nothing.cast(pl.Datetime("us"))
        if (name := column[key]) is None
        else log_times(table, name, options, account, _MISSING)
        for key in ("submit_time", "start_time", "end_time")
    }
    if column["submit_time"] is None:
        if column["start_time"] is None:
            raise _missing(table, "the times of submission", "submit_time")
        times["submit_time"] = times["start_time"]
        account.add("read", table.frame.height, "there is no time of submission: that of the start is taken")
    gpus = table.numbers(column["gpus"], "a number of GPUs", decimal=options.decimal).fill_null(0)
    table.refuse((gpus != gpus.floor()) | (gpus < 0), column["gpus"], "is no whole number of GPUs")
    frame = {
        "line": table.frame["line"],
        **texts,
        **times,
        "duration_s": _duration(table, column, options),
        "gpus": gpus.cast(pl.Int64),
        "limit_s": limits_s(table, column),
        **named_columns(table, options),
    }
    frame |= {
        key: table.numbers(name, "a number of at least 0", decimal=options.decimal, inf=key == "slack_s")
        for key in ("slack_s", "data_gb", "model_gb", "result_gb")
        if (name := column[key]) is not None
    }
    if column["deadline"] is not None:
        if column["slack_s"] is not None:
            raise DataError(
                f"{table.file.name} has both {column['deadline']!r} and {column['slack_s']!r}; leave one out: both say "
                "when a job is late"
            )
        due = log_times(table, column["deadline"], options, account, _MISSING)
        frame["slack_s"] = _slack_s(due, times, frame["duration_s"])
        account.add("read", int(due.is_not_null().sum()), "deadlines became the largest delay of a start (slack_s)")
    frame |= {key: table.frame[name] for key in ("class", "site", "start_site") if (name := column[key]) is not None}
    return pl.DataFrame(frame)


def _all_numbers(texts: pl.Series) -> bool:
    """Returns whether all texts that are not empty are numbers, as in the column ``queue`` of Helios and Acme (s)."""
    stated = texts.drop_nulls().filter(texts.drop_nulls() != "")
    return len(stated) > 0 and stated.cast(pl.Float64, strict=False).is_not_null().all()


def _slack_s(due: pl.Series, times: dict[str, pl.Series], duration_s: pl.Series) -> pl.Series:
    """Returns the slack that leaves jobs their deadlines, s, at least 0; infinite for jobs without one."""
    ran_s = (times["end_time"] - times["start_time"]).dt.total_microseconds() / 1e6
    spare_s = (due - times["submit_time"]).dt.total_microseconds() / 1e6 - duration_s.fill_null(ran_s)
    return spare_s.clip(lower_bound=0.0).fill_null(float("inf"))


def _duration(table: TextTable, column: dict[str, str | None], options: LogOptions) -> pl.Series:
    """Returns the run times, s; null where the table states none."""
    for key, seconds in _SECONDS.items():
        name = column[key]
        if name is not None:
            value = table.numbers(name, key.replace("_", " in "), decimal=options.decimal)
            table.refuse(value < 0, name, "is negative; a run time is at least 0")
            return value * seconds
    name = column["elapsed"]
    if name is not None and (
        column["end_time"] is None or column["start_time"] is None or "elapsed" in options.columns
    ):
        return elapsed_s(table, name)
    if column["end_time"] is None or column["start_time"] is None:
        raise _missing(table, "the run times (nor both start and end)", "duration_s")
    return pl.Series([None], dtype=pl.Float64).new_from_index(0, table.frame.height)


def _missing(table: TextTable, what: str, key: str) -> DataError:
    names = ", ".join(name for name in table.frame.columns if name != "line")
    return DataError(
        f"{table.file.name}: no column holds {what} by its name; columns: {names}; say which one: --column "
        f"'{key}=NAME' "
        f"(keys: {', '.join(NAMES)})"
    )


FORMAT = LogFormat(name="jobs", title="table of jobs", recognises=_recognises, read=_read, keys=tuple(NAMES))

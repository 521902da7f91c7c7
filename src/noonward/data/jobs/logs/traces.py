"""Public traces of GPU clusters in their own layouts: Alibaba's openb and PAI, Microsoft's Philly, MIT Supercloud.

Alibaba's times are seconds since a start that the trace does not tell: ``--first-day`` says where they lie. Read as
seconds since 1970, those of PAI have the true weekday and hour (UTC+8), by whole weeks away from the true date.
SenseTime's Helios and Shanghai's Acme are plain tables of jobs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, time_of
from noonward.data.jobs.logs.log import LOG_COLUMNS, LogFormat, LogOptions
from noonward.data.text_table import TextFile, TextTable
from noonward.errors import DataError

_PODS: Final = {"name", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "deletion_time", "scheduled_time"}
_TASKS: Final = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
"""Columns of PAI's table of tasks, whose file has no header."""
_TASK_STATES: Final = ("terminated", "failed", "running", "waiting", "interrupted")
_SLURM_ROWS: Final = {"id_job", "time_submit", "time_start", "time_end", "timelimit", "state", "tres_alloc"}
_SLURM_STATES: Final = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL",
                        "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")  # fmt: skip
"""Words of the numbers that Slurm's database holds for the states of jobs."""
_NO_LIMIT_MIN: Final = 4294967295
"""What Slurm's database holds for a job without a time limit, min."""
_SHARES: Final = "jobs asked for shares of GPUs: a job's sum is rounded up to whole GPUs"
_PACIFIC: Final = Clock("America/Los_Angeles")


def _is_pods(file: TextFile) -> bool:
    return set(file.names()) >= _PODS


def _read_pods(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    table = file.table()
    account.rows_in = table.frame.height
    count, milli = (table.numbers(table.column(name), "a number", decimal=".") for name in ("num_gpu", "gpu_milli"))
    created, began, ended = (_seconds(table, name) for name in ("creation_time", "scheduled_time", "deletion_time"))
    kind = table.find("gpu_spec")
    return _frame(
        table,
        account,
        gpus=count.fill_null(0) * milli.fill_null(0) / 1000,
        job_id=table.frame[table.column("name")],
        submit_time=created,
        start_time=began,
        end_time=ended,
        gpu_type=None
        if kind is None
        else table.frame[kind].set(table.frame[kind].str.contains("|", literal=True), None),
        state=table.frame[table.column("pod_phase")],
    )


def _is_tasks(file: TextFile) -> bool:
    if file.names() == list(_TASKS):
        return True
    first = file.header()
    return len(first) == len(_TASKS) and first[3].lower() in _TASK_STATES


def _read_tasks(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    if file.names() != list(_TASKS):
        # The header takes the place of no line: a first line is put before the text, and lines count from 1 again.
        headed = TextFile(path=file.path, text=",".join(_TASKS) + "\n" + file.text, encoding=file.encoding)
        table = headed.table()
        table = TextTable(file=file, frame=table.frame.with_columns(pl.col("line") - 1))
    else:
        table = file.table()
    account.rows_in = table.frame.height
    percent, instances = (table.numbers(name, "a number", decimal=".") for name in ("plan_gpu", "inst_num"))
    began, ended = (_seconds(table, name) for name in ("start_time", "end_time"))
    account.add(
        "read", table.frame.height, "tasks are jobs; there is no time of submission: that of the start is taken"
    )
    return _frame(
        table,
        account,
        gpus=percent.fill_null(0) / 100 * instances.fill_null(0),
        job_id=table.frame["job_name"] + "/" + table.frame["task_name"],
        submit_time=began,
        start_time=began,
        end_time=ended,
        gpu_type=table.frame["gpu_type"],
        state=table.frame["status"],
        name=table.frame["task_name"],
    )


def _is_slurm_rows(file: TextFile) -> bool:
    return set(file.names()) >= _SLURM_ROWS


def _read_slurm_rows(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    """Reads rows of Slurm's own table of jobs, as MIT Supercloud has published them: numbers for states and resources.

    Resource 1001 counts GPUs (the first one that a site adds); where a row has none, 1002, GPUs of one type.
    """
    table = file.table()
    account.rows_in = table.frame.height
    resources = table.frame[table.column("tres_alloc")].fill_null("")
    gpus, typed = (resources.str.extract(rf"(?:^|,)\s*{key}=(-?\d+)").cast(pl.Float64) for key in (1001, 1002))
    submitted, began, ended = (_seconds(table, name) for name in ("time_submit", "time_start", "time_end"))
    number = table.numbers(table.column("state"), "the number of a state", decimal=".")
    table.refuse(
        ~number.is_in([float(each) for each in range(len(_SLURM_STATES))]),
        "state",
        "is no state of Slurm's database (0 to 11)",
    )
    limit = table.numbers(table.column("timelimit"), "minutes", decimal=".")
    texts = {key: name for key in ("id_user", "partition") if (name := table.find(key)) is not None}
    return _frame(
        table,
        account,
        gpus=gpus.fill_null(typed).fill_null(0.0),
        job_id=table.frame[table.column("id_job")],
        submit_time=submitted,
        start_time=began.set(began == datetime(1970, 1, 1), None),
        end_time=ended.set(ended == datetime(1970, 1, 1), None),
        state=number.cast(pl.Int64).replace_strict(dict(enumerate(_SLURM_STATES)), return_dtype=pl.String),
        user=table.frame[texts["id_user"]] if "id_user" in texts else None,
        partition=table.frame[texts["partition"]] if "partition" in texts else None,
        limit_s=(limit * 60.0).set((limit == 0) | (limit >= _NO_LIMIT_MIN), None),
    )


def _frame(table: TextTable, account: Account, *, gpus: pl.Series, **columns: pl.Series | None) -> pl.DataFrame:
    """Returns a log's frame, with shares of GPUs rounded up to whole ones."""
    whole = gpus.abs().ceil() * gpus.sign()
    account.add("read", int((whole != gpus).sum()), _SHARES)
    frame = pl.DataFrame({"line": table.frame["line"], "gpus": whole.cast(pl.Int64)})
    for name, kind in LOG_COLUMNS.items():
        if name not in frame.columns:
            values = columns.get(name)
            texts = None if values is None or values.dtype != pl.String else values.set(values == "", None)
            frame = frame.with_columns((values if texts is None else texts).alias(name) if values is not None
                                       else pl.lit(None, dtype=kind).alias(name))  # fmt: skip
    return frame.select(list(LOG_COLUMNS))


def _seconds(table: TextTable, name: str) -> pl.Series:
    """Returns a column of seconds as times since 1970, UTC without zone; null where it is empty."""
    seconds = table.numbers(table.column(name), "seconds", decimal=".")
    return (seconds * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us"))


def _is_philly(file: TextFile) -> bool:
    head = file.text[:20_000]
    return file.start.startswith("[") and '"attempts"' in head and '"submitted_time"' in head


def _read_philly(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    jobs = file.json("download it again")
    rows = [row for job in jobs for row in _attempts(job, file)]
    account.rows_in = len(rows)
    account.add("read", len(rows) - len(jobs), "further attempts are jobs of their own, submitted when they began")
    account.add("read", len(rows), "times of the Pacific coast became UTC")
    return pl.DataFrame(rows, schema=dict(LOG_COLUMNS))


def _attempts(job: dict[str, Any], file: TextFile) -> list[dict[str, Any]]:
    """Returns a row per attempt of a job; one without a start where there was none."""
    try:
        attempts = job["attempts"] or [{}]
        rows = []
        for number, attempt in enumerate(attempts):
            start, end = (_pacific(attempt.get(key)) for key in ("start_time", "end_time"))
            last = number == len(attempts) - 1
            rows.append(
                {
                    "job_id": job["jobid"] if number == 0 else f"{job['jobid']}#{number + 1}",
                    "submit_time": _pacific(job["submitted_time"]) if number == 0 else start,
                    "start_time": start,
                    "end_time": end,
                    "gpus": sum(len(each.get("gpus") or []) for each in attempt.get("detail") or []),
                    "state": job["status"] if last else "Failed",
                    "user": job.get("user"),
                    "team": job.get("vc"),
                }
            )
        return rows
    except (KeyError, TypeError, AttributeError, DataError) as error:
        name = job.get("jobid") if isinstance(job, dict) else job
        raise DataError(f"{file.name}, job {name!r}: {error}; download the file again") from error


def _pacific(text: str | None) -> datetime | None:
    if text is None or text in ("", "None"):
        return None
    return time_of(text, _PACIFIC).replace(tzinfo=None)


FORMATS: Final = (
    LogFormat(name="openb", title="Alibaba openb pods (2023)", recognises=_is_pods, read=_read_pods),
    LogFormat(name="pai", title="Alibaba PAI tasks (2020)", recognises=_is_tasks, read=_read_tasks),
    LogFormat(name="philly", title="Microsoft Philly jobs (2017)", recognises=_is_philly, read=_read_philly),
    LogFormat(
        name="supercloud",
        title="rows of Slurm's database (MIT Supercloud)",
        recognises=_is_slurm_rows,
        read=_read_slurm_rows,
    ),
)
"""Formats of this module."""

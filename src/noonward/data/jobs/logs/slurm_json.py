"""Slurm accounting as JSON: the output of ``sacct --json``, of any version. Times are seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl

from noonward.data.account import Account
from noonward.data.jobs.logs.log import LOG_COLUMNS, LogFormat, LogOptions
from noonward.data.jobs.logs.slurm import gpus_of
from noonward.data.text_table import TextFile
from noonward.errors import DataError


def _recognises(file: TextFile) -> bool:
    head = file.text[:20_000]
    return file.start.startswith("{") and '"jobs"' in head and ('"tres"' in head or '"job_state"' in head)


def _read(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    content = file.json("write it again: sacct --json")
    jobs = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(jobs, list) or not jobs:
        raise DataError(f"{file.name} holds no job; write it again: sacct --json --starttime 2024-01-01")
    if "job_state" in jobs[0]:
        raise DataError(
            f"{file.name} is JSON of squeue or scontrol, whose jobs have not ended; write the accounting: sacct --json"
        )
    account.rows_in = len(jobs)
    resources = [_resources(job) for job in jobs]
    gpus, kinds = gpus_of([[text] for text in resources], account)
    rows = [{**_row(job, file), "gpus": n, "gpu_type": kind} for job, n, kind in zip(jobs, gpus, kinds, strict=True)]
    return pl.DataFrame(rows, schema={**LOG_COLUMNS, "deadline": pl.Datetime("us")})


def _row(job: dict[str, Any], file: TextFile) -> dict[str, Any]:
    """Returns the row of a job, but for its GPUs."""
    try:
        time, array, of = job["time"], job.get("array") or {}, job.get("association") or {}
        start, end = _instant(time.get("start")), _instant(time.get("end"))
        state = (job.get("state") or {}).get("current")
        task = _number(array.get("task_id"))
        job_id = str(job["job_id"]) if task is None else f"{_number(array.get('job_id')) or 0:.0f}_{task:.0f}"
        limit_min = _number(time.get("limit"))
        elapsed_s = _number(time.get("elapsed"))
        return {
            "line": None,
            "job_id": job_id,
            "submit_time": _instant(time.get("submission")),
            "start_time": start,
            "end_time": end,
            "duration_s": elapsed_s if start is not None and end is not None else None,
            "origin": job.get("cluster") or of.get("cluster"),
            "state": state[0] if isinstance(state, list) else state,
            "user": job.get("user") or of.get("user"),
            "team": job.get("account") or of.get("account"),
            "name": job.get("name"),
            "partition": job.get("partition"),
            "limit_s": None if not limit_min else 60.0 * limit_min,
            "deadline": _instant(time.get("deadline")),
        }
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        name = job.get("job_id") if isinstance(job, dict) else job
        raise DataError(f"{file.name}, job {name!r}: {error!r}; write the file again: sacct --json") from error


def _resources(job: dict[str, Any]) -> str:
    """Returns a job's generic resources as sacct prints them: those allocated, else those asked for."""
    tres = job.get("tres") or {}
    for key in ("allocated", "requested"):
        found = [
            f"gres/{each.get('name')}={int(_number(each.get('count')) or 0)}"
            for each in tres.get(key) or []
            if each.get("type") == "gres"
        ]
        if found:
            return ",".join(found)
    return ""


def _number(value: Any) -> float | None:
    """Returns a number, which newer layouts wrap as ``{"set": true, "infinite": false, "number": 60}``."""
    if isinstance(value, dict):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else float(value)


def _instant(value: Any) -> datetime | None:
    """Returns the UTC time of seconds since 1970; 0 stands for none."""
    seconds = _number(value)
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None) if seconds else None


FORMAT = LogFormat(
    name="slurm-json", title="Slurm accounting as JSON (sacct --json)", recognises=_recognises, read=_read
)

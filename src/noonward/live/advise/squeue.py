"""Queues as ``squeue`` prints them: waiting jobs, and GPUs that running jobs hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from noonward.errors import DataError
from noonward.units import DAY_S, HOUR_S, MINUTE_S

FIELDS: Final = (
    "JobArrayID", "Partition", "State", "TimeLimit", "TimeLeft", "NumNodes", "NumTasks", "tres-per-job",
    "tres-per-node", "tres-per-task", "Reason", "UserName", "Command", "Name",
)  # fmt: skip
EXPORT: Final = f'squeue -O "{",".join(f"{field}:|" for field in FIELDS)}"'
"""The command whose output holds all that is needed; the name comes last, since it may hold the separator."""
_ALIKE: Final = {
    "jobid": "id", "st": "state", "timelimit": "limit", "timelimi": "limit", "timeleft": "left", "time": "used",
    "username": "user", "numnodes": "nodes", "numtasks": "tasks", "gres": "trespernode", "nodelistreason": "reason",
}  # fmt: skip
_WAITING: Final = frozenset({"PENDING", "PD", "REQUEUED", "RQ"})
_RUNNING: Final = frozenset(
    {"RUNNING", "R", "COMPLETING", "CG", "CONFIGURING", "CF", "SUSPENDED", "S", "STOPPED", "ST", "STAGE_OUT", "SO"}
)
NOT_NOW: Final = {
    "Dependency": "it waits for other jobs",
    "DependencyNeverSatisfied": "the jobs it waits for failed",
    "JobHeldUser": "its owner holds it",
    "JobHeldAdmin": "an administrator holds it",
    "BeginTime": "its owner has set when it begins",
}
"""Reasons for which a job is not up to a scheduler."""
_DURATION: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)|(?:(\d+)-)(\d+)|(\d+)")
_NO_DURATION: Final = frozenset({"", "unlimited", "invalid", "not_set", "n/a", "none", "partition_limit", "infinite"})
_NOTHING: Final = frozenset({"", "n/a", "(null)", "none"})
MOST_TASKS: Final = 10_000
"""Tasks of arrays, at most."""


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job of a queue.

    Attributes:
        id: Its number; of a task, with the task's.
        name: Name.
        running: Whether it holds GPUs now.
        gpus: GPUs; 0: none.
        left_s: Time limit of a waiting job, or what is left of a running one's, s; None: no limit.
        cluster: Cluster, if the queue says it.
        partition: Partition.
        command: Its script, if there is one.
        not_now: Why no scheduler may start it now; empty: it may be started.
        options: What it asks for, as options of sbatch, as far as the queue says it.
        user: Whose it is; empty where the queue does not say it.
        limit_s: Time limit, s; None: none.
    """

    id: str
    name: str
    running: bool
    gpus: int
    left_s: float | None
    cluster: str | None
    partition: str
    command: str | None
    not_now: str
    options: tuple[str, ...] = ()
    user: str = ""
    limit_s: float | None = None


@dataclass(frozen=True)
class Queue:
    """A queue as it was read.

    Attributes:
        jobs: Jobs, in the order of the queue.
        notes: What was left out or assumed.
    """

    jobs: list[QueuedJob]
    notes: list[str]


def parse_queue(text: str, source: str, now_s: float) -> Queue:
    """Returns the jobs of ``squeue``'s output: columns with a separator, or ``--json``.

    Args:
        text: The output.
        source: Its name, for messages.
        now_s: When it was made, s since 1970; what is left of running jobs counts from then where the output names
            their ends alone.

    Raises:
        DataError: It is none, lacks what is needed, or a value cannot be read; the message names line and remedy.
    """
    rows = list(_json_rows(text, source, now_s) if text.lstrip().startswith("{") else text_rows(text, source))
    jobs: list[QueuedJob] = []
    left_out = {"parts of heterogeneous jobs": 0, "jobs without GPUs": 0}
    by_node_alone = 0
    for where, row in rows:
        state = row["state"].split()[0].upper() if row["state"] else ""
        if state not in _WAITING | _RUNNING:
            continue
        if "+" in row["id"]:
            left_out["parts of heterogeneous jobs"] += 1
            continue
        gpus = gpus_of_row(row, where)
        if gpus == 0:
            left_out["jobs without GPUs"] += 1
            by_node_alone += "tresperjob" not in row
            continue
        jobs += _tasks(row, where, state in _RUNNING, gpus)
        if len(jobs) > MOST_TASKS:
            raise DataError(f"{where}: the queue has more than {MOST_TASKS} jobs and tasks; give a part of it")
    notes = [f"{source}: {count} {what} are left out" for what, count in left_out.items() if count]
    if by_node_alone:
        notes.append(f"{source} shows GPUs per node alone, so jobs that ask with --gpus are not seen; use: {EXPORT}")
    return Queue(jobs, notes)


def text_rows(text: str, source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields place and columns of each job of a table; clusters head tables of their own."""
    names: list[str] = []
    cluster, found, closed = "", False, False
    for number, line in enumerate(text.lstrip("\ufeff").split("\n"), start=1):
        where = f"{source}, line {number}"
        if not line.strip():
            continue
        if line.startswith("CLUSTER:"):
            cluster, names = line.removeprefix("CLUSTER:").strip(), []
            continue
        if "JOBID" in line.upper().split("|")[0].split():
            names, closed, found = _columns(line, where), line.rstrip().endswith("|"), True
            continue
        if not names:
            if re.match(r"\w{3} \w{3} +\d+ [\d:]+ \d{4}$", line):
                continue  # the date that squeue -l prints first
            raise DataError(f"{where}: {line[:60]!r} stands before any header; make the file with: {EXPORT}")
        fields = _fields(line, names, closed, where)
        yield where, {"cluster": cluster, **dict(zip(names, fields, strict=True))}
    if not found:
        raise DataError(f"{source} holds no output of squeue; make the file with: {EXPORT}")


def _columns(line: str, where: str) -> list[str]:
    """Returns the columns that a header names, in plain names."""
    if "|" not in line:
        raise DataError(
            f"{where}: this is squeue's table for the screen, whose names are cut and which does not show GPUs; make "
            f"the file with: {EXPORT}"
        )
    plain = [re.sub(r"[^a-z]", "", name.lower()) for name in line.rstrip().rstrip("|").split("|")]
    names = [_ALIKE.get(name, name) for name in plain]
    needed = {"state": "State", "limit": "TimeLimit", "nodes": "NumNodes"}
    lacking = [said for name, said in needed.items() if name not in names]
    if not any(name.startswith("tresper") for name in names):
        lacking.append("tres-per-job and tres-per-node")
    if lacking:
        raise DataError(f"{where}: there is no column {', '.join(lacking)}; make the file with: {EXPORT}")
    return names


def _fields(line: str, names: list[str], closed: bool, where: str) -> list[str]:
    """Returns the fields of a row; separators within the name are given back to it.

    Args:
        line: The row.
        names: Columns.
        closed: Whether a separator follows the last field too.
        where: Place, for messages.
    """
    fields = line.rstrip().removesuffix("|" if closed else "").split("|")
    more = len(fields) - len(names)
    if more > 0 and "name" in names:
        at = names.index("name")
        fields[at : at + more + 1] = ["|".join(fields[at : at + more + 1])]
    elif more:
        raise DataError(f"{where}: {len(fields)} fields, but the header names {len(names)}; make the file again")
    return [field.strip() for field in fields]


def _json_rows(text: str, source: str, now_s: float) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields place and columns of each job of ``squeue --json``, of any version of Slurm that has it."""
    try:
        content = json.loads(text)
        jobs = content["jobs"]
        numbered = [(f"{source}, job {job['job_id']}", job) for job in jobs]
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{source} is no output of squeue --json: {error!r}; make it again") from None
    for where, job in numbered:
        state = job.get("job_state", "")
        limit, end_s = _number(job.get("time_limit")), _number(job.get("end_time"))
        left_s = None if limit is None or not end_s else end_s - (_number(content.get("last_update")) or now_s)
        number = str(job["job_id"])
        array, task = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
        if array and job.get("array_task_string"):
            number = f"{array:.0f}_[{job['array_task_string']}]"
        elif array and task is not None:
            number = f"{array:.0f}_{task:.0f}"
        if _number(job.get("het_job_id")):
            number += "+"
        yield (
            where,
            {
                "id": number,
                "state": state[0] if isinstance(state, list) and state else str(state),
                "partition": str(job.get("partition", "")),
                "name": str(job.get("name", "")),
                "user": str(job.get("user_name", "")),
                "cluster": str(job.get("cluster", "")),
                "reason": str(job.get("state_reason", "")),
                "command": str(job.get("command", "")),
                "limit": "UNLIMITED" if limit is None else f"{limit:.0f}:00",
                "left": "UNLIMITED" if left_s is None else f"{max(left_s, 0.0) // 60:.0f}:{max(left_s, 0.0) % 60:.0f}",
                "nodes": f"{_number(job.get('node_count')) or 1:.0f}",
                "tasks": f"{_number(job.get('tasks')) or 1:.0f}",
                "tresperjob": str(job.get("tres_per_job", "")),
                "trespernode": str(job.get("tres_per_node", "")),
                "trespertask": str(job.get("tres_per_task", "")),
            },
        )


def _number(value: Any) -> float | None:
    """Returns a number of ``squeue --json``: plain, or with marks for unset and infinite; None for those."""
    if isinstance(value, Mapping):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    return float(value) if isinstance(value, (int, float)) else None


def gpus_of_row(row: Mapping[str, str], where: str) -> int:
    """Returns the GPUs of a job: as asked for the job, for each node or for each task."""
    for name, times in (("tresperjob", ""), ("trespernode", "nodes"), ("trespertask", "tasks")):
        asked = _of_tres(row.get(name, ""))
        if asked:
            count = row.get(times, "1").split("-")[0] if times else "1"
            if not count.isdigit():
                raise DataError(f"{where}: {times} is {count!r}; it must be a number. Make the file with: {EXPORT}")
            return asked * int(count)
    if "gpu" in row.get("trespersocket", ""):
        raise DataError(f"{where}: the job asks for GPUs by socket, whose number is not known; leave it out")
    return 0


def _of_tres(text: str) -> int:
    """Returns the GPUs that a list of resources names.

    Example:
        >>> _of_tres("gres:gpu:a100:4"), _of_tres("gres/gpu:2,gres:shard:1"), _of_tres("gpu"), _of_tres("N/A")
        (4, 2, 1, 0)
        >>> _of_tres("gres/gpu=8"), _of_tres("gres:gpu:h100:2,gres:gpu:l4:1"), _of_tres("gres:gpu:1g.5gb:3")
        (8, 3, 3)
    """
    if text.strip().lower() in _NOTHING:
        return 0
    total = 0
    for part in text.split(","):
        words = re.split(r"[:/=]", re.sub(r"\(.*\)", "", part.strip()))
        if "gpu" in words:
            total += int(words[-1]) if words[-1].isdigit() else 1
    return total


def seconds_of(text: str, where: str, column: str) -> float | None:
    """Returns a duration, s; None for no limit."""
    if text.lower() in _NO_DURATION:
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        raise DataError(f"{where}: {column} is {text!r}; it must be [DAYS-]HOURS:MINUTES:SECONDS or UNLIMITED")
    days, hours, minutes, seconds, only_days, of_day, whole = (int(part or 0) for part in found.groups())
    if found[7] is not None:
        return whole * MINUTE_S
    return (days + only_days) * DAY_S + (hours + of_day) * HOUR_S + minutes * MINUTE_S + seconds


def _tasks(row: Mapping[str, str], where: str, running: bool, gpus: int) -> list[QueuedJob]:
    """Returns a job, or a job for each task of an array that waits."""
    limit_s = seconds_of(row["limit"], where, "the time limit")
    left_s = limit_s
    if running and "left" in row:
        left_s = seconds_of(row["left"], where, "the time left")
    elif running and limit_s is not None:
        left_s = max(0.0, limit_s - (seconds_of(row.get("used", ""), where, "the time used") or 0.0))
    command = row.get("command", "")
    reason = row.get("reason", "").strip("()")
    return [
        QueuedJob(
            id=number,
            name=row.get("name", ""),
            running=running,
            gpus=gpus,
            left_s=left_s,
            cluster=row["cluster"] or None,
            partition=row.get("partition", ""),
            command=None if command.lower() in _NOTHING else command,
            options=_options(row),
            not_now=NOT_NOW.get(reason, ""),
            user=row.get("user", ""),
            limit_s=limit_s,
        )
        for number in task_numbers(row["id"], where)
    ]


def _options(row: Mapping[str, str]) -> tuple[str, ...]:
    """Returns what a job asks for as options of sbatch: they may have been given on its command line alone.

    Example:
        >>> _options({"name": "a b", "limit": "1:00:00", "nodes": "2", "tasks": "1", "trespernode": "gres:gpu:a100:4"})
        ('--job-name=a b', '--time=1:00:00', '--nodes=2', '--ntasks=1', '--gres=gpu:a100:4')
    """
    limit = row.get("limit", "")
    given = [
        ("--job-name", row.get("name", "")),
        ("--time", "" if limit.lower() in _NO_DURATION else limit),
        ("--nodes", row.get("nodes", "")),
        ("--ntasks", row.get("tasks", "")),
        ("--gpus", ",".join(_gres(row.get("tresperjob", ""), "gpu:"))),
        ("--gres", ",".join(_gres(row.get("trespernode", "")))),
        ("--gpus-per-task", ",".join(_gres(row.get("trespertask", ""), "gpu:"))),
    ]
    return tuple(f"{name}={value}" for name, value in given if value)


def _gres(text: str, without: str = "") -> list[str]:
    """Returns generic resources as sbatch takes them, e.g. ``gpu:a100:4``; those of ``--gpus`` without ``gpu:``."""
    if text.strip().lower() in _NOTHING:
        return []
    parts = [re.sub(r"^gres[:/]|\(.*\)", "", part.strip()).replace("=", ":") for part in text.split(",")]
    return [part.removeprefix(without) for part in parts if part.startswith(without)]


def task_numbers(number: str, where: str) -> list[str]:
    """Returns the numbers of a job's tasks; of a job that is no array, its own.

    Raises:
        DataError: The tasks are cut off, or no such list.

    Example:
        >>> task_numbers("7", ""), task_numbers("5_[1,3-5%2]", ""), task_numbers("5_[0-6:3]", "")
        (['7'], ['5_1', '5_3', '5_4', '5_5'], ['5_0', '5_3', '5_6'])
    """
    found = re.fullmatch(r"(\d+)_\[(.*)\]", number)
    if found is None:
        if not re.fullmatch(r"\d+(_\d+)?", number):
            raise DataError(f"{where}: {number!r} is no number of a job; make the file with: {EXPORT}")
        return [number]
    tasks: list[int] = []
    for part in found[2].split("%")[0].split(","):
        span = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if span is None:
            raise DataError(
                f"{where}: the tasks of {number!r} cannot be read; if they are cut off, set SLURM_BITSTR_LEN=0 for "
                "squeue"
            )
        first, last, step = int(span[1]), int(span[2] or span[1]), int(span[3] or 1)
        if (last - first) / step > MOST_TASKS:
            raise DataError(f"{where}: {number!r} has more than {MOST_TASKS} tasks; give a part of the queue")
        tasks += range(first, last + 1, step)
    return [f"{found[1]}_{task}" for task in tasks]

"""Slurm accounting: the output of ``sacct --parsable2`` (or ``--parsable``), columns in any order.

Steps (``123.batch``) are folded into their jobs; every task of an array (``123_4``) is a job of its own. Times are the
cluster's local time, which the file does not name. GPUs are those allocated (``gres/gpu`` of AllocTRES; the typed
counts count the same GPUs again), for older versions AllocGRES by node.
"""

from __future__ import annotations

import re
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
from noonward.data.text_table import TextFile, TextTable, plain_name, separator_of, text_table
from noonward.errors import DataError, RowError

_MISSING: Final = ("", "unknown", "none", "n/a", "invalid")
_FREE_TEXT: Final = ("jobname", "comment", "admincomment", "workdir", "submitline")
"""Columns whose text may hold the separator; sacct quotes nothing."""
_SLICE: Final = re.compile(r"^\d+g\.\d+gb")
_NAMES: Final = {
    "job_id": ("JobID", "JobIDRaw"),
    "submit_time": ("Submit",),
    "start_time": ("Start",),
    "end_time": ("End",),
    "origin": ("Cluster",),
    "state": ("State",),
    "user": ("User", "UID"),
    "team": ("Account",),
    "name": ("JobName",),
    "partition": ("Partition",),
    "limit_min": ("TimelimitRaw",),
    "limit": ("Timelimit",),
    "limit_s": (),
    "class": (),
}
"""sacct's names of columns, by key."""


def _recognises(file: TextFile) -> bool:
    names = set(file.names())
    return (bool({"jobid", "jobidraw"} & names) and bool({"elapsed", "elapsedraw", "start", "submit"} & names)) or _cut(
        file
    )


def _cut(file: TextFile) -> bool:
    """Returns whether a file is sacct's default output, whose columns are cut to a width."""
    return len(file.head) > 1 and file.head[0].split()[:1] == ["JobID"] and set(file.head[1]) <= {"-", " "}


def _read(file: TextFile, options: LogOptions, account: Account) -> pl.DataFrame:
    if _cut(file):
        raise DataError(
            f"{file.name} is sacct's table for the screen, whose values are cut; export it with: sacct -X --parsable2 "
            "--format=JobID,Submit,Start,End,ElapsedRaw,AllocTRES,Cluster,Partition,User,Account,TimelimitRaw,State,JobName"
        )
    table = _table(file, account)
    account.rows_in = table.frame.height
    column = find_columns(table, _NAMES, options, account)
    ids = column["job_id"] or table.column(*_NAMES["job_id"])
    table = _jobs_alone(table, ids, account)
    submit = log_times(table, column["submit_time"] or table.column("Submit"), options, account, _MISSING)
    nothing = pl.Series([None], dtype=pl.Datetime("us")).new_from_index(0, table.frame.height)
    start, end = (
        nothing if (name := column[key]) is None else log_times(table, name, options, account, _MISSING)
        for key in ("start_time", "end_time")
    )
    elapsed = _elapsed(table)
    ran = start.is_not_null() if column["start_time"] else elapsed > 0
    ended = end.is_not_null() if column["end_time"] else ran
    account.add("read", int(table.frame[ids].str.contains(r"_\d+$").sum()), "tasks of job arrays are jobs of their own")
    gpus, kinds = _gpus(table, account)
    return pl.DataFrame(
        {
            "line": table.frame["line"],
            "job_id": table.frame[ids],
            "submit_time": submit,
            "start_time": start,
            "end_time": end,
            "duration_s": pl.select(pl.when(ran & ended).then(elapsed)).to_series(),
            "gpus": gpus,
            "gpu_type": kinds,
            **texts_of(table, column, "origin", "state", "user", "team", "name", "partition"),
            **(texts_of(table, column, "class") if column["class"] else {}),
            "limit_s": limits_s(table, column),
            **named_columns(table, options),
        }
    )


def _table(file: TextFile, account: Account) -> TextTable:
    """Returns the rows; a separator within a free text is given back to it."""
    separator = separator_of(file.head[0])
    names = [name.strip() for name in file.head[0].rstrip(separator).split(separator)]
    plain = [plain_name(name) for name in names]
    free = next((plain.index(name) for name in _FREE_TEXT if name in plain), None)
    rows, lines, bad, mended = [], [], [], 0
    for number, line in enumerate(file.text.splitlines()[1:], start=2):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) == len(names) + 1 and not fields[-1]:
            fields.pop()  # --parsable ends every line with the separator
        more = len(fields) - len(names)
        if more > 0 and free is not None:
            fields[free : free + more + 1] = [separator.join(fields[free : free + more + 1])]
            mended += 1
        elif more:
            bad.append((number, len(fields)))
            continue
        rows.append(fields)
        lines.append(number)
    if bad:
        why = f"{bad[0][1]} fields, but the header names {len(names)}"
        raise RowError(
            f"{file.name}, line {bad[0][0]}: {why}; export it again with sacct --parsable2, leaving out free texts "
            "such as JobName",
            [line for line, _ in bad],
            why,
        )
    if not rows:
        raise DataError(f"{file.name} holds a header and no job; export it again")
    account.add("changed", mended, f"a separator within {names[free or 0]} was taken as part of it")
    return text_table(file, names, rows, lines)


def _jobs_alone(table: TextTable, ids: str, account: Account) -> TextTable:
    """Returns the rows of jobs, without those of their steps."""
    step = table.frame[ids].str.contains(".", literal=True)
    account.add("dropped", int(step.sum()), "steps, which are part of their jobs")
    if step.all():
        raise DataError(f"{table.file.name} holds steps alone; export the jobs: sacct -X --parsable2 ...")
    return table.filter(~step)


def _elapsed(table: TextTable) -> pl.Series:
    """Returns the run times, s; null where there is none."""
    raw = table.find("ElapsedRaw")
    if raw is not None:
        return table.numbers(raw, "seconds")
    text = table.find("Elapsed")
    if text is None:
        return pl.Series([None], dtype=pl.Float64).new_from_index(0, table.frame.height)
    return elapsed_s(table, text)


def _gpus(table: TextTable, account: Account) -> tuple[pl.Series, pl.Series]:
    """Returns GPUs and, where it is known, their type per job."""
    columns = [column for name in ("AllocTRES", "ReqTRES") if (column := table.find(name))]
    per_node = [column for name in ("AllocGRES", "ReqGRES") if (column := table.find(name))]
    if not columns and not per_node:
        raise DataError(
            f"{table.file.name} has neither AllocTRES nor ReqTRES, so the GPUs of its jobs are unknown; export it with "
            "--format=...,AllocTRES"
        )
    nodes = table.find("AllocNodes", "NNodes")
    counts: list[int] = []
    kinds: list[str | None] = []
    slices = 0
    for row in table.frame.select({*columns, *per_node, *([nodes] if nodes else [])}).iter_rows(named=True):
        count, kind = next((found for c in columns if row[c] and (found := _of_tres(row[c]))[0]), (0, None))
        if not count:
            count, kind = next((found for c in per_node if row[c] and (found := _of_gres(row[c]))[0]), (0, None))
            count *= int(row[nodes] or 1) if nodes and row[nodes].isdigit() else 1
        slices += bool(kind and _SLICE.match(kind))
        counts.append(count)
        kinds.append(kind)
    account.add("read", slices, "jobs on slices of GPUs (MIG): a slice counts as one GPU")
    return pl.Series(counts, dtype=pl.Int64), pl.Series(kinds, dtype=pl.String)


def _of_tres(text: str) -> tuple[int, str | None]:
    """Returns GPUs and their type of a list of trackable resources.

    Example:
        >>> _of_tres("billing=10,cpu=10,gres/gpu=4,gres/gpu:a100=4,node=2")
        (4, 'a100')
    """
    typed = {name: int(count) for name, count in re.findall(r"gres/gpu:([^=,]+)=(\d+)", text)}
    whole = re.search(r"gres/gpu=(\d+)", text)
    kind = next(iter(typed)) if len(typed) == 1 else None
    return (int(whole[1]) if whole else sum(typed.values())), kind


def _of_gres(text: str) -> tuple[int, str | None]:
    """Returns GPUs and their type of an older list of generic resources, by node."""
    found = re.search(r"gpu(?::([A-Za-z][^:,()]*))?:(\d+)", text)
    return (0, None) if found is None else (int(found[2]), found[1])


FORMAT = LogFormat(
    name="slurm", title="Slurm accounting (sacct)", recognises=_recognises, read=_read, keys=tuple(_NAMES)
)

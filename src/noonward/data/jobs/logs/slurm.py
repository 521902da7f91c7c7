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
from noonward.data.jobs.logs.log import LogFormat, LogOptions, log_times
from noonward.data.text_table import TextFile, TextTable, plain_name, separator_of, text_table
from noonward.errors import DataError

_MISSING: Final = ("", "unknown", "none", "n/a", "invalid")
_FREE_TEXT: Final = ("jobname", "comment", "admincomment", "workdir", "submitline")
"""Columns whose text may hold the separator; sacct quotes nothing."""
_SLICE: Final = re.compile(r"^\d+g\.\d+gb")
_ELAPSED: Final = r"^(?:(\d+)-)?(?:(\d+):)?(\d{1,2}):(\d{2})(?:\.\d+)?$"


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
            "--format=JobID,Submit,Start,End,ElapsedRaw,AllocTRES,Cluster,Partition,State"
        )
    table = _table(file, account)
    account.rows_in = table.frame.height
    ids = table.column("JobID", "JobIDRaw")
    table = _jobs_alone(table, ids, account)
    submit = log_times(table, table.column("Submit"), options, account, _MISSING)
    nothing = pl.Series([None]).new_from_index(0, table.frame.height)
    start, end = (
        nothing.cast(pl.Datetime("us"))
        if (column := table.find(name)) is None
        else log_times(table, column, options, account, _MISSING)
        for name in ("Start", "End")
    )
    elapsed = _elapsed(table)
    ran = start.is_not_null() if table.find("Start") else elapsed > 0
    ended = end.is_not_null() if table.find("End") else ran
    account.add("read", int(table.frame[ids].str.contains(r"_\d+$").sum()), "tasks of job arrays are jobs of their own")
    gpus, kinds = _gpus(table, account)
    cluster = table.find("Cluster")
    state = table.find("State")
    return pl.DataFrame(
        {
            "line": table.frame["line"],
            "job": table.frame[ids],
            "submit_time": submit,
            "start_time": start,
            "end_time": end,
            "duration_s": pl.select(pl.when(ran & ended).then(elapsed)).to_series(),
            "gpus": gpus,
            "origin": nothing.cast(pl.String) if cluster is None else table.frame[cluster].replace("", None),
            "gpu_type": kinds,
            "state": nothing.cast(pl.String) if state is None else table.frame[state].str.split(" ").list.first(),
        }
    )


def _table(file: TextFile, account: Account) -> TextTable:
    """Returns the rows; a separator within a free text is given back to it."""
    separator = separator_of(file.head[0])
    names = [name.strip() for name in file.head[0].rstrip(separator).split(separator)]
    plain = [plain_name(name) for name in names]
    free = next((plain.index(name) for name in _FREE_TEXT if name in plain), None)
    rows, lines, mended = [], [], 0
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
            raise DataError(
                f"{file.name}, line {number}: {len(fields)} fields, but the header names {len(names)}; export it again "
                "with sacct --parsable2, leaving out free texts such as JobName"
            )
        rows.append(fields)
        lines.append(number)
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


def elapsed_s(table: TextTable, column: str) -> pl.Series:
    """Returns a column of durations written ``[D-]HH:MM:SS`` or ``MM:SS``, s; null where it is empty.

    Raises:
        DataError: A value is none.
    """
    text = table.frame[column].fill_null("")
    part = [text.str.extract(_ELAPSED, group).cast(pl.Float64).fill_null(0) for group in range(1, 5)]
    table.refuse(
        (text != "") & ~text.str.contains(_ELAPSED), column, "is no duration; expected [D-]HH:MM:SS, or use ElapsedRaw"
    )
    seconds = part[0] * 86400 + part[1] * 3600 + part[2] * 60 + part[3]
    return pl.select(pl.when(text != "").then(seconds)).to_series()


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


FORMAT = LogFormat(name="slurm", title="Slurm accounting (sacct)", recognises=_recognises, read=_read)

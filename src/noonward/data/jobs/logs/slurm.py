"""Slurm accounting: the output of ``sacct --parsable2`` (or ``--parsable``), columns in any order.

Steps (``123.batch``) are folded into their jobs; every task of an array (``123_4``) is a job of its own. Times are the
cluster's local time, which the file does not name. GPUs are those allocated (``gres/gpu`` of AllocTRES; the typed
counts count the same GPUs again), for older versions AllocGRES by node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import polars as pl

from noonward.data.account import Account
from noonward.data.jobs.logs.log import (
    SLICES,
    LogFormat,
    LogOptions,
    elapsed_s,
    find_columns,
    gpus_of_slices,
    is_slice,
    limits_s,
    log_times,
    named_columns,
    texts_of,
)
from noonward.data.text_table import TextFile, TextTable, plain_name, separator_of, text_table
from noonward.errors import DataError

_MISSING: Final = ("", "unknown", "none", "n/a", "invalid")
_FREE_TEXT: Final = (
    "jobname", "comment", "constraints", "admincomment", "systemcomment", "extra", "workdir", "submitline"
)  # fmt: skip
"""Columns whose text may hold the separator; sacct quotes nothing."""
_TIME: Final = r"\d|(?i:unknown|none|n/a|invalid|)$"
_SHAPES: Final = {
    "jobid": r"\d", "jobidraw": r"\d", "submit": _TIME, "start": _TIME, "end": _TIME, "eligible": _TIME,
    "elapsed": r"[\d:.-]*$", "elapsedraw": r"\d*$", "state": r"[A-Z_]+( by \S+)?$", "alloctres": r"$|.*=",
    "reqtres": r"$|.*=",
}  # fmt: skip
"""What values of columns begin with, as regular expressions: by them a row is read that has too many fields."""
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
    "deadline": ("Deadline",),
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
            **(
                {}
                if (due := column["deadline"]) is None
                else {"deadline": log_times(table, due, options, account, _MISSING)}
            ),
            **named_columns(table, options),
        }
    )


def _table(file: TextFile, account: Account) -> TextTable:
    """Returns the rows; a separator within a free text is given back to it where no other reading fits the columns."""
    separator = separator_of(file.head[0])
    names = [name.strip() for name in file.head[0].rstrip(separator).split(separator)]
    rows, lines, bad, mended = [], [], [], Counter[str]()
    for number, line in enumerate(file.text.splitlines()[1:], start=2):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(separator)]
        if file.head[0].endswith(separator) and len(fields) > len(names) and not fields[-1]:
            fields.pop()  # --parsable ends every line with the separator
        count = len(fields)
        if count > len(names):
            fields, of = _without_more(fields, names, separator)
            mended[of] += 1
        if len(fields) != len(names):
            bad.append((number, count))
            continue
        rows.append(fields)
        lines.append(number)
    advice = (
        f"a value may hold the separator {separator!r}: export it again with sacct --parsable2, leaving out free texts "
        "such as JobName, or leave such lines out by --skip-bad N"
    )
    file.refuse_lengths(bad, f"the header names {len(names)}", advice)
    if not rows:
        raise DataError(f"{file.name} holds a header and no job; export it again")
    for name in filter(None, mended):
        account.add("changed", mended[name], f"a separator within {name} was taken as part of it")
    return text_table(file, names, rows, lines)


def _without_more(fields: list[str], names: Sequence[str], separator: str) -> tuple[list[str], str]:
    """Returns a row that has more fields than the header, with as many, and the free text that holds a separator.

    Returns:
        The row as it was if no reading of it fits the columns, or several that differ in more than free texts. The name
        is empty if only empty fields at the end were left out.
    """
    width, more = len(names), len(fields) - len(names)
    plain = [plain_name(name) for name in names]
    free = [plain.index(name) for name in _FREE_TEXT if name in plain]
    ways = [([*fields[:n], separator.join(fields[n : n + more + 1]), *fields[n + more + 1 :]], names[n]) for n in free]
    if not any(fields[width:]):
        ways.append((fields[:width], ""))
    fitting = [
        way
        for way in ways
        if all(re.match(_SHAPES.get(name, ""), each) for name, each in zip(plain, way[0], strict=True))
    ]
    read_as = {tuple(each for n, each in enumerate(way) if n not in free) for way, _ in fitting}
    return fitting[0] if len(read_as) == 1 else (fields, "")


def _jobs_alone(table: TextTable, ids: str, account: Account) -> TextTable:
    """Returns the rows of jobs, without those of their steps."""
    step = table.frame[ids].str.contains(".", literal=True)
    account.add("dropped", int(step.sum()), "steps, which are part of their jobs")
    if step.all():
        raise DataError(f"{table.file.name} contains only steps; export the jobs: sacct -X --parsable2 ...")
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
    texts = []
    for row in table.frame.select({*columns, *per_node, *([nodes] if nodes else [])}).iter_rows(named=True):
        count = int(row[nodes]) if nodes and row[nodes].isdigit() else 1
        texts.append([*(row[c] for c in columns), *(_of_gres(row[c], count) for c in per_node)])
    gpus, kinds = gpus_of(texts, account)
    return pl.Series(gpus, dtype=pl.Int64), pl.Series(kinds, dtype=pl.String)


def gpus_of(resources: Sequence[Sequence[str]], account: Account) -> tuple[list[int], list[str | None]]:
    """Returns the GPUs of jobs and their type, None where it is unknown, and accounts for what is no whole GPU.

    Args:
        resources: Lists of trackable resources of each job (``gres/gpu:a100=4``); the first that names GPUs holds.
        account: Account of the file.
    """
    counts: list[int] = []
    kinds: list[str | None] = []
    sliced = mixed = shared = 0
    for texts in resources:
        found = next((gpus for text in texts if text and (gpus := _of_tres(text)).number), _Gpus(0, None))
        counts.append(found.number)
        kinds.append(found.kind)
        sliced += found.sliced
        mixed += found.mixed
        shared += not found.number and any("gres/shard" in text or "gres/mps" in text for text in texts)
    account.add("read", sliced, SLICES)
    account.add("read", mixed, "jobs on GPUs of several types: their type is left empty")
    account.add("read", shared, "jobs with shares of a GPU alone (gres/shard, gres/mps) count as jobs without a GPU")
    return counts, kinds


class _Gpus(NamedTuple):
    """GPUs of a job, their type, and whether some are slices or they are of several types."""

    number: int
    kind: str | None
    sliced: bool = False
    mixed: bool = False


def _of_tres(text: str) -> _Gpus:
    """Returns the GPUs of a list of trackable resources.

    Example:
        >>> _of_tres("billing=10,cpu=10,gres/gpu=4,gres/gpu:a100=4,node=2")
        _Gpus(number=4, kind='a100', sliced=False, mixed=False)
        >>> _of_tres("gres/gpu=3,gres/gpu:a100_3g.20gb=3")
        _Gpus(number=2, kind='a100', sliced=True, mixed=False)
    """
    typed = {name: int(count) for name, count in re.findall(r"gres/gpu:([^=,]+)=(-?\d+)", text)}
    whole = re.search(r"gres/gpu=(-?\d+)", text)
    slices = {name: count for name, count in typed.items() if is_slice(name)}
    kinds = {re.split(r"[_.:-]?\d+g\.", name)[0] for name in typed} - {""}
    count = int(whole[1]) if whole else sum(typed.values())
    if slices and count > 0:
        count = max(0, count - sum(slices.values())) + gpus_of_slices(slices)
    return _Gpus(count, next(iter(kinds)) if len(kinds) == 1 else None, bool(slices), len(kinds) > 1)


def _of_gres(text: str, nodes: int) -> str:
    """Returns an older list of generic resources by node as trackable resources of a job.

    Example:
        >>> _of_gres("gpu:a100:4", 2), _of_gres("gpu:2(IDX:0-1)", 1)
        ('gres/gpu:a100=8', 'gres/gpu=2')
    """
    match = re.search(r"gpu(?::([A-Za-z][^:,()]*))?:(-?\d+)", text)
    if match is None:
        return ""
    return f"gres/gpu{':' + match[1] if match[1] else ''}={int(match[2]) * nodes}"


FORMAT = LogFormat(
    name="slurm", title="Slurm accounting (sacct)", recognises=_recognises, read=_read, keys=tuple(_NAMES)
)

"""Reads the tables of a field test: caps measured per workload, the jobs of a test, and power by time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from noonward.arrays import F8
from noonward.data.clock import Clock, read_times, time_of
from noonward.data.text_table import TextTable, plain_name, read_text_file
from noonward.errors import DataError, nearest

TIERS: Final = {"flex 0": 1.0, "flex 1": 0.9, "flex 2": 0.75, "flex 3": 0.5}
"""Least throughput of Emerald's classes of flexibility."""
TITLES: Final = 5
"""First lines of a file among which its header is looked for."""
_WEIGHTED: Final = "weighted performance"
_CLOCK_ONLY: Final = r"^\d{1,2}:\d{2}(:\d{2})?$"


@dataclass(frozen=True, kw_only=True)
class Caps:
    """Measured caps of a workload.

    Attributes:
        workload: Its name.
        gpus: GPUs it was measured on, or None where the table does not say.
        power_w: Power of a GPU at each cap, W, ascending; the last is without a cap.
        throughput: Throughput at each, as a share of the last.
    """

    workload: str
    gpus: int | None
    power_w: tuple[float, ...]
    throughput: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TestJob:
    """A job of a field test.

    Attributes:
        name: Its name, which begins with that of its workload.
        performance: Its mean throughput over the test, as a share of full throughput, or None where unpublished.
        least: Least performance that its class of flexibility allows; 0 where unpublished.
        gpus: GPUs it was started on, or None where unpublished.
    """

    name: str
    performance: float | None
    least: float
    gpus: int | None


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The jobs of a field test.

    Attributes:
        jobs: Jobs.
        weighted: Weighted performance as published, or None.
        event: First and last time of the event as the table's text, or None where it does not say.
    """

    jobs: tuple[TestJob, ...]
    weighted: float | None
    event: tuple[str, str] | None


@dataclass(frozen=True, kw_only=True)
class Power:
    """Measured power of a field test.

    Attributes:
        minutes_T: Minutes since the first row, ascending.
        total_w_T: Power of all jobs, W.
        job_w_JT: Power of each job, W; no rows where only the total was published.
        names: Names of these jobs.
        first: Time of the first row, in UTC where the file says its zone, else as its clock shows it.
        offset_min: Minutes that the file's clock is ahead of ``first``.
    """

    minutes_T: F8
    total_w_T: F8
    job_w_JT: F8
    names: tuple[str, ...]
    first: datetime
    offset_min: float


def read_table(path: Path, *wanted: str) -> TextTable:
    """Returns the rows of a CSV file whose header is the first line that names a column.

    Lines before it, such as a title, are passed over.

    Args:
        path: File.
        wanted: Names of a column that the header must have, any of them.

    Raises:
        DataError: There is no such file, or none of its first lines names the column.
    """
    file = read_text_file(path)
    for line in range(min(len(file.head), TITLES)):
        if {plain_name(name) for name in wanted} & set(file.names(line)):
            return file.table(header_line=line)
    known = [name for name in file.header(0) if name]
    raise DataError(
        f"{file.name}: there is no column {' or '.join(map(repr, wanted))} in its first lines; the first line has "
        f"{', '.join(known)}"
    )


def read_caps(path: Path) -> dict[str, Caps]:
    """Reads caps by workload.

    Columns: ``Workload``, ``power per GPU`` (W), ``normalized throughput`` or ``throughput`` (any unit), and
    ``total GPU power`` (W; optional, says how many GPUs were measured). The row of most power of a workload is the one
    without a cap.

    Raises:
        DataError: A column is missing, a value is no number, or a workload's throughput falls with power.
    """
    table = read_table(path, "Workload")
    workload, power = table.column("Workload"), table.column("power per GPU", "power_per_gpu_w")
    rate = table.column("normalized throughput", "throughput")
    total = table.find("total GPU power", "total_gpu_power_w")
    frame = pl.DataFrame(
        {
            "workload": table.frame[workload],
            "power": _numbers(table, power, "W"),
            "rate": _numbers(table, rate, "a throughput"),
            "total": _numbers(table, total, "W") if total else pl.Series([None] * table.frame.height, dtype=pl.Float64),
        }
    )
    found = {}
    for (name,), rows in frame.sort("power").group_by("workload", maintain_order=True):
        power_P, rate_P = rows["power"].to_numpy(), rows["rate"].to_numpy()
        if power_P[0] <= 0 or (np.diff(power_P) <= 0).any() or rate_P[0] < 0 or (np.diff(rate_P) < 0).any():
            raise DataError(
                f"{table.name}, workload {name!r}: throughput must not fall as power rises, and no power may stand "
                f"twice; power {power_P.round(1).tolist()} W has throughput {rate_P.round(4).tolist()}"
            )
        if rate_P[-1] <= 0:
            raise DataError(f"{table.name}, workload {name!r}: throughput is 0 at full power; give what was measured")
        counted = rows["total"].to_numpy() / power_P
        gpus = None if total is None else round(float(np.median(counted)))
        found[str(name)] = Caps(
            workload=str(name),
            gpus=gpus,
            power_w=tuple(map(float, power_P)),
            throughput=tuple(map(float, rate_P / rate_P[-1])),
        )
    return found


def read_jobs(path: Path) -> Jobs:
    """Reads the jobs of a test.

    Columns: ``Model`` (or ``job``), and any of ``Performance`` (share of full throughput), ``Flexibility`` (``Flex N``
    or the least share), ``GPUs``, ``start`` and ``end`` (times of the event, the same in all rows). A row
    ``Weighted Performance`` holds the published sum.

    Raises:
        DataError: There is no such column, no job, a job stands twice, or a value is out of range.
    """
    table = read_table(path, "Model", "job")
    rows = table.frame
    text = {
        key: rows[column].to_list() if (column := table.find(key)) else None
        for key in ("performance", "gpus", "start", "end")
    }
    classes = table.find("Flex Bucket", "Flexibility")
    lines, names = rows["line"].to_list(), rows[table.column("Model", "job")].to_list()
    jobs: list[TestJob] = []
    weighted = None
    for n, (line, name) in enumerate(zip(lines, names, strict=True)):
        where = f"{table.name}, line {line}"
        share = None if text["performance"] is None else _share(text["performance"][n], where, "Performance")
        if plain_name(name) == _WEIGHTED:
            weighted = share
            continue
        if not name:
            raise DataError(f"{where}: the row names no job; give its name, or remove the row")
        if name in [job.name for job in jobs]:
            raise DataError(f"{where}: job {name!r} stands twice; give one row per job")
        jobs.append(
            TestJob(
                name=name,
                performance=share,
                least=0.0 if classes is None else _least(rows[classes][n], where),
                gpus=None if text["gpus"] is None else _whole(text["gpus"][n], where),
            )
        )
    if not jobs:
        raise DataError(f"{table.name} holds no job; give a row per job")
    if (text["start"] is None) != (text["end"] is None):
        raise DataError(f"{table.name} has one of the columns start and end; give both, or neither")
    event = None
    if text["start"] is not None and text["end"] is not None:
        windows = {(a, b) for a, b in zip(text["start"], text["end"], strict=True) if a or b}
        if len(windows) != 1:
            raise DataError(f"{table.name}: start and end must be the same in all rows; there are {len(windows)} pairs")
        event = windows.pop()
    return Jobs(jobs=tuple(jobs), weighted=weighted, event=event)


def read_power(path: Path, timezone: str | None = None) -> Power:
    """Reads power by time.

    Columns: ``timestamp`` (or ``time``), and a column per job, or ``total``, or both. Power is in W; a heading that
    ends in ``(kW)`` or ``_kw`` is in kW. Times have an offset, or are of ``timezone``, or without either of one clock;
    times of day alone (``14:05``) are of one day.

    Raises:
        DataError: A column is missing, a value is no number or below 0, times do not ascend or are irregular, or the
            total is not the sum of the jobs.
    """
    table = read_table(path, "timestamp", "time")
    stamp = table.column("timestamp", "time")
    first, offset_min, minutes_T = _minutes(table, stamp, timezone)
    names, columns, total = [], [], None
    for column in table.frame.columns:
        if column in (stamp, "line"):
            continue
        title, per_unit = _titled(column)
        values = _numbers(table, column, "W") * per_unit
        table.refuse(values < 0, column, "is below 0; give the power that was drawn")
        if plain_name(title) in ("total", "total power", "power"):
            total = values.to_numpy()
        else:
            names.append(title)
            columns.append(values.to_numpy())
    if total is None and not names:
        raise DataError(f"{table.name} has times and no power; give a column total, or one per job")
    job_w_JT = np.array(columns) if columns else np.empty((0, len(minutes_T)))
    if total is None:
        total = job_w_JT.sum(axis=0)
    elif names and (np.abs(job_w_JT.sum(axis=0) - total) > 0.01 * total.max()).any():
        worst = int(np.argmax(np.abs(job_w_JT.sum(axis=0) - total)))
        raise DataError(
            f"{table.name}, line {table.lines[worst]}: the jobs draw {job_w_JT[:, worst].sum():.0f} W and the total is "
            f"{total[worst]:.0f} W; every column but timestamp and total must be the power of a job"
        )
    return Power(
        minutes_T=minutes_T, total_w_T=total, job_w_JT=job_w_JT, names=tuple(names), first=first, offset_min=offset_min
    )


def minutes_of(text: str, power: Power) -> float:
    """Returns the minutes from a power table's first row to a time written as a user writes it.

    Args:
        text: A time with an offset, or one of the table's own clock, or a time of day of the first row's day.
        power: The table.

    Raises:
        DataError: It is no time.
    """
    if re.match(_CLOCK_ONLY, text.strip()):
        hour, minute = map(int, text.strip().split(":")[:2])
        at = power.first.hour * 60 + power.first.minute + power.offset_min
        return float((hour * 60 + minute - at) % 1440)
    hours, minutes = divmod(abs(int(power.offset_min)), 60)
    offset = Clock(f"{'-' if power.offset_min < 0 else '+'}{hours:02d}:{minutes:02d}")
    return (time_of(text, offset).replace(tzinfo=None) - power.first).total_seconds() / 60


def caps_of(job: str, caps: dict[str, Caps]) -> Caps:
    """Returns the caps of a job's workload: the longest name that the job's begins with.

    Raises:
        DataError: No workload's name begins it.
    """
    found = [name for name in caps if job == name or job.startswith((f"{name}-", f"{name}_", f"{name}."))]
    if not found:
        raise DataError(
            f"job {job!r} has no caps: no workload is its name, or begins it before a '-'; {nearest(job, caps)}"
        )
    return caps[max(found, key=len)]


def _minutes(table: TextTable, stamp: str, timezone: str | None) -> tuple[datetime, float, F8]:
    """Returns the first time, minutes that the file's clock is ahead of it, and minutes of all rows since then."""
    text = table.frame[stamp]
    table.refuse(text == "", stamp, "is no time; give one in each row")
    offset_min = 0.0
    if text.str.contains(_CLOCK_ONLY).all():
        text = "2000-01-01 " + text
        clock: Clock | None = Clock("UTC")
    else:
        has_zone = bool(text.str.contains(r"(Z|[+-]\d{2}:?\d{2})$").any())
        clock = None if has_zone and timezone is None else Clock(timezone or "UTC")
        ahead = re.search(r"([+-])(\d{2}):?(\d{2})$", text[0])
        if ahead and has_zone:
            offset_min = (60 * int(ahead[2]) + int(ahead[3])) * (-1.0 if ahead[1] == "-" else 1.0)
    utc = read_times(table, stamp, clock, text=text).utc
    table.refuse(utc.is_null(), stamp, "does not exist on the file's clock; correct it, or give UTC")
    minutes_T = (utc - utc[0]).dt.total_seconds().to_numpy() / 60
    steps = np.diff(minutes_T)
    if len(minutes_T) < 3 or (steps <= 0).any():
        bad = int(np.argmax(steps <= 0)) + 1 if len(steps) else 0
        raise DataError(
            f"{table.name}, line {table.lines[bad]}: times must ascend, with three rows at least; sort the rows and "
            "leave repeated ones out"
        )
    step = float(np.median(steps))
    if steps.max() > 10 * step:
        bad = int(np.argmax(steps))
        raise DataError(
            f"{table.name}, line {table.lines[bad + 1]}: {steps[bad]:g} minutes pass since the row before, in a file "
            f"of {step:g}-minute steps; give a file without such gaps, or the part before or after"
        )
    return utc[0], offset_min, minutes_T


def _titled(column: str) -> tuple[str, float]:
    """Returns a heading without its unit, and the watts of one of that unit."""
    for ending, watts in ((r"\s*\(kw\)$|_kw$", 1000.0), (r"\s*\(mw\)$|_mw$", 1e6), (r"\s*\(w\)$|_w$", 1.0)):
        if re.search(ending, column, re.IGNORECASE):
            return re.sub(ending, "", column, flags=re.IGNORECASE), watts
    return column, 1.0


def _numbers(table: TextTable, column: str, unit: str) -> pl.Series:
    """Returns a column of numbers without gaps."""
    values = table.numbers(column, unit, decimal=".")
    table.refuse(values.is_null(), column, f"is missing; give {unit} in each row")
    return values


def _share(text: str, where: str, column: str) -> float:
    """Returns a share from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise DataError(f"{where}, column {column}: {text!r} is no share of full throughput; give one from 0 to 1")
    return value


def _least(text: str, where: str) -> float:
    """Returns the least performance of a class of flexibility."""
    known = TIERS.get(plain_name(text))
    if known is not None:
        return known
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise DataError(
            f"{where}: {text!r} is no class of flexibility; give Flex 0 to Flex 3 or the least share, 0 to 1"
        )
    return value


def _whole(text: str, where: str) -> int:
    """Returns a number of GPUs."""
    if not text.isdigit() or int(text) < 1:
        raise DataError(f"{where}, column GPUs: {text!r} is no number of GPUs; give 1 or more")
    return int(text)

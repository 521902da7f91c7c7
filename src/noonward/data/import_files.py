"""Import of files of any known format: their jobs and signals become one job table and one tidy signal file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import polars as pl

from noonward.data.account import Account
from noonward.data.jobs.formats import LOG_FORMATS, import_jobs, log_format_of
from noonward.data.jobs.logs.log import LogOptions
from noonward.data.signals.clean import check_zones_used
from noonward.data.signals.formats import FORMATS, format_of, import_signals
from noonward.data.signals.readings import ImportOptions
from noonward.data.text_table import TextFile, read_text_file
from noonward.errors import DataError, nearest
from noonward.files import table_bytes, write_text


@dataclass(kw_only=True)
class Imported:
    """What some files hold.

    Attributes:
        accounts: One account a file, in order.
        signals: Hours of zones, in the columns of a tidy signal file, or None.
        jobs: A dated job table, or None.
    """

    accounts: list[Account] = field(default_factory=list)
    signals: pl.DataFrame | None = None
    jobs: pl.DataFrame | None = None

    def write(self, folder: Path) -> list[Path]:
        """Writes ``signals.csv``, ``jobs.csv`` and ``import.json`` (the accounts) to a folder; returns their paths."""
        made = {}
        if self.signals is not None:
            made["signals.csv"] = table_bytes(self.signals, ".csv").decode()
        if self.jobs is not None:
            made["jobs.csv"] = table_bytes(self.jobs, ".csv").decode()
        made["import.json"] = json.dumps([account.to_json() for account in self.accounts], indent=1) + "\n"
        for name, content in made.items():
            write_text(folder / name, content)
        return [folder / name for name in made]


def import_files(paths: Sequence[Path], signals: ImportOptions, jobs: LogOptions, told: str | None = None) -> Imported:
    """Reads files of any known formats.

    Signals of several files are put together, a later file filling only what the earlier ones leave unknown; jobs of
    several files are put together in order of submission.

    Args:
        paths: The files.
        signals: What the user tells about signal files.
        jobs: What the user tells about job logs.
        told: Format of all files; None: detected for each.

    Raises:
        DataError: No file, one that stands twice, an unknown format, or a file that cannot be read; the message names
            file, line, column and remedy.
    """
    if not paths:
        raise DataError("no file was given; name at least one")
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError("a file stands twice; name each once")
    known = (*LOG_FORMATS, *FORMATS)
    if told is not None and told not in known:
        raise DataError(f"format {told!r} is unknown; {nearest(told, known, list_all=True)}")
    found = Imported()
    hours: list[pl.DataFrame] = []
    tables: list[pl.DataFrame] = []
    areas: set[str] = set()
    for key in {*signals.columns, *jobs.columns}:
        if key not in _KEYS:
            raise DataError(f"--column names the unknown key {key!r}; {nearest(key, _KEYS)}")
    for path in paths:
        file = read_text_file(path, signals.encoding)
        if _holds_jobs(file, told):
            kind = log_format_of(file, told)
            assert kind is not None
            table, account = import_jobs(path, replace(jobs, format=told, columns=_some(jobs.columns, kind.keys)))
            tables.append(table)
        else:
            keys = format_of(file, told).keys
            imported = import_signals(path, replace(signals, format=told, columns=_some(signals.columns, keys)))
            hours.append(imported.hours)
            account = imported.account
            areas |= {*imported.areas, path.name}
        found.accounts.append(account)
    _check_columns_used({**signals.columns, **jobs.columns}, found.accounts)
    if hours:
        check_zones_used(signals, dict.fromkeys(areas))
        found.signals = _tidy(hours)
    if tables:
        found.jobs = pl.concat(tables, how="diagonal").sort("submit_time", maintain_order=True)
    return found


_KEYS: Final = tuple(
    dict.fromkeys(
        [
            *(key for log in LOG_FORMATS.values() for key in log.keys),
            *(key for signal in FORMATS.values() for key in signal.keys),
        ]
    )
)
"""Keys that ``--column`` takes, of all formats."""


def _some(columns: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """Returns the columns that were told by some keys."""
    return {key: name for key, name in columns.items() if key in keys}


def _check_columns_used(columns: Mapping[str, str], accounts: Sequence[Account]) -> None:
    """Raises DataError if a column was told that no file's reader takes."""
    unused = set(columns).difference(*(account.columns_used for account in accounts))
    if unused:
        key = min(unused)
        read_as = ", ".join(f"{account.file} ({account.format})" for account in accounts)
        raise DataError(
            f"--column {key}={columns[key]}: no file takes the key {key!r}: {read_as}; leave it out, or have a file "
            "read as another table by --format jobs or --format plain"
        )


def _holds_jobs(file: TextFile, told: str | None) -> bool:
    """Returns whether a file is a job log: as told, or by its beginning."""
    if told is not None:
        return told in LOG_FORMATS
    kind = log_format_of(file)
    return kind is not None and (kind.name != "jobs" or format_of(file).name == "plain")


def _tidy(hours: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Returns the hours of several files as one tidy table."""
    ordered = pl.concat([table.with_columns(file=pl.lit(n)) for n, table in enumerate(hours)]).sort("file")

    def first(name: str) -> pl.Expr:
        return pl.col(name).filter(pl.col(name).is_not_null()).first()

    estimated = pl.col("estimated").filter(pl.col("carbon").is_not_null()).first().fill_null(value=False)
    whole = ordered.group_by("zone", "timestamp").agg(first("price"), first("carbon"), estimated)
    tidy = whole.sort("zone", "timestamp").select(
        pl.col("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "zone",
        pl.col("carbon").round(6).alias("carbon_intensity_g_per_kwh"),
        pl.col("price").round(6).alias("price_usd_per_mwh"),
        pl.col("estimated").alias("carbon_is_estimated"),
    )
    empty = [name for name in ("carbon_intensity_g_per_kwh", "price_usd_per_mwh") if tidy[name].is_null().all()]
    return tidy.drop(*empty, *(["carbon_is_estimated"] if "carbon_intensity_g_per_kwh" in empty else []))

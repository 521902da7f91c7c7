"""The registry of job log formats: which one a file is of, and its jobs, cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from noonward.data.account import Account, check_columns_told, read_with_account
from noonward.data.jobs.logs import kubernetes, plain, slurm, slurm_json, swf, traces
from noonward.data.jobs.logs.log import LogFormat, LogOptions, clean_log
from noonward.data.text_table import TextFile, read_text_file
from noonward.errors import DataError, nearest

LOG_FORMATS: Final[Mapping[str, LogFormat]] = {
    each.name: each
    for each in (slurm.FORMAT, slurm_json.FORMAT, kubernetes.FORMAT, swf.FORMAT, *traces.FORMATS, plain.FORMAT)
}
"""Formats by name, in the order in which a file is held against them."""


def log_format_of(file: TextFile, told: str | None = None) -> LogFormat | None:
    """Returns the format of a job log: the one told, else the first that recognises its beginning, or None.

    Raises:
        DataError: The format told is unknown.
    """
    if told is not None:
        if told not in LOG_FORMATS:
            raise DataError(f"format {told!r} is unknown; {nearest(told, LOG_FORMATS, list_all=True)}")
        return LOG_FORMATS[told]
    return next((each for each in LOG_FORMATS.values() if each.recognises(file)), None)


def import_jobs(path: Path, options: LogOptions, *, check_origins: bool = True) -> tuple[pl.DataFrame, Account]:
    """Reads a job log of any format.

    Args:
        path: The file.
        options: What the user tells about it; the rest is detected.
        check_origins: Refuse a name in ``options.origins`` that no job of the file comes from.

    Returns:
        A dated job table (docs/data.md), sorted by submission, and the account of what was done.

    Raises:
        DataError: The file is no job log or cannot be read; the message names file, line, column and remedy.
    """
    file = read_text_file(path, options.encoding)
    kind = log_format_of(file, options.format)
    if kind is None:
        raise DataError(
            f"{file.name} is no job log of a known format ({', '.join(LOG_FORMATS)}); name its columns with --format "
            "jobs --column submit_time=... --column gpus=... --column duration_s=..."
        )
    check_columns_told(options.columns, kind.keys, file.name, kind.title)
    clock, origin = options.clocks.get(file.name, options.clock), options.origins.get(file.name, options.origin)
    options = replace(options, clock=clock, origin=origin)

    def read(part: TextFile, account: Account) -> pl.DataFrame:
        return clean_log(kind.read(part, options, account), options, account)

    jobs, account = read_with_account(file, kind.title, options.skip_bad, read)
    for name in options.origins if check_origins else ():
        if name not in account.places:
            raise DataError(
                f"--origin names {name!r}, where no job of {account.file} comes from; {nearest(name, account.places)}"
            )
    return jobs, account

"""The registry of signal formats: which one a file is of, and its hours, cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from noonward.data.account import Account, check_columns_told, read_with_account
from noonward.data.signals.clean import clean_with_parts
from noonward.data.signals.publishers import (
    aemo,
    caiso,
    electricity_maps,
    entsoe,
    entsoe_xml,
    ercot,
    isone,
    nyiso,
    pjm,
    plain,
    watttime,
)
from noonward.data.signals.readings import ImportOptions, Readings, SignalFormat
from noonward.data.text_table import TextFile, read_text_file
from noonward.errors import DataError, nearest

FORMATS: Final[Mapping[str, SignalFormat]] = {
    module.FORMAT.name: module.FORMAT
    for module in (electricity_maps, entsoe, entsoe_xml, aemo, caiso, ercot, pjm, nyiso, isone, watttime, plain)
}
"""Formats by name, in the order in which a file is held against them; ``plain`` is taken where no other fits."""


def format_of(file: TextFile, told: str | None = None) -> SignalFormat:
    """Returns the format of a file: the one told, else the first that recognises its beginning, else ``plain``.

    Raises:
        DataError: The format told is unknown.
    """
    if told is not None:
        if told not in FORMATS:
            raise DataError(f"format {told!r} is unknown; {nearest(told, FORMATS, list_all=True)}")
        return FORMATS[told]
    return next((each for each in FORMATS.values() if each.recognises(file)), FORMATS["plain"])


def is_published(file: TextFile) -> bool:
    """Returns whether a publisher's format recognises a file."""
    return any(each.recognises(file) for each in FORMATS.values())


@dataclass(frozen=True, kw_only=True)
class ImportedSignals:
    """The hours of a signal file.

    Attributes:
        hours: Columns ``timestamp`` (UTC), ``zone``, ``price`` (USD/MWh), ``carbon`` (g/kWh; null: unknown) and
            ``estimated``, sorted by zone and time.
        parts: Parts of the hours that change within (``noonward.data.signals.parts``).
        account: What was done to the file's rows.
        areas: Areas or locations that the file holds.
        kind: ``average`` or ``marginal`` carbon intensity; None: it holds none, or does not say.
    """

    hours: pl.DataFrame
    parts: pl.DataFrame
    account: Account
    areas: tuple[str, ...]
    kind: str | None = None


def import_signals(path: Path, options: ImportOptions) -> ImportedSignals:
    """Reads a signal file of any format.

    Args:
        path: The file.
        options: What the user tells about it; the rest is detected.

    Raises:
        DataError: The file cannot be read; the message names file, line, column and remedy.
    """
    file = read_text_file(path, options.encoding)
    kind = format_of(file, options.format)
    check_columns_told(options.columns, kind.keys, file.name, kind.title)
    clock = options.clocks.get(file.name, options.clock)
    options = replace(options, clock=clock, zone=options.zones.get(file.name, options.zone))

    def read(part: TextFile, account: Account) -> tuple[Readings, tuple[pl.DataFrame, pl.DataFrame]]:
        if file.encoding not in ("utf-8-sig", "utf-8"):
            account.add("read", 1, f"text in {file.encoding}, not UTF-8")
        readings = kind.read(part, options, account)
        return readings, clean_with_parts(readings, options, account)

    (readings, (hours, parts)), account = read_with_account(file, kind.title, options.skip_bad, read)
    return ImportedSignals(
        hours=hours,
        parts=parts,
        account=account,
        areas=tuple(readings.frame["area"].unique().sort()),
        kind=readings.kind,
    )

"""Import of files of any known format: their jobs and signals become one job table and one tidy signal file."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Final, TypeVar

import polars as pl

from noonward.data.account import Account
from noonward.data.clock import Clock, Order
from noonward.data.jobs.classes import parse_class
from noonward.data.jobs.formats import LOG_FORMATS, import_jobs, log_format_of
from noonward.data.jobs.logs.log import LogOptions
from noonward.data.signals.clean import check_zones_used
from noonward.data.signals.formats import FORMATS, format_of, import_signals
from noonward.data.signals.readings import ImportOptions
from noonward.data.text_table import TextFile, read_text_file
from noonward.errors import DataError, ScenarioError, nearest
from noonward.files import table_bytes, write_text

Rate = tuple[tuple[date, float], ...]
"""US dollars for a unit of a currency from each day on."""
T = TypeVar("T")
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(kw_only=True)
class Imported:
    """What some files hold.

    Attributes:
        accounts: One account a file, in order.
        signals: Hours of zones, in the columns of a tidy signal file, or None.
        jobs: A dated job table, or None.
        checks: Warnings about valid but implausible values, a sentence each.
    """

    accounts: list[Account] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    signals: pl.DataFrame | None = None
    jobs: pl.DataFrame | None = None

    @property
    def zones(self) -> pl.DataFrame:
        """What is known of each zone and quantity, a row each; empty without signals.

        Columns ``zone``, ``quantity``, ``from`` and ``to`` (first and last known hour, UTC), ``known`` and ``missing``
        (hours between these), ``mean``, ``least`` and ``most`` (USD/MWh or g/kWh).
        """
        names = {"price_usd_per_mwh": "price, USD/MWh", "carbon_intensity_g_per_kwh": "carbon, g/kWh"}
        tables = []
        for name, quantity in names.items():
            if self.signals is None or name not in self.signals.columns:
                continue
            known = self.signals.filter(pl.col(name).is_not_null())
            if (known["timestamp"].str.slice(14, 2) != "00").any():  # hours by their parts
                hour = pl.col("timestamp").str.slice(0, 14) + "00:00Z"
                known = known.group_by("zone", hour).agg(pl.col(name).mean())
            first, last = pl.col("timestamp").min(), pl.col("timestamp").max()
            hours = (last.str.to_datetime(_TIME) - first.str.to_datetime(_TIME)).dt.total_hours() + 1
            tables.append(
                known.group_by("zone")
                .agg(
                    pl.lit(quantity).alias("quantity"),
                    first.alias("from"),
                    last.alias("to"),
                    pl.len().cast(pl.Int64).alias("known"),
                    (hours - pl.len()).alias("missing"),
                    pl.col(name).mean().alias("mean"),
                    pl.col(name).min().alias("least"),
                    pl.col(name).max().alias("most"),
                )
                .sort("zone")
            )
        return pl.concat(tables).sort("zone", maintain_order=True) if tables else pl.DataFrame()

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


def import_files(
    paths: Sequence[str | Path],
    *,
    format: str | None = None,
    timezone: str | Mapping[str, str] | None = None,
    zones: str | Mapping[str, str] | None = None,
    origins: str | Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    classes: Sequence[str] = (),
    anonymous: bool = False,
    salt: str | None = None,
    first_day: date | None = None,
    currency: str | None = None,
    usd_per: Mapping[str, float | Rate] | None = None,
    price_unit: str | None = None,
    carbon_unit: str | None = None,
    decimal: str | None = None,
    date_order: Order | None = None,
    encoding: str | None = None,
    fill_gaps_h: int = 0,
    skip_bad: int = 0,
) -> Imported:
    """Reads signal files and job logs of any known formats; ``noonward import`` from Python.

    Signals of several files are put together, a later file filling only what the earlier ones leave unknown; jobs of
    several files are put together in order of submission. ``Imported.write`` writes the result.

    Args:
        paths: The files.
        format: Format of all files; None: detected for each.
        timezone: Time zone of times without one: an IANA name or an offset; or one by file name (``*``: the others).
        zones: Zone of a file's only area; or zone by the area's name in the file, or by file name (``*``: the others).
        origins: Place that all jobs come from; or place by the log's own name of it, or by file name (``*``: others).
        columns: Names of columns by key, where a table does not have the usual ones.
        classes: Rules such as ``interactive=Partition==dev``; the first that fits gives a job its class.
        anonymous: Replace job ids, users, teams and names by digests.
        salt: Secret of the digests; None: a random one.
        first_day: Day to whose week a log is moved, by whole weeks.
        currency: Currency of prices where a file names none, or another one.
        usd_per: US dollars for a unit of a currency, by its code; or (first day, rate) pairs.
        price_unit: Unit of prices, such as ``EUR/kWh``.
        carbon_unit: Unit of carbon intensities, such as ``kg/kWh``.
        decimal: Decimal sign, ``.`` or ``,``.
        date_order: ``dmy`` or ``mdy``, where the year does not come first.
        encoding: Encoding of the text.
        fill_gaps_h: Gaps of at most this many hours are filled along a straight line.
        skip_bad: Most rows per file that may be left out because they are wrong.

    Raises:
        ScenarioError: A rule of a class, or ``salt`` without ``anonymous``.
        DataError: No file, one that stands twice, an unknown format, or a file that cannot be read; the message names
            file, line, column and remedy.
    """
    if salt is not None and not anonymous:
        raise ScenarioError("--salt was given without --anonymous, which it belongs to; add --anonymous")
    names, clock = _apart(timezone)
    clocks = {name: _clock(each) for name, each in names.items()}
    of_area, one_zone = _apart(zones)
    of_place, one_origin = _apart(origins)
    rates = {
        code.upper(): ((date.min, float(rate)),) if isinstance(rate, int | float) else rate
        for code, rate in (usd_per or {}).items()
    }
    signals = ImportOptions(
        encoding=encoding,
        decimal=decimal,
        clock=None if clock is None else _clock(clock),
        clocks=clocks,
        skip_bad=skip_bad,
        date_order=date_order,
        columns=columns or {},
        zones=of_area,
        zone=one_zone,
        currency=None if currency is None else currency.upper(),
        rates=rates,
        price_unit=price_unit,
        carbon_unit=carbon_unit,
        fill_gaps_h=fill_gaps_h,
    )
    jobs = LogOptions(
        encoding=encoding,
        clock=signals.clock,
        clocks=clocks,
        skip_bad=skip_bad,
        date_order=date_order,
        decimal=decimal,
        columns=columns or {},
        classes=tuple(parse_class(text) for text in classes),
        salt=(salt or secrets.token_hex(16)) if anonymous else None,
        first_day=first_day,
        origins=of_place,
        origin=one_origin,
    )
    return _import_all([Path(path) for path in paths], signals, jobs, format)


def _apart(told: str | Mapping[str, str] | None) -> tuple[dict[str, str], str | None]:
    """Returns what was told by name, and what was told of all."""
    if told is None or isinstance(told, str):
        return {}, told
    return {name: value for name, value in told.items() if name != "*"}, told.get("*")


def _clock(name: str) -> Clock:
    """Returns a clock that is known."""
    clock = Clock(name)
    _ = clock.offset
    return clock


def _import_all(paths: Sequence[Path], signals: ImportOptions, jobs: LogOptions, told: str | None) -> Imported:
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
    names = {str(path) for path in paths} | {path.name for path in paths}
    for name in {*signals.clocks, *jobs.clocks}:
        if name not in names:
            raise DataError(f"--timezone names the file {name!r}, which is not imported; {nearest(name, names)}")
    for name in {*signals.clocks, *jobs.clocks, *signals.zones, *jobs.origins}:
        same = [str(path) for path in paths if path.name == name]
        if len(same) > 1:
            raise DataError(f"{name!r} may be {' or '.join(same)}; name files with their folders")
    found = Imported()
    kinds: dict[str, str] = {}
    hours: list[pl.DataFrame] = []
    parts: list[pl.DataFrame] = []
    tables: list[pl.DataFrame] = []
    areas: set[str] = set()
    places: set[str] = set()
    for key in {*signals.columns, *jobs.columns}:
        if key not in _KEYS:
            raise DataError(f"--column names the unknown key {key!r}; {nearest(key, _KEYS)}")
    for path in paths:
        file = read_text_file(path, signals.encoding)
        if _holds_jobs(file, told):
            kind = log_format_of(file, told)
            assert kind is not None
            clocks, origins = _of_file(jobs.clocks, path), _of_file(jobs.origins, path)
            options = replace(jobs, format=told, columns=_some(jobs.columns, kind.keys), clocks=clocks, origins=origins)
            table, account = import_jobs(path, options, check_origins=False)
            places |= account.places | {path.name, str(path)}
            tables.append(table)
        else:
            keys = format_of(file, told).keys
            clocks, zones = _of_file(signals.clocks, path), _of_file(signals.zones, path)
            imported = import_signals(
                path, replace(signals, format=told, columns=_some(signals.columns, keys), clocks=clocks, zones=zones)
            )
            hours.append(imported.hours.with_columns(file=pl.lit(path.name)))
            parts.append(imported.parts.with_columns(file=pl.lit(path.name)))
            account = imported.account
            if imported.kind is not None:
                kinds[path.name] = imported.kind
            areas |= {*imported.areas, path.name, str(path)}
        found.accounts.append(account)
    _check_columns_used({**signals.columns, **jobs.columns}, found.accounts)
    if hours:
        check_zones_used(signals, dict.fromkeys(areas))
        check_one_kind(kinds)
        _account_for_overlaps(hours, found.accounts)
        found.signals = _tidy(hours, pl.concat(parts))
        if "marginal" in kinds.values():
            found.signals = found.signals.with_columns(carbon_kind=pl.lit("marginal"))
    if tables:
        for name in jobs.origins:
            if name not in places:
                logs = " or ".join(sorted(places & {path.name for path in paths}))
                named = sorted(places - {str(path) for path in paths if str(path) != path.name})
                raise DataError(f"--origin names {name!r}, where no job of {logs} comes from; {nearest(name, named)}")
        found.jobs = pl.concat(tables, how="diagonal").sort("submit_time", maintain_order=True)
        for rule in jobs.classes:
            if rule.name not in found.jobs["class"]:
                found.checks.append(f"--class {rule} fits no job; is the column the right one, and the value in it?")
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


def _of_file(told: Mapping[str, T], path: Path) -> dict[str, T]:
    """Returns what was told by name, with what was told of a file by its path under its name."""
    return {**told, path.name: told[str(path)]} if str(path) in told else dict(told)


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


def check_one_kind(kinds: Mapping[str, str]) -> None:
    """Raises DataError if files hold average and marginal carbon intensities.

    Args:
        kinds: ``average`` or ``marginal`` by name of a file; files that do not say are left out.
    """
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        raise DataError(
            f"the files hold carbon intensities of two kinds ({listed}), which cannot be compared: sites would rank "
            "by the kind of their data; import files of one kind for all zones"
        )


def _account_for_overlaps(hours: Sequence[pl.DataFrame], accounts: Sequence[Account]) -> None:
    """Adds to each file's account the hours that an earlier file gives too, equal or with another value."""
    account_of = {account.file: account for account in accounts}
    for number, later in enumerate(hours):
        if number == 0:
            continue
        account = account_of[later["file"][0]]
        before = pl.concat(hours[:number])
        for name, unit in (("price", "USD/MWh"), ("carbon", "g/kWh")):
            known = before.filter(pl.col(name).is_not_null())
            first = known.unique(["zone", "timestamp"], keep="first", maintain_order=True)
            both = later.filter(pl.col(name).is_not_null()).join(
                first.select("zone", "timestamp", pl.col(name).alias("first"), pl.col("file").alias("by")),
                on=["zone", "timestamp"],
            )
            other = both.filter((pl.col(name) - pl.col("first")).abs() > 1e-6)
            account.add("dropped", both.height - other.height, f"hours whose {name} an earlier file gives alike")
            if other.height:
                row = other.sort("zone", "timestamp").row(0, named=True)
                account.add(
                    "dropped",
                    other.height,
                    f"hours whose {name} an earlier file gives with another value, which is kept (the first: "
                    f"{row['zone']}, {row['timestamp']:%Y-%m-%dT%H:%MZ}: {row['first']:g} {unit} in {row['by']}, "
                    f"{row[name]:g} here)",
                )


def _tidy(hours: Sequence[pl.DataFrame], parts: pl.DataFrame) -> pl.DataFrame:
    """Returns the hours of several files as one tidy table, hours that change within by their parts."""
    ordered = pl.concat(hours)

    def first(name: str) -> pl.Expr:
        return pl.col(name).filter(pl.col(name).is_not_null()).first()

    estimated = pl.col("estimated").filter(pl.col("carbon").is_not_null()).first().fill_null(value=False)
    whole = ordered.group_by("zone", "timestamp").agg(first("price"), first("carbon"), estimated)
    if parts.height:
        whole = _by_part(whole, ordered, parts)
    tidy = whole.sort("zone", "timestamp").select(
        pl.col("timestamp").dt.strftime(_TIME),
        "zone",
        pl.col("carbon").round(6).alias("carbon_intensity_g_per_kwh"),
        pl.col("price").round(6).alias("price_usd_per_mwh"),
        pl.col("estimated").alias("carbon_is_estimated"),
    )
    empty = [name for name in ("carbon_intensity_g_per_kwh", "price_usd_per_mwh") if tidy[name].is_null().all()]
    return tidy.drop(*empty, *(["carbon_is_estimated"] if "carbon_intensity_g_per_kwh" in empty else []))


def _by_part(whole: pl.DataFrame, ordered: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Returns hours with rows for their parts, of each quantity those of the first file that knows the hour."""
    key = ["zone", "timestamp"]
    tables = []
    for name in ("price", "carbon"):
        known = ordered.filter(pl.col(name).is_not_null()).unique(key, keep="first", maintain_order=True)
        fine = parts.filter(pl.col("quantity") == name).join(known.select(*key, "file"), on=[*key, "file"], how="semi")
        rest = whole.join(fine.select(key).unique(), on=key, how="anti").select(*key, name, hour="timestamp")
        timed = fine.select(
            "zone",
            pl.col("timestamp") + pl.duration(minutes="into"),
            pl.col("value").alias(name),
            hour="timestamp",
        )
        tables.append(pl.concat([rest.filter(pl.col(name).is_not_null()), timed]))
    both = tables[0].join(tables[1], on=[*key, "hour"], how="full", coalesce=True)
    return both.join(whole.select("zone", "estimated", hour="timestamp"), on=["zone", "hour"], how="left").drop("hour")

"""``noonward import``: publishers' signal files and job logs become tidy files, with an account of what was done."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from noonward.cli.options import writable

if TYPE_CHECKING:
    from noonward.data.import_files import Imported


def import_(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Signal files and job logs; of signals, a later file fills what earlier ones leave unknown."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for signals.csv, jobs.csv and import.json; without it nothing is written.", callback=writable
        ),
    ] = None,
    format: Annotated[str | None, typer.Option(help="Format of all files (see --formats). [default: detected]")] = None,
    timezone: Annotated[
        list[str] | None,
        typer.Option(
            help="Time zone of times without one: Europe/Berlin, UTC, +01:00; or FILE=Europe/Paris. Repeat it."
        ),
    ] = None,
    skip_bad: Annotated[
        int, typer.Option(min=0, help="Leave out up to this many wrong rows per file, and say which.")
    ] = 0,
    zone: Annotated[
        list[str] | None,
        typer.Option(help="Zone of a file's only area: DE; or AREA=ZONE (its other areas are left out), or FILE=ZONE."),
    ] = None,
    first_day: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Move a log by whole weeks, so that it begins in this day's week."),
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Origin of all jobs: berlin; or CLUSTER=ORIGIN, or FILE=ORIGIN.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Column of a table, by its key: price=Spot, submit_time=Eingang, team=Account."),
    ] = None,
    class_: Annotated[
        list[str] | None,
        typer.Option("--class", help="Class of jobs by a column: 'interactive=Partition==dev'; the first that fits."),
    ] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Replace job ids, users, teams and names by digests.")
    ] = False,
    salt: Annotated[
        str | None,
        typer.Option(help="Secret of the digests of --anonymous: the same gives the same. [default: a random one]"),
    ] = None,
    currency: Annotated[str | None, typer.Option(help="Currency of prices, if the file names none.")] = None,
    fx: Annotated[
        list[str] | None,
        typer.Option(help="US dollars for a unit of a currency: EUR=1.08, or a CSV file with day,currency,usd."),
    ] = None,
    price_unit: Annotated[str | None, typer.Option(help="Unit of prices: EUR/MWh, EUR/kWh, ct/kWh.")] = None,
    carbon_unit: Annotated[str | None, typer.Option(help="Unit of carbon intensities: g/kWh, kg/kWh, lb/MWh.")] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal sign, . or , [default: detected]")] = None,
    date_order: Annotated[str | None, typer.Option(help="dmy or mdy, if the year does not come first.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding, e.g. cp1252, cp932. [default: detected]")] = None,
    fill_gaps: Annotated[
        int, typer.Option(min=0, max=24, help="Interpolate runs of missing hours up to this length.")
    ] = 0,
    formats: Annotated[bool, typer.Option("--formats", help="List the known formats.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the accounts as JSON.")] = False,
) -> None:
    """Turn downloaded logs and price files into tidy files.

    Every command reads the result. Without --out nothing is written: look at the account first.
    """
    from noonward.data.clock import Order
    from noonward.data.exchange_rates import read_rates
    from noonward.data.import_files import import_files
    from noonward.errors import ScenarioError

    if formats:
        _print_formats(json)
        return
    _one_of("--decimal", decimal, (".", ","))
    _one_of("--date-order", date_order, tuple(order for order in get_args(Order) if order != "ymd"))
    columns, bare = pairs("--column", column)
    if bare:
        raise ScenarioError(f"--column {bare[0]!r} is not of the form key=NAME; write e.g. --column price=Spot")
    imported = import_files(
        files or [],
        format=format,
        timezone=_by_name("--timezone", timezone),
        zones=_by_name("--zone", zone),
        origins=_by_name("--origin", origin),
        columns=columns,
        classes=class_ or (),
        anonymous=anonymous,
        salt=salt,
        first_day=None if first_day is None else first_day.date(),
        currency=currency,
        usd_per=read_rates(fx or (), currency),
        price_unit=price_unit,
        carbon_unit=carbon_unit,
        decimal=decimal,
        date_order=date_order,  # type: ignore[arg-type]
        encoding=encoding,
        fill_gaps_h=fill_gaps,
        skip_bad=skip_bad,
    )
    paths = [] if out is None else imported.write(out)
    _print(imported, paths, json)


def _print(found: Imported, paths: list[Path], json: bool) -> None:
    """Prints the accounts, what the files hold, and where it was written."""
    import json as json_

    if json:
        content = {
            "accounts": [account.to_json() for account in found.accounts],
            "files": [str(path) for path in paths],
        }
        print(json_.dumps(content, indent=1))
        return
    for account in found.accounts:
        print("\n".join(account.lines()))
    if found.signals is not None:
        days = found.signals["timestamp"].sort()
        print(f"signals: {found.signals['zone'].n_unique()} zones, {days[0]} to {days[-1]}")
        _print_zones(found)
    if found.jobs is not None:
        days, gpus = found.jobs["submit_time"], found.jobs["gpus"] * found.jobs["duration_s"] / 3600
        print(f"jobs: {len(days):,} jobs, {days[0]} to {days[-1]}, {gpus.sum():,.0f} GPU hours")
    for check in found.checks:
        print(f"check: {check}")
    for path in paths:
        print(f"written: {path}")
    if not paths:
        print("nothing was written; give --out FOLDER to write tidy files")


def _print_zones(found: Imported) -> None:
    """Prints what is known of each zone."""
    from rich.table import Table

    from noonward.cli.options import print_table
    from noonward.data.sanity import level_warnings

    table = Table("zone", "quantity", "from (UTC)", "to (UTC)", "known h", "missing h", "mean", "min", "max")
    for row in found.zones.iter_rows(named=True):
        level = [f"{row[name]:,.1f}" for name in ("mean", "least", "most")]
        times = [row[name].replace("T", " ").removesuffix(":00Z") for name in ("from", "to")]
        table.add_row(row["zone"], row["quantity"], *times, f"{row['known']:,}", f"{row['missing']:,}", *level)
    print_table(table)
    for row in found.zones.iter_rows(named=True):
        of_price = row["quantity"].startswith("price")
        levels = {"price": row["mean"] if of_price else None, "carbon": None if of_price else row["mean"]}
        for check in level_warnings(row["zone"], **levels):
            print(f"check: {check}")


def _print_formats(as_json: bool) -> None:
    """Prints the known formats."""
    from noonward.data.jobs.formats import LOG_FORMATS
    from noonward.data.signals.formats import FORMATS

    titles = {name: each.title for name, each in LOG_FORMATS.items()}
    titles |= {name: each.title for name, each in FORMATS.items()}
    if as_json:
        import json

        print(json.dumps([{"format": name, "title": title} for name, title in titles.items()], indent=1))
        return
    for name, title in titles.items():
        print(f"{name:18s} {title}")


def pairs(option: str, stated: list[str] | None) -> tuple[dict[str, str], list[str]]:
    """Returns the values of an option of the form KEY=VALUE, and those without a key.

    Raises:
        ScenarioError: A key or value is empty, or a key stands twice.
    """
    from noonward.errors import ScenarioError

    pairs: dict[str, str] = {}
    bare = []
    for text in stated or ():
        key, separator, value = text.rpartition("=")
        if not separator:
            bare.append(text)
        elif not key or not value:
            raise ScenarioError(f"{option} {text!r} is not of the form KEY=VALUE; give both")
        elif key in pairs:
            raise ScenarioError(f"{option} names {key!r} twice; name it once")
        else:
            pairs[key] = value
    return pairs, bare


def _by_name(option: str, stated: list[str] | None) -> dict[str, str]:
    """Returns what an option says by name; what it says of all has the name ``*``.

    Raises:
        ScenarioError: It says two things of all, or something is empty or stands twice.
    """
    from noonward.errors import ScenarioError

    named, everywhere = pairs(option, stated)
    if len(everywhere) > 1:
        raise ScenarioError(
            f"{option} names {' and '.join(everywhere)} for all files; write NAME={everywhere[0]} for each"
        )
    return {**named, "*": everywhere[0]} if everywhere else named


def _one_of(option: str, value: str | None, allowed: tuple[str, ...]) -> None:
    from noonward.errors import ScenarioError

    if value is not None and value not in allowed:
        raise ScenarioError(f"{option} {value!r} is unknown; give {' or '.join(allowed)}")

"""``noonward init``: your own scenario, from sites, zones and GPUs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from noonward.cli.durations import duration
from noonward.cli.options import FirstDay, LastDay, print_notes
from noonward.units import HOUR_S, MINUTE_S


def init(
    file: Annotated[Path, typer.Argument(help="YAML file to write, e.g. mine.yaml.")] = Path("mine.yaml"),
    site: Annotated[
        list[str] | None,
        typer.Option(help="A site: berlin=DE:64xA100-80-SXM; several types: oslo=NO-NO1:32xH100-SXM,64xL4. Repeat it."),
    ] = None,
    signals: Annotated[
        list[Path] | None, typer.Option("--signals", help="Signal file (see 'noonward import'); repeat it.")
    ] = None,
    jobs: Annotated[Path | None, typer.Option("--jobs", help="Dated job table (see 'noonward import').")] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Site that all jobs come from: berlin; or CLUSTER=SITE for names of the log."),
    ] = None,
    class_: Annotated[
        list[str] | None,
        typer.Option("--class", help="Class of jobs by a column: 'interactive=partition==dev'; the first that fits."),
    ] = None,
    class_slack_h: Annotated[
        list[str] | None,
        typer.Option(help="Largest delay of a start for a class: batch=48h. [default: --slack-h]"),
    ] = None,
    class_sites: Annotated[
        list[str] | None,
        typer.Option(help="Sites that jobs of a class may run at: eu=berlin,paris. [default: all]"),
    ] = None,
    first: FirstDay = None,
    last: LastDay = None,
    pue: Annotated[float, typer.Option(min=1, help="Power usage effectiveness of the sites.")] = 1.3,
    slack_h: Annotated[
        float,
        typer.Option(
            parser=duration(HOUR_S, bare=True, endless=True),
            metavar="DURATION",
            help="Largest delay of a start that is in time; inf: no job is ever late. [default: 24h]",
            show_default=False,
        ),
    ] = 24.0,
    late_usd_per_gpu_hour: Annotated[
        float,
        typer.Option(
            min=0, help="USD per hour that a job starts late, per GPU; 0: no more jobs may be late than today."
        ),
    ] = 0.0,
    waiting_usd_per_hour: Annotated[
        float, typer.Option(min=0, help="What an hour of waiting costs, USD per job; 0: waiting is only counted.")
    ] = 0.0,
    gpu_usd_per_hour: Annotated[
        float,
        typer.Option(
            min=0, help="What a GPU costs per hour, busy or idle, USD: savings are shown as a share of it too."
        ),
    ] = 0.0,
    leave_alone_minutes: Annotated[
        float,
        typer.Option(
            parser=duration(MINUTE_S, bare=True),
            metavar="DURATION",
            help="Jobs that run for less are not delayed: they are late unless they start at once. [default: 15m]",
            show_default=False,
        ),
    ] = 15.0,
    carbon_price: Annotated[float, typer.Option(min=0, help="USD per tonne of CO2.")] = 100.0,
    revenue: Annotated[float, typer.Option(min=0, help="What a GPU-hour of work is worth, USD.")] = 2.0,
    gpus: Annotated[bool, typer.Option("--gpus", help="List the packaged GPUs.")] = False,
    zones: Annotated[bool, typer.Option("--zones", help="List the known electricity zones.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the list of --gpus or --zones as one JSON array.")
    ] = False,
) -> None:
    """Write a scenario of your own, as commented YAML.

    Asks for the sites if none are given.
    """
    from noonward.cli.import_ import pairs
    from noonward.errors import ScenarioError
    from noonward.evaluate.init_fleet import init_fleet, require_new

    if gpus:
        _print_gpus(json)
        return
    if zones:
        _print_zones(json)
        return
    if json:
        raise ScenarioError("--json is for the lists of --gpus and --zones; add one of them")
    require_new(file, force)
    origins, everywhere = pairs("--origin", origin)
    if len(everywhere) > 1:
        raise ScenarioError(f"--origin names {' and '.join(everywhere)} for all jobs; write CLUSTER=SITE for each")
    slack = duration(HOUR_S, bare=True, endless=True, option="--class-slack-h")
    made = init_fleet(
        file,
        sites=site or _ask_sites(),
        signals=signals or (),
        jobs=jobs,
        origins=everywhere[0] if everywhere else origins,
        classes=class_ or (),
        class_slack_h={name: slack(text) for name, text in _named("--class-slack-h", class_slack_h).items()},
        class_sites={name: text.split(",") for name, text in _named("--class-sites", class_sites).items()},
        first=_day(first),
        last=_day(last),
        force=force,
        pue=pue,
        slack_h=slack_h,
        late_usd_per_gpu_hour=late_usd_per_gpu_hour,
        waiting_usd_per_hour=waiting_usd_per_hour,
        gpu_usd_per_hour=gpu_usd_per_hour,
        leave_alone_min=leave_alone_minutes,
        carbon_usd_per_t=carbon_price,
        revenue_usd_per_gpu_hour=revenue,
    )
    environment = made.environment
    print(f"written: {file}" + ("" if made.table is None else f", {made.table}"))
    print(f"{len(environment.jobs):,} jobs from {environment.start:%Y-%m-%d} on over {made.scenario.window_h} h, "
          f"{made.gpus:,} GPUs")  # fmt: skip
    print_notes(made.notes)
    for misfit in made.left_out:
        print(f"left out: {misfit}")
    print(f"next: {made.next_command}")


def _named(option: str, stated: list[str] | None) -> dict[str, str]:
    """Returns what an option says by name of a class.

    Raises:
        ScenarioError: It names no class.
    """
    from noonward.cli.import_ import pairs
    from noonward.errors import ScenarioError

    named, bare = pairs(option, stated)
    if bare:
        raise ScenarioError(f"{option} {bare[0]!r} names no class; write CLASS={bare[0]}")
    return named


def _day(time: datetime | None) -> date | None:
    return None if time is None else time.date()


def _ask_sites() -> list[str]:
    """Returns the sites that the user types in.

    Raises:
        ScenarioError: Nobody can be asked.
    """
    from noonward.data.gpu_library import gpu_library
    from noonward.errors import ScenarioError

    if not sys.stdin.isatty():
        raise ScenarioError(
            "no site was given; give at least one: --site berlin=DE:64xA100-80-SXM (or run in a terminal)"
        )
    print(f"GPUs: {', '.join(gpu_library())}")
    sites: list[str] = []
    while name := typer.prompt("name of a site (empty: done)", default="", show_default=False).strip():
        zone = typer.prompt("  electricity zone, e.g. DE, SE-SE3, US-TEX-ERCO").strip()
        counts = typer.prompt("  GPUs, e.g. 64xA100-80-SXM or 32xH100-SXM,64xL4").strip()
        sites.append(f"{name}={zone}:{counts}")
    return sites


def _print_zones(as_json: bool) -> None:
    """Prints the packaged electricity zones, their time zones, and which have statistics to generate signals from."""
    from rich.table import Table

    from noonward.cli.options import print_table
    from noonward.data.local_time import zone_timezones
    from noonward.data.signals.calibration import load_calibration

    calibrated = load_calibration("w2022").zones
    zones = sorted(zone_timezones().items())
    if as_json:
        _print_json([{"zone": zone, "timezone": timezone, "generated": zone in calibrated} for zone, timezone in zones])
        return
    table = Table("zone", "time zone", "without signal files")
    for zone, timezone in zones:
        table.add_row(zone, timezone, "generated prices" if zone in calibrated else "-")
    print_table(table)


def _print_json(rows: list[dict[str, Any]]) -> None:
    import json

    print(json.dumps(rows, indent=1))


def _print_gpus(as_json: bool) -> None:
    """Prints the packaged GPUs with their powers and sources."""
    from rich.table import Table

    from noonward.cli.options import print_table
    from noonward.data.gpu_library import gpu_library

    if as_json:
        _print_json([asdict(gpu) for gpu in gpu_library().values()])
        return
    table = Table("GPU", "GB", "limit W", "idle W", "active W", "active power from")
    for gpu in gpu_library().values():
        table.add_row(
            gpu.name, str(gpu.memory_gb), f"{gpu.limit_w:g}", f"{gpu.idle_w:g}", f"{gpu.active_w:g}", gpu.active_source
        )
    print_table(table)

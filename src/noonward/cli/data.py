"""``noonward data``: look at signal and job files before they are used, and write generated ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from noonward.cli.help import Group
from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    Seed,
    open_scenario,
    print_notes,
    print_table,
    require_cluster,
    stated_scenario,
    writable,
)
from noonward.cli.signals import show

if TYPE_CHECKING:
    from noonward.model.cluster.scenario import Scenario

app = typer.Typer(
    cls=Group, help="Check and show data files; write generated ones.", no_args_is_help=True, rich_markup_mode=None
)
app.command(name="show")(show)


@app.command()
def check(
    files: Annotated[
        list[Path],
        typer.Argument(help="Signal files, of which later ones fill what earlier ones leave unknown; or a job file."),
    ],
    zones: Annotated[str | None, typer.Option(help="Signals: comma-separated zones. [default: all]")] = None,
    format: Annotated[
        str | None, typer.Option(help="Signals: format of all files (see 'noonward import --formats').")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Jobs: time zone of times without one: Europe/Berlin, UTC.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(help="Scenario to check the files against. [default for jobs: the fleet of fine-tuning]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check signal files or a job file; print what they hold.

    With --scenario, also whether they suffice for it.
    """
    from noonward.data.jobs.dated import holds_jobs
    from noonward.errors import ScenarioError

    jobs = [file for file in files if holds_jobs(file)]
    for option, value in (("--zones", zones), ("--format", format)) if jobs else (("--timezone", timezone),):
        if value is not None:
            kind, other = ("signal", "jobs") if jobs else ("job", "signals")
            raise ScenarioError(f"{option} is for {kind} files, and {(jobs or files)[0]} holds {other}; leave it out")
    if jobs and len(files) > 1:
        raise ScenarioError(f"{jobs[0]} holds jobs; check it by itself")
    content = _job_content(jobs[0], scenario, timezone) if jobs else _signal_content(files, zones, format)
    served = None
    if scenario is not None:
        served = _served(scenario, signals=None if jobs else files, jobs=jobs[0] if jobs else None, timezone=timezone)
    if json:
        from json import dumps

        print(dumps(content if served is None else content | {"serves": served}, indent=1))
        return
    (_print_jobs if jobs else _print_signals)(content)
    if served is not None:
        print(f"they serve scenario {served['scenario']}: {served['summary']}")
        print_notes(served["notes"])


def _signal_content(files: list[Path], zones: str | None, format: str | None) -> dict[str, Any]:
    """Returns what signal files hold per zone."""
    import numpy as np

    from noonward.cli.options import split_names
    from noonward.data.sanity import signal_warnings
    from noonward.data.signals.load import load_signals

    wanted = split_names(zones)
    loaded = load_signals(files, format, zones=None if wanted is None else tuple(wanted))
    rows = []
    for z, zone in enumerate(loaded.zones):
        row: dict[str, Any] = {"zone": zone}
        for name, values_H in (
            ("price_usd_per_mwh", loaded.price_usd_per_mwh_ZH[z]),
            ("carbon_g_per_kwh", loaded.carbon_g_per_kwh_ZH[z]),
        ):
            present = values_H[~np.isnan(values_H)]
            measures = {"mean": present.mean, "min": present.min, "max": present.max} if len(present) else {}
            row[name] = {"hours": len(present), **{measure: float(take()) for measure, take in measures.items()}}
        rows.append(row)
    return {
        "start": f"{loaded.start:%Y-%m-%d %H:%M}",
        "end": f"{loaded.end:%Y-%m-%d %H:%M}",
        "hours": loaded.hours,
        "zones": rows,
        "checks": list(signal_warnings(loaded)),
        "notes": list(loaded.notes),
    }


def _print_signals(content: dict[str, Any]) -> None:
    """Prints what signal files hold."""
    from rich.table import Table

    print(f"{content['start']} to {content['end']} UTC, {content['hours']} hours")
    table = Table("zone", "price: known hours", "mean USD/MWh", "min", "max", "carbon: known hours", "mean g/kWh")
    for row in content["zones"]:
        price, carbon = row["price_usd_per_mwh"], row["carbon_g_per_kwh"]
        cells = [f"{price[each]:.1f}" if each in price else "" for each in ("mean", "min", "max")]
        mean = f"{carbon['mean']:.1f}" if "mean" in carbon else ""
        table.add_row(row["zone"], str(price["hours"]), *cells, str(carbon["hours"]), mean)
    print_table(table)
    for warning in content["checks"]:
        print(f"check: {warning}")
    print_notes(content["notes"])


def _job_content(file: Path, scenario: str | None, timezone: str | None) -> dict[str, Any]:
    """Returns what a job file holds."""
    import numpy as np

    from noonward.data.jobs.dated import is_dated, job_rows
    from noonward.data.jobs.load import load_job_table, load_job_trace, run_times_s
    from noonward.data.table_file import column_names
    from noonward.errors import DataError
    from noonward.model.cluster.scenario import JobTable
    from noonward.units import HOUR_S

    account: list[str] = []
    if is_dated(file):
        rows = job_rows(JobTable(source="table", path=file, timezone=timezone))
        assert rows.submit_s_J is not None
        account = [] if rows.account is None else list(rows.account.lines())
        rows.table.require("gpus", "duration_s")
        arrival_s = rows.submit_s_J
        gpus = rows.table.integers("gpus", "give a whole number of GPUs, at least 1", low=1)
        seconds = run_times_s(rows.table)
        kind = f"dated job table, {rows.days[0]} to {rows.days[1]} UTC" if rows.days else "dated job table"
    elif "origin" in column_names(file):
        try:
            table = load_job_table(file, open_scenario(scenario or "fine-tuning").fleet)
        except DataError as error:
            if scenario is not None:
                raise
            raise DataError(f"{error}; or name the scenario of the jobs: --scenario fleet.yaml") from None
        gpus, seconds, arrival_s = table.gpus_max_J, table.work_J, table.arrival_s_J
        kind = "job table"
    else:
        trace = load_job_trace(file)
        gpus, seconds, arrival_s = trace.gpus_J, trace.duration_s_J, trace.submit_s_J
        kind = "trace"
    return {
        "account": account,
        "kind": kind,
        "jobs": len(gpus),
        "span_h": float(arrival_s.max() - arrival_s.min()) / HOUR_S,
        "gpus": {"mean": float(gpus.mean()), "max": int(gpus.max())},
        "duration_or_work_quantiles": {f"{q}%": float(np.percentile(seconds, q)) for q in (5, 25, 50, 75, 95, 99)},
    }


def _print_jobs(content: dict[str, Any]) -> None:
    """Prints what a job file holds."""
    for line in content["account"]:
        print(line)
    print(f"{content['kind']}: {content['jobs']} jobs over {content['span_h']:.1f} h")
    print(f"GPUs: mean {content['gpus']['mean']:.2f}, largest {content['gpus']['max']}")
    quantiles = ", ".join(f"{share}: {value:.0f}" for share, value in content["duration_or_work_quantiles"].items())
    print(f"duration or work, quantiles: {quantiles}")


def _served(name: str, signals: list[Path] | None, jobs: Path | None, timezone: str | None) -> dict[str, Any]:
    """Builds a scenario's first environment with files; returns what it holds and what must be known about it.

    Raises:
        NoonwardError: The files do not serve the scenario; the message says why.
    """
    import json

    from noonward.data.environments import describe_environment
    from noonward.runtime.by_kind import build_environment

    settings = None if timezone is None else [f"jobs.timezone={json.dumps(timezone)}"]
    scenario = open_scenario(name, signals, jobs, settings=settings)
    require_cluster(scenario, "noonward data check --scenario")
    environment = build_environment(scenario)
    return {
        "scenario": scenario.name,
        "summary": describe_environment(environment),
        "notes": list(environment.notes),
    }


@app.command()
@option_groups(scenario=stated_scenario)
def generate(
    *,
    scenario: Scenario,
    out: Annotated[Path, typer.Option(help="Folder for signals.csv and jobs.csv.", callback=writable)],
    environment: Annotated[int, typer.Option(min=0, help="Number of the environment.")] = 0,
    seed: Seed = 0,
) -> None:
    """Write an environment's signals and jobs as files."""
    from noonward.data.environments import build_environment
    from noonward.data.jobs.load import write_job_table
    from noonward.data.signals.load import write_generated_signals

    require_cluster(scenario, "noonward data generate")
    drawn = build_environment(scenario, environment, seed)
    write_job_table(drawn.jobs, drawn.fleet, out / "jobs.csv")
    print(f"{len(drawn.jobs)} jobs: {out / 'jobs.csv'}")
    if drawn.signals is not None:
        # A day of history for forecasts, no more: so the file holds this one window and no other.
        first = drawn.signals.hour_of(drawn.start) - 24
        kept = drawn.signals.window(drawn.signals.time_of(first), drawn.signals.hours - first)
        write_generated_signals(kept, out / "signals.csv")
        print(f"{kept.hours} hours of {len(drawn.signals.zones)} zones: {out / 'signals.csv'}")


@app.command()
def tariff(
    file: Annotated[Path, typer.Argument(help="JSON file of the OpenEI Utility Rate Database.")],
    label: Annotated[str | None, typer.Option(help="Label of the rate, where the file has several.")] = None,
    name: Annotated[str, typer.Option(help="Name that the tariff gets.")] = "urdb",
) -> None:
    """Print a rate of the Utility Rate Database as a tariff.

    The YAML goes under 'fleet' of a scenario; a site's meter names the tariff.
    """
    import yaml

    from noonward.data.urdb import read_urdb

    title, found = read_urdb(file, label)
    print(f"# {title}")
    content = {"tariffs": {name: found.model_dump(mode="json", exclude_defaults=True)}}
    print(yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True), end="")


@app.command()
def events(
    url: Annotated[str, typer.Argument(help="Base address of an OpenADR 3 VTN, the server that publishes events.")],
    file: Annotated[Path, typer.Argument(help="JSON file to write.")] = Path("events.json"),
    client: Annotated[
        str | None, typer.Option(help="Client id; its secret is NOONWARD_VTN_SECRET. [default: ask anonymously]")
    ] = None,
    token_url: Annotated[str | None, typer.Option(help="Where tokens are issued. [default: as the VTN says]")] = None,
    scope: Annotated[str, typer.Option(help="Scopes to ask for, separated by spaces.")] = "",
    program: Annotated[str | None, typer.Option(help="Program whose events are wanted. [default: all]")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Target that events must name. Repeat it.")] = None,
) -> None:
    """Fetch grid events from an OpenADR 3 server.

    A scenario reads the file: events: {path: events.json, contracts: [...]}.
    """
    import json
    import os

    from noonward.data.vtn import Credentials, fetch_events
    from noonward.errors import ScenarioError
    from noonward.files import require_folder, write_text

    require_folder(file, "FILE")
    credentials = None
    if client is not None:
        secret = os.environ.get("NOONWARD_VTN_SECRET")
        if not secret:
            raise ScenarioError("--client needs its secret in the environment variable NOONWARD_VTN_SECRET; set it")
        credentials = Credentials(client=client, secret=secret, token_url=token_url, scope=scope)
    found = fetch_events(url, credentials, program=program, targets=target or ())
    write_text(file, json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} event{'' if len(found) == 1 else 's'}: {file}")


@app.command()
def peaks(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file of a system's load: columns time and load_mw.")],
    clock: Annotated[str, typer.Option(help="IANA time zone whose days and months count: America/New_York.")],
    count: Annotated[int, typer.Option("--peaks", min=1, help="Peaks that the charge counts.")] = 5,
    per: Annotated[Literal["year", "month"], typer.Option(help="Per year, or per month.")] = "year",
    months: Annotated[
        str | None, typer.Option(metavar="LIST", help="Months that count: 6,7,8,9. [default: all]")
    ] = None,
    interval_min: Annotated[int, typer.Option("--interval", help="Interval over which load counts, min.")] = 60,
    zone: Annotated[str | None, typer.Option(help="Area whose rows are read, where the file has several.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Names of columns: time=T,load=L,zone=Z.")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="Clock of times without an offset.")] = None,
    times: Annotated[
        Literal["start", "end"], typer.Option(help="Whether a time starts or ends its interval.")
    ] = "start",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a system's peaks, and how well they are forecast.

    Coincident charges go by these peaks. Policies are told how likely each coming hour holds one, from the load up to
    now; the Brier score says how good that is (0 is perfect), over all days that the file allows.
    """
    import json as json_module
    from dataclasses import asdict

    from pydantic import ValidationError
    from rich.table import Table

    from noonward.cli.import_ import pairs
    from noonward.data.clock import Clock
    from noonward.data.scenarios.load import explained
    from noonward.errors import ScenarioError
    from noonward.evaluate.peak_forecast import scored_peaks
    from noonward.forecasts.system_peaks import WATCHED
    from noonward.model.cluster.meter import SystemLoadFile
    from noonward.model.cluster.tariff import Coincident

    if Clock(clock).offset is not None and clock != "UTC":
        raise ScenarioError(f"--clock {clock!r} has no months of a place; give an IANA time zone, or UTC")
    named, bare = pairs("--columns", columns.split(",") if columns else None)
    if bare:
        raise ScenarioError(f"--columns {columns!r} is no list of names; write it as time=T,load=L")
    said = SystemLoadFile(path=file, columns=named, zone=zone, timezone=timezone, times=times)
    stated: dict[str, object] = {"usd_per_kw_year": 0.0, "peaks": count, "per": per, "interval_min": interval_min}
    if months is not None:
        stated["months"] = [int(each) if each.strip().isdigit() else each for each in months.split(",")]
    try:
        charge = Coincident.model_validate(stated)
    except ValidationError as error:
        raise ScenarioError(explained(error, "what is asked for", stated, Coincident, "coincident charge")) from None
    found, score = scored_peaks(said, charge, clock)
    if json:
        figures = None if score is None else {**asdict(score), "skill": score.skill}
        print(json_module.dumps({"peaks": [time.isoformat() for time in found], "forecast": figures}, indent=1))
        return
    table = Table(title=f"{len(found)} peaks")
    table.add_column("begin, UTC")
    for time in found:
        table.add_row(f"{time:%Y-%m-%d %H:%M}")
    print_table(table)
    if score is None:
        print("forecast: the file is too short; seven weeks come before the first one")
        return
    print(
        f"forecast a day ahead: Brier score {score.brier:.5f}, of the base rate {score.base:.5f} (skill "
        f"{score.skill:.0%}); {score.caught:.0%} of the peaks lay in the {score.watched:.1%} of hours whose "
        f"chance was above {WATCHED:.0%}"
    )

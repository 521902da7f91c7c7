"""``noonward data``: look at signal and job files before they are used, and write generated ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    if jobs:
        _check_jobs(jobs[0], scenario, timezone)
    else:
        _check_signals(files, zones, format, scenario)


def _check_signals(files: list[Path], zones: str | None, format: str | None, scenario: str | None) -> None:
    """Prints what signal files hold per zone, and whether they suffice for a scenario."""
    import numpy as np
    from rich.table import Table

    from noonward.cli.options import split_names
    from noonward.data.sanity import signal_warnings
    from noonward.data.signals.load import load_signals

    wanted = split_names(zones)
    loaded = load_signals(files, format, zones=None if wanted is None else tuple(wanted))
    print(f"{loaded.start:%Y-%m-%d %H:%M} to {loaded.end:%Y-%m-%d %H:%M} UTC, {loaded.hours} hours")
    table = Table("zone", "price: known hours", "mean USD/MWh", "min", "max", "carbon: known hours", "mean g/kWh")
    for z, zone in enumerate(loaded.zones):
        price, carbon = loaded.price_usd_per_mwh_ZH[z], loaded.carbon_g_per_kwh_ZH[z]
        known = price[~np.isnan(price)]
        cells = ["", "", ""] if not len(known) else [f"{known.mean():.1f}", f"{known.min():.1f}", f"{known.max():.1f}"]
        emitted = carbon[~np.isnan(carbon)]
        mean = f"{emitted.mean():.1f}" if len(emitted) else ""
        table.add_row(zone, str(len(known)), *cells, str(len(emitted)), mean)
    print_table(table)
    for check in signal_warnings(loaded):
        print(f"check: {check}")
    print_notes(loaded.notes)
    if scenario is not None:
        _tried(scenario, signals=files)


def _check_jobs(file: Path, scenario: str | None, timezone: str | None) -> None:
    """Prints what a job file holds, and whether it suits a scenario."""
    import numpy as np

    from noonward.data.jobs.dated import is_dated, job_rows
    from noonward.data.jobs.load import load_job_table, load_job_trace, run_times_s
    from noonward.data.table_file import column_names
    from noonward.errors import DataError
    from noonward.model.cluster.scenario import JobTable
    from noonward.units import HOUR_S

    if is_dated(file):
        rows = job_rows(JobTable(source="table", path=file, timezone=timezone))
        assert rows.submit_s_J is not None
        if rows.account is not None:
            print("\n".join(rows.account.lines()))
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
    print(f"{kind}: {len(gpus)} jobs over {(arrival_s.max() - arrival_s.min()) / HOUR_S:.1f} h")
    print(f"GPUs: mean {gpus.mean():.2f}, largest {gpus.max()}")
    shown = ", ".join(f"{q:.0f}%: {np.percentile(seconds, q):.0f}" for q in (5, 25, 50, 75, 95, 99))
    print(f"duration or work, quantiles: {shown}")
    if scenario is not None:
        _tried(scenario, jobs=file, timezone=timezone)


def _tried(name: str, signals: list[Path] | None = None, jobs: Path | None = None, timezone: str | None = None) -> None:
    """Builds a scenario's first environment with files, and says what it holds and what must be known about it.

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
    print(f"they serve scenario {scenario.name}: {describe_environment(environment)}")
    print_notes(environment.notes)


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
    from noonward.files import write_text

    credentials = None
    if client is not None:
        secret = os.environ.get("NOONWARD_VTN_SECRET")
        if not secret:
            raise ScenarioError("--client needs its secret in the environment variable NOONWARD_VTN_SECRET; set it")
        credentials = Credentials(client=client, secret=secret, token_url=token_url, scope=scope)
    found = fetch_events(url, credentials, program=program, targets=target or ())
    write_text(file, json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} event{'' if len(found) == 1 else 's'}: {file}")

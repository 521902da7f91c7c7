"""``noonward advise``: where and when the jobs of a waiting queue should run, without a service."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from noonward.cli.durations import duration
from noonward.cli.options import (
    Settings,
    SignalFiles,
    one_scenario,
    open_scenario,
    print_table,
    require_cluster,
    time_option,
)
from noonward.units import HOUR_S

if TYPE_CHECKING:
    from noonward.live.advise.advice import Advice, Options, Row
    from noonward.live.advise.squeue import Queue

COLUMNS = ("job", "name", "gpus", "queued_at", "site", "start_utc", "run_s", "saved_usd", "saved_kg_co2", "reason")
"""Columns of the advice as CSV and JSON."""
QueueFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", metavar="FILE", help="Output of squeue ('-': standard input); SITE=FILE says whose. Repeat it."
    ),
]


def advise(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="Scenario with the fleet, such as mine.yaml.")
    ] = None,
    fleet: Annotated[str | None, typer.Option(metavar="SCENARIO", help="The scenario, as an option.")] = None,
    queue: QueueFiles = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Run squeue on this machine instead of reading --queue.")
    ] = False,
    at: Annotated[
        str | None,
        typer.Option("--home", "--at", metavar="SITE", help="Site whose queue it is, if no cluster has its name."),
    ] = None,
    output: Annotated[
        Literal["table", "csv", "sbatch"],
        typer.Option("--format", help="A table, CSV, or commands for Slurm."),
    ] = "table",
    policy: Annotated[str, typer.Option(help="Policy that is asked (see 'noonward policies').")] = "booked-persistence",
    reference: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            "--reference",
            metavar="POLICY",
            help="Policy that savings are measured against. [default: the scenario's baseline]",
        ),
    ] = None,
    later: Annotated[
        float,
        typer.Option(
            "--later-h",
            "--later",
            parser=duration(HOUR_S, bare=True),
            metavar="DURATION",
            help="How much later a job may start than it would. [default: 24h]",
            show_default=False,
        ),
    ] = 24.0,
    run_share: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Expected run time as a share of the time limit. [default: learned from the log; 1 without]",
        ),
    ] = None,
    run_hours: Annotated[
        float | None,
        typer.Option(
            parser=duration(HOUR_S, bare=True, least_s=36.0),
            metavar="DURATION",
            help="Run time of jobs without a time limit: 6h.",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Log of past jobs to learn run times from. [default: the scenario's jobs]"),
    ] = None,
    job_class: Annotated[str | None, typer.Option("--class", help="Class of the jobs.")] = None,
    now: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When the queue was made, UTC: '2026-11-23 18:00'. [default: now]"),
    ] = None,
    signals: SignalFiles = None,
    settings: Settings = None,
    json: Annotated[bool, typer.Option("--json", help="Print jobs and notes as one JSON object.")] = False,
) -> None:
    """Advise where and when jobs of a Slurm queue should run.

    Reads a queue and changes nothing. The table shows what the advice saves.
    """
    from noonward.errors import MissingExtraError, ScenarioError

    try:
        from noonward.live.advise.advice import Options, advise
    except ImportError as error:
        raise MissingExtraError(error.name or "msgspec", "live") from error
    if slurm == bool(queue):
        raise ScenarioError("give the queue's file (--queue FILE), or --slurm to ask squeue; one of both")
    stated = one_scenario(scenario, fleet)
    if stated is None:
        raise ScenarioError("name the scenario with the fleet: noonward advise mine.yaml --queue FILE")
    opened = open_scenario(stated, signals, settings=settings)
    require_cluster(opened, "advise")
    named = reference or opened.baseline
    if named is None:
        raise ScenarioError(f"scenario {opened.name!r} has no baseline; name one: --baseline local-fcfs")
    options = Options(
        policy=policy, reference=named, now=time_option("--now", now), at=at, class_=job_class, later_h=later,
        run_share=run_share, run_h=run_hours, history=history,
    )  # fmt: skip
    queues = [_asked(options)] if slurm else [_read(given, opened.fleet.site_names, options) for given in queue or ()]
    advice = advise(opened, [job for each in queues for job in each.jobs], options)
    notes = [note for each in queues for note in each.notes] + advice.notes
    if json:
        _print_json(advice, notes)
        return
    {"table": _print_table, "csv": _print_csv, "sbatch": _print_sbatch}[output](advice, options)
    for note in notes:
        typer.echo(f"note: {note}", err=output != "table")


def _read(given: str, sites: tuple[str, ...], options: Options) -> Queue:
    """Returns the queue in a file.

    Raises:
        FileError: It cannot be read.
        DataError: It is no output of squeue.
    """
    import sys

    from noonward.errors import FileError
    from noonward.live.advise.squeue import parse_queue

    site, separator, name = given.partition("=")
    if not separator or site not in sites:
        site, name = "", given
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise FileError(f"{name} cannot be read: {error.strerror}; check the path") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8: {error}; make it again") from None
    queue = parse_queue(text, name, options.now.timestamp())
    return _of_site(queue, site) if site else queue


def _of_site(queue: Queue, site: str) -> Queue:
    """Returns a queue whose jobs are of a site."""
    from dataclasses import replace

    return replace(queue, jobs=[replace(job, cluster=site) for job in queue.jobs])


def _asked(options: Options) -> Queue:
    """Returns the queue of this machine's Slurm.

    Raises:
        FileError: squeue is missing or does not answer.
    """
    import subprocess

    from noonward.errors import FileError
    from noonward.live.advise.squeue import EXPORT, parse_queue

    try:
        done = subprocess.run(shlex.split(EXPORT), capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise FileError("squeue is not installed here; run it where it is, and give its output: --queue FILE") from None
    except subprocess.TimeoutExpired:
        raise FileError("squeue did not answer within 60 s; try again, or give its output: --queue FILE") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise FileError(f"squeue failed: {lines[-1]}; run it where it reaches Slurm, and give its output: --queue FILE")
    return parse_queue(done.stdout, "squeue", options.now.timestamp())


def _print_table(advice: Advice, options: Options) -> None:
    from rich.table import Table

    usd, kg = sum(row.saved_usd or 0.0 for row in advice.rows), sum(row.saved_kg or 0.0 for row in advice.rows)
    print(
        f"{len(advice.rows)} waiting jobs: {usd:.3g} USD and {kg:.3g} kgCO2 saved against {options.reference}, "
        "at forecast prices and intensities"
    )
    table = Table()
    for title in ("job", "name", "GPUs", "site", "start (UTC)", "run h", "saves USD", "saves kgCO2", "because"):
        table.add_column(title, justify="left" if title in ("job", "name", "site", "because") else "right")
    for row in advice.rows:
        table.add_row(
            row.job.id, row.job.name, str(row.job.gpus), row.site or "-",
            "-" if row.start is None else f"{row.start:%a %d %b %H:%M}",
            "-" if row.run_s is None else f"{row.run_s / 3600:.1f}",
            "-" if row.saved_usd is None else f"{row.saved_usd:.3g}",
            "-" if row.saved_kg is None else f"{row.saved_kg:.3g}", row.reason,
        )  # fmt: skip
    print_table(table)


def _print_json(advice: Advice, notes: list[str]) -> None:
    """Prints the advice as one JSON object, with the columns of the CSV; null where a job gets no advice."""
    import json

    jobs = [
        (
            row.job.id, row.job.name, row.job.gpus, row.home, row.site or None,
            None if row.start is None else f"{row.start:%Y-%m-%dT%H:%M:%SZ}",
            row.run_s, row.saved_usd, row.saved_kg, row.reason,
        )
        for row in advice.rows
    ]  # fmt: skip
    print(json.dumps({"jobs": [dict(zip(COLUMNS, job, strict=True)) for job in jobs], "notes": notes}, indent=1))


def _print_csv(advice: Advice, options: Options) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in advice.rows:
        writer.writerow(
            (
                row.job.id, row.job.name, row.job.gpus, row.home, row.site or "",
                "" if row.start is None else f"{row.start:%Y-%m-%dT%H:%M:%SZ}",
                "" if row.run_s is None else f"{row.run_s:.0f}",
                "" if row.saved_usd is None else f"{row.saved_usd:.6f}",
                "" if row.saved_kg is None else f"{row.saved_kg:.6f}", row.reason,
            )
        )  # fmt: skip
    print(out.getvalue(), end="")


def _print_sbatch(advice: Advice, options: Options) -> None:
    """Prints commands that carry the advice out: jobs that stay are given their start, others are submitted again."""
    zone = options.now.astimezone().strftime("%Z, UTC%z")
    print(f"# Read before you run it. Times are of this machine's clock ({zone}).")
    if any(row.moved for row in advice.rows):
        print(
            "# Jobs that move are submitted again with what the queue says of them: add what it does not say, such as"
        )
        print("# --mem, --account or --output, where it was given on the command line. SCRIPT: the queue names none.")
    for row in advice.rows:
        print(_line(row, options))


def _line(row: Row, options: Options) -> str:
    name = " ".join(row.job.name.split())
    if row.site is None or row.start is None:
        return f"# {row.job.id} {name}: {row.reason}"
    if row.reason == "as it would run anyway":
        return f"# {row.job.id} {name}: {row.reason}, {row.start:%d %b %H:%M} UTC at {row.site}"
    begin = f"{row.start.astimezone():%Y-%m-%dT%H:%M:%S}"
    note = f"  # {name}: {row.reason}"
    if not row.moved:
        return f"scontrol update JobId={row.job.id} StartTime={begin}{note}"
    script = "SCRIPT" if row.job.command is None else shlex.quote(row.job.command)
    _, is_task, task = row.job.id.partition("_")
    array = (f"--array={task}",) if is_task else ()
    given = shlex.join((f"--clusters={row.site}", f"--begin={begin}", *array, *row.job.options))
    return f"sbatch {given} {script} && scancel {row.job.id}{note}"

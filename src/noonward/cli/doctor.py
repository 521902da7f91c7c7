"""``noonward doctor``: what of Noonward works on this machine, and what to install for the rest."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer

EXTRAS: Final = (
    ("live", ("starlette", "uvicorn", "msgspec", "httpx", "jinja2"), "the live service, its commands and advise"),
    ("postgres", ("psycopg",), "a live service whose store is in PostgreSQL"),
    ("train", ("torch", "gymnasium", "pettingzoo"), "training"),
    ("ray", ("ray",), "runs on a Ray cluster, and jobs handed to one"),
    ("edge", ("ray", "torch", "diffusers", "transformers", "safetensors"), "image generation on edge servers"),
    ("excel", ("xlsxwriter",), "tables as .xlsx"),
)
"""Extras of the package: name, modules that they bring, what they are for."""
PROGRAMS: Final = (
    ("sbatch", "jobs handed to Slurm by its own commands"),
    ("squeue", "advice on a Slurm queue (noonward advise --slurm)"),
    ("sacct", "accounts of finished Slurm jobs"),
    ("kubectl", "a look at jobs on Kubernetes (the service itself does not need it)"),
)
"""Programs of clusters: name, what they are for."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that was looked at.

    Attributes:
        what: What.
        state: ``ok``, ``absent`` (only needed for what ``note`` says) or ``problem``.
        note: What was found, or what to do.
    """

    what: str
    state: str
    note: str


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print the findings as one JSON array.")] = False,
) -> None:
    """Check the installation: what works here, what is missing.

    Exits with 1 if something that every command needs does not work.
    """
    findings = examine()
    if json:
        from json import dumps

        print(dumps([asdict(finding) for finding in findings], indent=1))
    else:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        from noonward.cli.options import print_table

        table = Table("", "", "", box=box.SIMPLE, show_header=False)
        for finding in findings:
            table.add_row(finding.state, finding.what, escape(finding.note))
        print_table(table)
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Returns what was found about this machine and installation."""
    import platform
    from importlib.util import find_spec
    from shutil import which

    from noonward import __version__

    core = f"{__version__}, Python {platform.python_version()} ({sys.executable}), {platform.machine()}"
    found = [Finding(what="noonward", state="ok", note=core), _cache(), _engine()]
    for extra, modules, use in EXTRAS:
        missing = [module for module in modules if find_spec(module) is None]
        how = f"python -m pip install 'noonward[{extra}]' (missing: {', '.join(missing)}); in a clone '.[{extra}]'"
        note = f"{use}: {how}" if missing else use
        found.append(Finding(what=f"extra {extra}", state="absent" if missing else "ok", note=note))
    for program, use in PROGRAMS:
        place = which(program)
        found.append(
            Finding(
                what=f"program {program}",
                state="absent" if place is None else "ok",
                note=f"only needed for {use}" if place is None else f"{place}: {use}",
            )
        )
    return found


def _cache() -> Finding:
    """Returns whether compiled functions can be kept."""
    from tempfile import TemporaryFile

    from noonward.compiled import cache_base

    base = cache_base()
    try:
        base.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=base):
            pass
    except OSError as error:
        advice = "set NOONWARD_CACHE_DIR to a folder that can be written, or every command compiles again"
        return Finding(what="cache", state="problem", note=f"{base}: {error.strerror}; {advice}")
    size = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    return Finding(what="cache", state="ok", note=f"{base}: compiled functions, {size / 2**20:.0f} MiB")


def _engine() -> Finding:
    """Returns whether a small run works."""
    from noonward.data.scenarios.load import load_scenario
    from noonward.errors import NoonwardError
    from noonward.runtime.by_kind import build_environment, run, settle
    from noonward.schedule.policies import make_scheduler

    try:
        environment = build_environment(load_scenario("tiny"))
        ledger = settle(run(environment, make_scheduler("local-fcfs")))
    except (NoonwardError, OSError, ImportError) as error:
        return Finding(what="a small run", state="problem", note=f"local-fcfs in scenario tiny failed: {error}")
    return Finding(what="a small run", state="ok", note=f"local-fcfs in scenario tiny: {ledger.energy_kwh:.1f} kWh")

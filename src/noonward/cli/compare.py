"""``noonward compare``: policies over the same environments, a table, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.options import (
    Environments,
    JobFile,
    Json,
    Out,
    Policies,
    ScenarioName,
    Seed,
    Settings,
    SignalFiles,
    open_scenario,
    progress_bar,
    split_names,
)

if TYPE_CHECKING:
    from noonward.evaluate.compare import Comparison


def compare(
    name: ScenarioName,
    policies: Policies = None,
    environments: Environments = 10,
    seed: Seed = 0,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    settings: Settings = None,
    out: Out = Path("runs"),
    report: Annotated[bool, typer.Option(help="Write the HTML report.")] = True,
    json: Json = False,
) -> None:
    """Compare policies over the same environments, paired, against a bound; prints a table and the report's path."""
    from noonward.evaluate.compare import compare as run_comparison
    from noonward.evaluate.figure_list import to_json

    scenario = open_scenario(name, settings, signals, jobs)
    names = split_names(policies)
    count = len(scenario.policies if names is None else names)
    with progress_bar(environments * (count + 1), scenario.name) as step:
        found = run_comparison(scenario, names, environments=environments, seed=seed, out=out, progress=step)
    path = None
    if report:
        from noonward.evaluate.report import write_report

        path = write_report(found, found.folder / "report.html")
    if json:
        more = {"scenario": scenario.name, "environments": environments, "seed": seed, "notes": list(found.notes)}
        print(to_json(found.figures(), **more, report=None if path is None else str(path), records=str(found.folder)))
        return
    print_table(found)
    print(f"records: {found.folder}")
    if path is not None:
        print(f"report:  {path}")


def print_table(found: Comparison) -> None:
    """Prints a comparison's table with what must be known to read it."""
    from rich.console import Console
    from rich.table import Table

    from noonward.evaluate.report import summary_rows

    columns, rows = summary_rows(found)
    environments = len(found.bounds)
    table = Table(
        title=f"{found.scenario.name}: {environments} environments, seed {found.seed}; change against {found.reference}",
        caption="± is the spread over environments; [low, high] are paired 95 % intervals",
    )
    for column in columns:
        table.add_column(column.title, justify="right" if column is not columns[0] else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=None).print(table)
    for note in found.notes:
        print(f"note: {note}")

"""``noonward compare``: policies over the same environments, a table, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.export import Csv, JobsFile, Xlsx, export, require_exports
from noonward.cli.interruptible import on_interrupt
from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    BoundSeconds,
    CurrencyRate,
    EnvironmentsOrFit,
    Json,
    NoBound,
    Out,
    Policies,
    Report,
    Seed,
    Today,
    Weeks,
    Windows,
    command_line,
    executor_of,
    open_scenario,
    print_notes,
    print_table,
    print_text_table,
    print_work,
    shared_work,
    split_names,
)
from noonward.cli.progress import progress_bar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noonward.evaluate.comparison import Comparison
    from noonward.model.cluster.scenario import Scenario
    from noonward.runtime.executor import Executor


@option_groups(executors=executor_of, scenario=open_scenario)
def compare(
    *,
    policies: Policies = None,
    environments: EnvironmentsOrFit = None,
    windows: Windows = None,
    weeks: Weeks = None,
    seed: Seed = 0,
    scenario: Scenario,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    today: Today = None,
    currency: CurrencyRate = None,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if", help="Study the proposed policy too: trade-off and sensitivity, linked in the report."
        ),
    ] = False,
    no_bound: NoBound = False,
    bound_seconds: BoundSeconds = None,
    report: Report = True,
    csv: Csv = None,
    xlsx: Xlsx = None,
    jobs_file: JobsFile = None,
    json: Json = False,
) -> None:
    """Compare policies over the same test cases (environments).

    Prints the answer and a table, and writes a report. Differences are paired, and every policy is measured against an
    upper bound that none can beat, if one is known for the scenario.
    """
    import sys

    from noonward.cli.rows import Rows
    from noonward.cli.what_if import study_all
    from noonward.evaluate.asked import (
        comparison_folder,
        count_of,
        fitting_policies,
        policies_of,
        windows_given,
        with_reference,
    )
    from noonward.evaluate.compare import compare as run_comparison
    from noonward.evaluate.kept import keep
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.what_if.run import require_economics
    from noonward.runtime.runs import environment_of

    require_exports(csv, xlsx, jobs_file, out)
    scenario = windows_given(scenario, windows, weeks)
    if what_if:
        require_economics(scenario)
    names = split_names(policies)
    chosen, misfits = fitting_policies(scenario, seed) if names is None else (policies_of(scenario, names), [])
    for misfit in misfits:
        print(f"left out: {misfit}", file=sys.stderr)
    chosen, reference = with_reference(scenario, chosen, today)
    for note in environment_of(scenario, 0, seed).notes:
        if note.startswith("check: "):
            print(note, file=sys.stderr)
    runs = count_of(scenario, environments)
    unit = "runs" if no_bound else "runs and bounds"
    rows = Rows(scenario, seed, comparison_folder(scenario, seed, out), chosen, runs, reference)

    def interrupted() -> str:
        """Prints what is known when the command is interrupted, and says what is kept."""
        known = None if json else rows.finished()
        if known is not None:
            print_comparison(known)
        return rows.kept()

    with (
        executors as executor,
        on_interrupt(interrupted),
        progress_bar(
            runs * (len(chosen) + (not no_bound)),
            scenario.name,
            above=rows,
            unit=unit,
            results=rows.folder,
        ) as step,
    ):
        comparison = run_comparison(
            scenario,
            chosen,
            environments=runs,
            seed=seed,
            out=out,
            progress=step,
            executor=executor,
            bound=not no_bound,
            bound_seconds=bound_seconds,
            on_record=rows.add,
            today=reference,
            currency=currency,
        )
        command = command_line()
        pages = study_all(comparison, out, executor, step, command) if what_if else []
    keep(comparison, command)
    path = write_reports(comparison, command) if report else None
    export(comparison, csv, xlsx, jobs_file)
    if json:
        more = {"scenario": scenario.name, "environments": runs, "seed": seed, "notes": list(comparison.notes)}
        more["work"] = shared_work(executor)
        print(
            to_json(
                comparison.metrics(), **more, report=None if path is None else str(path), records=str(comparison.folder)
            )
        )
        return
    print_comparison(comparison)
    for shown in comparison.objective.tables(comparison):
        print_text_table(shown)
    print_work(executor, unit)
    print(f"records: {comparison.folder}")
    for page in pages:
        print(f"study:   {page}")
    if path is not None:
        print(f"report:  {path}")


def write_reports(found: Comparison, command: str) -> Path:
    """Writes the page for a meeting, and the page with every figure; returns the former's path.

    The page for a meeting links to the latter, and to the studies in the same folder.
    """
    from noonward.evaluate.report.meeting import STUDIES, write_meeting_report
    from noonward.evaluate.report.page import write_report

    figures = found.folder / f"figures-{found.digest}.html"
    write_report(found, figures, command=command)
    pages = [page for name in STUDIES for page in sorted(found.folder.glob(f"{name}-*.html"))]
    return write_meeting_report(
        found, found.folder / f"report-{found.digest}.html", command=command, figures=figures, studies=pages
    )


SPREAD_COLUMNS = 3
"""Leading columns that keep their interval in the terminal; the report shows it everywhere."""
WIDTHS = ((200, 99), (142, 9), (112, 6), (0, 3))
"""Characters a terminal needs for so many columns beside the policy; narrower ones show fewer."""


def print_comparison(found: Comparison) -> None:
    """Prints what a comparison says, and its table with what must be known to read it."""
    import textwrap

    from rich import box
    from rich.console import Console
    from rich.table import Table

    from noonward.evaluate.answer import best_to_adopt, headline, plainly
    from noonward.evaluate.comparison import cases_told, summary_rows

    first, *rest = headline(found)
    print(first)
    for n, sentence in enumerate(rest):
        print(textwrap.fill(sentence, 120, initial_indent="- " if n else "", subsequent_indent="  " if n else ""))
    best = best_to_adopt(found)
    if best != found.reference and found.objective.value == "total_usd" and found.policies[best].summary:
        print(f"{best}: {plainly(found.policies[best].summary)}")
    summary = summary_rows(found)
    console = Console()
    shown = next(columns for width, columns in WIDTHS if not console.is_terminal or console.width >= width)
    table = Table(
        title=f"{found.scenario.name}, {cases_told(found, len(found.bounds))}, seed {found.seed}",
        caption=summary.caption,
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("policy", no_wrap=True)
    for column in summary.columns[:shown]:
        arrow = {"up": "↑", "down": "↓", "none": ""}[column.better]
        title = textwrap.fill(column.title, 11)
        unit = column.unit.replace("/(", "/\n(")
        table.add_column(f"{title}\n{unit} {arrow}", justify="right", no_wrap=True)
    for row in summary.rows:
        cells = [cell if n < SPREAD_COLUMNS else cell.split(" ± ")[0] for n, cell in enumerate(row.cells[:shown])]
        table.add_row(row.name, *cells, style={"bound": "dim", "baseline": "bold", "policy": None}[row.kind])
    print_table(table)
    if shown < len(summary.columns):
        print(f"{len(summary.columns) - shown} more columns in the report and on a wider terminal")
    if foreseeing := [name for name, policy in found.policies.items() if policy.clairvoyant]:
        print(f"note: benchmarks that know the future, which nobody can run: {', '.join(foreseeing)}")
    print_notes(found.notes)

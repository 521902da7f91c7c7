"""``noonward trade-off`` and ``noonward sensitivity``: what a policy saves with other slack, carbon price or moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.durations import duration
from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    EnvironmentsOrFit,
    Json,
    Out,
    Report,
    Seed,
    Today,
    Weeks,
    Windows,
    command_line,
    executor_of,
    open_scenario,
    policy_list,
    print_notes,
)
from noonward.units import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from noonward.evaluate.comparison import Comparison
    from noonward.evaluate.what_if.run import StudyResult
    from noonward.model.cluster.scenario import Scenario
    from noonward.runtime.executor import Executor, Progress

Policy = Annotated[
    str | None,
    typer.Option(autocompletion=policy_list, help="Policy to study. [default: bid-price-regression, if it fits]"),
]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file: one row per case and environment.")
]


@option_groups(executors=executor_of, scenario=open_scenario)
def trade_off(
    *,
    policy: Policy = None,
    today: Today = None,
    carbon_prices: Annotated[
        str | None, typer.Option(metavar="USD,USD,...", help="Carbon prices of the curve. [default: 0 to 800 USD/t]")
    ] = None,
    slacks: Annotated[
        str | None,
        typer.Option(
            "--slack-h",
            metavar="LIST",
            help="Slacks of the curve: 0,6h,1d; inf: no limit. [default: up to the jobs' own]",
        ),
    ] = None,
    environments: EnvironmentsOrFit = None,
    windows: Windows = None,
    weeks: Weeks = None,
    seed: Seed = 0,
    scenario: Scenario,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    report: Report = True,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Draw cost against carbon, and saving against delay."""
    from noonward.evaluate.asked import windows_given
    from noonward.evaluate.what_if import run

    more: dict[str, Any] = {}
    if carbon_prices is not None:
        more["carbon_prices"] = _numbers("--carbon-prices", carbon_prices)
    if slacks is not None:
        slack_h = duration(HOUR_S, bare=True, endless=True, option="--slack-h")
        more["slacks_h"] = [slack_h(each) for each in slacks.split(",") if each.strip()]
    scenario = windows_given(scenario, windows, weeks)
    _carry_out(run.trade_off, scenario, policy, environments, seed, today, out, executors, report, csv, json, more)


@option_groups(executors=executor_of, scenario=open_scenario)
def sensitivity(
    *,
    policy: Policy = None,
    today: Today = None,
    environments: EnvironmentsOrFit = None,
    windows: Windows = None,
    weeks: Weeks = None,
    seed: Seed = 0,
    scenario: Scenario,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    report: Report = True,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Show which assumptions a policy's saving depends on.

    Slack, moves between sites, the carbon price and what is at the sites' meters are changed one at a time. Further
    rows say what could be saved if running jobs could be suspended, resized, capped or
    moved.
    """
    from noonward.evaluate.asked import windows_given
    from noonward.evaluate.what_if import run

    scenario = windows_given(scenario, windows, weeks)
    _carry_out(run.sensitivity, scenario, policy, environments, seed, today, out, executors, report, csv, json, {})


def _numbers(option: str, text: str) -> list[float]:
    """Returns the numbers of a comma-separated option.

    Raises:
        ScenarioError: One is no number.
    """
    from noonward.errors import ScenarioError

    try:
        return [float(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise ScenarioError(f"{option} {text!r} is no list of numbers; write it {option} 0,50,100") from None


def _carry_out(
    study_of: Callable[..., StudyResult],
    scenario: Scenario,
    policy: str | None,
    environments: int | None,
    seed: int,
    today: str | None,
    out: Path,
    executors: AbstractContextManager[Executor],
    report: bool,
    csv: Path | None,
    json: bool,
    more: dict[str, Any],
) -> None:
    """Runs a study and prints, writes and draws what it found."""
    import textwrap

    from noonward.cli.export import require_ending
    from noonward.cli.options import print_text_table, print_work
    from noonward.cli.progress import progress_bar
    from noonward.evaluate.asked import count_of
    from noonward.evaluate.metrics import to_json
    from noonward.files import write_table

    require_ending(csv, "--csv", ".csv", out)
    runs = count_of(scenario, environments)
    with executors as executor, progress_bar(None, scenario.name, results=out) as step:
        found = study_of(
            scenario,
            policy,
            environments=runs,
            seed=seed,
            today=today,
            out=out,
            progress=step,
            executor=executor,
            **more,
        )
    path = _write_page(found, command_line()) if report else None
    if csv is not None:
        write_table(csv, found.to_frame())
    if json:
        content = {"scenario": scenario.name, "policy": found.policy, "baseline": found.today, "environments": runs}
        print(
            to_json(
                found.metrics(),
                **content,
                seed=seed,
                notes=list(found.notes),
                report=None if path is None else str(path),
            )
        )
        return
    for line in textwrap.wrap(" ".join(found.words()), 120):
        print(line)
    for table in found.tables():
        print_text_table(table)
    print_notes(found.notes)
    print_work(executor)
    print(f"records: {found.folder}")
    if path is not None:
        print(f"report:  {path}")


def _write_page(found: StudyResult, command: str) -> Path:
    """Writes a study's page into the folder of its comparison, under its name and policy, and returns its path."""
    from noonward.files import file_name

    return found.report(found.folder / f"{found.name}-{file_name(found.policy)}.html", command)


def study_all(found: Comparison, out: Path, executor: Executor, progress: Progress, command: str) -> list[Path]:
    """Studies the policy that a comparison proposes, by both studies, and returns their pages.

    Args:
        found: Comparison.
        out: Folder of all records.
        executor: Where runs are carried out.
        progress: Called once per run.
        command: The command that asked for it.

    Returns:
        Both pages; none where the comparison proposes to keep today's policy.
    """
    from noonward.evaluate.answer import best_to_adopt
    from noonward.evaluate.what_if import run

    best, pages = best_to_adopt(found), []
    if best != found.reference:
        for study_of in (run.trade_off, run.sensitivity):
            study = study_of(
                found.scenario,
                best,
                environments=len(found.bounds),
                seed=found.seed,
                today=found.reference,
                out=out,
                progress=progress,
                executor=executor,
            )
            pages.append(_write_page(study, command))
    return pages

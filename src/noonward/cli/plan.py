"""``noonward capacity-plan``: a day-ahead plan with a guarantee, as tables and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    Json,
    Seed,
    command_line,
    open_scenario,
    print_notes,
    print_table,
    require_cluster,
    writable,
)

if TYPE_CHECKING:
    from noonward.model.cluster.scenario import Scenario


@option_groups(scenario=open_scenario)
def plan(
    *,
    promise: Annotated[
        float, typer.Option(help="Share of days whose load stays within the curves; 0: only the paper's guarantee.")
    ] = 0.8,
    beta: Annotated[float, typer.Option(help="Tail of the guarantee: the worst share of days fits on average.")] = 0.2,
    eps: Annotated[float, typer.Option(help="Radius of the guarantee, as a share of the mean site's GPUs.")] = 0.0,
    samples: Annotated[int, typer.Option(min=1, help="Sampled days to plan on.")] = 60,
    peak: Annotated[float, typer.Option(min=0, help="Cost of a GPU of a site's highest hour, USD.")] = 0.0,
    environment: Annotated[int, typer.Option(min=0, help="Number of the environment.")] = 0,
    seed: Seed = 0,
    scenario: Scenario,
    out: Annotated[Path, typer.Option(help="Folder for the plan's tables and figure.", callback=writable)] = Path(
        "runs"
    ),
    json: Json = False,
) -> None:
    """Plan capacity for delay-tolerant load, one day ahead.

    The plan says how many GPUs of every site and hour the load may use, and which share of it goes where.
    """
    from rich.table import Table

    from noonward.data.environments import build_environment
    from noonward.evaluate.asked import comparison_folder
    from noonward.evaluate.metrics import to_json
    from noonward.evaluate.plan_day import plan_day
    from noonward.evaluate.report.page import write_figures
    from noonward.evaluate.report.plan_figure import plan_figure
    from noonward.schedule.plan.follow import FollowPlan

    require_cluster(scenario, "noonward capacity-plan")
    drawn = build_environment(scenario, environment, seed)
    scheduler = FollowPlan(promise=promise, beta=beta, eps=eps, peak_usd=peak, samples=samples)
    day = plan_day(drawn, scheduler, seed=seed)
    folder = comparison_folder(scenario, seed, out) / "plan" / f"{environment:03d}"
    paths = day.write(folder)
    metrics = day.metrics()
    figure = plan_figure(day.plan, day.environment.sites, first_hour=day.first_hour, ran_SH=day.ran_SH, unit="GPUs")
    report = write_figures(
        f"Day-ahead plan of {scenario.name}",
        f"Made from {samples} sampled days, promise {promise:.0%}, beta {beta:g}, eps {eps:g}; tried on fresh sampled "
        f"days, and followed by the jobs of environment {environment}, seed {seed}.",
        metrics,
        [figure],
        folder / "plan.html",
        command=command_line(),
    )
    files = {key: str(path) for key, path in paths.items()}
    if json:
        more = {"scenario": scenario.name, "environment": environment, "seed": seed, "notes": list(drawn.notes)}
        print(to_json(metrics, **more, tables=files, report=str(report)))
        return
    table = Table("figure", "value", "unit", title=f"day-ahead plan of {scenario.name}, environment {environment}")
    for metric in metrics:
        table.add_row(metric.name, "–" if metric.value is None else f"{metric.value:,.4g}", metric.unit)
    print_table(table)
    held = next(metric for metric in metrics if metric.name == "guarantee_held_share")
    if held.value is not None and held.low is not None and held.high is not None and held.reference is not None:
        verdict = "missed" if held.high < held.reference else "kept" if held.low >= held.reference else "open"
        print(
            f"promise: load within the curves on {held.reference:.0%} of days; it was on {held.value:.1%} "
            f"({held.low:.1%} to {held.high:.1%}) of fresh sampled days: {verdict}"
        )
    print_notes(drawn.notes)
    for key, file in files.items():
        print(f"{key + ':':10s} {file}")
    print(f"figure:    {report}")

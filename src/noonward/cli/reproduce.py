"""``noonward reproduce``: the papers' tables and figures, beside the papers' values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noonward.cli.options import Json, Out, Seed, print_table, print_text_table, progress_bar

app = typer.Typer(help="Reproduce the papers' tables and figures.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _root() -> None:
    pass


@app.command(name="dvfs-training")
def dvfs_training(
    learned: Annotated[
        bool, typer.Option("--learned", help="Learned policies and all controls over unseen weeks instead.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of unseen weeks (--learned).")] = 10,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Tables II and III of CHSAC-AF for DP, UCB1 and JointNF, with controls and the energy bound beside them."""
    from noonward.evaluate.figure_list import to_json
    from noonward.evaluate.reproduce_dvfs_training import POLICIES, reproduce

    if learned:
        _dvfs_learned(seeds, out, json)
        return

    with progress_bar(len(POLICIES) + 1, "dvfs-training") as step:
        found = reproduce(out, step)
    if json:
        print(to_json(found.figures, records=str(found.folder), report=str(found.report)))
        return
    for shown in found.tables:
        print_text_table(shown)
    for line in found.remarks:
        print(line)
    print(f"records: {found.folder}")
    print(f"report:  {found.report}")


def _dvfs_learned(weeks: int, out: Path, json: bool) -> None:
    """Prints learned policies and controls over unseen weeks."""
    from noonward.cli.compare import print_comparison
    from noonward.evaluate.dvfs_controls import study_controls, study_policies
    from noonward.evaluate.figure_list import to_json

    with progress_bar(weeks * (len(study_policies()) + 1), "dvfs-training --learned") as step:
        found = study_controls(out, weeks, step)
    if json:
        print(to_json(found.figures, records=str(found.comparison.folder), report=str(found.report)))
        return
    print_comparison(found.comparison)
    print_text_table(found.table)
    print(f"records: {found.comparison.folder}")
    print(f"report:  {found.report}")


@app.command(name="load-shaping")
def load_shaping(
    profiles: Annotated[
        Path | None, typer.Option(help="File of daily load profiles; by default generated ones (docs/load-shaping.md).")
    ] = None,
    source: Annotated[list[str] | None, typer.Option(help="Source within the file; repeat it for several.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws of training and validation days.")] = 3,
    seed: Seed = 0,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Table II and Figs. 3 to 9 of the day-ahead plans with probabilistic guarantees (about half a minute a draw)."""
    import shlex
    import sys

    from rich.table import Table

    from noonward.evaluate.figure_list import to_json
    from noonward.evaluate.figures_load_shaping import load_shaping_pictures
    from noonward.evaluate.report import write_pictures
    from noonward.evaluate.reproduce_load_shaping import PLANS_PER_DRAW, reproduce_load_shaping

    with progress_bar(draws * PLANS_PER_DRAW, "load-shaping") as step:
        found = reproduce_load_shaping(profiles, sources=tuple(source or ()), draws=draws, seed=seed, progress=step)
    figures = found.figures()
    report = write_pictures(
        "Day-ahead plans with probabilistic guarantees",
        f"Load shapes: {found.source}. {draws} draws of 60 training and 15 validation days, seed {seed}. Costs are "
        "those of the realised load, above the plan that knows the day.",
        figures,
        load_shaping_pictures(found),
        out / "reproduce-load-shaping" / "report.html",
        command=shlex.join(["noonward", *sys.argv[1:]]),
    )
    if json:
        print(to_json(figures, source=found.source, draws=draws, seed=seed, report=str(report)))
        return
    table = Table("figure", "value", "95 % interval", "reference", "unit", title=f"load shaping, {found.source}")
    for figure in figures:
        value = "–" if figure.value is None else f"{figure.value:.4f}"
        interval = "–" if figure.low is None else f"{figure.low:.4f} to {figure.high:.4f}"
        known = "–" if figure.reference is None else f"{figure.reference:.4f}"
        table.add_row(figure.name, value, interval, known, figure.unit)
    print_table(table)
    print("references: the paper's values; for guarantee_held_share the promise, 1 - beta")
    print(f"report:  {report}")

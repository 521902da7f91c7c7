"""``noonward reproduce``: the papers' tables and figures, beside the papers' values."""

from __future__ import annotations

from pathlib import Path

import typer

from noonward.cli.options import Json, Out, print_table, progress_bar

app = typer.Typer(help="Reproduce the papers' tables and figures.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _root() -> None:
    pass


@app.command(name="dvfs-training")
def dvfs_training(out: Out = Path("runs"), json: Json = False) -> None:
    """Tables II and III of CHSAC-AF for DP, UCB1 and JointNF, with controls and the energy bound beside them."""
    from rich.table import Table

    from noonward.evaluate.figure_list import to_json
    from noonward.evaluate.reproduce_dvfs_training import POLICIES, reproduce

    with progress_bar(len(POLICIES) + 1, "dvfs-training") as step:
        found = reproduce(out, step)
    if json:
        print(to_json(found.figures, records=str(found.folder), report=str(found.report)))
        return
    for shown in found.tables:
        table = Table(title=shown.title, caption=shown.caption)
        for n, title in enumerate(shown.header):
            table.add_column(title, justify="right" if n else "left", overflow="fold", no_wrap=not n)
        for row in shown.rows:
            table.add_row(*row)
        print_table(table)
    for line in found.remarks:
        print(line)
    print(f"records: {found.folder}")
    print(f"report:  {found.report}")

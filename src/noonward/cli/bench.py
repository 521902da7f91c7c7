"""``noonward bench``: how fast it is, measured here and now."""

from __future__ import annotations

from noonward.cli.options import Json, print_table, progress_bar


def bench(json: Json = False) -> None:
    """Time the engine and the command line (about a minute); figures are per CPU-second of one core."""
    from rich.table import Table

    from noonward.evaluate.bench_engine import bench_engine
    from noonward.evaluate.figure_list import to_json

    with progress_bar(9, "benchmarks") as step:
        figures = bench_engine(step)
    if json:
        print(to_json(figures))
        return
    table = Table("what", "value", "unit", "reference")
    for figure in figures:
        value = float("nan") if figure.value is None else figure.value
        known = "" if figure.reference is None else f"{figure.reference:,.0f}"
        table.add_row(figure.name, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}", figure.unit, known)
    print_table(table)
    print("reference: completed jobs per second of the published simulator of CHSAC-AF")

"""Options that write a comparison's tables to files, and what they write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from noonward.evaluate.compare import Comparison

Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file: one row a policy and environment.")
]
Xlsx = Annotated[
    Path | None, typer.Option("--xlsx", metavar="FILE", help="Write an Excel file: the table, and one row a run.")
]
JobsFile = Annotated[
    Path | None,
    typer.Option("--jobs-parquet", metavar="FILE", help="Write a Parquet file: one row a policy and job, UTC times."),
]


def export(found: Comparison, csv: Path | None, xlsx: Path | None, jobs: Path | None) -> None:
    """Writes the files that are asked for, each whole or not at all.

    Raises:
        MissingExtraError: An Excel file is asked for and its writer is not installed.
    """
    from noonward.files import write_table

    if csv is not None:
        write_table(csv, found.to_frame())
    if xlsx is not None:
        _write_workbook(found, xlsx)
    if jobs is not None:
        write_table(jobs, found.jobs())


def _write_workbook(found: Comparison, path: Path) -> None:
    import io

    import polars as pl

    from noonward.errors import MissingExtraError
    from noonward.evaluate.results import summary_rows
    from noonward.files import whole_file

    try:
        import xlsxwriter
    except ImportError:
        raise MissingExtraError("xlsxwriter", "excel") from None
    summary, runs = summary_rows(found), found.to_frame()
    table = [
        dict(zip(["policy", *(f"{c.title} ({c.unit})" for c in summary.columns)], [row.name, *row.cells], strict=True))
        for row in summary.rows
    ]
    content = io.BytesIO()
    # Excel knows no time zones: UTC is said in the column's name.
    plain = runs.with_columns(pl.col("start").dt.replace_time_zone(None)).rename({"start": "start_utc"})
    with xlsxwriter.Workbook(content, {"in_memory": True, "nan_inf_to_errors": True}) as book:
        pl.DataFrame(table).write_excel(book, "policies", autofit=True)
        plain.write_excel(book, "runs", autofit=True)
    with whole_file(path) as file:
        file.write(content.getvalue())

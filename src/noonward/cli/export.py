"""Options that write a comparison's tables to files, and what they write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from noonward.evaluate.compare import ComparisonResult

Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file: one row per policy and environment.")
]
Xlsx = Annotated[
    Path | None, typer.Option("--xlsx", metavar="FILE", help="Write an Excel file: the table, and one row per run.")
]
JobsFile = Annotated[
    Path | None,
    typer.Option("--jobs-parquet", metavar="FILE", help="Write a Parquet file: one row per policy and job, UTC times."),
]


def require_ending(path: Path | None, option: str, ending: str, out: Path) -> None:
    """Raises unless a file that is asked for can be written; called before anything is computed.

    Args:
        path: The file; None: none is asked for.
        option: Option that names it.
        ending: Ending of its name.
        out: Folder for records and reports, which the command makes.

    Raises:
        ScenarioError: Its name has another ending, or is that of a folder.
        FileError: There is no such folder, or nothing can be written there.
    """
    from noonward.errors import ScenarioError
    from noonward.files import require_folder

    if path is None:
        return
    if path.suffix.lower() != ending or path.is_dir():
        raise ScenarioError(f"{option} {path}: it writes a file whose name ends in {ending}; give such a name")
    require_folder(path, option, out)


def require_exports(csv: Path | None, xlsx: Path | None, jobs: Path | None, out: Path) -> None:
    """Raises unless the files that are asked for can be written; called before anything is computed.

    Raises:
        ScenarioError: A name has another ending, or is that of a folder.
        FileError: There is no such folder, or nothing can be written there.
        MissingExtraError: An Excel file is asked for and its writer is not installed.
    """
    import importlib.util

    from noonward.errors import MissingExtraError

    require_ending(csv, "--csv", ".csv", out)
    require_ending(xlsx, "--xlsx", ".xlsx", out)
    require_ending(jobs, "--jobs-parquet", ".parquet", out)
    if xlsx is not None and importlib.util.find_spec("xlsxwriter") is None:
        raise MissingExtraError("xlsxwriter", "excel")


def export(found: ComparisonResult, csv: Path | None, xlsx: Path | None, jobs: Path | None) -> None:
    """Writes the files that are asked for (``require_exports``), each whole or not at all."""
    from noonward.files import write_table

    if csv is not None:
        write_table(csv, found.to_frame())
    if xlsx is not None:
        _write_workbook(found, xlsx)
    if jobs is not None:
        write_table(jobs, found.jobs())


def _write_workbook(found: ComparisonResult, path: Path) -> None:
    import io

    import polars as pl
    import xlsxwriter

    from noonward.evaluate.comparison import summary_rows
    from noonward.files import whole_file

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

"""``noonward report``: writes the reports of a folder of records again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of records, as 'noonward compare' printed it ('records:').")
    ],
) -> None:
    """Write a comparison's report again from its records.

    Nothing is simulated. A folder may hold several comparisons of a scenario; each gets its report.
    """
    from noonward.cli.compare import write_reports
    from noonward.evaluate.kept import kept_comparisons, read_comparison

    for path in kept_comparisons(folder):
        print(f"report:  {write_reports(*read_comparison(path))}")

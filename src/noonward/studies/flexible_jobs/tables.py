"""Tables of numbers that others published, as CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from noonward.arrays import F8
from noonward.errors import DataError


def number_columns(path: Path, names: Sequence[str], title_lines: int = 0) -> dict[str, F8]:
    """Returns columns of finite numbers of a CSV file; empty lines are left out.

    Args:
        path: File.
        names: Columns.
        title_lines: Lines before the header.

    Raises:
        DataError: The file cannot be read, has no row, lacks a column, or a value is no finite number.
    """
    try:
        frame = pl.read_csv(path, infer_schema=False, skip_rows=title_lines)
    except (OSError, PolarsError) as error:
        raise DataError(f"{path.name} cannot be read as a CSV file: {error}") from error
    if lacking := [name for name in names if name not in frame.columns]:
        raise DataError(f"{path.name} has no column {lacking[0]!r}; it has {', '.join(frame.columns)}")
    frame = frame.with_row_index("line", 2 + title_lines).filter(~pl.all_horizontal(pl.col(names).is_null()))
    if frame.height == 0:
        raise DataError(f"{path.name} has no rows; give at least one")
    out = {}
    for name in names:
        value_R = frame[name].str.strip_chars().cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        if not np.isfinite(value_R).all():
            row = int((~np.isfinite(value_R)).argmax())
            raise DataError(
                f"{path.name}, line {frame['line'][row]}, column {name!r}: {frame[name][row]!r} is not a finite "
                "number; give one"
            )
        out[name] = value_R
    return out

"""Curves of a run: one row an epoch, as CSV and as TensorBoard events."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from noonward.files import write_text

Row = dict[str, float | int | None]
"""Figures of an epoch by name; None where there is none, as for the losses of an epoch without updates."""


def write_curves(path: Path, rows: Sequence[Row]) -> None:
    """Writes the rows as CSV, whole or not at all; floats with all their digits, nothing for None."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows({name: "" if value is None else repr(value) for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


class Events:
    """Writes TensorBoard events of a run.

    Args:
        folder: Folder of the event files.
        epoch: First epoch that is written; what a run that was cut off wrote from there on is dropped.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own use of deprecated names
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(str(folder), purge_step=epoch)

    def write(self, epoch: int, groups: Mapping[str, Mapping[str, float | int | None]]) -> None:
        """Writes the figures of an epoch, named ``group/figure``."""
        for group, figures in groups.items():
            for name, value in figures.items():
                if value is not None:
                    self._writer.add_scalar(f"{group}/{name}", value, epoch)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

"""Curves of a run: one row an epoch, as CSV and as TensorBoard events."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from noonward.files import write_text

_NUMBER: Final = re.compile(r"events\.out\.tfevents\.(\d+)\.")
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
    """Writes TensorBoard events of a run, one file for every time that it is started or resumed.

    TensorBoard reads the files of a folder in the order of their names, and each file's first event drops what earlier
    ones hold from its epoch on. The names therefore count up. (``SummaryWriter`` of torch names a file by second,
    process and a number without leading zeros, so that files of one second can be read in the wrong order.)

    Args:
        folder: Folder of the event files.
        epoch: First epoch that is written; what a run that was killed wrote from there on is dropped.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        numbers = [int(found[1]) for each in folder.iterdir() if (found := _NUMBER.match(each.name))]
        self._file = (folder / f"events.out.tfevents.{max(numbers, default=0) + 1:010d}.noonward").open("xb")
        self._event, self._summary, self._records = Event, Summary, RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        self._add(step=epoch, session_log=SessionLog(status=SessionLog.START))
        self._file.flush()

    def _add(self, **content: Any) -> None:
        """Writes an event."""
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())

    def write(self, epoch: int, groups: Mapping[str, Mapping[str, float | int | None]]) -> None:
        """Writes the figures of an epoch, named ``group/figure``."""
        values = [
            self._summary.Value(tag=f"{group}/{name}", simple_value=value)
            for group, figures in groups.items()
            for name, value in figures.items()
            if value is not None
        ]
        self._add(step=epoch, summary=self._summary(value=values))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

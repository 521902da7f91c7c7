"""The progress of training in a terminal: a line an epoch, and a bar with the time left."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonward.learn.train.trainer import EpochReport

COLUMNS = (
    ("epoch", 9),
    ("reward/step", 12),
    ("validation", 11),
    ("critic loss", 12),
    ("entropy", 8),
    ("s", 7),
    ("collect", 8),
    ("update", 7),
    ("validate", 9),
    ("left", 9),
)


class TrainingTable:
    """Shows the progress of a run on the error stream.

    Args:
        epochs: Epochs of the run.
    """

    def __init__(self, epochs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        terminal = self._console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not terminal)
        self._task = self._bar.add_task("epochs", total=epochs)
        self._epochs, self._shown_s = epochs, 0.0

    def __enter__(self) -> TrainingTable:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def began(self, folder: Path, epoch: int) -> None:
        """Says where the run writes and after which epoch it resumes."""
        state = f"resumes after epoch {epoch}" if epoch else "begins"
        self._print(f"training {state}; results: {folder}")
        self._bar.update(self._task, completed=epoch)
        if epoch < self._epochs:
            self._print(" ".join(f"{name:>{width}}" for name, width in COLUMNS))

    def phase(self, name: str, done: int, total: int) -> None:
        """Moves the bar within an epoch, at most five times a second."""
        if time.monotonic() - self._shown_s > 0.2:
            self._shown_s = time.monotonic()
            self._bar.update(self._task, description=f"{name} {done:,}/{total:,}")

    def epoch(self, report: EpochReport) -> None:
        """Prints the line of an epoch."""
        figures, seconds = report.figures, report.seconds
        spent = sum(seconds.values())
        number = f"{report.epoch}/{report.epochs}{'*' if report.improved else ' '}"
        cells = [
            number,
            *(
                _number(figures.get(name))
                for name in ("reward_per_step", "validation_reward", "critic_loss", "entropy")
            ),
            f"{spent:.1f}",
            *(f"{seconds[name] / max(spent, 1e-9):.0%}" for name in ("collect", "update", "validate")),
            _duration(report.eta_s),
        ]
        self._print(" ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True)))
        self._bar.update(self._task, completed=report.epoch)

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def _duration(seconds: float | None) -> str:
    """Returns a time as h:mm:ss, or a dash."""
    if seconds is None:
        return "–"
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"


def _number(value: float | None) -> str:
    """Returns a figure in four digits, or a dash."""
    return "–" if value is None else f"{value:,.4g}"

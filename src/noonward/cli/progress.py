"""Progress of a long command on the error stream: what runs, how far it is, and how long all of it still takes."""

from __future__ import annotations

import re
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import RenderableType

    from noonward.runtime.executor import Progress

QUIET_S: Final = 30.0
"""Seconds between lines of progress where there is no terminal."""
ENOUGH: Final = 4.0
"""Steps, or a quarter of those done, that a pace is taken from at the least."""
FIRST: Final = 0.01
"""Share of all steps before which no pace is told: until then functions may have been compiled most of the time."""
PART: Final = re.compile(r"(?P<label>.*): \D*?(?P<done>[\d,]+) of (?P<of>[\d,]+)(?: \w+)?")
"""How far one step is: ``label: 12 of 400 jobs``, ``label: stretch 2 of 7``."""


class TimeLeft:
    """Estimates how long the rest of all steps takes, at the pace of the latter half of the time so far.

    The first half holds what is done once (compilation) and steps that were recorded already. If less than ``ENOUGH``
    was done in the latter half, it begins earlier.

    Args:
        total: Steps; None: not known yet.
    """

    def __init__(self, total: int | None) -> None:
        self.total, self.done = total, 0
        self._parts: dict[str, float] = {}
        self._past: list[tuple[float, float]] = [(time.monotonic(), 0.0)]

    def step(self, label: str) -> None:
        """A step is done."""
        self.done += 1
        self._parts.pop(label, None)
        self._note()

    def within(self, about: str) -> None:
        """A step tells how far it is."""
        found = PART.fullmatch(about)
        if found is not None:
            done, of = (int(found[name].replace(",", "")) for name in ("done", "of"))
            self._parts[found["label"]] = min(done / of, 1.0) if of else 0.0
            self._note()

    def _note(self) -> None:
        begun = sum(self._parts.values())
        if self.total is not None:  # a part whose name is not its step's is not forgotten with it
            begun = min(begun, max(0, self.total - self.done))
        self._past.append((time.monotonic(), self.done + begun))

    def seconds(self) -> float | None:
        """Returns the seconds left, or None while nothing is known of the pace."""
        now, (began, _) = time.monotonic(), self._past[0]
        done = self._past[-1][1]
        least = min(ENOUGH, done / 4)
        at = bisect_right(self._past, (began + now) / 2, key=lambda each: each[0]) - 1
        while at > 0 and self._past[at][1] > done - least:
            at -= 1
        since, before = self._past[at]
        if self.total is None or done < FIRST * self.total or done <= before or now <= since:
            return None
        return (self.total - done) * (now - since) / (done - before)

    def told(self) -> str:
        """Returns it in words: ``about 12 min left``; empty while nothing is known."""
        left_s = self.seconds()
        if left_s is None:
            return ""
        size, unit = (1.0, "s") if left_s < 90 else (60.0, "min") if left_s < 5400 else (3600.0, "h")
        return f"about {left_s / size:.{1 if unit == 'h' else 0}f} {unit} left"


@contextmanager
def progress_bar(
    total: int | None,
    what: str,
    above: RenderableType | None = None,
    *,
    unit: str = "runs",
    results: Path | None = None,
) -> Iterator[Progress]:
    """Shows what runs, since when, and how long all of it still takes on the error stream.

    Without a terminal it prints at once what runs, how many steps there are, and where results go, and then a line now
    and then.

    Args:
        total: Steps; None: not known until the notice ``runs`` says how many more there are.
        what: What is done, before the bar.
        above: What stands above the bar, drawn again with it.
        unit: What a step is, in the plural.
        results: Folder that results are written to; None: they are only printed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from noonward.notices import listening

    class Bar(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            if above is not None:
                yield above
            yield from super().get_renderables()

    columns = (
        SpinnerColumn(),
        TextColumn(what),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True)
    left, told_s, under_way = TimeLeft(total), time.monotonic(), ""
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, left="")

        def begin() -> None:
            """Prints what runs, where there is no terminal to draw on."""
            if not console.is_terminal:
                where = "" if results is None else f"; results go to {results}"
                count = "" if left.total is None else f"{left.total:,} {unit}"
                print(f"{what}: {count or f'counting {unit}'}{where}", file=sys.stderr, flush=True)

        def show(about: str) -> None:
            """Draws the bar, or prints a line, not more often than every ``QUIET_S``."""
            nonlocal told_s
            if console.is_terminal:
                bar.update(task, completed=left.done, total=left.total, description=about, left=left.told())
            elif time.monotonic() - told_s >= QUIET_S:
                told_s, rest = time.monotonic(), left.told()
                of = "" if left.total is None else f" of {left.total:,}"
                print(f"{what}: {left.done:,}{of} done{rest and f', {rest}'}; {about}", file=sys.stderr, flush=True)

        def step(label: str) -> None:
            left.step(label)
            show(label)

        def hear(kind: str, about: str) -> None:
            nonlocal under_way
            if kind == "runs":
                known, left.total = left.total is not None, left.done + int(about)
                if not known:
                    begin()
                bar.update(task, total=left.total)
                return
            if kind == "progress":
                under_way = about
                left.within(about)
                show(about)
            elif kind == "within":
                left.within(f"{under_way}: {about}")
                show(f"{under_way}: {about}" if under_way else about)

        begin()
        with listening(hear):
            yield step

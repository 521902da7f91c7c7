"""What whoever runs a service must know, and whether anything has changed since it was last shown."""

from __future__ import annotations

from typing import Final

KEPT: Final = 100
"""Notes that are kept, the newest; one that is among them already is not repeated."""


class Notes:
    """Notes of a service: wrong answers of the scheduler, workers that were killed, records that could not be read.

    Attributes:
        texts: The notes, the newest last.
        changed: Whether a task, a server or a note has changed since this was last set to False.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.changed = True

    def add(self, text: str) -> None:
        """Adds a note."""
        if text not in self.texts[-KEPT:]:
            self.texts.append(text)
            del self.texts[:-KEPT]
        self.changed = True

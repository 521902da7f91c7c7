"""Tables of text: what reports and the terminal print."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text.

    Attributes:
        title: What it shows.
        header: Titles of the columns, units included.
        rows: Cells.
        caption: How to read it.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str

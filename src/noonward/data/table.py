"""Rows of a file, whatever it is read from, and the one way in which a row is refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import polars as pl

from noonward.errors import RowError


@dataclass(frozen=True, kw_only=True)
class Table(ABC):
    """Rows of a file.

    Attributes:
        frame: The rows.
    """

    frame: pl.DataFrame

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the file, for messages."""

    @property
    @abstractmethod
    def lines(self) -> pl.Series:
        """Where each row stands: its line in a text file, its row (from 1) in another one."""

    @property
    def counted(self) -> str:
        """What ``lines`` counts: ``line`` or ``row``."""
        return "line"

    def refuse(self, broken: pl.Series, column: str, why: str) -> None:
        """Raises RowError if rows are broken, naming file, line, column and value of the first.

        Args:
            broken: Which rows are refused; null counts as not.
            column: Column whose value is shown.
            why: What is wrong, what is allowed and what to do, after the value; it may begin with a semicolon.
        """
        marked = broken.fill_null(value=False)
        if not marked.any():
            return
        lines = self.lines.filter(marked)
        value = self.frame[column].filter(marked)[0]
        if value is None or value == "":
            shown = "is empty"
            if why.startswith("is "):
                _, _, advice = why.partition(";")
                why = f";{advice}" if advice else f", which {why}"
        else:
            shown = repr(value) if isinstance(value, str) else str(value)
        what = f"column {column!r}: the value {shown}{'' if why.startswith((';', ',')) else ' '}{why}"
        raise RowError(f"{self.name}, {self.counted} {lines[0]}, {what}", lines if self.counted == "line" else (), what)

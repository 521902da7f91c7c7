"""Tables and figures as reports and the terminal show them: cells, columns, rows, tables of text, captioned figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from noonward.evaluate.statistics import Estimate

if TYPE_CHECKING:
    import plotly.graph_objects as go

UNDEFINED: Final = "–"
"""Cell of a value that is not defined."""


@dataclass(frozen=True)
class Currency:
    """A currency that money is shown in.

    Attributes:
        name: Its name, such as ``EUR``.
        usd: What one of it is worth, USD, above 0.
    """

    name: str
    usd: float

    def of(self, dollars: Estimate) -> Estimate:
        """Returns an amount of US dollars in this currency.

        Example:
            >>> Currency("EUR", 1.25).of(Estimate(10.0, 5.0, 20.0)).value
            8.0
        """
        return dollars.over(self.usd)


US_DOLLAR: Final = Currency("USD", 1.0)


@dataclass(frozen=True)
class Column:
    """A column of the results table.

    Attributes:
        title: What it shows.
        unit: Unit of its cells.
        better: Whether higher or lower values are better, or neither.
    """

    title: str
    unit: str
    better: Literal["up", "down", "none"] = "none"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the results table.

    Attributes:
        name: Policy, or what the bound's row shows.
        cells: One formatted cell a column.
        kind: A policy, the baseline, or a row that no policy made.
    """

    name: str
    cells: tuple[str, ...]
    kind: Literal["policy", "baseline", "bound"] = "policy"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The results table: rows of bounds first, then policies, best first.

    Attributes:
        columns: Columns; the rows' names stand before them.
        rows: Rows.
        caption: How to read the cells.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str


def number(estimate: Estimate, digits: int = 0) -> str:
    """Returns ``mean ± half the width of the 95% interval``; only the mean if there is no interval.

    Example:
        >>> number(Estimate(1234.56, 1226.76, 1242.36), 1), number(Estimate(float("nan")))
        ('1,234.6 ± 7.8', '–')
    """
    if math.isnan(estimate.value):
        return UNDEFINED
    text = _plain(estimate.value, digits)
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ± {_plain(max(estimate.high - estimate.value, estimate.value - estimate.low), digits)}"


def number_by_seed(estimate: Estimate, digits: int = 0) -> str:
    """Returns ``mean ± standard deviation``, for means over training seeds; only the mean without a spread.

    Example:
        >>> number_by_seed(Estimate(1234.56, spread=7.8), 1)
        '1,234.6 ± 7.8'
    """
    if math.isnan(estimate.value):
        return UNDEFINED
    text = _plain(estimate.value, digits)
    return text if estimate.spread is None else f"{text} ± {_plain(estimate.spread, digits)}"


def percent(estimate: Estimate, *, signed: bool = False, digits: int = 1) -> str:
    """Returns a fraction in percent with its 95% interval.

    Example:
        >>> percent(Estimate(0.27, 0.173, 0.368), signed=True), percent(Estimate(0.5)), percent(Estimate(0.5), digits=3)
        ('+27.0 [+17.3, +36.8]', '50.0', '50.000')
    """
    if math.isnan(estimate.value):
        return UNDEFINED
    sign = "+" if signed else ""
    value, low, high = (
        None if x is None else _percent(x, sign, digits) for x in (estimate.value, estimate.low, estimate.high)
    )
    return str(value) if low is None else f"{value} [{low}, {high}]"


def _plain(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def _percent(fraction: float, sign: str, digits: int) -> str:
    value = round(100 * fraction, digits) + 0.0
    return f"{value:{sign if value else ''}.{digits}f}"


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


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure with its title and caption.

    Attributes:
        name: Stable name, fit for a file.
        title: What it shows.
        caption: How to read it and what is better.
        plot: The plotly figure.
    """

    name: str
    title: str
    caption: str
    plot: go.Figure

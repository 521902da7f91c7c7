"""Hourly values as strips of block characters, for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np

from noonward.arrays import F8

BLOCKS: Final = "▁▂▃▄▅▆▇█"
UNKNOWN: Final = " "
"""What stands for an unknown value."""


def strip(values: F8, low: float, high: float) -> str:
    """Returns one block a value, the lower the smaller; a blank where it is unknown.

    Args:
        values: Values.
        low: Value of the smallest block.
        high: Value of the largest.

    Example:
        >>> strip(np.array([0.0, 5.0, 10.0, np.nan]), 0.0, 10.0)
        '▁▅█ '
    """
    span = (high - low) or 1.0
    place = np.clip((values - low) / span * len(BLOCKS), 0, len(BLOCKS) - 1)
    return "".join(UNKNOWN if np.isnan(each) else BLOCKS[int(each)] for each in place.tolist())


def scale(values: F8) -> tuple[float, float]:
    """Returns the values of the smallest and the largest block: the least and the most, spikes left out.

    Spikes are values above the upper fence of a box plot: the upper quartile and one and a half times the distance of
    the quartiles. They are drawn as the largest block, so that the rest stays legible.

    Example:
        >>> scale(np.array([*range(101), 5000.0]))
        (0.0, 151.5)
        >>> scale(np.arange(101.0))
        (0.0, 100.0)
    """
    finite = values[np.isfinite(values)]
    lower, upper = np.quantile(finite, [0.25, 0.75]).tolist()
    return float(finite.min()), min(float(finite.max()), upper + 1.5 * (upper - lower))


def in_columns(values: F8, columns: int) -> F8:
    """Returns the means of as many equal stretches as there are columns; the values themselves if they are fewer.

    Example:
        >>> in_columns(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist()
        [2.0, 6.0]
    """
    if len(values) <= columns:
        return values
    edges = np.linspace(0, len(values), columns + 1).round().astype(int)
    return np.array([_mean(values[a:b]) for a, b in itertools.pairwise(edges)])


def marks(columns: int, begin: float, end: float, word: str) -> str:
    """Returns a line that marks a stretch of columns, with a word beside it.

    Example:
        >>> marks(10, 0.2, 0.5, "run")
        '  ╰─╯ run'
    """
    first = min(int(begin * columns), columns - 1)
    last = max(first + 1, round(end * columns))
    width = last - first
    line = "╵" if width == 1 else "╰" + "─" * (width - 2) + "╯"
    return " " * first + line + (f" {word}" if word else "")


def spread(texts: Sequence[str], columns: int) -> str:
    """Returns texts in a line, the first at its beginning and the last at its end.

    Example:
        >>> spread(["Mon", "Tue"], 12)
        'Mon      Tue'
    """
    if len(texts) == 1 or columns < sum(map(len, texts)) + len(texts):
        return texts[0]
    line = [" "] * columns
    for n, text in enumerate(texts):
        at = round(n * (columns - len(text)) / (len(texts) - 1))
        line[at : at + len(text)] = text
    return "".join(line)


def _mean(values: F8) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")

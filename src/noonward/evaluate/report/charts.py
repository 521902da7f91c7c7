"""Charts as SVG text: bars with intervals, a scatter of named points, a map of differences. They need no program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from noonward.arrays import F8

WIDTH: Final = 460
"""Width of a chart in its own units; a page shows it at that many pixels or fewer."""
GOOD: Final = "#2e7d32"
BAD: Final = "#b45309"
QUIET: Final = "#8a929e"
MORE: Final = (180, 83, 9)
LESS: Final = (29, 95, 168)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A named value with its interval.

    Attributes:
        name: Name.
        value: Value.
        low: Lower end, or None.
        high: Upper end, or None.
        text: Value as it is written.
        color: Colour.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    text: str
    color: str


@dataclass(frozen=True, kw_only=True)
class Point:
    """A named point.

    Attributes:
        name: Name.
        x: Place to the right.
        y: Place upwards.
        color: Colour.
    """

    name: str
    x: float
    y: float
    color: str


def bar_chart(bars: Sequence[Bar], unit: str) -> str:
    """Returns horizontal bars from zero with whiskers, one below the other."""
    known = [bar for bar in bars if math.isfinite(bar.value)]
    ends = [each for bar in known for each in (bar.value, bar.low, bar.high) if each is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0
    left, right, step = 10.0, WIDTH - 10.0, 38

    def x(value: float) -> float:
        return left + (value - low) / span * (right - left)

    out = []
    for n, bar in enumerate(known):
        y = 14 + n * step
        out.append(f'<text x="{left}" y="{y}" class="name">{escape(bar.name)}</text>')
        out.append(f'<text x="{right}" y="{y}" text-anchor="end">{escape(bar.text)}</text>')
        from_x, to_x = sorted((x(0.0), x(bar.value)))
        out.append(
            f'<rect x="{from_x:.1f}" y="{y + 5}" width="{max(1.0, to_x - from_x):.1f}" height="13" fill="{bar.color}"/>'
        )
        if bar.low is not None and bar.high is not None:
            middle = y + 11.5
            out.append(f'<path d="M{x(bar.low):.1f} {middle}H{x(bar.high):.1f}" stroke="#222" stroke-width="1.5"/>')
    height = 14 + len(known) * step
    out.append(f'<path d="M{x(0.0):.1f} 4V{height - 10}" stroke="{QUIET}"/>')
    out.append(f'<text x="{x(0.0):.1f}" y="{height + 4}" text-anchor="middle">0 {escape(unit)}</text>')
    return _svg(WIDTH, height + 12, out)


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Returns round numbers between two values.

    Example:
        >>> ticks(0.0, 10.0), ticks(3.2, 3.9)
        ([0.0, 2.5, 5.0, 7.5, 10.0], [3.2, 3.4, 3.6, 3.8])
    """
    span = high - low
    if not span > 0:
        return [low]
    size = 10.0 ** math.floor(math.log10(span))
    step = next(size * each for each in (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10) if span / (size * each) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def scatter(points: Sequence[Point], x_title: str, y_title: str) -> str:
    """Returns named points between two axes."""
    known = [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]
    if not known:
        return ""
    height, left, bottom = 340, 62.0, 46.0
    (x_low, x_high), (y_low, y_high) = (_range([getattr(each, axis) for each in known]) for axis in "xy")

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - x_low) / (x_high - x_low) * (WIDTH - left - 12),
            12 + (y_high - y) / (y_high - y_low) * (height - bottom - 12),
        )

    out = [f'<path d="M{left} 12V{height - bottom}H{WIDTH - 12}" fill="none" stroke="{QUIET}"/>']
    for tick in ticks(x_low, x_high):
        at = place(tick, y_low)[0]
        out.append(f'<text x="{at:.1f}" y="{height - bottom + 16}" text-anchor="middle">{tick:,.6g}</text>')
    for tick in ticks(y_low, y_high):
        at = place(x_low, tick)[1]
        out.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
        out.append(f'<path d="M{left} {at:.1f}H{WIDTH - 12}" stroke="#e9ebef"/>')
    taken: list[tuple[float, float, float]] = []
    for point in sorted(known, key=lambda each: -each.y):
        x, y = place(point.x, point.y)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{point.color}"/>')
        width, at = 7.0 * len(point.name), y + 4
        from_x = x + 8 if x + 8 + width < WIDTH else x - 8 - width
        steps = [step for k in range(height // 14) for step in (14 * k, -14 * k)]
        places = [at + step for step in steps if 12 < at + step < height - bottom]
        beside = [other for other, begin, end in taken if from_x < end and begin < from_x + width]
        clear = (free for free in places if all(abs(free - other) >= 14 for other in beside))
        at = next(clear, at)  # the free place nearest to the point; where there is none, names overlap
        taken.append((at, from_x, from_x + width))
        side = f'x="{x + 8:.1f}"' if from_x > x else f'x="{x - 8:.1f}" text-anchor="end"'
        if abs(at - y - 4) > 1:
            end_x = x + 7 if from_x > x else x - 7
            out.append(f'<path d="M{x:.1f} {y:.1f}L{end_x:.1f} {at - 4:.1f}" stroke="{QUIET}" stroke-width="0.8"/>')
        out.append(f'<text {side} y="{at:.1f}" class="name">{escape(point.name)}</text>')
    middle = (left + WIDTH - 12) / 2
    out.append(f'<text x="{middle}" y="{height - 8}" text-anchor="middle">{escape(x_title)}</text>')
    out.append(
        f'<text x="14" y="{height / 2 - 10}" text-anchor="middle" transform="rotate(-90 14 {height / 2 - 10})">'
        f"{escape(y_title)}</text>"
    )
    return _svg(WIDTH, height, out)


def difference_map(values_ST: F8, rows: Sequence[str], columns: Sequence[str], unit: str) -> str:
    """Returns a map of values around zero: orange above, blue below, white at zero.

    Args:
        values_ST: Values, shape (rows, columns).
        rows: Names of the rows.
        columns: Texts below the columns; empty ones are left out.
        unit: Unit, for the key.
    """
    most = float(np.nanmax(np.abs(values_ST), initial=0.0)) or 1.0
    left, cell, high = 12 + 9.0 * max(map(len, rows)), 920 / values_ST.shape[1], 22
    out = []
    for s, row in enumerate(rows):
        out.append(f'<text x="{left - 8:.1f}" y="{s * high + 16}" text-anchor="end" class="name">{escape(row)}</text>')
        for t, value in enumerate(values_ST[s].tolist()):
            tip = f"<title>{escape(row)}, {escape(str(columns[t]))}: {value:+,.1f} {escape(unit)}</title>"
            out.append(
                f'<rect x="{left + t * cell:.1f}" y="{s * high + 1}" width="{cell + 0.3:.1f}" height="{high - 2}" '
                f'fill="{_tint(value / most)}">{tip}</rect>'
            )
    bottom = len(rows) * high
    every = max(1, math.ceil(len(columns) / 8))
    for t in range(0, len(columns), every):
        out.append(f'<text x="{left + t * cell:.1f}" y="{bottom + 16}">{escape(columns[t])}</text>')
    for n, share in enumerate((-1.0, -0.5, 0.0, 0.5, 1.0)):
        at = left + n * 130
        out.append(f'<rect x="{at:.1f}" y="{bottom + 28}" width="16" height="14" fill="{_tint(share)}" stroke="#ddd"/>')
        out.append(f'<text x="{at + 21:.1f}" y="{bottom + 40}">{share * most:+,.3g} {escape(unit)}</text>')
    return _svg(math.ceil(left + 930), bottom + 50, out)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    edge = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return low - edge, high + edge


def _tint(share: float) -> str:
    if math.isnan(share):
        return "#eeeeee"
    full = MORE if share > 0 else LESS
    return "#" + "".join(f"{round(255 + (each - 255) * min(1.0, abs(share))):02x}" for each in full)


def _svg(width: int, height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width} {height:.0f}" role="img">{"".join(parts)}</svg>'

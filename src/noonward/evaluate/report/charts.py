"""Charts as SVG text: bars with intervals, named points, lines, a map of differences. They need no program.

They are drawn here, and not by plotly as other figures are, because a page for a meeting is mailed and printed: its
drawings are a few KB of text, while plotly needs a script of megabytes to draw and a browser to make a picture of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from noonward.arrays import F8

Box = tuple[float, float, float, float]
"""Left, right, top and bottom, in a chart's units."""
WIDTH: Final = 460
"""Width of a chart in its own units; a page shows it at that many pixels or fewer."""
LETTER: Final = 9.2
"""Width of a letter of a name on a narrow screen, in a chart's units."""
STYLE: Final = """
svg { width: 100%; height: auto; display: block; font-size: 13px; fill: #444; }
svg .name { fill: #222; font-weight: 600; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 8px 36px; }
.pair svg { max-width: 560px; }
@media (max-width: 600px) { svg { font-size: 15px; } }
@media print { .pair { grid-template-columns: 1fr 1fr; } section { break-inside: avoid; } }
"""
"""Style of charts in a page."""
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
        always: Whether its name is written even if there is no room for it.
    """

    name: str
    x: float
    y: float
    color: str
    always: bool = True


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
        out.append(f'<text x="{left}" y="{y}" class="name">{escape(_cut(bar))}</text>')
        out.append(f'<text x="{right}" y="{y}" text-anchor="end">{escape(bar.text)}</text>')
        from_x, to_x = sorted((x(0.0), x(bar.value)))
        out.append(
            f'<rect x="{from_x:.1f}" y="{y + 5}" width="{max(1.0, to_x - from_x):.1f}" height="13" fill="{bar.color}"/>'
        )
        if bar.low is not None and bar.high is not None:
            middle = y + 11.5
            out.append(f'<path d="M{x(bar.low):.1f} {middle}H{x(bar.high):.1f}" stroke="#222" stroke-width="1.5"/>')
    height = 14 + len(known) * step
    zeros = "".join(f"M{x(0.0):.1f} {14 + n * step + 3}v17" for n in range(len(known)))
    out.append(f'<path d="{zeros}" stroke="{QUIET}"/>')
    side = "start" if x(0.0) < 40 else "end" if x(0.0) > WIDTH - 40 else "middle"
    zero = "0%" if unit == "%" else f"0 {unit}"
    out.append(f'<text x="{x(0.0):.1f}" y="{height + 4}" text-anchor="{side}">{escape(zero)}</text>')
    return svg_text(WIDTH, height + 12, out)


def _cut(bar: Bar) -> str:
    """Returns a bar's name, cut where it would run into its value."""
    room = int((WIDTH - 40) / LETTER) - len(bar.text)
    return bar.name if len(bar.name) <= room else f"{bar.name[: room - 1]}…"


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


LABEL_WIDTH, LABEL_HEIGHT, FARTHEST = 8.2, 16, 4
"""Room for a letter and a line of a label, in the chart's units, as wide as on a phone; most lines between a point and
its label, unless the label must be written."""


def scatter(points: Sequence[Point], x_title: str, y_title: str) -> str:
    """Returns named points between two axes. A name without room is left out, unless it must be there."""
    known = [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]
    if not known:
        return ""
    frame = _Frame.of([each.x for each in known], [each.y for each in known])
    lowest, place = frame.height - frame.bottom, frame.place
    out, names = frame.axes(x_title, y_title), []
    taken = [(x - 6, x + 6, y - 6, y + 6) for x, y in (place(each.x, each.y) for each in known)]
    for point in sorted(known, key=lambda each: (not each.always, -each.y)):
        x, y = place(point.x, point.y)
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{point.color}"/>')
        width = LABEL_WIDTH * len(point.name)
        from_x = x + 8 if x + 8 + width < WIDTH else x - 8 - width
        most = int(frame.height // LABEL_HEIGHT) if point.always else FARTHEST
        places = [y + 4 + LABEL_HEIGHT * step for k in range(most) for step in (k, -k)]
        at = next(
            (
                each
                for each in places
                if 12 < each < lowest and not _meets((from_x, from_x + width, each - 11, each + 4), taken)
            ),
            y + 4 if point.always else None,
        )
        if at is None:
            continue
        taken.append((from_x, from_x + width, at - 11, at + 4))
        side = f'x="{x + 8:.1f}"' if from_x > x else f'x="{x - 8:.1f}" text-anchor="end"'
        if abs(at - y - 4) > 1:
            end_x = x + 7 if from_x > x else x - 7
            out.append(f'<path d="M{x:.1f} {y:.1f}L{end_x:.1f} {at - 4:.1f}" stroke="{QUIET}" stroke-width="0.8"/>')
        names.append(f'<text {side} y="{at:.1f}" class="name">{escape(point.name)}</text>')
    return svg_text(WIDTH, frame.height, out + names)


def _meets(box: Box, others: Sequence[Box]) -> bool:
    """Returns whether a box (left, right, top, bottom) overlaps one of others."""
    left, right, top, bottom = box
    return any(left < end and begin < right and top < low and high < bottom for begin, end, high, low in others)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A named line through points; it breaks where a value is unknown.

    Attributes:
        name: Name; of lines with the same one, the first stands in the key.
        x: Places to the right.
        y: Places upwards.
        color: Colour.
        texts: Labels beside the points; if empty, points have no labels.
        low: Lower ends of intervals, or none.
        high: Upper ends, or none.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    color: str
    texts: tuple[str, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


def line_chart(
    lines: Sequence[Line],
    x_title: str,
    y_title: str,
    *,
    points: Sequence[Point] = (),
    name_x: Callable[[float], str] = "{:,.6g}".format,
    ticks_x: Sequence[float] = (),
    from_zero: bool = False,
) -> str:
    """Returns lines between two axes, with a key below them.

    Args:
        lines: Lines.
        x_title: Name and unit of the axis to the right.
        y_title: Name and unit of the axis upwards.
        points: Named points beside the lines.
        name_x: Returns the text of a place to the right.
        ticks_x: Places to the right that have a text; none: round numbers.
        from_zero: Whether the axis upwards includes zero.
    """
    ends = [each for line in lines for each in (*line.low, *line.high) if each is not None]
    y = [*(each for line in lines for each in line.y), *(point.y for point in points), *ends]
    frame = _Frame.of(
        [*(each for line in lines for each in line.x), *(point.x for point in points)],
        [*y, 0.0] if from_zero else y,
        key=[line.name for line in lines],
    )
    out = frame.axes(x_title, y_title, name_x, ticks_x)
    for line in lines:
        places = [frame.place(x, y) if math.isfinite(y) else None for x, y in zip(line.x, line.y, strict=True)]
        for low, high, at in zip(line.low, line.high, places, strict=False):
            if low is not None and high is not None and at is not None:
                ends_y = [frame.place(line.x[0], each)[1] for each in (low, high)]
                out.append(
                    f'<path d="M{at[0]:.1f} {ends_y[0]:.1f}V{ends_y[1]:.1f}" stroke="{line.color}" opacity=".5"/>'
                )
        out.append(f'<path d="{_path(places)}" fill="none" stroke="{line.color}" stroke-width="1.8"/>')
        for text, at in zip(line.texts, places, strict=False):
            if at is not None:
                out.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{line.color}"/>')
                anchor = "end" if at[0] > WIDTH - 90 else "start"
                shift = -8 if anchor == "end" else 8
                out.append(
                    f'<text x="{at[0] + shift:.1f}" y="{at[1] - 6:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
                )
    for point in points:
        x_at, y_at = frame.place(point.x, point.y)
        out.append(f'<circle cx="{x_at:.1f}" cy="{y_at:.1f}" r="5" fill="{point.color}"/>')
        anchor, shift = ("end", -9) if x_at > WIDTH / 2 else ("start", 9)
        out.append(
            f'<text x="{x_at + shift:.1f}" y="{y_at + 4:.1f}" text-anchor="{anchor}" class="name">'
            f"{escape(point.name)}</text>"
        )
    return svg_text(WIDTH, frame.height, out + frame.key_parts({line.name: line.color for line in lines}))


def stacked(drawings: Sequence[str]) -> str:
    """Returns drawings of this module below each other, as one file."""
    out, top = [], 0.0
    for drawing in drawings:
        width, height = (float(each) for each in drawing.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split())
        out.append(drawing.replace("<svg ", f'<svg x="0" y="{top:g}" width="{width:g}" height="{height:g}" ', 1))
        top += height + 12
    style = "text{font:12px system-ui,'DejaVu Sans',Arial,sans-serif;fill:#444}.name{font-weight:600;fill:#222}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(out)}</svg>\n'
    )


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Two axes in a drawing.

    Attributes:
        x_ends: Least and largest place to the right.
        y_ends: Least and largest place upwards.
        height: Height of the drawing.
        bottom: Room below the axes.
    """

    x_ends: tuple[float, float]
    y_ends: tuple[float, float]
    height: float
    bottom: float
    left: float = 62.0

    @classmethod
    def of(cls, x: Sequence[float], y: Sequence[float], key: Sequence[str] = ()) -> _Frame:
        """Returns axes that hold all finite values, with room for a key of some names."""
        rows = len(_key_places(tuple(dict.fromkeys(key)))[1]) if key else 0
        finite = [[each for each in values if math.isfinite(each)] or [0.0] for values in (x, y)]
        below = 46.0 + 18 * rows
        return cls(x_ends=_range(finite[0]), y_ends=_range(finite[1]), height=294 + below, bottom=below)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Returns where a point lies in the drawing."""
        (x_low, x_high), (y_low, y_high) = self.x_ends, self.y_ends
        return (
            self.left + (x - x_low) / (x_high - x_low) * (WIDTH - self.left - 12),
            12 + (y_high - y) / (y_high - y_low) * (self.height - self.bottom - 12),
        )

    def axes(
        self,
        x_title: str,
        y_title: str,
        name_x: Callable[[float], str] = "{:,.6g}".format,
        ticks_x: Sequence[float] = (),
    ) -> list[str]:
        """Returns the axes with ticks and titles."""
        base, middle_y = self.height - self.bottom, (self.height - self.bottom) / 2
        out = [f'<path d="M{self.left:g} 12V{base:g}H{WIDTH - 12}" fill="none" stroke="{QUIET}"/>']
        for tick in ticks_x or ticks(*self.x_ends, most=5):
            at = self.place(tick, self.y_ends[0])[0]
            out.append(f'<text x="{at:.1f}" y="{base + 16}" text-anchor="middle">{escape(name_x(tick))}</text>')
        for tick in ticks(*self.y_ends):
            at = self.place(self.x_ends[0], tick)[1]
            out.append(f'<text x="{self.left - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
            out.append(f'<path d="M{self.left:g} {at:.1f}H{WIDTH - 12}" stroke="#e9ebef"/>')
        middle = (self.left + WIDTH - 12) / 2
        out.append(f'<text x="{middle}" y="{base + 36}" text-anchor="middle">{escape(x_title)}</text>')
        out.append(
            f'<text x="14" y="{middle_y}" text-anchor="middle" transform="rotate(-90 14 {middle_y})">'
            f"{escape(y_title)}</text>"
        )
        return out

    def key_parts(self, colors: dict[str, str]) -> list[str]:
        """Returns the key below the axes; nothing for one line alone."""
        if len(colors) < 2:
            return []
        out = []
        top = self.height - self.bottom + 54
        for name, (x, row) in _key_places(tuple(colors))[0].items():
            y = top + 18 * row
            out.append(f'<path d="M{x} {y - 4}h14" stroke="{colors[name]}" stroke-width="3"/>')
            out.append(f'<text x="{x + 19}" y="{y}">{escape(name)}</text>')
        return out


def _key_places(names: tuple[str, ...]) -> tuple[dict[str, tuple[float, int]], list[int]]:
    """Returns place and row of every name in a key, and the rows."""
    x, row, places = 14.0, 0, {}
    for name in names:
        width = 34 + 7.2 * len(name)
        if x + width > WIDTH and x > 14:
            x, row = 14.0, row + 1
        places[name] = (x, row)
        x += width
    return places, list(range(row + 1)) if len(names) > 1 else []


def _path(places: Sequence[tuple[float, float] | None]) -> str:
    """Returns a line through places that breaks where there is none."""
    out, begun = [], False
    for place in places:
        if place is None:
            begun = False
            continue
        out.append(f"{'L' if begun else 'M'}{place[0]:.1f} {place[1]:.1f}")
        begun = True
    return "".join(out)


STEPS = (1, 2, 3, 4, 6, 12, 24, 48)
"""Columns from one text below a map to the next."""
NARROW_NAME = 14
"""Letters of a row's name on a narrow drawing."""


def difference_map(
    values_ST: F8, rows: Sequence[str], columns: Sequence[str], unit: str, *, width: int = 920, ticks: int = 8
) -> str:
    """Returns a map of values around zero: orange above, blue below, white at zero.

    Args:
        values_ST: Values, shape (rows, columns).
        rows: Names of the rows.
        columns: Texts below the columns; empty ones are left out.
        unit: Unit, for the key.
        width: Width of the drawing.
        ticks: Most texts below the columns; fewer where they would touch.
    """
    most = float(np.nanmax(np.abs(values_ST), initial=0.0)) or 1.0
    letter = 9.4 if width > 600 else 10.6
    shown = [row if width > 600 or len(row) <= NARROW_NAME else f"{row[: NARROW_NAME - 1]}…" for row in rows]
    left, high = 12 + letter * max(map(len, shown)), 22
    cell = (width - left - 10) / values_ST.shape[1]
    out = []
    for s, row in enumerate(rows):
        out.append(
            f'<text x="{left - 8:.1f}" y="{s * high + 16}" text-anchor="end" class="name">{escape(shown[s])}</text>'
        )
        for t, value in enumerate(values_ST[s].tolist()):
            tip = f"<title>{escape(row)}, {escape(str(columns[t]))}: {value:+,.1f} {escape(unit)}</title>"
            out.append(
                f'<rect x="{left + t * cell:.1f}" y="{s * high + 1}" width="{cell + 0.3:.1f}" height="{high - 2}" '
                f'fill="{tint(value / most)}">{tip}</rect>'
            )
    bottom = len(rows) * high
    text = letter * max(map(len, columns))
    fitting = max(1, min(ticks, int((width - left) / (text + letter))))
    least = math.ceil(len(columns) / fitting)
    every = next((step for step in STEPS if step >= least), least)
    for t in range(0, len(columns), every):
        if left + t * cell + text < width + letter:
            out.append(f'<text x="{left + t * cell:.1f}" y="{bottom + 16}">{escape(columns[t])}</text>')
    for n, share in enumerate((-1.0, -0.5, 0.0, 0.5, 1.0) if width > 600 else (-1.0, 0.0, 1.0)):
        x = (left if width > 600 else 10) + n * 124
        out.append(f'<rect x="{x:.1f}" y="{bottom + 28}" width="16" height="14" fill="{tint(share)}" stroke="#ddd"/>')
        out.append(
            f'<text x="{x + 21:.1f}" y="{bottom + 40}">{share * most:{"+" if share else ""},.3g} {escape(unit)}</text>'
        )
    return svg_text(width, bottom + 50, out)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    edge = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return low - edge, high + edge


def tint(share: float) -> str:
    """Returns the colour of a share from -1 (blue) over 0 (white) to 1 (orange); grey for NaN."""
    if math.isnan(share):
        return "#eeeeee"
    full = MORE if share > 0 else LESS
    return "#" + "".join(f"{round(255 + (each - 255) * min(1.0, abs(share))):02x}" for each in full)


def svg_text(width: int, height: float, parts: Sequence[str]) -> str:
    """Returns a drawing of some width and height from its parts."""
    return f'<svg viewBox="0 0 {width} {height:.0f}" role="img">{"".join(parts)}</svg>'

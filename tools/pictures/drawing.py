"""A small drawing kit for the pictures of the documentation: SVG text with axes, lines, bars and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

GREEN: Final = "#1b7a3d"
BLUE: Final = "#1f5fa8"
ORANGE: Final = "#c75b12"
RED: Final = "#b3261e"
INK: Final = "#222"
GRAY: Final = "#6b6b6b"
PALE: Final = "#d9d9d9"


@dataclass
class Drawing:
    """A drawing of fixed size on white.

    Attributes:
        width: Pixels.
        height: Pixels.
        label: What it shows, for those who do not see it.
        parts: SVG elements so far.
    """

    width: int
    height: int
    label: str
    parts: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        color: str = INK,
        size: int = 13,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """Writes words; ``y`` is their base line."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size}" text-anchor="{anchor}"{weight}>'
            f"{escape(words, quote=False)}</text>"
        )

    def lines(self, x: float, y: float, rows: Iterable[str], **how: object) -> None:
        """Writes rows of words below each other."""
        for n, row in enumerate(rows):
            self.text(x, y + 17 * n, row, **how)  # type: ignore[arg-type]

    def bar(
        self, x: float, y: float, width: float, height: float, color: str, *, edge: str = "", dash: bool = False
    ) -> None:
        """Draws a rectangle."""
        stroke = f' stroke="{edge}" stroke-width="1.5"' if edge else ""
        dashed = ' stroke-dasharray="4 3"' if dash else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{max(height, 0.0):.1f}" rx="2" '
            f'fill="{color}"{stroke}{dashed}/>'
        )

    def path(
        self, points: Sequence[tuple[float, float]], color: str, *, width: float = 2.0, dash: bool = False
    ) -> None:
        """Draws a line through points."""
        dashed = ' stroke-dasharray="5 4"' if dash else ""
        steps = " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="M{steps}" stroke="{color}" stroke-width="{width:g}" fill="none"{dashed}/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float, color: str = GRAY) -> None:
        """Draws an arrow."""
        self.parts.append(
            f'<path d="M{x:.1f} {y:.1f} {to_x:.1f} {to_y:.1f}" stroke="{color}" stroke-width="1.8" fill="none" '
            'marker-end="url(#head)"/>'
        )

    def dot(self, x: float, y: float, color: str, radius: float = 4.5) -> None:
        """Draws a dot."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{color}"/>')

    def svg(self) -> str:
        """Returns the drawing."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'font-family="sans-serif" role="img" aria-label="{escape(self.label)}">\n'
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0 10 5 0 10z" fill="context-stroke"/></marker></defs>\n'
            '<rect width="100%" height="100%" fill="#fff"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


@dataclass(frozen=True)
class Axes:
    """A place in a drawing with a horizontal and a vertical scale.

    Attributes:
        drawing: The drawing.
        box: Left, top, width and height, pixels.
        across: First and last value from left to right.
        up: First and last value from bottom to top.
    """

    drawing: Drawing
    box: tuple[float, float, float, float]
    across: tuple[float, float]
    up: tuple[float, float]

    def x(self, value: float) -> float:
        """Returns where a value lies from left to right."""
        left, _, width, _ = self.box
        return left + width * (value - self.across[0]) / (self.across[1] - self.across[0])

    def y(self, value: float) -> float:
        """Returns where a value lies from bottom to top."""
        _, top, _, height = self.box
        return top + height * (1 - (value - self.up[0]) / (self.up[1] - self.up[0]))

    def frame(self, title: str, xs: Sequence[tuple[float, str]], ys: Sequence[tuple[float, str]]) -> None:
        """Draws base line, grid lines, their labels and the title above."""
        left, top, width, height = self.box
        for value, words in ys:
            self.drawing.path([(left, self.y(value)), (left + width, self.y(value))], PALE, width=1)
            self.drawing.text(left - 6, self.y(value) + 4, words, size=12, color=GRAY, anchor="end")
        self.drawing.path([(left, top + height), (left + width, top + height)], GRAY, width=1.2)
        for value, words in xs:
            self.drawing.text(self.x(value), top + height + 16, words, size=12, color=GRAY, anchor="middle")
        self.drawing.text(left, top - 8, title, bold=True)

    def line(
        self, values: Sequence[tuple[float, float]], color: str, *, width: float = 2.0, dash: bool = False
    ) -> None:
        """Draws a line through values."""
        self.drawing.path([(self.x(x), self.y(y)) for x, y in values], color, width=width, dash=dash)

    def steps(
        self, hour: float, values: Sequence[float], color: str, *, width: float = 2.0, dash: bool = False
    ) -> None:
        """Draws a value per hour as steps, from an hour on."""
        points = [point for n, y in enumerate(values) for point in ((hour + n, y), (hour + n + 1, y))]
        self.line(points, color, width=width, dash=dash)

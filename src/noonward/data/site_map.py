"""A map of sites as SVG text: coasts of a packaged outline, sites as points, journeys of work between them as arcs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

LEAST_SPAN: Final = 16.0
"""Least height of what a map shows, degrees: one site alone is shown with its surroundings."""
TALLEST: Final = 0.62
"""Largest height over width."""
LAND: Final = "#eceef1"
COAST: Final = "#c3c8d0"
LETTER: Final = 9.0
"""Width of a letter of a name."""
BUCKET: Final = 600.0
"""Longest line of a coast between two points, in units of the map; longer ones jump over its edge."""


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A site on the map.

    Attributes:
        name: Name.
        lat: Latitude, degrees.
        lon: Longitude, degrees.
        size: Area of its point, relative to the largest, 0 to 1.
        color: Color.
        tip: What it says where one points at it.
    """

    name: str
    lat: float
    lon: float
    size: float
    color: str
    tip: str


BEND: Final = 0.18
"""How far arrows bend, as a share of their length."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Work that goes from one spot to another.

    Attributes:
        start: Position of the spot that it leaves.
        end: Position of the spot that it goes to.
        share: Its amount over that of the largest flow, 0 to 1.
        tip: What it says where one points at it.
    """

    start: int
    end: int
    share: float
    tip: str


def site_map(spots: Sequence[Spot], flows: Sequence[Flow] = (), *, width: int = 920) -> str:
    """Returns the map; a fleet in one part of the world fills it.

    The projection is equirectangular, true to scale at the middle of what is shown.

    Args:
        spots: Sites.
        flows: Work that goes from one site to another.
        width: Width of the drawing.
    """
    view = _View.of(spots, width)
    out = [f'<path d="{_coasts(view)}" fill="{LAND}" stroke="{COAST}" stroke-width="0.8"/>']
    places = _apart([view.place(spot.lat, spot.lon) for spot in spots])
    for flow in sorted(flows, key=lambda each: each.share):
        out.append(_arc(places[flow.start], places[flow.end], flow, view.scale))
    taken: list[tuple[float, float, float, float]] = []
    shrink = view.scale * min(1.0, math.sqrt(12 / len(spots)))  # many points are drawn smaller
    radii = [shrink * (5 + 9 * math.sqrt(max(spot.size, 0.0))) for spot in spots]
    for (x, y), radius in zip(places, radii, strict=True):
        taken.append((x - radius, y - radius, x + radius, y + radius))
    for spot, (x, y), radius in zip(spots, places, radii, strict=True):
        tip = f"<title>{escape(spot.tip)}</title>"
        out.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{spot.color}" stroke="#444" '
            f'stroke-width="1.2">{tip}</circle>'
        )
    heads = [_head_box(places[flow.start], places[flow.end], view.scale) for flow in flows]
    for spot, (x, y), radius in sorted(zip(spots, places, radii, strict=True), key=lambda each: -each[0].size):
        box = _free_box(spot.name, x, y, radius, [*taken, *heads], view)
        if box is None:  # better over an arrow than left out
            box = _free_box(spot.name, x, y, radius, taken, view)
        if box is not None:
            taken.append(box)
            out.append(
                f'<text x="{box[0]:.1f}" y="{box[3] - 4:.1f}" class="name" stroke="#fff" stroke-width="3" '
                f'paint-order="stroke">{escape(spot.name)}</text>'
            )
    clip = f'<rect width="{view.width}" height="{view.height:.0f}" fill="#f8fafc"/>'
    return f'<svg viewBox="0 0 {view.width} {view.height:.0f}" role="img">{clip}{"".join(out)}</svg>'


@dataclass(frozen=True, kw_only=True)
class _View:
    """What a map shows: its width, its western and northern edge, degrees, and units a degree."""

    width: int
    west: float
    north: float
    unit_x: float
    unit_y: float
    height: float

    @classmethod
    def of(cls, spots: Sequence[Spot], width: int) -> _View:
        """Returns the view that holds some spots, with room around them."""
        south, north = min(spot.lat for spot in spots), max(spot.lat for spot in spots)
        west, east = min(spot.lon for spot in spots), max(spot.lon for spot in spots)
        middle = (south + north) / 2
        narrow = max(0.35, math.cos(math.radians(middle)))
        tall = max(LEAST_SPAN, 1.3 * (north - south))
        wide = max(tall / TALLEST / narrow, 1.25 * (east - west))
        wide = min(wide, 360.0)
        tall = min(max(tall, 0.34 * wide * narrow), TALLEST * wide * narrow)
        unit_x = width / wide
        begin = min(max((west + east) / 2 - wide / 2, -180.0), 180.0 - wide)
        top = min(middle + tall / 2, 85.0)
        unit_y = unit_x / narrow
        return cls(width=width, west=begin, north=top, unit_x=unit_x, unit_y=unit_y, height=tall * unit_y)

    @property
    def scale(self) -> float:
        """Factor on points and arrows: smaller on narrow maps."""
        return 1.0 if self.width > 600 else 0.6

    def place(self, lat: float, lon: float) -> tuple[float, float]:
        """Returns where a place lies on the map."""
        return (lon - self.west) * self.unit_x, (self.north - lat) * self.unit_y


@cache
def _rings() -> tuple[tuple[tuple[float, float], ...], ...]:
    """Returns the rings of the packaged outline: longitudes and latitudes, degrees."""
    table = json.loads((files("noonward.data") / "tables/coast.json").read_text(encoding="utf-8"))
    return tuple(tuple((a / 10, b / 10) for a, b in zip(r[::2], r[1::2], strict=True)) for r in table["rings"])


def _apart(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns places, those that several points share turned into a small circle around it."""
    out = list(places)
    for shared in set(places):
        alike = [n for n, place in enumerate(places) if place == shared]
        for k, n in enumerate(alike if len(alike) > 1 else ()):
            turn = 2 * math.pi * k / len(alike)
            out[n] = (shared[0] + 15 * math.cos(turn), shared[1] + 15 * math.sin(turn))
    return out


def coasts() -> tuple[list[float | None], list[float | None]]:
    """Returns longitudes and latitudes of the packaged outline, with None between its rings."""
    rings = _rings()
    return (
        [each for ring in rings for each in (*(lon for lon, _ in ring), None)],
        [each for ring in rings for each in (*(lat for _, lat in ring), None)],
    )


def _coasts(view: _View) -> str:
    """Returns the coasts as one path; rings wholly outside the map are left out."""
    out = []
    for ring in _rings():
        places = [view.place(lat, lon) for lon, lat in ring]
        xs, ys = zip(*places, strict=True)
        if max(xs) < 0 or min(xs) > view.width or max(ys) < 0 or min(ys) > view.height:
            continue
        out.append("M" + "L".join(f"{_near(x, view.width):.0f} {_near(y, view.height):.0f}" for x, y in places) + "Z")
    return "".join(out)


def _near(value: float, most: float) -> float:
    """Returns a coordinate; one far outside the map is drawn in to just outside it."""
    return min(max(value, -BUCKET), most + BUCKET)


def _middle(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """Returns the point that bends the line between two places."""
    (x1, y1), (x2, y2) = start, end
    return (x1 + x2) / 2 - BEND * (y2 - y1), (y1 + y2) / 2 + BEND * (x2 - x1)


def _head_box(start: tuple[float, float], end: tuple[float, float], scale: float) -> tuple[float, float, float, float]:
    """Returns the box around the last part of an arrow, which its head and the line behind it take."""
    mid_x, mid_y = _middle(start, end)
    towards = math.atan2(end[1] - mid_y, end[0] - mid_x)
    x, y = end[0] - 50 * scale * math.cos(towards), end[1] - 50 * scale * math.sin(towards)
    room = 5 * scale
    return min(x, end[0]) - room, min(y, end[1]) - room, max(x, end[0]) + room, max(y, end[1]) + room


def _arc(start: tuple[float, float], end: tuple[float, float], flow: Flow, scale: float) -> str:
    """Returns a bent line with an arrow head, the thicker the larger the flow."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    mid_x, mid_y = _middle(start, end)
    towards = math.atan2(y2 - mid_y, x2 - mid_x)
    back = min(20.0 * scale, length / 3)
    tip_x, tip_y = x2 - back * math.cos(towards), y2 - back * math.sin(towards)
    wide = scale * (1.2 + 4.8 * flow.share)
    size = 5 * scale + wide
    head = " ".join(
        f"{tip_x + size * math.cos(towards + turn):.1f},{tip_y + size * math.sin(towards + turn):.1f}"
        for turn in (0.0, 2.4, -2.4)
    )
    return (
        f'<g opacity="0.75"><title>{escape(flow.tip)}</title><path d="M{x1:.1f} {y1:.1f}Q{mid_x:.1f} {mid_y:.1f} '
        f'{tip_x:.1f} {tip_y:.1f}" fill="none" stroke="#6b7280" stroke-width="{wide:.1f}"/>'
        f'<polygon points="{head}" fill="#6b7280"/></g>'
    )


def _free_box(
    name: str, x: float, y: float, radius: float, taken: Sequence[tuple[float, float, float, float]], view: _View
) -> tuple[float, float, float, float] | None:
    """Returns a free box beside a point for its name: right, left, above or below; None where there is none."""
    width, tall = LETTER * len(name), 17.0
    corners = (
        (x + radius + 4, y - tall / 2),
        (x - radius - 4 - width, y - tall / 2),
        (x - width / 2, y - radius - tall - 2),
        (x - width / 2, y + radius + 2),
    )
    for left, top in corners:
        box = (left, top, left + width, top + tall)
        inside = box[0] >= 2 and box[2] <= view.width - 2 and box[1] >= 2 and box[3] <= view.height - 2
        if inside and not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
            return box
    return None

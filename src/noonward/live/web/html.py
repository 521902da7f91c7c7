"""Templates, and the headers that every page carries."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from noonward.live.spoken import hours
from noonward.live.web.headers import COMMON
from noonward.live.web.words import interval_words
from noonward.live.web.world_map import CARBON_STEPS, world_map

STATIC: Final = Path(__file__).parent / "static"
SAID: Final = "noonward_said"
"""Cookie that carries what a form did to the next page."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    **COMMON,
}
"""Nothing is loaded from another host, no script or style stands in the page, no other page may frame it."""


class Html:
    """Makes pages from templates; everything that is put in is escaped."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        digest = hashlib.blake2b(digest_size=6)
        for file in sorted(STATIC.iterdir()):
            digest.update(file.read_bytes())
        version = digest.hexdigest()
        self._environment.globals["static"] = lambda name: f"/static/{name}?{version}"
        self._environment.globals["plot"] = plot
        self._environment.globals.update(interval_words=interval_words, world_map=world_map, CARBON_STEPS=CARBON_STEPS)
        self._environment.filters.update(moment=moment, figure=figure, hours=hours)

    def page(self, template: str, status: int = 200, **content: Any) -> HTMLResponse:
        """Returns a page."""
        return HTMLResponse(self.text(template, **content), status, headers=HEADERS)

    def text(self, template: str, **content: Any) -> str:
        """Returns the HTML of a page."""
        return self._environment.get_template(template).render(**content)


def moment(text: str | None) -> Markup:
    """Returns a UTC time as it is shown.

    Example:
        >>> str(moment("2026-03-01T09:05:00Z"))
        '<time datetime="2026-03-01T09:05:00Z">1 Mar 09:05</time>'
    """
    if text is None:
        return Markup("–")
    at = datetime.fromisoformat(text)
    return Markup('<time datetime="{}">{} {:%b %H:%M}</time>').format(text, at.day, at)


def figure(value: float | None, digits: int = 1) -> str:
    """Returns a number with a fixed count of decimals, or a dash.

    Example:
        >>> figure(1234.56), figure(None), figure(0.0, 2)
        ('1,234.6', '–', '0.00')
    """
    return "–" if value is None else f"{value:,.{digits}f}"


def plot(label: str, unit: str, x: list[int], lines: list[tuple[str, str, list[float | None]]], **more: Any) -> Markup:
    """Returns the element that the script turns into a chart.

    Args:
        label: What it shows, also for those who do not see it.
        unit: Unit of the axis.
        x: Times, s since 1970.
        lines: Kind of each line (which says how it is drawn), its name and its values.
        more: ``now`` (s since 1970), ``top`` (a level to mark), ``step`` (whether values hold until the next).
    """
    content = {
        "unit": unit, "x": x, "lines": [{"kind": k, "name": n, "values": v} for k, n, v in lines], **more,
    }  # fmt: skip
    return Markup('<div class="plot" role="img" aria-label="{}" data-plot="{}"></div>').format(
        label, escape(json.dumps(content))
    )
